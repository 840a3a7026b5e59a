"""Cost of the space that ``embed="auto"`` chooses, against the model's own predict."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
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

from calliper import ConformalRegressor, FullRescaled
from studies.benchmarks.timing import best_times, table, verdict

N_TRAINING, N, M, D = 2_000, 500, 10_000, 10
LIMIT = 1.5
#: Single rows: how many are asked, and milliseconds and part of ``predict`` that may come on top.
N_SINGLE, EXTRA_MS, EXTRA_PART = 300, 1.0, 0.5
#: Calibration rows, and how often the model could predict the new rows while intervals are made.
LARGE = {10_000: 4.0, 50_000: 5.0, 200_000: 6.0}
N_LIGHTGBM, NEW_ROWS = 10_000, 50_000


def models() -> dict[str, Any]:
    forest = RandomForestRegressor(random_state=0)
    return {
        "random forest": forest,
        "random forest, 2 threads": RandomForestRegressor(n_jobs=2, random_state=0),
        "scaler and forest": make_pipeline(StandardScaler(), forest),
        "extra trees": ExtraTreesRegressor(random_state=0),
        "bagging": BaggingRegressor(n_estimators=100, random_state=0),
        "bagging, half of the inputs": BaggingRegressor(
            n_estimators=100, max_features=0.5, random_state=0
        ),
        "gradient boosting": GradientBoostingRegressor(random_state=0),
        "histogram gradient boosting": HistGradientBoostingRegressor(random_state=0),
    }


def problem(n: int) -> tuple[Any, Any, list[Any]]:
    """Inputs, targets, and rows to train on, to calibrate on (n of them) and to predict."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_TRAINING + n + M, D))
    y = X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=len(X))
    return X, y, np.split(np.arange(len(X)), [N_TRAINING, N_TRAINING + n])


def auto(rounds: int) -> str:
    """Prediction and place of new rows in one pass, for each kind of model.

    Without anything learnt, and with the error model learnt from errors on training rows.
    """
    X, y, (train, calibration, new) = problem(N)
    rows = []
    for name, model in models().items():
        model.fit(X[train], y[train])
        alone = ConformalRegressor(model, learning_part=None)
        alone.calibrate(X[calibration], y[calibration])
        taught = ConformalRegressor(model, FullRescaled(), refits=2).calibrate(
            X[calibration], y[calibration], X_train=X[train], y_train=y[train]
        )
        work = {
            "predict": partial(model.predict, X[new]),
            "alone": partial(alone.embedding_.predict_and_transform, X[new]),
            "taught": partial(taught.embedding_.predict_and_transform, X[new]),
        }
        time = best_times(work, rounds)
        ratios = [verdict(time[key] / time["predict"], LIMIT) for key in ("alone", "taught")]
        rows.append([name, alone.embedding_.space.name, *ratios])
    header = [f"{M:,} × {D}", "space", "/ predict", "with expected error / predict"]
    return table(header, rows)


def common_models() -> dict[str, Any]:
    """One thread each: several would wait for one another longer than one row takes."""
    from catboost import CatBoostRegressor  # type: ignore[import-untyped]
    from lightgbm import LGBMRegressor
    from xgboost import XGBRegressor

    return {
        "random forest": RandomForestRegressor(random_state=0),
        "histogram boosting": HistGradientBoostingRegressor(random_state=0),
        "XGBoost": XGBRegressor(n_jobs=1, random_state=0),
        "LightGBM": LGBMRegressor(n_jobs=1, verbose=-1, random_state=0),
        "CatBoost": CatBoostRegressor(
            iterations=300, thread_count=1, verbose=0, allow_writing_files=False, random_state=0
        ),
        "scaler and ridge": make_pipeline(StandardScaler(), Ridge()),
        "network": MLPRegressor(hidden_layer_sizes=(32, 32), max_iter=100, random_state=0),
    }


def single_rows() -> str:
    """What an interval of one row costs beyond its prediction, over what it may cost; medians."""
    rows = []
    for name, model in common_models().items():
        cells = []
        for n in (500, 2_000):
            X, y, (train, calibration, new) = problem(n)
            model.fit(X[train], y[train])
            known = {"X_train": X[train], "y_train": y[train]}
            for folds, given in ((None, {}), (2, known)):
                fitted = ConformalRegressor(model, refits=folds)
                fitted.calibrate(X[calibration], y[calibration], **given)
                predict, interval = _medians(model, fitted, X[new[:N_SINGLE]])
                cells.append(verdict((interval - predict) / (EXTRA_MS + EXTRA_PART * predict), 1.0))
        rows.append([name, f"{predict:.2f} ms", *cells])
    header = ["one row", "predict", *(f"N = {n}{t}" for n in (500, 2000) for t in ("", ", taught"))]
    return table(header, rows)


def large_sets(rounds: int) -> str:
    """Default intervals of many rows over LightGBM's own ``predict`` of them, in processor time."""
    from lightgbm import LGBMRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_LIGHTGBM + max(LARGE) + NEW_ROWS, 8))
    y = X[:, 0] + np.sin(3 * X[:, 2]) + np.exp(X[:, 1] / 2) * rng.normal(size=len(X))
    train, new = slice(N_LIGHTGBM), X[-NEW_ROWS:]
    model = LGBMRegressor(n_jobs=1, verbose=-1, random_state=0).fit(X[train], y[train])
    rows = []
    for n, limit in LARGE.items():
        calibration = slice(N_LIGHTGBM, N_LIGHTGBM + n)
        start = process_time()
        fitted = ConformalRegressor(model).calibrate(X[calibration], y[calibration])
        calibrating = process_time() - start
        work: dict[str, Callable[[], Any]] = {
            "predict": partial(model.predict, new),
            "interval": partial(fitted.predict_interval, new),
        }
        time = best_times(work, rounds, process_time)
        ratios = time["interval"] / time["predict"], calibrating / time["predict"]
        rows.append([f"{n:,}", verdict(ratios[0], limit), f"{ratios[1]:.0f}"])
    header = [f"N, {NEW_ROWS:,} new rows × 8", "interval / predict", "calibrate / predict"]
    return table(header, rows)


def _medians(model: Any, fitted: Any, X: Any) -> tuple[float, float]:
    """Milliseconds for a prediction and for an interval, in turns."""
    times = np.empty((2, len(X)))
    for i in range(len(X)):
        for which, ask in enumerate((model.predict, fitted.predict_interval)):
            start = perf_counter()
            ask(X[i : i + 1])
            times[which, i] = 1e3 * (perf_counter() - start)
    predict, interval = np.median(times, axis=1)
    return float(predict), float(interval)
