"""What is measured: the paper's five columns as the paper takes them, and more.

"For metrics, we replace infinite interval sizes by the largest observed calibration error": as in
the paper, an infinite half-width counts as that error in widths, correlations and the interval
score. Coverage is that of the intervals as they are, and the part of them that is infinite has a
column of its own. Bins of the widths are deciles however few the test points, as in the paper.
"""

from __future__ import annotations

from calliper import Intervals, metrics
from calliper.lab.metrics import Context, Measure
from studies.experiments import FloatArray

#: Directions tried, and test points used, by the worst slab.
DIRECTIONS, SLAB_POINTS = 200, 3000


def capped(intervals: Intervals, context: Context) -> Intervals:
    """Intervals whose infinite half-widths are the largest calibration error."""
    radius = intervals.width / 2
    finite = radius < float("inf")
    lower = intervals.lower.copy()
    upper = intervals.upper.copy()
    lower[~finite] = context.y_pred[~finite] - context.max_score
    upper[~finite] = context.y_pred[~finite] + context.max_score
    return Intervals(lower, upper, intervals.coverage)


def mean_width(y: FloatArray, intervals: Intervals, context: Context) -> float:
    """IS, from end to end."""
    return float(metrics.mean_width(capped(intervals, context)))


def r2_sqi(y: FloatArray, intervals: Intervals, context: Context) -> float:
    """R²_SQI."""
    shown = capped(intervals, context)
    return metrics.r2_sqi(y, shown, y_pred=context.y_pred, min_bin_size=1)


def tau_sqi(y: FloatArray, intervals: Intervals, context: Context) -> float:
    """τ_SQI."""
    shown = capped(intervals, context)
    return metrics.tau_sqi(y, shown, y_pred=context.y_pred, min_bin_size=1)


def tau_si(y: FloatArray, intervals: Intervals, context: Context) -> float:
    """τ_SI."""
    return metrics.tau_si(y, capped(intervals, context), y_pred=context.y_pred)


def interval_score(y: FloatArray, intervals: Intervals, context: Context) -> float:
    """Winkler's score of the capped intervals."""
    return metrics.interval_score(y, capped(intervals, context))


def worst_slab(y: FloatArray, intervals: Intervals, context: Context) -> float:
    """Coverage of the slab of inputs that seems worst, on rows that did not choose it."""
    return metrics.worst_slab_coverage(
        y,
        intervals,
        context.X,
        n_directions=DIRECTIONS,
        max_points=SLAB_POINTS,
        random_state=0,
    )


MEASURES: dict[str, Measure] = {
    "coverage": metrics.MEASURES["coverage"],
    "mean_width": Measure(mean_width, best="smaller", if_covered=True, label="IS"),
    "r2_sqi": Measure(r2_sqi, best="larger", label="R²_SQI"),
    "tau_sqi": Measure(tau_sqi, best="larger", label="τ_SQI"),
    "tau_si": Measure(tau_si, best="larger", label="τ_SI"),
    "interval_score": Measure(interval_score, best="smaller", label="interval score"),
    "worst_by_prediction": metrics.MEASURES["worst_by_prediction"],
    "worst_by_width": metrics.MEASURES["worst_by_width"],
    "worst_slab": Measure(worst_slab, label="worst slab"),
    "fraction_infinite": metrics.MEASURES["fraction_infinite"],
}

#: The columns of the paper's tables.
PAPER_COLUMNS = ("coverage", "mean_width", "r2_sqi", "tau_sqi", "tau_si")
#: What the paper does not report.
FURTHER_COLUMNS = (
    "interval_score",
    "worst_by_prediction",
    "worst_by_width",
    "worst_slab",
    "fraction_infinite",
)
