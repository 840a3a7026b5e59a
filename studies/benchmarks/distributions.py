"""Predictive distributions: five quantiles against one interval, and the memory of both."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from calliper import KNN, FullRescaled
from studies.benchmarks.timing import best_times, table, verdict

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def peak(work: Callable[[], Any]) -> float:
    """The most memory that arrays take meanwhile, in MB."""
    tracemalloc.start()
    work()
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return megabytes


def quantiles(rounds: int) -> str:
    n, m, d = 10_000, 10_000, 5
    rng = np.random.default_rng(0)
    Z, new = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    errors, rows = rng.normal(size=n) * np.exp(0.5 * Z[:, 0]), []
    for method in (FullRescaled(KNN(10)), FullRescaled(KNN(20), shrinkage=0.2)):
        method.fit(Z, np.abs(errors), signs=np.sign(errors))
        batch = method.predict_distribution(new, np.zeros(m))
        work: dict[str, Callable[[], Any]] = {
            "interval": lambda: method.predict_radius(new),  # noqa: B023
            "quantiles": lambda: batch.quantile(LEVELS),  # noqa: B023
        }
        time, memory = best_times(work, rounds), {name: peak(each) for name, each in work.items()}
        scores = peak(lambda: batch.crps(np.zeros(m)))  # noqa: B023
        rows.append(
            [
                repr(method),
                verdict(time["quantiles"] / time["interval"], 2.5),
                f"{memory['interval']:.0f}, {memory['quantiles']:.0f} and {scores:.0f} MB",
            ]
        )
    return table(
        ["10,000 × 10,000 × 5", "5 quantiles / interval", "interval, quantiles, CRPS"], rows
    )
