"""The score of conformalised quantile regression."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper import CalliperError, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper.exceptions import QuantileCrossingWarning
from calliper.scores import DistributionError, QuantileError, warn_if_crossed
from cases.quantile_models import VARIANTS, X_CAL, X_NEW, Y_CAL, fixed_quantiles, regressor
from oracles import refitting as refit_oracles

numbers = st.floats(-1e3, 1e3)


@pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")
@given(y=numbers, row=st.lists(numbers, min_size=3, max_size=3), radius=st.floats(-100, 1e3))
@pytest.mark.parametrize("variant", VARIANTS)
def test_measure_and_invert_belong_together(variant, y, row, radius):
    """y is inside exactly when its score is at most the radius, rounding and empty sets apart."""
    score = QuantileError(variant, offset=0.1)
    y_pred, target = np.array([row[: score.n_outputs]]), np.array([y])
    measured = score.measure(target, y_pred).reshape(1, -1)
    radii = np.full((1, score.n_tails), radius)
    lower, upper = score.invert(y_pred, radii if score.n_tails == 2 else radii[:, 0])
    slack = 1e-7 * (1 + abs(y) + np.abs(row).max() + abs(radius) * 2e3)
    assert lower <= upper
    if (measured <= radius - slack).all():
        assert lower <= y <= upper
    if (measured > radius + slack).any() and lower < upper:
        assert not lower <= y <= upper
    assert (score.magnitude(target, y_pred) >= measured.max()).all()


@pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")
@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_definition(variant):
    """Random small problems with ties, crossings, empty sets and too few points."""
    crossed = empty = infinite = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        score = QuantileError(variant, offset=0.25)
        n, k = int(rng.integers(1, 15)), score.n_outputs
        draw = rng.integers if seed % 2 else rng.uniform
        y = np.asarray(draw(-2, 3, n), float)
        rows = np.asarray(draw(-4, 5, (n + 4, k)), float)
        coverage = str(rng.choice(["0.1", "0.3", "0.5", "0.75", "0.8", "0.9"]))
        inputs = np.arange(n + 4.0)[:, None]
        model = ConformalRegressor(
            lambda X, rows=rows: rows[np.asarray(X)[:, 0].astype(int)],
            Split(),
            score_function=score,
        ).calibrate(inputs[:n], y)
        found = model.predict_interval(inputs[n:], float(coverage))
        expected = [
            refit_oracles.quantile_interval(y, rows[:n], row, coverage, variant, 0.25)
            for row in rows[n:]
        ]
        np.testing.assert_allclose(np.stack(list(found), axis=1), expected, atol=1e-12)
        crossed += (np.diff(rows, axis=1) < 0).any()
        empty += (found.width < 1e-12).any()  # ends are rounded outward
        infinite += np.isinf(found.width).any()
    assert crossed > 20 and empty > 5 and infinite > 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_levels_broadcast(variant):
    model = regressor(variant).calibrate(X_CAL, Y_CAL)
    many = model.predict_interval(X_NEW, [0.3, 0.8, 0.9])
    assert many.lower.shape == (200, 3)
    for level in (0.3, 0.8, 0.9):
        np.testing.assert_array_equal(
            many.at(level).lower, model.predict_interval(X_NEW, level).lower
        )
    np.testing.assert_array_equal(many.width, np.sort(many.width, axis=1))


def test_an_empty_interval_is_a_point():
    quantiles = np.array([[0.0, 1.0, 4.0]])
    for radius in (-2.5, -np.inf):
        for variant, point in [("plain", 2.0), ("ratio", 2.0), ("median", 1.0)]:
            score = QuantileError(variant)
            columns = quantiles if variant == "median" else quantiles[:, [0, 2]]
            lower, upper = score.invert(columns, np.array([radius]))
            assert lower == upper == pytest.approx(point, abs=1e-5)
    score = QuantileError("asymmetric")
    lower, upper = score.invert(quantiles[:, [0, 2]], np.array([[-6.0, 0.0]]))
    assert lower == upper == pytest.approx(5.0, abs=1e-14)
    lower, upper = score.invert(quantiles[:, [0, 2]], np.array([[-np.inf, 0.0]]))
    assert lower == upper == 2.0


def test_quantiles_that_cross_are_put_in_order():
    score, y = QuantileError(), np.array([0.5, 2.0, -1.0])
    crossed, ordered = (
        np.array([[1.0, 0.0], [1, 1], [1, 0.5]]),
        np.array([[0.0, 1], [1, 1], [0.5, 1]]),
    )
    with pytest.warns(QuantileCrossingWarning, match=r"at 2 of 3 rows, by up to 1:.*overfit"):
        found = score.measure(y, crossed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(found, score.measure(y, ordered))
        for one, other in zip(
            score.invert(crossed, np.ones(3)), score.invert(ordered, np.ones(3)), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(score.centre(crossed), score.centre(ordered))
    beyond = np.array([[0.0, 2.0, 1.0], [0.0, 1.0, 1.0], [2.0, 1.0, 4.0]])  # on one side alone
    with pytest.warns(QuantileCrossingWarning, match=r"at 2 of 3 rows, by up to 1:"):
        QuantileError("median").measure(y, beyond)
    model = ConformalRegressor(lambda X: np.tile([1.0, -1.0], (len(X), 1)), Split())
    model.set_params(score_function=score)
    with pytest.warns(QuantileCrossingWarning, match="at 200 of 200.* are swapped"):
        model.calibrate(X_CAL, Y_CAL)
    assert np.isfinite(model.predict_interval(X_NEW).width).all()
    anywhere = np.array([[1.0, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]])  # but no pair in all rows
    with pytest.warns(QuantileCrossingWarning, match=r"at 3 of 3 rows.*overfit"):
        DistributionError([0.1, 0.4, 0.6, 0.9]).measure(y, anywhere)


@pytest.mark.parametrize(("n", "crossed", "of"), [(11, 11, "swapped"), (10, 9, "overfit")])
def test_two_of_three_that_cross_in_more_than_nine_rows_of_ten_are_swapped(n, crossed, of):
    rows = np.where(np.arange(n)[:, None] < crossed, [1.0, 0.0, 2.0], [0.0, 1.0, 2.0])
    with pytest.warns(QuantileCrossingWarning, match=f"at {crossed} of {n} rows.*{of}"):
        warn_if_crossed(rows)


def test_bad_scores():
    with pytest.raises(ValueError, match=r"variant must be 'plain', 'ratio', .*got 'r'"):
        regressor("plain").set_params(score_function=QuantileError("r")).calibrate(X_CAL, Y_CAL)
    for shape, expected in [((5,), 2), ((5, 1), 2), ((5, 3), 2), ((5, 2), 3)]:
        score = QuantileError("median" if expected == 3 else "plain")
        columns = "lower, median and upper" if expected == 3 else "lower and upper"
        message = rf"takes {columns} quantiles .* shape \(n, {expected}\); got shape"
        with pytest.raises(CalliperError, match=message):
            score.measure(np.zeros(5), np.zeros(shape))
    for offset in (0, -1.0, np.inf):
        with pytest.raises(ValueError, match="offset must be"):
            QuantileError("ratio", offset=offset).measure(np.zeros(2), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (
            lambda X: np.zeros(len(X)),
            r"takes 2 predictions for each row, .* returned shape \(200,\)",
        ),
        (lambda X: np.zeros((len(X), 1)), r"shape \(n, 2\); the model returned shape \(200, 1\)"),
        (lambda X: np.zeros((len(X), 3)), r"shape \(n, 2\); the model returned shape \(200, 3\)"),
        (lambda X: np.zeros((3, 2)), "column 0 of predictions must .* got 3 values for 200 rows"),
        (lambda X: np.full((len(X), 2), np.inf), "column 0 of predictions must be finite"),
    ],
)
def test_bad_predictions(predict, message):
    model = ConformalRegressor(predict, Split(), score_function=QuantileError())
    with pytest.raises(CalliperError, match=message):
        model.calibrate(X_CAL, Y_CAL)


def test_absolute_errors_refuse_two_columns():
    """Who forgot the score of a quantile model is told which one it needs."""
    message = r"one value for each row.*\(200, 2\).* QuantileError\(\) together with"
    with pytest.raises(CalliperError, match=message):
        ConformalRegressor(fixed_quantiles(2)).calibrate(X_CAL, Y_CAL)


@pytest.mark.parametrize("calibrator", [FullRescaled(), JackknifeRescaled(), None], ids=repr)
def test_methods_that_rescale_refuse(calibrator):
    model = ConformalRegressor(fixed_quantiles(2), calibrator, score_function=QuantileError())
    with pytest.raises(
        CalliperError, match=r"does not support QuantileError, .*: pass calibrator=Split"
    ):
        model.calibrate(X_CAL, Y_CAL)
