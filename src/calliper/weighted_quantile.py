"""The weighted quantile of localised methods, with the new point's mass at infinity.

Calibration scores v_1 ≤ … ≤ v_N carry weights w_i ≥ 0; the new point, whose score is not known,
carries w_∞ and counts as infinite. At level 1−α the threshold is the first score at which the
weight of all scores up to it reaches its share of the total T = Σ w_i + w_∞:

    Δ = min{v_k : w_1 + … + w_k ≥ (1−α) T},  +∞ if there is none.

Tie rule: sums are compared up to 10⁻¹² T, so a share that equals the level but for rounding
reaches it. If T = 0, nothing is known at that place and the threshold is infinite. With equal
weights this is the conformal rank: Δ is the ⌈(1−α)(N+1)⌉-th smallest score.

Letters: v → ``ordered``, w → ``weights``, w_∞ → ``at_infinity``, 1−α → ``levels``.

Reference: Tibshirani, Barber, Candès, Ramdas (2019), "Conformal prediction under covariate
shift", arXiv:1904.06019, Lemma 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.quantile import as_fraction

#: Shares of the total weight that differ by less than this are equal.
TOLERANCE = 1e-12

#: Weights of some rows, (m, N), written into ``out``, and their mass at infinity, (m,).
Weigh = Callable[[slice, FloatArray], tuple[FloatArray, FloatArray]]


def weighted_quantiles(
    ordered: FloatArray, weights: FloatArray, at_infinity: FloatArray, levels: Sequence[float]
) -> FloatArray:
    """The threshold of each row at each level, (m, L).

    O(mN). The weights are replaced by their cumulated sums, which saves an array of their size.

    Parameters
    ----------
    ordered : (N,) ascending scores
    weights : (m, N) non-negative, in that order; changed in place
    at_infinity : (m,) non-negative
    levels : L numbers in (0, 1), each taken as the simple fraction that it stands for

    Examples
    --------
    >>> scores, weights = np.array([1.0, 2.0, 3.0]), np.array([[1.0, 1.0, 1.0], [5.0, 1.0, 1.0]])
    >>> weighted_quantiles(scores, weights, np.array([1.0, 1.0]), [0.5, 0.9])
    array([[ 2., inf],
           [ 1., inf]])
    """
    reached = np.cumsum(weights, axis=1, out=weights)
    total = reached[:, -1] + at_infinity
    extended = np.append(ordered, np.inf)
    threshold = np.empty((len(weights), len(levels)))
    for column, level in enumerate(levels):
        needed = (float(as_fraction(level)) - TOLERANCE) * total
        threshold[:, column] = extended[count_true(reached < needed[:, None])]
    threshold[total == 0] = np.inf
    return threshold


def weighted_quantiles_in_blocks(
    ordered: FloatArray, weigh: Weigh, n_rows: int, levels: Sequence[float]
) -> FloatArray:
    """:func:`weighted_quantiles` of many rows, whose weights exist one block at a time."""
    scratch = Scratch()

    def one_block(rows: slice) -> FloatArray:
        buffer = scratch.array("weights", (rows.stop - rows.start, len(ordered)))
        return weighted_quantiles(ordered, *weigh(rows, buffer), levels)

    return np.concatenate(map_row_blocks(one_block, n_rows, len(ordered)))


def count_true(mask: BoolArray) -> IntArray:
    """How many entries of each row hold; several times faster than a count along an axis."""
    counts: IntArray = mask.view(np.uint8).sum(axis=1, dtype=np.uint32).astype(np.intp)
    return counts
