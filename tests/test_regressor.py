import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import (
    KNN,
    RBF,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    MultiTargetRegressor,
    QuantileError,
    QuantileModel,
    SignedError,
    Split,
    metrics,
)
from calliper.calibrators import RLCP, MADSplit
from calliper.kernels import ForestProximity

rng = np.random.default_rng(0)
X = rng.uniform(size=(600, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=600)
X_TRAIN, X_CAL, X_NEW = X[:200], X[200:400], X[400:]
Y_TRAIN, Y_CAL, Y_NEW = Y[:200], Y[200:400], Y[400:]
MODEL = LinearRegression().fit(X_TRAIN, Y_TRAIN)


def test_calibrate_equals_the_calibrator_on_arrays():
    model = ConformalRegressor(MODEL, embed="inputs").calibrate(X_CAL, Y_CAL)
    lower, upper = model.predict_interval(X_NEW, 0.95)
    errors = np.abs(Y_CAL - MODEL.predict(X_CAL))
    radius = FullRescaled().fit(X_CAL, errors).predict_radius(X_NEW, 0.95)
    np.testing.assert_allclose(lower, MODEL.predict(X_NEW) - radius, rtol=1e-13)
    np.testing.assert_allclose(upper, MODEL.predict(X_NEW) + radius, rtol=1e-13)


@pytest.mark.parametrize(
    "estimator", [MODEL, FrozenEstimator(MODEL), MODEL.predict, lambda X: MODEL.predict(X)[:, None]]
)
def test_anything_that_predicts_can_be_calibrated(estimator):
    for embed in ("inputs", "prediction"):
        model = ConformalRegressor(MODEL, embed=embed).calibrate(X_CAL, Y_CAL)
        other = ConformalRegressor(estimator, embed=embed).calibrate(X_CAL, Y_CAL)
        np.testing.assert_array_equal(
            other.predict_interval(X_NEW).lower, model.predict_interval(X_NEW).lower
        )


def test_fit_splits_trains_and_calibrates():
    calibrator = FullRescaled(KNN(10))
    model = ConformalRegressor(LinearRegression(), calibrator, embed="inputs", random_state=3)
    model.fit(X, Y)
    X_train, X_cal, y_train, y_cal = train_test_split(X, Y, test_size=0.25, random_state=3)
    np.testing.assert_array_equal(
        model.predict(X_NEW), LinearRegression().fit(X_train, y_train).predict(X_NEW)
    )
    scaler = StandardScaler().fit(X_train)
    errors = np.abs(y_cal - model.predict(X_cal))
    radius = FullRescaled(KNN(10), random_state=3).fit(scaler.transform(X_cal), errors)
    expected = radius.predict_radius(scaler.transform(X_NEW), 0.9)
    lower, upper = model.predict_interval(X_NEW)
    np.testing.assert_allclose((upper - lower) / 2, expected)
    assert model.calibrators_[0].n_calibration_ == 150


def test_fit_leaves_what_was_passed_alone():
    calibrator, estimator = JackknifeRescaled(), LinearRegression()
    ConformalRegressor(estimator, calibrator, random_state=0).fit(X, Y)
    assert not hasattr(calibrator, "scale_") and not hasattr(estimator, "coef_")
    assert calibrator.random_state is None


def test_training_errors_reach_calibrators_that_need_them():
    model = ConformalRegressor(LinearRegression(), MADSplit(), random_state=0).fit(X, Y)
    assert np.ptp(model.predict_interval(X_NEW).width) > 0
    frozen = ConformalRegressor(MODEL, MADSplit(), embed="inputs")
    with pytest.raises(CalliperError, match="X_train and y_train"):
        frozen.calibrate(X_CAL, Y_CAL)
    frozen.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN)
    scaler = StandardScaler().fit(X_TRAIN)
    by_hand = MADSplit().fit(
        scaler.transform(X_CAL),
        np.abs(Y_CAL - MODEL.predict(X_CAL)),
        training=(scaler.transform(X_TRAIN), np.abs(Y_TRAIN - MODEL.predict(X_TRAIN))),
    )
    expected = by_hand.predict_radius(scaler.transform(X_NEW))
    np.testing.assert_allclose(frozen.predict_interval(X_NEW).width, 2 * expected)
    with pytest.raises(CalliperError, match="y_train was given without X_train"):
        frozen.calibrate(X_CAL, Y_CAL, y_train=Y_TRAIN)


def test_median_length_scale_through_the_regressor():
    model = ConformalRegressor(LinearRegression(), FullRescaled(RBF("median"))).fit(X, Y)
    assert model.calibrators_[0].kernel_.length_scale > 0


def test_levels_bounds_and_shapes():
    model = ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL)
    many = model.predict_interval(X_NEW, [0.5, 0.9])
    assert many.lower.shape == (200, 2) and many.coverage == (0.5, 0.9)
    np.testing.assert_array_equal(many.at(0.9).lower, model.predict_interval(X_NEW, 0.9).lower)
    free = model.predict_interval(X_NEW, 0.99)
    low, high = Y_CAL.min(), Y_CAL.max()
    clipped = model.predict_interval(X_NEW, 0.99, bounds=(low, high))
    assert clipped.lower.min() == low and clipped.upper.max() == high
    inside = (Y_NEW >= low) & (Y_NEW <= high)
    np.testing.assert_array_equal(free.contains(Y_NEW)[inside], clipped.contains(Y_NEW)[inside])
    half = model.predict_interval(X_NEW, 0.99, bounds=(low, None))
    np.testing.assert_array_equal(half.upper, free.upper)
    said = f"calibration targets range from {low:.6g} to {high:.6g}"
    for ask in (model.predict_interval, model.predict_distribution):
        with pytest.raises(CalliperError, match=said):
            ask(X_NEW, bounds=(None, 1))
    model.extend(X_NEW, Y_NEW, window=9)
    with pytest.raises(CalliperError, match="calibration targets range from"):
        model.predict_interval(X_NEW, bounds=(Y_NEW[-9:].min(), None))
    for bounds in [(1, 0), (0, 0), 3, (1, 2, 3)]:
        with pytest.raises(CalliperError, match="bounds must be"):
            model.predict_interval(X_NEW, bounds=bounds)


def test_column_vectors_are_never_broadcast():
    with pytest.warns(DataConversionWarning):
        model = ConformalRegressor(lambda X: MODEL.predict(X)[:, None])
        model.calibrate(X_CAL, Y_CAL[:, None])
    assert model.calibrators_[0].n_calibration_ == 200
    assert model.predict(X_NEW).shape == (200,)


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda X: np.zeros((len(X), 2)), "predictions must have one value for each row"),
        (lambda X: np.zeros(3), "predictions must .* got 3 values for 200 rows"),
        (lambda X: np.full(len(X), np.nan), "predictions must be finite, but 200 of 200"),
    ],
)
def test_bad_predictions(predict, message):
    with pytest.raises(CalliperError, match=message):
        ConformalRegressor(predict).calibrate(X_CAL, Y_CAL)


def test_bad_calls():
    with pytest.raises(NotFittedError):
        ConformalRegressor(MODEL).predict_interval(X_NEW)
    with pytest.raises(TypeError, match="use calibrate"):
        ConformalRegressor(MODEL.predict).fit(X, Y)
    with pytest.raises(TypeError, match="must have a predict method or be a function"):
        ConformalRegressor(7).calibrate(X_CAL, Y_CAL)
    pair, score = {0.05: MODEL, 0.95: MODEL}, QuantileError()
    with pytest.raises(TypeError, match=r"}: pass QuantileModel\({…}, \[0\.05, 0\.95\]\)"):
        ConformalRegressor(pair, Split(), score_function=score).calibrate(X_CAL, Y_CAL)
    pair = QuantileModel(pair, [0.05, 0.95])
    ConformalRegressor(pair, Split(), score_function=score).calibrate(X_CAL, Y_CAL)
    with pytest.raises(NotFittedError):
        ConformalRegressor(LinearRegression()).calibrate(X_CAL, Y_CAL)
    with pytest.raises(CalliperError, match="y must be finite, but 1 of 200"):
        ConformalRegressor(MODEL).calibrate(X_CAL, np.r_[np.nan, Y_CAL[1:]])
    with pytest.raises(ValueError, match="got 200 rows and 199 values"):
        ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL[:-1])
    model = ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL)
    with pytest.raises(ValueError, match="1 features"):
        model.predict_interval(X_NEW[:, :1])
    with pytest.raises(CalliperError, match="strictly between"):
        model.predict_interval(X_NEW, 1.5)


@pytest.mark.parametrize("side", ["lower", "upper", "both"])
@pytest.mark.parametrize("calibrator", [Split(), JackknifeRescaled(), FullRescaled()], ids=repr)
def test_signed_errors(side, calibrator):
    model = ConformalRegressor(MODEL, calibrator, score_function=SignedError(side))
    intervals = model.calibrate(X_CAL, Y_CAL).predict_interval(X_NEW, [0.8, 0.9])
    centre = MODEL.predict(X_NEW)[:, None]
    if side == "lower":
        assert np.isinf(intervals.upper).all() and (intervals.lower <= centre).all()
    if side == "upper":
        assert np.isinf(intervals.lower).all() and (intervals.upper >= centre).all()
    assert intervals.contains(Y_NEW).mean(axis=0) == pytest.approx([0.8, 0.9], abs=0.1)
    if side == "both":
        assert len(model.calibrators_) == 2
        per_tail = model.calibrators_[0].guaranteed_coverage([0.9, 0.95])
        np.testing.assert_allclose(model.guaranteed_coverage([0.8, 0.9]), 1 - 2 * (1 - per_tail))
    with pytest.raises(ValueError, match="side must be"):
        ConformalRegressor(MODEL, score_function=SignedError("left")).calibrate(X_CAL, Y_CAL)


def test_two_radii_follow_a_skewed_error():
    skewed = rng.exponential(size=2000)
    X, model = np.zeros((2000, 1)) + rng.uniform(size=(2000, 1)), lambda X: np.zeros(len(X))
    intervals = (
        ConformalRegressor(model, Split(), score_function=SignedError())
        .calibrate(X, skewed)
        .predict_interval(X[:5], 0.9)
    )
    np.testing.assert_array_equal(intervals.lower, 0)
    assert intervals.upper[0] == pytest.approx(-np.log(0.05), rel=0.15)


def test_guarantee_in_words():
    model = ConformalRegressor(MODEL).calibrate(X_CAL, Y_CAL)
    words = model.guarantee(0.9).describe()
    assert "FullRescaled" in words and "at least 0.9004" in words and "marginal" in words
    both = ConformalRegressor(MODEL, score_function=SignedError()).calibrate(X_CAL, Y_CAL)
    assert "requested: 0.9" in both.guarantee(0.9).describe()


def test_clone_params_pickle():
    model = ConformalRegressor(Ridge(), FullRescaled(KNN(7)), random_state=1)
    copy = clone(model).set_params(calibrator__kernel__n_neighbors=3, estimator__alpha=2.0)
    assert copy.calibrator.kernel.n_neighbors == 3 and model.calibrator.kernel.n_neighbors == 7
    model.fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict_interval(X_NEW).lower, model.predict_interval(X_NEW).lower
    )


def test_grid_search_and_pipelines():
    search = GridSearchCV(
        ConformalRegressor(
            make_pipeline(StandardScaler(), Ridge()), FullRescaled(), random_state=0
        ),
        {"calibrator__kernel": [KNN(2), KNN(10), KNN(30)], "estimator__ridge__alpha": [0.1, 1.0]},
        scoring=metrics.interval_scorer(0.9),
        cv=3,
    ).fit(X, Y)
    assert search.best_params_["calibrator__kernel"].n_neighbors > 2
    assert search.best_estimator_.score(X, Y) > 0
    assert search.predict(X_NEW).shape == (200,)
    last = make_pipeline(StandardScaler(), ConformalRegressor(Ridge(), random_state=0)).fit(X, Y)
    assert last.predict(X_NEW).shape == (200,)
    assert cross_val_predict(ConformalRegressor(Ridge()), X, Y, cv=3).shape == (600,)


def frame(kind, columns=("a", "b")):
    data = dict(zip(columns, X.T, strict=True))
    return pd.DataFrame(data, index=[f"row {i}" for i in range(600)]) if kind == "pandas" else (
        pl.DataFrame(data)
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames(kind):
    table = frame(kind)
    y = pd.Series(Y) if kind == "pandas" else pl.Series(Y)
    model = ConformalRegressor(RandomForestRegressor(10, random_state=0), random_state=0)
    model.fit(table, y)
    assert list(model.feature_names_in_) == ["a", "b"]
    intervals = model.predict_interval(table[400:], 0.9)
    plain = clone(model).fit(X, Y).predict_interval(X_NEW, 0.9)
    np.testing.assert_array_equal(intervals.lower, plain.lower)
    out = intervals.to_frame()
    assert list(out.columns) == ["lower", "upper"]
    if kind == "pandas":
        assert list(out.index[:2]) == ["row 400", "row 401"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict_interval(frame(kind, ("a", "c")))


@pytest.mark.parametrize("embed", ["auto", "inputs", None, "prediction"])
def test_plain_split_takes_inputs_with_text(embed):
    """It judges no nearness, so that no place is needed."""
    table = pd.DataFrame({"x": X[:, 0], "city": np.where(X[:, 1] > 0.5, "Bern", "Basel")})

    def predict(rows):
        return rows["x"].to_numpy() + (rows["city"] == "Bern")

    calibrated = ConformalRegressor(predict, Split(), embed=embed)
    for training in ({}, {"X_train": table[:200], "y_train": Y_TRAIN}):
        calibrated.calibrate(table[200:400], Y_CAL, **training)
        found = calibrated.predict_interval(table[400:], 0.9)
        errors = np.abs(Y_CAL - predict(table[200:400]))
        radius = Split().fit(X_CAL, errors).predict_radius(X_NEW, 0.9)
        np.testing.assert_allclose(found.width, 2 * radius)
    if embed in ("inputs", None):
        with pytest.raises(CalliperError, match="distances need numbers"):
            ConformalRegressor(predict, embed=embed).calibrate(table[200:400], Y_CAL)


def test_parameters_of_the_default_calibrator():
    model = ConformalRegressor(Ridge(), random_state=0)
    names = {f"calibrator__{name}" for name in FullRescaled().get_params()}
    assert names <= set(model.get_params()) and not names & set(model.get_params(deep=False))
    copy = clone(model).set_params(calibrator__kernel=KNN(3), estimator__alpha=2.0)
    assert copy.calibrator.kernel.n_neighbors == 3 and copy.estimator.alpha == 2
    assert model.calibrator is None and repr(model) == (
        "ConformalRegressor(estimator=Ridge(), random_state=0)"
    )
    copy.set_params(calibrator__kernel__n_neighbors=5)
    explicit = ConformalRegressor(Ridge(alpha=2.0), FullRescaled(KNN(5)), random_state=0)
    np.testing.assert_array_equal(
        copy.fit(X, Y).predict_interval(X_NEW).lower,
        explicit.fit(X, Y).predict_interval(X_NEW).lower,
    )
    assert copy.set_params(calibrator=None, calibrator__offset=1.0).calibrator.kernel is None
    assert model.set_params(**model.get_params(deep=False)).calibrator is None
    with pytest.raises(ValueError, match="'neighbours'"):
        model.set_params(calibrator__neighbours=3)
    search = GridSearchCV(
        ConformalRegressor(Ridge(), random_state=0),
        {"calibrator__kernel": [KNN(2), KNN(30)]},
        scoring=metrics.interval_scorer(0.9),
        cv=3,
    ).fit(X, Y)
    assert search.best_estimator_.calibrator.kernel.n_neighbors == 30


def test_nothing_that_is_shared_is_seeded():
    forest = RandomForestRegressor(5).fit(X_TRAIN, Y_TRAIN)
    calibrator = FullRescaled(ForestProximity(forest))
    model = ConformalRegressor(MODEL, calibrator, random_state=3).calibrate(X_CAL, Y_CAL)
    assert model.calibrators_[0].random_state == 3
    assert forest.random_state is None and calibrator.random_state is None


def test_a_generator_is_copied_and_not_used_up():
    generator = np.random.RandomState(3)
    model = ConformalRegressor(MODEL, RLCP(), random_state=generator)
    given = {"X_train": X_TRAIN, "y_train": Y_TRAIN}
    first, second = (
        model.calibrate(X_CAL, Y_CAL, **given).predict_interval(X_CAL[:9]) for _ in range(2)
    )
    np.testing.assert_array_equal(first.width, second.width)
    assert generator.rand() == np.random.RandomState(3).rand()


def test_a_wrong_argument_is_named():
    """Whatever class the method was written in."""
    model = ConformalRegressor(LinearRegression().fit(X_CAL, Y_CAL), Split(), embed="inputs")
    with pytest.raises(TypeError, match=r"calibrate\(\) got an unexpected key"):
        model.calibrate(X_CAL, Y_CAL, rows=3)
    with pytest.raises(TypeError, match=r"calibrate\(\) takes from 2 to 3 positional"):
        model.calibrate(X_CAL, Y_CAL, X_CAL)
    with pytest.raises(TypeError, match=r"predict_interval\(\) got an unexpec"):
        model.predict_interval(X_CAL, level_of=0.9)
    with pytest.raises(TypeError, match=r"guarantee\(\) got an unexpected"):
        model.guarantee(rows=3)
    several = MultiTargetRegressor(LinearRegression())
    with pytest.raises(TypeError, match=r"extend\(\) missing 1 required"):
        several.extend(X_CAL)
