"""From the kernel that a user names to one whose every parameter is checked and known."""

from __future__ import annotations

from copy import copy
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, RBF, ForestProximity, Mahalanobis, TunedKNN, TunedRBF
from calliper.kernels._distances import check_metric
from calliper.kernels._rbf import median_distance
from calliper.kernels._tuned import CRITERIA
from calliper.scale._grid import length_scale_grid
from calliper.scale._similarity import ONE_TREE

Kernel = KNN | RBF | ForestProximity | Mahalanobis | TunedKNN | TunedRBF


def resolve_kernel(
    kernel: Any, Z_train: FloatArray | None, rng: np.random.RandomState | None = None
) -> Kernel:
    """The kernel with its parameters checked and those that training inputs decide filled in."""
    if kernel is None:
        return KNN(10)
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be KNN(...), RBF(...), ForestProximity(...), Mahalanobis(...), "
            f"TunedKNN(...) or TunedRBF(...); got {kernel!r}."
        )
    if isinstance(kernel, ForestProximity):
        return _resolve_forest(kernel)
    if isinstance(kernel, Mahalanobis):
        inner = KNN(30) if kernel.kernel is None else kernel.kernel
        if not isinstance(inner, KNN | RBF):
            raise TypeError(f"Mahalanobis takes KNN(...) or RBF(...); got {inner!r}.")
        learnt: Mahalanobis = _with(kernel, kernel=inner)
        return learnt
    check_metric(kernel.metric)
    if isinstance(kernel, KNN):
        return KNN(_neighbors(kernel.n_neighbors), metric=kernel.metric)
    if isinstance(kernel, RBF):
        return _resolve_rbf(kernel, Z_train)
    if kernel.criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {[*CRITERIA]}; got {kernel.criterion!r}.")
    if not isinstance(kernel.mi_neighbors, Integral) or kernel.mi_neighbors < 1:
        raise ValueError(f"mi_neighbors must be an integer >= 1; got {kernel.mi_neighbors!r}.")
    if isinstance(kernel, TunedKNN):
        candidates = sorted({_neighbors(k) for k in np.ravel(kernel.n_neighbors).tolist()})
        tuned_knn: TunedKNN = _with(kernel, n_neighbors=tuple(_some(candidates, "n_neighbors")))
        return tuned_knn
    return _resolve_tuned_rbf(kernel, Z_train, rng)


def _neighbors(k: Any) -> int:
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"n_neighbors must be an integer >= 1; got {k!r}.")
    return int(k)


def _resolve_rbf(kernel: RBF, Z_train: FloatArray | None) -> RBF:
    scale = kernel.length_scale
    if isinstance(scale, str):
        if scale != "median":
            raise ValueError(f"length_scale is a number or 'median'; got {scale!r}.")
        if Z_train is None:
            raise CalliperError(
                "length_scale='median' needs training inputs: pass Z_train to fit (X_train to "
                "calibrate), or a number. A length scale taken from the calibration points "
                "would treat them unlike a new point and void the guarantee."
            )
        scale = median_distance(Z_train, kernel.metric)
        if scale == 0:
            raise CalliperError("the median distance between training inputs is 0; pass a number.")
    smoothing = kernel.smoothing
    if not isinstance(smoothing, Real) or not 0 <= float(smoothing) < np.inf:
        raise ValueError(f"smoothing must be a finite number >= 0; got {smoothing!r}.")
    return RBF(_length_scale(scale), smoothing=float(smoothing), metric=kernel.metric)


def _resolve_forest(kernel: ForestProximity) -> ForestProximity:
    """The forest itself, if it is one; its rows are seen only later."""
    forest = kernel.forest
    if forest is None:
        return kernel
    if not hasattr(forest, "apply"):
        raise TypeError(
            f"ForestProximity takes a fitted ensemble of trees that has apply, such as "
            f"RandomForestRegressor, ExtraTreesRegressor or GradientBoostingRegressor; got "
            f"{forest!r}."
        )
    check_is_fitted(forest)
    n_trees = np.size(forest.estimators_) if hasattr(forest, "estimators_") else 1
    if n_trees < 2:
        raise CalliperError(f"{forest!r} has 1 tree; {ONE_TREE}")
    return kernel


def _length_scale(scale: Any) -> float:
    if not isinstance(scale, Real) or not 1e-150 < float(scale) < 1e150:
        raise ValueError(f"length_scale must be a positive, finite number; got {scale!r}.")
    return float(scale)


def _resolve_tuned_rbf(
    kernel: TunedRBF, Z_train: FloatArray | None, rng: np.random.RandomState | None
) -> TunedRBF:
    if kernel.chosen is not None:
        chosen = [_length_scale(scale) for scale in np.ravel(kernel.chosen).tolist()]
        if kernel.n_folds is not None:
            raise ValueError("chosen scales belong to points, not to folds: leave n_folds out.")
        given: TunedRBF = _with(kernel, chosen=np.array(chosen))
        return given
    for name, least in (("n_scan", 1), ("n_sample", 1)):
        value = getattr(kernel, name)
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} must be an integer >= {least}; got {value!r}.")
    if not isinstance(kernel.expand, Real) or not 1 <= float(kernel.expand) < np.inf:
        raise ValueError(f"expand must be a finite number >= 1; got {kernel.expand!r}.")
    if kernel.grid not in ("auto", "guarded", "paper"):
        raise ValueError(f"grid must be 'auto', 'guarded' or 'paper'; got {kernel.grid!r}.")
    if kernel.n_folds is not None and (
        not isinstance(kernel.n_folds, Integral) or kernel.n_folds < 2
    ):
        raise ValueError(f"n_folds must be an integer >= 2 or None; got {kernel.n_folds!r}.")
    if kernel.length_scales is not None:
        given_scales = np.ravel(kernel.length_scales).tolist()
        unique = sorted({_length_scale(scale) for scale in given_scales})
        grid = np.array(_some(unique, "length_scales"))
    elif Z_train is None:
        raise CalliperError(
            "TunedRBF spans its grid by distances of training inputs: pass Z_train to fit "
            "(X_train to calibrate), or the grid itself as length_scales=."
        )
    else:
        grid = length_scale_grid(kernel, Z_train, rng or np.random.RandomState(0))
    tuned: TunedRBF = _with(kernel, length_scales=grid)
    return tuned


def _some(values: list[Any], name: str) -> list[Any]:
    if not values:
        raise ValueError(f"{name} must hold at least one value to choose from.")
    return values


def _with(kernel: Any, /, **parameters: Any) -> Any:
    """A copy with some parameters replaced; the rest, a progress callback too, is shared."""
    return copy(kernel).set_params(**parameters)
