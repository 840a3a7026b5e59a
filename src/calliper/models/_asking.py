"""A model: how it is opened, asked and trained again, and which family knows more of it.

**Opened.** A pipeline, a search, a frozen model and a transformed target say nothing about the
error themselves; the estimator inside, the core, does. A wrapper that predicts by code of its own
is left closed. The classes decide, never calibration rows (``space/_spaces.py`` says why).

**Asked.** Rows may be anything that the model takes; only predictions become numbers here.

**Trained again.** A family may know more of a first training than parameters say (rounds at which
it stopped, columns that were categories), and of the model's own uncertainty: see ``ModelFamily``.
"""

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import getattr_static, signature
from math import prod
from types import BuiltinMethodType, MethodType
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _check_method_params, check_is_fitted

from calliper._handlers import in_memory
from calliper._types import FloatArray, IntArray
from calliper._validation import check_predictions, is_frame, shape_of
from calliper.exceptions import CalliperError

#: Methods that scikit-learn's ensembles predict by.
PREDICTING = (
    *("predict", "_predict", "_raw_predict", "_raw_predict_init", "staged_predict"),
    *("_validate_X_predict", "_preprocess_X"),
)
#: Rows that are compared before and after a prediction, and the most numbers in them: a model that
#: writes into them would locate and predict different rows.
N_COMPARED, CELLS_COMPARED = 32, 1 << 14
#: Families by file and class, tried in this order; imported with the first model.
FAMILIES = (
    "_forests:Members",
    "_boosting:XGBoost",
    "_boosting:LightGBM",
    "_boosting:CatBoost",
    "_boosting:TreeStages",
    "_boosting:Stages",
    "_distributions:StatedDeviation",
)


@dataclass(frozen=True)
class OpenedModel:
    """A fitted model taken apart: predictions are ``finish(core.predict(prepare(X)))``.

    Inputs go through ``steps`` in this order, predictions backwards through ``targets``.
    """

    core: Any
    steps: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()

    @property
    def has_bags(self) -> bool:
        """Whether the members of the core were trained on bootstrap samples."""
        given = self.core.get_params(deep=False) if hasattr(self.core, "get_params") else {}
        return bool(given.get("bootstrap"))

    def prepare(self, X: Any) -> Any:
        """The rows in the form that the core takes."""
        for step in self.steps:
            X = step.transform(X)
        return X

    def core_targets(self, y: FloatArray) -> FloatArray:
        """(n,) targets as the core was trained on them, from those of the whole model."""
        for transformer in reversed(self.targets):
            y = np.asarray(transformer.transform(y[:, None]), dtype=np.float64).reshape(-1)
        return y

    def finish(self, y_pred: FloatArray) -> FloatArray:
        """Turn predictions of the core into those of the whole model."""
        for transformer in self.targets:
            columns = y_pred[:, None] if y_pred.ndim == 1 else y_pred
            turned = np.asarray(transformer.inverse_transform(columns))
            y_pred = turned[:, 0] if y_pred.ndim == 1 else turned
        return y_pred

    def predict_prepared(self, rows: Any, n_outputs: int = 1) -> FloatArray:
        """Predictions of the whole model for rows that are prepared already."""
        return self.finish(predictions(self.core, rows, n_outputs))


def open_model(model: Any) -> OpenedModel:
    """The core of a fitted model, and the steps around it."""
    core, steps, targets = unwrapped(model), list[Any](), list[Any]()
    while True:
        if predicts_as(core, Pipeline):
            name, last = core.steps[-1]
            if not hasattr(last, "predict"):
                kind = last if isinstance(last, str) else type(last).__name__
                but = f"its last step, {name!r} ({kind}), does not predict"
                how = "append a regressor, or pass the pipeline as embed= and the model separately"
                raise CalliperError(f"the pipeline must end in a regressor, but {but}: {how}.")
            steps += [core[:-1]] if len(core.steps) > 1 else []
            core = unwrapped(last)
        elif predicts_as(core, TransformedTargetRegressor) and hasattr(core, "regressor_"):
            targets.insert(0, core.transformer_)
            core = unwrapped(core.regressor_)
        else:
            break
    tags = tags_of(core)
    if tags is not None and tags.estimator_type not in (None, "regressor"):
        raise CalliperError(
            f"intervals need a regressor, but {type(core).__name__} is a "
            f"{tags.estimator_type.replace('_', ' ')}. For intervals around a number that it "
            "outputs, pass a function that returns this number."
        )
    return OpenedModel(core=core, steps=tuple(steps), targets=tuple(targets))


def unwrapped(model: Any) -> Any:
    """The model inside a search, a frozen model, a calibrated model or ``model.predict``."""
    while True:
        bound = isinstance(model, MethodType | BuiltinMethodType) and model.__name__ == "predict"
        if bound and learnt(model.__self__, "predict") == model:
            model = model.__self__
        elif type(model) is FrozenEstimator:
            model = model.estimator
        elif predicts_as(model, BaseSearchCV) and learnt(model, "best_estimator_") is not None:
            model = model.best_estimator_
        elif _is_calibrated(model):
            model = model.estimator_
        else:
            return model


def learnt(model: Any, name: str) -> Any:
    """An attribute by name, such as one that ``fit`` stored; None if it is missing."""
    return getattr(model, name, None)


def each_of(given: Any) -> list[Any]:
    """The models of a dict or a list; one in a list for any other."""
    if isinstance(given, Mapping):
        return [*given.values()]
    return [*given] if isinstance(given, list | tuple) else [given]


def parameters(method: Any) -> set[str]:
    """Names of the parameters of a method; none if it does not tell."""
    try:
        return {*signature(method).parameters}
    except (TypeError, ValueError):
        return set()


def comes_from(value: Any, library: str, kind: str = "") -> bool:
    """Whether an object's class or a base of it is from a library, and named ``kind`` if given."""
    return any(
        base.__module__.partition(".")[0] == library and kind in ("", base.__name__)
        for base in type(value).__mro__
    )


def _is_calibrated(model: Any) -> bool:
    """Whether it is calibrated for one number, and predicts by the code that its class declares."""
    code = getattr_static(type(model), "predicts_as_its_model", None)
    if code is None or getattr_static(type(model), "predict") is not code:
        return False
    of_one_number = getattr(model.score_function, "n_outputs", 1) == 1
    return of_one_number and learnt(model, "estimator_") is not None


def tags_of(model: Any) -> Tags | None:
    """The tags of an estimator of scikit-learn; None for any other model."""
    with suppress(AttributeError):
        return model.__sklearn_tags__()
    return None


def predicts_as(model: Any, *classes: type) -> bool:
    """Whether ``model`` is of one of the classes and overrides no prediction method."""
    if any(name in getattr(model, "__dict__", {}) for name in PREDICTING):
        return False

    def code_of(kind: type) -> list[Any]:
        return [getattr_static(kind, name, None) for name in PREDICTING]

    return any(
        isinstance(model, known) and code_of(type(model)) == code_of(known) for known in classes
    )


def is_module(model: Any) -> bool:
    """Whether this is a ``torch.nn.Module``."""
    return comes_from(model, "torch", "Module")


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of PyTorch or of a similar library."""
    return hasattr(value, "detach")


def predictions(model: Any, X: Any, n_outputs: int = 1) -> FloatArray:
    """What a regressor, function or network predicts: (n,), or (n, n_outputs) for several."""
    if learnt(model, "predict") is None and not callable(model):
        what = f"{model!r:.60}."
        if isinstance(model, Mapping):
            what = f"{model!r:.60}: pass QuantileModel({{…}}, {sorted(model)})."
        elif shape := shape_of(model):
            how = "Without a model, pass errors: FullRescaled().fit(X, abs(y - y_pred))."
            what = f"numbers of shape {shape}. {how}"
        must = "estimator must have a predict method or be a function that predicts rows"
        raise TypeError(f"{must}; got {what}")
    refuse_crashing(model, X)
    before, y_pred = _some_rows(X), answer_of(model, X)
    if before is not None and before != _some_rows(X):  # they would be located as other rows
        raise CalliperError(
            "the model modifies the rows that are passed to it, and has modified yours: let it "
            "work on a copy, as in ConformalRegressor(lambda X: model.predict(X.copy()))."
        )
    return check_predictions(in_memory(y_pred), X, n_outputs)


def answer_of(model: Any, X: Any) -> Any:
    """What a regressor, function or network answers for rows, in any form."""
    if is_module(model):
        from calliper.models._networks import Layer

        return Layer(model, "").predict_and_locate(X)[0]
    predict = learnt(model, "predict") or model
    return predict(xgboost_matrix(model, X) if is_native_xgboost(model) else X)


def refuse_crashing(model: Any, X: Any) -> None:
    """Refuse Polars columns on which the model's library crashes or fails without a message."""
    if not comes_from(X, "polars") or len(shape_of(X)) != 2:
        return
    taken = family_of(model).polars
    for name, kind in X.schema.items():
        if not re.fullmatch(taken, type(kind).__name__):
            raise CalliperError(
                f"{type(model).__name__} cannot read column {name!r} of this Polars frame, which "
                f"is of type {type(kind).__name__}: pass X.to_pandas() everywhere, including when "
                f"you train the model, or convert the column to numbers."
            )


def _some_rows(X: Any) -> Any:
    """Some rows of an array or a frame; None for others, and for a frame of one, to be fast."""
    shape = shape_of(X) or (0,)
    step = max(1, shape[0] // max(1, min(N_COMPARED, CELLS_COMPARED // max(1, prod(shape[1:])))))
    if isinstance(X, np.ndarray):
        return X[::step].tobytes() if X.dtype.kind in "biuf" else None
    return repr(X.iloc[::step].to_numpy().tolist()) if is_frame(X) and shape[0] > 1 else None


def is_native_xgboost(model: Any) -> bool:
    """Whether it is an ``xgboost.Booster``."""
    return comes_from(model, "xgboost", "Booster")


def xgboost_matrix(model: Any, X: Any) -> Any:
    """Rows as a ``DMatrix``, by the settings of the wrapper if there is one."""
    how = {"enable_categorical": True}
    if not is_native_xgboost(model):
        how = {"missing": model.missing, "nthread": model.n_jobs}
        how["enable_categorical"] = model.enable_categorical
    return sys.modules["xgboost"].DMatrix(X, feature_types=model.feature_types, **how)


def without_names(X: Any, kinds: str) -> Any:
    """A pandas frame as an array (n, d), if all its columns are of these NumPy kinds."""
    if not is_frame(X):
        return X
    types = X.dtypes.to_numpy()
    plain = len(types) and all(isinstance(each, np.dtype) and each.kind in kinds for each in types)
    return X.to_numpy(dtype=np.float64) if plain else X


class UnreadableError(Exception):
    """The spread of a model of the family cannot be read; the message follows "because"."""


class ModelFamily:
    """What a family reads from a fitted model, ``core``, once; it must be picklable.

    The defaults are those of a model of no family, which knows nothing of its own uncertainty.
    """

    #: Of the logarithm of each spread, the prediction having 1.
    weights: ClassVar[tuple[float, ...]] = (2.0,)
    #: Whether each spread is in the unit of y, or has none.
    in_unit: ClassVar[tuple[bool, ...]] = (True, True)
    #: Part of the unit below which spreads count as equal; near 0 logarithms show rounding.
    floor: ClassVar[float] = 0.01
    #: Types of Polars columns that it reads, as a regular expression.
    polars: ClassVar[str] = ".*"
    #: Whether ``measure`` is known to give n rows the same bits together as one by one.
    is_by_row = False

    def __init__(self, core: Any) -> None:
        self.core = core

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        """Whether a fitted model is one of the family, and predicts what ``measure`` says."""
        return True

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Prediction (m,) and spreads (k, m) of prepared rows, in the unit of y, in one pass."""
        y_pred = predictions(self.core, rows)
        return y_pred, np.empty((0, len(y_pred)))

    def describe(self) -> str:
        """What the spread is, in words."""
        return ""

    def unit(self) -> float | None:
        """Standard deviation of its training targets; None if it is not kept."""
        return None

    def left_out(self, rows: Any, y: FloatArray) -> tuple[IntArray, FloatArray, FloatArray] | None:
        """Rows that some members had not seen, (r,), and their ``measure``; None if there are none.

        Rows, prepared, and y are what the core was trained on.
        """
        return None

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Prepare ``core``, an untrained copy; what its ``fit`` needs besides what it is told."""
        return {}


@cache
def families() -> tuple[type[ModelFamily], ...]:
    """All of them, in the order in which they are asked."""
    names = (name.split(":") for name in FAMILIES)
    return tuple(getattr(import_module(f"calliper.models.{file}"), kind) for file, kind in names)


def family_of(core: Any) -> type[ModelFamily]:
    """The first family that a fitted model belongs to; ``ModelFamily`` itself if there is none."""
    return next((family for family in families() if family.is_mine(core)), ModelFamily)


def fresh(model: Any) -> Any:
    """An untrained copy of a model."""
    try:
        return clone(model, safe=False)
    except (RuntimeError, TypeError):  # CatBoost's get_params copies lists, which clone takes for
        return _rebuilt(model)  # tampering; CatBoost itself takes its parameters as one


class AroundModel(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A wrapper of ``estimator``, fitted or not; the trained model is ``estimator_``."""

    estimator: Any

    def __sklearn_is_fitted__(self) -> bool:
        # Models of other kinds than scikit-learn's are fitted.
        inner = (is_fitted(each) is not False for each in each_of(self.estimator))
        return "estimator_" in vars(self) or all(inner)

    def __sklearn_tags__(self) -> Any:
        if isinstance(self.estimator, type):
            name = self.estimator.__name__
            raise TypeError(f"estimator must be a model; got the class {name}: pass an instance.")
        tags, inner = super().__sklearn_tags__(), tags_of(self.estimator)
        tags.input_tags.sparse = inner is None or bool(inner.input_tags.sparse)
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """How fit parameters are routed, for scikit-learn's metadata routing."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=to_fit)


class PredictWith(RegressorMixin, AroundModel):  # type: ignore[misc]
    """A model whose ``predict`` is always called with the same keyword arguments.

    Parameters
    ----------
    estimator : regressor, fitted or not
    predict_params : dict
        Passed to every call of ``estimator.predict``, in calibration and refits too. The model's
        own spread is not used, since it does not depend on them.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> PredictWith(GaussianProcessRegressor(), {"return_std": False}).fit([[0.0]], [1.0]).predict(
    ...     [[0.0]]
    ... ).round(3)
    array([1.])
    """

    def __init__(self, estimator: Any, predict_params: Mapping[str, Any]) -> None:
        self.estimator = estimator
        self.predict_params = predict_params

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Train a copy; ``fit_params`` go to its ``fit``."""
        self.estimator_ = fresh(self.estimator).fit(X, y, **fit_params)
        return self

    def predict(self, X: Any) -> Any:
        """The model's predictions with these arguments."""
        model, params = vars(self).get("estimator_", self.estimator), self.predict_params
        if not (hasattr(model, "predict") and isinstance(params, Mapping)):
            what = "PredictWith needs a model with predict, and a dict of arguments of predict"
            raise TypeError(f"{what}; got {model!r} and {params!r}.")
        answer = model.predict(X, **params)
        if isinstance(answer, tuple):
            what = f"predict with {dict(params)} returns a tuple, not predictions alone"
            how = "leave PredictWith out; DistributionError(probabilities) uses a model's deviation"
            raise CalliperError(f"{what}: {how}.")
        return answer


def fit_params_of(X: Any, fit_params: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Parameters of ``fit`` for some rows of X; ``eval_set`` and the like hold other rows."""
    apart = {n: v for n, v in fit_params.items() if n.rpartition("__")[2].startswith("eval_")}
    dealt = {name: value for name, value in fit_params.items() if name not in apart}
    return {**_check_method_params(X, dealt, rows), **apart}


def check_sample_weight(fit_params: Mapping[str, Any], n: int) -> None:
    """Refuse weights of a wrong length, which some libraries ignore silently."""
    weight = fit_params.get("sample_weight")
    if weight is not None and len(weight) != n:
        raise CalliperError(
            f"sample_weight has {len(weight)} values for {n} rows: pass one per row."
        )


def routed(owner: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``owner.estimator.fit``: as passed, or as metadata routing requests."""
    if not fit_params or not get_config()["enable_metadata_routing"]:
        return fit_params
    return dict(process_routing(owner, "fit", **fit_params).estimator.fit)


def trainable(model: Any, fit_params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An untrained copy of a fitted model, and what its ``fit`` needs besides ``fit_params``."""
    copied, fitted = fresh(model), open_model(model).core
    core = untrained_core(copied)
    if type(core) is not type(fitted):
        return copied, {}
    told = {name.rpartition("__")[2] for name in fit_params}
    needed = family_of(fitted).retrain(core, fitted, told)
    return copied, needed if core is copied else {}


def untrained_core(model: Any) -> Any:
    """The part of an untrained model that becomes the core."""
    while isinstance(model, Pipeline | TransformedTargetRegressor):
        model = model.steps[-1][1] if isinstance(model, Pipeline) else model.regressor
    return model


def is_fitted(model: Any) -> bool | None:
    """Whether an estimator of scikit-learn's kind was fitted; None for anything else."""
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except (TypeError, AttributeError):
        return None
    return True


def is_frozen(model: Any) -> bool:
    """Whether the model, or a part of it, must not be trained again."""
    while isinstance(model, MethodType | BuiltinMethodType):
        model = model.__self__
    parts = model.get_params() if hasattr(model, "get_params") else {}
    every = (each for part in (model, *parts.values()) for each in each_of(part))
    return any(isinstance(each, FrozenEstimator) for each in every)


def _rebuilt(part: Any) -> Any:
    """A copy with the same parameters and nothing learnt; a CatBoost trained twice may hang."""
    if hasattr(part, "get_params"):
        copies = {name: _rebuilt(value) for name, value in part.get_params(deep=False).items()}
        as_one = type(part).__module__ == "catboost.core" and type(part).__name__ == "CatBoost"
        return type(part)(copies) if as_one else type(part)(**copies)
    return type(part)(map(_rebuilt, part)) if type(part) in (list, tuple) else deepcopy(part)
