"""Are wide intervals where errors are large, and wide enough? Measured bin by bin.

IS is the interval size upper − lower, ISQ the size that stands for a quantile bin of IS, and CSQ
the quantile of the scores |y − ŷ| inside that bin at the level of the intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.metrics._bins import BinWidth, sqi_table
from calliper.metrics._inputs import IntervalsLike, level_of, one_level
from calliper.metrics._scored import Infinite, scores_and_widths, tie_rounding, undefined


def tau_sqi(
    y: Any,
    intervals: IntervalsLike,
    *,
    y_pred: Any = None,
    coverage: float | None = None,
    infinite: Infinite = "keep",
    max_score: float | None = None,
    n_bins: int = 10,
    min_bin_size: int | None = None,
) -> float:
    r"""Do errors grow from bin to bin of the widths? Kendall's τ-b of (bin, CSQ).

    The widths are cut at their quantiles j / ``n_bins``; then

    .. math:: \tau_{SQI} = \tau_b(b,\; \mathrm{CSQ}_b), \qquad
       \mathrm{CSQ}_b = q_{1-\alpha}\bigl(|y_i - \hat y_i| : \mathrm{IS}_i \in b\bigr)

    Good: 1, every wider bin holds larger errors.

    Misleads: ten bins are few, so values are coarse (steps of 2/45) and noisy where neighbouring
    bins hardly differ; with two or three bins left after merging, 1 comes easily by luck; and
    like :func:`tau_si` it sees order only, not whether the intervals are wide enough.

    Parameters
    ----------
    y, intervals, y_pred, infinite, max_score
        As in :func:`tau_si`. Kept infinite intervals get a bin of their own once they fill one.
    coverage : float, optional
        The level of CSQ; by default the one the intervals carry.
    n_bins : int
        Bins of the widths; tied widths may leave fewer.
    min_bin_size : int, optional
        A bin with fewer points is merged into its neighbour, with a :class:`SparseBinsWarning`.
        By default max(20, 2 / (1 − coverage)); 1 keeps the literal bins of the paper.

    Returns
    -------
    float in [−1, 1]
        NaN with an ``UndefinedMetricWarning`` if fewer than two bins remain or all CSQ are equal.

    References
    ----------
    Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
    Jackknife+ Rescaled Scores", TMLR, section 2.2.

    Examples
    --------
    >>> radius = np.arange(1.0, 401.0)
    >>> tau_sqi(radius / 2, (-radius, radius), coverage=0.95)
    1.0
    """
    read = one_level(intervals)
    level = level_of(read, coverage)
    scores, widths = scores_and_widths(
        y, read, y_pred=y_pred, infinite=infinite, max_score=max_score
    )
    table = sqi_table(
        scores, widths, level, n_bins=n_bins, bin_width="median", min_bin_size=min_bin_size
    )
    if len(table.csq) < 2:
        return undefined("tau_sqi", _too_few_bins(widths))
    narrow, wide = np.triu_indices(len(table.csq), 1)
    csq = tie_rounding(table.csq, table.csq)
    rise = np.sign(csq[wide] - csq[narrow])
    if not rise.any():
        return undefined("tau_sqi", f"the score quantile is {table.csq[0]:g} in every bin")
    # τ-b in full: bins are never tied, and few enough for all pairs.
    return float(rise.sum() / np.sqrt(len(rise) * np.count_nonzero(rise)))


def r2_sqi(
    y: Any,
    intervals: IntervalsLike,
    *,
    y_pred: Any = None,
    coverage: float | None = None,
    infinite: Infinite = "keep",
    max_score: float | None = None,
    n_bins: int = 10,
    bin_width: BinWidth = "median",
    min_bin_size: int | None = None,
) -> float:
    r"""Are the intervals of each bin as wide as its errors ask for? R² of ISQ = 2 · CSQ.

    .. math:: R^2_{SQI} = 1 -
       \frac{\sum_b (\mathrm{ISQ}_b - 2\,\mathrm{CSQ}_b)^2}
            {\sum_b (\mathrm{ISQ}_b - \overline{\mathrm{ISQ}})^2}

    with bins and CSQ as in :func:`tau_sqi`. Widths are full widths: an interval ŷ ± r that is
    right for its bin has IS = 2r and CSQ = r.

    Good: 1, in every bin the intervals cover exactly their share. It has no lower limit.

    Misleads: nearly constant widths have nearly no spread to explain, so the value is far below
    0 (−105 in one run of the paper's 1-D task) and says only "not adaptive"; adaptive but
    too wide intervals fare as badly as constant ones (ask :func:`tau_sqi`); the widest bin
    dominates the sums; and it assumes intervals centred at the prediction.

    Parameters
    ----------
    y, intervals, y_pred, coverage, infinite, max_score, n_bins, min_bin_size
        As in :func:`tau_sqi`. With ``infinite="keep"`` the value is NaN if the size of a bin is
        infinite; a few infinite intervals do not move the median of the widest bin.
    bin_width : {"median", "midpoint"}
        ISQ is the median of the widths in the bin, or the middle of its two edges. The paper
        says "middle point", which reads as either; the median comes closer to its tables, and
        one outlying width does not move it.

    Returns
    -------
    float of at most 1
        NaN with an ``UndefinedMetricWarning`` if fewer than two bins remain (constant widths)
        or an ISQ is infinite.

    References
    ----------
    Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
    Jackknife+ Rescaled Scores", TMLR, section 2.2.

    Examples
    --------
    Intervals that know the spread of the errors, and the same ones twice as wide.

    >>> rng = np.random.default_rng(0)
    >>> spread = rng.uniform(1, 5, size=2000)
    >>> y = spread * rng.standard_normal(2000)
    >>> round(r2_sqi(y, (-1.96 * spread, 1.96 * spread), coverage=0.95), 2)
    0.93
    >>> round(r2_sqi(y, (-3.92 * spread, 3.92 * spread), coverage=0.95), 2)
    -0.96
    """
    read = one_level(intervals)
    level = level_of(read, coverage)
    scores, widths = scores_and_widths(
        y, read, y_pred=y_pred, infinite=infinite, max_score=max_score
    )
    table = sqi_table(
        scores, widths, level, n_bins=n_bins, bin_width=bin_width, min_bin_size=min_bin_size
    )
    if len(table.isq) < 2:
        return undefined("r2_sqi", _too_few_bins(widths))
    if np.isinf(table.isq[-1]):
        which = f"{np.count_nonzero(np.isinf(table.isq))} of {len(table.isq)} bins"
        return undefined("r2_sqi", f"the size of {which} is infinite; use 'cap' or 'drop'")
    # In units of the widest bin, so that squares of very small or large sizes stay in range.
    isq, csq = table.isq / table.isq[-1], table.csq / table.isq[-1]
    total = np.sum((isq - isq.mean()) ** 2)
    if total == 0:
        return undefined("r2_sqi", f"the size is {table.isq[0]:g} in every bin")
    return float(1 - np.sum((isq - 2 * csq) ** 2) / total)


def _too_few_bins(widths: FloatArray) -> str:
    if len(widths) and widths.min() == widths.max():
        return f"all {len(widths)} widths are equal ({widths[0]:g})"
    return f"{len(widths)} rows leave fewer than two bins of widths"
