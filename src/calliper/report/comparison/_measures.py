"""What the test points say of each method at each level, with uncertainty."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan, sqrt

import numpy as np

from calliper import metrics
from calliper._types import FloatArray
from calliper.intervals import Intervals
from calliper.quantile import as_fraction
from calliper.report.comparison._chance import coverage_by_chance
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._points import Points

#: Resamples of the test points: an error of an error of some five percent.
N_RESAMPLES = 200


@dataclass(frozen=True)
class Record:
    """One method at one level; NaN where a measure does not exist.

    Attributes
    ----------
    method, level : which
    coverage, coverage_error : share of the test points inside, and its binomial standard error
    chance_low, chance_high : where 99 of 100 draws of calibration and test set would put it
    mean_width, median_width : in the unit of y
    score, score_error : the mean interval score, smaller is better
    relative_score, relative_score_error : the score divided by that of split, from the same
        resamples; below 1 is better than a constant width
    worst_by_prediction, worst_by_width : coverage of the worst tenth
    tau_si, r2_sqi : do widths follow errors; see :mod:`calliper.metrics`
    fraction_infinite : share of the intervals without a bound
    proved : the proved coverage
    guarantee : the promise in words
    seconds : to fit the method and answer at all levels
    """

    method: str
    level: float
    coverage: float
    coverage_error: float
    chance_low: float
    chance_high: float
    mean_width: float
    median_width: float
    score: float
    score_error: float
    relative_score: float
    relative_score_error: float
    worst_by_prediction: float
    worst_by_width: float
    tau_si: float
    r2_sqi: float
    fraction_infinite: float
    proved: float
    guarantee: str
    seconds: float


class Scores:
    """Interval scores of all methods at one level, row by row, and what resampling does to them.

    All methods share the resamples, so that errors of their differences are those of pairs.
    """

    def __init__(
        self, y: FloatArray, answers: Sequence[Answer], level: float, counts: FloatArray
    ) -> None:
        self.names = [answer.method for answer in answers]
        self.rows = np.column_stack([row_scores(y, a.at(level), level) for a in answers])
        self.means: FloatArray = self.rows.mean(axis=0)
        finite = np.isfinite(self.means)
        self.resampled = np.full((len(counts), len(answers)), np.inf)
        self.resampled[:, finite] = counts @ self.rows[:, finite] / len(y)

    def error(self, name: str) -> float:
        """The bootstrap error of the mean score."""
        return spread(self.resampled[:, self.names.index(name)])

    def ratio(self, name: str, reference: str) -> tuple[float, float]:
        """The score over that of another method, and its error."""
        a, b = self.names.index(name), self.names.index(reference)
        if name == reference:
            return 1.0, 0.0
        if not np.isfinite(self.means[b]) or self.means[b] == 0:
            return nan, nan
        return float(self.means[a] / self.means[b]), spread(
            self.resampled[:, a] / self.resampled[:, b]
        )


def resamples(n: int, seed: int) -> FloatArray:
    """How often each of ``n`` rows is drawn in each resample, (N_RESAMPLES, n)."""
    rng = np.random.default_rng(seed)
    drawn = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(N_RESAMPLES)]
    return np.array(drawn, dtype=np.float64)


def row_scores(y: FloatArray, intervals: Intervals, level: float) -> FloatArray:
    """The interval score of each row; :func:`calliper.metrics.interval_score` is its mean."""
    lower, upper = intervals
    fine = float(2 / (1 - as_fraction(level)))
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    scores: FloatArray = upper - lower + fine * outside
    return scores


def spread(values: FloatArray) -> float:
    """Half the distance of the percentiles one standard deviation to both sides of the middle."""
    if not np.isfinite(values).all():
        return nan
    low, high = np.percentile(values, [15.865525, 84.134475])
    return float(high - low) / 2


def measure(
    answer: Answer,
    level: float,
    test: Points,
    scores: Scores,
    reference: str,
    worst: tuple[float, float],
    n_calibration: int,
) -> Record:
    """All measures of one method at one level."""
    one = answer.at(level)
    covered, m = float(metrics.empirical_coverage(test.y, one)), len(test)
    chance = coverage_by_chance(level, n_calibration, m)
    guarantee = next(g for g in answer.guarantees if g.coverage == level)
    with warnings.catch_warnings():
        # Constant widths have no ranks and too few points no bins: NaN, and the page says why.
        warnings.simplefilter("ignore")
        tau = metrics.tau_si(test.y, one, y_pred=test.y_pred)
        r2 = metrics.r2_sqi(test.y, one, y_pred=test.y_pred)
    return Record(
        answer.method,
        level,
        covered,
        sqrt(covered * (1 - covered) / m),
        chance.low,
        chance.high,
        float(metrics.mean_width(one)),
        float(np.median(one.width)),
        float(scores.means[scores.names.index(answer.method)]),
        scores.error(answer.method),
        *scores.ratio(answer.method, reference),
        *worst,
        tau,
        r2,
        float(metrics.fraction_infinite(one)),
        guarantee.proved,
        replace(guarantee, method=answer.method).describe(),
        answer.seconds,
    )
