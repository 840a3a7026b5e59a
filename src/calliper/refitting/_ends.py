"""From the predictions of models that left a point out to the ends of an interval.

All functions take ``left_out``, (m, n): column i holds μ₋ᵢ(x) for each of m new rows, and
``residuals``, (n,): R_i = |y_i − μ₋ᵢ(x_i)|, infinite where nothing is known about point i.
"""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray
from calliper.quantile import conformal_rank, row_order_statistics


def plus_ends(
    left_out: FloatArray, residuals: FloatArray, levels: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Order statistics of μ₋ᵢ(x) ∓ R_i at ranks n+1−Q = ⌊α(n+1)⌋ and Q: two (m, L).

    Below level 1/2 the ends can be out of order; no target then qualifies, and the point halfway
    is returned. O(mn) by selection.
    """
    n = len(residuals)
    ranks = [conformal_rank(level, n) for level in levels]
    finite = [column for column, rank in enumerate(ranks) if rank <= n]
    lower = np.full((len(left_out), len(levels)), -np.inf)
    upper = -lower
    if finite:
        high = [ranks[column] for column in finite]
        low = [n + 1 - rank for rank in high]
        lower[:, finite] = row_order_statistics(left_out - residuals, low)
        upper[:, finite] = row_order_statistics(left_out + residuals, high)
    empty = lower > upper
    halfway = lower[empty] + (upper[empty] - lower[empty]) / 2
    lower[empty] = upper[empty] = halfway
    return lower, upper


def minmax_ends(
    left_out: FloatArray, residuals: FloatArray, levels: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest μ₋ᵢ(x), moved out by the Q-th smallest residual: two (m, L)."""
    ordered = np.append(np.sort(residuals), np.inf)
    radius = ordered[[conformal_rank(level, len(residuals)) - 1 for level in levels]]
    lowest, highest = left_out.min(axis=1), left_out.max(axis=1)
    return lowest[:, None] - radius, highest[:, None] + radius
