"""Curves of time and memory: against calibration rows, new rows, features and workers.

``python -m studies.benchmarks.scaling`` measures all of them (a quarter of an hour on two cores)
and draws ``docs/images/scale.png``; what was measured is kept in ``scaling.json`` beside this
file. ``--draw`` draws what is kept. Each point is a process of its own: its time is that of the
better of two tries where one takes less than three seconds, its memory what comes on top of the
rows themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from calliper import KNN, FullRescaled, Split
from calliper.scale import Cells
from studies.benchmarks import clusters
from studies.benchmarks.cells import embedding

KEPT = Path(__file__).with_suffix(".json")
FIGURE = Path(__file__).parents[2] / "docs" / "images" / "scale.png"

#: Okabe and Ito's colours, which people of all kinds of colour vision can tell apart, and marks.
SERIES = tuple(zip(("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#8C8C8C"), "os^Dv", strict=True))

METHODS: dict[str, Any] = {
    "10 nearest": lambda: FullRescaled(KNN(10)),
    "10 nearest in cells": lambda: FullRescaled(KNN(10, cells=Cells(random_state=0))),
    "default": FullRescaled,
    "plain split": Split,
}


#: Sizes that are tried.
SIZES = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
FEATURES = [2**power for power in range(10)]

#: What grows, the method, the features where these do not grow, and where it goes.
CURVES: list[tuple[str, str, int, list[int]]] = [
    ("N", "10 nearest", 10, SIZES),
    ("N", "10 nearest", 64, SIZES[:5]),
    ("N", "10 nearest in cells", 64, SIZES[2:]),
    ("N", "default", 10, SIZES[:4]),
    ("N", "plain split", 10, SIZES),
    ("M", "10 nearest", 10, SIZES),
    ("M", "10 nearest", 64, SIZES[:6]),
    ("M", "default", 10, SIZES[:5]),
    ("M", "plain split", 10, SIZES),
    ("d", "10 nearest", 10, FEATURES),
    ("d", "default", 10, FEATURES),
    ("d", "plain split", 10, FEATURES),
]

#: How many there are of what does not grow.
FIXED = {"N": 10_000, "M": 10_000}


def _peak() -> float:
    """The most memory that this process has had, in MB."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def measured(method: str, n: int, m: int, d: int) -> dict[str, float]:
    """Seconds of fit and of predict, and MB beyond the rows, in this process."""
    rng = np.random.default_rng(0)
    inner = {"inner": min(d, 6)}
    (Z, errors), (new, _) = embedding(n, rng, d=d, **inner), embedding(m, rng, d=d, **inner)
    given: dict[str, Any] = {}
    if "cells" in method:
        given = {"training": embedding(min(n, 400_000), rng, d=d, **inner)[0]}
    METHODS[method]().fit(Z[:500], errors[:500]).predict_radius(new[:500])
    before, times = _peak(), list[tuple[float, float]]()
    while not times or (len(times) < 2 and sum(times[0]) < 3):
        start = perf_counter()
        made = METHODS[method]().fit(Z, errors, **given)
        between = perf_counter()
        made.predict_radius(new, 0.9)
        times.append((between - start, perf_counter() - between))
    fit, predict = min(times, key=sum)
    return {"fit": fit, "predict": predict, "MB": _peak() - before}


def _alone(method: str, n: int, m: int, d: int) -> dict[str, float]:
    """The same in a process of its own."""
    one = ["--one", method, str(n), str(m), str(d)]
    command = [sys.executable, "-m", "studies.benchmarks.scaling", *one]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(out.stdout))


def by_workers(rounds: int = 3, n_partitions: int = 16) -> list[dict[str, Any]]:
    """The same rows through Dask, with one worker process up to one for each core."""
    from distributed import Client, LocalCluster

    found = []
    for n_workers in range(1, (os.cpu_count() or 1) + 1):
        times, how = [], {"threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(n_workers=n_workers, **how) as cluster, Client(cluster) as client:
            clusters.mean_width(2)
            for _ in range(rounds):
                start = perf_counter()
                clusters.mean_width(n_partitions)
                times.append(perf_counter() - start)
            memory = max(client.run(_peak).values())
        each = {"what": "workers", "method": "10 nearest", "d": clusters.DIMENSION, "at": n_workers}
        found.append(each | {"fit": 0.0, "predict": min(times), "MB": memory})
    return found


def measure() -> None:
    """Measure all curves, and keep them."""
    found: list[dict[str, Any]] = []
    for what, method, d, steps in CURVES:
        for at in steps:
            sizes = FIXED | {"d": d} | {what: at}
            took = _alone(method, sizes["N"], sizes["M"], sizes["d"])
            rounded = {name: float(f"{value:.3g}") for name, value in took.items()}
            found.append({"what": what, "method": method, "d": d, "at": at} | rounded)
            print(*found[-1].values(), flush=True)
    found += by_workers()
    lines = ",\n".join(json.dumps(each) for each in found)
    KEPT.write_text(f'{{"cores": {os.cpu_count()}, "points": [\n{lines}\n]}}\n', encoding="utf-8")


def draw() -> None:
    """All curves in one figure: seconds on the left, memory on the right."""
    from matplotlib.figure import Figure

    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    names = {
        "N": "calibration rows N (10,000 new rows)",
        "M": "new rows M (10,000 calibration rows)",
        "d": "features d (10,000 × 10,000 points)",
        "workers": "Dask workers (320,000 new rows;\nright: all memory of a worker)",
    }
    figure = Figure(figsize=(8.0, 11.0), dpi=150, layout="constrained")
    axes: Any = figure.subplots(
        len(names), 2, sharex="row", sharey="col", height_ratios=[3] * (len(names) - 1) + [1.5]
    )
    series: dict[Any, int] = {}
    for row, (what, name) in zip(axes, names.items(), strict=True):
        points = [each for each in kept["points"] if each["what"] == what]
        for key, line in groupby(points, lambda each: (each["method"], each["d"])):
            curve = list(line)
            colour, mark = SERIES[series.setdefault(_series(*key), len(series))]
            x: list[int] = [each["at"] for each in curve]
            how: dict[str, Any] = {"color": colour, "marker": mark, "ms": 4}
            row[0].plot(x, [each["fit"] + each["predict"] for each in curve], **how)
            row[1].plot(x, [max(each["MB"], 1.0) for each in curve], **how)
        for ax in row:
            ax.set(xlabel=name, xscale="linear" if what == "workers" else "log", yscale="log")
            ax.grid(alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
        if what == "workers":
            row[1].set_xticks([each["at"] for each in points])
    axes[0, 0].set_title("seconds, fit + predict")
    axes[0, 1].set_title("MB beyond the rows (at least 1)")
    for name, place in series.items():
        axes[0, 0].plot([], [], color=SERIES[place][0], marker=SERIES[place][1], label=name)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(FIGURE)
    print(f"wrote {FIGURE}")


def _series(method: str, d: int) -> str:
    """What the legend calls a curve: 10 features are not named."""
    return f"{method}, d = {d}" if d == 64 else method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw what is kept")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        method, *sizes = options.one
        print(json.dumps(measured(method, *map(int, sizes))))
        return
    if not options.draw:
        measure()
    draw()


if __name__ == "__main__":
    main()
