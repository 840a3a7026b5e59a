"""Small calibrated objects of every kind, to be saved: each with its model and rows to ask."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, Ridge

from calliper import (
    KNN,
    RBF,
    ConformalRegressor,
    ErrorModel,
    JackknifeRescaled,
    MultiTargetRegressor,
    SignedError,
    Split,
)
from calliper.calibrators import LVD, RLCP, LoCart, MADSplit
from calliper.kernels import ForestProximity
from calliper.refitting import CVPlus
from calliper.shift import LikelihoodRatio

#: Levels that are asked for.
LEVELS = [0.5, 0.8, 0.9]


@dataclass(frozen=True)
class Case:
    """A calibrated object, the model(s) that loading needs, new rows, and what else is asked."""

    made: Any
    model: Any
    X: Any
    asked: Any = None


def answers(made, X, asked=None):
    """What an object says of rows, one array."""
    if hasattr(made, "predict_radius"):
        np.random.seed(0)  # noqa: NPY002 (what draws from the global state must draw the same)
        return np.asarray(made.predict_radius(X, LEVELS))
    ends = [made.predict_interval(X, coverage=level, **(asked or {})) for level in LEVELS]
    return np.array([[each.lower, each.upper] for each in ends])


def rows(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).round(2)
    y = X[:, 0] + rng.normal(size=n) * (0.2 + np.abs(X[:, 1]))
    return X, y


def frame(n=60, seed=0):
    rng = np.random.default_rng(seed)
    town = pd.Categorical(rng.choice(["Bern", "Thun", "Zürich"], n))
    day = pd.date_range("2024-01-01", periods=n)
    return pd.DataFrame(
        {"x": rng.normal(size=n), "town": town, "day": day, "text": list("ab") * (n // 2)}
    )


def by_frame(X):
    """A model as a plain function of a frame."""
    return np.asarray(X["x"]) + np.asarray(X["town"] == "Bern")


def small_cases():
    """A handful that covers the kinds of what a file holds; a few kB each."""
    X, y = rows(80)
    train, cal, new = slice(0, 40), slice(40, 80), rows(6, seed=1)[0]
    Z, scores, taught = (
        X[cal],
        np.abs(y[cal]),
        {"training": (X[train], np.abs(y[train]))},
    )
    ridge = Ridge().fit(X[train], y[train])
    forest = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X[train], y[train])
    boosting = GradientBoostingRegressor(n_estimators=3, max_depth=2, random_state=0)
    histogram = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5, random_state=0)
    table, target = frame(), rows()[1]
    classifier = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5, random_state=0)
    ratio = LikelihoodRatio(classifier, random_state=0).fit(X[train], X[cal] + 0.5)
    groups = np.where(X[:, 1] > 0, "high", "low")
    whole = ConformalRegressor(Ridge(), error_model=ErrorModel(), random_state=0).fit(*rows(200))
    joint = MultiTargetRegressor(LinearRegression(), random_state=0).fit(
        X, np.column_stack([y, -y])
    )
    cv = CVPlus(Ridge()).fit(X, y)
    several = [getattr(cv, "estimator_", cv.estimator), *cv.models_]
    alone = {
        "split": Split().fit(Z, scores),
        "neighbours": JackknifeRescaled(KNN(5)).fit(Z, scores),
        "radial": JackknifeRescaled(RBF(1.0, smoothing=1.0, step=0.5)).fit(Z, scores),
        "proximity": JackknifeRescaled(ForestProximity(forest)).fit(Z, scores),
        "locart": LoCart(min_leaf=8).fit(Z, scores, **taught),
        "boosted": MADSplit(boosting).fit(Z, scores, **taught),
        "histogram": MADSplit(histogram).fit(Z, scores, **taught),
        "learnt": LVD().fit(Z, scores, training=(X[train], None, y[train])),
        "drawn": RLCP(1.0, random_state=np.random.RandomState(0)).fit(Z, scores),
    }
    cases = {name: Case(made, None, new) for name, made in alone.items()}
    regressors = {
        "ridge": (ConformalRegressor(ridge).calibrate(X[cal], y[cal]), ridge, new, None),
        "signed": (
            ConformalRegressor(forest, score_function=SignedError()).calibrate(X[cal], y[cal]),
            forest,
            new,
            None,
        ),
        "fit": (whole, whole.estimator_, new, None),
        "frame": (ConformalRegressor(by_frame).calibrate(table, target), by_frame, table[:6], None),
        "groups": (
            ConformalRegressor(ridge, Split()).calibrate(X[cal], y[cal], groups=groups[cal]),
            ridge,
            new,
            {"groups": np.where(new[:, 1] > 0, "high", "low")},
        ),
        "ratio": (
            ConformalRegressor(ridge).calibrate(X[cal], y[cal], weights=ratio),
            ridge,
            new,
            None,
        ),
        "joint": (joint, joint.estimator_, new, None),
        "refitted": (cv, several, new, None),
    }
    return cases | {name: Case(*each) for name, each in regressors.items()}
