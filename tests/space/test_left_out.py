"""Training rows by models that have not seen them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

from calliper import CalliperError, ConformalRegressor
from calliper.exceptions import EmbeddingWarning, UnusedWarning
from calliper.space import fit_embedding
from cases.left_out import left_out

rng = np.random.default_rng(0)
X = rng.normal(size=(260, 3))
Y = 2 * X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=260)
X_TRAIN, X_CAL = X[:160], X[160:]
Y_TRAIN, Y_CAL = Y[:160], Y[160:]

BAGGED = {
    "forest": RandomForestRegressor(30, oob_score=True, random_state=0),
    "a part of the rows": RandomForestRegressor(
        30, max_samples=0.4, oob_score=True, random_state=0
    ),
    "medians": RandomForestRegressor(
        15, criterion="absolute_error", min_samples_leaf=4, oob_score=True, random_state=0
    ),
    "extra trees": ExtraTreesRegressor(30, bootstrap=True, oob_score=True, random_state=0),
    "bagging": BaggingRegressor(n_estimators=30, oob_score=True, random_state=0),
    "bagging, some inputs": BaggingRegressor(
        n_estimators=30, max_features=2, oob_score=True, random_state=0
    ),
}


def embedded(model, X_train=X_TRAIN):
    return fit_embedding("auto", X_train, X_CAL, model=model)


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@pytest.mark.parametrize("name", BAGGED)
def test_targets_that_the_trees_were_not_grown_on_tell_nothing(name):
    """Weights and rounded targets are no reason for doubt."""
    model = clone(BAGGED[name]).fit(X_TRAIN, Y_TRAIN, sample_weight=1 + np.arange(160) % 3)
    for known in (Y_TRAIN, Y_TRAIN.round(2)):
        assert left_out(embedded(model), X_TRAIN, known, n_folds=0) is not None
    for others in (Y_TRAIN[::-1], -Y_TRAIN, 100 * Y_TRAIN, Y_TRAIN + 50):
        assert left_out(embedded(model), X_TRAIN, others, n_folds=0) is None


def test_targets_of_other_rows_are_pointed_out():
    calibrated = ConformalRegressor(clone(BAGGED["forest"]).fit(X_TRAIN, Y_TRAIN))
    with pytest.warns(UnusedWarning, match="not its training rows"):
        calibrated.calibrate(X_CAL, Y_CAL, X_train=X_TRAIN, y_train=Y_TRAIN[::-1])


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@pytest.mark.parametrize("name", BAGGED)
def test_out_of_bag(name):
    model = BAGGED[name].fit(X_TRAIN, Y_TRAIN)
    embedding = embedded(model)
    found = left_out(embedding, X_TRAIN, Y_TRAIN, n_folds=0)
    assert found.source == "out of bag"
    np.testing.assert_allclose(found.y_pred, model.oob_prediction_[found.numbers], rtol=1e-10)
    columns = getattr(model, "estimators_features_", [[0, 1, 2]] * len(model.estimators_))
    samples, unit = model.estimators_samples_, embedding.space.unit
    for row, place in zip(found.numbers[:40], found.Z[:40], strict=True):
        strangers = [
            tree.predict(X_TRAIN[[row]][:, c])[0]
            for tree, seen, c in zip(model.estimators_, samples, columns, strict=True)
            if row not in seen
        ]
        spread = np.std(strangers, ddof=1) / unit
        np.testing.assert_allclose(
            place, [np.mean(strangers) / unit, 2 * np.log(spread + 0.01)], rtol=1e-6
        )


def test_rows_in_every_bag_are_counted():
    model = RandomForestRegressor(4, random_state=0).fit(X_TRAIN, Y_TRAIN)
    found = left_out(embedded(model), X_TRAIN, Y_TRAIN)
    strangers = np.zeros(160, int)
    for seen in model.estimators_samples_:
        strangers += ~np.isin(np.arange(160), seen)
    np.testing.assert_array_equal(found.numbers, np.flatnonzero(strangers >= 2))
    missing = 160 - len(found.numbers)
    assert 0 < missing < 160
    assert f"{160 - missing} of 160 training rows" in repr(found)
    assert f"{missing} were in all bags, or all but one" in repr(found)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda forest: make_pipeline(StandardScaler(), forest),
        lambda forest: TransformedTargetRegressor(
            forest, func=lambda y: 2 * y, inverse_func=lambda y: y / 2
        ),
        lambda forest: GridSearchCV(forest, {"max_depth": [None]}, cv=2),
    ],
)
def test_bags_are_found_inside(wrap):
    forest = RandomForestRegressor(20, random_state=0)
    bare = left_out(embedded(clone(forest).fit(X_TRAIN, Y_TRAIN)), X_TRAIN, Y_TRAIN)
    model = wrap(forest).fit(X_TRAIN, Y_TRAIN)
    found = left_out(embedded(model), X_TRAIN, Y_TRAIN)
    assert found.source == "out of bag"
    np.testing.assert_allclose(found.y_pred, bare.y_pred, rtol=1e-6)


@pytest.mark.parametrize(
    ("X_other", "y_other"),
    [(X_TRAIN[::-1], Y_TRAIN[::-1]), (X_CAL, Y_CAL), (X[1:161], Y[1:161])],
    ids=["another order", "fewer", "shifted"],
)
def test_rows_that_the_trees_were_not_grown_on_are_found_out(X_other, y_other):
    model = RandomForestRegressor(9, random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert left_out(embedded(model), X_other, y_other, n_folds=0) is None
    assert left_out(embedded(model), X_other, y_other, n_folds=3).source == "3 folds"


@pytest.mark.parametrize(
    "model",
    [
        SVR(),
        Ridge(),
        make_pipeline(StandardScaler(), SVR()),
        GradientBoostingRegressor(n_estimators=6, random_state=0),
        ExtraTreesRegressor(5, random_state=0),
    ],
    ids=repr,
)
def test_out_of_fold(model):
    model = clone(model).fit(X_TRAIN, Y_TRAIN)
    embedding = embedded(model)
    found = left_out(embedding, X_TRAIN, Y_TRAIN, n_folds=4, random_state=1)
    assert repr(found) == "LeftOut(160 of 160 training rows, 4 folds)"
    np.testing.assert_array_equal(found.numbers, np.arange(160))
    for others, fold in KFold(4, shuffle=True, random_state=1).split(X_TRAIN):
        clone_ = clone(model).fit(X_TRAIN[others], Y_TRAIN[others])
        np.testing.assert_allclose(found.y_pred[fold], clone_.predict(X_TRAIN[fold]), rtol=1e-10)
        if hasattr(embedding.space, "unit"):  # in the unit of the model that has seen all rows
            unit = embedding.space.unit
            np.testing.assert_allclose(found.Z[fold, 0], clone_.predict(X_TRAIN[fold]) / unit)


def test_nothing_can_be_left_out_by_a_function_or_without_refits():
    model = SVR().fit(X_TRAIN, Y_TRAIN)
    assert left_out(embedded(model), X_TRAIN, Y_TRAIN, n_folds=0) is None
    assert left_out(embedded(lambda X: X[:, 0]), X_TRAIN, Y_TRAIN) is None
    assert left_out(embedded(model), X_TRAIN[:3], Y_TRAIN[:3], n_folds=9).source == "3 folds"


@pytest.mark.parametrize("folds", [1, -3, 2.5, True, "3"])
@pytest.mark.parametrize("model", [RandomForestRegressor(3), Ridge()], ids=repr)
def test_bad_number_of_folds(folds, model):
    method = ConformalRegressor(model, refits=folds)
    for call in (method.fit, method.calibrate):
        with pytest.raises(CalliperError, match=r"refits must be None, 0 .*; got"):
            call(X, Y)


@pytest.mark.filterwarnings("ignore:The space")  # of two calibration rows
def test_a_refit_that_fails_is_pointed_out():
    """A category that one fold alone has; too few rows for as many neighbours."""
    table = pd.DataFrame({"x": X[:, 0], "city": np.where(X[:, 1] > 0, "Bern", "Basel")})
    train, _ = train_test_split(np.arange(260), test_size=0.25, random_state=0)
    table.loc[train[7], "city"] = "Biel"
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    pipeline = ConformalRegressor(make_pipeline(encoder, Ridge()), random_state=0)
    with pytest.warns(EmbeddingWarning, match=r"training Pipeline again.*unknown categories"):
        pipeline.fit(table, Y)
    few = ConformalRegressor(KNeighborsRegressor(5), random_state=0)
    with pytest.warns(EmbeddingWarning, match=r"KNeighborsRegressor again.*Expected n_neighbors"):
        few.fit(X[:8], Y[:8])
    for model in (pipeline, few):
        assert model.left_out_ is None
        assert "expected" not in repr(model.embedding_)


@pytest.mark.parametrize("wrap", [FrozenEstimator, lambda m: make_pipeline(FrozenEstimator(m))])
def test_frozen_models_are_never_trained_again(wrap, monkeypatch):
    model = wrap(Ridge().fit(X_TRAIN, Y_TRAIN))
    monkeypatch.setattr(Ridge, "fit", None)
    fitted = ConformalRegressor(model, refits=5, random_state=0).fit(X, Y)
    assert fitted.left_out_ is None
    training = {"X_train": X_TRAIN, "y_train": Y_TRAIN}
    assert fitted.calibrate(X_CAL, Y_CAL, **training).left_out_ is None
    assert left_out(embedded(model), X_TRAIN, Y_TRAIN) is None
