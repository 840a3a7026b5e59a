"""Content of the page: its table as text, and the numbers and points that its script reads."""

import base64
import json
from collections.abc import Callable
from math import isfinite, isnan
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calliper._writing import to_text
from calliper.lab._words import number, percent, percent_down, seconds, with_error
from calliper.lab.comparison import Comparison, Record
from calliper.metrics import MEASURES

#: Most test points drawn; all of them are counted. More would be slow and unreadable.
PAGE_POINTS = 2_000
#: Most of these drawn with their intervals.
MOST_INTERVALS = 150
#: Characters of an id that are shown.
LONGEST_ID = 40


def payload(comparison: Comparison) -> dict[str, Any]:
    """All values of the page, for JSON."""
    values = comparison.to_values()
    wanted = ("coverage", "levels", "methods", "n_test", "verdicts", "records", "parts", "deciles")
    points = _points(comparison)
    chosen: dict[str, Any] = {
        **{name: values[name] for name in wanted},
        "yardstick": next(a.method for a in comparison.answers if a.constant),
        "is_void": comparison.is_void,
        "group_name": comparison.group_name,
    }
    # The points are packed already, and their centres keep all digits.
    return {**rounded(chosen), "points": points}


def rounded(values: Any) -> Any:
    """Values of JSON, with numbers rounded to ten digits, at half the size."""
    return json.loads(to_text(values), parse_float=lambda text: float(f"{float(text):.10g}"))


def _points(comparison: Comparison) -> dict[str, Any]:
    """A random sample of the test points, as arrays of 32-bit numbers.

    32 bits hold seven digits. So errors are stored as differences, and predictions and features as
    distances from a centre with all digits: targets of 10⁹ ± 1 stay distinct.
    """
    test, n = comparison.test, len(comparison.test)
    rng = np.random.default_rng(comparison.random_state)
    rows = rng.permutation(n)[:PAGE_POINTS]
    names = [test.feature_names[i] for i in comparison.shown_features]
    answers = {a.method: a.intervals for a in comparison.answers if a.intervals is not None}
    ids = test.ids or [f"row {number}" for number in range(1, n + 1)]
    return {
        "n": len(rows),
        "n_intervals": min(MOST_INTERVALS, len(rows)),
        "ids": [ids[row][:LONGEST_ID] for row in rows],
        "error": packed((test.y - test.y_pred)[rows], np.float32),  # with its sign
        "y_pred": centred(test.y_pred[rows]),
        "features": names,
        "Z": [centred(test.Z[rows, i]) for i in comparison.shown_features],
        # Level after level; the intervals are symmetric about the prediction.
        "half_width": {
            method: packed(each.width[rows].T / 2, np.float32) for method, each in answers.items()
        },
        # Not computed from the 32 bits of the half-width, which could change the side.
        "inside": {
            method: packed(each.contains(test.y)[rows].T, np.uint8)
            for method, each in answers.items()
        },
    }


def centred(values: NDArray[Any]) -> dict[str, Any]:
    """A centre, and distances from it."""
    centre = float(np.median(values))
    return {"centre": centre, "from_centre": packed(values - centre, np.float32)}


def packed(values: NDArray[Any], kind: type[np.float32] | type[np.uint8]) -> str:
    """Little-endian bytes in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


class PageColumn(NamedTuple):
    """A column of the table: the field of a record to sort by, its text, heading and meaning."""

    name: str
    text: Callable[[Record], str]
    title: str
    meaning: str
    best: Literal["high", "low"]


def _measure(name: str, text: Callable[[Record], str], field: str | None = None) -> PageColumn:
    """The column of a registered measure, whose field in a record may have another name."""
    measure = MEASURES[name]
    best: Literal["high", "low"] = "low" if measure.best == "smaller" else "high"
    return PageColumn(field or name, text, measure.label or name, measure.meaning, best)


def _relative(record: Record) -> str:
    ratio, error = record.relative_score, record.relative_score_error
    if ratio == 1 and error == 0:
        return "100\u00a0%"
    if not isfinite(ratio) or isnan(error):
        return number(ratio)
    return f"{100 * ratio:.1f} ± {100 * error:.1f}\u00a0%"


def _plain(value: float) -> str:
    return "–" if isnan(value) else f"{value:.2f}".replace("-", "−")


PAGE_COLUMNS = (
    PageColumn(
        "proved",
        lambda r: percent_down(r.proved),
        "proved",
        "the coverage that is proved if the assumptions hold",
        "high",
    ),
    _measure("coverage", lambda r: f"{percent(r.coverage)} ± {100 * r.coverage_error:.1f}"),
    _measure("mean_width", lambda r: number(r.mean_width)),
    _measure("median_width", lambda r: number(r.median_width)),
    _measure("interval_score", lambda r: with_error(r.score, r.score_error), "score"),
    PageColumn(
        "relative_score",
        _relative,
        "score against constant width",
        "interval score in percent of that of split; below 100 % is better than a constant width",
        "low",
    ),
    _measure("worst_by_prediction", lambda r: percent(r.worst_by_prediction)),
    _measure("worst_by_width", lambda r: percent(r.worst_by_width)),
    _measure("tau_si", lambda r: _plain(r.tau_si)),
    _measure("r2_sqi", lambda r: "< −10" if r.r2_sqi < -10 else _plain(r.r2_sqi)),
    _measure("fraction_infinite", lambda r: percent(r.fraction_infinite)),
    PageColumn(
        "seconds",
        lambda r: seconds(r.seconds),
        "seconds",
        "time to fit and predict at all levels",
        "low",
    ),
)


def table_rows(comparison: Comparison, level: float) -> list[dict[str, Any]]:
    """The table at one level, in the given order of the methods.

    ``note`` is shown next to the name of a method; a cell shows ``text`` and sorts by ``value``.
    """
    chosen = comparison.verdicts[comparison.levels.index(level)].method
    return [
        {
            "method": record.method,
            "note": "" if comparison.is_void else _note(record, chosen),
            "cells": [
                {"text": column.text(record), "value": getattr(record, column.name)}
                for column in PAGE_COLUMNS
            ],
        }
        for record in comparison.records
        if record.level == level
    ]


def _note(record: Record, chosen: str | None) -> str:
    if record.method == chosen:
        return "use this"
    if record.fraction_infinite == 1:
        return "infinite"
    if record.coverage < record.chance_low:
        return "covers too little"
    return "covers more than asked" if record.coverage > record.chance_high else ""
