"""What fast searches promise of points that they leave out, where rounding is at its worst."""

import pickle
from importlib.util import find_spec

import numpy as np
import pytest

from calliper import _blocks
from calliper.exceptions import CalliperError
from calliper.kernels import _search
from calliper.kernels._search import NeighborSearch, all_distances, paired_distances, search_of

if find_spec("torch"):
    import torch

    from calliper.scale import _torch

on_a_device = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")


def exact(rows, points):
    """Squared distances with more digits than are searched with, (m, N)."""
    rows, points = rows.astype(np.longdouble), points.astype(np.longdouble)
    return np.square(rows[:, None] - points).sum(axis=2)


def halfway(rng, n, d, bits, decades=0):
    """Rows around nought of numbers that lie just beside the middle of two of so many bits."""
    part = 1 + (rng.integers(8, size=(n, d)) + 0.5) * 2.0**-bits
    part += rng.choice([-1, 0, 1], size=(n, d)) * 2.0 ** (-bits - 14)
    part *= 2.0 ** -rng.integers(decades + 1, size=(n, d))
    part *= rng.choice([-1, 1], size=(n, d))
    return np.vstack([part, -part])


def pairs_of(mask):
    """Marked pairs, in order."""
    return list(zip(*(each.tolist() for each in np.nonzero(mask)), strict=True))


@pytest.mark.parametrize("n", [1, 2])
def test_a_tree_that_adds_in_another_order_does_not_decide_ties(n, monkeypatch):
    """Distances that tie when added in order, around a point that is there itself if n is 2."""
    monkeypatch.setattr(_search, "min_points_for_tree", lambda d: 1)
    rng = np.random.default_rng(0)
    centre = rng.integers(-4096, 4096, size=(60, 8)) * 4.0
    offset = rng.integers(1 << 28, size=(60, 8)) * 2.0**-28
    other = rng.permuted(offset, axis=1)
    points = np.vstack([centre + offset, centre - other, centre[: 60 * (n - 1)]])
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "tree"
    distance = np.sort(all_distances(centre, points, "euclidean"), axis=1)
    tied = distance[:, n - 1] == distance[:, n]
    assert tied.any() and not tied.all()
    np.testing.assert_array_equal(search.nearest(centre, n)[1], tied)


def edges(rows, points):
    """For each point a reach at which one of the rows is just at the edge, in order of the sums."""
    chosen = np.arange(len(points)) % len(rows)
    return paired_distances(rows[chosen], points)


@on_a_device
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("unit", [2.0**-80, 1.0, 2.0**80])
def test_on_a_device_no_point_is_nearer_than_was_promised(single, d, unit, monkeypatch):
    """Nor is a row in a ball that is not named: also at its edge, and where numbers are small."""
    monkeypatch.setattr(_torch, "BLOCK", 4)
    rng = np.random.default_rng(d)
    points = unit * np.vstack([halfway(rng, 60, d, 10, decades=3), np.zeros((9, d))])
    few = halfway(rng, 8, d, 10, decades=6) * np.where(rng.uniform(size=(16, d)) < 0.2, 0, 1)
    rows = np.vstack([np.zeros((1, d)), unit * few, points[:9] * (1 + 2.0**-11)])
    far, reach = exact(rows, points), edges(rows, points)
    reach[-5:] = 0.0
    inside = pairs_of(all_distances(rows, points, "euclidean") <= reach)
    given = torch.tensor(points.T.copy()), torch.float32 if single else torch.float64
    tiles, x = _torch.Tiles(*given), torch.tensor(rows.T.copy())
    pairs = tiles.strip(x, 1, torch.tensor(reach))[2].T
    assert set(inside) <= set(zip(*pairs.tolist(), strict=True))
    for k in (*range(1, 40, 3), len(points) - 1, len(points)):
        near, outside, _ = tiles.strip(x, k, None)
        others = far.copy()
        np.put_along_axis(others, near.numpy(), np.inf, axis=1)
        assert (others.min(axis=1) >= outside.numpy()).all()


@on_a_device
@pytest.mark.parametrize("single", [True, False])
def test_on_a_device_sums_of_exact_numbers_are_not_exact(single):
    """Ten bits hold all coordinates, and the sum of their squares has more than it is kept in."""
    rng = np.random.default_rng(0)
    half = 1 - rng.integers(9, size=(20, 64)) * 2.0**-10
    points, rows = np.vstack([half, -half]), np.zeros((1, 64))
    tiles = _torch.Tiles(torch.tensor(points.T), torch.float32 if single else torch.float64)
    reach = edges(rows, points)
    _, outside, pairs = tiles.strip(torch.tensor(rows.T), 40, torch.tensor(reach))
    assert sorted(pairs[:, 1].tolist()) == list(range(40)) and outside.item() == np.inf


def assert_no_other_is_as_near(near, distance, n):
    """Of each row, all points as near as its n-th are among those that were found."""
    for found, every in zip(near, distance, strict=True):
        as_near = np.flatnonzero(every <= np.sort(every[found])[n - 1])
        assert set(as_near) <= set(found)


@pytest.mark.parametrize("d", [3, 16])
@pytest.mark.parametrize("unit", [2.0**-30, 1.0, 2.0**30])
@pytest.mark.parametrize("away", [0.0, 1.0, 100.0])
def test_balls_that_a_product_leaves_out_do_not_contain_the_row(d, unit, away):
    """Rows are at the edge of balls, or just beside."""
    rng = np.random.default_rng(d)
    half = np.vstack([halfway(rng, 40, d, 23) + away, np.zeros((3, d))])
    points = unit * np.vstack([half, -half])
    rows = np.vstack([points[::8] * (1 + 2.0**-24), np.zeros((1, d))])
    reach = edges(rows, points)
    reach[::3] *= 1 + 4e-7 * rng.normal(size=len(reach[::3]))
    inside = all_distances(rows, points, "euclidean") <= reach
    search = NeighborSearch(points, "euclidean")
    query, point = search._products(rows, reach, _blocks.Scratch())
    assert set(pairs_of(inside)) <= set(zip(query.tolist(), point.tolist(), strict=True))


def test_ties_that_products_round_apart_where_rows_mirror_the_centre():
    rng = np.random.default_rng(0)
    for _ in range(5):
        query = np.round(1000 * rng.normal(size=(1, 20)), 0)
        points = np.vstack([query + 0.25 * np.eye(20), -3 * query + rng.normal(size=(20, 20))])
        search = NeighborSearch(points, "euclidean")
        assert search.engine == "brute" and np.abs(search.centre + query).max() < 1
        found, tied = search.nearest(query, 2)
        assert tied[0] and (found < 20).all()


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
@pytest.mark.parametrize("d", [5, 20, 40])
def test_rows_that_are_longer_than_a_block(d, metric, monkeypatch):
    monkeypatch.setattr(_search, "MANY_QUERIES", 7)
    for module in (_blocks, _search):
        monkeypatch.setattr(module, "BLOCK_FLOATS", 4)
    rng = np.random.default_rng(0)
    points, rows = rng.integers(3, size=(30, d)) * 1.0, rng.integers(3, size=(7, d)) * 1.0
    search, distance = NeighborSearch(points, metric), all_distances(rows, points, metric)
    found, tied = search.nearest(rows, 4)
    ordered = np.sort(distance, axis=1)
    np.testing.assert_array_equal(np.take_along_axis(distance, found[:, 3:], 1), ordered[:, 3:4])
    np.testing.assert_array_equal(tied, (ordered[:, [2, 4]] == ordered[:, [3]]).any(axis=1))
    reach = distance[np.arange(30) % 7, np.arange(30)]
    query, point, at_edge = search.balls_containing(rows, reach)
    assert sorted(zip(query, point, strict=True)) == pairs_of(distance <= reach)
    np.testing.assert_array_equal(at_edge, distance[query, point] == reach[point])


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_points_added_to_few_are_found_among_them(metric, d):
    rng = np.random.default_rng(d)
    points, rows = rng.normal(size=(9, d)), rng.normal(size=(20, d))
    distance = all_distances(rows, points, metric)
    for first, last in ((3, 9), (2, 3)):
        grown = NeighborSearch(points[:first], metric).extended(points[:last])
        own = all_distances(points[:last], points[:last], metric) + np.diag(np.full(last, np.inf))
        other = np.roll(np.arange(last), 1)
        for search in (grown, pickle.loads(pickle.dumps(grown))):
            for n in range(1, last + 1):
                expected = np.sort(np.argsort(distance[:, :last], axis=1)[:, :n], axis=1)
                np.testing.assert_array_equal(np.sort(search.nearest(rows, n)[0], axis=1), expected)
            for n in range(1, last):
                expected = np.sort(np.argsort(own, axis=1)[:, :n], axis=1)
                found = np.sort(search.nearest_others(n)[0], axis=1)
                np.testing.assert_array_equal(found, expected)
            found = search.distance_to(other)
            np.testing.assert_allclose(found, own[np.arange(last), other], rtol=1e-14)


def test_rows_of_which_a_metric_knows_no_distance_are_named():
    rows = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(CalliperError, match=r"NaN, for example for the row \[0\. 0\.\]"):
        all_distances(rows, rows[:2], "cosine")
    with pytest.raises(CalliperError, match=r"NaN, for example for the row \[3\. 1\.\]"):
        all_distances(rows[1:2], rows[1:], "cosine")


ENGINES = [None, pytest.param("torch:cpu", marks=on_a_device)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("d", [1, 2])
def test_a_shell_that_is_whole_holds_all_that_are_as_near(engine, d):
    """One point, thirty at one distance, and again one and thirty: fewer or more than are seen."""
    steps = np.repeat([1.0, 2.0, 2 + 1e-10, 5.0, 6.0, 9.0], [1, 30, 20, 1, 30, 10])
    points = np.hstack([steps[:, None], np.zeros((92, d - 1))])
    points = np.vstack([points, -points[::2]])
    search, rows = (
        search_of(points, "euclidean", engine),
        np.vstack([points[:3], 0 * points[:1]]),
    )
    distance, whole = all_distances(rows, points, "euclidean"), []
    for n in (1, 2, 3, 20, 32, 60, 61, 62, len(points) - 1):
        near, found, inside = search.shell(rows, n)
        np.testing.assert_array_equal(found, np.take_along_axis(distance, near, axis=1))
        assert_no_other_is_as_near(near[inside], distance[inside], n)
        own = np.array([0, 1, 2, 5])
        near, found, inside = search.shell(rows, n, own)
        without = distance.copy()
        without[np.arange(4), own] = np.inf
        assert_no_other_is_as_near(near[inside], without[inside], n)
        whole.extend(inside)
    assert any(whole) and not all(whole)


@on_a_device
@pytest.mark.parametrize("most", [11, 50])
def test_pairs_in_small_batches_are_those_of_main_memory(most, monkeypatch):
    monkeypatch.setattr(_torch, "MOST_CANDIDATES", most)
    rng = np.random.default_rng(0)
    points, rows = rng.integers(4, size=(40, 3)) * 1.0, rng.integers(4, size=(23, 3)) * 1.0
    there, here = (search_of(points, "euclidean", engine) for engine in ("torch:cpu", None))
    reach = edges(rows, points)
    (near, tied), (query, point, at_edge) = there.around(rows, 6, reach)
    distance = all_distances(rows, points, "euclidean")
    np.testing.assert_array_equal(tied, here.nearest(rows, 6)[1])
    np.testing.assert_array_equal(
        np.sort(np.take_along_axis(distance, near, axis=1)), np.sort(distance, axis=1)[:, :6]
    )
    assert sorted(zip(query, point, strict=True)) == pairs_of(distance <= reach)
    np.testing.assert_array_equal(at_edge, distance[query, point] == reach[point])
    own = all_distances(points, points, "euclidean") + np.diag(np.full(40, np.inf))
    for n in (1, 5, 39):
        found = np.take_along_axis(own, there.nearest_others(n)[0], axis=1)
        np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(own, axis=1)[:, :n])


@on_a_device
def test_single_precision_is_whole_but_on_tensor_cores():
    before = torch.get_float32_matmul_precision()
    for kind, expected in (("cpu", "highest"), ("cuda", "high")):
        with _torch.full_speed(kind):
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == before


@on_a_device
@pytest.mark.parametrize("unit", [2.0**-60, 1.0])
def test_copies_among_points_closer_than_rounding_are_ties(unit):
    """A hundred places, two points at each: of one pair, both need not be candidates."""
    rng = np.random.default_rng(0)
    places = unit * (1 + 1e-9 * rng.normal(size=(100, 2)))
    points = np.vstack([places, places, -places, -places])
    search = search_of(points, "euclidean", "torch:cpu")
    near, tied = search.nearest(places, 1)
    assert tied.all() and (near[:, 0] % 100 == np.arange(100)).all()
    near, _, inside = search.shell(places, 1)
    distance = all_distances(places, points, "euclidean")
    assert_no_other_is_as_near(near[inside], distance[inside], 1)


@on_a_device
def test_a_tile_that_has_room_for_no_row_has_one(monkeypatch):
    monkeypatch.setattr(_torch, "TILE", {"cpu": 1})
    points = np.random.default_rng(0).normal(size=(20, 2))
    here, there = (search_of(points, "euclidean", engine) for engine in (None, "torch:cpu"))
    np.testing.assert_array_equal(there.nearest(points, 3)[0], here.nearest(points, 3)[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_beyond_what_can_be_squared_in_sums_stay_where_they_are(engine):
    """As long as points are ordinary."""
    points = np.array([[1e99, 0.0], [0.0, 2e99], [-1e99, 0.0]])
    search = search_of(points, "euclidean", engine)
    assert search.nearest(np.array([[3e101, 1e101], [1e101, 3e101]]), 1)[0].tolist() == [[0], [1]]
