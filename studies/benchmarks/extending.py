"""One row more: extending against calibrating anew, and a step of a stream against a prediction."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
from sklearn.linear_model import Ridge

from calliper import KNN, ConformalRegressor, FullRescaled
from calliper.online import RATES, Controller, coverage_needed
from studies.benchmarks.timing import table

N, DIMENSION, ADDED, LIMIT = 100_000, 10, 20, 1 / 50


def one_row() -> str:
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(N + ADDED, DIMENSION)), np.abs(rng.normal(size=N + ADDED))
    start = perf_counter()
    method = FullRescaled(KNN(10)).fit(Z[:N], scores[:N])
    anew, times = perf_counter() - start, []
    for row in range(N, N + ADDED):
        start = perf_counter()
        method.extend(Z[row : row + 1], scores[row : row + 1])
        times.append(perf_counter() - start)
    ratio = float(np.median(times)) / anew
    missed = "" if ratio <= LIMIT else ", MISSED"
    cells = [f"{N:,}", f"{anew:.2f} s", f"{1000 * np.median(times):.1f} ms"]
    return table(
        ["N, ten features", "anew", "one row more", "ratio"],
        [[*cells, f"1/{1 / ratio:.0f} (limit 1/50{missed})"]],
    )


def one_step() -> str:
    """Predict, update and extend with a window of 1,000: CPU time in units of one prediction.

    Both are timed in turn and compared by their fastest tenth, since others may use the machine.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3200, 8))
    y = X[:, 0] + X[:, 1] * rng.normal(size=len(X))
    model = ConformalRegressor(Ridge().fit(X[:1000], y[:1000]), random_state=0)
    model.calibrate(X[1000:2000], y[1000:2000]).extend(X[2000:3000], y[2000:3000], window=1000)

    def timed(act: Callable[[int], object], row: int) -> float:
        start = process_time()
        act(row)
        return process_time() - start

    def step(control: Controller) -> Callable[[int], object]:
        def act(row: int) -> None:
            x, target = X[row : row + 1], y[row : row + 1]
            inside = control.predict_interval(model, x).contains(target)
            several = np.ndim(control.rate) > 0
            control.update(inside, needed=coverage_needed(model, x, target) if several else None)
            model.extend(x, target, window=1000)

        return act

    def alone(row: int) -> object:
        return model.predict_interval(X[row : row + 1], 0.9)

    cells: list[str] = []
    for rate in (0.01, RATES):
        whole, rows = step(Controller(rate=rate)), range(3000, len(X))
        times = np.array([(timed(alone, row), timed(whole, row)) for row in rows])
        one, all_of_it = np.quantile(times, 0.1, axis=0)
        ratio = all_of_it / one
        cells += [] if cells else [f"{1000 * one:.1f} ms"]
        cells.append(f"{ratio:.1f} (limit 5{'' if ratio <= 5 else ', MISSED'})")
    return table(["one prediction (CPU)", "a step, one rate", "a step, several rates"], [cells])
