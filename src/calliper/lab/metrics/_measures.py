"""The registry of measures: how each is computed, its label, and which values are better.

A measure is a function ``(y, intervals, context)`` that returns one number; ``intervals`` carry
their level, ``context`` what else is known about the rows and the method.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from inspect import signature
from math import nan
from typing import Any, Literal, get_args

from calliper._types import FloatArray
from calliper._validation import check_option
from calliper.exceptions import CalliperError, unheard
from calliper.intervals import Intervals
from calliper.lab.metrics import _averages as averages
from calliper.lab.metrics._adaptivity import r2_sqi, tau_si, tau_sqi
from calliper.lab.metrics._tables import CoverageTable, coverage_by_value, coverage_by_width

Best = Literal["smaller", "larger", "level", "none"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """What a measure may use besides targets and intervals of the test rows.

    Parameters
    ----------
    level : the coverage asked for
    y_pred : (m,) centres of the intervals
    problem, method : names
    n_calibration : number of calibration rows
    Z, X : features, and inputs (Z by default)
    groups : labels, one a row, if there are any
    max_score : the largest calibration score, the paper's half-width of infinite intervals

    Examples
    --------
    >>> import numpy as np
    >>> Context(level=0.9, y_pred=np.zeros(3)).level
    0.9
    """

    level: float
    y_pred: FloatArray
    problem: str = ""
    method: str = ""
    n_calibration: int = 0
    Z: Any = None
    X: Any = None
    groups: Any = None
    max_score: float = nan


MeasureFunction = Callable[[FloatArray, Intervals, Context], float]


@dataclass(frozen=True)
class Measure:
    """A measure, and how tables show it.

    Parameters
    ----------
    function : callable ``(y, intervals, context) -> float``
    best : {"none", "smaller", "larger", "level"}; ``"level"``: at least the level asked for
    if_covered : bool; whether methods that cover too little, which would win widths, are not
    compared
    label : str, optional; column header, by default its name
    meaning : str; what it says in a line

    Examples
    --------
    >>> widest = Measure(lambda y, intervals, context: intervals.width.max(), best="smaller")
    """

    function: MeasureFunction
    _: KW_ONLY
    best: Best = "none"
    if_covered: bool = False
    label: str | None = None
    meaning: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            what = "a measure must be a function of (y, intervals, context)"
            raise CalliperError(f"{what}; got {self.function!r}.")
        check_option(self.best, get_args(Best), "best")

    def description(self) -> dict[str, Any]:
        """What records store about a measure, for their tables."""
        return {"best": self.best, "if_covered": self.if_covered, "label": self.label}


def _ask(metric: Callable[..., Any], y: Any, intervals: Intervals, context: Context) -> float:
    """A metric of the intervals; of a table the worst coverage, unless it has only one bin."""
    pred, takes = context.y_pred, signature(metric).parameters
    known = {"y": y, "y_pred": pred, "values": pred, "coverage": context.level}
    found = metric(intervals=intervals, **{name: known[name] for name in known if name in takes})
    if isinstance(found, CoverageTable):
        return found.worst if len(found.n) > 1 else nan
    return float(found)


def _of(metric: Callable[..., Any], meaning: str, label: str | None = None, **how: Any) -> Measure:
    return Measure(partial(_ask, metric), meaning=meaning, label=label, **how)  # can be pickled


_NARROW: Any = {"best": "smaller", "if_covered": True}
#: The default measures of an evaluation; the first five are the columns of the paper's table.
MEASURES: Mapping[str, Measure] = {
    "coverage": _of(
        averages.empirical_coverage, "share of the test points inside their intervals", best="level"
    ),
    "mean_width": _of(
        averages.mean_width,
        "upper minus lower end, in the unit of the target",
        "mean width",
        **_NARROW,
    ),
    "r2_sqi": _of(
        r2_sqi,
        "are widths proportional to errors in each tenth of the widths: 1 is best, negative is no "
        "better than a constant width",
        "R²_SQI",
        best="larger",
    ),
    "tau_sqi": _of(
        tau_sqi,
        "do errors grow with the tenths of the widths: 1 if they always do",
        "τ_SQI",
        best="larger",
    ),
    "tau_si": _of(
        tau_si,
        "rank correlation of width and error: 1 if wider always means a larger error, 0 if widths "
        "say nothing",
        "τ_SI",
        best="larger",
    ),
    "interval_score": _of(
        averages.interval_score,
        "width plus a penalty for misses; the measure that decides",
        "interval score",
        best="smaller",
    ),
    "median_width": _of(
        averages.median_width,
        "half of the intervals are narrower; half of it is the typical ±",
        "median width",
        **_NARROW,
    ),
    "fraction_infinite": _of(
        averages.fraction_infinite, "share of infinite intervals", "infinite", best="smaller"
    ),
    "worst_by_prediction": _of(
        coverage_by_value,
        "coverage in the worst tenth of the predictions, or larger parts if they are tied",
        "worst tenth, prediction",
    ),
    "worst_by_width": _of(
        coverage_by_width,
        "coverage in the worst tenth of the method's own widths",
        "worst tenth, width",
    ),
}


def measured(
    names: Iterable[str], y: FloatArray, intervals: Intervals, context: Context
) -> dict[str, float]:
    """Values of :data:`MEASURES` by name; NaN, without a warning, if undefined."""
    with unheard(Warning):
        return {name: float(MEASURES[name].function(y, intervals, context)) for name in names}
