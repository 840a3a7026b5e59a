"""Wide intervals where errors are large: is it so, row by row."""

from __future__ import annotations

from typing import Any

from scipy.stats import kendalltau

from calliper.metrics._inputs import IntervalsLike, one_level
from calliper.metrics._scored import Infinite, scores_and_widths, undefined


def tau_si(
    y: Any,
    intervals: IntervalsLike,
    *,
    y_pred: Any = None,
    infinite: Infinite = "keep",
    max_score: float | None = None,
) -> float:
    r"""Rank correlation of error and width, row by row: Kendall's τ-b of (CS, IS).

    .. math:: \tau_{SI} = \tau_b\bigl(|y_i - \hat y_i|,\; u_i - l_i\bigr)

    Good: larger, among methods on the same data. It cannot reach 1: errors are random even
    where their spread is known exactly (0.376 for the oracle of the paper's 1-D task).

    Misleads: it sees order only, so intervals a hundred times too wide score the same; and
    values of different data sets do not compare, as the ceiling depends on the noise.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level
    y_pred : array of shape (m,), optional
        Predictions; by default the middles of the intervals.
    infinite : {"keep", "cap", "drop"}
        What to do with infinite intervals. ``"keep"``: they rank as the widest. It is the
        default because ranks need no finite number, and because leaving rows out, or giving
        them a width that the method did not give, flatters the method. ``"cap"``: their
        half-width becomes ``max_score``, the paper's rule. ``"drop"``: judge the other rows.
        Quote :func:`fraction_infinite` beside either.
    max_score : float, optional
        The largest calibration score; needed for ``"cap"``.

    Returns
    -------
    float in [−1, 1]
        NaN with an ``UndefinedMetricWarning`` if all widths, or all scores, are equal (up to
        rounding: constant intervals are not "uncorrelated", they have no order at all).

    References
    ----------
    Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
    Jackknife+ Rescaled Scores", TMLR, section 2.2.

    Examples
    --------
    >>> round(tau_si([1.0, 3.0, 2.0, 4.0], ([-1, -2, -3, -4], [1, 2, 3, 4]), y_pred=[0] * 4), 3)
    0.667
    """
    scores, widths = scores_and_widths(
        y, one_level(intervals), y_pred=y_pred, infinite=infinite, max_score=max_score
    )
    for values, name in (scores, "scores"), (widths, "widths"):
        if len(values) < 2:
            return undefined("tau_si", f"{len(values)} of the rows are left, and 2 are needed")
        if values.min() == values.max():
            return undefined("tau_si", f"all {len(values)} {name} are equal ({values[0]:g})")
    # kendalltau sorts by its second argument first, and the scores are in order already.
    return float(kendalltau(widths, scores).statistic)
