"""All points count, the nearer the more.

A local mean is a ratio, so all weights of a row may share a factor: exponents −d²/2l² are needed
only up to a constant of the row. With the largest as zero, the nearest weight is one and nothing
underflows, whatever the length scale. Equations are those of ``_weighted.py``.

Without two points. Leaving out any point but the nearest keeps the sum of the weights at 1 or more;
where the weights of all but the nearest vanish, they are taken relative to the next.

Over the bag. Weights of row i are relative to the nearest of the other points. Where the new point
is nearer still, the weights of the others shrink instead.

With smoothing, all weights have a floor and need no shift: see ``SmoothedRadial``.
"""

from collections.abc import Sequence

import numpy as np

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.kernels._kernel import Bag, LeaveTwoOut
from calliper.kernels._weighted import (
    BagWeighted,
    Balance,
    LeaveTwoOutMeans,
    RadialExponents,
    Weights,
    mean_of,
    means_without_each,
    to_weights,
    totals,
)
from calliper.quantile import weighted_quantiles_in_blocks

#: Weights whose sum is smaller have lost digits to underflow; they are shifted anew.
FAINT = 1e-200


class Radial(Weights):
    """Radial weights up to a factor of each row, by which the nearest has one."""

    def __init__(self, exponents: RadialExponents) -> None:
        self.exponents, self.points = exponents, exponents.points

    def to(self, Z: FloatArray) -> FloatArray:
        exponent, _ = self.exponents.to(Z)
        return to_weights(exponent, exponent.max(axis=1))

    def leave_two_out(self, magnitudes: FloatArray, offset: float) -> LeaveTwoOut:
        return LeaveTwoOutMeans(RadialMeans(self.exponents, magnitudes), offset)

    def bag(self, magnitudes: FloatArray, scores: FloatArray, offset: float) -> Bag:
        return BagRBF(self.exponents, magnitudes, scores, offset)

    def local_quantile(self, scores: FloatArray) -> "RadialQuantile":
        """Quantile by weights."""
        order = np.argsort(scores)
        return RadialQuantile(self.exponents.some(order), scores[order])


class RadialMeans:
    """Means without each point, or without each fold of them.

    Parameters
    ----------
    exponents, magnitudes : N points, and what is averaged
    fold : (N,) the fold of each point, 0 … F−1; None if each is left out alone
    """

    def __init__(
        self, exponents: RadialExponents, magnitudes: FloatArray, fold: IntArray | None = None
    ) -> None:
        self.exponents, self.magnitudes, self.fold = exponents, magnitudes, fold

    def to(self, Z: FloatArray, own: IntArray | None = None) -> FloatArray:
        """(m, N) means at rows without each point, or (m, F); without the points ``own``, too."""
        exponent, _ = self.exponents.to(Z)
        if own is not None:
            exponent[np.arange(len(Z)), own] = -np.inf
        weight = to_weights(exponent, exponent.max(axis=1))
        if self.fold is None:
            mean, rest = means_without_each(weight, self.magnitudes)
        else:
            mean, rest = self._without_folds(weight, self.fold)
        for row, left_out in zip(*np.nonzero(rest < FAINT), strict=True):
            out = self._members(left_out) | (set() if own is None else {int(own[row])})
            mean[row, left_out] = self._without(Z[row], [*out])
        return mean

    def among(self) -> FloatArray:
        """(N, N) means at the points without themselves and each other one, or (N, F)."""
        points, n = self.exponents.points, len(self.magnitudes)
        blocks = map_row_blocks(
            lambda rows: self.to(points[rows], np.arange(rows.start, rows.stop)), n, n
        )
        return np.concatenate(blocks)

    def of_others(self) -> FloatArray:
        """(N,) means at the points without themselves."""
        total, weight, _ = sums_of_others(self.exponents, self.magnitudes)
        return np.asarray(total / weight)

    def _without_folds(self, weight: FloatArray, fold: IntArray) -> tuple[FloatArray, FloatArray]:
        """Means without each fold, and the weights of all others, both (m, F).

        Sums over all folds but one are added up from those of the folds: nothing is subtracted.
        """
        n_folds = int(fold.max()) + 1
        inside = np.equal.outer(fold, np.arange(n_folds)).astype(np.float64)
        all_but_one = 1.0 - np.eye(n_folds)
        total, rest = (
            weight @ each @ all_but_one for each in (inside * self.magnitudes[:, None], inside)
        )
        return total / np.where(rest > 0, rest, 1.0), rest

    def _members(self, left_out: int) -> set[int]:
        """The points of a fold, or the point itself."""
        return {left_out} if self.fold is None else {*np.flatnonzero(self.fold == left_out)}

    def _without(self, query: FloatArray, out: list[int]) -> float:
        """The mean at one row without the points ``out``, relative to the nearest that remains."""
        if len(out) == len(self.magnitudes):
            return float("nan")  # no point is left
        exponent, _ = self.exponents.to(query[None])
        exponent[0, out] = -np.inf
        total, weight = totals(to_weights(exponent, exponent.max(axis=1)), self.magnitudes)
        return float(total[0] / weight[0])


def sums_of_others(
    exponents: RadialExponents, magnitudes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For every point the weighted sum of the others, their weight, and their largest −d²/2l².

    The weights are relative to that largest exponent, so that their sum is at least one.
    """

    def add(rows: slice) -> FloatArray:
        exponent, constant = exponents.to(exponents.points[rows])
        exponent[np.arange(len(exponent)), np.arange(rows.start, rows.stop)] = -np.inf
        largest = exponent.max(axis=1)
        return np.stack([*totals(to_weights(exponent, largest), magnitudes), largest - constant])

    n = len(magnitudes)
    total, weight, largest = np.concatenate(map_row_blocks(add, n, n), axis=1)
    return total, weight, largest


class BagRBF(BagWeighted):
    """Thresholds t_i with radial weights."""

    def __init__(
        self, exponents: RadialExponents, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.exponents, self.magnitudes = exponents, magnitudes
        self.scores, self.offset = scores, offset
        self.total, self.weight, self.largest = sums_of_others(exponents, magnitudes)

    def _balance(self, Z: FloatArray, scratch: Scratch) -> Balance:
        shape = len(Z), len(self.scores)
        exponent, constant = self.exponents.to(Z, out=scratch.array("exponent", shape))
        weight = scratch.array("weight", shape)
        np.copyto(weight, exponent)
        to_weights(weight, weight.max(axis=1))
        scale = mean_of(weight, self.magnitudes) + self.offset
        exponent -= constant[:, None]
        exponent -= self.largest
        row, column = np.divmod(np.flatnonzero(exponent > 0), shape[1])
        shrink = np.exp(-exponent[row, column])
        exponent[row, column] = 0.0
        others = shrink * self.total[column], shrink * self.weight[column]
        return np.exp(exponent, out=exponent), scale, (row, column, *others)


class RadialQuantile:
    """The first of the ascending scores at which the radial weights reach the level."""

    def __init__(self, exponents: RadialExponents, ascending: FloatArray) -> None:
        self.exponents, self.ascending = exponents, ascending

    def __call__(
        self, Z: FloatArray, levels: Sequence[float], own: FloatArray | None = None
    ) -> FloatArray:
        """(m, L); ``own`` (m,) is the exponent of each row's own weight, which is at infinity."""
        of_rows = np.full(len(Z), -np.inf) if own is None else own

        def weigh(rows: slice, out: FloatArray) -> tuple[FloatArray, FloatArray]:
            exponent, constant = self.exponents.to(Z[rows], out)
            of_new = of_rows[rows] + constant
            largest = np.maximum(exponent.max(axis=1), of_new)
            return to_weights(exponent, largest), np.exp(of_new - largest)

        return weighted_quantiles_in_blocks(self.ascending, weigh, len(Z), levels)
