"""Every point speaks for every other, the louder the nearer.

A local mean is a ratio, so all weights of a row may share a factor: exponents −d²/2l² are needed
only up to a constant of the row, and taking the largest as zero makes the nearest weight one.
Nothing underflows, whatever the length scale.

Without two points. With w_k = K(x, X_k), A = Σ w_k s_k and B = Σ w_k over the calibration points,

    ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i).

Leaving out any point but the nearest keeps B − w_i ≥ 1; what remains without the nearest is summed
on its own, so nothing cancels. Only points that carry more than a share of A or B move their mean
noticeably: they are exceptions to the order of the rescaled scores, all others stay within a known
factor of it, and a window suffices.

Over the bag. With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration points,
k_i = K(X_i, x) and the new point's own scale ŝ = Σ k_j s_j / Σ k_j, the threshold of calibration
point i solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Row i is shifted by its smallest squared distance, the new point's included. Where k_i is a small
share of B_i and of the balance, t_i stays within a known factor of the presorted ŝ s_i B_i / A_i;
the other points are exceptions, and a window does the rest.

With smoothing, all weights have a floor and need no shift: see ``_weighted``.

On a grid. Points may be moved to the middles of cells whose side is a part of l. That is a fixed
function of the features, so calibration and new points are treated alike and no guarantee changes;
but all rows of a cell now have the same radius, and many rows cost no more than the cells they lie
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from numbers import Real
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator

from calliper._blocks import Scratch, map_row_blocks, row_slices
from calliper._device import device_of, engine_device, on_device, refuse_other_metrics
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels._base import (
    DOMINANT,
    Bag,
    Kernel,
    LeaveTwoOut,
    LocalQuantile,
    Rng,
    Rows,
    ScalesAtLevel,
    positive_root,
    rescale,
    signed_root,
    times,
)
from calliper.kernels._search import EUCLIDEAN, Metric, check_metric, squared_distances
from calliper.kernels._weighted import (
    BagWeighted,
    LeaveTwoOutWeighted,
    WeightedMean,
    refuse_quantile,
    totals,
)
from calliper.quantile import (
    Shares,
    conformal_rank,
    merged_order_statistic,
    pad_exceptions,
    row_thresholds,
    safe_window,
    weighted_quantiles_in_blocks,
)

#: A point with a larger share of the weights, or of the weighted sum, is an exception.
SHARE = 1 / 32

#: Weights whose sum is smaller have lost digits to underflow; they are shifted anew.
FAINT = 1e-200

#: Largest error of an exponent that the fast expansion of squared distances may cause.
EXPONENT_ERROR = 1e-11

#: Up to so many features distances are summed feature by feature, which takes little beside the
#: exponential.
DIRECT = 8

#: Matrix products round a row otherwise in a product of another shape. So rows are multiplied
#: always so many at a time, and columns of zeros fill up a multiple of so many.
TOGETHER, COLUMNS = 32, 16


class RBF(Kernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = exp(−‖x − x'‖² / 2l²), or a little more for all pairs alike.

    The paper does not print the normalisation of its length scale; this is the usual one. The
    local mean is a ratio, so a common factor of all weights cancels and nothing underflows:
    l → 0 gives the nearest neighbour, l → ∞ the plain mean.

    Parameters
    ----------
    length_scale : float or "median", default "median"
        l, in the unit of the features. ``"median"`` is the median distance between training
        inputs (Lei et al. 2018; "Median" in the paper's tables); it needs training inputs, since
        a length scale taken from the calibration points would treat them unlike a new point.
    smoothing : float, default 0
        b, how many points the mean of all N points counts for: b/N is added to every weight. It
        matters where few points are near, and leaves the rest to those that are.
    step : float, default 0
        Side of the cells of a grid, in length scales; points count as being in the middle of
        their cell. With ½ the local mean hardly changes, and in few dimensions a hundred thousand
        rows lie in some thousand cells, for which the work is done. 0 leaves points where they are.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    engine : str, optional
        ``"torch"`` computes on the current CUDA device through PyTorch, ``"torch:cuda:1"`` on
        another; see ``docs/gpu.md``. For :class:`FullRescaled` and :class:`JackknifeRescaled`.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(200, 1))
    >>> errors = Z[:, 0] * rng.uniform(size=200)
    >>> FullRescaled(RBF(0.1)).fit(Z, errors).predict_radius([[0.1], [0.9]], 0.9).round(1)
    array([0.1, 0.8])
    """

    by_distance = True
    takes_device = True

    def __init__(
        self,
        length_scale: float | str = "median",
        *,
        smoothing: float = 0.0,
        step: float = 0.0,
        metric: Metric = EUCLIDEAN,
        engine: str | None = None,
    ) -> None:
        self.length_scale = length_scale
        self.smoothing = smoothing
        self.step = step
        self.metric = metric
        self.engine = engine

    @property
    def needs(self) -> tuple[str, ...]:
        """Training inputs, if the length scale is their median distance."""
        return ("training",) if isinstance(self.length_scale, str) else ()

    def resolved(self, Z_train: Rows = None, rng: Rng | None = None) -> RBF:
        """A copy with its parameters checked and the median distance filled in."""
        check_metric(self.metric)
        engine_device(self.engine)
        scale = self.length_scale
        if isinstance(scale, str):
            scale = self._median(scale, Z_train)
        for name in ("smoothing", "step"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                raise ValueError(f"{name} must be a finite number >= 0; got {value!r}.")
        return self._with_length(check_length_scale(scale))

    def _with_length(self, length_scale: float) -> RBF:
        return RBF(
            length_scale,
            smoothing=float(self.smoothing),
            step=float(self.step),
            metric=self.metric,
            engine=self.engine,
        )

    def _median(self, name: str, Z_train: Rows) -> float:
        if name != "median":
            raise ValueError(f"length_scale is a number or 'median'; got {name!r}.")
        if Z_train is None:
            raise CalliperError(
                "length_scale='median' needs training inputs: pass training=Z to fit (X_train to "
                "calibrate), or a number. A length scale taken from the calibration points "
                "would treat them unlike a new point and void the guarantee."
            )
        median = median_distance(Z_train, self.metric)
        if median == 0:
            raise CalliperError("the median distance between training inputs is 0; pass a number.")
        return median

    def leave_two_out(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        *,
        offset: float,
        rng: Rng,
        Z_train: Rows = None,
    ) -> LeaveTwoOut:
        """Scales of the Jackknife+ for N ≥ 2 calibration points."""
        device = device_of(Z, self.engine)
        if device is not None:
            from calliper.kernels._torch_radial import LeaveTwoOutTorchRadial

            return LeaveTwoOutTorchRadial(self._on_device(Z, device), magnitudes, offset)
        if self.smoothing:
            return LeaveTwoOutWeighted(self._smoothed(Z), magnitudes, offset)
        return LeaveTwoOutRBF(self._exponents(Z), magnitudes, offset)

    def bag(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        scores: FloatArray,
        *,
        statistic: str,
        offset: float,
    ) -> Bag:
        """Thresholds of full conformal."""
        refuse_quantile(statistic)
        device = device_of(Z, self.engine)
        if device is not None:
            from calliper.kernels._torch_radial import BagTorchRadial

            return BagTorchRadial(self._on_device(Z, device), magnitudes, scores, offset)
        if self.smoothing:
            return BagWeighted(self._smoothed(Z), magnitudes, scores, offset)
        return BagRBF(self._exponents(Z), magnitudes, scores, offset)

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> WeightedMean:
        """Nadaraya–Watson mean."""
        self._refuse_engine()
        weigh = self._smoothed(Z).to if self.smoothing else self._exponents(Z).weights
        return WeightedMean(weigh, magnitudes)

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> LocalQuantile:
        """Quantile by radial weights."""
        self._refuse_engine()
        if self.smoothing:
            return super().local_quantile(Z, scores)
        order = np.argsort(scores)
        return RadialQuantile(self._exponents(Z[order]), scores[order])

    def widened(self, multiple: float, most: int) -> RBF:
        """The same with its length scale multiplied, in three digits: more would mean nothing."""
        length = float(f"{float(self.length_scale) * multiple:.3g}")
        return self._with_length(length)

    @classmethod
    def scales_of_others(
        cls,
        kernels: Sequence[RBF],
        Z: FloatArray,
        magnitudes: FloatArray,
        *,
        statistic: str,
    ) -> ScalesAtLevel:
        """Means of the others with smoothed radial weights."""
        means: list[FloatArray] = []
        mean_of_rest = (magnitudes.sum() - magnitudes) / (len(magnitudes) - 1)
        for kernel in kernels:
            if kernel.step or not means:
                places = to_grid(Z, kernel.step * float(kernel.length_scale))
                squared = squared_distances(places, places, kernel.metric)
                np.fill_diagonal(squared, np.inf)
            weight = np.exp(squared / (-2 * float(kernel.length_scale) ** 2))
            total = weight @ magnitudes + kernel.smoothing * mean_of_rest
            means.append(total / (weight.sum(axis=1) + kernel.smoothing))
        stacked = np.stack(means)
        return lambda level: stacked

    def _on_device(self, Z: Any, device: str) -> Any:
        """The points there, with their weights."""
        from calliper.kernels._torch_radial import TorchRadial

        refuse_other_metrics(self.metric, device)
        length, rows = float(self.length_scale), on_device(Z, device)
        return TorchRadial(rows, length, float(self.smoothing), float(self.step))

    def _refuse_engine(self) -> None:
        if self.engine is not None:
            raise CalliperError(
                f"{self!r} computes on a device for FullRescaled and JackknifeRescaled alone: "
                f"leave engine out."
            )

    def _exponents(self, Z: FloatArray) -> RadialExponents:
        return RadialExponents(Z, float(self.length_scale), self.metric, float(self.step))

    def _smoothed(self, Z: FloatArray) -> SmoothedRadial:
        return SmoothedRadial(self._exponents(Z), self.smoothing)


def check_length_scale(scale: Any) -> float:
    """The length scale as a float."""
    if not isinstance(scale, Real) or not 1e-150 < float(scale) < 1e150:
        raise ValueError(f"length_scale must be a positive, finite number; got {scale!r}.")
    return float(scale)


def median_distance(Z: FloatArray, metric: Metric = EUCLIDEAN, *, max_points: int = 2000) -> float:
    """Median distance between rows; of evenly spaced ``max_points`` of them if there are more."""
    if len(Z) > max_points:
        Z = Z[np.linspace(0, len(Z) - 1, max_points).astype(np.intp)]
    return float(np.median(pdist(Z, metric=metric))) if len(Z) > 1 else 0.0


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

    def reordered(self, order: IntArray) -> RadialExponents:
        """The same with the points in another order."""
        return RadialExponents(self.points[order], self.length_scale, self.metric, self.step)

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


class SmoothedRadial:
    """Radial weights with a floor: exp(−d²/2l²) + b/N, so all points together weigh b more."""

    def __init__(self, exponents: RadialExponents, smoothing: float) -> None:
        self.exponents, self.floor = exponents, smoothing / len(exponents.points)

    def places(self, Z: FloatArray) -> FloatArray | None:
        """Where rows count as being, if many may be in one place."""
        return to_grid(Z, self.exponents.side) if self.exponents.step else None

    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) weights of the points in the means of new rows."""
        exponent, constant = self.exponents.to(Z)
        exponent -= constant[:, None]
        weight = np.exp(exponent, out=exponent)
        weight += self.floor
        return weight

    def among(self, rows: slice) -> FloatArray:
        """(rows, N) weights of the points in the means of some of them, themselves left out."""
        weight = self.to(self.exponents.points[rows])
        own = np.arange(rows.start, rows.stop)
        weight[own - rows.start, own] = 0.0
        return weight


class LeaveTwoOutRBF(LeaveTwoOut):
    """Radial means with one or two points left out."""

    def __init__(self, exponents: RadialExponents, magnitudes: FloatArray, offset: float) -> None:
        self.exponents, self.magnitudes, self.offset = exponents, magnitudes, offset
        self.without_one: FloatArray = mean_of_others(exponents, magnitudes)[0] + offset

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_i⁺ = s_i / ŝ_{i,N+1}; columns are kept in their ascending order."""
        rescaled = super().prepare(scores)
        order = np.argsort(rescaled)
        self.ordered, self.member = rescaled[order], self.magnitudes[order]
        self.columns = self.exponents.reordered(order)
        return rescaled

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows without each calibration point."""
        return means_without_each(self.exponents, Z, self.magnitudes, None) + self.offset

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of ŝ_{N+1,i} s_i⁺ over i: (m, L)."""
        scratch = Scratch()
        blocks = map_row_blocks(
            lambda rows: self._select(Z[rows], ranks, scratch), len(Z), len(self.ordered)
        )
        return np.concatenate(blocks)

    def _select(self, Z: FloatArray, ranks: list[int], scratch: Scratch) -> FloatArray:
        shape = len(Z), len(self.ordered)
        exponent, _ = self.columns.to(Z, out=scratch.array("exponent", shape))
        rows, nearest = np.arange(len(Z)), exponent.argmax(axis=1)
        weight = to_weights(exponent, exponent[rows, nearest])
        weight[rows, nearest] = 0.0
        weighted = np.multiply(weight, self.member, out=scratch.array("weighted", shape))
        rest_sum, rest_weight = weighted.sum(axis=1), weight.sum(axis=1)
        total, total_weight = rest_sum + self.member[nearest], rest_weight + 1.0

        large = weight > (SHARE * total_weight)[:, None]
        large |= weighted > (SHARE * total)[:, None]
        large[rows, nearest] = True
        row, column = np.divmod(np.flatnonzero(large), len(self.ordered))
        numerator = total[row] - weighted[row, column]
        for pair in np.flatnonzero(weighted[row, column] > DOMINANT * total[row]):
            others = np.delete(weighted[row[pair]], column[pair])
            numerator[pair] = others.sum() + self.member[nearest[row[pair]]]
        mean = numerator / (total_weight[row] - weight[row, column])
        mean[column == nearest[row]] = self._without_nearest(Z, nearest, rest_sum, rest_weight)
        value = times(mean + self.offset, self.ordered[column])
        position, value = pad_exceptions(row, column, value, len(Z), len(self.ordered))

        radius = np.empty((len(Z), len(ranks)))
        for level, rank in enumerate(ranks):
            part = safe_window(self.ordered, rank, position.shape[1], SHARE)
            mean = (total[:, None] - weighted[:, part]) / (total_weight[:, None] - weight[:, part])
            window = times(mean + self.offset, self.ordered[part])
            radius[:, level] = merged_order_statistic(window, part.start, position, value, rank)
        return radius

    def _without_nearest(
        self, Z: FloatArray, nearest: IntArray, rest_sum: FloatArray, rest_weight: FloatArray
    ) -> FloatArray:
        """Means without each row's nearest point; summed anew where all other weights vanish."""
        mean = np.empty(len(Z))
        faint = rest_weight < FAINT
        np.divide(rest_sum, rest_weight, out=mean, where=~faint)
        for row in np.flatnonzero(faint):
            mean[row] = mean_without(self.columns, Z[row], self.member, [nearest[row]])
        return mean


def mean_of_others(
    exponents: RadialExponents, magnitudes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For every point, the mean of the others, the sum of their weights, and their largest −d²/2l².

    The weights are taken relative to that largest exponent, so that their sum is at least one.
    """

    def average(rows: slice) -> FloatArray:
        exponent, constant = exponents.to(exponents.points[rows])
        exponent[np.arange(len(exponent)), np.arange(rows.start, rows.stop)] = -np.inf
        largest = exponent.max(axis=1)
        weight = to_weights(exponent, largest)
        total, total_weight = totals(weight, magnitudes)
        return np.stack([total / total_weight, total_weight, largest - constant])

    n = len(magnitudes)
    mean, total_weight, largest = np.concatenate(map_row_blocks(average, n, n), axis=1)
    return mean, total_weight, largest


def means_without_each(
    exponents: RadialExponents, queries: FloatArray, magnitudes: FloatArray, own: IntArray | None
) -> FloatArray:
    """(m, N) means at each query without each point; ``own`` (m,) is left out of all of a row.

    (A − w s)/(B − w) loses no digits unless the point left out carries most of A or of B. That
    can be the nearest point and the one with the largest share of A, one of each a row: they are
    summed without.
    """
    exponent, _ = exponents.to(queries)
    rows = np.arange(len(queries))
    if own is not None:
        exponent[rows, own] = -np.inf
    nearest = exponent.argmax(axis=1)
    weight = to_weights(exponent, exponent[rows, nearest])
    weighted = weight * magnitudes
    total, total_weight = weighted.sum(axis=1), weight.sum(axis=1)
    mean: FloatArray = total[:, None] - weighted
    dominant = weighted.argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean /= total_weight[:, None] - weight
    for left_out in (dominant, nearest):
        kept = weight[rows, left_out]
        weight[rows, left_out] = 0.0
        rest, rest_weight = totals(weight, magnitudes)
        weight[rows, left_out] = kept
        mean[rows, left_out] = rest / np.where(rest_weight > 0, rest_weight, 1.0)
        for row in np.flatnonzero(rest_weight < FAINT):
            out = [left_out[row]] if own is None else [left_out[row], own[row]]
            mean[row, left_out[row]] = mean_without(exponents, queries[row], magnitudes, out)
    return mean


def mean_without(
    exponents: RadialExponents, query: FloatArray, magnitudes: FloatArray, out: list[int]
) -> float:
    """The mean at one query without the points ``out``, shifted by the nearest that remains."""
    if len(set(out)) == len(magnitudes):
        return float("nan")  # nobody is left to speak
    exponent, _ = exponents.to(query[None])
    exponent[0, out] = -np.inf
    total, total_weight = totals(to_weights(exponent, exponent.max(axis=1)), magnitudes)
    return float(total[0] / total_weight[0])


class BagRBF(Bag):
    """Thresholds t_i with radial weights."""

    def __init__(
        self,
        exponents: RadialExponents,
        magnitudes: FloatArray,
        scores: FloatArray,
        offset: float,
    ) -> None:
        self._given = exponents, magnitudes, scores, mean_of_others(exponents, magnitudes)
        self._arrange(offset)

    def with_offset(self, offset: float) -> BagRBF:
        """The same bag with another constant added to every scale; no weight is summed again."""
        other = copy(self)
        other._arrange(offset)
        return other

    def _arrange(self, offset: float) -> None:
        """Columns in ascending order of the ratios s_i / ŝ_i."""
        exponents, magnitudes, scores, (mean, weight, largest) = self._given
        self.offset, self._calibration_scale = offset, mean + offset
        ratio = rescale(scores, self._calibration_scale)
        self.order = order = np.argsort(ratio)
        self.columns = exponents.reordered(order)
        self.ordered, self.scores, self.magnitudes = ratio[order], scores[order], magnitudes[order]
        self.weight, self.largest = weight[order], largest[order]
        self.linear = self.weight * self._calibration_scale[order]
        self._set_exception_limits()

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, (N,)."""
        return self._calibration_scale

    def _set_exception_limits(self) -> None:
        """Exponents above which a point is an exception.

        Regular points have k ≤ τB and 4kC ≤ τA², C = s ŝ (B + k): then t lies within 1−2τ and
        1+τ of its value at k = 0. Both are limits of −d²/2l² = log k + largest, the second up to
        the log ŝ that each row subtracts.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            by_weight = np.minimum(np.log(SHARE * self.weight), 0.0)
            by_balance = np.log(SHARE / 4 / (1 + SHARE)) + 2 * np.log(self.linear)
            by_balance -= np.log(self.scores * self.weight)
        # Without the new point a zero scale gives an infinite ratio; with it, never.
        zero = self.linear == 0
        self.limit = np.where(zero, -np.inf, self.largest + by_weight)
        self.balance_limit = np.where(zero, np.inf, self.largest + by_balance)

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i, by weight if given: (m, L)."""
        scratch = Scratch()

        def select(rows: slice) -> FloatArray:
            if shares is None:
                return self._thresholds(Z[rows], levels, scratch)
            return row_thresholds(self.thresholds(Z[rows]), levels, shares.of_rows(rows))

        return np.concatenate(map_row_blocks(select, len(Z), len(self.ordered)))

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        """All thresholds t_i of a few rows, (m, N); slope·t is added to all scales."""
        exponent, constant, scale = self._scales(Z, Scratch())
        exponent -= constant[:, None]
        found = np.empty_like(exponent)
        if slope == 0:
            found[:, self.order] = self._crossing(
                exponent, np.arange(len(self.order)), scale[:, None]
            )
            return found
        entering, others = self._shares(exponent, slice(None))
        total = others * self.weight + entering
        linear = (others * self.linear + self.offset * entering) / total - slope * self.scores
        product = self.scores * scale[:, None]
        found[:, self.order] = signed_root(slope + entering / total, linear, product)
        return found

    def _scales(self, Z: FloatArray, scratch: Scratch) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Exponents (m, N), what to subtract from each row of them, and scales of the new rows."""
        shape = len(Z), len(self.ordered)
        exponent, constant = self.columns.to(Z, out=scratch.array("exponent", shape))
        weight = scratch.array("weight", shape)
        np.copyto(weight, exponent)
        to_weights(weight, weight.max(axis=1))
        total, total_weight = totals(weight, self.magnitudes)
        return exponent, constant, total / total_weight + self.offset

    def _thresholds(self, Z: FloatArray, levels: list[float], scratch: Scratch) -> FloatArray:
        exponent, constant, scale = self._scales(Z, scratch)
        weight = scratch.array("weight", exponent.shape)

        with np.errstate(divide="ignore"):
            lift = constant - np.log(scale)
        limit = np.add(self.limit, constant[:, None], out=weight)
        large = exponent > limit
        limit = np.add(self.balance_limit, lift[:, None], out=weight)
        large |= exponent > limit
        row, column = np.divmod(np.flatnonzero(large), len(self.ordered))
        value = self._crossing(exponent[row, column] - constant[row], column, scale[row])
        position, value = pad_exceptions(row, column, value, len(Z), len(self.ordered))

        radius = np.empty((len(Z), len(levels)))
        for index, level in enumerate(levels):
            rank = conformal_rank(level, len(self.ordered))
            part = safe_window(self.ordered, rank, position.shape[1], 2 * SHARE)
            columns = np.arange(part.start, part.stop)
            inside = exponent[:, part] - constant[:, None]
            window = self._crossing(inside, columns, scale[:, None])
            radius[:, index] = merged_order_statistic(window, part.start, position, value, rank)
        return radius

    def _crossing(self, exponent: FloatArray, column: IntArray, scale: FloatArray) -> FloatArray:
        """t_i from −d²(X_i, x)/2l², for broadcastable columns and scales of the new rows."""
        entering, shrink = self._shares(exponent, column)
        linear = shrink * self.linear[column] + self.offset * entering
        product = self.scores[column] * scale
        constant = product * (shrink * self.weight[column] + entering)
        return positive_root(entering, linear, constant)

    def _shares(
        self, exponent: FloatArray, column: IntArray | slice
    ) -> tuple[FloatArray, FloatArray]:
        """The new point's weight at the points, and what those of all others are multiplied by."""
        excess = self.largest[column] - exponent
        # A new point nearer than all others shrinks their weights instead of growing its own.
        return np.exp(-np.maximum(excess, 0.0)), np.exp(np.minimum(excess, 0.0))


class RadialQuantile:
    """The first of the ascending scores at which the radial weights reach the level."""

    def __init__(self, exponents: RadialExponents, ascending: FloatArray) -> None:
        self.exponents, self.ascending = exponents, ascending

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        def weigh(rows: slice, out: FloatArray) -> tuple[FloatArray, FloatArray]:
            return self.exponents.weights(Z[rows], out), np.zeros(len(out))

        return weighted_quantiles_in_blocks(self.ascending, weigh, len(Z), levels)


class RadialFamily:
    """RBF kernels on fixed points; the candidate is the length scale."""

    def __init__(self, Z: FloatArray, magnitudes: FloatArray, metric: Metric) -> None:
        self.Z, self.magnitudes, self.metric = Z, magnitudes, metric

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i without i and m."""
        exponents = RadialExponents(self.Z, candidate, self.metric)
        n = len(self.Z)

        def block(rows: slice) -> FloatArray:
            own = np.arange(rows.start, rows.stop)
            return means_without_each(exponents, self.Z[rows], self.magnitudes, own)

        return np.concatenate(map_row_blocks(block, n, n))

    def means_without(self, candidate: float, members: IntArray) -> RadialMeansWithout:
        """For new rows, the means without each of the ``members``."""
        # The members come first, so that their columns are a slice.
        rest = np.setdiff1d(np.arange(len(self.Z)), members)
        order = np.concatenate([members, rest])
        exponents = RadialExponents(self.Z[order], candidate, self.metric)
        return RadialMeansWithout(exponents, self.magnitudes[order], len(members))


class RadialMeansWithout:
    """Means at new rows without each of the first ``n_members`` points."""

    def __init__(self, exponents: RadialExponents, magnitudes: FloatArray, n_members: int) -> None:
        self.exponents, self.magnitudes, self.n_members = exponents, magnitudes, n_members

    def __call__(self, Z: FloatArray) -> FloatArray:
        exponent, _ = self.exponents.to(Z)
        rows, nearest = np.arange(len(Z)), exponent.argmax(axis=1)
        weight = to_weights(exponent, exponent[rows, nearest])
        weight[rows, nearest] = 0.0
        rest, rest_weight = totals(weight, self.magnitudes)
        total, total_weight = rest + self.magnitudes[nearest], rest_weight + 1.0
        weight_of = weight[:, : self.n_members]
        weighted = weight_of * self.magnitudes[: self.n_members]
        mean: FloatArray = total[:, None] - weighted
        mean /= total_weight[:, None] - weight_of
        # What carries most of a sum is left out of the sum, not subtracted from it.
        for row, member in zip(*np.nonzero(weighted > DOMINANT * total[:, None]), strict=True):
            others = np.delete(weight[row], member) @ np.delete(self.magnitudes, member)
            others += self.magnitudes[nearest[row]]
            mean[row, member] = others / (total_weight[row] - weight[row, member])
        inside = np.flatnonzero(nearest < self.n_members)
        safe = np.where(rest_weight > FAINT, rest_weight, 1.0)
        mean[inside, nearest[inside]] = (rest / safe)[inside]
        for row in inside[rest_weight[inside] <= FAINT]:
            left_out = [nearest[row]]
            mean[row, nearest[row]] = mean_without(
                self.exponents, Z[row], self.magnitudes, left_out
            )
        return mean
