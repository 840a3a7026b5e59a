"""How good intervals are: functions of ``(y, intervals, …)``, one number or one table each."""

from calliper.metrics._bins import SparseBinsWarning
from calliper.metrics._bootstrap import Estimate, bootstrap
from calliper.metrics._by_bin import coverage_by_group, coverage_by_value, coverage_by_width
from calliper.metrics._coverage import empirical_coverage
from calliper.metrics._coverage_table import CoverageTable
from calliper.metrics._dependence import coverage_width_correlation, hsic
from calliper.metrics._interval_score import interval_score, interval_scorer
from calliper.metrics._pinball import pinball_loss
from calliper.metrics._sqi import r2_sqi, tau_sqi
from calliper.metrics._target_risk import excess_risk_of_target_coverage
from calliper.metrics._tau_si import tau_si
from calliper.metrics._width import fraction_infinite, mean_width, median_width
from calliper.metrics._worst_slab import worst_slab_coverage

__all__ = [
    "CoverageTable",
    "Estimate",
    "SparseBinsWarning",
    "bootstrap",
    "coverage_by_group",
    "coverage_by_value",
    "coverage_by_width",
    "coverage_width_correlation",
    "empirical_coverage",
    "excess_risk_of_target_coverage",
    "fraction_infinite",
    "hsic",
    "interval_score",
    "interval_scorer",
    "mean_width",
    "median_width",
    "pinball_loss",
    "r2_sqi",
    "tau_si",
    "tau_sqi",
    "worst_slab_coverage",
]
