"""Full conformal thresholds with any weights that are given outright.

With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration points, k_i the weight of the
new point at point i and its own scale ŝ = Σ k_j s_j / Σ k_j, the threshold of point i solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Where B_i = k_i = 0, all other members of the bag count equally, and likewise for the new point.
All N thresholds of a row are solved and one is selected, O(N) a row.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.quantile import conformal_rank, row_order_statistics
from calliper.scale._similarity import Similarity
from calliper.scale._statistic import signed_root


class BagSimilarity:
    """Thresholds t_i of the full method.

    Parameters
    ----------
    similarity : weights of the calibration points
    magnitudes, scores : (N,) what scales are made of, and what is divided by them
    offset : constant added to every scale
    """

    def __init__(
        self, similarity: Similarity, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.similarity, self.magnitudes, self.scores = similarity, magnitudes, scores
        self.offset = offset
        self.total, self.weight = sums_of_others(similarity, magnitudes)
        self.lonely = np.flatnonzero(self.weight == 0)
        self.mean_of_all = float(magnitudes.mean())
        self.sum_of_rest = sums_without(magnitudes, self.lonely)

    def with_offset(self, offset: float) -> BagSimilarity:
        """The same bag with another constant added to every scale; no weight is summed again."""
        other = copy(self)
        other.offset = offset
        return other

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, (N,)."""
        n = len(self.scores)
        mean = self.total / np.where(self.weight > 0, self.weight, 1.0)
        mean[self.lonely] = self.sum_of_rest / max(1, n - 1)
        return np.asarray(mean + self.offset)

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        ranks = [conformal_rank(level, len(self.scores)) for level in levels]

        scratch = Scratch()

        def select(rows: slice) -> FloatArray:
            entering, total, weight, scale = self._balance(Z[rows])
            shape = entering.shape
            constant = np.add(weight, entering, out=scratch.array("constant", shape))
            if self.offset:
                total = total + self.offset * constant
            constant *= self.scores
            constant *= scale[:, None]
            # positive_root in few passes: in units of the largest score nothing overflows.
            root = np.multiply(entering, constant, out=scratch.array("root", shape))
            root *= 4
            root += np.square(total)
            np.sqrt(root, out=root)
            root += total
            vanishing = root == 0
            with np.errstate(divide="ignore", invalid="ignore"):
                threshold = np.divide(constant, root, out=root)
            threshold *= 2
            if vanishing.any():
                zero = (constant[vanishing] == 0) & (entering[vanishing] > 0)
                threshold[vanishing] = np.where(zero, 0.0, np.inf)
            return row_order_statistics(threshold, ranks)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))

    def rising_order_statistic(self, Z: FloatArray, level: float, slope: float) -> FloatArray:
        """The Q-th smallest threshold, (m,), if slope·t is added to all scales."""
        rank = conformal_rank(level, len(self.scores))

        def select(rows: slice) -> FloatArray:
            entering, total, weight, scale = self._balance(Z[rows])
            weight = weight + entering
            linear = total / weight + self.offset - slope * self.scores
            product = self.scores * scale[:, None]
            threshold = signed_root(slope + entering / weight, linear, product)
            return np.partition(threshold, rank - 1, axis=1)[:, rank - 1]

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))

    def _balance(self, Z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """k_i, A_i and B_i for each row and point, (m, N), and the scales of the rows, (m,).

        A and B are of shape (1, N) if no point is lonely, since they are the same for all rows.
        """
        entering = self.similarity.to(Z)
        scale = mean_of(entering, self.magnitudes, self.mean_of_all) + self.offset
        if not len(self.lonely):
            return entering, self.total[None], self.weight[None], scale
        total = np.repeat(self.total[None], len(Z), axis=0)
        weight = np.repeat(self.weight[None], len(Z), axis=0)
        row, place = np.nonzero(entering[:, self.lonely] == 0)
        column = self.lonely[place]
        entering[row, column] = 1.0
        total[row, column], weight[row, column] = self.sum_of_rest[place], len(self.scores) - 1
        return entering, total, weight, scale


def sums_of_others(similarity: Similarity, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A_i and B_i of every point, (N,)."""

    def add(rows: slice) -> FloatArray:
        weight = similarity.among(rows)
        return np.stack([weight @ magnitudes, weight.sum(axis=1)])

    n = len(magnitudes)
    total, weight = np.concatenate(map_row_blocks(add, n, n), axis=1)
    return total, weight


def sums_without(magnitudes: FloatArray, points: IntArray) -> FloatArray:
    """Sum of all but each of some points; sums before and after each, so nothing cancels."""
    padded = np.concatenate([[0.0], magnitudes, [0.0]])
    before, after = np.cumsum(padded)[:-2], np.cumsum(padded[::-1])[::-1][2:]
    return np.asarray((before + after)[points])


def mean_of(weight: FloatArray, magnitudes: FloatArray, fallback: float) -> FloatArray:
    """Weighted means of rows, (m,); the fallback where a row has no weight at all."""
    total = weight.sum(axis=1)
    mean = np.full(len(weight), fallback)
    np.divide(weight @ magnitudes, total, out=mean, where=total > 0)
    return mean
