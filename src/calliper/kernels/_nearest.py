"""Means and quantiles over the K nearest of fixed points, also without some of them."""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from calliper._blocks import CHUNK_ROWS, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.kernels._search import Search
from calliper.kernels._shared import SharedNeighbors
from calliper.quantile import as_fraction, row_order_statistics

#: Pairs of a new row and a calibration point that are held in memory at a time.
MOST_PAIRS = 1 << 22


class Nearest:
    """The K nearest of the points searched, and their magnitudes."""

    def __init__(self, search: Search, magnitudes: FloatArray, n_neighbors: int) -> None:
        self.search, self.magnitudes, self.n_neighbors = search, magnitudes, n_neighbors
        self.shared = SharedNeighbors(search, magnitudes)

    def over(
        self,
        Z: FloatArray,
        n: int,
        plain: Callable[[IntArray], FloatArray],
        tied: Callable[[FloatArray], FloatArray],
    ) -> FloatArray:
        """``plain`` of the n nearest of new rows, and ``tied`` of rows whose last place is tied."""
        parts = []
        for rows in row_slices(len(Z), max(1, min(CHUNK_ROWS, MOST_PAIRS // n))):
            near, is_tied = self.search.nearest(Z[rows], n)
            parts.append(plain(near))
            if is_tied.any():
                parts[-1][is_tied] = tied(Z[rows][is_tied])
        return np.concatenate(parts)


class NearestMean(Nearest):
    """Mean over the K nearest."""

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        k = self.n_neighbors
        return self.over(
            Z,
            k,
            lambda near: self.magnitudes[near].mean(axis=1),
            lambda rows: self.shared.means(rows, k),
        )


class NearestQuantile(Nearest):
    """The ⌈level·K⌉-th smallest magnitude of the K nearest."""

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        k = self.n_neighbors
        ranks = [ceil(as_fraction(level) * k) for level in levels]
        return self.over(
            Z,
            k,
            lambda near: row_order_statistics(self.magnitudes[near], ranks),
            lambda rows: self.shared.quantiles(rows, k, ranks),
        )


class NearestMeans(Nearest):
    """Means over the K nearest, K < N, without each point."""

    def to(self, Z: FloatArray) -> FloatArray:
        """Means at new rows without each point, (m, N)."""

        def of_tied(rows: FloatArray) -> FloatArray:
            return self.shared.means_without(self.search.scaled(rows), self.n_neighbors)

        return self.over(Z, self.n_neighbors + 1, self._without, of_tied)

    def among(self) -> FloatArray:
        """Means at the points without themselves and each other one, (N, N)."""
        near, tied = self.search.nearest_others(self.n_neighbors + 1)
        found, crowded = self._without(near), np.flatnonzero(tied)

        def settle(rows: slice) -> None:
            points = crowded[rows]
            own = self.search.points[points]
            found[points] = self.shared.means_without(own, self.n_neighbors, points)

        map_row_blocks(settle, len(crowded), 4 * len(found))
        return found

    def _without(self, near: IntArray) -> FloatArray:
        """(m, N) means over the K nearest of ``near`` (m, K+1), the last as replacement."""
        inner, replaced, mean = self.few_without(near)
        means = np.repeat(mean[:, None], len(self.magnitudes), axis=1)
        np.put_along_axis(means, inner, replaced, axis=1)
        return means

    def few_without(self, near: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The K nearest, means without each of them, (m, K) both, and without any other, (m,)."""
        inner, replacement = near[:, :-1], self.magnitudes[near[:, -1:]]
        member = self.magnitudes[inner]
        replaced = sums_of_others(member, replacement) / self.n_neighbors
        return inner, replaced, member.mean(axis=1)


def sums_of_others(member: FloatArray, replacement: FloatArray) -> FloatArray:
    """For (m, K) members, the sum of all but each one, with the replacement (m, 1) in its place.

    Sums before and after each member: no cancellation, and exactly 0 if all others are 0.
    """
    others = replacement + np.zeros_like(member)
    others[:, 1:] += np.cumsum(member[:, :-1], axis=1)
    others[:, :-1] += np.cumsum(member[:, :0:-1], axis=1)[:, ::-1]
    return others
