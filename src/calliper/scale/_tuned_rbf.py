"""Radial kernels of every length scale, for tuning."""

from __future__ import annotations

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.kernels._distances import Metric
from calliper.scale._left_out import FAINT, mean_without, means_without_each
from calliper.scale._rbf import DOMINANT
from calliper.scale._weights import RadialExponents, to_weights


class RadialFamily:
    """RBF kernels on fixed points; the candidate is the length scale."""

    def __init__(self, Z: FloatArray, magnitudes: FloatArray, metric: Metric) -> None:
        self.Z, self.metric = Z, metric
        self.sums = np.column_stack([magnitudes, np.ones(len(Z))])

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i without i and m."""
        exponents = RadialExponents(self.Z, candidate, self.metric)
        n = len(self.Z)

        def block(rows: slice) -> FloatArray:
            own = np.arange(rows.start, rows.stop)
            return means_without_each(exponents, self.Z[rows], self.sums, own)

        return np.concatenate(map_row_blocks(block, n, n))

    def means_without(self, candidate: float, members: IntArray) -> RadialMeansWithout:
        """For new rows, the means without each of the ``members``."""
        # The members come first, so that their columns are a slice.
        rest = np.setdiff1d(np.arange(len(self.Z)), members)
        order = np.concatenate([members, rest])
        exponents = RadialExponents(self.Z[order], candidate, self.metric)
        return RadialMeansWithout(exponents, self.sums[order], len(members))


class RadialMeansWithout:
    """Means at new rows without each of the first ``n_members`` points."""

    def __init__(self, exponents: RadialExponents, sums: FloatArray, n_members: int) -> None:
        self.exponents, self.sums, self.n_members = exponents, sums, n_members

    def __call__(self, Z: FloatArray) -> FloatArray:
        exponent, _ = self.exponents.to(Z)
        rows, nearest = np.arange(len(Z)), exponent.argmax(axis=1)
        weight = to_weights(exponent, exponent[rows, nearest])
        weight[rows, nearest] = 0.0
        rest, rest_weight = (weight @ self.sums).T
        total, total_weight = rest + self.sums[nearest, 0], rest_weight + 1.0
        weight_of = weight[:, : self.n_members]
        weighted = weight_of * self.sums[: self.n_members, 0]
        mean: FloatArray = total[:, None] - weighted
        mean /= total_weight[:, None] - weight_of
        # What carries most of a sum is left out of the sum, not subtracted from it.
        for row, member in zip(*np.nonzero(weighted > DOMINANT * total[:, None]), strict=True):
            others = np.delete(weight[row], member) @ np.delete(self.sums[:, 0], member)
            others += self.sums[nearest[row], 0]
            mean[row, member] = others / (total_weight[row] - weight[row, member])
        inside = np.flatnonzero(nearest < self.n_members)
        safe = np.where(rest_weight > FAINT, rest_weight, 1.0)
        mean[inside, nearest[inside]] = (rest / safe)[inside]
        for row in inside[rest_weight[inside] <= FAINT]:
            left_out = [nearest[row]]
            mean[row, nearest[row]] = mean_without(self.exponents, Z[row], self.sums, left_out)
        return mean
