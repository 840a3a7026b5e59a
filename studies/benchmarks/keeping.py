"""What was kept and loaded, against the same before: one row's time, and memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import calliper
from calliper import ConformalRegressor
from studies.benchmarks.timing import table, verdict

N, DIMENSION, CALLS = 2_000, 10, 150
LIMIT = 1.1

MODELS: dict[str, Callable[[], Any]] = {
    "scaler and ridge": lambda: make_pipeline(StandardScaler(), Ridge()),
    "random forest": lambda: RandomForestRegressor(random_state=0),
    "histogram gradient boosting": lambda: HistGradientBoostingRegressor(random_state=0),
    "network (MLP)": lambda: MLPRegressor(max_iter=50, random_state=0),
}


def loaded() -> str:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * N, DIMENSION))
    y = X[:, 0] + (0.5 + np.abs(X[:, 1])) * rng.normal(size=2 * N)
    rows = []
    for name, make in MODELS.items():
        model: Any = make()
        model.fit(X[:N], y[:N])
        rows.append([name, *_cells(model, X, y)])
    header = ["one row", "predict", "interval", "loaded / before", "loaded / predict"]
    return table([*header, "memory of it", "loaded / before", "file"], rows)


def _cells(model: Any, X: Any, y: Any) -> list[str]:
    taught = {"X_train": X[:N], "y_train": y[:N]}
    before, held = _held(
        lambda: ConformalRegressor(model, refits=2).calibrate(X[N:], y[N:], **taught)
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kept"
        calliper.save(before, path)
        after, held_after = _held(lambda: calliper.load(path, model))
        size = path.stat().st_size
    work = {
        "predict": lambda row: model.predict(row),
        "before": lambda row: before.predict_interval(row),
        "after": lambda row: after.predict_interval(row),
    }
    time = _medians(work, X)
    return [
        f"{1000 * time['predict']:.2f} ms",
        f"{1000 * time['after']:.2f} ms",
        verdict(time["after"] / time["before"], LIMIT),
        f"{time['after'] / time['predict']:.2f}",
        f"{held_after / 1e6:.2f} MB",
        f"{held_after / held:.2f}",
        f"{size / 1e6:.2f} MB",
    ]


def _held(make: Callable[[], Any]) -> tuple[Any, int]:
    """What is made, and the bytes that it holds on to, once it was asked."""
    gc.collect()
    tracemalloc.start()
    made = make()
    made.predict_interval(np.zeros((1, DIMENSION)))
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return made, held


def _medians(work: dict[str, Callable[[Any], Any]], X: Any) -> dict[str, float]:
    """The median time of each piece of work on single rows, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for place in range(CALLS):
        for name, run in work.items():
            row = X[place : place + 1]
            start = perf_counter()
            run(row)
            times[name].append(perf_counter() - start)
    return {name: float(np.median(each)) for name, each in times.items()}


if __name__ == "__main__":
    print(loaded())
