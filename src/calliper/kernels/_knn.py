"""The K nearest neighbours speak for a point, each as loudly as the next.

Without two points. For a new point x with nearest calibration points n_1, …, n_{K+1}, leaving
calibration point i out changes the mean only if i is one of n_1 … n_K, and then n_{K+1} takes its
place:

    ŝ_{N+1,i} = c = (1/K) Σ_k s_{n_k}                      for i ∉ {n_1 … n_K}
    ŝ_{N+1,i} = c + (s_{n_{K+1}} − s_i) / K                 for i ∈ {n_1 … n_K}

So of the N products ŝ_{N+1,i} s_i⁺ all but K are a common multiple of values sorted once.
Dropping i without its replacement would treat new and calibration points unlike one another.

Over the bag, which is the calibration set with the new point in it. The new point's score t enters
the scale ŝ_i(t) of a calibration point only where it is among its K nearest. Any ŝ_i(t) that does
not decrease in t gives one crossing t_i, where s_i / ŝ_i(t) = t / ŝ_{N+1}:

    t_i = ŝ_{N+1} · s_i / ŝ_i          where it does not enter: presorted multiples
    t_i = the crossing of the statistic     where it enters: about K points a row

and a reverse-neighbour search replaces a scan of all N for every level. The crossings of mean and
quantile are in ``_statistic.py``.

Points at the same distance share the last place (``_shared.py``): rows that have more than one
candidate for it take their sums and order statistics from there, and so does a new point that
comes just as near as the last neighbour. All else is written for rows that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from calliper._blocks import BLOCK_FLOATS, CHUNK_ROWS, map_row_blocks, map_slices, row_slices
from calliper._types import FloatArray, IntArray
from calliper.exceptions import SmallCalibrationWarning, warn
from calliper.kernels._base import (
    Kernel,
    LeaveTwoOut,
    Rng,
    Rows,
    ScalesAtLevel,
    rescale,
    signed_root,
    times,
)
from calliper.kernels._nearest import (
    NearestMean,
    NearestMeansWithout,
    NearestQuantile,
    sums_of_others,
)
from calliper.kernels._search import (
    EUCLIDEAN,
    Metric,
    NeighborSearch,
    check_metric,
    unique_rows,
)
from calliper.kernels._shared import SharedNeighbors
from calliper.kernels._statistic import STATISTICS, Edge, MeanStatistic, QuantileStatistic
from calliper.quantile import (
    conformal_rank,
    merged_multiple,
    pad_exceptions,
)

#: Pairs of a new row and a calibration point that are held in memory at a time.
MOST_PAIRS = 1 << 22


class KNN(Kernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = 1 if x' is among the K nearest of x, else 0: the kernel of the paper, K = 10.

    "Nearest" is meant inside the set that the mean is taken over: if a point is left out of the
    set, the next nearest takes its place. Points that are just as far as the K-th share its place
    equally: nothing is drawn, and copies of a row speak as one.

    Parameters
    ----------
    n_neighbors : int, default 10
        K. Small follows the error closely and noisily, large approaches plain split conformal.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes. The Euclidean one
        is searched by trees or matrix products, all others by comparing every pair.
    """

    by_distance = True
    counts_neighbors = True

    def __init__(self, n_neighbors: int = 10, *, metric: Metric = EUCLIDEAN) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

    def resolved(self, Z_train: Rows = None, rng: Rng | None = None) -> KNN:
        """A copy with its parameters checked."""
        check_metric(self.metric)
        return KNN(check_neighbors(self.n_neighbors), metric=self.metric)

    def at_most(self, largest: int) -> int:
        """K, or all points there are, with a warning."""
        if self.n_neighbors > largest:
            warn(
                f"{self.n_neighbors} neighbours were asked for but a calibration point has only "
                f"{largest} to choose from: all are used, which leaves little or no adaptivity. "
                f"Calibrate on more points or ask for fewer neighbours.",
                SmallCalibrationWarning,
            )
        return int(min(self.n_neighbors, largest))

    def leave_two_out(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        *,
        offset: float,
        rng: Rng,
        Z_train: Rows = None,
    ) -> LeaveTwoOutKNN:
        """Scales of the Jackknife+ for N ≥ 2 calibration points."""
        search = NeighborSearch(Z, self.metric)
        return LeaveTwoOutKNN(search, magnitudes, self.at_most(len(Z) - 1), offset)

    def bag(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        statistic: str,
        offset: float,
    ) -> BagKNN:
        """Thresholds of full conformal."""
        return BagKNN(
            NeighborSearch(Z, self.metric),
            magnitudes,
            scores,
            n_neighbors=self.at_most(len(Z)),
            statistic=STATISTICS[statistic],
            offset=offset,
        )

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> NearestMean:
        """Mean over the K nearest."""
        return NearestMean(NeighborSearch(Z, self.metric), magnitudes, self.at_most(len(Z)))

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> NearestQuantile:
        """Quantile of the K nearest."""
        return NearestQuantile(NeighborSearch(Z, self.metric), scores, self.at_most(len(Z)))

    def widened(self, multiple: float, most: int) -> KNN:
        """The same with K multiplied, at least 1 and at most ``most``."""
        k = max(1, min(round(self.n_neighbors * multiple), most))
        return KNN(k, metric=self.metric)

    @classmethod
    def scales_of_others(
        cls,
        kernels: Sequence[KNN],
        Z: FloatArray,
        magnitudes: FloatArray,
        *,
        statistic: str,
    ) -> ScalesAtLevel:
        """Scales over the K nearest others; neighbours are sorted once for all K."""
        ks = [kernel.n_neighbors for kernel in kernels]
        search = NeighborSearch(Z, kernels[0].metric)
        near, tied = search.nearest_others(max(ks))
        member, shared = magnitudes[near], SharedNeighbors(search, magnitudes)
        tied |= search.any_equal(near)
        crowded = np.flatnonzero(tied)
        if statistic == "quantile":
            nearest = [
                QuantileStatistic(member[:, : k - 1], member[:, k - 1], 0.0, shared, crowded)
                for k in ks
            ]
            return lambda level: np.stack([each.of_calibration(level) for each in nearest])
        sums = np.cumsum(member, axis=1)
        means = np.stack([sums[:, k - 1] / k for k in ks])
        if len(crowded):
            of_tied = shared.sums_of_others(crowded, ks)
            means[:, crowded] = [sums.total / k for k, sums in zip(ks, of_tied, strict=True)]
        return lambda level: means


def check_neighbors(k: Any) -> int:
    """K as an int."""
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"n_neighbors must be an integer >= 1; got {k!r}.")
    return int(k)


class LeaveTwoOutKNN(LeaveTwoOut):
    """Means over the K nearest, K ≤ N − 1, with one or two points left out."""

    def __init__(
        self, search: NeighborSearch, magnitudes: FloatArray, n_neighbors: int, offset: float
    ) -> None:
        self.search, self.magnitudes = search, magnitudes
        self.n_neighbors, self.offset = n_neighbors, offset
        others, tied = search.nearest_others(n_neighbors)
        self.without_one: FloatArray = magnitudes[others].mean(axis=1) + offset
        self.shared = SharedNeighbors(search, magnitudes)
        if tied.any():
            (sums,) = self.shared.sums_of_others(np.flatnonzero(tied), [n_neighbors])
            self.without_one[tied] = sums.total / n_neighbors + offset

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}, remembered in ascending order."""
        self.ordered, self.place = in_order(super().prepare(scores))
        return self.rescaled

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows without each calibration point."""
        everyone = np.arange(len(self.magnitudes))
        means = NearestMeansWithout(self.search, self.magnitudes, self.n_neighbors, everyone)
        return means(Z) + self.offset

    def largest(self, Z: FloatArray) -> FloatArray:
        """Leave out the smallest of the K nearest for the next nearest, if larger: (m,), O(K)."""
        found = np.empty(len(Z))
        for rows in row_slices(len(Z), CHUNK_ROWS):
            near, tied = self.search.nearest(Z[rows], self.n_neighbors + 1)
            inner, following = self.magnitudes[near[:, :-1]], self.magnitudes[near[:, -1]]
            gain = np.maximum(following - inner.min(axis=1), 0.0)
            found[rows] = (inner.sum(axis=1) + gain) / self.n_neighbors + self.offset
            if tied.any():
                found[rows][tied] = of_different(self._largest_of_tied, Z[rows][tied])
        return found

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""
        radius = np.empty((len(Z), len(ranks)))
        for chunk in row_slices(len(Z), max(1, min(CHUNK_ROWS, (1 << 22) // self.n_neighbors))):
            near, tied = self.search.nearest(Z[chunk], self.n_neighbors + 1)
            part = radius[chunk]

            def select(rows: slice, near: IntArray = near, part: FloatArray = part) -> None:
                part[rows] = self._select(near[rows], ranks)

            map_row_blocks(select, len(near), 4 * self.n_neighbors)
            if tied.any():
                part[tied] = of_different(partial(self._of_tied, ranks=ranks), Z[chunk][tied])
        return radius

    def _select(self, near: IntArray, ranks: list[int]) -> FloatArray:
        """The order statistics of rows with neighbours ``near`` (m, K+1) and no tie, (m, L)."""
        inner, replacement = near[:, :-1], self.magnitudes[near[:, -1:]]
        member = self.magnitudes[inner]
        without_two = sums_of_others(member, replacement) / self.n_neighbors
        return self._merge(inner, member.mean(axis=1), without_two, ranks)

    def _merge(
        self, points: IntArray, mean: FloatArray, without: FloatArray, ranks: list[int]
    ) -> FloatArray:
        """The order statistics, (m, L), given means ``without`` some points, (m, W), and others."""
        value, place = times(without + self.offset, self.rescaled[points]), self.place[points]
        mean = mean + self.offset
        columns = [merged_multiple(self.ordered, mean, place, value, rank) for rank in ranks]
        return np.stack(columns, axis=1)

    def _of_tied(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """The order statistics of rows with a tie, (m, L)."""
        few, points, without, mean = self.shared.few_without(Z, self.n_neighbors)
        radius = np.empty((len(Z), len(ranks)))
        radius[few] = self._merge(points, mean, without, ranks)
        if not few.all():
            radius[~few] = super().order_statistics(Z[~few], ranks)
        return radius

    def _largest_of_tied(self, Z: FloatArray) -> FloatArray:
        """The largest of the scales without each point, of rows with a tie, (m,)."""
        few, points, without, mean = self.shared.few_without(Z, self.n_neighbors)
        others = mean if points.shape[1] < len(self.magnitudes) else 0.0
        found = np.empty(len(Z))
        found[few] = np.maximum(without.max(axis=1, initial=0.0), others) + self.offset
        if not few.all():
            found[~few] = super().largest(Z[~few])
        return found


def of_different(function: Callable[[FloatArray], FloatArray], rows: FloatArray) -> FloatArray:
    """``function(rows)``, whose rows do not depend on one another, asked once for equal rows."""
    different, inverse = unique_rows(rows)
    return function(different)[inverse]


class BagKNN:
    """Thresholds t_i over the K nearest, K ≤ N."""

    def __init__(
        self,
        search: NeighborSearch,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        n_neighbors: int,
        statistic: type[MeanStatistic] | type[QuantileStatistic],
        offset: float,
    ) -> None:
        self.search, self.magnitudes, self.scores = search, magnitudes, scores
        self.n_neighbors, self.offset = n_neighbors, offset
        n = len(scores)
        # With K = N a point has only K−1 others, so the new one always enters.
        self.always_enters = n_neighbors == n
        others, tied = search.nearest_others(min(n_neighbors, n - 1))
        inner, last = others, np.full(n, np.inf)
        if not self.always_enters:
            self.reach = search.distance_to(others[:, -1])
            inner, last = others[:, :-1], magnitudes[others[:, -1]]
        self.crowded = np.flatnonzero(tied & (not self.always_enters))
        self.shared = SharedNeighbors(search, magnitudes)
        self.statistic = statistic(magnitudes[inner], last, offset, self.shared, self.crowded)
        self._orders: dict[int, tuple[FloatArray, IntArray]] = {}

    def with_offset(self, offset: float) -> Self:
        """The same bag with another constant added to every scale; nothing is searched again."""
        other = copy(self)
        other.offset, other._orders, other.statistic = offset, {}, copy(self.statistic)
        other.statistic.offset = offset
        return other

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points that the new point does not enter, (N,)."""
        return self.statistic.of_calibration(level)

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        if len(self.crowded):
            # Repeated inputs: a row has the threshold of its twins, and twins enter by thousands.
            return of_different(lambda rows: self._by_chunks(rows, levels), Z)
        return self._by_chunks(Z, levels)

    def rising_order_statistic(self, Z: FloatArray, level: float, slope: float) -> FloatArray:
        """The Q-th smallest threshold, (m,), if slope·t is added to all scales; O(N) a row."""
        rank = conformal_rank(level, len(self.scores))
        linear = self.calibration_scale(level) - slope * self.scores
        answer = np.empty(len(Z))
        for rows in row_slices(len(Z), max(1, BLOCK_FLOATS // len(linear))):
            scale = self._scales_of_new(Z[rows], [level])[0]
            threshold = signed_root(slope, linear, self.scores * scale[:, None])
            row, point, at_edge = self._entered(Z[rows])
            threshold[row, point] = self.statistic.rising_crossing(
                point, at_edge, self.scores[point], scale[row], slope, level
            )
            answer[rows] = np.partition(threshold, rank - 1, axis=1)[:, rank - 1]
        return answer

    def _by_chunks(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """Chunks so large that their pairs fit in memory, judged by the pairs of the last."""
        parts, start = [], 0
        size = max(1, min(CHUNK_ROWS, MOST_PAIRS // (8 * self.n_neighbors)))
        if len(self.crowded):  # any row may enter all of them
            size = max(1, min(size, MOST_PAIRS // len(self.scores)))
        while start < len(Z):
            radius, n_pairs = self._thresholds(Z[start : start + size], levels)
            parts.append(radius)
            start += len(radius)
            size = min(CHUNK_ROWS, 2 * size, MOST_PAIRS * len(radius) // max(1, n_pairs))
            size = max(1, size)
        return np.concatenate(parts)

    def _thresholds(self, Z: FloatArray, levels: list[float]) -> tuple[FloatArray, int]:
        """Thresholds, and the number of pairs that had to be looked at."""
        scales = self._scales_of_new(Z, levels)
        row, point, at_edge = self._entered(Z)
        radius = np.empty((len(Z), len(levels)))
        for column, (level, scale) in enumerate(zip(levels, scales, strict=True)):
            product = self.scores[point] * scale[row]
            with np.errstate(over="ignore"):
                value = self.statistic.crossing(point, at_edge, product, level)
            ordered, place = self._ordered(level)
            rank = conformal_rank(level, len(ordered))
            radius[:, column] = _select(ordered, scale, row, place[point], value, rank)
        return radius, len(row) + len(Z) * self.n_neighbors

    def _scales_of_new(self, Z: FloatArray, levels: list[float]) -> list[FloatArray]:
        """The scale of each new row at each level, (m,) each."""
        near, tied = self.search.nearest(Z, self.n_neighbors)
        member = self.magnitudes[near]
        scales = {}
        for level in levels:
            key = self.statistic.key(level)
            if key not in scales:
                scales[key] = self.statistic.of_new(member, level)
                if tied.any():
                    scales[key][tied] = self.statistic.of_tied(Z[tied], level)
        return [scales[self.statistic.key(level)] for level in levels]

    def _ordered(self, level: float) -> tuple[FloatArray, IntArray]:
        """The ratios s_i / ŝ_i in ascending order, and the place of each point among them."""
        key = self.statistic.key(level)
        if key not in self._orders:
            ratio = rescale(self.scores, self.calibration_scale(level))
            self._orders[key] = in_order(ratio)
        return self._orders[key]

    def _entered(self, Z: FloatArray) -> tuple[IntArray, IntArray, Edge]:
        """Pairs (new row, calibration point) where the new row is among the point's K nearest.

        The third array says where it is just as far as the K-th.
        """
        if self.always_enters:
            n = len(self.scores)
            row, point = np.repeat(np.arange(len(Z)), n), np.tile(np.arange(n), len(Z))
            return row, point, np.zeros(len(row), dtype=bool)
        return self.search.balls_containing(Z, self.reach)


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


def in_order(values: FloatArray) -> tuple[FloatArray, IntArray]:
    """(N,) values in ascending order, and the place of each among them."""
    order = np.argsort(values)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return values[order], place
