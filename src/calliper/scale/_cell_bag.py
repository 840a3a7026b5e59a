"""Thresholds over the bag where members look for their neighbours in a few cells (``_cells.py``).

A member with n candidates is rescaled by the mean over min(K, n) of them; where n < K, a new point
that is a candidate always enters, and is one more. A member without any is rescaled by the median
of the whole bag, g(t) = min(max(t, a), b), with a ≤ b two neighbouring order statistics of the
calibration magnitudes: the same for all members, and not decreasing in t. So there is still one
crossing t_i each. At any t the comparison is the one with the constant g(t) in its place, and
t/g(t) does not decrease: what holds with b and ends at b or beyond ends there; else what holds with
a and ends at a or before ends there; else it ends between, where g(t) = t. With constants, all is
as in ``_knn.py``, with min(K, n) in the place of K. An offset is added to every scale, and so is
slope·t where it is asked for.
"""

from typing import Any

import numpy as np

from calliper import kernels
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.quantile import Shares, row_order_statistics, row_thresholds, with_signs
from calliper.rows import Rows
from calliper.scale._cells import CellSearch, Found, Placed


class CellMean(kernels.MeanStatistic):
    """Mean of up to K candidates of N points.

    Parameters
    ----------
    found : the nearest of each point
    magnitudes : (N,)
    k, offset : K, and the constant added to every scale
    middle : the scale of a point without candidates
    tied : of the points with a shared last place, sums over nearer and over tied ones
    """

    def __init__(
        self,
        found: Found,
        magnitudes: FloatArray,
        k: int,
        offset: float,
        middle: float,
        tied: kernels.SharedSums,
    ) -> None:
        self.k, self.offset, self.middle = k, offset, middle
        short = found.size < k
        member = np.where(found.near < 0, 0.0, magnitudes[found.near])
        self.full_sum = kernels.sum_of_each(member)
        self.inner_sum = np.where(short, self.full_sum, kernels.sum_of_each(member[:, :-1]))
        #: Of how many the mean is, without a new point that enters and with it.
        self.n_full = np.clip(found.size, 1, k)
        self.n_entered = np.minimum(found.size + 1, k)
        self.edge_weight = np.full(len(short), 0.5)
        self.edge_sum = self.inner_sum + 0.5 * np.where(short, 0.0, member[:, -1])
        crowded = np.flatnonzero(found.tied)
        self.edge_weight[crowded] = weight = tied.seats / (tied.size + 1)
        self.edge_sum[crowded] = tied.near + weight * tied.tied
        self.inner_sum[crowded] = tied.near + (tied.seats - 1) / tied.size * tied.tied
        self.full_sum[crowded] = tied.total
        self.alone = found.size == 0

    def of_calibration(self, level: float) -> FloatArray:
        scale = np.where(self.alone, self.middle, self.full_sum / self.n_full)
        return np.asarray(scale + self.offset)

    def crossing(self, entering: kernels.Entering, level: float, slope: float = 0.0) -> FloatArray:
        """t_i for points that new rows enter."""
        n = self.n_entered[entering.point]
        weight, others = self._entered(entering.point, entering.at_edge)
        if not slope:
            return kernels.positive_root(weight, others + n * self.offset, n * entering.product)
        linear = others / n + self.offset - slope * entering.score
        return kernels.signed_root(slope + weight / n, linear, entering.product)

    def between(
        self,
        pairs: kernels.Pairs,
        scale: FloatArray,
        alone: BoolArray,
        scores: FloatArray,
        slope: float,
    ) -> FloatArray:
        """All t_i, (m, N), where g(t) = t, of rows with these scales that enter these points.

        s_i·(c + ut + o + κt) ≥ t·(A_i + w_i t + o + κt); alone are c = 0 and u = 1, A = 0, w = 1.
        """
        row, point, at_edge = pairs
        weight, mean = np.zeros((len(scale), len(scores))), np.empty((len(scale), len(scores)))
        weight[:], mean[:] = self.alone, np.where(self.alone, 0.0, self.full_sum / self.n_full)
        entered, others = self._entered(point, at_edge)
        weight[row, point] = entered / self.n_entered[point]
        mean[row, point] = others / self.n_entered[point]
        quadratic = weight + slope
        linear = mean + self.offset - scores * (alone[:, None] + slope)
        constant = scores * np.where(alone, self.offset, scale)[:, None]
        # Where nothing is quadratic, it ends at once or never.
        flat = quadratic == 0
        found = kernels.signed_root(np.where(flat, 1.0, quadratic), linear, constant)
        found[flat] = np.inf
        np.divide(constant, linear, out=found, where=flat & (linear > 0))
        return found


class BagCells(kernels.BagKNN):
    """Thresholds t_i over the K nearest of the candidates."""

    search: Any
    always_enters = False

    def __init__(
        self,
        search: CellSearch,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        n_neighbors: int,
        offset: float,
    ) -> None:
        self.search, self.magnitudes, self.scores = search, magnitudes, scores
        self.n_neighbors, self.offset = n_neighbors, offset
        #: The smallest positive magnitude and the largest, between which sums are exact.
        self.ends = np.array([magnitudes[magnitudes > 0].min(initial=np.inf), magnitudes.max()])
        self.ends = self.ends[np.isfinite(self.ends)]
        middle = (len(magnitudes) + 2) // 2
        self.low, self.high = np.partition(magnitudes, [middle - 2, middle - 1])[
            middle - 2 : middle
        ]
        found = search.nearest_others(n_neighbors)
        self.reach, self.crowded = found.reach, np.flatnonzero(found.tied)
        tied, reach = self._settled(search.placed, self.crowded, self.crowded)
        self.reach[self.crowded] = reach
        self.statistic: Any = CellMean(found, magnitudes, n_neighbors, offset, self.high, tied)
        self._orders = {}

    def extended(self, rows: Rows) -> None:
        """None: all points are searched again."""

    def for_file(self) -> dict[str, Any]:
        """Nothing: cells are searched again."""
        return {}

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        new, pairs = self._around(Z)
        scale, alone = self._scales(new)
        found = self._thresholds(pairs, scale, level, slope)
        if not self.statistic.alone.any() and not alone.any():
            return found
        a, b, at_low = self.low, self.high, self.with_offset(self.offset)
        at_low.statistic.middle = a
        low = at_low._thresholds(pairs, np.where(alone, a + self.offset, scale), level, slope)
        between = self.statistic.between(pairs, scale, alone, self.scores, slope)
        # Where a = 0 nothing is compared at t = 0, and something beyond.
        below = np.where((low > a) | (a == 0), np.clip(between, a, b), low)
        return np.where(found < b, below, found)

    def _one_chunk(
        self, Z: FloatArray, asked: kernels.Asked, shares: Shares | None
    ) -> tuple[FloatArray, int]:
        """As for constant scales of what has no candidates, unless a radius is below these."""
        new = self._placed(Z)
        radius, n_pairs = super()._one_chunk(new, asked, shares)  # type: ignore[arg-type]
        levels, ranks, signs = asked
        below = np.abs(radius).min(axis=1, initial=np.inf) < self.high
        for row in np.flatnonzero(below & ((self._count(new) == 0) | self.statistic.alone.any())):
            one = slice(row, row + 1)
            values = self.thresholds(Z[one])
            if signs is not None:
                values = with_signs(values, signs)
            own = shares and shares.of_rows(one)
            if own is None:
                radius[row] = row_order_statistics(values, ranks)[0]
            else:
                radius[row] = row_thresholds(values, levels, own)[0]
        return radius, n_pairs

    def _placed(self, Z: Any) -> Placed:
        return Z if isinstance(Z, Placed) else self.search.locate(Z)

    def _around(self, Z: Any) -> tuple[Placed, kernels.Pairs]:
        """New rows in their cells, and pairs (new row, calibration point) where it is near."""
        new = self._placed(Z)
        return new, self.search.entering(new, self.reach)

    def _scales_of_new(
        self, Z: Any, levels: list[float], found: Placed
    ) -> dict[int, tuple[float, FloatArray]]:
        """The scale of each row, (m,), which is the same at every level, by its key."""
        return {0: (levels[0], self._scales(found)[0])}

    def _count(self, new: Placed) -> IntArray:
        """How many candidates rows have, (m,)."""
        return np.asarray(self.search.size[new.probes].sum(axis=1))

    def _scales(self, new: Placed) -> tuple[FloatArray, BoolArray]:
        """The scale of each row, with b in the place of g(t) where it has no candidates: (m,)."""
        found = self.search.nearest(new, self.n_neighbors)
        member = np.where(found.near < 0, 0.0, self.magnitudes[found.near])
        mean = kernels.sum_of_each(member) / np.clip(found.size, 1, self.n_neighbors)
        tied = np.flatnonzero(found.tied)
        mean[tied] = self._settled(new, tied)[0].total / self.n_neighbors
        alone = found.size == 0
        return np.where(alone, self.high, mean) + self.offset, alone

    def _settled(
        self, new: Placed, rows: IntArray, own: IntArray | None = None
    ) -> tuple[kernels.SharedSums, FloatArray]:
        """Sums over nearer and over tied candidates of some rows, and their reach.

        All candidates are compared; ``own`` says which points the rows are.
        """
        parts, reach, grid = np.empty((4, len(rows))), np.empty(len(rows)), kernels.Grid(self.ends)
        for number, row in enumerate(rows):
            point = None if own is None else int(own[number])
            near, distance = self.search.of_one(new.rows[row], new.probes[row], point)
            shells = kernels.Shells.of_points(distance, self.n_neighbors)
            near_sum, tied_sum = (
                grid.rounded(grid.sums(mask * self.magnitudes[near], lambda each: each.sum(axis=1)))
                for mask in (shells.near, shells.tied)
            )
            parts[:, number] = near_sum[0], tied_sum[0], shells.seats[0], shells.size[0]
            reach[number] = np.partition(distance[0], self.n_neighbors - 1)[self.n_neighbors - 1]
        return kernels.SharedSums(*parts), reach
