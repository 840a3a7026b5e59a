"""What is wrapped around a model: pipelines, searches, frozen models, transformed targets.

A pipeline, a search, a frozen model and a transformed target say nothing about the error
themselves; the estimator inside, the core, does. What stands before it prepares its inputs, what
stands after it finishes its predictions. A wrapper that predicts by code of its own is left
closed: a subclass may clip, round or correct what it inherits. Whether it does is asked of the
classes, never of calibration rows: whatever is chosen by looking at those treats them unlike a
new row, and the guarantee is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from inspect import getattr_static
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from calliper._types import FloatArray
from calliper.exceptions import CalliperError

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


@dataclass(frozen=True)
class OpenedModel:
    """A fitted model taken apart: predictions are ``finish(core.predict(prepare(X)))``.

    Attributes
    ----------
    core : the estimator inside
    steps : transformers that its inputs go through, in this order
    targets : transformers that its predictions go through, backwards, in this order
    """

    core: Any
    steps: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()

    def prepare(self, X: Any) -> Any:
        """The rows that the core is given."""
        for step in self.steps:
            X = step.transform(X)
        return X

    def core_targets(self, y: FloatArray) -> FloatArray:
        """(n,) targets as the core was trained on them, from those of the whole model."""
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


def open_model(model: Any) -> OpenedModel:
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
        elif (
            predicts_as(core, TransformedTargetRegressor) and learnt(core, "regressor_") is not None
        ):
            targets.insert(0, core.transformer_)
            core = unwrapped(core.regressor_)
        else:
            _check_regressor(core)
            return OpenedModel(core=core, steps=tuple(steps), targets=tuple(targets))


def unwrapped(model: Any) -> Any:
    """The model that a search, a frozen model, a calibrated model or ``model.predict`` asks."""
    while True:
        if _is_predict(model):
            model = model.__self__
        elif type(model) is FrozenEstimator:
            model = model.estimator
        elif _is_fitted_as(model, BaseSearchCV, "best_estimator_"):
            model = model.best_estimator_
        elif _is_calibrated(model):
            model = model.estimator_
        else:
            return model


def learnt(model: Any, name: str) -> Any:
    """What ``fit`` has left under this name; None before, and in a model that has no such part."""
    return getattr(model, name, None)


def comes_from(value: Any, library: str) -> bool:
    """Whether its class, or what that is derived from, is of a library, which need not be there."""
    return any(base.__module__.partition(".")[0] == library for base in type(value).__mro__)


def _is_fitted_as(model: Any, known: type, part: str) -> bool:
    """Whether it predicts as the class does, by the part that ``fit`` has left."""
    return predicts_as(model, known) and learnt(model, part) is not None


def _is_predict(model: Any) -> bool:
    """Whether it is the ``predict`` of an object, as the object itself has it."""
    bound = isinstance(model, MethodType | BuiltinMethodType) and model.__name__ == "predict"
    return bound and bool(learnt(model.__self__, "predict") == model)


def _is_calibrated(model: Any) -> bool:
    """Whether it is a ``ConformalRegressor``, known by name since it stands above this module."""
    code = getattr_static(type(model), "predict", None)
    if not isinstance(code, FunctionType) or code.__module__ != "calliper.regressor":
        return False
    of_one_number = getattr(model.score_function, "n_outputs", 1) == 1
    return of_one_number and learnt(model, "estimator_") is not None


def _check_last_step(pipeline: Pipeline) -> None:
    name, last = pipeline.steps[-1]
    if not hasattr(last, "predict"):
        raise CalliperError(
            f"the pipeline must end in a regressor, but its last step, {name!r} "
            f"({type(last).__name__ if not isinstance(last, str) else last}), does not predict: "
            f"append a regressor, or pass the pipeline as embed= and the model apart."
        )


def _check_regressor(core: Any) -> None:
    if not hasattr(core, "__sklearn_tags__"):  # scikit-learn 1.7 guesses, and warns of it
        return
    try:
        kind = get_tags(core).estimator_type
    except AttributeError:  # half an estimator of scikit-learn
        return
    if kind not in (None, "regressor"):
        raise CalliperError(
            f"intervals need a regressor; {type(core).__name__} is a {kind.replace('_', ' ')}. "
            f"If its output is a number to be predicted, pass a function: lambda X: f(X)."
        )


def predicts_as(model: Any, *classes: type) -> bool:
    """Whether ``model`` is of one of the classes, and predicts by its methods unchanged."""
    return any(isinstance(model, known) and _unchanged(model, known) for known in classes)


def all_predict_as(models: Iterable[Any], *classes: type) -> bool:
    """Whether each of many does."""
    return all(predicts_as(model, *classes) for model in models)


def _unchanged(model: Any, known: type) -> bool:
    own = getattr(model, "__dict__", {})
    if any(name in own for name in PREDICTING):
        return False
    return type(model) is known or all(  # the first alone is asked of every tree of a forest
        getattr_static(type(model), name, None) is getattr_static(known, name, None)
        for name in PREDICTING
    )
