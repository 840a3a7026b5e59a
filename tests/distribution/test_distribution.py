"""Predictive distributions as users meet them: questions, frames, bounds, bad input."""

import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

from calliper import (
    KNN,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    QuantileError,
    SignedError,
    Split,
)
from calliper.calibrators import LCP, RCP, SLCP, MADSplit, NormalizedKNN
from calliper.distribution import Distribution
from calliper.exceptions import SmallCalibrationWarning, ZeroScaleWarning
from calliper.kernels import Mahalanobis, TunedRBF
from calliper.shift import as_shares

ERRORS = np.array([-3.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 4.0, 8.0])


def known(bounds=None, m=2, errors=ERRORS):
    split = Split().fit(np.zeros((len(errors), 1)), abs(errors), signs=np.sign(errors))
    return split.predict_distribution(np.zeros((m, 1)), 10.0 * np.arange(m), bounds=bounds)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(900, 3)), columns=list("abc"))
    y = X["a"] + X["b"] * (rng.gamma(2, size=900) - 2)
    return X, y


@pytest.fixture(scope="module")
def regressor(problem):
    X, y = problem
    return ConformalRegressor(RandomForestRegressor(30, random_state=0), random_state=0).fit(X, y)


def test_cdf_counts_points_at_or_below():
    y = np.array([-3.5, -3.0, -0.5, 0.0, 8.0])
    np.testing.assert_allclose(known(m=1).cdf(y[None])[0] * 9, [0, 1, 3, 5, 9])
    low, high = known(m=1).cdf_band(y[None])
    np.testing.assert_allclose(low[0] * 10, [0, 0, 3, 3, 8])
    np.testing.assert_allclose(high[0] * 10, [1, 2, 4, 6, 10])


def test_y_is_one_number_one_a_row_or_several():
    batch = known(m=3)
    np.testing.assert_allclose(batch.cdf(10.0) * 9, [9, 5, 0])
    np.testing.assert_allclose(batch.cdf([0.0, 10.0, 20.0]) * 9, [5, 5, 5])
    grid = batch.cdf([[0.0, 10.0]])
    assert grid.shape == (3, 2)
    np.testing.assert_allclose(grid[:, 1], batch.cdf(10.0))


def test_quantiles_are_the_ranks_of_both_sides():
    batch = known(m=1)
    p = [0.1, 0.25, 0.5, 0.9]
    np.testing.assert_allclose(batch.quantile(p), [[-3, -1, 0, 8]], atol=1e-9)
    np.testing.assert_allclose(batch.quantile(p, side="lower"), [[-3, -2, 0, 8]], atol=1e-9)
    np.testing.assert_allclose(batch.quantile(0.5), [0.0])
    interval = batch.interval(0.8)
    np.testing.assert_allclose([interval.lower, interval.upper], [[-3], [8]], atol=1e-9)
    assert interval.coverage == 0.8
    several = batch.interval([0.2, 0.8])
    np.testing.assert_allclose(several.lower, [[-0, -3]], atol=1e-9)


def test_a_level_that_few_points_cannot_reach_is_infinite_with_a_warning():
    for ask in (lambda d: d.quantile(0.95), lambda d: -d.quantile(0.05, side="lower")):
        with pytest.warns(SmallCalibrationWarning, match="9 calibration rows"):
            assert np.isposinf(ask(known())).all()
    with pytest.warns(SmallCalibrationWarning, match="0.95"):
        assert np.isposinf(known().interval(0.9).width).all()


def test_a_target_keeps_to_the_bound_that_it_ties_with():
    """Targets near 0 and predictions near 1000: adding an error back loses digits of the target."""
    rng = np.random.default_rng(5)
    y_pred, y = rng.normal(size=40) * 1e3, rng.normal(size=40)
    signed = y - y_pred
    split = Split().fit(np.zeros((40, 1)), abs(signed), signs=np.sign(signed))
    batch = split.predict_distribution(np.zeros((40, 1)), y_pred)
    rank = np.argsort(np.argsort(signed)) + 1
    for row in range(40):
        assert y[row] <= batch.quantile(rank[row] / 41)[row]
        assert y[row] >= batch.quantile(rank[row] / 41, side="lower")[row]
    low, high = batch.cdf_band(y)
    np.testing.assert_allclose(low * 41, rank - 1)
    np.testing.assert_allclose(high * 41, rank + 1)


def test_crps_is_the_integral():
    batch, y = known(m=3), np.array([0.3, 17.0, -40.0])
    x, step = np.linspace(-60, 60, 240_001, retstep=True)
    points = ERRORS[None] + 10.0 * np.arange(3)[:, None]
    for row in range(3):
        curve = np.searchsorted(points[row], x, side="right") / 9
        expected = (((curve - (y[row] <= x)) ** 2) * step).sum()
        assert batch.crps(y)[row] == pytest.approx(expected, abs=1e-3)


def test_samples_follow_the_curve_and_do_not_depend_on_blocks(monkeypatch):
    batch = known(m=4)
    draws = batch.sample(4000, random_state=1)
    assert draws.shape == (4, 4000)
    for value, n in zip(*np.unique(ERRORS, return_counts=True), strict=True):
        assert np.mean(np.isclose(draws[1] - 10, value)) == pytest.approx(n / 9, abs=0.03)
    monkeypatch.setattr("calliper.distribution.MOST_FLOATS", 1)
    np.testing.assert_array_equal(batch.sample(4000, random_state=1), draws)


def test_blocks_change_nothing(regressor, problem, monkeypatch):
    X, y = problem[0][:60], problem[1][:60]
    batch = regressor.predict_distribution(X)
    one = batch.crps(y), batch.pit(y, random_state=0), batch.cdf(0.5)
    monkeypatch.setattr("calliper.distribution.MOST_FLOATS", 7 * batch.n_calibration)
    for a, b in zip(
        one, (batch.crps(y), batch.pit(y, random_state=0), batch.cdf(0.5)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_quantiles_agree_with_the_points(regressor, problem):
    """Default method of a forest: radial, in blocks; quantiles and all points come by two ways."""
    batch = regressor.predict_distribution(problem[0][:40])
    p = [0.05, 0.5, 0.95]
    ranks = [int(np.ceil(level * (batch.n_calibration + 1))) - 1 for level in p]
    points = np.sort(batch._points(slice(None)), axis=1)[:, ranks]
    np.testing.assert_allclose(batch.quantile(p), points, rtol=1e-9, atol=1e-9)


def test_bounds_hold_all_but_pit(regressor, problem):
    X, y = problem
    low, high = y.min(), y.max()
    free = regressor.predict_distribution(X)
    batch = regressor.predict_distribution(X, bounds=(low, high))
    for values in (batch.quantile([0.02, 0.98]), batch.sample(20, random_state=0)):
        assert values.min() >= low and values.max() <= high
    assert batch.interval(0.98).upper.max() == high
    np.testing.assert_array_equal(batch.cdf(high), 1.0)
    np.testing.assert_array_equal(batch.pit(y, random_state=3), free.pit(y, random_state=3))
    assert np.isfinite(known(bounds=(0, 5)).crps([1.0, 2.0])).all()
    with pytest.warns(SmallCalibrationWarning):
        np.testing.assert_array_equal(known(bounds=(None, 50.0)).quantile(0.95), 50.0)
    with pytest.raises(CalliperError, match="y_min < y_max"):
        regressor.predict_distribution(X, bounds=(1, 0))


def test_frames_keep_their_index_and_batches_can_be_pickled(regressor, problem):
    X = problem[0].iloc[5:9]
    batch = regressor.predict_distribution(X)
    frame = batch.to_frame()
    assert list(frame.index) == [5, 6, 7, 8]
    assert list(frame.columns)[:2] == ["quantile_0.05", "quantile_0.25"]
    assert list(batch.interval(0.8).to_frame().index) == [5, 6, 7, 8]
    again = pickle.loads(pickle.dumps(batch))
    np.testing.assert_array_equal(again.to_frame(), frame)
    assert repr(batch) == "Distribution(4 rows, 225 calibration rows)"


@pytest.mark.parametrize(
    "method",
    [
        FullRescaled(KNN(5)),
        FullRescaled(Mahalanobis(KNN(9)), shrinkage=0.3),
        FullRescaled(TunedRBF(), statistic="rms"),
        Split(),
        MADSplit(),
        NormalizedKNN(),
        RCP(offset=0.01),
    ],
    ids=repr,
)
def test_a_regressor_with_any_method_that_can(method, problem):
    X, y = problem
    model = ConformalRegressor(LinearRegression(), method, random_state=0).fit(X, y)
    batch = model.predict_distribution(X[:20])
    assert np.all(np.diff(batch.quantile([0.1, 0.5, 0.9]), axis=1) >= 0)
    assert np.isfinite(batch.crps(y[:20])).all()
    ranks = [1, 100, batch.n_calibration]
    points = np.sort(batch._points(slice(None)), axis=1)[:, [rank - 1 for rank in ranks]]
    y_pred, _ = model.embedding_.predict_and_transform(X[:20])  # or centre and units
    placed = model.score_.target_at(y_pred[:, None], batch._signed(batch._Z, ranks))
    np.testing.assert_allclose(placed, points, rtol=1e-6, atol=1e-9)


def test_a_scale_of_zero_is_named():
    Z = np.arange(40.0)[:, None]
    training = (Z, np.where(Z[:, 0] < 20, 0.0, 1.0))
    method = RCP(kernel=KNN(3)).fit(Z, np.ones(40), training=training, signs=np.ones(40))
    with pytest.warns(ZeroScaleWarning, match="19 of 40"):
        batch = method.predict_distribution([[30.0]], [0.0])
    assert batch.quantile(0.9) == np.inf


def test_split_is_the_distribution_of_errors_around_the_prediction():
    np.testing.assert_allclose(np.sort(known()._points(slice(None)))[1], 10 + ERRORS)


def test_zero_scales_put_points_at_infinity_and_zero_errors_at_the_prediction():
    Z, errors = np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([0.0, 0.0, -1.0, 2.0])
    with pytest.warns(UserWarning, match="is zero at 2 of"):
        full = FullRescaled(KNN(1)).fit(Z, abs(errors), signs=np.sign(errors))
    batch = full.predict_distribution([[9.0]], [3.0])
    assert np.isfinite(batch.crps([3.0]))
    with pytest.warns(UserWarning, match="is zero at"):
        full.fit(Z, abs(errors[::-1]), signs=np.sign(errors[::-1]))
    found = full.signed_thresholds(np.array([[9.0]]))
    assert np.sign(found).tolist() == [[1, -1, 0, 0]] and np.abs(found).max() < 1e-280


METHODS_WITHOUT = [JackknifeRescaled(), LCP(), SLCP(), FullRescaled(KNN(5), statistic="quantile")]


@pytest.mark.parametrize("method", METHODS_WITHOUT, ids=repr)
def test_methods_that_cannot_name_those_that_can(method, problem):
    X, y = problem
    model = ConformalRegressor(LinearRegression(), method).fit(X, y)
    able = "FullRescaled, MADSplit, NormalizedKNN, RCP, Split"
    with pytest.raises(CalliperError, match=f"not support predictive distributions.*{able}"):
        model.predict_distribution(X[:3])


@pytest.mark.parametrize("score", [SignedError(), SignedError("upper"), QuantileError()], ids=repr)
def test_scores_that_cannot_say_what_can(score, problem):
    X, y = problem
    model = LinearRegression().fit(X, y)
    if isinstance(score, QuantileError):
        outputs = lambda rows: model.predict(rows)[:, None] + np.array([-1.0, 1.0])  # noqa: E731
        fitted = ConformalRegressor(outputs, Split(), score_function=score)
    else:
        fitted = ConformalRegressor(model.predict, Split(), score_function=score)
    fitted.calibrate(X, y)
    with pytest.raises(CalliperError, match="use AbsoluteError"):
        fitted.predict_distribution(X[:3])


def test_signs_are_needed_and_checked():
    Z = np.zeros((3, 1))
    with pytest.raises(CalliperError, match=r"signs=np\.sign"):
        Split().fit(Z, [1.0, 2.0, 0.0]).predict_distribution(Z, [0, 0, 0])
    for signs, scores in (
        ([1, 1, 1], [1, 2, 0]),
        ([1, 0.5, 0], [1, 2, 0]),
        ([1, 1, 0], [1, -2, 0]),
    ):
        with pytest.raises(CalliperError, match="signs must be -1 or 1 where a score is positive"):
            Split().fit(Z, scores, signs=signs)
    with pytest.raises(ValueError, match="signs"):
        Split().fit(Z, [1, 2, 3], signs=[1, 1])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda d: d.quantile(1.5), "p must lie strictly between 0 and 1"),
        (lambda d: d.quantile(0.5, side="left"), "side must be 'upper' or 'lower'"),
        (lambda d: d.interval(90), "percentage"),
        (lambda d: d.cdf([1.0, 2.0, 3.0]), "y has 3 rows, the distribution has 2"),
        (lambda d: d.cdf(np.nan), "without NaN"),
        (lambda d: d.crps([1.0]), "y"),
        (lambda d: d.sample(0), "integer of at least 1"),
    ],
)
def test_bad_questions(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(known())


def test_a_model_that_waits_for_its_level_is_asked_once():
    rng = np.random.default_rng(0)
    Z, errors = rng.normal(size=(60, 1)), rng.normal(size=60)
    train = {"training": (rng.normal(size=(60, 1)), rng.exponential(size=60))}
    made = RCP().fit(Z, abs(errors), signs=np.sign(errors), **train)
    first = made.predict_distribution(Z[:5], np.zeros(5)).quantile(0.7)
    kept = made._signed
    np.testing.assert_array_equal(
        made.predict_distribution(Z[:5], np.zeros(5)).quantile(0.7), first
    )
    assert made._signed is kept


def literal(points, weights, own=1.0):
    """Moments, inverse and exceedance of one row from their definitions, in exact fractions."""
    pairs = sorted(zip(points, weights, strict=True))
    exact = [(float(y), Fraction(float(w))) for y, w in pairs if w > 0]
    total = sum(w for _, w in exact)
    ends = {y for y, _ in exact if np.isinf(y)}
    mean, std = (ends.pop() if len(ends) == 1 else np.nan), np.inf
    if not any(np.isinf(y) for y, _ in exact):
        middle = sum(Fraction(y) * w for y, w in exact) / total
        mean, std = (
            float(middle),
            float(sum((Fraction(y) - middle) ** 2 * w for y, w in exact) / total) ** 0.5,
        )

    def ppf(q):
        return next(
            y for y, _ in exact if sum(w for x, w in exact if x <= y) >= Fraction(q) * total
        )

    def exceedance(at):
        above, at_it = (sum(w for y, w in exact if test(y)) for test in (at.__lt__, at.__eq__))
        return float((above + (at_it + Fraction(own)) / 2) / (total + Fraction(own)))

    return mean, std, ppf, exceedance


INFINITE = np.array([-np.inf, -2.0, 0.0, 0.0, 1.0, 1.0, 5.0])


@pytest.mark.parametrize("errors", [ERRORS, INFINITE, -INFINITE, np.append(INFINITE, np.inf)])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_inverse_and_exceedance_by_definition(errors, weighted):
    n = len(errors)
    weights = np.resize([1.0, 0.5, 0.0, 2.0], n) if weighted else np.ones(n)
    shares = as_shares(weights, np.array([2.0, 1.0])) if weighted else None
    batch = Distribution(
        np.zeros(2), np.zeros((2, 1)), lambda Z: np.tile(errors, (len(Z), 1)), n, _shares=shares
    )
    for row, own in enumerate((2.0, 1.0) if weighted else (1.0, 1.0)):
        mean, std, ppf, exceedance = literal(errors, weights, own)
        np.testing.assert_allclose(batch.mean()[row], mean, rtol=1e-12)
        np.testing.assert_allclose(batch.std()[row], std, rtol=1e-12)
        for q in (0.0, 0.125, 0.5, 0.75, 1.0):
            assert batch.ppf([1.0, q])[row, 1] == ppf(q)
            if q:
                assert batch.cdf(ppf(q))[row] >= q - 1e-12
        for y in (-9.0, -2.0, 0.0, 0.5, 1.0, 8.0):
            np.testing.assert_allclose(batch.exceedance(y)[row], exceedance(y), rtol=1e-12)
            np.testing.assert_allclose(batch.sf(y)[row], 1 - batch.cdf(y)[row])


def test_with_bounds_all_moments_are_finite():
    batch = Distribution(
        np.zeros(1), np.zeros((1, 1)), lambda Z: INFINITE[None], 7, bounds=(-4.0, 4.0)
    )
    clipped = np.clip(INFINITE, -4, 4)
    assert (batch.mean()[0], batch.std()[0]) == pytest.approx((clipped.mean(), clipped.std()))


def test_exceedance_is_right_on_average_above_a_quantile():
    """The crisp curve is a step of 1/N too low there, as the share above its own points."""
    rng, p, n = np.random.default_rng(0), 0.9, 99
    errors = rng.normal(size=(400, n))
    above = np.array(
        [
            [batch.exceedance(at)[0], batch.sf(at)[0], norm.sf(at[0])]
            for each in errors
            for batch in [known(m=1, errors=each)]
            for at in [batch.quantile(p)]
        ]
    )
    middle, crisp, truth = above.mean(axis=0)
    error = above[:, 2].std() / 20
    assert abs(middle - truth) < 4 * error < 0.0075 and middle == pytest.approx(1 - p)
    assert crisp == pytest.approx(9 / 99)


def test_groups_answer_by_their_own_points():
    X, y = np.tile([[0.0], [1.0]], (20, 1)), np.tile([1.0, 9.0, -1.0, -5.0], 10)
    model = ConformalRegressor(lambda rows: np.zeros(len(rows)), Split(), embed="inputs")
    batch = model.calibrate(X, y, groups=lambda rows: rows[:, 0]).predict_distribution(X[:2])
    np.testing.assert_allclose(batch.mean(), [0.0, 2.0], atol=1e-9)
    np.testing.assert_allclose(batch.std(), [1.0, 7.0])
    np.testing.assert_allclose(batch.ppf([0.25, 1.0]), [[-1, 1], [-5, 9]])
    np.testing.assert_allclose(batch.exceedance([[5.0]])[:, 0], [0.5 / 21, 10.5 / 21])


def test_what_makes_a_distribution_is_not_public():
    public = {name for name in dir(known()) if not name.startswith("_")}
    assert not public & {"Z", "signed", "shares", "placed"}
