"""Predicted distributions: scores in their normal units, and intervals that hold exactly these."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import QuantileRegressor

from calliper import CalliperError, ConformalRegressor, DistributionError, FullRescaled, Split
from calliper.exceptions import QuantileCrossingWarning, ZeroScaleWarning
from calliper.kernels import KNN
from calliper.scores import AS_GOOD_AS_INFINITE, ScaledError, Side
from cases.quantile_models import X_CAL, X_NEW, X_TRAIN, Y_CAL, Y_NEW, Y_TRAIN
from oracles.quantile_curve import Curve

GRIDS = [(0.1, 0.5, 0.9), (0.05, 0.2, 0.4, 0.7, 0.99), (0.6, 0.7, 0.95), (0.01, 0.3, 0.35, 0.4)]
grids = st.sampled_from(GRIDS)
#: Few values, so that pieces are flat, targets are at knots, and whole rows are constant.
values = st.integers(-3, 3).map(lambda n: n / 3)
slopes = st.sampled_from([None, 0.7])


@st.composite
def rows(draw):
    """A score, the quantiles of one row and the curve that an oracle makes of them."""
    grid, slope, unit = draw(grids), draw(slopes), draw(st.sampled_from([1.0, 1e-3, 1e9]))
    q = sorted(draw(st.lists(values, min_size=len(grid), max_size=len(grid))))
    q = [each * unit for each in q]
    slope = None if slope is None else slope * unit
    return DistributionError(grid, slope=slope), np.array([q]), Curve(grid, q, slope), unit


@given(row=rows(), y=st.integers(-30, 30))
def test_the_score_is_that_of_the_definition(row, y):
    score, q, curve, unit = row
    y = y / 6 * unit
    (found,), expected = score.signed(np.array([y]), q), curve.score(Fraction(y))
    if expected is None:
        assert abs(found) == AS_GOOD_AS_INFINITE
        return
    middle = curve.at(Fraction(0))
    rounding = 1e-12 * (1 + abs(float(expected)))
    if abs(float(middle) - y) < 1e-9 * unit:  # on which side of the centre is up to rounding
        rounding = 1e-6
    assert abs(found - float(expected)) <= rounding
    assert abs(float(score.centre(q)[0]) - float(middle)) <= 1e-12 * (unit + abs(float(middle)))
    placed = score.target_at(q, np.array([found]))[0]
    assert abs(placed - float(curve.at(Fraction(found)))) <= 1e-12 * (unit + abs(y))


@given(row=rows(), y=st.integers(-30, 30), t=st.floats(0, 6), other=st.integers(-30, 30))
def test_an_interval_holds_exactly_the_targets_of_smaller_score(row, y, t, other):
    score, q, curve, unit = row
    y = np.array([y / 6 * unit])
    for radius in (t, *score.magnitude(np.array([other / 6 * unit]), q), *np.abs(ndtri(GRIDS[1]))):
        (low,), (high,) = score.invert(q, np.array([radius]))
        size = score.magnitude(y, q)[0]
        if size <= radius:
            assert low <= y[0] <= high
        elif (
            np.nextafter(np.nextafter(low, 9e99), 9e99)
            < y[0]
            < np.nextafter(np.nextafter(high, -9e99), -9e99)
        ):  # an end is rounded outward, by a last digit of its own or of the radius
            assert size <= radius + 8 * np.spacing(max(radius, 1.0))
        exact, at = curve.score(Fraction(float(y[0]))), Fraction(float(radius))
        inside = curve.at(-at) <= Fraction(float(y[0])) <= curve.at(at)
        assert inside == (exact is not None and abs(exact) <= at)


@pytest.mark.parametrize("unit", [1.0, 1e-5, 1e12])
def test_a_target_is_held_at_its_own_radius(unit):
    """Whatever is rounded: 20,000 rows with pieces that are flat, steep and in between."""
    rng, score = np.random.default_rng(0), DistributionError(GRIDS[1])
    steps = rng.choice([0, 1e-9, 1e-3, 1, 30], size=(20_000, 5)) * rng.uniform(size=(20_000, 5))
    q = unit * (rng.normal(size=(20_000, 1)) + np.cumsum(steps, axis=1))
    share = rng.uniform(-0.3, 1.3, size=(20_000, 1))
    y = np.where(
        rng.uniform(size=20_000) < 0.3,
        q[:, 2],
        (q[:, :1] + share * np.ptp(q, axis=1, keepdims=True))[:, 0],
    )
    lower, upper = score.invert(q, score.magnitude(y, q))
    assert np.all((lower <= y) & (y <= upper))
    further = score.magnitude(np.nextafter(y, np.inf), q), score.magnitude(y, q)
    assert np.all((further[0] >= further[1]) | (y < score.centre(q)))


@pytest.mark.parametrize("knot", [1, 3])
def test_a_target_just_beyond_a_quantile_is_held_at_its_own_radius(knot):
    """So steep is the curve from there that the score is that of the quantile."""
    q, score = np.array([[-1e3, -1.0, 0.0, 1.0, 1e3]]), DistributionError([0.1, 0.3, 0.5, 0.7, 0.9])
    y = np.nextafter(q[:, knot], 2 * q[:, knot])
    assert score.measure(y, q) == score.measure(q[:, knot], q)
    lower, upper = score.invert(q, score.measure(y, q))
    assert lower <= y <= upper


def test_a_jump_is_reached_where_it_begins():
    """Where the difference of two quantiles is no number, the second is no further out."""
    side = Side(np.array([[-1.7e308, 1.7e308]]), np.array([0.0, 1.0]), np.ones(1), np.inf)
    assert side.reach(np.zeros(1)) == 0


@given(row=rows(), t=st.lists(st.floats(0, 5), min_size=1, max_size=4))
def test_intervals_are_nested(row, t):
    score, q, _, _ = row
    knots = np.abs(ndtri(score.probabilities))
    radius = np.sort([*t, *knots, *np.nextafter(knots, 9), *np.nextafter(knots, 0), 0.0, np.inf])
    lower, upper = score.invert(q[:, None], radius[None])
    assert (np.diff(lower[0]) <= 0).all() and (np.diff(upper[0]) >= 0).all()
    assert lower[0, -1] == -np.inf and upper[0, -1] == np.inf
    assert lower[0, 0] <= score.centre(q)[0] <= upper[0, 0]


@given(y=st.floats(-20, 20), centre=st.floats(-3, 3), down=st.floats(1, 3), up=st.floats(1, 3))
def test_three_quantiles_around_the_median_are_a_unit_for_each_side(y, centre, down, up):
    z = ndtri(0.9)
    q = np.array([[centre - down, centre, centre + up]])
    units = np.array([[centre, (q[0, 1] - q[0, 0]) / z, (q[0, 2] - q[0, 1]) / z]])
    score, plain, y = DistributionError([0.1, 0.5, 0.9]), ScaledError(), np.array([y])
    np.testing.assert_allclose(score.signed(y, q), plain.signed(y, units), rtol=1e-13, atol=1e-13)
    radius = np.array([2.5])
    np.testing.assert_allclose(
        score.invert(q, radius), plain.invert(units, radius), rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_a_curve_of_one_knot_is_two_lines(unit):
    """Whatever the unit: no target is too far, and its own radius holds it."""
    rng = np.random.default_rng(0)
    said = np.column_stack([rng.normal(size=500), rng.uniform(0.2, 5, size=(500, 2))])
    y = rng.normal(size=500) * 3
    y[::5] = said[::5, 0]
    beyond = y - said[:, 0]
    expected = beyond / np.where(beyond < 0, said[:, 1], said[:, 2])
    said[:, 0] *= unit
    found = ScaledError().signed(y * unit, said)
    np.testing.assert_allclose(found, expected * unit, rtol=1e-12, atol=1e-14 * unit)
    np.testing.assert_allclose(ScaledError().target_at(said, found), y * unit, rtol=1e-12)
    lower, upper = ScaledError().invert(said, np.abs(found))
    assert np.all((lower <= y * unit) & (y * unit <= upper)) and np.isfinite([lower, upper]).all()


def test_columns_may_come_in_any_order_and_quantiles_that_cross_are_sorted():
    y, q = np.array([0.5, 3.0]), np.array([[0.0, 1.0, 4.0], [2.0, 2.5, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = DistributionError([0.1, 0.5, 0.9]).measure(y, q)
        other = DistributionError([0.9, 0.1, 0.5]).measure(y, q[:, [2, 0, 1]])
    np.testing.assert_array_equal(other, expected)
    with pytest.warns(QuantileCrossingWarning, match="at 2 of 2 rows"):
        crossed = DistributionError([0.1, 0.5, 0.9]).measure(y, q[:, [1, 0, 2]])
    np.testing.assert_array_equal(crossed, expected)


def test_a_constant_row_holds_its_value_only():
    score, q = DistributionError([0.1, 0.5, 0.9]), np.zeros((2, 3))
    with pytest.warns(ZeroScaleWarning, match="At 1 of 2 points, all predicted"):
        np.testing.assert_array_equal(
            score.measure(np.array([0.0, 1.0]), q), [0, AS_GOOD_AS_INFINITE]
        )
    lower, upper = score.invert(q, np.array([1e9, AS_GOOD_AS_INFINITE]))
    assert (lower.tolist(), upper.tolist()) == ([0, -np.inf], [0, np.inf])
    divided = [AS_GOOD_AS_INFINITE / 1e9] * 2  # by a local scale
    assert np.isinf(score.invert(np.array([[0.0, 1.0, 2.0]] * 2), np.array(divided))).all()
    known = DistributionError([0.1, 0.5, 0.9], slope=8.0)
    beyond = ndtri(0.9) + 1.0
    np.testing.assert_allclose(known.measure(np.array([1.0, -1.0]), q), beyond)


def test_gigantic_and_tiny_quantiles_never_make_nan():
    big, p = 1.7e308, [0.1, 0.5, 0.9]
    for q in ([-big, 0, big], [big, big, big], [0, 5e-324, 1e-323], [-big, -big, big]):
        score, y = DistributionError(p), np.array([-big, 0.0, 5e-324, 1.0, big])
        rows = np.tile(np.array(q), (5, 1))
        size = score.magnitude(y, rows)
        lower, upper = score.invert(rows, size)
        assert np.isfinite(size).all() and (lower <= y).all() and (y <= upper).all()


@pytest.mark.parametrize(
    "probabilities", [[0.1], [0.1, 0.5, 0.5], [0.0, 0.5, 0.9], [0.5, 1.0], [0.1, np.nan], "abc"]
)
def test_probabilities_must_be_different_ones(probabilities):
    with pytest.raises(CalliperError, match="probabilities must be"):
        _ = DistributionError(probabilities).n_outputs


@pytest.mark.parametrize(
    ("probabilities", "hint"),
    [([10.0, 50.0], True), ([0.5, 2.0], False), ([0.0, 0.5], False), ([], False)],
)
def test_percentages_are_told_by_the_least(probabilities, hint):
    with pytest.raises(CalliperError, match="probabilities") as refused:
        _ = DistributionError(probabilities).n_outputs
    assert ("divide by 100" in str(refused.value)) == hint


def test_the_slope_must_be_positive_and_columns_as_many_as_probabilities():
    assert DistributionError([0.1, 0.5, 0.9], slope=1e300).n_outputs == 3
    for slope in (0.0, 1.5e300, np.inf):
        with pytest.raises(CalliperError, match="slope must be None, or from 0 to 1e300; got"):
            _ = DistributionError([0.1, 0.5, 0.9], slope=slope).n_outputs
    with pytest.raises(CalliperError, match=r"takes 3 quantiles .* got shape \(2, 4\)"):
        DistributionError([0.1, 0.5, 0.9]).centre(np.zeros((2, 4)))


def atoms(rng, n):
    """Targets of which many are 0, and rows of quantiles that are wrong, flat and constant."""
    x = rng.integers(0, 4, n)
    y = np.where(rng.uniform(size=n) < 0.4, 0.0, rng.normal(size=n) * (1 + x)).round(1)
    q = np.array([[0, 0, 0, 0], [-1, 0, 0, 1], [-1, 0, 0, 0], [-2.0, -1, 0, 3]])[x]
    return x[:, None].astype(float), y, q


@pytest.mark.filterwarnings("ignore::calliper.exceptions.ZeroScaleWarning")
@pytest.mark.parametrize("method", [Split(), FullRescaled(KNN(3))], ids=["split", "full"])
def test_coverage_over_draws_with_atoms(method):
    rng, held, draws = np.random.default_rng(0), [], 120
    score = DistributionError([0.1, 0.4, 0.6, 0.9], slope=1.0)
    for _ in range(draws):
        Z, y, q = atoms(rng, 49)
        method.fit(Z, score.measure(y, q))
        Z, y, q = atoms(rng, 40)
        lower, upper = score.invert(q, method.predict_radius(Z, 0.8))
        held.append(np.mean((lower <= y) & (y <= upper)))
    assert np.mean(held) >= 0.8 - 4 * np.std(held) / np.sqrt(draws)


def test_the_distribution_is_counted_in_normal_units():
    rng = np.random.default_rng(1)
    (Z, y, q), (Z_new, y_new, q_new) = atoms(rng, 60), atoms(rng, 300)
    score = DistributionError([0.1, 0.4, 0.6, 0.9], slope=1.0)
    quantiles = {row.tobytes(): each for row, each in zip((*Z, *Z_new), (*q, *q_new), strict=True)}
    model = ConformalRegressor(
        lambda X: np.array([quantiles[row.tobytes()] for row in X]), Split(), score_function=score
    )
    found = model.calibrate(Z, y).predict_distribution(Z_new)
    points, at = (s.round(9) for s in (score.signed(y, q), score.signed(y_new, q_new)[:, None]))
    tau = np.random.RandomState(0).uniform(size=300)
    expected = ((points < at).sum(1) + tau * (1 + (points == at).sum(1))) / 61
    np.testing.assert_allclose(found.pit(y_new, random_state=0), expected)
    # Bounds and curves are those of y: a bound holds its share of targets.
    assert np.mean(y_new <= found.quantile(0.8)) > 0.75
    assert (np.diff(found.quantile([0.1, 0.3, 0.5, 0.9]), axis=1) >= 0).all()
    assert np.isfinite(found.crps(y_new)).all()


def two_quantiles(X):
    """A model of normal distributions that are too narrow."""
    return norm(X[:, 0], 0.5 * X[:, 0] + 0.01).ppf(np.array([[0.1], [0.3], [0.5], [0.8]]))


@pytest.fixture(scope="module")
def calibrated():
    score = DistributionError([0.1, 0.3, 0.5, 0.8])
    front = ConformalRegressor(two_quantiles, score_function=score, learning_part=None)
    return front.calibrate(X_CAL, Y_CAL)


def test_one_calibration_serves_every_level_in_nested_intervals(calibrated):
    levels = [0.1, 0.5, 0.8, 0.9, 0.99]
    found = calibrated.predict_interval(X_NEW, levels)
    assert (np.diff(found.upper, axis=1) >= 0).all() and (np.diff(found.lower, axis=1) <= 0).all()
    covered = ((found.lower.T <= Y_NEW) & (Y_NEW <= found.upper.T)).mean(axis=1)
    np.testing.assert_allclose(covered, levels, atol=0.11)
    np.testing.assert_allclose(calibrated.predict(X_NEW), X_NEW[:, 0])


def test_groups_weights_and_more_rows(calibrated):
    score = DistributionError([0.1, 0.3, 0.5, 0.8])
    front = ConformalRegressor(two_quantiles, score_function=score, learning_part=None)
    half = (X_CAL[:, 1] > 0.5).astype(int)
    grouped = front.calibrate(X_CAL, Y_CAL, groups=half)
    alone = clone(front)
    alone.calibrate(X_CAL[half == 1], Y_CAL[half == 1])
    of_group = grouped.predict_interval(X_NEW, groups=np.ones(len(X_NEW), dtype=int))
    np.testing.assert_array_equal(of_group.upper, alone.predict_interval(X_NEW).upper)
    weighted = front.calibrate(X_CAL, Y_CAL, weights=np.ones(len(X_CAL)))
    ends = weighted.predict_interval(X_NEW, weights=np.ones(len(X_NEW)))
    np.testing.assert_allclose(ends.upper, calibrated.predict_interval(X_NEW).upper)
    grown = front.calibrate(X_CAL[:100], Y_CAL[:100]).extend(X_CAL[100:], Y_CAL[100:])
    np.testing.assert_allclose(
        grown.predict_interval(X_NEW).upper, calibrated.predict_interval(X_NEW).upper
    )


def test_training_rows_tell_the_usual_slope():
    models = {p: QuantileRegressor(quantile=p, alpha=0).fit(X_TRAIN, Y_TRAIN) for p in GRIDS[0]}
    front = ConformalRegressor(models, learning_part=None)
    front.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    q = np.stack([model.predict(X_TRAIN) for model in models.values()], axis=1)
    expected = np.median(np.ptp(q, axis=1)) / (2 * ndtri(0.9))
    assert front.score_.slope == pytest.approx(expected) and front.score_function is None
    assert front.calibrate(X_CAL, Y_CAL).score_.slope is None


@pytest.mark.parametrize(("slope", "least"), [(None, 5.0), (2.0, (3 * 10.0 + 2.0) / 8)])
def test_flat_ends_go_on_with_half_of_the_mean_slope(slope, least):
    """Of the mean slope, moved a quarter of the way to the usual one if that is known."""
    score = DistributionError([0.1, 0.2, 0.8, 0.9], slope=slope)
    far, near = ndtri(0.9), ndtri(0.8)
    row = np.array([[-10 * far, -10 * far, 10 * far, 10 * far]])  # flat between 0.8 and 0.9
    assert far > near
    _, high = score.invert(row, np.array([far + 1.0]))
    assert high == pytest.approx(10 * far + least)
