"""Spaces that the user chooses."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from calliper import KNN, CalliperError, ConformalRegressor, FullRescaled, JackknifeRescaled
from calliper.exceptions import UnscaledFeaturesWarning

rng = np.random.default_rng(0)
X = rng.uniform(size=(600, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=600)
X_TRAIN, X_CAL, X_NEW = X[:200], X[200:400], X[400:]
Y_TRAIN, Y_CAL = Y[:200], Y[200:400]
MODEL = LinearRegression().fit(X_TRAIN, Y_TRAIN)
SCALER = StandardScaler().fit(X_TRAIN)


def first_input(X):
    return np.asarray(X)[:, 0]


@pytest.mark.parametrize(
    ("embed", "with_training", "place", "name"),
    [
        ("inputs", False, lambda X: X, "inputs as they are"),
        (None, False, lambda X: X, "inputs as they are"),
        ("inputs", True, SCALER.transform, "standardised inputs"),
        (None, True, SCALER.transform, "standardised inputs"),
        ("prediction", False, lambda X: MODEL.predict(X)[:, None], "prediction"),
        ("prediction", True, lambda X: MODEL.predict(X)[:, None], "prediction"),
        (first_input, True, lambda X: X[:, :1], "first_input"),
        (PCA(1), True, lambda X: PCA(1).fit(X_TRAIN).transform(X), "PCA"),
        (PCA(1).fit(X_TRAIN), False, lambda X: PCA(1).fit(X_TRAIN).transform(X), "PCA"),
    ],
)
def test_equals_the_calibrator_on_arrays(embed, with_training, place, name):
    calibrator = JackknifeRescaled(KNN(10), random_state=0)
    model = ConformalRegressor(MODEL, calibrator, embed=embed)
    model.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN if with_training else None)
    errors = np.abs(Y_CAL - MODEL.predict(X_CAL))
    radius = clone(calibrator).fit(place(X_CAL), errors).predict_radius(place(X_NEW), 0.95)
    lower, upper = model.predict_interval(X_NEW, 0.95)
    np.testing.assert_allclose(lower, MODEL.predict(X_NEW) - radius, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(upper, MODEL.predict(X_NEW) + radius, rtol=1e-13, atol=1e-14)
    assert model.embedding_.space.name == name
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_interval(X_NEW, 0.95).lower, lower)


@pytest.mark.parametrize(
    "embed", [PCA(1), PCA(1).fit(X_TRAIN), lambda X: np.asarray(X)[:, 0], lambda X: X[:, :1] ** 2]
)
def test_embeddings(embed):
    intervals = ConformalRegressor(LinearRegression(), embed=embed, random_state=0).fit(X, Y)
    assert intervals.calibrators_[0].n_features_in_ == 1
    assert intervals.embedding_.n_dimensions == 1
    assert np.isfinite(intervals.predict_interval(X_NEW).width).all()


def test_embeddings_are_never_fitted_to_calibration_rows():
    with pytest.raises(NotFittedError, match="would break the guarantee"):
        ConformalRegressor(MODEL, embed=PCA(1)).calibrate(X_CAL, Y_CAL)
    fitted = ConformalRegressor(MODEL, embed=PCA(1).fit(X_TRAIN)).calibrate(X_CAL, Y_CAL)
    given = ConformalRegressor(MODEL, embed=PCA(1)).calibrate(X_CAL, Y_CAL, X_train=X_TRAIN)
    np.testing.assert_allclose(fitted.embedding_.transform(X), given.embedding_.transform(X))


def test_raw_inputs_of_unlike_spread_are_pointed_out():
    wide = X_CAL * [1, 1000]
    model = ConformalRegressor(LinearRegression().fit(wide + 0.1, Y_CAL - 0.1), embed="inputs")
    with pytest.warns(UnscaledFeaturesWarning, match=r"from 0\.\d+ to \d+: the widest dominate"):
        model.calibrate(wide, Y_CAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(wide, Y_CAL, X_train=wide + 0.1)
        model.set_params(embed="auto").calibrate(wide, Y_CAL)


def test_text_columns_are_inputs_where_there_are_training_rows():
    table = pd.DataFrame({"x": X[:, 0], "city": np.where(X[:, 1] > 0.5, "Bern", "Basel")})
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, LinearRegression())
    model = pipeline.fit(table, Y)
    with pytest.raises(CalliperError, match="distances need numbers"):
        ConformalRegressor(model, embed="inputs", learning_part=None).calibrate(table, Y)
    for embed in ("auto", "inputs", "prediction", clone(encoder)):
        model = ConformalRegressor(pipeline, embed=embed, refits=2).fit(table, Y)
        assert np.isfinite(model.predict_interval(table).width).all()


def test_inputs_need_not_be_arrays():
    """Molecules as text, with functions that predict and embed."""
    molecules = ["C" * (1 + i % 7) + "O" * (i % 3) for i in range(300)]

    def predict(texts):
        return np.array([len(text) for text in texts], dtype=float)

    def embed(texts):
        return np.array([[text.count("C"), text.count("O")] for text in texts], dtype=float)

    y = predict(molecules) + rng.normal(size=300)
    for space in (embed, "auto"):
        model = ConformalRegressor(predict, embed=space, random_state=0).calibrate(molecules, y)
        width = model.predict_interval(molecules[:5]).width
        np.testing.assert_array_equal(
            model.predict_interval(np.array(molecules[:5], dtype=object)).width, width
        )


@pytest.mark.parametrize("embed", ["auto", "inputs", "prediction"])
@pytest.mark.long
def test_coverage_over_draws(embed):
    """The space is chosen without calibration rows, so coverage is what is proved."""
    local = np.random.default_rng(5)
    forest = RandomForestRegressor(6, min_samples_leaf=5, random_state=0).fit(X_TRAIN, Y_TRAIN)
    covered = []
    for _ in range(80):
        x = local.uniform(size=(249, 2))
        y = x[:, 0] + x[:, 0] * local.normal(size=249)
        calibrator = FullRescaled(KNN(5), random_state=0)
        model = ConformalRegressor(forest, calibrator, embed=embed).calibrate(x[:49], y[:49])
        covered.append(model.predict_interval(x[49:], 0.8).contains(y[49:]).mean())
    error = np.std(covered) / np.sqrt(len(covered))
    assert abs(np.mean(covered) - model.guaranteed_coverage(0.8)) < 4 * error
