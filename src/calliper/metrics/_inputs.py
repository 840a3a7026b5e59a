"""What every measure does first: read the intervals, find their level, average their rows."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._validation import check_levels
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals

#: Intervals, or a pair (lower, upper); a frame with these two columns is taken as well.
IntervalsLike: TypeAlias = Intervals | tuple[Any, Any]


def as_intervals(intervals: IntervalsLike) -> Intervals:
    """Intervals of at least one row from whatever holds a lower and an upper end."""
    read = intervals if isinstance(intervals, Intervals) else Intervals(*_ends(intervals))
    if not len(read.lower):
        raise CalliperError("intervals must have at least one row; got 0: nothing to measure.")
    return read


def _ends(intervals: Any) -> tuple[FloatArray, FloatArray]:
    shape = np.shape(intervals) if isinstance(intervals, np.ndarray) else None
    try:
        if hasattr(intervals, "lower") and hasattr(intervals, "upper"):
            lower, upper = intervals.lower, intervals.upper
        elif shape is not None and len(shape) == 2 and shape[1] == 2:
            # Two rows of (lower, upper) would unpack as well, into the wrong ends.
            raise ValueError("the ends are in the columns")
        else:
            lower, upper = intervals
        return np.asarray(lower, float), np.asarray(upper, float)
    except (TypeError, ValueError):
        what = type(intervals).__name__ + ("" if shape is None else f" of shape {shape}")
        raise CalliperError(
            f"intervals must be Intervals or a pair (lower, upper) of arrays; got {what}. "
            f"Ends in the two columns of an array? Pass (a[:, 0], a[:, 1])."
        ) from None


def one_level(intervals: IntervalsLike) -> Intervals:
    """Intervals of shape (m,), for measures that make sense at one level only."""
    read = as_intervals(intervals)
    if read.lower.ndim == 1:
        return read
    n_levels = read.lower.shape[1]
    if n_levels == 1:
        return Intervals(read.lower[:, 0], read.upper[:, 0], read.coverage, read.index)
    if read.coverage is None or np.size(read.coverage) != n_levels:
        remedy = "name them (coverage=...) and pass intervals.at(level) of one"
        raise CalliperError(f"intervals must have one level; got {n_levels} unnamed: {remedy}.")
    levels = np.asarray(read.coverage, float)
    raise CalliperError(
        f"intervals must have one level; got {n_levels} ({', '.join(f'{v:g}' for v in levels)}): "
        f"pass intervals.at({levels[-1]:g}), or loop over the levels."
    )


def level_of(intervals: Intervals, coverage: float | None) -> float:
    """The level to measure at: the one given, else the one the intervals were asked for."""
    level = intervals.coverage if coverage is None else coverage
    if level is None:
        raise CalliperError(
            "coverage must be known: the intervals do not carry their level, and none was given. "
            "Pass coverage=, for example 0.9."
        )
    levels = check_levels(level)
    if len(levels) != 1:
        raise CalliperError(f"coverage must be one level; got {len(levels)}: {level!r}.")
    return levels[0]


def mean_over_rows(values: FloatArray | BoolArray) -> float | FloatArray:
    """A number for one level, an array (L,) for L levels."""
    mean: FloatArray = np.mean(values, axis=0)
    return float(mean) if mean.ndim == 0 else mean
