"""Localisers: how much weight each member of a bag gives every other, itself one.

    exponential   H_ij = exp(−D_ij / h)
    gaussian      H_ij = exp(−D_ij² / 2h²)
    neighbors     H_ij = 1 if j is one of the h nearest of i in the bag, else 0

D is the Euclidean distance by direct differences, so that equal rows weigh the same to the last
bit. With neighbours the new point, where it comes near enough to a calibration point, takes the
place of that point's last neighbour; priorities drawn at random settle ties in distance, since
any rule that tells the new point from the others would void the guarantee.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import BoolArray, FloatArray
from calliper.calibrators._lcp_search import OrderedScores
from calliper.kernels import EUCLIDEAN, all_distances

RADIAL = ("exponential", "gaussian")
LOCALIZERS = (*RADIAL, "neighbors")

#: Weight, share, share with the new point below: what the α̃ search takes, each (m, N).
Comparison = tuple[FloatArray, FloatArray, FloatArray]


def radial_weights(distances: FloatArray, name: str, bandwidth: float) -> FloatArray:
    """Weights in place of distances; those too small for a number are zero."""
    with np.errstate(over="ignore"):
        distances /= bandwidth
        if name == "gaussian":
            np.square(distances, out=distances)
            distances *= 0.5
    np.negative(distances, out=distances)
    return np.exp(distances, out=distances)


def nearest_mask(distances: FloatArray, k: int, priorities: FloatArray) -> BoolArray:
    """The k nearest columns of each row, ties by lowest priority, (m, N); k ≤ N."""
    edge = np.partition(distances, k - 1, axis=1)[:, k - 1 : k]
    mask: BoolArray = distances <= edge
    crowded = np.flatnonzero(mask.sum(axis=1) > k)
    if len(crowded):
        by_priority = np.argsort(priorities)
        order = np.argsort(distances[np.ix_(crowded, by_priority)], axis=1, kind="stable")
        chosen = np.zeros((len(crowded), distances.shape[1]), dtype=np.bool_)
        np.put_along_axis(chosen, by_priority[order[:, :k]], True, axis=1)
        mask[crowded] = chosen
    return mask


class RadialLocalizer:
    """Weights that fall with distance. O(N²d) once, O(Nd) for each new row."""

    def __init__(
        self, points: FloatArray, ordered: OrderedScores, name: str, bandwidth: float
    ) -> None:
        self.points, self.name, self.bandwidth = points, name, bandwidth

        def sums(rows: slice) -> FloatArray:
            reached = np.cumsum(self._weights(points[rows]), axis=1)
            places = ordered.n_below[rows]
            below = reached[np.arange(len(reached)), places - 1]
            return np.stack([np.where(places > 0, below, 0.0), reached[:, -1]])

        n = len(points)
        self.below, self.total = np.concatenate(map_row_blocks(sums, n, n), axis=1)

    def compare(self, x: FloatArray, scratch: Scratch) -> Comparison:
        """What the search takes, for a block of new rows."""
        shape = len(x), len(self.points)
        weight = self._weights(x, scratch.array("weight", shape))
        total = np.add(weight, self.total, out=scratch.array("total", shape))
        share = np.divide(self.below, total, out=scratch.array("share", shape))
        with_new = np.add(weight, self.below, out=scratch.array("with new", shape))
        with_new /= total
        return weight, share, with_new

    def _weights(self, x: FloatArray, out: FloatArray | None = None) -> FloatArray:
        distances = np.asarray(cdist(x, self.points, out=out), dtype=np.float64)
        return radial_weights(distances, self.name, self.bandwidth)


class NeighborLocalizer:
    """The h nearest of each member of the bag. ``priorities`` has the new point's last."""

    def __init__(
        self, points: FloatArray, ordered: OrderedScores, k: int, priorities: FloatArray
    ) -> None:
        n = len(points)
        self.points, self.k, self.priorities = points, min(k, n), priorities

        def sums(rows: slice) -> FloatArray:
            distances = all_distances(points[rows], points, EUCLIDEAN)
            places = np.arange(len(distances))
            distances[places, np.arange(rows.start, rows.stop)] = np.inf
            near = nearest_mask(distances, self.k, priorities[:-1])
            edge = np.where(near, distances, -np.inf).max(axis=1)
            at_edge = near & (distances == edge[:, None])
            last = np.where(at_edge, priorities[:-1], -1.0).argmax(axis=1)
            is_below = np.arange(n) < ordered.n_below[rows, None]
            lost = is_below[places, last] & np.isfinite(edge)
            below = np.count_nonzero(near & is_below, axis=1)
            return np.stack([below, edge, priorities[last], lost])

        parts = np.concatenate(map_row_blocks(sums, n, n), axis=1)
        self.below, self.edge, self.edge_priority, self.lost = parts

    def compare(self, x: FloatArray, scratch: Scratch) -> Comparison:
        """What the search takes, for a block of new rows."""
        distances = all_distances(x, self.points, EUCLIDEAN)
        weight = nearest_mask(distances, self.k, self.priorities[:-1]).astype(np.float64)
        enters = distances < self.edge
        enters |= (distances == self.edge) & (self.priorities[-1] < self.edge_priority)
        share = (self.below - enters * self.lost) / (self.k + 1)
        return weight, share, share + enters / (self.k + 1)


def make_localizer(
    name: str, points: FloatArray, ordered: OrderedScores, bandwidth: float, priorities: FloatArray
) -> RadialLocalizer | NeighborLocalizer:
    """The localiser of that name at the calibration points, which stand in order of score."""
    if name == "neighbors":
        return NeighborLocalizer(points, ordered, int(bandwidth), priorities)
    return RadialLocalizer(points, ordered, name, bandwidth)
