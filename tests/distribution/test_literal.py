"""Points y_i* against rescaled errors that are recomputed for every candidate (§17)."""

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled
from calliper.kernels import ForestProximity, GradedKNN
from cases.problems import small_problem
from oracles import distribution as oracle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
STATISTICS = ["mean", "rms"]
SHARES = [0.0, 0.25, 0.6, 0.9]


def signed_problem(seed, *, positive=False, **how):
    """A small problem with errors on both sides; zeros, ties, duplicates and heavy tails."""
    p = small_problem(seed, **how)
    sizes = p.magnitudes + 0.01 if positive else p.magnitudes
    return p, sizes * np.random.default_rng(seed).choice([-1.0, 1.0], len(sizes))


def candidates(points):
    """Just below and just above every point, between them, at the prediction, and far away."""
    finite = np.unique(points[np.isfinite(points)])
    finite = finite[finite != 0]
    near = [finite * (1 - 1e-8), finite * (1 + 1e-8), (finite[1:] + finite[:-1]) / 2]
    return np.unique(np.concatenate([*near, [0.0, -1e9, 1e9]]))


def assert_literal(p, errors, kernel, weigh, **how):
    full = FullRescaled(kernel, offset=p.offset, **how)
    full.fit(p.Z, abs(errors), signs=np.sign(errors))
    predicted = full.predict_distribution(p.new, np.zeros(len(p.new)))
    every = predicted._points(slice(None))
    n = len(errors)
    ranks = list(range(1, n + 1))
    ordered = full.signed_thresholds(p.new, ranks)
    np.testing.assert_allclose(ordered, np.sort(every, axis=1), rtol=1e-9, err_msg=str(p.seed))
    for row, points in enumerate(every):
        asked = candidates(points)
        low, high = (band[row] * (n + 1) for band in predicted.cdf_band(asked[None]))
        for place, y in enumerate(asked):
            literal, own, scale = oracle.rescaled(
                weigh, p.Z, errors, p.new[row], y, offset=p.offset, **how
            )
            why = f"seed {p.seed}, row {row}, y = {y}"
            below = sum(sigma < own for sigma in literal)
            assert below == np.count_nonzero(points < y) == round(low[place]), why
            if scale > 0:  # else infinite ones tie
                not_above = sum(sigma <= own for sigma in literal)
                assert not_above == np.count_nonzero(points <= y) == round(high[place]) - 1, why
    return full


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("batch", range(2))
def test_nearest_neighbours_with_shared_ties(batch, statistic):
    for seed in range(15 * batch, 15 * batch + 15):
        p, errors = signed_problem(seed, smallest=2, largest=9)
        weigh = oracle.by_kernel(("knn", p.n_neighbors))
        how = {"statistic": statistic, "shrinkage": SHARES[seed % 4]}
        assert_literal(p, errors, KNN(p.n_neighbors), weigh, **how)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_graded_neighbours(statistic):
    for seed in range(8):
        p, errors = signed_problem(seed, smallest=4, largest=9)
        k = 1 + seed % 2  # of 4k at most as many as there are
        weigh = oracle.by_kernel(("graded", k))
        how = {"statistic": statistic, "shrinkage": SHARES[seed % 4]}
        assert_literal(p, errors, GradedKNN(k), weigh, **how)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("seed", range(6))
def test_radial_weights(seed, statistic):
    # A vanishing weight times a zero has no exact float value: errors are not zero here.
    p, errors = signed_problem(seed, positive=True, smallest=2, largest=7)
    weigh = oracle.by_kernel(("rbf", 0.7))
    assert_literal(p, errors, RBF(0.7), weigh, statistic=statistic, shrinkage=SHARES[seed % 4])


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("seed", range(6))
def test_smoothed_radial_weights(seed, statistic):
    p, errors = signed_problem(seed, smallest=2, largest=7)
    weigh = oracle.smoothed(0.7, 1.0)
    how = {"statistic": statistic, "shrinkage": SHARES[seed % 4]}
    assert_literal(p, errors, RBF(0.7, smoothing=1.0), weigh, **how)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("seed", range(8))
def test_weights_of_a_forest(seed, statistic):
    p, errors = signed_problem(seed, smallest=3, largest=8)
    rng = np.random.default_rng(seed)
    leaves, new = (rng.integers(0, 4, (len(rows), 3)) * 1.0 for rows in (p.Z, p.new))
    object.__setattr__(p, "Z", leaves), object.__setattr__(p, "new", new)
    how = {"statistic": statistic, "shrinkage": SHARES[seed % 4]}
    assert_literal(p, errors, ForestProximity(), oracle.common_leaves, **how)


def test_zero_scales_far_from_the_new_row_are_at_both_infinities():
    """Pairs of an exact prediction and an error: the error's one neighbour has none."""
    Z = np.repeat(np.arange(6.0), 2)[:, None] + np.tile([0.0, 0.1], 6)[:, None]
    errors = np.tile([0.0, 1.0, 0.0, -2.0], 3)
    p, _ = signed_problem(0)
    for name, value in {"Z": Z, "new": np.array([[20.0]]), "offset": 0.0}.items():
        object.__setattr__(p, name, value)
    errors[-2] = 0.5  # the nearest to the new row
    full = assert_literal(p, errors, KNN(1), oracle.by_kernel(("knn", 1)))
    ordered = full.signed_thresholds(p.new, list(range(1, 13)))[0]
    assert np.isneginf(ordered[:2]).all() and np.isposinf(ordered[-3:]).all()


@pytest.mark.parametrize(
    "kernel", [KNN(7), GradedKNN(3), RBF(0.5), RBF(0.5, smoothing=1.0)], ids=repr
)
@pytest.mark.parametrize("shrinkage", [0.0, 0.4])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_all_thresholds_in_order_are_the_order_statistics(kernel, shrinkage, statistic):
    """At a size where windows, blocks and ties are in use."""
    rng = np.random.default_rng(3)
    Z = np.vstack([rng.normal(size=(250, 2)), rng.integers(0, 3, (50, 2))])
    new = np.vstack([rng.normal(size=(30, 2)), rng.integers(0, 3, (30, 2))])
    errors = rng.normal(size=300) * np.exp(Z[:, 0]) * (rng.random(300) < 0.9)
    full = FullRescaled(kernel, shrinkage=shrinkage, statistic=statistic)
    full.fit(Z, abs(errors), signs=np.sign(errors))
    sizes = np.sort(full._in_unit(full.bag_.thresholds(new)), axis=1)
    levels = [0.3, 0.5, 0.9]
    expected = sizes[:, [int(np.ceil(level * 301)) - 1 for level in levels]]
    np.testing.assert_allclose(full.predict_radius(new, levels), expected, rtol=1e-9)
    ranks = [1, 20, 150, 151, 299, 300]
    ordered = np.sort(full.signed_thresholds(new), axis=1)[:, [rank - 1 for rank in ranks]]
    np.testing.assert_allclose(full.signed_thresholds(new, ranks), ordered, rtol=1e-9, atol=1e-300)
