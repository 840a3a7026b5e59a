"""The interval score: width plus a fine for every miss, and a scorer for model selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._validation import check_levels, check_vector
from calliper.exceptions import CalliperError
from calliper.metrics._inputs import IntervalsLike, as_intervals, level_of, one_level
from calliper.quantile import as_fraction


def interval_score(y: Any, intervals: IntervalsLike, *, coverage: float | None = None) -> float:
    r"""Mean interval score (Winkler): width plus a fine for targets outside.

    .. math:: (u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+ ,
       \qquad \alpha = 1 - \text{coverage}

    Good: small, in the unit of y. It is proper: no intervals score lower on average than the
    true α/2 and 1 − α/2 quantiles given x, so it rewards width and coverage at once, row by row.

    Misleads: it is an average in the unit of y, so rows with large errors dominate; it depends
    on the level (compare at one level only); and it does not say whether a bad value comes from
    width or from misses. One infinite interval makes it infinite.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level
    coverage : float, optional
        The level to score at; by default the one the intervals carry.

    Returns
    -------
    float

    References
    ----------
    T. Gneiting, A. Raftery (2007), "Strictly Proper Scoring Rules, Prediction, and Estimation",
    JASA, doi:10.1198/016214506000001437, Eq. 43; R. Winkler (1972). Not among the measures of
    Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
    Jackknife+ Rescaled Scores", TMLR.

    Examples
    --------
    A width of 2, and one of two targets 0.5 above its interval: 2 + (2 / 0.2 · 0.5) / 2.

    >>> interval_score([1.0, 2.5], ([0, 0], [2, 2]), coverage=0.8)
    4.5
    """
    read = one_level(intervals)
    target = check_vector(y, "y", n=len(read.lower))
    fine = float(2 / (1 - as_fraction(level_of(read, coverage))))
    outside = np.maximum(read.lower - target, 0.0) + np.maximum(target - read.upper, 0.0)
    return float(np.mean(read.width + fine * outside))


def interval_scorer(coverage: float = 0.9) -> IntervalScorer:
    """A scikit-learn scorer: minus :func:`interval_score`, so that larger is better.

    For ``scoring=`` of ``GridSearchCV`` or ``cross_val_score`` around an estimator with
    ``predict_interval(X, coverage)``, such as ``ConformalRegressor``. It can be pickled.

    Misleads: a setting chosen by it has seen the rows it was scored on. Calibrate afterwards on
    rows that took no part in the choice, or the promised coverage no longer holds.

    Parameters
    ----------
    coverage : float
        The level to ask the estimator for, and to score at.

    References
    ----------
    See :func:`interval_score`; N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024),
    "Adaptive Conformal Regression with Jackknife+ Rescaled Scores", TMLR, choose their kernels
    by mutual information instead.

    Examples
    --------
    >>> class Unit:
    ...     def predict_interval(self, X, coverage):
    ...         return np.zeros(len(X)), np.ones(len(X))
    >>> interval_scorer(0.8)(Unit(), [[0.0], [0.0]], [0.5, 1.5])
    -3.5
    """
    levels = check_levels(coverage)
    if len(levels) != 1:
        raise CalliperError(f"coverage must be one level; got {len(levels)}: {coverage!r}.")
    return IntervalScorer(levels[0])


@dataclass(frozen=True)
class IntervalScorer:
    """What :func:`interval_scorer` returns: a callable ``(estimator, X, y) -> float``."""

    coverage: float

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Minus the mean interval score of the estimator's intervals for X."""
        if not hasattr(estimator, "predict_interval"):
            raise TypeError(
                f"interval_scorer needs an estimator with predict_interval(X, coverage); "
                f"got {type(estimator).__name__}: wrap it in ConformalRegressor."
            )
        intervals = as_intervals(estimator.predict_interval(X, coverage=self.coverage))
        return -interval_score(y, intervals, coverage=self.coverage)
