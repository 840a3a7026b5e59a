"""Leave-two-out means over the K nearest neighbours.

For a new point x with nearest calibration points n_1, …, n_{K+1}, leaving calibration point i
out changes the mean only if i is one of n_1 … n_K, and then n_{K+1} takes its place:

    ŝ_{N+1,i} = c = (1/K) Σ_k s_{n_k}                      for i ∉ {n_1 … n_K}
    ŝ_{N+1,i} = c + (s_{n_{K+1}} − s_i) / K                 for i ∈ {n_1 … n_K}

So of the N products ŝ_{N+1,i} s_i⁺ all but K are a common multiple of values sorted once.
Dropping i without its replacement would treat new and calibration points unlike one another.
"""

from __future__ import annotations

import numpy as np

from calliper._blocks import CHUNK_ROWS, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.kernels._search import NeighborSearch
from calliper.quantile import merged_multiple
from calliper.scale._ratio import rescale


class LeaveTwoOutKNN:
    """Local means of calibration magnitudes with one or two points left out.

    Parameters
    ----------
    search : the calibration points
    magnitudes : (N,) what is averaged
    n_neighbors : K, at most N − 1
    offset : constant added to every mean
    """

    def __init__(
        self, search: NeighborSearch, magnitudes: FloatArray, n_neighbors: int, offset: float
    ) -> None:
        self.search, self.magnitudes = search, magnitudes
        self.n_neighbors, self.offset = n_neighbors, offset
        others = search.nearest_others(n_neighbors)
        self.without_one: FloatArray = magnitudes[others].mean(axis=1) + offset

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}, remembered in ascending order."""
        self.rescaled = rescale(scores, self.without_one)
        order = np.argsort(self.rescaled)
        self.ordered = self.rescaled[order]
        self.place = np.empty(len(order), dtype=np.intp)
        self.place[order] = np.arange(len(order))
        return self.rescaled

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""
        radius = np.empty((len(Z), len(ranks)))
        for chunk in row_slices(len(Z), max(1, min(CHUNK_ROWS, (1 << 22) // self.n_neighbors))):
            near = self.search.nearest(Z[chunk], self.n_neighbors + 1)
            part = radius[chunk]

            def select(rows: slice, near: IntArray = near, part: FloatArray = part) -> None:
                part[rows] = self._select(near[rows], ranks)

            map_row_blocks(select, len(near), 4 * self.n_neighbors)
        return radius

    def _select(self, near: IntArray, ranks: list[int]) -> FloatArray:
        inner, replacement = near[:, :-1], self.magnitudes[near[:, -1:]]
        member = self.magnitudes[inner]
        mean = member.mean(axis=1) + self.offset
        without_two = sums_of_others(member, replacement) / self.n_neighbors + self.offset
        rescaled = self.rescaled[inner]
        with np.errstate(invalid="ignore"):
            value = np.where(np.isinf(rescaled), np.inf, without_two * rescaled)
        place = self.place[inner]
        columns = [merged_multiple(self.ordered, mean, place, value, rank) for rank in ranks]
        return np.stack(columns, axis=1)


def sums_of_others(member: FloatArray, replacement: FloatArray) -> FloatArray:
    """For (m, K) members, the sum of all but each one, with the replacement (m, 1) in its place.

    Sums before and after each member: no cancellation, and exactly 0 if all others are 0.
    """
    others = replacement + np.zeros_like(member)
    others[:, 1:] += np.cumsum(member[:, :-1], axis=1)
    others[:, :-1] += np.cumsum(member[:, :0:-1], axis=1)[:, ::-1]
    return others
