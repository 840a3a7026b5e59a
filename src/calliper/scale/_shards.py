"""``FullRescaled`` over the K nearest for features that no single machine holds.

The points are dealt to shards: arrays in this process, or partitions of Dask collections, which
stay on their workers. This process holds a few numbers for each point (score, sums over its
neighbours) and no features. The result is the same as on one machine, to the last bit:

1. Each shard names its K+1 nearest, distances by direct differences. The K smallest of all are the
   K nearest, whoever held them; the distance of the K-th is the reach ρ. Where other points are
   just as far, each shard counts and sums its own at ρ (exactly, see ``kernels/_arithmetic.py``).
   Fitting is this round for every point: each shard meets every other once.
2. With ρ_i of its own points known, a shard finds those whose neighbourhood a new row enters.

All else is as in ``BagKNN``. Distances and scores of candidates travel, and in the fit the points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from calliper import kernels
from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import check_features, check_sizes, warn_if_zero_scales
from calliper.calibrators import FullRescaled
from calliper.exceptions import CalliperError
from calliper.kernels import EUCLIDEAN, KNN, Grid, SharedSums
from calliper.quantile import count_true, row_thresholds
from calliper.rows import Rows
from calliper.scale._dask import check_workers, current_client, is_collection, partitions

#: Arguments that are larger are sent to all workers once, and not with every task.
LARGE_BYTES = 1 << 16


@dataclass(frozen=True, eq=False)
class Workers:
    """Where shards are: on the workers of a Dask client, as futures, or in this process."""

    client: Any

    def each(self, work: Callable[..., Any], *parts: Sequence[Any], **same: Any) -> list[Any]:
        """``work`` on each shard's parts; the results stay where they are."""
        tasks = zip(*parts, strict=True)
        if self.client is None:
            return [work(*one, **same) for one in tasks]
        for name, value in same.items():
            if getattr(value, "nbytes", 0) > LARGE_BYTES:
                same[name] = self.client.scatter(value, broadcast=True, hash=False)
        return [self.client.submit(work, *one, **same, pure=False) for one in tasks]

    def fetch(self, parts: list[Any]) -> list[Any]:
        """The results, in this process."""
        return parts if self.client is None else self.client.gather(parts)


@dataclass(frozen=True, eq=False)
class Near:
    """Candidates of m rows by ascending distance, with their scores: (m, W) each."""

    distance: FloatArray
    score: FloatArray

    @classmethod
    def of(cls, parts: "Sequence[Near]", n: int) -> "Near":
        """The n nearest of all."""
        distance = np.hstack([part.distance for part in parts])
        order = np.argsort(distance, axis=1, kind="stable")[:, :n]
        score = np.hstack([part.score for part in parts])
        return cls(*(np.take_along_axis(part, order, axis=1) for part in (distance, score)))

    def tied(self, k: int) -> BoolArray:
        """Rows whose K-th place is shared, (m,)."""
        return kernels.tied_at(self.distance, k)

    def shared(self, k: int, at_reach: FloatArray, grid: Grid) -> SharedSums:
        """Sums of the rows that share it; ``at_reach`` are digits and counts of points there."""
        tied = self.tied(k)
        distance, score = self.distance[tied], self.score[tied]
        nearer = distance < distance[:, k - 1 : k]
        near = grid.sums(nearer * score, lambda digit: digit.sum(axis=1))
        sums = grid.rounded(near), grid.rounded(at_reach[:, :-1])
        return SharedSums(*sums, k - count_true(nearer), at_reach[:, -1])


@dataclass(frozen=True, eq=False)
class Shard:
    """Some calibration points, their scores in the unit of the bag, and the grid of exact sums."""

    search: kernels.NeighborSearch
    scores: FloatArray
    grid: Grid

    @classmethod
    def of(cls, part: tuple[FloatArray, FloatArray], shift: int, power: int, grid: Grid) -> Self:
        """The shard of features and raw scores."""
        Z, scores = part
        search = kernels.NeighborSearch(Z, EUCLIDEAN)
        if search.unit != 1:
            raise CalliperError(
                f"features of a shard are as large as {np.abs(Z).max():.3g}: distances between "
                f"points in several shards need features between 1e-100 and 1e100. Divide them by "
                f"a constant."
            )
        return cls(search, np.ldexp(scores, shift) ** power, grid)

    def nearest(self, n: int, rows: FloatArray | None = None) -> Near:
        """The n nearest points to rows, or all there are; else to its points, each but itself."""
        n = min(n, len(self.scores) - (rows is None))
        if rows is None:
            (found, _), rows = self.search.nearest_others(n), self.search.points
        else:
            found, _ = self.search.nearest(rows, n)
        distance = np.empty(found.shape)
        for place, column in enumerate(found.T):
            distance[:, place] = kernels.paired_distances(rows, self.search.points[column])
        return Near.of([Near(distance, self.scores[found])], n)

    def at_reach(
        self, rows: FloatArray, reach: FloatArray, own: IntArray | None = None
    ) -> FloatArray:
        """Digits of the sum over the points at distance ``reach``, and their number, (m, n+1).

        ``own`` names points of the shard that the rows are; they do not count.
        """
        places, grid = self.search.places, self.grid
        if not len(rows):
            return np.zeros((0, grid.n + 1))
        digits = grid.sums(self.scores, lambda digit: np.bincount(places.of_point, digit))
        columns = np.column_stack([digits, places.size])
        asked, inverse = kernels.unique_rows(np.column_stack([rows, reach]))

        def count(block: slice) -> FloatArray:
            distance = kernels.all_distances(asked[block, :-1], places.rows, EUCLIDEAN)
            return np.asarray((distance == asked[block, -1:]) @ columns)

        found = np.concatenate(map_row_blocks(count, len(asked), len(places.rows)))[inverse]
        if own is not None:
            mine = np.column_stack([grid.sums(self.scores[own], np.copy), np.ones(len(own))])
            found -= mine * (reach == 0)[:, None]
        return found


def meet(near: Near, shard: Shard, other: Shard, n: int) -> Near:
    """The n nearest of a shard's points, those of another shard included."""
    return Near.of([near, other.nearest(n, shard.search.points)], n)


def at_reach_of(near: Near, shard: Shard, other: Shard, k: int, same: bool) -> FloatArray:
    """:meth:`Shard.at_reach` in another shard, or the same one, of points that share a place."""
    tied = np.flatnonzero(near.tied(k))
    rows, reach = shard.search.points[tied], near.distance[tied, k - 1]
    return other.at_reach(rows, reach, tied if same else None)


def reach_of(near: Near, k: int) -> FloatArray:
    """The squared distance of each point's K-th neighbour."""
    return near.distance[:, k - 1].copy()


def sums_of(near: Near, shard: Shard, tied: FloatArray, k: int) -> tuple[Any, ...]:
    """Sums over K−1 neighbours, the K-th, who shares the last place, and the sums of these."""
    inner = kernels.sum_of_each(near.score[:, : k - 1])
    return inner, near.score[:, k - 1], near.tied(k), near.shared(k, tied, shard.grid)


def entered(shard: Shard, reach: FloatArray, rows: FloatArray) -> kernels.Pairs:
    """Pairs (row, point) such that the row enters the point's neighbourhood."""
    return shard.search.balls_containing(rows, reach)


class ShardedKNN(KNN):
    """The K nearest of points in shards.

    In place of features, rows have the workers, the parts that they hold, and the method, which
    says by what power of two scores are multiplied, and whether they are squared.
    """

    def bag(self, rows: Rows, *, statistic: str, offset: float, known: Any = None) -> "ShardedBag":
        """Thresholds of full conformal."""
        (workers, parts, method), grid, k = rows.Z, Grid(rows.scores), self.n_neighbors
        unit = {"shift": method.shift_, "power": method.power_}
        shards = workers.each(Shard.of, parts, **unit, grid=grid)
        return ShardedBag(workers, shards, rows.scores, grid, n_neighbors=k, offset=offset)


class ShardedBag(kernels.BagKNN):
    """Thresholds t_i over the K nearest, K < N, of points in shards.

    Parameters
    ----------
    workers : where the shards are
    shards : none of them empty
    scores : (N,) of all points, shard after shard, in the unit of the bag
    grid : of exact sums
    n_neighbors, offset : K, and a constant added to every scale
    """

    always_enters = False
    reach: Any
    search: Any = SimpleNamespace(select=kernels.selected)

    def __init__(
        self,
        workers: Workers,
        shards: list[Any],
        scores: FloatArray,
        grid: Grid,
        *,
        n_neighbors: int,
        offset: float,
    ) -> None:
        self.workers, self.shards, self.grid = workers, shards, grid
        self.scores = self.magnitudes = scores
        self.n_neighbors, self.offset, self._orders = n_neighbors, offset, {}
        each, k = workers.each, n_neighbors
        near = each(Shard.nearest, shards, n=k + 1)
        turns = [shards[turn:] + shards[:turn] for turn in range(len(shards))]
        for others in turns[1:]:
            near = each(meet, near, shards, others, n=k + 1)
        tied = each(at_reach_of, near, shards, shards, k=k, same=True)
        for others in turns[1:]:
            tied = each(add, tied, each(at_reach_of, near, shards, others, k=k, same=False))
        self.reach = each(reach_of, near, k=k)
        found = workers.fetch(each(sums_of, near, shards, tied, k=k))
        inner, last, crowded, shared = zip(*found, strict=True)
        self.starts = np.cumsum([0, *(len(part) for part in last[:-1])])
        self.crowded = np.flatnonzero(np.concatenate(crowded))
        parts = zip(*(sums.columns for sums in shared), strict=True)
        sums = SharedSums(*map(np.concatenate, parts))
        known: Any = SimpleNamespace(sums_of_others=lambda points, ks: [sums])
        of_points = np.concatenate(inner)[:, None], np.concatenate(last)
        self.statistic = kernels.MeanStatistic(*of_points, offset, known, self.crowded, k)
        del self.statistic.shared

    def _around(self, Z: FloatArray) -> tuple[None, kernels.Pairs]:
        work = self.workers.each(entered, self.shards, self.reach, rows=Z)
        found = zip(self.workers.fetch(work), self.starts, strict=True)
        pairs = [(row, point + start, at_edge) for (row, point, at_edge), start in found]
        row, point, at_edge = kernels.joined(pairs)
        order = np.argsort(row, kind="stable")
        return None, (row[order], point[order], at_edge[order])

    def _scales_of_new(
        self, Z: FloatArray, levels: list[float], found: None
    ) -> dict[int, tuple[float, FloatArray]]:
        k, (each, fetch) = self.n_neighbors, (self.workers.each, self.workers.fetch)
        near = Near.of(fetch(each(Shard.nearest, self.shards, rows=Z, n=k + 1)), k + 1)
        total, tied = kernels.sum_of_each(near.score[:, :k]), near.tied(k)
        if tied.any():
            reach = near.distance[tied, k - 1]
            at_reach = fetch(each(Shard.at_reach, self.shards, rows=Z[tied], reach=reach))
            total[tied] = near.shared(k, sum(at_reach), self.grid).total
        return {0: (levels[0], total / k + self.offset)}

    def rising_order_statistic(
        self, Z: FloatArray, level: float, slope: float, shares: Any = None
    ) -> FloatArray:
        """As of one machine, with one round through the shards for all rows."""
        _, (row, *pairs) = self._around(Z)
        ((_, scale),) = self._scales_of_new(Z, [level], None).values()

        def select(rows: slice) -> FloatArray:
            some = slice(*np.searchsorted(row, [rows.start, rows.stop]))
            own: Any = (row[some] - rows.start, *(part[some] for part in pairs))
            return row_thresholds(self._thresholds(own, scale[rows], level, slope), [level])[:, 0]

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))


class ShardedRescaled(FullRescaled):
    """``FullRescaled(KNN(K))`` for calibration points in shards; equal to it to the last bit.

    Parameters are those of :class:`FullRescaled`. The kernel must be ``KNN(K)`` with Euclidean
    distances, K < N, and the statistic "mean" or "rms". Weights, distributions and ``extend`` are
    not supported. It lives as long as the cluster, and cannot be saved.

    Parameters
    ----------
    kernel : KNN
    shrinkage, statistic, offset, random_state :
        As for :class:`FullRescaled`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, errors = rng.uniform(size=(500, 2)), rng.exponential(size=500)
    >>> whole = FullRescaled(KNN(10)).fit(Z, errors)
    >>> sharded = ShardedRescaled(KNN(10)).fit(np.split(Z, 5), np.split(errors, 5))
    >>> new = rng.uniform(size=(100, 2))
    >>> bool((sharded.predict_radius(new) == whole.predict_radius(new)).all())
    True
    """

    def fit(self, Z: Any, scores: Any) -> Self:  # type: ignore[override]
        """Find the neighbours of all points in all shards.

        Parameters
        ----------
        Z, scores : lists of arrays (n, d) and (n,), one of each for every shard; or two Dask
            collections with the same partitions, each of which is a shard on its worker
        """
        self._check_parameters()
        k, (workers, parts) = self._checked_kernel().n_neighbors, _placed(Z, scores)
        facts = workers.fetch(workers.each(_facts, parts))
        parts = [part for part, (_, own) in zip(parts, facts, strict=True) if len(own)]
        scores = np.concatenate([own for _, own in facts])
        n, self.n_features_in_ = len(scores), _n_columns({d for d, own in facts if len(own)})
        if k >= n:
            raise CalliperError(
                f"{k} neighbours need at least {k + 1} calibration points; got {n} in all shards. "
                f"Use FullRescaled, or fewer neighbours."
            )
        self.shrinkage_, self.statistic_ = float(self.shrinkage or 0.0), self.statistic or "mean"
        self.kernel_ = ShardedKNN(k)
        self.bag_ = self._fit_bag(Rows((workers, parts, self), scores, scores))
        self.levels_asked_, self.n_calibration_ = set(), n
        warn_if_zero_scales(self.bag_.calibration_scale(0.5))  # type: ignore[union-attr]
        return self

    def extend(self, Z: Any, scores: Any, **how: Any) -> Self:
        """Not supported: fit again."""
        raise CalliperError("ShardedRescaled has no extend: fit it again to all shards.")

    def _checked_kernel(self) -> KNN:
        kernel, statistic = self.kernel, self.statistic
        if not isinstance(kernel, KNN) or kernel.metric != EUCLIDEAN or statistic == "quantile":
            raise CalliperError(
                f"shards take KNN(K) with Euclidean distances and the statistic 'mean' or 'rms'; "
                f"got {kernel!r} and {statistic!r}. FullRescaled takes all, on one machine."
            )
        if self.shrinkage == 1:
            raise CalliperError("shrinkage=1 uses no neighbours: use Split().")
        return kernel.resolved()

    @property
    def has_distribution(self) -> bool:  # type: ignore[override]
        """False: shards do not keep signs."""
        return False


def _placed(Z: Any, scores: Any) -> tuple[Workers, list[Any]]:
    """Where shards are, and features with scores of each."""
    if is_collection(Z):
        client = current_client()
        if client is None:
            raise CalliperError(
                "shards of Dask collections live on workers: make a distributed.Client first, or "
                "pass lists of arrays."
            )
        check_workers(client)
        delayed = [client.compute(list(pair)) for pair in partitions(Z, {"scores": scores})]
        workers, (Z, scores) = Workers(client), zip(*delayed, strict=True)
    else:
        workers = Workers(None)
        if not isinstance(Z, list | tuple) or len(Z) != len(scores):
            raise CalliperError(
                f"Z and scores must be lists of arrays, one of each for every shard; got a "
                f"{type(Z).__name__} of {len(Z)} and {len(scores)} scores."
            )
    return workers, workers.each(_checked, Z, scores, range(len(Z)))


def _checked(Z: Any, scores: Any, number: int) -> tuple[FloatArray, FloatArray]:
    """Features and scores of a shard."""
    if len(Z) != len(scores):
        raise CalliperError(f"shard {number} has {len(Z)} rows and {len(scores)} scores.")
    if not len(Z):
        return np.empty((0, 0)), np.empty(0)
    Z, scores = check_features(Z, f"Z of shard {number}"), check_sizes(scores, "scores")
    return Z, scores


def _facts(part: tuple[FloatArray, FloatArray]) -> tuple[int, FloatArray]:
    """The number of columns of a shard, and its scores."""
    return part[0].shape[1], part[1]


def _n_columns(widths: set[int]) -> int:
    """The number of columns that all shards have."""
    if not widths:
        raise CalliperError("all shards are empty: there is nothing to calibrate on.")
    if len(widths) > 1:
        raise CalliperError(f"all shards must have the same columns; got {sorted(widths)}.")
    return widths.pop()
