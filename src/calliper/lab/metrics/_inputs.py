"""Input of measures: intervals, rows and the level; and what to do without a value."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_random_state

from calliper._types import BoolArray, FloatArray, Frame, IntArray
from calliper._validation import at_least, check_features, check_level
from calliper.exceptions import CalliperError, warn
from calliper.intervals import Intervals
from calliper.rows import rows_of_groups, same_rows

#: Intervals, or a pair (lower, upper); also a frame with these two columns.
IntervalsLike: TypeAlias = Intervals | tuple[Any, Any]
#: Fewest rows of a set, or of a bin, for which coverage says something.
FEWEST = 20

Given = ParamSpec("Given")


class UndefinedError(Exception):
    """Why a measure has no value."""


def nan_if_undefined(measure: Callable[Given, float]) -> Callable[Given, float]:
    """NaN, with a warning that says why, where a measure raises :class:`UndefinedError`."""

    @wraps(measure)
    def value(*given: Given.args, **named: Given.kwargs) -> float:
        try:
            return measure(*given, **named)
        except UndefinedError as reason:
            warn(f"{measure.__name__} is NaN: {reason}.", UndefinedMetricWarning)
            return float("nan")

    return value


def as_intervals(intervals: IntervalsLike) -> Intervals:
    """Intervals of at least one row from anything with a lower and an upper end."""
    read = intervals if isinstance(intervals, Intervals) else Intervals(*_ends(intervals))
    if not len(read.lower):
        raise CalliperError("intervals must have at least one row; got 0.")
    return read


def _ends(intervals: Any) -> tuple[Any, Any]:
    """Lower and upper ends, with their labels if they have any."""
    shape = np.shape(intervals) if isinstance(intervals, np.ndarray) else None
    try:
        if isinstance(intervals, Frame) and {"lower", "upper"} <= set(intervals.columns):
            lower, upper = intervals["lower"], intervals["upper"]
        elif hasattr(intervals, "lower") and hasattr(intervals, "upper"):  # of another library
            lower, upper = intervals.lower, intervals.upper
        elif shape is not None and len(shape) == 2 and shape[1] == 2:
            # Two rows of (lower, upper) would unpack into the wrong ends.
            raise ValueError("the ends are in the columns")
        else:
            lower, upper = intervals
        np.asarray(lower, float), np.asarray(upper, float)
        return lower, upper
    except (TypeError, ValueError):
        what = type(intervals).__name__ + ("" if shape is None else f" of shape {shape}")
        wanted = "an Intervals object or a pair (lower, upper) of arrays"
        remedy = "If the ends are two columns of an array, pass (a[:, 0], a[:, 1])."
        if shape is not None and len(shape) == 1:
            remedy = "If these are the targets, pass them first, as in metric(y, intervals)."
        raise CalliperError(f"intervals must be {wanted}; got {what}. {remedy}") from None


def one_level(intervals: IntervalsLike) -> Intervals:
    """Intervals of shape (m,), for measures of one level."""
    read = as_intervals(intervals)
    if read.lower.ndim == 1:
        return read
    n_levels = read.lower.shape[1]
    if n_levels > 1:
        known = f" {read.coverage}" if read.coverage is not None else ", unnamed"
        how = "intervals.at(level) for one of them (Intervals(..., coverage=) sets the levels)"
        raise CalliperError(f"intervals must have one level; got {n_levels}{known}: pass {how}.")
    return replace(read, lower=read.lower[:, 0], upper=read.upper[:, 0])


def level_of(intervals: Intervals, coverage: float | None) -> float:
    """The given level, or that of the intervals."""
    level = intervals.coverage if coverage is None else coverage
    if level is None:
        what = "the level of these intervals is not known"
        raise CalliperError(f"{what}: pass coverage=, for example 0.9.")
    return check_level(level[0] if isinstance(level, tuple) and len(level) == 1 else level)


def choose_rows(n: int, max_points: int, random_state: Any) -> IntArray:
    """All rows in order, or ``max_points`` of them at random."""
    size = at_least(max_points, FEWEST, "max_points")
    if n <= size:
        return np.arange(n)
    # A Generator samples without permuting all n rows, as RandomState would.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def refuse_few(n: int) -> None:
    """No value from fewer than 20 rows."""
    if n < FEWEST:
        raise UndefinedError(f"{n} rows are too few, at least {FEWEST} are needed")


def covered_and_features(y: Any, intervals: Intervals, X: Any) -> tuple[BoolArray, FloatArray]:
    """Whether each target is covered, and the features of its row."""
    y, X = same_rows(intervals, "intervals", y=y, X=X)
    covered = intervals.contains(y)
    features = check_features(np.asarray(X)[:, None] if np.ndim(X) == 1 else X, "X")
    if len(features) != len(covered):
        raise CalliperError(f"X has {len(features)} rows for {len(covered)} targets.")
    return covered, features


def unit_spread(features: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1, without constant ones."""
    low, high = features.min(axis=0), features.max(axis=0)
    varies = high > low  # the deviation of a constant may be a rounding error above 0
    between = (features[:, varies] - low[varies]) / (high - low)[varies]
    centred = between - between.mean(axis=0)
    scaled: FloatArray = centred / centred.std(axis=0)
    return scaled


def numbered(labels: Any, name: str) -> tuple[list[Any], IntArray]:
    """The different labels in order, and the number of each row's, (n,); gaps are refused."""
    shape = np.shape(np.asarray(labels))
    if len(shape) != 1 or not shape[0]:
        what = f"{name} must have one label for each row, and at least one row"
        raise CalliperError(f"{what}; got shape {shape}.")
    rows, number = rows_of_groups(labels, name), np.empty(shape, dtype=np.intp)
    try:
        ordered = sorted(rows)
    except TypeError as error:
        raise CalliperError(f"{name} must be labels of one kind: {error}.") from None
    for code, label in enumerate(ordered):
        number[rows[label]] = code
    return ordered, number
