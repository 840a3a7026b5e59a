"""The registry of measures: how each is computed, its label, and which values are better.

A measure is a function ``(y, intervals, context)`` that returns one number; ``intervals`` carry
their level, ``context`` what else is known about the rows and the method.
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
from calliper.metrics._tables import CoverageTable, coverage_by_value, coverage_by_width

Best = Literal["smaller", "larger", "level", "none"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """What a measure may use besides targets and intervals of the test rows.

    Parameters
    ----------
    level : the coverage asked for
    y_pred : (m,) centres of the intervals
    problem, method : names
    n_calibration : number of calibration points
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
            raise CalliperError(
                f"a measure must be a function of (y, intervals, context); got {self.function!r}."
            )
        check_option(self.best, get_args(Best), "best")

    def description(self) -> dict[str, Any]:
        """What records keep of a measure for their tables."""
        return {"best": self.best, "if_covered": self.if_covered, "label": self.label}


def _ask(
    metric: Callable[..., Any], takes: Iterable[str], y: Any, intervals: Intervals, context: Context
) -> float:
    """A metric of the intervals; of a table the worst coverage, unless it has only one bin."""
    pred = context.y_pred
    known = {"y": y, "y_pred": pred, "values": pred, "coverage": context.level}
    found = metric(intervals=intervals, **{name: known[name] for name in takes})
    if isinstance(found, CoverageTable):
        return found.worst if len(found.n) > 1 else nan
    return float(found)


def _of(metric: Callable[..., Any], *takes: str) -> MeasureFunction:
    return partial(_ask, metric, takes)  # which can be pickled


#: The default measures of an evaluation; the first five are the columns of the paper's table.
MEASURES: Mapping[str, Measure] = {
    "coverage": Measure(
        _of(averages.empirical_coverage, "y"),
        best="level",
        meaning="share of the test points inside their intervals",
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
        meaning="are widths proportional to errors in each tenth of the widths: 1 is best, "
        "negative is no better than a constant width",
    ),
    "tau_sqi": Measure(
        _of(tau_sqi, "y", "y_pred", "coverage"),
        best="larger",
        label="τ_SQI",
        meaning="do errors grow with the tenths of the widths: 1 if they always do",
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
        meaning="half of the intervals are narrower; half of it is the typical ±",
    ),
    "fraction_infinite": Measure(
        _of(averages.fraction_infinite),
        best="smaller",
        label="infinite",
        meaning="share of infinite intervals",
    ),
    "worst_by_prediction": Measure(
        _of(coverage_by_value, "y", "values"),
        label="worst tenth, prediction",
        meaning="coverage in the worst tenth of the predictions, or larger parts if they are tied",
    ),
    "worst_by_width": Measure(
        _of(coverage_by_width, "y"),
        label="worst tenth, width",
        meaning="coverage in the worst tenth of the method's own widths",
    ),
}


def measured(
    names: Iterable[str], y: FloatArray, intervals: Intervals, context: Context
) -> dict[str, float]:
    """Values of :data:`MEASURES` by name; NaN, without a warning, if undefined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: float(MEASURES[name].function(y, intervals, context)) for name in names}
