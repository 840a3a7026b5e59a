"""Local scales mixed with one global scale, the median of all scores of the bag.

    ŝ_i(t) = (1−m)·local_i(t) + m·g(t),    g(t) the ⌈(N+1)/2⌉-th smallest of s_1 … s_N and t.

The median treats all members of the bag alike, so the guarantee of the full method is untouched.
It is a clamp: with a ≤ b the neighbouring order statistics of the calibration scores,
g(t) = min(max(t, a), b). Scales matter up to a common factor, so (1−m) is divided out and κg(t),
κ = m/(1−m), is added to every local scale:

    below a   the constant κa is added: the closed form with an offset, radius R_a
    above b   the constant κb is added: the same, radius R_b
    between   κt is added; comparison i holds as long as t·(L_i(t) + κt) ≤ s_i·(L_{N+1} + κt),
              a quadratic equation for t_i

Each comparison holds up to one t_i still: s_i L_{N+1} + t·(κs_i − L_i(t) − κt) is a non-negative
constant plus t times something that decreases, so once negative it stays so. The answer is
therefore R_b if R_b ≥ b; if not, R_a if R_a ≤ a; and if neither, it lies between. The median
is constant outside [a, b], which the mean is nowhere: that is why it is the global scale here.

Letters: m → ``shrinkage``, κ → ``slope``, a, b → ``low``, ``high``.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np

from calliper._types import FloatArray


class Bag(Protocol):
    """Thresholds of the full method for one constant added to every scale."""

    offset: float

    def with_offset(self, offset: float) -> Self: ...

    def calibration_scale(self, level: float) -> FloatArray: ...

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray: ...

    def rising_order_statistic(self, Z: FloatArray, level: float, slope: float) -> FloatArray: ...


class ShrunkBag:
    """Thresholds t_i of the full method with shrunk scales.

    Parameters
    ----------
    bag : the local scales
    magnitudes : (N,) what scales are made of, N ≥ 2
    shrinkage : m, at least 0 and below 1
    """

    def __init__(self, bag: Bag, magnitudes: FloatArray, shrinkage: float) -> None:
        self.bag, self.slope = bag, shrinkage / (1 - shrinkage)
        middle = (len(magnitudes) + 2) // 2
        below, above = np.partition(magnitudes, [middle - 2, middle - 1])[middle - 2 : middle]
        self.low, self.high = float(below), float(above)
        self.at_low = bag.with_offset(bag.offset + self.slope * self.low)
        self.at_high = bag.with_offset(bag.offset + self.slope * self.high)

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, times 1/(1−m), (N,)."""
        return self.at_high.calibration_scale(level)

    def order_statistics(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i: (m, L)."""
        radius = self.at_high.order_statistics(Z, levels)
        small = radius < self.high
        rows = np.flatnonzero(small.any(axis=1))
        if not len(rows):
            return radius
        below = self.at_low.order_statistics(Z[rows], levels)
        radius[rows] = np.where(small[rows], below, radius[rows])
        # Where a = 0 nothing is added at t = 0 and something beyond: R_a = 0 settles nothing.
        between = small[rows] & ((below > self.low) | (self.low == 0))
        for column in np.flatnonzero(between.any(axis=0)):
            inside = rows[between[:, column]]
            found = self.bag.rising_order_statistic(Z[inside], levels[column], self.slope)
            radius[inside, column] = np.clip(found, self.low, self.high)
        return radius
