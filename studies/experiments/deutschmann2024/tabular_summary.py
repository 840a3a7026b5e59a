"""Nine tables in a few lines: each method against plain split, N by N."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calliper.lab.evaluation import Records
from studies.experiments import FloatArray
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024.results import value

COLUMNS = (
    "coverage",
    "IS / Split's",
    "interval score / Split's",
    "better than Split",
    "worst tenth by prediction",
    "worst slab",
    "τ_SI",
    "infinite",
)


def markdown(records: Records, order: Sequence[str]) -> str:
    """Means over tables; ratios to Split as geometric means of ratios of means."""
    lines = ["| N | method | " + " | ".join(COLUMNS) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for n in sorted({row["n_calibration"] for row in records}):
        tables = sorted({r["problem"] for r in records if r["n_calibration"] == n})
        present = {row["method"] for row in records}
        first = f"{n:,} ({len(tables)} tables)"
        for method in (m for m in order if m in present):
            cells = " | ".join(_line(records, tables, n, method))
            lines.append(f"| {first} | {method} | {cells} |")
            first = ""
    return "\n".join(lines)


def _line(records: Records, tables: Sequence[str], n: int, method: str) -> list[str]:
    def means(measure: str, of: str = method) -> FloatArray:
        return np.array([value(records, title, n, of, measure).mean for title in tables])

    score, reference = means("interval_score"), means("interval_score", names.SPLIT)
    width = means("mean_width") / means("mean_width", names.SPLIT)
    tau = means("tau_si")
    return [
        f"{means('coverage').mean():.3f}",
        f"{np.exp(np.log(width).mean()):.3f}",
        f"{np.exp(np.log(score / reference).mean()):.3f}",
        "" if method == names.SPLIT else f"{np.count_nonzero(score < reference)} of {len(tables)}",
        f"{means('worst_by_prediction').mean():.3f}",
        f"{means('worst_slab').mean():.3f}",
        "–" if np.isnan(tau).all() else f"{np.nanmean(tau):.2f}",
        f"{means('fraction_infinite').mean():.3f}",
    ]
