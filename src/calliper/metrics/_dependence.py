"""Does a miss say anything about the width? HSIC and plain correlation of the two."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._types import BoolArray, FloatArray
from calliper.intervals import Intervals
from calliper.metrics._inputs import IntervalsLike, one_level
from calliper.metrics._rows import choose_rows, too_few
from calliper.metrics._scored import sort_widths, undefined


def hsic(
    y: Any, intervals: IntervalsLike, *, max_points: int = 5000, random_state: Any = None
) -> float:
    r"""Dependence, of any form, between being covered and the width: HSIC with Gaussian kernels.

    .. math:: \mathrm{HSIC} = \frac{\mathrm{tr}(K H L H)}{(n - 1)^2}, \qquad
       K_{ij} = e^{-(c_i - c_j)^2}, \quad L_{ij} = e^{-(w_i - w_j)^2}, \quad H = I - \tfrac1n 1 1^T

    with c = 1 if covered, else 0, and w the width divided by its standard deviation: raw widths,
    as often used, make the value depend on the unit of y.

    Good: 0, coverage is the same at every width. Independence leaves on average, by chance,
    1.26 c(1 − c)(1 − L̄)/n, with c the coverage and L̄ the mean of L_ij over pairs: about 0.06/n
    at 90 % coverage and 0.17/n at 50 %, if widths are normal.

    Misleads: it has no scale of its own (compare methods on the same rows only); it does not see
    coverage that varies with x at equal widths; and constant widths are "independent" of
    everything, so there it is undefined, not 0. MAPIE quotes the square root.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level
    max_points : int
        If there are more rows, so many are taken at random: the cost is quadratic.
    random_state : optional
        Seed of that sample.

    Returns
    -------
    float of at least 0
        NaN with an ``UndefinedMetricWarning`` if all widths are equal (up to rounding) or one is
        infinite, if all targets are covered or none, or for fewer than 20 rows.

    References
    ----------
    A. Gretton, O. Bousquet, A. Smola, B. Schölkopf (2005), "Measuring Statistical Dependence with
    Hilbert-Schmidt Norms", doi:10.1007/11564089_7; for intervals: S. Feldman, S. Bates, Y. Romano
    (2021), "Improving Conditional Coverage via Orthogonal Quantile Regression", NeurIPS,
    arXiv:2106.00394.

    Examples
    --------
    Wide intervals that cover always, and narrow ones that cover half of the time.

    >>> width = np.repeat([1.0, 2.0], 100)
    >>> inside = np.repeat([True, False, True], [50, 50, 100])
    >>> round(hsic(np.where(inside, 0.0, 9.0), (-width, width)), 4)
    0.0392
    """
    covered, widths, reason = _covered_and_widths(y, one_level(intervals))
    if reason:
        return undefined("hsic", reason)
    rows = choose_rows(len(covered), max_points, random_state)
    covered, widths = covered[rows], widths[rows]
    if reason := _constant(covered, widths):
        return undefined("hsic", f"in the {len(rows)} rows sampled, {reason}")
    # K has two values: HKH = 2(1 − 1/e) aaᵀ with a = c − mean(c), so a quadratic form is left.
    widths = widths / widths.max()  # so that squares of very small or large ones stay in range
    form = _gaussian_form(covered - covered.mean(), widths / widths.std())
    return float(2 * (1 - np.exp(-1)) * form / (len(rows) - 1) ** 2)


def coverage_width_correlation(y: Any, intervals: IntervalsLike) -> float:
    r"""Absolute correlation between being covered and the width: \|Pearson(c, w)\|.

    Good: 0, misses are as frequent among wide intervals as among narrow ones.

    Misleads: 0 may hide coverage that is low at both ends; the sign is lost (is it the wide or the
    narrow ones that miss? :func:`coverage_by_width` says); a few very wide intervals drown all
    others; chance alone leaves about 1/√m. Constant widths have no correlation, not 0.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level

    Returns
    -------
    float in [0, 1]
        NaN with an ``UndefinedMetricWarning`` if all widths are equal (up to rounding) or one is
        infinite, if all targets are covered or none, or for fewer than 20 rows.

    References
    ----------
    Feldman, Bates, Romano (2021), "Improving Conditional Coverage via Orthogonal Quantile
    Regression", NeurIPS, arXiv:2106.00394, which trains models to lower it.

    Examples
    --------
    >>> width = np.repeat([1.0, 2.0], 100)
    >>> inside = np.repeat([True, False, True], [50, 50, 100])
    >>> round(coverage_width_correlation(np.where(inside, 0.0, 9.0), (-width, width)), 3)
    0.577
    """
    covered, widths, reason = _covered_and_widths(y, one_level(intervals))
    if reason:
        return undefined("coverage_width_correlation", reason)
    w = widths / widths.max()  # so that squares of very small or large ones stay in range
    c, w = covered - covered.mean(), w - w.mean()
    return float(min(1.0, abs(c @ w) / np.sqrt((c @ c) * (w @ w))))


def _covered_and_widths(y: Any, intervals: Intervals) -> tuple[BoolArray, FloatArray, str | None]:
    """Both in the order of the widths, and the reason if nothing can be measured."""
    order, widths = sort_widths(intervals)
    covered = intervals.contains(y)[order]
    return covered, widths, too_few(len(widths)) or _constant(covered, widths)


def _constant(covered: BoolArray, widths: FloatArray) -> str | None:
    if np.isinf(widths[-1]):
        return (
            f"{np.count_nonzero(np.isinf(widths))} of {len(widths)} widths are infinite; leave "
            f"those rows out and quote fraction_infinite"
        )
    if widths[0] == widths[-1]:
        return f"all {len(widths)} widths are equal ({widths[0]:g})"
    if covered.all() or not covered.any():
        return f"{'all' if covered[0] else 'none'} of {len(covered)} targets are covered"
    return None


def _gaussian_form(a: FloatArray, w: FloatArray) -> float:
    """Σ a_i a_j exp(−(w_i − w_j)²) over all pairs, block by block above the diagonal."""
    total = float(a @ a)
    for rows in row_slices(len(w), max(1, BLOCK_FLOATS // len(w))):
        above = np.exp(-np.square(w[rows, None] - w[rows.start :]))
        total += 2 * float(a[rows] @ np.triu(above, 1) @ a[rows.start :])
    return total
