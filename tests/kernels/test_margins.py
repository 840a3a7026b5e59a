"""Where margins, windows and blocks of the kernels decide a result: rare cases, by definition."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.ensemble import RandomForestRegressor

from calliper import KNN, RBF
from calliper.kernels import ForestProximity, TunedKNN, TunedRBF
from calliper.kernels._arithmetic import times
from calliper.kernels._nearest import Nearest
from calliper.kernels._rbf import Radial, median_distance
from calliper.kernels._search import NeighborSearch, all_distances
from calliper.kernels._tuned import LeaveTwoOutTuned
from calliper.kernels._weighted import sums_of_others
from calliper.rows import Rows
from calliper.scale._device import device_rows


def ranked(every, levels):
    """Order statistics of rows of thresholds at conformal ranks."""
    ranks = [int(np.ceil(level * (every.shape[1] + 1) - 1e-9)) for level in levels]
    return np.sort(every, axis=1)[:, np.array(ranks) - 1]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_who_is_an_exception_is_decided_by_weight_and_by_balance(unit):
    """New rows that a loud cluster makes loud, and that a quiet one hardly sees."""
    levels, new = list(np.arange(1, 60, 2) / 61), np.linspace(1.5, 3.5, 9)[:, None]
    for seed in range(3):
        draw = np.random.default_rng(seed)
        Z = np.vstack([draw.normal(size=(30, 1)), 4 + 0.5 * draw.normal(size=(30, 1))])
        scores = unit * np.exp(draw.normal(size=60)) * np.where(Z[:, 0] > 2.5, 1e8, 1.0)
        for length in (0.3, 0.5):
            bag = RBF(length).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
            expected = ranked(bag.thresholds(new), levels)
            found = [bag.order_statistics(row[None], levels)[0] for row in new]
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_in_many_dimensions_thresholds_in_the_window_have_their_own_exponents():
    draw = np.random.default_rng(0)
    Z, scores, levels = draw.normal(size=(300, 10)), draw.exponential(size=300), [0.1, 0.5, 0.9]
    bag = RBF(2.5).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
    new = draw.normal(size=(10, 10))
    expected = ranked(bag.thresholds(new), levels)
    np.testing.assert_allclose(bag.order_statistics(new, levels), expected, rtol=1e-11)


def test_a_zero_score_among_zeros_loses_to_a_new_point_that_is_barely_seen():
    Z = np.array([[0.0], [0.0], [0.01], [1.0], [1.01], [1.02]])
    scores = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    bag = RBF(0.025).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
    new, levels = np.array([[0.45], [0.5], [0.55]]), [0.1, 0.3, 0.5, 0.6, 0.8]
    assert (bag.thresholds(new)[:, :3] == 0).all()
    expected = ranked(bag.thresholds(new), levels)
    np.testing.assert_allclose(bag.order_statistics(new, levels), expected, rtol=1e-9)


def test_of_one_row_alone_the_window_has_room_for_all_exceptions():
    """Three loud points of one place fall behind others when each is left out of its mean."""
    pairs = np.repeat(100.0 * np.arange(1, 31), 2)
    ratio = 1.07 ** np.arange(1, 31)
    Z = np.append(np.zeros(6), pairs)[:, None]
    scores = np.append([2.0, 2.0, 2.0, 0.02, 0.02, 0.02], np.c_[ratio, np.ones(30)].ravel())
    two = RBF(1.0).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    two.prepare(scores)
    expected = np.sort(times(two.without_each(Z[:1]), two.rescaled), axis=1)
    found = two.order_statistics(Z[:1], list(range(1, 67)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def far_clusters():
    """Points in two small clusters far from one another, and rows in these."""
    draw = np.random.default_rng(0)
    Z = draw.normal(size=(40, 10))
    Z[::2] += 3000.0
    return Z, Z[:20] + draw.normal(size=(20, 10))


def exact_exponents(rows, Z, length):
    """−d²/2l² in whole numbers, where it is not small beyond interest."""
    found = np.full((len(rows), len(Z)), np.nan)
    near = ((rows[:, None] - Z) ** 2).sum(axis=2) < 200
    for i, j in zip(*np.nonzero(near), strict=True):
        differences = (Fraction(a) - Fraction(b) for a, b in zip(rows[i], Z[j], strict=True))
        found[i, j] = -sum(each**2 for each in differences) / (2 * Fraction(length) ** 2)
    return found


@pytest.mark.parametrize("length", [15.0, 40.0, 150.0, 1000.0])
def test_exponents_are_as_exact_as_is_said(length):
    Z, rows = far_clusters()
    exact = exact_exponents(rows, Z, length)
    exponent = Radial(Z, length, "euclidean").exponents(rows)
    near = np.isfinite(exact)
    assert np.abs(exponent - exact)[near].max() < 1e-11
    torch = pytest.importorskip("torch")
    from calliper.scale._torch import TorchRadial

    radial = TorchRadial(device_rows(torch.tensor(Z), "Z"), length, 0.0, 0.0)
    there = radial.exponents(torch.tensor(rows.T.copy())).numpy()
    assert np.abs(there - exact)[near].max() < 1e-11


def test_lengths_and_their_median():
    for length in (1e-150, 1e150):
        with pytest.raises(ValueError, match="positive, finite"):
            RBF(length).resolved()
    Z = np.array([[0.0], [7.0], [1.0], [20.0], [3.0]])
    assert median_distance(Z, max_points=3) == np.median(pdist(Z[[0, 2, 4]]))


def tied_in_sums(d, n_pairs, spread, seed=0):
    """Centres, and around each two points whose distances, added in order, tie or nearly do."""
    draw = np.random.default_rng(seed)
    centre = draw.integers(-spread, spread, size=(n_pairs, d)) * 4.0
    offset = draw.integers(1 << 28, size=(n_pairs, d)) * 2.0**-28
    other = np.stack([draw.permutation(each) for each in offset])
    return centre, np.vstack([centre, centre + offset, centre - other])


@pytest.mark.parametrize(("d", "n_pairs", "n"), [(8, 4100, 2), (8, 4100, 1), (40, 150, 1)])
def test_ties_are_those_of_sums_in_order(d, n_pairs, n):
    """A tree adds in another order, and products lose digits: neither decides who is tied."""
    centre, points = tied_in_sums(d, n_pairs, 1 << 12)
    points = points if n == 2 else points[n_pairs:]
    search = NeighborSearch(points, "euclidean")
    assert search.engine == ("tree" if d == 8 else "brute")
    distance = np.sort(all_distances(centre[:200], points, "euclidean"), axis=1)
    tied = distance[:, n - 1] == distance[:, n]
    assert tied.any() and not tied.all()
    np.testing.assert_array_equal(search.nearest(centre[:200], n)[1], tied)


def test_ties_among_many_wide_points_are_those_of_sums_in_order():
    centre, points = tied_in_sums(40, 500, 1 << 12)
    search = NeighborSearch(points[500:], "euclidean")
    assert search.engine == "brute"
    distance = np.sort(all_distances(centre, points[500:], "euclidean"), axis=1)
    tied = distance[:, 0] == distance[:, 1]
    np.testing.assert_array_equal(search.nearest(centre, 1)[1], tied)


def test_rows_at_the_edge_of_balls_of_wide_points_are_in_them():
    """However far from nought all of them are, and whatever products of them lose."""
    for seed in range(4):
        draw = np.random.default_rng(seed)
        points, rows = 5 + draw.normal(size=(200, 40)), 5 + draw.normal(size=(60, 40))
        distance = all_distances(rows, points, "euclidean")
        reach = distance[np.arange(200) % 60, np.arange(200)]
        query, point, _ = NeighborSearch(points, "euclidean").balls_containing(rows, reach)
        assert len(query) == (distance <= reach).sum()
        assert (distance[query, point] <= reach[point]).all()


def test_few_far_on_the_other_side_of_nought_have_their_own_nearest():
    """A cluster as far below nought as the centre of all is above."""
    draw = np.random.default_rng(0)
    near, far = draw.normal(size=(40, 8)), draw.normal(size=(360, 8))
    points = np.vstack([near - 1e7, far + 1e7 * 440 / 360])
    search = NeighborSearch(points, "euclidean")
    assert search.engine == "brute" and np.abs(search.centre - 1e7).max() < 1
    expected = all_distances(points[:40], points, "euclidean")
    np.fill_diagonal(expected, np.inf)
    found = search.others_of(np.arange(40), 3)[0]
    np.testing.assert_array_equal(found, np.argsort(expected, axis=1)[:, :3])


def test_the_nearest_of_wide_points_near_their_centre():
    draw = np.random.default_rng(0)
    points = draw.normal(size=(1200, 40))
    search = NeighborSearch(points, "euclidean")
    for size in (0.05, 0.3, 1.0):
        rows = size * draw.normal(size=(200, 40))
        expected = np.argsort(all_distances(rows, points, "euclidean"), axis=1)[:, :3]
        found = search.nearest(rows, 3)[0]
        np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))


def test_crowds_in_several_blocks_are_those_in_one():
    draw = np.random.default_rng(0)
    Z, scores = draw.integers(40, size=(900, 2)) * 1.0, draw.exponential(size=900)
    crowd = Nearest(NeighborSearch(Z, "cityblock"), scores, 5)
    rows = draw.integers(40, size=(700, 2)) * 1.0
    each = [crowd.means_of_tied(rows[part]) for part in (slice(0, 200), slice(200, 700))]
    np.testing.assert_array_equal(crowd.means_of_tied(rows), np.hstack(each))


def test_clamps_are_quantiles_with_the_least_and_the_largest_score_added():
    """The rank-th smallest of K, by weight, if a new point is just as far as the K-th."""
    draw = np.random.default_rng(0)
    Z, scores = draw.integers(4, size=(30, 2)) * 1.0, draw.integers(1, 9, size=30) * 1.0
    search = NeighborSearch(Z, "euclidean")
    for k, i in product((1, 2, 3, 5), range(30)):
        others = np.delete(np.arange(30), i)
        distance = ((Z[others] - Z[i]) ** 2).sum(axis=1)
        reach = np.sort(distance)[k - 1]
        near, tied = np.append(distance < reach, False), np.append(distance == reach, True)
        weight = [Fraction(k - int(near.sum()), int(tied.sum())) * int(t) for t in tied]
        weight = np.array(weight) + near
        for rank in range(1, k + 1):
            found = Nearest(search, scores, k).clamps(np.array([i]), rank)[0, 2:4]
            for t, value in zip((0.0, np.inf), found, strict=True):
                values = np.append(scores[others], t)
                order = np.argsort(values, kind="stable")
                assert value == values[order][np.argmax(np.cumsum(weight[order]) >= rank)]


def test_on_a_device_ten_bits_do_not_decide_who_is_nearest():
    """Points in a shell that is thinner than what rounding moves them by."""
    torch = pytest.importorskip("torch")
    from calliper.scale._torch import TorchSearch

    for seed in range(10):
        draw = np.random.default_rng(seed)
        Z = draw.normal(size=(200, 3))
        Z *= (1 + 3e-4 * draw.uniform(size=200) / np.sqrt((Z**2).sum(axis=1)))[:, None] / np.sqrt(
            (Z**2).sum(axis=1)
        )[:, None]
        there = TorchSearch(device_rows(torch.tensor(Z), "Z"))
        rows = np.zeros((1, 3))
        expected = np.argmin((Z**2).sum(axis=1))
        assert there.nearest(torch.tensor(rows), 1)[0].item() == expected


def test_on_a_device_who_carries_most_of_a_sum_is_left_out_of_it():
    torch = pytest.importorskip("torch")
    Z = np.array([[0.0], [0.1], [0.3], [5.0]])
    scores = np.array([1.0, 2.0, 3.0, 1e22])
    there = RBF(1.0).leave_two_out(
        Rows(device_rows(torch.tensor(Z), "Z"), magnitudes=scores), offset=0.0, rng=None
    )
    found = there.without_each(device_rows(torch.tensor(Z[:1]), "new"))[0, 3]
    weight = np.exp(-(Z[:3, 0] ** 2) / 2)
    np.testing.assert_allclose(found, weight @ scores[:3] / weight.sum(), rtol=1e-9)


def test_what_tuned_kernels_choose_from():
    kernel = TunedKNN(n_neighbors=[5, 8, 9]).resolved()
    assert kernel._candidates(10).tolist() == [5, 8] and kernel._candidates(6).tolist() == [4]
    assert TunedKNN().n_neighbors == (3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
    assert TunedKNN(mi_neighbors=1).resolved().mi_neighbors == 1
    draw = np.random.default_rng(0)
    Z, scores = draw.normal(size=(20, 1)), draw.exponential(size=20)
    folds = TunedRBF(length_scales=[0.3, 1.0], n_folds=20).resolved()
    two = folds.leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=np.random.RandomState(0))
    assert isinstance(two, LeaveTwoOutTuned)


def test_what_forests_are_taken():
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(30, 2)), draw.normal(size=30)
    forest = RandomForestRegressor(n_estimators=2, random_state=0).fit(X, y)
    assert ForestProximity(forest).resolved().takes_inputs
    assert not ForestProximity().takes_inputs


def test_a_slope_of_one_is_a_slope():
    draw = np.random.default_rng(0)
    Z, scores = draw.normal(size=(20, 2)), draw.exponential(size=20)
    bag = RBF(0.7, smoothing=1.0).bag(Rows(Z, scores, scores), statistic="mean", offset=0.3)
    one, almost = (bag.thresholds(Z[:3] + 0.1, 0.5, slope) for slope in (1.0, 1 - 1e-12))
    np.testing.assert_allclose(one, almost, rtol=1e-9)


@pytest.mark.parametrize("at", [0.0, -0.3])
def test_a_point_of_nearly_all_weight_and_no_score_is_left_out_of_the_sum(at):
    Z, scores = np.array([[0.0], [2.0], [2.2], [9.0]]), np.array([0.0, 1.0, 5.0, 2.0])
    two = RBF(0.2, smoothing=1e-30).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    weight = np.exp(-((Z[1:, 0] - at) ** 2) / 0.08) + 1e-30 / 4
    expected = weight @ scores[1:] / weight.sum()
    np.testing.assert_allclose(two.without_each(np.array([[at]]))[0, 0], expected, rtol=1e-9)


def test_weights_of_many_points_are_summed_in_several_blocks():
    draw = np.random.default_rng(0)
    Z, scores = draw.normal(size=(700, 2)), draw.exponential(size=700)
    weights = Radial(Z, 0.5, "euclidean", smoothing=1.0)
    loud = np.exp(-((Z[:, None] - Z) ** 2).sum(axis=2) / 0.5) + 1 / 700
    np.fill_diagonal(loud, 0.0)
    total, weight, _ = sums_of_others(weights, scores)
    np.testing.assert_allclose(total, loud @ scores, rtol=1e-9)
    np.testing.assert_allclose(weight, loud.sum(axis=1), rtol=1e-9)


def test_of_many_that_are_next_all_take_the_place_of_one():
    """More points are just as far as the next than are looked at first."""
    Z = np.append([0.0, 1.0], np.full(40, 2.0))[:, None]
    scores = np.append([3.0, 5.0], np.arange(1.0, 41.0))
    two = KNN(1).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    two.prepare(scores)
    for new in ([[1.4]], [[1.0]]):
        expected = np.sort(times(two.without_each(np.array(new)), two.rescaled), axis=1)
        found = two.order_statistics(np.array(new), list(range(1, 43)))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
