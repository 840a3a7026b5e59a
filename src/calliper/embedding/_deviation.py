"""Models that state a standard deviation with the mean: Gaussian processes, Bayesian regression."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.embedding._known import predicts_as
from calliper.embedding._spread import Source


def states_deviation(core: Any) -> bool:
    """Whether ``predict`` can be asked for the standard deviation."""
    try:
        return "return_std" in signature(core.predict).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def is_known(core: Any) -> bool:
    """Whether the mean that it states with a deviation is what it predicts without."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.linear_model import ARDRegression, BayesianRidge

    return predicts_as(core, GaussianProcessRegressor, BayesianRidge, ARDRegression)


def mean_and_deviation(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """What the model states: (m,) and (1, m)."""
    mean, deviation = core.predict(X, return_std=True)
    return np.asarray(mean, np.float64).reshape(-1), np.asarray(deviation, np.float64).reshape(
        1, -1
    )


def target_deviation(core: Any) -> float | None:
    """Standard deviation of the training targets, where the model has kept them."""
    if not hasattr(core, "y_train_"):
        return None
    return float(np.std(core.y_train_) * np.mean(getattr(core, "_y_train_std", 1.0)))


def _describe(core: Any) -> str:
    return f"standard deviation by {type(core).__name__}"


DEVIATION = Source(states_deviation, is_known, mean_and_deviation, target_deviation, _describe)
