"""One row more: extending a calibrated object against calibrating anew."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from calliper import KNN, FullRescaled
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
