"""Radial weights on a grid: places stand for their points, at any number of these.

Points and new rows count as being in the middle of their cell of a grid (see ``_weighted.py``). In
few dimensions there are far fewer such places than points, and all points of a place p have the
same weights. With S_p the sum of its magnitudes, n_p their number, κ the weight of a place at
itself and k the weight of the new row there, the sums of point i without itself are

    A_i = Σ_{q≠p} k_pq S_q + κ (S_p − s_i),    B_i = Σ_{q≠p} k_pq n_q + κ (n_p − 1),

and its threshold solves k t² + A_i t = s_i ŝ (B_i + k). It grows with s_i, so that of the points of
a place those below t are those with scores below

    s_p(t) = t (k t + A_i + κ s_i) / (ŝ (B_i + k) + κ t).

So the Q-th smallest is found without computing all N thresholds of a place. Two values of t between
which it lies are found by counting points, through a table of how many scores of each place lie
below each of a thousand edges; the thresholds of the few points between are computed, and one is
selected. O(number of places) for each place with a new row, whatever N.

Edges are floating-point numbers with 8 bits behind the first: the place of a score among them is a
shift of its bits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calliper._blocks import BLOCK_FLOATS, Scratch, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.kernels._weighted import (
    BagWeighted,
    Balance,
    RadialExponents,
    SmoothedRadial,
    to_grid,
    totals,
)
from calliper.quantile import Shares, conformal_rank, pad_exceptions

#: With fewer points, or fewer to a place, all thresholds are computed.
MANY, TO_A_PLACE = 5_000, 3
#: Edges between which scores are counted, and most counts in the table of all places.
EDGES, MOST_COUNTS = 1 << 10, 1 << 22
#: Bits of a double that are not part of an edge.
LOWER_BITS = 44
#: The highest edge, which no threshold reaches.
TOP = (1023 + 1000) << 8
#: A guess is moved by at most this many edges at a time.
FAR = 32
#: Relative rounding of s_p(t), generously.
SLIP = 1e-9


class BagInPlaces(BagWeighted):
    """Thresholds t_i of points that share places."""

    def __init__(
        self,
        radial: RadialExponents,
        smoothing: float,
        magnitudes: FloatArray,
        scores: FloatArray,
        offset: float,
    ) -> None:
        n = len(scores)
        self.magnitudes, self.scores, self.offset = magnitudes, scores, offset
        first, self.place = distinct(radial.points)
        self.weights = SmoothedRadial(radial.some(first), smoothing * len(first) / n)
        self.radial, self.own = self.weights.exponents, 1.0 + self.weights.floor
        self.size = np.bincount(self.place)
        self.numbers = self.size.astype(np.float64)
        self.start = np.cumsum(self.size) - self.size
        self.sums, rest = self._sums()
        others = np.concatenate(map_row_blocks(self._others, len(first), len(first)), axis=1)
        self.place_total = others[0] + self.own * self.sums
        self.place_weight = others[1] + self.own * (self.size - 1)
        self.total = others[0][self.place] + self.own * rest
        self.weight = self.place_weight[self.place]
        self.counts: NDArray[np.int32] | None = None
        if n > max(MANY, TO_A_PLACE * len(first)):
            self._count()

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Sums of magnitudes of the places, and of the others in the place of each point.

        The largest of a place may be nearly all of its sum, which is no reason to lose the rest.
        """
        order = np.lexsort((self.magnitudes, self.place))
        ordered, last = self.magnitudes[order], self.start + self.size - 1
        largest = ordered[last]
        ordered[last] = 0.0
        without = np.add.reduceat(ordered, self.start)
        sums = without + largest
        rest = sums[self.place] - self.magnitudes
        rest[order[last]] = without
        return sums, rest

    def _others(self, rows: slice) -> FloatArray:
        """Weighted sums of other places' magnitudes, and of their numbers, for some places."""
        weight = self.weights.among(rows)
        return np.stack([totals(weight, self.sums)[0], totals(weight, self.numbers)[0]])

    def _count(self) -> None:
        """Scores in the order of their places, and how many of each lie below each edge."""
        self.order = np.lexsort((self.scores, self.place))
        keys = to_key(self.scores)
        positive = self.scores > 0
        lowest = int(keys[positive].min(initial=to_key(np.array([1.0]))[0])) - 1
        index = np.where(positive, keys - lowest, 0)
        at_key = np.bincount(index)
        edges = min(EDGES, max(16, MOST_COUNTS // len(self.size)))
        # As many scores between two edges as between any others; those of zero by themselves.
        part = (np.cumsum(at_key) - at_key) * edges // len(index) + 1
        part[0] = 0
        part = np.unique(part, return_inverse=True)[1]
        n_parts = int(part[-1]) + 1
        self.lowest, self.part = lowest, np.append(part, n_parts)
        cell = self.place * n_parts + part[index]
        counts = np.zeros((len(self.size), n_parts + 3), dtype=np.int32)
        held = np.bincount(cell, minlength=len(self.size) * n_parts).reshape(-1, n_parts)
        np.cumsum(held, axis=1, out=counts[:, 1:-2])
        counts[:, -2:] = self.size[:, None]
        self.counts = counts.ravel()
        self.row_starts = np.arange(len(self.size)) * counts.shape[1]
        self.ratios = np.sort(self.scores / self.calibration_scale(0.5).clip(1e-300))

    def _balance(self, Z: FloatArray, scratch: Scratch) -> Balance:
        weight, scale = self._at(Z)
        none, nothing = np.empty(0, dtype=np.intp), np.empty(0)
        return weight[:, self.place], scale, (none, none, nothing, nothing)

    def _at(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights of new rows at all places, (m, places), and scales of the rows, (m,)."""
        weight = self.weights.to(Z)
        scale = totals(weight, self.sums)[0] / totals(weight, self.numbers)[0]
        return weight, scale + self.offset

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        places = to_grid(Z, self.radial.side)
        first, place = distinct(places)
        if shares is not None:
            if len(Z) < 2 * len(first):
                return super().order_statistics(Z, levels, shares)
            return self._weighed(places[first], place, levels, shares)
        if self.counts is None:
            return super().order_statistics(places[first], levels)[place]
        ranks = [conformal_rank(level, len(self.scores)) for level in levels]

        def select(rows: slice) -> FloatArray:
            return self._ranked(places[first[rows]], ranks)

        blocks = map_row_blocks(select, len(first), 2 * len(self.size))
        return np.concatenate(blocks)[place]

    def signed_order_statistics(
        self, Z: FloatArray, signs: FloatArray, ranks: list[int], *, slope: float = 0.0
    ) -> FloatArray:
        places = to_grid(Z, self.radial.side)
        first, place = distinct(places)
        return super().signed_order_statistics(places[first], signs, ranks, slope=slope)[place]

    def _weighed(
        self, Z: FloatArray, place: IntArray, levels: list[float], shares: Shares
    ) -> FloatArray:
        """Thresholds by weight of many rows in few places, each of which sorts its own once."""
        needed = np.stack([shares.needed(level) for level in levels], axis=1)
        rows_by_place = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place)))
        found, scratch = np.empty(needed.shape), Scratch()

        def select(block: slice) -> None:
            values = self._thresholds(Z[block], 0.0, scratch)
            for row, own in zip(values, rows_by_place[block], strict=True):
                order = np.argsort(row)
                reached = np.cumsum(shares.calibration[order])
                ordered = np.append(row[order], np.inf)
                found[own] = ordered[np.searchsorted(reached, needed[own])]

        map_row_blocks(select, len(Z), len(self.scores))
        return found

    def _ranked(self, Z: FloatArray, ranks: Sequence[int]) -> FloatArray:
        """The rank-th smallest thresholds of a few places, (m, L)."""
        weight, scale = self._at(Z)
        search = _Search(self, weight, scale)
        return np.stack([search.find(rank) for rank in ranks], axis=1)


class _Search:
    """Between which thresholds of some new rows a rank lies.

    ``weight``, (m, places), and ``scale``, (m,), are those of the rows.
    """

    def __init__(self, bag: BagInPlaces, weight: FloatArray, scale: FloatArray) -> None:
        self.bag, self.weight, self.scale = bag, weight, scale
        together = bag.place_weight + weight
        self.linear = bag.place_total + bag.offset * together
        self.constant = scale[:, None] * together

    def find(self, rank: int) -> FloatArray:
        """The rank-th smallest threshold of each row, (m,)."""
        ratio = self.bag.ratios[rank - 1]
        around = np.searchsorted(self.bag.ratios, [ratio * 0.9, ratio * 1.1])
        density = max(1.0, float(around[1] - around[0]) / 74)  # points to an edge
        edge = to_key(self.scale * ratio)
        for _ in range(2):
            missing = rank - self._below(self._parts(edge)).sum(axis=1)
            further = np.clip(missing / density, -FAR, FAR).astype(np.int64)
            edge = np.clip(edge + further, 3, TOP)
        above = self._move(edge + 1, rank, up=True)
        below = self._move(edge - 2, rank, up=False)
        return self._between(below, above, rank)

    def _move(self, edge: IntArray, rank: int, *, up: bool) -> IntArray:
        """Where edges are below which there are surely enough points, or surely too few.

        From the edges given in steps that grow, up or down.
        """
        parts, left, step = self._parts(edge), np.arange(len(edge)), 2
        while True:
            there = parts if len(left) == len(edge) else parts[left]
            enough = self._below(there if up else there + 2).sum(axis=1) >= rank
            left = left[(enough != up) & ((edge[left] > 0) | up)]
            if not len(left):
                return parts
            edge[left] = np.clip(edge[left] + (step if up else -step), 0, TOP)
            parts[left], step = self._parts(edge[left], left), 2 * step

    def _parts(self, edge: IntArray, rows: IntArray | slice = slice(None)) -> IntArray:
        """Between which edges the score s_p(t) of each place is, (m, places), for t at an edge.

        As places in the table of counts. All points before are surely below t, and all from the
        next but one on are surely above; at the edge 0, none is below.
        """
        bag, t = self.bag, from_key(edge)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            score = self.weight[rows] * t
            score += self.linear[rows]
            score *= t * (1 - SLIP)
            score /= self.constant[rows] + bag.own * t
        index = score.view(np.int64)
        index >>= LOWER_BITS
        index -= bag.lowest
        if not edge.all():
            index[edge == 0] = 0
        parts = bag.part.take(index, mode="clip")
        parts += bag.row_starts
        return np.asarray(parts)

    def _below(self, parts: IntArray) -> IntArray:
        """How many points of each place are before an edge, (m, places)."""
        return np.asarray(self.bag.counts.take(parts))  # type: ignore[union-attr]

    def _between(self, low: IntArray, high: IntArray, rank: int) -> FloatArray:
        """The rank-th smallest threshold of each row, which lies between two edges."""
        first = self._below(low)
        held = self._below(high + 2) - first
        before, most = first.sum(axis=1), int(held.sum(axis=1).max())
        found = np.empty(len(low))
        for rows in row_slices(len(low), max(1, 4 * BLOCK_FLOATS // (most + 1))):
            row, position, value = self._thresholds(rows, first[rows], held[rows])
            values = pad_exceptions(row, position, value, rows.stop - rows.start, 0)[1]
            values.sort(axis=1)
            found[rows] = values[np.arange(len(values)), rank - 1 - before[rows]]
        return found

    def _thresholds(
        self, rows: slice, first: IntArray, held: IntArray
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows, points and thresholds of the points that some rows have between two edges."""
        bag = self.bag
        row, place = np.nonzero(held)
        number = held[row, place]
        ends = np.cumsum(number)
        within = np.arange(ends[-1]) - np.repeat(ends - number, number)
        point = bag.order[np.repeat(bag.start[place] + first[row, place], number) + within]
        row, place = np.repeat(row, number), np.repeat(place, number)
        entering, scale = self.weight[rows][row, place], self.scale[rows][row]
        threshold = bag.solved(
            entering, bag.total[point], bag.weight[point], bag.scores[point], scale
        )
        return row, point, threshold


def distinct(places: FloatArray) -> tuple[IntArray, IntArray]:
    """The first row in each place, and which of these places every row lies in."""
    if len(places) == 1:
        return np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
    code, size = np.zeros(len(places), dtype=np.int64), 1
    for column in places.T:
        values, inverse = np.unique(column, return_inverse=True)
        if size * len(values) >= 2**62:
            known, code = np.unique(code, return_inverse=True)
            size = len(known)
        code, size = code * len(values) + inverse, size * len(values)
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return first, place


def to_key(values: FloatArray) -> IntArray:
    """The last edge not above each of some numbers that are not negative, by its number."""
    keys: IntArray = np.ascontiguousarray(values).view(np.int64) >> LOWER_BITS
    return keys


def from_key(keys: IntArray) -> FloatArray:
    """Edges by their numbers."""
    values: FloatArray = (keys << LOWER_BITS).view(np.float64)
    return values
