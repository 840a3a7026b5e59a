"""The α̃ search of localised conformal prediction: which candidate scores the bag keeps.

The bag is the calibration set and the new point with candidate score v. Each member's share is
the weight of the members below it, over the weight of all:

    T_i = Σ_j H_ij 1{V_j < V_i} / Σ_j H_ij,   v is kept iff #{i : T_i < T_{N+1}} < Q.

T_{N+1} does not decrease in v and no other T_i increases, so the kept v are all those up to a
threshold, which is a calibration score or infinite. Just below the score V_k, a member with
V_i < V_k does not have the new point below it, all others do: their shares are known in advance,
one count over the bag decides about V_k, and bisection finds the threshold in log₂ N counts, for
all rows at once. At the smallest score T_{N+1} = 0, so that score is always kept: a threshold of
−∞, an empty interval, cannot occur.

Shares that differ by less than 10⁻¹² count as equal. This can only keep more, so rounding does
not cost coverage.
"""

from __future__ import annotations

import numpy as np

from calliper._blocks import Scratch
from calliper._types import FloatArray, IntArray
from calliper.quantile import TOLERANCE, count_true


class OrderedScores:
    """Ascending scores, and where each run of equal ones begins.

    Attributes
    ----------
    values : (N,) the scores
    n_below : (N,) for each, how many are smaller
    starts : (G+1,) first place of each of the G distinct scores, then N
    candidates : (G+1,) the distinct scores, then infinity
    """

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.n_below: IntArray = np.searchsorted(values, values, side="left")
        starts = np.unique(self.n_below)
        self.starts: IntArray = np.append(starts, len(values))
        self.candidates: FloatArray = np.append(values[starts], np.inf)

    def __len__(self) -> int:
        return len(self.values)


def largest_kept(
    ordered: OrderedScores,
    weight: FloatArray,
    share: FloatArray,
    share_with_new: FloatArray,
    ranks: list[int],
    scratch: Scratch,
) -> FloatArray:
    """The threshold of each row for each rank Q, (m, L); O(N log N) a row and rank.

    Parameters
    ----------
    weight : (m, N) of the calibration points as the new point sees them; its own weight is 1
    share : (m, N) T_i while the new point is not below i
    share_with_new : (m, N) T_i while it is
    """
    m, n = weight.shape
    own = scratch.array("own share", (m, n + 1))
    own[:, 0] = 0.0
    np.cumsum(weight, axis=1, out=own[:, 1:])
    own /= own[:, -1:] + 1.0
    own -= TOLERANCE
    columns, rows = np.arange(n, dtype=np.int32), np.arange(m)
    counted = scratch.array("counted", (m, n), np.bool_)
    behind = scratch.array("behind", (m, n), np.bool_)
    below = scratch.array("below", (m, n), np.bool_)
    threshold = np.empty((m, len(ranks)))
    last = len(ordered.starts) - 1
    for level, rank in enumerate(ranks):
        low, high = np.zeros(m, dtype=np.intp), np.full(m, last)
        for _ in range(last.bit_length()):
            middle = (low + high + 1) // 2
            first = ordered.starts[middle]
            reached = own[rows, first][:, None]
            np.less(share, reached, out=counted)
            counted &= np.less(columns, first[:, None].astype(np.int32), out=below)
            counted |= np.less(share_with_new, reached, out=behind)
            kept = count_true(counted) < rank
            low, high = np.where(kept, middle, low), np.where(kept, high, middle - 1)
        threshold[:, level] = ordered.candidates[low]
    return threshold
