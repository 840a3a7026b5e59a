"""Dask: two worker processes against one on the same rows, and what the client holds meanwhile."""

from __future__ import annotations

import resource
from functools import cache
from time import perf_counter, process_time
from typing import Any

import numpy as np

from calliper import KNN, ConformalRegressor, FullRescaled
from studies.benchmarks.timing import table

N, DIMENSION, PARTITION, LIMIT = 2_000, 8, 20_000, 1.6


def first_column(X: Any) -> Any:
    """A model that costs nothing, so that the intervals are what is timed."""
    return np.asarray(X)[:, 0]


def draw(seed: int) -> Any:
    """A partition of new rows."""
    return np.random.default_rng(seed).normal(size=(PARTITION, DIMENSION))


def rows(n_partitions: int) -> Any:
    """A Dask Array whose blocks are drawn where they are asked for."""
    import dask.array as da
    from dask import delayed

    shape = PARTITION, DIMENSION
    parts = [da.from_delayed(delayed(draw)(seed), shape, float) for seed in range(n_partitions)]
    return da.concatenate(parts)


@cache
def calibrated() -> ConformalRegressor:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, DIMENSION))
    y = X[:, 0] + X[:, 1] * rng.normal(size=N)
    method = ConformalRegressor(first_column, FullRescaled(KNN(10)), embed="inputs")
    return method.calibrate(X, y)


def mean_width(n_partitions: int) -> float:
    """Something small of all intervals, so that these need not travel."""
    ends: Any = calibrated().predict_interval(rows(n_partitions), 0.9)
    return float((ends[:, 1] - ends[:, 0]).mean().compute())


def two_workers(rounds: int = 3, n_partitions: int = 8) -> str:
    """Time with one and with two workers, in turns; and the client's memory for more rows."""
    from distributed import Client, LocalCluster

    times: dict[int, list[float]] = {1: [], 2: []}
    busy: dict[int, list[float]] = {1: [], 2: []}
    found: set[float] = set()
    peaks: list[float] = []
    how: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0"}
    for _ in range(rounds):
        for n_workers in times:
            with LocalCluster(n_workers=n_workers, **how) as cluster, Client(cluster) as client:
                mean_width(2)  # workers have imported what they need
                before, start = client.run(process_time), perf_counter()
                found.add(mean_width(n_partitions))
                times[n_workers].append(perf_counter() - start)
                after = client.run(process_time)
                busy[n_workers].append(max(after[worker] - before[worker] for worker in after))
                if n_workers == 2 and not peaks:
                    for partitions in (n_partitions // 4, 4 * n_partitions):
                        mean_width(partitions)
                        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    assert len(found) == 1  # the same bits
    one, two = (min(times[n_workers]) for n_workers in (1, 2))
    by_processor = min(busy[1]) / min(busy[2])  # of the busiest worker: what others run is no part
    m, verdict = n_partitions * PARTITION, "" if one / two >= LIMIT else ", MISSED"
    return table(
        ["M", "one worker", "two workers", "ratio", "by processor time", "client, M / 4 → 4 M"],
        [
            [
                f"{m:,}",
                f"{one:.2f} s ({m / one:,.0f} rows/s)",
                f"{two:.2f} s ({m / two:,.0f} rows/s)",
                f"{one / two:.2f} × (at least {LIMIT}{verdict})",
                f"{by_processor:.2f} ×",
                f"{peaks[0]:.0f} → {peaks[1]:.0f} MB",
            ]
        ],
    )


if __name__ == "__main__":
    print(two_workers())
