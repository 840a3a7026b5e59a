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
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.quantile import pad_exceptions, power_of_two

#: One point of so many is in the sample that bounds the distances of the rest.
SAMPLED = 8

#: Candidates beyond those asked for, so that rounding does not push a true neighbour out.
SPARE = 6

#: Hits beyond this multiple of the candidates mean copies, not a loose bound.
MOST_HITS = 200

#: Largest coordinate, in units of the largest of the points, that single precision is trusted with.
LARGEST = 1e15

#: Blocks are so many times taller than the cache would like: the product gains more than it loses.
TALL = 32


class WideSearch:
    """Points with many features, centred."""

    by_norms, indices = True, None

    def __init__(self, points: FloatArray, centre: FloatArray) -> None:
        self.z, self.centre = points - centre, centre
        # A power of two keeps single precision from overflowing or underflowing, and loses nothing.
        self.unit = power_of_two(self.z)
        scaled = self.z / self.unit
        self.right = np.vstack([-2 * scaled.T, np.square(scaled).sum(axis=1)]).astype(np.float32)
        self.sample = np.ascontiguousarray(self.right[:, ::SAMPLED])
        self.tolerance = 8 * (points.shape[1] + 4) * float(np.finfo(np.float32).eps)

    @staticmethod
    def suits(points: FloatArray) -> bool:
        """Wide enough, and enough of them, to pay."""
        n, dimension = points.shape
        return bool(dimension >= 32 and n >= 1000)

    def query(self, x: FloatArray, k: int) -> tuple[FloatArray, IntArray, BoolArray]:
        """Squared distances (m, k) and indices of the k nearest, and which rows are sure.

        Distances are those of double precision. A row is sure
        if no point outside its candidates can be as near as its k-th.
        """
        scratch = Scratch()
        found = map_row_blocks(
            lambda rows: self._one_block(x[rows] - self.centre, k, scratch),
            len(x),
            max(len(self.z) // TALL, x.shape[1] // 4),
        )
        distance, index, sure = (np.concatenate(part) for part in zip(*found, strict=True))
        return distance, index, sure

    def _one_block(
        self, x: FloatArray, k: int, scratch: Scratch
    ) -> tuple[FloatArray, IntArray, BoolArray]:
        n, n_candidates = len(self.z), min(k + SPARE, len(self.z))
        scaled = x / self.unit
        far = np.abs(scaled).max(axis=1) > LARGEST
        scaled[far] = 0.0
        x_norm = np.square(scaled).sum(axis=1)
        left = np.hstack([scaled, np.ones((len(x), 1))]).astype(np.float32)
        bound = self._bound(left, x_norm, n_candidates, scratch)
        product = scratch.array("product", (len(x), n), np.float32)
        np.matmul(left, self.right, out=product)
        below = product <= bound[:, None]
        # Rows with copies by the thousand would need a column for each: they are settled elsewhere.
        crowded = np.count_nonzero(below, axis=1) > MOST_HITS * n_candidates
        below[crowded] = False
        below[crowded, :n_candidates] = True
        row, column = np.divmod(np.flatnonzero(below), n)
        index, value = pad_exceptions(
            row, column, product[row, column].astype(np.float64), len(x), 0
        )
        best = np.argpartition(value, n_candidates - 1, axis=1)[:, :n_candidates]
        candidate = np.take_along_axis(index, best, axis=1)
        furthest = np.take_along_axis(value, best, axis=1).max(axis=1) + x_norm
        exact = _distances(x, self.z, candidate)
        order = np.argsort(exact, axis=1)[:, :k]
        distance = np.take_along_axis(exact, order, axis=1)
        # ‖z‖² ≤ 2‖x‖² + 2‖x − z‖² bounds the rounding of the points that were not proposed.
        outside = (furthest - 3 * self.tolerance * x_norm) / (1 + 2 * self.tolerance)
        sure = distance[:, -1] / self.unit**2 < outside
        sure |= n_candidates == n
        return distance, np.take_along_axis(candidate, order, axis=1), sure & ~far & ~crowded

    def _bound(
        self, left: NDArray[Any], x_norm: FloatArray, k: int, scratch: Scratch
    ) -> NDArray[Any]:
        """At least k products of each row do not exceed this."""
        n_sampled = self.sample.shape[1]
        if n_sampled <= 2 * k:
            return np.full(len(left), np.float32(np.inf))
        product = scratch.array("sample", (len(left), n_sampled), np.float32)
        np.matmul(left, self.sample, out=product)
        product.partition(k - 1, axis=1)
        # The same pair may round differently in a product of another shape.
        edge: NDArray[Any] = product[:, k - 1].astype(np.float64)
        edge += self.tolerance * (5 * x_norm + 2 * np.abs(edge))
        return np.nextafter(edge.astype(np.float32), np.float32(np.inf))


def _distances(x: FloatArray, z: FloatArray, candidate: IntArray) -> FloatArray:
    """Squared distances of each row to its candidates, by differences, (m, c)."""
    columns = [np.square(z[column] - x).sum(axis=1) for column in np.ascontiguousarray(candidate.T)]
    return np.stack(columns, axis=1)
