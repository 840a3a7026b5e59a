"""Coverage in parts of the test set, and the errors that each tenth of the widths holds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from calliper._types import FloatArray
from calliper.intervals import Intervals
from calliper.metrics import CoverageTable, coverage_by_group, coverage_by_value, coverage_by_width
from calliper.metrics._bins import sqi_table
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._points import Points

#: Features that are looked at one by one; of more, those that go with the error most.
MOST_FEATURES = 8


@dataclass(frozen=True, eq=False)
class Part:
    """Coverage of one method at one level, cut by one quantity.

    ``by`` is ``"width"``, ``"prediction"``, ``"group"`` or ``"feature"``, the latter two with their
    ``name``.
    """

    method: str
    level: float
    by: str
    name: str
    table: CoverageTable


@dataclass(frozen=True, eq=False)
class Deciles:
    """In each tenth of the widths: the width in the middle, and the error at the level.

    Intervals ŷ ± width/2 that are as wide as the errors ask for have width = 2 · error.
    """

    method: str
    level: float
    width: FloatArray
    error: FloatArray


def cut(
    answer: Answer,
    level: float,
    test: Points,
    features: Sequence[int],
    groups: Sequence[str] | None,
    group_name: str,
) -> Iterator[Part]:
    """All tables of one method at one level."""
    method, intervals, y = answer.method, answer.at(level), test.y
    with warnings.catch_warnings():
        # What is tied, constant or alone in its bin is said once, by the checks.
        warnings.simplefilter("ignore")
        finite = np.isfinite(intervals.width)
        if finite.any() and np.ptp(intervals.width[finite]) > 1e-9 * intervals.width[finite].max():
            yield Part(method, level, "width", "", coverage_by_width(y, intervals))
        table = coverage_by_value(y, intervals, test.y_pred)
        yield Part(method, level, "prediction", "", table)
        for column in features:
            table = coverage_by_value(y, intervals, test.Z[:, column])
            yield Part(method, level, "feature", test.feature_names[column], table)
        if groups is not None:
            yield Part(method, level, "group", group_name, by_group(y, intervals, groups))


def by_group(y: FloatArray, intervals: Intervals, groups: Sequence[str]) -> CoverageTable:
    """Coverage in each group, in the order of numbers if all names are numbers."""
    names = sorted(set(groups), key=_natural)
    place = {name: i for i, name in enumerate(names)}
    table = coverage_by_group(y, intervals, np.array([place[name] for name in groups]))
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
        table = sqi_table(
            test.errors[finite],
            intervals.width[finite],
            level,
            n_bins=10,
            bin_width="median",
            min_bin_size=None,
        )
    return Deciles(answer.method, level, table.isq, table.csq)


def features_to_show(calibration: Points) -> tuple[int, ...]:
    """Which columns are looked at; chosen by calibration errors, so that the test stays a test."""
    Z = calibration.Z
    varying = [column for column in range(Z.shape[1]) if np.ptp(Z[:, column]) > 0]
    # A feature that is the prediction is shown as the prediction.
    varying = [i for i in varying if not np.array_equal(Z[:, i], calibration.y_pred)]
    if len(varying) <= MOST_FEATURES:
        return tuple(varying)
    error = rankdata(calibration.errors)
    if np.ptp(error) == 0:
        return tuple(varying[:MOST_FEATURES])
    strength = [abs(np.corrcoef(rankdata(Z[:, i]), error)[0, 1]) for i in varying]
    best = np.argsort(strength)[::-1][:MOST_FEATURES]
    return tuple(sorted(varying[i] for i in best))
