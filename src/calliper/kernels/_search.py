"""Exact nearest neighbours: a fast index proposes them, direct differences decide.

A k-d tree in low dimension, or blocked matrix products otherwise, propose the neighbours. Where two
distances at the edge are closer than the rounding error of the index, the row is settled by
distances computed coordinate by coordinate, so that the same two rows give the same number
everywhere. Points at the same distance *share* the last place (``_nearest.py``); a search says
which rows do. Features whose squares would overflow or vanish are first divided by a power of two.

Reverse neighbours are the calibration rows whose nearest a new point enters, K on average: it is
in the ball that reaches to their K-th neighbour. Pairs that may qualify are compared directly.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from calliper._blocks import BLOCK_FLOATS, Scratch, distinct, map_row_blocks, n_cores, row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import engine_of
from calliper.exceptions import CalliperError
from calliper.quantile import Shares, count_true, merged_multiple, pad_exceptions, power_of_two

#: A name that :func:`scipy.spatial.distance.cdist` knows, or a symmetric function of two rows.
Metric = str | Callable[[FloatArray, FloatArray], float]
EUCLIDEAN = "euclidean"
#: Candidates beyond those asked for that are looked at first where distances tie.
TIED_SHELL = 24
#: Largest coordinates between these have squares whose sums neither vanish nor overflow.
ORDINARY = 1e-100, 1e100
#: Largest coordinate, in units of the largest of the points, that single precision is trusted with.
FARTHEST = 1e15
#: Pairs (query, point), and which of them are at the edge, or doubtful.
Pairs = tuple[IntArray, IntArray, BoolArray]
#: With fewer queries, comparing them with all balls costs less than a search for each ball.
MANY_QUERIES = 2000
#: Points in a leaf of the tree: measured, a quarter less time than with 10 in many dimensions.
LEAF_POINTS = 32
EPS = float(np.finfo(float).eps)
#: Weight of a nearer point, of a tied one, and the sums to reach, as whole numbers, (m,) each.
Case = tuple[IntArray, IntArray, Sequence[IntArray]]


@dataclass(frozen=True)
class Shells:
    """Which columns are nearer than the K-th neighbour of m rows, and which just as far, (m, W).

    ``reach``, (m, 1), is its distance; ``seats`` is K less those near, ``size`` the number tied.
    """

    reach: FloatArray
    near: BoolArray
    tied: BoolArray
    seats: IntArray
    size: IntArray

    @classmethod
    def of_points(cls, distance: FloatArray, k: int) -> Self:
        """From distances to points, (m, W)."""
        reach = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
        near, tied = distance < reach, distance == reach
        return cls(reach, near, tied, k - count_true(near), count_true(tied))

    def quantiles(self, ranks: Sequence[int]) -> Iterator[Case]:
        """Weights, and the sums that reach the ranks."""
        yield self.size, self.seats, [self.size * rank for rank in ranks]

    def clamps(self, rank: int) -> Iterator[Case]:
        """Cases with a new point nearer, as far, and absent; sums if it is smaller, and if not."""
        size, seats = self.size, self.seats
        yield size, seats - 1, (size * (rank - 1), size * rank)
        yield size + 1, seats, ((size + 1) * rank - seats, (size + 1) * rank)
        yield size, seats, (size * rank,)


def search_of(rows: Any, metric: Metric, named: str | None = None) -> "NeighborSearch":
    """A search of the rows by the engine that holds them, else the one named, else NumPy."""
    engine = engine_of(rows, named)
    made: NeighborSearch = (NeighborSearch if engine is None else engine.search)(rows, metric)
    return made


class NeighborSearch:
    """Points, (N, d), ready to be searched, in units of ``unit``, a power of two.

    ``engine`` proposes neighbours: "tree" or "brute", nothing for metrics that are not Euclidean.
    """

    def __init__(self, points: FloatArray, metric: Metric) -> None:
        largest = power_of_two(points)
        ordinary = metric != EUCLIDEAN or ORDINARY[0] < largest < ORDINARY[1]
        self.metric, self.unit, self.engine = metric, 1.0 if ordinary else largest, ""
        self.points = points = self.scaled(points)
        self.centre = points.mean(axis=0)
        if metric == EUCLIDEAN:
            n, d = points.shape
            self.engine = "tree" if d == 1 or n >= min_points_for_tree(d) else "brute"
            self.index: Any = (
                cKDTree(points, leafsize=LEAF_POINTS)
                if self.engine == "tree"
                else NearestNeighbors(algorithm="brute").fit(points - self.centre)
            )

    def nearest(self, queries: FloatArray, n: int) -> tuple[IntArray, BoolArray]:
        """The n nearest points of each query, (m, n), and the rows where the last place is tied.

        The last column is the n-th, the others are in the order of the points, so that sums have
        the same bits in any batch. Of rows with a tie, any that are as far are named.
        """
        found, tied = self._find(self.scaled(queries), n)
        found[:, :-1].sort(axis=1)
        return found, tied

    def nearest_others(self, n: int) -> tuple[IntArray, BoolArray]:
        """As :meth:`nearest` for all points, each without itself, by distance: (N, n), (N,)."""
        # In the order of the tree, what a query needs is still in the cache.
        order = self.index.indices if self.engine == "tree" else np.arange(len(self.points))
        near, tied = self.others_of(order, n)
        back = np.argsort(order)
        return near[back], tied[back]

    def others_of(self, points: IntArray, n: int) -> tuple[IntArray, BoolArray]:
        """As :meth:`nearest_others` for some of the points, (m, n), (m,)."""
        return self._find(self.points[points], n, points)

    def balls_containing(self, queries: FloatArray, reach: FloatArray) -> Pairs:
        """Pairs, by query, in which the query is at most ``reach``, (N,), away from the point."""
        queries = self.scaled(queries)
        if self.engine == "tree" and len(queries) >= MANY_QUERIES:
            return self._inside(queries, *self._by_tree(queries, reach), reach)
        scratch = Scratch()

        def scan(rows: slice) -> Pairs:
            if self.engine:
                query, point = self._products(queries[rows], reach, scratch)
                query, point, at_edge = self._inside(queries[rows], query, point, reach)
                return query + rows.start, point, at_edge
            distance = all_distances(queries[rows], self.points, self.metric)
            query, point = np.nonzero(distance <= reach)
            return query + rows.start, point, distance[query, point] == reach[point]

        return joined(map_row_blocks(scan, len(queries), len(self.points)))

    def around(
        self, queries: FloatArray, n: int, reach: FloatArray
    ) -> tuple[tuple[IntArray, BoolArray], Pairs]:
        """:meth:`nearest` and :meth:`balls_containing`, for which an engine may look once."""
        return self.nearest(queries, n), self.balls_containing(queries, reach)

    def extended(self, points: FloatArray) -> "NeighborSearch | None":
        """A search of ``points``, of which the first are those at hand; None if that is no gain."""
        other = NeighborSearch(points, self.metric)
        return other if other.unit == self.unit else None

    def shell(
        self, rows: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """Candidates beyond the n nearest of scaled rows, their distances in order, (m, W) both.

        And where no other point is as near as the n-th, (m,); ``left_out`` does not count for each.
        """
        k = min(n + TIED_SHELL, len(self.points))
        if self.engine != "tree":
            none = np.zeros((len(rows), n), dtype=np.intp)
            return none, np.zeros(none.shape), np.zeros(len(rows), dtype=bool)
        near, proposed = self._propose(rows, k)
        near = np.sort(near, axis=1)  # of those just as far, the first comes first
        distance = np.stack([paired_distances(rows, self.points[each]) for each in near.T], axis=1)
        if left_out is not None:
            distance[near == left_out[:, None]] = np.inf
        order = np.argsort(distance, axis=1, kind="stable")
        near = np.take_along_axis(near, order, axis=1)
        distance = np.take_along_axis(distance, order, axis=1)
        inside = distance[:, n - 1] < proposed[:, -1] * (1 - 1e-9)
        return near, distance, inside | (k == len(self.points))

    def distance_to(self, neighbor: IntArray, points: IntArray | None = None) -> FloatArray:
        """Distance of all or some points to one other each; squared, in ``unit``, if Euclidean."""
        own, other = self.points if points is None else self.points[points], self.points[neighbor]
        if self.metric == EUCLIDEAN:
            return paired_distances(own, other)
        pairs = zip(own[:, None], other[:, None], strict=True)
        return np.array([all_distances(*pair, self.metric)[0, 0] for pair in pairs])

    def any_equal(self, neighbors: IntArray) -> BoolArray:
        """Whether some of the neighbours of each point, (N, n), are at the same distance, (N,)."""
        ordered = np.sort([self.distance_to(column) for column in neighbors.T], axis=0)
        return np.asarray((ordered[1:] == ordered[:-1]).any(axis=0))

    def scaled(self, rows: FloatArray) -> FloatArray:
        """Rows in the unit of the search; far beyond all points, only the direction counts."""
        if self.unit == 1:
            return rows
        with np.errstate(over="ignore"):
            return np.clip(rows / self.unit, -ORDINARY[1], ORDINARY[1])

    def over_candidates(
        self,
        rows: FloatArray,
        n: int,
        work: Callable[[IntArray | None, FloatArray], Any],
        left_out: IntArray | None = None,
    ) -> Any:
        """What ``work`` makes of candidates, with all that are as near as the n-th: (m, …).

        It takes their indices, None for all points, and distances (b, W), of :meth:`shell` or all.
        """
        near, distance, few = self.shell(rows, n, left_out)
        found, rest = work(near[few], distance[few]), np.flatnonzero(~few)
        if not len(rest):
            return found

        def compare_all(block: slice) -> Any:
            some = rest[block]
            distance = all_distances(rows[some], self.points, self.metric)
            if left_out is not None:
                distance[np.arange(len(some)), left_out[some]] = np.inf
            return work(None, distance)

        every = np.concatenate(map_row_blocks(compare_all, len(rest), 2 * len(self.points)))
        both = np.empty((len(rows), *every.shape[1:]), dtype=every.dtype)
        both[few], both[rest] = found, every
        return both

    def select(self, *merged: Any) -> FloatArray:
        """As :func:`selected`; an engine may know a faster way."""
        return selected(*merged)

    def _find(
        self, rows: FloatArray, n: int, own: IntArray | None = None
    ) -> tuple[IntArray, BoolArray]:
        """As :meth:`others_of`, of rows that are the points ``own``, if any."""
        near, distance = self._propose(rows, n + 1 if own is None else n + 2)
        if own is not None:
            same = near == own[:, None]
            same[:, -1] |= ~same.any(axis=1)  # of each row itself is dropped, or else the last
            near, distance = (each[~same].reshape(len(rows), -1) for each in (near, distance))
        unsettled = np.flatnonzero(~self._settled(rows, distance, n))
        found, tied = np.ascontiguousarray(near[:, :n]), np.zeros(len(rows), dtype=bool)
        if len(unsettled):
            first, inverse = distinct(rows[unsettled])
            twin = None if own is None else own[unsettled[first]]
            near, at_edge = self._settle(rows[unsettled[first]], n, twin)
            found[unsettled], tied[unsettled] = near[inverse], at_edge[inverse]
            if own is not None and twin is not None:
                # Copies of a row share the search without the first of them; where it found a row
                # itself, take that first copy.
                itself = found[unsettled] == own[unsettled, None]
                found[unsettled] = np.where(itself, twin[inverse, None], found[unsettled])
        return found, tied

    def _inside(
        self, queries: FloatArray, query: IntArray, point: IntArray, reach: FloatArray
    ) -> Pairs:
        """Of some pairs those that are inside, and which are at the edge."""
        parts = row_slices(len(query), max(1, BLOCK_FLOATS // queries.shape[1]))
        found = [paired_distances(queries[query[p]], self.points[point[p]]) for p in parts]
        distance, edge = np.concatenate([np.empty(0), *found]), reach[point]
        inside = distance <= edge
        return query[inside], point[inside], (distance == edge)[inside]

    def _by_tree(self, queries: FloatArray, reach: FloatArray) -> tuple[IntArray, IntArray]:
        """All pairs that can be inside: each ball is searched in a tree of the queries."""
        members = cKDTree(queries).query_ball_point(
            self.points, np.sqrt(reach) * (1 + 1e-12), workers=n_cores(), return_sorted=False
        )
        count = np.fromiter(map(len, members), dtype=np.intp, count=len(members))
        query = np.fromiter(chain.from_iterable(members), dtype=np.intp, count=int(count.sum()))
        order = np.argsort(query, kind="stable")
        return query[order], np.repeat(np.arange(len(members)), count)[order]

    @cached_property
    def _centred(self) -> tuple[FloatArray, FloatArray]:
        """−2z for the centred points z, (d, N), and ‖z‖², (N,)."""
        z = self.points - self.centre
        return -2 * z.T, np.square(z).sum(axis=1)

    def _products(
        self, queries: FloatArray, reach: FloatArray, scratch: Scratch
    ) -> tuple[IntArray, IntArray]:
        """All pairs that can be inside, where ‖z‖² − reach − 2x·z lies below −‖x‖²."""
        # Centring keeps the rounding error τ(‖x‖² + ‖z‖²) small; ‖z‖² ≤ 2‖x‖² + 2·reach inside.
        right, z_norm = self._centred
        x, d = queries - self.centre, queries.shape[1]
        x_norm, tolerance = np.square(x).sum(axis=1), 8 * (d + 4) * EPS
        excess = scratch.array(len(x), len(z_norm))
        np.matmul(x, right, out=excess)
        excess += z_norm - reach * (1 + 4 * tolerance)
        # Below the smallest number errors are no longer relative.
        limit = (4 * tolerance - 1) * x_norm + (d + 4) * np.finfo(float).tiny
        hit = np.flatnonzero(excess < np.nextafter(limit, np.inf)[:, None])
        query, point = np.divmod(hit, len(z_norm))
        return query, point

    def _propose(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Up to k candidates a row, and squared distances that are right up to rounding."""
        k = min(k, len(self.points))
        if not self.engine:  # nothing is known beforehand: all are as near, and no row is settled
            return np.tile(np.arange(k), (len(queries), 1)), np.zeros((len(queries), k))
        if self.engine == "tree":
            distance, found = self.index.query(queries, k, workers=n_cores())
        else:
            distance, found = self.index.kneighbors(queries - self.centre, k)
        found = np.reshape(found, (len(queries), k)).astype(np.intp, copy=False)
        return found, np.square(distance.reshape(found.shape))

    def _settled(self, queries: FloatArray, distance: FloatArray, n: int) -> BoolArray:
        """Rows whose n-th neighbour stands apart from the one before and the one after."""
        d = self.points.shape[1]
        error = 8 * (d + 4) * EPS * distance[:, -1]
        if self.engine == "brute":
            # ‖x‖² − 2x·z + ‖z‖² errs with the norms, and ‖z‖² ≤ 2‖x‖² + 2‖x − z‖².
            x = queries - self.centre
            error = 2 * error + 24 * (d + 4) * EPS * np.einsum("ij,ij->i", x, x)
        settled = np.ones(len(distance), dtype=bool)
        for left in range(max(0, n - 2), min(n, distance.shape[1] - 1)):
            settled &= distance[:, left + 1] - distance[:, left] > error
        return settled

    def _settle(
        self, locations: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, BoolArray]:
        """The first n points by direct differences, and where the n-th is tied."""

        def first(near: IntArray | None, distance: FloatArray) -> IntArray:
            shells = Shells.of_points(distance, n)
            chosen = shells.tied & (np.cumsum(shells.tied, axis=1) <= shells.seats[:, None])
            column = np.nonzero(shells.near | chosen)[1].reshape(-1, n)  # of tied ones the first
            some = np.take_along_axis(distance, column, axis=1)
            column = np.take_along_axis(column, np.argsort(some, axis=1, kind="stable"), axis=1)
            found = column if near is None else np.take_along_axis(near, column, axis=1)
            return np.column_stack([found, shells.size > 1])

        found = self.over_candidates(locations, n, first, left_out)
        return found[:, :-1], found[:, -1] > 0


def min_points_for_tree(dimension: int) -> float:
    """A k-d tree visits some 2^d leaves a query; measured, it wins from 32·2^d points on."""
    return 32.0 * 2.0 ** min(dimension, 60)


def selected(
    ordered: FloatArray,
    factor: FloatArray,
    row: IntArray,
    position: IntArray,
    value: FloatArray,
    asked: Sequence[Any],
    shares: Shares | None = None,
) -> FloatArray:
    """As :func:`merged_multiple`, of exceptions by row, at ranks, or levels by weight: (m, L)."""
    n = len(factor)
    ends = np.searchsorted(row, np.arange(n + 1))

    def merge(rows: slice) -> FloatArray:
        part = slice(ends[rows.start], ends[rows.stop])
        listed = row[part] - rows.start, position[part], value[part]
        padded = pad_exceptions(*listed, rows.stop - rows.start, len(ordered))
        merge_one = merged_multiple if shares is None else shares.of_rows(rows).merged_multiple
        return np.stack([merge_one(ordered, factor[rows], *padded, each) for each in asked], axis=1)

    most = int(np.diff(ends).max(initial=0))
    return np.concatenate(map_row_blocks(merge, n, 3 * most + 1))


def joined(found: list[Pairs]) -> Pairs:
    """Pairs of consecutive blocks of queries, one after the other."""
    query, point, mark = (np.concatenate(part) for part in zip(*found, strict=True))
    return query, point, mark


def check_metric(metric: Metric) -> None:
    """Try the metric on two rows, so that a wrong name fails at once and by name."""
    if metric in ("seuclidean", "mahalanobis"):
        raise ValueError(
            f"metric {metric!r} would take its scale from whatever rows are compared: standardise "
            f"or whiten the features with training data instead, and use the Euclidean metric."
        )
    try:
        cdist(np.eye(2), np.eye(2), metric=metric)
    except ValueError as error:
        what = "metric must be a name that scipy.spatial.distance.cdist knows"
        raise ValueError(f"{what}, or a function of two rows; got {metric!r} ({error}).") from error


def all_distances(queries: FloatArray, points: FloatArray, metric: Metric) -> FloatArray:
    """Distances of every query to every point, (m, N); squared for the Euclidean metric."""
    if metric != EUCLIDEAN:
        distances = np.asarray(cdist(queries, points, metric=metric), dtype=np.float64)
        if np.isnan(distances).any():
            row = int(np.flatnonzero(np.isnan(distances).any(axis=1))[0])
            raise CalliperError(
                f"metric {metric!r} gives NaN, for example for the row {queries[row]}: such a row "
                "(all zeros, for cosine) has no neighbours. Remove it or use another metric."
            )
        return distances
    total = np.zeros((len(queries), len(points)))
    for column in range(points.shape[1]):
        total += np.square(queries[:, column, None] - points[None, :, column])
    return total


def paired_distances(left: FloatArray, right: FloatArray) -> FloatArray:
    """Squared Euclidean distances of row r of ``left`` to row r of ``right``, (m,)."""
    total = np.zeros(len(left))
    for column in range(left.shape[1]):
        total += np.square(left[:, column] - right[:, column])
    return total
