"""What the script of the page reads: numbers as the JSON has them, and the points to draw."""

from __future__ import annotations

import base64
from math import floor, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper.report.comparison import Comparison
from calliper.report.comparison._json import as_values, plain

#: Test points that are drawn; all of them are counted. More would be a stain, and slow.
MOST_POINTS = 2_000
#: Of these, the ones that are drawn with their interval.
MOST_INTERVALS = 150
#: Letters of an id that are shown.
LONGEST_ID = 40


def payload(comparison: Comparison) -> dict[str, Any]:
    """Everything, in values that JSON takes."""
    values = as_values(comparison)
    wanted = ("coverage", "levels", "methods", "n_test", "verdicts", "records", "parts", "deciles")
    chosen: dict[str, Any] = {
        **{name: values[name] for name in wanted},
        "yardstick": next(a.method for a in comparison.answers if a.constant),
        "points": _points(comparison),
    }
    return {name: rounded(plain(value)) for name, value in chosen.items()}


def _points(comparison: Comparison) -> dict[str, Any]:
    """Some test points, drawn at random without replacement; arrays once, as 32-bit numbers."""
    test, n = comparison.test, len(comparison.test)
    rng = np.random.default_rng(comparison.random_state)
    rows = rng.permutation(n)[:MOST_POINTS]
    names = [test.feature_names[i] for i in comparison.shown_features]
    answers = [answer for answer in comparison.answers if answer.intervals is not None]
    return {
        "n": len(rows),
        "n_intervals": min(MOST_INTERVALS, len(rows)),
        "ids": [_id(comparison, int(row)) for row in rows],
        "y": packed(test.y[rows], np.float32),
        "y_pred": packed(test.y_pred[rows], np.float32),
        "features": names,
        "Z": [packed(test.Z[rows, i], np.float32) for i in comparison.shown_features],
        # Level after level; the intervals are symmetric about the prediction.
        "half_width": {
            a.method: packed(a.intervals.width[rows].T / 2, np.float32)  # type: ignore[union-attr]
            for a in answers
        },
        # Not left to the 32 bits of the half-width, which could put a point on the other side.
        "inside": {
            a.method: packed(a.intervals.contains(test.y)[rows].T, np.uint8)  # type: ignore[union-attr]
            for a in answers
        },
    }


def _id(comparison: Comparison, row: int) -> str:
    ids = comparison.test.ids
    return f"row {row + 1}" if ids is None else ids[row][:LONGEST_ID]


def packed(values: NDArray[Any], kind: type[np.float32] | type[np.uint8]) -> str:
    """Little-endian bytes in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def rounded(value: Any) -> Any:
    """Numbers to seven digits: more than anyone reads, and half the size."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    if isinstance(value, float) and value != 0:
        return round(value, 6 - floor(log10(abs(value))))
    return value
