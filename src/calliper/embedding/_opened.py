"""Looking through what is wrapped around a model: the core, what comes before it and after it.

A pipeline, a search, a frozen model and a transformed target say nothing about the error
themselves; the estimator inside does. What stands before it prepares its inputs, what stands
after it finishes its predictions. A wrapper that predicts by code of its own is left closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from calliper._types import FloatArray
from calliper.embedding._known import predicts_as
from calliper.exceptions import CalliperError


@dataclass(frozen=True)
class Opened:
    """A fitted model taken apart: predictions are ``finish(core.predict(prepare(X)))``."""

    core: Any
    steps: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()

    def prepare(self, X: Any) -> Any:
        """The rows that the core is given."""
        for step in self.steps:
            X = step.transform(X)
        return X

    def aim(self, y: FloatArray) -> FloatArray:
        """From targets of the whole to those that the core was trained on."""
        for transformer in reversed(self.targets):
            y = np.asarray(transformer.transform(y[:, None]), dtype=np.float64).reshape(-1)
        return y

    def finish(self, y_pred: FloatArray) -> FloatArray:
        """From what the core predicts to what the whole predicts."""
        for transformer in self.targets:
            columns = y_pred[:, None] if y_pred.ndim == 1 else y_pred
            turned = np.asarray(transformer.inverse_transform(columns))
            y_pred = turned[:, 0] if y_pred.ndim == 1 else turned
        return y_pred


def open_model(model: Any) -> Opened:
    """The core of a fitted model, with what is around it."""
    core = unwrapped(model)
    steps: list[Any] = []
    targets: list[Any] = []
    while True:
        if predicts_as(core, Pipeline):
            _check_last_step(core)
            if len(core.steps) > 1:
                steps.append(core[:-1])
            core = unwrapped(core.steps[-1][1])
        elif predicts_as(core, TransformedTargetRegressor) and hasattr(core, "regressor_"):
            targets.insert(0, core.transformer_)
            core = unwrapped(core.regressor_)
        else:
            _check_regressor(core)
            return Opened(core, tuple(steps), tuple(targets))


def unwrapped(model: Any) -> Any:
    """The model that a search, a frozen model, a calibrated model or ``model.predict`` asks."""
    while True:
        owner = getattr(model, "__self__", None)
        if getattr(model, "__name__", None) == "predict" and getattr(owner, "predict", 0) == model:
            model = owner
        elif type(model) is FrozenEstimator:
            model = model.estimator
        elif predicts_as(model, BaseSearchCV) and hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif _is_calibrated(model):
            model = model.estimator_
        else:
            return model


def is_frozen(model: Any) -> bool:
    """Whether the model, or a part of it, must not be trained again."""
    while hasattr(model, "__self__"):
        model = model.__self__
    parts = model.get_params(deep=True).values() if hasattr(model, "get_params") else ()
    return any(isinstance(part, FrozenEstimator) for part in (model, *parts))


def _is_calibrated(model: Any) -> bool:
    """Whether it is a ``ConformalRegressor``, known by name since it stands above this module."""
    code = getattr_static(type(model), "predict", None)
    of_one_number = getattr(getattr(model, "score_", None), "n_outputs", 1) == 1
    known = getattr(code, "__module__", None) == "calliper.regressor"
    return known and of_one_number and hasattr(model, "estimator_")


def _check_last_step(pipeline: Pipeline) -> None:
    name, last = pipeline.steps[-1]
    if not hasattr(last, "predict"):
        raise CalliperError(
            f"the pipeline must end in a regressor, but its last step, {name!r} "
            f"({type(last).__name__ if not isinstance(last, str) else last}), does not predict: "
            f"append a regressor, or pass the pipeline as embed= and the model apart."
        )


def _check_regressor(core: Any) -> None:
    try:
        kind = get_tags(core).estimator_type
    except AttributeError:  # no estimator of scikit-learn, or half of one
        return
    if kind not in (None, "regressor"):
        raise CalliperError(
            f"intervals need a regressor; {type(core).__name__} is a {kind.replace('_', ' ')}. "
            f"If its output is a number to be predicted, pass a function: lambda X: f(X)."
        )
