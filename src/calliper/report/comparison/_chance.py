"""What chance alone does to coverage: the draw of the calibration set, and that of the test set.

Given the calibration set, the coverage C of split conformal is Beta(Q, N+1−Q); m test points then
cover Binomial(m, C) times. Together the number covered is beta-binomial, exactly for methods with
that law and nearly so for the others, which adapt but use the same rank of as many scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats

from calliper.quantile import conformal_rank

#: Share of perfect methods that this page suspects of covering too little or too much.
DOUBT = 0.01


@dataclass(frozen=True)
class Chance:
    """Where the coverage of a method that keeps its promise may lie on this test set."""

    low: float
    high: float

    def below(self, coverage: float) -> bool:
        """Whether this is less than chance allows."""
        return coverage < self.low

    def above(self, coverage: float) -> bool:
        """Whether this is more than chance allows."""
        return coverage > self.high


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


def worst_bin_by_chance(level: float, n_calibration: int, n: int, n_bins: int) -> float:
    """What the worst of ``n_bins`` bins of ``n`` points may fall to if all are covered alike."""
    rank = conformal_rank(level, n_calibration)
    if rank > n_calibration:
        return 1.0
    law = stats.betabinom(n, rank, n_calibration + 1 - rank)
    return float(law.ppf(DOUBT / n_bins) / n)
