"""Quantile bins of the widths, and what the scores do inside each of them."""

from __future__ import annotations

import warnings
from math import ceil
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.quantile import as_fraction

BinWidth = Literal["median", "midpoint"]


class SparseBinsWarning(UserWarning):
    """Bins hold too few points for what is measured in them, or there are fewer than asked for."""


class SQITable(NamedTuple):
    """A row for each bin, from the narrowest intervals to the widest."""

    isq: FloatArray  # the interval size that stands for the bin
    csq: FloatArray  # the quantile of the scores in the bin


def sqi_table(
    scores: FloatArray,
    widths: FloatArray,
    coverage: float,
    *,
    n_bins: int,
    bin_width: BinWidth,
    min_bin_size: int | None,
) -> SQITable:
    """ISQ and CSQ of every bin; two sorts and one partition a bin, O(n log n)."""
    if bin_width not in ("median", "midpoint"):
        raise CalliperError(f"bin_width must be 'median' or 'midpoint'; got {bin_width!r}.")
    n_bins = at_least(n_bins, 2, "n_bins")
    if min_bin_size is None:
        smallest = max(20, ceil(2 / (1 - as_fraction(coverage))))
    else:
        smallest = at_least(min_bin_size, 1, "min_bin_size")
    if not len(widths):
        return SQITable(np.empty(0), np.empty(0))
    order = np.argsort(widths)
    ordered, scores = widths[order], scores[order]
    cuts = quantile_edges(ordered, n_bins)
    edges = np.unique(cuts)
    if np.isinf(cuts[-2]):
        # Enough infinite widths to fill a bin: it is theirs alone.
        edges = np.append(edges, np.inf)
    start = np.concatenate([[0], np.searchsorted(ordered, edges[1:-1])])
    stop = np.append(start[1:], len(ordered))
    filled = stop > start
    first, last = merge(stop[filled] - start[filled], smallest)
    low, high = edges[:-1][filled[: len(edges) - 1]], edges[1:][filled[: len(edges) - 1]]
    start, stop = start[filled][first], stop[filled][last]
    if bin_width == "midpoint" and len(edges) > 1:
        isq = low[first] / 2 + high[last] / 2
    else:
        isq = np.array([np.median(ordered[a:b]) for a, b in zip(start, stop, strict=True)])
    csq = [np.quantile(scores[a:b], coverage) for a, b in zip(start, stop, strict=True)]
    return SQITable(isq, np.array(csq))


def quantile_edges(ordered: FloatArray, n_bins: int) -> FloatArray:
    """Quantiles at j/n_bins, linear between order statistics, of ascending values.

    In integer arithmetic, because an edge that should be one of the values must not land a
    rounding error beside it (``np.quantile`` does) and push that value into the next bin.
    """
    below, rest = np.divmod(np.arange(n_bins + 1) * (len(ordered) - 1), n_bins)
    left, right = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
    # Where both ends are infinite, or nothing of the right one is taken, there is no step.
    flat = (rest == 0) | (left == right)
    step = np.subtract(right, left, out=np.zeros_like(left), where=~flat)
    edges: FloatArray = left + step * (rest / n_bins)
    return edges


def merge(count: IntArray, smallest: int) -> tuple[IntArray, IntArray]:
    """First and last bin of every group of bins that together hold ``smallest`` points.

    From the narrowest up, a bin that is too small is joined with the next; what is left over
    at the top joins the group below it.
    """
    first, last, held = [0], [], 0
    for place, points in enumerate(count):
        held += points
        if held >= smallest:
            last.append(place)
            first.append(place + 1)
            held = 0
    if not last:
        last, first = [len(count) - 1], [0]
    last[-1] = len(count) - 1
    first = first[: len(last)]
    if len(last) < len(count):
        warnings.warn(
            f"{np.count_nonzero(count < smallest)} of {len(count)} bins of the widths hold fewer "
            f"than {smallest} points, too few for a quantile of the scores: merged with their "
            f"neighbours into {len(last)}. Pass more test points ({smallest * len(count)} fill "
            f"them all), or fewer bins.",
            SparseBinsWarning,
            stacklevel=4,
        )
    return np.array(first), np.array(last)


def at_least(value: Any, least: int, name: str) -> int:
    """An integer that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise CalliperError(f"{name} must be an integer of at least {least}; got {value!r}.")
    return int(value)
