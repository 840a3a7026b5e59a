"""Calibration points that are dealt to several machines: the same thresholds, to the last bit.

A shard holds some of the points and knows its own alone. What the K nearest of all say is put
together from what each shard says, in rounds:

1. Each shard names its K+1 nearest, distances by direct differences. The K smallest of all are the
   K nearest, whoever held them; the distance of the K-th is the reach ρ. Where other points are
   just as far, each shard counts and sums its own at ρ (exactly, see ``_arithmetic.py``).
2. With ρ_i of its own points known since the fit, a shard finds those whose neighbourhood a new
   row enters, and their crossings t_i.
3. All other thresholds are ŝ · s_i/ŝ_i, presorted in each shard. Of these only those around rank Q
   are needed: as many to either side as points are entered.

Fitting is the first round for every point: each shard meets every other once. Only distances and
scores of candidates travel, and in the fit the points themselves.

``Shard`` and the functions that take one know nothing of other shards or of where they run; the
rounds are in :class:`ShardedBag`, which asks *workers* to do ``each`` and to ``fetch`` what came of
it.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import add
from typing import Any, Protocol, Self

import numpy as np

from calliper import kernels
from calliper._blocks import BLOCK_FLOATS, map_row_blocks, row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.quantile import conformal_rank, count_true, pad_exceptions

#: New rows that go through the rounds together.
ROUND_ROWS = 4096

#: Into so many parts a range is divided in each round of looking for an order statistic.
PROBES = 256


class Workers(Protocol):
    """Where shards are: in this process, or on the workers of a cluster."""

    def each(self, work: Callable[..., Any], *parts: Sequence[Any], **same: Any) -> list[Any]:
        """``work`` of each shard's parts, left where it is."""

    def fetch(self, parts: Sequence[Any]) -> list[Any]:
        """What was left there."""


@dataclass(frozen=True, eq=False)
class Near:
    """Candidates of m rows in order of their distances, and what scales are made of: (m, W)."""

    distance: FloatArray
    magnitude: FloatArray

    def merged(self, other: "Near", n: int) -> "Near":
        """The n nearest of both."""
        distance = np.hstack([self.distance, other.distance])
        order = np.argsort(distance, axis=1, kind="stable")[:, :n]
        magnitude = np.hstack([self.magnitude, other.magnitude])
        return Near(*(np.take_along_axis(part, order, axis=1) for part in (distance, magnitude)))

    def tied(self, k: int) -> BoolArray:
        """Rows whose K-th place is shared, (m,)."""
        return kernels.tied_at(self.distance, k)

    def shared(self, k: int, tied: FloatArray, grid: kernels.Grid) -> kernels.SharedSums:
        """Sums of rows that share it; ``tied`` are digits and numbers of points there."""
        nearer = self.distance < self.distance[:, k - 1 : k]
        near = grid.sums(nearer * self.magnitude, lambda digit: digit.sum(axis=1))
        sums = grid.rounded(near), grid.rounded(tied[:, :-1])
        return kernels.SharedSums(*sums, k - count_true(nearer), tied[:, -1])


@dataclass(frozen=True, eq=False)
class Shard:
    """Some of the calibration points.

    Attributes
    ----------
    search, scores : the points, and their scores in the unit of the bag
    grid : on which all shards sum
    reach, statistic : how far the K-th of all other points is, and what they say; once known
    """

    search: kernels.NeighborSearch
    scores: FloatArray
    grid: kernels.Grid
    reach: Any = None
    statistic: Any = None

    def scale(self, offset: float) -> FloatArray:
        """Scales of the points that a new one does not enter, (n,)."""
        return np.asarray(self.with_offset(offset).of_calibration(0.5))

    def with_offset(self, offset: float) -> Any:
        """The statistic with a constant added to every scale."""
        statistic = copy(self.statistic)
        statistic.offset = offset
        return statistic


def make_shard(Z: FloatArray, scores: FloatArray, grid: kernels.Grid) -> Shard:
    """A shard that knows nothing of others yet."""
    search = kernels.NeighborSearch(Z, kernels.EUCLIDEAN)
    if search.unit != 1:
        raise CalliperError(
            f"features of a shard are as large as {np.abs(Z).max():.3g}: distances of points in "
            f"several shards need features between 1e-100 and 1e100. Divide them by a constant."
        )
    return Shard(search, scores, grid)


def nearest(shard: Shard, rows: FloatArray, n: int) -> Near:
    """The n nearest of rows in the shard, or all there are."""
    found, _ = shard.search.nearest(rows, min(n, len(shard.scores)))
    return _measured(shard, rows, found)


def nearest_others(shard: Shard, n: int) -> Near:
    """The n nearest of a shard's own points in it, each without itself."""
    found, _ = shard.search.nearest_others(min(n, len(shard.scores) - 1))
    return _measured(shard, shard.search.points, found)


def _measured(shard: Shard, rows: FloatArray, found: IntArray) -> Near:
    points = shard.search.points
    columns = [kernels.paired_distances(rows, points[column]) for column in found.T]
    near = Near(
        np.stack(columns, axis=1) if columns else np.empty(found.shape), shard.scores[found]
    )
    return near.merged(Near(*np.empty((2, len(rows), 0))), found.shape[1])


def meet(near: Near, shard: Shard, other: Shard, n: int) -> Near:
    """The n nearest of a shard's points, those of another shard included."""
    return near.merged(nearest(other, shard.search.points, n), n)


def at_reach(
    shard: Shard, rows: FloatArray, reach: FloatArray, own: IntArray | None = None
) -> FloatArray:
    """Digits of the sum over the points just as far as ``reach``, and their number, (m, n+1).

    ``own`` names which of the shard's points rows are, and these do not count.
    """
    places, grid = shard.search.places, shard.grid
    if not len(rows):
        return np.zeros((0, grid.n + 1))
    digits = grid.sums(shard.scores, lambda digit: np.bincount(places.of_point, digit))
    columns = np.column_stack([digits, places.size])
    asked, inverse = kernels.unique_rows(np.column_stack([rows, reach]))

    def count(block: slice) -> FloatArray:
        distance = kernels.all_distances(asked[block, :-1], places.rows, kernels.EUCLIDEAN)
        return np.asarray((distance == asked[block, -1:]) @ columns)

    found = np.concatenate(map_row_blocks(count, len(asked), len(places.rows)))[inverse]
    if own is not None:
        mine = np.column_stack([grid.sums(shard.scores[own], np.copy), np.ones(len(own))])
        found -= mine * (reach == 0)[:, None]
    return found


def at_reach_of(near: Near, shard: Shard, other: Shard, k: int, same: bool) -> FloatArray:
    """:func:`at_reach` in another shard, or the same one, of points that share a place."""
    tied = np.flatnonzero(near.tied(k))
    rows, reach = shard.search.points[tied], near.distance[tied, k - 1]
    return at_reach(other, rows, reach, tied if same else None)


@dataclass(frozen=True)
class _Known:
    """What a statistic asks of points that share a place, known already."""

    sums: kernels.SharedSums

    def sums_of_others(self, points: IntArray, ks: Sequence[int]) -> list[kernels.SharedSums]:
        return [self.sums]


def settle(shard: Shard, near: Near, tied: FloatArray, k: int) -> Shard:
    """The shard that knows the K nearest of its points."""
    crowded = np.flatnonzero(near.tied(k))
    few = Near(near.distance[crowded], near.magnitude[crowded])
    known: Any = _Known(few.shared(k, tied, shard.grid))
    inner, last = near.magnitude[:, : k - 1], near.magnitude[:, k - 1]
    statistic = kernels.MeanStatistic(inner, last, 0.0, known, crowded)
    return replace(shard, reach=near.distance[:, k - 1].copy(), statistic=statistic)


def entered(
    shard: Shard, rows: FloatArray, scale: FloatArray, offset: float
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows that enter a point's neighbourhood, its ratio s_i/ŝ_i without them, and its t_i."""
    row, point, at_edge = shard.search.balls_containing(rows, shard.reach)
    entering = kernels.Entering(point, at_edge, shard.scores[point], scale[row])
    with np.errstate(over="ignore"):
        value = shard.with_offset(offset).crossing(entering, 0.5)
    return row, kernels.rescale(shard.scores[point], shard.scale(offset)[point]), value


def ratios(shard: Shard, offset: float) -> FloatArray:
    """s_i/ŝ_i in ascending order."""
    return np.sort(kernels.rescale(shard.scores, shard.scale(offset)))


def count_zero(shard: Shard, offset: float) -> int:
    """Points whose scale is zero."""
    return int(np.count_nonzero(shard.scale(offset) <= 0))


def ordered_scores(shard: Shard) -> FloatArray:
    """Scores in ascending order."""
    return np.sort(shard.scores)


def count_up_to(ordered: FloatArray, probes: FloatArray) -> IntArray:
    """How many values are at most as large as each probe."""
    return np.searchsorted(ordered, probes, side="right")


def between(ordered: FloatArray, low: float, high: float) -> tuple[int, FloatArray, IntArray]:
    """How many values lie below, and different values from low to high with their numbers."""
    first, last = np.searchsorted(ordered, low), np.searchsorted(ordered, high, side="right")
    return int(first), *np.unique(ordered[first:last], return_counts=True)


def rising(
    shard: Shard,
    rows: FloatArray,
    scale: FloatArray,
    offset: float,
    slope: float,
    middle: tuple[float, float],
) -> tuple[IntArray, IntArray, FloatArray]:
    """Thresholds if slope·t is added to all scales: how many of each row lie below the middle.

    Then rows and values of those in it.
    """
    statistic, own, parts = shard.with_offset(offset), shard.scale(offset), []
    step = max(1, BLOCK_FLOATS // len(own))
    for block in row_slices(len(rows), step):
        factor = scale[block]
        found = kernels.signed_root(
            slope, own - slope * shard.scores, shard.scores * factor[:, None]
        )
        row, point, at_edge = shard.search.balls_containing(rows[block], shard.reach)
        entering = kernels.Entering(point, at_edge, shard.scores[point], factor[row])
        found[row, point] = statistic.crossing(entering, 0.5, slope)
        inside = (found >= middle[0]) & (found <= middle[1])
        places = np.nonzero(inside)
        parts.append((count_true(found < middle[0]), places[0] + block.start, found[places]))
    below, row, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return below, row, value


class ShardedBag:
    """Thresholds t_i of the full method over the K nearest, K < N, of points in shards.

    Parameters
    ----------
    workers : where the shards are
    shards : made by :func:`make_shard`, not empty
    grid : on which they sum
    n : how many points they hold together
    n_neighbors, offset : K, and a constant added to every scale
    """

    def __init__(
        self,
        workers: Workers,
        shards: list[Any],
        grid: kernels.Grid,
        *,
        n: int,
        n_neighbors: int,
        offset: float,
    ) -> None:
        self.workers, self.grid = workers, grid
        self.n, self.k, self.offset = n, n_neighbors, offset
        self.shards = self._met(shards)
        self._ordered: list[Any] | None = None
        self._windows: dict[tuple[int, int], tuple[int, FloatArray, IntArray]] = {}
        middle, ordered = (n + 2) // 2, workers.each(ordered_scores, shards)
        self.middle = (
            self._order_statistic(ordered, middle - 1),
            self._order_statistic(ordered, middle),
        )

    def _met(self, shards: list[Any]) -> list[Any]:
        """Shards that know the K nearest of their points, in all of them."""
        each, k = self.workers.each, self.k
        near = each(nearest_others, shards, n=k + 1)
        turns = [shards[turn:] + shards[:turn] for turn in range(len(shards))]
        for others in turns[1:]:
            near = each(meet, near, shards, others, n=k + 1)
        tied = each(at_reach_of, near, shards, shards, k=k, same=True)
        for others in turns[1:]:
            tied = each(add, tied, each(at_reach_of, near, shards, others, k=k, same=False))
        return each(settle, shards, near, tied, k=k)

    def with_offset(self, offset: float) -> Self:
        """The same with another constant; nothing is searched again."""
        other = copy(self)
        other.offset, other._ordered, other._windows = offset, None, {}
        return other

    def n_zero(self) -> int:
        """How many calibration points have a scale of zero."""
        return sum(
            self.workers.fetch(self.workers.each(count_zero, self.shards, offset=self.offset))
        )

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Any = None
    ) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        ranks = [conformal_rank(level, self.n) for level in levels]
        parts = [self._one_round(Z[rows], ranks) for rows in row_slices(len(Z), ROUND_ROWS)]
        return np.concatenate(parts) if parts else np.empty((0, len(levels)))

    def rising_order_statistic(
        self, Z: FloatArray, level: float, slope: float, shares: Any = None
    ) -> FloatArray:
        """The same at one level, (m,), if slope·t is added to all scales, not beyond the middle.

        The middle is what lies between the two scores that the bag's median is between.
        """
        how = {"offset": self.offset, "slope": slope, "middle": self.middle}
        work = self.workers.each(rising, self.shards, rows=Z, scale=self._scales(Z), **how)
        below, row, value = zip(*self.workers.fetch(work), strict=True)
        rank = conformal_rank(level, self.n) - np.sum(below, axis=0)
        inside = _padded(np.concatenate(row), np.concatenate(value), len(Z))
        inside = np.column_stack([np.full(len(Z), self.middle[0]), np.sort(inside, axis=1)])
        n_inside = np.count_nonzero(~np.isnan(inside), axis=1)
        found = inside[np.arange(len(Z)), np.clip(rank, 0, n_inside - 1)]
        return np.where(rank >= n_inside, self.middle[1], found)

    def _one_round(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        scale = self._scales(Z)
        work = self.workers.each(entered, self.shards, rows=Z, scale=scale, offset=self.offset)
        row, ratio, value = map(np.concatenate, zip(*self.workers.fetch(work), strict=True))
        removed, added = _padded(row, ratio, len(Z)), _padded(row, value, len(Z))
        found = [self._selected(scale, removed, added, rank) for rank in ranks]
        return np.stack(found, axis=1)

    def _scales(self, Z: FloatArray) -> FloatArray:
        """Scales of new rows, (m,)."""
        near, *others = self.workers.fetch(
            self.workers.each(nearest, self.shards, rows=Z, n=self.k + 1)
        )
        for other in others:
            near = near.merged(other, self.k + 1)
        total = kernels.sum_of_each(near.magnitude[:, : self.k])
        tied = near.tied(self.k)
        if tied.any():
            few = Near(near.distance[tied], near.magnitude[tied])
            reach = few.distance[:, self.k - 1]
            work = self.workers.each(at_reach, self.shards, rows=Z[tied], reach=reach)
            total[tied] = few.shared(self.k, sum(self.workers.fetch(work)), self.grid).total
        scale: FloatArray = total / self.k + self.offset
        return scale

    def _selected(
        self, factor: FloatArray, removed: FloatArray, added: FloatArray, rank: int
    ) -> FloatArray:
        """The rank-th smallest of multiples of all ratios, less some and with others, (m,).

        Each ratio counts once, one that is removed minus once, what is added once: the first value
        up to which all counts together reach the rank. Ratios more than E ranks away cannot be it.
        """
        e = 1 << removed.shape[1].bit_length()
        before, ratio, number = self._window(max(1, rank - e), min(self.n, rank + e))
        below = before - (removed < ratio[0]).sum(axis=1)
        found = np.empty(len(factor))
        for rows in row_slices(len(factor), max(1, 4 * BLOCK_FLOATS // (len(ratio) + 2 * e))):
            outside = ~((removed[rows] >= ratio[0]) & (removed[rows] <= ratio[-1]))
            every = np.repeat(ratio[None], rows.stop - rows.start, axis=0)
            minus = np.where(outside, np.nan, removed[rows])
            multiples = [
                kernels.times(np.repeat(factor[rows, None], part.shape[1], axis=1), part)
                for part in (every, minus)
            ]
            value = np.hstack([*multiples, added[rows]])
            count = np.hstack(
                [np.broadcast_to(number, every.shape), -1 + outside, ~np.isnan(added[rows])]
            )
            # Of equal values those that are taken away come first: then sums only grow.
            order = np.lexsort((count, value))
            reached = below[rows, None] + np.cumsum(np.take_along_axis(count, order, 1), axis=1)
            first = np.argmax(reached >= rank, axis=1)[:, None]
            found[rows] = np.take_along_axis(np.take_along_axis(value, order, 1), first, 1)[:, 0]
        return found

    def _window(self, first: int, last: int) -> tuple[int, FloatArray, IntArray]:
        """Distinct ratios between two ranks with their counts, and how many are smaller."""
        if (first, last) in self._windows:
            return self._windows[first, last]
        if self._ordered is None:
            self._ordered = self.workers.each(ratios, self.shards, offset=self.offset)
        low, high = (self._order_statistic(self._ordered, rank) for rank in (first, last))
        parts = self.workers.fetch(self.workers.each(between, self._ordered, low=low, high=high))
        before, values, numbers = zip(*parts, strict=True)
        ratio, inverse = np.unique(np.concatenate(values), return_inverse=True)
        number = np.bincount(inverse, np.concatenate(numbers)).astype(np.intp)
        self._windows[first, last] = sum(before), ratio, number
        return self._windows[first, last]

    def _order_statistic(self, ordered: list[Any], rank: int) -> float:
        """The rank-th smallest of non-negative values in order in each shard.

        Such numbers stand in the order of their bits, so that halving, or dividing by 256, ends.
        """
        low, high = 0, int(np.float64(np.inf).view(np.int64))
        while low < high:
            bits = sorted({low + (high - low) * part // PROBES for part in range(PROBES)})
            probes = np.array(bits, dtype=np.int64).view(np.float64)
            reached = sum(
                self.workers.fetch(self.workers.each(count_up_to, ordered, probes=probes))
            )
            first = int(np.searchsorted(reached, rank))
            high = bits[first] if first < len(bits) else high
            low = bits[first - 1] + 1 if first else low
        return float(np.int64(high).view(np.float64))


def _padded(row: IntArray, value: FloatArray, n_rows: int) -> FloatArray:
    """Values listed by row, in any order, as (m, E); NaN pads a short row."""
    order = np.argsort(row, kind="stable")
    return pad_exceptions(row[order], row[order], value[order], n_rows, 0)[1]
