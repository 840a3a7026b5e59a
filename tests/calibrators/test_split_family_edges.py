"""SLCP, NormalizedKNN, RCP and LoCart: awkward input has an answer or a clear error."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor

from calliper import KNN, RBF, CalliperError
from calliper.calibrators import RCP, SLCP, LoCart, NormalizedKNN
from calliper.exceptions import SmallCalibrationWarning, ZeroScaleWarning
from cases.split_family import (
    LEVELS,
    NEW,
    SCORES,
    SPLIT,
    TRAIN,
    Y_TRAIN,
    Z_TRAIN,
    Z,
    each_method,
    fit,
    quiet,
)

rng = np.random.default_rng(1)


@each_method
@quiet
def test_training_data_is_required(method):
    with pytest.raises(CalliperError, match=r"pass training.*ConformalRegressor\.calibrate"):
        method.fit(Z, SCORES)


@pytest.mark.parametrize(
    ("difficulty", "given"),
    [
        ("labels", (Z_TRAIN, np.abs(Y_TRAIN))),
        ("residuals", (Z_TRAIN, None, Y_TRAIN)),
        ("distance+labels", (Z_TRAIN, np.abs(Y_TRAIN))),
    ],
)
def test_each_difficulty_says_what_it_needs(difficulty, given):
    method = NormalizedKNN(difficulty=difficulty)
    shape = r"\(Z, scores\)" if difficulty == "residuals" else r"\(Z, None, targets\)"
    with pytest.raises(CalliperError, match=f"from training .*: pass training={shape}"):
        method.fit(Z, SCORES, training=given)
    NormalizedKNN().fit(Z, SCORES, training=Z_TRAIN)  # distances need inputs alone


@each_method
@quiet
@pytest.mark.parametrize(
    ("train", "message"),
    [
        (Z_TRAIN[:, :1], "Z of training has 1 columns, Z has 2"),
        (np.where(Z_TRAIN == Z_TRAIN[3, 1], np.nan, Z_TRAIN), "contains NaN"),
        (Z_TRAIN[:, 0], "must be a table with columns"),
    ],
)
def test_bad_training_inputs(method, train, message):
    with pytest.raises(ValueError, match=message):
        fit(method, train={"training": (train, TRAIN["training"][1])})


@pytest.mark.parametrize(
    "method",
    [SLCP(), RCP(kernel=KNN(5)), LoCart(), NormalizedKNN(difficulty="residuals")],
    ids=repr,
)
def test_bad_training_errors(method):
    with pytest.raises(
        CalliperError, match=r"scores of training must .* got 79 values for 80 rows"
    ):
        fit(method, train={"training": (Z_TRAIN, TRAIN["training"][1][:-1])})
    with pytest.raises(CalliperError, match="scores of training must be finite"):
        fit(method, train={"training": (Z_TRAIN, np.full(80, np.nan))})


@each_method
@quiet
def test_bad_calibration_data_and_new_rows(method):
    with pytest.raises(CalliperError, match=r"NaN or infinite .nan at position 49"):
        fit(method, scores=np.r_[SCORES[:-1], np.nan])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit(method, scores=SCORES[:-1])
    with pytest.raises(ValueError, match="2 features"):
        fit(method).predict_radius(NEW[:, :1])
    with pytest.raises(ValueError, match="contains NaN"):
        fit(method).predict_radius(np.full((1, 2), np.nan))
    with pytest.raises(CalliperError, match="divide by 100"):
        fit(method).predict_radius(NEW, 90)
    if isinstance(method, (RCP, NormalizedKNN)):
        with pytest.raises(CalliperError, match="scores must not be negative"):
            fit(method, scores=SCORES - 5)
    else:
        assert np.isfinite(fit(method, scores=SCORES - 5).predict_radius(NEW, 0.5)).all()


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        (SLCP("knn"), TypeError, "kernel must be KNN"),
        (SLCP(RBF(0.0)), ValueError, "positive, finite number; got 0.0"),
        (SLCP(KNN(0)), ValueError, "integer of at least 1; got 0"),
        (NormalizedKNN(0), ValueError, "integer of at least 1; got 0"),
        (NormalizedKNN(difficulty="hard"), ValueError, "difficulty must be"),
        (NormalizedKNN(form="product"), ValueError, "'sum' or 'exp'; got 'product'"),
        (NormalizedKNN(gamma=-1), ValueError, "gamma must be a number from 0 to 1e.302; got -1"),
        (NormalizedKNN(rho=np.inf), ValueError, "rho must be a number from 0 to 1e.302; got inf"),
        (NormalizedKNN(gamma=0), ValueError, "gamma must be > 0 if form='sum'"),
        (RCP(LinearRegression()), TypeError, "parameter quantile and predict"),
        (RCP(HistGradientBoostingRegressor()), TypeError, "loss='quantile'"),
        (RCP(print), TypeError, "parameter quantile and predict"),
        (RCP(QuantileRegressor(), kernel=KNN(5)), ValueError, "not both"),
        (RCP(kernel=RBF(1.0)), TypeError, "kernel must be KNN"),
        (RCP(offset=-1), ValueError, "offset must be"),
        (LoCart(min_leaf=0), ValueError, "min_leaf must be an integer of at least 1; got 0"),
        (LoCart(max_leaves=2.5), ValueError, "max_leaves must be an integer of at least 1"),
    ],
    ids=repr,
)
def test_bad_parameters(method, error, message):
    with pytest.raises(error, match=message):
        fit(method)


def test_too_few_training_points():
    few = {"training": (Z_TRAIN[:3], TRAIN["training"][1][:3])}
    for method in (SLCP(KNN(5)), RCP(kernel=KNN(5)), NormalizedKNN(5)):
        with pytest.warns(SmallCalibrationWarning, match="5 neighbours were requested"):
            fit(method, train=few, y_train=Y_TRAIN[:3])
        assert np.isfinite(method.predict_radius(NEW)).all()
    with pytest.raises(CalliperError, match="at least 2 training rows; got 1"):
        NormalizedKNN(1).fit(Z, SCORES, training=Z_TRAIN[:1])


@pytest.mark.parametrize("method", [SLCP(), NormalizedKNN(), RCP(kernel=KNN(5))], ids=repr)
def test_too_few_calibration_points_give_infinity_and_one_warning(method):
    fitted = fit(method, Z[:18], SCORES[:18])
    with pytest.warns(SmallCalibrationWarning, match="18 calibration rows") as caught:
        radius = fitted.predict_radius(NEW, [0.5, 0.95, 0.99])
    assert len(caught) == 1
    assert np.isfinite(radius[:, 0]).all() and np.isinf(radius[:, 1:]).all()
    assert fitted.guaranteed_coverage(0.95) == 1.0


def test_a_leaf_too_small_for_the_level():
    z_train = np.linspace(0, 1, 100)[:, None]
    train = {"training": (z_train, np.where(z_train[:, 0] < 0.5, 1.0, 5.0))}
    z = np.r_[np.full(4, 0.2), np.full(30, 0.8)][:, None]
    method = LoCart(min_leaf=30).fit(z, np.arange(34.0), **train)
    assert method.leaf_sizes_.tolist() == [4, 30]
    with pytest.warns(
        SmallCalibrationWarning, match="1 of 2 leaves hold fewer than the 9"
    ) as caught:
        radius = method.predict_radius([[0.1], [0.9]], [0.5, 0.9])
    assert len(caught) == 1
    np.testing.assert_array_equal(radius, [[2.0, np.inf], [19.0, 31.0]])
    assert method.guaranteed_coverage(0.9) == pytest.approx(28 / 31)
    assert method.guaranteed_coverage([0.5, 0.9]) == pytest.approx([16 / 31, 28 / 31])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.predict_radius([[0.1], [0.9]], [0.5, 0.8])


def test_default_leaves_expect_enough_calibration_points():
    z_train, z = rng.uniform(size=(2000, 1)), rng.uniform(size=(500, 1))
    train = {"training": (z_train, z_train[:, 0] * rng.exponential(size=2000))}
    sizes = [LoCart().fit(z, z[:, 0], **train).leaf_sizes_ for _ in range(3)]
    assert all(len(size) > 3 and size.min() >= 19 for size in sizes)
    method = fit(LoCart())  # 50 calibration rows are too few to cut: one leaf
    np.testing.assert_array_equal(method.predict_radius(NEW, LEVELS), SPLIT)


class Steep(BaseEstimator):
    """A quantile regressor that follows one feature below 0."""

    def __init__(self, quantile=0.5, slope=5.0):
        self.quantile, self.slope = quantile, slope

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.slope * X[:, 0]


def test_a_quantile_regressor_that_predicts_negative_values():
    n_zero = np.count_nonzero(Z[:, 0] <= 0)
    method = fit(RCP(Steep()))
    with pytest.warns(ZeroScaleWarning, match=f"zero at {n_zero} of 50 calibration rows"):
        radius = method.predict_radius(NEW, [0.1, 0.9])
    weights = {"weights": np.r_[2.0, np.ones(49)]}
    by_weight = RCP(Steep()).fit(Z, SCORES, training=(Z, SCORES), **weights)
    with pytest.warns(ZeroScaleWarning, match=f"zero at {n_zero} of 50 calibration rows"):
        by_weight.predict_radius(NEW, [0.1, 0.9], weights=np.ones(len(NEW)))
    assert (radius[NEW[:, 0] < 0, 0] == 0).all() and (radius[NEW[:, 0] > 0, 0] > 0).all()
    assert np.isinf(radius[:, 1]).all()  # more than a tenth of the calibration rows
    moved = fit(RCP(Steep(), offset=0.5)).predict_radius(NEW, [0.1, 0.9])
    assert np.isfinite(moved).all() and (moved > 0).all()
    with pytest.raises(CalliperError, match="predicted quantiles must be finite"):
        fit(RCP(Steep(slope=np.nan))).predict_radius(NEW)


def test_far_away_points_never_give_nan():
    far = np.array([[1e140, 0.0], [0.0, 0.0]])
    for form in ("sum", "exp"):
        method = NormalizedKNN(difficulty="distance", form=form)
        radius = method.fit(Z, np.where(SCORES < 1, 0.0, SCORES), training=Z_TRAIN)
        assert not np.isnan(radius.predict_radius(far, LEVELS)).any()
        with_far = method.fit(np.vstack([Z, far]), np.r_[SCORES, 1.0, 1.0], training=Z_TRAIN)
        assert not np.isnan(with_far.predict_radius(far, LEVELS)).any()


def test_too_few_points_for_any_leaf_are_told_of_by_leaves():
    method = fit(LoCart(), Z[:5], SCORES[:5] - 9.0)
    with pytest.warns(SmallCalibrationWarning, match="1 of 1 leaves hold fewer than the 9") as told:
        assert np.isinf(method.predict_radius(NEW, [0.9, 0.95])).all()
    assert len(told) == 1 and (method.predict_radius(NEW, 0.5) < 0).all()


def test_two_training_points_are_one_another_s_neighbours():
    method = NormalizedKNN(1).fit(Z, SCORES, training=[[0.0, 0.0], [3.0, 4.0]])
    assert method.units_ == 5
    far, near = method.predict_radius([[0.0, 10.0], [0.0, 0.0]], 0.5)
    assert far / near == pytest.approx((0.5 + np.sqrt(45) / 5) / 0.5, rel=1e-9)


@pytest.mark.parametrize("kernel", ["near", 10, RBF(1.0)], ids=repr)
def test_rcp_takes_neighbours_that_are_counted(kernel):
    with pytest.raises(TypeError, match=r"kernel must be KNN\(\.\.\.\); got"):
        fit(RCP(kernel=kernel))


def test_a_scale_of_zero_at_one_level_of_several_is_told_of():
    """Half of the nearest training errors are zero: their median is, and their largest is not."""
    train = {"training": (np.zeros((10, 2)), np.repeat([0.0, 1.0], 5))}
    for more in ({}, {"weights": np.r_[2.0, np.ones(49)]}):
        method = RCP(kernel=KNN(10)).fit(Z, SCORES, **train, **more)
        new = {"weights": np.ones(len(NEW))} if more else {}
        with pytest.warns(ZeroScaleWarning, match="zero at 50 of 50 calibration rows"):
            method.predict_radius(NEW, [0.4, 0.9], **new)
