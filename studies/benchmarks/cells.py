"""Neighbours in cells against the exact search, and one row among many calibration rows.

``python -m studies.benchmarks.cells --rows 1e6`` runs both on a million points, from fit to the
last radius: an hour on two cores. ``--exact torch`` lets a GPU find the exact radii that scores are
compared with, ``--exact none`` runs cells alone.
"""

from __future__ import annotations

import argparse
import os
import resource
from time import perf_counter
from typing import Any

import numpy as np

from calliper import KNN, FullRescaled
from calliper.scale import Cells
from studies.benchmarks.timing import table, verdict

K, LEVEL = 10, 0.9

#: Rows drawn together: ten million leave no room for a second copy of them.
AT_ONCE = 100_000


def embedding(n: int, rng: np.random.Generator, *, d: int = 64, inner: int = 6) -> tuple[Any, Any]:
    """Rows near a surface of few dimensions, and errors whose size depends on where they are."""
    across = np.random.default_rng(7).normal(size=(inner, d)) / np.sqrt(inner)
    Z, errors = np.empty((n, d)), np.empty(n)
    for start in range(0, n, AT_ONCE):
        part = slice(start, min(n, start + AT_ONCE))
        m = part.stop - start
        place = rng.normal(size=(m, inner))
        size = np.exp(0.8 * np.sin(2 * place[:, 0]) + 0.5 * place[:, min(1, inner - 1)])
        Z[part] = place @ across + 0.1 * rng.normal(size=(m, d))
        errors[part] = np.abs(rng.normal(size=m)) * size
    return Z, errors


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
        method, known = FullRescaled(kernel), {} if kernel.cells is None else {"training": train}
        return seconds(lambda: method.fit(Z, errors, **known).predict_radius(new, LEVEL))

    exact, radius = ask(KNN(K))
    expected = score(radius, truth)
    for n_probes in (4, 8, 16):
        time, found = ask(KNN(K, cells=Cells(n_probes=n_probes, random_state=0)))
        ratio = verdict(score(found, truth) / expected, 1.01)
        rows.append([f"{n:,} × {m:,} × 64", str(n_probes), f"{time / exact:.2f}", ratio])
    return table(["N × M × d", "probes", "time / exact", "interval score / exact"], rows)


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


def at_scale(n: int, m: int, exact: str, inner: int, cells: Cells) -> list[str]:
    """A row of the table: cells on n points from fit to radii, and the exact search beside it."""
    rng = np.random.default_rng(0)
    (Z, errors), (new, truth) = embedding(n, rng, inner=inner), embedding(m, rng, inner=inner)
    train, _ = embedding(min(n, 600_000), rng, inner=inner)

    def ask(kernel: KNN) -> tuple[float, float, float, float]:
        method, known = FullRescaled(kernel), {} if kernel.cells is None else {"training": train}
        to_fit, _ = seconds(lambda: method.fit(Z, errors, **known))
        to_predict, radius = seconds(lambda: method.predict_radius(new, LEVEL))
        return to_fit, to_predict, score(radius, truth), float(np.mean(truth <= radius))

    *times, found, covered = ask(KNN(K, cells=cells))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = [f"{n:,} × {m:,} × 64", str(inner), str(cells.n_probes)]
    row += [f"{times[0]:.0f} + {times[1]:.1f} s", f"{peak:.1f} GiB", f"{covered:.2%}"]
    if exact == "none":
        return [*row, "-", "-"]
    *beside, expected, _ = ask(KNN(K, engine=None if exact == "processor" else exact))
    share = sum(times) / sum(beside)
    took = f"{beside[0]:.0f} + {beside[1]:.1f} s"
    took += f", {verdict(share, 0.1)}" if exact == "processor" else f" ({exact})"
    return [*row, took, f"{found / expected:.4f} (limit 1.01)"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--new", type=float, default=2e4)
    parser.add_argument("--exact", default="processor", help="processor, torch or none")
    parser.add_argument("--inner", type=int, default=6, help="dimensions of the surface")
    parser.add_argument("--probes", type=int, default=16)
    parser.add_argument("--cells", type=int, help="how many; by default of the training rows")
    options = parser.parse_args()
    cells = Cells(options.cells, n_probes=options.probes, random_state=0)
    row = at_scale(int(options.rows), int(options.new), options.exact, options.inner, cells)
    names = [
        "N × M × d",
        "surface",
        "probes",
        "cells: fit + predict",
        "peak",
        "covered",
        "exact: fit + predict",
    ]
    print(f"{os.cpu_count()} cores\n\n{table([*names, 'interval score / exact'], [row])}")


if __name__ == "__main__":
    main()
