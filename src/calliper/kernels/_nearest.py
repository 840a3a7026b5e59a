"""Means and quantiles over the K nearest of fixed points, also without some of them."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from calliper._blocks import CHUNK_ROWS, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.kernels._search import Search
from calliper.kernels._shared import SharedNeighbors
from calliper.quantile import as_fraction, row_order_statistics


class NearestMean:
    """Mean over the K nearest of the points searched."""

    def __init__(self, search: Search, magnitudes: FloatArray, n_neighbors: int) -> None:
        self.search, self.magnitudes, self.n_neighbors = search, magnitudes, n_neighbors
        self.shared = SharedNeighbors(search, magnitudes)

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        means = np.empty(len(Z))
        for rows in row_slices(len(Z), CHUNK_ROWS):
            near, tied = self.search.nearest(Z[rows], self.n_neighbors)
            means[rows] = self.magnitudes[near].mean(axis=1)
            if tied.any():
                means[rows][tied] = self.shared.means(Z[rows][tied], self.n_neighbors)
        return means


class NearestQuantile:
    """The ⌈level·K⌉-th smallest score of the K nearest of the points searched."""

    def __init__(self, search: Search, scores: FloatArray, n_neighbors: int) -> None:
        self.search, self.scores, self.n_neighbors = search, scores, n_neighbors
        self.shared = SharedNeighbors(search, scores)

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        ranks = [ceil(as_fraction(level) * self.n_neighbors) for level in levels]
        found = np.empty((len(Z), len(ranks)))
        for rows in row_slices(len(Z), CHUNK_ROWS):
            near, tied = self.search.nearest(Z[rows], self.n_neighbors)
            found[rows] = row_order_statistics(self.scores[near], ranks)
            if tied.any():
                found[rows][tied] = self.shared.quantiles(Z[rows][tied], self.n_neighbors, ranks)
        return found


class NearestFamily:
    """Nearest-neighbour kernels on fixed points; the candidate is K, at most N − 2."""

    fold = None

    def __init__(self, search: Search, magnitudes: FloatArray) -> None:
        self.search, self.magnitudes = search, magnitudes

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i without i and m: only its K nearest make a difference."""
        near, tied = self.search.nearest_others(int(candidate) + 1)
        means = self.means_without(candidate, np.arange(len(self.magnitudes)))
        found, crowded = means.over(near), np.flatnonzero(tied)

        def settle(rows: slice) -> None:
            points = crowded[rows]
            found[points] = means.shared.means_without(
                self.search.points[points], int(candidate), points
            )

        map_row_blocks(settle, len(crowded), 4 * len(found))
        return found

    def means_without(self, candidate: float, members: IntArray) -> "NearestMeansWithout":
        """For new rows, the means without each of the ``members``."""
        return NearestMeansWithout(self.search, self.magnitudes, int(candidate), members)


class NearestMeansWithout:
    """Means at new rows over the K nearest, without each of the members."""

    def __init__(self, search: Search, magnitudes: FloatArray, k: int, members: IntArray) -> None:
        self.search, self.magnitudes, self.k, self.members = search, magnitudes, k, members
        self.shared = SharedNeighbors(search, magnitudes)
        self.column = np.full(len(magnitudes), -1, dtype=np.intp)
        self.column[members] = np.arange(len(members))

    def __call__(self, Z: FloatArray) -> FloatArray:
        near, tied = self.search.nearest(Z, self.k + 1)
        means = self.over(near)
        if tied.any():
            rows = self.search.scaled(Z[tied])
            means[tied] = self.shared.means_without(rows, self.k)[:, self.members]
        return means

    def over(self, near: IntArray) -> FloatArray:
        """(m, members) means over the K nearest of ``near`` (m, K+1), the last as replacement."""
        member = self.magnitudes[near[:, :-1]]
        means = np.repeat(member.mean(axis=1)[:, None], len(self.members), axis=1)
        replaced = sums_of_others(member, self.magnitudes[near[:, -1:]]) / self.k
        column = self.column[near[:, :-1]]
        row, entry = np.nonzero(column >= 0)
        means[row, column[row, entry]] = replaced[row, entry]
        return means


def sums_of_others(member: FloatArray, replacement: FloatArray) -> FloatArray:
    """For (m, K) members, the sum of all but each one, with the replacement (m, 1) in its place.

    Sums before and after each member: no cancellation, and exactly 0 if all others are 0.
    """
    others = replacement + np.zeros_like(member)
    others[:, 1:] += np.cumsum(member[:, :-1], axis=1)
    others[:, :-1] += np.cumsum(member[:, :0:-1], axis=1)[:, ::-1]
    return others
