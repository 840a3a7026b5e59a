"""Meeting a model: the rows it is given, what it answers, and what is wrapped around it.

Rows may be arrays, frames or lists of anything that the model takes; only y and predictions are
turned into numbers here. A PyTorch module is asked in batches, in evaluation mode, without
gradients, where it is.

A pipeline, a search, a frozen model and a transformed target say nothing about the error
themselves; the estimator inside, the core, does. What stands before it prepares its inputs, what
stands after it finishes its predictions. A wrapper that predicts by code of its own is left
closed: a subclass may clip, round or correct what it inherits. Whether it does is asked of the
classes, never of calibration rows: whatever is chosen by looking at those treats them unlike a
new row, and the guarantee is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from inspect import getattr_static
from math import prod
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import DataConversionWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import (
    _check_method_params,
    check_consistent_length,
    validate_data,
)

from calliper._handlers import refuse_collection
from calliper._probe_rows import state_of
from calliper._types import FloatArray
from calliper._validation import check_vector, has_known_columns, n_rows, refuse_sparse
from calliper.exceptions import CalliperError, warn

Method = TypeVar("Method", bound=Callable[..., Any])

#: Rows by which a model is known again.
N_PROBES = 5

#: Rows that are compared before and after a model was asked, and the most numbers in them.
N_COMPARED, MOST_COMPARED = 32, 1 << 14

#: Rows that go through a module together.
BATCH_ROWS = 1024

# Modes and hooks belong to the module and not to the thread that sets them: one at a time.
_ONE_AT_A_TIME = RLock()

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


def fresh(model: Any) -> Any:
    """A copy of a model that is to be trained."""
    try:
        return clone(model, safe=False)
    except (RuntimeError, TypeError):  # CatBoost's get_params copies lists, which clone takes for
        return _rebuilt(model)  # tampering; CatBoost itself takes its parameters as one


def fit_params_of(X: Any, fit_params: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Parameters of ``fit`` for some rows of X; ``eval_set`` and its like are other rows."""
    apart = {name for name in fit_params if name.rpartition("__")[2].startswith("eval_")}
    dealt = {name: value for name, value in fit_params.items() if name not in apart}
    return {**_check_method_params(X, dealt, rows), **{name: fit_params[name] for name in apart}}


def check_sample_weight(fit_params: Mapping[str, Any], n: int) -> None:
    """Some libraries pass over weights of another length in silence."""
    weight = fit_params.get("sample_weight")
    if weight is not None and len(weight) != n:
        raise CalliperError(
            f"sample_weight has {len(weight)} values for {n} rows: pass one for each row."
        )


def routed(owner: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
    """What ``owner.estimator.fit`` is to be given: as it was passed, or as it has requested it."""
    if not fit_params or not get_config()["enable_metadata_routing"]:
        return fit_params
    return dict(process_routing(owner, "fit", **fit_params).estimator.fit)


def fit_router(owner: Any) -> MetadataRouter:
    """How parameters of ``fit`` travel to ``owner.estimator``."""
    to_fit = MethodMapping().add(caller="fit", callee="fit")
    router = MetadataRouter(owner=type(owner).__name__).add_self_request(owner)
    return router.add(estimator=owner.estimator, method_mapping=to_fit)


def _rebuilt(part: Any) -> Any:
    """A copy with the same parameters and nothing learnt; a CatBoost trained twice may hang."""
    if hasattr(part, "get_params"):
        parameters = part.get_params(deep=False).items()
        copies = {name: _rebuilt(value) for name, value in parameters}
        as_one = type(part).__module__ == "catboost.core" and type(part).__name__ == "CatBoost"
        return type(part)(copies) if as_one else type(part)(**copies)
    return type(part)(map(_rebuilt, part)) if type(part) in (list, tuple) else deepcopy(part)


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
    if getattr(X, "ndim", 2) == 1 and hasattr(estimator, "n_features_in_"):
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
    predict: Callable[[Any], Any] | None = getattr(model, "predict", None)
    if predict is None and callable(model):
        predict = model
    if predict is None:
        raise TypeError(
            f"estimator must have a predict method or be a function of the inputs; got {model!r}."
        )
    rows = xgboost_matrix(model, X) if is_native_xgboost(model) else X
    with _left_as_they_are(X):
        y_pred = outputs(model, rows) if is_module(model) else predict(rows)
    if hasattr(y_pred, "detach"):
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
    shape = getattr(X, "shape", (0,))
    step = max(1, shape[0] // max(1, min(N_COMPARED, MOST_COMPARED // max(1, prod(shape[1:])))))
    if isinstance(X, np.ndarray):
        return X[::step].tobytes() if X.dtype.kind in "biuf" else None
    if not hasattr(X, "iloc") or len(shape) != 2 or shape[0] < 2:
        return None
    rows = X.iloc[::step]
    return [(name, rows[name].to_numpy().tolist().__repr__()) for name in rows.columns]


def check_predictions(y_pred: Any, n: int, n_outputs: int = 1) -> FloatArray:
    """Finite predictions of n rows: (n,), or (n, n_outputs) for more than one."""
    if n_outputs == 1:
        _refuse_several(getattr(y_pred, "shape", ()))
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


def is_module(model: Any) -> bool:
    """Whether it is a ``torch.nn.Module``; who has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def is_native_xgboost(model: Any) -> bool:
    """Whether it is an ``xgboost.Booster``; who has one has imported xgboost."""
    xgboost = sys.modules.get("xgboost")
    return xgboost is not None and isinstance(model, xgboost.Booster)


def xgboost_matrix(model: Any, X: Any) -> Any:
    """Rows as XGBoost has them, by the settings of a model of its kind that has any."""
    settings = {name: getattr(model, name, None) for name in ("missing", "feature_types")}
    return sys.modules["xgboost"].DMatrix(
        X,
        nthread=getattr(model, "n_jobs", None),
        enable_categorical=getattr(model, "enable_categorical", True),
        **settings,
    )


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode for the time being; every part then returns to the mode it was in."""
    import torch

    with _ONE_AT_A_TIME:
        modes = [(part, part.training) for part in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for part, mode in modes:
                part.training = mode


def batches(module: Any, X: Any, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Rows as tensors on the module's device, of its floating type; integers stay integers."""
    import torch

    weight = next(module.parameters(), torch.zeros(0))
    # Frames hand out memory that must not be written to, which torch warns of.
    rows = X if torch.is_tensor(X) else torch.as_tensor(np.require(X, requirements="W"))
    for start in range(0, max(1, n_rows(rows)), batch_rows):
        batch = rows[start : start + batch_rows]
        dtype = weight.dtype if batch.is_floating_point() else batch.dtype
        yield batch.to(weight.device, dtype)


def outputs(module: Any, X: Any) -> FloatArray:
    """What a module answers to rows: (m,) or (m, n_outputs)."""
    with evaluating(module):
        answers = [module(batch) for batch in batches(module, X)]
    if not hasattr(answers[0], "detach"):
        raise CalliperError(
            f"{type(module).__name__} must answer with a tensor; got a "
            f"{type(answers[0]).__name__}: pass a function that takes the predictions out of it."
        )
    return np.concatenate([as_array(answer) for answer in answers])


def as_array(tensor: Any) -> FloatArray:
    """A tensor's numbers, wherever it is."""
    return np.asarray(tensor.detach().cpu().double().numpy())


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
        elif predicts_as(core, TransformedTargetRegressor) and hasattr(core, "regressor_"):
            targets.insert(0, core.transformer_)
            core = unwrapped(core.regressor_)
        else:
            _check_regressor(core)
            return OpenedModel(core=core, steps=tuple(steps), targets=tuple(targets))


def untrained_core(model: Any) -> Any:
    """The part of an untrained model that is the core once it is trained."""
    while isinstance(model, Pipeline | TransformedTargetRegressor):
        model = model.steps[-1][1] if isinstance(model, Pipeline) else model.regressor
    return model


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
    of_one_number = getattr(getattr(model, "score_function", None), "n_outputs", 1) == 1
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


def _unchanged(model: Any, known: type) -> bool:
    own = getattr(model, "__dict__", {})
    if any(name in own for name in PREDICTING):
        return False
    return type(model) is known or all(  # the first alone is asked of every tree of a forest
        getattr_static(type(model), name, None) is getattr_static(known, name, None)
        for name in PREDICTING
    )
