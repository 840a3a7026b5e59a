"""Models that predict quantiles or a distribution: how each is asked for quantiles of its rows.

| model | known by | asked |
|---|---|---|
| a dict, or a list, of models of one quantile each | what it is | ``predict`` of each |
| TabICL | ``alphas`` and ``output_type`` of ``predict`` | ``predict(X, output_type=, alphas=)`` |
| TabPFN | ``quantiles`` and ``output_type`` | ``predict(X, output_type=, quantiles=)`` |
| quantile-forest | ``quantiles`` of ``predict`` | ``predict(X, quantiles=)`` |
| NGBoost | ``pred_dist`` | ``pred_dist(X).ppf`` |
| skpro | ``predict_quantiles`` | ``predict_quantiles(X, alpha=)`` |
| XGBoost | ``quantile_alpha`` of several | ``predict`` |
| CatBoost | ``MultiQuantile``, ``RMSEWithUncertainty`` | ``predict`` |

With ``DistributionError(probabilities)`` as score also a function, a network or a model that
answers with as many quantiles, or with the distributions of all rows (an object that has ``ppf``),
and one whose ``predict`` takes ``return_std``.

Answers are put into (m, K), whatever way they lie: where m = K and a transposed answer could not be
told, one row more is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metaestimators import available_if

from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.exceptions import CalliperError
from calliper.models._asking import (
    is_module,
    is_tensor,
    learnt,
    open_model,
    predictions,
    refuse_crashing,
)
from calliper.models._networks import outputs
from calliper.models._training import fresh
from calliper.scores import DistributionError

#: Asked of a model that answers at any: enough for the shape, and few to compute with.
PROBABILITIES = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995),
)
#: Training rows that the usual slope is read from, at most.
N_ROWS = 1000

#: From rows and probabilities to quantiles, in any form that ``_columns`` knows.
Ask = Callable[[Any, Sequence[float]], Any]


@dataclass(frozen=True)
class Reading:
    """How a model is asked for quantiles; ``own`` are the only ones that it has, or None."""

    ask: Ask
    own: tuple[float, ...] | None = None


def model_of_quantiles(model: Any, score: Any) -> tuple[Any, DistributionError] | None:
    """The model as one that predicts (m, K) quantiles, and their score; None if it has none.

    A ``DistributionError`` that was given says which; None asks whether the model is such a one.
    """
    core = _core(model)
    reading = _reading(core)
    if score is None:
        if reading is None:
            return None
        if reading.own is None and isinstance(core, Sequence):
            raise CalliperError(
                f"a list of {len(core)} models needs to know their quantiles, which not all of "
                f"their parameters say: pass a dict, as {{0.05: low, 0.5: middle, 0.95: high}}."
            )
        score = DistributionError(PROBABILITIES if reading.own is None else reading.own)
    score.n_outputs  # noqa: B018 - refuses probabilities that are none
    asked = tuple(map(float, score.probabilities))
    own = None if reading is None else reading.own
    if own is not None and sorted(own) != sorted(asked):
        raise CalliperError(
            f"the model predicts quantiles at {_listed(own)}, and the score is of "
            f"{_listed(asked)}: leave out score_function, or give it the model's own."
        )
    return QuantileModel(model, asked), score


def with_usual_slope(score: DistributionError, model: Any, X_train: Any) -> DistributionError:
    """The score with the slope that the curves of training rows usually have, unless it has one."""
    if score.slope is not None or X_train is None:
        return score
    n = n_rows(X_train)
    some = _safe_indexing(indexable(X_train)[0], np.arange(0, n, -(-n // N_ROWS)))
    usual = float(np.median(score.mean_slope(predictions(model, some, score.n_outputs))))
    usable = np.isfinite(usual) and usual > 0
    return DistributionError(score.probabilities, slope=usual) if usable else score


class QuantileModel(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A model of quantiles or distributions whose ``predict`` gives quantiles, (m, K).

    Parameters
    ----------
    estimator : the model as the user has it
    probabilities : of the columns
    """

    def __init__(self, estimator: Any, probabilities: Sequence[float]) -> None:
        self.estimator = estimator
        self.probabilities = probabilities

    @available_if(lambda self: learnt(self.estimator, "fit") is not None)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Train a copy of the model."""
        self.estimator = fresh(self.estimator).fit(X, y, **fit_params)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Quantiles of each row in the order of the probabilities, (m, K)."""
        opened = open_model(self.estimator)
        reading = _reading(opened.core) or _any_reading(opened.core)
        own = self.probabilities if reading.own is None else reading.own
        refuse_crashing(opened.core, X)
        q = _columns(lambda rows: reading.ask(rows, own), opened.prepare(X), len(own))
        q = np.stack([opened.finish(column) for column in q.T], axis=1)
        return q[:, [own.index(each) for each in self.probabilities]]


def _core(model: Any) -> Any:
    """The estimator inside, or the model itself where it cannot be opened."""
    try:
        return open_model(model).core
    except CalliperError:  # it is refused where its prediction is asked for
        return model


def _reading(core: Any) -> Reading | None:
    """How a model that is known to predict quantiles is asked; None for any other."""
    if isinstance(core, Mapping | list | tuple):
        return _of_several(core)
    takes = _parameters(learnt(core, "predict"))
    if {"output_type", "alphas"} <= takes:
        return Reading(lambda X, p: core.predict(X, output_type="quantiles", alphas=list(p)))
    if {"output_type", "quantiles"} <= takes:
        return Reading(lambda X, p: core.predict(X, output_type="quantiles", quantiles=list(p)))
    if "quantiles" in takes:
        return Reading(lambda X, p: core.predict(X, quantiles=list(p)))
    if learnt(core, "pred_dist") is not None:
        return Reading(lambda X, p: _of_distribution(core.pred_dist(X), p))
    if learnt(core, "predict_quantiles") is not None:
        return Reading(lambda X, p: core.predict_quantiles(X, alpha=list(p)))
    settings = core.get_params() if hasattr(core, "get_params") else {}
    own = settings.get("quantile_alpha")
    if own is not None and np.ndim(own) == 1 and np.size(own) > 1:
        return Reading(lambda X, p: core.predict(X), tuple(map(float, own)))
    name, _, level = str(settings.get("loss_function")).partition(":alpha=")
    if name == "MultiQuantile":
        return Reading(lambda X, p: core.predict(X), tuple(map(float, level.split(","))))
    if name == "RMSEWithUncertainty":
        return Reading(lambda X, p: _normal(*_mean_and_deviation(core, X), p))
    return None


def _any_reading(core: Any) -> Reading:
    """How any model is asked that was given together with probabilities."""
    if "return_std" in _parameters(learnt(core, "predict")):

        def stated(X: Any, p: Sequence[float]) -> Any:
            mean, deviation = core.predict(X, return_std=True)
            return _normal(mean, deviation, p)

        return Reading(stated)

    def ask(X: Any, p: Sequence[float]) -> Any:
        answer: Any = outputs(core, X) if is_module(core) else (learnt(core, "predict") or core)(X)
        if is_tensor(answer):
            return answer.detach().cpu().numpy()
        array_like = hasattr(answer, "__array__") or isinstance(answer, Sequence)
        return answer if array_like else _of_distribution(answer, p)

    return Reading(ask)


def _of_several(models: Mapping[Any, Any] | Sequence[Any]) -> Reading:
    """The reading of models of one quantile each, by probability or in a list."""
    each = list(models.values()) if isinstance(models, Mapping) else list(models)
    levels: list[Any] = (
        list(models) if isinstance(models, Mapping) else [_level_of(model) for model in models]
    )
    known = all(isinstance(level, float) for level in levels)
    if isinstance(models, Mapping) and not known:
        raise CalliperError(
            f"a dict of models must have their probabilities as keys, as {{0.05: low, 0.5: middle, "
            f"0.95: high}}; got {levels}."
        )
    return Reading(
        lambda X, p: [predictions(model, X) for model in each], tuple(levels) if known else None
    )


def _level_of(model: Any) -> float | None:
    """The one quantile that a model was trained for, by its parameters; None if they say none."""
    core = _core(model)
    settings = core.get_params() if hasattr(core, "get_params") else {}
    name, _, level = str(settings.get("loss_function")).partition(":alpha=")
    quantile_loss = "quantile" in (settings.get("loss"), settings.get("objective"))
    found = (
        *(settings.get("quantile"), settings.get("quantile_alpha")),
        settings.get("alpha") if quantile_loss else None,
        level if name == "Quantile" else None,
    )
    return next((float(each) for each in found if each is not None), None)


def _parameters(method: Any) -> set[str]:
    """Names of the parameters of a method; none if it does not tell."""
    try:
        return {*signature(method).parameters}
    except (TypeError, ValueError):
        return set()


def _of_distribution(distribution: Any, p: Sequence[float]) -> list[Any]:
    """Quantiles of the distributions of all rows, a column each."""
    ppf = learnt(distribution, "ppf")
    if ppf is None:
        raise CalliperError(
            f"a predicted distribution must tell its quantiles by ppf(p); got a "
            f"{type(distribution).__name__}: pass a function that returns (m, K) quantiles."
        )
    return [np.asarray(ppf(each), dtype=np.float64).reshape(-1) for each in p]


def _mean_and_deviation(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation by CatBoost, which predicts the variance."""
    mean, variance = np.asarray(core.predict(X, prediction_type="RMSEWithUncertainty")).T
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _normal(mean: FloatArray, deviation: FloatArray, p: Sequence[float]) -> list[FloatArray]:
    """Quantiles of normal distributions, a column each."""
    return [np.asarray(mean) + z * np.asarray(deviation) for z in ndtri(p)]


def _columns(ask: Callable[[Any], Any], X: Any, k: int) -> FloatArray:
    """The answer for the rows of X as (m, k); refused if it is not k quantiles a row."""
    m = n_rows(X)
    if m == k:  # rows could be taken for columns
        return _columns(ask, _safe_indexing(indexable(X)[0], [*range(m), 0]), k)[:m]
    answer = np.asarray(ask(X))
    if answer.shape == (k, m):
        answer = answer.T
    if answer.shape != (m, k):
        raise CalliperError(
            f"the model must predict {k} quantiles for each of {m} rows, shape ({m}, {k}); it gave "
            f"shape {answer.shape}. Give DistributionError one probability for each column."
        )
    return answer


def _listed(p: Sequence[float]) -> str:
    return ", ".join(f"{each:g}" for each in p)
