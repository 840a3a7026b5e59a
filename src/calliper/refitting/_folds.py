"""Jackknife+ and CV+: every row is predicted by a model that has not seen it.

F models each leave out one fold of rows, and each of them predicts the new point; a fold of one row
makes the Jackknife+, folds of several CV+, at the price of a cross-validation. The ends are those
of :mod:`calliper.refitting._base`, with μ₋ᵢ = μ₋ₖ₍ᵢ₎ and k(i) the fold of row i. With
``score_function=QuantileError()`` and a model of two quantiles they are q_lo − R_i and q_hi + R_i:
CQR without a calibration set.

Letters: μ₋ₖ → ``models_[k]``, k(i) → ``fold_``, R_i → ``residuals_``, F → ``cv``, 1−α →
``coverage``.

Guarantee of the Jackknife+: 1−2α, more sharply 1 − (2(n+1−Q)−1)/(n+1) with Q = ⌈(1−α)(n+1)⌉; 1−α
with ``minmax``. Marginal, for exchangeable rows and an estimator that ignores their order.

Guarantee of CV+: 1 − 2α − min{2(1−1/F)/(n/F+1), (1−F/n)/(F+1)} ≥ 1−2α−√(2/n), marginal, for
independent rows and an estimator that ignores their order. Nothing is proved for folds of a
splitter that looks at the rows (groups, strata, blocks of time).

``minmax`` is *not* 1−α for folds of more than one row. What holds for F folds of m = n/F rows is
Q/(n+m). Proof: add m new rows as one more fold, and let M_i be the smallest error of row i over the
models without its fold and one other fold. A new target is missed only if its M exceeds R_j ≥ M_j
for Q rows j; of n+m exchangeable rows at most n+m−Q can do so. Five points with two folds of two
reach that bound: 2/3 at level 0.8. The bound of CV+ holds too; the larger one is stated.

Reference: Barber, Candès, Ramdas, Tibshirani (2021), "Predictive inference with the jackknife+",
doi:10.1214/20-AOS1965, Theorems 1, 3 and 4.
"""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut

from calliper import _validation as valid
from calliper._types import FloatArray
from calliper.calibration import warn_of_groups
from calliper.declarations import About
from calliper.exceptions import CalliperError
from calliper.refitting._base import NEARLY_CONSTANT, Fold, RefittedRegressor
from calliper.rows import row_values, same_rows, warn_of_times


@dataclass(eq=False, repr=False)
class JackknifePlus(RefittedRegressor):
    """Leave-one-out intervals: n + 1 fits, for small data and fast models; guarantee 1 − 2α.

    Parameters
    ----------
    estimator : scikit-learn regressor; cloned, trained without each row in turn, and on all rows
    minmax : bool, default False; wider intervals with the full guarantee 1 − α
    score_function : score, optional
        How errors are measured, as in ``ConformalRegressor``; the absolute error by default.
    n_jobs : int, optional; number of models trained at a time, as in joblib

    Attributes
    ----------
    models_ : the n models, each without one row
    estimator_ : the model trained on all rows, for :meth:`predict`
    residuals_ : (n,) error of each row's own model

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(99.0)[:, None]
    >>> method = JackknifePlus(LinearRegression()).fit(X, X[:, 0] + np.sin(X[:, 0]))
    >>> method.predict_interval([[20.0]], coverage=0.9).width.round(1)
    array([2.])
    """

    about = About(
        width=NEARLY_CONSTANT,
        guarantee="1−2α",
        when="if rows are too few to set some aside",
        cost="n fits of the model, n M predictions",
        needs="a model to refit",
    )

    estimator: Any
    _: KW_ONLY
    minmax: bool = False
    score_function: Any = None
    n_jobs: int | None = None

    _part = "one row"

    def _folds(self, X: Any, y: FloatArray, groups: Any) -> list[Fold]:
        return list(LeaveOneOut().split(y))


@dataclass(eq=False, repr=False)
class CVPlus(RefittedRegressor):
    """Cross-validation intervals: F + 1 fits, no row set aside; guarantee about 1 − 2α.

    Parameters
    ----------
    estimator : scikit-learn regressor; cloned, trained without each fold in turn, and on all rows
    cv : int or splitter of scikit-learn, default 10
        Number of folds, at most the number of rows. Or a splitter that leaves each row out once,
        such as ``GroupKFold(5)``: nothing is then proved unless it is ``KFold`` or ``LeaveOneOut``,
        since others may depend on the rows.
    minmax : bool, default False; wider intervals with a stronger guarantee, about (1 − α) F/(F + 1)
    score_function : score, optional
        As in :class:`JackknifePlus`; ``QuantileError()`` with a model of two quantiles is CQR
        without a calibration set.
    random_state : int, RandomState or None; divides the rows into folds, where ``cv`` is a number
    n_jobs : int, optional; number of models trained at a time, as in joblib

    Attributes
    ----------
    models_ : the F models, each without one fold
    estimator_ : the model trained on all rows, for :meth:`predict`
    fold_ : (n,) fold of each row
    residuals_ : (n,) error of the model without the row's fold

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(500.0)[:, None]
    >>> method = CVPlus(LinearRegression(), cv=50).fit(X, X[:, 0] + np.sin(X[:, 0]))
    >>> method.predict_interval([[20.0]], coverage=0.9).width.round(1)
    array([2.])
    """

    about = About(
        width=NEARLY_CONSTANT,
        guarantee="1−2α−√(2/n)",
        when="as JackknifePlus, if n fits take too long",
        cost="a fit for each fold, and M predictions by each",
        needs="a model to refit",
    )

    estimator: Any
    cv: Any = 10
    _: KW_ONLY
    minmax: bool = False
    score_function: Any = None
    random_state: Any = None
    n_jobs: int | None = None

    @valid.unchanged_if_refused
    def fit(self, X: Any, y: Any, *, split_groups: Any = None, **fit_params: Any) -> Self:
        """Train the models, and score each row with the one that left it out.

        Parameters
        ----------
        X, y : rows and targets
        split_groups : (n,), column name or function of the rows, optional
            Rows of one group are left out together; a splitter in ``cv`` is given them as
            its ``groups``. Nothing is proved for new groups, as ``SplitGroupsWarning`` says.
        **fit_params
            Passed to ``fit`` of each model; values per row (``sample_weight``) follow their rows.
        """
        (groups,) = same_rows(X, "X", split_groups=split_groups)
        groups = row_values(groups, X, "split_groups")
        if isinstance(self.cv, Integral) and groups is None:
            runs = f"cv=KFold({self.cv}) leaves out runs of neighbouring rows instead."
            matters = f"cv=KFold({self.cv}, shuffle=True) says that the order does not matter."
            warn_of_times(X, y, "fit splits", f"{runs} {matters}")
        self._fit(X, y, fit_params, groups)
        if groups is not None:
            self.no_guarantee_ = warn_of_groups(groups)
        elif not (isinstance(self.cv, Integral) or type(self.cv) in (KFold, LeaveOneOut)):
            self.no_guarantee_ = f"Folds of {self.cv!r} may depend on the rows."
        return self

    def _folds(self, X: Any, y: FloatArray, groups: Any) -> list[Fold]:
        n, splitter = len(y), self.cv
        if isinstance(splitter, Integral):
            most = n if groups is None else len({str(group) for group in groups})
            if isinstance(splitter, bool) or not 2 <= int(splitter) <= most:
                what = "rows, n_samples" if groups is None else "groups"
                must = f"cv must be a whole number between 2 and the number of {what} = {most}"
                raise CalliperError(f"{must}, or a splitter of scikit-learn; got {splitter!r}.")
            kind = KFold if groups is None else GroupKFold
            splitter = kind(int(splitter), shuffle=True, random_state=self.random_state)
        elif isinstance(splitter, str) or not hasattr(splitter, "split"):
            must = "cv must be a number of folds or a splitter of scikit-learn"
            raise CalliperError(f"{must}, such as GroupKFold(5); got {splitter!r}.")
        folds = list(splitter.split(X, y, groups))
        times = np.bincount(np.concatenate([others for _, others in folds]), minlength=n)
        if len(folds) < 2 or (times != 1).any():
            row = int(np.argmax(times != 1))
            raise CalliperError(
                f"cv must leave out each row once, in two folds or more; {splitter!r} has "
                f"{len(folds)} and leaves out row {row} {times[row]} times. KFold and GroupKFold "
                f"do; TimeSeriesSplit and ShuffleSplit do not."
            )
        what = "row" if groups is None else "group"
        of = np.arange(n) if groups is None else np.asarray(groups).astype(str)
        for others, left_out in folds:
            both = of[left_out][np.isin(of[left_out], of[others])]
            if len(both):
                why = f"{splitter!r} trains on {what} {both[0]}, which the same fold leaves out"
                raise CalliperError(f"{why}: use KFold(5), or GroupKFold(5) for groups.")
        return folds
