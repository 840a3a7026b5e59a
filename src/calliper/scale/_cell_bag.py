"""Thresholds over the bag where members look for their neighbours in a few cells (``_cells.py``).

A member with n candidates is rescaled by the mean over min(K, n) of them; where n < K, a new point
that is a candidate always enters, and is one more. A member without any is rescaled by the median
of the whole bag, g(t) = min(max(t, a), b), with a ≤ b two neighbouring order statistics of the
calibration magnitudes: the same for all members, and not decreasing in t. So there is still one
crossing t_i each:

    i has candidates                as in ``_knn.py``, with min(K, n) in the place of K
    i has none, the new is none     s_i ŝ_{N+1} = t·g(t), as for an order statistic
    i has none but the new point    s_i ŝ_{N+1} = t·t

and if the new point itself has no candidates, ŝ_{N+1} = g(t). At any t the comparison is the one
with the constant g(t) in its place, and t/g(t) does not decrease: what holds with b and ends at b
or beyond ends there; else what holds with a and ends at a or before ends there; else it ends
between, where g(t) = t. An offset is added to every scale, and so is slope·t where it is asked for.
"""

from typing import Any

import numpy as np

from calliper import kernels
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.quantile import Shares, row_order_statistics, row_thresholds, with_signs
from calliper.rows import Rows
from calliper.scale._cells import CellSearch, Found, Placed

#: How a pair is marked where the point has no candidates, and the new row is none of it.
ALONE = 2


class CellMean(kernels.MeanStatistic):
    """Mean of up to K candidates of N points.

    Parameters
    ----------
    found : the nearest of each point
    magnitudes : (N,)
    k, offset : K, and the constant added to every scale
    tied : of the points with a shared last place, sums over nearer and over tied ones
    """

    def __init__(
        self, found: Found, magnitudes: FloatArray, k: int, offset: float, tied: kernels.SharedSums
    ) -> None:
        self.k, self.offset = k, offset
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
        middle = (len(magnitudes) + 2) // 2
        below, above = np.partition(magnitudes, [middle - 2, middle - 1])[middle - 2 : middle]
        self.low, self.high = float(below), float(above)

    def of_calibration(self, level: float) -> FloatArray:
        scale = np.where(self.alone, self.high, self.full_sum / self.n_full)
        return np.asarray(scale + self.offset)

    def crossing(self, entering: kernels.Entering, level: float, slope: float = 0.0) -> FloatArray:
        """t_i for points that new rows enter, or that are alone."""
        alone, n = entering.at_edge == ALONE, self.n_entered[entering.point]
        weight, others = self._entered(entering.point, entering.at_edge == 1)
        if slope:
            linear = others / n + self.offset - slope * entering.score
            found = kernels.signed_root(slope + weight / n, linear, entering.product)
        else:
            found = kernels.positive_root(weight, others + n * self.offset, n * entering.product)
        score, product = entering.score[alone], entering.product[alone]
        found[alone] = kernels.clamped_crossing(
            self.low, self.high, self.offset, product, score, slope
        )
        return found

    def between(
        self, point: IntArray, at_edge: kernels.Edge, scores: FloatArray, slope: float
    ) -> FloatArray:
        """The t_i of all points, (N,), where the new row is alone and g(t) = t.

        Pairs say which points it enters: s_i·(t + o + κt) ≥ t·(ŝ_i(t) + κt), o within ŝ_i.
        """
        weight, mean = np.zeros(len(scores)), self.of_calibration(0.5)
        entered = at_edge != ALONE
        which = point[entered]
        w, others = self._entered(which, at_edge[entered] == 1)
        weight[which] = w / self.n_entered[which]
        mean[which] = others / self.n_entered[which] + self.offset
        quadratic, linear = weight + slope, mean - scores * (1 + slope)
        # Where nothing is quadratic, it ends at once or never.
        flat, constant = quadratic == 0, scores * self.offset
        found = kernels.signed_root(np.where(flat, 1.0, quadratic), linear, constant)
        ends = flat & (linear > 0)
        found[flat] = np.inf
        found[ends] = constant[ends] / linear[ends]
        alone = point[~entered]
        found[alone] = scores[alone]
        return found


class BagCells(kernels.BagKNN):
    """Thresholds t_i over the K nearest of the candidates."""

    search: Any

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
        found = search.nearest_others(n_neighbors)
        self.reach, self.crowded = found.reach, np.flatnonzero(found.tied)
        tied, reach = self._settled(search.placed, self.crowded, self.crowded)
        self.reach[self.crowded] = reach
        self.statistic: Any = CellMean(found, magnitudes, n_neighbors, offset, tied)
        self.alone = np.flatnonzero(self.statistic.alone)
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
        for row in np.flatnonzero(alone):
            found[row] = self._of_alone(pairs, int(row), found[row], slope)
        return found

    def _of_alone(self, pairs: Any, row: int, high: FloatArray, slope: float) -> FloatArray:
        """The thresholds of a row without candidates, given those with b in the place of g(t)."""
        a, b = self.statistic.low, self.statistic.high
        mine = pairs[0] == row
        point, at_edge = pairs[1][mine], pairs[2][mine]
        scale = np.array([a + self.offset])
        (low,) = self._thresholds((np.zeros_like(point), point, at_edge), scale, 0.5, slope)
        between = np.clip(self.statistic.between(point, at_edge, self.scores, slope), a, b)
        # Where a = 0 nothing is compared at t = 0, and something beyond.
        below = np.where((low > a) | (a == 0), between, low)
        return np.where(high < b, below, high)

    def _one_chunk(
        self, Z: FloatArray, asked: kernels.Asked, shares: Shares | None
    ) -> tuple[FloatArray, int]:
        new = self._placed(Z)
        radius, n_pairs = super()._one_chunk(new, asked, shares)  # type: ignore[arg-type]
        levels, ranks, signs = asked
        below = np.abs(radius).min(axis=1, initial=np.inf) < self.statistic.high
        for row in np.flatnonzero(below & (self._count(new) == 0)):
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

    def _around(self, Z: Any) -> tuple[Placed, tuple[IntArray, IntArray, kernels.Edge]]:
        """New rows in their cells, and pairs (new row, calibration point) where it is near."""
        new = self._placed(Z)
        return new, self._entered(new)

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
        return np.where(alone, self.statistic.high, mean) + self.offset, alone

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
            candidates = kernels.Candidates(distance, self.magnitudes[near][None])
            sums = candidates.sums(self.n_neighbors, grid)
            parts[:, number] = sums.near[0], sums.tied[0], sums.seats[0], sums.size[0]
            reach[number] = np.partition(distance[0], self.n_neighbors - 1)[self.n_neighbors - 1]
        return kernels.SharedSums(*parts), reach

    def _entered(self, new: Placed) -> tuple[IntArray, IntArray, kernels.Edge]:
        """Pairs (new row, point) where the row is among the nearest of the point, and how.

        Points without candidates are in a pair with every row.
        """
        row, point, at_edge = self.search.entering(new, self.reach)
        mark = at_edge.astype(np.intp)
        if not len(self.alone):
            return row, point, mark
        others = ~self.statistic.alone[point]
        probed = self.search.placed.probes[self.alone]
        marks = np.full((len(new), len(self.alone)), ALONE)
        for cells in probed.T:
            marks[new.cell[:, None] == cells] = 0
        rows = np.repeat(np.arange(len(new)), len(self.alone))
        row = np.concatenate([row[others], rows])
        point = np.concatenate([point[others], np.tile(self.alone, len(new))])
        mark = np.concatenate([mark[others], marks.reshape(-1)])
        order = np.argsort(row, kind="stable")
        return row[order], point[order], mark[order]
