"""Jackknife+ and CV+: every row is predicted by a model that has not seen it.

No row is set aside for calibration. F models each leave out one fold of rows, and each of them
predicts the new point, so that a new point is treated as the rows were; a fold of one row makes
the Jackknife+, folds of several CV+, at the price of a cross-validation:

    R_i = |y_i − μ₋ₖ₍ᵢ₎(x_i)|,  k(i) the fold of row i
    lower = ⌊α(n+1)⌋-th smallest of μ₋ₖ₍ᵢ₎(x) − R_i
    upper = ⌈(1−α)(n+1)⌉-th smallest of μ₋ₖ₍ᵢ₎(x) + R_i
    minmax: [min_k μ₋ₖ(x) − R, max_k μ₋ₖ(x) + R],  R = ⌈(1−α)(n+1)⌉-th smallest of R_i

Letters: μ₋ₖ → ``models_[k]``, k(i) → ``fold_``, R_i → ``residuals_``, F → ``n_folds``,
1−α → ``coverage``.

Guarantee of the Jackknife+: 1−2α, more sharply 1 − (2(n+1−Q)−1)/(n+1) with Q = ⌈(1−α)(n+1)⌉; 1−α
with ``minmax``. Marginal, for exchangeable rows and an estimator that does not heed their order.
On ordinary data coverage is close to 1−α, and above it with ``minmax``.

Guarantee of CV+: 1 − 2α − min{2(1−1/F)/(n/F+1), (1−F/n)/(F+1)} ≥ 1−2α−√(2/n), marginal, for
independent rows and an estimator that does not heed their order.

``minmax`` is *not* 1−α for folds of more than one row, unlike that of the Jackknife+. What holds
for F folds of m = n/F rows is Q/(n+m), Q = ⌈(1−α)(n+1)⌉. Proof: add m new rows as one more fold,
and let M_i be the smallest error of row i over the models without its fold and one other fold. A
new target is missed only if its M exceeds R_j ≥ M_j for Q rows j; of n+m exchangeable rows at most
n+m−Q can do so. Five points with two folds of two reach that bound: 2/3 at level 0.8. The interval
contains that of CV+, so the bound of CV+ holds too; the larger one is stated.

Reference: Barber, Candès, Ramdas, Tibshirani (2021), "Predictive inference with the jackknife+",
doi:10.1214/20-AOS1965, Theorems 1, 3 and 4.
"""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from calliper._types import IntArray
from calliper.declarations import About
from calliper.exceptions import CalliperError
from calliper.guarantees import conformal_coverage, fold_coverage, jackknife_coverage
from calliper.quantile import conformal_rank
from calliper.refitting._base import NEARLY_CONSTANT, RefittedRegressor


class JackknifePlus(RefittedRegressor):
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

    about = About(
        width=NEARLY_CONSTANT,
        guarantee="1−2α",
        when="if rows are too few to set some aside",
        cost="n fits of the model, n M predictions",
        needs="a model to refit",
    )

    def __init__(self, estimator: Any, *, minmax: bool = False, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.minmax = minmax
        self.n_jobs = n_jobs

    def _folds(self, n: int) -> IntArray:
        return np.arange(n)

    def _proved(self, coverage: float, n: int) -> float:
        return conformal_coverage(coverage, n) if self.minmax else jackknife_coverage(coverage, n)

    def _remark(self, coverage: float) -> str:
        return (
            "Coverage is usually well above it."
            if self.minmax
            else "On ordinary data coverage is close to the level asked for; it can fall to the "
            "bound if the model changes much when one row is left out."
        )


@dataclass(eq=False, repr=False)
class CVPlus(RefittedRegressor):
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

    about = About(
        width=NEARLY_CONSTANT,
        guarantee="1−2α−√(2/n)",
        when="as JackknifePlus, if n fits take too long",
        cost="a fit for each fold, and M predictions by each",
        needs="a model to refit",
    )

    estimator: Any
    n_folds: int = 10
    _: KW_ONLY
    minmax: bool = False
    random_state: Any = None
    n_jobs: int | None = None

    def _folds(self, n: int) -> IntArray:
        if not isinstance(self.n_folds, Integral) or not 2 <= self.n_folds <= n:
            raise CalliperError(
                f"n_folds must be a whole number between 2 and the number of rows, n_samples = "
                f"{n}; got {self.n_folds!r}."
            )
        fold = np.empty(n, dtype=np.intp)
        splits = KFold(int(self.n_folds), shuffle=True, random_state=self.random_state)
        for k, (_, others) in enumerate(splits.split(fold)):
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

    def _remark(self, coverage: float) -> str:
        return (
            "Coverage is usually well above the level asked for."
            if self.minmax
            else "On ordinary data coverage is close to the level asked for or above it; it can "
            "fall towards the bound if the model changes much when a fold is left out."
        )
