"""Demand a day ahead, hour by hour: MAPIE's TimeSeriesRegressor beside calliper on one model.

``python -m studies.experiments.drift.demand`` writes ``demand.json`` beside this file. A forest is
trained on weeks 1–5, week 6 calibrates, weeks 7 and 8 are forecast at 90 %. The target of an hour
is known 24 hours later, for all. MAPIE, as its documentation says, is fitted to weeks 1–6 with a
block bootstrap; EnbPI takes the day's labels by ``update``, ACI each label by
``adapt_conformal_inference``, too.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict

from calliper import ConformalRegressor, Intervals, metrics
from calliper.online import Controller
from studies.experiments import FloatArray
from studies.experiments.data import load_demand

RESULTS = Path(__file__).with_name("demand.json")
LEVEL, DAY, WEEK = 0.9, 24, 168
#: Settings of MAPIE: those of its own example on these data.
RESAMPLINGS, BLOCK, GAMMAS = 10, 48, (0.01, 0.05)


def forest() -> Any:
    """The model, the same for all."""
    return RandomForestRegressor(50, max_depth=10, random_state=0)


def columns(table: Any) -> Any:
    """What is known a day ahead: calendar, temperature (as its forecast), demand of days before."""
    X = pd.DataFrame({"temperature": table["temperature"]})
    X["hour"], X["weekday"] = table.index.hour, table.index.dayofweek
    X["temperature_24"] = table["temperature"].shift(DAY)
    for lag in (24, 25, 48, 168):
        X[f"demand_{lag}"] = table["demand"].shift(lag)
    return X


def with_errors(X: Any, errors: Any) -> Any:
    """Beside them the errors that are known by then: a day ago, and over the day before that."""
    known = errors.shift(DAY)
    sizes = known.abs().rolling(DAY).mean()
    more = {"error_24": known, "error_day": known.rolling(DAY).mean(), "size_day": sizes}
    return X.assign(**more).fillna(0.0)


class OnColumns(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A model that sees some of the columns; the model of its errors sees all."""

    def __init__(self, model: Any, names: list[str]) -> None:
        self.model = model
        self.names = names

    def fit(self, X: Any, y: Any) -> Self:
        """Train on its own columns."""
        self.model_ = clone(self.model).fit(X[self.names], y)
        return self

    def predict(self, X: Any) -> Any:
        """By its own columns."""
        return self.model_.predict(X[self.names])


def hours(test: Any) -> Iterator[tuple[int, int | None]]:
    """Each hour to forecast, and the one whose target becomes known, if there is one."""
    places = np.flatnonzero(test)
    for number, place in enumerate(places):
        yield int(place), int(places[number - DAY]) if number >= DAY else None


def of_mapie(X: FloatArray, y: FloatArray, fitted: Any, test: Any, gamma: float | None) -> Any:
    """EnbPI, or ACI with a rate."""
    from mapie.regression import TimeSeriesRegressor
    from mapie.subsample import BlockBootstrap

    blocks = BlockBootstrap(
        n_resamplings=RESAMPLINGS, length=BLOCK, overlapping=True, random_state=0
    )
    method = "enbpi" if gamma is None else "aci"
    made = TimeSeriesRegressor(forest(), method=method, cv=blocks, agg_function="mean")
    made.fit(X[fitted], y[fitted])
    ends, how = [], {"ensemble": True, "confidence_level": LEVEL}
    for number, (now, known) in enumerate(hours(test)):
        if known is not None and gamma is not None:
            row = slice(known, known + 1)
            made.adapt_conformal_inference(X[row], y[row], gamma=gamma, **how)
        if known is not None and gamma is None and number % DAY == 0:
            made.update(X[now - DAY : now], y[now - DAY : now], ensemble=True)
        found = made.predict(X[now : now + 1], **how, allow_infinite_bounds=True)[1]
        ends.append(found[0, :, 0])
    lower, upper = np.array(ends).T
    return Intervals(lower, upper, LEVEL)


def of_calliper(model: Any, X: Any, y: Any, test: Any, control: Controller | None) -> Any:
    """Labels of a day ago join, the latest week stays; and the level follows, if asked for."""
    waiting: dict[int, Intervals] = {}
    ends = []
    for now, known in hours(test):
        if known is not None:
            row, label = X.iloc[[known]], y.iloc[[known]]
            if control is not None:
                control.update(waiting.pop(known).contains(label), step=known)
            model.extend(row, label, window=WEEK)
        row = X.iloc[[now]]
        if control is None:
            waiting[now] = model.predict_interval(row, LEVEL)
        else:
            waiting[now] = control.predict_interval(model, row, step=now)
        ends.append((waiting[now].lower[0], waiting[now].upper[0]))
    lower, upper = np.array(ends).T
    return Intervals(lower, upper, LEVEL)


def study() -> dict[str, Any]:
    """All intervals, measured."""
    table = load_demand()
    X, y, week = columns(table), table["demand"], np.arange(len(table)) // WEEK + 1
    train, cal, test = (week > 1) & (week <= 5), week == 6, week >= 7  # a lag takes the first week
    found: dict[str, Any] = {}

    def measure(name: str, intervals: Intervals) -> None:
        target = y[test].to_numpy()
        inside, score = intervals.contains(target), metrics.interval_score(target, intervals)
        weeks = [float(part.mean()) for part in np.split(inside, 2)]
        finite = np.isfinite(intervals.width)
        found[name] = {
            "score": float(score),
            "inside": float(inside.mean()),
            "weeks": weeks,
            "width": float(intervals.width[finite].mean()),
            "infinite": int((~finite).sum()),
        }
        print(name, found[name], flush=True)

    values = X.to_numpy(), y.to_numpy()
    measure("MAPIE, EnbPI", of_mapie(*values, train | cal, test, None))
    for gamma in GAMMAS:
        name = f"MAPIE, ACI, gamma {gamma}"
        measure(name, of_mapie(*values, train | cal, test, gamma))

    model = forest().fit(X[train], y[train])

    def calibrated() -> Any:
        made = ConformalRegressor(model, shuffle=False, random_state=0)
        return made.calibrate(X[cal], y[cal], X_train=X[train], y_train=y[train])

    measure("calliper, calibrated once", calibrated().predict_interval(X[test], LEVEL))
    name = "calliper, labels join a day late"
    measure(name, of_calliper(calibrated(), X, y, test, None))
    control = Controller(LEVEL, rate=0.005)
    measure(f"{name}, level follows", of_calliper(calibrated(), X, y, test, control))

    errors = y[WEEK:] - model.predict(X[WEEK:])
    errors[train[WEEK:]] = y[train] - cross_val_predict(forest(), X[train], y[train], cv=KFold(5))
    Z = with_errors(X, errors)
    seen = OnColumns(forest(), list(X.columns)).fit(Z[train], y[train])
    told = ConformalRegressor(seen, shuffle=False, gap=DAY, left_out_folds=5, random_state=0)
    told.calibrate(Z[cal], y[cal], X_train=Z[train], y_train=y[train])
    measure(f"{name}, errors as columns", of_calliper(told, Z, y, test, None))
    return found


def main() -> None:
    """Run all, and write what came."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = study()
    versions = {name: version(name) for name in ("mapie", "scikit-learn")}
    settings = {
        "model": repr(forest()),
        "MAPIE": f"BlockBootstrap({RESAMPLINGS}, length={BLOCK}, overlapping), mean of the members",
        "labels": f"{DAY} hours late",
    }
    text = json.dumps({"versions": versions, "settings": settings, "found": found}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
