"""The share of targets that fell into their interval."""

from __future__ import annotations

from typing import Any

from calliper._types import FloatArray
from calliper.metrics._inputs import IntervalsLike, as_intervals, mean_over_rows


def empirical_coverage(y: Any, intervals: IntervalsLike) -> float | FloatArray:
    """Share of the targets inside their interval: mean of 1{lower ≤ y ≤ upper}.

    Good: at or slightly above the level asked for. With m test points even a perfect method
    scatters by √(c(1−c)/m) around it, and more when the calibration set is small.

    Misleads: it is an average over rows. A method that covers the easy half always and the hard
    half at 90 % shows 95 %; see :func:`tau_sqi` and :func:`r2_sqi`. Infinite intervals cover
    everything and count as such; read it beside :func:`fraction_infinite`.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper)
        Ends belong to the interval; no end is capped.

    Returns
    -------
    float, or array of shape (L,) if the intervals hold several levels

    References
    ----------
    Column "Cov." of N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024), "Adaptive
    Conformal Regression with Jackknife+ Rescaled Scores", TMLR.

    Examples
    --------
    >>> empirical_coverage([1.0, 2.0, 3.0, 4.0], ([0, 0, 0, 0], [1, 2, 2, 9]))
    0.75
    """
    return mean_over_rows(as_intervals(intervals).contains(y))
