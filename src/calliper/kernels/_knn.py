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

and a reverse-neighbour search replaces a scan of all N for every level. With C = s_i ŝ_{N+1} and
the K−1 other neighbours of i the crossings are

- mean, A = Σ of the others:    t² + A t − K C = 0
- quantile, the r-th smallest of K:  ŝ_i(t) = clamp(t, a, b) with a, b the (r−1)-th and r-th
  smallest of the others, so t = C/a if C ≤ a², √C if C ≤ b², C/b beyond.

A constant offset added to every scale keeps each equation quadratic, and so does an offset that
rises with t, κt, on both sides of the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import ceil
from numbers import Integral
from typing import Any

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
    positive_root,
    rescale,
    signed_root,
    times,
)
from calliper.kernels._search import EUCLIDEAN, Metric, NeighborSearch, check_metric
from calliper.quantile import (
    as_fraction,
    conformal_rank,
    merged_multiple,
    pad_exceptions,
    row_order_statistics,
)

#: Pairs of a new row and a calibration point that are held in memory at a time.
MOST_PAIRS = 1 << 22


class KNN(Kernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = 1 if x' is among the K nearest of x, else 0: the kernel of the paper, K = 10.

    "Nearest" is meant inside the set that the mean is taken over: if a point is left out of the
    set, the next nearest takes its place. Points at equal distance are ordered at random, by
    priorities that the calibrator draws once.

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
        search = NeighborSearch(Z, rng.uniform(size=len(Z)), self.metric)
        return LeaveTwoOutKNN(search, magnitudes, self.at_most(len(Z) - 1), offset)

    def bag(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        statistic: str,
        offset: float,
        priorities: FloatArray,
    ) -> BagKNN:
        """Thresholds of full conformal."""
        return BagKNN(
            NeighborSearch(Z, priorities[:-1], self.metric),
            magnitudes,
            scores,
            n_neighbors=self.at_most(len(Z)),
            statistic=STATISTICS[statistic],
            offset=offset,
            priority=float(priorities[-1]),
        )

    def mean(self, Z: FloatArray, magnitudes: FloatArray, priorities: FloatArray) -> NearestMean:
        """Mean over the K nearest."""
        search = NeighborSearch(Z, priorities, self.metric)
        return NearestMean(search, magnitudes, self.at_most(len(Z)))

    def local_quantile(
        self, Z: FloatArray, scores: FloatArray, priorities: FloatArray
    ) -> NearestQuantile:
        """Quantile of the K nearest."""
        search = NeighborSearch(Z, priorities, self.metric)
        return NearestQuantile(search, scores, self.at_most(len(Z)))

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
        rng: Rng,
    ) -> ScalesAtLevel:
        """Scales over the K nearest others; neighbours are sorted once for all K."""
        ks = [kernel.n_neighbors for kernel in kernels]
        search = NeighborSearch(Z, rng.uniform(size=len(Z)), kernels[0].metric)
        member = magnitudes[search.nearest_others(max(ks))]
        if statistic == "quantile":
            nearest = [QuantileStatistic(member[:, : k - 1], member[:, k - 1], 0.0) for k in ks]
            return lambda level: np.stack([each.of_calibration(level) for each in nearest])
        sums = np.cumsum(member, axis=1)
        means = np.stack([sums[:, k - 1] / k for k in ks])
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
        others = search.nearest_others(n_neighbors)
        self.without_one: FloatArray = magnitudes[others].mean(axis=1) + offset

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

        def largest(near: IntArray) -> FloatArray:
            inner, following = self.magnitudes[near[:, :-1]], self.magnitudes[near[:, -1]]
            gain = np.maximum(following - inner.min(axis=1), 0.0)
            return np.asarray((inner.sum(axis=1) + gain) / self.n_neighbors + self.offset)

        return self.search.over_nearest(Z, self.n_neighbors + 1, largest)

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""
        radius = np.empty((len(Z), len(ranks)))
        for chunk in row_slices(len(Z), max(1, min(CHUNK_ROWS, (1 << 22) // self.n_neighbors))):
            near = self.search.nearest(Z[chunk], self.n_neighbors + 1)
            part = radius[chunk]

            def select(rows: slice, near: IntArray = near, part: FloatArray = part) -> None:
                part[rows] = self._select(near[rows], ranks)

            map_row_blocks(select, len(near), 4 * self.n_neighbors)
        return radius

    def _select(self, near: IntArray, ranks: list[int]) -> FloatArray:
        inner, replacement = near[:, :-1], self.magnitudes[near[:, -1:]]
        member = self.magnitudes[inner]
        mean = member.mean(axis=1) + self.offset
        without_two = sums_of_others(member, replacement) / self.n_neighbors + self.offset
        value = times(without_two, self.rescaled[inner])
        place = self.place[inner]
        columns = [merged_multiple(self.ordered, mean, place, value, rank) for rank in ranks]
        return np.stack(columns, axis=1)


def sums_of_others(member: FloatArray, replacement: FloatArray) -> FloatArray:
    """For (m, K) members, the sum of all but each one, with the replacement (m, 1) in its place.

    Sums before and after each member: no cancellation, and exactly 0 if all others are 0.
    """
    others = replacement + np.zeros_like(member)
    others[:, 1:] += np.cumsum(member[:, :-1], axis=1)
    others[:, :-1] += np.cumsum(member[:, :0:-1], axis=1)[:, ::-1]
    return others


class BagKNN:
    """Thresholds t_i over the K nearest, K ≤ N; ``priority`` settles ties of the new point."""

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
        other.offset, other._orders, other.statistic = offset, {}, copy(self.statistic)
        other.statistic.offset = offset
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
            self._orders[key] = in_order(ratio)
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


def in_order(values: FloatArray) -> tuple[FloatArray, IntArray]:
    """(N,) values in ascending order, and the place of each among them."""
    order = np.argsort(values)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return values[order], place


class MeanStatistic:
    """Mean of the K neighbours. ``inner`` (N, K−1) are those that stay if a new point enters."""

    def __init__(self, inner: FloatArray, last: FloatArray, offset: float) -> None:
        self.k, self.offset = inner.shape[1] + 1, offset
        self.inner_sum = inner.sum(axis=1)
        self.full_sum = self.inner_sum + last

    def key(self, level: float) -> int:
        """Levels with equal keys have equal scales."""
        return 0

    def of_calibration(self, level: float) -> FloatArray:
        """Scales of the calibration points that the new point does not enter."""
        scale: FloatArray = self.full_sum / self.k + self.offset
        return scale

    def of_new(self, member: FloatArray, level: float) -> FloatArray:
        """Scale of new points with neighbours' scores ``member`` (m, K)."""
        scale: FloatArray = member.mean(axis=1) + self.offset
        return scale

    def crossing(self, point: IntArray, product: FloatArray, level: float) -> FloatArray:
        """t_i for points that the new one enters; ``product`` is C = s_i ŝ_{N+1}."""
        linear = self.inner_sum[point] + self.k * self.offset
        return positive_root(1.0, linear, self.k * product)

    def rising_crossing(
        self, point: IntArray, score: FloatArray, scale: FloatArray, slope: float, level: float
    ) -> FloatArray:
        """As :meth:`crossing` where slope·t is added to both scales, s_i's and ŝ_{N+1}."""
        linear = self.inner_sum[point] / self.k + self.offset - slope * score
        return signed_root(slope + 1 / self.k, linear, score * scale)


class QuantileStatistic:
    """The r-th smallest of the K neighbours, r = ⌈coverage·K⌉: a scale for each level."""

    def __init__(self, inner: FloatArray, last: FloatArray, offset: float) -> None:
        self.k, self.offset = inner.shape[1] + 1, offset
        self.inner = np.sort(inner, axis=1)
        self.full = np.sort(np.column_stack([inner, last]), axis=1)

    def of_calibration(self, level: float) -> FloatArray:
        """Scales of the calibration points that the new point does not enter."""
        scale: FloatArray = self.full[:, self.key(level) - 1] + self.offset
        return scale

    def of_new(self, member: FloatArray, level: float) -> FloatArray:
        """Scale of new points with neighbours' scores ``member`` (m, K)."""
        r = self.key(level)
        scale: FloatArray = np.partition(member, r - 1, axis=1)[:, r - 1] + self.offset
        return scale

    def crossing(self, point: IntArray, product: FloatArray, level: float) -> FloatArray:
        """t_i for points that the new one enters; ``product`` is C = s_i ŝ_{N+1}."""
        a, b = self._clamp(point, level)
        below = _divide(product, a + self.offset)
        between = positive_root(1.0, np.full(len(point), self.offset), product)
        above = _divide(product, b + self.offset)
        t = np.where(between <= b, between, above)
        t = np.where((between <= a) & (a > 0), below, t)
        # A scale that stays zero however large t is keeps the point ahead of every candidate.
        return np.where(b + self.offset == 0, np.inf, t)

    def rising_crossing(
        self, point: IntArray, score: FloatArray, scale: FloatArray, slope: float, level: float
    ) -> FloatArray:
        """As :meth:`crossing` where slope·t is added to both scales, s_i's and ŝ_{N+1}."""
        a, b = self._clamp(point, level)
        linear, constant = self.offset - slope * score, score * scale
        finite = np.where(np.isinf(b), 0.0, b)
        between = signed_root(slope + 1, linear, constant)
        t = np.where(between <= b, between, signed_root(slope, finite + linear, constant))
        return np.where(between <= a, signed_root(slope, a + linear, constant), t)

    def _clamp(self, point: IntArray, level: float) -> tuple[FloatArray, FloatArray]:
        """The a and b between which the scale of a point is the new score itself."""
        r = self.key(level)
        zero, unbounded = np.zeros(len(point)), np.full(len(point), np.inf)
        a = self.inner[point, r - 2] if r > 1 else zero
        return a, self.inner[point, r - 1] if r < self.k else unbounded

    def key(self, level: float) -> int:
        """r, the order statistic: levels with equal r have equal scales."""
        rank: int = ceil(as_fraction(level) * self.k)
        return rank


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


STATISTICS: dict[str, type[MeanStatistic] | type[QuantileStatistic]] = {
    "mean": MeanStatistic,
    "rms": MeanStatistic,
    "quantile": QuantileStatistic,
}


class NearestMean:
    """Mean over the K nearest of the points searched."""

    def __init__(self, search: NeighborSearch, magnitudes: FloatArray, n_neighbors: int) -> None:
        self.search, self.magnitudes, self.n_neighbors = search, magnitudes, n_neighbors

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        return self.search.over_nearest(
            Z, self.n_neighbors, lambda near: self.magnitudes[near].mean(axis=1)
        )


class NearestQuantile:
    """The ⌈level·K⌉-th smallest score of the K nearest of the points searched."""

    def __init__(self, search: NeighborSearch, scores: FloatArray, n_neighbors: int) -> None:
        self.search, self.scores, self.n_neighbors = search, scores, n_neighbors

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        ranks = [ceil(as_fraction(level) * self.n_neighbors) for level in levels]
        return self.search.over_nearest(
            Z, self.n_neighbors, lambda near: row_order_statistics(self.scores[near], ranks)
        )


class NearestFamily:
    """Nearest-neighbour kernels on fixed points; the candidate is K, at most N − 2."""

    def __init__(self, search: NeighborSearch, magnitudes: FloatArray) -> None:
        self.search, self.magnitudes = search, magnitudes

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i without i and m: only its K nearest make a difference."""
        near = self.search.nearest_others(int(candidate) + 1)
        return self.means_without(candidate, np.arange(len(self.magnitudes))).over(near)

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
        return self.over(self.search.nearest(Z, self.k + 1))

    def over(self, near: IntArray) -> FloatArray:
        """(m, members) means over the K nearest of ``near`` (m, K+1), the last as replacement."""
        member = self.magnitudes[near[:, :-1]]
        means = np.repeat(member.mean(axis=1)[:, None], len(self.members), axis=1)
        replaced = sums_of_others(member, self.magnitudes[near[:, -1:]]) / self.k
        place = self.place[near[:, :-1]]
        row, entry = np.nonzero(place >= 0)
        means[row, place[row, entry]] = replaced[row, entry]
        return means
