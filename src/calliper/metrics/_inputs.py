"""What measures have in common: reading intervals, rows and the level, and having no value."""

from dataclasses import replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_random_state

from calliper._types import BoolArray, FloatArray, Frame, IntArray
from calliper._validation import at_least, check_features, check_levels
from calliper.exceptions import CalliperError, warn
from calliper.intervals import Intervals

#: Intervals, or a pair (lower, upper); a frame with these two columns is taken as well.
IntervalsLike: TypeAlias = Intervals | tuple[Any, Any]
#: Rows of a set, or of a bin, below which coverage in it cannot be told from chance.
FEWEST = 20


@runtime_checkable
class _Ends(Protocol):
    """Intervals of another library."""

    lower: Any
    upper: Any


def as_intervals(intervals: IntervalsLike) -> Intervals:
    """Intervals of at least one row from whatever holds a lower and an upper end."""
    read = intervals if isinstance(intervals, Intervals) else Intervals(*_ends(intervals))
    if not len(read.lower):
        raise CalliperError("intervals must have at least one row; got 0: nothing to measure.")
    return read


def _ends(intervals: Any) -> tuple[Any, Any]:
    """A lower and an upper end for each row, with their labels if they have any."""
    shape = np.shape(intervals) if isinstance(intervals, np.ndarray) else None
    try:
        if isinstance(intervals, Frame) and {"lower", "upper"} <= set(intervals.columns):
            lower, upper = intervals["lower"], intervals["upper"]
        elif isinstance(intervals, _Ends):
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
            f"Ends in the two columns of an array? Pass (a[:, 0], a[:, 1])."
        ) from None


def one_level(intervals: IntervalsLike) -> Intervals:
    """Intervals of shape (m,), for measures that make sense at one level only."""
    read = as_intervals(intervals)
    if read.lower.ndim == 1:
        return read
    n_levels = read.lower.shape[1]
    if n_levels == 1:
        return replace(read, lower=read.lower[:, 0], upper=read.upper[:, 0])
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
    return single_level(level)


def single_level(coverage: Any) -> float:
    """One level, which may come in a list."""
    levels = check_levels(coverage)
    if len(levels) != 1:
        raise CalliperError(f"coverage must be one level; got {len(levels)}: {coverage!r}.")
    return levels[0]


def mean_over_rows(values: FloatArray | BoolArray) -> float | FloatArray:
    """A number for one level, an array (L,) for L levels."""
    mean: FloatArray = np.mean(values, axis=0)
    return float(mean) if mean.ndim == 0 else mean


def choose_rows(n: int, max_points: int, random_state: Any) -> IntArray:
    """All rows in order, or ``max_points`` of them at random."""
    size = at_least(max_points, FEWEST, "max_points")
    if n <= size:
        return np.arange(n)
    # Sampled without listing all n first: RandomState would permute them.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def too_few(n: int) -> str | None:
    """Why n rows are too few, or None."""
    text = f"{n} rows are too few to measure it, at least {FEWEST} are needed"
    return text if n < FEWEST else None


def check_rows(X: Any, n: int) -> FloatArray:
    """Features of the test rows, one row for each target."""
    features = check_features(np.asarray(X)[:, None] if np.ndim(X) == 1 else X, "X")
    if len(features) != n:
        raise CalliperError(f"X has {len(features)} rows for {n} targets.")
    return features


def unit_spread(features: FloatArray) -> FloatArray:
    """Columns around 0 with standard deviation 1; constant ones are left out."""
    low, high = features.min(axis=0), features.max(axis=0)
    varies = high > low  # the deviation of a constant may be a rounding error above 0
    between = (features[:, varies] - low[varies]) / (high - low)[varies]
    centred = between - between.mean(axis=0)
    scaled: FloatArray = centred / centred.std(axis=0)
    return scaled


def undefined(name: str, reason: str) -> float:
    """NaN, with a warning that says why; a 0 would read as a measured value."""
    warn(f"{name} is NaN: {reason}.", UndefinedMetricWarning)
    return float("nan")
