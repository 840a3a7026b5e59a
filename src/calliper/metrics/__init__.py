"""How good intervals are: functions of ``(y, intervals, …)``, one number each."""

from calliper.metrics._bins import SparseBinsWarning
from calliper.metrics._coverage import empirical_coverage
from calliper.metrics._interval_score import interval_score, interval_scorer
from calliper.metrics._sqi import r2_sqi, tau_sqi
from calliper.metrics._tau_si import tau_si
from calliper.metrics._width import fraction_infinite, mean_width

__all__ = [
    "SparseBinsWarning",
    "empirical_coverage",
    "fraction_infinite",
    "interval_score",
    "interval_scorer",
    "mean_width",
    "r2_sqi",
    "tau_si",
    "tau_sqi",
]
