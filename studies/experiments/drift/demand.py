"""Demand a day ahead, hour by hour: MAPIE's TimeSeriesRegressor beside calliper on one model.

``python -m studies.experiments.drift.demand`` writes ``demand.json`` beside this file. A forest is
trained on weeks 1-5, week 6 calibrates, weeks 7 and 8 are forecast at 90 %, in two ways:

- *each midnight* the next 24 hours are forecast, and the last 24 targets become known;
- *each hour* that hour is forecast, and the target of 24 hours ago becomes known.

MAPIE, as its documentation says, is fitted to weeks 1-6 with a block bootstrap; EnbPI takes new
labels by ``update``, ACI by ``adapt_conformal_inference``.

Intervals that follow recent errors are moved by SHARE of their mean, weighted by HALF_LIFE. Both
numbers have the least mean score in ``python -m studies.experiments.drift.demand backtest``: weeks
4, 5 and 6, each forecast by a forest that was trained on the weeks before and calibrated on the
last of them. It reads nothing of weeks 7 and 8. Last, each midnight calibrates anew: the latest
week of labels calibrates, and older hours teach beside the training rows.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
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
#: How intervals follow recent errors, and the rate of the controller.
HALF_LIFE, SHARE, RATE = 12, 0.75, 0.005


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


def steps(first: int, last: int, every: int) -> Iterator[tuple[slice, slice]]:
    """Hours to forecast together, and those whose targets became known since the last forecast.

    With ``every`` = 24 these are the last 24 hours; with 1 it is the hour 24 hours ago.
    """
    for now in range(first, last, every):
        known = slice(now - DAY, now - DAY + every)
        yield slice(now, now + every), known if known.start >= first else slice(0)


def of_mapie(X: FloatArray, y: FloatArray, first: int, every: int, gamma: float | None) -> Any:
    """EnbPI, or ACI with a rate, fitted to all rows from the second week on until ``first``."""
    from mapie.regression import TimeSeriesRegressor
    from mapie.subsample import BlockBootstrap

    blocks = BlockBootstrap(
        n_resamplings=RESAMPLINGS, length=BLOCK, overlapping=True, random_state=0
    )
    method = "enbpi" if gamma is None else "aci"
    made = TimeSeriesRegressor(forest(), method=method, cv=blocks, agg_function="mean")
    made.fit(X[WEEK:first], y[WEEK:first])
    ends, how = [], {"ensemble": True, "confidence_level": LEVEL}
    for now, known in steps(first, len(y), every):
        if known.stop and gamma is not None:
            made.adapt_conformal_inference(X[known], y[known], gamma=gamma, **how)
        elif known.stop:
            made.update(X[known], y[known], ensemble=True)
        ends.append(made.predict(X[now], **how, allow_infinite_bounds=True)[1][:, :, 0])
    lower, upper = np.concatenate(ends).T
    return Intervals(lower, upper, LEVEL)


def recent_errors(model: Any, X: Any, y: Any, first: int, every: int) -> Any:
    """SHARE of the mean of recent errors as known at each forecast; ``first`` is calibrated on."""
    recent = (y[first:] - model.predict(X[first:])).ewm(halflife=HALF_LIFE).mean()
    if every == DAY:
        known = recent.shift().where(recent.index.hour == 0).ffill()
    else:
        known = recent.shift(DAY)
    return (SHARE * known).reindex(y.index).fillna(0.0)


def of_calliper(
    model: Any,
    X: Any,
    y: Any,
    first: int,
    every: int,
    control: Controller | None = None,
    train: tuple[Any, Any] | None = None,
) -> Any:
    """New labels join, the latest week stays; and the level adapts, if asked for.

    With training rows each midnight calibrates anew, and older hours teach beside them.
    """
    waiting: dict[int, bool] = {}
    ends = []
    for now, known in steps(first, len(y), every):
        if known.stop:
            if control is not None:
                hours = range(known.start, known.stop)
                control.update([waiting.pop(hour) for hour in hours], step=hours)
            if train is None or (known.stop - first) % DAY:
                model.extend(X[known], y[known], window=WEEK)
            else:
                labelled = slice(first - WEEK, known.stop)
                model.set_params(learning_part=known.stop - first)
                model.calibrate(X[labelled], y[labelled], X_train=train[0], y_train=train[1])
        hours = range(now.start, now.stop)
        if control is None:
            found = model.predict_interval(X[now], LEVEL)
        else:
            found = control.predict_interval(model, X[now], step=hours)
            waiting |= dict(zip(hours, found.contains(y[now]), strict=True))
        ends.append(np.column_stack([found.lower, found.upper]))
    lower, upper = np.concatenate(ends).T
    return Intervals(lower, upper, LEVEL)


def moved(intervals: Intervals, by: Any) -> Intervals:
    """Intervals of y from those of y less the move."""
    return Intervals(intervals.lower + by, intervals.upper + by, LEVEL)


def measured(y: Any, intervals: Intervals) -> dict[str, Any]:
    """Interval score, and the share inside over all and in each week."""
    target = y.to_numpy()
    inside, finite = intervals.contains(target), np.isfinite(intervals.width)
    return {
        "score": float(metrics.interval_score(target, intervals)),
        "inside": float(inside.mean()),
        "weeks": [float(part.mean()) for part in np.split(inside, len(y) // WEEK)],
        "width": float(intervals.width[finite].mean()),
        "infinite": int((~finite).sum()),
    }


def calibrated(X: Any, y: Any, target: Any, first: int) -> Any:
    """A forest trained up to a week before ``first``, calibrated on that week."""
    train, cal = slice(WEEK, first - WEEK), slice(first - WEEK, first)
    model = forest().fit(X[train], y[train])
    made = ConformalRegressor(model, shuffle=False, random_state=0)
    return made.calibrate(X[cal], target[cal], X_train=X[train], y_train=y[train])


def with_moves(
    X: Any,
    y: Any,
    first: int,
    every: int,
    control: Controller | None = None,
    *,
    learns: bool = False,
) -> Any:
    """Labels join, and intervals follow recent errors; older hours teach, if asked for."""
    rows = slice(WEEK, first - WEEK)
    model = forest().fit(X[rows], y[rows])
    move = recent_errors(model, X, y, first - WEEK, every)
    made, train = calibrated(X, y, y - move, first), (X[rows], y[rows]) if learns else None
    return moved(of_calliper(made, X, y - move, first, every, control, train), move[first:])


def study() -> dict[str, Any]:
    """All intervals, measured."""
    table = load_demand()
    X, y, first = columns(table), table["demand"], 6 * WEEK
    values = X.to_numpy(), y.to_numpy()
    found: dict[str, Any] = {}
    for every, when in ((DAY, "each midnight"), (1, "each hour")):
        here = found[when] = {}

        def measure(name: str, intervals: Intervals, when: str = when) -> None:
            found[when][name] = measured(y[first:], intervals)
            print(when, name, found[when][name], flush=True)

        measure("MAPIE, EnbPI", of_mapie(*values, first, every, None))
        for gamma in GAMMAS:
            measure(f"MAPIE, ACI, gamma {gamma}", of_mapie(*values, first, every, gamma))
        made = calibrated(X, y, y, first)
        if every == DAY:
            measure("calliper, calibrated once", made.predict_interval(X[first:], LEVEL))
        measure("calliper, labels join", of_calliper(made, X, y, first, every))
        measure("labels join, intervals follow errors", with_moves(X, y, first, every))
        measure("and older hours teach", with_moves(X, y, first, every, learns=True))
        control = Controller(LEVEL, rate=RATE)
        ends = with_moves(X, y, first, every, control, learns=True)
        measure("and the level adapts", ends)
        best = min(here[name]["score"] for name in here if name.startswith("MAPIE"))
        here["over MAPIE's best"] = here["and older hours teach"]["score"] / best
    measure("labels join, errors as columns", told(X, y, first), "each midnight")
    return found


def told(X: Any, y: Any, first: int) -> Any:
    """Labels join, and the error model is given recent errors as columns."""
    train, cal = slice(WEEK, first - WEEK), slice(first - WEEK, first)
    model = forest().fit(X[train], y[train])
    errors = y[WEEK:] - model.predict(X[WEEK:])
    errors[: cal.start - WEEK] = y[train] - cross_val_predict(
        forest(), X[train], y[train], cv=KFold(5)
    )
    Z = with_errors(X, errors)
    seen = OnColumns(forest(), list(X.columns)).fit(Z[train], y[train])
    made = ConformalRegressor(seen, shuffle=False, gap=DAY, refits=5, random_state=0)
    made.calibrate(Z[cal], y[cal], X_train=Z[train], y_train=y[train])
    return of_calliper(made, Z, y, first, DAY)


def backtest() -> None:
    """Interval scores of weeks 4 to 6 for some half-lives and shares, forecast each midnight."""
    global HALF_LIFE, SHARE
    table = load_demand()[: 6 * WEEK]
    X, y = columns(table), table["demand"]
    for HALF_LIFE, SHARE in ((24, 0.0), *product((12, 24, 48), (0.25, 0.5, 0.75, 1.0))):
        scores = []
        for week in (4, 5, 6):
            rows = slice(0, week * WEEK)
            intervals = with_moves(X[rows], y[rows], (week - 1) * WEEK, DAY)
            scores.append(metrics.interval_score(y[(week - 1) * WEEK : rows.stop], intervals))
        print(HALF_LIFE, SHARE, np.round(scores, 3), f"{np.mean(scores):.3f}", flush=True)


def main() -> None:
    """Run all, and write what came."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if sys.argv[1:] == ["backtest"]:
            backtest()
            return
        found = study()
    versions = {name: version(name) for name in ("mapie", "scikit-learn")}
    settings = {
        "model": repr(forest()),
        "MAPIE": f"BlockBootstrap({RESAMPLINGS}, length={BLOCK}, overlapping), mean of the members",
        "moves": f"{SHARE} of the mean error, half-life {HALF_LIFE} hours",
    }
    text = json.dumps({"versions": versions, "settings": settings, "found": found}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
