"""Put tuning together: the candidates that fit N, what is measured, and what if N is too small."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.information._estimate import principal_components
from calliper.kernels import KNN, RBF, Mahalanobis, TunedKNN, TunedRBF
from calliper.kernels._search import NeighborSearch
from calliper.scale._criterion import RescaledInformation
from calliper.scale._folds import LeaveFoldOutRBF
from calliper.scale._learnt import LearntKernel, learn_kernel
from calliper.scale._resolve import resolve_kernel
from calliper.scale._tuned import Family, LeaveTwoOutTuned, Tuning, best_for_all
from calliper.scale._tuned_knn import NearestFamily
from calliper.scale._tuned_rbf import RadialFamily

#: Below this many points, leaving two out leaves nothing to tell kernels apart.
LEAST_POINTS = 4

#: Training rows that a kernel for the full method is tuned on; more add cost and no precision.
MOST_TRAINING_ROWS = 2000


def tuned_leave_two_out(
    kernel: TunedKNN | TunedRBF,
    Z: FloatArray,
    magnitudes: FloatArray,
    *,
    offset: float,
    rng: np.random.RandomState,
    Z_train: FloatArray | None,
) -> LeaveTwoOutTuned | LeaveFoldOutRBF:
    """Scales of the Jackknife+ with a kernel for each point left out."""
    n = len(Z)
    priorities = rng.uniform(size=n)
    family = _family(kernel, Z, magnitudes, priorities)
    if isinstance(kernel, TunedRBF) and kernel.chosen is not None:
        chosen = np.asarray(kernel.chosen)
        if len(chosen) != n:
            raise CalliperError(f"chosen has {len(chosen)} length scales for {n} points.")
        return LeaveTwoOutTuned(family, magnitudes, offset=offset, chosen=chosen)
    candidates = _candidates(kernel, n)
    if n < LEAST_POINTS + (kernel.mi_neighbors if kernel.criterion == "mi" else 0):
        _warn_too_few(kernel, n, candidates[-1])
        flat = np.full(n, candidates[-1])
        return LeaveTwoOutTuned(family, magnitudes, offset=offset, chosen=flat)
    tuning = _tuning(kernel, candidates, Z, Z_train, rng)
    n_folds = getattr(kernel, "n_folds", None)
    if n_folds is not None and n_folds < n:
        fold = rng.permutation(np.arange(n) % n_folds)
        return LeaveFoldOutRBF(
            Z, magnitudes, fold, metric=kernel.metric, offset=offset, tuning=tuning
        )
    return LeaveTwoOutTuned(family, magnitudes, offset=offset, tuning=tuning)


def fixed_kernel(
    kernel: Any,
    Z_train: FloatArray | None,
    scores_train: FloatArray | None,
    rng: np.random.RandomState,
) -> Any:
    """A kernel that depends on training data alone: a tuned one is tuned on training errors."""
    if isinstance(kernel, Mahalanobis):
        return _learnt(kernel, Z_train, scores_train, rng)
    if not isinstance(kernel, TunedKNN | TunedRBF):
        return kernel
    if Z_train is None or scores_train is None:
        raise CalliperError(
            f"{type(kernel).__name__} cannot be tuned on calibration scores here: the kernel would "
            f"depend on the new score and the closed form would be lost. Pass Z_train and "
            f"scores_train to tune it on training errors (ConformalRegressor.fit does), use a "
            f"fixed kernel such as RBF(length_scale) or KNN(10), or tune on calibration scores "
            f"with JackknifeRescaled, which keeps 1 - 2 alpha."
        )
    if len(Z_train) > MOST_TRAINING_ROWS:
        rows = rng.choice(len(Z_train), MOST_TRAINING_ROWS, replace=False)
        Z_train, scores_train = Z_train[rows], scores_train[rows]
    if len(Z_train) < LEAST_POINTS + kernel.mi_neighbors:
        raise CalliperError(
            f"{len(Z_train)} training rows are too few to tune {type(kernel).__name__} on; pass a "
            f"fixed kernel such as KNN(10)."
        )
    candidates = _candidates(kernel, len(Z_train))
    family = _family(kernel, Z_train, scores_train, rng.uniform(size=len(Z_train)))
    tuning = _tuning(kernel, candidates, Z_train, Z_train, rng)
    best, _ = best_for_all(family, scores_train, tuning, 0.0)
    if isinstance(kernel, TunedKNN):
        return KNN(int(best), metric=kernel.metric)
    return RBF(best, metric=kernel.metric)


def _learnt(
    kernel: Mahalanobis,
    Z_train: FloatArray | None,
    scores_train: FloatArray | None,
    rng: np.random.RandomState,
) -> LearntKernel:
    if Z_train is None or scores_train is None:
        raise CalliperError(
            "Mahalanobis learns its metric on training errors: pass Z_train and scores_train to "
            "fit, or better Z_left_out and scores_left_out (ConformalRegressor.fit does)."
        )
    metric = learn_kernel(kernel, Z_train, scores_train, rng)
    inner = resolve_kernel(kernel.kernel, metric.transform(Z_train))
    assert isinstance(inner, KNN | RBF)
    return LearntKernel(inner, metric)


def _family(
    kernel: TunedKNN | TunedRBF, Z: FloatArray, magnitudes: FloatArray, priorities: FloatArray
) -> Family:
    if isinstance(kernel, TunedKNN):
        return NearestFamily(NeighborSearch(Z, priorities, kernel.metric), magnitudes)
    return RadialFamily(Z, magnitudes, kernel.metric)


def _candidates(kernel: TunedKNN | TunedRBF, n: int) -> FloatArray:
    """Ascending; a K must leave one point to take the place of the one left out."""
    if isinstance(kernel, TunedRBF):
        return np.asarray(kernel.length_scales, dtype=float)
    fitting = [k for k in kernel.n_neighbors if k <= n - 2]
    return np.array(fitting or [max(1, n - 2)], dtype=float)


def _tuning(
    kernel: TunedKNN | TunedRBF,
    candidates: FloatArray,
    Z: FloatArray,
    Z_train: FloatArray | None,
    rng: np.random.RandomState,
) -> Tuning:
    information = None
    if kernel.criterion == "mi":
        if kernel.n_components is not None and Z_train is None:
            raise CalliperError(
                "n_components needs training inputs to find the components of: pass Z_train to "
                "fit (X_train to calibrate). Components of the calibration points would give each "
                "point a say in its own kernel."
            )
        components = principal_components(Z, kernel.n_components, Z_train)
        information = RescaledInformation(components, kernel.mi_neighbors, rng)
    return Tuning(candidates, kernel.criterion, information, kernel.progress or _ignore)


def _ignore(fraction: float) -> None:
    """Report progress to nobody."""


def _warn_too_few(kernel: Any, n: int, used: float) -> None:
    warnings.warn(
        f"{n} calibration points are too few to tune {type(kernel).__name__} on; its smoothest "
        f"candidate, {used:g}, is used for all of them.",
        SmallCalibrationWarning,
        stacklevel=5,
    )
