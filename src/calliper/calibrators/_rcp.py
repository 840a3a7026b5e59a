"""RCP: divide the score by an estimate of its conditional quantile.

A model τ̂ of the (1−α)-quantile of the error, learnt on training errors, would be the perfect
radius if it were right. Calibration scores are divided by it, and the Q-th smallest ratio, near
one for a good model, rectifies it:

    σ_i = s_i / τ̂(X_i),    Δ(x) = τ̂(x) · σ_(Q),    Q = ⌈(1−α)(N+1)⌉.

Letters: τ̂ → ``quantile_regressor`` or ``kernel``, fitted anew for each level asked for and kept,
s_i → ``scores``. It is MADSplit with a quantile in place of the mean. An estimate below 0 counts
as 0, the offset is added, and a scale of 0 makes the rescaled score infinite, as everywhere.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties. The better τ̂, the closer coverage
is to 1−α at each input.

Cost at each level: one fit of the regressor on n training points and N + M predictions; with KNN
no fit, and a search for K neighbours of N + M rows.

Reference: Plassier, Fishkov, Dheur, Guizani, Ben Taieb, Panov, Moulines (2025), "Rectifying
conformity scores for better conditional coverage", ICML, arXiv:2502.16336.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_features,
    check_levels,
    check_new_features,
    check_offset,
    check_scores,
    check_vector,
    each_level,
    like_coverage,
    warn_if_too_few,
    warn_if_zero_scales,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.kernels import rescale
from calliper.quantile import conformal_rank, order_statistic


class RCP(BaseEstimator):  # type: ignore[misc]
    """Split conformal with scores rectified by a quantile regression of training errors.

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
        Seeds the default regressor, or settles ties in distance.

    Examples
    --------
    >>> from calliper import KNN
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = RCP(kernel=KNN(50)).fit(Z[0], errors[0], Z_train=Z[1], scores_train=errors[1])
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.47])
    """

    needs: tuple[str, ...] = ("Z_train", "scores_train")
    judges_nearness = True
    uses_left_out = False

    def __init__(
        self,
        quantile_regressor: Any = None,
        *,
        kernel: Any = None,
        offset: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.quantile_regressor = quantile_regressor
        self.kernel = kernel
        self.offset = offset
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, scores_train: Any = None) -> Self:
        """Keep both sets, calibration and training; the model waits for the level it is for."""
        Z, scores = check_calibration(self, Z, scores)
        scores = check_scores(scores)
        if Z_train is None or scores_train is None:
            raise CalliperError(
                "RCP learns a quantile of training errors: pass Z_train and scores_train to fit "
                "(X_train and y_train to ConformalRegressor.calibrate). Without training data, "
                "use FullRescaled(statistic='quantile'), which needs none."
            )
        Z_train = check_features(Z_train, "Z_train")
        if Z_train.shape[1] != Z.shape[1]:
            raise CalliperError(f"Z_train has {Z_train.shape[1]} columns, Z has {Z.shape[1]}.")
        scores_train = check_scores(scores_train, "scores_train", n=len(Z_train))
        check_offset(self.offset)
        self._model, self._local = self._chosen_model(), None
        if self.kernel is not None:
            priorities = check_random_state(self.random_state).uniform(size=len(Z_train))
            self._local = self._model.local_quantile(Z_train, scores_train, priorities)
        self._training, self._calibration = (Z_train, scores_train), (Z, scores)
        self.n_calibration_ = len(scores)
        self.models_: dict[float, Any] = {}
        self._thresholds: dict[float, float] = {}
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """τ̂(x) times the Q-th smallest rectified score: (m,), or (m, L) for L levels."""
        check_is_fitted(self)
        Z, levels = check_new_features(self, Z), check_levels(coverage)
        warn_if_too_few(self.n_calibration_, levels)
        threshold = self._threshold(levels)
        with np.errstate(invalid="ignore", over="ignore"):
            radius = np.where(np.isinf(threshold), np.inf, self._scale(Z, levels) * threshold)
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several; at least 1 − α."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("RCP", coverage, self.n_calibration_, proved, has_law=True)

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

    def _threshold(self, levels: Sequence[float]) -> FloatArray:
        """σ_(Q) at each level, computed once for each that is ever asked for."""
        new = [level for level in levels if level not in self._thresholds]
        Z, scores = self._calibration
        if new:
            scale = self._scale(Z, new)
            warn_if_zero_scales(scale.min(axis=1))
            for level, column in zip(new, scale.T, strict=True):
                rank, rectified = conformal_rank(level, len(scores)), rescale(scores, column)
                self._thresholds[level] = order_statistic(np.sort(rectified), rank)
        return np.array([self._thresholds[level] for level in levels])

    def _scale(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        """τ̂ at each row and level, at least 0, plus the offset: (m, L)."""
        estimate = self._local or self._regress
        return np.maximum(estimate(Z, levels), 0.0) + self.offset

    def _regress(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        estimate = np.empty((len(Z), len(levels)))
        for column, level in enumerate(levels):
            if level not in self.models_:
                model = clone(self._model).set_params(quantile=level)
                self.models_[level] = model.fit(*self._training)
            predicted = self.models_[level].predict(Z)
            estimate[:, column] = check_vector(predicted, "predicted quantiles", n=len(Z))
        return estimate
