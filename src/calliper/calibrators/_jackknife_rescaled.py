"""Jackknife+ rescaled scores: the method of the paper.

Each calibration error is divided by the mean error of its neighbours in the calibration set, and
a new point multiplies back the mean error of its own neighbours. To keep both alike, the mean for
a pair leaves both of the pair out (paper, Eq. 5–6 and Algorithm S.1):

    ŝ_ij  = Σ_{k≠i,j} K(X_i, X_k) s_k / Σ_{l≠i,j} K(X_i, X_l)                          (Eq. 5)
    s_i⁺  = s_i / ŝ_{i,N+1}
    Δ     = Q-th smallest of ŝ_{N+1,i} · s_i⁺ over i = 1 … N,  Q = ⌈(1−α)(N+1)⌉        (Eq. 6)

Letters: s_i → ``scores``, K → ``kernel``, s_i⁺ → ``rescaled_scores_``, ŝ → ``scale_``. The
printed Eq. 5 has K(X_i, X_j) for K(X_i, X_k), and Algorithm S.1 normalises the new point's
weights with row i; both are corrected here. K nearest means nearest *inside* the restricted set.

Guarantee: 1−2α, marginal, for exchangeable data; more sharply 1 − (2(N+1−Q)−1)/(N+1). On
ordinary data coverage is close to 1−α; exchangeable sets that lose several points exist.

Reference: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", Transactions on Machine Learning Research.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
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
    each_level,
    like_coverage,
    warn_if_too_few,
    warn_if_zero_scales,
)
from calliper.calibrators._base import kernel_needs
from calliper.guarantees import Guarantee, fold_coverage, jackknife_coverage
from calliper.kernels import KNN, as_kernel
from calliper.quantile import conformal_rank, outward


class JackknifeRescaled(BaseEstimator):  # type: ignore[misc]
    """The paper's adaptive method; guarantee 1 − 2α.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(10)
        Who counts as a neighbour. A tuned kernel is chosen anew for each calibration point, on
        the others, which keeps the guarantee; ``TunedRBF(n_folds=...)`` has CV+'s instead.
    offset : float, default 0
        Constant added to every local scale, in the unit of y; choose it without calibration
        data. Helps where many errors are exactly zero.
    random_state : int, RandomState or None
        Draws the priorities that settle ties in distance.

    Attributes
    ----------
    rescaled_scores_ : (N,) s_i⁺, infinite where the local scale is zero
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = JackknifeRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.22, 2.26])
    >>> method.guaranteed_coverage(0.9)
    0.8023952095808383
    """

    judges_nearness = True
    uses_left_out = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what ``fit`` cannot do without."""
        return kernel_needs(self.kernel, fixed=False)

    def __init__(
        self, kernel: Any = None, *, offset: float = 0.0, random_state: Any = None
    ) -> None:
        self.kernel = kernel
        self.offset = offset
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, magnitudes: Any = None, Z_train: Any = None) -> Self:
        """Rescale the calibration scores.

        Parameters
        ----------
        Z : (N, d) features in which nearness is judged
        scores : (N,) non-negative
        magnitudes : (N,), default ``scores``
            What local scales average. One-sided errors are rescaled by the mean absolute error.
        Z_train : (n, d), optional
            Training inputs, for kernels that take their length scale from them.
        """
        Z, scores = check_calibration(self, Z, scores, non_negative=True)
        n = len(scores)
        sizes = scores if magnitudes is None else check_scores(magnitudes, "magnitudes", n=n)
        offset = check_offset(self.offset)
        train = check_training(Z_train, Z)
        rng = check_random_state(self.random_state)
        self.kernel_ = as_kernel(self.kernel, KNN(10)).resolved(train, rng)
        self.n_calibration_ = n
        if n == 1:  # no other point to take a mean of: plain split
            self.scale_, self.rescaled_scores_ = None, scores
            return self
        self.scale_ = self.kernel_.leave_two_out(Z, sizes, offset=offset, rng=rng, Z_train=train)
        self.rescaled_scores_ = self.scale_.prepare(scores)
        warn_if_zero_scales(self.scale_.without_one)
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """Δ at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, n = check_new_features(self, Z), self.n_calibration_
        levels = check_levels(coverage)
        warn_if_too_few(n, levels)
        radius = np.full((len(Z), len(levels)), np.inf)
        ranks = [conformal_rank(level, n) for level in levels]
        finite = [column for column, rank in enumerate(ranks) if rank <= n]
        if self.scale_ is None:
            radius[:, finite] = self.rescaled_scores_[0]
        elif finite:
            radius[:, finite] = outward(self.scale_.order_statistics(Z, [ranks[c] for c in finite]))
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several; at least 1 − 2α."""
        check_is_fitted(self)
        return each_level(self._proved, coverage, self.n_calibration_)

    def _proved(self, coverage: float, n: int) -> float:
        n_folds = None if self.scale_ is None else self.scale_.n_folds
        if n_folds is None:
            return jackknife_coverage(coverage, n)
        return fold_coverage(coverage, n, n_folds)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("JackknifeRescaled", coverage, self.n_calibration_, proved)
