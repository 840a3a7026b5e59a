"""Tuning: all N × 30 criteria, and prediction with tuned length scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.feature_selection import mutual_info_regression

from calliper import RBF, JackknifeRescaled
from calliper.kernels import TunedRBF
from studies.benchmarks.timing import best_times, table, verdict

N_SCAN = 30


def problem(n: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    Z, train, new = (rng.uniform(size=(size, 1)) for size in (n, 1000, 10_000))
    scores = np.abs(rng.normal(size=n)) * (0.01 + np.abs(np.sin(12 * Z[:, 0])))
    return Z, scores, train, new


def seconds(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def criteria() -> str:
    rows = []
    for n in (500, 2000):
        Z, scores, train, _ = problem(n)

        def call_scikit_learn(Z: Any = Z, scores: Any = scores) -> None:
            for _ in range(100):
                mutual_info_regression(Z, scores, n_neighbors=3)

        def tune(criterion: str, Z: Any = Z, scores: Any = scores, train: Any = train) -> None:
            kernel = TunedRBF(criterion, n_scan=N_SCAN)
            JackknifeRescaled(kernel).fit(Z, scores, training=train)

        per_call = seconds(call_scikit_learn) / 100
        tuned = {name: seconds(partial(tune, name)) for name in ("mi", "mse", "deviance")}
        theirs = per_call * n * N_SCAN
        rows.append(
            [
                f"N = {n:,}: {n * N_SCAN:,} values",
                f"{theirs / tuned['mi']:.1f} × (at least 10)",
                f"{tuned['mi'] / tuned['mse']:.1f} × (at least 5)",
                f"{tuned['mi'] / tuned['deviance']:.1f} ×",
            ]
        )
    header = ["work", "mi: faster than scikit-learn", "mse: faster than mi", "deviance: than mi"]
    return table(header, rows)


def prediction(rounds: int) -> str:
    Z, scores, train, new = problem(2000)
    tuned = JackknifeRescaled(TunedRBF("mse"), random_state=0).fit(Z, scores, training=train)
    scale: Any = tuned.scale_
    fixed = JackknifeRescaled(RBF(float(np.median(scale.chosen)))).fit(Z, scores)
    spread = scale.candidates[[8, 9, 10, 11]]
    varied = JackknifeRescaled(TunedRBF(chosen=np.resize(spread, 2000))).fit(Z, scores)
    time = best_times(
        {
            "fixed": lambda: fixed.predict_radius(new),
            "tuned": lambda: tuned.predict_radius(new),
            "varied": lambda: varied.predict_radius(new),
        },
        rounds,
    )
    distinct = len(np.unique(scale.chosen))
    rows = [
        [f"as chosen: {distinct} different scales", verdict(time["tuned"] / time["fixed"], 4)],
        ["4 different scales, in equal parts", f"{time['varied'] / time['fixed']:.2f}"],
    ]
    return table(["prediction, 2,000 × 10,000", "tuned / fixed RBF"], rows)
