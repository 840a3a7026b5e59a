"""Exact nearest neighbours by NumPy: a fast index proposes them, direct differences decide.

A k-d tree in low dimension, or blocked matrix products otherwise, propose the neighbours. Where two
distances at the edge of the neighbourhood are closer than the rounding error of the index, the row
is settled by direct differences. The same holds for balls that contain new points: each reaches to
the last neighbour of the point it is around, and pairs that may qualify are compared directly.
Features whose squares would overflow or vanish are first divided by a power of two, which changes
no digit.
"""

from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from calliper._blocks import BLOCK_FLOATS, Scratch, map_row_blocks, n_cores, row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import engine_of
from calliper.kernels._nearest import Shells
from calliper.kernels._search import (
    EUCLIDEAN,
    ORDINARY,
    TIED_SHELL,
    Metric,
    Pairs,
    Search,
    all_distances,
    joined,
    paired_distances,
    unique_rows,
)
from calliper.quantile import power_of_two

#: With fewer queries, comparing them with all balls costs less than a search for each ball.
MANY_QUERIES = 2000

#: Points in a leaf of the tree: measured, a quarter less time than with 10 in many dimensions.
LEAF_POINTS = 32

EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)


def search_of(rows: Any, metric: Metric, named: str | None = None) -> Search:
    """A search of the rows by the engine that holds them, else the one named, else NumPy."""
    engine = engine_of(rows, named)
    made: Search = (NeighborSearch if engine is None else engine.search)(rows, metric)
    return made


class NeighborSearch(Search):
    """The points of a calibration set, (N, d), ready to be searched.

    ``engine`` is what proposes neighbours: "tree", "brute", or nothing for other metrics.
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

    def extended(self, points: FloatArray) -> "NeighborSearch | None":
        """A search of all of them; None in another unit."""
        other = NeighborSearch(points, self.metric)
        return other if other.unit == self.unit else None

    def nearest(self, queries: FloatArray, n: int) -> tuple[IntArray, BoolArray]:
        queries = self.scaled(queries)
        found, distance = self._propose(queries, n + 1)
        tied = np.zeros(len(queries), dtype=bool)
        unsettled = np.flatnonzero(~self._settled(queries, distance, n))
        found = np.ascontiguousarray(found[:, :n])
        if len(unsettled):
            location, _, inverse = unique_rows(queries[unsettled])
            near, at_edge = self._settle(location, n)
            found[unsettled], tied[unsettled] = near[inverse], at_edge[inverse]
        found[:, :-1].sort(axis=1)
        return found, tied

    def others_of(self, points: IntArray, n: int) -> tuple[IntArray, BoolArray]:
        rows, tied = self.points[points], np.zeros(len(points), dtype=bool)
        near, distance = self._propose(rows, n + 2)
        own = near == points[:, None]
        own[:, -1] |= ~own.any(axis=1)  # one is dropped of each row, if not itself then the last
        near, distance = (each[~own].reshape(len(rows), -1) for each in (near, distance))
        unsettled = np.flatnonzero(~self._settled(rows, distance, n))
        found = np.ascontiguousarray(near[:, :n])
        if len(unsettled):
            location, first, inverse = unique_rows(rows[unsettled])
            left, twin = points[unsettled], points[unsettled][first]
            near, at_edge = self._settle(location, n, twin)
            near, twin = near[inverse], twin[inverse]
            # One of the copies of a row was left out for all: the others have it in their place.
            found[unsettled] = np.where(near == left[:, None], twin[:, None], near)
            tied[unsettled] = at_edge[inverse]
        return found, tied

    def balls_containing(self, queries: FloatArray, reach: FloatArray) -> Pairs:
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
        """All pairs that can be inside, by one matrix product.

        x is inside where ‖z‖² − reach − 2x·z lies below −‖x‖². Centring keeps the rounding error
        τ(‖x‖² + ‖z‖²) small, and ‖z‖² ≤ 2‖x‖² + 2·reach for every pair that is inside.
        """
        right, z_norm = self._centred
        x, d = queries - self.centre, queries.shape[1]
        x_norm, tolerance = np.square(x).sum(axis=1), 8 * (d + 4) * EPS
        excess = scratch.array("excess", (len(x), len(z_norm)))
        np.matmul(x, right, out=excess)
        excess += z_norm - reach * (1 + 4 * tolerance)
        # Below the smallest number errors are no longer relative.
        limit = (4 * tolerance - 1) * x_norm + (d + 4) * TINY
        hit = np.flatnonzero(excess < np.nextafter(limit, np.inf)[:, None])
        query, point = np.divmod(hit, len(z_norm))
        return query, point

    def shell(
        self, rows: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """Candidates beyond the n nearest, of a tree."""
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
        own, other = self.points if points is None else self.points[points], self.points[neighbor]
        if self.metric == EUCLIDEAN:
            return paired_distances(own, other)
        each = map(
            lambda a, b: all_distances(a, b, self.metric)[0, 0], own[:, None], other[:, None]
        )
        return np.fromiter(each, dtype=np.float64, count=len(other))

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
        """The first n points by direct differences, and where the n-th is tied.

        ``left_out`` names a point that does not count for each location.
        """

        def first(near: IntArray | None, distance: FloatArray) -> IntArray:
            shells = Shells.of_points(distance, n)
            chosen = shells.tied & (np.cumsum(shells.tied, axis=1) <= shells.seats[:, None])
            place = np.nonzero(shells.near | chosen)[1].reshape(-1, n)  # of tied ones the first
            some = np.take_along_axis(distance, place, axis=1)
            place = np.take_along_axis(place, np.argsort(some, axis=1, kind="stable"), axis=1)
            found = place if near is None else np.take_along_axis(near, place, axis=1)
            return np.column_stack([found, shells.size > 1])

        found = self.over_candidates(locations, n, first, left_out)
        return found[:, :-1], found[:, -1] > 0


def min_points_for_tree(dimension: int) -> float:
    """A k-d tree visits some 2^d leaves a query; measured, it wins from 32·2^d points on."""
    return 32.0 * 2.0 ** min(dimension, 60)
