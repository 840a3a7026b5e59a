"""Asking a model: the rows that it is given, and what it answers.

Rows may be arrays, frames or lists of anything that the model takes; only y and predictions are
turned into numbers here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from math import prod
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import check_consistent_length, validate_data

from calliper._handlers import refuse_collection
from calliper._probe_rows import state_of
from calliper._types import FloatArray
from calliper._validation import check_vector, has_known_columns, n_rows, refuse_sparse
from calliper.exceptions import CalliperError, warn
from calliper.models._networks import is_module, is_tensor, outputs
from calliper.models._wrapped import learnt

Method = TypeVar("Method", bound=Callable[..., Any])

#: Rows by which a model is known again.
N_PROBES = 5

#: Rows that are compared before and after a model was asked, and the most numbers in them.
N_COMPARED, MOST_COMPARED = 32, 1 << 14


def unchanged_if_refused(method: Method) -> Method:
    """Of an estimator: what it is told either holds, or leaves it as it was."""

    @wraps(method)
    def call(self: Any, *given: Any, **known: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *given, **known)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return call  # type: ignore[return-value]


def check_known_rows(estimator: Any, X: Any, y: Any) -> FloatArray:
    """Remember the columns of X on ``estimator``; return y as numbers."""
    _refuse_rowless(X)
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    validate_data(estimator, X, skip_check_array=True)
    check_consistent_length(X, y)
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise CalliperError(f"y must be numbers, one for each row: {error}.") from error
    if y.ndim == 2 and y.shape[1] == 1:
        warn(
            "A column-vector y was passed when a 1d array was expected; it is flattened.",
            DataConversionWarning,
        )
    if y.ndim == 2 and y.shape[1] > 1:
        raise CalliperError(
            f"y must have one value for each row, shape (n,); got shape {y.shape}. Several targets "
            f"take MultiTargetRegressor(estimator), which answers with a box for each row."
        )
    return check_vector(y, "y")


def check_new_rows(estimator: Any, X: Any) -> None:
    """New rows have the columns that ``estimator`` remembers."""
    refuse_collection(X, "X")
    if has_known_columns(estimator, X):
        return
    _refuse_rowless(X)
    if len(shape_of(X)) == 1 and learnt(estimator, "n_features_in_") is not None:
        raise CalliperError(
            f"X must have rows and columns; got shape {X.shape}. Reshape your data: "
            f"X.reshape(-1, 1) for one input, X.reshape(1, -1) for one row."
        )
    validate_data(estimator, X, skip_check_array=True, reset=False)


def _refuse_rowless(X: Any) -> None:
    refuse_sparse(X, "X")
    refuse_collection(X, "X")
    if X is None or np.ma.is_masked(X):
        what = "None" if X is None else "an array with masked values: fill them, or drop their rows"
        raise CalliperError(f"X must have rows; got {what}.")
    if isinstance(X, Mapping):
        raise TypeError(
            f"X must have rows that can be counted and picked; got a {type(X).__name__} with keys "
            f"{', '.join(map(repr, list(X)[:5]))}. Pass an array, a frame or a list of rows, and a "
            f"function that makes of them what the model takes."
        )


def predictions(model: Any, X: Any, n_outputs: int = 1) -> FloatArray:
    """What a regressor, function or network predicts: (n,), or (n, n_outputs) for several."""
    predict = getattr(model, "predict", model if callable(model) else None)
    if predict is None:
        raise TypeError(
            f"estimator must have a predict method or be a function of the inputs; got {model!r}."
        )
    rows = xgboost_matrix(model, X) if is_native_xgboost(model) else X
    with _left_as_they_are(X):
        y_pred: Any = outputs(model, rows) if is_module(model) else predict(rows)
    if is_tensor(y_pred):
        y_pred = y_pred.detach().cpu().numpy()
    return check_predictions(y_pred, n_rows(X), n_outputs)


@contextmanager
def _left_as_they_are(X: Any) -> Iterator[None]:
    """Refuse a model that writes into its caller's rows, some of which are compared afterwards.

    The space would be judged by other rows than the prediction, and the caller's data be lost.
    """
    before = _some_rows(X)
    yield
    if before is None or before == _some_rows(X):
        return
    raise CalliperError(
        "the model changes the rows that it is given, which are now no longer what they were: let "
        "it work on a copy, as in ConformalRegressor(lambda X: model.predict(X.copy()))."
    )


def _some_rows(X: Any) -> Any:
    """Some rows of an array or a frame as bytes; None of other kinds, which are not compared.

    Nor is a frame of one row, which is asked for in a hurry; calibration had more.
    """
    shape = shape_of(X) or (0,)
    step = max(1, shape[0] // max(1, min(N_COMPARED, MOST_COMPARED // max(1, prod(shape[1:])))))
    if isinstance(X, np.ndarray):
        return X[::step].tobytes() if X.dtype.kind in "biuf" else None
    if not is_frame(X) or shape[0] < 2:
        return None
    rows = X.iloc[::step]
    return [(name, rows[name].to_numpy().tolist().__repr__()) for name in rows.columns]


def check_predictions(y_pred: Any, n: int, n_outputs: int = 1) -> FloatArray:
    """Finite predictions of n rows: (n,), or (n, n_outputs) for more than one."""
    if n_outputs == 1:
        _refuse_several(shape_of(y_pred))
        return check_vector(y_pred, "predictions", n=n)
    return _check_columns(np.asarray(y_pred), n, n_outputs)


def _refuse_several(shape: tuple[int, ...]) -> None:
    """Say what a model of quantiles, or of several targets, needs."""
    if len(shape) == 2 and shape[1] > 1:
        raise CalliperError(
            f"predictions must have one value for each row, shape (n,); got shape {shape}. A model "
            f"of quantiles needs score_function=QuantileError() and Split() as calibrator; of "
            f"several targets, MultiTargetRegressor."
        )


def _check_columns(y_pred: Any, n: int, n_outputs: int) -> FloatArray:
    """Finite predictions of several columns, each checked as one column is."""
    if y_pred.ndim != 2 or y_pred.shape[1] != n_outputs:
        raise CalliperError(
            f"the score function takes {n_outputs} predictions for each row, one for each target "
            f"or quantile, shape (n, {n_outputs}); the model gave shape {y_pred.shape}."
        )
    columns = [
        check_vector(column, f"column {place} of predictions", n=n)
        for place, column in enumerate(y_pred.T)
    ]
    return np.stack(columns, axis=1)


def first_rows(X: Any) -> dict[str, Any] | None:
    """A few rows as plain values, by which a model can be known again; None of unknown kinds."""
    return state_of(_safe_indexing(indexable(X)[0], np.arange(min(N_PROBES, n_rows(X)))))


def is_native_xgboost(model: Any) -> bool:
    """Whether it is an ``xgboost.Booster``; who has one has imported xgboost."""
    xgboost = sys.modules.get("xgboost")
    return xgboost is not None and isinstance(model, xgboost.Booster)


def xgboost_matrix(model: Any, X: Any) -> Any:
    """Rows as XGBoost has them, by the settings of a model of its kind that has any."""
    how = {"enable_categorical": True}
    if not is_native_xgboost(model):
        how = {"missing": model.missing, "nthread": model.n_jobs}
        how["enable_categorical"] = model.enable_categorical
    return sys.modules["xgboost"].DMatrix(X, feature_types=model.feature_types, **how)


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of an array, a frame or a tensor; () of anything else."""
    return getattr(values, "shape", ())


def is_frame(X: Any) -> bool:
    """Whether it is a frame of pandas, or of a library like it."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def without_names(X: Any, kinds: str) -> Any:
    """A frame of pandas as an array (n, d), if its columns are all of such kinds of NumPy's."""
    if not is_frame(X):
        return X
    types = X.dtypes.to_numpy()
    plain = len(types) and all(isinstance(each, np.dtype) and each.kind in kinds for each in types)
    return X.to_numpy(dtype=np.float64) if plain else X
