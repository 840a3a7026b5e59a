"""Neighbours in cells against the exact search, and one row among many calibration points."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.timing import table, verdict
from calliper import KNN, FullRescaled
from calliper.kernels import Cells, NeighborSearch

K, LEVEL = 10, 0.9


def embedding(n: int, rng: np.random.Generator, *, d: int = 64, inner: int = 6) -> tuple[Any, Any]:
    """Rows near a surface of few dimensions, and errors whose size depends on where they are."""
    across = np.random.default_rng(7).normal(size=(inner, d)) / np.sqrt(inner)
    place = rng.normal(size=(n, inner))
    size = np.exp(0.8 * np.sin(2 * place[:, 0]) + 0.5 * place[:, 1])
    Z = place @ across + 0.1 * rng.normal(size=(n, d))
    return Z, np.abs(rng.normal(size=n)) * size


def seconds(work: Any) -> tuple[float, Any]:
    """How long it takes, and what comes back."""
    start = perf_counter()
    found = work()
    return perf_counter() - start, found


def score(radius: Any, errors: Any) -> float:
    """The mean interval score."""
    miss = np.maximum(errors - radius, 0.0)
    return float(np.mean(2 * radius + 2 / (1 - LEVEL) * miss))


def against_exact(n: int = 50_000, m: int = 5_000) -> str:
    """Time and interval score of fit and predict, and how many of the K nearest are found."""
    rng, rows = np.random.default_rng(0), []
    (Z, errors), (new, truth), (train, _) = (embedding(each, rng) for each in (n, m, n))

    def ask(kernel: KNN) -> tuple[float, Any]:
        method = FullRescaled(kernel)
        return seconds(lambda: method.fit(Z, errors, Z_train=train).predict_radius(new, LEVEL))

    exact, radius = ask(KNN(K))
    expected = score(radius, truth)
    for n_probes in (4, 8, 16):
        time, found = ask(KNN(K, cells=Cells(n_probes=n_probes, random_state=0)))
        ratio = verdict(score(found, truth) / expected, 1.01)
        rows.append([f"{n:,} × {m:,} × 64", str(n_probes), f"{time / exact:.2f}", ratio])
    return table(["N × M × d", "probes", "time / exact", "interval score / exact"], rows)


def fit_of_a_million(n: int = 1_000_000, block: int = 2_000) -> str:
    """Fit with cells against the exact search of a block of rows, times n / block."""
    rng = np.random.default_rng(0)
    (Z, errors), (train, _) = embedding(n, rng), embedding(200_000, rng)
    kernel = KNN(K, cells=Cells(4000, random_state=0))
    time, _ = seconds(lambda: FullRescaled(kernel).fit(Z, errors, Z_train=train))
    search = NeighborSearch(Z, "euclidean")
    exact, _ = seconds(lambda: search.nearest(Z[:block], K + 1))
    ratio = verdict(time / (exact * n / block), 0.1)
    return table(["fit, N × d", "seconds", "time / exact"], [[f"{n:,} × 64", f"{time:.0f}", ratio]])


def one_row(n: int = 100_000, rounds: int = 200) -> str:
    """The median time of one row, where the balls of all points are kept ready."""
    rows = []
    for d, limit in ((10, 2.0), (64, 10.0)):
        rng = np.random.default_rng(0)
        Z, new = rng.normal(size=(n, d)), rng.normal(size=(rounds, d))
        method = FullRescaled(KNN(K)).fit(Z, rng.exponential(size=n))
        method.predict_radius(new[:1])
        times = [seconds(lambda: method.predict_radius(row[None]))[0] for row in new]  # noqa: B023
        rows.append([f"{n:,} × {d}", verdict(1e3 * float(np.median(times)), limit)])
    return table(["one row, N × d", "milliseconds"], rows)


if __name__ == "__main__":
    print(fit_of_a_million())
