"""Averages over the rows: coverage, widths, and scores that combine both.

"The paper" is N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024), "Adaptive Conformal
Regression with Jackknife+ Rescaled Scores", TMLR, which prints the first two as "Cov." and "IS".
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._validation import check_level, check_vector
from calliper.lab.metrics import _inputs as inputs
from calliper.lab.metrics._inputs import IntervalsLike, as_intervals
from calliper.quantile import as_fraction
from calliper.rows import same_rows


def empirical_coverage(y: Any, intervals: IntervalsLike) -> float | FloatArray:
    """Share of the targets inside their interval: mean of 1{lower ≤ y ≤ upper}.

    Good: the level asked for, or slightly more; even a perfect method scatters by √(c(1−c)/m) or
    more. Misleads: an average hides regions that are missed, and infinite intervals always cover.

    Parameters
    ----------
    y : (m,) true targets
    intervals : Intervals or (lower, upper), which are closed

    Returns
    -------
    float, or array of shape (L,) for L levels

    Examples
    --------
    >>> empirical_coverage([1.0, 2.0, 3.0, 4.0], ([0, 0, 0, 0], [1, 2, 2, 9]))
    0.75
    """
    return _mean_over_rows(as_intervals(intervals).contains(y))


def mean_width(intervals: IntervalsLike, *, half: bool = False) -> float | FloatArray:
    """Mean of upper − lower, in the unit of y: the paper's "interval size" (IS).

    Good: small, among methods that reach the same coverage. Misleads: narrower is not more adaptive
    (if rare points have large errors, ideal intervals are wider on average than constant ones), and
    a method that covers less is narrower: compare :func:`interval_score`.

    Parameters
    ----------
    intervals : Intervals or (lower, upper)
    half : bool; divide by two, as the paper's table of its one-dimensional task seems to do

    Returns
    -------
    float, or array of shape (L,) for L levels; ``inf`` as soon as one interval is infinite

    Examples
    --------
    >>> mean_width(([0.0, 0.0], [1.0, 2.0])), mean_width(([0.0, 0.0], [1.0, 2.0]), half=True)
    (1.5, 0.75)
    """
    return _mean_over_rows(as_intervals(intervals).width / (2 if half else 1))


def median_width(intervals: IntervalsLike, *, half: bool = False) -> float | FloatArray:
    """Median of upper − lower, in the unit of y; finite if most of the intervals are.

    Good: small, at the same coverage. Misleads: others than the typical row may be useless.

    Parameters
    ----------
    intervals, half : as in :func:`mean_width`

    Returns
    -------
    float, or array of shape (L,) for L levels

    Examples
    --------
    >>> median_width(([0.0, 0.0, -float("inf")], [1.0, 3.0, float("inf")]))
    3.0
    """
    widths = np.sort(as_intervals(intervals).width / (2 if half else 1), axis=0)
    # By order statistics: the mean of a finite and an infinite middle value is infinite, not NaN.
    return _mean_over_rows(widths[[(len(widths) - 1) // 2, len(widths) // 2]])


def fraction_infinite(intervals: IntervalsLike) -> float | FloatArray:
    """Share of the intervals with an infinite end, as all one-sided bounds have.

    Good: 0. Quote it with any measure that caps or drops infinite intervals, which always cover.

    Parameters
    ----------
    intervals : Intervals or (lower, upper)

    Returns
    -------
    float, or array of shape (L,) for L levels

    Examples
    --------
    >>> fraction_infinite(([0.0, -float("inf")], [1.0, float("inf")]))
    0.5
    """
    return _mean_over_rows(np.isinf(as_intervals(intervals).width))


def _mean_over_rows(values: FloatArray | BoolArray) -> float | FloatArray:
    mean: FloatArray = np.mean(values, axis=0)
    return float(mean) if mean.ndim == 0 else mean


def interval_score(y: Any, intervals: IntervalsLike, *, coverage: float | None = None) -> float:
    r"""Mean interval score (Winkler): width plus a penalty for targets outside.

    .. math:: (u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+ ,
       \qquad \alpha = 1 - \text{coverage}

    Good: small, in the unit of y. It is proper: no intervals score lower on average than the true
    α/2 and 1 − α/2 quantiles given x (Gneiting, Raftery 2007, doi:10.1198/016214506000001437, Eq.
    43). Misleads: rows with large errors dominate, and it can be compared at one level only.

    Parameters
    ----------
    y : (m,) true targets
    intervals : Intervals or (lower, upper), of one level
    coverage : float, optional; the level to score at, by default that of the intervals

    Returns
    -------
    float; infinite as soon as one interval is

    Examples
    --------
    >>> interval_score([1.0, 2.5], ([0, 0], [2, 2]), coverage=0.8)  # 2 + (2 / 0.2 · 0.5) / 2
    4.5
    """
    return float(np.mean(interval_scores(y, intervals, coverage=coverage)))


def interval_scores(
    y: Any, intervals: IntervalsLike, *, coverage: float | None = None
) -> FloatArray:
    """The interval score of each row, (m,); :func:`interval_score` is its mean.

    Parameters
    ----------
    y, intervals, coverage : as in :func:`interval_score`

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> interval_scores([1.0, 2.5], ([0, 0], [2, 2]), coverage=0.8)
    array([2., 7.])
    """
    read = inputs.one_level(intervals)
    (y,) = same_rows(read, "intervals", y=y)
    target = check_vector(y, "y", n=len(read.lower))
    penalty = float(2 / (1 - as_fraction(inputs.level_of(read, coverage))))
    outside = np.maximum(read.lower - target, 0.0) + np.maximum(target - read.upper, 0.0)
    scores: FloatArray = read.width + penalty * outside
    return scores


def interval_scorer(coverage: float = 0.9) -> Callable[[Any, Any, Any], float]:
    """A scikit-learn scorer: minus :func:`interval_score`, so that larger is better.

    For ``scoring=`` of ``GridSearchCV`` or ``cross_val_score`` around an estimator with
    ``predict_interval(X, coverage)``, such as ``ConformalRegressor``. Calibrate afterwards on rows
    that were not used for the choice, or the guaranteed coverage no longer holds.

    Parameters
    ----------
    coverage : float; the level of the intervals and of the score

    Returns
    -------
    scorer; a function of estimator, rows and targets, which can be pickled

    Examples
    --------
    >>> class Unit:
    ...     def predict_interval(self, X, coverage):
    ...         return np.zeros(len(X)), np.ones(len(X))
    >>> interval_scorer(0.8)(Unit(), [[0.0], [0.0]], [0.5, 1.5])
    -3.5
    """
    return partial(_minus_score, coverage=check_level(coverage))


def _minus_score(estimator: Any, X: Any, y: Any, *, coverage: float) -> float:
    if not hasattr(estimator, "predict_interval"):
        what = "interval_scorer needs an estimator with predict_interval(X, coverage)"
        raise TypeError(f"{what}; got {type(estimator).__name__}: wrap it in ConformalRegressor.")
    intervals = as_intervals(estimator.predict_interval(X, coverage=coverage))
    return -interval_score(y, intervals, coverage=coverage)


def pinball_loss(y: Any, intervals: IntervalsLike, *, coverage: float | None = None) -> float:
    r"""Mean pinball loss of the two ends, as quantiles at α/2 and 1 − α/2.

    .. math:: \tfrac12 \left[\rho_{\alpha/2}(y - l) + \rho_{1-\alpha/2}(y - u)\right], \qquad
       \rho_\tau(e) = \max(\tau e, (\tau - 1) e), \quad \alpha = 1 - \text{coverage}

    This is α/4 times :func:`interval_score`, good and misleading where that is; averaged over
    levels it approaches half the continuous ranked probability score.

    Parameters
    ----------
    y, intervals, coverage : as in :func:`interval_score`

    Returns
    -------
    float; infinite as soon as one interval is

    Examples
    --------
    >>> pinball_loss([1.0, 2.5], ([0, 0], [2, 2]), coverage=0.8)
    0.225
    """
    read = inputs.one_level(intervals)
    level = inputs.level_of(read, coverage)
    return float((1 - as_fraction(level)) / 4) * interval_score(y, read, coverage=level)
