"""Tuned kernels against the literal triple loop."""

import numpy as np
import pytest

from calliper import JackknifeRescaled
from calliper.information import rank_ksg
from calliper.kernels import NeighborSearch, TunedKNN, TunedRBF
from calliper.kernels._nearest import Nearest
from calliper.kernels._rbf import Radial, RadialMeans
from calliper.kernels._tuned import RescaledInformation, Tuning, choose, pointwise_loss
from oracles import rescaled as oracles
from oracles import tuning as tuning_oracles

GRID = np.geomspace(0.05, 3, 7)


def radial(Z, magnitudes, length_scale):
    return RadialMeans(Radial(Z, length_scale, "euclidean"), magnitudes)


def draw(seed, n=14, d=2, tail=0.7):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.pareto(tail, n) + 1e-3, rng.normal(size=(4, d))


@pytest.mark.parametrize("log10", range(-6, 7))
def test_leave_two_out_means_for_any_length_scale(log10):
    Z, magnitudes, _ = draw(log10 + 10)
    found = radial(Z, magnitudes, 10.0**log10).among()
    expected = [
        [tuning_oracles.leave_two_out_scale(Z, magnitudes, i, m, 10.0**log10) for m in range(14)]
        for i in range(14)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_leave_two_out_means_where_one_score_outweighs_all():
    """Subtracting it from the sum would leave no digits."""
    Z, magnitudes, _ = draw(0)
    magnitudes[5] = 1e18
    for scale in (0.3, 3.0):
        found = radial(Z, magnitudes, scale).among()
        for i in (0, 7):
            expected = tuning_oracles.leave_two_out_scale(Z, magnitudes, i, 5, scale)
            assert found[i, 5] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("discrete", [False, True])
def test_leave_two_out_neighbours(k, discrete):
    Z, magnitudes, _ = draw(k)
    Z = np.round(Z) if discrete else Z
    found = Nearest(NeighborSearch(Z, "euclidean"), magnitudes, k).among()
    for i in range(14):
        for m in range(14):
            expected = tuning_oracles.leave_two_out_knn(Z, magnitudes, i, m, k)
            assert found[i, m] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("criterion", ["mse", "deviance"])
@pytest.mark.parametrize("seed", range(3))
def test_criteria_and_choice(criterion, seed):
    Z, magnitudes, _ = draw(seed, tail=2.0)
    kernel = TunedRBF(criterion, length_scales=GRID)
    scale = JackknifeRescaled(kernel).fit(Z, magnitudes).scale_
    for m in range(14):
        values = []
        for length_scale in GRID:

            def scale_of(i, m, length_scale=length_scale):
                return tuning_oracles.leave_two_out_scale(Z, magnitudes, i, m, length_scale)

            values.append(tuning_oracles.criterion(Z, magnitudes, m, scale_of, criterion))
        np.testing.assert_allclose(scale.criteria[:, m], values, rtol=1e-9)
        assert scale.chosen[m] == GRID[tuning_oracles.choose_scale(values)]


@pytest.mark.parametrize("d", [1, 2])
def test_mutual_information_criterion(d):
    Z, magnitudes, _ = draw(3, d=d, tail=2.0)
    scale = JackknifeRescaled(TunedRBF("mi", length_scales=GRID)).fit(Z, magnitudes).scale_
    for m in (0, 6, 13):
        for index in (0, 3, 6):

            def scale_of(i, m, length_scale=GRID[index]):
                return tuning_oracles.leave_two_out_scale(Z, magnitudes, i, m, length_scale)

            expected = tuning_oracles.criterion(Z, magnitudes, m, scale_of, "mi", k=3)
            assert scale.criteria[index, m] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("criterion", ["mse", "deviance", "mi"])
@pytest.mark.parametrize("offset", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_tuned_radius(criterion, offset, seed):
    Z, magnitudes, new = draw(seed)
    scores = np.where(np.arange(14) % 3 == 0, 0.0, magnitudes)
    method = JackknifeRescaled(TunedRBF(criterion, length_scales=GRID), offset=offset)
    method.fit(Z, scores, magnitudes=magnitudes)
    for coverage in ("0.5", "0.9"):
        expected = [
            tuning_oracles.tuned_jackknife_radius(
                Z, magnitudes, scores, z, method.scale_.chosen, coverage, offset
            )
            for z in new
        ]
        found = method.predict_radius(new, float(coverage))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("criterion", ["mse", "deviance", "mi"])
@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_fold_radius(criterion, n_folds):
    Z, magnitudes, new = draw(n_folds, n=20)
    kernel = TunedRBF(criterion, length_scales=GRID, n_folds=n_folds)
    method = JackknifeRescaled(kernel, random_state=0).fit(Z, magnitudes)
    scale = method.scale_
    assert sorted(np.bincount(scale.fold)) == sorted(np.bincount(np.arange(20) % n_folds))
    expected = [
        tuning_oracles.fold_tuned_radius(
            Z, magnitudes, magnitudes, z, scale.fold, scale.of_each, "0.8"
        )
        for z in new
    ]
    np.testing.assert_allclose(method.predict_radius(new, 0.8), expected, rtol=1e-9)


def test_fold_criteria_leave_the_fold_out():
    Z, magnitudes, _ = draw(1, n=20)
    kernel = TunedRBF("mse", length_scales=GRID, n_folds=4)
    scale = JackknifeRescaled(kernel, random_state=0).fit(Z, magnitudes).scale_
    for fold in range(4):
        kept = np.flatnonzero(scale.fold != fold)
        for index, length_scale in enumerate(GRID):
            means = np.diagonal(radial(Z[kept], magnitudes[kept], length_scale).among())
            expected = np.mean((magnitudes[kept] - means) ** 2)
            assert scale.criteria[index, fold] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_tuned_neighbours_radius(seed):
    rng = np.random.default_rng(seed)
    Z = rng.integers(0, 5, (15, 2)) * 1.0
    magnitudes, new = rng.exponential(size=15), rng.integers(0, 5, (4, 2)) * 1.0
    method = JackknifeRescaled(TunedKNN(n_neighbors=[1, 3, 6]), random_state=seed)
    method.fit(Z, magnitudes)
    rank = oracles.conformal_rank("0.8", 15)
    for z, found in zip(new, method.predict_radius(new, 0.8), strict=True):
        products = []
        for m in range(15):
            k, others = int(method.scale_.chosen[m]), [j for j in range(15) if j != m]
            own = float(oracles.weighted_mean(oracles.nearest(Z, Z[m], others, k), magnitudes))
            there = float(oracles.weighted_mean(oracles.nearest(Z, z, others, k), magnitudes))
            products.append(there * magnitudes[m] / own)
        assert found == pytest.approx(sorted(products)[rank - 1], rel=1e-10)


@pytest.mark.parametrize("kernel", [TunedRBF(length_scales=[0.4]), TunedKNN(n_neighbors=[5])])
def test_a_grid_of_one_is_the_fixed_kernel(kernel):
    from calliper import KNN, RBF

    Z, magnitudes, new = draw(2, n=40)
    fixed = RBF(0.4) if isinstance(kernel, TunedRBF) else KNN(5)
    expected = JackknifeRescaled(fixed).fit(Z, magnitudes).predict_radius(new, [0.5, 0.9])
    found = JackknifeRescaled(kernel).fit(Z, magnitudes).predict_radius(new, [0.5, 0.9])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("criterion", ["mse", "deviance", "mi"])
def test_a_point_has_no_say_in_its_own_kernel(criterion):
    """Changing the label of point m changes other choices, never its own."""
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(60, 1)), rng.exponential(size=60)
    for kernel in (TunedRBF(criterion, length_scales=GRID), TunedKNN(criterion)):
        before = JackknifeRescaled(kernel, random_state=0).fit(Z, scores).scale_
        changed = 0
        for m in range(0, 60, 7):
            moved = scores.copy()
            moved[m] = 30.0
            after = JackknifeRescaled(kernel, random_state=0).fit(Z, moved).scale_
            assert after.chosen[m] == before.chosen[m]
            np.testing.assert_allclose(after.criteria[:, m], before.criteria[:, m], rtol=1e-9)
            changed += (after.criteria != before.criteria).any()
        assert changed


def test_ties_go_to_the_smoothest():
    np.testing.assert_array_equal(choose(np.array([[1.0, 2.0], [1.0, 1.0], [1.0, 3.0]])), [2, 1])
    np.testing.assert_array_equal(choose(np.full((3, 2), np.inf)), [2, 2])


def test_without_the_only_one_near_the_next_speaks():
    """However small its weight: the mean is that of the nearest of the others."""
    Z, magnitudes = np.array([[0.0], [1.0], [3.0]]), np.array([5.0, 7.0, 11.0])
    found = radial(Z, magnitudes, 0.01).to(np.array([[0.1], [2.9], [1.0]]))[:, [0, 2]]
    np.testing.assert_allclose(found, [[7.0, 5.0], [11.0, 7.0], [7.0, 7.0]])


def test_deviance_of_a_scale_that_is_zero():
    scores, scale = np.array([1.0, 0.0, 2.0, 0.0]), np.array([0.0, 0.0, 4.0, 2.0])
    found = pointwise_loss("deviance", scores, scale)
    np.testing.assert_allclose(found, [np.inf, np.inf, np.log(4) + 0.5, np.log(2)])
    np.testing.assert_allclose(pointwise_loss("mse", scores, scale), [1, 0, 4, 4])


@pytest.mark.parametrize("ties", [False, True])
def test_the_information_of_all_but_one_is_that_of_the_others(ties):
    """Criteria of all points at once and of a part alone; zeros and ties fall as they did."""
    rng, n = np.random.default_rng(0), 60
    scores = rng.integers(0, 3, n) * 1.0 if ties else rng.exponential(size=n)
    scale = rng.integers(0, 3, (n, n)) * 1.0 if ties else rng.exponential(size=(n, n))
    information = RescaledInformation(rng.normal(size=(n, 2)), 3, np.random.RandomState(0))
    tuning = Tuning(np.ones(1), "mi", information, lambda done: None)
    expected = []
    for left_out in range(n):
        kept = np.delete(np.arange(n), left_out)
        part = RescaledInformation(np.ones((n - 1, 1)), 3, np.random.RandomState(0))
        place = np.empty(n, dtype=int)
        place[kept] = np.arange(n - 1)
        part.x_orders = [place[x[x != left_out]] for x in information.x_orders]
        part.shuffled = place[information.shuffled[information.shuffled != left_out]]
        nobody = np.zeros((1, n - 1), dtype=bool)
        alone = Tuning(np.ones(1), "mi", part, lambda done: None)
        expected += [*alone.values(scores[kept, None], scale[kept][:, [left_out]], nobody)]
    found = tuning.values(scores[:, None], scale, np.eye(n, dtype=bool))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    ranks, nobody = np.random.RandomState(1).permutation(n), np.zeros((1, n), dtype=bool)
    one = information.of_columns(ranks[:, None] * 1.0, nobody)[0]
    for x_order in information.x_orders:
        one -= rank_ksg(ranks[x_order][None], 3)[0]
    assert abs(one) < 1e-12
