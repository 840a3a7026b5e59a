"""Conditional calibration straight from its definition, one linear program for each guess."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog


def multiplier(design: Any, scores: Any, level: float) -> float:
    """η of the last point in the quantile regression of all scores on the design.

    The dual problem: max Σ η_i s_i with Σ η_i Φ_i = 0 and level − 1 ≤ η_i ≤ level.
    """
    done = linprog(
        -np.asarray(scores),
        A_eq=design.T,
        b_eq=np.zeros(design.shape[1]),
        bounds=(level - 1, level),
        method="highs",
    )
    assert done.status == 0, done.message
    return float(done.x[-1])


def cutoff(design: Any, scores: Any, row: Any, level: float) -> float:
    """sup{S : η(S) < level}, by bisection; η grows with S. Infinite if no S is refused."""
    everyone = np.vstack([design, row])
    size = float(np.abs(scores).max()) or 1.0
    scores = np.asarray(scores) / size

    def accepted(S: float) -> bool:
        return multiplier(everyone, [*scores, S], level) < level - 1e-6

    high, low = 1.0, -1.0
    while accepted(high):
        high *= 4
        if high > 1e6:
            return np.inf
    while not accepted(low):
        low *= 4
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return high * size
