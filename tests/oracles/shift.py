"""§18 as it stands: p-values and quantiles by weight, recomputed for every candidate.

KNN quantities and weights are exact rationals; radial ones carry 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from oracles.rescaled import exact_numbers, kernel_weights, weighted_mean, weighted_rank


def weighted_quantile(
    values: Sequence[float], weights: Sequence[float], new: float, level: Fraction
) -> float:
    """§1.2: the first value at which weights reach the level, the new point's at infinity."""
    share = [Fraction(float(w)) for w in weights]
    needed, reached = level * (sum(share) + Fraction(float(new))), Fraction(0)
    for value, w in sorted(zip(values, share, strict=True)):
        reached += w
        if reached >= needed:
            return float(value)
    return math.inf


def p_value_by_weight(
    t: float, Z: Any, scores: Any, z_new: Any, weights: Any, new: float, *,
    kernel: tuple[str, float], level: Fraction, statistic: str = "mean", shrinkage: float = 0.0,
) -> Fraction:  # fmt: skip
    """§18: (sum of w_i with sigma_i(t) >= sigma_{N+1}(t), and w_{N+1}) / (sum of all).

    Scales are those of §3 over the bag without the member itself, mixed with the bag's median.
    """
    power = 2 if statistic == "rms" else 1
    bag = np.vstack([np.asarray(Z, float), np.reshape(z_new, (1, -1))])
    s = [v**power for v in exact_numbers([*scores, t], kernel)]
    n = len(s) - 1
    (m,) = exact_numbers([shrinkage], kernel)
    median = sorted(s)[math.ceil((n + 1) / 2) - 1]

    def scale(i: int) -> Any:
        others = [k for k in range(n + 1) if k != i]
        row = kernel_weights(bag, bag[i], others, kernel)
        if statistic == "quantile":
            return (1 - m) * weighted_rank(row, s, level) + m * median
        return (1 - m) * weighted_mean(row, s) + m * median

    own = scale(n)
    slack = 1e-40 if kernel[0] == "rbf" else 0
    share = [Fraction(float(w)) for w in weights]
    held = sum(share[i] for i in range(n) if s[i] * own >= s[n] * scale(i) * (1 - slack))
    return (held + Fraction(float(new))) / (sum(share) + Fraction(float(new)))


def jackknife_by_weight(
    Z: Any, scores: Any, z_new: Any, weights: Any, new: float, *,
    kernel: tuple[str, float], level: Fraction,
) -> float:  # fmt: skip
    """§2.1's products, §18's quantile."""
    n = len(scores)
    s = exact_numbers(scores, kernel)
    products = []
    for i in range(n):
        others = [k for k in range(n) if k != i]
        at_i = weighted_mean(kernel_weights(Z, Z[i], others, kernel), s)
        at_new = weighted_mean(kernel_weights(Z, z_new, others, kernel), s)
        products.append(math.inf if at_i == 0 else float(at_new * s[i] / at_i))
    return weighted_quantile(products, weights, new, level)
