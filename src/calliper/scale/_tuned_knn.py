"""K nearest neighbours for every K, for tuning."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.kernels._search import NeighborSearch
from calliper.scale._knn import sums_of_others


class NearestFamily:
    """Nearest-neighbour kernels on fixed points; the candidate is K, at most N − 2."""

    def __init__(self, search: NeighborSearch, magnitudes: FloatArray) -> None:
        self.search, self.magnitudes = search, magnitudes

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i without i and m: only its K nearest make a difference."""
        k, n = int(candidate), len(self.magnitudes)
        near = self.search.nearest_others(k + 1)
        member = self.magnitudes[near[:, :-1]]
        means = np.repeat(member.mean(axis=1)[:, None], n, axis=1)
        replaced = sums_of_others(member, self.magnitudes[near[:, -1:]]) / k
        np.put_along_axis(means, near[:, :-1], replaced, axis=1)
        return means

    def means_without(self, candidate: float, members: IntArray) -> NearestMeansWithout:
        """For new rows, the means without each of the ``members``."""
        return NearestMeansWithout(self.search, self.magnitudes, int(candidate), members)


class NearestMeansWithout:
    """Means at new rows over the K nearest, without each of the members."""

    def __init__(
        self, search: NeighborSearch, magnitudes: FloatArray, k: int, members: IntArray
    ) -> None:
        self.search, self.magnitudes, self.k, self.members = search, magnitudes, k, members
        self.place = np.full(len(magnitudes), -1, dtype=np.intp)
        self.place[members] = np.arange(len(members))

    def __call__(self, Z: FloatArray) -> FloatArray:
        near = self.search.nearest(Z, self.k + 1)
        member = self.magnitudes[near[:, :-1]]
        means = np.repeat(member.mean(axis=1)[:, None], len(self.members), axis=1)
        replaced = sums_of_others(member, self.magnitudes[near[:, -1:]]) / self.k
        place = self.place[near[:, :-1]]
        row, entry = np.nonzero(place >= 0)
        means[row, place[row, entry]] = replaced[row, entry]
        return means
