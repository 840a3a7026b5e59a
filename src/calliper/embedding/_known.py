"""Whether a model predicts by code that is known here, or by code of its own.

A subclass may clip, round or correct what it inherits. Whether it does is asked of the classes,
never of calibration rows: a space that is chosen by looking at those treats them unlike a new
row, and the guarantee is lost.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

#: Methods that have a part in predictions of scikit-learn's ensembles.
PREDICTING = (
    "predict",
    "_predict",
    "_raw_predict",
    "_raw_predict_init",
    "_validate_X_predict",
    "_preprocess_X",
    "staged_predict",
)


def predicts_as(model: Any, *classes: type) -> bool:
    """Whether ``model`` is of one of the classes, and predicts by its methods unchanged."""
    return any(isinstance(model, known) and _unchanged(model, known) for known in classes)


def _unchanged(model: Any, known: type) -> bool:
    own = getattr(model, "__dict__", {})
    return all(
        name not in own
        and getattr_static(type(model), name, None) is getattr_static(known, name, None)
        for name in PREDICTING
    )
