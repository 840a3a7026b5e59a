"""The results of each method on the test points: measures, coverage in parts, errors by width.

If every part of the test set is covered alike, its number of covered points is beta-binomial, as
that of the whole test set is. Of B parts examined for K methods, one falls below its quantile at
1 % / (B K) in at most one case of 100.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from calliper import metrics
from calliper._types import FloatArray
from calliper.lab.comparison._answers import FEWEST_TEST_POINTS, Answer, Points, Sets
from calliper.lab.comparison._contest import COVERAGE_DOUBT, Scores, by_chance

#: Registered measures that a record holds under the same names.
_MEASURED = ("coverage", "mean_width", "median_width", "tau_si", "r2_sqi", "fraction_infinite")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One method at one level; NaN where a measure does not exist.

    Attributes
    ----------
    method, level : which method, at which level
    coverage, coverage_error : share of the test points inside, and its binomial standard error
    chance_low, chance_high : range of the coverage in 99 of 100 draws of calibration and test set
    mean_width, median_width : in the unit of y
    score, score_error : the mean interval score, smaller is better
    relative_score, relative_score_error : the score divided by that of split, from the same
        resamples; below 1 is better than a constant width
    worst_by_prediction, worst_by_width : coverage of the worst tenth, or of other parts where
        ties allow no tenths
    tau_si, r2_sqi : whether widths follow errors; see :mod:`calliper.metrics`
    fraction_infinite : share of the intervals without a bound
    proved : the proved coverage
    guarantee : the guarantee in words
    seconds : time to fit the method and predict at all levels

    Examples
    --------
    >>> from calliper import Split
    >>> from calliper.lab.comparison import compare
    >>> cal, test = (Points(x, x, 0 * x) for x in np.random.default_rng(0).normal(size=(2, 200)))
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


class Short(NamedTuple):
    """A bin that is covered less often than chance explains: its number, and its range or group."""

    number: int
    where: str
    n: int
    coverage: float
    by_chance: float


@dataclass(frozen=True, eq=False, kw_only=True)
class CoveragePart:
    """Coverage of one method at one level in bins of one quantity.

    ``by`` is ``"width"``, ``"prediction"``, ``"group"`` or ``"feature"``, the latter two with their
    ``name``.
    """

    method: str
    level: float
    by: str
    name: str
    table: metrics.CoverageTable

    def short(self, n_calibration: int, *, looks: int = 1) -> list[Short]:
        """Bins that are covered less often than chance explains; a single bin is never one."""
        table, where = self.table, f"{self.name} {{!r}}" if self.by == "group" else "{}"
        # If all bins are alike, none falls below its bound in 99 of 100 repetitions.
        doubt = COVERAGE_DOUBT / (len(table.n) * looks)
        bounds = by_chance(self.level, n_calibration, table.n, doubt)
        rows = zip(table.labels, table.n, table.coverage, bounds, strict=True)
        return [
            Short(number, where.format(label), int(n), float(coverage), float(bound))
            for number, (label, n, coverage, bound) in enumerate(rows)
            if coverage < bound and len(table.n) > 1
        ]

    def to_values(self) -> dict[str, Any]:
        """Values for JSON."""
        values = asdict(self)
        table = values.pop("table")
        columns = ("labels", "n", "coverage", "lower", "upper", "mean_width")
        return values | {column: table[column] for column in columns}


@dataclass(frozen=True, eq=False, kw_only=True)
class Deciles:
    """Median width and error quantile in each tenth of the widths.

    Intervals ŷ ± width/2 that fit their errors have width = 2 · error.
    """

    method: str
    level: float
    width: FloatArray
    error: FloatArray


def measure(
    answer: Answer, sets: Sets, scores: Scores, parts: Sequence[CoveragePart], reference: str
) -> Record:
    """All measures of one method at one level, with its coverage in ``parts`` of the test set."""
    level, test = scores.level, sets.test
    worst = {by: _worst(parts, answer.method, by) for by in ("prediction", "width")}
    context = metrics.Context(level=level, y_pred=test.y_pred)
    found = metrics.measured(_MEASURED, test.y, answer.at(level), context)
    covered, m = found["coverage"], len(test)
    both = [COVERAGE_DOUBT / 2, 1 - COVERAGE_DOUBT / 2]
    low, high = by_chance(level, len(sets.calibration), m, both).tolist()
    score, score_error = scores.of(answer.method)
    guarantee = next(g for g in answer.guarantees if g.coverage == level)
    ratio, ratio_error = scores.ratio(answer.method, reference)
    return Record(
        method=answer.method,
        level=level,
        coverage_error=sqrt(covered * (1 - covered) / m),
        chance_low=low,
        chance_high=high,
        score=score,
        score_error=score_error,
        relative_score=ratio,
        relative_score_error=ratio_error,
        worst_by_prediction=worst["prediction"],
        worst_by_width=worst["width"],
        proved=guarantee.proved,
        guarantee=replace(guarantee, method=answer.method, checks="").describe(),
        seconds=answer.seconds,
        **found,
    )


def _worst(parts: Sequence[CoveragePart], method: str, by: str) -> float:
    """Coverage of the worst part; parts of a few points count only if there are no others."""
    for table in (part.table for part in parts if (part.method, part.by) == (method, by)):
        large = table.n >= FEWEST_TEST_POINTS
        return float(table.coverage[large].min()) if large.any() else table.worst
    return nan


def cut(answer: Answer, level: float, sets: Sets) -> Iterator[CoveragePart]:
    """Coverage of one method at one level by width, prediction, feature and group."""
    test, intervals = sets.test, answer.at(level)
    values = {("prediction", ""): test.y_pred}
    values |= {("feature", test.feature_names[i]): test.Z[:, i] for i in sets.shown_features}
    tables: dict[tuple[str, str], metrics.CoverageTable] = {}
    with warnings.catch_warnings():
        # The checks report ties, constant values and small bins once for all methods.
        warnings.simplefilter("ignore")
        finite = intervals.width[np.isfinite(intervals.width)]
        if len(finite) and np.ptp(finite) > 1e-9 * finite.max():
            tables["width", ""] = metrics.coverage_by_width(test.y, intervals)
        for key, each in values.items():
            tables[key] = metrics.coverage_by_value(test.y, intervals, each)
        if sets.groups is not None:
            names = sorted(set(sets.groups), key=_natural)
            number = {name: i for i, name in enumerate(names)}
            table = metrics.coverage_by_group(test.y, intervals, [number[g] for g in sets.groups])
            tables["group", sets.group_name] = replace(table, labels=tuple(names))
    for (by, name), table in tables.items():
        yield CoveragePart(method=answer.method, level=level, by=by, name=name, table=table)


def _natural(name: str) -> tuple[bool, float, str]:
    """Sort numbers by value, then names alphabetically."""
    try:
        value = float(name)
    except ValueError:
        return True, 0.0, name
    return value != value, value if value == value else 0.0, name


def deciles(answer: Answer, level: float, test: Points) -> Deciles:
    """The points of R²_SQI for the figure, without infinite widths."""
    width = answer.at(level).width
    finite = np.isfinite(width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = metrics.sqi_table(test.errors[finite], width[finite], level)
    return Deciles(method=answer.method, level=level, width=table.isq, error=table.csq)
