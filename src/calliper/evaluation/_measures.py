"""What is measured on the test rows of a split, and which values are good.

A measure is a function ``(y, intervals, context)`` that gives one number; ``intervals`` carry
their level, ``context`` what else is known about the rows and the method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, get_args

from calliper import metrics
from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals

Best = Literal["smaller", "larger", "level", "none"]


@dataclass(frozen=True, eq=False)
class Context:
    """What a measure may look at beside targets and intervals; rows are those of the test set.

    ``y_pred`` is the centre of the intervals, ``X`` the inputs (Z by default), ``groups`` the
    labels if there are any, and ``max_score`` the largest calibration score, which the paper puts
    for an infinite half-width.
    """

    problem: str
    method: str
    level: float
    n_calibration: int
    y_pred: FloatArray
    Z: FloatArray
    X: Any
    groups: Any
    max_score: float


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
    label, latex : str, optional
        Head of its column in Markdown and in LaTeX; by default its name.

    Examples
    --------
    >>> widest = Measure(lambda y, intervals, context: intervals.width.max(), best="smaller")
    """

    function: MeasureFunction
    _: KW_ONLY
    best: Best = "none"
    if_covered: bool = False
    label: str | None = None
    latex: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise CalliperError(
                f"a measure must be a function of (y, intervals, context); got {self.function!r}."
            )
        if self.best not in get_args(Best):
            options = ", ".join(repr(name) for name in get_args(Best))
            raise CalliperError(f"best must be one of {options}; got {self.best!r}.")

    def description(self) -> dict[str, Any]:
        """What records keep of a measure: all but the function."""
        kept = ("best", "if_covered", "label", "latex")
        return {name: getattr(self, name) for name in kept}


def _coverage(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return float(metrics.empirical_coverage(y, intervals))


def _mean_width(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return float(metrics.mean_width(intervals))


def _median_width(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return float(metrics.median_width(intervals))


def _interval_score(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return metrics.interval_score(y, intervals)


def _r2_sqi(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return metrics.r2_sqi(y, intervals, y_pred=context.y_pred)


def _tau_sqi(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return metrics.tau_sqi(y, intervals, y_pred=context.y_pred)


def _tau_si(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return metrics.tau_si(y, intervals, y_pred=context.y_pred)


def _fraction_infinite(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return float(metrics.fraction_infinite(intervals))


def _worst_by_prediction(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return _worst(metrics.coverage_by_value(y, intervals, context.y_pred))


def _worst_by_width(y: FloatArray, intervals: Intervals, context: Context) -> float:
    return _worst(metrics.coverage_by_width(y, intervals))


def _worst(table: metrics.CoverageTable) -> float:
    """The smallest coverage of the bins; of a single bin it would flatter constant widths."""
    return table.worst if len(table.n) > 1 else float("nan")


#: Measured unless others are asked for; the first five are the columns of the paper's table.
DEFAULT_MEASURES: Mapping[str, Measure] = {
    "coverage": Measure(_coverage, best="level", latex="Cov."),
    "mean_width": Measure(
        _mean_width, best="smaller", if_covered=True, label="mean width", latex="IS"
    ),
    "r2_sqi": Measure(_r2_sqi, best="larger", label="R²_SQI", latex="$R^2_{SQI}$"),
    "tau_sqi": Measure(_tau_sqi, best="larger", label="τ_SQI", latex=r"$\tau_{SQI}$"),
    "tau_si": Measure(_tau_si, best="larger", label="τ_SI", latex=r"$\tau_{SI}$"),
    "interval_score": Measure(_interval_score, best="smaller", label="interval score"),
    "median_width": Measure(_median_width, best="smaller", if_covered=True, label="median width"),
    "fraction_infinite": Measure(_fraction_infinite, best="smaller", label="infinite"),
    "worst_by_prediction": Measure(_worst_by_prediction, label="worst tenth by prediction"),
    "worst_by_width": Measure(_worst_by_width, label="worst tenth by width"),
}
