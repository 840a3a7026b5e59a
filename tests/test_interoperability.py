"""Settings of scikit-learn that reach into estimators: routing of metadata, frames as output."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context, get_config
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from calliper import (
    CalliperError,
    ConformalRegressor,
    Intervals,
    MultiTargetRegressor,
    QuantileError,
    QuantileModel,
    Split,
)
from calliper.lab.metrics import interval_scorer
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from studies.experiments.data import load_demand

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = X[:, 0] + RNG.normal(size=240)
#: Whole numbers: a row of weight 2 counts as two.
WEIGHT = RNG.integers(1, 4, size=240).astype(float)
#: Rows and weights go the same way into two folds as into five.
FEW = {"refits": 2, "random_state": 0}


class Seen(Ridge):
    """Remembers which rows it was given, with which weights."""

    calls = ()

    def fit(self, X, y, sample_weight=None):
        Seen.calls = (*Seen.calls, (np.asarray(X)[:, 0], sample_weight))
        return super().fit(X, y, sample_weight)


def rows_and_weights_belong_together():
    places = {value: place for place, value in enumerate(X[:, 0])}
    for first, weight in Seen.calls:
        np.testing.assert_array_equal(weight, WEIGHT[[places[value] for value in first]])
    n, Seen.calls = len(Seen.calls), ()
    return n


def asking(model):
    return model.set_fit_request(sample_weight=True)


AROUND = {
    "regressor": lambda model: ConformalRegressor(model, refits=3, random_state=0),
    "targets": lambda model: MultiTargetRegressor(model, random_state=0),
    "folds": lambda model: CVPlus(model, cv=4, random_state=0),
    "rows": JackknifePlus,
    "bootstraps": lambda model: JackknifeAfterBootstrap(model, n_bootstraps=20, random_state=0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_weights_go_with_their_rows_into_every_training(around, routing):
    Seen.calls = ()
    y = np.column_stack([Y, -Y]) if around is AROUND["targets"] else Y
    with config_context(enable_metadata_routing=routing):
        model = around(asking(Seen()) if routing else Seen())
        model.fit(X, y, sample_weight=WEIGHT)
        assert rows_and_weights_belong_together() > 0
        with pytest.raises(CalliperError, match="sample_weight has 3 values for 240 rows"):
            model.fit(X, y, sample_weight=np.ones(3))
        if routing:
            with pytest.raises(UnsetMetadataPassedError):
                around(Seen()).fit(X, y, sample_weight=WEIGHT)


def test_weights_change_the_prediction_of_a_pair_of_quantiles():
    heavy, found = np.where(Y > 0, 100.0, 1.0), {}
    for routing in (False, True):
        with config_context(enable_metadata_routing=routing):
            base = GradientBoostingRegressor(loss="quantile", n_estimators=5, random_state=0)
            pair, score = QuantileModel(asking(base) if routing else base), QuantileError()
            model = ConformalRegressor(pair, Split(), score_function=score, random_state=0)
            found[routing] = model.fit(X, Y, sample_weight=heavy).predict_interval(X)
    np.testing.assert_array_equal(found[True].upper, found[False].upper)
    assert (found[True].lower > model.fit(X, Y).predict_interval(X).lower).mean() > 0.9


def test_through_pipelines_and_searches():
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        inside = ConformalRegressor(make_pipeline(scaler, asking(Seen())), **FEW)
        found = inside.fit(X, Y, sample_weight=WEIGHT).predict_interval(X[:5])
        Seen.calls = ()
        last = make_pipeline(scaler, ConformalRegressor(asking(Ridge()), **FEW))
        last.fit(X, Y, sample_weight=WEIGHT)
        grouped = make_pipeline(
            scaler, ConformalRegressor(asking(Ridge()), **FEW).set_fit_request(split_groups=True)
        )
        grouped.fit(X, Y, sample_weight=WEIGHT, split_groups=np.arange(240) // 4)
        assert "60 groups" in grouped[-1].no_guarantee_ or "groups" in grouped[-1].no_guarantee_
        searched = GridSearchCV(
            ConformalRegressor(asking(Seen()), **FEW),
            {"estimator__alpha": [0.1, 10.0]},
            scoring=interval_scorer(0.9),
            cv=3,
        ).fit(X, Y, sample_weight=WEIGHT)
        assert rows_and_weights_belong_together() >= 7  # two settings on three parts, and the best
        scored = ConformalRegressor(asking(Ridge()), **FEW).set_score_request(sample_weight=True)
        scores = cross_validate(scored, X, Y, params={"sample_weight": WEIGHT}, cv=3)
    assert isinstance(found, Intervals) and "estimator__alpha" in searched.best_params_
    assert np.isfinite(scores["test_score"]).all()
    stepwise = make_pipeline(StandardScaler(), ConformalRegressor(Ridge(), **FEW))
    stepwise.fit(X, Y, conformalregressor__sample_weight=WEIGHT)
    np.testing.assert_allclose(stepwise.predict(X), last.predict(X))


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("locally", [False, True])
def test_frames_inside_change_no_interval(library, locally):
    """``set_output`` and its setting for all: what goes on inside may be frames of any library."""
    frame = pd.DataFrame(X, columns=["a", "b", "c"])

    def ends(pipeline):
        model = ConformalRegressor(pipeline.fit(frame[:80], Y[:80]), random_state=0)
        model.calibrate(frame[80:200], Y[80:200], X_train=frame[:80], y_train=Y[:80])
        return model.predict_interval(frame[200:])

    expected = ends(make_pipeline(StandardScaler(), Ridge()))
    pipeline = make_pipeline(StandardScaler(), Ridge())
    if locally:
        found = ends(pipeline.set_output(transform=library))
    else:
        with config_context(transform_output=library):
            found = ends(pipeline)
            assert type(found.to_frame()).__module__.startswith(library)
    # Frames of other libraries lie in memory by columns, and sums of a row may differ by rounding.
    np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-12)
    np.testing.assert_allclose(found.lower, expected.lower, rtol=1e-12)


@pytest.mark.long
def test_mlforecast_and_skpro_as_the_page_shows_them(monkeypatch):
    pytest.importorskip("mlforecast")
    pytest.importorskip("skpro")
    root = Path(__file__).parents[1]
    if not os.environ.get("CALLIPER_DATA"):
        monkeypatch.setenv("CALLIPER_DATA", str(root.parent / "shared" / "data"))
    page = (root / "docs" / "time-series.md").read_text(encoding="utf-8")
    _, _, part = page.partition("## mlforecast and skpro\n")
    names = {"ConformalRegressor": ConformalRegressor, "pd": pd, "table": load_demand()}
    names["forest"] = RandomForestRegressor(20, random_state=0)
    for block in re.findall(r"^```python\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)[:2]:
        exec(block, names)
    rows, model = names["X_rows"], names["probabilistic"].regressor_
    wanted = model.predict_interval(rows[-24:], coverage=[0.5, 0.9])
    ends = names["ends"]
    np.testing.assert_array_equal(ends["y"][0.9]["upper"], wanted.at(0.9).upper)
    assert names["day_ahead"].contains(names["y_rows"][-24:]).shape == (24, 2)
    median = names["probabilistic"].predict_quantiles(rows[-3:], alpha=[0.05, 0.5])
    assert (median["y"][0.5] >= median["y"][0.05]).all()


@pytest.mark.parametrize("interface", ["spmatrix", "sparray"])
def test_sparse_arrays_inside_a_pipeline_change_no_interval(interface):
    if "sparse_interface" not in get_config():
        pytest.skip("scikit-learn has no sparse_interface yet")
    kinds = (X * 3).astype(int).astype(str)
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge())
    plain = ConformalRegressor(model, **FEW).fit(kinds, Y).predict_interval(kinds[:5])
    with config_context(sparse_interface=interface):
        found = ConformalRegressor(model, **FEW).fit(kinds, Y).predict_interval(kinds[:5])
    np.testing.assert_array_equal(found.lower, plain.lower)
