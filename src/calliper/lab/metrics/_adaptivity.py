"""Adaptivity: whether wide intervals are where errors are large, by row and by bin of the widths.

IS is the interval size upper − lower, CS the score ``|y − ŷ|`` of a row. ISQ is the size that
represents a quantile bin of IS, and CSQ the quantile of the scores in that bin at the level of the
intervals.

Reference: N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024), "Adaptive Conformal Regression
with Jackknife+ Rescaled Scores", TMLR, section 2.2.
"""

from math import ceil
from typing import Any, Literal, get_args

import numpy as np
from scipy.stats import kendalltau

from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_option, check_vector
from calliper.exceptions import CalliperError, SparseBinsWarning, warn
from calliper.intervals import Intervals
from calliper.lab.metrics import _inputs as inputs
from calliper.lab.metrics._inputs import IntervalsLike, UndefinedError, nan_if_undefined
from calliper.quantile import as_fraction
from calliper.rows import same_rows

Infinite = Literal["keep", "cap", "drop"]
BinWidth = Literal["median", "midpoint"]


@nan_if_undefined
def tau_si(
    y: Any,
    intervals: IntervalsLike,
    *,
    y_pred: Any = None,
    infinite: Infinite = "keep",
    max_score: float | None = None,
) -> float:
    """Rank correlation of error and width over rows: Kendall's τ-b of ``|y − ŷ|`` and the width.

    Good: larger, on the same data. It cannot reach 1, since errors are random (0.376 for the oracle
    of the paper's 1-D task). Misleads: intervals a hundred times too wide score the same.

    Parameters
    ----------
    y, intervals : as in :func:`interval_score`
    y_pred : (m,), optional; predictions, by default the middles of the intervals
    infinite : {"keep", "cap", "drop"}
        Infinite intervals rank as the widest, get the half-width ``max_score`` (the paper's rule),
        or are left out, which flatters the method: quote :func:`fraction_infinite`.
    max_score : float, optional; the largest calibration score, needed for ``"cap"``

    Returns
    -------
    float in [−1, 1]; NaN with an ``UndefinedMetricWarning`` if all widths, or scores, are equal

    Examples
    --------
    >>> round(tau_si([1.0, 3.0, 2.0, 4.0], ([-1, -2, -3, -4], [1, 2, 3, 4]), y_pred=[0] * 4), 3)
    0.667
    """
    scores, widths = scores_and_widths(y, inputs.one_level(intervals), y_pred, infinite, max_score)
    if len(widths) < 2:
        raise UndefinedError(f"{len(widths)} rows are left, and 2 are needed")
    for values, name in (scores, "scores"), (widths, "widths"):
        if values.min() == values.max():
            raise UndefinedError(f"all {len(values)} {name} are equal ({values[0]:g})")
    # kendalltau sorts by its second argument first, and the scores are sorted already.
    return float(kendalltau(widths, scores).statistic)


@nan_if_undefined
def tau_sqi(
    y: Any,
    intervals: IntervalsLike,
    *,
    y_pred: Any = None,
    coverage: float | None = None,
    infinite: Infinite = "keep",
    max_score: float | None = None,
    n_bins: int = 10,
    min_bin_size: int | None = None,
) -> float:
    """How clearly errors grow with the width: Kendall's τ-b of (bin, CSQ).

    CSQ is the quantile of ``|y − ŷ|`` at the level, in bins cut at quantiles j / ``n_bins`` of the
    widths. Good: 1, every wider bin has larger errors. Misleads: ten bins are few, so values are
    coarse (steps of 2/45) and noisy; and it ignores whether the intervals are wide enough.

    Parameters
    ----------
    y, intervals, y_pred, infinite, max_score : as in :func:`tau_si`
    coverage : float, optional; the level of CSQ, by default that of the intervals
    n_bins : int; tied widths may leave fewer; infinite ones that are kept get their own if they
    fill it
    min_bin_size : int, optional
        A bin with fewer points is merged into its neighbour, with a :class:`SparseBinsWarning`.
        By default max(20, 2 / (1 − coverage)); 1 keeps the literal bins of the paper.

    Returns
    -------
    float in [−1, 1]
        NaN with an ``UndefinedMetricWarning`` if fewer than two bins remain or all CSQ are equal.

    Examples
    --------
    >>> radius = np.arange(1.0, 401.0)
    >>> tau_sqi(radius / 2, (-radius, radius), coverage=0.95)
    1.0
    """
    rows = y_pred, infinite, max_score
    _, csq = _in_bins(y, intervals, coverage, rows, n_bins, "median", min_bin_size)
    narrow, wide = np.triu_indices(len(csq), 1)
    csq = tie_rounding(csq, csq)
    rise = np.sign(csq[wide] - csq[narrow])
    if not rise.any():
        raise UndefinedError(f"the score quantile is {csq[0]:g} in every bin")
    # τ-b over all pairs: bins are few and never tied.
    return float(rise.sum() / np.sqrt(len(rise) * np.count_nonzero(rise)))


@nan_if_undefined
def r2_sqi(
    y: Any,
    intervals: IntervalsLike,
    *,
    y_pred: Any = None,
    coverage: float | None = None,
    infinite: Infinite = "keep",
    max_score: float | None = None,
    n_bins: int = 10,
    bin_width: BinWidth = "median",
    min_bin_size: int | None = None,
) -> float:
    r"""How well the widths of bins match their errors: R² of ISQ = 2 · CSQ.

    .. math:: R^2_{SQI} = 1 - \sum_b (\mathrm{ISQ}_b - 2\,\mathrm{CSQ}_b)^2 /
       \sum_b (\mathrm{ISQ}_b - \overline{\mathrm{ISQ}})^2

    with bins and CSQ as in :func:`tau_sqi`: an interval ŷ ± r that is right for its bin has CSQ =
    r. Good: 1, the intervals cover their level in every bin. Misleads: a value far below 0 says
    only "not adaptive", or too wide; the widest bin dominates; and intervals are assumed centred at
    ŷ.

    Parameters
    ----------
    y, intervals, y_pred, coverage, infinite, max_score, n_bins, min_bin_size
        As in :func:`tau_sqi`.
    bin_width : {"median", "midpoint"}
        ISQ is the median of the widths in the bin, or the midpoint of its edges. The paper's
        "middle point" could be either; the median is closer to its tables, and robust.

    Returns
    -------
    float of at most 1
        NaN with an ``UndefinedMetricWarning`` if fewer than two bins remain or an ISQ is infinite.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> spread = rng.uniform(1, 5, size=2000)
    >>> y = spread * rng.standard_normal(2000)
    >>> round(r2_sqi(y, (-1.96 * spread, 1.96 * spread), coverage=0.95), 2)
    0.93
    """
    rows = y_pred, infinite, max_score
    isq, csq = _in_bins(y, intervals, coverage, rows, n_bins, bin_width, min_bin_size)
    if np.isinf(isq[-1]):
        which = f"{np.count_nonzero(np.isinf(isq))} of {len(isq)} bins"
        raise UndefinedError(f"the size of {which} is infinite; use 'cap' or 'drop'")
    # In units of the widest bin, so that squares neither overflow nor underflow.
    size, error = isq / isq[-1], csq / isq[-1]
    total = np.sum((size - size.mean()) ** 2)
    if total == 0:
        raise UndefinedError(f"the size is {isq[0]:g} in every bin")
    return float(1 - np.sum((size - 2 * error) ** 2) / total)


def _in_bins(
    y: Any, intervals: IntervalsLike, coverage: float | None, rows: Any, *bins: Any
) -> tuple[FloatArray, FloatArray]:
    """ISQ and CSQ of at least two bins."""
    read = inputs.one_level(intervals)
    level = inputs.level_of(read, coverage)
    scores, widths = scores_and_widths(y, read, *rows)
    isq, csq = sqi_table(scores, widths, level, *bins)
    if len(isq) > 1:
        return isq, csq
    if len(widths) and widths.min() == widths.max():
        raise UndefinedError(f"all {len(widths)} widths are equal ({widths[0]:g})")
    raise UndefinedError(f"{len(widths)} rows leave fewer than two bins of widths")


def scores_and_widths(
    y: Any, intervals: Intervals, y_pred: Any, infinite: Infinite = "keep", max_score: Any = None
) -> tuple[FloatArray, FloatArray]:
    """``|y − ŷ|`` and upper − lower of the rows to compare, sorted by score, with rounding ties."""
    check_option(infinite, get_args(Infinite), "infinite")
    if (infinite == "cap") != (max_score is not None):
        what = "max_score, the half-width that replaces an infinite one"
        got = f"got infinite={infinite!r} and max_score={max_score!r}"
        remedy = "pass both (the largest calibration score), or neither"
        where = "is needed for infinite='cap' and used nowhere else"
        raise CalliperError(f"{what}, {where}; {got}: {remedy}.")
    if max_score is not None and not 0 < max_score < np.inf:
        raise CalliperError(f"max_score must be positive and finite; got {max_score!r}.")
    y, y_pred = same_rows(intervals, "intervals", y=y, y_pred=y_pred)
    n, width = len(intervals.lower), intervals.width
    kept = ~np.isinf(width) if infinite == "drop" else np.ones(n, dtype=bool)
    target = check_vector(y, "y", n=n)[kept]
    lower, upper, width = (part[kept] for part in (*intervals, width))
    unbounded = np.isinf(width)
    if y_pred is not None:
        centre = check_vector(y_pred, "y_pred", n=n)[kept]
    elif unbounded.any():
        which = f"{unbounded.sum()} of {len(unbounded)} intervals are infinite"
        why = f"{which}, the first at position {unbounded.argmax()}, and have no midpoint"
        raise CalliperError(f"y_pred is needed: {why}. Pass y_pred, or infinite='drop'.")
    else:
        centre = lower / 2 + upper / 2
    if max_score is not None:
        width = np.where(unbounded, 2 * max_score, width)
    ends = np.where(unbounded, 0.0, np.abs(lower) + np.abs(upper))
    order, scores = sort_with_ties(np.abs(target - centre), np.abs(target) + np.abs(centre))
    return scores, tie_rounding(width[order], ends[order])


def tie_rounding(values: FloatArray, magnitude: FloatArray) -> FloatArray:
    """The values, made equal where they differ by rounding only.

    A constant radius r does not give constant widths: (ŷ + r) − (ŷ − r) is off by a few units in
    the last digit of ŷ, whose ranks would look like information. ``magnitude`` is |a| + |b| of
    each value a − b.
    """
    order, ordered = sort_with_ties(values, magnitude)
    tied = np.empty_like(values)
    tied[order] = ordered
    return tied


def sort_with_ties(values: FloatArray, magnitude: FloatArray) -> tuple[IntArray, FloatArray]:
    """The order that sorts the values, and the sorted values with rounding ties made equal.

    In ascending order a value is tied to the first of the current ties unless it is larger by more
    than one unit in the last digit of both magnitudes, and three of the value, which is rounded as
    well. Comparing with the previous value instead could chain values that are far apart.
    """
    order, eps = np.argsort(values), np.finfo(float).eps
    ordered, size = values[order], magnitude[order]
    # Neighbours that are not tied by the largest magnitude are not tied by their own.
    most = 2 * float(size.max(initial=0.0))
    near = np.append(False, ~(ordered[1:] > ordered[:-1] + eps * (most + 6 * ordered[:-1])))
    if not near.any():
        return order, ordered
    first = np.maximum.accumulate(np.where(near, 0, np.arange(len(values))))
    apart = ordered > ordered[first] + eps * (size[first] + size + 6 * ordered[first])
    for here in np.flatnonzero(near & np.isin(first, first[apart])):  # runs wider than one tie
        tie = first[here - 1]
        above = ordered[here] > ordered[tie] + eps * (size[tie] + size[here] + 6 * ordered[tie])
        first[here] = here if above else tie
    return order, ordered[first]


def sort_widths(intervals: Intervals) -> tuple[IntArray, FloatArray]:
    """The order of the widths, and the sorted widths with rounding ties made equal."""
    width = intervals.width
    ends = np.where(np.isinf(width), 0.0, np.abs(intervals.lower) + np.abs(intervals.upper))
    return sort_with_ties(width, ends)


def sqi_table(
    scores: FloatArray,
    widths: FloatArray,
    coverage: float,
    n_bins: int = 10,
    bin_width: BinWidth = "median",
    min_bin_size: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """ISQ and CSQ of every bin, from narrow to wide intervals; O(n log n)."""
    check_option(bin_width, get_args(BinWidth), "bin_width")
    n_bins = at_least(n_bins, 2, "n_bins")
    if min_bin_size is None:
        min_bin_size = max(20, ceil(2 / (1 - as_fraction(coverage))))
    smallest = at_least(min_bin_size, 1, "min_bin_size")
    if not len(widths):
        return np.empty(0), np.empty(0)
    order = np.argsort(widths)
    ordered, scores = widths[order], scores[order]
    cuts = quantile_edges(ordered, n_bins)
    edges = np.unique(cuts)
    if np.isinf(cuts[-2]):  # enough infinite widths to fill a separate bin
        edges = np.append(edges, np.inf)
    start = np.concatenate([[0], np.searchsorted(ordered, edges[1:-1])])
    stop = np.append(start[1:], len(ordered))
    filled = np.flatnonzero(stop > start)
    first, last = (filled[side] for side in merge((stop - start)[filled], smallest))
    bins = [slice(*ends) for ends in zip(start[first], stop[last], strict=True)]
    if bin_width == "midpoint" and len(edges) > 1:
        isq = edges[first] / 2 + edges[last + 1] / 2
    else:
        isq = np.array([np.median(ordered[each]) for each in bins])
    return isq, np.array([np.quantile(scores[each], coverage) for each in bins])


def quantile_edges(ordered: FloatArray, n_bins: int) -> FloatArray:
    """Quantiles of ascending values at j/n_bins, linear between order statistics.

    In integer arithmetic: with the rounding errors of ``np.quantile``, an edge that equals a
    value could push it into the next bin.
    """
    below, rest = np.divmod(np.arange(n_bins + 1) * (len(ordered) - 1), n_bins)
    left, right = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
    # No step where the edge is a value, or between two infinite ones.
    flat = (rest == 0) | (left == right)
    step = np.subtract(right, left, out=np.zeros_like(left), where=~flat)
    edges: FloatArray = left + step * (rest / n_bins)
    return edges


def merge(count: IntArray, smallest: int) -> tuple[IntArray, IntArray]:
    """First and last bin of each group of bins that together hold ``smallest`` points.

    From the narrowest up; a remainder at the top is merged with the group below it.
    """
    last, held = [], 0
    for position, points in enumerate(count):
        held += points
        if held >= smallest:
            last.append(position)
            held = 0
    last[-1:] = [len(count) - 1]
    if len(last) < len(count):
        few, n = np.count_nonzero(count < smallest), len(count)
        what = f"{few} of {n} bins of the widths hold fewer than {smallest} points"
        done = f"merged with their neighbours into {len(last)}"
        remedy = f"Pass more test points ({smallest * n} fill them all), or fewer bins."
        warn(f"{what}, too few for a quantile of the scores: {done}. {remedy}", SparseBinsWarning)
    return np.array([0, *(end + 1 for end in last[:-1])]), np.array(last)
