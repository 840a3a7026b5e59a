"""Reverse neighbours: which calibration points would count a new point among their nearest?

Each calibration point owns a ball that reaches to its K-th neighbour; a new point enters the
neighbourhood of every point whose ball contains it, of K points on average. Both searches return
all pairs that can qualify, and mark as doubtful those within rounding error of the edge.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from scipy.spatial import cKDTree

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._wide import LARGEST
from calliper.quantile import power_of_two

Pairs = tuple[IntArray, IntArray, BoolArray]


def balls_by_tree(points: FloatArray, queries: FloatArray, reach: FloatArray) -> Pairs:
    """Search a tree of the queries once for each ball; for low dimension, O(N log m)."""
    radius = np.sqrt(reach) * (1 + 1e-12)
    # A subnormal radius squared is zero: keep such a ball from closing on its own centre.
    members = cKDTree(queries).query_ball_point(
        points, np.nextafter(radius, np.inf), workers=-1, return_sorted=False
    )
    count = np.fromiter(map(len, members), dtype=np.intp, count=len(members))
    query = np.fromiter(chain.from_iterable(members), dtype=np.intp, count=int(count.sum()))
    point = np.repeat(np.arange(len(points)), count)
    order = np.argsort(query, kind="stable")
    return query[order], point[order], np.ones(len(query), dtype=bool)


def balls_by_scan(
    points: FloatArray, queries: FloatArray, reach: FloatArray, centre: FloatArray
) -> Pairs:
    """Compare all distances with all reaches, a block of queries at a time; O(N m d).

    One matrix product of rows extended by a one gives ‖z‖² − reach − 2x·z, which lies below
    −‖x‖² exactly when x is inside. Centring keeps the rounding error τ(‖x‖² + ‖z‖²) small, and
    ‖z‖² ≤ 2‖x‖² + 2·reach for every pair that is inside.
    """
    shift = float(np.square(centre).sum())
    z = points - centre
    unit = power_of_two(z)
    far = float(np.abs(queries - centre).max(initial=0.0)) > LARGEST * unit
    # The product decides the cost of wide rows; half of it suffices, since the edge is checked.
    dtype = np.float64 if points.shape[1] < 16 or far else np.float32
    unit = 1.0 if dtype is np.float64 else unit
    z, shift, reach = z / unit, shift / unit**2, reach / unit**2
    z_norm = np.square(z).sum(axis=1)
    tolerance = 8 * (points.shape[1] + 4) * float(np.finfo(dtype).eps)
    # Centring itself errs in double precision, with the size of the centre.
    centring = 8 * (points.shape[1] + 4) * float(np.finfo(float).eps) * shift
    bias = z_norm - reach * (1 + 4 * tolerance)
    right = np.ascontiguousarray(np.vstack([-2 * z.T, bias]), dtype=dtype)
    scratch = Scratch()

    def scan(rows: slice) -> Pairs:
        x = (queries[rows] - centre) / unit
        x_norm = np.square(x).sum(axis=1)
        left = np.hstack([x, np.ones((len(x), 1))]).astype(dtype, copy=False)
        out = scratch.array("excess", (len(left), len(points)), dtype)
        excess = np.matmul(left, right, out=out)
        slack = tolerance * 4 * x_norm + centring
        # Rounded up, so that no pair is lost in the conversion.
        edge = np.nextafter((slack - x_norm).astype(dtype), dtype(np.inf))
        hit = np.flatnonzero(excess < edge[:, None])
        query, point = np.divmod(hit, len(points))
        margin = excess.reshape(-1)[hit] + x_norm[query]
        error = slack[query] + tolerance * (z_norm[point] + reach[point])
        return query + rows.start, point, margin > -4 * error

    found = map_row_blocks(scan, len(queries), len(points))
    query, point, doubtful = (np.concatenate(part) for part in zip(*found, strict=True))
    return query, point, doubtful
