"""What a neighbourhood of K scores says about the local scale, and where full conformal crosses.

In the full method the score t of the new point enters the scale ŝ_i(t) of every calibration
point that counts it among its K nearest. Any ŝ_i(t) that does not decrease in t gives one
crossing t_i, where s_i / ŝ_i(t) = t / ŝ_{N+1}, in closed form. With C = s_i ŝ_{N+1} and the K−1
other neighbours of i:

- mean, A = Σ of the others:    t² + A t − K C = 0
- quantile, the r-th smallest of K:  ŝ_i(t) = clamp(t, a, b) with a, b the (r−1)-th and r-th
  smallest of the others, so t = C/a if C ≤ a², √C if C ≤ b², C/b beyond.

A constant offset added to every scale keeps each equation quadratic, and so does an offset that
rises with t, κt, on both sides of the comparison.
"""

from __future__ import annotations

from copy import copy
from math import ceil
from typing import Self

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.quantile import as_fraction


class MeanStatistic:
    """Mean of the K neighbours. ``inner`` (N, K−1) are those that stay if a new point enters."""

    def __init__(self, inner: FloatArray, last: FloatArray, offset: float) -> None:
        self.k, self.offset = inner.shape[1] + 1, offset
        self.inner_sum = inner.sum(axis=1)
        self.full_sum = self.inner_sum + last

    def with_offset(self, offset: float) -> Self:
        """The same neighbours with another constant added."""
        other = copy(self)
        other.offset = offset
        return other

    def key(self, level: float) -> int:
        """Levels with equal keys have equal scales."""
        return 0

    def of_calibration(self, level: float) -> FloatArray:
        """Scales of the calibration points that the new point does not enter."""
        scale: FloatArray = self.full_sum / self.k + self.offset
        return scale

    def of_new(self, member: FloatArray, level: float) -> FloatArray:
        """Scale of new points with neighbours' scores ``member`` (m, K)."""
        scale: FloatArray = member.mean(axis=1) + self.offset
        return scale

    def crossing(self, point: IntArray, product: FloatArray, level: float) -> FloatArray:
        """t_i for points that the new one enters; ``product`` is C = s_i ŝ_{N+1}."""
        linear = self.inner_sum[point] + self.k * self.offset
        return positive_root(1.0, linear, self.k * product)

    def rising_crossing(
        self, point: IntArray, score: FloatArray, scale: FloatArray, slope: float, level: float
    ) -> FloatArray:
        """As :meth:`crossing` where slope·t is added to both scales, s_i's and ŝ_{N+1}."""
        linear = self.inner_sum[point] / self.k + self.offset - slope * score
        return signed_root(slope + 1 / self.k, linear, score * scale)


class QuantileStatistic:
    """The r-th smallest of the K neighbours, r = ⌈coverage·K⌉: a scale for each level."""

    def __init__(self, inner: FloatArray, last: FloatArray, offset: float) -> None:
        self.k, self.offset = inner.shape[1] + 1, offset
        self.inner = np.sort(inner, axis=1)
        self.full = np.sort(np.column_stack([inner, last]), axis=1)

    def with_offset(self, offset: float) -> Self:
        """The same neighbours with another constant added."""
        other = copy(self)
        other.offset = offset
        return other

    def of_calibration(self, level: float) -> FloatArray:
        """Scales of the calibration points that the new point does not enter."""
        scale: FloatArray = self.full[:, self.key(level) - 1] + self.offset
        return scale

    def of_new(self, member: FloatArray, level: float) -> FloatArray:
        """Scale of new points with neighbours' scores ``member`` (m, K)."""
        r = self.key(level)
        scale: FloatArray = np.partition(member, r - 1, axis=1)[:, r - 1] + self.offset
        return scale

    def crossing(self, point: IntArray, product: FloatArray, level: float) -> FloatArray:
        """t_i for points that the new one enters; ``product`` is C = s_i ŝ_{N+1}."""
        a, b = self._clamp(point, level)
        below = _divide(product, a + self.offset)
        between = positive_root(1.0, np.full(len(point), self.offset), product)
        above = _divide(product, b + self.offset)
        t = np.where(between <= b, between, above)
        t = np.where((between <= a) & (a > 0), below, t)
        # A scale that stays zero however large t is keeps the point ahead of every candidate.
        return np.where(b + self.offset == 0, np.inf, t)

    def rising_crossing(
        self, point: IntArray, score: FloatArray, scale: FloatArray, slope: float, level: float
    ) -> FloatArray:
        """As :meth:`crossing` where slope·t is added to both scales, s_i's and ŝ_{N+1}."""
        a, b = self._clamp(point, level)
        linear, constant = self.offset - slope * score, score * scale
        finite = np.where(np.isinf(b), 0.0, b)
        between = signed_root(slope + 1, linear, constant)
        t = np.where(between <= b, between, signed_root(slope, finite + linear, constant))
        return np.where(between <= a, signed_root(slope, a + linear, constant), t)

    def _clamp(self, point: IntArray, level: float) -> tuple[FloatArray, FloatArray]:
        """The a and b between which the scale of a point is the new score itself."""
        r = self.key(level)
        zero, unbounded = np.zeros(len(point)), np.full(len(point), np.inf)
        a = self.inner[point, r - 2] if r > 1 else zero
        return a, self.inner[point, r - 1] if r < self.k else unbounded

    def key(self, level: float) -> int:
        """r, the order statistic: levels with equal r have equal scales."""
        rank: int = ceil(as_fraction(level) * self.k)
        return rank


STATISTICS: dict[str, type[MeanStatistic] | type[QuantileStatistic]] = {
    "mean": MeanStatistic,
    "rms": MeanStatistic,
    "quantile": QuantileStatistic,
}


def positive_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The t ≥ 0 with quadratic·t² + linear·t = constant, for non-negative coefficients.

    2c / (b + √(b² + 4ac)) never subtracts. Where b = a = 0 nothing bounds t, unless c = 0 too
    and a > 0, when t = 0.
    """
    with np.errstate(over="ignore"):
        denominator = linear + np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    root: FloatArray = np.where((constant == 0) & (np.asarray(quadratic) > 0), 0.0, np.inf)
    np.divide(2 * constant, denominator, out=root, where=denominator > 0)
    return root


def signed_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The largest t ≥ 0 with quadratic·t² + linear·t ≤ constant.

    Here quadratic > 0 and constant ≥ 0, while the linear term may have any sign; whichever of
    the two forms of the root does not subtract is taken.
    """
    root = np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    outer = (np.maximum(-linear, 0.0) + root) / (2 * quadratic)
    return np.where(linear < 0, outer, positive_root(quadratic, np.maximum(linear, 0.0), constant))


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
