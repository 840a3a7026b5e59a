"""``ConformalRegressor`` with all its defaults, in the place of a calibrator.

It meets the model itself, and judges nearness in a space that it takes from it. ``evaluate`` hands
a calibrator rows and absolute errors; prediction plus error is a target with just that error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from calliper import ConformalRegressor
from studies.experiments import FloatArray


class Whole(BaseEstimator):  # type: ignore[misc]
    """Defaults but for the sign of errors, around a frozen model and the rows that trained it.

    Z are raw inputs.
    """

    def __init__(
        self, model: Any = None, X_train: Any = None, y_train: Any = None, random_state: Any = None
    ) -> None:
        self.model = model
        self.X_train = X_train
        self.y_train = y_train
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any) -> Self:
        """Calibrate on targets that lie as far above the prediction as the error is large."""
        self.regressor_ = ConformalRegressor(
            self.model,
            error_model=None,  # errors have no sign here: there is no bias to be seen
            random_state=self.random_state,
        )
        self.regressor_.calibrate(
            Z, self.model.predict(Z) + scores, X_train=self.X_train, y_train=self.y_train
        )
        self.n_calibration_ = len(scores)
        return self

    def predict_radius(self, Z: Any, coverage: float | Sequence[float] = 0.9) -> FloatArray:
        """Half of the interval's width."""
        return np.asarray(self.regressor_.predict_interval(Z, coverage).width / 2)

    def guaranteed_coverage(self, coverage: float | Sequence[float] = 0.9) -> Any:
        """What the calibrator inside proves."""
        return self.regressor_.calibrators_[0].guaranteed_coverage(coverage)
