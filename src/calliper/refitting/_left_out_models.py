"""What methods that refit have in common: many models, one residual a row, blocks of new rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from calliper._blocks import map_row_blocks, row_slices
from calliper._models import check_known_rows, check_new_rows, predictions
from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import (
    check_levels,
    each_level,
    like_coverage,
    n_rows,
    warn_if_too_few,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.refitting._ends import minmax_ends, plus_ends

#: Predictions held at a time, models times new rows: 128 MB.
CHUNK_FLOATS = 1 << 24


class RefittedRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Intervals from models that each left out some rows; subclasses say which."""

    estimator: Any
    n_jobs: int | None
    minmax = False

    models_: tuple[Any, ...]
    residuals_: FloatArray

    @abstractmethod
    def fit(self, X: Any, y: Any) -> Self:
        """Train the models and measure each row by those that left it out."""

    @abstractmethod
    def predict(self, X: Any) -> FloatArray:
        """One prediction a row, (m,)."""

    @abstractmethod
    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""

    @abstractmethod
    def _left_out(self, per_model: FloatArray) -> FloatArray:
        """μ₋ᵢ(x), (m, n), from the predictions of all models, (m, n_models)."""

    @abstractmethod
    def _proved(self, coverage: float, n: int) -> float:
        """The proved marginal coverage at one level."""

    def predict_interval(self, X: Any, coverage: Coverage = 0.9) -> Intervals:
        """Intervals at one level, or at each of several.

        Parameters
        ----------
        X : rows to predict
        coverage : float or increasing list of floats, default 0.9
            With a list of L levels the ends have shape (m, L).
        """
        check_is_fitted(self)
        check_new_rows(self, X)
        levels = check_levels(coverage)
        warn_if_too_few(len(self.residuals_), levels)
        slices = row_slices(n_rows(X), max(1, CHUNK_FLOATS // len(self.models_)))
        chunks = (
            [X] if len(slices) == 1 else [_safe_indexing(indexable(X)[0], rows) for rows in slices]
        )
        ends = [end for chunk in chunks for end in self._ends(chunk, levels)]
        lower, upper = (np.concatenate(parts) for parts in zip(*ends, strict=True))
        return Intervals(
            like_coverage(lower, coverage),
            like_coverage(upper, coverage),
            levels[0] if np.ndim(coverage) == 0 else levels,
            getattr(X, "index", None) if hasattr(X, "columns") else None,
        )

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several."""
        check_is_fitted(self)
        return each_level(self._proved, coverage, len(self.residuals_))

    def _ends(self, X: Any, levels: tuple[float, ...]) -> list[tuple[FloatArray, FloatArray]]:
        """Ends for one chunk of rows, in blocks: (rows, n) never exists for all of them."""
        per_model, residuals = self._per_model(X), self.residuals_
        ends = minmax_ends if self.minmax else plus_ends

        def block(rows: slice) -> tuple[FloatArray, FloatArray]:
            return ends(self._left_out(per_model[rows]), residuals, levels)

        return map_row_blocks(block, len(per_model), len(residuals))

    def _per_model(self, X: Any) -> FloatArray:
        """Predictions of each model, (m, n_models)."""
        workers = Parallel(n_jobs=self.n_jobs, prefer="threads")
        columns = workers(delayed(predictions)(model, X) for model in self.models_)
        return np.asarray(np.stack(columns, axis=1))

    def _check(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        """Rows that can be chosen from, and y as numbers."""
        y = check_known_rows(self, X, y)
        if len(y) < 2:
            raise CalliperError(
                f"{type(self).__name__} needs at least 2 rows, one to leave out and one to train; "
                f"got n_samples = {len(y)}."
            )
        return indexable(X)[0], y

    def _refit(
        self, X: Any, y: FloatArray, rows: list[IntArray], others: list[IntArray]
    ) -> tuple[tuple[Any, ...], list[FloatArray]]:
        """A model for each set of rows, and its predictions of the others."""
        workers = Parallel(n_jobs=self.n_jobs)
        jobs = (
            delayed(_fit_and_predict)(clone(self.estimator), X, y, train, other)
            for train, other in zip(rows, others, strict=True)
        )
        models, predicted = zip(*workers(jobs), strict=True)
        return models, list(predicted)


def _fit_and_predict(
    estimator: Any, X: Any, y: FloatArray, train: IntArray, others: IntArray
) -> tuple[Any, FloatArray]:
    model = estimator.fit(_safe_indexing(X, train), y[train])
    if not len(others):
        return model, np.empty(0)
    return model, predictions(model, _safe_indexing(X, others))
