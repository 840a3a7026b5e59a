"""Interval scores row by row, and how much of them is the luck of the draw."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.intervals import Intervals
from calliper.quantile import as_fraction
from calliper.report.comparison._fit import Answer

#: Resamples of the test points: an error of an error of some five percent.
N_RESAMPLES = 200
#: Units that are drawn; of more rows, several at random make a unit, and memory stays bounded.
MOST_UNITS = 20_000


class Resamples:
    """Resamples of ``n`` rows: which rows are drawn together, and how often.

    Means over resamples of units that were put together at random scatter as those of rows do.
    """

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n_units = min(n, MOST_UNITS)
        drawn = [
            np.bincount(rng.integers(self.n_units, size=self.n_units), minlength=self.n_units)
            for _ in range(N_RESAMPLES)
        ]
        self.counts: FloatArray = np.array(drawn, dtype=np.float64)
        unit = np.arange(n) if n == self.n_units else rng.permutation(n) % self.n_units
        self.unit: IntArray = unit
        self.sizes: FloatArray = self.counts @ np.bincount(unit, minlength=self.n_units)

    def means(self, rows: FloatArray) -> FloatArray:
        """The mean of each column of ``rows`` in each resample, (N_RESAMPLES, columns)."""
        sums = np.zeros((self.n_units, rows.shape[1]))
        for place, column in enumerate(rows.T):
            sums[:, place] = np.bincount(self.unit, column, self.n_units)
        found: FloatArray = self.counts @ sums / self.sizes[:, None]
        return found


class Scores:
    """Interval scores of all methods at one level, and what resampling does to their means.

    All methods share the resamples of the test points, so that errors of their differences are
    those of pairs.
    """

    def __init__(
        self,
        y: FloatArray,
        answers: Sequence[Answer],
        level: float,
        resamples: Resamples,
    ) -> None:
        self.names = [answer.method for answer in answers]
        rows = np.column_stack([row_scores(y, answer.at(level), level) for answer in answers])
        self.means: FloatArray = rows.mean(axis=0)
        finite = np.isfinite(self.means)
        self.resampled = np.full((N_RESAMPLES, len(answers)), np.inf)
        self.resampled[:, finite] = resamples.means(rows[:, finite])

    def error(self, name: str) -> float:
        """The bootstrap error of the mean score, over test points."""
        return spread(self.resampled[:, self.names.index(name)])

    def ratio(self, name: str, reference: str) -> tuple[float, float]:
        """The score over that of another method, and its error over test points."""
        a, b = self.names.index(name), self.names.index(reference)
        if name == reference:
            return 1.0, 0.0
        if not np.isfinite(self.means[b]) or self.means[b] == 0:
            return nan, nan
        return float(self.means[a] / self.means[b]), spread(
            self.resampled[:, a] / self.resampled[:, b]
        )


def row_scores(y: FloatArray, intervals: Intervals, level: float) -> FloatArray:
    """The interval score of each row; :func:`calliper.metrics.interval_score` is its mean."""
    lower, upper = intervals
    fine = float(2 / (1 - as_fraction(level)))
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    scores: FloatArray = intervals.width + fine * outside
    return scores


def spread(values: FloatArray) -> float:
    """Half the distance of the percentiles one standard deviation to both sides of the middle."""
    if not np.isfinite(values).all():
        return nan
    low, high = np.percentile(values, [15.865525, 84.134475])
    return float(high - low) / 2
