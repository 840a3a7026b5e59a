"""Exact nearest neighbours by NumPy: a fast index proposes them, direct differences decide.

A sorted line for one feature, a k-d tree in low dimension, or blocked matrix products otherwise
propose the neighbours. Where two distances at the edge of the neighbourhood are closer than the
rounding error of the index, the row is settled by direct differences. Features whose squares would
overflow or vanish are first divided by a power of two, which changes no digit. Balls that contain
new points are in ``_balls.py``.
"""

from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from calliper._blocks import BLOCK_FLOATS, map_row_blocks, n_cores, row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import engine_of
from calliper.kernels._balls import BallScan, balls_by_line, balls_by_tree, joined
from calliper.kernels._search import (
    EUCLIDEAN,
    ORDINARY,
    TIED_SHELL,
    Metric,
    Pairs,
    Search,
    all_distances,
    paired_distances,
    tied_at,
    unique_rows,
)
from calliper.quantile import power_of_two

#: With fewer queries, comparing them with all balls costs less than a search for each ball.
MIN_QUERIES = {"line": 100, "tree": 1000}

#: Points in a leaf of the tree: measured, a quarter less time than with 10 in many dimensions.
LEAF_POINTS = 32

#: Sets of balls that are kept ready: a kernel may have two neighbourhoods a point.
READY = 2

#: Points added later are compared one by one until there are √N of them, or this many.
FEW_ADDED = 64


def search_of(rows: Any, metric: Metric, named: str | None = None) -> Search:
    """A search of the rows by the engine that holds them, else the one named, else NumPy."""
    engine = engine_of(rows, named)
    made: Search = (NeighborSearch if engine is None else engine.search)(rows, metric)
    return made


class NeighborSearch(Search):
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
        #: Points beyond this many were added later and are not in the index.
        self.n_indexed, self.engine = len(points), _engine(points, metric)
        self._index()

    def _index(self) -> None:
        """Build the engine over the points that it is to know."""
        self.index = INDEXES[self.engine](self.points[: self.n_indexed], self.centre)
        self._ready: list[BallScan] = []

    def __getstate__(self) -> dict[str, Any]:
        """Points and what the engine was: it is quickly built again."""
        built = ("index", "places", "_ready")
        return {name: value for name, value in vars(self).items() if name not in built}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._index()

    def extended(self, points: FloatArray) -> "NeighborSearch | None":
        """It answers as one built anew, and is that when many were added; None in another unit."""
        if self.unit != 1 or _unit(points, self.metric) != 1:
            return None
        few = len(points) - self.n_indexed <= max(FEW_ADDED, self.n_indexed**0.5)
        if not few or not self.engine or _engine(points, self.metric) != self.engine:
            return NeighborSearch(points, self.metric)
        other = NeighborSearch.__new__(NeighborSearch)  # copy() would build the engine again
        known = {name: value for name, value in vars(self).items() if name != "places"}
        other.__dict__.update(known, points=points, _ready=[])
        return other

    def nearest(self, queries: FloatArray, n: int) -> tuple[IntArray, BoolArray]:
        """The n nearest, and where the last place is tied."""
        queries = self.scaled(queries)
        found, distance = self._propose(queries, n + 1)
        tied = np.zeros(len(queries), dtype=bool)
        unsettled = np.flatnonzero(~self._settled(queries, distance, n))
        found = np.ascontiguousarray(found[:, :n])
        if len(unsettled):
            location, inverse = unique_rows(queries[unsettled])
            near, at_edge = self._settle(location, n)
            found[unsettled], tied[unsettled] = near[inverse], at_edge[inverse]
        found[:, :-1].sort(axis=1)
        return found, tied

    def nearest_others(self, n: int) -> tuple[IntArray, BoolArray]:
        """The same of the points themselves, each one without itself."""
        own = np.arange(len(self.points))
        tied = np.zeros(len(own), dtype=bool)
        if n == 0:
            return np.empty((len(own), 0), dtype=np.intp), tied
        # Queries in the order of the engine find what they need still in cache.
        indices = self.index.indices if self.n_indexed == len(own) else None
        order = own if indices is None else indices
        rows = self.points if indices is None else self.points[order]
        near, distance = self._propose(rows, n + 2)
        keep = _all_but(order, near)
        near, distance = near[keep].reshape(len(own), -1), distance[keep].reshape(len(own), -1)
        found = np.empty((len(own), n), dtype=np.intp)
        found[order] = near[:, :n]
        unsettled = order[~self._settled(rows, distance, n)]
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
        """The same of some of the points, by direct differences."""
        return self._settle(self.points[points], n, points)

    def balls_containing(self, queries: FloatArray, reach: FloatArray) -> Pairs:
        """All pairs of a query and a point whose ball contains it."""
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
        if len(queries) >= MIN_QUERIES.get(self.engine, np.inf):
            balls_of = balls_by_line if self.engine == "line" else balls_by_tree
            return check(*balls_of(self.points, queries, reach))
        return self._balls_ready(reach).containing(queries, check)

    def _balls_ready(self, reach: FloatArray) -> BallScan:
        """Balls of that reach, compared by identity: prepared once, and kept."""
        for ready in self._ready:
            if ready.reach is reach:
                return ready
        balls = BallScan(self.points, reach, self.centre)
        self._ready = [balls, *self._ready][:READY]
        return balls

    def shell(
        self, rows: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """Candidates beyond the n nearest; indices of many features look for no more than n."""
        k = min(n + TIED_SHELL, len(self.points))
        if self.index.indices is None:
            none = np.zeros((len(rows), n), dtype=np.intp)
            return none, np.zeros(none.shape), np.zeros(len(rows), dtype=bool)
        near, proposed = self._propose(rows, k)
        distance = np.stack([paired_distances(rows, self.points[each]) for each in near.T], axis=1)
        if left_out is not None:
            distance[near == left_out[:, None]] = np.inf
        order = np.argsort(distance, axis=1, kind="stable")
        near = np.take_along_axis(near, order, axis=1)
        distance = np.take_along_axis(distance, order, axis=1)
        inside = distance[:, n - 1] < proposed[:, -1] * (1 - 1e-9)
        return near, distance, inside | (k == len(self.points))

    def distance_to(self, neighbor: IntArray, points: IntArray | None = None) -> FloatArray:
        """Distances of points to one other each, by direct differences."""
        own, other = self.points if points is None else self.points[points], self.points[neighbor]
        if self.metric == EUCLIDEAN:
            return paired_distances(own, other)
        blocks = map_row_blocks(
            lambda rows: np.diagonal(all_distances(own[rows], other[rows], self.metric)),
            len(other),
            256,
        )
        return np.concatenate(blocks)

    def _propose(self, queries: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Up to k candidates a row, and squared distances that are right up to rounding."""
        squared, found = self.index.query(queries, min(k, self.n_indexed))
        if self.n_indexed == len(self.points):
            return found, squared

        def merge(rows: slice) -> tuple[IntArray, FloatArray]:
            added = all_distances(queries[rows], self.points[self.n_indexed :], self.metric)
            index = np.broadcast_to(np.arange(self.n_indexed, len(self.points)), added.shape)
            near, distance = np.hstack([found[rows], index]), np.hstack([squared[rows], added])
            order = np.argsort(distance, axis=1, kind="stable")[:, :k]
            return np.take_along_axis(near, order, 1), np.take_along_axis(distance, order, 1)

        width = found.shape[1] + len(self.points) - self.n_indexed
        near, distance = zip(*map_row_blocks(merge, len(queries), 4 * width), strict=True)
        return np.concatenate(near), np.concatenate(distance)

    def _settled(self, queries: FloatArray, distance: FloatArray, n: int) -> BoolArray:
        """Rows whose n-th neighbour stands apart from the one before and the one after."""
        dimension = self.points.shape[1]
        error = 8 * (dimension + 4) * np.finfo(float).eps * distance[:, -1]
        if self.index.by_norms:
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
        found, tied = near[:, :n], tied_at(distance, n)
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
                tied[row] = tied_at(distance[candidates[order]][None], n)[0]

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
    return "tree" if n >= min_points_for_tree(dimension) else "brute"


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

    by_norms = False

    def __init__(self, points: FloatArray, centre: FloatArray) -> None:
        values = points[:, 0]
        self.indices = np.argsort(values)
        self.padded = np.concatenate([[-np.inf], values[self.indices], [np.inf]])

    def query(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """The k nearest, ascending; k ≤ number of values."""
        x = queries[:, 0]
        right = np.searchsorted(self.padded[1:-1], x) + 1
        left = right - 1
        distance = np.empty((k, len(x)))
        position = np.empty((k, len(x)), dtype=np.intp)
        for step in range(k):
            to_left, to_right = x - self.padded[left], self.padded[right] - x
            go_left = to_left <= to_right
            np.minimum(to_left, to_right, out=distance[step])
            np.copyto(position[step], right)
            np.copyto(position[step], left, where=go_left)
            left -= go_left
            right += ~go_left
        return np.square(distance.T), self.indices[position.T - 1]


class Tree:
    """A k-d tree."""

    by_norms = False

    def __init__(self, points: FloatArray, centre: FloatArray) -> None:
        self.tree = cKDTree(points, leafsize=LEAF_POINTS)
        self.indices = self.tree.indices

    def query(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """The k nearest, ascending."""
        distance, found = self.tree.query(queries, k, workers=n_cores())
        found = np.reshape(found, (len(queries), k)).astype(np.intp, copy=False)
        return np.square(distance.reshape(found.shape)), found


class Brute:
    """Blocked matrix products in double precision."""

    by_norms, indices = True, None

    def __init__(self, points: FloatArray, centre: FloatArray) -> None:
        self.centre, self.search = centre, NearestNeighbors(algorithm="brute").fit(points - centre)

    def query(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """The k nearest, ascending."""
        distance, found = self.search.kneighbors(queries - self.centre, k)
        return np.square(distance), np.asarray(found, dtype=np.intp)


class Unknown:
    """Nothing is known of other metrics beforehand: all are as near, and every row is settled."""

    by_norms, indices = False, None

    def __init__(self, points: FloatArray, centre: FloatArray) -> None:
        return

    def query(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """The first k."""
        found = np.broadcast_to(np.arange(k), (len(queries), k)).copy()
        return np.zeros(found.shape), found


#: What proposes neighbours: ``query`` gives squared distances right up to rounding and indices,
#: both (m, k); ``indices`` are the points such that neighbours follow one another, if that is
#: known; ``by_norms`` says that distances are sums of norms and products.
INDEXES: dict[str, Any] = {"line": SortedLine, "tree": Tree, "brute": Brute, "": Unknown}


def min_points_for_tree(dimension: int) -> float:
    """A k-d tree visits some 2^d leaves a query; measured, it wins from 32·2^d points on."""
    return 32.0 * 2.0 ** min(dimension, 60)
