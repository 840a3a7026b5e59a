"""Points at the same distance share the last place among the K nearest.

Let ρ be the distance of the K-th nearest of a row, c the number of points nearer than that and T
the number exactly as far. The c nearer ones weigh 1 and the T tied ones (K−c)/T each, K in all. The
rule depends on distances only: it treats all points alike, draws nothing, and is the plain one
where T = 1. If some point i is left out of the set,

    i farther than ρ     nothing changes
    c+T > K, i nearer    the others nearer weigh 1, tied ones (K−c+1)/T
    c+T > K, i tied      the nearer weigh 1, the other tied ones (K−c)/(T−1)
    c+T = K, i either    all other nearer and tied ones weigh 1, and the T₂ points of the next
                         distance share one place, 1/T₂ each

and if a new point joins the set, with weight w,

    nearer than ρ        w = 1, tied ones (K−c−1)/T
    just as far          w = (K−c)/(T+1), tied ones alike
    farther              w = 0, nothing changes.

Only rows with a tie come here. A few candidates beyond the K nearest often include all tied points.
Where copies are many, equal rows are one place that is looked at once; a calibration point among
the others leaves one copy out. Sums are exact before they are rounded (``_arithmetic.py``), so that
they depend on the points alone.

Letters: T → ``size``, K − c → ``seats``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._arithmetic import Grid
from calliper.kernels._search import Search, all_distances, unique_rows
from calliper.quantile import count_true

#: Weights of those nearer and of those tied, and weights to be reached, (m,) each.
Case = tuple[IntArray, IntArray, Sequence[IntArray]]


@dataclass(frozen=True)
class Shells:
    """Points nearer than the K-th neighbour of some rows, and points just as far.

    Attributes
    ----------
    reach : (m, 1) the distance of the K-th neighbour
    near, tied : (m, W) which columns, points or places that hold several, are
    seats, size : (m,) K less the number of points nearer, and the number of points tied
    """

    reach: FloatArray
    near: BoolArray
    tied: BoolArray
    seats: IntArray
    size: IntArray

    @classmethod
    def of_points(cls, distance: FloatArray, k: int) -> Self:
        """From distances to points, (m, N)."""
        reach = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
        near, tied = distance < reach, distance == reach
        return cls(reach, near, tied, k - count_true(near), count_true(tied))

    @classmethod
    def of_places(cls, distance: FloatArray, held: IntArray, k: int) -> Self:
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

    def quantiles(self, ranks: Sequence[int]) -> Iterator[Case]:
        """What it takes to reach the ranks."""
        yield self.size, self.seats, [self.size * rank for rank in ranks]

    def clamps(self, rank: int) -> Iterator[Case]:
        """What it takes to reach the rank with a new point nearer, with one as far, without one.

        With one, first if it is among the smaller ones and then if not.
        """
        size, seats = self.size, self.seats
        yield size, seats - 1, (size * (rank - 1), size * rank)
        yield size + 1, seats, ((size + 1) * rank - seats, (size + 1) * rank)
        yield size, seats, (size * rank,)


@dataclass(frozen=True)
class SharedSums:
    """Sums of magnitudes over nearer and over tied points, seats and sizes, each (m,)."""

    near: FloatArray
    tied: FloatArray
    seats: FloatArray | IntArray
    size: FloatArray | IntArray

    @property
    def columns(self) -> tuple[Any, ...]:
        """All four."""
        return self.near, self.tied, self.seats, self.size

    @property
    def total(self) -> FloatArray:
        """K times the shared mean."""
        return np.asarray(self.near + self.seats / self.size * self.tied)


class SharedNeighbors:
    """What the neighbours say of rows with a tie: new rows, or points among the others.

    The K-th neighbour of all of them is found by direct differences.
    """

    def __init__(self, search: Search, magnitudes: FloatArray) -> None:
        self.search, self.magnitudes = search, magnitudes

    def means(self, Z: FloatArray, k: int) -> FloatArray:
        """Means over K at new rows, (m,)."""
        rows, inverse = unique_rows(self.search.scaled(Z))
        near, distance, few = self.search.shell(rows, k)
        total = np.empty(len(rows))
        total[few] = self._candidates(near[few], distance[few]).sums(k, self.grid).total
        if not few.all():
            total[~few] = self._crowd.sums(rows[~few], k).total
        return total[inverse] / k

    def sums_of_others(self, points: IntArray, ks: Sequence[int]) -> list[SharedSums]:
        """Sums around points, without themselves, for each K."""
        near, distance, few = self.search.shell(self.search.points[points], max(ks), points)
        found = np.empty((len(ks), 4, len(points)))
        candidates = self._candidates(near[few], distance[few])
        for part, k in zip(found, ks, strict=True):
            part[:, few] = candidates.sums(k, self.grid).columns
        if not few.all():
            crowds = self._crowd.sums_of_others(points[~few], ks)
            found[:, :, ~few] = [crowd.columns for crowd in crowds]
        return [SharedSums(*part) for part in found]

    def quantiles(self, Z: FloatArray, k: int, ranks: Sequence[int]) -> FloatArray:
        """At new rows the rank-th smallest of K, by weight, for each rank: (m, L)."""
        rows, inverse = unique_rows(self.search.scaled(Z))
        near, distance, few = self.search.shell(rows, k)
        found = np.empty((len(ranks), len(rows)))
        candidates = self._candidates(near[few], distance[few])
        found[:, few] = candidates.reached(k, lambda shells: shells.quantiles(ranks))
        if not few.all():
            found[:, ~few] = self._reached(rows[~few], k, lambda shells: shells.quantiles(ranks))
        return np.asarray(found.T[inverse])

    def clamps(self, points: IntArray, k: int, rank: int) -> FloatArray:
        """Around points, without themselves, between what a new score t is their scale, (5, m).

        The rank-th smallest of K, by weight, is min(max(t, a), b) for a and b of rows 0 and 1 if
        a new point of score t comes nearer than the K-th, of rows 2 and 3 if it comes just as
        near, and of row 4 both if it does not.
        """
        rows = self.search.points[points]
        near, distance, few = self.search.shell(rows, k, points)
        found = np.empty((5, len(points)))
        candidates = self._candidates(near[few], distance[few])
        found[:, few] = candidates.reached(k, lambda shells: shells.clamps(rank))
        if not few.all():
            found[:, ~few] = self._reached(
                rows[~few], k, lambda shells: shells.clamps(rank), points[~few]
            )
        return found

    def few_without(self, Z: FloatArray, k: int) -> tuple[BoolArray, IntArray, FloatArray, Any]:
        """Means over K at new rows without each of a few points, and without any other.

        Rows (m,) for which this is enough; of these, points (f, W), means (f, W) and (f,).
        """
        near, distance, few = self.search.shell(self.search.scaled(Z), k + 1)
        means, common = self._candidates(near[few], distance[few]).means_without(k)
        return few, near[few], means, common

    def means_without(self, rows: FloatArray, k: int, points: IntArray | None = None) -> FloatArray:
        """Means over K at rows without each point, (m, N); at ``points``, without themselves too.

        Rows are in the unit of the search.
        """
        return self._all(rows, points).means_without(k)[0]

    def _reached(
        self,
        rows: FloatArray,
        k: int,
        cases: Callable[[Shells], Iterator[Case]],
        points: IntArray | None = None,
    ) -> FloatArray:
        """As :meth:`Candidates.reached` over all points; at ``points``, without themselves."""

        def one_block(part: slice) -> FloatArray:
            return self._all(rows[part], None if points is None else points[part]).reached(k, cases)

        return np.concatenate(map_row_blocks(one_block, len(rows), len(self.magnitudes)), axis=1)

    def _all(self, rows: FloatArray, points: IntArray | None) -> "Candidates":
        """All points; at ``points``, themselves farther than all others."""
        distance = all_distances(rows, self.search.points, self.search.metric)
        if points is not None:
            distance[np.arange(len(rows)), points] = np.inf
        return Candidates(distance, self.magnitudes[None])

    def _candidates(self, near: IntArray, distance: FloatArray) -> "Candidates":
        return Candidates(distance, self.magnitudes[near])

    @cached_property
    def grid(self) -> Grid:
        """On which magnitudes are summed."""
        return Grid(self.magnitudes)

    @cached_property
    def _crowd(self) -> "Crowd":
        return Crowd(self.search, self.magnitudes, self.grid)


@dataclass(frozen=True)
class Candidates:
    """Points of some rows, among them all as near as the K-th.

    Attributes
    ----------
    distance : (m, W)
    magnitudes : (m, W), or (1, W) if the points are the same for all rows
    """

    distance: FloatArray
    magnitudes: FloatArray

    def sums(self, k: int, grid: Grid) -> SharedSums:
        """Sums over nearer and over tied points."""
        shells = Shells.of_points(self.distance, k)
        parts = (shells.near * self.magnitudes, shells.tied * self.magnitudes)
        near, tied = (grid.rounded(grid.sums(part, _along_rows)) for part in parts)
        return SharedSums(near, tied, shells.seats, shells.size)

    def reached(self, k: int, cases: Callable[[Shells], Iterator[Case]]) -> FloatArray:
        """Magnitudes at which weights in ascending order reach what each case needs, (L, m)."""
        order = np.argsort(self.magnitudes, axis=1)
        ascending = np.take_along_axis(self.magnitudes, order, axis=1)
        shells = Shells.of_points(np.take_along_axis(self.distance, order, axis=1), k)
        extended = np.hstack([ascending, np.full((len(order), 1), np.inf)])
        found = []
        for near, tied, needed in cases(shells):
            weight = np.cumsum(shells.near * near[:, None] + shells.tied * tied[:, None], axis=1)
            for each in needed:
                position = count_true(weight < each[:, None])[:, None]
                value = np.take_along_axis(extended, position, axis=1)[:, 0]
                found.append(np.where(each > 0, value, 0.0))
        return np.stack(found)

    def means_without(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Means over K without each of the points, (m, W), and without any other, (m,)."""
        shells = Shells.of_points(self.distance, k)
        seats, size = shells.seats[:, None], shells.size[:, None]
        near, tied = shells.near * self.magnitudes, shells.tied * self.magnitudes
        near_sum, tied_sum = near.sum(axis=1, keepdims=True), tied.sum(axis=1, keepdims=True)
        beyond = np.where(self.distance > shells.reach, self.distance, np.inf)
        following = (beyond == beyond.min(axis=1, keepdims=True)) & np.isfinite(beyond)
        next_sum = (following * self.magnitudes).sum(axis=1, keepdims=True)
        replacement = next_sum / np.maximum(following.sum(axis=1, keepdims=True), 1)
        total, crowded = near_sum + seats / size * tied_sum, size > seats
        without = np.where(shells.near | shells.tied, sums_without(near + tied), 0.0) + replacement
        of_near = sums_without(near) + (seats + 1) / size * tied_sum
        of_tied = near_sum + seats / np.maximum(size - 1, 1) * sums_without(tied)
        without = np.where(shells.near & crowded, of_near, without)
        without = np.where(shells.tied & crowded, of_tied, without)
        return np.where(shells.near | shells.tied, without, total) / k, total[:, 0] / k


def _along_rows(digit: FloatArray) -> FloatArray:
    return np.asarray(digit.sum(axis=1))


def sum_of_each(values: FloatArray) -> FloatArray:
    """Sums of rows, (m,), to the last bit the same whatever order their columns are in."""
    return np.asarray(np.ascontiguousarray(np.sort(values, axis=1)).sum(axis=1))


class Crowd:
    """Sums where copies are many: points by their places, all of which are compared."""

    def __init__(self, search: Search, magnitudes: FloatArray, grid: Grid) -> None:
        self.places, self.metric = search.places, search.metric
        self.magnitudes, self.grid = magnitudes, grid

    def sums_of_others(self, points: IntArray, ks: Sequence[int]) -> list[SharedSums]:
        """Sums around points, without themselves, for each K."""
        place = self.places.of_point[points]
        own, inverse = np.unique(place, return_inverse=True)
        # What is beside a point at its own place; digits are whole numbers, none is lost.
        beside = self._digits[place] - self.grid.sums(self.magnitudes[points], np.copy)
        found = []
        for digits, (seats, size, *mine) in self._sums(self.places.rows[own], own, ks):
            parts = digits[:, inverse] + np.stack(mine)[:, inverse, None] * beside
            near, tied = self.grid.rounded(parts)
            found.append(SharedSums(near, tied, seats[inverse], size[inverse]))
        return found

    def sums(self, rows: FloatArray, k: int) -> SharedSums:
        """Sums around new rows."""
        ((digits, (seats, size, _, _)),) = self._sums(rows, None, [k])
        near, tied = self.grid.rounded(digits)
        return SharedSums(near, tied, seats, size)

    def _sums(
        self, rows: FloatArray, own: IntArray | None, ks: Sequence[int]
    ) -> list[tuple[FloatArray, FloatArray]]:
        """For each K digits of sums over nearer and tied places but a row's own, (2, m, n).

        Then seats, sizes, and whether a row's own place is near or tied, (4, m).
        """

        def one_block(block: slice) -> FloatArray:
            distance = all_distances(rows[block], self.places.rows, self.metric)
            row, mine, found = np.arange(len(distance)), np.zeros((2, len(distance))), []
            held = np.repeat(self.places.size[None], len(distance), axis=0)
            if own is not None:
                held[row, own[block]] -= 1
            for k in ks:
                shells = Shells.of_places(distance, held, k)
                if own is not None:
                    where = row, own[block]
                    mine = np.stack([shells.near[where], shells.tied[where]]).astype(float)
                    shells.near[where] = shells.tied[where] = False
                sums = [(each @ self._digits).T for each in (shells.near, shells.tied)]
                found.append(np.vstack([*sums, shells.seats, shells.size, mine]))
            return np.stack(found)

        blocks = map_row_blocks(one_block, len(rows), len(self.magnitudes))
        parts = np.concatenate(blocks, axis=-1)
        of_digits = parts[:, :-4].reshape(len(ks), 2, self.grid.n, -1)
        return list(zip(np.moveaxis(of_digits, 2, 3), parts[:, -4:], strict=True))

    @cached_property
    def _digits(self) -> FloatArray:
        """Digits of the sum over each place, (U, n)."""
        place = self.places.of_point
        return self.grid.sums(self.magnitudes, lambda digit: np.bincount(place, digit))


def sums_without(part: FloatArray) -> FloatArray:
    """For (m, N) non-negative numbers, the sum of each row without each of them."""
    row, largest = np.arange(len(part)), part.argmax(axis=1)
    rest: FloatArray = part.sum(axis=1, keepdims=True) - part
    # Only the largest can dominate the sum: without it, the others are summed anew.
    part[row, largest] = 0.0
    rest[row, largest] = part.sum(axis=1)
    return rest


def shared_means(
    search: Search, magnitudes: FloatArray, k: int, who: FloatArray | IntArray
) -> FloatArray:
    """Means over K at new rows (m, d), or at points (m,) without themselves: (m,)."""
    shared = SharedNeighbors(search, magnitudes)
    if who.ndim == 1:
        return shared.sums_of_others(np.asarray(who, dtype=np.intp), [k])[0].total / k
    return shared.means(np.asarray(who, dtype=np.float64), k)
