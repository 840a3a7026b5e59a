"""Models that each left out one fold; a fold of one row makes the Jackknife+."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from calliper._models import check_new_rows, predictions
from calliper._types import FloatArray, IntArray
from calliper.refitting._left_out_models import RefittedRegressor


class FoldRegressor(RefittedRegressor):
    """One model without each fold, and one on all rows for point predictions."""

    def _fit_folds(self, X: Any, y: FloatArray, fold: IntArray) -> None:
        """Leave out each fold in turn; ``fold[i]`` is the fold of row i, from 0."""
        others = [np.flatnonzero(fold == k) for k in range(fold.max() + 1)]
        rows = [np.flatnonzero(fold != k) for k in range(fold.max() + 1)]
        self.models_, predicted = self._refit(X, y, rows, others)
        left_out = np.empty(len(y))
        for other, values in zip(others, predicted, strict=True):
            left_out[other] = values
        self.fold_, self.residuals_ = fold, np.abs(y - left_out)
        self.estimator_ = clone(self.estimator).fit(X, y)

    def predict(self, X: Any) -> FloatArray:
        """What the model trained on all rows predicts, (m,)."""
        check_is_fitted(self)
        check_new_rows(self, X)
        return predictions(self.estimator_, X)

    def _left_out(self, per_model: FloatArray) -> FloatArray:
        return per_model[:, self.fold_]
