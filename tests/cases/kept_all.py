"""Every calibrator, kernel, space and score, and models of every sort, calibrated to be saved."""

import warnings
from importlib.util import find_spec

import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression, QuantileRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import (
    KNN,
    RBF,
    ConformalRegressor,
    ErrorModel,
    JackknifeRescaled,
    Layer,
    MultiTargetRegressor,
    QuantileError,
    QuantileModel,
    SignedError,
    Split,
    calibrators,
)
from calliper.calibrators import Grouped
from calliper.kernels import ForestProximity, GradedKNN, Mahalanobis, TunedKNN, TunedRBF
from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from calliper.shift import LikelihoodRatio
from cases.kept import Case, by_frame, frame, rows

X, Y = rows(150, 3)
NEW = np.vstack([rows(20, 3, seed=1)[0], X[120:124]])
TRAIN, CAL = slice(0, 70), slice(70, 150)
MORE = {"X": rows(12, 3, seed=2)[0], "y": rows(12, 3, seed=2)[1]}


def kernels():
    forest = RandomForestRegressor(5, random_state=0).fit(X[TRAIN], Y[TRAIN])
    return {
        "default": None,
        "knn": KNN(5),
        "cityblock": KNN(5, metric="cityblock"),
        "rbf": RBF(1.0),
        "smoothed": RBF(1.0, smoothing=1.0, step=0.5),
        "proximity": ForestProximity(forest),
        "graded": GradedKNN(5),
        "mahalanobis": Mahalanobis(),
        "tuned-knn": TunedKNN(),
        "tuned-rbf": TunedRBF(),
    }


def alone():
    """Calibrators by themselves, with each kernel that they take."""
    scores = np.abs(Y)
    known = {
        "training": (X[TRAIN], scores[TRAIN], Y[TRAIN]),
        "left_out": (X[TRAIN], scores[TRAIN]),
        "signs": np.sign(Y[CAL]),
    }
    for name in calibrators.__all__:
        kind = getattr(calibrators, name)
        for label, kernel in kernels().items():
            try:
                made = kind() if kernel is None else kind(kernel=kernel)
                taken = {key: each for key, each in known.items() if key in made.uses}
                made.fit(X[CAL], scores[CAL], **taken)
            except (TypeError, ValueError):  # it takes no kernel, or not this one
                continue
            yield f"{name}-{label}", Case(made, None, NEW)
    wide = np.random.default_rng(0).normal(size=(80, 40))
    yield "wide", Case(JackknifeRescaled(KNN(5)).fit(wide, scores[CAL]), None, wide[:9] + 0.1)
    line = JackknifeRescaled(KNN(5)).fit(X[CAL, :1], scores[CAL])
    yield "line", Case(line, None, NEW[:, :1])


def models():
    """Models as they come."""
    small = {"random_state": 0}
    yield "forest", RandomForestRegressor(10, **small)
    yield "extra", ExtraTreesRegressor(10, **small)
    yield "bagging", BaggingRegressor(n_estimators=5, **small)
    yield "voting", VotingRegressor([("a", Ridge()), ("b", RandomForestRegressor(5, **small))])
    yield "gb", GradientBoostingRegressor(n_estimators=10, **small)
    yield "histogram", HistGradientBoostingRegressor(max_iter=10, **small)
    yield "ridge", Ridge()
    yield "gaussian", GaussianProcessRegressor(alpha=0.5)
    yield "pipeline", make_pipeline(StandardScaler(), Ridge())
    yield "pipeline-forest", make_pipeline(StandardScaler(), RandomForestRegressor(5, **small))
    yield "target", TransformedTargetRegressor(Ridge(), transformer=StandardScaler())
    yield "search", GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2)
    yield "mlp", MLPRegressor(hidden_layer_sizes=(5,), max_iter=30, **small)
    if find_spec("xgboost"):
        import xgboost

        yield "xgboost", xgboost.XGBRegressor(n_estimators=10)
    if find_spec("lightgbm"):
        import lightgbm

        yield "lightgbm", lightgbm.LGBMRegressor(n_estimators=10, verbose=-1)
    if find_spec("catboost"):
        import catboost

        settings = {"iterations": 10, "verbose": 0, "allow_writing_files": False}
        yield "catboost", catboost.CatBoostRegressor(**settings)


def natives():
    """Boosters of the libraries themselves."""
    if find_spec("xgboost"):
        import xgboost

        data = xgboost.DMatrix(X[TRAIN], Y[TRAIN])
        yield "native-xgboost", xgboost.train({"max_depth": 3}, data, 8)
    if find_spec("lightgbm"):
        import lightgbm

        data = lightgbm.Dataset(X[TRAIN], Y[TRAIN])
        yield "native-lightgbm", lightgbm.train({"verbose": -1, "num_leaves": 5}, data, 8)


def regressors():
    """Around models, fitted or calibrated."""
    for name, model in models():
        if name in ("forest", "gb", "histogram", "ridge", "xgboost", "target", "mlp"):
            made = ConformalRegressor(model, random_state=0).fit(X, Y)
            yield f"fit-{name}", Case(made, made.estimator_, NEW)
        model.fit(X[TRAIN], Y[TRAIN])
        made = ConformalRegressor(model).calibrate(X[CAL], Y[CAL])
        yield f"calibrate-{name}", Case(made, model, NEW)
        if name in ("extra", "lightgbm", "pipeline"):
            known = {"X_train": X[TRAIN], "y_train": Y[TRAIN]}
            made = ConformalRegressor(model, error_model=ErrorModel(units=False))
            yield f"taught-{name}", Case(made.calibrate(X[CAL], Y[CAL], **known), model, NEW)
    for name, model in natives():
        yield name, Case(ConformalRegressor(model).calibrate(X[CAL], Y[CAL]), model, NEW)
    forest = RandomForestRegressor(5, random_state=0).fit(X[TRAIN], Y[TRAIN])
    for space in ("inputs", "prediction", PCA(2), make_pipeline(StandardScaler(), PCA(2))):
        made = ConformalRegressor(forest, embed=space)
        made.calibrate(X[CAL], Y[CAL], X_train=X[TRAIN], y_train=Y[TRAIN])
        yield (
            f"space-{space if isinstance(space, str) else type(space).__name__}",
            Case(made, forest, NEW),
        )
    frozen = FrozenEstimator(forest)
    yield "frozen", Case(ConformalRegressor(frozen).calibrate(X[CAL], Y[CAL]), frozen, NEW)
    bounds = {"bounds": (Y.min(), Y.max())}
    yield "bounds", Case(ConformalRegressor(forest).calibrate(X[CAL], Y[CAL]), forest, NEW, bounds)
    for score in (SignedError(), SignedError("lower")):
        made = ConformalRegressor(forest, score_function=score).calibrate(X[CAL], Y[CAL])
        yield f"score-{score!r}", Case(made, forest, NEW)
    pair = QuantileModel(GradientBoostingRegressor(loss="quantile", n_estimators=5))
    pair.fit(X[TRAIN], Y[TRAIN])
    made = ConformalRegressor(pair, Split(), score_function=QuantileError())
    yield "quantiles", Case(made.calibrate(X[CAL], Y[CAL]), pair, NEW)
    levels = {p: QuantileRegressor(quantile=p, alpha=0) for p in (0.1, 0.5, 0.9)}
    levels = {p: model.fit(X[TRAIN], Y[TRAIN]) for p, model in levels.items()}
    for known in ({}, {"X_train": X[TRAIN], "y_train": Y[TRAIN]}):
        made = ConformalRegressor(levels).calibrate(X[CAL], Y[CAL], **known)
        yield f"distribution-{len(known)}", Case(made, levels, NEW)


def high(X):
    """A group by a function of the rows."""
    return np.where(np.asarray(X)[:, 2] > 0, "high", "low")


def grouped_and_weighted():
    forest = RandomForestRegressor(5, random_state=0).fit(X[TRAIN], Y[TRAIN])
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=np.where(X[:, 2] > 0, "x", "y"))
    on_table = make_pipeline(PickNumbers(), Ridge()).fit(table[TRAIN], Y[TRAIN])
    new = table[:10]
    labels = {"groups": high(NEW)}
    made = ConformalRegressor(forest, Split()).calibrate(X[CAL], Y[CAL], groups=high(X[CAL]))
    yield "groups-labels", Case(made, forest, NEW, labels)
    made = ConformalRegressor(on_table, Split()).calibrate(table[CAL], Y[CAL], groups="town")
    yield "groups-column", Case(made, on_table, new)
    made = ConformalRegressor(forest, Split()).calibrate(X[CAL], Y[CAL], groups=high)
    yield "groups-function", Case(made, forest, NEW)
    own = Grouped(JackknifeRescaled(KNN(5))).fit(X[CAL], np.abs(Y[CAL]), groups=high(X[CAL]))
    yield "grouped", Case(own, None, NEW, labels)
    made = ConformalRegressor(forest).calibrate(X[CAL], Y[CAL], weights=np.exp(X[CAL, 0]))
    yield "weights", Case(made, forest, NEW, {"weights": np.exp(NEW[:, 0])})
    heavy = table.assign(weight=np.exp(table["a"]))
    model = make_pipeline(PickNumbers(), Ridge()).fit(heavy[TRAIN], Y[TRAIN])
    made = ConformalRegressor(model, Split()).calibrate(heavy[CAL], Y[CAL], weights="weight")
    yield "weights-column", Case(made, model, heavy[:10])
    for label, classifier in {"default": None, "logistic": LogisticRegression()}.items():
        ratio = LikelihoodRatio(classifier, random_state=0).fit(X[TRAIN], NEW)
        made = ConformalRegressor(forest).calibrate(X[CAL], Y[CAL], weights=ratio)
        yield f"ratio-{label}", Case(made, forest, NEW)


class PickNumbers(StandardScaler):
    """The columns of a frame that are numbers."""

    def fit(self, X, y=None):
        return super().fit(X[["a", "b", "c"]], y)

    def transform(self, X):
        return super().transform(X[["a", "b", "c"]])


def by_cells(X):
    """A model as a function of rows of any kind, by their first column."""
    return np.asarray(X["x"], dtype=float)


def taught(model, X, y):
    """Calibrated with training rows, from which columns of all kinds are encoded."""
    known = {"X_train": X[:20], "y_train": y[:20]}
    return ConformalRegressor(model, embed="inputs").calibrate(X[20:], y[20:], **known)


def tables():
    table, target = frame(), rows()[1]
    gaps = table.assign(
        x=table["x"].where(table.index % 7 > 0, 0.0),
        count=pd.array([None if i % 5 == 0 else i for i in range(60)], dtype="Int64"),
        flag=pd.array([None, True, False] * 20, dtype="boolean"),
        word=pd.array(["a", None, "long ünicode"] * 20, dtype="string"),
        span=pd.to_timedelta(np.arange(60), unit="h"),
        zone=pd.date_range("2024-01-01", periods=60, tz="Europe/Zurich"),
    )
    for label, each in {"gaps": gaps.drop(columns="zone"), "zone": gaps}.items():
        made = taught(by_cells, each, target)
        yield f"frame-{label}", Case(made, by_cells, each[:8])
    made = ConformalRegressor(by_frame).calibrate(table, target)
    yield "frame-function", Case(made, by_frame, table[:8])
    if find_spec("polars"):
        import polars as pl

        columns = {
            "x": table["x"].to_list(),
            "town": list(table["town"]),
            "day": list(table["day"].dt.date),
        }
        several = pl.DataFrame(columns).with_columns(pl.col("town").cast(pl.Categorical))
        made = taught(by_cells, several, target)
        yield "polars", Case(made, by_cells, several[:8])


def several_targets():
    two = np.column_stack([Y, 2 * Y + X[:, 1]])
    for joint in (True, False):
        model = RandomForestRegressor(5, random_state=0)
        made = MultiTargetRegressor(model, joint=joint, random_state=0).fit(X, two)
        yield f"targets-{joint}", Case(made, made.estimator_, NEW)
        model = MultiOutputRegressor(Ridge()).fit(X[TRAIN], two[TRAIN])
        made = MultiTargetRegressor(model, joint=joint).calibrate(X[CAL], two[CAL])
        yield f"targets-each-{joint}", Case(made, model, NEW)


def refitted():
    for kind in (JackknifePlus, CVPlus, JackknifeAfterBootstrap):
        settings = {"random_state": 0} if kind is JackknifeAfterBootstrap else {}
        made = kind(Ridge(), **settings).fit(X[:40], Y[:40])
        several = [getattr(made, "estimator_", made.estimator), *made.models_]
        yield f"refitted-{kind.__name__}", Case(made, several, NEW)


def networks():
    if not find_spec("torch"):
        return
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).eval()
    rows_, new = (torch.as_tensor(each, dtype=torch.float32) for each in (X[CAL], NEW))
    made = ConformalRegressor(net).calibrate(rows_, Y[CAL])
    yield "network", Case(made, net, new)
    for label, embed in {
        "layer": Layer(net, "0"),
        "reduced": make_pipeline(Layer(net), PCA(2)),
    }.items():
        made = ConformalRegressor(net, embed=embed)
        made.calibrate(rows_, Y[CAL], X_train=rows_[:30], y_train=Y[:30])
        yield f"network-{label}", Case(made, net, new)


def all_cases():
    """All of them by name."""
    parts = (alone, regressors, grouped_and_weighted, tables, several_targets, refitted, networks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: case for part in parts for name, case in part()}
