"""Results against exact rational and multiprecision arithmetic, where floating point is strained.

Scores from the smallest number to 1e300, levels next to 0 and 1, thousands of levels, a million
points, and numbers of every type.
"""

from fractions import Fraction
from math import ceil, comb, inf, isinf

import mpmath
import numpy as np
import pytest
from sklearn.base import clone

from calliper import KNN, RBF, ConformalRegressor, FullRescaled, JackknifeRescaled, Split, metrics
from calliper.calibrators import LCP, JackknifeMinmaxRescaled
from calliper.guarantees import (
    confident_rank,
    conformal_coverage,
    coverage_law,
    fold_coverage,
    jackknife_coverage,
    required_for_confidence,
)
from calliper.quantile import (
    Shares,
    as_fraction,
    conformal_rank,
    conformal_thresholds,
    required_calibration_size,
    weighted_quantiles,
)
from oracles import rescaled as oracles

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
MP = mpmath.MPContext()
MP.dps = 50
EXTREME = (1e-12, 1e-9, 1e-3, 0.1 + 0.2, 0.5, 0.999, 1 - 1e-9, 1 - 1e-12)


def test_ranks_of_ten_thousand_levels_and_a_million_points():
    for n in (9_998, 9_999, 1_000_000):
        exact = [-(-k * (n + 1) // 10_000) for k in range(1, 10_000)]
        assert [conformal_rank(k / 10_000, n) for k in range(1, 10_000)] == exact


def test_levels_are_the_fractions_that_they_stand_for_up_to_a_millionth():
    rng = np.random.default_rng(0)
    for q in rng.integers(2, 1_000_000, 3000).tolist():
        p = int(rng.integers(1, q))
        assert as_fraction(p / q) == Fraction(p, q)


@pytest.mark.parametrize("level", EXTREME)
def test_plain_thresholds_of_a_million_scores(level):
    scores = np.sort(10.0 ** np.random.default_rng(0).uniform(-323, 300, 1_000_000))
    rank = ceil(as_fraction(level) * 1_000_001)
    expected = scores[rank - 1] if rank <= len(scores) else inf
    assert conformal_thresholds(scores, [level])[0] == expected
    n = required_calibration_size(level)
    assert conformal_rank(level, n) <= n and (n == 1 or conformal_rank(level, n - 1) > n - 1)


def exact_integers(values):
    """Numbers as multiples of the smallest one, 2⁻¹⁰⁷⁴."""
    fractions = (Fraction(float(value)) * 2**1074 for value in values)
    return [fraction.numerator for fraction in fractions]


@pytest.mark.parametrize("decades", [(0, 0), (-3, 3), (-12, 0), (-300, 0)])
def test_weighted_thresholds_by_integers(decades):
    rng = np.random.default_rng(1)
    n, weights = 20_000, 10.0 ** rng.uniform(*decades, 20_000)
    weights /= weights.max()
    ordered, new = np.sort(rng.exponential(size=n)), np.array([1e-300, 1e-9, 0.5, 1.0, 1e9])
    reached = np.cumsum(np.array(exact_integers(weights), dtype=object))
    shares = Shares(weights, new)
    found = conformal_thresholds(ordered, EXTREME, shares)
    again = weighted_quantiles(ordered, np.tile(weights, (5, 1)), new.copy(), EXTREME)
    for row, own in enumerate(exact_integers(new)):
        for column, level in enumerate(EXTREME):
            exact = as_fraction(level)  # reached up to a tolerance, which no level is near to
            tolerance = min(Fraction(1, 10**12), min(exact, 1 - exact) / 10**6)
            needed = (exact - tolerance) * (reached[-1] + own)
            place = int(np.searchsorted(reached, ceil(needed)))
            expected = ordered[place] if place < n else inf
            assert found[row, column] == again[row, column] == expected, (row, level)


def test_a_weight_that_is_next_to_nothing_reaches_no_level():
    """Neither does the tolerance by which sums are compared."""
    made = Split().fit(np.zeros((4, 1)), [1.0, 2.0, 3.0, 4.0], weights=[1e-300, 1, 1, 1])
    radius = made.predict_radius(np.zeros((2, 1)), (1e-12, 1 - 1e-12), weights=[1e-12, 6e-12])
    np.testing.assert_array_equal(radius, [[2.0, 4.0], [2.0, inf]])


SIZES = {
    "denormal": (-323.3, -307.0),
    "tiny": (-300.0, -290.0),
    "huge": (290.0, 300.0),
    "forty decades": (-20.0, 20.0),
    "hundreds": (-130.0, 130.0),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kernel", [("knn", 2.0), ("rbf", 0.7)], ids=str)
def test_radii_of_any_size(kernel, size):
    """Never below what is exact; above it by rounding alone, which is coarse for denormals."""
    name, parameter = kernel
    made = KNN(int(parameter)) if name == "knn" else RBF(parameter)
    jackknife = getattr(oracles, f"jackknife_{name}_radius")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 7))
        Z, new = rng.normal(size=(n, 2)).round(1), rng.normal(size=2).round(1)
        scores = 10.0 ** rng.uniform(*SIZES[size], n)
        scores[0] = (0.0, scores[0], 5e-324 if size in ("denormal", "tiny") else 0.0)[seed % 3]
        for level in ("0.5", "0.7"):
            expected = jackknife(Z, scores, scores, new, parameter, level)
            found = JackknifeRescaled(made).fit(Z, scores).predict_radius([new], float(level))[0]
            assert_just_above(found, expected)
            found = FullRescaled(made).fit(Z, scores).predict_radius([new], float(level))[0]
            bag, alpha = (Z, scores, scores, new, level), 1 - Fraction(level)
            if np.isfinite(found):  # p-values of what is beyond it are too small, below it not
                beyond, inside = np.nextafter(found, inf), found * (1 - 1e-9) - 2e-323
                assert oracles.full_p_value(beyond, *bag, kernel=kernel) <= alpha
                assert inside <= 0 or oracles.full_p_value(inside, *bag, kernel=kernel) > alpha
            else:
                assert oracles.full_p_value(1.7e308, *bag, kernel=kernel) > alpha


def assert_just_above(found, expected):
    if expected == 0 or isinf(expected):
        assert found == expected or (expected == 0 and found < 1e-250)
        return
    assert expected <= found * (1 + 1e-15), (found, expected)
    assert found <= expected * (1 + 1e-9) + 2e-323, (found, expected)


def test_minmax_of_denormal_scores():
    """Two lie next to nothing and next to each other: their mean is no number that there is."""
    Z, scores = np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([0.0, 5e-324, 3e-310, 4e-310])
    for method in (JackknifeMinmaxRescaled(KNN(1)), JackknifeRescaled(KNN(1))):
        small = clone(method).fit(Z, scores).predict_radius([[0.04], [5.04]], (0.2, 0.5))
        large = (
            clone(method)
            .fit(Z, np.ldexp(scores, 1000))
            .predict_radius([[0.04], [5.04]], (0.2, 0.5))
        )
        np.testing.assert_allclose(small, np.ldexp(large, -1000), rtol=1e-9, atol=1e-323)


TYPES = ("bool", "uint8", "int8", "int16", "uint64", "int64", "float16", "float32", ">f8", "O")
METHODS = [
    Split(),
    FullRescaled(),
    FullRescaled(RBF(30.0)),
    JackknifeRescaled(KNN(5)),
    JackknifeMinmaxRescaled(KNN(5)),
    LCP(bandwidth=30.0),
]


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_of_every_type_are_their_values(kind):
    """Nothing wraps around or is rounded on the way: 3 − 200 is −197 for bytes, too."""
    rng = np.random.default_rng(0)
    top = 2 if kind == "bool" else 120
    Z, scores = rng.integers(0, top, size=(90, 2)), rng.integers(0, top, size=90)
    for method in METHODS:
        plain = clone(method).fit(Z[:70] * 1.0, scores[:70] * 1.0)
        typed = clone(method).fit(Z[:70].astype(kind), scores[:70].astype(kind))
        found = typed.predict_radius(Z[70:].astype(kind), (0.5, 0.9))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, plain.predict_radius(Z[70:] * 1.0, (0.5, 0.9)))
    y = Z[:, 1].astype(kind)
    ends = [
        ConformalRegressor(lambda X, t=t: np.asarray(X)[:, 0].astype(t), embed="inputs")
        .calibrate(Z[:70].astype(t), y[:70].astype(t))
        .predict_interval(Z[70:].astype(t))
        for t in (kind, "float64")
    ]
    np.testing.assert_array_equal(ends[0].lower, ends[1].lower)
    np.testing.assert_array_equal(ends[0].upper, ends[1].upper)


@pytest.mark.parametrize("method", [METHODS[0], METHODS[1], METHODS[3]], ids=repr)
def test_ten_thousand_levels_at_once_are_those_one_by_one(method):
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(150, 2)), rng.exponential(size=150)
    levels = np.linspace(1e-12, 1 - 1e-12, 10_000)
    made = clone(method).fit(Z[:140], scores[:140])
    together = made.predict_radius(Z[140:], levels)
    assert together.shape == (10, 10_000) and not np.isnan(together).any()
    assert (together[:, 1:] >= together[:, :-1]).all() and np.isinf(together[:, -1]).all()
    for place in (0, 1, 4321, 9_930, 9_999):
        alone = made.predict_radius(Z[140:], levels[place])
        np.testing.assert_array_equal(together[:, place], alone)


def at_least(k, n, p):
    """P(Binomial(n, p) ≥ k) with fifty digits."""
    p = MP.mpf(p.numerator) / p.denominator
    upward = k >= n * p
    k = k if upward else k - 1
    term, total = MP.binomial(n, k) * p**k * (1 - p) ** (n - k), MP.mpf(0)
    while 0 <= k <= n and term > total * MP.mpf(10) ** -30:
        total += term
        term *= (n - k) * p / ((k + 1) * (1 - p)) if upward else k * (1 - p) / ((n - k + 1) * p)
        k += 1 if upward else -1
    return total if upward else 1 - total


@pytest.mark.parametrize("n", [1000, 1_000_000])
@pytest.mark.parametrize("level", [1e-12, 1e-6, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12])
def test_confident_ranks_of_many_points(level, n):
    for confidence in (1e-12, 0.5, 0.95, 1 - 1e-9, 1 - 1e-12):
        rank, exact = confident_rank(level, n, confidence), as_fraction(level)
        rest = 1 - as_fraction(confidence)
        rest = MP.mpf(rest.numerator) / rest.denominator
        assert rank == n + 1 or at_least(rank, n, exact) <= rest * (1 + MP.mpf(10) ** -10)
        assert rank == 1 or at_least(rank - 1, n, exact) > rest * (1 - MP.mpf(10) ** -10)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("tenths", [1, 3, 5, 9])
def test_confident_ranks_where_a_probability_is_the_confidence(tenths, n):
    p, reached = Fraction(tenths, 10), Fraction(0)
    for q in range(1, n + 1):
        reached += comb(n, q - 1) * p ** (q - 1) * (1 - p) ** (n - q + 1)
        assert confident_rank(tenths / 10, n, float(reached)) == q
        assert confident_rank(tenths / 10, n, float(reached + Fraction(1, 10**9))) == q + 1


def test_required_sizes_for_confidence():
    for level, confidence in ((0.9, 1 - 1e-12), (1 - 1e-6, 0.95), (1 - 1e-9, 0.5), (1e-12, 0.5)):
        rest = MP.mpf(1) - MP.mpf(confidence)
        exact = as_fraction(level)
        log = MP.log(MP.mpf(exact.numerator) / exact.denominator)
        assert required_for_confidence(level, confidence) == max(
            1, int(MP.ceil(MP.log(rest) / log))
        )


@pytest.mark.parametrize("level", [1e-6, 0.5, 0.9, 1 - 1e-6])
def test_the_law_of_coverage_of_a_million_points(level):
    """Beta(Q, N+1−Q) at most x is a binomial tail."""
    n, law = 1_000_000, coverage_law(level, 1_000_000)
    rank = conformal_rank(level, n)
    for share in (1e-12, 0.05, 0.5, 1 - 1e-9):
        x = float(law.ppf(share))
        assert float(at_least(rank, n, Fraction(x))) == pytest.approx(share, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("level", EXTREME)
def test_proved_coverage_at_any_level(level):
    exact = as_fraction(level)
    for n in (1, 10, 999, 1_000_000):
        rank = ceil(exact * (n + 1))
        assert conformal_coverage(level, n) == rank / (n + 1) >= float(exact)
        plus = 1 if rank > n else max(Fraction(0), Fraction(rank - (n + 1 - rank) + 1, n + 1))
        assert jackknife_coverage(level, n) == pytest.approx(float(plus), abs=1e-15)
        if n > 1:
            loss = min(Fraction(2 * (n - 1), 2 * n), Fraction(0))
            folds = 1 if rank > n else max(Fraction(0), 2 * exact - 1 - loss)
            assert fold_coverage(level, n, n) == pytest.approx(float(folds), abs=1e-15)


@pytest.mark.parametrize("decades", [(-300, -290), (-3, 3), (285, 300), (-300, 300)])
def test_scores_of_intervals_and_distributions(decades):
    rng = np.random.default_rng(0)
    y, low, high = (rng.choice([-1, 1], 25) * 10.0 ** rng.uniform(*decades, 25) for _ in range(3))
    low, high = np.minimum(low, high), np.maximum(low, high)
    for level in ("0.5", "0.999999"):
        found = metrics.interval_score(y, (low, high), coverage=float(level))
        assert found == pytest.approx(oracles.interval_score(y, low, high, level), rel=1e-12)
    signs, errors = np.sign(y), np.abs(y)
    made = Split().fit(np.zeros((25, 1)), errors, signs=signs)
    found = made.predict_distribution(np.zeros((25, 1)), np.zeros(25)).crps(high)
    points = [Fraction(value) for value in y.tolist()]
    spread = sum(abs(a - b) for a in points for b in points) / (2 * 25**2)
    for score, target in zip(found, map(Fraction, high.tolist()), strict=True):
        exact = sum(abs(point - target) for point in points) / 25 - spread
        assert score == pytest.approx(float(exact), rel=1e-9)
