"""The K nearest neighbours count equally.

Without two points. For a new point x with nearest calibration rows n_1, …, n_{K+1}, leaving
calibration row i out changes the mean only if i is one of n_1 … n_K: then n_{K+1} replaces it.

    ŝ_{N+1,i} = c = (1/K) Σ_k s_{n_k}                      for i ∉ {n_1 … n_K}
    ŝ_{N+1,i} = c + (s_{n_{K+1}} − s_i) / K                 for i ∈ {n_1 … n_K}

So of the N products ŝ_{N+1,i} s_i⁺ all but K are a common multiple of values sorted once.

Over the bag, which is the calibration set with the new point in it. The new point's score t enters
the scale ŝ_i(t) of a calibration row only where it is among its K nearest. Any ŝ_i(t) that does
not decrease in t gives one crossing t_i, where s_i / ŝ_i(t) = t / ŝ_{N+1}:

    t_i = ŝ_{N+1} · s_i / ŝ_i          where it does not enter: presorted multiples
    t_i = the crossing of the statistic     where it enters: about K points per row

and a reverse-neighbour search replaces a scan of all N for every level. The crossings of mean and
quantile are in ``_statistic.py``.

Where distances tie, sums and order statistics are those of ``_nearest.py``.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from importlib import import_module
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from calliper._blocks import CHUNK_ROWS, distinct, map_row_blocks, row_slices
from calliper._handlers import CELLS
from calliper._kept import Array, Keeps
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_engine
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.kernels._arithmetic import rescale, signed_root, times
from calliper.kernels._kernel import (
    NOTHING,
    Bag,
    Kernel,
    Known,
    LeaveTwoOut,
    LocalQuantile,
    Rng,
    ScalesAtLevel,
    Stored,
    stored,
)
from calliper.kernels._nearest import MOST_PAIRS, Nearest, same_length
from calliper.kernels._search import EUCLIDEAN, Metric, NeighborSearch, check_metric, search_of
from calliper.kernels._statistic import STATISTICS, Edge, Entering, MeanStatistic, QuantileStatistic
from calliper.quantile import Shares, conformal_rank, merged_multiple, with_signs
from calliper.rows import Rows

#: Levels of the scales, the rank at each, and signs of the thresholds, (N,), if they have any.
Asked = tuple[list[float], list[int], FloatArray | None]

#: Pairs of a new row and a point that it enters, and where it is just as far as the K-th.
Entered = tuple[IntArray, IntArray, Edge]

#: Where a larger part of the points have other neighbours than before, all are searched again.
MOST_CHANGED = 0.25


@dataclass(eq=False, repr=False)
class KNN(Kernel, BaseEstimator):  # type: ignore[misc]
    """k(x, x') = 1 if x' is among the K nearest neighbours of x, else 0; K = 10 in the paper.

    "Nearest" refers to the set that the mean is taken over: if a point is left out of the set, the
    next nearest takes its place. Points exactly as far as the K-th share its place equally, so
    nothing is drawn.

    Parameters
    ----------
    n_neighbors : int, default 10
        K. Small follows the error closely but noisily, large approaches plain split conformal.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes. The Euclidean one
        is searched by trees or matrix products, all others by comparing every pair.
    cells : Cells or int, optional
        Look for neighbours in a few cells of a partition that is fixed beforehand, by training
        rows if ``fit`` is given any; for :class:`FullRescaled` with very many calibration rows.
        A number is short for ``Cells(number)``.
    engine : str, optional
        ``"torch"`` searches on the current CUDA device through PyTorch, ``"torch:cuda:1"`` on
        another, with the same result; see ``docs/large-data.md``. By default arrays are searched
        by the processor and tensors on a GPU there.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(200, 1))
    >>> errors = Z[:, 0] * rng.uniform(size=200)
    >>> FullRescaled(KNN(10)).fit(Z, errors).predict_radius([[0.1], [0.9]], 0.9).round(1)
    array([0.1, 1. ])
    """

    cli = "knn"
    by_distance = True
    counts_neighbors = True
    engines = ("torch",)

    n_neighbors: int = 10
    _: KW_ONLY
    metric: Metric = EUCLIDEAN
    engine: str | None = None
    cells: Any = None

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """A copy with its parameters checked, and with its cells fixed."""
        check_metric(self.metric)
        check_engine(self.engine)
        k, cells = at_least(self.n_neighbors, 1, "n_neighbors"), self._cells()
        if cells is not None and (self.metric != EUCLIDEAN or self.engine is not None):
            what = "cells work only with Euclidean distances on the CPU"
            got = f"got metric={self.metric!r}, engine={self.engine!r}"
            raise ValueError(f"{what}; {got}. Leave out both, or the cells.")
        fixed = None if cells is None else cells.fixed(Z_train, rng)
        return replace(self, n_neighbors=k, cells=fixed)

    def _cells(self) -> Any:
        return None if self.cells is None else import_module(CELLS).as_cells(self.cells)

    def _search(self, Z: FloatArray, purpose: str) -> NeighborSearch:
        """All points, searched everywhere; with cells, that is refused."""
        if self.cells is not None:
            raise TypeError(
                f"cells are for FullRescaled with the mean or the root mean square, not for "
                f"{purpose}: use KNN({self.n_neighbors}) without cells."
            )
        return search_of(Z, self.metric, self.engine)

    def at_most(self, largest: int) -> int:
        """K, or the number of points if that is smaller, with a warning."""
        if self.n_neighbors > largest:
            warn(
                f"{self.n_neighbors} neighbours were requested, but each calibration row has "
                f"only {largest}: all are used, so widths hardly adapt. Calibrate on more rows "
                "or request fewer neighbours.",
                SmallCalibrationWarning,
            )
        return int(min(self.n_neighbors, largest))

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Known = None, known: Stored = NOTHING
    ) -> "LeaveTwoOutKNN":
        search, k = self._search(rows.Z, "scales without two points"), self.at_most(len(rows.Z) - 1)
        without_one = stored(known, "without_one")
        return LeaveTwoOutKNN(Nearest(search, rows.magnitudes, k), offset, without_one)

    def bag(self, rows: Rows, *, statistic: str, offset: float, known: Stored = NOTHING) -> Bag:
        k = self.at_most(len(rows.Z))
        if self.cells is not None and statistic != "quantile":
            cells = self._cells().fixed(None, None)
            bag: BagKNN = cells.bag(rows, n_neighbors=k, offset=offset)
            return bag
        nearest = Nearest(self._search(rows.Z, "local quantiles"), rows.magnitudes, k)
        near = stored(known, "near")
        return BagKNN(nearest, rows.scores, STATISTICS[statistic], offset, near)

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> Nearest:
        return Nearest(self._search(Z, "local means"), magnitudes, self.at_most(len(Z)))

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> LocalQuantile:
        return Nearest(self._search(Z, "local quantiles"), scores, self.at_most(len(Z))).quantile

    def widened(self, multiple: float, most: int) -> Self:
        """A copy with K multiplied and clipped to 1 … ``most``."""
        return replace(self, n_neighbors=max(1, min(round(self.n_neighbors * multiple), most)))

    @classmethod
    def scales_of_others(
        cls, kernels: "Sequence[KNN]", Z: FloatArray, magnitudes: FloatArray, *, statistic: str
    ) -> ScalesAtLevel:
        """Scales over the K nearest others; neighbours are sorted once for all K."""
        ks = [kernel.n_neighbors for kernel in kernels]
        search = kernels[0]._search(Z, "a choice of K")
        near, tied = search.nearest_others(max(ks))
        member, crowded = magnitudes[near], np.flatnonzero(tied | search.any_equal(near))
        kind = STATISTICS[statistic]
        of_each = [
            kind(
                kind.kept_of(member[:, : k - 1]),
                member[:, k - 1],
                0.0,
                Nearest(search, magnitudes, k),
                crowded,
            )
            for k in ks
        ]
        return lambda level: np.stack([each.of_calibration(level) for each in of_each])


class LeaveTwoOutKNN(LeaveTwoOut):
    """Means over the K nearest, K ≤ N − 1, with one or two points left out."""

    def __init__(self, nearest: Nearest, offset: float, without_one: Known = None) -> None:
        if without_one is None:
            others, tied = nearest.search.nearest_others(nearest.k)
            member, kind = nearest.magnitudes[others], MeanStatistic
            known = kind.kept_of(member[:, :-1]), member[:, -1], offset, nearest
            without_one = kind(*known, np.flatnonzero(tied)).of_calibration(0.5)
        super().__init__(nearest, offset, same_length(without_one, nearest.magnitudes))

    def prepare(self, scores: FloatArray) -> FloatArray:
        self.ordered, self.position = with_positions(super().prepare(scores))
        return self.rescaled

    def order_statistics(
        self, Z: FloatArray, asked: Sequence[Any], shares: Shares | None = None
    ) -> FloatArray:
        nearest: Nearest = self.means
        k, every = nearest.k, np.arange(len(self.rescaled))

        def merged(
            points: IntArray, without: FloatArray, mean: FloatArray, own: Shares | None = None
        ) -> FloatArray:
            """From means without some points, (m, W) both, and without any other, (m,)."""
            value = times(without + self.offset, self.rescaled[points])
            known = self.ordered, mean + self.offset, self.position[points], value
            merge = merged_multiple if own is None else own.merged_multiple
            return np.stack([merge(*known, each) for each in asked], axis=1)

        def plain(near: IntArray, own: Shares | None = None) -> FloatArray:
            def one_block(rows: slice) -> FloatArray:
                return merged(*nearest.few_without(near[rows]), own and own.of_rows(rows))

            return np.concatenate(map_row_blocks(one_block, len(near), 4 * k))

        if shares is not None:  # of equal rows each has its own weight, so none stands for another
            found = np.empty((len(Z), len(asked)))
            ordered = shares.reordered(np.argsort(self.position))
            for rows in row_slices(len(Z), CHUNK_ROWS):
                near, is_tied = nearest.search.nearest(Z[rows], k + 1)
                found[rows] = plain(near, ordered.of_rows(rows))
                if is_tied.any():
                    own = shares.of_rows(rows).of_rows(is_tied)
                    found[rows][is_tied] = super().order_statistics(Z[rows][is_tied], asked, own)
            return found

        def tied(near: IntArray | None, distance: FloatArray) -> FloatArray:
            points = np.broadcast_to(every, distance.shape) if near is None else near
            return merged(points, *nearest.without(near, distance))

        return nearest.over(
            Z, k + 1, plain, lambda rows: nearest.search.over_candidates(rows, k + 1, tied)
        )


@dataclass(frozen=True, eq=False)
class Neighborhood(Keeps):
    """The K-th nearest other of each point, and what a statistic keeps of the nearer ones' scores.

    ``crowded`` are the points whose K-th place is shared.
    """

    last: Annotated[IntArray, Array("int32", ("N",), least=0, most="N")]
    nearer: Annotated[FloatArray, Array("float64", ("N", "W"), least=0)]
    crowded: Annotated[IntArray, Array("int32", ("c",), least=0, most="N", becomes="int64")]


class BagKNN(Bag):
    """Thresholds t_i over the K nearest, K ≤ N."""

    def __init__(
        self,
        nearest: Nearest,
        scores: FloatArray,
        statistic: type[MeanStatistic] | type[QuantileStatistic],
        offset: float,
        known: Neighborhood | None = None,
    ) -> None:
        self.search, self.magnitudes, self.scores = nearest.search, nearest.magnitudes, scores
        self.n_neighbors, self.offset, n = nearest.k, offset, len(scores)
        self._orders: dict[int, tuple[FloatArray, IntArray]] = {}
        # With K = N a point has only K−1 others, so the new one always enters.
        self.always_enters = nearest.k == n
        if known is None:
            others, tied = self.search.nearest_others(min(nearest.k, n - 1))
            crowded = np.flatnonzero(tied & (not self.always_enters))
            nearer = self.magnitudes[others[:, : nearest.k - 1]]
            known = Neighborhood(others[:, -1].astype(np.int32), statistic.kept_of(nearer), crowded)
        width = statistic.kept_of(np.zeros((1, nearest.k - 1))).shape[1]
        if known.last.shape != (n,) or known.nearer.shape != (n, width):
            raise CalliperError(f"neighbours have shape {known.nearer.shape}, for {n} points.")
        if (np.diff(known.crowded) <= 0).any():
            raise CalliperError("points whose last place is shared are not in order.")
        if known.nearer.max(initial=0.0) > nearest.k * self.magnitudes.max():
            raise CalliperError("in the file, the scores of neighbours exceed those of points.")
        self.known, self.crowded = known, known.crowded
        self.reach, last = self.search.distance_to(known.last), self.magnitudes[known.last]
        if self.always_enters:
            self.reach = last = np.full(n, np.inf)
        self.statistic = statistic(known.nearer, last, offset, nearest, self.crowded)

    def for_file(self) -> dict[str, Any]:
        """The neighbours of all points, which had to be found."""
        return {"near": self.known}

    def with_offset(self, offset: float) -> Self:
        other = copy(self)
        other.offset, other._orders, other.statistic = offset, {}, copy(self.statistic)
        other.statistic.offset = offset
        return other

    def extended(self, rows: Rows) -> "BagKNN | None":
        """As :meth:`Bag.extended`: only points that one of the new ones enters are searched."""
        n, k, search = len(self.scores), self.n_neighbors, self.search.extended(rows.Z)
        if self.always_enters or search is None:
            return None
        entered = np.unique(self.search.balls_containing(rows.Z[n:], self.reach)[1])
        changed = np.append(entered, np.arange(n, len(rows.Z)))
        if len(changed) > MOST_CHANGED * len(rows.Z):
            return None
        crowded, more = np.zeros(len(rows.Z), dtype=bool), len(rows.Z) - n
        crowded[self.crowded] = True
        others, crowded[changed] = search.others_of(changed, k)
        last = np.pad(self.known.last, (0, more))
        nearer = np.pad(self.known.nearer, ((0, more), (0, 0)))
        last[changed] = others[:, -1]
        nearer[changed] = self.statistic.kept_of(rows.magnitudes[others[:, :-1]])
        known = Neighborhood(last, nearer, np.flatnonzero(crowded))
        nearest = Nearest(search, rows.magnitudes, k)
        return BagKNN(nearest, rows.scores, type(self.statistic), self.offset, known)

    def calibration_scale(self, level: float) -> FloatArray:
        return self.statistic.of_calibration(level)

    def order_statistics(
        self, Z: FloatArray, asked: Any, shares: Any = None, slope: float = 0.0, signs: Any = None
    ) -> FloatArray:
        if slope:
            return super().order_statistics(Z, asked, shares, slope, signs)
        if signs is not None:
            return self._selected(Z, ([0.5] * len(asked), asked, signs))
        ranks = [conformal_rank(level, len(self.scores)) for level in asked]
        return self._selected(Z, (asked, ranks, None), shares)

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        near, pairs = self._around(Z)
        return self._thresholds(pairs, self._scale_of_new(Z, level, near), level, slope)

    def _thresholds(
        self, pairs: Entered, scale: FloatArray, level: float, slope: float
    ) -> FloatArray:
        """All thresholds of rows with these scales, (m,), which enter these points: (m, N)."""
        own = self.calibration_scale(level)
        if slope:
            found = signed_root(slope, own - slope * self.scores, self.scores * scale[:, None])
        else:
            found = times(np.repeat(scale[:, None], len(own), axis=1), rescale(self.scores, own))
        found[pairs[:2]] = self._crossing(pairs, scale, level, slope)
        return found

    def _crossing(
        self, pairs: Entered, scale: FloatArray, level: float, slope: float = 0.0
    ) -> FloatArray:
        """Thresholds of these pairs, (P,)."""
        row, point, at_edge = pairs
        score = self.scores[point]
        with np.errstate(over="ignore"):
            entering = Entering(point, at_edge, score, score * scale[row])
            return self.statistic.crossing(entering, level, slope)

    def _selected(self, Z: FloatArray, asked: Asked, shares: Shares | None = None) -> FloatArray:
        """What is asked of thresholds, (m, L), in chunks whose pairs fit in memory."""
        most = MOST_PAIRS // (8 * self.n_neighbors)
        if len(self.crowded):  # any row may enter all of them
            most = min(most, MOST_PAIRS // len(self.scores))
            if shares is None:  # a row has the threshold of its twins, and twins enter by thousands
                every = np.asarray(Z)
                first, inverse = distinct(every)
                Z = every[first]
        parts, start, size = [], 0, max(1, min(CHUNK_ROWS, most))
        while start < len(Z):
            rows = slice(start, start + size)
            radius, n_pairs = self._one_chunk(Z[rows], asked, shares and shares.of_rows(rows))
            parts.append(radius)
            start += len(radius)
            most = MOST_PAIRS * len(radius) // max(1, n_pairs)
            size = max(1, min(CHUNK_ROWS, 2 * size, most))
        found = np.concatenate(parts)
        return found if shares is not None or not len(self.crowded) else found[inverse]

    def _one_chunk(
        self, Z: FloatArray, asked: Asked, shares: Shares | None
    ) -> tuple[FloatArray, int]:
        """Order statistics, and the number of pairs that had to be looked at."""
        (levels, ranks, signs), (near, pairs) = asked, self._around(Z)
        row, point, _ = pairs
        radius, keys = np.empty((len(Z), len(levels))), [*map(self.statistic.key, levels)]
        for key in {*keys}:
            columns = [c for c, each in enumerate(keys) if each == key]
            level = levels[columns[0]]
            scale = self._scale_of_new(Z, level, near)
            value = self._crossing(pairs, scale, level)
            if signs is not None:
                value = with_signs(value, signs[point])
            ordered, position = self._ordered(level, signs)
            own = shares and shares.reordered(np.argsort(position))
            which = [ranks[c] if own is None else levels[c] for c in columns]
            radius[:, columns] = self.search.select(
                ordered, scale, row, position[point], value, which, own
            )
        return radius, len(row) + len(Z) * self.n_neighbors

    def _scale_of_new(self, Z: FloatArray, level: float, found: Any) -> FloatArray:
        """The scale of each row, (m,), from what :meth:`_around` found."""
        near, tied = found
        scale = self.statistic.of_new(self.magnitudes[near], level)
        if tied.any():
            scale[tied] = self.statistic.of_tied(Z[tied], level)
        return scale

    def _ordered(self, level: float, signs: FloatArray | None) -> tuple[FloatArray, IntArray]:
        """The ratios ±s_i / ŝ_i in ascending order, and the position of each point among them."""
        key = self.statistic.key(level)
        if signs is not None:
            ratio = with_signs(rescale(self.scores, self.calibration_scale(level)), signs)
            return with_positions(ratio)
        if key not in self._orders:
            self._orders[key] = with_positions(rescale(self.scores, self.calibration_scale(level)))
        return self._orders[key]

    def _around(self, Z: FloatArray) -> tuple[Any, Entered]:
        """The nearest of new rows, and pairs where a row is among the K nearest of a point."""
        return self.search.around(Z, self.n_neighbors, self.reach)


def with_positions(values: FloatArray) -> tuple[FloatArray, IntArray]:
    """(N,) values in ascending order, and the position of each among them."""
    order = np.argsort(values)
    return values[order], np.argsort(order)
