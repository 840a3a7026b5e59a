"""Meeting a model: the rows it is given, and what it answers.

Rows may be arrays, frames or lists of anything that the model takes; only y and predictions are
turned into numbers here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_consistent_length, validate_data

from calliper._networks import is_module, outputs
from calliper._types import FloatArray
from calliper._validation import check_vector, n_rows, refuse_sparse
from calliper.exceptions import CalliperError


def check_known_rows(estimator: Any, X: Any, y: Any) -> FloatArray:
    """Remember the columns of X on ``estimator``; return y as numbers."""
    refuse_sparse(X, "X")
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    validate_data(estimator, X, skip_check_array=True)
    check_consistent_length(X, y)
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is flattened.",
            DataConversionWarning,
            stacklevel=3,
        )
    return check_vector(y, "y")


def check_new_rows(estimator: Any, X: Any) -> None:
    """New rows have the columns that ``estimator`` remembers."""
    refuse_sparse(X, "X")
    if getattr(X, "ndim", 2) == 1 and hasattr(estimator, "n_features_in_"):
        raise CalliperError(
            f"X must have rows and columns; got shape {X.shape}. Reshape your data: "
            f"X.reshape(-1, 1) for one input, X.reshape(1, -1) for one row."
        )
    validate_data(estimator, X, skip_check_array=True, reset=False)


def predictions(model: Any, X: Any, n_outputs: int = 1) -> FloatArray:
    """What a regressor, function or network predicts: (n,), or (n, n_outputs) for several."""
    predict: Callable[[Any], Any] | None = getattr(model, "predict", None)
    if predict is None and callable(model):
        predict = model
    if predict is None:
        raise TypeError(
            f"estimator must have a predict method or be a function of the inputs; got {model!r}."
        )
    y_pred = outputs(model, X) if is_module(model) else predict(X)
    if hasattr(y_pred, "detach"):
        y_pred = y_pred.detach().cpu().numpy()
    return check_predictions(y_pred, n_rows(X), n_outputs)


def check_predictions(y_pred: Any, n: int, n_outputs: int = 1) -> FloatArray:
    """Finite predictions of n rows: (n,), or (n, n_outputs) for more than one."""
    if n_outputs == 1:
        return check_vector(y_pred, "predictions", n=n)
    return _check_columns(np.asarray(y_pred), n, n_outputs)


def _check_columns(y_pred: Any, n: int, n_outputs: int) -> FloatArray:
    """Finite predictions of several columns, each checked as one column is."""
    if y_pred.ndim != 2 or y_pred.shape[1] != n_outputs:
        raise CalliperError(
            f"the score function takes {n_outputs} predictions for each row, shape "
            f"(n, {n_outputs}); the model gave shape {y_pred.shape}."
        )
    columns = [
        check_vector(column, f"column {place} of predictions", n=n)
        for place, column in enumerate(y_pred.T)
    ]
    return np.stack(columns, axis=1)
