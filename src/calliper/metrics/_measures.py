"""The measures by name: how each is computed, what it is called, and which values are better.

Evaluations, comparisons, their page and the demonstration all read them here. A measure is a
function ``(y, intervals, context)`` that gives one number; ``intervals`` carry their level,
``context`` what else is known about the rows and the method.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import nan
from typing import Any, Literal, get_args

from calliper._types import FloatArray
from calliper._validation import check_option
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.metrics import _averages as averages
from calliper.metrics._adaptivity import r2_sqi, tau_si, tau_sqi
from calliper.metrics._by_bin import CoverageTable, coverage_by_value, coverage_by_width

Best = Literal["smaller", "larger", "level", "none"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """What a measure may look at beside targets and intervals; rows are those of the test set.

    ``y_pred`` is the centre of the intervals, ``X`` the inputs (Z by default), ``groups`` the
    labels if there are any, and ``max_score`` the largest calibration score, which the paper puts
    for an infinite half-width. An evaluation knows all of them.

    Parameters
    ----------
    level : the coverage asked for
    y_pred : (m,) predictions
    problem, method : names
    n_calibration : number of calibration points
    Z, X : features, and inputs if they differ
    groups : labels, one a row
    max_score : the largest calibration score

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
    """A measure with what its table needs.

    Parameters
    ----------
    function : callable ``(y, intervals, context) -> float``
    best : {"none", "smaller", "larger", "level"}
        Which values are good; ``"level"``: those that reach the level asked for.
    if_covered : bool
        Whether a method that covers too little is left out of the comparison, as for widths: it
        would win by missing.
    label : str, optional
        Head of its column; by default its name.
    meaning : str
        What it says, in a line.

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
            raise CalliperError(
                f"a measure must be a function of (y, intervals, context); got {self.function!r}."
            )
        check_option(self.best, get_args(Best), "best")

    def description(self) -> dict[str, Any]:
        """What records keep of a measure: what a table needs."""
        return {"best": self.best, "if_covered": self.if_covered, "label": self.label}


def _ask(
    metric: Callable[..., Any], takes: Iterable[str], y: Any, intervals: Intervals, context: Context
) -> float:
    """A metric of the intervals, called with what else it takes."""
    known = {"y": y, "y_pred": context.y_pred, "coverage": context.level}
    return float(metric(intervals=intervals, **{name: known[name] for name in takes}))


def _of(metric: Callable[..., Any], *takes: str) -> MeasureFunction:
    return partial(_ask, metric, takes)  # which can be pickled


def _worst_by_prediction(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return _worst(coverage_by_value(y, intervals, context.y_pred))


def _worst_by_width(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return _worst(coverage_by_width(y, intervals))


def _worst(table: CoverageTable) -> float:
    """The smallest coverage of the bins; of a single bin it would flatter constant widths."""
    return table.worst if len(table.n) > 1 else nan


#: What an evaluation measures unless others are asked for; the first five are the columns of the
#: paper's table.
MEASURES: Mapping[str, Measure] = {
    "coverage": Measure(
        _of(averages.empirical_coverage, "y"),
        best="level",
        meaning="share of the test points inside their interval",
    ),
    "mean_width": Measure(
        _of(averages.mean_width),
        best="smaller",
        if_covered=True,
        label="mean width",
        meaning="upper minus lower end, in the unit of the target",
    ),
    "r2_sqi": Measure(
        _of(r2_sqi, "y", "y_pred", "coverage"),
        best="larger",
        label="R²_SQI",
        meaning="are widths in proportion to the errors they meet, tenth by tenth: 1 is best, "
        "negative means no better than a constant width",
    ),
    "tau_sqi": Measure(
        _of(tau_sqi, "y", "y_pred", "coverage"),
        best="larger",
        label="τ_SQI",
        meaning="do errors grow from tenth to tenth of the widths: 1 if they always do",
    ),
    "tau_si": Measure(
        _of(tau_si, "y", "y_pred"),
        best="larger",
        label="τ_SI",
        meaning="rank correlation of width and error: 1 if wider always means a larger error, 0 "
        "if widths say nothing",
    ),
    "interval_score": Measure(
        _of(averages.interval_score, "y", "coverage"),
        best="smaller",
        label="interval score",
        meaning="width plus a penalty for misses; the measure that decides",
    ),
    "median_width": Measure(
        _of(averages.median_width),
        best="smaller",
        if_covered=True,
        label="median width",
        meaning="half of the intervals are narrower; its half is the usual ±",
    ),
    "fraction_infinite": Measure(
        _of(averages.fraction_infinite),
        best="smaller",
        label="infinite",
        meaning="share of the intervals without a bound",
    ),
    "worst_by_prediction": Measure(
        _worst_by_prediction,
        label="worst tenth, prediction",
        meaning="coverage in the worst tenth of the predictions; in larger parts where they are "
        "tied",
    ),
    "worst_by_width": Measure(
        _worst_by_width,
        label="worst tenth, width",
        meaning="coverage in the worst tenth of the method's own widths",
    ),
}


def measured(
    names: Iterable[str], y: FloatArray, intervals: Intervals, context: Context
) -> dict[str, float]:
    """Values of :data:`MEASURES` by name; NaN, without a warning, where one does not exist."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: float(MEASURES[name].function(y, intervals, context)) for name in names}
