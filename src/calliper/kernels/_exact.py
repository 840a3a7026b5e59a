"""Sums that do not depend on the order of what is summed, nor on how it is dealt into parts.

A non-negative number is written in digits to the base 2²⁴, on one grid for all numbers. Digits of
many numbers are summed exactly, whoever sums which of them first; carried over, they are the one
way to write the sum, and what it is rounded to depends on nothing else. Where points that share a
place are dealt to several machines, each sums the digits of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.quantile import exponent

#: Bits of a digit: sums of 2²⁹ digits are exact.
BITS = 24

#: The lowest digit, below which nothing but the last bits of subnormal numbers is.
LOWEST = -44


class Grid:
    """Digits that numbers up to the largest, and as fine as the smallest, have; 2 more to carry.

    Parameters
    ----------
    values : numbers, or the smallest positive and the largest of them
    """

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
