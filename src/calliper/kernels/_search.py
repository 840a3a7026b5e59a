"""Exact nearest neighbours, and which rows have more than one candidate for the last place.

Conformal validity asks that "the K nearest" be a rule that treats all points alike; the order of
an index is not. Points at the same distance therefore *share* the last place, which is worked out
in ``_shared.py``; here rows are found that need it. A fast engine (a sorted line for one feature,
a k-d tree in low dimension, blocked matrix products otherwise) proposes the neighbours; wherever
two distances at the edge of the neighbourhood are closer than its rounding error, the row is
settled again by direct differences.

Fast searches use the expansion ‖x‖² − 2x·z + ‖z‖², whose rounding can order two equal distances
either way. What decides a tie is therefore always computed coordinate by coordinate, so that the
same two rows give the same number wherever it is asked for. Features whose squares would overflow
or vanish are first divided by a power of two, which changes no digit.

Reverse neighbours are the calibration points that would count a new point among their nearest:
each owns a ball that reaches to its K-th neighbour, and a new point enters the neighbourhood of
every point whose ball contains it, of K points on average (``_balls.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from calliper._blocks import BLOCK_FLOATS, map_row_blocks, n_cores, row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels._balls import (
    BallBlocks,
    BallScan,
    Pairs,
    balls_by_line,
    balls_by_tree,
    joined,
)
from calliper.kernels._wide import WideSearch
from calliper.quantile import power_of_two

#: A name that :func:`scipy.spatial.distance.cdist` knows, or a symmetric function of two rows.
Metric = str | Callable[[FloatArray, FloatArray], float]

EUCLIDEAN = "euclidean"

#: Candidates beyond those asked for that are looked at first where distances tie.
TIED_SHELL = 24

#: Largest coordinates between these have squares whose sums neither vanish nor overflow.
ORDINARY = 1e-100, 1e100

#: With fewer queries, comparing them with balls made ready costs less than a search for each ball.
MIN_QUERIES_FOR_TREE = 1000

#: With more features, a box around balls is seldom far enough from a query to leave them out.
MOST_FEATURES_OF_BLOCKS = 4

#: Points in a leaf of the tree: measured, a quarter less time than with 10 in many dimensions.
LEAF_POINTS = 32

#: Sets of balls that are kept ready: a kernel may have two neighbourhoods a point.
READY = 2

#: Points added later are compared one by one until there are √N of them, or so many.
FEW_ADDED = 64


class NeighborSearch:
    """The points of a calibration set, ready to be searched.

    Parameters
    ----------
    points : (N, d)
    metric : see :data:`Metric`
    """

    def __init__(self, points: FloatArray, metric: Metric) -> None:
        self.metric, self.unit = metric, _unit(points, metric)
        self.points = points = self.scaled(points)
        self.centre = points.mean(axis=0)
        #: Points beyond so many were added later, and the engine does not know them.
        self.n_indexed, self.engine = len(points), _engine(points, metric)
        self._index()

    def _index(self) -> None:
        """Build the engine over the points that it is to know."""
        points = self.points[: self.n_indexed]
        self.line = self.tree = self.wide = self.brute = None
        self._ready: list[BallBlocks | BallScan] = []
        if self.engine == "line":
            self.line = SortedLine(points[:, 0])
        elif self.engine == "tree":
            self.tree = cKDTree(points, leafsize=LEAF_POINTS)
        elif self.engine == "wide":
            self.wide = WideSearch(points, self.centre)
        elif self.engine == "brute":
            self.brute = NearestNeighbors(algorithm="brute").fit(points - self.centre)

    def __getstate__(self) -> dict[str, Any]:
        """Points and what the engine was: it is quickly built again."""
        built = ("line", "tree", "wide", "brute", "places", "_ready")
        return {name: value for name, value in vars(self).items() if name not in built}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._index()

    def extended(self, points: FloatArray) -> NeighborSearch | None:
        """A search of ``points``, of which the first are those at hand; None in another unit.

        It answers as one built anew, and is that when many points were added.
        """
        if self.unit != 1 or _unit(points, self.metric) != 1:
            return None
        few = len(points) - self.n_indexed <= max(FEW_ADDED, self.n_indexed**0.5)
        if not few or _engine(points, self.metric) != self.engine:
            return NeighborSearch(points, self.metric)
        other = NeighborSearch.__new__(NeighborSearch)  # copy() would build the engine again
        known = {name: value for name, value in vars(self).items() if name != "places"}
        other.__dict__.update(known, points=points, _ready=[])
        return other

    def nearest(self, queries: FloatArray, n: int) -> tuple[IntArray, BoolArray]:
        """The n nearest points of each query, (m, n), and the rows where the last place is tied.

        The last column is exactly the n-th, and the others are exactly the n−1 before it, in the
        order of the points, so that what is summed over them has the same bits whichever rows are
        asked together. Tied are rows, (m,), whose n-th is just as far as the one before or the one
        after; of points as far as that, any are named.
        """
        queries = self.scaled(queries)
        found, distance, sure = self._propose(queries, n + 1)
        tied = np.zeros(len(queries), dtype=bool)
        unsettled = np.flatnonzero(~(sure & self._settled(queries, distance, n)))
        found = np.ascontiguousarray(found[:, :n])
        if len(unsettled):
            location, inverse = unique_rows(queries[unsettled])
            near, at_edge = self._settle(location, n)
            found[unsettled], tied[unsettled] = near[inverse], at_edge[inverse]
        found[:, :-1].sort(axis=1)
        return found, tied

    def nearest_others(self, n: int) -> tuple[IntArray, BoolArray]:
        """As :meth:`nearest` for the points themselves, each one without itself: (N, n), (N,)."""
        own = np.arange(len(self.points))
        tied = np.zeros(len(own), dtype=bool)
        if n == 0:
            return np.empty((len(own), 0), dtype=np.intp), tied
        # Queries in the order of the engine find what they need still in cache.
        engine = (self.line or self.tree) if self.n_indexed == len(own) else None
        order = own if engine is None else engine.indices
        rows = self.points if engine is None else self.points[order]
        near, distance, sure = self._propose(rows, n + 2)
        keep = _all_but(order, near)
        near, distance = near[keep].reshape(len(own), -1), distance[keep].reshape(len(own), -1)
        found = np.empty((len(own), n), dtype=np.intp)
        found[order] = near[:, :n]
        unsettled = order[~(sure & self._settled(rows, distance, n))]
        if len(unsettled):
            location, inverse = unique_rows(self.points[unsettled])
            twin = np.empty(len(location), dtype=np.intp)
            twin[inverse] = unsettled
            near, at_edge = self._settle(location, n, twin)
            near, twin = near[inverse], twin[inverse]
            # One of the copies of a row was left out for all: the others have it in their place.
            found[unsettled] = np.where(near == unsettled[:, None], twin[:, None], near)
            tied[unsettled] = at_edge[inverse]
        return found, tied

    def others_of(self, points: IntArray, n: int) -> tuple[IntArray, BoolArray]:
        """As :meth:`nearest_others` for some of the points, (m, n), (m,); by direct differences."""
        return self._settle(self.points[points], n, points)

    def balls_containing(self, queries: FloatArray, reach: FloatArray) -> Pairs:
        """All pairs (query, point) such that the query lies in the ball around the point.

        The ball of point i reaches as far as ``reach[i]``, as :meth:`distance_to` has it. Pairs
        are ordered by query; the third array says which queries lie just at that distance.
        """
        queries = self.scaled(queries)

        def check(query: IntArray, point: IntArray, doubtful: BoolArray) -> Pairs:
            """The pairs that are inside, and which are at the edge, by direct differences."""
            inside, at_edge = np.ones(len(query), dtype=bool), np.zeros(len(query), dtype=bool)
            in_doubt = np.flatnonzero(doubtful)
            for rows in row_slices(len(in_doubt), max(1, BLOCK_FLOATS // queries.shape[1])):
                pairs = in_doubt[rows]
                ball = point[pairs]
                distance = paired_distances(queries[query[pairs]], self.points[ball])
                inside[pairs], at_edge[pairs] = distance <= reach[ball], distance == reach[ball]
            return query[inside], point[inside], at_edge[inside]

        if self.metric != EUCLIDEAN:
            return self._balls_by_metric(queries, reach)
        if self.engine in ("line", "tree") and len(queries) >= MIN_QUERIES_FOR_TREE:
            balls_of = balls_by_line if self.line is not None else balls_by_tree
            return check(*balls_of(self.points, queries, reach))
        balls = self._balls_ready(reach)
        if isinstance(balls, BallBlocks):
            return balls.containing(queries)
        return balls.containing(queries, check)

    def _balls_ready(self, reach: FloatArray) -> BallBlocks | BallScan:
        """Balls of that reach, which is the very array given: made ready once, and kept."""
        for ready in self._ready:
            if ready.reach is reach:
                return ready
        balls: BallBlocks | BallScan
        engine = self.line or self.tree
        if engine is None or self.points.shape[1] > MOST_FEATURES_OF_BLOCKS:
            balls = BallScan(self.points, reach, self.centre)
        else:
            added = np.arange(self.n_indexed, len(self.points))
            balls = BallBlocks(self.points, reach, np.append(engine.indices, added))
        self._ready = [balls, *self._ready][:READY]
        return balls

    def around(
        self, queries: FloatArray, n: int, reach: FloatArray
    ) -> tuple[tuple[IntArray, BoolArray], Pairs]:
        """:meth:`nearest` and :meth:`balls_containing`, for which an engine may look once."""
        return self.nearest(queries, n), self.balls_containing(queries, reach)

    def any_equal(self, neighbors: IntArray) -> BoolArray:
        """Whether some of the neighbours of each point, (N, n), are at the same distance, (N,)."""
        columns = [self.distance_to(column) for column in neighbors.T]
        ordered = np.sort(np.stack(columns, axis=1), axis=1)
        return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))

    def shell(
        self, rows: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """Some candidates beyond the n nearest, by direct differences: (m, W), (m, W), (m,).

        Points in order of their distances, these, and rows where no other point is as near as the
        n-th. ``rows`` are in the unit of the search; ``left_out`` names a point that does not count
        for each. Engines of many features do not look for more than they were asked for.
        """
        k = min(n + TIED_SHELL, len(self.points))
        if self.line is None and self.tree is None:
            none = np.zeros((len(rows), n), dtype=np.intp)
            return none, np.zeros(none.shape), np.zeros(len(rows), dtype=bool)
        near, proposed, _ = self._propose(rows, k)
        distance = np.stack([paired_distances(rows, self.points[each]) for each in near.T], axis=1)
        if left_out is not None:
            distance[near == left_out[:, None]] = np.inf
        order = np.argsort(distance, axis=1, kind="stable")
        near = np.take_along_axis(near, order, axis=1)
        distance = np.take_along_axis(distance, order, axis=1)
        inside = distance[:, n - 1] < proposed[:, -1] * (1 - 1e-9)
        return near, distance, inside | (k == len(self.points))

    @cached_property
    def places(self) -> Places:
        """Where there are points, and how many."""
        return Places(self.points)

    def scaled(self, rows: FloatArray) -> FloatArray:
        """Rows in the unit of the search; far beyond all points, only the direction counts."""
        if self.unit == 1:
            return rows
        with np.errstate(over="ignore"):
            return np.clip(rows / self.unit, -ORDINARY[1], ORDINARY[1])

    def distance_to(self, neighbor: IntArray, points: IntArray | None = None) -> FloatArray:
        """Distance of every point to one other each, (N,); squared, in ``unit``, if Euclidean.

        ``points`` names those that are asked for, in place of all.
        """
        own, other = self.points if points is None else self.points[points], self.points[neighbor]
        if self.metric == EUCLIDEAN:
            return paired_distances(own, other)
        blocks = map_row_blocks(
            lambda rows: np.diagonal(all_distances(own[rows], other[rows], self.metric)),
            len(other),
            256,
        )
        return np.concatenate(blocks)

    def _propose(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray, BoolArray]:
        """Up to k candidates a row, (squared) distances right up to rounding, and sure rows."""
        found, squared, sure = self._propose_indexed(queries, min(k, self.n_indexed))
        if self.n_indexed == len(self.points):
            return found, squared, sure

        def merge(rows: slice) -> tuple[IntArray, FloatArray]:
            added = all_distances(queries[rows], self.points[self.n_indexed :], self.metric)
            index = np.broadcast_to(np.arange(self.n_indexed, len(self.points)), added.shape)
            near, distance = np.hstack([found[rows], index]), np.hstack([squared[rows], added])
            order = np.argsort(distance, axis=1, kind="stable")[:, :k]
            return np.take_along_axis(near, order, 1), np.take_along_axis(distance, order, 1)

        width = found.shape[1] + len(self.points) - self.n_indexed
        near, distance = zip(*map_row_blocks(merge, len(queries), 4 * width), strict=True)
        return np.concatenate(near), np.concatenate(distance), sure

    def _propose_indexed(
        self, queries: FloatArray, k: int
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """As :meth:`_propose` among the points that the engine knows."""
        sure = np.ones(len(queries), dtype=bool)
        if self.line is not None:
            distance, found = self.line.query(queries, k)
        elif self.tree is not None:
            distance, found = self.tree.query(queries, k, workers=n_cores())
            found = np.reshape(found, (len(queries), k)).astype(np.intp, copy=False)
            distance = distance.reshape(found.shape)
        elif self.wide is not None:
            squared, found, sure = self.wide.query(queries, k)
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
            chunks = row_slices(len(queries), max(1, BLOCK_FLOATS // dimension))
            centred = np.concatenate(
                [np.square(queries[rows] - self.centre).sum(axis=1) for rows in chunks]
            )
            error = 2 * error + 24 * (dimension + 4) * np.finfo(float).eps * centred
        settled = np.ones(len(distance), dtype=bool)
        for left in range(max(0, n - 2), min(n, distance.shape[1] - 1)):
            settled &= distance[:, left + 1] - distance[:, left] > error
        return settled

    def _settle(
        self, locations: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, BoolArray]:
        """The first n points by direct differences, and where the n-th is tied.

        A few more candidates often hold all that is tied; where they do not, all points are
        compared. ``left_out`` names a point that does not count for each location.
        """
        near, distance, inside = self.shell(locations, n, left_out)
        found, tied = near[:, :n], _tied_at(distance, n)
        left = np.flatnonzero(~inside)

        def settle(rows: slice) -> None:
            distances = all_distances(locations[left[rows]], self.points, self.metric)
            for row, distance in zip(left[rows], distances, strict=True):
                if left_out is not None:
                    distance[left_out[row]] = np.inf
                edge = np.partition(distance, n - 1)[n - 1]
                candidates = np.flatnonzero(distance <= edge)
                order = np.argsort(distance[candidates], kind="stable")[: n + 1]
                found[row] = candidates[order[:n]]
                tied[row] = _tied_at(distance[candidates[order]][None], n)[0]

        map_row_blocks(settle, len(left), len(self.points))
        return found, tied

    def _balls_by_metric(self, queries: FloatArray, reach: FloatArray) -> Pairs:
        def scan(rows: slice) -> Pairs:
            distance = all_distances(queries[rows], self.points, self.metric)
            query, point = np.nonzero(distance <= reach)
            return query + rows.start, point, distance[query, point] == reach[point]

        return joined(map_row_blocks(scan, len(queries), len(self.points)))


def _unit(points: FloatArray, metric: Metric) -> float:
    """What features are divided by: 1, or a power of two where squares would not be numbers."""
    largest = power_of_two(points)
    ordinary = metric != EUCLIDEAN or ORDINARY[0] < largest < ORDINARY[1]
    return 1.0 if ordinary else largest


def _engine(points: FloatArray, metric: Metric) -> str:
    """What proposes neighbours; nothing for other metrics."""
    n, dimension = points.shape
    if metric != EUCLIDEAN:
        return ""
    if dimension == 1:
        return "line"
    if n >= min_points_for_tree(dimension):
        return "tree"
    return "wide" if WideSearch.suits(points) else "brute"


class Places:
    """Points by where they are: equal rows are one place.

    Attributes
    ----------
    rows : (U, d) the places
    of_point : (N,) the place of each point
    size : (U,) how many points are there
    """

    def __init__(self, points: FloatArray) -> None:
        self.rows, self.of_point = unique_rows(points)
        self.size = np.bincount(self.of_point)


def unique_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Different rows, and which of them each row is."""
    different, inverse = np.unique(rows, axis=0, return_inverse=True)
    return different, inverse.reshape(-1)


def _tied_at(ascending: FloatArray, n: int) -> BoolArray:
    """Rows of distances whose n-th equals the one before or the one after, if there is one."""
    edge = ascending[:, n - 1]
    tied: BoolArray = np.zeros(len(ascending), dtype=bool)
    for other in {max(n - 2, 0), min(n, ascending.shape[1] - 1)} - {n - 1}:
        tied |= ascending[:, other] == edge
    return tied


def min_points_for_tree(dimension: int) -> float:
    """A k-d tree visits some 2^d leaves a query; measured, it wins from 32·2^d points on."""
    return 32.0 * 2.0 ** min(dimension, 60)


def _all_but(own: IntArray, found: IntArray) -> BoolArray:
    """Mask that drops each row's own index, or its last entry if its own is not among them."""
    is_own = found == own[:, None]
    is_own[:, -1] |= ~is_own.any(axis=1)
    others: BoolArray = ~is_own
    return others


class SortedLine:
    """One feature: values in order, with infinity on either side.

    The k nearest values of x are found in k steps, each taking the nearer of the next on the left
    and the next on the right; all queries walk together. No tree of one dimension keeps up with it.
    """

    def __init__(self, values: FloatArray) -> None:
        self.indices = np.argsort(values)
        self.padded = np.concatenate([[-np.inf], values[self.indices], [np.inf]])

    def query(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """Distances and indices of the k nearest, (m, k), ascending; k ≤ number of values."""
        x = queries[:, 0]
        right = np.searchsorted(self.padded[1:-1], x) + 1
        left = right - 1
        distance = np.empty((k, len(x)))
        place = np.empty((k, len(x)), dtype=np.intp)
        for step in range(k):
            to_left, to_right = x - self.padded[left], self.padded[right] - x
            go_left = to_left <= to_right
            np.minimum(to_left, to_right, out=distance[step])
            np.copyto(place[step], right)
            np.copyto(place[step], left, where=go_left)
            left -= go_left
            right += ~go_left
        return distance.T, self.indices[place.T - 1]


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
        raise ValueError(
            f"metric must be a name that scipy.spatial.distance.cdist knows, or a function of two "
            f"rows; got {metric!r} ({error})."
        ) from error


def all_distances(queries: FloatArray, points: FloatArray, metric: Metric) -> FloatArray:
    """Distances of every query to every point, (m, N); squared for the Euclidean metric."""
    if metric != EUCLIDEAN:
        distances = np.asarray(cdist(queries, points, metric=metric), dtype=np.float64)
        if np.isnan(distances).any():
            row = int(np.flatnonzero(np.isnan(distances).any(axis=1))[0])
            raise CalliperError(
                f"metric {metric!r} gives NaN, for example for the row {queries[row]}: such a row "
                f"(all zeros, for cosine) is near to nothing. Remove it or use another metric."
            )
        return distances
    total = np.zeros((len(queries), len(points)))
    for column in range(points.shape[1]):
        total += np.square(queries[:, column, None] - points[None, :, column])
    return total


def paired_distances(left: FloatArray, right: FloatArray) -> FloatArray:
    """Squared Euclidean distances of row r of ``left`` to row r of ``right``, (m,)."""
    if left.shape[1] >= 16:  # the same sums, one after the other, without a stride
        difference = left - right
        np.square(difference, out=difference)
        return np.asarray(np.cumsum(difference, axis=1, out=difference)[:, -1].copy())
    total = np.zeros(len(left))
    for column in range(left.shape[1]):
        total += np.square(left[:, column] - right[:, column])
    return total


def squared_distances(
    queries: FloatArray, points: FloatArray, metric: Metric, out: FloatArray | None = None
) -> FloatArray:
    """Squared distances for any metric, (m, N), in ``out`` if given; nothing hangs on a tie."""
    if metric == EUCLIDEAN:
        return np.asarray(cdist(queries, points, "sqeuclidean", out=out), dtype=np.float64)
    return np.square(all_distances(queries, points, metric))
