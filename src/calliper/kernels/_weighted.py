"""Kernels given by their weights, and radial weights, which have this form with smoothing.

Weights are non-negative numbers that do not depend on scores: numbers of common leaves, radial
weights with a floor. Where a row of them is zero throughout, all points count equally, which is the
limit of a vanishing floor.

Without two points. With w_k the weights of a row, A = Σ w_k s_k and B = Σ w_k, leaving point i out
gives ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i), and the mean of all but i where nothing else has
weight. Where a point carries nearly all of a sum, the rest is summed without it.

Over the bag. With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration points, k_i the
weight of the new point at point i and its own scale ŝ = Σ k_j s_j / Σ k_j, the threshold of point i
solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Where B_i = k_i = 0, all other members of the bag count equally, and likewise for the new point. All
N thresholds of a row are solved and one is selected, O(N) per row.

Radial weights are exp(−d²/2l²), plus b/N with smoothing. On a grid, points are moved to the middles
of cells whose side is a part of l. That is a fixed function of the features, so no guarantee
changes; all rows of a cell have the same radius, so many rows cost no more than their cells.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from calliper._blocks import Scratch, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels._arithmetic import DOMINANT, signed_root
from calliper.kernels._kernel import NOTHING, Bag, Found, Kernel, Known, LeaveTwoOut, Rng
from calliper.kernels._search import EUCLIDEAN, Metric, all_distances
from calliper.quantile import Shares, row_thresholds
from calliper.rows import Rows

#: Largest error of an exponent that the fast expansion of squared distances may cause.
EXPONENT_ERROR = 1e-11

#: Up to so many features distances are summed feature by feature, which takes little beside the
#: exponential.
DIRECT = 8

#: Matrix products round a row otherwise in a product of another shape. So rows are multiplied
#: always so many at a time, and columns of zeros fill up a multiple of so many.
TOGETHER, COLUMNS = 32, 16


class Weights(ABC):
    """Weights of N fixed points: what a kernel writes whose weights do not depend on scores.

    Attributes
    ----------
    points : (N, d)
    """

    points: FloatArray

    @abstractmethod
    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) weights of the points in the means of new rows."""

    def among(self, rows: slice) -> FloatArray:
        """(rows, N) weights of the points in the means of some of them, themselves left out."""
        weight = self.to(self.points[rows])
        own = np.arange(rows.start, rows.stop)
        weight[own - rows.start, own] = 0.0
        return weight


class WeightedKernel(Kernel, ABC):
    """A kernel that is known by its weights."""

    @abstractmethod
    def weights(self, Z: FloatArray) -> Weights:
        """The weights of calibration points."""

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Known = None, known: Found = NOTHING
    ) -> "LeaveTwoOutWeighted":
        """Scales of the Jackknife+ for N ≥ 2 calibration points."""
        return LeaveTwoOutWeighted(self.weights(rows.Z), rows.magnitudes, offset)

    def bag(
        self, rows: Rows, *, statistic: str, offset: float, known: Found = NOTHING
    ) -> "BagWeighted":
        """Thresholds of full conformal."""
        refuse_quantile(statistic)
        return BagWeighted(self.weights(rows.Z), rows.magnitudes, rows.scores, offset)

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> "WeightedMean":
        """The weighted mean."""
        return WeightedMean(self.weights(Z).to, magnitudes)


def refuse_quantile(statistic: str) -> None:
    """Say that a quantile needs neighbours that count equally."""
    if statistic == "quantile":
        raise CalliperError("statistic='quantile' takes the K nearest: use kernel=KNN(...).")


class LeaveTwoOutWeighted(LeaveTwoOut):
    """Weighted means with one or two points left out."""

    def __init__(self, weights: Weights, magnitudes: FloatArray, offset: float) -> None:
        self.weights, self.magnitudes, self.offset = weights, magnitudes, offset
        n = len(magnitudes)
        self.mean_of_rest = sums_without(magnitudes, np.arange(n)) / (n - 1)
        total, weight = sums_of_others(weights, magnitudes)
        mean = np.divide(total, weight, out=self.mean_of_rest.copy(), where=weight > 0)
        self.without_one: FloatArray = mean + offset

    def without_each(self, Z: FloatArray) -> FloatArray:
        weight = self.weights.to(Z)
        weighted = weight * self.magnitudes
        total, total_weight = weighted.sum(axis=1), weight.sum(axis=1)
        rest, rest_weight = total[:, None] - weighted, total_weight[:, None] - weight
        heavy = weighted > DOMINANT * total[:, None]
        heavy |= weight > DOMINANT * total_weight[:, None]
        for row, point in zip(*np.nonzero(heavy), strict=True):
            rest[row, point] = np.delete(weighted[row], point).sum()
            rest_weight[row, point] = np.delete(weight[row], point).sum()
        fallback: FloatArray = np.broadcast_to(self.mean_of_rest, rest.shape).copy()
        np.divide(rest, rest_weight, out=fallback, where=rest_weight > 0)
        fallback += self.offset
        return fallback


class BagWeighted(Bag):
    """Thresholds t_i with given weights."""

    def __init__(
        self, weights: Weights, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.weights, self.magnitudes, self.scores = weights, magnitudes, scores
        self.offset = offset
        self.total, self.weight = sums_of_others(weights, magnitudes)
        self.lonely = np.flatnonzero(self.weight == 0)
        self.mean_of_all = float(magnitudes.mean())
        self.sum_of_rest = sums_without(magnitudes, self.lonely)

    def calibration_scale(self, level: float) -> FloatArray:
        n = len(self.scores)
        mean = self.total / np.where(self.weight > 0, self.weight, 1.0)
        mean[self.lonely] = self.sum_of_rest / max(1, n - 1)
        return np.asarray(mean + self.offset)

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        scratch = Scratch()

        def select(rows: slice) -> FloatArray:
            own = shares and shares.of_rows(rows)
            return row_thresholds(self._thresholds(Z[rows], scratch), levels, own)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        if slope == 0:
            return self._thresholds(Z, Scratch())
        entering, total, weight, scale = self._balance(Z)
        weight = weight + entering
        linear = total / weight + self.offset - slope * self.scores
        return signed_root(slope + entering / weight, linear, self.scores * scale[:, None])

    def _thresholds(self, Z: FloatArray, scratch: Scratch) -> FloatArray:
        """All thresholds of a few rows, in a buffer that the next call uses again."""
        entering, total, weight, scale = self._balance(Z)
        shape = entering.shape
        constant, root = scratch.array("constant", shape), scratch.array("root", shape)
        return self.solved(entering, total, weight, self.scores, scale[:, None], constant, root)

    def solved(
        self,
        entering: FloatArray,
        total: FloatArray,
        weight: FloatArray,
        scores: FloatArray,
        scale: FloatArray,
        constant: FloatArray | None = None,
        root: FloatArray | None = None,
    ) -> FloatArray:
        """The t of k t² + A t = s ŝ (B + k) of k, A, B, s and ŝ; two arrays may be used for it."""
        constant = np.add(weight, entering, out=constant)
        if self.offset:
            total = total + self.offset * constant
        constant *= scores
        constant *= scale
        # positive_root in few passes: in units of the largest score nothing overflows.
        root = np.multiply(entering, constant, out=root)
        root *= 4
        root += np.square(total)
        np.sqrt(root, out=root)
        root += total
        vanishing = root == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold: FloatArray = np.divide(constant, root, out=root)
        threshold *= 2
        if vanishing.any():
            zero = (constant[vanishing] == 0) & (entering[vanishing] > 0)
            threshold[vanishing] = np.where(zero, 0.0, np.inf)
        return threshold

    def _balance(self, Z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """k_i, A_i and B_i for each row and point, (m, N), and the scales of the rows, (m,).

        A and B are of shape (1, N) if no point is lonely, since they are the same for all rows.
        """
        entering = self.weights.to(Z)
        scale = mean_of(entering, self.magnitudes, self.mean_of_all) + self.offset
        if not len(self.lonely):
            return entering, self.total[None], self.weight[None], scale
        total = np.repeat(self.total[None], len(Z), axis=0)
        weight = np.repeat(self.weight[None], len(Z), axis=0)
        row, which = np.nonzero(entering[:, self.lonely] == 0)
        column = self.lonely[which]
        entering[row, column] = 1.0
        total[row, column], weight[row, column] = self.sum_of_rest[which], len(self.scores) - 1
        return entering, total, weight, scale


def totals(weight: FloatArray, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted sums (m,) of the magnitudes, and sums (m,) of the weights.

    Row by row, so that a row has the same bits in any batch; a product would not give them.
    """
    return np.asarray((weight * magnitudes).sum(axis=1)), np.asarray(weight.sum(axis=1))


def sums_of_others(weights: Weights, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A_i and B_i of every point, (N,)."""
    if isinstance(weights, SmoothedRadial) and weights.exponents.step:
        return _sums_by_place(weights, magnitudes)

    def add(rows: slice) -> FloatArray:
        weight = weights.among(rows)
        return np.stack(totals(weight, magnitudes))

    n = len(magnitudes)
    total, weight = np.concatenate(map_row_blocks(add, n, n), axis=1)
    return total, weight


def _sums_by_place(
    weights: "SmoothedRadial", magnitudes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The same where many points share a place: sums of all are the same there, less one's own."""
    places = weights.points
    order = np.lexsort(places.T)
    new = np.append(True, (np.diff(places[order], axis=0) != 0).any(axis=1))
    first, place = order[new], np.empty(len(order), dtype=np.intp)
    place[order] = np.cumsum(new) - 1

    def add(rows: slice) -> FloatArray:
        weight = weights.to(weights.points[first[rows]])
        return np.stack([*totals(weight, magnitudes), weight[np.arange(len(weight)), first[rows]]])

    sums = np.concatenate(map_row_blocks(add, len(first), len(magnitudes)), axis=1)
    total, weight, own = sums[:, place]
    heavy = np.flatnonzero((own * magnitudes > DOMINANT * total) | (own > DOMINANT * weight))
    total, weight = total - own * magnitudes, weight - own
    for point in heavy:  # where little would remain of the digits
        rest = totals(weights.among(slice(point, point + 1)), magnitudes)
        total[point], weight[point] = rest[0][0], rest[1][0]
    return total, weight


def sums_without(magnitudes: FloatArray, points: IntArray) -> FloatArray:
    """Sum of all but each of some points; sums before and after each, so nothing cancels."""
    padded = np.concatenate([[0.0], magnitudes, [0.0]])
    before, after = np.cumsum(padded)[:-2], np.cumsum(padded[::-1])[::-1][2:]
    return np.asarray((before + after)[points])


def mean_of(weight: FloatArray, magnitudes: FloatArray, fallback: float) -> FloatArray:
    """Weighted means of rows, (m,); the fallback where a row has no weight at all."""
    total, total_weight = totals(weight, magnitudes)
    mean = np.full(len(weight), fallback)
    np.divide(total, total_weight, out=mean, where=total_weight > 0)
    return mean


class WeightedMean:
    """Weighted mean at new rows; of all points where a row has no weight at all."""

    def __init__(self, weigh: Callable[[FloatArray], FloatArray], magnitudes: FloatArray) -> None:
        self.weigh, self.magnitudes = weigh, magnitudes

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        fallback = float(self.magnitudes.mean())

        def average(rows: slice) -> FloatArray:
            return mean_of(self.weigh(Z[rows]), self.magnitudes, fallback)

        return np.concatenate(map_row_blocks(average, len(Z), len(self.magnitudes)))


class RadialExponents:
    """Exponents −d²/2l² to fixed points, by the fastest way that is accurate enough for l."""

    def __init__(
        self, points: FloatArray, length_scale: float, metric: Metric, step: float = 0.0
    ) -> None:
        self.step, self.side = (
            step,
            step * length_scale if step else 0.0,
        )  # the length may be infinite
        self.points = points = to_grid(points, self.side)
        self.metric, self.length_scale = metric, length_scale
        self.two_l2 = 2 * length_scale**2
        self.centre = points.mean(axis=0)
        centred = points - self.centre
        norm = np.square(centred).sum(axis=1)
        self.largest_norm = float(norm.max() + np.square(self.centre).sum())
        self.right = np.zeros((points.shape[1] + 1, -(-len(points) // COLUMNS) * COLUMNS))
        self.right[:, : len(points)] = np.vstack([2 * centred.T, -norm]) / self.two_l2

    def some(self, points: IntArray) -> "RadialExponents":
        """The same with some of the points, or all in another order."""
        return RadialExponents(self.points[points], self.length_scale, self.metric, self.step)

    def to(
        self, queries: FloatArray, out: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Arrays e (m, N) and c (m,) such that −d²/2l² = e − c, row by row; ``out`` may hold e."""
        queries = to_grid(queries, self.side)
        if self.metric != EUCLIDEAN or queries.shape[1] <= DIRECT:
            return self._direct(queries, out), np.zeros(len(queries))
        x = queries - self.centre
        norm = np.square(x).sum(axis=1)
        error = 4 * (x.shape[1] + 4) * np.finfo(float).eps * (norm + self.largest_norm)
        inexact = error > EXPONENT_ERROR * self.two_l2
        if inexact.all():
            return self._direct(queries, out), np.zeros(len(queries))
        exponent, constant = self._products(x, out), norm / self.two_l2
        exponent[inexact], constant[inexact] = self._direct(queries[inexact]), 0.0
        return exponent, constant

    def _direct(self, queries: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """−d²/2l² by differences, (m, N), in ``out`` if given."""
        squared = squared_distances(queries, self.points, self.metric, out)
        squared /= -self.two_l2
        return squared

    def _products(self, x: FloatArray, out: FloatArray | None) -> FloatArray:
        """−d²/2l² up to a constant of the row, (m, N), of centred rows; in ``out`` if given."""
        n = len(self.points)
        out = np.empty((len(x), n)) if out is None else out
        left = np.ones((TOGETHER, x.shape[1] + 1))
        product = np.empty((TOGETHER, self.right.shape[1]))
        for rows in row_slices(len(x), TOGETHER):
            m = rows.stop - rows.start  # below them remain rows of before: the shape is the same
            left[:m, :-1] = x[rows]
            np.matmul(left, self.right, out=product)
            out[rows] = product[:m, :n]
        return out

    def weights(self, queries: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """(m, N) weights up to a factor of each row, by which the nearest has one."""
        exponent, _ = self.to(queries, out)
        return to_weights(exponent, exponent.max(axis=1))


def to_grid(Z: FloatArray, side: float) -> FloatArray:
    """Middles of the cells that rows lie in; the rows themselves if cells have no size."""
    return np.round(Z / side) * side if side else Z


def to_weights(exponent: FloatArray, largest: FloatArray) -> FloatArray:
    """exp(e − largest) in place; ``largest`` (m,) is the row's largest exponent."""
    exponent -= largest[:, None]
    return np.exp(exponent, out=exponent)


class SmoothedRadial(Weights):
    """Radial weights with a floor: exp(−d²/2l²) + b/N, so all points together weigh b more."""

    def __init__(self, exponents: RadialExponents, smoothing: float) -> None:
        self.exponents, self.points = exponents, exponents.points
        self.floor = smoothing / len(self.points)

    def to(self, Z: FloatArray) -> FloatArray:
        exponent, constant = self.exponents.to(Z)
        exponent -= constant[:, None]
        weight = np.exp(exponent, out=exponent)
        weight += self.floor
        return weight


def squared_distances(
    queries: FloatArray, points: FloatArray, metric: Metric, out: FloatArray | None = None
) -> FloatArray:
    """Squared distances for any metric, (m, N), in ``out`` if given; nothing hangs on a tie."""
    if metric == EUCLIDEAN:
        return np.asarray(cdist(queries, points, "sqeuclidean", out=out), dtype=np.float64)
    return np.square(all_distances(queries, points, metric))
