"""Radial weights that neither underflow nor lose digits, whatever the length scale.

A local mean is a ratio, so all weights of a row may share a factor. Shifting by the smallest
squared distance makes the nearest weight one: exp(−(d² − d²_min) / 2l²).
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from calliper._types import FloatArray, IntArray
from calliper.kernels._distances import EUCLIDEAN, Metric, squared_distances

#: Largest error of an exponent that the fast expansion of squared distances may cause.
EXPONENT_ERROR = 1e-11


class RadialDistances:
    """Squared distances to fixed points, by the fastest way that is accurate enough for l."""

    def __init__(self, points: FloatArray, length_scale: float, metric: Metric) -> None:
        self.points, self.metric, self.length_scale = points, metric, length_scale
        self.two_l2 = 2 * length_scale**2
        self.centre = points.mean(axis=0)
        centred = points - self.centre
        self.norm = np.square(centred).sum(axis=1)
        self.right = np.ascontiguousarray(np.vstack([-2 * centred.T, self.norm]))

    def reordered(self, order: IntArray) -> RadialDistances:
        """The same with the points in another order."""
        return RadialDistances(self.points[order], self.length_scale, self.metric)

    def to(self, queries: FloatArray) -> FloatArray:
        """(m, N) squared distances."""
        if self.metric != EUCLIDEAN:
            return squared_distances(queries, self.points, self.metric)
        x = queries - self.centre
        x_norm = np.square(x).sum(axis=1)
        largest = x_norm.max(initial=0.0) + self.norm.max() + np.square(self.centre).sum()
        error = 4 * (x.shape[1] + 4) * np.finfo(float).eps * largest
        if error > EXPONENT_ERROR * self.two_l2:
            return np.asarray(cdist(queries, self.points, "sqeuclidean"), dtype=np.float64)
        squared: FloatArray = np.hstack([x, np.ones((len(x), 1))]) @ self.right
        squared += x_norm[:, None]
        return np.maximum(squared, 0.0, out=squared)


def to_weights(squared: FloatArray, shift: FloatArray, two_l2: float) -> FloatArray:
    """exp(−(d² − shift) / 2l²) in place; ``shift`` (m,) is at most the row's smallest d²."""
    squared -= shift[:, None]
    squared /= -two_l2
    return np.exp(squared, out=squared)
