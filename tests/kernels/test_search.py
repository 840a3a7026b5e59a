"""The search against sorting all points by distance."""

import pickle
from importlib.util import find_spec

import numpy as np
import pytest

from calliper.kernels import NeighborSearch, _search
from calliper.kernels._nearest import Nearest
from calliper.kernels._search import search_of
from oracles import rescaled as oracles


def cloud(rng, n, d, kind):
    if kind == "lattice":
        return rng.integers(0, 5, (n, d)) * 1.0
    if kind == "rounded":
        return np.round(rng.normal(size=(n, d)), 1)
    if kind == "far":  # the expansion of squared distances loses ten digits here
        return 1e7 + np.round(rng.normal(size=(n, d)), 2)
    if kind == "outlier":  # one row so far away that its norm drowns all others
        points = np.round(rng.normal(size=(n, d)), 1)
        points[0] *= 1e7
        return points
    if kind == "sentinel":  # a missing value coded as a number, among integers
        points = rng.integers(0, 3, (n, d)) * 1.0
        points[1, 0] = -99999.0
        return points
    if kind == "timestamps":  # nanoseconds
        return 1.7e18 + 1e16 * rng.normal(size=(n, d))
    if kind == "tiny":  # below the range of single precision
        return 1e-25 * np.round(rng.normal(size=(n, d)), 2)
    return rng.normal(size=(n, d))


ENGINES = [
    ("tree", 1, 40),
    ("tree", 2, 150),
    ("brute", 3, 40),
    ("brute", 33, 60),
    ("metric", 2, 30),
    ("torch", 33, 60),
    ("torch", 2, 70),
]


@pytest.fixture(autouse=True)
def small_data_may_have_blocks_and_strips_on_a_device(monkeypatch):
    if find_spec("torch"):
        from calliper.scale import _torch

        monkeypatch.setattr(_torch, "BLOCK", 3)
        monkeypatch.setattr(_torch, "TILE", {"cpu": 700})


KINDS = [
    *("continuous", "lattice", "rounded", "far", "outlier", "sentinel", "timestamps", "tiny"),
]


def make(rng, engine, d, n, kind):
    if engine == "torch":
        pytest.importorskip("torch")
        return search_of(cloud(rng, n, d, kind), "euclidean", "torch:cpu")
    metric = "sqeuclidean" if engine == "metric" else "euclidean"
    search = NeighborSearch(cloud(rng, n, d, kind), metric)
    assert search.engine == ("" if engine == "metric" else engine)
    return search


def assert_nearest(found, tied, distance):
    """The k smallest distances, the k-th last, and a tie named if and only if there is one."""
    k, ordered = len(found), np.sort(distance)
    around = [ordered[k - 2] if k > 1 else -1.0, ordered[k] if k < len(ordered) else np.inf]
    assert tied == (ordered[k - 1] in around)
    np.testing.assert_array_equal(np.sort(distance[found]), ordered[:k])
    assert distance[found[-1]] == ordered[k - 1] and len(set(found)) == k


def distances(points, z):
    return np.array([oracles.squared_distance(point, z) for point in points])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("engine", "d", "n"), ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_nearest(engine, d, n, kind, seed):
    rng = np.random.default_rng(seed)
    search = make(rng, engine, d, n, kind)
    queries = np.vstack([cloud(rng, 10, d, kind), search.points[:3]])
    away = [distances(search.points, z) for z in queries]
    for k in (1, 2, 7, n - 1, n):
        found, tied = search.nearest(queries, k)
        assert (np.diff(found[:, :-1], axis=1) > 0).all()  # in the order of the points
        for row, distance in enumerate(away):
            assert_nearest(found[row], tied[row], distance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("engine", "d", "n"), ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_nearest_others(engine, d, n, kind, seed):
    rng = np.random.default_rng(seed)
    search = make(rng, engine, d, n, kind)
    others = {i: distances(search.points, search.points[i]) for i in range(0, n, 3)}
    for k in (1, 5, n - 1):
        found, tied = search.nearest_others(k)
        for i, distance in others.items():
            distance[i] = np.inf
            assert_nearest(found[i], tied[i], distance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("engine", "d", "n"), [*ENGINES, ("brute", 20, 60)])
@pytest.mark.parametrize("few", [True, False])
def test_balls_containing(engine, d, n, kind, few, monkeypatch):
    monkeypatch.setattr(_search, "MANY_QUERIES", 10**9 if few else 1)
    rng = np.random.default_rng(d)
    search = make(rng, engine, d, n, kind)
    queries = np.vstack([cloud(rng, 20, d, kind), search.points[:5]])
    reach = search.distance_to(search.nearest_others(4)[0][:, -1])
    query, point, at_edge = search.balls_containing(queries, reach)
    expected = []
    for q, z in enumerate(queries):
        distance = distances(search.points, z)
        expected += [(q, i, distance[i] == reach[i]) for i in np.flatnonzero(distance <= reach)]
    found = zip(query.tolist(), point.tolist(), at_edge.tolist(), strict=True)
    assert sorted(found) == expected
    assert np.all(np.diff(query) >= 0)


@pytest.mark.parametrize(("d", "n"), [(1, 300), (2, 300), (20, 100), (33, 100)])
def test_balls_of_one_reach_after_another(d, n):
    """Whatever was asked before, after pickling and with points added."""
    rng = np.random.default_rng(d)
    points, queries = cloud(rng, n, d, "rounded"), cloud(rng, 7, d, "rounded")
    search = NeighborSearch(points[:-5], "euclidean")
    for each in (search, pickle.loads(pickle.dumps(search)), search.extended(points)):
        others = each.nearest_others(6)[0]
        reaches = [each.distance_to(others[:, k]) for k in (1, 3, 5)]
        for reach in (*reaches, *reaches):
            for q, z in enumerate(queries):
                _, point, at_edge = each.balls_containing(queries[q : q + 1], reach)
                distance = distances(each.points, z)
                inside = np.flatnonzero(distance <= reach)
                np.testing.assert_array_equal(np.sort(point), inside)
                np.testing.assert_array_equal(at_edge, distance[point] == reach[point])


def test_all_points_equal():
    for d in (1, 3):
        search = NeighborSearch(np.ones((4, d)), "euclidean")
        assert search.nearest(np.ones((1, d)), 2)[1].all()
        found, tied = search.nearest_others(2)
        assert tied.all() and all(i not in row for i, row in enumerate(found))


def test_engines_agree_on_large_data():
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(20000, 2)), rng.normal(size=(3000, 2))
    tree = NeighborSearch(points, "euclidean")
    padded = np.zeros((20000, 20))
    padded[:, :2] = points
    brute = NeighborSearch(padded, "euclidean")
    wide = np.hstack([queries, np.zeros((3000, 18))])
    assert tree.engine == "tree" and brute.engine == "brute"
    near = tree.nearest(queries, 11)[0]
    np.testing.assert_array_equal(np.sort(near), np.sort(brute.nearest(wide, 11)[0]))
    reach = tree.distance_to(tree.nearest_others(10)[0][:, -1])
    by_tree = tree.balls_containing(queries, reach)
    by_scan = brute.balls_containing(wide, reach)
    order = [np.lexsort(pairs[1::-1]) for pairs in (by_tree, by_scan)]
    np.testing.assert_array_equal(by_tree[1][order[0]], by_scan[1][order[1]])


@pytest.mark.parametrize("kind", KINDS)
def test_many_wide_points_with_copies(kind):
    rng = np.random.default_rng(0)
    points = cloud(rng, 2000, 40, kind)
    points[500:600] = points[0]
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "brute"
    queries = np.vstack([cloud(rng, 20, 40, kind), points[:3]])
    for k in (1, 11, 200):
        found, tied = search.nearest(queries, k)
        for row, z in enumerate(queries):
            squared = sum((points[:, c] - z[c]) ** 2 for c in range(40))
            assert_nearest(found[row], tied[row], squared)


def test_a_query_beyond_single_precision():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1500, 40))
    search = NeighborSearch(points, "euclidean")
    query = np.full((1, 40), 1e39)
    found, tied = search.nearest(query, 3)
    assert_nearest(found[0], tied[0], distances(points, query[0]))


def test_a_regular_line_is_settled_without_comparing_all(monkeypatch):
    """Every point of a time index has tied neighbours; looking a little further settles them."""
    compared = []
    monkeypatch.setattr(_search, "all_distances", lambda *a: compared.append(a))
    n = 5000
    search = NeighborSearch(np.arange(n)[:, None] * 1.0, "euclidean")
    found, tied = search.nearest_others(3)
    assert tied[10:-10].all()
    inner = np.arange(10, n - 10)
    assert not compared
    assert (np.sort(np.abs(found[inner] - inner[:, None]), axis=1) == [1, 1, 2]).all()


def test_overlapping_predictions_leave_linear_algebra_as_it_was():
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info

    from calliper._blocks import map_slices, row_slices

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: map_slices(lambda rows: None, row_slices(100, 1)), range(20)))
    assert threads() == before


@pytest.mark.parametrize("d", [1, 2, 8, 40])
@pytest.mark.parametrize("kind", ["lattice", "rounded", "normal"])
def test_a_row_has_the_same_neighbours_in_the_same_order_alone_and_among_others(d, kind):
    """Sums over neighbours then have the same bits however rows are dealt into batches."""
    rng = np.random.default_rng(d)
    search = NeighborSearch(cloud(rng, 1200, d, kind), "euclidean")
    queries = cloud(rng, 900, d, kind)
    together, tied = search.nearest(queries, 9)
    sums = search.points[:, 0][together].mean(axis=1)
    for step, n in ((1, 200), (300, 900)):
        parts = [search.nearest(queries[i : i + step], 9)[0] for i in range(0, n, step)]
        alone = [search.points[:, 0][part].mean(axis=1) for part in parts]
        clear = np.flatnonzero(~tied[:n])
        np.testing.assert_array_equal(np.concatenate(parts)[clear], together[clear])
        np.testing.assert_array_equal(np.concatenate(alone)[clear], sums[clear])


def test_rows_so_far_away_that_single_precision_cannot_tell_are_in_no_ball():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 20))
    search = _search.NeighborSearch(points, "euclidean")
    reach = search.distance_to(search.nearest_others(4)[0][:, -1])
    near = search.balls_containing(points[:5], reach)
    both = search.balls_containing(np.vstack([points[:5], np.full((1, 20), 1e17)]), reach)
    for found, expected in zip(both, near, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_who_has_two_neighbours_at_one_distance():
    search = _search.NeighborSearch(np.array([[0.0], [1.0], [2.0], [4.5], [7.5]]), "euclidean")
    two = np.array([[1, 2], [0, 2], [1, 0], [2, 4], [3, 2]])
    np.testing.assert_array_equal(search.any_equal(two), [False, True, False, False, False])
    np.testing.assert_array_equal(search.any_equal(two[:, ::-1]), search.any_equal(two))
    three = np.array([[1, 2, 4], [0, 2, 4], [4, 1, 0], [2, 4, 0], [0, 1, 3]])
    np.testing.assert_array_equal(search.any_equal(three), [False, True, False, False, False])
    np.testing.assert_array_equal(search.any_equal(three[:, [0, 2, 1]]), search.any_equal(three))


@pytest.mark.parametrize("unit", [2.0**-9, 1.0, 2.0**9])
def test_wide_rows_that_single_precision_takes_for_equal(unit):
    """Two clusters so tight that products cannot order their members, in any unit."""
    rng = np.random.default_rng(0)
    middle = rng.normal(size=40) * np.array([[1.0], [-1.0]])
    points = unit * (np.repeat(middle, 100, axis=0) + 1e-5 * rng.normal(size=(200, 40)))
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "brute"
    near, _ = search.nearest(points[:20] + unit * 1e-6, 5)
    far = distances(points, points[0] + unit * 1e-6)
    assert far[near[0]].max() == np.sort(far)[4]
    for row, found in enumerate(near):
        far = distances(points, points[row] + unit * 1e-6)
        np.testing.assert_allclose(np.sort(far[found]), np.sort(far)[:5], rtol=1e-9)


@pytest.mark.parametrize("unit", [2.0**-9, 1.0, 2.0**9])
def test_wide_rows_whose_distances_differ_by_less_than_products_round(unit):
    """A shell around the query, far from the centre of all: its nearest are not among proposals."""
    rng = np.random.default_rng(1)
    middle, around = rng.normal(size=40), rng.normal(size=(300, 40))
    around *= (0.3 * (1 + 1e-8 * rng.permutation(300)) / np.sqrt((around**2).sum(axis=1)))[:, None]
    points = unit * np.vstack([middle + around, -middle + 0.01 * rng.normal(size=(300, 40))])
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "brute"
    found, tied = search.nearest(unit * middle[None], 5)
    far = distances(points, unit * middle)
    assert sorted(found[0]) == sorted(np.argsort(far)[:5]) and not tied[0]


def test_ties_that_matrix_products_round_apart():
    """Each of 20 points differs from the query in one feature alone, by the same."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        query = np.round(1000 * rng.normal(size=(1, 20)), 0)
        points = np.vstack([query + np.diag(np.full(20, 0.25)), 1000 * rng.normal(size=(20, 20))])
        search = NeighborSearch(points, "euclidean")
        assert search.engine == "brute"
        for k in (1, 2, 19):
            found, tied = search.nearest(query, k)
            assert tied[0] and (found < 20).all()


def test_ties_of_a_tree_that_sums_in_another_order():
    rng = np.random.default_rng(0)
    points = rng.integers(0, 4, (8200, 8)) / 10 + 0.1
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "tree"
    far = np.array([sum((points[:, c] - z[c]) ** 2 for c in range(8)) for z in points[:30]])
    for k in (2, 30, 100):
        found, tied = search.nearest(points[:30], k)
        for row in range(30):
            assert_nearest(found[row], tied[row], far[row])


@pytest.mark.parametrize(("d", "n"), [(2, 1500), (20, 1500)])
def test_balls_of_more_queries_than_are_worked_on_at_a_time(d, n):
    rng = np.random.default_rng(0)
    points, queries = cloud(rng, n, d, "rounded"), cloud(rng, 900, d, "rounded")
    search = NeighborSearch(points, "euclidean")
    far = sum((queries[:, c, None] - points[:, c]) ** 2 for c in range(d))
    reach = np.sort(far[::9], axis=0)[1]
    query, point, at_edge = search.balls_containing(queries, reach)
    order = np.lexsort((point, query))
    np.testing.assert_array_equal(np.argwhere(far <= reach), np.c_[query, point][order])
    np.testing.assert_array_equal(at_edge, far[query, point] == reach[point])


@pytest.mark.parametrize("d", [1, 2])
def test_more_points_share_a_place_than_are_looked_at_first(d):
    """Sixty copies here, and sixty one step away; with one nearer."""
    magnitudes = np.arange(1.0, 182.0) ** 2
    points = np.repeat([[0.0], [1.0], [5.0]], [60, 60, 61], axis=0) * np.ones(d)
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "tree"
    here, there, far = magnitudes[:60].mean(), magnitudes[60:120].mean(), np.zeros((1, d)) - 1
    found = Nearest(search, magnitudes, 3).means_of_tied(np.vstack([points[:1], far]))
    np.testing.assert_allclose(found, [here, here], rtol=1e-12)
    sums = Nearest(search, magnitudes, 100).sums_of_others(np.array([0, 70]))
    near = [magnitudes[1:60].sum(), magnitudes[60:120].sum() - magnitudes[70]]
    np.testing.assert_allclose(sums.total, [near[0] + 41 * there, near[1] + 41 * here], rtol=1e-12)
    points[0] -= 1
    found = Nearest(NeighborSearch(points, "euclidean"), magnitudes, 3).means_of_tied(far)
    np.testing.assert_allclose(found, (1 + 2 * magnitudes[1:60].mean()) / 3, rtol=1e-12)


def test_balls_of_points_closer_than_squares_can_tell():
    """Their squared distances are zero: whoever searches a tree finds them, as others do."""
    points = np.array([[0.0], [1e-170], [3e-170], [1.0], [-2.0]])
    search, reach = NeighborSearch(points, "euclidean"), np.zeros(5)
    few = search.balls_containing(points, reach)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_search, "MANY_QUERIES", 1)
        many = search.balls_containing(points, reach)
    pairs = {(q, p) for q in range(3) for p in range(3)} | {(3, 3), (4, 4)}
    for query, point, at_edge in (few, many):
        assert set(zip(query.tolist(), point.tolist(), strict=True)) == pairs and at_edge.all()


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("unit", [1.0, 2.0**-60])
@pytest.mark.parametrize("d", [6, 20])
def test_no_ball_contains_rows_that_overflow_single_precision(side, unit, d):
    """In all features, or in one alone."""
    points = unit * np.arange(-30.0, 31.0)[:, None] * np.ones(d)
    search = NeighborSearch(points, "euclidean")
    reach = search.distance_to(search.nearest_others(4)[0][:, -1])
    for far in (np.ones(d), np.eye(d)[2]):
        rows = np.vstack([points[:1], side * unit * 1e41 * far])
        query, point, _ = search.balls_containing(rows, reach)
        assert len(point) > 1 and not query.any()


def test_wide_rows_that_are_all_copies():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2500, 33))
    points[:2000] = points[0]
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "brute"
    found, tied = search.nearest(points[:2], 1)
    assert tied.all() and (found < 2000).all()


def test_a_search_grows_only_within_its_unit():
    points = np.random.default_rng(0).normal(size=(50, 3))
    large = np.vstack([points, np.full((1, 3), 1e120)])
    assert NeighborSearch(points, "euclidean").extended(large) is None
    assert NeighborSearch(1e120 * points, "euclidean").extended(points) is None
    assert NeighborSearch(points[:49], "euclidean").extended(points) is not None
