"""Scores beside widths, row by row: what the adaptivity measures compare."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import check_vector
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals

Infinite = Literal["keep", "cap", "drop"]


def scores_and_widths(
    y: Any,
    intervals: Intervals,
    *,
    y_pred: Any,
    infinite: Infinite,
    max_score: float | None,
) -> tuple[FloatArray, FloatArray]:
    """|y − ŷ| and upper − lower of the rows to compare, equal where only rounding differs.

    The rows come in the order of their scores, which costs nothing here and spares a sort there.
    """
    cap = _checked_cap(infinite, max_score)
    n, unbounded = len(intervals.lower), np.isinf(intervals.width)
    kept = ~unbounded if infinite == "drop" else np.ones_like(unbounded)
    target = check_vector(y, "y", n=n)[kept]
    lower, upper, width, unbounded = (
        part[kept] for part in (*intervals, intervals.width, unbounded)
    )
    if y_pred is None:
        _refuse_no_middle(unbounded)
        centre = lower / 2 + upper / 2
    else:
        centre = check_vector(y_pred, "y_pred", n=n)[kept]
    if cap is not None:
        width = np.where(unbounded, 2 * cap, width)
    ends = np.where(unbounded, 0.0, np.abs(lower) + np.abs(upper))
    order, scores = sort_with_ties(np.abs(target - centre), np.abs(target) + np.abs(centre))
    return scores, tie_rounding(width[order], ends[order])


def _checked_cap(infinite: Infinite, max_score: float | None) -> float | None:
    if infinite not in ("keep", "cap", "drop"):
        raise CalliperError(f"infinite must be 'keep', 'cap' or 'drop'; got {infinite!r}.")
    if infinite != "cap":
        if max_score is not None:
            raise CalliperError(
                f"max_score is used with infinite='cap' only; got infinite={infinite!r} and "
                f"max_score={max_score!r}: pass infinite='cap', or leave max_score out."
            )
        return None
    if max_score is None:
        raise CalliperError(
            "infinite='cap' needs max_score, the half-width to put for an infinite one: "
            "pass the largest calibration score."
        )
    if not 0 < max_score < np.inf:
        raise CalliperError(f"max_score must be positive and finite; got {max_score!r}.")
    return float(max_score)


def _refuse_no_middle(unbounded: BoolArray) -> None:
    wrong = np.flatnonzero(unbounded)
    if len(wrong):
        raise CalliperError(
            f"y_pred is needed: {len(wrong)} of {len(unbounded)} intervals are infinite, the first "
            f"at position {wrong[0]}, and have no middle. Pass y_pred, or infinite='drop'."
        )


def tie_rounding(values: FloatArray, magnitude: FloatArray) -> FloatArray:
    """The values, with those made equal that differ by rounding only.

    A constant radius r does not give constant widths: (ŷ + r) − (ŷ − r) is off by a few units in
    the last place of ŷ, and ranks of these would pass for information. ``magnitude`` is the sum
    of the absolute values of the two numbers that each value is the difference of.
    """
    order, ordered = sort_with_ties(values, magnitude)
    tied = np.empty_like(values)
    tied[order] = ordered
    return tied


def sort_with_ties(values: FloatArray, magnitude: FloatArray) -> tuple[IntArray, FloatArray]:
    """The order that sorts the values, and what :func:`tie_rounding` makes of them, sorted."""
    order = np.argsort(values)
    ordered, slack = values[order], 4 * np.finfo(float).eps
    # Few neighbours are close by any magnitude: only these need theirs looked up.
    least = slack * 2 * np.max(magnitude, initial=0.0)
    close = np.flatnonzero(~(ordered[1:] > ordered[:-1] + least))
    allowed = slack * magnitude[order[close + 1]] + slack * magnitude[order[close]]
    tied = close[~(ordered[close + 1] > ordered[close] + allowed)]
    if len(tied):
        leader = np.arange(len(values))
        leader[tied + 1] = 0
        ordered = ordered[np.maximum.accumulate(leader)]
    return order, ordered


def sort_widths(intervals: Intervals) -> tuple[IntArray, FloatArray]:
    """The order of the widths, and the widths in it, equal where only rounding differs."""
    width = intervals.width
    ends = np.where(np.isinf(width), 0.0, np.abs(intervals.lower) + np.abs(intervals.upper))
    return sort_with_ties(width, ends)


def undefined(name: str, reason: str) -> float:
    """NaN, with a warning that says why; a 0 would read as a measured value."""
    warnings.warn(f"{name} is NaN: {reason}.", UndefinedMetricWarning, stacklevel=3)
    return float("nan")
