"""Input of measures: intervals, rows and the level; and what to do without a value."""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_random_state

from calliper._types import BoolArray, FloatArray, Frame, IntArray
from calliper._validation import at_least, check_features, check_levels
from calliper.exceptions import CalliperError, warn
from calliper.intervals import Intervals
from calliper.rows import same_rows

#: Intervals, or a pair (lower, upper); also a frame with these two columns.
IntervalsLike: TypeAlias = Intervals | tuple[Any, Any]
#: Fewest rows of a set, or of a bin, for which coverage says something.
FEWEST = 20


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
        raise CalliperError(
            f"intervals must be Intervals or a pair (lower, upper) of arrays; got {what}. "
            f"If the ends are two columns of an array, pass (a[:, 0], a[:, 1])."
        ) from None


def one_level(intervals: IntervalsLike) -> Intervals:
    """Intervals of shape (m,), for measures of one level."""
    read = as_intervals(intervals)
    if read.lower.ndim == 1:
        return read
    n_levels = read.lower.shape[1]
    if n_levels == 1:
        return replace(read, lower=read.lower[:, 0], upper=read.upper[:, 0])
    found, remedy = "unnamed", "name them (coverage=...) and pass intervals.at(level) of one"
    if read.coverage is not None and np.size(read.coverage) == n_levels:
        levels = [f"{level:g}" for level in np.ravel(read.coverage)]
        found = f"({', '.join(levels)})"
        remedy = f"pass intervals.at({levels[-1]}), or loop over the levels"
    raise CalliperError(f"intervals must have one level; got {n_levels} {found}: {remedy}.")


def level_of(intervals: Intervals, coverage: float | None) -> float:
    """The given level, or that of the intervals."""
    level = intervals.coverage if coverage is None else coverage
    if level is None:
        raise CalliperError(
            "coverage must be given, since the intervals do not carry their level: pass "
            "coverage=, for example 0.9."
        )
    return single_level(level)


def single_level(coverage: Any) -> float:
    """One level, which may come in a list."""
    levels = check_levels(coverage)
    if len(levels) != 1:
        raise CalliperError(f"coverage must be one level; got {len(levels)}: {coverage!r}.")
    return levels[0]


def mean_over_rows(values: FloatArray | BoolArray) -> float | FloatArray:
    """The mean of one level as a number, of L levels as an array (L,)."""
    mean: FloatArray = np.mean(values, axis=0)
    return float(mean) if mean.ndim == 0 else mean


def choose_rows(n: int, max_points: int, random_state: Any) -> IntArray:
    """All rows in order, or ``max_points`` of them at random."""
    size = at_least(max_points, FEWEST, "max_points")
    if n <= size:
        return np.arange(n)
    # A Generator samples without permuting all n rows, as RandomState would.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def too_few(n: int) -> str | None:
    """Why n rows are too few, or None."""
    return f"{n} rows are too few, at least {FEWEST} are needed" if n < FEWEST else None


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


def undefined(name: str, reason: str) -> float:
    """NaN, with a warning that says why."""
    warn(f"{name} is NaN: {reason}.", UndefinedMetricWarning)
    return float("nan")
