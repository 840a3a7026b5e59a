"""The predictive system of §17, recomputed from scratch for every candidate target.

Nothing is solved: the new point gets a candidate error, every member of the bag its scale from the
other members (§3.1, §3.4, §24, and the median of the bag where scales are shrunk), and rescaled
errors are compared. Neighbours are counted in rationals, radial weights in 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from oracles.rescaled import MP, kernel_weights, squared_distance, weighted_mean

#: Weights of the other members in the scale of member i of the bag.
Weigh = Callable[[Any, int], list[tuple[int, Any]]]


def by_kernel(kernel: tuple[str, float]) -> Weigh:
    """The K nearest, ties shared, or radial weights."""
    return lambda bag, i: kernel_weights(
        bag, bag[i], [k for k in range(len(bag)) if k != i], kernel
    )


def smoothed(length_scale: float, smoothing: float) -> Weigh:
    """Radial weights with b/N added to each, N the number of calibration rows."""

    def weigh(bag: Any, i: int) -> list[tuple[int, Any]]:
        floor, length = MP.mpf(smoothing) / (len(bag) - 1), MP.mpf(length_scale)
        others = [k for k in range(len(bag)) if k != i]
        squares = {k: MP.mpf(squared_distance(bag[k], bag[i])) for k in others}
        return [(k, MP.exp(-squares[k] / (2 * length * length)) + floor) for k in others]

    return weigh


def common_leaves(bag: Any, i: int) -> list[tuple[int, Any]]:
    """How many columns two rows agree in; all count equally where no other agrees in any."""
    others = [k for k in range(len(bag)) if k != i]
    counts = [(k, Fraction(int(np.sum(bag[k] == bag[i])))) for k in others]
    return counts if any(count for _, count in counts) else [(k, Fraction(1)) for k in others]


def rescaled(
    weigh: Weigh, Z: Any, errors: Sequence[float], new: Any, error: float, *,
    statistic: str = "mean", offset: float = 0.0, shrinkage: float = 0.0,
) -> tuple[list[Any], Any, Any]:  # fmt: skip
    """σ_i(y) of the calibration rows, σ_{N+1}(y) and the scale of the new point.

    For rms, signed squares of them, which are in the same order.
    """
    bag, power = np.vstack([Z, new]), 2 if statistic == "rms" else 1
    weights = [weigh(bag, i) for i in range(len(bag))]
    number = Fraction if isinstance(weights[0][0][1], Fraction) else MP.mpf
    signed = [number(float(e)) for e in [*errors, error]]
    sizes = [abs(e) ** power for e in signed]
    median = sorted(sizes)[-(-len(sizes) // 2) - 1]
    share = number(float(shrinkage))

    def sigma(i: int) -> tuple[Any, Any]:
        scale = (1 - share) * weighted_mean(weights[i], sizes) + share * median
        scale += number(float(offset)) ** power
        if signed[i] == 0:
            return number(0), scale
        size = sizes[i] / scale if scale else math.inf
        return (size if signed[i] > 0 else -size), scale

    *old, (own, scale) = (sigma(i) for i in range(len(bag)))
    return [value for value, _ in old], own, scale
