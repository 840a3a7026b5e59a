"""Coverage over many draws of calibration set and new point, against what is proved."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled, Split, guarantees
from calliper.calibrators import MADSplit
from oracles import rescaled as oracles

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::UserWarning")]

METHODS = [
    Split(),
    MADSplit(KNN(5)),
    MADSplit(RBF("median")),
    JackknifeRescaled(KNN(5)),
    JackknifeRescaled(RBF(0.2)),
    FullRescaled(KNN(5)),
    FullRescaled(KNN(5), statistic="rms"),
    FullRescaled(KNN(5), statistic="quantile"),
    FullRescaled(RBF(0.2)),
]
LEVELS = [0.5, 0.8, 0.9]
N_DRAWS, N_NEW = 200, 50  # promises/ draws by the million


def heteroscedastic(rng, n):
    Z = rng.uniform(size=(n, 1))
    return Z, np.abs(rng.normal(size=n)) * (0.05 + np.abs(np.sin(6 * Z[:, 0])))


def spiky(rng, n):
    """Heavy tails, and inputs that repeat."""
    Z = rng.integers(0, 4, size=(n, 1)) * 1.0
    return Z, np.abs(rng.standard_t(2, size=n)) * np.where(Z[:, 0] == 0, 50, 1)


def coverage_over_draws(method, draw, n, seed):
    """Mean coverage and its standard error, one number a draw since draws are independent."""
    rng = np.random.default_rng(seed)
    covered = np.empty((N_DRAWS, len(LEVELS)))
    for repetition in range(N_DRAWS):
        Z, scores = draw(rng, n)
        new, truth = draw(rng, N_NEW)
        extra = {}
        if isinstance(method, MADSplit):
            extra["training"] = draw(rng, 60)
        method.fit(Z, scores, **extra)
        covered[repetition] = (truth[:, None] <= method.predict_radius(new, LEVELS)).mean(axis=0)
    return covered.mean(axis=0), covered.std(axis=0) / np.sqrt(N_DRAWS)


@pytest.mark.parametrize("draw", [heteroscedastic, spiky], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_marginal_coverage(method, draw, n):
    mean, error = coverage_over_draws(method, draw, n, seed=n)
    assert (mean > method.guaranteed_coverage(LEVELS) - 4 * error).all(), (mean, error)
    no_ties = draw is heteroscedastic
    if no_ties and not isinstance(method, JackknifeRescaled):
        # Without ties, coverage equals Q/(N+1): neither below nor above.
        exact = [guarantees.conformal_coverage(level, n) for level in LEVELS]
        np.testing.assert_array_less(np.abs(mean - exact), 4 * error)


def test_coverage_given_the_calibration_set_follows_its_beta_law():
    rng = np.random.default_rng(0)
    n, level = 50, 0.9
    radius = [Split().fit(np.zeros((n, 1)), rng.uniform(size=n)).predict_radius([[0.0]], level)[0]
              for _ in range(2000)]  # fmt: skip
    law = guarantees.coverage_law(level, n)  # a uniform score: the radius is the coverage
    assert stats.kstest(radius, law.cdf).pvalue > 1e-3
    assert law.mean() == pytest.approx(guarantees.conformal_coverage(level, n))


def radius_of(method, k):
    def radius(Z, scores, z, coverage):
        fitted = method(KNN(k), random_state=0).fit(Z, scores)
        return float(fitted.predict_radius(np.reshape(z, (1, -1)), float(coverage))[0])

    return radius


def test_adversarial_bags(adversarial_bags):
    """Test index uniform over a fixed bag: coverage is enumerated, not simulated."""
    assert len(adversarial_bags) == 6
    below = 0
    for (n, coverage, k), (Z, scores) in adversarial_bags.items():
        level = Fraction(coverage)
        full = oracles.bag_coverage(Z, scores, radius_of(FullRescaled, k), coverage)
        assert full >= level, (n, coverage)
        jackknife = oracles.bag_coverage(Z, scores, radius_of(JackknifeRescaled, k), coverage)
        assert jackknife >= guarantees.jackknife_coverage(float(level), n) - 1e-12
        below += jackknife < level - Fraction(1, 100)
    assert below >= 2


EXPECTED = {  # coverage of Jackknife+ and of the full method, enumerated from the definitions
    (20, "0.90", 5): (18, 19, 21),
    (20, "0.80", 5): (15, 17, 21),
    (50, "0.95", 5): (48, 49, 51),
    (50, "0.80", 5): (39, 41, 51),
    (200, "0.95", 10): (190, 191, 201),
    (200, "0.90", 10): (179, 181, 201),
}


def test_adversarial_bags_to_the_point(adversarial_bags):
    for (n, coverage, k), (Z, scores) in adversarial_bags.items():
        jackknife, full, size = EXPECTED[n, coverage, k]
        radii = radius_of(JackknifeRescaled, k), radius_of(FullRescaled, k)
        found = [oracles.bag_coverage(Z, scores, radius, coverage) for radius in radii]
        assert found == [Fraction(jackknife, size), Fraction(full, size)]


def test_adaptive_methods_cover_where_split_does_not():
    """Worst of ten slices of the input, at a level that all methods reach overall."""
    rng = np.random.default_rng(0)
    new, truth = heteroscedastic(rng, 20000)
    worst = {}
    slices = np.floor(10 * new[:, 0]).astype(int)
    for method in (Split(), JackknifeRescaled(KNN(20)), FullRescaled(KNN(20))):
        covered = np.mean(
            [
                truth <= method.fit(*heteroscedastic(rng, 1000)).predict_radius(new, 0.9)
                for _ in range(20)
            ],
            axis=0,
        )
        worst[type(method)] = min(covered[slices == s].mean() for s in range(10))
    assert worst[Split] < 0.8
    assert worst[JackknifeRescaled] > 0.86
    assert worst[FullRescaled] > 0.86
