"""What is proved: over all inputs, and over draws of the calibration set."""

from calliper.guarantees._marginal import (
    ASSUMPTIONS,
    Guarantee,
    confident_rank,
    conformal_coverage,
    coverage_law,
    fold_coverage,
    jackknife_coverage,
    required_for_confidence,
)

__all__ = [
    "ASSUMPTIONS",
    "Guarantee",
    "confident_rank",
    "conformal_coverage",
    "coverage_law",
    "fold_coverage",
    "jackknife_coverage",
    "required_for_confidence",
]
