"""What a search among calibration points provides, and distances by direct differences.

NumPy with trees and matrix products (``_neighbors.py``) or an engine of ``calliper.scale`` computes
it; results are exact either way. Points at the same distance *share* the last place
(``_nearest.py``); a search says which rows need that. Ties are always decided by distances computed
coordinate by coordinate, so that the same two rows give the same number everywhere.

Reverse neighbours are the calibration points that would count a new point among their nearest: each
has a ball that reaches to its K-th neighbour, and a new point enters the neighbourhood of every
point whose ball contains it, K points on average.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.quantile import Shares, merged_multiple, pad_exceptions

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


class Search(ABC):
    """The points of a calibration set, ready to be searched.

    Attributes
    ----------
    points : (N, d) in the unit of the search
    metric, unit : see :data:`Metric`; what features are divided by, a power of two
    """

    points: FloatArray
    metric: Metric
    unit: float

    @abstractmethod
    def nearest(self, queries: FloatArray, n: int) -> tuple[IntArray, BoolArray]:
        """The n nearest points of each query, (m, n), and the rows where the last place is tied.

        The last column is exactly the n-th, and the others are exactly the n−1 before it, in the
        order of the points, so that sums over them have the same bits in any batch. Tied are rows
        whose n-th is just as far as the one before or the one after; of these, any are named.
        """

    def nearest_others(self, n: int) -> tuple[IntArray, BoolArray]:
        """As :meth:`nearest` for the points themselves, each one without itself: (N, n), (N,).

        Columns are in the order of distances.
        """
        return self.others_of(np.arange(len(self.points)), n)

    @abstractmethod
    def others_of(self, points: IntArray, n: int) -> tuple[IntArray, BoolArray]:
        """As :meth:`nearest_others` for some of the points, (m, n), (m,)."""

    @abstractmethod
    def balls_containing(self, queries: FloatArray, reach: FloatArray) -> Pairs:
        """All pairs (query, point) such that the query lies in the ball around the point.

        The ball of point i reaches as far as ``reach[i]``, as :meth:`distance_to` has it. Pairs
        are ordered by query; the third array says which queries lie just at that distance.
        """

    @abstractmethod
    def shell(
        self, rows: FloatArray, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """Some candidates beyond the n nearest, and their distances in order, (m, W) both.

        And where no other point is as near as the n-th, (m,). ``rows`` are in the unit of the
        search; ``left_out`` names a point that does not count for each.
        """

    @abstractmethod
    def distance_to(self, neighbor: IntArray, points: IntArray | None = None) -> FloatArray:
        """Distance of every point to one other each, (N,); squared, in ``unit``, if Euclidean.

        ``points`` names those that are asked for, in place of all.
        """

    def around(
        self, queries: FloatArray, n: int, reach: FloatArray
    ) -> tuple[tuple[IntArray, BoolArray], Pairs]:
        """:meth:`nearest` and :meth:`balls_containing`, for which an engine may look once."""
        return self.nearest(queries, n), self.balls_containing(queries, reach)

    def extended(self, points: FloatArray) -> Self | None:
        """A search of ``points``, of which the first are those at hand; None if that is no gain."""
        return None

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

        It takes their indices, None for all points, and distances (b, W): those of :meth:`shell`
        where they suffice.
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


def selected(
    ordered: FloatArray,
    factor: FloatArray,
    row: IntArray,
    position: IntArray,
    value: FloatArray,
    asked: Sequence[Any],
    shares: Shares | None = None,
) -> FloatArray:
    """As :func:`calliper.quantile.merged_multiple`, of exceptions listed by ascending row: (m, L).

    Asked for are ranks, or levels by weight.
    """
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


def unique_rows(rows: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Different rows, where each of them is first, and which of them each row is."""
    different, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return different, first, inverse.reshape(-1)


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
