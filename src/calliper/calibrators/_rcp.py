"""RCP: divide the score by an estimate of its conditional quantile.

A model τ̂ of the (1−α)-quantile of the error, learnt on training errors, would be the perfect
radius if it were right. Calibration scores are divided by it, and the Q-th smallest ratio, near one
for a good model, rectifies it:

    σ_i = s_i / τ̂(X_i),    Δ(x) = τ̂(x) · σ_(Q),    Q = ⌈(1−α)(N+1)⌉.

Letters: τ̂ → ``quantile_regressor`` or ``kernel``, fitted once for each level asked for. It is
MADSplit with a quantile in place of the mean; an estimate below 0 counts as 0.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties. The better τ̂, the closer coverage is
to 1−α at each input.

A distribution has all levels and one scale: it takes τ̂ of the level ``OF_DISTRIBUTION``. Any fixed
function would do, so its quantiles are valid, though not those of the radius.

Reference: Plassier, Fishkov, Dheur, Guizani, Ben Taieb, Panov, Moulines (2025), "Rectifying
conformity scores for better conditional coverage", ICML, arXiv:2502.16336.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Array, Field, Inline
from calliper._trees import BoostedSum
from calliper._types import FloatArray
from calliper._validation import check_offset, check_vector, warn_if_zero_scales
from calliper.calibrators._calibrator import Calibrator
from calliper.declarations import About, Uses
from calliper.distribution import Distribution
from calliper.kernels import rescale
from calliper.quantile import Shares, rescaled_back
from calliper.rows import Rows

#: The quantile of the errors that rescales those of a distribution.
OF_DISTRIBUTION = 0.75


@dataclass(eq=False, repr=False)
class RCP(Calibrator):
    """Split conformal with scores rectified by a quantile regression of training errors.

    Each level has its own regression: with few points, radii need not grow with the level.

    Parameters
    ----------
    quantile_regressor : scikit-learn regressor, optional
        Cloned and fitted to the training errors with its parameter ``quantile`` set to the level;
        by default ``HistGradientBoostingRegressor(loss="quantile")`` with trees of 8 leaves.
    kernel : KNN, optional
        Instead of a regressor: the ⌈(1−α)K⌉-th smallest error of the K nearest training points.
    offset : float, default 0
        Constant added to every estimate, in the unit of y; choose it without calibration data.
    random_state : int, RandomState or None
        Seeds the default regressor.

    Examples
    --------
    >>> from calliper import KNN
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = RCP(kernel=KNN(50)).fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.47])
    """

    uses = Uses("signs", "weights", needs=("training", "errors"), learns="a quantile")
    about = About(
        cli="rcp",
        width="a learnt quantile of training errors, times a constant",
        when="with many features and many training rows",
        cost="a fit to n rows and N + M predictions, for each level",
        order=8,
        neighbors="kernel",
        usual_neighbors="trees instead",
    )
    has_law = True
    has_distribution = True

    learns: ClassVar[Mapping[str, Field]] = {
        "at_": Array("float64", ("k",), least=0, most=1),
        "sums_": Inline(BoostedSum, several=True),
    }

    quantile_regressor: Any = None
    _: KW_ONLY
    kernel: Any = None
    offset: float = 0.0
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        check_offset(self.offset)
        self._model, self._local = self._chosen_model(), None
        if self.kernel is not None:
            self._local = self._model.local_quantile(self._training.Z, self._training.scores)
        self._signed = None
        levels, sums = self._once("at_", lambda: np.empty(0)), self._once("sums_", tuple)
        self.models_: dict[float, Any] = dict(zip(levels.tolist(), sums, strict=True))
        self._thresholds = {}

    def for_file(self) -> dict[str, Any]:
        """As every method; and its own trees. Those of another regressor are grown again."""
        own = self.models_ if self.quantile_regressor is None else {}
        self.at_ = np.array(sorted(own), dtype=np.float64)
        models = [own[level] for level in self.at_.tolist()]
        self.sums_ = [m if isinstance(m, BoostedSum) else BoostedSum.of(m) for m in models]
        return super().for_file()

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        return rescaled_back(self._scale(Z, levels), self._level_thresholds(levels, shares))

    def predict_distribution(self, Z: Any, y_pred: Any, **how: Any) -> Distribution:
        """As every method's; the quantile of one level is estimated when first asked for."""
        check_is_fitted(self)
        if self._signed is None:
            self._keep_signed(rescale(self._rows.scores, self._local_scale(self._rows.Z)))
        return super().predict_distribution(Z, y_pred, **how)

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        return self._scale(Z, [OF_DISTRIBUTION])[:, 0]

    def _chosen_model(self) -> Any:
        """KNN or a regressor with a parameter ``quantile``."""
        if self.kernel is not None:
            if self.quantile_regressor is not None:
                raise ValueError("pass a quantile_regressor or a kernel, not both.")
            if not getattr(self.kernel, "counts_neighbors", False):
                raise TypeError(f"kernel must be KNN(...); got {self.kernel!r}.")
            return self.kernel.resolved()
        if self.quantile_regressor is None:
            from sklearn.ensemble import HistGradientBoostingRegressor

            model = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, max_leaf_nodes=8)
            return model.set_params(random_state=self.random_state)
        parameters: dict[str, Any] = getattr(self.quantile_regressor, "get_params", dict)()
        if "quantile" not in parameters or parameters.get("loss", "quantile") != "quantile":
            raise TypeError(
                f"quantile_regressor must estimate the quantile that its parameter quantile names, "
                f"as QuantileRegressor() or HistGradientBoostingRegressor(loss='quantile') do; got "
                f"{self.quantile_regressor!r}."
            )
        return self.quantile_regressor

    def _at_levels(self, levels: list[float]) -> FloatArray:
        """σ_i at each level, (N, L)."""
        scale = self._scale(self._rows.Z, levels)
        warn_if_zero_scales(scale.min(axis=1))
        return rescale(self._rows.scores[:, None], scale)

    def _scale(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        """τ̂ at each row and level, at least 0, plus the offset: (m, L)."""
        estimate = self._local or self._regress
        return np.maximum(estimate(Z, levels), 0.0) + self.offset

    def _regress(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        estimate = np.empty((len(Z), len(levels)))
        for column, level in enumerate(levels):
            if level not in self.models_:
                model = clone(self._model).set_params(quantile=level)
                model.fit(self._training.Z, self._training.scores)
                # Of several threads' models the first is everyone's, as its threshold is.
                self.models_.setdefault(level, model)
            predicted = self.models_[level].predict(Z)
            estimate[:, column] = check_vector(predicted, "predicted quantiles", n=len(Z))
        return estimate
