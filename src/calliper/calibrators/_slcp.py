"""SLCP: split conformal around a local quantile of training errors.

The training errors near x say how large an error to expect there: their kernel-weighted quantile
at the level asked for. Calibration scores are measured from it, and their conformal threshold
corrects it by the same amount everywhere:

    Q̂(x) = inf{v : Σ_j w_j(x) 1{V_j ≤ v} ≥ 1−α},  w_j(x) = K(x, X_j) / Σ_l K(x, X_l),
    Δ(x) = Q̂(x) + q,   q = Q-th smallest of s_i − Q̂(X_i),   Q = ⌈(1−α)(N+1)⌉.

Letters: V_j, X_j → ``scores_train``, ``Z_train`` (n of them), K → ``kernel``, s_i → ``scores``,
Q̂ → ``local_``, q → the threshold. Every training point keeps its own error and the same ones
serve calibration and new points, which published code gets wrong. The weights reach the level up
to 1e-12 of their sum, so that equal weights that sum to it exactly count as reaching it.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties. Δ below 0 would be an empty
interval, so it is raised to 0 unless some calibration score is negative; this only adds coverage.

Cost at each set of levels: KNN, a search for K neighbours of N + M rows; RBF, O((N + M) n d)
time for N + M rows and all levels at once, in blocks of a few megabytes.

Reference: Han, Tang, Ghosh, Liu (2023), "Split localized conformal prediction",
arXiv:2206.13092.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_features,
    check_levels,
    check_new_features,
    check_vector,
    each_level,
    like_coverage,
    warn_if_too_few,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.kernels import KNN, as_kernel
from calliper.quantile import conformal_rank, order_statistic


class SLCP(BaseEstimator):  # type: ignore[misc]
    """Split conformal localised by a kernel quantile of training errors; takes any real score.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(20)
        Whose training errors speak for x. A quantile asks for more neighbours than a mean: with
        K of them, a level above 1 − 1/K takes their largest error. A tuned kernel is tuned on
        the sizes of the training errors.
    random_state : int, RandomState or None
        Settles ties in distance.

    Attributes
    ----------
    local_ : the local quantile of training errors, a function of rows and levels
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = SLCP(KNN(50)).fit(Z[0], errors[0], Z_train=Z[1], scores_train=errors[1])
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.46])
    >>> method.guaranteed_coverage(0.9)
    0.9003322259136213
    """

    needs: tuple[str, ...] = ("Z_train", "scores_train")
    judges_nearness = True
    uses_left_out = False

    def __init__(self, kernel: Any = None, *, random_state: Any = None) -> None:
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, scores_train: Any = None) -> Self:
        """Keep both sets; the local quantile depends on the level and waits for it.

        Parameters
        ----------
        Z, scores : (N, d) and (N,), the calibration points
        Z_train, scores_train : (n, d) and (n,), inputs and scores of training points
        """
        Z, scores = check_calibration(self, Z, scores)
        if Z_train is None or scores_train is None:
            raise CalliperError(
                "SLCP takes local quantiles of training errors: pass Z_train and scores_train to "
                "fit (X_train and y_train to ConformalRegressor.calibrate). Without training "
                "data, use FullRescaled, which needs none."
            )
        Z_train = check_features(Z_train, "Z_train")
        if Z_train.shape[1] != Z.shape[1]:
            raise CalliperError(f"Z_train has {Z_train.shape[1]} columns, Z has {Z.shape[1]}.")
        scores_train = check_vector(scores_train, "scores_train", n=len(Z_train))
        rng = check_random_state(self.random_state)
        kernel = as_kernel(self.kernel, KNN(20)).resolved(Z_train, rng)
        self.kernel_ = kernel.fixed(Z_train, np.abs(scores_train), rng)
        priorities = rng.uniform(size=len(Z_train))
        self.local_ = self.kernel_.local_quantile(Z_train, scores_train, priorities)
        self.Z_, self.scores_, self.n_calibration_ = Z, scores, len(scores)
        self._thresholds: dict[float, float] = {}
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """Q̂(x) + q at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, levels = check_new_features(self, Z), check_levels(coverage)
        warn_if_too_few(self.n_calibration_, levels)
        radius = self.local_(Z, levels) + self._threshold(levels)
        if self.scores_.min() >= 0:
            np.maximum(radius, 0.0, out=radius)
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several; at least 1 − α."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("SLCP", coverage, self.n_calibration_, proved, has_law=True)

    def _threshold(self, levels: Sequence[float]) -> FloatArray:
        """The correction q at each level, computed once for each that is ever asked for."""
        new = [level for level in levels if level not in self._thresholds]
        if new:
            shifted = np.sort(self.scores_[:, None] - self.local_(self.Z_, new), axis=0)
            for level, column in zip(new, shifted.T, strict=True):
                rank = conformal_rank(level, self.n_calibration_)
                self._thresholds[level] = order_statistic(column, rank)
        return np.array([self._thresholds[level] for level in levels])
