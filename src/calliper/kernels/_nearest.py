"""Means and quantiles over the K nearest; points at the same distance share the last place.

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

A row with a tie is compared with a few candidates beyond its K nearest, or with all points if they
do not include all that are tied. Sums are exact before they are rounded (``_arithmetic.py``), so
that they depend on the points alone, and copies of a row need one comparison: a calibration row
among the others has the sums of its twin, with the twin's magnitude in the place of its own.

Letters: T → ``size``, K − c → ``seats``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from calliper._blocks import CHUNK_ROWS, distinct, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels._arithmetic import Grid
from calliper.kernels._search import Case, NeighborSearch, Shells, all_distances
from calliper.quantile import as_fraction, count_true, row_order_statistics

#: Pairs of a new row and a calibration row that are held in memory at a time.
MOST_PAIRS = 1 << 22


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


class Nearest:
    """The K nearest of the points searched, and their magnitudes."""

    def __init__(self, search: NeighborSearch, magnitudes: FloatArray, k: int) -> None:
        self.search, self.magnitudes, self.k = search, magnitudes, k

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        return self.over(
            Z, self.k, lambda near: self.magnitudes[near].mean(axis=1), self.means_of_tied
        )

    def quantile(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        """The ⌈level·K⌉-th smallest magnitude of the K nearest, (m, L)."""
        ranks = [ceil(as_fraction(level) * self.k) for level in levels]
        return self.over(
            Z,
            self.k,
            lambda near: row_order_statistics(self.magnitudes[near], ranks),
            lambda rows: self.quantiles_of_tied(rows, ranks),
        )

    def to(self, Z: FloatArray) -> FloatArray:
        """Means at new rows without each point, (m, N), for K < N."""
        return self.over(Z, self.k + 1, self._without, lambda rows: self._all_without(rows, None))

    def among(self) -> FloatArray:
        """Means at the points without themselves and each other one, (N, N)."""
        near, tied = self.search.nearest_others(self.k + 1)
        # With N = 2 nothing can replace the point left out: repeat the last column.
        near = near[:, np.minimum(np.arange(self.k + 1), near.shape[1] - 1)]
        found, crowded = self._without(near), np.flatnonzero(tied)

        def settle(rows: slice) -> None:
            points = crowded[rows]
            found[points] = self._all_without(self.search.points[points], points)

        map_row_blocks(settle, len(crowded), 4 * len(found))
        return found

    def few_without(self, near: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Of K+1 nearest the first K, means without each, (m, K), and without any other, (m,)."""
        member, replacement = self.magnitudes[near[:, :-1]], self.magnitudes[near[:, -1:]]
        mean = member.mean(axis=1)
        return near[:, :-1], (sums_without(member) + replacement) / self.k, mean

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
                crowded = self.search.scaled(Z[rows][is_tied])
                first, inverse = distinct(crowded)
                parts[-1][is_tied] = tied(crowded[first])[inverse]
        return np.concatenate(parts)

    def means_of_tied(self, rows: FloatArray) -> FloatArray:
        """Means at new rows in the unit of the search, (m,)."""
        return self._sums(self.search.over_candidates(rows, self.k, self._digits)).total / self.k

    def quantiles_of_tied(self, rows: FloatArray, ranks: Sequence[int]) -> FloatArray:
        """The rank-th smallest of K, by weight, for each rank, (m, L)."""
        return self._reached(rows, lambda shells: shells.quantiles(ranks))

    def sums_of_others(self, points: IntArray) -> SharedSums:
        """Sums around points, without themselves."""
        rows = self.search.points[points]
        first, inverse = distinct(rows)
        twin, own = points[first], self.search.distance_to(points, points)
        found = self.search.over_candidates(rows[first], self.k, self._digits, twin)[inverse]
        change = self._digits_of_each[twin][inverse] - self._digits_of_each[points]
        reach, n = found[:, -1], self._grid.n
        found[:, :n] += np.where((own < reach)[:, None], change, 0.0)
        found[:, n : 2 * n] += np.where((own == reach)[:, None], change, 0.0)
        return self._sums(found)

    def clamps(self, points: IntArray, rank: int) -> FloatArray:
        """The a and b of scales min(max(t, a), b) around points, without themselves, (m, 5).

        Columns 0 and 1 if a new point comes nearer than the K-th, 2 and 3 if as near, else 4.
        """
        return self._reached(self.search.points[points], lambda s: s.clamps(rank), points)

    def without(self, near: IntArray | None, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means without each of the candidates, (m, W), and without any other point, (m,)."""
        shells, magnitudes = Shells.of_points(distance, self.k), self._of(near)
        seats, size, inside = shells.seats[:, None], shells.size[:, None], shells.near | shells.tied
        nearer, tied = shells.near * magnitudes, shells.tied * magnitudes
        near_sum, tied_sum = nearer.sum(axis=1, keepdims=True), tied.sum(axis=1, keepdims=True)
        beyond = np.where(distance > shells.reach, distance, np.inf)
        following = (beyond == beyond.min(axis=1, keepdims=True)) & np.isfinite(beyond)
        next_sum = (following * magnitudes).sum(axis=1, keepdims=True)
        replacement = next_sum / np.maximum(following.sum(axis=1, keepdims=True), 1)
        total, crowded = near_sum + seats / size * tied_sum, size > seats
        without = sums_without(nearer + tied) + replacement
        of_near = sums_without(nearer) + (seats + 1) / size * tied_sum
        of_tied = near_sum + seats / np.maximum(size - 1, 1) * sums_without(tied)
        without = np.where(shells.near & crowded, of_near, without)
        without = np.where(shells.tied & crowded, of_tied, without)
        return np.where(inside, without, total) / self.k, total[:, 0] / self.k

    def _of(self, near: IntArray | None) -> FloatArray:
        """Magnitudes of candidates, (m, W), or of all points, (1, N)."""
        return self.magnitudes[None] if near is None else self.magnitudes[near]

    def _reached(
        self,
        rows: FloatArray,
        cases: Callable[[Shells], Iterator[Case]],
        points: IntArray | None = None,
    ) -> FloatArray:
        """Magnitudes at which weights reach what each case needs, (m, L)."""

        def find(near: IntArray | None, distance: FloatArray) -> FloatArray:
            magnitudes = self._of(near)
            order = np.argsort(magnitudes, axis=1)
            ascending = np.take_along_axis(magnitudes, order, axis=1)
            shells = Shells.of_points(np.take_along_axis(distance, order, axis=1), self.k)
            extended = np.hstack([ascending, np.full((len(order), 1), np.inf)])
            found = []
            for inner, outer, needed in cases(shells):
                each_weight = shells.near * inner[:, None] + shells.tied * outer[:, None]
                weight = np.cumsum(each_weight, axis=1)
                for each in needed:
                    position = count_true(weight < each[:, None])[:, None]
                    value = np.take_along_axis(extended, position, axis=1)[:, 0]
                    found.append(np.where(each > 0, value, 0.0))
            return np.stack(found, axis=1)

        return np.asarray(self.search.over_candidates(rows, self.k, find, points))

    def _without(self, near: IntArray) -> FloatArray:
        """(m, N) means over the K nearest of ``near`` (m, K+1), the last as replacement."""
        inner, replaced, mean = self.few_without(near)
        means = np.repeat(mean[:, None], len(self.magnitudes), axis=1)
        np.put_along_axis(means, inner, replaced, axis=1)
        return means

    def _all_without(self, rows: FloatArray, points: IntArray | None) -> FloatArray:
        """The same of rows with a tie; at ``points``, without themselves, too."""
        distance = all_distances(rows, self.search.points, self.search.metric)
        if points is not None:
            distance[np.arange(len(rows)), points] = np.inf
        return self.without(None, distance)[0]

    def _digits(self, near: IntArray | None, distance: FloatArray) -> FloatArray:
        """Digits of sums over nearer and over tied points, seats, size and reach, (m, 2n+3)."""
        shells = Shells.of_points(distance, self.k)
        digits = self._digits_of_each if near is None else self._digits_of_each[near]
        sums = [(mask[:, None] @ digits)[:, 0] for mask in (shells.near, shells.tied)]
        return np.column_stack([*sums, shells.seats, shells.size, shells.reach])

    def _sums(self, digits: FloatArray) -> SharedSums:
        n, (seats, size, _) = self._grid.n, digits[:, -3:].T
        near, tied = self._grid.rounded(digits[:, :n]), self._grid.rounded(digits[:, n : 2 * n])
        return SharedSums(near, tied, seats, size)

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self.magnitudes)

    @cached_property
    def _digits_of_each(self) -> FloatArray:
        """Digits of the magnitudes, (N, n)."""
        return self._grid.sums(self.magnitudes, np.copy)


def sums_without(part: FloatArray) -> FloatArray:
    """In place of (m, N) non-negative numbers, the sum of each row without each."""
    row, largest, whole = np.arange(len(part)), part.argmax(axis=1), part.sum(axis=1, keepdims=True)
    # Only the largest can dominate the sum: without it, the others are summed anew.
    part[row, largest] = 0.0
    rest = part.sum(axis=1)
    np.subtract(whole, part, out=part)
    part[row, largest] = rest
    return part


def sum_of_each(values: FloatArray) -> FloatArray:
    """Sums of rows, (m,), to the last bit the same whatever order their columns are in."""
    return np.asarray(np.ascontiguousarray(np.sort(values, axis=1)).sum(axis=1))


def same_length(values: Any, points: FloatArray, name: str = "values") -> Any:
    """The values, if there is one for each point."""
    if len(values) != len(points):
        raise CalliperError(f"there are {len(values)} {name} for {len(points)} points.")
    return values


def shared_means(search: NeighborSearch, magnitudes: FloatArray, k: int, who: Any) -> FloatArray:
    """Means over K at new rows (m, d), or at points (m,) without themselves: (m,)."""
    nearest = Nearest(search, magnitudes, k)
    if who.ndim == 1:
        return nearest.sums_of_others(who).total / k
    return nearest.means_of_tied(search.scaled(who))
