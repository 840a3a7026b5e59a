"""The fast passes over a model against slow, obvious ones."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.neighbors import KNeighborsRegressor

from calliper.models._boosting import Stages, TreeStages
from calliper.models._distributions import StatedDeviation
from calliper.models._forests import Members

rng = np.random.default_rng(0)
X = np.vstack([rng.normal(size=(200, 4)), np.repeat(rng.normal(size=(10, 4)), 3, axis=0)])
Y = np.round(X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=len(X)), 1)  # ties
NEW = np.vstack([rng.normal(size=(90, 4)), X[:10]])

ENSEMBLES = {
    "forest": RandomForestRegressor(13, random_state=0),
    "forest, threads": RandomForestRegressor(13, n_jobs=3, random_state=0),
    "two trees": RandomForestRegressor(2, random_state=0),
    "stumps": RandomForestRegressor(7, max_depth=1, random_state=0),
    "medians": RandomForestRegressor(7, criterion="absolute_error", random_state=0),
    "extra trees": ExtraTreesRegressor(13, random_state=0),
    "bagged trees": BaggingRegressor(n_estimators=9, random_state=0),
    "bagged trees on some inputs": BaggingRegressor(
        n_estimators=9, max_features=2, bootstrap_features=True, random_state=0
    ),
    "bagged neighbours on some inputs": BaggingRegressor(
        KNeighborsRegressor(3), n_estimators=5, max_features=0.5, random_state=0
    ),
    "vote": VotingRegressor([("a", Ridge()), ("b", KNeighborsRegressor())]),
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_members(name):
    model = ENSEMBLES[name].fit(X, Y)
    assert Members.is_mine(model)
    mean, (spread,) = Members(model).measure(NEW)
    features = getattr(model, "estimators_features_", [slice(None)] * len(model.estimators_))
    each = np.stack(
        [m.predict(NEW[:, f]) for m, f in zip(model.estimators_, features, strict=True)]
    )
    np.testing.assert_allclose(mean, model.predict(NEW), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(spread, each.std(axis=0, ddof=1), rtol=1e-9, atol=1e-12)


def test_members_in_frames_sparse_rows_and_rows_with_gaps():
    model = RandomForestRegressor(5, random_state=0).fit(X, Y)
    expected = np.vstack(Members(model).measure(NEW))
    found = Members(model).measure(sparse.csr_array(NEW))
    np.testing.assert_array_equal(np.vstack(found), expected)
    frame = pd.DataFrame(X, columns=list("abcd"))
    named = RandomForestRegressor(5, random_state=0).fit(frame, Y)
    new = pd.DataFrame(NEW, columns=list("abcd"))
    np.testing.assert_array_equal(np.vstack(Members(named).measure(new)), expected)
    gaps = np.where(rng.uniform(size=NEW.shape) < 0.2, np.nan, NEW)
    model.fit(np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X), Y)
    np.testing.assert_allclose(Members(model).measure(gaps)[0], model.predict(gaps), rtol=1e-12)


def test_members_that_agree_have_no_spread_however_large_the_numbers_are():
    model = RandomForestRegressor(5, bootstrap=False, max_features=None, random_state=0)
    model.fit(X[:1].repeat(8, axis=0), np.full(8, 1e9 + 0.1))
    np.testing.assert_array_equal(Members(model).measure(NEW)[1], 0)


def test_unit_of_a_forest_is_that_of_its_targets():
    unit = Members(RandomForestRegressor(40, random_state=0).fit(X, Y)).unit()
    assert unit == pytest.approx(Y.std(), rel=0.1)
    again = Members(RandomForestRegressor(40, random_state=0).fit(X, 8 * Y))
    assert again.unit() == pytest.approx(8 * unit)
    medians = RandomForestRegressor(5, criterion="absolute_error", random_state=0).fit(X, Y)
    assert Members(medians).unit() is None


BOOSTED = {
    "squares": GradientBoostingRegressor(n_estimators=11, random_state=0),
    "one half": GradientBoostingRegressor(n_estimators=2, random_state=0),
    "from zero": GradientBoostingRegressor(n_estimators=10, init="zero", random_state=0),
    "from a model": GradientBoostingRegressor(n_estimators=10, init=Ridge(), random_state=0),
    "part of the rows": GradientBoostingRegressor(n_estimators=9, subsample=0.5, random_state=0),
    "huber": GradientBoostingRegressor(n_estimators=10, loss="huber", random_state=0),
}


@pytest.mark.parametrize("name", BOOSTED)
def test_steps_of_boosted_trees(name):
    model = BOOSTED[name].fit(X, Y)
    assert TreeStages.is_mine(model)
    mean, spreads = TreeStages(model).measure(NEW)
    np.testing.assert_allclose(mean, model.predict(NEW), rtol=1e-10)
    start = len(model.estimators_) // 2
    steps = [model.learning_rate * tree.predict(NEW) for tree in model.estimators_[start:, 0]]
    np.testing.assert_allclose(spreads[0], np.abs(steps).sum(axis=0), rtol=1e-10)
    assert len(spreads) == (1 if model.loss == "huber" else 2)
    if model.loss == "squared_error":
        variance = np.mean(
            [tree.tree_.impurity[tree.apply(NEW)] for tree in model.estimators_[start:, 0]], axis=0
        )
        np.testing.assert_allclose(spreads[1], np.sqrt(np.maximum(variance, 0)), rtol=1e-10)


@pytest.mark.parametrize("n_stages", [2, 7, 20])
def test_steps_between_stages(n_stages):
    model = HistGradientBoostingRegressor(max_iter=n_stages, random_state=0).fit(X, Y)
    assert Stages.is_mine(model)
    mean, (moved,) = Stages(model).measure(NEW)
    np.testing.assert_allclose(mean, model.predict(NEW), rtol=1e-12)
    stages = np.stack(list(model.staged_predict(NEW)))
    steps = np.abs(np.diff(stages, axis=0))[n_stages // 2 - 1 :]
    np.testing.assert_allclose(moved, steps.sum(axis=0), rtol=1e-12)


def test_unit_of_a_boosted_model_is_about_that_of_its_targets():
    y = 3 * X[:, 0]  # one that a single tree learns
    for source, model in [
        (TreeStages, GradientBoostingRegressor(n_estimators=5, random_state=0)),
        (TreeStages, GradientBoostingRegressor(n_estimators=5, loss="huber", random_state=0)),
        (Stages, HistGradientBoostingRegressor(max_iter=60, learning_rate=0.1)),
        (Stages, HistGradientBoostingRegressor(max_iter=20, learning_rate=0.3)),
        (Stages, HistGradientBoostingRegressor(max_iter=5, loss="absolute_error")),
    ]:
        squares = model.fit(X, y).loss == "squared_error"
        read = source(model)
        if squares:
            assert read.unit() == pytest.approx(y.std(), rel=0.3)  # all that matters
        else:
            assert read.unit() is None
    counts = HistGradientBoostingRegressor(loss="poisson", max_iter=5).fit(X, np.abs(Y))
    assert Stages(counts).unit() is None
    corrects = GradientBoostingRegressor(n_estimators=5, init=Ridge()).fit(X, y)
    assert TreeStages(corrects).unit() is None


@pytest.mark.parametrize(
    "model", [GaussianProcessRegressor(alpha=1.0, normalize_y=True), BayesianRidge()], ids=repr
)
def test_stated_deviations(model):
    model.fit(X, Y)
    assert StatedDeviation.is_mine(model)
    mean, (deviation,) = StatedDeviation(model).measure(NEW)
    np.testing.assert_array_equal((mean, deviation), model.predict(NEW, return_std=True))
    if hasattr(model, "y_train_"):
        assert StatedDeviation(model).unit() == pytest.approx(Y.std())
