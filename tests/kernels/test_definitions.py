"""Kernels against their definitions, written as plain weights; fast ways against dense ones."""

import inspect
import re
import warnings
from dataclasses import astuple
from functools import partial
from itertools import product

import numpy as np
import pytest

from calliper import KNN, RBF
from calliper.exceptions import CalliperError
from calliper.kernels import (
    ForestProximity,
    GradedKNN,
    Mahalanobis,
    TunedKNN,
    TunedRBF,
)
from calliper.kernels._arithmetic import times
from calliper.kernels._kernel import Bag, LeaveTwoOut
from calliper.kernels._nearest import Nearest
from calliper.kernels._proximity import SharedLeaves
from calliper.kernels._rbf import Radial, RadialMeans
from calliper.kernels._search import NeighborSearch
from calliper.kernels._weighted import sums_of_others
from calliper.quantile import Shares, row_thresholds, with_signs
from calliper.rows import Rows
from calliper.scale import Cells


def shared(distance, k):
    """Weights of the K nearest, of which those as far as the K-th share what is left of K."""
    reach = np.sort(distance)[min(k, len(distance)) - 1]
    near, tied = distance < reach, distance == reach
    return near + (min(k, len(distance)) - near.sum()) / tied.sum() * tied


def weights(kernel, row, others, n=None):
    """How loudly each of the others, of n points, speaks at a row."""
    distance = ((others - row) ** 2).sum(axis=1)
    if isinstance(kernel, KNN):
        return shared(distance, kernel.n_neighbors)
    if isinstance(kernel, GradedKNN):
        ks = [min(m * kernel.n_neighbors, len(others)) for m in (1, 4)]
        return sum(shared(distance, k) / k for k in ks)
    if isinstance(kernel, RBF):
        if kernel.step:
            side = kernel.step * kernel.length_scale
            row, others = np.round(row / side) * side, np.round(others / side) * side
            distance = ((others - row) ** 2).sum(axis=1)
        exponent = -distance / (2 * kernel.length_scale**2)
        if kernel.smoothing:
            return np.exp(exponent) + kernel.smoothing / (n or len(others))
        return np.exp(exponent - exponent.max())
    count = (row == others).sum(axis=1) * 1.0  # of leaves
    return count if count.any() else np.ones(len(others))


def mean(kernel, row, others, values, n=None):
    loud = weights(kernel, row, others, n)
    return loud @ values / loud.sum()


def quantile(kernel, row, others, values, level):
    """The smallest value up to which the weights of K reach the level."""
    order, loud = np.argsort(values), weights(kernel, row, others)
    needed = np.ceil(level * kernel.n_neighbors - 1e-9)
    return values[order][np.argmax(np.cumsum(loud[order]) >= needed - 1e-9)]


def places(kind, n, seed=0):
    """Rows and scores: with ties, without, or of more features than are summed one by one."""
    draw = np.random.default_rng(seed)
    if kind in ("lattice", "leaves", "lonely"):
        most, d = {"lattice": (4, 2), "leaves": (4, 3), "lonely": (40, 2)}[kind]
        Z = draw.integers(most, size=(n, d)) * 1.0
    else:
        Z = draw.normal(size=(n, {"plain": 2, "wide": 10}[kind]))
    return Z, draw.integers(1, 9, size=n) * 1.0


CASES = [
    (KNN(1), "lattice"), (KNN(3), "lattice"), (KNN(4), "plain"), (KNN(9), "plain"),
    (KNN(5), "wide"), (GradedKNN(1), "lattice"), (GradedKNN(2), "plain"), (GradedKNN(3), "lattice"),
    (RBF(0.7), "lattice"), (RBF(1.5), "wide"), (RBF(0.7, step=0.5), "plain"),
    (RBF(0.7, smoothing=2.0), "lattice"), (RBF(2.0, smoothing=0.5), "wide"),
    (RBF(0.8, smoothing=1.0, step=0.5), "plain"), (ForestProximity(), "leaves"),
    (ForestProximity(), "lonely"), (RBF(0.05, smoothing=1e-30), "plain"),
]  # fmt: skip
IDS = [f"{kernel}-{kind}" for kernel, kind in CASES]


SCALES = {
    "mean": lambda kernel, level, row, others, values: mean(kernel, row, others, values),
    "quantile": lambda kernel, level, *how: quantile(kernel, *how, level),
}


def is_ahead(i, rows, scores, local, offset, slope, t):
    """Whether point i is at least as strange as a new one, the last of the rows, of score t."""
    values = np.append(scores, t)
    mine, new = (
        local(rows[j], np.delete(rows, j, axis=0), np.delete(values, j)) + offset + slope * t
        for j in (i, len(scores))
    )
    return scores[i] * new >= t * mine * (1 - 1e-12)


QUANTILES = [(*case, "quantile") for case in CASES if isinstance(case[0], KNN)]


@pytest.mark.parametrize(
    ("kernel", "kind", "statistic"), [*((*case, "mean") for case in CASES), *QUANTILES]
)
def test_thresholds_are_where_comparisons_end(kernel, kind, statistic):
    n = 13
    Z, scores = places(kind, n + 2, 3)
    scores = scores[:n] * (np.arange(n) % 4 > 0)
    for row, (offset, slope, level) in product(
        Z[n:], ((0.0, 0.0, 0.3), (0.5, 0.0, 0.5), (0.5, 0.7, 0.9))
    ):
        bag = kernel.bag(Rows(Z[:n], scores, scores), statistic=statistic, offset=offset)
        (found,) = bag.thresholds(row[None], level, slope)
        rows = np.vstack([Z[:n], row])
        for i, t in enumerate(found):
            holds = partial(
                is_ahead, i, rows, scores, partial(SCALES[statistic], kernel, level), offset, slope
            )
            if np.isinf(t):
                assert holds(1e15)
            else:
                assert holds(t * (1 - 1e-8)) and not holds(t * (1 + 1e-8) + 1e-12)


@pytest.mark.parametrize(("kernel", "kind"), CASES, ids=IDS)
def test_scales_are_means_of_the_others(kernel, kind):
    Z, scores = places(kind, 30, 1)
    new = np.vstack([Z[:3], Z[3:6] + (1 if kind in ("leaves", "lonely") else 0.5)])
    alone = [np.delete(np.arange(30), i) for i in range(30)]
    for values in (scores, 10.0 ** -np.linspace(3, 40, 30)):  # where one may be all of a sum
        expected = [mean(kernel, Z[i], Z[o], values[o], 30) for i, o in enumerate(alone)]
        bag = kernel.bag(Rows(Z, values, values), statistic="mean", offset=0.0)
        np.testing.assert_allclose(bag.calibration_scale(0.5), expected, rtol=1e-10)
        if isinstance(kernel, GradedKNN):
            continue
        shifted = bag.with_offset(0.25).calibration_scale(0.5)
        np.testing.assert_allclose(shifted, np.add(expected, 0.25), rtol=1e-10)
        two = kernel.leave_two_out(Rows(Z, magnitudes=values), offset=0.0, rng=None)
        np.testing.assert_allclose(two.without_one, expected, rtol=1e-10)
        expected = [[mean(kernel, x, Z[o], values[o], 30) for o in alone] for x in new]
        np.testing.assert_allclose(two.without_each(new), expected, rtol=1e-10)
        expected = [mean(kernel, x, Z, values) for x in new]
        np.testing.assert_allclose(kernel.mean(Z, values).predict(new), expected, rtol=1e-10)


@pytest.mark.parametrize("statistic", ["mean", "quantile"])
def test_scales_of_several_kernels_at_once_are_those_of_each(statistic):
    """Also where only the smaller neighbourhood has a tie."""
    Z, scores = places("lattice", 30, 2)
    Z[20:] += np.random.default_rng(5).normal(size=(10, 2))
    families = [[KNN(2), KNN(5), KNN(3)]]
    if statistic == "mean":
        families += [
            [GradedKNN(1), GradedKNN(3)],
            [RBF(0.5, smoothing=1.0), RBF(1.5, smoothing=3.0), RBF(0.7, smoothing=1, step=0.5)],
        ]
    for kernels in families:
        found = type(kernels[0]).scales_of_others(kernels, Z, scores, statistic=statistic)(0.6)
        for kernel, scales in zip(kernels, found, strict=True):
            for i, scale in enumerate(scales):
                others = np.delete(np.arange(30), i)
                if statistic == "quantile":
                    expected = quantile(kernel, Z[i], Z[others], scores[others], 0.6)
                else:
                    expected = mean(kernel, Z[i], Z[others], scores[others])
                np.testing.assert_allclose(scale, expected, rtol=1e-10)


LARGE = [
    (KNN(6), "lattice"), (KNN(6), "half"), (GradedKNN(2), "half"), (RBF(0.3), "plain"),
    (RBF(0.02), "half"), (RBF(0.1), "plain"), (RBF(0.3), "half"), (RBF(0.8), "wide"),
    (RBF(0.3, smoothing=1), "half"),
]  # fmt: skip


def large(kind):
    """Many points: most thresholds lie outside a window; a cluster may have zero scores."""
    draw = np.random.default_rng(7)
    Z = draw.normal(size=(500, 10 if kind == "wide" else 2))
    Z = np.round(2 * Z) if kind == "lattice" else Z
    if kind == "half":
        Z[::2] = np.round(2 * Z[::2]) / 2
    scores = np.exp(6 * draw.normal(size=500))
    if kind in ("half", "lattice"):
        scores[Z[:, 0] > 0.8] = 0.0
    else:
        scores *= 1e12  # in whatever unit
    new = np.vstack([Z[:20], draw.normal(size=(12, Z.shape[1])), Z[12:15] + 6.0])
    return Z, scores, new, draw


@pytest.mark.parametrize(("kernel", "kind"), LARGE, ids=[f"{k}-{kind}" for k, kind in LARGE])
@pytest.mark.parametrize("offset", [0.0, 1e-3])
def test_selected_thresholds_are_those_of_sorting_all(kernel, kind, offset):
    Z, scores, new, draw = large(kind)
    bag = kernel.bag(Rows(Z, scores, scores), statistic="mean", offset=offset)
    every, levels = bag.thresholds(new), [0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98]
    ranks = [int(np.ceil(level * 501 - 1e-9)) for level in levels]
    expected = np.sort(every, axis=1)[:, np.array(ranks) - 1]
    np.testing.assert_allclose(bag.order_statistics(new, levels), expected, rtol=1e-9)
    each = [bag.order_statistics(row[None], levels)[0] for row in new]  # exceptions of one alone
    np.testing.assert_allclose(each, expected, rtol=1e-9)
    shares = Shares(draw.integers(0, 3, 500) * 1.0, draw.integers(1, 9, len(new)) * 1.0)
    found = bag.order_statistics(new, levels, shares)
    np.testing.assert_allclose(found, row_thresholds(every, levels, shares), rtol=1e-9)
    signs = draw.choice([-1.0, 0.0, 1.0], 500)
    expected = np.sort(with_signs(every, signs), axis=1)[:, np.array(ranks) - 1]
    np.testing.assert_allclose(
        bag.order_statistics(new, ranks, signs=signs), expected, rtol=1e-9, atol=1e-280
    )
    rising = row_thresholds(bag.thresholds(new, 0.6, 0.4), [0.6], None)[:, 0]
    np.testing.assert_allclose(bag.order_statistics(new, [0.6], slope=0.4)[:, 0], rising, rtol=1e-9)
    own = np.full(len(new), 2.0)
    shares = Shares(np.ones(500), own)
    rising = row_thresholds(bag.thresholds(new, 0.6, 0.4), [0.6], shares)[:, 0]
    np.testing.assert_allclose(
        bag.order_statistics(new, [0.6], shares, slope=0.4)[:, 0], rising, rtol=1e-9
    )
    dense = Bag.order_statistics(bag, new, ranks, slope=0.4, signs=signs)
    np.testing.assert_allclose(bag.order_statistics(new, ranks, slope=0.4, signs=signs), dense)


TWO = [
    *(case for case in LARGE if not isinstance(case[0], GradedKNN)),
    (TunedKNN(n_neighbors=[4, 9]), "half"), (TunedRBF(length_scales=[0.2, 0.6]), "half"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "kind"), TWO, ids=[f"{k}-{kind}" for k, kind in TWO])
def test_without_two_points_fast_ways_are_the_dense_one(kernel, kind):
    """Rows with ties and rows without are in one batch; some weights are nought."""
    Z, scores, new, draw = large(kind)
    Z, scores = Z[:160], scores[:160]
    scale = kernel.resolved().leave_two_out(
        Rows(Z, magnitudes=scores), offset=1e-3, rng=np.random.RandomState(0)
    )
    scale.prepare(scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every = times(scale.without_each(new), scale.rescaled)
        ranks, levels = [1, 40, 80, 144, 158], [0.05, 0.5, 0.9]
        expected = np.sort(every, axis=1)[:, np.array(ranks) - 1]
        np.testing.assert_allclose(scale.order_statistics(new, ranks), expected, rtol=1e-9)
        each = [scale.order_statistics(row[None], ranks)[0] for row in new]
        np.testing.assert_allclose(each, expected, rtol=1e-9)
        np.testing.assert_allclose(scale.largest(new), LeaveTwoOut.largest(scale, new), rtol=1e-12)
        shares = Shares(draw.integers(0, 3, 160) * 1.0, draw.integers(1, 9, len(new)) * 1.0)
        found = scale.order_statistics(new, levels, shares)
    np.testing.assert_allclose(found, row_thresholds(every, levels, shares), rtol=1e-9)


def test_signs_of_local_quantiles_are_asked_at_the_middle():
    Z, scores, new, draw = large("half")
    bag = KNN(6).bag(Rows(Z, scores, scores), statistic="quantile", offset=0.0)
    signs, ranks = draw.choice([-1.0, 1.0], 500), [50, 250, 450]
    expected = np.sort(with_signs(bag.thresholds(new, 0.5), signs), axis=1)[:, np.array(ranks) - 1]
    found = bag.order_statistics(new, ranks, signs=signs)
    np.testing.assert_allclose(found, expected, atol=1e-280)


def test_leaves_are_shared_with_others_in_any_block():
    Z = np.random.default_rng(0).integers(3, size=(9, 4)) * 1.0
    leaves = SharedLeaves(ForestProximity(), Z)
    whole = leaves.to(Z) * (1 - np.eye(9))
    for rows in (slice(0, 4), slice(4, 7), slice(7, 9)):
        np.testing.assert_array_equal(leaves.among(rows)[0], whole[rows])


def test_crowds_and_few_candidates_say_the_same():
    """Who is tied is gathered in two ways: both give all that is asked of either."""
    Z, scores = places("lattice", 40, 4)
    Z, points = Z[:, :1], np.arange(40)
    search, new = NeighborSearch(Z, "euclidean"), np.array([[-1.0], [0.5], [2.0]])
    every = NeighborSearch(Z, "sqeuclidean")  # which knows nothing beforehand
    assert search.shell(Z, 5, points)[2].all() and search.shell(new, 5)[2].all()
    assert not every.shell(Z, 5, points)[2].any() and not every.shell(new, 5)[2].any()
    for k in (1, 2, 5):
        few, all_of = Nearest(search, scores, k), Nearest(every, scores, k)
        for rank in range(1, k + 1):
            both = [each.clamps(points, rank) for each in (few, all_of)]
            np.testing.assert_array_equal(*both)
            np.testing.assert_array_equal(
                *(each.quantiles_of_tied(new, [rank]) for each in (few, all_of))
            )
        np.testing.assert_array_equal(few.means_of_tied(new), all_of.means_of_tied(new))
        both = [astuple(each.sums_of_others(points)) for each in (few, all_of)]
        np.testing.assert_array_equal(*both)


@pytest.mark.parametrize("plain", [KNN(4), RBF(0.02)])
def test_means_without_two_points_are_those_of_all_but_one_without_each(plain):
    Z, scores, *_ = large("half")
    Z, scores = Z[:90], scores[:90]
    if isinstance(plain, KNN):
        means = Nearest(NeighborSearch(Z, "euclidean"), scores, 4)
    else:
        means = RadialMeans(Radial(Z, 0.02, "euclidean"), scores)
    two, row = means.among(), np.arange(90)
    for i in range(0, 90, 7):
        others = np.delete(row, i)
        left = plain.leave_two_out(Rows(Z[others], magnitudes=scores[others]), offset=0.0, rng=None)
        expected = left.without_each(Z[i : i + 1])[0]
        np.testing.assert_allclose(two[i, others], expected, rtol=1e-9)


@pytest.mark.parametrize("tuned", [TunedKNN(n_neighbors=[4]), TunedRBF(length_scales=[0.3])])
def test_a_tuned_kernel_with_no_choice_is_the_plain_one(tuned):
    Z, scores, new, _ = large("plain")
    Z, scores = Z[:60], scores[:60]
    plain = KNN(4) if isinstance(tuned, TunedKNN) else RBF(0.3)
    one, other = (
        kernel.resolved().leave_two_out(
            Rows(Z, magnitudes=scores), offset=0.5, rng=np.random.RandomState(0)
        )
        for kernel in (tuned, plain)
    )
    one.prepare(scores)
    np.testing.assert_allclose(one.without_one, other.without_one, rtol=1e-12)
    np.testing.assert_allclose(one.without_each(new), other.without_each(new), rtol=1e-9)
    loss = np.square(scores - one.family(one.candidates[0]).among().T - 0.5)
    np.fill_diagonal(loss, 0.0)
    np.testing.assert_allclose(one.criteria[0], loss.sum(axis=1) / 59, rtol=1e-9)


def test_many_points_are_summed_in_several_blocks():
    draw = np.random.default_rng(0)
    Z, scores = draw.normal(size=(700, 2)), draw.exponential(size=700)
    total, weight, largest = sums_of_others(Radial(Z, 0.5, "euclidean"), scores)
    squared = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    np.testing.assert_allclose(largest, -squared.min(axis=1) / 0.5, rtol=1e-9)
    loud = np.exp(-squared / 0.5)
    np.testing.assert_allclose(total / weight, loud @ scores / loud.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(weight, loud.sum(axis=1) / np.exp(largest), rtol=1e-9)


def test_default_parameters_are_those_that_the_docstrings_name():
    for kind in (KNN, RBF, GradedKNN, ForestProximity, Mahalanobis, TunedKNN, TunedRBF, Cells):
        text, signature = inspect.getdoc(kind), inspect.signature(kind).parameters
        for names, said in re.findall(r"^(\w[\w, ]*) : .*, default (.+)$", text, re.MULTILINE):
            default = signature[names].default
            if default is None:
                default = kind().resolved().get_params()[names]
            assert repr(default).replace("'", '"') in (said, f"{said}.0") or repr(default) == repr(
                KNN(30)
            )
    assert Mahalanobis().resolved().kernel.n_neighbors == 30


def test_engines_are_checked_before_anything_else():
    for kernel in (KNN(5, engine="abacus"), RBF(1.0, engine="abacus")):
        with pytest.raises(ValueError, match="abacus"):
            kernel.resolved()


def test_engines_have_no_means():
    pytest.importorskip("torch")
    Z, scores = places("plain", 20)
    for ask in (RBF(1.0, engine="torch:cpu").mean, RBF(1.0, engine="torch:cpu").local_quantile):
        with pytest.raises(CalliperError, match="leave out engine="):
            ask(Z, scores)


def test_sums_by_site_are_those_of_all_pairs():
    rng = np.random.default_rng(0)
    Z = np.vstack([rng.normal(size=(80, 2)), [[50.0, 50.0], [90.0, 0.0], [90.0, 0.1]]])
    sizes = rng.exponential(size=83) * np.where(np.arange(83) % 9, 1.0, 1e8)
    weights = RBF(0.7, smoothing=1.0, step=0.5).weights(Z)
    among, _ = weights.among(slice(0, 83))
    total, weight, _ = sums_of_others(weights, sizes)
    assert len(np.unique(weights.points, axis=0)) < 70
    np.testing.assert_allclose(total, (among * sizes).sum(axis=1), rtol=1e-11)
    np.testing.assert_allclose(weight, among.sum(axis=1), rtol=1e-11)
