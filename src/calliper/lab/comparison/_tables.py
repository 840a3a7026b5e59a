"""The results of each method on the test points: measures, coverage in parts, errors by width."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan, sqrt
from typing import Any

import numpy as np

from calliper import metrics
from calliper.lab.comparison._comparison import Answer, Comparison, Part, Record
from calliper.lab.comparison._contest import COVERAGE_DOUBT, Scores, by_chance

#: With fewer test points, in all or in a part, nothing can be said about coverage.
FEWEST_TEST_POINTS = 20
#: Registered measures that a record holds under the same names.
_MEASURED = ("coverage", "mean_width", "median_width", "tau_si", "r2_sqi", "fraction_infinite")


def measure(
    found: Comparison, answer: Answer, level: float, scores: Scores, parts: Sequence[Part]
) -> Record:
    """All measures of one method at one level, with its coverage in ``parts`` of the test set."""
    test, m = found.test, len(found.test)
    context = metrics.Context(level=level, y_pred=test.y_pred)
    measured = metrics.measured(_MEASURED, test.y, answer.at(level), context)
    both = [COVERAGE_DOUBT / 2, 1 - COVERAGE_DOUBT / 2]
    low, high = by_chance(level, len(found.calibration), m, both).tolist()
    split = next(each.method for each in found.answered if each.constant)
    (score, score_error), (ratio, ratio_error) = scores.of(answer.method, split)
    guarantee = answer.guarantees[found.levels.index(level)]
    return Record(
        method=answer.method,
        level=level,
        coverage_error=sqrt(measured["coverage"] * (1 - measured["coverage"]) / m),
        chance_low=low,
        chance_high=high,
        score=score,
        score_error=score_error,
        relative_score=ratio,
        relative_score_error=ratio_error,
        worst_by_prediction=_worst(parts, answer.method, "prediction"),
        worst_by_width=_worst(parts, answer.method, "width"),
        proved=guarantee.proved,
        guarantee=replace(guarantee, method=answer.method, checks="").describe(),
        seconds=answer.seconds,
        **measured,
    )


def _worst(parts: Sequence[Part], method: str, by: str) -> float:
    """Coverage of the worst bin; bins of a few points count only if there are no others."""
    for table in (part.table for part in parts if (part.method, part.by) == (method, by)):
        large = table.n >= FEWEST_TEST_POINTS
        return float(table.coverage[large].min()) if large.any() else table.worst
    return nan


def cut(found: Comparison, answer: Answer, level: float) -> Iterator[Part]:
    """Coverage of one method at one level by width, prediction, feature and group."""
    test, intervals, groups = found.test, answer.at(level), found.groups
    values = {("prediction", ""): test.y_pred}
    values |= {("feature", test.feature_names[i]): test.Z[:, i] for i in found.shown_features}
    tables: dict[tuple[str, str], metrics.CoverageTable] = {}
    with warnings.catch_warnings():
        # The checks report ties, constant values and small bins once for all methods.
        warnings.simplefilter("ignore")
        finite = intervals.width[np.isfinite(intervals.width)]
        if len(finite) and np.ptp(finite) > 1e-9 * finite.max():
            tables["width", ""] = metrics.coverage_by_width(test.y, intervals)
        for key, each in values.items():
            tables[key] = metrics.coverage_by_value(test.y, intervals, each)
        if groups is not None:
            names = sorted(set(groups), key=_natural)
            numbers = [names.index(group) for group in groups]
            table = metrics.coverage_by_group(test.y, intervals, numbers)
            tables["group", found.group_name] = replace(table, labels=tuple(names))
    return (Part(answer.method, level, *key, table) for key, table in tables.items())


def _natural(name: str) -> tuple[bool, float, str]:
    """Sort numbers by value, then names alphabetically."""
    try:
        value = float(name)
    except ValueError:
        value = nan
    return value != value, value if value == value else 0.0, name


def deciles(found: Comparison, level: float) -> Iterator[dict[str, Any]]:
    """Median width and error quantile in each tenth of the finite widths, of each method.

    Intervals ŷ ± width/2 that fit their errors have width = 2 · error.
    """
    for answer in found.answered:
        width = answer.at(level).width
        finite = np.isfinite(width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = metrics.sqi_table(found.test.errors[finite], width[finite], level)
        named = {"method": answer.method, "level": level}
        yield {**named, "width": table.isq, "error": table.csq}
