"""Every point speaks for every other, the louder the nearer."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator

from calliper._types import FloatArray
from calliper.kernels._distances import EUCLIDEAN, Metric


class RBF(BaseEstimator):  # type: ignore[misc]
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
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    """

    def __init__(
        self,
        length_scale: float | str = "median",
        *,
        smoothing: float = 0.0,
        metric: Metric = EUCLIDEAN,
    ) -> None:
        self.length_scale = length_scale
        self.smoothing = smoothing
        self.metric = metric


def median_distance(Z: FloatArray, metric: Metric = EUCLIDEAN, *, max_points: int = 2000) -> float:
    """Median distance between rows; of evenly spaced ``max_points`` of them if there are more."""
    if len(Z) > max_points:
        Z = Z[np.linspace(0, len(Z) - 1, max_points).astype(np.intp)]
    return float(np.median(pdist(Z, metric=metric))) if len(Z) > 1 else 0.0
