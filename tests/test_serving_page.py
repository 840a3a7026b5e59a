"""What docs/save-and-serve.md says beyond the blocks that run there."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV

import calliper
from calliper import KNN, ConformalRegressor, Split
from calliper.calibrators import MADSplit
from calliper.lab.metrics import interval_scorer

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "save-and-serve.md").read_text(encoding="utf-8")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(400, 3)), columns=["a", "b", "c"])
Y = X["a"].to_numpy() + RNG.normal(size=400)


def calibrated(model):
    return ConformalRegressor(model).calibrate(X[150:350], Y[150:350])


def skops_io(model):
    io = pytest.importorskip("skops.io")
    io.dump(model, "model.skops")
    return io.load("model.skops", trusted=["sklearn.tree._tree.Tree"])


def booster_file(name):
    def there_and_back(model):
        model.save_model(name)
        again = type(model)()
        again.load_model(name)
        return again

    return there_and_back


def state_dict(model):
    torch = pytest.importorskip("torch")
    torch.save(model.state_dict(), "net.pt")
    again = network(torch)
    again.load_state_dict(torch.load("net.pt", weights_only=True))
    return again


def network(torch):
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


@pytest.mark.parametrize("kind", ["sklearn", "xgboost", "catboost", "torch"])
def test_models_come_back_from_safe_formats(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    library = pytest.importorskip(kind)
    rows = X.to_numpy()
    if kind == "sklearn":
        model, back = RandomForestRegressor(5).fit(rows[:150], Y[:150]), skops_io
    elif kind == "xgboost":
        model, back = library.XGBRegressor(n_estimators=20), booster_file("model.ubj")
        model.fit(rows[:150], Y[:150])
    elif kind == "catboost":
        model = library.CatBoostRegressor(n_estimators=20, verbose=0, allow_writing_files=False)
        model.fit(rows[:150], Y[:150])
        back = booster_file("model.cbm")
    else:
        model, back = network(library), state_dict
    made = ConformalRegressor(model).calibrate(rows[150:350], Y[150:350])
    calliper.save(made, "kept")
    loaded = calliper.load("kept", back(model))
    np.testing.assert_array_equal(
        loaded.predict_interval(rows[350:]).upper, made.predict_interval(rows[350:]).upper
    )


def test_mlflow(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    pytest.importorskip("skops")
    monkeypatch.chdir(tmp_path)
    model = LinearRegression().fit(X[:150], Y[:150])
    known = {"calliper": calliper, "model": model, "conformal": calibrated(model)}
    known["X_new"] = X[350:]
    calliper.save(known["conformal"], "intervals.calliper")
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        if "mlflow" in block:
            exec(block, known)
    monkeypatch.delitem(sys.modules, "interval_model", raising=False)
    found = known["served"].predict(known["X_new"])
    expected = known["conformal"].predict_interval(X[350:]).to_frame()
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-12)
    narrow = known["served"].predict(known["X_new"], params={"coverage": 0.5})
    assert (narrow["upper"] < found["upper"]).all()


def test_settings_of_scikit_learn():
    with sklearn.config_context(enable_metadata_routing=True):
        weighted = ConformalRegressor(Ridge().set_fit_request(sample_weight=True), random_state=0)
        search = GridSearchCV(
            weighted, {"estimator__alpha": [0.1, 1.0]}, scoring=interval_scorer(0.9), cv=3
        )
        search.fit(X[:150], Y[:150], sample_weight=np.ones(150))
    assert "estimator__alpha" in search.best_params_
    with sklearn.config_context(transform_output="polars"):
        frame = search.best_estimator_.predict_interval(X[350:]).to_frame()
    assert type(frame).__module__.startswith("polars")


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
    made = ConformalRegressor(model.fit(X[:150], Y[:150]), refits=3 * taught)
    made.calibrate(X[150:350], Y[150:350], **known)
    data = skops.dumps(made)
    trees = re.findall(r'"(sklearn\.[\w.]+)"', PAGE)
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
