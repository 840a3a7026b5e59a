"""Means with weights that are given outright: without two points, and over other data.

With w_k the weights of a row, A = Σ w_k s_k and B = Σ w_k, leaving point i out gives

    ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i),

and the mean of all but i where nothing else has weight. Where a point carries nearly all of a
sum, the rest is summed without it rather than subtracted from.
"""

from __future__ import annotations

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray
from calliper.quantile import row_order_statistics
from calliper.scale._bag_similarity import mean_of, sums_of_others, sums_without
from calliper.scale._ratio import rescale
from calliper.scale._rbf import DOMINANT, times
from calliper.scale._similarity import Similarity


class LeaveTwoOutSimilarity:
    """Local means of calibration magnitudes with one or two points left out.

    Parameters
    ----------
    similarity : weights of the calibration points
    magnitudes : (N,) what is averaged
    offset : constant added to every mean
    """

    def __init__(self, similarity: Similarity, magnitudes: FloatArray, offset: float) -> None:
        self.similarity, self.magnitudes, self.offset = similarity, magnitudes, offset
        n = len(magnitudes)
        self.mean_of_rest = sums_without(magnitudes, np.arange(n)) / (n - 1)
        total, weight = sums_of_others(similarity, magnitudes)
        mean = np.divide(total, weight, out=self.mean_of_rest.copy(), where=weight > 0)
        self.without_one: FloatArray = mean + offset

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}."""
        self.rescaled = rescale(scores, self.without_one)
        return self.rescaled

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""

        def select(rows: slice) -> FloatArray:
            mean = self._without_each(self.similarity.to(Z[rows])) + self.offset
            return row_order_statistics(times(mean, self.rescaled), ranks)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.magnitudes)))

    def largest_mean(self, Z: FloatArray) -> FloatArray:
        """For each row, the largest of the means without each point, (m,)."""

        def largest(rows: slice) -> FloatArray:
            means = self._without_each(self.similarity.to(Z[rows]))
            return np.asarray(means.max(axis=1) + self.offset)

        return np.concatenate(map_row_blocks(largest, len(Z), len(self.magnitudes)))

    def _without_each(self, weight: FloatArray) -> FloatArray:
        """(m, N) means of rows without each point."""
        weighted = weight * self.magnitudes
        total, total_weight = weighted.sum(axis=1), weight.sum(axis=1)
        rest, rest_weight = total[:, None] - weighted, total_weight[:, None] - weight
        heavy = weighted > DOMINANT * total[:, None]
        heavy |= weight > DOMINANT * total_weight[:, None]
        for row, point in zip(*np.nonzero(heavy), strict=True):
            rest[row, point] = np.delete(weighted[row], point).sum()
            rest_weight[row, point] = np.delete(weight[row], point).sum()
        fallback: FloatArray = np.broadcast_to(self.mean_of_rest, rest.shape).copy()
        np.divide(rest, rest_weight, out=fallback, where=rest_weight > 0)
        return fallback


class SimilarityMean:
    """Weighted mean at new rows; of all points where a row has no weight at all."""

    def __init__(self, similarity: Similarity, magnitudes: FloatArray) -> None:
        self.similarity, self.magnitudes = similarity, magnitudes

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        fallback = float(self.magnitudes.mean())

        def average(rows: slice) -> FloatArray:
            return mean_of(self.similarity.to(Z[rows]), self.magnitudes, fallback)

        return np.concatenate(map_row_blocks(average, len(Z), len(self.magnitudes)))
