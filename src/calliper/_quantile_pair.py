"""A lower and an upper quantile from any quantile regressor: the model side of CQR.

For coverage 1−α the quantiles at α/2 and 1−α/2 are predicted (and the median, if asked for), each
by a clone of one estimator trained for that quantile, or by one forest that predicts them all.
With ``QuantileError`` and ``Split`` the pair becomes conformalised quantile regression.

The pair is trained for *one* level. Intervals may be asked for at any other level too and keep
their guarantee, but then the radius has to move the ends further, by the same rule everywhere;
train a pair for each level that matters. A model of three quantiles or more needs no pair: it goes
into ``ConformalRegressor`` as it is, and ``DistributionError`` serves every level.

References: Koenker, Bassett (1978), "Regression quantiles", doi:10.2307/1913643. Romano,
Patterson, Candès (2019), "Conformalized quantile regression", arXiv:1905.03222.
"""

from collections.abc import Iterator
from inspect import signature
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from calliper._types import FloatArray
from calliper._validation import check_known_rows, check_level, check_new_rows, n_rows
from calliper.exceptions import CalliperError
from calliper.models import fit_router, fresh, predictions, routed, takes_sparse
from calliper.quantile import as_fraction
from calliper.rows import same_rows


class QuantilePair(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Quantile regressors for the two ends of an interval; predicts (m, 2), or (m, 3).

    Parameters
    ----------
    estimator : quantile regressor
        Cloned and trained for each quantile, which is set through its parameter: ``quantile``
        (``QuantileRegressor``, ``HistGradientBoostingRegressor(loss="quantile")``), ``alpha`` with
        ``loss`` or ``objective`` equal to ``"quantile"`` (``GradientBoostingRegressor``,
        LightGBM), ``quantile_alpha`` with ``objective="reg:quantileerror"`` (XGBoost), or
        ``loss_function="Quantile"`` (CatBoost); inside a pipeline too. A forest whose method is
        ``predict(X, quantiles=[...])`` is trained once.
    coverage : float, default 0.9
        The level that the pair is trained for: quantiles at (1 ∓ coverage)/2.
    median : bool, default False
        Whether to predict the median between them, for ``QuantileError("median")``.

    Attributes
    ----------
    quantiles_ : levels of the columns, increasing
    estimators_ : the fitted regressors, one a column, or the one forest

    Examples
    --------
    Conformalised quantile regression, from a model that is not fitted:

    >>> from sklearn.linear_model import QuantileRegressor
    >>> from calliper import ConformalRegressor, QuantileError, Split
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 1))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=1000)
    >>> pair = QuantilePair(QuantileRegressor(alpha=0), coverage=0.9)
    >>> model = ConformalRegressor(pair, Split(), score_function=QuantileError(), random_state=0)
    >>> model.fit(X, y).predict_interval([[0.1], [0.9]], coverage=0.9).width.round(1)
    array([0.4, 3.1])
    >>> pair.fit(X, y).quantiles_, pair.predict([[0.5]]).round(1)
    ((0.05, 0.95), array([[-0.4,  1.3]]))
    """

    def __init__(self, estimator: Any, coverage: float = 0.9, *, median: bool = False) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.median = median

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Train a copy for each quantile; ``fit_params`` go to ``fit`` of each."""
        level = as_fraction(check_level(self.coverage))
        middle = (0.5,) if self.median else ()
        quantiles = (float((1 - level) / 2), *middle, float((1 + level) / 2))
        name = _quantile_parameter(self.estimator)
        y, _ = same_rows(X, "X", y=y, sample_weight=fit_params.get("sample_weight"))
        y = check_known_rows(self, X, y)
        fit_params = routed(self, fit_params)
        # CatBoost takes the level within the name of the loss.
        form = "Quantile:alpha={}".format if name.endswith("loss_function") else float
        settings: list[Any] = [{name: form(q)} for q in quantiles] if name else [{}]
        self.estimators_ = tuple(
            fresh(self.estimator).set_params(**s).fit(X, y, **fit_params) for s in settings
        )
        self.quantiles_ = quantiles
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.estimator)
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """How fit parameters travel, for scikit-learn's metadata routing."""
        return fit_router(self)

    def predict(self, X: Any) -> FloatArray:
        """Quantiles of each row, by increasing level: (m, 2), or (m, 3) with the median."""
        check_is_fitted(self)
        check_new_rows(self, X)
        if len(self.estimators_) == 1:
            columns = self.estimators_[0].predict(X, quantiles=list(self.quantiles_))
            return np.asarray(columns, dtype=np.float64).reshape(n_rows(X), len(self.quantiles_))
        return np.stack([predictions(model, X) for model in self.estimators_], axis=1)


#: Which parameter sets the quantile, for each parameter that names the quantile loss.
QUANTILE_PARAMETERS = {
    ("loss", "quantile"): ("quantile", "alpha"),
    ("objective", "quantile"): ("alpha",),
    ("objective", "reg:quantileerror"): ("quantile_alpha",),
    ("loss_function", "Quantile"): ("loss_function",),
}


@runtime_checkable
class _Regressor(Protocol):
    """What every library's regressors have."""

    def get_params(self) -> dict[str, Any]: ...

    def predict(self, X: Any) -> Any: ...


def _quantile_parameter(estimator: Any) -> str:
    """Name of the one parameter that sets the quantile to learn, perhaps nested.

    Empty for forests that predict all quantiles at once.
    """
    parameters: dict[str, Any] = {}
    if isinstance(estimator, _Regressor):
        if "quantiles" in signature(estimator.predict).parameters:
            return ""
        parameters = estimator.get_params()
    found = {name for key in parameters for name in _levels_of(str(key), parameters)}
    if len(found) != 1:
        problem = f"it has several: {', '.join(sorted(found))}" if found else "it has none"
        raise CalliperError(
            f"QuantilePair needs an estimator with one parameter for the quantile to learn, such "
            f"as HistGradientBoostingRegressor(loss='quantile') or QuantileRegressor(); got "
            f"{estimator!r}: {problem}. A parameter counts only if the loss is the quantile loss."
        )
    return found.pop()


def _levels_of(name: str, parameters: dict[str, Any]) -> Iterator[str]:
    """Parameters that set the quantile, if ``name`` says that one is learnt."""
    prefix, separator, last = name.rpartition("__")
    owner = f"{prefix}{separator}"
    if last == "quantile" and f"{owner}loss" not in parameters:  # QuantileRegressor
        yield name
    loss = str(parameters[name]).partition(":")[0] if last == "loss_function" else parameters[name]
    known = QUANTILE_PARAMETERS.get((last, loss), ()) if isinstance(loss, str) else ()
    # XGBoost and LightGBM take parameters that they do not list.
    listed = [f"{owner}{level}" for level in known if f"{owner}{level}" in parameters]
    yield from listed or [f"{owner}{level}" for level in known[:1]]
