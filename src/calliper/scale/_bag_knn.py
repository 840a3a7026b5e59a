"""Full conformal thresholds with scales over the K nearest neighbours of the whole bag.

The bag is the calibration set with the new point in it. The new point changes the scale of a
calibration point only where it enters the K nearest, so the thresholds are

    t_i = ŝ_{N+1} · s_i / ŝ_i                       where it does not enter: presorted multiples
    t_i = the crossing of the statistic             where it enters: about K points a row

and a reverse-neighbour search replaces a scan of all N for every level.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from calliper._blocks import BLOCK_FLOATS, CHUNK_ROWS, map_slices, row_slices
from calliper._types import FloatArray, IntArray
from calliper.kernels._search import NeighborSearch
from calliper.quantile import conformal_rank, merged_multiple, pad_exceptions
from calliper.scale._ratio import rescale
from calliper.scale._statistic import MeanStatistic, QuantileStatistic, signed_root

#: Pairs of a new row and a calibration point that are held in memory at a time.
MOST_PAIRS = 1 << 22


class BagKNN:
    """Thresholds t_i of the full method.

    Parameters
    ----------
    search : the calibration points
    magnitudes, scores : (N,) what scales are made of, and what is divided by them
    n_neighbors : K, at most N
    statistic : class that turns K magnitudes into a scale
    offset : constant added to every scale
    priority : tie priority of the new point
    """

    def __init__(
        self,
        search: NeighborSearch,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        n_neighbors: int,
        statistic: type[MeanStatistic] | type[QuantileStatistic],
        offset: float,
        priority: float,
    ) -> None:
        self.search, self.magnitudes, self.scores = search, magnitudes, scores
        self.n_neighbors, self.offset, self.priority = n_neighbors, offset, priority
        n = len(scores)
        # With K = N a point has only K−1 others, so the new one always enters.
        self.always_enters = n_neighbors == n
        others = search.nearest_others(min(n_neighbors, n - 1))
        inner, last = others, np.full(n, np.inf)
        if not self.always_enters:
            self.reach = search.distance_to(others[:, -1])
            self.edge = search.priorities[others[:, -1]]
            inner, last = others[:, :-1], magnitudes[others[:, -1]]
        self.statistic = statistic(magnitudes[inner], last, offset)
        self._orders: dict[int, tuple[FloatArray, IntArray]] = {}

    def with_offset(self, offset: float) -> BagKNN:
        """The same bag with another constant added to every scale; nothing is searched again."""
        other = copy(self)
        other.offset, other._orders = offset, {}
        other.statistic = self.statistic.with_offset(offset)
        return other

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points that the new point does not enter, (N,)."""
        return self.statistic.of_calibration(level)

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        if not self.always_enters and (self.reach == 0).any():
            # Repeated inputs: a row has the threshold of its twins, and twins enter by thousands.
            Z, inverse = np.unique(Z, axis=0, return_inverse=True)
            return self._by_chunks(Z, levels)[inverse.reshape(-1)]
        return self._by_chunks(Z, levels)

    def rising_order_statistic(self, Z: FloatArray, level: float, slope: float) -> FloatArray:
        """The Q-th smallest threshold, (m,), if slope·t is added to all scales; O(N) a row."""
        rank = conformal_rank(level, len(self.scores))
        linear = self.calibration_scale(level) - slope * self.scores
        answer = np.empty(len(Z))
        for rows in row_slices(len(Z), max(1, BLOCK_FLOATS // len(linear))):
            member = self.magnitudes[self.search.nearest(Z[rows], self.n_neighbors)]
            scale = self.statistic.of_new(member, level)
            threshold = signed_root(slope, linear, self.scores * scale[:, None])
            row, point = self._entered(Z[rows])
            threshold[row, point] = self.statistic.rising_crossing(
                point, self.scores[point], scale[row], slope, level
            )
            answer[rows] = np.partition(threshold, rank - 1, axis=1)[:, rank - 1]
        return answer

    def _by_chunks(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """Chunks so large that their pairs fit in memory, judged by the pairs of the last."""
        parts, start = [], 0
        size = max(1, min(CHUNK_ROWS, MOST_PAIRS // (8 * self.n_neighbors)))
        while start < len(Z):
            radius, n_pairs = self._thresholds(Z[start : start + size], levels)
            parts.append(radius)
            start += len(radius)
            size = min(CHUNK_ROWS, 2 * size, MOST_PAIRS * len(radius) // max(1, n_pairs))
            size = max(1, size)
        return np.concatenate(parts)

    def _thresholds(self, Z: FloatArray, levels: list[float]) -> tuple[FloatArray, int]:
        """Thresholds, and the number of pairs that had to be looked at."""
        member = self.magnitudes[self.search.nearest(Z, self.n_neighbors)]
        row, point = self._entered(Z)
        radius = np.empty((len(Z), len(levels)))
        for column, level in enumerate(levels):
            scale = self.statistic.of_new(member, level)
            with np.errstate(over="ignore"):
                value = self.statistic.crossing(point, self.scores[point] * scale[row], level)
            ordered, place = self._ordered(level)
            rank = conformal_rank(level, len(ordered))
            radius[:, column] = _select(ordered, scale, row, place[point], value, rank)
        return radius, len(row) + member.size

    def _ordered(self, level: float) -> tuple[FloatArray, IntArray]:
        """The ratios s_i / ŝ_i in ascending order, and the place of each point among them."""
        key = self.statistic.key(level)
        if key not in self._orders:
            ratio = rescale(self.scores, self.calibration_scale(level))
            order = np.argsort(ratio)
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            self._orders[key] = ratio[order], place
        return self._orders[key]

    def _entered(self, Z: FloatArray) -> tuple[IntArray, IntArray]:
        """Pairs (new row, calibration point) where the new row is among the point's K nearest."""
        if self.always_enters:
            n = len(self.scores)
            return np.repeat(np.arange(len(Z)), n), np.tile(np.arange(n), len(Z))
        return self.search.balls_containing(Z, self.reach, self.edge, self.priority)


def _select(
    ordered: FloatArray,
    factor: FloatArray,
    row: IntArray,
    position: IntArray,
    value: FloatArray,
    rank: int,
) -> FloatArray:
    """Rank-th smallest for each row; rows with alike numbers of exceptions are merged together."""
    n_rows = len(factor)
    count = np.bincount(row, minlength=n_rows)
    start = np.cumsum(count) - count
    by_count = np.argsort(count, kind="stable")
    answer = np.empty(n_rows)

    def merge(block: slice) -> None:
        rows = by_count[block]
        entries = np.arange(count[rows].sum())
        local = np.repeat(np.arange(len(rows)), count[rows])
        first = np.cumsum(count[rows]) - count[rows]
        source = start[rows][local] + entries - first[local]
        padded = pad_exceptions(local, position[source], value[source], len(rows), len(ordered))
        answer[rows] = merged_multiple(ordered, factor[rows], *padded, rank)

    map_slices(merge, _alike(count[by_count]))
    return answer


def _alike(count: IntArray, most_rows: int = 4096) -> list[slice]:
    """Slices of ascending counts whose padded windows fit a block."""
    slices, start = [], 0
    while start < len(count):
        largest = int(count[min(start + most_rows, len(count)) - 1])
        step = min(most_rows, max(1, BLOCK_FLOATS // (3 * largest + 1)))
        slices.append(slice(start, min(start + step, len(count))))
        start += step
    return slices
