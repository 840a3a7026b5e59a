"""Local means over other data, such as training errors: the scale of MADSplit."""

from __future__ import annotations

import numpy as np

from calliper._blocks import CHUNK_ROWS, map_row_blocks, row_slices
from calliper._types import FloatArray
from calliper.kernels._search import NeighborSearch
from calliper.scale._weights import RadialExponents, to_weights


class NearestMean:
    """Mean over the K nearest of the points searched."""

    def __init__(self, search: NeighborSearch, magnitudes: FloatArray, n_neighbors: int) -> None:
        self.search, self.magnitudes, self.n_neighbors = search, magnitudes, n_neighbors

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        means = [
            self.magnitudes[self.search.nearest(Z[rows], self.n_neighbors)].mean(axis=1)
            for rows in row_slices(len(Z), CHUNK_ROWS)
        ]
        return np.concatenate(means)


class RadialMean:
    """Nadaraya–Watson mean with radial weights."""

    def __init__(self, exponents: RadialExponents, magnitudes: FloatArray) -> None:
        self.exponents, self.magnitudes = exponents, magnitudes

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""

        def average(rows: slice) -> FloatArray:
            exponent, _ = self.exponents.to(Z[rows])
            weight = to_weights(exponent, exponent.max(axis=1))
            mean: FloatArray = weight @ self.magnitudes / weight.sum(axis=1)
            return mean

        return np.concatenate(map_row_blocks(average, len(Z), len(self.magnitudes)))
