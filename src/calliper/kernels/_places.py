"""Radial weights on a grid: places stand for their points, at any number of these.

In few dimensions there are far fewer places than points, and all points of a place p have the same
weights. With S_p the sum of its magnitudes, n_p their number, κ the weight of a place at
itself and k the weight of the new row there, the sums of point i without itself are

    A_i = Σ_{q≠p} k_pq S_q + κ (S_p − s_i),    B_i = Σ_{q≠p} k_pq n_q + κ (n_p − 1),

and its threshold solves k t² + A_i t = s_i ŝ (B_i + k).

Of many points, few thresholds are solved. With r_i = s_i/c_i, c_i = A_i/B_i the point's scale
without the new row, and w = k/(B_i + k), the threshold is at most t exactly if

    r_i ≤ (t/ŝ) · (1 + w (t/c_i − 1)).

Where w·max(1, t/c_i) is at most δ for all t that matter, the factor is within 1 ± δ: thresholds
are in the order of r_i up to that. All other points are exceptions, which lie near the new row. If
there are at most E exceptions to a row, its Q-th smallest threshold is either one of theirs or that
of a point between r_(Q−E)·q and r_(Q+E)/q, with q = (1−δ)/(1+δ).
"""

from functools import cached_property
from typing import Self

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._arithmetic import rescale
from calliper.kernels._rbf import Radial, to_grid
from calliper.kernels._search import unique_rows
from calliper.kernels._weighted import BagWeighted, Balance, totals
from calliper.quantile import Shares, conformal_rank, merged_order_statistic, pad_exceptions

#: With fewer points, all thresholds are computed.
MANY = 5_000
#: δ, and the least part of the points that a row may have as exceptions.
DELTA, EXCEPTIONS = 0.02, 0.05


class BagInPlaces(BagWeighted):
    """Thresholds t_i of points that share places."""

    def __init__(
        self, weights: Radial, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        n, exponents = len(scores), weights.exponents
        self.magnitudes, self.scores, self.offset = magnitudes, scores, offset
        _, first, self.place = unique_rows(exponents.points)
        self.side = exponents.side
        self.weights = Radial(exponents.some(first), weights.smoothing * len(first) / n)
        self.size = np.bincount(self.place)
        self.numbers = self.size.astype(np.float64)
        self.sums, rest = self._sums()
        others = np.concatenate(map_row_blocks(self._others, len(first), len(first)), axis=1)
        own = 1.0 + self.weights.floor
        self.total = others[0][self.place] + own * rest
        self.weight = (others[1] + own * (self.size - 1))[self.place]

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Sums of magnitudes of the places, and of the others in the place of each point.

        The largest of a place may be nearly all of its sum, which is no reason to lose the rest.
        """
        order = np.lexsort((self.magnitudes, self.place))
        start, ordered = np.cumsum(self.size) - self.size, self.magnitudes[order]
        last = start + self.size - 1
        largest = ordered[last]
        ordered[last] = 0.0
        without = np.add.reduceat(ordered, start)
        sums = without + largest
        rest = sums[self.place] - self.magnitudes
        rest[order[last]] = without
        return sums, rest

    def _others(self, rows: slice) -> FloatArray:
        """Weighted sums of other places' magnitudes, and of their numbers, for some places."""
        weight = self.weights.among(rows)
        return np.stack([totals(weight, self.sums)[0], totals(weight, self.numbers)[0]])

    def with_offset(self, offset: float) -> Self:
        other = super().with_offset(offset)
        vars(other).pop("_window", None)
        return other

    @cached_property
    def _window(self) -> "Window":
        return Window(self)

    def _balance(self, Z: FloatArray) -> Balance:
        weight, scale = self._at(Z)
        none, nothing = np.empty(0, dtype=np.intp), np.empty(0)
        return weight[:, self.place], scale, (none, none, nothing, nothing)

    def _at(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights of new rows at all places, (m, places), and scales of the rows, (m,)."""
        weight = self.weights.to(Z)
        scale = totals(weight, self.sums)[0] / totals(weight, self.numbers)[0]
        return weight, scale + self.offset

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None, slope: float = 0.0
    ) -> FloatArray:
        places = to_grid(Z, self.side)
        _, first, place = unique_rows(places)
        if shares is not None:
            if len(Z) < 2 * len(first) or slope:
                return super().order_statistics(Z, levels, shares, slope=slope)
            return self._weighed(places[first], place, levels, shares)
        if slope or len(self.scores) <= MANY:
            return super().order_statistics(places[first], levels, slope=slope)[place]
        ranks = [conformal_rank(level, len(self.scores)) for level in levels]

        def select(rows: slice) -> FloatArray:
            some = places[first[rows]]
            known = some, *self._at(some)
            return np.stack([self._window.ranked(*known, rank) for rank in ranks], axis=1)

        floats = 2 * len(self.size) + len(self.scores) // 10
        return np.concatenate(map_row_blocks(select, len(first), floats))[place]

    def signed_order_statistics(
        self, Z: FloatArray, signs: FloatArray, ranks: list[int], *, slope: float = 0.0
    ) -> FloatArray:
        places = to_grid(Z, self.side)
        _, first, place = unique_rows(places)
        return super().signed_order_statistics(places[first], signs, ranks, slope=slope)[place]

    def _weighed(
        self, Z: FloatArray, place: IntArray, levels: list[float], shares: Shares
    ) -> FloatArray:
        """Thresholds by weight of many rows in few places, each of which sorts its own once."""
        needed = np.stack([shares.needed(level) for level in levels], axis=1)
        rows_by_place = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place)))
        found = np.empty(needed.shape)

        def select(block: slice) -> None:
            for row, own in zip(self.thresholds(Z[block]), rows_by_place[block], strict=True):
                order = np.argsort(row)
                reached = np.cumsum(shares.calibration[order])
                found[own] = np.append(row[order], np.inf)[np.searchsorted(reached, needed[own])]

        map_row_blocks(select, len(Z), len(self.scores))
        return found


class Window:
    """Points in the order of r_i and of their places, to solve few thresholds of each new row."""

    def __init__(self, bag: BagInPlaces) -> None:
        self.bag, scale = bag, bag.calibration_scale(0.5)
        ratio = rescale(bag.scores, scale)
        self.order = np.argsort(ratio)
        self.ratio, self.position = ratio[self.order], np.argsort(self.order)
        self.by_place = np.argsort(bag.place, kind="stable")
        self.start = np.cumsum(bag.size) - bag.size
        self.least = np.minimum.reduceat(scale[self.by_place], self.start)
        self.place_weight = bag.weight[self.by_place[self.start]]

    def ranked(self, Z: FloatArray, weight: FloatArray, scale: FloatArray, rank: int) -> FloatArray:
        """The rank-th smallest threshold of new rows with these weights and scales, (m,)."""
        n = len(self.ratio)
        most = min(int(EXCEPTIONS * n), n - rank)
        with np.errstate(all="ignore"):  # what is no number is an exception
            highest = scale * self.ratio[rank - 1 + most] / (1 - DELTA) + self.bag.offset
            stretch = np.maximum(1.0, highest[:, None] / self.least)
            exceptional = ~(stretch * weight / (self.place_weight + weight) <= DELTA * (1 - 1e-9))
        count = exceptional @ self.bag.size
        few = count <= most
        found = np.empty(len(scale))
        if not few.all():
            values = self.bag.thresholds(Z[~few])
            found[~few] = np.partition(values, rank - 1, axis=1)[:, rank - 1]
        if few.any():
            rows = weight[few], scale[few], exceptional[few]
            found[few] = self._merged(*rows, rank, int(count[few].max()))
        return found

    def _merged(
        self, weight: FloatArray, scale: FloatArray, exceptional: BoolArray, rank: int, most: int
    ) -> FloatArray:
        """The same where no row has more than ``most`` exceptions."""
        bag, q = self.bag, (1 - DELTA) / (1 + DELTA) * (1 - 1e-9)
        below, above = self.ratio[max(rank - 1 - most, 0)], self.ratio[rank - 1 + most]
        low = int(np.searchsorted(self.ratio, below * q)) if rank > most else 0
        high = int(np.searchsorted(self.ratio, above / q, side="right"))

        def solved(entering: FloatArray, point: IntArray, scale: FloatArray) -> FloatArray:
            return bag.solved(
                entering, bag.total[point], bag.weight[point], bag.scores[point], scale
            )

        inside = self.order[low:high]
        window = solved(weight[:, bag.place[inside]], inside, scale[:, None])
        row, place = np.nonzero(exceptional)
        size = bag.size[place]
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        row, place = np.repeat(row, size), np.repeat(place, size)
        point = self.by_place[self.start[place] + within]
        value = solved(weight[row, place], point, scale[row])
        listed = pad_exceptions(row, self.position[point], value, len(scale), len(self.ratio))
        return merged_order_statistic(window, low, *listed, rank)
