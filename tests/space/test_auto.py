"""What embed="auto" chooses, and that it predicts as the model does."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, Lasso, LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from calliper import ConformalRegressor, QuantileError, Split
from calliper.exceptions import EmbeddingWarning
from calliper.space import fit_embedding

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = 2 * X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=400)
X_TRAIN, X_CAL, X_NEW = X[:150], X[150:300], X[300:]
Y_TRAIN, Y_CAL = Y[:150], Y[150:300]
FOREST = RandomForestRegressor(8, random_state=0).fit(X_TRAIN, Y_TRAIN)

TREES = "prediction and spread of 8 trees"
INPUTS = "3 standardised inputs and prediction"
#: model, space with training rows, space without (the same if None)
CHOICES = [
    (RandomForestRegressor(8), TREES, None),
    (ExtraTreesRegressor(8), TREES, None),
    (
        GradientBoostingRegressor(n_estimators=8),
        "prediction and steps of the last 4 of 8 trees and residuals in their leaves",
        None,
    ),
    (
        HistGradientBoostingRegressor(max_iter=9),
        "prediction and steps of the last 5 of 9 stages",
        None,
    ),
    (
        GaussianProcessRegressor(alpha=1.0),
        "prediction and standard deviation by GaussianProcessRegressor",
        None,
    ),
    (
        BayesianRidge(),
        "prediction and standard deviation by BayesianRidge",
        "contributions of inputs, and prediction",
    ),
    (LinearRegression(), INPUTS, "contributions of inputs, and prediction"),
    (Lasso(0.5), INPUTS, "contributions of inputs, and prediction"),
    (SVR(), INPUTS, "prediction"),
    (DecisionTreeRegressor(), INPUTS, "prediction"),
    (RandomForestRegressor(1), INPUTS, "prediction"),
    (AdaBoostRegressor(n_estimators=3), INPUTS, "prediction"),
    (StackingRegressor([("a", Ridge())]), INPUTS, "prediction"),
    (make_pipeline(StandardScaler(), RandomForestRegressor(8)), TREES, None),
    (GridSearchCV(RandomForestRegressor(), {"n_estimators": [8]}, cv=2), TREES, None),
    (
        TransformedTargetRegressor(
            make_pipeline(StandardScaler(), RandomForestRegressor(8)), transformer=StandardScaler()
        ),
        TREES,
        None,
    ),
    (
        make_pipeline(StandardScaler(), GridSearchCV(SVR(), {"C": [1.0]}, cv=2)),
        INPUTS,
        "prediction",
    ),
]


@pytest.mark.parametrize(("model", "name", "alone"), CHOICES, ids=lambda case: repr(case)[:40])
def test_choice(model, name, alone):
    model = clone(model)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    model.fit(X_TRAIN, Y_TRAIN)
    places = []
    for X_train, expected in [(X_TRAIN, name), (None, alone or name)]:
        embedding = fit_embedding("auto", X_train, X_CAL, model=model)
        y_pred, Z = embedding.predict_and_transform(X_NEW)
        assert embedding.space.name == expected
        assert repr(embedding).startswith(f"{expected} ({Z.shape[1]} dimension")
        np.testing.assert_allclose(y_pred, model.predict(X_NEW), rtol=1e-10)
        np.testing.assert_array_equal(embedding.transform(X_NEW), Z)
        again = pickle.loads(pickle.dumps(embedding))
        np.testing.assert_array_equal(again.transform(X_NEW), Z)
        places.append(Z)
    if alone is None:  # told by the model alone: the very same places
        np.testing.assert_array_equal(*places)


def test_coordinates():
    """As ``space/_embedding.py`` defines them."""
    Z = fit_embedding("auto", None, X_CAL, model=FOREST).transform(X_NEW)
    each = np.stack([tree.predict(X_NEW) for tree in FOREST.estimators_])
    unit = np.mean([np.sqrt(tree.tree_.impurity[0]) for tree in FOREST.estimators_])
    np.testing.assert_allclose(Z[:, 0], each.mean(axis=0) / unit)
    np.testing.assert_allclose(Z[:, 1], 2 * np.log(each.std(axis=0, ddof=1) / unit + 0.01))

    ridge = Ridge().fit(X_TRAIN, Y_TRAIN)
    Z = fit_embedding("auto", X_TRAIN, X_CAL, model=ridge).transform(X_NEW)
    scaler, trained = StandardScaler().fit(X_TRAIN), ridge.predict(X_TRAIN)
    np.testing.assert_allclose(Z[:, :3], scaler.transform(X_NEW) / np.sqrt(3))
    np.testing.assert_allclose(Z[:, 3], (ridge.predict(X_NEW) - trained.mean()) / trained.std())

    Z = fit_embedding("auto", None, X_CAL, model=ridge).transform(X_NEW)
    np.testing.assert_allclose(Z[:, :3], X_NEW * ridge.coef_)
    np.testing.assert_allclose(Z[:, 3], ridge.predict(X_NEW))


@pytest.mark.parametrize("model", [FOREST, GradientBoostingRegressor(n_estimators=8)], ids=repr)
def test_unit_of_y_does_not_matter(model):
    fits = [clone(model).set_params(random_state=0).fit(X_TRAIN, c * Y_TRAIN) for c in (1, 1024)]
    one, other = (fit_embedding("auto", None, X_CAL, model=fit).transform(X_NEW) for fit in fits)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "wrapped",
    [
        FrozenEstimator(FOREST),
        FOREST.predict,
        ConformalRegressor(FOREST).calibrate(X_CAL, Y_CAL),
        make_pipeline(FOREST),
        make_pipeline("passthrough", FOREST),
    ],
    ids=lambda wrapped: type(wrapped).__name__,
)
def test_wrappers_are_looked_through(wrapped):
    expected = fit_embedding("auto", None, X_CAL, model=FOREST).transform(X_NEW)
    found = fit_embedding("auto", None, X_CAL, model=wrapped)
    assert found.space.name == TREES
    np.testing.assert_array_equal(found.transform(X_NEW), expected)


def test_calibration_rows_teach_nothing():
    """The space is a function of model and training rows: other calibration rows, same places."""
    gaps = np.where(X_CAL > 0.5, np.nan, X_CAL)
    for model in (FOREST, Ridge().fit(X_TRAIN, Y_TRAIN), SVR().fit(X_TRAIN, Y_TRAIN)):
        for X_train in (None, X_TRAIN):
            spaces = [
                fit_embedding("auto", X_train, rows, model=model)
                for rows in (X_CAL, 1000 * X_CAL[:7] + 5, gaps)
            ]
            for space in spaces[1:]:
                assert space.space.name == spaces[0].space.name
                np.testing.assert_array_equal(space.transform(X_NEW), spaces[0].transform(X_NEW))


def test_one_input_is_its_own_space():
    model = Ridge().fit(X_TRAIN[:, :1], Y_TRAIN)
    raw = fit_embedding("auto", None, X_CAL[:, :1], model=model)
    np.testing.assert_array_equal(raw.transform(X_NEW[:, :1]), X_NEW[:, :1])
    scaled = fit_embedding("auto", X_TRAIN[:, :1], X_CAL[:, :1], model=model)
    scaler = StandardScaler().fit(X_TRAIN[:, :1])
    np.testing.assert_allclose(scaled.transform(X_NEW[:, :1]), scaler.transform(X_NEW[:, :1]))


def test_text_and_sparse_rows_are_encoded():
    table = pd.DataFrame({"x": X[:, 0], "city": np.where(X[:, 1] > 0, "Bern", "Basel")})
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    encoded = make_pipeline(encoder, Ridge()).fit(table[:150], Y_TRAIN)
    looked_through = fit_embedding("auto", table[:150], table, model=encoded)
    assert looked_through.space.name == "3 standardised inputs and prediction"

    def predict(rows):
        return encoded.predict(rows)

    found = fit_embedding("auto", table[:150], table, model=predict, y_train=Y_TRAIN)
    assert found.space.name == "2 standardised inputs and prediction"
    assert np.ptp(found.transform(table[150:])[:, 1]) > 0
    cities = table[["city"]]
    sparse_rows = make_pipeline(OneHotEncoder(), Ridge()).fit(cities, Y)
    dense = make_pipeline(OneHotEncoder(sparse_output=False), Ridge()).fit(cities, Y)
    places = [fit_embedding("auto", cities, cities, model=m) for m in (sparse_rows, dense)]
    assert places[0].space.name == "2 standardised inputs and prediction"
    np.testing.assert_allclose(places[0].transform(cities), places[1].transform(cities))


def test_nothing_falls_back_to_the_prediction_without_a_word(recwarn):
    texts = ["Bern", "Basel"] * 75

    def length(rows):
        return np.array([len(row) for row in rows], dtype=float)

    with pytest.warns(EmbeddingWarning, match="prediction alone, since the inputs cannot be"):
        fit_embedding("auto", texts, texts, model=length)
    with pytest.warns(EmbeddingWarning, match="prediction alone, since there are no training"):
        ConformalRegressor(KNeighborsRegressor().fit(X_TRAIN, Y_TRAIN)).calibrate(X_CAL, Y_CAL)
    recwarn.clear()
    ConformalRegressor(length, Split()).calibrate(texts, Y_TRAIN)
    ConformalRegressor(length, embed="prediction").calibrate(texts, Y_TRAIN)
    assert not [w for w in recwarn if "prediction alone" in str(w.message)]


def test_models_of_quantiles():
    class Pair(RegressorMixin):
        def predict(self, X):
            return X[:, :1] + [-1.0, 1.0]

    space = fit_embedding("auto", X_TRAIN, X_CAL, model=Pair(), n_outputs=2)
    assert space.transform(X_CAL).shape == (len(X_CAL), 5)
    assert repr(space) == "3 standardised inputs and prediction (5 dimensions)"
    model = ConformalRegressor(Pair(), Split(), score_function=QuantileError())
    model.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN)  # a method that judges no nearness
    assert repr(model.embedding_) == "prediction (2 dimensions)"


class Counting:
    """A model that counts the rows that it is asked for."""

    def __init__(self, model):
        self.model, self.rows = model, 0

    def __call__(self, X):
        self.rows += len(X)
        return self.model.predict(X)


@pytest.mark.parametrize("embed", ["auto", "prediction", "inputs", lambda X: X[:, :1]])
def test_each_row_is_predicted_once(embed):
    counting = Counting(FOREST)
    model = ConformalRegressor(counting, embed=embed).calibrate(X_CAL, Y_CAL)
    assert len(X_CAL) <= counting.rows <= len(X_CAL) + 25  # some are seen again, to compare
    counting.rows = 0
    model.predict_interval(X_NEW)
    assert counting.rows == len(X_NEW)


def test_forests_are_passed_through_once(monkeypatch):
    model = ConformalRegressor(FOREST).calibrate(X_CAL, Y_CAL)
    expected = model.predict_interval(X_NEW)
    monkeypatch.setattr(RandomForestRegressor, "predict", None)
    found = model.predict_interval(X_NEW)
    np.testing.assert_array_equal(found.lower, expected.lower)


def test_one_column_of_integers_is_one_input_in_arrays_and_tensors_alike():
    torch = pytest.importorskip("torch")
    for rows in (np.arange(40)[:, None], torch.arange(40)[:, None]):
        space = fit_embedding("auto", None, rows, model=lambda rows: np.zeros(len(rows)))
        assert space.space.name == "the one input"
        np.testing.assert_array_equal(space.transform(rows)[:, 0], np.arange(40.0))
