"""Many features: neighbours by single-precision matrix products that double precision corrects.

The product decides the cost of a search among wide rows, and in single precision it takes half
the time. It only has to propose: for each query, the k-th smallest distance to a sample of the
points bounds the k-th smallest to all, few points lie below that bound, and their distances are
computed again in double precision. The last candidate's distance tells how close a point that was
not proposed can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.quantile import pad_exceptions

#: One point of so many is in the sample that bounds the distances of the rest.
SAMPLED = 8

#: Candidates beyond those asked for, so that rounding does not push a true neighbour out.
SPARE = 6

#: Blocks are so many times taller than the cache would like: the product gains more than it loses.
TALL = 32


class WideSearch:
    """Points with many features."""

    def __init__(self, points: FloatArray, centre: FloatArray) -> None:
        self.z = points - centre
        norm = np.square(self.z).sum(axis=1)
        self.largest_norm = float(norm.max())
        self.right = np.vstack([-2 * self.z.T, norm]).astype(np.float32)
        self.sample = np.ascontiguousarray(self.right[:, ::SAMPLED])
        self.tolerance = 8 * (points.shape[1] + 4) * float(np.finfo(np.float32).eps)

    @staticmethod
    def suits(points: FloatArray) -> bool:
        """Wide enough to pay, and not so large that single precision overflows."""
        n, dimension = points.shape
        return bool(dimension >= 32 and n >= 1000 and np.abs(points).max() < 1e15)

    def query(self, x: FloatArray, k: int) -> tuple[FloatArray, IntArray, FloatArray]:
        """Squared distances (m, k) and indices of the k nearest, and how near any other can be.

        ``x`` is centred as the points are. Distances are those of double precision.
        """
        scratch = Scratch()
        found = map_row_blocks(
            lambda rows: self._one_block(x[rows], k, scratch), len(x), len(self.z) // TALL
        )
        distance, index, outside = (np.concatenate(part) for part in zip(*found, strict=True))
        return distance, index, outside

    def _one_block(
        self, x: FloatArray, k: int, scratch: Scratch
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        n, n_candidates = len(self.z), min(k + SPARE, len(self.z))
        x_norm = np.square(x).sum(axis=1)
        error = self.tolerance * (3 * x_norm + self.largest_norm)
        left = np.hstack([x, np.ones((len(x), 1))]).astype(np.float32)
        bound = self._bound(left, n_candidates, scratch)
        product = scratch.array("product", (len(x), n), np.float32)
        np.matmul(left, self.right, out=product)
        row, column = np.divmod(np.flatnonzero(product <= bound[:, None]), n)
        place, value = pad_exceptions(
            row, column, product[row, column].astype(np.float64), len(x), 0
        )
        best = np.argpartition(value, n_candidates - 1, axis=1)[:, :n_candidates]
        candidate = np.take_along_axis(place, best, axis=1)
        furthest = np.take_along_axis(value, best, axis=1).max(axis=1) + x_norm - error
        if n_candidates == n:
            furthest = np.full(len(x), np.inf)
        exact = _distances(x, self.z, candidate)
        order = np.argsort(exact, axis=1)[:, :k]
        return (
            np.take_along_axis(exact, order, axis=1),
            np.take_along_axis(candidate, order, axis=1),
            furthest,
        )

    def _bound(self, left: NDArray[Any], k: int, scratch: Scratch) -> NDArray[Any]:
        """At least k products of each row do not exceed this."""
        n_sampled = self.sample.shape[1]
        if n_sampled <= 2 * k:
            return np.full(len(left), np.float32(np.inf))
        product = scratch.array("sample", (len(left), n_sampled), np.float32)
        np.matmul(left, self.sample, out=product)
        product.partition(k - 1, axis=1)
        # The same pair may round differently in a product of another shape.
        edge: NDArray[Any] = product[:, k - 1]
        edge += np.float32(self.tolerance) * (np.abs(edge) + np.float32(self.largest_norm))
        return edge


def _distances(x: FloatArray, z: FloatArray, candidate: IntArray) -> FloatArray:
    """Squared distances of each row to its candidates, by differences, (m, c)."""
    columns = [np.square(z[column] - x).sum(axis=1) for column in np.ascontiguousarray(candidate.T)]
    return np.stack(columns, axis=1)
