"""The report of ``calliper compare`` beside the intervals that it is about."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from calliper import Split
from calliper.calibrators import SLCP, FullRescaled, JackknifeRescaled, LoCart, MADSplit
from calliper.lab.comparison import Points, compare
from calliper.lab.report import render_page
from studies.benchmarks.timing import table

N, M, D = 4_000, 10_000, 8
#: Seconds that the report may take beyond the intervals, and megabytes that it may have.
SECONDS, MEGABYTES = 10.0, 5.0


def page() -> str:
    rng = np.random.default_rng(0)
    calibration, test, training = (_points(n, rng) for n in (N, M, N))
    groups = [f"group {i % 5}" for i in range(M)]
    start = perf_counter()
    found = compare(
        calibration, test, methods=_methods(), training=training, groups=groups, random_state=0
    )
    compared = perf_counter()
    text = render_page(found)
    drawn = perf_counter()
    intervals = sum(answer.seconds for answer in found.answers)
    beyond = drawn - start - intervals
    size = len(text.encode()) / 1e6
    rows = [
        ["the intervals, 6 methods, 5 levels", f"{intervals:.1f} s"],
        ["measures, checks, verdict", f"{compared - start - intervals:.1f} s"],
        ["the page", f"{drawn - compared:.1f} s"],
        ["beyond the intervals", _within(beyond, SECONDS, "s")],
        ["size of the page", _within(size, MEGABYTES, "MB")],
    ]
    return table([f"report, {N:,} calibration and {M:,} test points × {D}", "measured"], rows)


def _points(n: int, rng: np.random.Generator) -> Points:
    Z = rng.normal(size=(n, D))
    y_pred = Z[:, 0]
    return Points(Z, y_pred + np.exp(Z[:, 1] / 2) * rng.normal(size=n), y_pred)


def _methods() -> dict[str, Any]:
    adaptive = (FullRescaled, JackknifeRescaled, MADSplit, SLCP, LoCart)
    return {"Split": Split(), **{kind.__name__: kind(random_state=0) for kind in adaptive}}


def _within(value: float, limit: float, unit: str) -> str:
    missed = "" if value <= limit else ", MISSED"
    return f"{value:.1f} {unit} (limit {limit:g} {unit}{missed})"


if __name__ == "__main__":
    print(page())
