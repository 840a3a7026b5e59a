"""Measures of intervals and distributions, as numbers or tables, from targets ``y``."""

from calliper.exceptions import SparseBinsWarning
from calliper.lab.metrics._adaptivity import r2_sqi, scores_and_widths, sqi_table, tau_si, tau_sqi
from calliper.lab.metrics._averages import (
    empirical_coverage,
    fraction_infinite,
    interval_score,
    interval_scorer,
    interval_scores,
    mean_width,
    median_width,
    pinball_loss,
)
from calliper.lab.metrics._bootstrap import Estimate, bootstrap
from calliper.lab.metrics._conditional import (
    coverage_width_correlation,
    excess_risk_of_target_coverage,
    hsic,
    worst_slab_coverage,
)
from calliper.lab.metrics._inputs import (
    IntervalsLike,
    as_intervals,
    level_of,
    numbered,
    one_level,
    unit_spread,
)
from calliper.lab.metrics._measures import MEASURES, Context, Measure, measured
from calliper.lab.metrics._tables import (
    CoverageTable,
    ShareTable,
    binomial_bounds,
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
    crps,
    pit_histogram,
    quantile_calibration,
)

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
