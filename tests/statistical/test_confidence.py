"""Confidence over the draw of the calibration set, as a law over draws."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from calliper import KNN, ConformalRegressor, FullRescaled, JackknifeRescaled, SignedError, Split
from calliper.calibrators import LCP, RCP, SLCP, LoCart, MADSplit, NormalizedKNN
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.guarantees import confident_rank, required_for_confidence

WITH_LAW = [Split(), MADSplit(KNN(5)), NormalizedKNN(5), RCP(kernel=KNN(20)), SLCP(KNN(20))]
N_DRAWS = 400


def slow_rank(coverage, n, confidence):
    """§20: the smallest Q with P(Beta(Q, N+1−Q) ≥ 1−α) ≥ 1−δ."""
    for rank in range(1, n + 1):
        if stats.beta(rank, n + 1 - rank).sf(coverage) >= confidence:
            return rank
    return n + 1


@pytest.mark.parametrize("n", [1, 7, 28, 29, 200])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("confidence", [0.12, 0.6, 0.95])
def test_rank_is_that_of_the_definition(n, coverage, confidence):
    assert confident_rank(coverage, n, confidence) == slow_rank(coverage, n, confidence)


@pytest.mark.parametrize(("coverage", "confidence"), [(0.9, 0.95), (0.5, 0.3), (0.99, 0.999)])
def test_required_size_is_the_first_that_suffices(coverage, confidence):
    n = required_for_confidence(coverage, confidence)
    assert confident_rank(coverage, n, confidence) == n
    assert n == 1 or confident_rank(coverage, n - 1, confidence) == n


def draw(rng, n):
    Z = rng.uniform(size=(n, 1))
    return Z, np.abs(rng.normal(size=n)) * (0.1 + Z[:, 0])


@pytest.mark.parametrize("method", WITH_LAW, ids=repr)
@pytest.mark.long
def test_so_many_calibration_sets_cover(method):
    """Coverage given each set, by the known law of the error at each input."""
    rng = np.random.default_rng(1)
    grid = (np.arange(50)[:, None] + 0.5) / 50
    training = draw(rng, 300)
    known = {"training": training} if method.uses.needs else {}
    n, reached = 60, 0
    for _ in range(N_DRAWS):
        method.fit(*draw(rng, n), **known)
        radius = method.predict_radius(grid, 0.8, confidence=0.9)
        reached += np.mean(2 * stats.norm.cdf(radius / (0.1 + grid[:, 0])) - 1) >= 0.8
    rank = confident_rank(0.8, n, 0.9)
    exact = stats.beta(rank, n + 1 - rank).sf(0.8)
    error = np.sqrt(exact * (1 - exact) / N_DRAWS)
    assert exact >= 0.9
    assert abs(reached / N_DRAWS - exact) < 4 * error


def test_two_tails_share_the_doubt():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 1)), rng.normal(size=300)
    model = LinearRegression().fit(X[:100], y[:100])
    method = ConformalRegressor(model, Split(), score_function=SignedError())
    method.calibrate(X[100:], y[100:])
    rank = confident_rank(0.95, 200, 0.975)
    lower, upper = method.predict_interval(X[:1], 0.9, confidence=0.95)
    error = y[100:] - model.predict(X[100:])
    for end, tail in ((upper, error), (-lower, -error)):
        expected = np.sort(np.maximum(tail, 0))[rank - 1]
        sign = 1 if end is upper else -1
        assert end[0] - sign * model.predict(X[:1])[0] == pytest.approx(expected)
    text = method.guarantee(0.9, confidence=0.95).describe()
    assert "this particular set of 200 calibration rows" in text and "95 % of draws" in text
    assert "independent draws" in text


def test_several_levels_bounds_and_one_out_of_reach():
    scores = np.arange(1.0, 31.0)
    split = Split().fit(np.zeros((30, 1)), scores)
    with pytest.warns(SmallCalibrationWarning, match="confidence 0.95.* Use at least 59 rows"):
        radius = split.predict_radius([[0.0]], [0.5, 0.9, 0.95], confidence=0.95)
    expected = [scores[confident_rank(level, 30, 0.95) - 1] for level in (0.5, 0.9)]
    np.testing.assert_array_equal(radius, [[*expected, np.inf]])
    assert "cannot support coverage 0.95 with confidence 0.95" in (
        split.guarantee(0.95, 0.95).describe()
    )


@pytest.mark.parametrize(
    "method", [FullRescaled(), JackknifeRescaled(), LCP(), LoCart()], ids=lambda m: type(m).__name__
)
def test_methods_without_a_law_refuse_and_name_those_with_one(method):
    rng = np.random.default_rng(0)
    Z, scores = draw(rng, 60)
    method.fit(Z, scores, training=draw(rng, 60) if method.uses.needs else None)
    able = "MADSplit, NormalizedKNN, RCP, SLCP, Split"
    for ask in (
        lambda: method.predict_radius(Z, confidence=0.9),
        lambda: method.guarantee(0.9, 0.9),
    ):
        with pytest.raises(CalliperError, match=f"does not support confidence.*{able}"):
            ask()


@pytest.mark.parametrize("wrong", [0.0, 1.0, 95, np.nan, "high"])
def test_confidence_outside_its_range_is_refused(wrong):
    split = Split().fit(np.zeros((30, 1)), np.arange(30.0))
    with pytest.raises(CalliperError, match="confidence must"):
        split.predict_radius([[0.0]], 0.9, confidence=wrong)
