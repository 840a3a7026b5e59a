"""Every measure on a million test points, against one stable argsort of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from calliper import metrics
from calliper.intervals import Intervals
from studies.benchmarks.timing import best_times, table, verdict

N, D = 1_000_000, 8
LIMIT = 10


def measures(rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    """Each measure with its arguments; those of quadratic cost take their default sample."""
    spread = rng.uniform(1, 5, N)
    y, X, groups = spread * rng.normal(size=N), rng.normal(size=(N, D)), rng.integers(0, 20, N)
    intervals = Intervals(-1.645 * spread, 1.645 * spread, 0.9)
    names = np.array([f"site {number}" for number in range(20)])[groups]
    plain = (
        metrics.empirical_coverage,
        metrics.interval_score,
        metrics.pinball_loss,
        metrics.tau_si,
        metrics.tau_sqi,
        metrics.r2_sqi,
        metrics.coverage_by_width,
        metrics.coverage_width_correlation,
    )
    work: dict[str, Callable[[], Any]] = {
        measure.__name__: partial(measure, y, intervals) for measure in plain
    }
    for measure in (metrics.mean_width, metrics.median_width, metrics.fraction_infinite):
        work[measure.__name__] = partial(measure, intervals)
    work["coverage_by_value"] = partial(metrics.coverage_by_value, y, intervals, X[:, 0])
    work["coverage_by_group, 20 names"] = partial(metrics.coverage_by_group, y, intervals, names)
    work["hsic, sample of 5,000"] = partial(metrics.hsic, y, intervals)
    for sampled in (metrics.worst_slab_coverage, metrics.excess_risk_of_target_coverage):
        work[f"{sampled.__name__}, sample of 5,000"] = partial(sampled, y, intervals, X)
    return work


def main(rounds: int) -> str:
    rng = np.random.default_rng(0)
    work, values = measures(rng), rng.normal(size=N)
    # Vector instructions make np.sort up to 14 times faster, and leave a stable argsort as it is.
    unit = partial(np.argsort, values, kind="stable")
    time = best_times({"argsort": unit, **work}, rounds)
    rows = [[name, verdict(time[name] / time["argsort"], LIMIT)] for name in work]
    return table([f"{N:,} test points", "/ stable argsort of them"], rows)
