"""How good intervals and distributions are: one number or one table each, beside ``y``."""

from calliper._validation import at_least as at_least
from calliper.exceptions import SparseBinsWarning
from calliper.metrics._adaptivity import Infinite as Infinite
from calliper.metrics._adaptivity import r2_sqi, tau_si, tau_sqi
from calliper.metrics._adaptivity import scores_and_widths as scores_and_widths
from calliper.metrics._adaptivity import sqi_table as sqi_table
from calliper.metrics._averages import (
    empirical_coverage,
    fraction_infinite,
    interval_score,
    interval_scorer,
    interval_scores,
    mean_width,
    median_width,
    pinball_loss,
)
from calliper.metrics._bootstrap import Estimate, bootstrap
from calliper.metrics._by_bin import (
    CoverageTable,
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
)
from calliper.metrics._by_bin import binomial_bounds as binomial_bounds
from calliper.metrics._conditional import (
    coverage_width_correlation,
    excess_risk_of_target_coverage,
    hsic,
    worst_slab_coverage,
)
from calliper.metrics._distributional import ShareTable, crps, pit_histogram, quantile_calibration
from calliper.metrics._inputs import IntervalsLike as IntervalsLike
from calliper.metrics._inputs import as_intervals as as_intervals
from calliper.metrics._inputs import level_of as level_of
from calliper.metrics._inputs import one_level as one_level
from calliper.metrics._inputs import unit_spread as unit_spread
from calliper.metrics._measures import MEASURES, Context, Measure
from calliper.metrics._measures import measured as measured

__all__ = [
    "MEASURES",
    "Context",
    "CoverageTable",
    "Estimate",
    "Measure",
    "ShareTable",
    "SparseBinsWarning",
    "bootstrap",
    "coverage_by_group",
    "coverage_by_value",
    "coverage_by_width",
    "coverage_width_correlation",
    "crps",
    "empirical_coverage",
    "excess_risk_of_target_coverage",
    "fraction_infinite",
    "hsic",
    "interval_score",
    "interval_scorer",
    "interval_scores",
    "mean_width",
    "median_width",
    "pinball_loss",
    "pit_histogram",
    "quantile_calibration",
    "r2_sqi",
    "tau_si",
    "tau_sqi",
    "worst_slab_coverage",
]
