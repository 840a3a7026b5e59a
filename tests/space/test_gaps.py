"""Whatever the model predicts has a place: rows with gaps, unseen categories, any index."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from calliper import ConformalRegressor, ErrorModel
from calliper.space import fit_embedding
from cases.left_out import learnt_errors

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = 2 * X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=400)
X_TRAIN, X_CAL, X_NEW = X[:200], X[200:300], X[300:]
Y_TRAIN, Y_CAL = Y[:200], Y[200:300]
GAPS = np.where(rng.uniform(size=X_NEW.shape) < 0.3, np.nan, X_NEW)


def learnt(model, X_train):
    embedding = fit_embedding("auto", X_train, X_CAL, model=model, y_train=Y_TRAIN)
    size = ErrorModel(recentre=False, units=False)
    return learnt_errors(embedding, X_train, Y_TRAIN, size, chosen=True)


@pytest.mark.parametrize(
    "model",
    [
        HistGradientBoostingRegressor(max_iter=8),
        HistGradientBoostingRegressor(max_iter=1),  # has no spread
        RandomForestRegressor(9, random_state=0),
        make_pipeline(SimpleImputer(), Ridge()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("hole", [None, 7])
def test_gaps_do_not_choose(model, hole):
    """Gaps or none in training rows, calibration rows or new rows: always the same coordinates."""
    X_train = X_TRAIN.copy()
    if hole is not None:
        X_train[hole, 2] = np.nan
    found = learnt(model.fit(X_train, Y_TRAIN), X_train)
    assert found.embedding.space.name.endswith("expected error")
    y_pred, Z = found.embedding.predict_and_transform(GAPS)
    np.testing.assert_allclose(y_pred, model.predict(GAPS), rtol=1e-10)
    median = np.nanmedian(X_train[found.rows.numbers], axis=0)
    if not hasattr(model, "steps"):  # whose imputer takes the mean
        whole = np.where(np.isnan(GAPS), median, GAPS)
        space = found.embedding.space
        clues = space.clues(whole, y_pred, Z[:, :-1], None)
        np.testing.assert_array_equal(clues[:, :3], whole)
        size = space.errors.predict(clues).size
        np.testing.assert_array_equal(Z[:, -1], space.coordinate(size))
    for X_known in (None, X_train):
        fitted = ConformalRegressor(model, learning_part=None).calibrate(
            GAPS, Y[300:], X_train=X_known
        )
        assert np.isfinite(fitted.predict_interval(X_CAL).width).all()
        plain = ConformalRegressor(model, learning_part=None).calibrate(
            X_CAL, Y_CAL, X_train=X_known
        )
        assert np.isfinite(plain.predict_interval(GAPS).width).all()
        assert repr(plain.embedding_) == repr(fitted.embedding_)


def test_one_input_with_gaps():
    def predict(rows):
        return np.nan_to_num(rows[:, 0])

    for X_train, place in [(None, 0.0), (X_TRAIN[:, :1], np.median(X_TRAIN[:, 0]))]:
        spaces = [
            ConformalRegressor(predict).calibrate(rows[:, :1], Y[300:], X_train=X_train)
            for rows in (X_NEW, GAPS)
        ]
        assert repr(spaces[0].embedding_) == repr(spaces[1].embedding_)
        found = spaces[0].embedding_.transform(np.array([[np.nan], [place]]))
        assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:The space")  # of constant predictions
@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (pd.DataFrame({"x": X_NEW[:, 0]}), "the one input"),
        (pd.DataFrame({"x": pd.array([1, None] * 50, dtype="Int64")}), "the one input"),
        (pd.DataFrame({"x": ["Bern", "Basel"] * 50}), "prediction"),
        (pd.DataFrame({"x": ["1", "2"] * 50}), "prediction"),
        (X_NEW[:, :1].astype(object), "prediction"),
        (["Bern", "Basel"] * 50, "prediction"),
    ],
)
def test_layout_and_no_value_says_whether_inputs_are_numbers(rows, name):
    fitted = ConformalRegressor(lambda X: np.zeros(len(X))).calibrate(rows, Y[300:])
    assert fitted.embedding_.space.name == name


def test_an_unseen_category_is_a_gap():
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["k"] = pd.Categorical(np.where(X[:, 2] > 0, "1", "2"))
    trees = HistGradientBoostingRegressor(max_iter=8, categorical_features="from_dtype")
    model = ConformalRegressor(trees, random_state=0).fit(frame, Y)
    assert model.embedding_.space.name.endswith("expected error")
    new = frame[:2].copy()
    new["k"] = pd.Categorical(["x", "1"])
    assert np.isfinite(model.predict_interval(new).width).all()


@pytest.mark.parametrize("index", [rng.uniform(0, 100, size=400), np.arange(400.0)[::-1] * 3])
@pytest.mark.parametrize("model", [RandomForestRegressor(9, random_state=0), Ridge()], ids=repr)
def test_rows_go_by_place_and_not_by_label(index, model):
    frame = pd.DataFrame(X, columns=list("abc"), index=index)
    found = ConformalRegressor(model, random_state=0).fit(frame, Y).predict_interval(frame)
    plain = ConformalRegressor(model, random_state=0).fit(X, Y).predict_interval(X)
    np.testing.assert_allclose(found.lower, plain.lower, rtol=1e-10)


def test_a_distant_origin_of_y_changes_nothing():
    """Trees compute in single precision: a prediction of 1e9 + 1 must not look like 1e9."""
    last = []
    for origin in (0.0, 2.0**30):
        fitted = ConformalRegressor(Ridge(), random_state=0).fit(X, Y + origin)
        last.append(fitted.embedding_.transform(X_NEW)[:, -1])
    np.testing.assert_allclose(*last, rtol=1e-5)
