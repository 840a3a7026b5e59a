"""What is promised: over all inputs, in regions of inputs, and what can only be estimated."""

from calliper.guarantees._cells import Cell, CellCoverage, Partition, cell_coverage, partition
from calliper.guarantees._local import (
    LocalCoverageEstimate,
    cantelli_local_coverage,
    cantelli_threshold,
    local_coverage_bound,
    markov_local_coverage,
    plug_in_local_coverage,
)
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
    "Cell",
    "CellCoverage",
    "Guarantee",
    "LocalCoverageEstimate",
    "Partition",
    "cantelli_local_coverage",
    "cantelli_threshold",
    "cell_coverage",
    "confident_rank",
    "conformal_coverage",
    "coverage_law",
    "fold_coverage",
    "jackknife_coverage",
    "local_coverage_bound",
    "markov_local_coverage",
    "partition",
    "plug_in_local_coverage",
    "required_for_confidence",
]
