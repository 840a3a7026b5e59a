"""Points at the same distance share the last place among the K nearest.

Let ρ be the distance of the K-th nearest of a row, c the number of points nearer than that and T
the number just as far. The c nearer ones weigh 1 and the T tied ones (K−c)/T each, K in all. The
rule looks at nothing but distances: it treats all points alike, draws nothing, and is the plain
one where T = 1. If some point i is left out of the set,

    i farther than ρ     nothing changes
    c+T > K, i nearer    the others nearer weigh 1, tied ones (K−c+1)/T
    c+T > K, i tied      the nearer weigh 1, the other tied ones (K−c)/(T−1)
    c+T = K, i either    all other nearer and tied ones weigh 1, and the T₂ points of the next
                         distance share one place, 1/T₂ each

and if a new point joins the set, with weight w,

    nearer than ρ        w = 1, tied ones (K−c−1)/T
    just as far          w = (K−c)/(T+1), tied ones alike
    farther              w = 0, nothing changes.

Only rows with a tie come here. Equal rows are one place and asked once; of a calibration point
among others, one copy is left out. Sums never subtract a number that dominates them.

Letters: c → ``nearer``, T → ``size``, K − c → ``seats``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._search import NeighborSearch, all_distances, unique_rows
from calliper.quantile import count_true


@dataclass(frozen=True)
class Shells:
    """Places nearer than the K-th neighbour of some rows, and places just as far.

    Attributes
    ----------
    reach : (m, 1) the distance of the K-th neighbour
    near, tied : (m, U) which places are nearer, and which are as far
    seats, size : (m,) K less the number of points nearer, and the number of points tied
    """

    reach: FloatArray
    near: BoolArray
    tied: BoolArray
    seats: IntArray
    size: IntArray

    @classmethod
    def of(cls, distance: FloatArray, held: IntArray, k: int) -> Shells:
        """From distances to places and the number of points they hold, both (m, U)."""
        # The K nearest places hold K points, but for one whose only point does not count.
        most = min(k + 1, distance.shape[1])
        first = np.argpartition(distance, most - 1, axis=1)[:, :most]
        order = np.argsort(np.take_along_axis(distance, first, axis=1), axis=1)
        first = np.take_along_axis(first, order, axis=1)
        short = np.cumsum(np.take_along_axis(held, first, axis=1), axis=1) < k
        last = np.take_along_axis(first, count_true(short)[:, None], axis=1)
        reach = np.take_along_axis(distance, last, axis=1)
        near, tied = distance < reach, distance == reach
        return cls(reach, near, tied, k - (near * held).sum(axis=1), (tied * held).sum(axis=1))


@dataclass(frozen=True)
class SharedSums:
    """Sums of magnitudes over nearer and over tied points, seats and sizes, each (m,)."""

    near: FloatArray
    tied: FloatArray
    seats: FloatArray
    size: FloatArray

    @property
    def total(self) -> FloatArray:
        """K times the shared mean."""
        return np.asarray(self.near + self.seats / self.size * self.tied)


class SharedNeighbors:
    """What the neighbours say of rows with a tie: new rows, or points among the others."""

    def __init__(self, search: NeighborSearch, magnitudes: FloatArray) -> None:
        self.search, self.magnitudes = search, magnitudes

    def means(self, Z: FloatArray, k: int) -> FloatArray:
        """Means over K at new rows, (m,)."""
        if not len(Z):
            return np.empty(0)
        rows, inverse = unique_rows(self.search.scaled(Z))
        (parts,) = self._sums(rows, None, [k])
        return np.asarray(SharedSums(*parts[:4, inverse]).total / k)

    def sums_of_others(self, points: IntArray, ks: Sequence[int]) -> list[SharedSums]:
        """Sums around points, without themselves, for each K."""
        if not len(points):
            return [SharedSums(*np.empty((4, 0)))] * len(ks)
        places = self.search.places
        own, inverse = np.unique(places.of_point[points], return_inverse=True)
        beside, found = self._beside[points], []
        for parts in self._sums(places.rows[own], own, ks):
            near, tied, seats, size, own_near, own_tied = parts[:, inverse]
            found.append(
                SharedSums(near + own_near * beside, tied + own_tied * beside, seats, size)
            )
        return found

    def quantiles(self, Z: FloatArray, k: int, ranks: Sequence[int]) -> FloatArray:
        """At new rows the rank-th smallest of K, by weight, for each rank: (m, L)."""
        if not len(Z):
            return np.empty((0, len(ranks)))
        rows, inverse = unique_rows(self.search.scaled(Z))

        def one_block(distance: FloatArray, own: IntArray | None) -> IntArray:
            shells = Shells.of(distance, self._held(distance, own), k)
            needed = [shells.size * rank for rank in ranks]
            return self._reached(shells, shells.size, shells.seats, needed)

        return np.asarray(self._values[self._over(one_block, rows, None).T[inverse]])

    def clamps(self, points: IntArray, k: int, rank: int) -> FloatArray:
        """Around points, without themselves, between what a new score t is their scale, (5, m).

        The rank-th smallest of K, by weight, is min(max(t, a), b) for a and b of rows 0 and 1 if
        a new point of score t comes nearer than the K-th, of rows 2 and 3 if it comes just as
        near, and of row 4 both if it does not.
        """
        places = self.search.places
        own, inverse = np.unique(places.of_point[points], return_inverse=True)

        def one_block(distance: FloatArray, own: IntArray | None) -> IntArray:
            shells = Shells.of(distance, self._held(distance, own), k)
            size, seats, found = shells.size, shells.seats, []
            row = np.arange(len(distance))
            for near, tied, needed in (
                (size, seats - 1, (size * (rank - 1), size * rank)),
                (size + 1, seats, ((size + 1) * rank - seats, (size + 1) * rank)),
                (size, seats, (size * rank,)),
            ):
                mine = shells.near[row, own] * near + shells.tied[row, own] * tied
                for each in needed:
                    place = self._reached(shells, near, tied, [each, each + mine])
                    found.append(np.where(each > 0, place, -1))
            return np.stack(found)

        # Without a point, weights before its place in the order are as they were, and those after
        # it less by its own.
        without = self._over(one_block, places.rows[own], own)[:, :, inverse]
        before = without[:, 0] < self._place[points]
        return self._values[np.where(before, without[:, 0], without[:, 1])]

    def means_without(self, rows: FloatArray, k: int, points: IntArray | None = None) -> FloatArray:
        """Means over K at rows without each point, (m, N); at ``points``, without themselves too.

        Rows are in the unit of the search.
        """
        if not len(rows):
            return np.empty((0, len(self.magnitudes)))
        distance = all_distances(rows, self.search.points, self.search.metric)
        if points is not None:
            distance[np.arange(len(rows)), points] = np.inf
        shells = Shells.of(distance, np.ones(distance.shape, dtype=np.intp), k)
        seats, size = shells.seats[:, None], shells.size[:, None]
        near, tied = shells.near * self.magnitudes, shells.tied * self.magnitudes
        near_sum, tied_sum = near.sum(axis=1, keepdims=True), tied.sum(axis=1, keepdims=True)
        beyond = np.where(distance > shells.reach, distance, np.inf)
        following = (beyond == beyond.min(axis=1, keepdims=True)) & np.isfinite(beyond)
        next_sum = (following * self.magnitudes).sum(axis=1, keepdims=True)
        replacement = next_sum / np.maximum(following.sum(axis=1, keepdims=True), 1)
        crowded = size > seats
        total = np.where(shells.near | shells.tied, sums_without(near + tied) + replacement, 0.0)
        of_near = sums_without(near) + (seats + 1) / size * tied_sum
        of_tied = near_sum + seats / np.maximum(size - 1, 1) * sums_without(tied)
        total = np.where(shells.near & crowded, of_near, total)
        total = np.where(shells.tied & crowded, of_tied, total)
        farther = ~(shells.near | shells.tied)
        return np.where(farther, near_sum + seats / size * tied_sum, total) / k

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.magnitudes, kind="stable")

    @cached_property
    def _place(self) -> IntArray:
        """The place of each point in ascending order of magnitudes, (N,)."""
        place = np.empty_like(self._order)
        place[self._order] = np.arange(len(place))
        return place

    @cached_property
    def _values(self) -> FloatArray:
        """Magnitudes in ascending order, infinity for the place behind them, 0 for the last."""
        return np.append(self.magnitudes[self._order], [np.inf, 0.0])

    @cached_property
    def _beside(self) -> FloatArray:
        """The sum over all other points at the place of each point, (N,)."""
        place, size = self.search.places.of_point, self.search.places.size
        largest = np.lexsort((self.magnitudes, place))[np.cumsum(size) - 1]
        rest = self.magnitudes.copy()
        rest[largest] = 0.0
        beside = np.bincount(place, self.magnitudes)[place] - self.magnitudes
        beside[largest] = np.bincount(place, rest)
        return beside

    def _sums(self, rows: FloatArray, own: IntArray | None, ks: Sequence[int]) -> FloatArray:
        """Sums, seats, sizes, and whether a row's own place is near or tied, (L, 6, m).

        Sums leave a row's own place out, if it has one.
        """
        total = np.bincount(self.search.places.of_point, self.magnitudes)

        def one_block(distance: FloatArray, own: IntArray | None) -> FloatArray:
            row, found = np.arange(len(distance)), np.zeros((len(ks), 6, len(distance)))
            for part, k in zip(found, ks, strict=True):
                shells = Shells.of(distance, self._held(distance, own), k)
                if own is not None:
                    part[4], part[5] = shells.near[row, own], shells.tied[row, own]
                    shells.near[row, own] = shells.tied[row, own] = False
                part[0], part[1] = shells.near @ total, shells.tied @ total
                part[2], part[3] = shells.seats, shells.size
            return found

        found: FloatArray = self._over(one_block, rows, own)
        return found

    def _held(self, distance: FloatArray, own: IntArray | None) -> IntArray:
        """How many points are at each place, one less at a row's own, (m, U)."""
        held = np.broadcast_to(self.search.places.size, distance.shape)
        if own is not None:
            held = held.copy()
            held[np.arange(len(own)), own] -= 1
        return held

    def _reached(
        self, shells: Shells, near: IntArray, tied: IntArray, needed: Sequence[IntArray]
    ) -> IntArray:
        """Where the weights of points in ascending order reach what is needed, (L, m)."""
        place = self.search.places.of_point[self._order]
        weight = shells.near[:, place] * near[:, None] + shells.tied[:, place] * tied[:, None]
        reached = np.cumsum(weight, axis=1, out=weight)
        return np.stack([count_true(reached < each[:, None]) for each in needed])

    def _over(
        self,
        work: Callable[[FloatArray, IntArray | None], Any],
        rows: FloatArray,
        own: IntArray | None,
    ) -> Any:
        """What ``work`` makes of distances to all places and of rows' own, (..., m), in blocks."""
        places, metric = self.search.places.rows, self.search.metric

        def one_block(block: slice) -> Any:
            of_block = None if own is None else own[block]
            return work(all_distances(rows[block], places, metric), of_block)

        blocks = map_row_blocks(one_block, len(rows), len(self.magnitudes))
        return np.concatenate(blocks, axis=-1)


def sums_without(part: FloatArray) -> FloatArray:
    """For (m, N) non-negative numbers, the sum of each row without each of them."""
    row, largest = np.arange(len(part)), part.argmax(axis=1)
    rest = part.sum(axis=1, keepdims=True) - part
    # Only the largest can dominate the sum: without it, the others are summed anew.
    part[row, largest] = 0.0
    rest[row, largest] = part.sum(axis=1)
    return rest


def shared_means(
    search: NeighborSearch, magnitudes: FloatArray, k: int, who: FloatArray | IntArray
) -> FloatArray:
    """Means over K at new rows (m, d), or at points (m,) without themselves: (m,)."""
    shared = SharedNeighbors(search, magnitudes)
    if who.ndim == 1:
        return shared.sums_of_others(np.asarray(who, dtype=np.intp), [k])[0].total / k
    return shared.means(np.asarray(who, dtype=np.float64), k)
