"""The finite-sample order statistic of conformal prediction, exact.

The threshold of every conformal method is the Q-th smallest of N calibration values with
Q = ⌈(1−α)(N+1)⌉, and +∞ when Q = N+1. Computed in floating point that rank is off by one in
hundreds of ordinary cases (α = 0.172, N = 249), so here, and only here, it is computed in
rational arithmetic.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from calliper._types import FloatArray, IntArray


def as_fraction(level: float) -> Fraction:
    """The level as the simple fraction that its user meant: 0.1 + 0.2 is 3/10.

    Levels that no fraction of denominator up to 10⁹ resembles are taken bit by bit.
    """
    exact = Fraction(float(level))
    simple = exact.limit_denominator(10**9)
    return simple if 0 < simple < 1 else exact


def conformal_rank(coverage: float, n: int) -> int:
    """Q = ⌈coverage·(n+1)⌉, between 1 and n+1; n+1 means that the threshold is infinite.

    >>> conformal_rank(0.9, 9), conformal_rank(0.9, 8), conformal_rank(1 - 0.172, 249)
    (9, 9, 207)
    """
    return ceil(as_fraction(coverage) * (n + 1))


def required_calibration_size(coverage: float) -> int:
    """The smallest n for which the threshold is finite: ⌈coverage / (1 − coverage)⌉.

    >>> required_calibration_size(0.9), required_calibration_size(0.95)
    (9, 19)
    """
    level = as_fraction(coverage)
    return ceil(level / (1 - level))


def order_statistic(ordered: FloatArray, rank: int) -> float:
    """The rank-th smallest (1-based) of ascending values; +∞ beyond the last."""
    return float(ordered[rank - 1]) if rank <= len(ordered) else float("inf")


def merged_order_statistic(
    window: FloatArray, low: int, position: IntArray, value: FloatArray, rank: int
) -> FloatArray:
    """For each row, the rank-th smallest of N values that are in order but for a few exceptions.

    A row's N values follow the order of the columns closely enough that, exceptions apart, all
    columns before ``low`` are at most the answer and all columns past the window at least the
    answer. The exceptions are taken out of the order and merged back by value.

    Parameters
    ----------
    window : (m, W) values of the columns low … low+W−1; changed in place
    low : first column of the window
    position : (m, E) columns that are exceptions, distinct within a row; N pads a short row
    value : (m, E) their values; NaN pads a short row
    rank : 1-based, at most N
    """
    row, entry = np.nonzero((position >= low) & (position < low + window.shape[1]))
    window[row, position[row, entry] - low] = np.nan
    below = low - np.count_nonzero(position < low, axis=1)
    candidates = np.concatenate([window, value], axis=1)
    candidates.sort(axis=1)
    answer: FloatArray = candidates[np.arange(len(window)), rank - 1 - below]
    return answer


def merged_multiple(
    ordered: FloatArray, factor: FloatArray, position: IntArray, value: FloatArray, rank: int
) -> FloatArray:
    """The rank-th smallest of ``factor[r] * ordered[j]`` for each row r, exceptions merged in.

    With E exceptions a row, a value whose place is more than E away from ``rank`` cannot be the
    answer, so a window of 2E+1 columns holds it: O(E log E) a row, whatever N.
    """
    n_exceptions = position.shape[1]
    low, high = max(0, rank - 1 - n_exceptions), min(len(ordered), rank + n_exceptions)
    with np.errstate(invalid="ignore"):
        window = factor[:, None] * ordered[None, low:high]
    # An infinite rescaled score stays infinite even where the local scale is zero.
    window[:, np.isinf(ordered[low:high])] = np.inf
    return merged_order_statistic(window, low, position, value, rank)


def safe_window(ordered: FloatArray, rank: int, n_exceptions: int, spread: float) -> slice:
    """Columns that can hold the rank-th smallest.

    Regular values lie within 1−spread and 1/(1−spread) of a common multiple of ``ordered``.

    At least rank−E of the smallest values are regular, so one of them stands at or behind column
    rank−1−E and bounds the answer from below; likewise from above. Two factors of the spread
    separate a regular column that is surely below from that bound.
    """
    ratio = (1 - spread) ** 2 * (1 - 1e-9)
    first, last = rank - 1 - n_exceptions, rank - 1 + n_exceptions
    low = np.searchsorted(ordered, ordered[first] * ratio) if first >= 0 else 0
    high = len(ordered)
    if last < len(ordered):
        high = np.searchsorted(ordered, ordered[last] / ratio, side="right")
    return slice(int(low), int(high))


def pad_exceptions(
    row: IntArray, position: IntArray, value: FloatArray, n_rows: int, n_columns: int
) -> tuple[IntArray, FloatArray]:
    """Exceptions listed by ascending row, as the padded (m, E) arrays that merging takes."""
    count = np.bincount(row, minlength=n_rows)
    entry = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    shape = (n_rows, int(count.max(initial=0)))
    padded_position = np.full(shape, n_columns, dtype=np.intp)
    padded_value = np.full(shape, np.nan)
    padded_position[row, entry] = position
    padded_value[row, entry] = value
    return padded_position, padded_value


def row_order_statistics(values: FloatArray, ranks: list[int]) -> FloatArray:
    """The rank-th smallest of each row of (m, N), for each rank: (m, L); no NaN among them."""
    places = [rank - 1 for rank in ranks]
    return np.partition(values, places, axis=1)[:, places]


def outward(radius: FloatArray) -> FloatArray:
    """The radius a little enlarged, so that rounding never makes it smaller than it is.

    A radius computed as a product of ratios may fall short of an equal score by its last digits,
    and a score that ties with its threshold must be covered. The factor exceeds the rounding of
    the longest sums here and is far below anything that matters.
    """
    return radius * (1 + 1e-11)


def power_of_two(values: FloatArray) -> float:
    """The power of two just above the largest magnitude; 1 if all are zero."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(2.0 ** np.ceil(np.log2(largest))) if largest > 0 else 1.0
