"""All points count, the nearer the more.

Weights are exp(−d²/2l²), plus b/N with smoothing. Equations are those of ``_weighted.py``. On a
grid, points are moved to the middles of cells whose side is a part of l. That is a fixed function
of the features, so no guarantee changes; all rows of a cell have the same radius, so many rows cost
no more than their cells (``_places.py``).

Without smoothing, a local mean is a ratio, so all weights of a row may share a factor: with the
largest exponent as zero, the nearest weight is one and nothing underflows, whatever the length
scale.

Without two points. Leaving out any point but the nearest keeps the sum of the weights at 1 or more;
where the weights of all but the nearest vanish, they are taken relative to the next.

Over the bag. Weights of row i are relative to the nearest of the other points. Where the new point
is nearer still, the weights of the others shrink instead.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist, pdist
from sklearn.base import BaseEstimator

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import check_engine, engine_of
from calliper.exceptions import CalliperError
from calliper.kernels._kernel import Bag, Known, LocalQuantile, Rng, ScalesAtLevel, check_size
from calliper.kernels._search import EUCLIDEAN, Metric, all_distances, check_metric
from calliper.kernels._weighted import (
    BagWeighted,
    Balance,
    WeightedKernel,
    WeightedMeans,
    Weights,
    mean_of,
    means_without_each,
    totals,
)
from calliper.quantile import weighted_quantiles_in_blocks

#: Weights whose sum is smaller have lost digits to underflow; they are shifted anew.
FAINT = 1e-200


@dataclass(eq=False, repr=False)
class RBF(WeightedKernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = exp(−‖x − x'‖² / 2l²), plus an optional constant for all pairs.

    The paper does not print the normalisation of its length scale; this is the usual one. Nothing
    underflows: l → 0 gives the nearest neighbour, l → ∞ the plain mean.

    Parameters
    ----------
    length_scale : float or "median", default "median"
        l, in the unit of the features. ``"median"`` is the median distance between training
        inputs (Lei et al. 2018; "Median" in the paper's tables); it needs training inputs, since
        a length scale taken from the calibration points would treat them unlike a new point.
    smoothing : float, default 0
        b, how many points the mean of all N points counts for: b/N is added to every weight. It
        matters only where few points are near.
    step : float, default 0
        Side of the cells of a grid, in length scales; points count as being in the middle of
        their cell. With ½ the local mean hardly changes, and in few dimensions a hundred thousand
        rows lie in some thousand cells, which saves time. 0 leaves points where they are.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    engine : str, optional
        ``"torch"`` computes on the current CUDA device through PyTorch, ``"torch:cuda:1"`` on
        another; see ``docs/large-data.md``. For :class:`FullRescaled` and
        :class:`JackknifeRescaled`.

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

    cli = "rbf"
    by_distance = True
    engines = ("torch",)

    length_scale: float | str = "median"
    _: KW_ONLY
    smoothing: float = 0.0
    step: float = 0.0
    metric: Metric = EUCLIDEAN
    engine: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Training inputs, if the length scale is their median distance."""
        return ("training",) if isinstance(self.length_scale, str) else ()

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """A copy with its parameters checked and the median distance filled in."""
        check_metric(self.metric)
        check_engine(self.engine)
        scale = self.length_scale
        if isinstance(scale, str):
            if scale != "median":
                raise ValueError(f"length_scale is a number or 'median'; got {scale!r}.")
            if Z_train is None:
                raise CalliperError(
                    "length_scale='median' needs training inputs: pass training=Z to fit (X_train "
                    "to calibrate), or a number. A length scale taken from the calibration points "
                    "would treat them unlike a new point and void the guarantee."
                )
            scale = median_distance(Z_train, self.metric)
            if scale == 0:
                raise CalliperError(
                    "the median distance between training inputs is 0; pass a number."
                )
        smoothing, step = check_size(self.smoothing, "smoothing"), check_size(self.step, "step")
        length = check_length_scale(scale)
        return replace(self, length_scale=length, smoothing=smoothing, step=step)

    def weights(self, Z: Any) -> Any:
        """The points with their weights, where they are computed."""
        length, smoothing, step = float(self.length_scale), float(self.smoothing), float(self.step)
        engine = engine_of(Z, self.engine)
        if engine is not None:
            return engine.radial(Z, self.metric, length, smoothing, step)
        return Radial(RadialExponents(Z, length, self.metric, step), smoothing)

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> LocalQuantile:
        """Quantile by radial weights."""
        if self.smoothing:
            return super().local_quantile(Z, scores)
        quantile: LocalQuantile = self.weights(Z).local_quantile(scores)
        return quantile

    def widened(self, multiple: float, most: int) -> Self:
        """The same with its length scale multiplied, in three digits: more would mean nothing."""
        return replace(self, length_scale=float(f"{float(self.length_scale) * multiple:.3g}"))

    @classmethod
    def scales_of_others(
        cls, kernels: "Sequence[RBF]", Z: FloatArray, magnitudes: FloatArray, *, statistic: str
    ) -> ScalesAtLevel:
        """Means of the others with smoothed radial weights."""
        more = len(Z) / (len(Z) - 1)  # so that the mean of the others counts for all of b
        each = [replace(kernel, smoothing=kernel.smoothing * more).weights(Z) for kernel in kernels]
        means = np.stack([weights.mean(magnitudes).of_others() for weights in each])
        return lambda level: means


class RadialExponents:
    """Exponents −d²/2l² to fixed points; ``step`` is the side of a grid, in length scales."""

    def __init__(
        self, points: FloatArray, length_scale: float, metric: Metric, step: float = 0.0
    ) -> None:
        self.side = step * length_scale if step else 0.0  # the length may be infinite
        self.points = to_grid(points, self.side)
        self.metric, self.length_scale, self.step = metric, length_scale, step

    def some(self, points: IntArray) -> "RadialExponents":
        """The same with some of the points, or all in another order."""
        return RadialExponents(self.points[points], self.length_scale, self.metric, self.step)

    def to(self, queries: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """−d²/2l², (m, N), in ``out`` if given."""
        queries = to_grid(queries, self.side)
        squared = squared_distances(queries, self.points, self.metric, out)
        squared /= -2 * self.length_scale**2
        return squared


def to_grid(Z: FloatArray, side: float) -> FloatArray:
    """Middles of the cells that rows lie in; the rows themselves if cells have no size."""
    return np.round(Z / side) * side if side else Z


def squared_distances(
    queries: FloatArray, points: FloatArray, metric: Metric, out: FloatArray | None = None
) -> FloatArray:
    """Squared distances for any metric, (m, N), in ``out`` if given; nothing hangs on a tie."""
    if metric == EUCLIDEAN:
        return np.asarray(cdist(queries, points, "sqeuclidean", out=out), dtype=np.float64)
    return np.square(all_distances(queries, points, metric))


def to_weights(exponent: FloatArray, largest: FloatArray) -> FloatArray:
    """exp(e − largest) in place; ``largest`` (m,) is the row's largest exponent."""
    exponent -= largest[:, None]
    return np.exp(exponent, out=exponent)


class Radial(Weights):
    """Radial weights up to a factor of each row, by which the nearest has one.

    With smoothing b, as they are, and b/N more: all points together weigh b more.
    """

    def __init__(self, exponents: RadialExponents, smoothing: float = 0.0) -> None:
        self.exponents, self.points = exponents, exponents.points
        self.smoothing, self.floor = smoothing, smoothing / len(self.points)

    def to(self, Z: FloatArray) -> FloatArray:
        exponent = self.exponents.to(Z)
        if not self.smoothing:
            return to_weights(exponent, exponent.max(axis=1))
        weight = np.exp(exponent, out=exponent)
        weight += self.floor
        return weight

    def mean(self, magnitudes: FloatArray) -> WeightedMeans:
        if self.smoothing:
            return super().mean(magnitudes)
        return RadialMeans(self.exponents, magnitudes)

    def bag(self, magnitudes: FloatArray, scores: FloatArray, offset: float) -> Bag:
        if not self.smoothing:
            return BagRadial(self, magnitudes, scores, offset)
        if not self.exponents.step:
            return super().bag(magnitudes, scores, offset)
        from calliper.kernels._places import BagInPlaces  # where it is needed, and not before

        return BagInPlaces(self, magnitudes, scores, offset)

    def local_quantile(self, scores: FloatArray) -> "RadialQuantile":
        """Quantile by weights."""
        order = np.argsort(scores)
        return RadialQuantile(self.exponents.some(order), scores[order])


class RadialMeans(WeightedMeans):
    """Means without each point, or without each of F folds, if points have such, (N,)."""

    def __init__(
        self, exponents: RadialExponents, magnitudes: FloatArray, fold: IntArray | None = None
    ) -> None:
        super().__init__(Radial(exponents), magnitudes)
        self.exponents, self.fold = exponents, fold

    def to(self, Z: FloatArray, own: IntArray | None = None) -> FloatArray:
        """(m, N) means at rows without each point, or (m, F); without the points ``own``, too."""
        exponent = self.exponents.to(Z)
        if own is not None:
            exponent[np.arange(len(Z)), own] = -np.inf
        weight = to_weights(exponent, exponent.max(axis=1))
        if self.fold is None:
            mean, rest = means_without_each(weight, self.magnitudes)
        else:
            mean, rest = self._without_folds(weight, self.fold)
        groups = np.arange(len(self.magnitudes)) if self.fold is None else self.fold
        for row, left_out in zip(*np.nonzero(rest < FAINT), strict=True):
            out = groups == left_out
            if own is not None:
                out[own[row]] = True
            mean[row, left_out] = self._without(Z[row], out)
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

    def _without(self, query: FloatArray, out: BoolArray) -> float:
        """The mean at one row without some points, (N,), relative to the nearest that remains."""
        if out.all():
            return float("nan")  # no point is left
        exponent = np.where(out, -np.inf, self.exponents.to(query[None]))
        total, weight = totals(to_weights(exponent, exponent.max(axis=1)), self.magnitudes)
        return float(total[0] / weight[0])


def sums_of_others(
    exponents: RadialExponents, magnitudes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For every point the weighted sum of the others, their weight, and their largest −d²/2l².

    The weights are relative to that largest exponent, so that their sum is at least one.
    """

    def add(rows: slice) -> FloatArray:
        exponent = exponents.to(exponents.points[rows])
        exponent[np.arange(len(exponent)), np.arange(rows.start, rows.stop)] = -np.inf
        largest = exponent.max(axis=1)
        return np.stack([*totals(to_weights(exponent, largest), magnitudes), largest])

    n = len(magnitudes)
    total, weight, largest = np.concatenate(map_row_blocks(add, n, n), axis=1)
    return total, weight, largest


class BagRadial(BagWeighted):
    """Thresholds t_i with radial weights without a floor."""

    def __init__(
        self, weights: Radial, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.exponents, self.magnitudes = weights.exponents, magnitudes
        self.scores, self.offset = scores, offset
        self.total, self.weight, self.largest = sums_of_others(self.exponents, magnitudes)

    def _balance(self, Z: FloatArray) -> Balance:
        exponent = self.exponents.to(Z)
        weight = to_weights(exponent.copy(), exponent.max(axis=1))
        scale = mean_of(weight, self.magnitudes) + self.offset
        exponent -= self.largest
        row, column = np.divmod(np.flatnonzero(exponent > 0), len(self.scores))
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
        of_new = np.full(len(Z), -np.inf) if own is None else own

        def weigh(rows: slice, out: FloatArray) -> tuple[FloatArray, FloatArray]:
            exponent = self.exponents.to(Z[rows], out)
            largest = np.maximum(exponent.max(axis=1), of_new[rows])
            return to_weights(exponent, largest), np.exp(of_new[rows] - largest)

        return weighted_quantiles_in_blocks(self.ascending, weigh, len(Z), levels)


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
