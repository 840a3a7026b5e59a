"""The entries of the table: a mean with its uncertainty, whether it is the best, and flags.

Bold is the best value of its group, and every value that differs from it by no more than the two
printed uncertainties together (in quadrature). Values from fewer splits than there were take no
part, nor, for widths, do methods that cover too little, or whose coverage nobody measured.

A coverage is flagged with † if its mean lies below the level by more than three standard errors;
these are at least what the binomial law and the Beta law of the coverage of one calibration set
give, so that a few splits that agree by chance do not flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot, isfinite, sqrt
from typing import Any, Literal

import numpy as np

from calliper.evaluation._cell import Row
from calliper.evaluation._last_digit import ONE_SIGMA, last_digit, one_sigma

Covers = Literal["reached", "too low", "unknown"]

#: Below this, R²_SQI says "not adaptive" and no more; the paper prints ≪ 0.
FAR_BELOW = -2.0

#: Standard errors by which a flagged coverage misses its level.
FLAG = 3.0


@dataclass(frozen=True)
class Entry:
    """One value of the table: its mean over ``n`` of ``of`` splits, and how it is shown."""

    value: float
    error: float
    n: int
    of: int
    text: str
    best: bool = False
    flagged: bool = False


def entry_of(rows: list[Row], name: str, measure: dict[str, Any], uncertainty: str) -> Entry:
    """Mean of a measure over the splits of one method, and the words for it."""
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        text = "failed" if any(row["status"] == "failed" for row in rows) else "skipped"
        return Entry(float("nan"), float("nan"), 0, len(rows), text)
    values = np.array([row.get(name, float("nan")) for row in done], dtype=np.float64)
    values = values[~np.isnan(values)]
    mean, error = one_sigma(values)
    if uncertainty == "bootstrap" and isfinite(error):
        error = _bootstrap_error(values)
    counted = int(np.isinf(values).sum()) if np.isinf(mean) else len(values)
    text = last_digit(mean, error)
    if name == "r2_sqi" and mean + (error if isfinite(error) else 0.0) < FAR_BELOW:
        text = "≪ 0"
    if 0 < counted < len(rows):
        text += f" [{counted}/{len(rows)}]"
    flagged = measure.get("best") == "level" and _misses(mean, values, done)
    return Entry(mean, error, len(values), len(rows), text, flagged=flagged)


def _bootstrap_error(values: Any) -> float:
    rng = np.random.default_rng(0)
    means = rng.choice(values, size=(2000, len(values))).mean(axis=1)
    return float(np.percentile(np.abs(means - values.mean()), ONE_SIGMA))


def _misses(mean: float, values: Any, rows: list[Row]) -> bool:
    """Whether a mean coverage lies below its level by more than chance."""
    if not len(values):
        return False
    by_law = [
        row["level"] * (1 - row["level"]) * (1 / (row["n_calibration"] + 2) + 1 / row["n_test"])
        for row in rows
    ]
    seen = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    standard_error = sqrt(max(seen, float(np.mean(by_law))) / len(values))
    return bool(mean < np.mean([row["level"] for row in rows]) - FLAG * standard_error)


def coverage_of(rows: list[Row], measures: Mapping[str, dict[str, Any]]) -> Covers:
    """Whether one method covers, by every coverage in its records, shown or not."""
    level = {name: measure for name, measure in measures.items() if measure.get("best") == "level"}
    entries = [entry_of(rows, name, measure, "splits") for name, measure in level.items()]
    if any(entry.flagged for entry in entries):
        return "too low"
    return "reached" if any(entry.n for entry in entries) else "unknown"


def mark_best(
    entries: dict[str, dict[str, Entry]],
    measures: Mapping[str, dict[str, Any]],
    covers: Mapping[str, Covers],
) -> None:
    """Put ``best`` on the entries of one group, and † on widths whose coverage is not shown."""
    coverage_shown = any(measure.get("best") == "level" for measure in measures.values())
    for name, measure in measures.items():
        only_covered = bool(measure.get("if_covered"))
        for method, row in entries.items():
            if only_covered and not coverage_shown and covers[method] == "too low":
                row[name] = replace(row[name], flagged=True)
        sign = {"smaller": 1, "larger": -1}.get(str(measure.get("best")))
        rivals = {
            method: row[name]
            for method, row in entries.items()
            if isfinite(row[name].value) and row[name].n == row[name].of and row[name].text != "≪ 0"
            if not only_covered or covers[method] == "reached"
        }
        if sign is None or not rivals or len(entries) < 2:
            continue
        best = min(rivals.values(), key=lambda entry: sign * entry.value)
        for method, entry in rivals.items():
            tolerance = hypot(_known(entry.error), _known(best.error))
            if abs(entry.value - best.value) <= tolerance:
                entries[method][name] = replace(entry, best=True)


def _known(error: float) -> float:
    return error if isfinite(error) else 0.0
