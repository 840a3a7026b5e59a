"""Radial weights that neither underflow nor lose digits, whatever the length scale.

A local mean is a ratio, so all weights of a row may share a factor: exponents −d²/2l² are needed
only up to a constant of the row, and taking the largest as zero makes the nearest weight one.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from calliper._types import FloatArray, IntArray
from calliper.kernels._distances import EUCLIDEAN, Metric, squared_distances

#: Largest error of an exponent that the fast expansion of squared distances may cause.
EXPONENT_ERROR = 1e-11


class RadialExponents:
    """Exponents −d²/2l² to fixed points, by the fastest way that is accurate enough for l."""

    def __init__(self, points: FloatArray, length_scale: float, metric: Metric) -> None:
        self.points, self.metric, self.length_scale = points, metric, length_scale
        self.two_l2 = 2 * length_scale**2
        self.centre = points.mean(axis=0)
        centred = points - self.centre
        norm = np.square(centred).sum(axis=1)
        self.largest_norm = float(norm.max() + np.square(self.centre).sum())
        self.right = np.ascontiguousarray(np.vstack([2 * centred.T, -norm])) / self.two_l2

    def reordered(self, order: IntArray) -> RadialExponents:
        """The same with the points in another order."""
        return RadialExponents(self.points[order], self.length_scale, self.metric)

    def to(
        self, queries: FloatArray, out: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Arrays e (m, N) and c (m,) such that −d²/2l² = e − c, row by row; ``out`` may hold e."""
        x = queries - self.centre
        norm = np.square(x).sum(axis=1)
        error = 4 * (x.shape[1] + 4) * np.finfo(float).eps * (norm.max() + self.largest_norm)
        if self.metric == EUCLIDEAN and error <= EXPONENT_ERROR * self.two_l2:
            extended = np.hstack([x, np.ones((len(x), 1))])
            return np.matmul(extended, self.right, out=out), norm / self.two_l2
        if self.metric == EUCLIDEAN:
            squared = np.asarray(cdist(queries, self.points, "sqeuclidean"), dtype=np.float64)
        else:
            squared = squared_distances(queries, self.points, self.metric)
        squared /= -self.two_l2
        return squared, np.zeros(len(x))


def to_weights(exponent: FloatArray, largest: FloatArray) -> FloatArray:
    """exp(e − largest) in place; ``largest`` (m,) is the row's largest exponent."""
    exponent -= largest[:, None]
    return np.exp(exponent, out=exponent)
