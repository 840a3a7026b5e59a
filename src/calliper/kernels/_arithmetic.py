"""Ratios, products, roots and exact sums of scales and scores, with rules at zero and infinity.

A non-negative number is written in digits to the base 2²⁴, on one grid for all numbers. Digits of
many numbers are summed exactly, in any order; after carrying, there is only one way to write the
sum, so its rounding depends on nothing else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.quantile import exponent

#: Bits of a digit: sums of 2²⁹ digits are exact.
BITS = 24

#: The lowest digit, below which nothing but the last bits of subnormal numbers is.
LOWEST = -44


def rescale(scores: FloatArray, scale: FloatArray) -> FloatArray:
    """S / ŝ, in the shape of ŝ; +∞ wherever ŝ = 0: such a point loses no comparison.

    A ratio too small to have all its digits is raised to the next number.
    """
    rescaled = np.full(scale.shape, np.inf)
    with np.errstate(over="ignore", under="ignore"):  # an infinite ratio is valid
        np.divide(scores, scale, out=rescaled, where=scale > 0)
    lossy = (scores > 0) & (rescaled < np.finfo(np.float64).tiny)
    return np.where(lossy, np.nextafter(rescaled, np.inf), rescaled) if lossy.any() else rescaled


def times(scale: FloatArray, rescaled: FloatArray) -> FloatArray:
    """ŝ · s⁺ in place of the scales; infinite where s⁺ is, even if the scale is zero."""
    with np.errstate(invalid="ignore"):
        scale *= rescaled
    np.copyto(scale, np.inf, where=np.isinf(rescaled))
    return scale


def positive_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The t ≥ 0 with at² + bt = c, for a, b, c ≥ 0; infinite where nothing bounds it.

    2c / (b + √(b² + 4ac)) never subtracts.
    """
    with np.errstate(over="ignore"):
        denominator = linear + np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    root: FloatArray = np.where((constant == 0) & (np.asarray(quadratic) > 0), 0.0, np.inf)
    np.divide(2 * constant, denominator, out=root, where=denominator > 0)
    return root


def signed_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The largest t ≥ 0 with at² + bt ≤ c, for a > 0, c ≥ 0 and any b, without subtracting."""
    root = np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    outer = (np.maximum(-linear, 0.0) + root) / (2 * quadratic)
    return np.where(linear < 0, outer, positive_root(quadratic, np.maximum(linear, 0.0), constant))


class Grid:
    """Digits that numbers up to the largest, and as fine as the smallest, have; 2 more to carry."""

    def __init__(self, values: FloatArray) -> None:
        smallest = values[values > 0].min(initial=np.inf)
        finest = -53 if np.isinf(smallest) else int(np.frexp(smallest)[1]) - 53
        self.low = max(finest // BITS, LOWEST)
        self.n = max(exponent(values) // BITS - self.low, 0) + 3

    def sums(self, values: FloatArray, add: Callable[[FloatArray], Any]) -> FloatArray:
        """What ``add`` makes of each digit of values ≥ 0, (..., n), the lowest first."""
        rest, found = np.array(values, dtype=np.float64), []
        for power in range(self.low + self.n - 3, self.low, -1):
            digit = np.floor(np.ldexp(rest, -BITS * power))
            rest -= np.ldexp(digit, BITS * power)
            found.append(add(digit))
        found.append(add(np.ldexp(rest, -BITS * self.low)))
        carried = np.zeros_like(found[0])
        return np.stack([*found[::-1], carried, carried], axis=-1)

    def rounded(self, digits: FloatArray) -> FloatArray:
        """The number that digits, (..., n), sum up to."""
        digits = np.array(digits)
        for power in range(self.n - 1):
            carry = np.floor(np.ldexp(digits[..., power], -BITS))
            digits[..., power] -= np.ldexp(carry, BITS)
            digits[..., power + 1] += carry
        total = np.zeros(digits.shape[:-1])
        for power in range(self.n):
            total += np.ldexp(digits[..., power], BITS * (self.low + power))
        return total
