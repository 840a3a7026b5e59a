"""Few rows, for which all trees are asked at once, against the trees and against many rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from calliper import CalliperError, ConformalRegressor
from calliper._validation import check_features, check_new_features
from calliper.models import _forests, without_names
from calliper.models._boosting import Stages
from calliper.models._forests import JoinedTrees, Members
from calliper.space._encoding import ColumnEncoder

RNG = np.random.default_rng(0)
#: Whole numbers: ties, duplicates, and rows that lie on thresholds once these are copied in.
X = RNG.integers(-4, 5, size=(400, 5)).astype(float)
X[:, 4] = RNG.normal(size=400)
Y = X[:, 0] + np.exp(X[:, 4]) * RNG.normal(size=400)
GAPS = np.where(RNG.random(X.shape) < 0.1, np.nan, X)

FORESTS = {
    "forest": RandomForestRegressor(30, random_state=0),
    "stumps": RandomForestRegressor(4, max_depth=1, random_state=0),
    "no splits": RandomForestRegressor(4, max_depth=1, min_samples_leaf=300, random_state=0),
    "extra trees": ExtraTreesRegressor(20, max_features=2, random_state=0),
    "bagging": BaggingRegressor(n_estimators=20, random_state=0),
    "some inputs": BaggingRegressor(n_estimators=20, max_features=0.5, random_state=0),
    "inputs twice": BaggingRegressor(
        DecisionTreeRegressor(max_depth=4), 20, bootstrap_features=True, random_state=0
    ),
}


def on_thresholds(trees):
    """Rows whose every input is the threshold of a node, as exactly as single precision allows."""
    cuts = np.concatenate([tree.threshold[tree.feature == 4] for tree in trees] + [[0.0]])
    rows = X[:20].copy()
    rows[:, 4] = RNG.choice(cuts[np.isfinite(cuts)], 20)
    return rows


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("given", [X, GAPS], ids=["whole", "gaps"])
def test_members_of_few_rows(name, given, monkeypatch):
    """The same to the last bit as by the loop over members; these as by their own predict."""
    model = FORESTS[name].fit(given, Y)
    read = Members(model)
    trees = [member.tree_ for member in model.estimators_]
    rows = np.vstack([on_thresholds(trees), given[:30]])
    members = [read.ask(number, read.rows(rows)) for number in range(len(trees))]
    np.testing.assert_array_equal(read.joined.nodes.values(read.rows(rows)), members)
    monkeypatch.setattr(read.joined, "takes", lambda n: True)
    few = read.measure(rows)
    monkeypatch.setattr(read.joined, "takes", lambda n: False)
    for found, expected in zip(few, read.measure(rows), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert read.is_by_row
    alone = [read.measure(row[None]) for row in rows]
    np.testing.assert_array_equal(few[0], np.concatenate([mean for mean, _ in alone]))
    np.testing.assert_array_equal(few[1], np.hstack([spread for _, spread in alone]))
    np.testing.assert_allclose(few[0], model.predict(rows), rtol=1e-12, atol=1e-12)
    columns = getattr(model, "estimators_features_", [slice(None)] * len(trees))
    own = [m.predict(rows[:, c]) for m, c in zip(model.estimators_, columns, strict=True)]
    np.testing.assert_array_equal(members, own)


STAGED = {
    "squares": HistGradientBoostingRegressor(max_iter=25, random_state=0),
    "two": HistGradientBoostingRegressor(max_iter=2, random_state=0),
    "link": HistGradientBoostingRegressor(max_iter=20, loss="poisson"),
    "stopped": HistGradientBoostingRegressor(max_iter=200, early_stopping=True, random_state=0),
    "categories": HistGradientBoostingRegressor(max_iter=20, categorical_features=[0]),
}


@pytest.mark.parametrize("name", STAGED)
@pytest.mark.parametrize("given", [X, GAPS], ids=["whole", "gaps"])
def test_stages_of_few_rows(name, given, monkeypatch):
    model = STAGED[name].fit(given, np.abs(Y))
    read = Stages(model)
    assert (read.joined is None) == (name == "categories")
    rows = given[:40].copy()
    if read.joined is not None:
        monkeypatch.setattr(read.joined, "takes", lambda n: True)
        nodes = np.concatenate([tree.nodes for tree in read.joined.trees])
        cuts = nodes["num_threshold"][(nodes["feature_idx"] == 4) & (nodes["is_leaf"] == 0)]
        rows[:20, 4] = RNG.choice(cuts, 20)
    few = read.measure(rows)
    if read.joined is not None:
        monkeypatch.setattr(read.joined, "takes", lambda n: False)
    for found, expected in zip(few, read.measure(rows), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(few[0], model.predict(rows))


def test_threads_share_rows_so_that_each_is_added_up_in_one_order(monkeypatch):
    model = RandomForestRegressor(20, random_state=0, n_jobs=2).fit(X, Y)
    read = Members(model)
    monkeypatch.setattr(read.joined, "takes", lambda n: False)
    alone = read.measure(X)
    monkeypatch.setattr(_forests, "FEWEST_IN_THREADS", 1)
    for found, expected in zip(read.measure(X), alone, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_nodes_are_gathered_when_needed_and_never_stored(monkeypatch):
    model = RandomForestRegressor(30, random_state=0).fit(X, Y)
    joined = JoinedTrees([member.tree_ for member in model.estimators_])
    before = len(pickle.dumps(joined))
    expected = joined.nodes.values(X[:2].astype(np.float32))
    assert len(pickle.dumps(joined)) == before
    again = pickle.loads(pickle.dumps(joined))
    np.testing.assert_array_equal(again.nodes.values(X[:2].astype(np.float32)), expected)
    monkeypatch.setattr(_forests, "MOST_NODES", 100)
    assert not JoinedTrees(joined.trees).takes(1)


MODELS = {
    "forest": RandomForestRegressor(15, random_state=0),
    "histogram boosting": HistGradientBoostingRegressor(max_iter=15, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=15, random_state=0),
    "ridge": make_pipeline(StandardScaler(), Ridge()),
    "network": MLPRegressor(hidden_layer_sizes=(5,), max_iter=30, random_state=0),
}


def model_of(name):
    if name in MODELS:
        return MODELS[name]
    module, how = pytest.importorskip(name), {"n_jobs": 1}
    if name == "catboost":
        return module.CatBoostRegressor(
            iterations=15, verbose=0, thread_count=1, allow_writing_files=False
        )
    if name == "xgboost":
        return module.XGBRegressor(n_estimators=15, num_parallel_tree=2, subsample=0.5, **how)
    return module.LGBMRegressor(n_estimators=15, verbose=-1, **how)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*MODELS, "xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("folds", [None, 2])
@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_intervals_of_single_rows_are_those_among_many(name, folds, kind):
    rows = kind(X) if kind is np.asarray else kind(X, columns=list("abcde"))
    model = model_of(name).fit(rows[:200], Y[:200])
    known = {} if folds is None else {"X_train": rows[:200], "y_train": Y[:200]}
    fitted = ConformalRegressor(model, refits=folds, random_state=0)
    fitted.calibrate(rows[200:350], Y[200:350], **known)
    many = fitted.predict_interval(rows)
    for i in range(350, 356):
        one = fitted.predict_interval(rows[i : i + 1])
        ends = [many.lower[i : i + 1], many.upper[i : i + 1]]
        np.testing.assert_allclose([*one], ends, rtol=1e-9)


def test_frames_of_plain_numbers_are_encoded_as_by_column():
    frame = pd.DataFrame({"a": [1, 2, 3] * 5, "b": [0.5, np.nan, np.inf] * 5, "c": [True] * 15})
    encode = ColumnEncoder.learn(frame)
    by_column = encode(frame.astype(object))
    np.testing.assert_array_equal(encode(frame), by_column)
    np.testing.assert_array_equal(encode(frame[["c", "b", "a"]]), by_column)
    assert without_names(frame, "f") is frame
    assert without_names(frame.astype("Float64"), "f").equals(frame.astype("Float64"))
    np.testing.assert_array_equal(without_names(frame[["b"]], "f"), frame[["b"]])


def test_plain_arrays_are_taken_as_they_are_and_others_are_checked():
    calibrated = ConformalRegressor(RandomForestRegressor(3).fit(X, Y)).calibrate(X[:50], -Y[:50])
    method, Z = calibrated.calibrator_, calibrated.embedding_.transform(X[:9])
    assert check_features(Z) is Z and check_new_features(method, Z) is Z
    np.testing.assert_array_equal(check_features(np.asfortranarray(Z)), Z)
    for wrong, said in [
        (np.where(Z == Z[0], np.nan, Z), "NaN"),
        (np.full_like(Z, np.inf), "infinity"),
        (np.full_like(Z, 1e200), "as large as"),
        (Z[:0], "0 sample"),
        (Z[0], "a table with columns"),
    ]:
        with pytest.raises(ValueError, match=said):
            check_new_features(method, wrong)
        with pytest.raises(ValueError, match=said):
            check_features(wrong)
    with pytest.raises(ValueError, match="features"):
        check_new_features(method, Z[:, :1].copy())
    with pytest.raises(ValueError, match="features"):
        calibrated.predict_interval(X[:1, :3])
    with pytest.raises(CalliperError, match="a table with columns"):
        calibrated.predict_interval(X[0])
