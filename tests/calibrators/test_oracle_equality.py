"""Fast code equals the literal definitions, on random problems with ties, zeros and duplicates."""

import warnings

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import MADSplit
from cases.problems import small_problem
from oracles import rescaled as oracles

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("batch", range(20))
def test_jackknife_knn(batch):
    for seed in range(50 * batch, 50 * batch + 50):
        p = small_problem(seed)
        method = JackknifeRescaled(KNN(p.n_neighbors), offset=p.offset)
        radius = method.fit(p.Z, p.scores, magnitudes=p.magnitudes).predict_radius(p.new, p.level)
        expected = [
            oracles.jackknife_knn_radius(
                p.Z, p.magnitudes, p.scores, z, p.n_neighbors, p.coverage, p.offset
            )
            for z in p.new
        ]
        np.testing.assert_allclose(radius, expected, rtol=1e-10, err_msg=f"seed {seed}")


@pytest.mark.parametrize("statistic", ["mean", "rms", "quantile"])
@pytest.mark.parametrize("batch", range(10))
def test_full_knn_is_where_the_literal_p_value_falls(batch, statistic):
    """p(t) > α just below the radius and p(t) ≤ α just above it."""
    for seed in range(50 * batch, 50 * batch + 50):
        p = small_problem(seed)
        method = FullRescaled(KNN(p.n_neighbors), statistic=statistic, offset=p.offset).fit(
            p.Z, p.scores, magnitudes=p.magnitudes
        )
        alpha = 1 - oracles.exact_coverage(p.coverage)

        def p_value(t, z, p=p):
            return oracles.full_p_value(
                t,
                p.Z,
                p.magnitudes,
                p.scores,
                z,
                p.coverage,
                kernel=("knn", p.n_neighbors),
                statistic=statistic,
                offset=p.offset,
            )

        for z, radius in zip(p.new, method.predict_radius(p.new, p.level), strict=True):
            if np.isinf(radius):
                assert p_value(1e30, z) > alpha, seed
                continue
            assert p_value(radius * (1 - 1e-9), z) > alpha, seed
            assert p_value(radius * (1 + 1e-9) + 1e-300, z) <= alpha, seed


@pytest.mark.parametrize("statistic", ["mean", "rms", "quantile"])
@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_full_knn_equals_bisection(seed, statistic):
    p = small_problem(seed)
    method = FullRescaled(KNN(p.n_neighbors), statistic=statistic, offset=p.offset)
    radius = method.fit(p.Z, p.scores, magnitudes=p.magnitudes).predict_radius(p.new[:1], p.level)
    expected = oracles.full_radius(
        p.Z,
        p.magnitudes,
        p.scores,
        p.new[0],
        p.coverage,
        kernel=("knn", p.n_neighbors),
        statistic=statistic,
        offset=p.offset,
    )
    np.testing.assert_allclose(radius, [expected], rtol=1e-10)


def length_scale(p, log10):
    """Below 0.3, weights of a lattice's next shell vanish and zero scores decide: see below."""
    return float(10.0 ** max(log10, -0.5 if p.discrete else log10))


@pytest.mark.parametrize("log10", [-2.0, -1.0, -0.5, 0.0, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("seed", range(12))
def test_rbf_from_nearest_neighbour_to_plain_mean(seed, log10):
    p = small_problem(seed, smallest=2)
    kernel, scale = RBF(length_scale(p, log10)), length_scale(p, log10)
    positive = p.magnitudes + 0.01  # an underflowing weight times zero has no exact float value
    scores = np.where(p.scores > 0, positive, 0.0)
    method = JackknifeRescaled(kernel, offset=p.offset).fit(p.Z, scores, magnitudes=positive)
    expected = [
        oracles.jackknife_rbf_radius(p.Z, positive, scores, z, scale, p.coverage, p.offset)
        for z in p.new
    ]
    np.testing.assert_allclose(method.predict_radius(p.new, p.level), expected, rtol=1e-8)

    full = FullRescaled(kernel, offset=p.offset).fit(p.Z, scores, magnitudes=positive)
    expected = oracles.full_radius(
        p.Z,
        positive,
        scores,
        p.new[0],
        p.coverage,
        kernel=("rbf", scale),
        offset=p.offset,
    )
    np.testing.assert_allclose(full.predict_radius(p.new[:1], p.level), [expected], rtol=1e-8)


@pytest.mark.parametrize("l", [1e-6, 1e-4])
def test_rbf_with_vanishing_length_scale_is_the_nearest_neighbour(l):
    rng = np.random.default_rng(0)
    Z, new, scores = rng.normal(size=(60, 2)), rng.normal(size=(30, 2)), rng.exponential(size=60)
    for method in (JackknifeRescaled, FullRescaled):
        radial = method(RBF(l)).fit(Z, scores).predict_radius(new, [0.5, 0.9])
        nearest = method(KNN(1)).fit(Z, scores).predict_radius(new, [0.5, 0.9])
        if method is JackknifeRescaled:
            np.testing.assert_allclose(radial, nearest, rtol=1e-9)
        else:  # the bag's nearest is the same, but every point gives the new one some weight
            np.testing.assert_allclose(radial, nearest, rtol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_rbf_window_equals_sorting_all_values(seed):
    """Hundreds of points, so that regular columns, exceptions and windows all occur."""
    rng = np.random.default_rng(seed)
    n = 300
    Z, new = rng.normal(size=(n, 2)), rng.normal(size=(20, 2))
    scores = rng.pareto(1.5, n) * (rng.random(n) < 0.9)
    l = float(rng.choice([0.03, 0.2, 1.0, 20.0]))
    between = ((Z[:, None] - Z) ** 2).sum(-1)
    to_new = ((new[:, None] - Z) ** 2).sum(-1)

    def mean_without(squared, *left_out):
        kept = np.delete(np.arange(n), left_out)
        weight = np.exp(-(squared[kept] - squared[kept].min()) / 2 / l**2)
        return weight @ scores[kept] / weight.sum()

    scale = np.array([mean_without(between[i], i) for i in range(n)])
    rescaled = np.where(scale > 0, scores / np.where(scale > 0, scale, 1), np.inf)
    without = np.array([[mean_without(row, i) for i in range(n)] for row in to_new])
    finite = np.where(np.isinf(rescaled), 0, rescaled)
    products = np.where(np.isinf(rescaled), np.inf, without * finite)
    method = JackknifeRescaled(RBF(l))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        radius = method.fit(Z, scores).predict_radius(new, [0.2, 0.5, 0.9, 0.99])
    for column, level in enumerate([0.2, 0.5, 0.9, 0.99]):
        rank = int(np.ceil(level * (n + 1) - 1e-9))
        expected = np.sort(products, axis=1)[:, rank - 1]
        np.testing.assert_allclose(radius[:, column], expected, rtol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_full_rbf_window_equals_solving_for_every_point(seed):
    rng = np.random.default_rng(seed)
    n, l = 400, float(rng.choice([0.2, 1.0, 20.0]))
    Z, new = rng.uniform(size=(n, 1)), rng.uniform(size=(40, 1))
    scores = rng.pareto(1.5, n) * (rng.random(n) < 0.9)
    k = np.exp(-((Z - Z.T) ** 2) / 2 / l**2)
    np.fill_diagonal(k, 0)
    entering = np.exp(-((new - Z.T) ** 2) / 2 / l**2)
    scale = entering @ scores / entering.sum(axis=1)
    A, B = k @ scores, k.sum(axis=1)
    C = scores * scale[:, None] * (B + entering)
    t = np.sort(2 * C / (A + np.sqrt(A**2 + 4 * entering * C)), axis=1)
    levels = [0.2, 0.5, 0.9, 0.99]
    full = FullRescaled(RBF(l)).fit(Z, scores).predict_radius(new, levels)
    for column, level in enumerate(levels):
        expected = t[:, int(np.ceil(level * (n + 1) - 1e-9)) - 1]
        np.testing.assert_allclose(full[:, column], expected, rtol=1e-8)


@pytest.mark.parametrize("seed", range(100))
def test_split_and_mad_split(seed):
    p = small_problem(seed)
    split = Split().fit(p.Z, p.scores).predict_radius(p.new, p.level)
    np.testing.assert_array_equal(split, oracles.split_radius(p.scores, p.coverage))
    train = small_problem(seed + 1000).scores
    k = min(p.n_neighbors, len(train))
    rng = np.random.default_rng(seed)
    Z_train = rng.normal(size=(len(train), p.Z.shape[1]))
    Z_train = np.round(Z_train) if p.discrete else Z_train
    method = MADSplit(KNN(k), offset=p.offset)
    method.fit(p.Z, p.scores, training=(Z_train, train))

    def scale(z):
        near = oracles.nearest(Z_train, z, range(len(train)), k)
        return float(oracles.weighted_mean(near, train)) + p.offset

    expected = [
        oracles.mad_split_radius(p.scores, [scale(z) for z in p.Z], scale(z), p.coverage)
        for z in p.new
    ]
    np.testing.assert_allclose(method.predict_radius(p.new, p.level), expected, rtol=1e-9)
