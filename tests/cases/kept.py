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
    DistributionError,
    ErrorModel,
    JackknifeRescaled,
    MultiTargetRegressor,
    QuantileError,
    SignedError,
    Split,
)
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    FullRescaled,
    Grouped,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.cli._calibration import calibrate_stored
from calliper.files._codec import Writer
from calliper.files._model import slots_of
from calliper.kernels import ForestProximity, GradedKNN, Mahalanobis, TunedKNN, TunedRBF
from calliper.monitoring import CoverageMonitor, ExchangeabilityMonitor
from calliper.online import Controller
from calliper.refitting import CVPlus, JackknifeAfterBootstrap
from calliper.scale import Cells
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
        if isinstance(made, Controller):
            return np.array([made.level, made.bound, *made.history.outside])
        return np.asarray(made.predict_radius(X, LEVELS, **(asked or {})))
    if isinstance(made, LikelihoodRatio):
        return made(X)
    if hasattr(made, "log_evidence"):
        return np.array(made.log_evidence)
    if hasattr(made, "intervals"):
        ends = [made.intervals(X, X[:, 0], level) for level in LEVELS]
        return np.array([[each.lower, each.upper] for each in ends])
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


def forging_cases():
    """More, so that every class that a file may name is in one."""
    X, y = rows(80)
    train, cal, new = slice(0, 40), slice(40, 80), rows(6, seed=1)[0]
    Z, scores, sizes = X[cal], np.abs(y[cal]), np.abs(y[train])
    taught = {"training": (X[train], sizes)}
    own = {"random_state": 0}
    rcp = RCP(**own).fit(Z, scores, **taught)
    rcp.predict_radius(new, 0.8)
    signs = np.sign(y[cal])
    alone = {
        "full": FullRescaled(**own).fit(Z, scores, signs=signs, length_scale=0.5),
        "nearest": FullRescaled(KNN(5), shrinkage=0.3).fit(Z, scores),
        "graded": FullRescaled(GradedKNN(3)).fit(Z, scores),
        "quantile": FullRescaled(KNN(5), statistic="quantile").fit(Z, scores),
        "cells": FullRescaled(KNN(3, cells=Cells(5, n_probes=2, **own))).fit(
            Z, scores, training=X[train]
        ),
        "directions": FullRescaled(KNN(3, cells=Cells(5, n_probes=2, **own))).fit(Z, scores),
        "mahalanobis": FullRescaled(Mahalanobis(KNN(5)), **own).fit(Z, scores, **taught),
        "minmax": JackknifeMinmaxRescaled(KNN(5)).fit(Z, scores),
        "tuned": JackknifeRescaled(TunedRBF(n_scan=4), **own).fit(Z, scores, training=X[train]),
        "folds": JackknifeRescaled(TunedRBF(n_scan=4, n_folds=4), **own).fit(
            Z, scores, training=X[train]
        ),
        "tuned-nearest": JackknifeRescaled(TunedKNN(n_neighbors=[3, 5])).fit(Z, scores),
        "conditional": ConditionalCalibration().fit(Z, y[cal]),
        "local": LCP(bandwidth=1.0).fit(Z, scores),
        "local-tuned": LCP("neighbors", **own).fit(Z, scores, **taught),
        "normalized": NormalizedKNN(3).fit(Z, scores, training=X[train]),
        "rcp": rcp,
        "slcp": SLCP(KNN(5)).fit(Z, scores, **taught),
        "weighted": Split().fit(Z, scores, weights=np.exp(Z[:, 0] / 9), signs=signs),
    }
    for made in alone.values():
        if made.weights_ is None:
            made.predict_radius(new[:2], 0.8)
    asked = {"weighted": {"weights": np.exp(new[:, 0] / 9)}}
    cases = {name: Case(made, None, new, asked.get(name)) for name, made in alone.items()}
    ratio = LikelihoodRatio(**own).fit(X[train], X[cal] + 0.5)
    ridge = Ridge().fit(X[train], y[train])
    shifted = ConformalRegressor(ridge, Split()).calibrate(X[cal], y[cal], weights=ratio)
    label = np.where(X[:, 1] > 0, "high", "low")
    grouped = Grouped(JackknifeRescaled(KNN(3))).fit(Z, scores, groups=label[cal])
    each = MultiTargetRegressor(LinearRegression(), joint=False, **own)
    each.fit(X, np.column_stack([y, -y]))
    table = frame()
    known = {"X_train": table[:30], "y_train": rows()[1][:30]}
    encoded = ConformalRegressor(by_frame, embed="inputs").calibrate(
        table[30:], rows()[1][30:], **known
    )
    stored = calibrate_stored(Split(), np.column_stack([y[cal], X[cal, 0], X[cal]]))
    bootstrap = JackknifeAfterBootstrap(Ridge(), 5, **own).fit(X, y)
    cases |= {
        "shifted": Case(shifted, ridge, new),
        "grouped": Case(grouped, None, new, {"groups": np.where(new[:, 1] > 0, "high", "low")}),
        "each": Case(each, each.estimator_, new),
        "encoded": Case(encoded, by_frame, table[:6]),
        "stored": Case(stored, None, new),
        "bootstrap": Case(bootstrap, [bootstrap.estimator, *bootstrap.models_], new),
        "control": Case(_controller(), None, new),
        "distribution": Case(_of_quantiles(DistributionError(LEVELS), rows(200)), by_levels, new),
        "pair": Case(_of_quantiles(QuantileError(), (X, y)), by_ends, new),
        "coverage": Case(CoverageMonitor(0.8, 40, side="both").update(y < 1), None, new),
        "exchanged": Case(ExchangeabilityMonitor(**own).fit(scores).update(sizes), None, new),
        "ratio-alone": Case(ratio, None, new),
    }
    return small_cases() | cases


def by_levels(X):
    """A plain function that predicts quantiles at the levels."""
    return X[:, :1] + np.abs(X[:, 1:]) * [0.0, 0.8, 1.3]


def by_ends(X):
    """A plain function that predicts two quantiles."""
    return by_levels(X)[:, ::2]


def _of_quantiles(score, known):
    """Around a model of quantiles, with errors learnt from some of the rows if that is possible."""
    how = {"score_function": score, "random_state": 0}
    if isinstance(score, QuantileError):
        return ConformalRegressor(by_ends, Split(), **how).calibrate(*known)
    return ConformalRegressor(by_levels, learning_part=0.5, **how).calibrate(*known)


def _controller():
    control = Controller(0.9, rate=[0.01, 0.1])
    for needed in (0.2, 0.95, 0.5):
        control.update(needed < control.level, needed=needed)
    return control


def brought(made):
    """What loading needs besides the model, taken from what was saved."""
    writer = Writer(slots_of(made))
    writer.record(made)
    return writer.brought
