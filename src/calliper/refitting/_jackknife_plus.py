"""Jackknife+: every row is predicted by a model that has not seen it.

No row is set aside for calibration: n models each leave out one row, and each of them predicts
the new point, so that a new point is treated as the rows were:

    R_i = |y_i − μ₋ᵢ(x_i)|
    lower = ⌊α(n+1)⌋-th smallest of μ₋ᵢ(x) − R_i
    upper = ⌈(1−α)(n+1)⌉-th smallest of μ₋ᵢ(x) + R_i
    minmax: [min_i μ₋ᵢ(x) − R, max_i μ₋ᵢ(x) + R],  R = ⌈(1−α)(n+1)⌉-th smallest of R_i

Letters: μ₋ᵢ → ``models_[i]``, R_i → ``residuals_``, 1−α → ``coverage``.

Guarantee: 1−2α, more sharply 1 − (2(n+1−Q)−1)/(n+1) with Q = ⌈(1−α)(n+1)⌉; 1−α with ``minmax``.
Marginal, for exchangeable rows and an estimator that does not heed their order. On ordinary data
coverage is close to 1−α, and above it with ``minmax``.

Reference: Barber, Candès, Ramdas, Tibshirani (2021), "Predictive inference with the jackknife+",
doi:10.1214/20-AOS1965, Theorems 1 and 3.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from calliper.guarantees import conformal_coverage, jackknife_coverage
from calliper.refitting._folds import FoldRegressor
from calliper.refitting._guarantee import RefitGuarantee


class JackknifePlus(FoldRegressor):
    """Leave-one-out intervals: n + 1 fits, for small data and fast models; guarantee 1 − 2α.

    Parameters
    ----------
    estimator : scikit-learn regressor
        Cloned and trained without each row in turn, and once on all rows.
    minmax : bool, default False
        Wider intervals with the full guarantee 1 − α.
    n_jobs : int, optional
        Number of models trained at a time, as in joblib.

    Attributes
    ----------
    models_ : the n models, each without one row
    estimator_ : the model trained on all rows, for :meth:`predict`
    residuals_ : (n,) error of each row's own model

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(99, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=99)
    >>> method = JackknifePlus(LinearRegression()).fit(X, y)
    >>> lower, upper = method.predict_interval([[0.2], [0.8]], coverage=0.9)
    >>> lower.round(2), upper.round(2)
    (array([0.  , 0.65]), array([0.33, 0.97]))
    >>> method.guaranteed_coverage(0.9)
    0.81
    """

    def __init__(self, estimator: Any, *, minmax: bool = False, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.minmax = minmax
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Train a model without each row, and one on all of them."""
        X, y = self._check(X, y)
        self._fit_folds(X, y, np.arange(len(y)))
        return self

    def _proved(self, coverage: float, n: int) -> float:
        return conformal_coverage(coverage, n) if self.minmax else jackknife_coverage(coverage, n)

    def guarantee(self, coverage: float = 0.9) -> RefitGuarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        remark = (
            "Coverage is usually well above it."
            if self.minmax
            else "On ordinary data coverage is close to the level asked for; it can fall to the "
            "bound if the model changes much when one row is left out."
        )
        return RefitGuarantee(
            "JackknifePlus", coverage, len(self.residuals_), proved, remark=remark
        )
