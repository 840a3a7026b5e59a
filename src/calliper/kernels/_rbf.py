"""All points count, the nearer the more (see ``_radial.py``)."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator

from calliper._types import FloatArray
from calliper._validation import check_engine, engine_of
from calliper.exceptions import CalliperError
from calliper.kernels._kernel import Known, LocalQuantile, Rng, ScalesAtLevel, check_size
from calliper.kernels._radial import Radial, RadialExponents, squared_distances, to_grid
from calliper.kernels._search import EUCLIDEAN, Metric, check_metric
from calliper.kernels._weighted import WeightedKernel


@dataclass(eq=False, repr=False)
class RBF(WeightedKernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = exp(−‖x − x'‖² / 2l²), plus an optional constant for all pairs.

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
            scale = self._median(scale, Z_train)
        smoothing, step = check_size(self.smoothing, "smoothing"), check_size(self.step, "step")
        length = check_length_scale(scale)
        return replace(self, length_scale=length, smoothing=smoothing, step=step)

    def _median(self, name: str, Z_train: Known) -> float:
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
