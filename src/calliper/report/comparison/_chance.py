"""What chance alone does to coverage: the draw of the calibration set, and that of the test set.

Given the calibration set, the coverage C of split conformal is Beta(Q, N+1−Q); m test points then
cover Binomial(m, C) times. Together the number covered is beta-binomial, exactly for methods with
that law and nearly so for the others, which adapt but use the same rank of as many scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from calliper._types import FloatArray, IntArray
from calliper.quantile import conformal_rank

#: Share of perfect methods that this page suspects of covering too little or too much.
DOUBT = 0.01


@dataclass(frozen=True)
class Chance:
    """Where the coverage of a method that keeps its promise may lie on this test set."""

    low: float
    high: float


def coverage_by_chance(level: float, n_calibration: int, n_test: int) -> Chance:
    """The range that holds the coverage in 99 of 100 repetitions.

    >>> coverage_by_chance(0.9, 1000, 5000)
    Chance(low=0.8718, high=0.9252)
    """
    rank = conformal_rank(level, n_calibration)
    if rank > n_calibration:
        return Chance(1.0, 1.0)  # infinite intervals cover always
    law = stats.betabinom(n_test, rank, n_calibration + 1 - rank)
    low, high = law.ppf([DOUBT / 2, 1 - DOUBT / 2]) / n_test
    return Chance(float(low), float(high))


def bins_by_chance(level: float, n_calibration: int, n: IntArray) -> FloatArray:
    """What the coverage of each bin of ``n`` points may fall to if all bins are covered alike.

    In 99 of 100 repetitions no bin falls below its bound, however many there are.
    """
    rank = conformal_rank(level, n_calibration)
    if rank > n_calibration:
        return np.ones(len(n))
    law = stats.betabinom(n, rank, n_calibration + 1 - rank)
    bounds: FloatArray = law.ppf(DOUBT / len(n)) / n
    return bounds
