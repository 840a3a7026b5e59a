"""What docs/serving.md shows runs as written, and does what it says."""

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression

import calliper
from calliper import KNN, ConformalRegressor, Intervals, Split
from calliper.calibrators import MADSplit

ROOT = Path(__file__).parents[1]
SECTIONS = (ROOT / "docs" / "serving.md").read_text().split("\n## ")
BLOCKS = [
    (section.partition("\n")[0], block)
    for section in SECTIONS
    for block in re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
]

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(400, 3)), columns=["a", "b", "c"])
Y = X["a"].to_numpy() + RNG.normal(size=400)


class Session:
    """Stands for one of onnxruntime."""

    def run(self, _, given):
        return [given["X"][:, :1] / np.float32(3)]


def names():
    model = LinearRegression().fit(X[:150], Y[:150])
    return {
        "calliper": calliper,
        "ConformalRegressor": ConformalRegressor,
        "Split": Split,
        "model": model,
        "forest": RandomForestRegressor(5, random_state=0).fit(X, Y),
        "intervals": ConformalRegressor(model).calibrate(X[150:350], Y[150:350]),
        "X": X[:150],
        "y": Y[:150],
        "X_cal": X[150:350],
        "y_cal": Y[150:350],
        "X_new": X[350:],
        "w": np.ones(150),
        "session": Session(),
    }


def run(section, tmp_path, monkeypatch, after=lambda known: None):
    """Run the blocks of one section; those of libraries that are not there are left out."""
    monkeypatch.chdir(tmp_path)
    known, ran = names(), 0
    for heading, block in BLOCKS:
        modules = re.findall(r"^import (\w+)", block, flags=re.MULTILINE)
        there = all(importlib.util.find_spec(module) for module in modules)
        if heading == section and there:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(block, known)
            after(known)
            ran += 1
    if not ran:
        pytest.skip("its libraries are not installed")
    return known


def ends(known):
    found = known["intervals"].predict_interval(known["X_new"])
    return np.array([found.lower, found.upper])


EXPECTED = ends(names())


@pytest.mark.parametrize("section", [SECTIONS[0].partition("\n")[0], "skops for all of it"])
def test_kept_intervals_are_the_same(section, tmp_path, monkeypatch):
    known = run(section, tmp_path, monkeypatch)
    np.testing.assert_array_equal(ends(known), EXPECTED)


def test_models_come_back_from_safe_formats(tmp_path, monkeypatch):
    def check(known):
        for name in ("forest", "booster"):
            if name in known:
                model = known[name]
                made = ConformalRegressor(model).calibrate(known["X_cal"], known["y_cal"])
                calliper.save(made, "kept")
                loaded = calliper.load("kept", model)
                np.testing.assert_array_equal(
                    loaded.predict_interval(X[350:]).upper, made.predict_interval(X[350:]).upper
                )

    run("The model beside it", tmp_path, monkeypatch, after=check)


def test_json(tmp_path, monkeypatch):
    known = run("Intervals as JSON", tmp_path, monkeypatch)
    assert isinstance(known["again"], Intervals)
    np.testing.assert_array_equal([*known["again"]], EXPECTED)


def test_settings_of_scikit_learn(tmp_path, monkeypatch):
    known = run("Settings of scikit-learn", tmp_path, monkeypatch)
    assert list(known["frame"].index) == list(X.index[350:])
    assert "estimator__alpha" in known["search"].best_params_


def test_mlflow(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    known = run("MLflow", tmp_path, monkeypatch)
    monkeypatch.delitem(sys.modules, "interval_model", raising=False)
    found = known["served"].predict(known["X_new"])
    np.testing.assert_array_equal(found.to_numpy().T, EXPECTED)
    narrow = known["served"].predict(known["X_new"], params={"coverage": 0.5})
    assert (narrow["upper"] < found["upper"]).all()


def test_functions_are_calibrated_as_they_are(tmp_path, monkeypatch):
    known = run("ONNX", tmp_path, monkeypatch)
    assert known["intervals"].guaranteed_coverage(0.9) >= 0.9


MODELS = [
    LinearRegression(),
    RandomForestRegressor(5),
    HistGradientBoostingRegressor(max_iter=20),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("taught", [False, True])
def test_skops_is_asked_to_trust_calliper_and_two_trees_alone(model, taught):
    skops = pytest.importorskip("skops.io")
    known = {"X_train": X[:150], "y_train": Y[:150]} if taught else {}
    made = ConformalRegressor(model.fit(X[:150], Y[:150]), left_out_folds=3 * taught)
    made.calibrate(X[150:350], Y[150:350], **known)
    data = skops.dumps(made)
    page = (ROOT / "docs" / "serving.md").read_text()
    trees = re.findall(r'"(sklearn\.[\w.]+)"', page)
    unknown = skops.get_untrusted_types(data=data)
    assert {name for name in unknown if not name.startswith("calliper.")} <= set(trees)
    loaded = skops.loads(data, trusted=unknown)
    np.testing.assert_array_equal(
        loaded.predict_interval(X[350:]).upper, made.predict_interval(X[350:]).upper
    )


@pytest.mark.parametrize("kind", ["apart", "ties"])
def test_radii_as_graphs(kind, monkeypatch):
    """Ties on a grid of eighths, where every sum of squares is exact."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from onnx_radius import radius_graph

    rng = np.random.default_rng(0)
    Z, errors = rng.normal(size=(900, 2)), np.abs(rng.normal(size=900))
    Z = np.round(Z * 8) / 8 if kind == "ties" else Z
    fitted = [
        Split().fit(Z[:300], errors[:300]),
        MADSplit(KNN(10)).fit(Z[:300], errors[:300], training=(Z[300:600], errors[300:600])),
    ]
    for method, rtol in zip(fitted, (0, 1e-14), strict=True):
        for new in (Z[600:], Z[600:601]):
            session = runtime.InferenceSession(radius_graph(method, 0.9).SerializeToString())
            (found,) = session.run(None, {"Z": new})
            np.testing.assert_allclose(found, method.predict_radius(new, 0.9), rtol=rtol, atol=0)
    with pytest.raises(TypeError, match=r"only Split\(\) and MADSplit"):
        radius_graph(calliper.FullRescaled(KNN(5)).fit(Z, errors), 0.9)
