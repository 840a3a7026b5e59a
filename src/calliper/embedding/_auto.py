"""``embed="auto"``: look at the fitted model, choose the space.

| model | space |
|---|---|
| forest, extra trees, bagging, vote: the prediction is the mean of members | prediction, spread |
| gradient boosting | prediction, how much the last stages move it |
| network (a PyTorch module) | its penultimate layer |
| states a standard deviation (``return_std``) | prediction, deviation |
| any other, with training rows | standardised inputs and prediction |
| linear, without training rows | what each input adds, and prediction |
| any other without training rows, or inputs that are not numbers | prediction |

Everything is a function of the fitted model and of training rows. Calibration rows are used for
one thing: to check on some of them that the numbers really are the model's predictions.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from calliper._networks import is_module
from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.embedding._boosting import STAGES, TREE_STAGES
from calliper.embedding._deviation import DEVIATION
from calliper.embedding._ensemble import MEMBERS
from calliper.embedding._features import as_features
from calliper.embedding._layer import Layer, Network
from calliper.embedding._opened import Opened, open_model
from calliper.embedding._spaces import (
    Contributions,
    InputsAndPrediction,
    Mapped,
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
#: Rows on which a space's predictions are compared with the model's own.
N_CHECKED = 64


def choose_space(
    model: Any, X_train: Any, X_calibration: Any, *, predict: Predict, n_outputs: int
) -> Space:
    """The first space of the table that fits the model."""
    opened = open_model(model)
    if is_module(opened.core):
        return Network(Layer(opened.core))
    if n_outputs == 1:
        for source in SOURCES:
            if source.suits(opened.core):
                wrong = _wrong_predictions(opened, source, X_calibration, predict)
                if wrong is not None:
                    _warn_of_lie(opened.core, source.describe(opened.core), wrong)
                    continue
                space = spread_space(opened, source, X_train)
                if space.unit is None and hasattr(opened.core, "coef_"):
                    break  # a linear model has places in a unit to offer
                return space
    return _inputs_space(opened, X_train, X_calibration, n_outputs)


def _inputs_space(opened: Opened, X_train: Any, X_calibration: Any, n_outputs: int) -> Space:
    features = _numbers(opened, X_calibration if X_train is None else X_train)
    if features is None:
        return Prediction()
    d = features.shape[1]
    inputs = None if X_train is None else StandardScaler().fit(features)
    if d == 1:  # predictions are a function of the one input, and add nothing
        mapping = opened.prepare if opened.steps else None
        return Mapped(mapping, inputs, "the one input")
    if inputs is not None:
        _, y_pred = prepared_and_predicted(opened, X_train, n_outputs)
        outputs = StandardScaler().fit(y_pred.reshape(len(y_pred), -1))
        name = f"{d} standardised inputs and prediction"
        return InputsAndPrediction(opened, n_outputs, inputs, outputs, name)
    if n_outputs == 1 and hasattr(opened.core, "coef_"):
        weights = coefficients(opened.core)
        if len(weights) == d and weights.any():
            used = np.count_nonzero(weights)
            return Contributions(opened, f"what {used} inputs add each, and prediction")
    return Prediction()


def _numbers(opened: Opened, X: Any) -> FloatArray | None:
    """The core's inputs as numbers; None for text, gaps, sparse rows or anything else."""
    try:
        rows = opened.prepare(X)
        return as_features(rows, X) if getattr(rows, "ndim", 2) == 2 else None
    except (TypeError, ValueError):
        return None


def _wrong_predictions(opened: Opened, source: Source, X: Any, predict: Predict) -> str | None:
    """How the source's predictions differ from the model's on some rows; None if they do not."""
    rows = X[:: max(1, n_rows(X) // N_CHECKED)]
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
        f"on {len(differs)} of {len(expected)} rows it is not, the first being {found[at]:.6g} "
        f"where the model predicts {expected[at]:.6g}"
    )


def _warn_of_lie(core: Any, spread: str, wrong: str) -> None:
    warnings.warn(
        f"{type(core).__name__} was expected to predict what the {spread} is taken around, but "
        f"{wrong}. Nearness is judged without that spread; pass embed= to choose a space.",
        EmbeddingWarning,
        stacklevel=5,
    )
