"""One feature: neighbours on a sorted line, by walking outwards.

The k nearest values of x are found in k steps, each taking the nearer of the next on the left and
the next on the right; all queries walk together. No tree of one dimension keeps up with it.
"""

from __future__ import annotations

import numpy as np

from calliper._types import BoolArray, FloatArray, IntArray


class SortedLine:
    """Values in order, with infinity on either side."""

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


def balls_by_line(
    points: FloatArray, queries: FloatArray, reach: FloatArray
) -> tuple[IntArray, IntArray, BoolArray]:
    """Pairs (query, point) with the query within √reach of the point, a little more than exact."""
    order = np.argsort(queries[:, 0])
    ordered, centre = queries[order, 0], points[:, 0]
    radius = np.sqrt(reach) * (1 + 1e-12) + 4 * np.finfo(float).eps * np.abs(centre)
    first = np.searchsorted(ordered, centre - radius)
    count = np.searchsorted(ordered, centre + radius, side="right") - first
    point = np.repeat(np.arange(len(points)), count)
    within = np.arange(len(point)) - np.repeat(np.cumsum(count) - count, count)
    query = order[first[point] + within]
    by_query = np.argsort(query, kind="stable")
    return query[by_query], point[by_query], np.ones(len(query), dtype=bool)
