"""Who is exactly as far as another counts as such, whatever rounds, is left out or came later."""

import numpy as np
import pytest

from calliper import KNN, RBF
from calliper._validation import check_engine
from calliper.kernels._search import NeighborSearch, all_distances
from calliper.rows import Rows
from calliper.scale._cells import CellSearch


def around_the_origin():
    """A point at the origin and 14 far away, whose squared distances are one whole number."""
    draw = np.random.default_rng(0)
    first = np.array([20000001, 20000002, 12345677, 7654321, 9999999, 3333333, 17171717, 5, 88])
    other = first[[1, 0, 2, 3, 4, 5, 6, 7, 8]]
    there = [draw.permutation(first) * draw.choice([-1, 1], 9) for _ in range(6)]
    Z = np.array([0 * first, *there, *(-each for each in there), first, -other], dtype=float)
    return Z, np.arange(1.0, len(Z) + 1)


@pytest.mark.parametrize("engine", [None, "torch:cpu"])
@pytest.mark.parametrize("length", [0.03, 0.1, 0.3])
def test_without_the_only_one_near_all_that_are_as_far_speak_alike(engine, length):
    """Their norms decide what way is exact enough, though they are far beyond the length."""
    if engine:
        pytest.importorskip("torch")
    Z, magnitudes = around_the_origin()
    means = RBF(length, engine=engine).leave_two_out(
        Rows(Z, magnitudes=magnitudes), offset=0.0, rng=np.random.RandomState(0)
    )
    expected = magnitudes[1:].mean()
    assert means.without_one[0] == pytest.approx(expected, rel=1e-9)
    assert means.without_each(np.zeros((1, 9)))[0, 0] == pytest.approx(expected, rel=1e-9)


def test_few_points_of_very_many_features_are_tied():
    """Long sums of norms round by more than a few last digits, however few the points are."""
    x = np.full(40_000, 5.0)
    for third in (-30.1, -3.3, 40.7):
        search = NeighborSearch(np.array([x + 1, x - 1, 0 * x + third]), "euclidean")
        assert search.nearest(x[None], 1)[1].all()


def test_a_far_point_that_came_later_hides_no_tie():
    """Of 40 copies that are as far not all were looked at, which the new point does not change."""
    points = np.append(np.ones(40), np.arange(5.0, 205.0))[:, None]
    search = NeighborSearch(points, "euclidean").extended(np.vstack([points, [[1000.0]]]))
    assert not search.shell(np.zeros((1, 1)), 3)[2].any()


@pytest.mark.parametrize("n_probes", [2, 3, 4])
def test_of_centres_as_near_the_first_is_the_cell(n_probes):
    side = np.arange(14.0)
    centres = np.stack(np.meshgrid(side, side, indexing="ij"), axis=2).reshape(-1, 2)
    rows = np.vstack([centres + 0.5, centres + np.array([0.5, 0.0])])
    rows = rows[(rows < 13).all(axis=1)]
    located = CellSearch(rows, centres, n_probes).located
    distance = all_distances(rows, centres, "euclidean")
    named = np.full(distance.shape, np.inf)
    np.put_along_axis(
        named, located.probes, np.take_along_axis(distance, located.probes, 1), axis=1
    )
    np.testing.assert_array_equal(located.cell, named.argmin(axis=1))


def nearest_in_one_cell(points, row):
    """The nearest, and whether others are as near, of a row in the cell around the origin."""
    centres = np.vstack([0 * row, 10 + 0 * row])
    search = CellSearch(points, centres, 1)
    found = search.nearest(search.locate(row[None]), 1)
    return int(found.near[0, 0]), len(found.shells[0]) > 0


def test_in_a_cell_long_sums_in_single_precision_decide_nothing():
    """Norms of many equal numbers are wrong all in one direction, by more than points differ."""
    for seed in (19, 31, 64, 149):
        draw = np.random.default_rng(seed)
        most = draw.choice([4e-3, 1e-2, 3e-2])
        away = draw.permutation(np.linspace(most / 2, most, 10)) * draw.choice([-1, 1], 10)
        row = np.full(20_000, draw.uniform(0.5, 2))
        near, _ = nearest_in_one_cell(row + away[:, None], row)
        assert near == np.abs(away).argmin()


def test_in_a_cell_who_is_as_near_is_kept_though_squares_hardly_are_numbers():
    """Of two as near one has the smaller sum in single precision, and others are just beyond."""
    two = [[2269, 3092, 2777, 3626, 2174, 1602], [1602, 2269, 2174, 3626, 3092, 2777]]
    signs = [[(-1) ** (i >> j & 1) for j in range(6)] for i in range(12)]
    others = np.array(signs) * [2350, 3321, 3166, 2828, 2760, 3303]
    points = np.vstack([np.vstack([two, others]) * 2.0**-68, np.ones((1, 6))])
    assert nearest_in_one_cell(points, np.zeros(6))[1]


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("kind", ["all but the sample far away", "all but the sample wide apart"])
def test_one_row_whose_nearest_are_all_in_the_sample(kind, n):
    """No other point is within the bound that the sample gives: there are just enough."""
    for seed in range(5):
        draw = np.random.default_rng(seed)
        points, row = draw.normal(size=(2000, 32)), draw.normal(size=(1, 32)) / 10
        others = np.arange(len(points)) % 8 != 0
        if "far" in kind:
            points[others] += 50
        else:
            points[others] *= 50
            row = points.mean(axis=0) + row / 100
        found = NeighborSearch(points, "euclidean").nearest(row, n)[0][0]
        expected = np.argsort(((points - row) ** 2).sum(axis=1))[:n]
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))


def on_torch(points):
    """The points, to be searched by torch."""
    pytest.importorskip("torch")
    return check_engine("torch:cpu").search(points, "euclidean")


def test_on_a_device_nearly_all_others_are_neighbours():
    """Columns that fill up the last block are nobody, though all points but one are asked for."""
    points = np.random.default_rng(1).normal(size=(1030, 2))
    near, distance, inside = on_torch(points).shell(points[5:9], 1010, np.arange(5, 9))
    every = all_distances(points[5:9], points, "euclidean")
    every[np.arange(4), np.arange(5, 9)] = np.inf
    assert inside.all()
    np.testing.assert_array_equal(distance[:, :1010], np.sort(every, axis=1)[:, :1010])
    assert all(len(np.unique(row[:1010])) == 1010 for row in near)


@pytest.mark.parametrize("k", [3, 4, 5])
def test_on_a_device_no_point_takes_the_place_of_a_tie_around_itself(k):
    """Where all others are candidates, the point itself is none of them."""
    pytest.importorskip("torch")
    Z = np.array([[0.0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [0.3, 0.1], [0.2, -0.1]])
    scores = np.arange(1.0, 8.0)
    found, expected = (
        KNN(k, engine=engine).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
        for engine in ("torch:cpu", None)
    )
    np.testing.assert_allclose(found.calibration_scale(0.5), expected.calibration_scale(0.5))


def test_on_a_device_a_row_at_the_very_centre_is_in_balls():
    half = np.random.default_rng(0).integers(-9, 9, size=(50, 3)) * 1.0
    points = np.vstack([half, -half])
    row, point, _ = on_torch(points).balls_containing(np.zeros((1, 3)), np.full(100, 16.0))
    expected = np.flatnonzero((points**2).sum(axis=1) <= 16)
    assert len(expected) and not row.any()
    np.testing.assert_array_equal(np.sort(point), expected)


def test_a_new_row_as_far_as_the_only_neighbour_shares_its_place():
    """The second point has the mean of 4 and t as its scale, the row that of 2 and 5."""
    Z, scores = np.array([[0.0], [1.0], [3.0]]), np.array([4.0, 2.0, 5.0])
    bag = KNN(1).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
    found = bag.thresholds(np.array([[2.0]]))[0]
    np.testing.assert_allclose(found, [3.5 * 4 / 2, np.sqrt(18.0) - 2, np.sqrt(5 * 3.5)])
