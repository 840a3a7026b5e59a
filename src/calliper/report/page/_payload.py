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
    points = _points(comparison)
    chosen: dict[str, Any] = {
        **{name: values[name] for name in wanted},
        "yardstick": next(a.method for a in comparison.answers if a.constant),
        "is_void": comparison.is_void,
        "group_name": comparison.group_name,
    }
    # The points are packed already, and their centres must keep all digits.
    return {**{name: rounded(plain(value)) for name, value in chosen.items()}, "points": points}


def _points(comparison: Comparison) -> dict[str, Any]:
    """Some test points, drawn at random without replacement; arrays once, as 32-bit numbers.

    32 bits hold seven digits. Errors are therefore differences already, and predictions and
    features are told from a centre that has all digits: targets of 10⁹ ± 1 stay apart.
    """
    test, n = comparison.test, len(comparison.test)
    rng = np.random.default_rng(comparison.random_state)
    rows = rng.permutation(n)[:MOST_POINTS]
    names = [test.feature_names[i] for i in comparison.shown_features]
    answers = [answer for answer in comparison.answers if answer.intervals is not None]
    return {
        "n": len(rows),
        "n_intervals": min(MOST_INTERVALS, len(rows)),
        "ids": [_id(comparison, int(row)) for row in rows],
        "error": packed((test.y - test.y_pred)[rows], np.float32),  # with its sign
        "y_pred": centred(test.y_pred[rows]),
        "features": names,
        "Z": [centred(test.Z[rows, i]) for i in comparison.shown_features],
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


def centred(values: NDArray[Any]) -> dict[str, Any]:
    """Distances from a centre, and the centre."""
    centre = float(np.median(values))
    return {"centre": centre, "from_centre": packed(values - centre, np.float32)}


def packed(values: NDArray[Any], kind: type[np.float32] | type[np.uint8]) -> str:
    """Little-endian bytes in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def rounded(value: Any) -> Any:
    """Numbers to ten digits: so many that they read as the whole ones do, at half the size."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    if isinstance(value, float) and value != 0:
        return round(value, 9 - floor(log10(abs(value))))
    return value
