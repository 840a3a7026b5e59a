"""All points count, the nearer the more.

A local mean is a ratio, so all weights of a row may share a factor: exponents −d²/2l² are needed
only up to a constant of the row. With the largest as zero, the nearest weight is one and nothing
underflows, whatever the length scale.

Without two points. With w_k = K(x, X_k), A = Σ w_k s_k and B = Σ w_k over the calibration points,

    ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i).

Leaving out any point but the nearest keeps B − w_i ≥ 1; the rest without the nearest is summed on
its own, so nothing cancels. Points that carry more than a share of A or B are exceptions to the
order of the rescaled scores; all others stay within a known factor of it, and a window suffices.

Over the bag. With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration points, k_i =
K(X_i, x) and the new point's own scale ŝ = Σ k_j s_j / Σ k_j, the threshold of calibration point i
solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Row i is shifted by its smallest squared distance, the new point's included. Where k_i is a small
share of B_i and of the balance, t_i stays within a known factor of the presorted ŝ s_i B_i / A_i;
the other points are exceptions, and a window does the rest.

With smoothing, all weights have a floor and need no shift: see ``_weighted.py``.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Self

import numpy as np

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.kernels._arithmetic import DOMINANT, positive_root, rescale, signed_root, times
from calliper.kernels._kernel import Bag, LeaveTwoOut
from calliper.kernels._search import Metric
from calliper.kernels._weighted import RadialExponents, to_weights, totals
from calliper.quantile import (
    Shares,
    conformal_rank,
    merged_order_statistic,
    pad_exceptions,
    row_thresholds,
    safe_window,
    weighted_quantiles_in_blocks,
)

#: A point with a larger share of the weights, or of the weighted sum, is an exception.
SHARE = 1 / 32

#: Weights whose sum is smaller have lost digits to underflow; they are shifted anew.
FAINT = 1e-200


class LeaveTwoOutRBF(LeaveTwoOut):
    """Radial means with one or two points left out."""

    def __init__(self, exponents: RadialExponents, magnitudes: FloatArray, offset: float) -> None:
        self.exponents, self.magnitudes, self.offset = exponents, magnitudes, offset
        self.without_one: FloatArray = mean_of_others(exponents, magnitudes)[0] + offset

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}; columns are kept in their ascending order."""
        rescaled = super().prepare(scores)
        order = np.argsort(rescaled)
        self.ordered, self.member = rescaled[order], self.magnitudes[order]
        self.columns = self.exponents.some(order)
        return rescaled

    def without_each(self, Z: FloatArray) -> FloatArray:
        return means_without_each(self.exponents, Z, self.magnitudes, None) + self.offset

    def order_statistics(
        self, Z: FloatArray, asked: Sequence[Any], shares: Shares | None = None
    ) -> FloatArray:
        if shares is not None:
            return super().order_statistics(Z, asked, shares)
        scratch = Scratch()
        blocks = map_row_blocks(
            lambda rows: self._select(Z[rows], [*asked], scratch), len(Z), len(self.ordered)
        )
        return np.concatenate(blocks)

    def _select(self, Z: FloatArray, ranks: list[int], scratch: Scratch) -> FloatArray:
        shape = len(Z), len(self.ordered)
        exponent, _ = self.columns.to(Z, out=scratch.array("exponent", shape))
        rows, nearest = np.arange(len(Z)), exponent.argmax(axis=1)
        weight = to_weights(exponent, exponent[rows, nearest])
        weight[rows, nearest] = 0.0
        weighted = np.multiply(weight, self.member, out=scratch.array("weighted", shape))
        rest_sum, rest_weight = weighted.sum(axis=1), weight.sum(axis=1)
        total, total_weight = rest_sum + self.member[nearest], rest_weight + 1.0

        large = weight > (SHARE * total_weight)[:, None]
        large |= weighted > (SHARE * total)[:, None]
        large[rows, nearest] = True
        row, column = np.divmod(np.flatnonzero(large), len(self.ordered))
        numerator = total[row] - weighted[row, column]
        for pair in np.flatnonzero(weighted[row, column] > DOMINANT * total[row]):
            others = np.delete(weighted[row[pair]], column[pair])
            numerator[pair] = others.sum() + self.member[nearest[row[pair]]]
        mean = numerator / (total_weight[row] - weight[row, column])
        mean[column == nearest[row]] = self._without_nearest(Z, nearest, rest_sum, rest_weight)
        value = times(mean + self.offset, self.ordered[column])
        position, value = pad_exceptions(row, column, value, len(Z), len(self.ordered))

        radius = np.empty((len(Z), len(ranks)))
        for level, rank in enumerate(ranks):
            part = safe_window(self.ordered, rank, position.shape[1], SHARE)
            mean = (total[:, None] - weighted[:, part]) / (total_weight[:, None] - weight[:, part])
            window = times(mean + self.offset, self.ordered[part])
            radius[:, level] = merged_order_statistic(window, part.start, position, value, rank)
        return radius

    def _without_nearest(
        self, Z: FloatArray, nearest: IntArray, rest_sum: FloatArray, rest_weight: FloatArray
    ) -> FloatArray:
        """Means without each row's nearest point; summed anew where all other weights vanish."""
        mean = np.empty(len(Z))
        faint = rest_weight < FAINT
        np.divide(rest_sum, rest_weight, out=mean, where=~faint)
        for row in np.flatnonzero(faint):
            mean[row] = mean_without(self.columns, Z[row], self.member, [nearest[row]])
        return mean


def mean_of_others(
    exponents: RadialExponents, magnitudes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For every point, the mean of the others, the sum of their weights, and their largest −d²/2l².

    The weights are taken relative to that largest exponent, so that their sum is at least one.
    """

    def average(rows: slice) -> FloatArray:
        exponent, constant = exponents.to(exponents.points[rows])
        exponent[np.arange(len(exponent)), np.arange(rows.start, rows.stop)] = -np.inf
        largest = exponent.max(axis=1)
        weight = to_weights(exponent, largest)
        total, total_weight = totals(weight, magnitudes)
        return np.stack([total / total_weight, total_weight, largest - constant])

    n = len(magnitudes)
    mean, total_weight, largest = np.concatenate(map_row_blocks(average, n, n), axis=1)
    return mean, total_weight, largest


def means_without_each(
    exponents: RadialExponents, queries: FloatArray, magnitudes: FloatArray, own: IntArray | None
) -> FloatArray:
    """(m, N) means at each query without each point; ``own`` (m,) is left out of all of a row.

    (A − w s)/(B − w) loses no digits unless the point left out carries most of A or of B. That
    can be the nearest point and the one with the largest share of A, one of each a row: they are
    summed without.
    """
    exponent, _ = exponents.to(queries)
    rows = np.arange(len(queries))
    if own is not None:
        exponent[rows, own] = -np.inf
    nearest = exponent.argmax(axis=1)
    weight = to_weights(exponent, exponent[rows, nearest])
    weighted = weight * magnitudes
    total, total_weight = weighted.sum(axis=1), weight.sum(axis=1)
    mean: FloatArray = total[:, None] - weighted
    dominant = weighted.argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean /= total_weight[:, None] - weight
    for left_out in (dominant, nearest):
        kept = weight[rows, left_out]
        weight[rows, left_out] = 0.0
        rest, rest_weight = totals(weight, magnitudes)
        weight[rows, left_out] = kept
        mean[rows, left_out] = rest / np.where(rest_weight > 0, rest_weight, 1.0)
        for row in np.flatnonzero(rest_weight < FAINT):
            out = [left_out[row]] if own is None else [left_out[row], own[row]]
            mean[row, left_out[row]] = mean_without(exponents, queries[row], magnitudes, out)
    return mean


def mean_without(
    exponents: RadialExponents, query: FloatArray, magnitudes: FloatArray, out: list[int]
) -> float:
    """The mean at one query without the points ``out``, shifted by the nearest that remains."""
    if len(set(out)) == len(magnitudes):
        return float("nan")  # nobody is left to speak
    exponent, _ = exponents.to(query[None])
    exponent[0, out] = -np.inf
    total, total_weight = totals(to_weights(exponent, exponent.max(axis=1)), magnitudes)
    return float(total[0] / total_weight[0])


class BagRBF(Bag):
    """Thresholds t_i with radial weights."""

    def __init__(
        self, exponents: RadialExponents, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self._given = exponents, magnitudes, scores, mean_of_others(exponents, magnitudes)
        self._arrange(offset)

    def with_offset(self, offset: float) -> Self:
        other = copy(self)
        other._arrange(offset)
        return other

    def _arrange(self, offset: float) -> None:
        """Columns in ascending order of the ratios s_i / ŝ_i."""
        exponents, magnitudes, scores, (mean, weight, largest) = self._given
        self.offset, self._calibration_scale = offset, mean + offset
        ratio = rescale(scores, self._calibration_scale)
        self.order = order = np.argsort(ratio)
        self.columns = exponents.some(order)
        self.ordered, self.scores, self.magnitudes = ratio[order], scores[order], magnitudes[order]
        self.weight, self.largest = weight[order], largest[order]
        self.linear = self.weight * self._calibration_scale[order]
        self._set_exception_limits()

    def calibration_scale(self, level: float) -> FloatArray:
        return self._calibration_scale

    def _set_exception_limits(self) -> None:
        """Exponents above which a point is an exception.

        Regular points have k ≤ τB and 4kC ≤ τA², C = s ŝ (B + k): then t lies within 1−2τ and
        1+τ of its value at k = 0. Both are limits of −d²/2l² = log k + largest, the second up to
        the log ŝ that each row subtracts.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            by_weight = np.minimum(np.log(SHARE * self.weight), 0.0)
            by_balance = np.log(SHARE / 4 / (1 + SHARE)) + 2 * np.log(self.linear)
            by_balance -= np.log(self.scores * self.weight)
        # Without the new point a zero scale gives an infinite ratio; with it, never.
        zero = self.linear == 0
        self.limit = np.where(zero, -np.inf, self.largest + by_weight)
        self.balance_limit = np.where(zero, np.inf, self.largest + by_balance)

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        scratch = Scratch()

        def select(rows: slice) -> FloatArray:
            if shares is None:
                return self._thresholds(Z[rows], levels, scratch)
            return row_thresholds(self.thresholds(Z[rows]), levels, shares.of_rows(rows))

        return np.concatenate(map_row_blocks(select, len(Z), len(self.ordered)))

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        exponent, constant, scale = self._scales(Z, Scratch())
        exponent -= constant[:, None]
        found = np.empty_like(exponent)
        if slope == 0:
            found[:, self.order] = self._crossing(
                exponent, np.arange(len(self.order)), scale[:, None]
            )
            return found
        entering, others = self._shares(exponent, slice(None))
        total = others * self.weight + entering
        linear = (others * self.linear + self.offset * entering) / total - slope * self.scores
        product = self.scores * scale[:, None]
        found[:, self.order] = signed_root(slope + entering / total, linear, product)
        return found

    def _scales(self, Z: FloatArray, scratch: Scratch) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Exponents (m, N), what to subtract from each row of them, and scales of the new rows."""
        shape = len(Z), len(self.ordered)
        exponent, constant = self.columns.to(Z, out=scratch.array("exponent", shape))
        weight = scratch.array("weight", shape)
        np.copyto(weight, exponent)
        to_weights(weight, weight.max(axis=1))
        total, total_weight = totals(weight, self.magnitudes)
        return exponent, constant, total / total_weight + self.offset

    def _thresholds(self, Z: FloatArray, levels: list[float], scratch: Scratch) -> FloatArray:
        exponent, constant, scale = self._scales(Z, scratch)
        weight = scratch.array("weight", exponent.shape)

        with np.errstate(divide="ignore"):
            lift = constant - np.log(scale)
        limit = np.add(self.limit, constant[:, None], out=weight)
        large = exponent > limit
        limit = np.add(self.balance_limit, lift[:, None], out=weight)
        large |= exponent > limit
        row, column = np.divmod(np.flatnonzero(large), len(self.ordered))
        value = self._crossing(exponent[row, column] - constant[row], column, scale[row])
        position, value = pad_exceptions(row, column, value, len(Z), len(self.ordered))

        radius = np.empty((len(Z), len(levels)))
        for index, level in enumerate(levels):
            rank = conformal_rank(level, len(self.ordered))
            part = safe_window(self.ordered, rank, position.shape[1], 2 * SHARE)
            columns = np.arange(part.start, part.stop)
            inside = exponent[:, part] - constant[:, None]
            window = self._crossing(inside, columns, scale[:, None])
            radius[:, index] = merged_order_statistic(window, part.start, position, value, rank)
        return radius

    def _crossing(self, exponent: FloatArray, column: IntArray, scale: FloatArray) -> FloatArray:
        """t_i from −d²(X_i, x)/2l², for broadcastable columns and scales of the new rows."""
        entering, shrink = self._shares(exponent, column)
        linear = shrink * self.linear[column] + self.offset * entering
        product = self.scores[column] * scale
        constant = product * (shrink * self.weight[column] + entering)
        return positive_root(entering, linear, constant)

    def _shares(
        self, exponent: FloatArray, column: IntArray | slice
    ) -> tuple[FloatArray, FloatArray]:
        """The new point's weight at the points, and what those of all others are multiplied by."""
        excess = self.largest[column] - exponent
        # A new point nearer than all others shrinks their weights instead of growing its own.
        return np.exp(-np.maximum(excess, 0.0)), np.exp(np.minimum(excess, 0.0))


class RadialQuantile:
    """The first of the ascending scores at which the radial weights reach the level."""

    def __init__(self, exponents: RadialExponents, ascending: FloatArray) -> None:
        self.exponents, self.ascending = exponents, ascending

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        def weigh(rows: slice, out: FloatArray) -> tuple[FloatArray, FloatArray]:
            return self.exponents.weights(Z[rows], out), np.zeros(len(out))

        return weighted_quantiles_in_blocks(self.ascending, weigh, len(Z), levels)


class RadialFamily:
    """RBF kernels on fixed points; the candidate is the length scale."""

    fold = None

    def __init__(self, Z: FloatArray, magnitudes: FloatArray, metric: Metric) -> None:
        self.Z, self.magnitudes, self.metric = Z, magnitudes, metric

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i without i and m."""
        exponents = RadialExponents(self.Z, candidate, self.metric)
        n = len(self.Z)

        def block(rows: slice) -> FloatArray:
            own = np.arange(rows.start, rows.stop)
            return means_without_each(exponents, self.Z[rows], self.magnitudes, own)

        return np.concatenate(map_row_blocks(block, n, n))

    def means_without(self, candidate: float, members: IntArray) -> "RadialMeansWithout":
        """For new rows, the means without each of the ``members``."""
        # The members come first, so that their columns are a slice.
        rest = np.setdiff1d(np.arange(len(self.Z)), members)
        order = np.concatenate([members, rest])
        exponents = RadialExponents(self.Z[order], candidate, self.metric)
        return RadialMeansWithout(exponents, self.magnitudes[order], len(members))


class RadialMeansWithout:
    """Means at new rows without each of the first ``n_members`` points."""

    def __init__(self, exponents: RadialExponents, magnitudes: FloatArray, n_members: int) -> None:
        self.exponents, self.magnitudes, self.n_members = exponents, magnitudes, n_members

    def __call__(self, Z: FloatArray) -> FloatArray:
        exponent, _ = self.exponents.to(Z)
        rows, nearest = np.arange(len(Z)), exponent.argmax(axis=1)
        weight = to_weights(exponent, exponent[rows, nearest])
        weight[rows, nearest] = 0.0
        rest, rest_weight = totals(weight, self.magnitudes)
        total, total_weight = rest + self.magnitudes[nearest], rest_weight + 1.0
        weight_of = weight[:, : self.n_members]
        weighted = weight_of * self.magnitudes[: self.n_members]
        mean: FloatArray = total[:, None] - weighted
        mean /= total_weight[:, None] - weight_of
        # What carries most of a sum is left out of the sum, not subtracted from it.
        for row, member in zip(*np.nonzero(weighted > DOMINANT * total[:, None]), strict=True):
            others = np.delete(weight[row], member) @ np.delete(self.magnitudes, member)
            others += self.magnitudes[nearest[row]]
            mean[row, member] = others / (total_weight[row] - weight[row, member])
        inside = np.flatnonzero(nearest < self.n_members)
        safe = np.where(rest_weight > FAINT, rest_weight, 1.0)
        mean[inside, nearest[inside]] = (rest / safe)[inside]
        for row in inside[rest_weight[inside] <= FAINT]:
            left_out = [nearest[row]]
            mean[row, nearest[row]] = mean_without(
                self.exponents, Z[row], self.magnitudes, left_out
            )
        return mean


class RadialFolds:
    """As :class:`RadialFamily`, where whole folds (N,) are left out.

    Sums over all folds but one are added up from those of the single folds: nothing is subtracted.
    """

    def __init__(
        self, Z: FloatArray, magnitudes: FloatArray, metric: Metric, fold: IntArray
    ) -> None:
        self.Z, self.magnitudes, self.metric, self.fold = Z, magnitudes, metric, fold
        self.n_folds = int(fold.max()) + 1
        inside = np.equal.outer(fold, np.arange(self.n_folds)).astype(np.float64)
        self.fold_sums = np.hstack([inside * magnitudes[:, None], inside])

    def without_two(self, candidate: float) -> FloatArray:
        """(N, F) means at every calibration point without itself and without each fold."""
        exponents, n = RadialExponents(self.Z, candidate, self.metric), len(self.Z)

        def block(rows: slice) -> FloatArray:
            return self._means(exponents, self.Z[rows], np.arange(rows.start, rows.stop))

        return np.concatenate(map_row_blocks(block, n, n))

    def means_without(
        self, candidate: float, members: IntArray
    ) -> Callable[[FloatArray], FloatArray]:
        """For new rows, the means without each of the folds ``members``."""
        exponents = RadialExponents(self.Z, candidate, self.metric)
        return partial(self._means, exponents, members=members)

    def _means(
        self,
        exponents: RadialExponents,
        Z: FloatArray,
        own: IntArray | None = None,
        members: IntArray | slice = slice(None),
    ) -> FloatArray:
        """(m, F) means at rows without each fold, or some; ``own`` (m,) is left out as well."""
        exponent, _ = exponents.to(Z)
        if own is not None:
            exponent[np.arange(len(Z)), own] = -np.inf
        weight = to_weights(exponent, exponent.max(axis=1))
        all_but_one = 1.0 - np.eye(self.n_folds)
        by_fold = weight @ self.fold_sums
        total = by_fold[:, : self.n_folds] @ all_but_one
        total_weight = by_fold[:, self.n_folds :] @ all_but_one
        mean: FloatArray = total / np.where(total_weight > 0, total_weight, 1.0)
        for row, fold in zip(*np.nonzero(total_weight < FAINT), strict=True):
            out = np.flatnonzero(self.fold == fold).tolist()
            out += [] if own is None else [own[row]]
            mean[row, fold] = mean_without(exponents, Z[row], self.magnitudes, out)
        return mean[:, members]
