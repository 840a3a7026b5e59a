"""What the test points say of each method at each level, with uncertainty."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from math import sqrt

from calliper import metrics
from calliper.report.comparison._chance import coverage_by_chance
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._points import Points
from calliper.report.comparison._scores import Scores


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
    worst_by_prediction, worst_by_width : coverage of the worst tenth; of fewer, larger or smaller
        parts where ties allow no tenths
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
        float(metrics.median_width(one)),
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
