"""Content of the page: its table as text, and the numbers and points that its script reads."""

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import floor, isinf, isnan, log10
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calliper._writing import plain
from calliper.lab._words import number, percent, percent_down, seconds, with_error
from calliper.lab.comparison import Comparison, Record
from calliper.metrics import MEASURES

#: Fields of a record by name, or other values for JSON.
Values = dict[str, Any]

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
    return {**{name: rounded(plain(value)) for name, value in chosen.items()}, "points": points}


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
    return {
        "n": len(rows),
        "n_intervals": min(MOST_INTERVALS, len(rows)),
        "ids": [
            f"row {row + 1}" if test.ids is None else test.ids[row][:LONGEST_ID] for row in rows
        ],
        "error": packed((test.y - test.y_pred)[rows], np.float32),  # with its sign
        "y_pred": centred(test.y_pred[rows]),
        "features": names,
        "Z": [centred(test.Z[rows, i]) for i in comparison.shown_features],
        # Level after level; the intervals are symmetric about the prediction.
        "half_width": {
            method: packed(intervals.width[rows].T / 2, np.float32)
            for method, intervals in answers.items()
        },
        # Not computed from the 32 bits of the half-width, which could change the side.
        "inside": {
            method: packed(intervals.contains(test.y)[rows].T, np.uint8)
            for method, intervals in answers.items()
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


def rounded(value: Any) -> Any:
    """Numbers rounded to ten digits, at half the size."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    if isinstance(value, float) and value != 0:
        return round(value, 9 - floor(log10(abs(value))))
    return value


@dataclass(frozen=True, kw_only=True)
class PageColumn:
    """A column of the table: heading, meaning, which values are better, and its cells.

    ``name`` is the field of a record to sort by; ``text`` formats the values of a record.
    """

    name: str
    text: Callable[[Values], str]
    title: str
    meaning: str
    best: Literal["high", "low"]


def _measure(name: str, show: Callable[[float], str], /, **other: Any) -> PageColumn:
    """The column of a registered measure."""
    measure = MEASURES[name]
    known: dict[str, Any] = {
        "name": name,
        "text": lambda values: show(values[name]),
        "title": measure.label or name,
        "meaning": measure.meaning,
        "best": "low" if measure.best == "smaller" else "high",
    }
    return PageColumn(**known | other)


def _relative(values: Values) -> str:
    ratio, error = values["relative_score"], values["relative_score_error"]
    if ratio == 1 and error == 0:
        return "100\u00a0%"
    if isnan(ratio) or isinf(ratio) or isnan(error):
        return number(ratio)
    return f"{100 * ratio:.1f} ± {100 * error:.1f}\u00a0%"


def _plain(value: float) -> str:
    return "–" if isnan(value) else f"{value:.2f}".replace("-", "−")


PAGE_COLUMNS = (
    PageColumn(
        name="proved",
        text=lambda values: percent_down(values["proved"]),
        title="proved",
        meaning="the coverage that is proved if the assumptions hold",
        best="high",
    ),
    _measure(
        "coverage",
        percent,
        text=lambda v: f"{percent(v['coverage'])} ± {100 * v['coverage_error']:.1f}",
    ),
    _measure("mean_width", number),
    _measure("median_width", number),
    _measure(
        "interval_score",
        number,
        name="score",
        text=lambda v: with_error(v["score"], v["score_error"]),
    ),
    PageColumn(
        name="relative_score",
        text=_relative,
        title="score against constant width",
        meaning="interval score in percent of that of split; below 100 % is better than a "
        "constant width",
        best="low",
    ),
    _measure("worst_by_prediction", percent),
    _measure("worst_by_width", percent),
    _measure("tau_si", _plain),
    _measure("r2_sqi", lambda value: "< −10" if value < -10 else _plain(value)),
    _measure("fraction_infinite", percent),
    PageColumn(
        name="seconds",
        text=lambda values: seconds(values["seconds"]),
        title="seconds",
        meaning="time to fit and predict at all levels",
        best="low",
    ),
)


def table_rows(comparison: Comparison, level: float) -> list[Values]:
    """The table at one level, in the given order of the methods.

    ``note`` is shown next to the name of a method; a cell shows ``text`` and sorts by ``value``.
    """
    chosen = comparison.verdicts[comparison.levels.index(level)].method
    found = [comparison.record(method, level) for method in comparison.methods]
    return [
        {
            "method": record.method,
            "note": "" if comparison.is_void else _note(record, chosen),
            "cells": [
                {"text": column.text(values), "value": values[column.name]}
                for values in [asdict(record)]
                for column in PAGE_COLUMNS
            ],
        }
        for record in found
    ]


def _note(record: Record, chosen: str | None) -> str:
    if record.method == chosen:
        return "use this"
    if record.fraction_infinite == 1:
        return "infinite"
    if record.coverage < record.chance_low:
        return "covers too little"
    return "covers more than asked" if record.coverage > record.chance_high else ""
