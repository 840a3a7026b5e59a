"""Which balls contain a new point: each reaches to the last neighbour of the point it is around.

One matrix product compares a few queries with all balls; what depends on the balls alone is
computed once. With few features and many queries, each ball is searched among the queries instead.

Both return pairs (query, point) ordered by query: all pairs that can qualify. Doubtful ones, within
rounding error of the edge, are checked by direct differences.
"""

from collections.abc import Callable
from itertools import chain

import numpy as np
from scipy.spatial import cKDTree

from calliper._blocks import Scratch, map_row_blocks, n_cores
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._search import Pairs

#: What makes pairs at the edge of doubtful ones.
Check = Callable[[IntArray, IntArray, BoolArray], Pairs]


class BallScan:
    """Balls around points, all of which are compared with each query: O(N m d).

    One matrix product of rows extended by a one gives ‖z‖² − reach − 2x·z, which lies below
    −‖x‖² exactly when x is inside. Centring keeps the rounding error τ(‖x‖² + ‖z‖²) small, and
    ‖z‖² ≤ 2‖x‖² + 2·reach for every pair that is inside.
    """

    def __init__(self, points: FloatArray, reach: FloatArray, centre: FloatArray) -> None:
        self.reach, self.centre = reach, centre
        z, d = points - centre, points.shape[1]
        self.z_norm = np.square(z).sum(axis=1)
        self.tolerance = 8 * (d + 4) * np.finfo(float).eps
        # Below the smallest number errors are no longer relative.
        self.tiny = (d + 4) * np.finfo(float).tiny
        self.right = np.vstack([-2 * z.T, self.z_norm - reach * (1 + 4 * self.tolerance)])

    def containing(self, queries: FloatArray, check: Check) -> Pairs:
        """Pairs that ``check`` keeps; block by block, since in high dimension most are doubtful."""
        scratch = Scratch()

        def scan(rows: slice) -> Pairs:
            query, point, doubtful = self._of_block(queries[rows], scratch)
            return check(query + rows.start, point, doubtful)

        return joined(map_row_blocks(scan, len(queries), len(self.z_norm)))

    def _of_block(self, queries: FloatArray, scratch: Scratch) -> Pairs:
        x = queries - self.centre
        x_norm = np.square(x).sum(axis=1)
        left = np.hstack([x, np.ones((len(x), 1))])
        excess = scratch.array("excess", (len(left), len(self.z_norm)))
        np.matmul(left, self.right, out=excess)
        slack = self.tolerance * 4 * x_norm + self.tiny
        hit = np.flatnonzero(excess < np.nextafter(slack - x_norm, np.inf)[:, None])
        query, point = np.divmod(hit, len(self.z_norm))
        margin = excess.reshape(-1)[hit] + x_norm[query]
        error = slack[query] + self.tolerance * (self.z_norm[point] + self.reach[point])
        return query, point, margin >= -4 * error


def balls_by_line(points: FloatArray, queries: FloatArray, reach: FloatArray) -> Pairs:
    """Walk along sorted queries; pairs within √reach of the point, a little more than exact."""
    order = np.argsort(queries[:, 0])
    ordered, centre = queries[order, 0], points[:, 0]
    # The square of a difference below 1.6e-162 is zero.
    radius = np.sqrt(reach) * (1 + 1e-12) + 2e-162
    first = np.searchsorted(ordered, centre - radius)
    count = np.searchsorted(ordered, centre + radius, side="right") - first
    point = np.repeat(np.arange(len(points)), count)
    within = np.arange(len(point)) - np.repeat(np.cumsum(count) - count, count)
    query = order[first[point] + within]
    by_query = np.argsort(query, kind="stable")
    return query[by_query], point[by_query], np.ones(len(query), dtype=bool)


def balls_by_tree(points: FloatArray, queries: FloatArray, reach: FloatArray) -> Pairs:
    """Search a tree of the queries once for each ball; for low dimension, O(N log m)."""
    radius = np.sqrt(reach) * (1 + 1e-12)
    members = cKDTree(queries).query_ball_point(
        points, radius, workers=n_cores(), return_sorted=False
    )
    count = np.fromiter(map(len, members), dtype=np.intp, count=len(members))
    query = np.fromiter(chain.from_iterable(members), dtype=np.intp, count=int(count.sum()))
    point = np.repeat(np.arange(len(points)), count)
    order = np.argsort(query, kind="stable")
    return query[order], point[order], np.ones(len(query), dtype=bool)


def joined(found: list[Pairs]) -> Pairs:
    """Pairs of consecutive blocks of queries, one after the other."""
    query, point, mark = (np.concatenate(part) for part in zip(*found, strict=True))
    return query, point, mark
