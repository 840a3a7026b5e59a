"""``embed="auto"``: look at the fitted model, choose the space.

| model | space |
|---|---|
| forest, extra trees, bagging, vote: the prediction is the mean of members | prediction, spread |
| gradient boosting | prediction, how much the last stages move it |
| network (a PyTorch module) | its penultimate layer |
| states a standard deviation (``return_std``) | prediction, deviation |
| any other, with training rows | standardised inputs and prediction |
| linear, without training rows | what each input adds, and prediction |
| any other without training rows, or inputs that are text or sparse | prediction |
| any but the first four, with one input | that input |

Everything is a function of the fitted model and of training rows. That the numbers really are the
model's predictions is known of scikit-learn's own classes; any other class that looks like one of
them is tried on training rows, and has no spread without. Calibration rows show one thing, their
layout: how many columns, and whether of numbers. No value in them is looked at.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, indexable

from calliper._networks import is_module
from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.embedding._boosting import STAGES, TREE_STAGES
from calliper.embedding._deviation import DEVIATION
from calliper.embedding._ensemble import MEMBERS
from calliper.embedding._features import Filled
from calliper.embedding._layer import Layer, Network
from calliper.embedding._opened import Opened, open_model
from calliper.embedding._spaces import (
    Contributions,
    InputsAndPrediction,
    OneInput,
    Predict,
    Prediction,
    Space,
    coefficients,
    prepared_and_predicted,
)
from calliper.embedding._spread import Source, spread_space
from calliper.embedding._warning import EmbeddingWarning

#: Asked in this order.
SOURCES = (MEMBERS, TREE_STAGES, STAGES, DEVIATION)
#: Training rows on which the predictions of a class that is not known are compared, at most.
N_CHECKED = 1000


def choose_space(
    model: Any,
    X_train: Any,
    X_calibration: Any,
    *,
    predict: Predict,
    n_outputs: int,
    y_train: FloatArray | None = None,
) -> Space:
    """The first space of the table that fits the model."""
    opened = open_model(model)
    if is_module(opened.core):
        return Network(Layer(opened.core))
    if n_outputs == 1:
        for source in SOURCES:
            if source.suits(opened.core):
                wrong = _wrong_predictions(opened, source, X_train, predict)
                if wrong is not None:
                    _warn_of_lie(opened.core, source.describe(opened.core), wrong)
                    continue
                space = spread_space(opened, source, X_train, y_train)
                if space.unit is None and hasattr(opened.core, "coef_"):
                    break  # a linear model has places in a unit to offer
                return space
    return _inputs_space(opened, X_train, X_calibration, n_outputs)


def _inputs_space(opened: Opened, X_train: Any, X_calibration: Any, n_outputs: int) -> Space:
    if X_train is None:
        return _untrained_space(opened, X_calibration, n_outputs)
    try:
        rows = opened.prepare(X_train)
        filled = Filled.learn(rows)
        features = filled(rows)
    except (TypeError, ValueError):  # text, sparse rows, or nothing that has columns
        return Prediction()
    d, inputs = features.shape[1], StandardScaler().fit(features)
    if d == 1:  # predictions are a function of the one input, and add nothing
        return OneInput(opened, filled, inputs)
    _, y_pred = prepared_and_predicted(opened, X_train, n_outputs)
    outputs = StandardScaler().fit(y_pred.reshape(len(y_pred), -1))
    name = f"{d} standardised inputs and prediction"
    return InputsAndPrediction(opened, n_outputs, filled, inputs, outputs, name)


def _untrained_space(opened: Opened, X: Any, n_outputs: int) -> Space:
    d = _n_numbers(opened, X)
    if d == 1:
        return OneInput(opened, Filled(np.zeros(1)), None)
    if n_outputs == 1 and hasattr(opened.core, "coef_"):
        weights = coefficients(opened.core)
        if len(weights) == d and weights.any():
            used = np.count_nonzero(weights)
            return Contributions(opened, f"what {used} inputs add each, and prediction")
    return Prediction()


def _n_numbers(opened: Opened, X: Any) -> int | None:
    """The number of inputs of the core; None for text, sparse rows or anything without columns.

    Told by the layout of rows, never by values: a gap in one of them must change nothing.
    """
    rows = opened.prepare(_safe_indexing(X, [0])) if opened.steps else X
    if isinstance(rows, list):  # which a model of scikit-learn takes for an array of numbers
        return getattr(opened.core, "n_features_in_", None)
    if sparse.issparse(rows) or len(getattr(rows, "shape", ())) != 2:
        return None
    types = list(rows.dtypes) if hasattr(rows, "columns") else [rows.dtype]
    return int(rows.shape[1]) if all(_is_number(each) for each in types) else None


def _is_number(dtype: Any) -> bool:
    """For types of NumPy and pandas; of Polars; of PyTorch."""
    if hasattr(dtype, "kind"):
        return dtype.kind in "biuf"
    is_numeric = getattr(dtype, "is_numeric", None)
    return bool(is_numeric()) if is_numeric else bool(getattr(dtype, "is_floating_point", False))


def _wrong_predictions(opened: Opened, source: Source, X: Any, predict: Predict) -> str | None:
    """How predictions of training rows differ from the model's; None for known classes."""
    if source.known(opened.core):
        return None
    if X is None:
        return "its class is not known, and there are no training rows to try it on (pass X_train)"
    n = n_rows(X)
    rows = _safe_indexing(indexable(X)[0], np.arange(0, n, -(-n // N_CHECKED)))
    expected = predict(rows)
    try:
        found = opened.finish(source.measure(opened.core, opened.prepare(rows))[0])
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        return f"asking it failed ({type(error).__name__}: {error})"
    if found.shape != expected.shape:
        return f"its shape is {found.shape} and not {expected.shape}"
    tolerance = 1e-5 * np.abs(expected).max(initial=1e-300)  # members may compute in float32
    differs = np.flatnonzero(~(np.abs(found - expected) <= tolerance))
    if not len(differs):
        return None
    at = differs[0]
    return (
        f"on {len(differs)} of {len(expected)} training rows it does not, the first being "
        f"{found[at]:.6g} where the model predicts {expected[at]:.6g}"
    )


def _warn_of_lie(core: Any, spread: str, wrong: str) -> None:
    warnings.warn(
        f"{type(core).__name__} was expected to predict what the {spread} is taken around, but "
        f"{wrong}. Nearness is judged without that spread; pass embed= to choose a space.",
        EmbeddingWarning,
        stacklevel=7,
    )
