"""Calibration on stored predictions: there is no model, only its prediction of each row.

Rows carry their predictions (:class:`StoredRows`), and the "model" is a function that returns them.
So a table of predictions goes through :class:`ConformalRegressor` like any other model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np

from calliper._kept import Inline, Keeps, Part, Plain
from calliper._row_checks import RowSketch
from calliper._types import Coverage, FloatArray, Frame
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.regressor import ConformalRegressor


class StoredRows(np.ndarray):
    """Features of rows, (n, d), with what a model predicted of them, (n,), as ``y_pred``."""

    y_pred: FloatArray

    def __new__(cls, X: FloatArray, y_pred: FloatArray) -> Self:
        """Both, which are not copied."""
        rows = np.asarray(X).view(cls)
        rows.y_pred = y_pred
        return rows

    def __getitem__(self, key: Any) -> Any:
        """Some rows with their predictions; single columns are plain arrays."""
        found = np.asarray(self)[key]
        first, *others = key if isinstance(key, tuple) else (key,)
        whole = found.ndim == 2 and all(other is Ellipsis for other in others)
        return StoredRows(found, self.y_pred[first]) if whole else found


def stored_predictions(rows: StoredRows) -> FloatArray:
    """The model: what is stored beside the rows."""
    return rows.y_pred


@dataclass(frozen=True, eq=False)
class CalibratedOnStored(Keeps):
    """A regressor around stored predictions."""

    regressor: Annotated[ConformalRegressor, Part("regressor")]
    #: What a file should say of the rows; what calibration rows are recognised by among new ones.
    about: Annotated[dict[str, Any] | None, Plain()] = field(default=None, repr=False)
    rows: Annotated[RowSketch | None, Inline(RowSketch, optional=True)] = None

    def check_kept(self) -> None:
        """Refuse another regressor, and columns that cannot be read."""
        inner = self.regressor
        stored = inner.estimator is stored_predictions and inner.__sklearn_is_fitted__()
        if not stored or inner.embedding_.n_outputs != 1:
            raise CalliperError("stored predictions must be one number per row.")
        about = {} if self.about is None else self.about
        _ = list(about.get("columns", {}).get("features") or ())  # which may fail by itself

    def intervals(
        self, X: FloatArray, y_pred: FloatArray, coverage: Coverage, **how: Any
    ) -> Intervals:
        """Intervals of new rows; ``how`` is what ``predict_interval`` takes.

        The columns of a frame must be the features of the calibration table, in its order.
        """
        known = None if self.about is None else self.about.get("columns", {}).get("features")
        if isinstance(X, Frame) and known and list(X.columns) != list(known):
            raise CalliperError(
                f"the columns of X must be {list(known)}, as at calibration; got "
                f"{list(X.columns)}. Pass X[{list(known)}]."
            )
        return self.regressor.predict_interval(StoredRows(X, y_pred), coverage, **how)
