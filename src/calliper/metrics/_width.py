"""How wide the intervals are, and how many have no bound at all."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray
from calliper.metrics._inputs import IntervalsLike, as_intervals, mean_over_rows


def mean_width(intervals: IntervalsLike, *, half: bool = False) -> float | FloatArray:
    """Mean of upper − lower, in the unit of y; of half of it with ``half=True``.

    The full width is what "interval size" (IS) says. The paper's tables seem to print the
    half-width on their one-dimensional task: no intervals that cover 95 % can have a mean full
    width below 0.24 there (:func:`calliper.datasets.one_dimensional`), and the table has 0.16
    to 0.22. Say which one you quote.

    Good: small, among methods that reach the same coverage.

    Misleads: narrower is not more adaptive. If rare points have large errors, the ideal
    intervals are wider on average than constant ones. And a method that covers less is
    narrower; compare :func:`interval_score`, which charges for the misses.

    Parameters
    ----------
    intervals : Intervals or (lower, upper)
    half : bool
        Divide by two.

    Returns
    -------
    float, or array of shape (L,) if the intervals hold several levels
        ``inf`` as soon as one interval is infinite; see :func:`fraction_infinite`.

    References
    ----------
    Column "IS" of N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024), "Adaptive Conformal
    Regression with Jackknife+ Rescaled Scores", TMLR; its limits are in the appendix "The Mean
    Interval Size is not a Sufficient Measure of Adaptivity".

    Examples
    --------
    >>> mean_width(([0.0, 0.0], [1.0, 2.0])), mean_width(([0.0, 0.0], [1.0, 2.0]), half=True)
    (1.5, 0.75)
    """
    return mean_over_rows(as_intervals(intervals).width / (2 if half else 1))


def median_width(intervals: IntervalsLike, *, half: bool = False) -> float | FloatArray:
    """Median of upper − lower, in the unit of y; of half of it with ``half=True``.

    Good: small, among methods that reach the same coverage. Unlike :func:`mean_width` it stays
    finite while fewer than half of the intervals are infinite.

    Misleads: it sees the middle only. A method may be narrow for most rows and useless for the
    others; quote it beside :func:`fraction_infinite` and :func:`mean_width`.

    Parameters
    ----------
    intervals : Intervals or (lower, upper)
    half : bool
        Divide by two.

    Returns
    -------
    float, or array of shape (L,) if the intervals hold several levels

    References
    ----------
    Not among the measures of N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024), "Adaptive
    Conformal Regression with Jackknife+ Rescaled Scores", TMLR, which quotes means.

    Examples
    --------
    >>> median_width(([0.0, 0.0, -float("inf")], [1.0, 3.0, float("inf")]))
    3.0
    """
    widths = as_intervals(intervals).width / (2 if half else 1)
    # By order statistics: the mean of a finite and an infinite middle is infinite, not NaN.
    median = np.sort(widths, axis=0)[[(len(widths) - 1) // 2, len(widths) // 2]].mean(axis=0)
    return float(median) if median.ndim == 0 else np.asarray(median)


def fraction_infinite(intervals: IntervalsLike) -> float | FloatArray:
    """Share of the intervals with an infinite end: mean of 1{upper − lower = ∞}.

    Good: 0. An infinite interval is honest (the calibration data cannot support a bound there)
    but useless, and it counts as covered. One-sided bounds are all infinite by this count.

    Misleads: 0 does not mean that the widest intervals are of use; look at their widths too.
    Always quote it beside a mean width or an adaptivity measure that capped or dropped the
    infinite intervals, as the paper does for its baselines.

    Parameters
    ----------
    intervals : Intervals or (lower, upper)

    Returns
    -------
    float, or array of shape (L,) if the intervals hold several levels

    References
    ----------
    Infinite intervals of the baselines are discussed in N. Deutschmann, M. Rigotti, M. Rodríguez
    Martínez (2024), "Adaptive Conformal Regression with Jackknife+ Rescaled Scores", TMLR.

    Examples
    --------
    >>> fraction_infinite(([0.0, -float("inf")], [1.0, float("inf")]))
    0.5
    """
    return mean_over_rows(np.isinf(as_intervals(intervals).width))
