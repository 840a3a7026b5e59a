"""Exact nearest neighbours, with ties broken by random priorities.

Conformal validity asks that "the K nearest" be a rule that treats all points alike. Ordering by
(distance, priority), with one random priority a point, is such a rule; the order of an index is
not. A fast engine (a sorted line for one feature, a k-d tree in low dimension, blocked matrix
products otherwise) proposes the neighbours; wherever two distances at the edge of the
neighbourhood are closer than its rounding error, the row is settled again by direct differences
and priorities.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._distances import EUCLIDEAN, Metric, all_distances, paired_distances
from calliper.kernels._line import SortedLine, balls_by_line
from calliper.kernels._reverse import balls_by_scan, balls_by_tree
from calliper.kernels._wide import WideSearch

#: Candidates beyond those asked for that are looked at first where distances tie.
TIED_SHELL = 24

#: With fewer queries, a scan of all points costs less than a ball search for each of them.
MIN_QUERIES_FOR_TREE = 400


class NeighborSearch:
    """The points of a calibration set, ready to be searched.

    Parameters
    ----------
    points : (N, d)
    priorities : (N,) distinct numbers; of two points at one distance the smaller comes first
    metric : see :data:`Metric`
    """

    def __init__(self, points: FloatArray, priorities: FloatArray, metric: Metric) -> None:
        self.points, self.priorities, self.metric = points, priorities, metric
        self.centre = points.mean(axis=0)
        n, dimension = points.shape
        self.line = self.tree = self.wide = self.brute = None
        if metric == EUCLIDEAN and dimension == 1:
            self.line = SortedLine(points[:, 0])
        elif metric == EUCLIDEAN and n >= min_points_for_tree(dimension):
            self.tree = cKDTree(points)
        elif metric == EUCLIDEAN and WideSearch.suits(points):
            self.wide = WideSearch(points, self.centre)
        elif metric == EUCLIDEAN:
            self.brute = NearestNeighbors(algorithm="brute").fit(points - self.centre)

    def nearest(self, queries: FloatArray, n: int) -> IntArray:
        """The n nearest points of each query, (m, n).

        The last column is exactly the n-th, and the others are exactly the n−1 before it, in an
        order that is by distance up to rounding.
        """
        found, distance, sure = self._propose(queries, n + 1)
        unsettled = np.flatnonzero(~(sure & self._settled(queries, distance, n)))
        found = found[:, :n]
        if len(unsettled):
            location, inverse = np.unique(queries[unsettled], axis=0, return_inverse=True)
            found[unsettled] = self._settle(location, n)[inverse.reshape(-1)]
        return found

    def nearest_others(self, n: int) -> IntArray:
        """As :meth:`nearest` for the points themselves, each one without itself: (N, n)."""
        own = np.arange(len(self.points))
        if n == 0:
            return np.empty((len(own), 0), dtype=np.intp)
        # Queries in the order of the engine find what they need still in cache.
        engine = self.line or self.tree
        order = own if engine is None else engine.indices
        near, distance, sure = self._propose(self.points[order], n + 2)
        keep = _all_but(order, near)
        near, distance = near[keep].reshape(len(own), -1), distance[keep].reshape(len(own), -1)
        found = np.empty((len(own), n), dtype=np.intp)
        found[order] = near[:, :n]
        unsettled = order[~(sure & self._settled(self.points[order], distance, n))]
        if len(unsettled):
            location, inverse = np.unique(self.points[unsettled], axis=0, return_inverse=True)
            with_own = self._settle(location, n + 1)[inverse.reshape(-1)]
            found[unsettled] = with_own[_all_but(unsettled, with_own)].reshape(-1, n)
        return found

    def balls_containing(
        self, queries: FloatArray, reach: FloatArray, edge: FloatArray, priority: float
    ) -> tuple[IntArray, IntArray]:
        """All pairs (query, point) such that the query lies in the ball around the point.

        The ball of point i reaches as far as ``reach[i]`` (squared if Euclidean). A query at
        just that distance is inside if its ``priority`` is smaller than ``edge[i]``. Pairs are
        ordered by query.
        """
        if self.line is not None:
            query, point, doubtful = balls_by_line(self.points, queries, reach)
        elif self.tree is not None and len(queries) >= MIN_QUERIES_FOR_TREE:
            query, point, doubtful = balls_by_tree(self.points, queries, reach)
        elif self.metric == EUCLIDEAN:
            query, point, doubtful = balls_by_scan(self.points, queries, reach, self.centre)
        else:
            return self._balls_by_metric(queries, reach, edge, priority)
        check = np.flatnonzero(doubtful)
        ball = point[check]
        distance = paired_distances(queries[query[check]], self.points[ball])
        keep = np.ones(len(query), dtype=bool)
        keep[check] = _is_inside(distance, reach[ball], edge[ball], priority)
        return query[keep], point[keep]

    def distance_to(self, neighbor: IntArray) -> FloatArray:
        """Distance of every point to one other point each, (N,); squared if Euclidean."""
        other = self.points[neighbor]
        if self.metric == EUCLIDEAN:
            return paired_distances(self.points, other)
        blocks = map_row_blocks(
            lambda rows: np.diagonal(all_distances(self.points[rows], other[rows], self.metric)),
            len(other),
            256,
        )
        return np.concatenate(blocks)

    def _propose(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray, BoolArray]:
        """Up to k candidates a row, (squared) distances right up to rounding, and sure rows."""
        k = min(k, len(self.points))
        sure = np.ones(len(queries), dtype=bool)
        if self.line is not None:
            distance, found = self.line.query(queries, k)
        elif self.tree is not None:
            distance, found = self.tree.query(queries, k, workers=-1)
            found = np.reshape(found, (len(queries), k)).astype(np.intp, copy=False)
            distance = distance.reshape(found.shape)
        elif self.wide is not None:
            squared, found, sure = self.wide.query(queries - self.centre, k)
            return found, squared, sure
        elif self.brute is not None:
            distance, found = self.brute.kneighbors(queries - self.centre, k)
            found = np.asarray(found, dtype=np.intp)
        else:  # nothing is known of other metrics beforehand: every row is settled
            found = np.broadcast_to(np.arange(k), (len(queries), k)).copy()
            return found, np.zeros((len(queries), k)), ~sure
        return found, np.square(distance), sure

    def _settled(self, queries: FloatArray, distance: FloatArray, n: int) -> BoolArray:
        """Rows whose n-th neighbour stands apart from the one before and the one after."""
        dimension = self.points.shape[1]
        error = 8 * (dimension + 4) * np.finfo(float).eps * distance[:, -1]
        if self.brute is not None or self.wide is not None:
            # ‖x‖² − 2x·z + ‖z‖² errs with the norms, and ‖z‖² ≤ 2‖x‖² + 2‖x − z‖².
            centred = np.square(queries - self.centre).sum(axis=1)
            shift = float(np.square(self.centre).sum())
            error = 2 * error + 8 * (dimension + 4) * np.finfo(float).eps * (3 * centred + shift)
        settled = np.ones(len(distance), dtype=bool)
        for left in range(max(0, n - 2), min(n, distance.shape[1] - 1)):
            settled &= distance[:, left + 1] - distance[:, left] > error
        return settled

    def _settle(self, locations: FloatArray, n: int) -> IntArray:
        """The first n points by (distance, priority), by direct differences.

        A few more candidates often hold all that is tied; where they do not, all points are
        compared.
        """
        found = np.empty((len(locations), n), dtype=np.intp)
        left = np.arange(len(locations))
        if self.line is not None or self.tree is not None:
            k = min(n + TIED_SHELL, len(self.points))
            near, distance, _ = self._propose(locations, k)
            exact = np.stack(
                [paired_distances(locations, self.points[column]) for column in near.T], axis=1
            )
            by_priority = np.argsort(self.priorities[near], axis=1)
            exact = np.take_along_axis(exact, by_priority, axis=1)
            order = np.argsort(exact, axis=1, kind="stable")
            ranked = np.take_along_axis(
                np.take_along_axis(near, by_priority, axis=1), order, axis=1
            )
            edge = np.take_along_axis(exact, order, axis=1)[:, n - 1]
            found = ranked[:, :n]
            inside = edge < distance[:, -1] * (1 - 1e-9)
            left = np.flatnonzero(~inside & (k < len(self.points)))

        def settle(rows: slice) -> None:
            distances = all_distances(locations[left[rows]], self.points, self.metric)
            for row, distance in zip(left[rows], distances, strict=True):
                edge = np.partition(distance, n - 1)[n - 1]
                candidates = np.flatnonzero(distance <= edge)
                order = np.lexsort((self.priorities[candidates], distance[candidates]))
                found[row] = candidates[order[:n]]

        map_row_blocks(settle, len(left), len(self.points))
        return found

    def _balls_by_metric(
        self, queries: FloatArray, reach: FloatArray, edge: FloatArray, priority: float
    ) -> tuple[IntArray, IntArray]:
        def scan(rows: slice) -> tuple[IntArray, IntArray]:
            distance = all_distances(queries[rows], self.points, self.metric)
            query, point = np.nonzero(_is_inside(distance, reach, edge, priority))
            return query + rows.start, point

        found = map_row_blocks(scan, len(queries), len(self.points))
        query, point = (np.concatenate(part) for part in zip(*found, strict=True))
        return query, point


def min_points_for_tree(dimension: int) -> float:
    """A k-d tree visits some 2^d leaves a query; measured, it wins from 32·2^d points on."""
    return 32.0 * 2.0 ** min(dimension, 60)


def _all_but(own: IntArray, found: IntArray) -> BoolArray:
    """Mask that drops each row's own index, or its last entry if its own is not among them."""
    is_own = found == own[:, None]
    is_own[:, -1] |= ~is_own.any(axis=1)
    others: BoolArray = ~is_own
    return others


def _is_inside(
    distance: FloatArray, reach: FloatArray, edge: FloatArray, priority: float
) -> BoolArray:
    inside: BoolArray = (distance < reach) | ((distance == reach) & (priority < edge))
    return inside
