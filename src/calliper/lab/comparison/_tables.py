"""What the test points say of each method: measures, coverage in parts, errors by width."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan, sqrt
from typing import Any

import numpy as np

from calliper import metrics
from calliper._types import FloatArray
from calliper.intervals import Intervals
from calliper.lab.comparison._answers import Answer, Sets
from calliper.lab.comparison._contest import Scores, coverage_by_chance
from calliper.lab.comparison._points import FEWEST_TEST_POINTS, Points

#: What a record has of the registered measures, by the same names.
_MEASURED = ("coverage", "mean_width", "median_width", "tau_si", "r2_sqi", "fraction_infinite")


@dataclass(frozen=True, kw_only=True)
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

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Split
    >>> from calliper.lab.comparison import Points, compare
    >>> x = np.random.default_rng(0).normal(size=(2, 200))
    >>> cal, test = (Points(each, y=each, y_pred=np.zeros(200)) for each in x)
    >>> record = compare(cal, test, methods={"split": Split()}).record("split", 0.9)
    >>> record.relative_score, record.coverage > 0.8
    (1.0, True)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class CoveragePart:
    """Coverage of one method at one level, cut by one quantity.

    ``by`` is ``"width"``, ``"prediction"``, ``"group"`` or ``"feature"``, the latter two with their
    ``name``.
    """

    method: str
    level: float
    by: str
    name: str
    table: metrics.CoverageTable

    def to_values(self) -> dict[str, Any]:
        """For JSON."""
        values = asdict(self)
        table = values.pop("table")
        columns = ("labels", "n", "coverage", "lower", "upper", "mean_width")
        return values | {column: table[column] for column in columns}


@dataclass(frozen=True, eq=False, kw_only=True)
class Deciles:
    """In each tenth of the widths: the width in the middle, and the error at the level.

    Intervals ŷ ± width/2 that are as wide as the errors ask for have width = 2 · error.
    """

    method: str
    level: float
    width: FloatArray
    error: FloatArray


def measure(
    answer: Answer, sets: Sets, scores: Scores, parts: Sequence[CoveragePart], *, reference: str
) -> Record:
    """All measures of one method at one level; ``parts`` are its coverage in parts of the test."""
    level, test = scores.level, sets.test
    context = metrics.Context(level=level, y_pred=test.y_pred)
    found = metrics.measured(_MEASURED, test.y, answer.at(level), context)
    covered, m = found["coverage"], len(test)
    low, high = coverage_by_chance(level, len(sets.calibration), m)
    guarantee = next(g for g in answer.guarantees if g.coverage == level)
    ratio, ratio_error = scores.ratio(answer.method, reference)
    return Record(
        method=answer.method,
        level=level,
        coverage_error=sqrt(covered * (1 - covered) / m),
        chance_low=low,
        chance_high=high,
        score=float(scores.means[scores.names.index(answer.method)]),
        score_error=scores.error(answer.method),
        relative_score=ratio,
        relative_score_error=ratio_error,
        worst_by_prediction=_worst(parts, "prediction"),
        worst_by_width=_worst(parts, "width"),
        proved=guarantee.proved,
        guarantee=replace(guarantee, method=answer.method, checks="").describe(),
        seconds=answer.seconds,
        **found,
    )


def _worst(parts: Sequence[CoveragePart], by: str) -> float:
    """Coverage of the worst part; those of a handful of points count if there are no others."""
    found = [part.table for part in parts if part.by == by]
    if not found:
        return nan
    large = found[0].n >= FEWEST_TEST_POINTS
    return float(found[0].coverage[large].min()) if large.any() else found[0].worst


def cut(answer: Answer, level: float, sets: Sets) -> Iterator[CoveragePart]:
    """All tables of one method at one level."""
    for by, name, table in _cuts(answer.at(level), sets):
        yield CoveragePart(method=answer.method, level=level, by=by, name=name, table=table)


def _cuts(intervals: Intervals, sets: Sets) -> Iterator[tuple[str, str, metrics.CoverageTable]]:
    """What the test set is cut by, its name, and coverage in each part."""
    test, y = sets.test, sets.test.y
    with warnings.catch_warnings():
        # What is tied, constant or alone in its bin is said once, by the checks.
        warnings.simplefilter("ignore")
        finite = np.isfinite(intervals.width)
        if finite.any() and np.ptp(intervals.width[finite]) > 1e-9 * intervals.width[finite].max():
            yield "width", "", metrics.coverage_by_width(y, intervals)
        yield "prediction", "", metrics.coverage_by_value(y, intervals, test.y_pred)
        for column in sets.shown_features:
            table = metrics.coverage_by_value(y, intervals, test.Z[:, column])
            yield "feature", test.feature_names[column], table
        if sets.groups is not None:
            yield "group", sets.group_name, by_group(y, intervals, sets.groups)


def by_group(y: FloatArray, intervals: Intervals, groups: Sequence[str]) -> metrics.CoverageTable:
    """Coverage in each group, in the order of numbers if all names are numbers."""
    names = sorted(set(groups), key=_natural)
    place = {name: i for i, name in enumerate(names)}
    table = metrics.coverage_by_group(y, intervals, np.array([place[name] for name in groups]))
    return replace(table, labels=tuple(names))


def _natural(name: str) -> tuple[bool, float, str]:
    """Numbers by their value, then names by their letters."""
    try:
        value = float(name)
    except ValueError:
        return True, 0.0, name
    return value != value, value if value == value else 0.0, name


def deciles(answer: Answer, level: float, test: Points) -> Deciles:
    """The points of R²_SQI, for drawing; infinite widths are left out."""
    intervals = answer.at(level)
    finite = np.isfinite(intervals.width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = metrics.sqi_table(
            test.errors[finite],
            intervals.width[finite],
            level,
            n_bins=10,
            bin_width="median",
            min_bin_size=None,
        )
    return Deciles(method=answer.method, level=level, width=table.isq, error=table.csq)
