"""Neighbours in cells: equal to the definition, valid, and fixed without calibration rows."""

import math
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

from calliper import KNN, FullRescaled, JackknifeRescaled
from calliper.calibrators import SLCP, JackknifeMinmaxRescaled, MADSplit
from calliper.exceptions import CalliperError
from calliper.kernels import all_distances
from calliper.quantile import Shares, conformal_rank, row_thresholds, with_signs
from calliper.rows import Rows
from calliper.scale import Cells
from calliper.scale._cells import CellSearch, FixedCells, number_of_cells
from oracles import cells as oracle
from oracles.shared_ties import exact_row, exact_rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def world(seed):
    """A small problem full of ties, with cells that hold nobody and members that find nobody."""
    rng = np.random.default_rng(seed)
    n, d, C = int(rng.integers(2, 12)), int(rng.choice([1, 2, 3, 40])), int(rng.integers(1, 9))
    spread = int(rng.choice([1, 2, 4, 30]))
    Z = rng.integers(-spread, spread + 1, size=(n + 1, d)) * 1.0
    if seed % 3 == 0:
        Z[-1] += 20
    centres = np.unique(rng.integers(-spread, spread + 1, size=(C, d)) * 1.0, axis=0)
    scores = [
        rng.integers(4, size=n) * 1.0,
        rng.integers(1, 10**6, size=n) * 1.0,
        rng.integers(1, 50, size=n) * (rng.random(n) < 0.6) * 1.0,
    ][rng.integers(3)]
    how = {
        "centres": centres,
        "n_probes": int(rng.integers(1, 4)),
        "k": int(min(n, rng.choice([1, 2, 3, 5]))),
        "statistic": str(rng.choice(["mean", "rms"])),
        "offset": float(rng.choice([0.0, 0.0, 0.5, 3.0])),
        "shrinkage": float(rng.choice([0.0, 0.0, 0.25, 0.75])),
    }
    return Z[:n], scores, Z[n:], how


#: Enough for all that can happen; see below.
WORLDS = range(100)


def fitted(Z, scores, how):
    cells = FixedCells(how["centres"], None, how["n_probes"], 0)
    rest = {name: how[name] for name in ("statistic", "offset", "shrinkage")}
    return FullRescaled(KNN(how["k"], cells=cells), **rest).fit(Z, scores)


@pytest.mark.parametrize("seed", WORLDS)
def test_thresholds_and_radii_are_those_of_the_definition(seed):
    Z, scores, new, how = world(seed)
    method = fitted(Z, scores, how)
    thresholds = method._in_unit(method.bag_.thresholds(new))[0]

    def held(t):
        return np.array(oracle.holds(Z, scores, new[0], t, **how))

    for i, t in enumerate(thresholds):
        if np.isinf(t):
            assert held(1e30)[i]
            continue
        assert held(t * (1 - 1e-9))[i]
        assert not held(t * (1 + 1e-9) + 1e-200)[i]
    levels = [0.1, 0.3, 0.5, 0.8]
    ranks = [conformal_rank(level, len(Z)) for level in levels]
    expected = [np.inf if r > len(Z) else np.sort(thresholds)[r - 1] for r in ranks]
    np.testing.assert_allclose(method.predict_radius(new, levels)[0], expected, rtol=1e-9)
    again = np.vstack([new, Z, new])
    np.testing.assert_array_equal(
        method.predict_radius(again, levels)[[0, -1]], method.predict_radius(new, levels)[[0, 0]]
    )
    kept = pickle.loads(pickle.dumps(method)).predict_radius(new, levels)
    np.testing.assert_array_equal(kept, method.predict_radius(new, levels))


def test_the_worlds_have_everything_that_can_happen():
    seen = set()
    for seed in WORLDS:
        Z, _, new, how = world(seed)
        bag, centres = exact_rows(np.vstack([Z, new])), exact_rows(how["centres"])
        found = [oracle.candidates(i, bag, centres, how["n_probes"]) for i in range(len(bag))]
        seen |= {"new alone"} if not found[-1] else {"new found some"}
        for mine in found[:-1]:
            others = [j for j in mine if j < len(Z)]
            seen.add(("enters" if len(mine) > len(others) else "not", min(len(others), 3)))
    assert len(seen) == 10


def test_cells_and_probes_are_the_nearest_centres_of_each_row_alone():
    rng = np.random.default_rng(0)
    for d, n_centres in ((1, 9), (2, 200), (3, 12), (40, 30)):
        centres = np.unique(rng.integers(-9, 10, size=(n_centres, d)) / 2, axis=0)
        search = CellSearch(rng.normal(size=(20, d)), centres, 3)
        rows = 4 * rng.normal(size=(50, d))
        found = search.locate(rows)
        for row, cell, probes in zip(rows, found.cell, found.probes, strict=True):
            expected = oracle.probed(exact_row(row), exact_rows(centres), 3)
            assert cell == expected[0] and sorted(probes) == sorted(expected)
            alone = search.locate(row[None])
            assert alone.cell[0] == cell and np.array_equal(alone.probes[0], probes)


@pytest.mark.parametrize(("d", "kind"), [(3, "normal"), (20, "normal"), (20, "copies"), (2, "far")])
def test_a_larger_search_is_exact_among_candidates(d, kind):
    rng = np.random.default_rng(d)
    points, rows = rng.normal(size=(3000, d)), rng.normal(size=(60, d))
    if kind == "copies":
        points[1000:] = points[rng.integers(1000, size=2000)]
    if kind == "far":
        points, rows = 1e7 + np.round(points, 2), 1e7 + np.round(rows, 2)
        rows[:3] *= 1e30
    search = CellSearch(points, points[rng.choice(1000, 40, replace=False)], 4)
    new = search.locate(rows)
    found, others = search.nearest(new, 5), search.nearest_others(5)
    members = [np.flatnonzero(np.isin(search.located.cell, p)) for p in new.probes]
    reach = np.array([others.reach[i] for i in range(3000)])
    pairs = set()
    for r, (row, mine) in enumerate(zip(rows, members, strict=True)):
        distance = np.cumsum((row - points[mine]) ** 2, axis=1)[:, -1]
        order = np.sort(distance)
        assert found.size[r] == len(mine)
        assert (r in found.shells[0]) == (order[4] in (order[3], order[5]))
        if r not in found.shells[0]:
            near = np.cumsum((row - points[found.near[r]]) ** 2, axis=1)[:, -1]
            np.testing.assert_array_equal(np.sort(near), order[:5])
            assert order[3] < order[4] < order[5] and found.reach[r] == order[4]
        everyone = np.cumsum((row - points) ** 2, axis=1)[:, -1]
        probing = (search.located.probes == new.cell[r]).any(axis=1)
        pairs |= {(r, i) for i in np.flatnonzero(probing & (everyone <= reach))}
    row, point, _ = search.entering(new, reach)
    assert set(zip(row.tolist(), point.tolist(), strict=True)) == pairs and len(pairs) > 50
    assert np.all(np.diff(row) >= 0)


def draw(rng, n):
    Z = np.round(rng.normal(size=(n, 2)), 1)
    return Z, np.abs(rng.normal(size=n)) * np.exp(Z[:, 0])


@pytest.mark.parametrize("train", [0, 200])
@pytest.mark.parametrize("shrinkage", [0.0, 0.5])
@pytest.mark.long
def test_coverage_is_the_level(train, shrinkage):
    """Over draws of calibration and new points, the partition held fixed; some are alone."""
    rng = np.random.default_rng(0)
    Z_train = draw(rng, train)[0] if train else None
    kernel = KNN(5, cells=Cells(60, n_probes=2, random_state=0)).resolved(Z_train)
    draws, level, alone = 100, 0.8, 0
    covered = np.empty(draws)
    for i in range(draws):
        Z, scores = draw(rng, 69)
        method = FullRescaled(kernel, shrinkage=shrinkage).fit(Z[:39], scores[:39])
        covered[i] = np.mean(scores[39:] <= method.predict_radius(Z[39:], level))
        local = getattr(method.bag_, "bag", method.bag_)
        alone += local.statistic.alone.sum()
    assert alone > draws
    proved = float(method.guaranteed_coverage(level))
    assert abs(covered.mean() - proved) < 4 * covered.std() / np.sqrt(draws)


def test_the_partition_knows_nothing_of_calibration_rows():
    rng = np.random.default_rng(1)
    train, scores = rng.normal(size=(300, 3)), rng.exponential(size=100)
    for Z_train in (train, None):
        centres = []
        for shift in (0.0, 5.0):
            kernel = KNN(5, cells=Cells(20, random_state=3))
            method = FullRescaled(kernel).fit(
                rng.normal(size=(100, 3)) + shift, scores, training=Z_train
            )
            centres.append(method.bag_.search.partition.points)
        np.testing.assert_array_equal(*centres)


def test_all_cells_probed_is_the_exact_search():
    rng = np.random.default_rng(2)
    Z, scores, new = rng.normal(size=(300, 4)), rng.exponential(size=300), rng.normal(size=(50, 4))
    Z[200:] = np.round(Z[200:])
    exact = FullRescaled(KNN(7), offset=0.1).fit(Z, scores).predict_radius(new, [0.5, 0.9])
    cells = Cells(9, n_probes=9, random_state=0)
    found = FullRescaled(KNN(7, cells=cells), offset=0.1).fit(Z, scores, training=Z[:100])
    np.testing.assert_allclose(found.predict_radius(new, [0.5, 0.9]), exact, rtol=1e-12)
    weights, own = rng.exponential(size=300), rng.exponential(size=50)
    exact = FullRescaled(KNN(7)).fit(Z, scores, weights=weights).predict_radius(new, weights=own)
    found = FullRescaled(KNN(7, cells=cells)).fit(Z, scores, weights=weights)
    np.testing.assert_allclose(found.predict_radius(new, weights=own), exact, rtol=1e-12)


def test_what_is_no_cell_is_refused_by_name():
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(40, 2)), rng.exponential(size=40)
    rest = {"training": (Z, scores)}
    for method in (
        JackknifeRescaled(KNN(5, cells=4)),
        JackknifeMinmaxRescaled(KNN(5, cells=4)),
        FullRescaled(KNN(5, cells=4), statistic="quantile"),
    ):
        with pytest.raises(TypeError, match="cells are for FullRescaled with the mean"):
            method.fit(Z, scores)
    for method in (MADSplit(KNN(5, cells=4)), SLCP(KNN(5, cells=4))):
        with pytest.raises(TypeError, match="cells are for FullRescaled with the mean"):
            method.fit(Z, scores, **rest)
    for cells, error, match in (
        ("many", TypeError, "cells must be Cells.*got 'many'"),
        (0, ValueError, "n_cells of Cells must be an integer of at least 1; got 0"),
        (
            Cells(4, n_probes=0),
            ValueError,
            "n_probes .* must be an integer of at least 1; got 0",
        ),
        (
            Cells(4, n_probes=2.5),
            ValueError,
            "n_probes .* must be an integer of at least 1; got 2.5",
        ),
        (Cells(50), CalliperError, "50 cells need at least as many training rows; got 40"),
    ):
        with pytest.raises(error, match=match):
            FullRescaled(KNN(5, cells=cells)).fit(Z, scores, **rest)
    with pytest.raises(ValueError, match=r"cells work only with .*got metric='cosine'"):
        FullRescaled(KNN(5, metric="cosine", cells=4)).fit(Z, scores)
    with pytest.raises(CalliperError, match="learnt on training rows with 2 features; got 3"):
        KNN(5, cells=4).resolved(Z).bag(
            Rows(np.zeros((9, 3)), np.ones(9), np.ones(9)), statistic="mean", offset=0.0
        )
    with pytest.raises(CalliperError, match="between 1e-100 and 1e\\+100 in size"):
        FullRescaled(KNN(5, cells=4)).fit(1e120 * Z, scores)


def test_a_copy_asks_the_same():
    kernel = KNN(5, cells=Cells(7, n_probes=3, random_state=1))
    assert repr(clone(kernel)) == repr(kernel)
    assert kernel.widened(2, 100).cells is kernel.cells
    assert "7 random directions, 3 probed" in repr(kernel.resolved())
    assert "20 cells of training rows" in repr(KNN(cells=20).resolved(np.eye(30)))


@pytest.mark.parametrize("seed", range(0, 120, 3))
def test_signed_and_weighted_order_statistics_are_those_of_the_thresholds(seed):
    """New rows far from all: most find nobody, and their scale lies between two."""
    Z, scores, new, how = world(seed)
    bag = fitted(Z, scores, how | {"shrinkage": 0.0}).bag_
    thresholds, ranks = bag.thresholds(new), list(range(1, len(Z) + 1))
    signs = np.random.default_rng(seed).choice([-1.0, 0.0, 1.0], len(Z))
    found = bag.order_statistics(new, ranks, signs=signs)
    expected = np.sort(with_signs(thresholds, signs), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-100)
    weights = np.random.default_rng(seed).integers(0, 3, len(Z)) * 1.0
    shares = Shares(np.append(weights[:-1], 2.0), np.array([1.0]))
    levels = [0.1, 0.5, 0.8]
    found = bag.order_statistics(new, levels, shares)
    np.testing.assert_allclose(found, row_thresholds(thresholds, levels, shares), rtol=1e-9)


def test_how_many_cells_and_on_how_many_rows_they_are_learnt():
    assert [number_of_cells(n) for n in (1, 10, 100, 2000, 10**6)] == [1, 1, 12, 179, 4000]
    Z = np.random.default_rng(0).normal(size=(200, 2))
    by_default = Cells(random_state=0).fixed(Z, None)
    assert len(by_default.learnt) == number_of_cells(200) == 25
    learnt = Cells(3, random_state=0).fixed(Z, None)  # on 40 rows a cell
    drawn = Z[np.random.RandomState(0).choice(200, 120, replace=False)]
    assert len(learnt.learnt) == 3
    np.testing.assert_allclose(learnt.learnt.mean(axis=0), drawn.mean(axis=0), atol=0.5)
    with pytest.raises(CalliperError, match="9 cells need at least as many training rows; got 8"):
        Cells(9).fixed(Z[:8], None)
    assert len(Cells(8, random_state=0).fixed(Z[:8], None).learnt) == 8


@pytest.mark.parametrize("tight", [False, True])
def test_rows_are_told_apart_where_products_cannot_tell(tight):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1200, 20))
    if tight:  # two clusters whose members differ by less than products are wrong by
        points = np.repeat(points[:1] * [[1.0], [-1.0]], 600, axis=0) + 1e-6 * points
    search, rows = CellSearch(points, points[[0, -1]], 2), points[::100] + 1e-7
    found = search.nearest(search.locate(rows), 5)
    distance = all_distances(rows, points, "euclidean")
    np.testing.assert_array_equal(found.near, np.argsort(distance, axis=1)[:, :5])
    assert not len(found.shells[0])


def is_ahead(i, located, scores, k, offset, slope, t):
    """Whether point i is at least as strange as a new one, the last of the rows, of score t."""
    values, scales = np.append(scores, t), []
    for j in (i, len(scores)):
        mine = np.isin(located.cell, located.probes[j]) & (np.arange(len(values)) != j)
        local = np.sort(values)[(len(values) + 1) // 2 - 1]
        if mine.any():
            far = ((located.rows[mine] - located.rows[j]) ** 2).sum(axis=1)
            least = min(k, mine.sum())
            reach = np.sort(far)[least - 1]
            near, tied = far < reach, far == reach
            loud = near + (least - near.sum()) / tied.sum() * tied
            local = loud @ values[mine] / least
        scales.append(local + offset + slope * t)
    return scores[i] * scales[1] >= t * scales[0] * (1 - 1e-12)


def assert_thresholds(Z, scores, new, k, cells, offset, slope):
    """Each comparison holds up to its threshold, and not beyond."""
    kernel = KNN(k, cells=cells)
    bag = kernel.bag(Rows(Z, scores, scores), statistic="mean", offset=offset)
    located = bag.search.locate(np.vstack([Z, new]))
    for i, t in enumerate(bag.thresholds(new, slope=slope)[0]):
        holds = partial(is_ahead, i, located, scores, k, offset, slope)
        if np.isinf(t):
            assert holds(1e30)
        else:
            assert holds(t * (1 - 1e-9))
            assert not holds(t * (1 + 1e-9) + 1e-100)


@pytest.mark.parametrize("part", range(4))
def test_thresholds_are_where_comparisons_end(part):
    """Many worlds in floating point, which is faster than exact, with scales that rise with t."""
    for seed in range(200 + 20 * part, 220 + 20 * part):
        Z, scores, new, how = world(seed)
        cells = FixedCells(how["centres"], None, how["n_probes"], 0)
        assert_thresholds(Z, scores, new, how["k"], cells, how["offset"], how["shrinkage"])


@pytest.mark.parametrize("offset", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("slope", [0.0, 0.4])
def test_thresholds_of_a_row_alone_between_two_scores(offset, slope):
    """Nobody is a candidate of the new row, which is one of some points, even as far as their K-th.

    Its scale is the median of all scores with its own, which lies between two of them.
    """
    rng = np.random.default_rng(0)
    cells, new = FixedCells(np.array([[0.0], [10.0], [30.0], [50.0]]), None, 2, 0), [[28.0]]
    for k in (1, 1, 2, 2, 3, 3, 5, 5):
        n = int(rng.integers(max(k, 5), 10))
        x = np.where(rng.random(n) < 0.4, rng.integers(-3, 4, n), rng.choice([42, 44, 56, 60], n))
        scores = np.round(4 + 2 * rng.random(n), 2) * (rng.random(n) < 0.8)
        assert_thresholds(x[:, None] * 1.0, scores, np.array(new), k, cells, offset, slope)


@pytest.mark.parametrize(
    ("x", "scores", "offset", "expected"),
    [
        ([42, 0, 1, 2, 3], [0.0, 0.0, 3.0, 4.0, 5.0], 0.0, 0.0),  # nought, and all but alone
        ([0, 0.4, -3, -2.5, -2], [1.0, 0.5, 3.0, 4.0, 5.0], 1.0, 2.0),  # 1·(t + 1) = t·(0.5 + 1)
    ],
)
def test_a_threshold_between_two_scores_of_a_row_alone(x, scores, offset, expected):
    cells = FixedCells(np.array([[0.0], [10.0], [30.0], [50.0]]), None, 2, 0)
    Z, scores, new = np.array(x)[:, None] * 1.0, np.array(scores), np.array([[28.0]])
    assert_thresholds(Z, scores, new, 1, cells, offset, 0.0)
    bag = KNN(1, cells=cells).bag(Rows(Z, scores, scores), statistic="mean", offset=offset)
    assert bag.thresholds(new)[0, 0] == pytest.approx(expected, rel=1e-14)


def test_tied_sums_do_not_depend_on_the_order_of_points():
    """To the last bit, where large ones share one place and small ones another; some are nought."""
    rng = np.random.default_rng(0)
    Z, cells = np.repeat([[0.0], [9.0]], 30, axis=0), FixedCells(np.zeros((1, 1)), None, 1, 0)
    scores = np.append(1e20 * rng.random(30), 1e-20 * rng.random(30)) * (rng.random(60) < 0.9)
    found = []
    for _ in range(12):
        order = rng.permutation(60)
        bag = KNN(3, cells=cells).bag(
            Rows(Z[order], scores[order], scores[order]), statistic="mean", offset=0.0
        )
        scale = bag._scale_of_new(Z[::30], 0.5, bag._located(Z[::30]))
        found.append(scale)
    assert (np.array(found) == found[0]).all()
    expected = [math.fsum(scores[:30]) / 30, math.fsum(scores[30:]) / 30]
    np.testing.assert_allclose(found[0], expected, rtol=1e-14)


@pytest.mark.filterwarnings("error")
def test_a_row_far_beyond_single_precision_enters_points_with_few_candidates():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    search = CellSearch(points, np.zeros((1, 2)), 1)
    reach = search.nearest_others(3).reach
    assert np.isinf(reach).all()
    for far in (1e9, 1e25, 1e60):
        new = search.locate(np.array([[far, far], [0.5, 0.5]]))
        row, point, at_edge = search.entering(new, reach)
        assert row.tolist() == [0, 0, 0, 1, 1, 1] and sorted(point[:3]) == [0, 1, 2]
        assert not at_edge.any()
        near = search.nearest(new, 2)
        assert 0 in near.shells[0] or sorted(near.near[0]) == [1, 2]


@pytest.mark.parametrize("unit", [2.0**-9, 1.0, 2.0**9])
def test_candidates_whose_distances_differ_by_less_than_products_round(unit):
    """A shell around the row, far from the centre of its cell: all are compared again."""
    rng = np.random.default_rng(1)
    middle, around = 5 + rng.normal(size=20), rng.normal(size=(200, 20))
    around *= (2 * (1 + 1e-8 * rng.permutation(200)) / np.sqrt((around**2).sum(axis=1)))[:, None]
    points = unit * np.vstack([middle + around, rng.normal(size=(50, 20)) - 5])
    search = CellSearch(points, np.zeros((1, 20)), 1)
    new = search.locate(unit * middle[None])
    found = search.nearest(new, 5)
    nearest = np.argsort(((points - unit * middle) ** 2).sum(axis=1))[:5]
    assert sorted(found.near[0]) == sorted(nearest)


def test_one_candidate_more_than_are_kept_and_all_as_far_as_products_can_tell():
    """Around a row far from the centre of its cell, or at it."""
    for seed in range(150):
        rng = np.random.default_rng(seed)
        middle, around = 5 + rng.normal(size=20), rng.normal(size=(12, 20))
        around *= ((1 + 1e-10 * rng.permutation(12)) / np.sqrt((around**2).sum(axis=1)))[:, None]
        search = CellSearch(middle + around, middle[None] * (seed % 3 == 0), 1)
        found = search.nearest(search.locate(middle[None]), 5)
        nearest = np.argsort(((search.points - middle) ** 2).sum(axis=1))[:5]
        assert sorted(found.near[0]) == sorted(nearest)


def test_candidates_whose_squares_vanish():
    """Around a centre, at distances that are none for all that products say."""
    rng = np.random.default_rng(0)
    points = np.vstack([1e-25 * rng.permutation(np.arange(1.0, 201.0))[:, None], np.ones((9, 1))])
    search = CellSearch(points, np.zeros((1, 1)), 1)
    found, row = search.nearest_others(5), search.locate(np.zeros((1, 1)))
    alone = search.nearest(row, 5)
    assert sorted(alone.near[0]) == sorted(np.argsort(points[:, 0])[:5])
    far = all_distances(points, points, "euclidean") + np.diag(np.full(209, np.inf))
    np.testing.assert_array_equal(found.reach, np.sort(far, axis=1)[:, 4])
    reach = np.full(209, 1.05e-24**2)
    within = np.flatnonzero(points[:, 0] < 1.05e-24)
    assert sorted(search.entering(row, reach)[1]) == within.tolist()


@pytest.mark.parametrize("unit", [2.0**-12, 2.0**12])
def test_thresholds_are_the_same_in_any_unit_of_the_features(unit):
    rng = np.random.default_rng(0)
    Z, centres, scores = (
        rng.normal(size=(150, 3)),
        rng.normal(size=(6, 3)),
        rng.exponential(size=150),
    )
    found, expected = (
        KNN(3, cells=FixedCells(by * centres, None, 2, 0))
        .bag(Rows(by * Z[:120], scores[:120], scores[:120]), statistic="mean", offset=0.0)
        .thresholds(by * Z[120:])
        for by in (unit, 1.0)
    )
    np.testing.assert_array_equal(found, expected)


def test_the_reach_of_points_that_share_a_place_is_the_distance_of_their_kth():
    rng = np.random.default_rng(0)
    Z, scores = rng.integers(12, size=(300, 2)) * 1.0, rng.exponential(size=300)
    cells, squared = FixedCells(np.zeros((1, 2)), None, 1, 0), ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    for k in (1, 4):
        bag = KNN(k, cells=cells).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
        assert len(bag.crowded) > 20
        np.testing.assert_array_equal(bag.reach, np.sort(squared, axis=1)[:, k - 1])


def test_scores_that_are_all_nought_share_places_too():
    Z, cells = np.repeat([[0.0], [1.0]], 5, axis=0), FixedCells(np.zeros((1, 1)), None, 1, 0)
    bag = KNN(3, cells=cells).bag(Rows(Z, np.zeros(10), np.zeros(10)), statistic="mean", offset=0.0)
    assert (bag.calibration_scale(0.5) == 0).all()
    np.testing.assert_array_equal(bag._scales(bag._located(np.array([[0.5]])))[0], 0.0)


def test_one_cell_and_one_probe_are_enough_and_tiny_features_are_refused():
    Z, scores = np.random.default_rng(0).normal(size=(40, 2)), np.ones(40)
    fixed = Cells(1, n_probes=1, random_state=0).fixed(Z, None)
    assert len(fixed.learnt) == 1 and fixed.n_probes == 1
    with pytest.raises(CalliperError, match="between 1e-100 and 1e\\+100 in size"):
        FullRescaled(KNN(5, cells=4)).fit(1e-120 * Z, scores)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_features_of_one_sign_that_are_too_large_are_refused(sign):
    Z = sign * np.random.default_rng(0).uniform(1, 2, size=(40, 2))
    with pytest.raises(CalliperError, match=r"1e\+100 in size; got 2\.58e\+120"):
        CellSearch(1e120 * Z, np.zeros((1, 2)), 1)


@pytest.mark.parametrize("away", [1e2, 1e4, 1e6])
def test_a_centre_far_from_its_members_decides_nothing_by_rounding(away):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 20))
    search = CellSearch(points, np.full((1, 20), away), 1)
    squared = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    found = search.nearest_others(5)
    np.testing.assert_array_equal(found.near, np.argsort(squared, axis=1)[:, :5])


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_of_a_row_far_away_all_candidates_are_compared(sign):
    points = sign * np.random.default_rng(0).uniform(size=(60, 3))
    search, row = CellSearch(points, np.zeros((1, 3)), 1), np.array([[1e8, 1e7, 3e7]])
    near = search.nearest(search.locate(row), 5).near[0]
    distance = all_distances(row, points, "euclidean")[0]
    np.testing.assert_array_equal(distance[near], np.sort(distance)[:5])


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_centres_are_means_of_training_rows_wherever_these_are(shift):
    Z = np.random.default_rng(0).uniform(size=(39, 2)) + shift
    (mean,) = Cells(1).fixed(Z, None).learnt
    np.testing.assert_allclose(mean - shift, (Z - shift).mean(axis=0), atol=1e-6)
    learnt = Cells(4, random_state=0).fixed(Z, None).learnt
    assert (learnt > Z.min(axis=0)).all() and (learnt < Z.max(axis=0)).all()


def test_copies_of_training_rows_are_fewer_centres_without_a_word():
    Z = np.repeat(np.eye(3), 10, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learnt = Cells(6, random_state=0).fixed(Z, None).learnt
    np.testing.assert_allclose(learnt[np.argsort(learnt @ [1, 2, 3])], np.eye(3), atol=1e-6)


def test_random_directions_are_all_of_one_length_and_different():
    for d in (1, 2, 30):
        drawn = FixedCells(None, 50, 1, 0).centres(1000, d)
        np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0)
        assert len(drawn) == (2 if d == 1 else 50)  # on a line there are two directions
    seeds = {Cells(3, random_state=seed).fixed(None, None).seed for seed in range(100)}
    assert len(seeds) == 100


def test_nothing_is_divided_by_nought_at_a_centre_or_without_candidates():
    Z = np.random.default_rng(0).normal(size=(40, 2))
    Z[0], Z[1] = [0.0, 0.0], [50.0, 0.0]
    scores, near = Z[:, 0] ** 2, np.argsort((Z**2).sum(axis=1))
    cells = FixedCells(np.array([[0.0, 0.0], [60.0, 0.0], [90.0, 0.0]]), None, 1, 0)
    with np.errstate(divide="raise", invalid="raise"):
        bag = KNN(3, cells=cells).bag(Rows(Z, scores, scores), statistic="mean", offset=0.1)
        scale, alone = bag._scales(bag._located(np.array([[0.0, 0.0], [99.0, 9.0]])))
        own = bag.calibration_scale(0.5)
    assert alone.tolist() == [False, True]
    above = np.sort(scores)[20]
    np.testing.assert_allclose(scale - 0.1, [scores[near[:3]].mean(), above])
    np.testing.assert_allclose(own[:2] - 0.1, [scores[near[1:4]].mean(), above])
