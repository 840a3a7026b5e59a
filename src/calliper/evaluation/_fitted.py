"""One method on one calibration set: what ``ConformalRegressor`` does, on stored predictions.

Without a model, without an embedding and with data that were checked once, so that the many cells
of an evaluation do not pay for them again; a test holds the two to the same intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import clone

from calliper._types import FloatArray, IntArray
from calliper.evaluation._problem import Method, Problem
from calliper.intervals import Intervals
from calliper.quantile import as_fraction


@dataclass(frozen=True, eq=False)
class Fitted:
    """Calibrators, one for each tail of the score, with the predictions that they belong to."""

    problem: Problem
    score: Any
    outputs: FloatArray
    calibrators: tuple[Any, ...]

    def intervals(self, rows: IntArray, levels: tuple[float, ...]) -> Intervals:
        """Intervals of held-out rows, (m, L)."""
        Z, y_pred = self.problem.Z[rows], self.outputs[rows][:, None]
        per_tail = [self._of_tail(level) for level in levels]
        radius = np.stack([c.predict_radius(Z, per_tail) for c in self.calibrators], axis=-1)
        lower, upper = self.score.invert(y_pred, radius if radius.shape[-1] > 1 else radius[..., 0])
        return Intervals(lower, upper, levels)

    def centre(self, rows: IntArray) -> FloatArray:
        """The one number between several predictions of a row, or the prediction."""
        y_pred = self.outputs[rows]
        return y_pred if y_pred.ndim == 1 else np.asarray(self.score.centre(y_pred))

    def guaranteed(self, level: float) -> float | None:
        """The proved coverage, by the union bound for two tails; None if a method says nothing."""
        if not all(hasattr(c, "guaranteed_coverage") for c in self.calibrators):
            return None
        of_tail = self._of_tail(level)
        return float(1 - sum(1 - c.guaranteed_coverage(of_tail) for c in self.calibrators))

    def largest_score(self, rows: IntArray) -> float:
        """The largest score of these rows."""
        return float(np.max(self.score.magnitude(self.problem.y[rows], self.outputs[rows])))

    def _of_tail(self, level: float) -> float:
        return float(1 - (1 - as_fraction(level)) / len(self.calibrators))


def fit(problem: Problem, method: Method, rows: IntArray, seed: int) -> Fitted:
    """Calibrate a copy of the method on held-out rows; seeds that it lacks are set."""
    score: Any = problem.score_function if method.score_function is None else method.score_function
    outputs, trained = problem.y_pred, problem.y_pred_train
    if method.outputs is not None:
        outputs = problem.outputs[method.outputs]
        trained = problem.outputs_train.get(method.outputs)
    y, y_pred = problem.y[rows], outputs[rows]
    extras = {
        "magnitudes": score.magnitude(y, y_pred),
        "Z_train": problem.Z_train,
        "y_train": problem.y_train,
    }
    if problem.y_train is not None and trained is not None:
        extras["scores_train"] = score.magnitude(problem.y_train, trained)
    taken = _fit_parameters(method.calibrator.__class__)
    wanted = {k: v for k, v in extras.items() if k in taken and v is not None}
    tails = score.measure(y, y_pred).reshape(len(y), -1).T
    seeds = _missing_seeds(method.calibrator, seed)
    calibrators = [clone(method.calibrator).set_params(**seeds) for _ in tails]
    Z = problem.Z[rows]
    for calibrator, tail in zip(calibrators, tails, strict=True):
        calibrator.fit(Z, tail, **wanted)
    return Fitted(problem, score, outputs, tuple(calibrators))


@cache
def _fit_parameters(kind: Any) -> frozenset[str]:
    return frozenset(signature(kind.fit).parameters)


def _missing_seeds(calibrator: Any, seed: int) -> dict[str, int]:
    """Every ``random_state`` that is None, nested ones too."""
    given = calibrator.get_params().items()
    return {k: seed for k, v in given if v is None and k.rpartition("__")[2] == "random_state"}
