"""Models that predict quantiles or a distribution, and the call that gives quantiles of rows.

| model | known by | call |
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
returns this many quantiles, or the distributions of all rows (an object that has ``ppf``), and one
whose ``predict`` takes ``return_std``. Without that score, the last are asked for the mean, and
their deviation says where errors are large (:class:`StatedDeviation`).

A bootstrapped quantile forest also tells of its training rows, by the trees that left them out.

Answers become (m, K), also if they come transposed; if m = K, where both look the same, one more
row is predicted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple, Self
from warnings import catch_warnings

import numpy as np
from scipy.special import ndtri
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metaestimators import available_if

from calliper._handlers import in_memory
from calliper._types import FloatArray, IntArray
from calliper._validation import check_new_rows, n_rows
from calliper.exceptions import CalliperError
from calliper.models._asking import (
    AroundModel,
    ModelFamily,
    answer_of,
    each_of,
    fresh,
    learnt,
    open_model,
    parameters,
    predictions,
    refuse_crashing,
    routed,
)
from calliper.models._forests import Members
from calliper.rows import check_known_rows, first_rows, same_rows
from calliper.scores import DistributionError, QuantileError, Score, as_score

#: Asked of a model that answers at any: enough for the shape, and few to compute with.
PROBABILITIES = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995),
)
#: CatBoost's loss of models that predict mean and variance.
MOMENTS = "RMSEWithUncertainty"
#: Training rows that the usual slope is read from, at most.
N_ROWS = 1000


class Reading(NamedTuple):
    """How a model gives quantiles of rows; ``own`` are the only probabilities it has, or None."""

    ask: Callable[[Any, Sequence[float]], Any]
    own: tuple[float, ...] | None = None


def asked_as(model: Any, score: Any) -> tuple[Any, Score]:
    """What is asked for predictions, and their score: the model itself, unless of quantiles.

    A ``DistributionError`` says which quantiles; with None the model must be known to have some.
    """
    if score is not None and not isinstance(score, DistributionError):
        if isinstance(score, QuantileError) and _loss_of(open_model(model).core)[0] == MOMENTS:
            what = "takes quantiles, but the model predicts mean and variance"
            how = "leave out score_function, or pass QuantileModel(model)"
            raise CalliperError(f"QuantileError {what} ({MOMENTS}): {how}.")
        return model, as_score(score)
    core = open_model(model).core
    is_asked, reading = isinstance(core, QuantileModel), _reading(core)
    own: Any = _probabilities(core.probabilities) if is_asked else reading and reading.own
    if score is None:
        if reading is None and not is_asked:
            return model, as_score(None)
        if own is None and isinstance(core, Sequence):
            what = "not every model in the list has a parameter that states its quantile"
            raise CalliperError(f"{what}: pass a dict, such as {{0.05: low, 0.95: high}}.")
        score = DistributionError(own or PROBABILITIES)
    asked = _probabilities(score.probabilities)
    if own is not None:
        _indices(own, asked)
    return (model if is_asked else AskedForQuantiles(model, asked)), score


def quantiles_out_of_bag(model: Any, X: Any, y: FloatArray) -> tuple[IntArray, FloatArray] | None:
    """Training rows of a forest, and quantiles from trees that left them out; None if unknown."""
    if not isinstance(model, AskedForQuantiles):
        return None
    opened = open_model(model.estimator)
    takes = parameters(learnt(opened.core, "predict"))
    if not {"quantiles", "oob_score", "indices"} <= takes or y.ndim > 1:
        return None
    forest, rows = Members(opened.core), opened.prepare(X)
    bags = forest.bags(forest.rows(rows), opened.core_targets(y))
    if bags is None:
        return None
    kept = np.flatnonzero(np.sum([np.bincount(bag, minlength=len(y)) == 0 for bag in bags], axis=0))
    if not len(kept):
        return None
    how = {"quantiles": list(_probabilities(model.probabilities)), "oob_score": True}
    with catch_warnings(action="ignore", category=UserWarning):  # of names, once for each tree
        q = opened.core.predict(_safe_indexing(rows, kept), indices=list(kept), **how)
    q = np.asarray(q).reshape(len(kept), -1)
    known = np.isfinite(q).all(axis=1)  # the forest knows no rows beyond its own
    return kept[known], np.stack([opened.finish(column) for column in q[known].T], axis=1)


def with_usual_slope(score: DistributionError, model: Any, X_train: Any) -> DistributionError:
    """The score, with the median slope of training-row curves unless it already has one."""
    if score.slope is not None or X_train is None:
        return score
    n = n_rows(X_train)
    some = _safe_indexing(indexable(X_train)[0], np.arange(0, n, -(-n // N_ROWS)))
    usual = float(np.median(score.mean_slope(predictions(model, some, score.n_outputs))))
    usable = np.isfinite(usual) and usual > 0
    return DistributionError(score.probabilities, slope=usual) if usable else score


class StatedDeviation(ModelFamily):
    """A model whose ``predict`` can also return the standard deviation."""

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        return "return_std" in parameters(learnt(core, "predict"))

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,) and the stated deviation (1, m)."""
        _, deviation = self.core.predict(rows, return_std=True)
        return predictions(self.core, rows), np.asarray(deviation, np.float64).reshape(1, -1)

    def describe(self) -> str:
        return f"standard deviation by {type(self.core).__name__}"

    def unit(self) -> float | None:
        """Standard deviation of the training targets, where the model has kept them."""
        targets, scale = learnt(self.core, "y_train_"), learnt(self.core, "_y_train_std")
        if targets is None:
            return None
        return float(np.std(targets) * np.mean(1.0 if scale is None else scale))


class QuantileModel(AroundModel):
    """A model of quantiles or distributions whose ``predict`` returns quantiles, (m, K).

    ``ConformalRegressor`` wraps every model that it knows to be one. Make it yourself to train
    one: quantile regressors, one for each probability, for ``DistributionError``, which
    serves all levels, or a pair of them for ``QuantileError`` and ``Split``, which is conformalised
    quantile regression (CQR) at the level of the pair.

    Parameters
    ----------
    estimator : model of quantiles, fitted or not
        A quantile regressor is cloned and trained for each probability, which is set through its
        parameter: ``quantile`` (``QuantileRegressor``,
        ``HistGradientBoostingRegressor(loss="quantile")``), ``alpha`` with ``loss`` or
        ``objective`` equal to ``"quantile"`` (``GradientBoostingRegressor``, LightGBM),
        ``quantile_alpha`` with ``objective="reg:quantileerror"`` (XGBoost), or
        ``loss_function="Quantile"`` (CatBoost); inside a pipeline too. A dict of models by
        probability, and any model that returns several quantiles, is used as it is.
    probabilities : (K,) numbers between 0 and 1, default (0.05, 0.95)
        Of the columns, in their order: the ends and, for ``QuantileError("median")``, 0.5 between.

    Attributes
    ----------
    estimator_ : the trained model, or a dict of one for each probability

    Examples
    --------
    Conformalised quantile regression, from a model that is not fitted:

    >>> from sklearn.linear_model import QuantileRegressor
    >>> from calliper import ConformalRegressor, QuantileError, Split
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 1))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=1000)
    >>> pair = QuantileModel(QuantileRegressor(alpha=0), [0.05, 0.95])
    >>> model = ConformalRegressor(pair, Split(), score_function=QuantileError(), random_state=0)
    >>> model.fit(X, y).predict_interval([[0.1], [0.9]], coverage=0.9).width.round(1)
    array([0.4, 3.1])
    >>> pair.fit(X, y).predict([[0.5]]).round(1)
    array([[-0.4,  1.3]])
    """

    def __init__(self, estimator: Any, probabilities: Sequence[float] = (0.05, 0.95)) -> None:
        self.estimator = estimator
        self.probabilities = probabilities

    @available_if(  # type: ignore[untyped-decorator]
        lambda self: all(learnt(model, "fit") for model in each_of(self.estimator))
    )
    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Train a copy of the model, or one for each quantile; ``fit_params`` go to each."""
        probabilities = _probabilities(self.probabilities)
        y, _ = same_rows(X, "X", y=y, sample_weight=fit_params.get("sample_weight"))
        y = check_known_rows(self, X, y)
        fit_params = routed(self, fit_params)
        several, known = self.estimator, _reading(open_model(self.estimator).core) is not None
        if name := None if known else _quantile_parameter(several):
            # CatBoost takes the level within the name of the loss.
            within = name.endswith(("loss_function", "objective"))
            form = "Quantile:alpha={}".format if within else float
            several = {p: fresh(several).set_params(**{name: form(p)}) for p in probabilities}
        if isinstance(several, Mapping):
            self.estimator_ = {p: fresh(m).fit(X, y, **fit_params) for p, m in several.items()}
        else:
            trained: Any = [fresh(m).fit(X, y, **fit_params) for m in each_of(several)]
            self.estimator_ = trained if isinstance(several, list | tuple) else trained[0]
        self.predict(first_rows(X))  # a model that has no quantiles is refused here
        return self

    def predict(self, X: Any) -> FloatArray:
        """Quantiles of each row in the order of the probabilities, (m, K)."""
        trained = vars(self).get("estimator_")
        if trained is not None:
            check_new_rows(self, X)
        opened = open_model(self.estimator if trained is None else trained)
        reading = _reading(opened.core) or _any_reading(opened.core)
        asked = _probabilities(self.probabilities)
        own = asked if reading.own is None else reading.own
        refuse_crashing(opened.core, X)
        found = _columns(lambda rows: reading.ask(rows, own), opened.prepare(X), own)
        q = np.stack([opened.finish(column) for column in found.T], axis=1)
        kept = np.sign(np.diff(found)) * np.sign(np.diff(q))
        if kept.max(initial=-1) <= 0 > kept.min(initial=0):
            why = "the transform of the target decreases, which swaps quantiles at p and 1 − p"
            raise CalliperError(f"{why}: change its sign, so that it increases.")
        return q[:, _indices(own, asked)]


def without_asking(model: Any) -> Any:
    """The model inside a wrapper that asks for quantiles; any other unchanged."""
    return model.estimator if isinstance(model, AskedForQuantiles) else model


class AskedForQuantiles(QuantileModel):
    """One that ``ConformalRegressor`` made around the user's model."""


def _probabilities(given: Any) -> tuple[float, ...]:
    score = DistributionError(given)
    score.n_outputs  # noqa: B018 - refuses probabilities that are none
    return tuple(map(float, score.probabilities))


def _indices(own: Sequence[float], asked: Sequence[float]) -> list[int]:
    """Which of a model's own probabilities each that is asked for is, up to rounding."""
    indices = [int(np.argmin(np.abs(np.subtract(own, p)))) for p in asked]
    if not np.allclose(np.take(own, indices), asked, rtol=0, atol=1e-6):
        has, wanted = (", ".join(f"{p:g}" for p in each) for each in (own, asked))
        what = f"the model predicts quantiles at {has}, but score_function (or QuantileModel)"
        raise CalliperError(f"{what} expects {wanted}: give it the model's own quantiles.")
    return indices


#: Which parameter sets the quantile, for each parameter that names the quantile loss.
QUANTILE_PARAMETERS = {
    ("loss", "quantile"): ("quantile", "alpha"),
    ("objective", "quantile"): ("alpha",),
    ("objective", "reg:quantileerror"): ("quantile_alpha",),
    ("loss_function", "Quantile"): ("loss_function",),
    ("objective", "Quantile"): ("objective",),
}


def _loss_of(given: Any) -> tuple[str, dict[str, str]]:
    """Name and options of a loss of CatBoost, ``"Quantile:alpha=0.9;delta=0.1"``, or a model's."""
    if hasattr(given, "get_params"):
        known = given.get_params()
        given = known.get("objective") or known.get("loss_function")
    name, _, options = (given if isinstance(given, str) else "").partition(":")
    return name, dict(each.split("=", 1) for each in options.split(";") if "=" in each)


def _quantile_parameter(estimator: Any) -> str | None:
    """Name of the one parameter, perhaps nested, that sets the quantile to learn; or None."""
    parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
    found = {name for key in parameters for name in _levels_of(str(key), parameters)}
    if len(found) > 1:
        what = "QuantileModel needs an estimator with one parameter that sets the quantile"
        got = f"got {estimator!r}, which has several: {', '.join(sorted(found))}"
        how = "Pass a dict of models, such as {0.05: low, 0.95: high}"
        raise CalliperError(f"{what}; {got}. {how}.")
    return found.pop() if found else None


def _levels_of(name: str, parameters: dict[str, Any]) -> Iterator[str]:
    """Parameters that set the quantile, if ``name`` says that one is learnt."""
    prefix, separator, last = name.rpartition("__")
    owner = f"{prefix}{separator}"
    if last == "quantile" and f"{owner}loss" not in parameters:  # QuantileRegressor
        yield name
    loss = parameters[name] if isinstance(parameters[name], str) else ""
    loss = loss if (last, loss) in QUANTILE_PARAMETERS else _loss_of(loss)[0]
    known = QUANTILE_PARAMETERS.get((last, loss), ())
    # XGBoost and LightGBM take parameters that they do not list.
    listed = [f"{owner}{level}" for level in known if f"{owner}{level}" in parameters]
    yield from listed or [f"{owner}{level}" for level in known[:1]]


def _reading(core: Any) -> Reading | None:
    """How a model that is known to predict quantiles gives them; None for any other."""
    if isinstance(core, Mapping | list | tuple):
        return _of_several(core)
    takes = parameters(learnt(core, "predict"))
    how = {"output_type": "quantiles"} if "output_type" in takes else {}
    word = "alphas" if how and "alphas" in takes else "quantiles"
    if word in takes:
        return Reading(lambda X, p: core.predict(X, **{word: list(p)}, **how))
    if hasattr(core, "pred_dist"):
        return Reading(lambda X, p: _of_distribution(core.pred_dist(X), p))
    if hasattr(core, "predict_quantiles"):
        return Reading(lambda X, p: core.predict_quantiles(X, alpha=list(p)))
    settings = core.get_params() if hasattr(core, "get_params") else {}
    name, options = _loss_of(core)
    several = name == "MultiQuantile" and "alpha" in options
    own: Any = options["alpha"].split(",") if several else settings.get("quantile_alpha")
    if several or (np.ndim(own) == 1 and np.size(own) > 1):
        return Reading(lambda X, p: core.predict(X), tuple(map(float, own)))
    if name == MOMENTS:

        def ask(X: Any, p: Sequence[float]) -> Any:
            mean, variance = np.asarray(core.predict(X, prediction_type=name)).T
            return _normal((mean, np.sqrt(np.maximum(variance, 0.0))), p)

        return Reading(ask)
    return None


def _any_reading(core: Any) -> Reading:
    """How any model that comes with probabilities gives quantiles."""
    if "return_std" in parameters(learnt(core, "predict")):
        return Reading(lambda X, p: _normal(core.predict(X, return_std=True), p))

    def ask(X: Any, p: Sequence[float]) -> Any:
        answer = in_memory(answer_of(core, X))
        array_like = hasattr(answer, "__array__") or isinstance(answer, Sequence)
        return answer if array_like else _of_distribution(answer, p)

    return Reading(ask)


def _of_several(models: Any) -> Reading:
    """How to read one model per quantile, keyed by probability or in a list."""
    by_level = isinstance(models, Mapping)
    each = each_of(models)
    if not each:
        raise CalliperError(f"pass two models or more, one for each quantile; got {models!r}.")
    levels: list[Any] = list(models) if by_level else [_level_of(model) for model in models]
    known = all(isinstance(level, Real) for level in levels)
    if by_level and not known:
        form = "{0.05: low, 0.5: middle, 0.95: high}"
        what = f"the keys of a dict of models must be probabilities, such as {form}"
        raise CalliperError(f"{what}; got {levels}.")
    own = tuple(map(float, levels)) if known else None
    return Reading(lambda X, p: [predictions(model, X) for model in each], own)


def _level_of(model: Any) -> float | None:
    """The one quantile that a model was trained for, by its parameters; None if they say none."""
    core = open_model(model).core
    name = _quantile_parameter(core)
    level = core.get_params().get(name) if name else None
    if isinstance(level, str):  # CatBoost: "Quantile:alpha=0.9"
        level = _loss_of(level)[1].get("alpha")
    return None if level is None else float(level)


def _of_distribution(distribution: Any, p: Sequence[float]) -> list[Any]:
    """Quantiles of the distributions of all rows, a column each."""
    ppf = learnt(distribution, "ppf")
    if ppf is None:
        what = "a predicted distribution must have ppf(p), its quantiles"
        how = "pass a function that returns (m, K) quantiles"
        raise CalliperError(f"{what}; got {type(distribution).__name__}: {how}.")
    return [np.asarray(ppf(each), dtype=np.float64).reshape(-1) for each in p]


def _normal(moments: Any, p: Sequence[float]) -> list[FloatArray]:
    """Quantiles of normal distributions with these means and deviations, a column each."""
    mean, deviation = map(np.asarray, moments)
    return [mean + z * deviation for z in ndtri(p)]


def _named(labels: Any) -> list[float]:
    """Probabilities that label columns, in their last level; none if these are anything else."""
    with suppress(TypeError, ValueError):
        p = [float(each[-1] if isinstance(each, tuple) else each) for each in labels]
        return p if all(0 < each < 1 for each in p) else []
    return []


def _columns(ask: Callable[[Any], Any], X: Any, own: Sequence[float]) -> FloatArray:
    """The answer for the rows of X as (m, k); refused if it is not k quantiles a row."""
    m, k = n_rows(X), len(own)
    if m == k:  # rows could be taken for columns
        return _columns(ask, _safe_indexing(indexable(X)[0], [*range(m), 0]), own)[:m]
    given = ask(X)
    answer, labels = np.asarray(given), getattr(given, "columns", None)
    if np.ma.is_masked(given):
        raise CalliperError(f"{given.mask.sum()} of {answer.size} quantiles are masked: fill them.")
    if answer.shape == (k, m):
        answer, labels = answer.T, ()
    if answer.shape != (m, k):
        how = "Give DistributionError one probability for each column."
        if answer.ndim == 1:
            losses = ", ".join(f"{name}={loss!r}" for name, loss in QUANTILE_PARAMETERS)
            how = f"Give it a quantile loss ({losses}); QuantileModel then sets each quantile."
        what = f"the model must predict {k} quantiles for each of {m} rows, shape ({m}, {k})"
        raise CalliperError(f"{what}; it gave shape {answer.shape}. {how}")
    named = _named(labels)
    return answer[:, _indices(named, own)] if named else answer
