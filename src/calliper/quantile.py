"""The finite-sample order statistic of conformal prediction, plain and weighted, exact.

The threshold of every conformal method is the Q-th smallest of N calibration values with Q =
⌈(1−α)(N+1)⌉, and +∞ when Q = N+1. In floating point that rank is off by one in hundreds of ordinary
cases (α = 0.172, N = 249), so here, and only here, it is computed in rational arithmetic.

Localised methods give calibration scores v_1 ≤ … ≤ v_N weights w_i ≥ 0; the new point, whose score
is unknown and counts as infinite, has the weight w_∞. The threshold is the first score at which the
weight of all scores up to it reaches its share of the total T = Σ w_i + w_∞:

    Δ = min{v_k : w_1 + … + w_k ≥ (1−α) T},  +∞ if there is none.

Sums are compared up to 10⁻¹² T (less at levels that near to 0 or 1), so a share that equals the
level except for rounding reaches it. If T = 0, the threshold is infinite. A score that ties with
its threshold must be covered, so what is computed from one is rounded outward: by ``outward`` for
products and long sums, by ``above`` and ``below`` for one sum.

Letters: v → ``ordered``, w → ``weights``, w_∞ → ``at_infinity``, 1−α → ``levels``.

Reference: Tibshirani, Barber, Candès, Ramdas (2019), "Conformal prediction under covariate shift",
arXiv:1904.06019, Lemma 1 (the weighted quantile).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, frexp, ldexp
from typing import Any

import numpy as np

from calliper._types import BoolArray, FloatArray, IntArray

#: Shares of the total weight that differ by less than this are equal.
TOLERANCE = 1e-12
#: Relative error of sums and products of many numbers.
ROUNDING = 1e-11
#: The smallest positive number that has all its digits.
TINY = float(np.finfo(float).tiny)


@lru_cache(maxsize=256)
def as_fraction(level: float) -> Fraction:
    """The level as the simple fraction that its user meant: 0.1 + 0.2 is 3/10.

    Levels that no fraction of denominator up to 10⁹ resembles are taken bit by bit.
    """
    exact = Fraction(float(level))
    simple = exact.limit_denominator(10**9)
    return simple if 0 < simple < 1 and abs(simple - exact) <= TOLERANCE else exact


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


def _share(level: float) -> float:
    """The share of all weight that reaches a level, a little less than it to allow for rounding."""
    exact = as_fraction(level)
    return float(exact) - min(TOLERANCE, float(min(exact, 1 - exact)) * 1e-6)


def conformal_thresholds(
    ordered: FloatArray, levels: Sequence[float], shares: "Shares | None" = None
) -> FloatArray:
    """The Q-th smallest of N ascending values at each level, (L,); +∞ where Q = N+1.

    With shares, in the order of the values, the weighted threshold of each new row, (m, L).
    """
    if shares is None:
        ranks = [conformal_rank(level, len(ordered)) for level in levels]
        return np.array([ordered[rank - 1] if rank <= len(ordered) else np.inf for rank in ranks])
    columns = [np.searchsorted(shares.reached, shares.needed(level)) for level in levels]
    return np.asarray(np.append(ordered, np.inf)[np.stack(columns, axis=1)])


def merged_multiple(
    ordered: FloatArray, factor: FloatArray, position: IntArray, value: FloatArray, rank: int
) -> FloatArray:
    """The rank-th smallest of ``factor[r] * ordered[j]`` for each row r, but for some exceptions.

    ``position``, (m, E), says which columns are exceptions (N pads a short row), and ``value`` what
    they are instead (NaN pads). A regular value whose rank is more than E away from ``rank``
    cannot be the answer, so a window of 2E+1 columns holds it: O(E log E) a row, whatever N.
    """
    n_exceptions = position.shape[1]
    low, high = max(0, rank - 1 - n_exceptions), min(len(ordered), rank + n_exceptions)
    window = multiple(factor[:, None], ordered[low:high])
    return merged_order_statistic(window, low, position, value, rank)


def merged_order_statistic(
    window: FloatArray, low: int, position: IntArray, value: FloatArray, rank: int
) -> FloatArray:
    """For each row, the rank-th smallest of N values that are in order but for some exceptions.

    Exceptions apart, columns before ``low`` are at most the answer, and columns past the window at
    least the answer. ``window``, (m, W), holds the columns from ``low`` on; it is changed in place.
    """
    row, entry = np.nonzero((position >= low) & (position < low + window.shape[1]))
    window[row, position[row, entry] - low] = np.nan
    below = low - np.count_nonzero(position < low, axis=1)
    candidates = np.concatenate([window, value], axis=1)
    candidates.sort(axis=1)
    return np.asarray(candidates[np.arange(len(window)), rank - 1 - below])


def pad_exceptions(
    row: IntArray, position: IntArray, value: FloatArray, n_rows: int, n_columns: int
) -> tuple[IntArray, FloatArray]:
    """Exceptions listed by ascending row, as the padded (m, E) arrays that merging takes."""
    count = np.bincount(row, minlength=n_rows)
    entry = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    shape = (n_rows, int(count.max(initial=0)))
    positions, values = np.full(shape, n_columns, dtype=np.intp), np.full(shape, np.nan)
    positions[row, entry], values[row, entry] = position, value
    return positions, values


def row_order_statistics(values: FloatArray, ranks: Sequence[int]) -> FloatArray:
    """The rank-th smallest of each row of (m, N), for each rank: (m, L); no NaN among them."""
    columns = np.array(ranks) - 1
    return np.partition(values, columns, axis=1)[:, columns]


def row_thresholds(
    values: FloatArray, levels: Sequence[float], shares: "Shares | None" = None
) -> FloatArray:
    """The threshold of each row of (m, N) at each level, (m, L); with shares, by weight."""
    if shares is None:
        ranks = [conformal_rank(level, values.shape[1]) for level in levels]
        return row_order_statistics(values, ranks)
    weights = np.broadcast_to(shares.calibration, values.shape)
    return np.stack([_reaching(values, weights, shares.needed(level)) for level in levels], axis=1)


def _reaching(values: FloatArray, weights: FloatArray, needed: FloatArray) -> FloatArray:
    """The first value of each row of (m, N) at which its weights reach what is needed, else +∞."""
    order = np.argsort(values, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    index = count_true(reached < needed[:, None])[:, None]
    ordered = np.take_along_axis(values, order, axis=1)
    extended = np.hstack([ordered, np.full((len(order), 1), np.inf)])
    return np.asarray(np.take_along_axis(extended, index, axis=1)[:, 0])


def in_order(values: FloatArray, weights: FloatArray | None) -> tuple[FloatArray, Any]:
    """Ascending values, and their weights with them, if there are any."""
    if weights is None:
        return np.sort(values), None
    order = np.argsort(values)
    return values[order], weights[order]


def effective_size(weights: FloatArray) -> float:
    """(Σw)²/Σw²."""
    unit = weights / weights.max()
    return float(unit.sum() ** 2 / np.square(unit).sum())


@dataclass(frozen=True, eq=False)
class Shares:
    """Weights of N calibration rows and of m new rows, in units of the largest of the former.

    A unit that is one of them makes sums of equal weights exact: these are the plain ranks.
    """

    calibration: FloatArray
    new: FloatArray

    @cached_property
    def reached(self) -> FloatArray:
        """Cumulated weights of the calibration rows, (N,)."""
        return np.asarray(np.cumsum(self.calibration, dtype=np.longdouble), dtype=np.float64)

    def needed(self, level: float) -> FloatArray:
        """What weights up to a threshold must reach, (m,): the level's share, new row included."""
        return np.asarray(_share(level) * (self.reached[-1] + self.new))

    @property
    def equal(self) -> bool:
        """Whether all weights are the same, which is as good as no weights."""
        return bool((self.calibration == 1).all() and (self.new == 1).all())

    def of_rows(self, rows: Any) -> "Shares":
        """Those of some of the new rows."""
        return Shares(self.calibration, self.new[rows])

    def reordered(self, order: IntArray) -> "Shares":
        """The same with the calibration rows in another order."""
        return Shares(self.calibration[order], self.new)

    def merged_multiple(
        self,
        ordered: FloatArray,
        factor: FloatArray,
        position: IntArray,
        value: FloatArray,
        level: float,
    ) -> FloatArray:
        """As :func:`merged_multiple`, but that weights decide: the threshold of each row, (m,).

        Halving finds the first regular column up to which weights suffice, exceptions at or below
        its value included; an exception between it and the column before may suffice, too.
        O(E log N) a row.
        """
        n, needed = len(ordered), self.needed(level)
        weight = np.append(self.calibration, 0.0)[position]
        before, extended = np.append(0.0, self.reached), np.append(ordered, np.inf)

        def regular(column: IntArray) -> FloatArray:
            """Weight of the regular columns before this one."""
            return np.asarray(before[column] - (weight * (position < column[:, None])).sum(axis=1))

        low, high = np.zeros(len(factor), dtype=np.intp), np.full(len(factor), n, dtype=np.intp)
        while (low < high).any():
            middle = np.minimum((low + high) // 2, n - 1)
            below = (weight * (value <= multiple(factor, extended[middle])[:, None])).sum(axis=1)
            enough = regular(middle + 1) + below >= needed
            low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        exception = _reaching(value, weight, needed - regular(low))
        return np.asarray(np.fmin(exception, multiple(factor, extended[low])))


def weighted_quantiles(
    ordered: FloatArray, weights: FloatArray, at_infinity: FloatArray, levels: Sequence[float]
) -> FloatArray:
    """The threshold of each row at each level, (m, L), from ascending scores, (N,), in O(mN).

    The weights, (m, N), are replaced by their cumulated sums, which saves an array of their size.

    >>> scores, weights = np.array([1.0, 2.0, 3.0]), np.array([[1.0, 1.0, 1.0], [5.0, 1.0, 1.0]])
    >>> weighted_quantiles(scores, weights, np.array([1.0, 1.0]), [0.5, 0.9])
    array([[ 2., inf],
           [ 1., inf]])
    """
    reached = np.cumsum(weights, axis=1, out=weights)
    total = reached[:, -1] + at_infinity
    extended = np.append(ordered, np.inf)
    threshold = np.empty((len(weights), len(levels)))
    for column, level in enumerate(levels):
        needed = _share(level) * total
        threshold[:, column] = extended[count_true(reached < needed[:, None])]
    threshold[total == 0] = np.inf
    return threshold


def with_signs(sizes: FloatArray, signs: FloatArray) -> FloatArray:
    """Sizes ≥ 0 with the signs −1, 0 or 1 of the last axis; 0 where that is 0, even of infinity.

    A size of 0 with a sign is just beyond 0, since only errors of 0 are at 0 themselves.
    """
    with np.errstate(invalid="ignore"):
        signed = np.where(sizes == 0, TINY, sizes) * signs
    return np.where(signs == 0, 0.0, signed)


def count_true(mask: BoolArray) -> IntArray:
    """How many entries of each row are true; several times faster than a count along an axis."""
    return np.asarray(mask.view(np.uint8).sum(axis=1, dtype=np.uint32), dtype=np.intp)


def outward(radius: FloatArray) -> FloatArray:
    """The radius, enlarged by more than the rounding of the longest sums: ties must be covered."""
    return radius * np.where(radius < 0, 1 - ROUNDING, 1 + ROUNDING)


def not_below(ratio: FloatArray) -> FloatArray:
    """Ratios; those too small for all their digits are rounded up, since products magnify that."""
    lossy = (ratio != 0) & (np.abs(ratio) < TINY)
    return np.where(lossy, np.nextafter(ratio, np.inf), ratio)


def rescaled_back(scale: FloatArray, threshold: FloatArray) -> FloatArray:
    """Scales (m, 1) or (m, L) times thresholds s/ŝ (L,), infinite where these are: (m, L)."""
    return multiple(scale, not_below(threshold))


def multiple(factor: FloatArray, values: FloatArray) -> FloatArray:
    """Products; an infinite value stays infinite even where the factor is zero."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.isinf(values), values, factor * values)


def power_of_two(values: FloatArray) -> float:
    """The power of two just above the largest magnitude, or 2¹⁰²³; 1 if all are zero."""
    return ldexp(1.0, min(exponent(values), 1023))


def exponent(values: FloatArray) -> int:
    """The smallest e such that no magnitude exceeds 2ᵉ; 0 if all are zero."""
    part, e = frexp(max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))))
    return e - (part == 0.5)


def below(y_pred: FloatArray, radius: FloatArray, *, digits: int = 1) -> FloatArray:
    """ŷ − radius, some last digits further; see :func:`above`."""
    return -above(-y_pred, radius, digits=digits)


def above(y_pred: FloatArray, radius: FloatArray, *, digits: int = 1) -> FloatArray:
    """ŷ + radius, some last digits further: no target whose measured error is the radius falls out.

    A measured error was rounded by half a last digit at most, so the next number is no smaller. A
    radius that is multiplied back needs less than three more: one for the quotient, one for the
    product, and up to one where these pass a power of two. So the radius moves by ``digits``, and
    the end by one. Nothing is rounded at r = 0, and no error below it reaches ŷ. The order is kept.
    """
    further = radius
    with np.errstate(over="ignore"):  # beyond the largest number an end is no bound
        for _ in range(digits):
            further = np.nextafter(further, np.inf)
        end = y_pred + np.where(np.isinf(further), radius, further)
        end = np.where(np.isinf(end), end, np.nextafter(end, np.inf))
    end = np.where(radius < 0, np.minimum(end, y_pred), end)
    return np.where((radius == 0) | np.isinf(radius), y_pred + radius, end)
