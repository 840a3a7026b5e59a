"""Shared leaves and smoothed radial weights: every closed form equals its definition."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeRegressor

from calliper import KNN, RBF, CalliperError, ConformalRegressor, FullRescaled, JackknifeRescaled
from calliper.calibrators import MADSplit
from calliper.kernels import ForestProximity
from calliper.kernels._proximity import SharedLeaves
from calliper.kernels._weighted import BagWeighted, WeightedMeans, Weights
from calliper.rows import Rows
from cases.problems import small_problem
from oracles import rescaled as oracles

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
LEVELS = [0.1, 0.5, 0.8, 0.9]


def leaf_problem(seed):
    """Few leaves in few trees, so that many points share some and a few share none."""
    p = small_problem(seed, smallest=2)
    rng = np.random.default_rng(seed)
    n_leaves = int(rng.choice([2, 5, 40]))
    n_trees = int(rng.integers(2, 6))
    return (
        p,
        rng.integers(0, n_leaves, (len(p.Z), n_trees)),
        rng.integers(0, n_leaves, (3, n_trees)),
    )


def shared(a, b):
    return Fraction(int(np.sum(a == b)), len(a))


def mean(at, members, leaves, values):
    """Over the members (numbers of bag members), by shares of leaves; all alike if all are 0."""
    weights = [shared(leaves[at], leaves[k]) for k in members]
    if sum(weights) == 0:
        weights = [Fraction(1)] * len(members)
    return sum(w * values[k] for w, k in zip(weights, members, strict=True)) / sum(weights)


def fractions(values):
    return [Fraction(float(v)) for v in values]


@pytest.mark.parametrize("statistic", ["mean", "rms"])
@pytest.mark.parametrize("batch", range(2))
def test_full_is_where_the_literal_p_value_falls(batch, statistic):
    for seed in range(60 * batch, 60 * batch + 60):
        p, leaves, new = leaf_problem(seed)
        m = [0.0, 0.3, 0.8][seed % 3]
        full = FullRescaled(
            ForestProximity(), shrinkage=m, statistic=statistic, offset=p.offset
        ).fit(leaves, p.scores, magnitudes=p.magnitudes)
        n, power = len(leaves), 2 if statistic == "rms" else 1
        alpha = 1 - Fraction(p.coverage)

        def p_value(t, z, p=p, leaves=leaves, m=Fraction(m), n=n, power=power):
            bag = np.vstack([leaves, z])
            sizes = [v**power for v in fractions([*p.magnitudes, t])]
            scores = [v**power for v in fractions([*p.scores, t])]
            middle = sorted(sizes)[-(-(n + 1) // 2) - 1]
            constant = m * middle + Fraction(p.offset) ** power

            def scale(i):
                others = [k for k in range(n + 1) if k != i]
                return (1 - m) * mean(i, others, bag, sizes) + constant

            new_scale = scale(n)
            wins = sum(scores[i] * new_scale >= scores[n] * scale(i) for i in range(n))
            return Fraction(1 + wins, n + 1)

        for z, radius in zip(new, full.predict_radius(new, p.level), strict=True):
            if np.isinf(radius):
                assert p_value(1e30, z) > alpha, seed
                continue
            assert p_value(radius * (1 - 1e-9), z) > alpha, seed
            assert p_value(radius * (1 + 1e-9) + 1e-300, z) <= alpha, seed


@pytest.mark.parametrize("batch", range(2))
def test_jackknife_equals_the_definition(batch):
    for seed in range(60 * batch, 60 * batch + 60):
        p, leaves, new = leaf_problem(seed)
        method = JackknifeRescaled(ForestProximity(), offset=p.offset)
        method.fit(leaves, p.scores, magnitudes=p.magnitudes)
        sizes, scores = fractions(p.magnitudes), fractions(p.scores)
        n, offset = len(leaves), Fraction(p.offset)
        expected = []
        for z in new:
            bag, deltas = np.vstack([leaves, z]), []
            for i in range(n):
                others = [k for k in range(n) if k != i]
                own = mean(i, others, bag, sizes) + offset
                at_new = mean(n, others, bag, sizes) + offset
                deltas.append(np.inf if own == 0 else float(at_new * scores[i] / own))
            rank = oracles.conformal_rank(p.coverage, n)
            expected.append(oracles.order_statistic(deltas, rank))
        radius = method.predict_radius(new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=1e-9, err_msg=f"seed {seed}")


def test_a_giant_among_the_errors_does_not_drown_the_rest_when_it_is_left_out():
    """All in one leaf: Δ_i = s_i, also for the errors that vanish beside the largest."""
    scores = np.array([1e20, 1.0, 2.0, 3.0, 1e-9])
    method = JackknifeRescaled(ForestProximity()).fit(np.ones((5, 3)), scores)
    radius = method.predict_radius(np.ones((1, 3)), [0.1, 0.3, 0.5, 0.6, 0.8])
    np.testing.assert_allclose(radius[0], np.sort(scores), rtol=1e-9)


def test_the_largest_mean_without_a_point():
    rng = np.random.default_rng(0)
    leaves, new, sizes = rng.integers(0, 5, (20, 3)), rng.integers(0, 5, (9, 3)), rng.random(20)
    weights = SharedLeaves(ForestProximity(), leaves * 1.0)
    scale = weights.leave_two_out(sizes, 0.5)
    expected = []
    for z in new:
        bag, values = np.vstack([leaves, z]), fractions(sizes)
        means = [mean(20, [k for k in range(20) if k != i], bag, values) for i in range(20)]
        expected.append(float(max(means)) + 0.5)
    np.testing.assert_allclose(scale.largest(new * 1.0), expected)


def test_local_mean_of_mad_split():
    rng = np.random.default_rng(0)
    train, leaves, new = (rng.integers(0, 9, (n, 3)) for n in (30, 20, 50))
    errors, scores = rng.exponential(size=30), rng.exponential(size=20)

    def scale(rows):
        weight = (rows[:, None] == train).sum(axis=-1) * 1.0
        weight[weight.sum(axis=1) == 0] = 1.0
        return weight @ errors / weight.sum(axis=1)

    method = MADSplit(ForestProximity()).fit(leaves, scores, training=(train, errors))
    q = np.sort(scores / scale(leaves))[oracles.conformal_rank("0.9", 20) - 1]
    np.testing.assert_allclose(method.predict_radius(new), q * scale(new))


@pytest.mark.parametrize("smoothing", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("seed", range(8))
def test_smoothed_radial_weights_equal_solving_for_every_point(seed, smoothing):
    rng = np.random.default_rng(seed)
    n, l = 60, float(rng.choice([0.01, 0.3, 20.0]))
    Z, new = rng.uniform(size=(n, 2)), rng.uniform(-1, 2, size=(20, 2))
    scores = rng.pareto(1.5, n) * (rng.random(n) < 0.8)
    floor = smoothing / n
    k = np.exp(-((Z[:, None] - Z) ** 2).sum(-1) / 2 / l**2) + floor
    np.fill_diagonal(k, 0)
    entering = np.exp(-((new[:, None] - Z) ** 2).sum(-1) / 2 / l**2) + floor
    scale = entering @ scores / entering.sum(axis=1)
    A, B = k @ scores, k.sum(axis=1)
    C = scores * scale[:, None] * (B + entering)
    t = np.sort(2 * C / (A + np.sqrt(A**2 + 4 * entering * C)), axis=1)
    kernel = RBF(l, smoothing=smoothing)
    full = FullRescaled(kernel).fit(Z, scores).predict_radius(new, LEVELS)
    places = [oracles.conformal_rank(str(level), n) - 1 for level in LEVELS]
    np.testing.assert_allclose(full, t[:, places], rtol=1e-8)

    jackknife = JackknifeRescaled(kernel).fit(Z, scores).predict_radius(new, LEVELS)
    without = (entering @ scores)[:, None] - entering * scores
    without /= entering.sum(axis=1)[:, None] - entering
    delta = np.sort(without * scores / (A / B), axis=1)
    np.testing.assert_allclose(jackknife, delta[:, places], rtol=1e-8)


def test_much_smoothing_is_the_plain_mean_and_none_is_the_bare_kernel():
    rng = np.random.default_rng(0)
    Z, new, scores = rng.normal(size=(40, 2)), rng.normal(size=(9, 2)), rng.exponential(size=40)

    def radius(kernel):
        return FullRescaled(kernel).fit(Z, scores).predict_radius(new, LEVELS)

    np.testing.assert_allclose(radius(RBF(0.3, smoothing=1e9)), radius(KNN(40)), rtol=1e-6)
    np.testing.assert_allclose(radius(RBF(0.9, smoothing=1e-13)), radius(RBF(0.9)), rtol=1e-6)
    far = FullRescaled(RBF(0.3, smoothing=1.0)).fit(Z, scores).predict_radius([[1e6, 0.0]])
    assert np.isfinite(far).all()


X = np.random.default_rng(1).uniform(size=(400, 3))
Y = X[:, 0] + X[:, 0] * np.random.default_rng(2).normal(size=400)
HALF, MINUS = (np.array([[1.0, odd], *[[3.0, 4.0]] * 399]) for odd in (2.5, -1.0))
FORESTS = [
    RandomForestRegressor(20, min_samples_leaf=5, random_state=0),
    ExtraTreesRegressor(20, min_samples_leaf=5, random_state=0),
    GradientBoostingRegressor(n_estimators=20, random_state=0),
]


@pytest.mark.parametrize("forest", FORESTS, ids=lambda f: type(f).__name__)
def test_the_forest_and_its_leaves_say_the_same(forest):
    forest = clone(forest).fit(X[:200], Y[:200])
    errors = np.abs(Y - forest.predict(X))
    inputs = FullRescaled(ForestProximity(forest)).fit(X[200:300], errors[200:300])
    leaves = FullRescaled(ForestProximity()).fit(forest.apply(X[200:300]), errors[200:300])
    expected = leaves.predict_radius(forest.apply(X[300:]), LEVELS)
    np.testing.assert_array_equal(inputs.predict_radius(X[300:], LEVELS), expected)
    model = ConformalRegressor(forest, FullRescaled(ForestProximity()), embed=forest.apply)
    lower, upper = model.calibrate(X[200:300], Y[200:300]).predict_interval(X[300:], LEVELS)
    np.testing.assert_allclose((upper - lower) / 2, expected, rtol=1e-9)


def test_a_clone_keeps_the_trained_forest():
    forest = clone(FORESTS[0]).fit(X, Y)
    assert clone(FullRescaled(ForestProximity(forest))).kernel.forest is forest


def test_leaves_that_no_calibration_point_has_count_for_nothing():
    """Beyond the largest known number, between known numbers, and in all trees at once."""
    leaves = np.array([[1, 4], [1, 8], [3, 4], [3, 8]])
    scores = np.array([1.0, 2.0, 4.0, 8.0])
    full = FullRescaled(ForestProximity(), shrinkage=0.0).fit(leaves, scores)
    known = full.bag_.weights.to(np.array([[1.0, 6], [9, 4], [2, 99]]))
    np.testing.assert_array_equal(known, [[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
    stranger = FullRescaled(KNN(4)).fit(leaves, scores).predict_radius([[0, 0]], 0.5)
    assert np.isfinite(full.predict_radius([[2, 99]], 0.5)) and np.isfinite(stranger)


@pytest.mark.parametrize(
    ("kernel", "Z", "error", "words"),
    [
        (ForestProximity("forest"), X, TypeError, "fitted ensemble of trees .* got 'forest'"),
        (ForestProximity(HistGradientBoostingRegressor()), X, TypeError, "that has apply"),
        (ForestProximity(RandomForestRegressor()), X, NotFittedError, "not fitted"),
        (ForestProximity(RandomForestRegressor(1).fit(X, Y)), X, CalliperError, "has 1 tree"),
        (ForestProximity(clone(FORESTS[0]).fit(X, Y)), X[:, :2], CalliperError, "takes 3 inputs"),
        (ForestProximity(), X, CalliperError, "leaf numbers, integers of at least 0; got 0"),
        (ForestProximity(), -np.ones((400, 2)), CalliperError, "integers of at least 0; got -1"),
        (ForestProximity(), HALF, CalliperError, "integers of at least 0; got 2.5"),
        (ForestProximity(), MINUS, CalliperError, "of at least 0; got -1"),
        (ForestProximity(DecisionTreeRegressor().fit(X, Y)), X, CalliperError, "has 1 tree"),
        (ForestProximity(), np.ones((400, 1)), CalliperError, "leaves of 2 trees or more"),
        (
            RBF(1.0, smoothing=-1),
            X,
            ValueError,
            "smoothing must be a number from 0 to 1e.30; got -1",
        ),
    ],
)
def test_bad_input(kernel, Z, error, words):
    for method in (FullRescaled(kernel), JackknifeRescaled(kernel)):
        with pytest.raises(error, match=words):
            method.fit(Z, np.abs(Y))


def test_quantiles_need_the_nearest():
    with pytest.raises(CalliperError, match="use kernel=KNN"):
        FullRescaled(ForestProximity(), statistic="quantile").fit(np.ones((4, 2)), np.ones(4))


@pytest.mark.parametrize("seed", range(20))
def test_bags_with_ties_zeros_and_lonely_points_are_covered(seed):
    p, leaves, _ = leaf_problem(seed)

    def radius(Z, s, z, coverage):
        full = FullRescaled(ForestProximity(), shrinkage=[0.0, 0.3][seed % 2]).fit(Z, s)
        return full.predict_radius([z], float(coverage))[0]

    assert oracles.bag_coverage(leaves, p.magnitudes, radius, p.coverage) >= Fraction(p.coverage)


def test_a_forest_that_was_trained_again_is_noticed():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    forest = RandomForestRegressor(5, random_state=0, warm_start=True).fit(Z, y)
    leaves = SharedLeaves(ForestProximity(forest), Z)
    forest.set_params(n_estimators=7).fit(Z, y)
    with pytest.raises(CalliperError, match="leaves in 7 trees, the calibration rows in 5"):
        leaves.to(Z)


def test_a_forest_of_a_frame_takes_arrays_without_a_warning(recwarn):
    import pandas as pd

    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    forest = RandomForestRegressor(5, random_state=0).fit(pd.DataFrame(Z, columns=["a", "b"]), y)
    bare = RandomForestRegressor(5, random_state=0).fit(Z, y)
    found, expected = (SharedLeaves(ForestProximity(f), Z).to(Z) for f in (forest, bare))
    np.testing.assert_array_equal(found, expected)
    assert not len(recwarn) and list(forest.feature_names_in_) == ["a", "b"]


def test_any_ensemble_that_tells_leaves_will_do():
    """Also one that does not say how many inputs it takes."""

    class Striped(BaseEstimator):
        def fit(self, X, y):
            self.estimators_ = (0, 1)
            return self

        def apply(self, X):
            return np.floor(3 * X[:, :2]) % 4

    forest = Striped().fit(X, Y)
    new = X[:9] + 0.01
    plain = FullRescaled(ForestProximity()).fit(forest.apply(X), np.abs(Y))
    found = FullRescaled(ForestProximity(forest)).fit(X, np.abs(Y)).predict_radius(new, LEVELS)
    np.testing.assert_array_equal(found, plain.predict_radius(forest.apply(new), LEVELS))


def test_two_strangers_have_one_another():
    leaves, scores = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([3.0, 5.0])
    bag = ForestProximity().bag(Rows(leaves, scores, scores), statistic="mean", offset=0.5)
    with np.errstate(invalid="raise"):  # nothing is divided by nought
        assert bag.calibration_scale(0.5).tolist() == [5.5, 3.5]


class Nothing(Weights):
    """Points of which none has a neighbour."""

    def __init__(self, n):
        self.points = np.zeros((n, 1))

    def to(self, Z):
        return np.zeros((len(Z), len(self.points)))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_without_neighbours_all_others_count_alike(n):
    sizes = np.arange(1.0, n + 1)
    others = [np.delete(sizes, i).mean() if n > 1 else 0.0 for i in range(n)]
    means = WeightedMeans(Nothing(n), sizes)
    np.testing.assert_allclose(means.to(np.zeros((3, 1))), np.tile(others, (3, 1)))
    scale = BagWeighted(Nothing(n), sizes, sizes, 0.5).calibration_scale(0.5)
    np.testing.assert_allclose(scale, np.add(others, 0.5))
    if n > 1:
        np.testing.assert_allclose(means.of_others(), others)
