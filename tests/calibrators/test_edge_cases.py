"""Every awkward input has a documented answer."""

import warnings

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

from calliper import KNN, RBF, CalliperError, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import MADSplit
from calliper.exceptions import SmallCalibrationWarning, ZeroScaleWarning
from cases.edges import METHODS, NEW, RESCALED, SCORES, Z, fit_mad

rng = np.random.default_rng(1)


@pytest.mark.parametrize("method", [Split(), *RESCALED], ids=repr)
def test_too_few_points_for_the_level_give_infinity_and_one_warning(method):
    fitted = method.fit(Z[:18], SCORES[:18])
    with pytest.warns(SmallCalibrationWarning) as caught:
        radius = fitted.predict_radius(NEW, [0.5, 0.95, 0.99])
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "18 calibration rows" in message and "0.95" in message and "19" in message
    assert np.isfinite(radius[:, 0]).all() and np.isinf(radius[:, 1:]).all()
    assert fitted.guaranteed_coverage(0.95) == 1.0
    exactly = method.fit(Z[:19], SCORES[:19]).predict_radius(NEW, 0.95)
    assert np.isfinite(exactly).all()


@pytest.mark.parametrize("method", [JackknifeRescaled(KNN(60)), FullRescaled(KNN(60))], ids=repr)
def test_more_neighbours_than_points(method):
    with pytest.warns(SmallCalibrationWarning, match="60 neighbours were requested"):
        method.fit(Z, SCORES)
    assert np.isfinite(method.predict_radius(NEW)).all()


@pytest.mark.parametrize("method", RESCALED, ids=repr)
def test_one_calibration_point_is_plain_split(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)
        radius = method.fit(Z[:1], [3.0]).predict_radius(NEW, [0.4, 0.9])
    np.testing.assert_allclose(radius, np.tile([3.0, np.inf], (7, 1)))


@pytest.mark.parametrize("method", RESCALED, ids=repr)
def test_two_calibration_points(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)
        radius = method.fit(Z[:2], [3.0, 1.0]).predict_radius(NEW, [0.3, 0.6])
    assert np.isfinite(radius).all() and (radius[:, 1] >= radius[:, 0]).all()


@pytest.mark.parametrize("method", RESCALED, ids=repr)
def test_all_errors_zero(method):
    with pytest.warns(ZeroScaleWarning, match="zero at 50 of 50"):
        method.fit(Z, np.zeros(50))
    radius = method.predict_radius(NEW)
    assert not np.isnan(radius).any()
    if not (isinstance(method, FullRescaled) and isinstance(method.kernel, RBF)):
        assert np.isinf(radius).all()
    with_offset = type(method)(**{**method.get_params(deep=False), "offset": 0.1})
    np.testing.assert_array_equal(with_offset.fit(Z, np.zeros(50)).predict_radius(NEW), 0.0)


@pytest.mark.parametrize("method", RESCALED, ids=repr)
def test_many_exact_zeros_never_give_nan(method):
    scores = np.where(rng.random(50) < 0.8, 0.0, SCORES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroScaleWarning)
        radius = method.fit(Z, scores).predict_radius(NEW, [0.1, 0.5, 0.9])
    assert not np.isnan(radius).any() and (radius >= 0).all()


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_dtypes_and_layouts_do_not_matter(method):
    seeded = method.set_params(random_state=0) if "random_state" in method.get_params() else method
    Z_int, new_int = (10 * Z).astype(int), (10 * NEW).astype(int)
    expected = seeded.fit(Z_int.astype(float), SCORES).predict_radius(new_int.astype(float))
    for Zs, new in [
        (Z_int, new_int),
        (Z_int.astype(np.float32), new_int.astype(np.float32)),
        (np.asfortranarray(Z_int), np.asfortranarray(new_int)),
        (np.repeat(Z_int, 2, axis=1)[:, ::2], new_int[::-1][::-1]),
        (Z_int.tolist(), new_int.tolist()),
    ]:
        np.testing.assert_array_equal(seeded.fit(Zs, SCORES).predict_radius(new), expected)
    column = seeded.fit(Z_int, SCORES[:, None]).predict_radius(new_int)
    np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_one_column_and_one_row(method):
    radius = method.fit(Z[:, :1], SCORES).predict_radius(NEW[:1, :1])
    assert radius.shape == (1,)


def test_split_takes_negative_scores():
    radius = Split().fit(Z, SCORES - 5).predict_radius(NEW)
    np.testing.assert_allclose(radius, Split().fit(Z, SCORES).predict_radius(NEW) - 5)


def test_median_length_scale_comes_from_training_inputs():
    method = FullRescaled(RBF("median")).fit(Z, SCORES, training=Z[::2])
    by_hand = np.median([np.linalg.norm(a - b) for i, a in enumerate(Z[::2]) for b in Z[::2][:i]])
    assert method.kernel_.length_scale == pytest.approx(by_hand)
    with pytest.raises(CalliperError, match="median distance between training inputs is 0"):
        FullRescaled(RBF("median")).fit(Z, SCORES, training=np.ones((5, 2)))


def test_mad_split_takes_any_regressor_and_counts_its_negative_scales():
    flat = fit_mad(MADSplit(DummyRegressor()))
    np.testing.assert_allclose(flat.predict_radius(NEW), Split().fit(Z, SCORES).predict_radius(NEW))
    with pytest.warns(ZeroScaleWarning):
        steep = MADSplit(LinearRegression())
        steep.fit(Z, SCORES, training=(Z, np.maximum(5 * Z[:, 0], 0)))
    assert not np.isnan(steep.predict_radius(NEW)).any()
    with pytest.raises(CalliperError, match="Z of training has 1 columns, Z has 2"):
        MADSplit().fit(Z, SCORES, training=(Z[:, :1], SCORES))


def test_fitting_again_forgets():
    method = FullRescaled(random_state=0).fit(Z, SCORES)
    method.predict_radius(NEW)
    again = method.fit(Z[:30, :1], SCORES[:30]).predict_radius(NEW[:, :1])
    fresh = FullRescaled(random_state=0).fit(Z[:30, :1], SCORES[:30]).predict_radius(NEW[:, :1])
    np.testing.assert_array_equal(again, fresh)


@pytest.mark.parametrize(
    "metric", ["cityblock", "chebyshev", "cosine", lambda a, b: abs(a - b).max()]
)
def test_other_metrics(metric):
    for kernel in (KNN(5, metric=metric), RBF(0.7, metric=metric)):
        for method in (JackknifeRescaled(kernel), FullRescaled(kernel)):
            assert np.isfinite(method.fit(Z, SCORES).predict_radius(NEW)).all()
    chebyshev = FullRescaled(KNN(5, metric="chebyshev")).fit(Z, SCORES).predict_radius(NEW)
    by_hand = FullRescaled(KNN(5, metric=lambda a, b: abs(a - b).max())).fit(Z, SCORES)
    np.testing.assert_allclose(by_hand.predict_radius(NEW), chebyshev)


@pytest.mark.parametrize("method", [JackknifeRescaled(), FullRescaled()], ids=repr)
def test_identical_inputs_everywhere(method):
    """Nothing to tell points apart: neighbours are a random sample, and nothing grows to N × m."""
    Z, new = np.ones((3000, 2)), np.ones((20000, 2))
    scores = rng.exponential(size=3000)
    for seed in range(3):
        radius = method.set_params(random_state=seed).fit(Z, scores).predict_radius(new)
        assert len(np.unique(radius)) == 1 and np.isfinite(radius[0])


@pytest.mark.parametrize("value", [0.1, 1.1, 1.7, 12.34, 2.5])
@pytest.mark.parametrize("method", [*METHODS, JackknifeRescaled(RBF(0.1))], ids=repr)
def test_a_score_that_ties_with_its_threshold_is_covered(method, value):
    """Equal errors everywhere: rounding must not push the radius below them."""
    radius = method.fit(Z, np.full(50, value)).predict_radius(NEW, [0.5, 0.9])
    assert (radius >= value).all() and (radius <= value * (1 + 1e-9)).all()


@pytest.mark.parametrize("size", [1e160, 1e-165, 1e-300])
def test_scores_of_extreme_size(size):
    for method in (FullRescaled(), FullRescaled(statistic="rms"), FullRescaled(RBF(1.0))):
        method.set_params(random_state=0)
        expected = method.fit(Z, SCORES).predict_radius(NEW) * size
        np.testing.assert_allclose(method.fit(Z, SCORES * size).predict_radius(NEW), expected)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_what_was_passed_can_be_changed_afterwards(method):
    Zs, scores = Z.copy(), SCORES.copy()
    expected = method.fit(Zs, scores).predict_radius(NEW)
    Zs[:], scores[:] = 0, 0
    np.testing.assert_array_equal(method.predict_radius(NEW), expected)


def test_parameters_set_after_fit_change_nothing_until_the_next_fit():
    for method, change in (
        (FullRescaled(statistic="rms"), {"statistic": "mean"}),
        (FullRescaled(), {"offset": 5.0}),
        (JackknifeRescaled(), {"offset": 5.0}),
    ):
        expected = method.fit(Z, SCORES).predict_radius(NEW)
        np.testing.assert_array_equal(method.set_params(**change).predict_radius(NEW), expected)
    mad = fit_mad(MADSplit())
    expected = mad.predict_radius(NEW)
    np.testing.assert_array_equal(mad.set_params(offset=5.0).predict_radius(NEW), expected)
