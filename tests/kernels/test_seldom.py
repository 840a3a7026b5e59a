"""Kernels where they seldom are: in far units, with an offset, without folds, over all points."""

import numpy as np
import pytest

from calliper import KNN
from calliper.kernels import GradedKNN, Mahalanobis, TunedKNN, TunedRBF
from calliper.kernels._arithmetic import times
from calliper.kernels._learnt import learn_metric
from calliper.kernels._search import NeighborSearch
from calliper.rows import Rows
from calliper.scale._cells import FixedCells


def nearest(k, row, others, values):
    """The mean over the K nearest, none of them just as far as another."""
    return values[np.argsort(((others - row) ** 2).sum(axis=1))[:k]].mean()


def radial(length, row, others, values):
    """The mean by radial weights, of which the largest is one."""
    exponent = -((others - row) ** 2).sum(axis=1) / (2 * length**2)
    loud = np.exp(exponent - exponent.max())
    return loud @ values / loud.sum()


@pytest.mark.parametrize("unit", [1e-30, 1e25])
def test_balls_of_many_features_are_the_same_in_any_unit(unit):
    draw = np.random.default_rng(0)
    points, queries = draw.normal(size=(60, 20)) * unit, draw.normal(size=(15, 20)) * unit
    squared = ((queries[:, None] - points) ** 2).sum(axis=2)
    reach = np.median(squared, axis=0) * 1.0001
    query, point, _ = NeighborSearch(points, "euclidean").balls_containing(queries, reach)
    found = np.zeros(squared.shape, dtype=bool)
    found[query, point] = True
    assert len(query) == found.sum()
    np.testing.assert_array_equal(found, squared <= reach)


@pytest.mark.parametrize("where", ["near", "far"])
def test_cells_that_are_all_probed_are_none(where):
    """Also if more new rows than points are in a cell, and if centres are far from all points."""
    draw = np.random.default_rng(1)
    Z, scores, new = draw.normal(size=(40, 3)), draw.exponential(size=40), draw.normal(size=(90, 3))
    centres = draw.normal(size=(12, 3)) + (1e9 if where == "far" else 0.0)
    cells = FixedCells(centres, None, 12, 0)
    found, expected = (
        kernel.bag(Rows(Z, scores, scores), statistic="mean", offset=0.0).thresholds(new)
        for kernel in (KNN(2, cells=cells), KNN(2))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_all_points_are_neighbours_of_one_another():
    """With K = N, also of points whose last two neighbours are just as far."""
    n, draw = 9, np.random.default_rng(5)
    Z, scores = draw.integers(4, size=(n + 2, 2)) * 1.0, draw.integers(1, 9, size=n) * 1.0
    bag = KNN(n).bag(Rows(Z[:n], scores, scores), statistic="mean", offset=0.0)
    for found in bag.thresholds(Z[n:]):
        # The mean at the new row is over all, that at point i over the others and t.
        own = (scores.sum() - scores + found) / n
        np.testing.assert_allclose(scores / own, found / scores.mean(), rtol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "statistic"), [(KNN(3), "mean"), (KNN(3), "quantile"), (GradedKNN(1), "mean")]
)
def test_a_bag_that_grew_is_one_that_was_built(kernel, statistic):
    draw = np.random.default_rng(2)
    Z = np.vstack([draw.integers(12, size=(100, 2)) * 1.0, draw.normal(size=(4, 2)) + 30.0])
    scores, new = draw.exponential(size=104), draw.integers(12, size=(20, 2)) * 1.0
    before = kernel.bag(Rows(Z[:100], scores[:100], scores[:100]), statistic=statistic, offset=0.5)
    found = before.extended(Rows(Z, scores, scores))
    expected = kernel.bag(Rows(Z, scores, scores), statistic=statistic, offset=0.5)
    for level in (0.3, 0.6, 0.9):
        np.testing.assert_allclose(
            found.thresholds(new, level), expected.thresholds(new, level), rtol=1e-12
        )


def test_many_neighbours_without_two_points():
    draw = np.random.default_rng(8)
    Z, scores, new = (
        draw.normal(size=(150, 2)),
        draw.exponential(size=150),
        draw.normal(size=(9, 2)),
    )
    scale = KNN(99).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    scale.prepare(scores)
    every = np.sort(times(scale.without_each(new), scale.rescaled), axis=1)
    found = scale.order_statistics(new, [10, 140])
    np.testing.assert_allclose(found, every[:, [9, 139]], rtol=1e-9)


@pytest.mark.parametrize("apart", [0.0, 60.0])
def test_folds_are_left_out_by_definition(apart):
    """With an offset, and where what is left of a mean is too far away for its weights."""
    draw = np.random.default_rng(3)
    Z, scores, offset = draw.normal(size=(24, 2)), draw.exponential(size=24), 0.5
    drawn = np.random.RandomState(0).permutation(np.arange(24) % 3)
    Z[drawn == 0] += apart
    kernel = TunedRBF(length_scales=[0.4, 1.1], n_folds=3).resolved()
    scale = kernel.leave_two_out(
        Rows(Z, magnitudes=scores), offset=offset, rng=np.random.RandomState(0)
    )
    np.testing.assert_array_equal(scale.fold, drawn)

    def without(i, fold, length):
        rest = np.flatnonzero((drawn != fold) & (np.arange(24) != i))
        return radial(length, Z[i], Z[rest], scores[rest]) + offset

    for length, criteria in zip(scale.candidates, scale.criteria, strict=True):
        for fold, criterion in enumerate(criteria):
            kept = np.flatnonzero(drawn != fold)
            loss = scores[kept] - [without(i, fold, length) for i in kept]
            np.testing.assert_allclose(criterion, np.square(loss).mean(), rtol=1e-9)
    own = [without(i, drawn[i], length) for i, length in enumerate(scale.chosen)]
    np.testing.assert_allclose(scale.without_one, own, rtol=1e-9)


def test_folds_of_points_so_far_apart_that_no_weight_is_left():
    """The nearest speaks, or those that are nearest alike, and nothing is divided by nought."""
    draw, offset = np.random.default_rng(0), 0.5
    place = np.append(np.cumsum(draw.integers(60, 90, size=17)), [2000.0, 2000.0, 2000.0])
    Z, scores, new = (
        place[:, None],
        draw.exponential(size=20),
        np.array([[10.0], [900.0], [1900.0]]),
    )
    kernel = TunedRBF(length_scales=[0.5, 1.0], n_folds=4).resolved()
    with np.errstate(divide="raise", invalid="raise"):
        scale = kernel.leave_two_out(
            Rows(Z, magnitudes=scores), offset=offset, rng=np.random.RandomState(0)
        )
        found = scale.without_each(new)

    def without(row, out, length):
        rest = np.setdiff1d(np.arange(20), out)
        return radial(length, row, Z[rest], scores[rest]) + offset

    for length, criteria in zip(scale.candidates, scale.criteria, strict=True):
        for fold, criterion in enumerate(criteria):
            kept, out = np.flatnonzero(scale.fold != fold), np.flatnonzero(scale.fold == fold)
            loss = scores[kept] - [without(Z[i], np.append(out, i), length) for i in kept]
            np.testing.assert_allclose(criterion, np.square(loss).mean(), rtol=1e-9)
    for i in range(20):
        out = np.flatnonzero(scale.fold == scale.fold[i])
        expected = [without(row, out, scale.chosen[i]) for row in new]
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-9)


def test_a_kernel_is_chosen_with_the_offset_in_place():
    draw, n = np.random.default_rng(4), 20
    Z, scores = draw.normal(size=(n, 2)), draw.exponential(size=n)
    kernel, rng = TunedKNN(n_neighbors=[2, 5]).resolved(), np.random.RandomState(0)
    scale = kernel.leave_two_out(Rows(Z, magnitudes=scores), offset=0.5, rng=rng)
    for k, criteria in zip((2, 5), scale.criteria, strict=True):
        for left, criterion in enumerate(criteria):
            loss = []
            for i in np.delete(np.arange(n), left):
                rest = np.setdiff1d(np.arange(n), [i, left])
                loss.append(scores[i] - nearest(k, Z[i], Z[rest], scores[rest]) - 0.5)
            np.testing.assert_allclose(criterion, np.square(loss).mean(), rtol=1e-9)


def test_tuning_tells_what_part_of_the_grid_is_done():
    draw, rng = np.random.default_rng(5), np.random.RandomState(0)
    Z, scores = draw.normal(size=(30, 2)), draw.exponential(size=30)
    for more in ({}, {"n_folds": 3}):
        told = []
        kernel = TunedRBF(length_scales=[0.4, 0.8, 1.6, 3.2], progress=told.append, **more)
        kernel.resolved().leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=rng)
        assert told == [0.25, 0.5, 0.75, 1.0]
        told.clear()
        kernel.resolved().fixed(Z, scores, rng)
        assert told == [0.25, 0.5, 0.75, 1.0]


def test_graded_neighbours_in_a_learnt_space_and_widened():
    assert Mahalanobis(GradedKNN(3)).resolved().kernel.n_neighbors == 3
    wider = GradedKNN(4).widened(50.0, 22).n_neighbors
    assert wider == 5 and isinstance(wider, int)
    narrower = GradedKNN().widened(0.24, 100).n_neighbors
    assert narrower == 2 and isinstance(narrower, int)
    with pytest.raises(ValueError, match="metric"):
        GradedKNN(metric="unheard-of").resolved()


def test_a_metric_starts_anywhere_within_the_bounds_it_names():
    """Labels that are all the same give nothing to learn, so that the start is what is found."""
    Z = np.random.default_rng(6).normal(size=(30, 4))
    start = learn_metric(Z, np.ones(30), random_state=0).matrix
    assert start.shape == (10, 4)
    assert np.abs(start).max() <= 0.5 and start.min() < -0.4 and start.max() > 0.4


def test_a_metric_does_not_see_what_all_labels_have_in_common():
    Z = np.random.default_rng(7).normal(size=(60, 2))
    y = np.round(256 * np.sin(Z[:, 0])) / 256  # a sum with 2**44 is exact
    how = {"n_directions": 2, "random_state": 0}
    one, other = learn_metric(Z, y, **how), learn_metric(Z, y + 2.0**44, **how)
    np.testing.assert_allclose(other.loss, one.loss, rtol=1e-6)


def test_rows_that_fill_their_blocks():
    row = np.arange(4096)
    ordered, value = np.arange(1.0, 6.0), np.full(4096, 9.0)
    search = NeighborSearch(np.zeros((1, 1)), "euclidean")
    found = search.select(ordered, np.ones(4096), row, row % 5, value, [5], None)
    np.testing.assert_array_equal(found, 9.0)
