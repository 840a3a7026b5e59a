"""Full conformal thresholds with radial weights over the whole bag.

With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration points, k_i = K(X_i, x) and
the new point's own scale ŝ = Σ k_j s_j / Σ k_j, the threshold of calibration point i solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Row i is shifted by its smallest squared distance, the new point's included, so that nothing
underflows. Where k_i is a small share of B_i and of the balance, t_i stays within a known factor
of the presorted ŝ s_i B_i / A_i; the other points are exceptions, and a window does the rest.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.quantile import conformal_rank, merged_order_statistic, pad_exceptions, safe_window
from calliper.scale._ratio import rescale
from calliper.scale._rbf import mean_of_others
from calliper.scale._statistic import positive_root, signed_root
from calliper.scale._weights import RadialExponents, to_weights

#: A point that would give the new one a larger share of its weights is an exception.
SHARE = 1 / 32


class BagRBF:
    """Thresholds t_i of the full method.

    Parameters
    ----------
    exponents : the calibration points and the length scale
    magnitudes, scores : (N,) what scales are made of, and what is divided by them
    offset : constant added to every scale
    """

    def __init__(
        self,
        exponents: RadialExponents,
        magnitudes: FloatArray,
        scores: FloatArray,
        offset: float,
    ) -> None:
        self._given = exponents, magnitudes, scores, mean_of_others(exponents, magnitudes)
        self._arrange(offset)

    def with_offset(self, offset: float) -> BagRBF:
        """The same bag with another constant added to every scale; no weight is summed again."""
        other = copy(self)
        other._arrange(offset)
        return other

    def _arrange(self, offset: float) -> None:
        """Columns in ascending order of the ratios s_i / ŝ_i."""
        exponents, magnitudes, scores, (mean, weight, largest) = self._given
        self.offset, self._calibration_scale = offset, mean + offset
        ratio = rescale(scores, self._calibration_scale)
        order = np.argsort(ratio)
        self.columns = exponents.reordered(order)
        self.ordered, self.scores, self.magnitudes = ratio[order], scores[order], magnitudes[order]
        self.weight, self.largest = weight[order], largest[order]
        self.linear = self.weight * self._calibration_scale[order]
        self.sums = np.column_stack([self.magnitudes, np.ones(len(order))])
        self._set_exception_limits()

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, (N,)."""
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

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        scratch = Scratch()
        blocks = map_row_blocks(
            lambda rows: self._thresholds(Z[rows], levels, scratch), len(Z), len(self.ordered)
        )
        return np.concatenate(blocks)

    def rising_order_statistic(self, Z: FloatArray, level: float, slope: float) -> FloatArray:
        """The Q-th smallest threshold, (m,), if slope·t is added to all scales."""
        rank, scratch = conformal_rank(level, len(self.ordered)), Scratch()

        def select(rows: slice) -> FloatArray:
            exponent, constant, scale = self._scales(Z[rows], scratch)
            exponent -= constant[:, None]
            entering, others = self._shares(exponent, slice(None))
            total = others * self.weight + entering
            linear = (others * self.linear + self.offset * entering) / total - slope * self.scores
            product = self.scores * scale[:, None]
            threshold = signed_root(slope + entering / total, linear, product)
            return np.partition(threshold, rank - 1, axis=1)[:, rank - 1]

        return np.concatenate(map_row_blocks(select, len(Z), len(self.ordered)))

    def _scales(self, Z: FloatArray, scratch: Scratch) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Exponents (m, N), what to subtract from each row of them, and scales of the new rows."""
        shape = len(Z), len(self.ordered)
        exponent, constant = self.columns.to(Z, out=scratch.array("exponent", shape))
        weight = scratch.array("weight", shape)
        np.copyto(weight, exponent)
        to_weights(weight, weight.max(axis=1))
        total, total_weight = (weight @ self.sums).T
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
