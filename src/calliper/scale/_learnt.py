"""Scales in a space that was learnt on training errors: any closed form, on mapped rows."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, RBF, Mahalanobis
from calliper.metric_learning import LearnedMetric, learn_metric
from calliper.scale._shrunk import Bag

#: Training rows that the metric is learnt on; more add cost and little precision.
MOST_ROWS = 1000

#: Errors below this part of their mean are all alike: logarithms near zero would tell rounding.
FLOOR = 0.1


@dataclass(frozen=True)
class LearntKernel:
    """A kernel in a learnt space."""

    kernel: KNN | RBF
    metric: LearnedMetric

    def __repr__(self) -> str:
        return f"{self.kernel!r} in {len(self.metric.matrix)} learnt directions"


def learn_kernel(
    kernel: Mahalanobis, Z: FloatArray, errors: FloatArray, rng: np.random.RandomState
) -> LearnedMetric:
    """The metric in which the logarithms of errors are predicted best by those near by."""
    if len(Z) > MOST_ROWS:
        rows = rng.choice(len(Z), MOST_ROWS, replace=False)
        Z, errors = Z[rows], errors[rows]
    if not errors.any():
        raise CalliperError(
            f"all of {len(errors)} training errors are 0, so no metric can be learnt on them: pass "
            f"left-out errors, or use KNN(...)."
        )
    labels = np.log(errors + FLOOR * errors.mean())
    with warnings.catch_warnings():
        # Learning is stopped early on purpose.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learn_metric(
            Z,
            labels,
            n_directions=kernel.n_directions,
            max_iter=kernel.max_iter,
            random_state=rng,
        )


class LearntBag:
    """Thresholds of the full method in the learnt space."""

    def __init__(self, bag: Bag, metric: LearnedMetric) -> None:
        self.bag, self.metric, self.offset = bag, metric, bag.offset

    def with_offset(self, offset: float) -> LearntBag:
        """The same bag with another constant added to every scale."""
        other = copy(self)
        other.bag, other.offset = self.bag.with_offset(offset), offset
        return other

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, (N,)."""
        return self.bag.calibration_scale(level)

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        return self.bag.order_statistics(self.metric.transform(Z), levels)

    def rising_order_statistic(self, Z: FloatArray, level: float, slope: float) -> FloatArray:
        """The Q-th smallest threshold, (m,), if slope·t is added to all scales."""
        return self.bag.rising_order_statistic(self.metric.transform(Z), level, slope)
