"""Loading what was calibrated, against reading the same bytes bare, and against pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import calliper
from calliper import KNN, JackknifeRescaled
from studies.benchmarks.timing import table

N, DIMENSION, LIMIT = 100_000, 10, 0.5


def arrays_and_all(rounds: int) -> str:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(N, DIMENSION))
    made = JackknifeRescaled(KNN(10)).fit(Z, np.abs(rng.normal(size=N)))
    made.predict_radius(Z[:1], 0.9)
    with TemporaryDirectory() as name:
        folder = Path(name)
        kept, pickled = folder / "kept.calliper", folder / "kept.pickle"
        saving = _seconds(lambda: calliper.save(made, kept), rounds)
        pickled.write_bytes(pickle.dumps(made))
        seconds = _seconds(lambda: calliper.load(kept), rounds)
        bare = _seconds(lambda: np.fromfile(kept, np.uint8), rounds)
        by_pickle = _seconds(lambda: pickle.loads(pickled.read_bytes()), rounds)
        size = kept.stat().st_size
        held = 8 * N * (DIMENSION + 1)
    missed = "" if seconds <= LIMIT else ", MISSED"
    cells = [f"{saving:.2f} s", f"{seconds:.2f} s (limit {LIMIT} s{missed})"]
    ratios = [f"{seconds / bare:.1f}", f"{seconds / by_pickle:.1f}", f"{size / held:.3f}"]
    heads = [
        "N, ten features",
        "save",
        "load",
        "over a bare read",
        "over pickle",
        "size over arrays",
    ]
    return table(heads, [[f"{N:,}", *cells, *ratios]])


def _seconds(work: Callable[[], object], rounds: int) -> float:
    """The best of several."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)
