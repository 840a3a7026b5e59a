"""MADSplit: rescale by an error model that was learnt on other data.

A model r̂ of the error, fitted to training errors, says how hard each input is. Calibration
scores are divided by it and the Q-th smallest ratio is multiplied back:

    σ_i = s_i / r̂(X_i),    Δ(x) = r̂(x) · σ_(Q),    Q = ⌈(1−α)(N+1)⌉        (paper, Eq. 2)

Letters: r̂ → ``scale``, σ → ``rescaled_scores_``. The paper's weakness of the method: training
errors are those of data that the model has seen, and may say little about new ones.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties.

Reference: Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018), "Distribution-free predictive
inference for regression", §5.2, doi:10.1080/01621459.2017.1307116.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_levels,
    check_new_features,
    check_offset,
    check_scores,
    check_training,
    check_vector,
    each_level,
    like_coverage,
    warn_if_too_few,
    warn_if_zero_scales,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.kernels import KNN, as_kernel, rescale
from calliper.quantile import conformal_rank, order_statistic, outward


class MADSplit(BaseEstimator):  # type: ignore[misc]
    """Locally weighted split conformal with a scale learnt on training errors.

    Parameters
    ----------
    scale : kernel or scikit-learn regressor, default KNN(10)
        ``KNN(10)`` and ``RBF("median")`` are the paper's two variants; a regressor is cloned and
        fitted to the training errors. Negative predictions count as a scale of zero.
    offset : float, default 0
        Constant added to every scale, in the unit of y; choose it without calibration data.
    random_state : int, RandomState or None
        Settles ties in distance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = MADSplit().fit(Z[0], errors[0], Z_train=Z[1], scores_train=errors[1])
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.23, 1.  ])
    """

    needs: tuple[str, ...] = ("Z_train", "scores_train")
    judges_nearness = True
    uses_left_out = False

    def __init__(self, scale: Any = None, *, offset: float = 0.0, random_state: Any = None) -> None:
        self.scale = scale
        self.offset = offset
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, scores_train: Any = None) -> Self:
        """Fit the scale to training errors, then rescale the calibration scores by it."""
        Z, scores = check_calibration(self, Z, scores, non_negative=True)
        if Z_train is None or scores_train is None:
            raise CalliperError(
                "MADSplit learns its scale on training errors: pass Z_train and scores_train to "
                "fit (X_train and y_train to ConformalRegressor.calibrate). Without training "
                "data, use FullRescaled, which needs none."
            )
        Z_train = check_training(Z_train, Z)
        scores_train = check_scores(scores_train, "scores_train", n=len(Z_train))
        self.offset_ = check_offset(self.offset)
        self.scale_ = self._fit_scale(Z_train, scores_train)
        scale = self._local_scale(Z)
        warn_if_zero_scales(scale)
        self.rescaled_scores_ = np.sort(rescale(scores, scale))
        self.n_calibration_ = len(scores)
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """r̂(x) times the Q-th smallest rescaled score: (m,), or (m, L) for L levels."""
        check_is_fitted(self)
        scale, n = self._local_scale(check_new_features(self, Z)), self.n_calibration_
        levels = check_levels(coverage)
        warn_if_too_few(n, levels)
        threshold = np.array(
            [order_statistic(self.rescaled_scores_, conformal_rank(c, n)) for c in levels]
        )
        with np.errstate(invalid="ignore"):
            radius = np.where(np.isinf(threshold), np.inf, scale[:, None] * threshold)
        return like_coverage(outward(radius), coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("MADSplit", coverage, self.n_calibration_, proved, has_law=True)

    def _fit_scale(self, Z_train: FloatArray, scores_train: FloatArray) -> Any:
        if hasattr(self.scale, "predict"):
            return clone(self.scale).fit(Z_train, scores_train)
        rng = check_random_state(self.random_state)
        kernel = as_kernel(self.scale, KNN(10)).resolved(Z_train, rng)
        kernel = kernel.fixed(Z_train, scores_train, rng)
        return kernel.mean(Z_train, scores_train, rng.uniform(size=len(Z_train)))

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        predicted = check_vector(self.scale_.predict(Z), "predictions of scale", n=len(Z))
        return np.maximum(predicted, 0.0) + self.offset_
