"""LVD around a metric that was learnt before.

The metric depends on training rows alone, so that learning it again for every division of the
held-out rows would give the same ten times over; it is learnt once and kept on disk.
"""

from __future__ import annotations

import os
from typing import Any, Self

import joblib
import numpy as np
from sklearn.utils import check_random_state

from calliper import LVD
from calliper._types import FloatArray
from calliper._validation import check_calibration, check_features
from calliper.calibrators._lvd import MOST_POINTS
from calliper.kernels import LearntMetric, learn_metric
from experiments.deutschmann2024.config import LOCAL, SEED


def learnt_once(Z_train: FloatArray, y_train: FloatArray) -> LearntMetric:
    """The metric of LVD, from all training rows given (it takes 2,000 of them)."""
    path = LOCAL / "metrics" / f"{joblib.hash((Z_train, y_train, SEED))}.joblib"
    if not path.exists():
        metric = learn_metric(Z_train, y_train, random_state=SEED)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        joblib.dump(metric, unfinished)
        unfinished.replace(path)
    found: LearntMetric = joblib.load(path)
    return found


class GivenMetricLVD(LVD):
    """LVD whose metric is a parameter; everything else is its own."""

    def __init__(
        self, metric: LearntMetric | None = None, *, tuned: bool = False, random_state: Any = None
    ) -> None:
        super().__init__(tuned=tuned, random_state=random_state)
        self.metric = metric

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, y_train: Any = None) -> Self:
        """As in LVD, without the learning."""
        if self.metric is None:
            return super().fit(Z, scores, Z_train=Z_train, y_train=y_train)
        Z, scores = check_calibration(self, Z, scores)
        train, rng = check_features(Z_train, "Z_train"), check_random_state(self.random_state)
        self.metric_ = self.metric
        sample = rng.permutation(len(train))[: min(len(Z), MOST_POINTS)]
        self._sample = self.metric_.transform(train[sample])
        order = np.argsort(scores, kind="stable")
        self.scores_, self.points_ = scores[order], self.metric_.transform(Z[order])
        self.n_calibration_ = len(scores)
        self.factors_ = {}
        return self
