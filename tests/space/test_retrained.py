"""Refits of models that were trained with early stopping or with categories named in fit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import ConformalRegressor
from calliper.exceptions import EmbeddingWarning
from calliper.models import fit_params_of, open_model
from calliper.models._asking import untrained_core
from calliper.space import Training
from calliper.space._left_out import split_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
Y = X[:, 0] + 0.5 * RNG.normal(size=300)
WATCHED, TRAIN, REST = slice(0, 80), slice(80, 220), slice(220, 300)
NAMES = ["xgboost", "lightgbm", "catboost"]


def regressor(name, **settings):
    module = pytest.importorskip(name)
    if name == "xgboost":
        return module.XGBRegressor(
            **{"n_estimators": 300, "max_depth": 2, "learning_rate": 0.1, "n_jobs": 1} | settings
        )
    if name == "lightgbm":
        known = {"n_estimators": 300, "num_leaves": 4, "verbose": -1, "n_jobs": 1}
        return module.LGBMRegressor(**known | settings)
    known = {"iterations": 300, "depth": 2, "verbose": 0, "thread_count": 1}
    return module.CatBoostRegressor(**known | {"allow_writing_files": False} | settings)


def stopping(way):
    """A model that stops early in one of the ways of its library, and what its fit needs."""
    name = way.partition(" ")[0]
    module = pytest.importorskip(name)
    watched = {"eval_set": [(X[WATCHED], Y[WATCHED])]}
    if name == "lightgbm":
        watched = {"eval_X": X[WATCHED], "eval_y": Y[WATCHED]}
    if name == "xgboost":
        watched["verbose"] = False
    settings, told = {
        "xgboost rounds": ({"early_stopping_rounds": 5}, {}),
        "lightgbm rounds": ({"early_stopping_rounds": 5}, {}),
        "lightgbm alias": ({"n_iter_no_change": 5, "num_boost_round": 300}, {}),
        "catboost rounds": ({"early_stopping_rounds": 5}, {}),
        "catboost fit": ({}, {"early_stopping_rounds": 5}),
        "catboost best": ({"use_best_model": True, "od_type": "Iter", "od_wait": 5}, {}),
        "xgboost callback": ({}, {}),
        "lightgbm callback": ({}, {}),
    }[way]
    if way == "xgboost callback":
        settings["callbacks"] = [module.callback.EarlyStopping(rounds=5)]
    if way == "lightgbm callback":
        told["callbacks"] = [module.early_stopping(5, verbose=False)]
    return regressor(name, **settings), watched | told


def n_rounds(model):
    """How many rounds predict by."""
    core = open_model(model).core
    if hasattr(core, "get_booster"):
        best = getattr(core, "best_iteration", None)
        return core.get_booster().num_boosted_rounds() if best is None else best + 1
    return core.n_iter_ if hasattr(core, "booster_") else core.tree_count_


@pytest.fixture
def trained(monkeypatch):
    """Every model that refits have trained, in order; a refit that fails is an error."""
    models, train = [], Training.train

    def kept(self, *given):
        models.append(train(self, *given))
        return models[-1]

    monkeypatch.setattr(Training, "train", kept)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EmbeddingWarning)
        yield models


WAYS = [
    *("xgboost rounds", "xgboost callback", "lightgbm rounds", "lightgbm alias"),
    *("lightgbm callback", "catboost rounds", "catboost fit", "catboost best"),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_fitted_model_is_refitted_for_the_rounds_that_it_settled_on(way, trained):
    model, told = stopping(way)
    model.fit(X[TRAIN], Y[TRAIN], **told)
    settled = n_rounds(model)
    assert 3 < settled < 250
    fitted = ConformalRegressor(model, refits=3, error_model=None, random_state=0)
    fitted.calibrate(X[REST], Y[REST], X_train=X[TRAIN], y_train=Y[TRAIN])
    assert fitted.left_out_.source == "3 folds"
    assert [n_rounds(each) for each in trained] == [settled] * 3
    if way.startswith("catboost"):  # which follows from the rounds if it is left to the library
        rates = {each.get_all_params()["learning_rate"] for each in (model, *trained)}
        assert len(rates) == 1


@pytest.mark.parametrize("way", WAYS)
def test_refits_stop_by_the_eval_set_of_fit(way, trained):
    """As a copy that is trained by hand on the same rows does."""
    model, told = stopping(way)
    fitted = ConformalRegressor(model, error_model=None, random_state=0).fit(X[80:], Y[80:], **told)
    assert fitted.left_out_.source == "5 folds" and len(trained) == 6
    rounds = [n_rounds(each) for each in trained]
    assert 3 < min(rounds) and max(rounds) < 250 and len({*rounds}) > 1
    again, told = stopping(way)
    others = next(fitted_folds())
    rows = TRAINED[others]
    assert n_rounds(again.fit(X[80:][rows], Y[80:][rows], **told)) == rounds[1]


#: The rows that fit trains on, among the 220 that it is given.
TRAINED, _ = split_rows(220, None, size=0.25, shuffle=True, random_state=0)


def fitted_folds():
    training = Training(X=TRAINED, n_refits=5, random_state=0)
    return (others for others, _ in training.folds())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrap", ["pipeline", "target"])
def test_the_booster_is_found_inside(name, wrap, trained):
    model, told = stopping(f"{name} rounds")
    if wrap == "pipeline":
        model = make_pipeline(StandardScaler(), model)
        told = {f"{model.steps[-1][0]}__{key}": value for key, value in told.items()}
    else:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    model.fit(X[TRAIN], Y[TRAIN], **told)
    fitted = ConformalRegressor(model, refits=2, error_model=None, random_state=0)
    fitted.calibrate(X[REST], Y[REST], X_train=X[TRAIN], y_train=Y[TRAIN])
    assert [n_rounds(each) for each in trained] == [n_rounds(model)] * 2


@pytest.mark.parametrize("name", NAMES)
def test_a_model_without_early_stopping_is_trained_as_it_was(name, trained):
    n = {"iterations" if name == "catboost" else "n_estimators": 40}
    model = regressor(name, **n).fit(X[TRAIN], Y[TRAIN])
    fitted = ConformalRegressor(model, refits=2, error_model=None, random_state=0)
    fitted.calibrate(X[REST], Y[REST], X_train=X[TRAIN], y_train=Y[TRAIN])
    assert [n_rounds(each) for each in trained] == [40] * 2
    assert all(each.get_params() == model.get_params() for each in trained)


def test_other_callbacks_are_kept_and_have_forgotten(trained):
    module = pytest.importorskip("xgboost")
    rates = module.callback.LearningRateScheduler([0.1] * 300)
    model = regressor("xgboost", callbacks=[module.callback.EarlyStopping(rounds=5), rates])
    model.fit(X[TRAIN], Y[TRAIN], eval_set=[(X[WATCHED], Y[WATCHED])], verbose=False)
    fitted = ConformalRegressor(model, refits=2, error_model=None, random_state=0)
    fitted.calibrate(X[REST], Y[REST], X_train=X[TRAIN], y_train=Y[TRAIN])
    for each in trained:
        assert [type(callback).__name__ for callback in each.callbacks] == ["LearningRateScheduler"]
    assert len(model.callbacks) == 2 and model.callbacks[0].stopping_history  # left as they were


KINDS = RNG.integers(0, 5, 300)
FRAME = pd.DataFrame(X, columns=list("abc"))


def test_categories_that_catboost_was_told_in_fit(trained):
    frame = FRAME.assign(kind=np.array(list("vwxyz"))[KINDS])
    y = Y + np.sin(9 * KINDS)
    model = regressor("catboost", iterations=20).fit(frame[TRAIN], y[TRAIN], cat_features=["kind"])
    fitted = ConformalRegressor(model, refits=2, error_model=None, random_state=0)
    fitted.calibrate(frame[REST], y[REST], X_train=frame[TRAIN], y_train=y[TRAIN])
    assert [each.get_cat_feature_indices() for each in trained] == [[3]] * 2


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_categories_that_lightgbm_was_told_in_fit(kind, trained):
    rows, y = np.column_stack([X, KINDS]), Y + np.sin(9 * KINDS)
    told = {"categorical_feature": [3]}
    if kind == "frame":  # which it finds by itself
        rows = FRAME.assign(kind=pd.Categorical.from_codes(KINDS, list("vwxyz")))
        told = {}
    model = regressor("lightgbm", n_estimators=20).fit(rows[TRAIN], y[TRAIN], **told)
    fitted = ConformalRegressor(model, refits=2, error_model=None, random_state=0)
    fitted.calibrate(rows[REST], y[REST], X_train=rows[TRAIN], y_train=y[TRAIN])
    assert [each.booster_.params["categorical_column"] for each in trained] == [[3]] * 2


def test_rows_to_be_watched_are_not_dealt():
    """Even if they are as many as the training rows."""
    given = {"step__eval_X": X, "eval_set": [(X, Y)], "sample_weight": Y, "verbose": False}
    dealt = fit_params_of(X, given, np.arange(10))
    assert dealt["step__eval_X"] is X and dealt["eval_set"][0][0] is X
    np.testing.assert_array_equal(dealt["sample_weight"], Y[:10])
    assert dealt["verbose"] is False


def test_the_untrained_core():
    scaler = StandardScaler()
    inside = TransformedTargetRegressor(make_pipeline(StandardScaler(), scaler))
    assert untrained_core(make_pipeline(inside)) is scaler
