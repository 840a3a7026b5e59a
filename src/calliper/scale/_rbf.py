"""Leave-two-out means with radial weights.

With w_k = K(x, X_k), A = Σ w_k s_k and B = Σ w_k over the calibration points,

    ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i).

Weights are shifted so that the nearest is one. Leaving out any other point keeps B − w_i ≥ 1;
what remains without the nearest is summed on its own, so nothing cancels. Only points that carry
more than a share of A or B move their mean noticeably: they are exceptions to the order of the
rescaled scores, all others stay within a known factor of it, and a window suffices.
"""

from __future__ import annotations

import numpy as np

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.quantile import merged_order_statistic, pad_exceptions, safe_window
from calliper.scale._left_out import FAINT, mean_without
from calliper.scale._ratio import rescale
from calliper.scale._weights import RadialExponents, to_weights

#: A point with a larger share of the weights, or of the weighted sum, is an exception.
SHARE = 1 / 32

#: Where one point carries more than this part of the sum, the rest is summed without it.
DOMINANT = 0.999


class LeaveTwoOutRBF:
    """Local means of calibration magnitudes with one or two points left out.

    Parameters
    ----------
    exponents : the calibration points and the length scale
    magnitudes : (N,) what is averaged
    offset : constant added to every mean
    """

    def __init__(self, exponents: RadialExponents, magnitudes: FloatArray, offset: float) -> None:
        self.exponents, self.magnitudes, self.offset = exponents, magnitudes, offset
        self.without_one: FloatArray = mean_of_others(exponents, magnitudes)[0] + offset

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}; columns are kept in their ascending order."""
        rescaled = rescale(scores, self.without_one)
        order = np.argsort(rescaled)
        self.ordered, self.member = rescaled[order], self.magnitudes[order]
        self.sums = np.column_stack([self.member, np.ones(len(order))])
        self.columns = self.exponents.reordered(order)
        return rescaled

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""
        scratch = Scratch()
        blocks = map_row_blocks(
            lambda rows: self._select(Z[rows], ranks, scratch), len(Z), len(self.ordered)
        )
        return np.concatenate(blocks)

    def _select(self, Z: FloatArray, ranks: list[int], scratch: Scratch) -> FloatArray:
        shape = len(Z), len(self.ordered)
        exponent, _ = self.columns.to(Z, out=scratch.array("exponent", shape))
        rows, nearest = np.arange(len(Z)), exponent.argmax(axis=1)
        weight = to_weights(exponent, exponent[rows, nearest])
        weight[rows, nearest] = 0.0
        weighted = np.multiply(weight, self.member, out=scratch.array("weighted", shape))
        rest_sum, rest_weight = (weight @ self.sums).T
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
            mean[row] = mean_without(self.columns, Z[row], self.sums, [nearest[row]])
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
        total_weight = weight.sum(axis=1)
        return np.stack([weight @ magnitudes / total_weight, total_weight, largest - constant])

    n = len(magnitudes)
    mean, total_weight, largest = np.concatenate(map_row_blocks(average, n, n), axis=1)
    return mean, total_weight, largest


def times(mean: FloatArray, rescaled: FloatArray) -> FloatArray:
    """ŝ · s⁺, infinite where the rescaled score is, even if the local mean is zero."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(rescaled), np.inf, mean * rescaled)
