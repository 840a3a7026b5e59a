"""Training a model again: untrained copies, and the arguments of their ``fit``.

A family may know more of a first training than its parameters say (rounds at which it stopped,
columns that were categories): see ``ModelFamily.retrain``.
"""

from collections.abc import Mapping
from copy import deepcopy
from types import BuiltinMethodType, MethodType
from typing import Any, Self

from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _check_method_params, check_is_fitted

from calliper.exceptions import CalliperError
from calliper.models._asking import family_of, open_model, takes_sparse


def fresh(model: Any) -> Any:
    """An untrained copy of a model."""
    try:
        return clone(model, safe=False)
    except (RuntimeError, TypeError):  # CatBoost's get_params copies lists, which clone takes for
        return _rebuilt(model)  # tampering; CatBoost itself takes its parameters as one


class AroundModel(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator around ``estimator``, fitted or not; what was trained is ``estimator_``."""

    estimator: Any

    def __sklearn_is_fitted__(self) -> bool:
        return "estimator_" in vars(self) or is_fitted(self.estimator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.estimator)
        return tags


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
        return vars(self).get("estimator_", self.estimator).predict(X, **self.predict_params)


def is_fitted(model: Any) -> bool:
    """Whether scikit-learn calls it fitted; models of other kinds always are."""
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except TypeError:
        pass
    return True


def fit_params_of(X: Any, fit_params: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Parameters of ``fit`` for some rows of X; ``eval_set`` and the like hold other rows."""
    apart = {n: v for n, v in fit_params.items() if n.rpartition("__")[2].startswith("eval_")}
    dealt = {name: value for name, value in fit_params.items() if name not in apart}
    return {**_check_method_params(X, dealt, rows), **apart}


def check_sample_weight(fit_params: Mapping[str, Any], n: int) -> None:
    """Refuse weights of another length, which some libraries ignore silently."""
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


def fit_router(owner: Any) -> MetadataRouter:
    """How parameters of ``fit`` travel to ``owner.estimator``."""
    to_fit = MethodMapping().add(caller="fit", callee="fit")
    router = MetadataRouter(owner=type(owner).__name__).add_self_request(owner)
    return router.add(estimator=owner.estimator, method_mapping=to_fit)


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


def is_frozen(model: Any) -> bool:
    """Whether the model, or a part of it, must not be trained again."""
    while isinstance(model, MethodType | BuiltinMethodType):
        model = model.__self__
    parts = model.get_params() if hasattr(model, "get_params") else {}
    return any(isinstance(part, FrozenEstimator) for part in (model, *parts.values()))


def _rebuilt(part: Any) -> Any:
    """A copy with the same parameters and nothing learnt; a CatBoost trained twice may hang."""
    if hasattr(part, "get_params"):
        copies = {name: _rebuilt(value) for name, value in part.get_params(deep=False).items()}
        as_one = type(part).__module__ == "catboost.core" and type(part).__name__ == "CatBoost"
        return type(part)(copies) if as_one else type(part)(**copies)
    return type(part)(map(_rebuilt, part)) if type(part) in (list, tuple) else deepcopy(part)
