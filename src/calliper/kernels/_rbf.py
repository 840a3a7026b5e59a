"""All points count, the nearer the more.

Weights are exp(−d²/2l²), plus b/N with smoothing. Equations are those of ``_weighted.py``. On a
grid, points are moved to the middles of cells whose side is a part of l: a fixed function of the
features, so no guarantee changes. All rows of a cell have one radius, so rows cost as many cells.

Without smoothing, a local mean is a ratio, so all weights of a row may share a factor: with the
largest exponent as zero, the nearest weight is one and nothing underflows at any length scale.

Without two points. Leaving out any point but the nearest keeps the sum of the weights at 1 or more;
where the weights of all but the nearest vanish, they are taken relative to the next.

Over the bag. Weights of row i are relative to the nearest of the other points; where the new point
is nearer still, the weights of the others shrink instead.

Sites are cells that hold points. In few dimensions there are far fewer sites than points, and all
points of a site p have the same weights. With S_p the sum of its magnitudes, n_p their number, κ
the weight of a site at itself and k that of the new row there, point i without itself has the sums

    A_i = Σ_{q≠p} k_pq S_q + κ (S_p − s_i),    B_i = Σ_{q≠p} k_pq n_q + κ (n_p − 1),

and its threshold solves k t² + A_i t = s_i ŝ (B_i + k).

Of many points, few thresholds are solved. With r_i = s_i/c_i, c_i = A_i/B_i the point's scale
without the new row, and w = k/(B_i + k), the threshold is at most t exactly if

    r_i ≤ (t/ŝ) · (1 + w (t/c_i − 1)).

Where w·max(1, t/c_i) is at most δ for all t that matter, the factor is within 1 ± δ: thresholds
are in the order of r_i up to that. All other points are exceptions, which lie near the new row. If
there are at most E exceptions to a row, its Q-th smallest threshold is either one of theirs or that
of a point between r_(Q−E)·q and r_(Q+E)/q, with q = (1−δ)/(1+δ).
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist, pdist
from sklearn.base import BaseEstimator

from calliper._blocks import Scratch, distinct, map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import check_engine, engine_of
from calliper.exceptions import CalliperError
from calliper.kernels._arithmetic import rescale
from calliper.kernels._kernel import Bag, Known, LocalQuantile, Rng, ScalesAtLevel, check_parameter
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
from calliper.quantile import (
    Shares,
    conformal_rank,
    conformal_thresholds,
    merged_order_statistic,
    pad_exceptions,
    row_order_statistics,
    weighted_quantiles,
)

#: Weights whose sum is smaller have lost digits to underflow; they are shifted anew.
FAINT = 1e-200
#: With fewer points, all thresholds are computed.
MANY = 5_000
#: δ, and the largest part of the points that a row may have as exceptions.
DELTA, EXCEPTIONS = 0.02, 0.05


@dataclass(eq=False, repr=False)
class RBF(WeightedKernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = exp(−‖x − x'‖² / 2l²), plus an optional constant for all pairs.

    The paper does not print the normalisation of its length scale; this is the usual one. Nothing
    underflows: l → 0 gives the nearest neighbour, l → ∞ the plain mean.

    Parameters
    ----------
    length_scale : float or "median", default "median"
        l, in the unit of the features. ``"median"`` is the median distance between training
        inputs (Lei et al. 2018; "Median" in the paper's tables), which must be passed.
    smoothing : float, default 0
        b, how many points the mean of all N counts for, where few are near: b/N joins each weight.
    step : float, default 0
        Side of the cells of a grid, in length scales; points count as being in the middle of
        their cell. With ½ the local mean hardly changes, and in few dimensions a hundred thousand
        rows lie in some thousand cells, which saves time. 0 leaves points where they are.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    engine : str, optional
        ``"torch"`` computes on the current CUDA device through PyTorch, ``"torch:cuda:1"`` on
        another, for full and jackknife rescaling; see ``docs/large-data.md``.

    Examples
    --------
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
        """Training inputs are needed if the length scale is their median distance."""
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
                    "length_scale='median' needs training inputs: pass X_train= to calibrate() "
                    "(training= to fit() of a method), or a number as length_scale. The median "
                    "over calibration rows leaves out the new point, so there is no guarantee."
                )
            scale = median_distance(Z_train, self.metric)
            if scale == 0:
                raise CalliperError(
                    "the median distance between training inputs is 0; pass a number."
                )
        smoothing = check_parameter(self.smoothing, "smoothing")
        step = check_parameter(self.step, "step")
        return replace(self, length_scale=check_length_scale(scale), smoothing=smoothing, step=step)

    def weights(self, Z: Any) -> Any:
        """The weights between the points and new ones, computed by the engine if there is one."""
        length, smoothing, step = float(self.length_scale), float(self.smoothing), float(self.step)
        engine = engine_of(Z, self.engine)
        if engine is not None:
            return engine.radial(Z, self.metric, length, smoothing, step)
        return Radial(Z, length, self.metric, step, smoothing)

    def local_quantile(self, Z: FloatArray, scores: FloatArray) -> LocalQuantile:
        if self.smoothing:
            return super().local_quantile(Z, scores)
        quantile: LocalQuantile = self.weights(Z).local_quantile(scores)
        return quantile

    def widened(self, multiple: float, most: int) -> Self:
        """A copy with its length scale multiplied and rounded to three significant digits."""
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


class Radial(Weights):
    """Radial weights, up to a factor by which the nearest has one; with smoothing, b/N more.

    With smoothing they are ``near`` times the kernel, and ``floor`` more: neither is above 1.
    """

    #: Points whose exponents would be less are all as far.
    least = -1e300

    @staticmethod
    def parts_of(smoothing: float, n: int) -> tuple[float, float]:
        """``near`` and ``floor``."""
        largest = max(1.0, smoothing / n)
        return 1 / largest, smoothing / n / largest

    def __init__(
        self,
        points: FloatArray,
        length_scale: float,
        metric: Metric = EUCLIDEAN,
        step: float = 0.0,
        smoothing: float = 0.0,
    ) -> None:
        self.side = step * length_scale if step else 0.0  # the length may be infinite
        self.points, self.metric, self.length_scale = self.on_grid(points), metric, length_scale
        self.near, self.floor = self.parts_of(smoothing, len(points))

    def on_grid(self, Z: FloatArray) -> FloatArray:
        """Middles of the cells that rows lie in; the rows themselves if cells have no size."""
        if not self.side:
            return Z
        with np.errstate(over="ignore"):
            middles = np.round(Z / self.side) * self.side
        return np.where(np.isfinite(middles), middles, Z)

    def some(self, points: IntArray) -> Self:
        """The same with some of the points, or all in another order."""
        other = copy(self)
        other.points = self.points[points]
        return other

    def exponents(self, Z: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """−d²/2l², (m, N), in ``out`` if given."""
        Z = self.on_grid(Z)
        if self.metric == EUCLIDEAN:  # ties do not matter here
            squared: FloatArray = cdist(Z, self.points, "sqeuclidean", out=out)
        else:
            squared = np.square(all_distances(Z, self.points, self.metric))
        with np.errstate(over="ignore"):
            squared /= -2 * self.length_scale**2
        return np.maximum(squared, self.least, out=squared)

    def to(self, Z: FloatArray) -> FloatArray:
        exponent = self.exponents(Z)
        if not self.floor:
            return to_weights(exponent, exponent.max(axis=1))
        weight = np.exp(exponent, out=exponent)
        if self.near < 1:
            weight *= self.near
        weight += self.floor
        return weight

    def among(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        if self.floor:
            return super().among(rows)
        exponent = self.exponents(self.points[rows])
        np.fill_diagonal(exponent[:, rows], -np.inf)
        largest = exponent.max(axis=1)
        return to_weights(exponent, largest), largest

    def mean(self, magnitudes: FloatArray) -> WeightedMeans:
        return super().mean(magnitudes) if self.floor else RadialMeans(self, magnitudes)

    def bag(self, *given: Any, **named: Any) -> Bag:
        smoothed = BagOfSites if self.side else BagWeighted
        return (smoothed if self.floor else BagRadial)(self, *given, **named)

    def local_quantile(self, scores: FloatArray) -> Callable[..., FloatArray]:
        """As :meth:`quantile`, of the scores of the points."""
        order = np.argsort(scores)
        return partial(self.some(order).quantile, scores[order])

    def quantile(
        self, ascending: FloatArray, Z: FloatArray, levels: Sequence[float], own: Known = None
    ) -> FloatArray:
        """The first score at which weights reach each level, (m, L); exponents ``own`` are at ∞."""
        of_new = np.full(len(Z), -np.inf) if own is None else own
        n, scratch = len(ascending), Scratch()

        def select(rows: slice) -> FloatArray:
            exponent = self.exponents(Z[rows], scratch.array(rows.stop - rows.start, n))
            largest = np.maximum(exponent.max(axis=1), of_new[rows])
            weights, at_infinity = to_weights(exponent, largest), np.exp(of_new[rows] - largest)
            return weighted_quantiles(ascending, weights, at_infinity, levels)

        return np.concatenate(map_row_blocks(select, len(Z), n))


def to_weights(exponent: FloatArray, largest: FloatArray) -> FloatArray:
    """exp(e − largest) in place; ``largest`` (m,) is the row's largest exponent."""
    exponent -= largest[:, None]
    return np.exp(exponent, out=exponent)


@dataclass(eq=False, repr=False)
class RadialMeans(WeightedMeans):
    """Means without each point, or without each of F folds, if points have such, (N,)."""

    fold: IntArray | None = None

    def to(self, Z: FloatArray, own: IntArray | None = None) -> FloatArray:
        """(m, N) means at rows without each point, or (m, F); without the points ``own``, too."""
        exponent = self._exponents(Z, own)
        weight = to_weights(exponent, exponent.max(axis=1))
        if self.fold is None:
            mean, rest = means_without_each(weight, self.magnitudes)
        else:
            mean, rest = means_without_folds(weight, self.magnitudes, self.fold)
        groups = np.arange(len(self.magnitudes)) if self.fold is None else self.fold
        faint = np.divmod(np.flatnonzero(rest < FAINT), rest.shape[1])
        for row, left_out in zip(*faint, strict=True):
            # Weights relative to the nearest that remains; of none, the mean is not a number.
            exponent = self._exponents(Z[[row]], None if own is None else own[[row]])
            exponent[:, groups == left_out] = -np.inf
            with np.errstate(invalid="ignore"):
                total, some = totals(to_weights(exponent, exponent.max(axis=1)), self.magnitudes)
                mean[row, left_out] = (total / some)[0]
        return mean

    def among(self) -> FloatArray:
        """(N, N) means at the points without themselves and each other one, or (N, F)."""
        points, every = self.weights.points, np.arange(len(self.magnitudes))

        def one_block(rows: slice) -> FloatArray:
            return self.to(points[rows], every[rows])

        return np.concatenate(map_row_blocks(one_block, len(points), len(points)))

    def _exponents(self, Z: FloatArray, own: IntArray | None) -> FloatArray:
        exponent: FloatArray = self.weights.exponents(Z)
        if own is not None:
            exponent[np.arange(len(Z)), own] = -np.inf
        return exponent


def means_without_folds(
    weight: FloatArray, magnitudes: FloatArray, fold: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Means without each fold, and the weights of all others, (m, F); nothing is subtracted."""
    n_folds = int(fold.max()) + 1
    inside = np.equal.outer(fold, np.arange(n_folds)).astype(np.float64)
    all_but_one = 1.0 - np.eye(n_folds)
    total, rest = (weight @ each @ all_but_one for each in (inside * magnitudes[:, None], inside))
    return total / np.where(rest > 0, rest, 1.0), rest


class BagRadial(BagWeighted):
    """Thresholds t_i with radial weights without a floor."""

    def _balance(self, Z: FloatArray) -> Balance:
        exponent = self.weights.exponents(Z)
        weight = to_weights(exponent.copy(), exponent.max(axis=1))
        scale = mean_of(weight, self.magnitudes) + self.offset
        exponent -= self.largest
        row, column = np.divmod(np.flatnonzero(exponent > 0), len(self.scores))
        shrink = np.exp(-exponent[row, column])
        exponent[row, column] = 0.0
        others = shrink * self.total[column], shrink * self.weight[column]
        return np.exp(exponent, out=exponent), scale, (row, column, *others)


class BagOfSites(BagWeighted):
    """Thresholds t_i of points of which many share a site."""

    def __init__(self, weights: Radial, magnitudes: FloatArray, *others: Any) -> None:
        first, self.site = distinct(weights.points)
        self.size, self.by_site = np.bincount(self.site), np.lexsort((magnitudes, self.site))
        self.start = np.cumsum(self.size) - self.size
        # The largest may be nearly all of the sum of its site: the others are summed without it.
        ordered, last = magnitudes[self.by_site], self.start + self.size - 1
        largest = ordered[last]
        ordered[last] = 0.0
        without = np.add.reduceat(ordered, self.start)
        #: Sums of magnitudes of the sites, and of the others in the site of each point.
        self.sums = without + largest
        self.rest = self.sums[self.site] - magnitudes
        self.rest[self.by_site[last]] = without
        super().__init__(weights.some(first), magnitudes, *others)

    def _summed(self) -> FloatArray:
        n, own = self.n_sites, self.weights.near + self.weights.floor
        others = map_row_blocks(
            lambda rows: np.stack(self._totals(self.weights.among(rows)[0])), n, n
        )
        total, number = np.concatenate(others, axis=1)
        total, number = total[self.site] + own * self.rest, number + own * (self.size - 1)
        return np.stack([total, number[self.site], np.zeros(len(total))])

    @property
    def n_sites(self) -> int:
        return len(self.size)

    def _totals(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of magnitudes and of numbers by weights of sites, (m,) each."""
        return (weight * self.sums).sum(axis=1), (weight * self.size).sum(axis=1)

    def with_offset(self, offset: float) -> Self:
        other = super().with_offset(offset)
        vars(other).pop("_window", None)
        return other

    @cached_property
    def _window(self) -> "Window":
        return Window(self)

    def _balance(self, Z: FloatArray) -> Balance:
        weight, scale = self._at(Z)
        return weight[:, self.site], scale, np.empty((4, 0))

    def _at(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights of new rows at all sites, (m, sites), and scales of the rows, (m,)."""
        weight = self.weights.to(Z)
        total, number = self._totals(weight)
        return weight, total / number + self.offset

    def order_statistics(
        self, Z: FloatArray, asked: Any, shares: Any = None, slope: float = 0.0, signs: Any = None
    ) -> FloatArray:
        sites = self.weights.on_grid(Z)
        first, site = distinct(sites)
        if shares is not None:
            return self._weighed(sites[first], site, asked, shares, slope)
        if signs is not None:
            return super().order_statistics(sites[first], asked, slope=slope, signs=signs)[site]
        ranks = [conformal_rank(level, len(self.scores)) for level in asked]

        def select(rows: slice) -> FloatArray:
            some = sites[first[rows]]
            if slope or len(self.scores) <= MANY:
                return row_order_statistics(self.thresholds(some, slope=slope), ranks)
            known = some, *self._at(some)
            return np.stack([self._window.ranked(*known, rank) for rank in ranks], axis=1)

        floats = 2 * len(self.size) + 4 * min(len(self.scores), MANY)
        return np.concatenate(map_row_blocks(select, len(first), floats))[site]

    def _weighed(
        self, Z: FloatArray, site: IntArray, levels: list[float], shares: Shares, slope: float
    ) -> FloatArray:
        """Thresholds by weight of many rows in few sites, each of which sorts its own once."""
        rows_by_site = np.split(np.argsort(site, kind="stable"), np.cumsum(np.bincount(site)))
        found = np.empty((len(site), len(levels)))

        def select(block: slice) -> None:
            values = self.thresholds(Z[block], slope=slope)
            for row, own in zip(values, rows_by_site[block], strict=True):
                order = np.argsort(row)
                sorted_shares = shares.of_rows(own).reordered(order)
                found[own] = conformal_thresholds(row[order], levels, sorted_shares)

        map_row_blocks(select, len(Z), len(self.scores))
        return found


class Window:
    """Points in the order of r_i and of their sites, to solve few thresholds of each new row."""

    def __init__(self, bag: BagOfSites) -> None:
        self.bag, scale = bag, bag.calibration_scale(0.5)
        ratio = rescale(bag.scores, scale)
        self.order = np.argsort(ratio)
        self.ratio, self.position = ratio[self.order], np.argsort(self.order)
        self.least = np.minimum.reduceat(scale[bag.by_site], bag.start)
        self.site_weight = bag.weight[bag.by_site[bag.start]]

    def ranked(self, Z: FloatArray, weight: FloatArray, scale: FloatArray, rank: int) -> FloatArray:
        """The rank-th smallest threshold of new rows with these weights and scales, (m,)."""
        n = len(self.ratio)
        most = min(int(EXCEPTIONS * n), n - rank)
        with np.errstate(all="ignore"):  # NaN counts as an exception
            highest = scale * self.ratio[rank - 1 + most] / (1 - DELTA) + self.bag.offset
            stretch = np.maximum(1.0, highest[:, None] / self.least)
            exceptional = ~(stretch * weight / (self.site_weight + weight) <= DELTA * (1 - 1e-9))
        count = int((exceptional @ self.bag.size).max())
        if count > most:
            return row_order_statistics(self.bag.thresholds(Z), [rank])[:, 0]
        return self._merged(weight, scale, exceptional, rank, count)

    def _merged(
        self, weight: FloatArray, scale: FloatArray, exceptional: BoolArray, rank: int, most: int
    ) -> FloatArray:
        """The same where no row has more than ``most`` exceptions."""
        bag, q = self.bag, (1 - DELTA) / (1 + DELTA) * (1 - 1e-9)
        below, above = self.ratio[max(rank - 1 - most, 0)], self.ratio[rank - 1 + most]
        low = int(np.searchsorted(self.ratio, below * q)) if rank > most else 0
        high = int(np.searchsorted(self.ratio, above / q, side="right"))

        def solved(entering: FloatArray, point: IntArray, scale: FloatArray) -> FloatArray:
            known = bag.total[point], bag.weight[point], bag.scores[point]
            return bag.solved(entering, *known, scale)

        inside = self.order[low:high]
        window = solved(weight[:, bag.site[inside]], inside, scale[:, None])
        row, site = np.nonzero(exceptional)
        size = bag.size[site]
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        row, site = np.repeat(row, size), np.repeat(site, size)
        point = bag.by_site[bag.start[site] + within]
        value = solved(weight[row, site], point, scale[row])
        listed = pad_exceptions(row, self.position[point], value, len(scale), len(self.ratio))
        return merged_order_statistic(window, low, *listed, rank)


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
