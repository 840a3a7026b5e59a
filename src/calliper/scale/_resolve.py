"""From the kernel that a user names to one whose every parameter is checked and known."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.base import clone

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, RBF
from calliper.kernels._distances import check_metric
from calliper.kernels._rbf import median_distance


def resolve_kernel(kernel: Any, Z_train: FloatArray | None) -> KNN | RBF:
    """The kernel with every parameter checked and every choice made from training inputs."""
    if kernel is None:
        kernel = KNN(10)
    if not isinstance(kernel, KNN | RBF):
        raise TypeError(f"kernel must be KNN(...) or RBF(...); got {kernel!r}.")
    check_metric(kernel.metric)
    if isinstance(kernel, KNN):
        if not isinstance(kernel.n_neighbors, Integral) or kernel.n_neighbors < 1:
            raise ValueError(f"n_neighbors must be an integer >= 1; got {kernel.n_neighbors!r}.")
        return KNN(int(kernel.n_neighbors), metric=kernel.metric)
    if isinstance(kernel.length_scale, str):
        if kernel.length_scale != "median":
            raise ValueError(f"length_scale is a number or 'median'; got {kernel.length_scale!r}.")
        if Z_train is None:
            raise CalliperError(
                "length_scale='median' needs training inputs: pass Z_train to fit (X_train to "
                "calibrate), or a number. A length scale taken from the calibration points "
                "would treat them unlike a new point and void the guarantee."
            )
        kernel = clone(kernel).set_params(length_scale=median_distance(Z_train, kernel.metric))
        if kernel.length_scale == 0:
            raise CalliperError("the median distance between training inputs is 0; pass a number.")
    scale = kernel.length_scale
    if not isinstance(scale, Real) or not 1e-150 < float(scale) < 1e150:
        raise ValueError(f"length_scale must be a positive, finite number; got {scale!r}.")
    return RBF(float(scale), metric=kernel.metric)
