"""Kernels given by their weights.

Weights are non-negative numbers that do not depend on scores: numbers of common leaves, radial
weights with a floor. Where a row of them is zero throughout, all points count equally, the limit of
a vanishing floor.

Without two points. With w_k the weights of a row, A = Σ w_k s_k and B = Σ w_k, leaving point i out
gives ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i), the mean of all but i where nothing else has weight.
Where a point carries nearly all of a sum, the rest is summed without it.

Over the bag. With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration rows, k_i the
weight of the new point at point i and its own scale ŝ = Σ k_j s_j / Σ k_j, the threshold solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Where B_i = k_i = 0, all other members of the bag count equally, and likewise for the new point. All
N thresholds of a row are solved and one is selected, O(N) per row.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels._arithmetic import signed_root
from calliper.kernels._kernel import NOTHING, Bag, Kernel, LeaveTwoOut, Rng, Stored, stored
from calliper.kernels._nearest import same_length, sums_without
from calliper.rows import Rows

#: Sums over the pairs of as many points are computed again when a file is loaded.
FEW_SUMS = 2_000
#: Largest sum of weights that a file may hold for a point.
MOST_WEIGHT = 1e20
#: The weights k_i of new rows, (m, N), and their scales, (m,); then the row and the column of pairs
#: for which k_i is 1 and A_i and B_i are other than those of the point, and these.
Balance = tuple[FloatArray, FloatArray, Any]


class Weights(ABC):
    """Weights of N fixed points, (N, d), which do not depend on scores."""

    points: FloatArray

    @abstractmethod
    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) weights of the points in the means of new rows."""

    def among(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """(rows, N) weights in the means of points left out, and logarithms of their divisors."""
        weight = self.to(self.points[rows])
        np.fill_diagonal(weight[:, rows], 0.0)
        return weight, np.zeros(len(weight))

    def leave_two_out(
        self, magnitudes: FloatArray, offset: float, without_one: Any = None
    ) -> LeaveTwoOut:
        means = self.mean(magnitudes)
        if without_one is None:
            without_one = means.of_others() + offset
        return LeaveTwoOut(means, offset, same_length(without_one, magnitudes))

    def bag(
        self, magnitudes: FloatArray, scores: FloatArray, offset: float, known: Stored = NOTHING
    ) -> Bag:
        return BagWeighted(self, magnitudes, scores, offset, known)

    def mean(self, magnitudes: FloatArray) -> "WeightedMeans":
        return WeightedMeans(self, magnitudes)


class WeightedKernel(Kernel, ABC):
    """A kernel that is known by its weights."""

    @abstractmethod
    def weights(self, Z: FloatArray) -> Weights:
        """The weights of calibration rows."""

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Any = None, known: Stored = NOTHING
    ) -> LeaveTwoOut:
        found = stored(known, "without_one")
        return self.weights(rows.Z).leave_two_out(rows.magnitudes, offset, found)

    def bag(self, rows: Rows, *, statistic: str, offset: float, known: Stored = NOTHING) -> Bag:
        if statistic == "quantile":
            raise CalliperError("statistic='quantile' takes the K nearest: use kernel=KNN(...).")
        return self.weights(rows.Z).bag(rows.magnitudes, rows.scores, offset, known)

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> "WeightedMeans":
        return self.weights(Z).mean(magnitudes)


@dataclass(eq=False, repr=False)
class WeightedMeans:
    """Weighted means, also without each point; of all others where nothing else has weight."""

    weights: Any
    magnitudes: FloatArray

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""

        def average(rows: slice) -> FloatArray:
            return mean_of(self.weights.to(Z[rows]), self.magnitudes)

        return np.concatenate(map_row_blocks(average, len(Z), len(self.magnitudes)))

    def to(self, Z: FloatArray) -> FloatArray:
        """Means at new rows without each point, (m, N)."""
        return means_without_each(self.weights.to(Z), self.magnitudes)[0]

    def of_others(self) -> FloatArray:
        """Means at the points without themselves, (N,)."""
        total, weight, _ = sums_of_others(self.weights, self.magnitudes)
        mean_of_rest = sums_without(np.array([self.magnitudes]))[0] / (len(total) - 1)
        return np.asarray(np.divide(total, weight, out=mean_of_rest, where=weight > 0))


def means_without_each(weight: FloatArray, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means without each point, and the weight of all others, (m, N); weights are used up."""
    mean, rest = sums_without(weight * magnitudes), sums_without(weight)
    if rest.min() > 0:
        mean /= rest
    else:
        others = sums_without(np.array([magnitudes])) / max(1, len(magnitudes) - 1)
        mean = np.where(rest > 0, np.divide(mean, rest, out=mean, where=rest > 0), others)
    return mean, rest


class BagWeighted(Bag):
    """Thresholds t_i with given weights."""

    def __init__(
        self,
        weights: Any,
        magnitudes: FloatArray,
        scores: FloatArray,
        offset: float,
        known: Stored = NOTHING,
    ) -> None:
        self.weights, self.magnitudes = weights, magnitudes
        self.scores, self.offset = scores, offset
        sums = stored(known, "sums") if known and self.n_sites > FEW_SUMS else None
        sums = self._summed() if sums is None else fitting(sums, magnitudes)
        self.total, self.weight, self.largest = sums
        #: Points without any weight, and the sums of all others.
        self.lonely = np.flatnonzero(self.weight == 0)
        rest = np.array([magnitudes])
        self.sum_of_rest = (sums_without(rest) if len(self.lonely) else rest)[0, self.lonely]

    def _summed(self) -> FloatArray:
        """A_i, B_i and logarithms, (3, N), from all pairs."""
        return sums_of_others(self.weights, self.magnitudes)

    @property
    def n_sites(self) -> int:
        """How many points have pairs."""
        return len(self.scores)

    def for_file(self) -> dict[str, Any]:
        """The sums over all pairs, where they take long."""
        many = self.n_sites > FEW_SUMS
        return {"sums": np.stack([self.total, self.weight, self.largest]) if many else None}

    def calibration_scale(self, level: float) -> FloatArray:
        mean = self.total / np.where(self.weight > 0, self.weight, 1.0)
        mean[self.lonely] = self.sum_of_rest / max(1, len(self.scores) - 1)
        return np.asarray(mean + self.offset)

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        entering, scale, (row, column, total, weight) = self._balance(Z)
        found = self.solved(entering, self.total, self.weight, self.scores, scale[:, None], slope)
        if len(row):
            others = np.ones(len(row)), total, weight, self.scores[column], scale[row]
            found[row, column] = self.solved(*others, slope)
        return found

    def solved(
        self,
        entering: FloatArray,
        total: FloatArray,
        weight: FloatArray,
        scores: FloatArray,
        scale: FloatArray,
        slope: float = 0.0,
    ) -> FloatArray:
        """The t of k t² + A t = s ŝ (B + k) of k, A, B, s and ŝ; slope·t is added to both scales.

        As :func:`positive_root` in few passes: in units of the largest score nothing overflows.
        """
        together = weight + entering
        if slope:
            with np.errstate(invalid="ignore"):
                linear = total / together + self.offset - slope * scores
                return signed_root(slope + entering / together, linear, scores * scale)
        half = (total + self.offset * together if self.offset else total) / 2
        constant = np.multiply(together, scores, out=together)
        constant *= scale
        root = entering * constant
        root += np.square(half)
        np.sqrt(root, out=root)
        root += half
        vanishing = None if half.min(initial=np.inf) > 0 else root == 0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            threshold: FloatArray = np.divide(constant, root, out=root)
        if vanishing is not None:
            zero = (constant[vanishing] == 0) & (entering[vanishing] > 0)
            threshold[vanishing] = np.where(zero, 0.0, np.inf)
        return threshold

    def _balance(self, Z: FloatArray) -> Balance:
        """What thresholds are solved from; without any weight, all of the bag count equally."""
        entering = self.weights.to(Z)
        scale = mean_of(entering, self.magnitudes) + self.offset
        row, which = np.nonzero(entering[:, self.lonely] == 0)
        others = np.full(len(row), len(self.scores) - 1.0)
        return entering, scale, (row, self.lonely[which], self.sum_of_rest[which], others)


def fitting(sums: FloatArray, magnitudes: FloatArray) -> FloatArray:
    """A_i, B_i and logarithms of a file, if they can be those of points of these magnitudes."""
    total, weight, largest = sums
    high = weight * magnitudes.max() * (1 + 1e-9)
    if not ((total >= 0) & (total <= high) & (weight <= MOST_WEIGHT) & (largest <= 0)).all():
        raise CalliperError("in the file, sums of weights do not match the points.")
    return sums


def totals(weight: FloatArray, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted sums of magnitudes and sums of weights, (m,), of the same bits in any batch."""
    return np.asarray((weight * magnitudes).sum(axis=1)), np.asarray(weight.sum(axis=1))


def sums_of_others(weights: Weights, magnitudes: FloatArray) -> FloatArray:
    """A_i and B_i of every point, and the logarithm of what both were divided by, (3, N)."""

    def add(rows: slice) -> FloatArray:
        weight, largest = weights.among(rows)
        return np.stack([*totals(weight, magnitudes), largest])

    n = len(magnitudes)
    return np.concatenate(map_row_blocks(add, n, n), axis=1)


def mean_of(weight: FloatArray, magnitudes: FloatArray) -> FloatArray:
    """Weighted means of rows, (m,); the mean of all points where a row has no weight at all."""
    total, total_weight = totals(weight, magnitudes)
    mean = np.full(len(weight), magnitudes.mean())
    np.divide(total, total_weight, out=mean, where=total_weight > 0)
    return mean
