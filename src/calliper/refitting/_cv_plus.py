"""CV+: the Jackknife+ at the price of a cross-validation.

Rows are divided into F folds; F models each leave out one, and a row is judged by the model
without its fold:

    R_i = |y_i − μ₋ₖ₍ᵢ₎(x_i)|,  k(i) the fold of row i
    lower = ⌊α(n+1)⌋-th smallest of μ₋ₖ₍ᵢ₎(x) − R_i
    upper = ⌈(1−α)(n+1)⌉-th smallest of μ₋ₖ₍ᵢ₎(x) + R_i
    minmax: [min_k μ₋ₖ(x) − R, max_k μ₋ₖ(x) + R],  R = ⌈(1−α)(n+1)⌉-th smallest of R_i

Letters: μ₋ₖ → ``models_[k]``, k(i) → ``fold_``, R_i → ``residuals_``, F → ``n_folds``.

Guarantee: 1 − 2α − min{2(1−1/F)/(n/F+1), (1−F/n)/(F+1)} ≥ 1−2α−√(2/n), marginal, for
independent rows and an estimator that does not heed their order.

``minmax`` is *not* 1−α for folds of more than one row, unlike that of the Jackknife+. What holds
for F folds of m = n/F rows is Q/(n+m), Q = ⌈(1−α)(n+1)⌉. Proof: add m new rows as one more fold,
and let M_i be the smallest error of row i over the models without its fold and one other fold. A
new target is missed only if its M exceeds R_j ≥ M_j for Q rows j; of n+m exchangeable rows at most
n+m−Q can do so. Five points with two folds of two reach that bound: 2/3 at level 0.8. The interval
contains that of CV+, so the bound of CV+ holds too; the larger one is stated.

Reference: Barber, Candès, Ramdas, Tibshirani (2021), "Predictive inference with the jackknife+",
doi:10.1214/20-AOS1965, Theorem 4.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.model_selection import KFold

from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.guarantees import fold_coverage, jackknife_coverage
from calliper.quantile import conformal_rank
from calliper.refitting._folds import FoldRegressor
from calliper.refitting._guarantee import RefitGuarantee


class CVPlus(FoldRegressor):
    """Cross-validation intervals: F + 1 fits, no row set aside; guarantee about 1 − 2α.

    Parameters
    ----------
    estimator : scikit-learn regressor
        Cloned and trained without each fold in turn, and once on all rows.
    n_folds : int, default 10
        Number of folds, at most the number of rows; equal to it, this is the Jackknife+.
    minmax : bool, default False
        Wider intervals with a stronger guarantee, about (1 − α) F/(F + 1).
    random_state : int, RandomState or None
        Divides the rows into folds.
    n_jobs : int, optional
        Number of models trained at a time, as in joblib.

    Attributes
    ----------
    models_ : the F models, each without one fold
    estimator_ : the model trained on all rows, for :meth:`predict`
    fold_ : (n,) fold of each row
    residuals_ : (n,) error of the model without the row's fold

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=500)
    >>> method = CVPlus(LinearRegression(), n_folds=50, random_state=0).fit(X, y)
    >>> lower, upper = method.predict_interval([[0.2], [0.8]], coverage=0.9)
    >>> lower.round(2), upper.round(2)
    (array([0.04, 0.64]), array([0.34, 0.95]))
    >>> method.guaranteed_coverage(0.9)
    0.7823529411764706
    """

    def __init__(
        self,
        estimator: Any,
        n_folds: int = 10,
        *,
        minmax: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_folds = n_folds
        self.minmax = minmax
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Train a model without each fold, and one on all rows."""
        X, y = self._check(X, y)
        self._fit_folds(X, y, self._draw_folds(y))
        return self

    def _draw_folds(self, y: FloatArray) -> IntArray:
        if not isinstance(self.n_folds, Integral) or not 2 <= self.n_folds <= len(y):
            raise CalliperError(
                f"n_folds must be a whole number between 2 and the number of rows, n_samples = "
                f"{len(y)}; got {self.n_folds!r}."
            )
        fold = np.empty(len(y), dtype=np.intp)
        splits = KFold(int(self.n_folds), shuffle=True, random_state=self.random_state)
        for k, (_, others) in enumerate(splits.split(y)):
            fold[others] = k
        return fold

    def _proved(self, coverage: float, n: int) -> float:
        n_folds = len(self.models_)
        bounds = [fold_coverage(coverage, n, n_folds)]
        if n_folds == n:
            bounds.append(jackknife_coverage(coverage, n))
        rank = conformal_rank(coverage, n)
        if self.minmax and n % n_folds == 0 and rank <= n:
            bounds.append(rank / (n + n // n_folds))
        return max(bounds)

    def guarantee(self, coverage: float = 0.9) -> RefitGuarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        remark = (
            "Coverage is usually well above the level asked for."
            if self.minmax
            else "On ordinary data coverage is close to the level asked for or above it; it can "
            "fall towards the bound if the model changes much when a fold is left out."
        )
        return RefitGuarantee("CVPlus", coverage, len(self.residuals_), proved, remark=remark)
