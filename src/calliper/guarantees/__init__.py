"""What is promised: over all inputs, in regions of inputs, and what can only be estimated."""

from calliper.guarantees._cells import Cell, CellCoverage, cell_coverage
from calliper.guarantees._concentration import (
    cantelli_local_coverage,
    cantelli_threshold,
    markov_local_coverage,
)
from calliper.guarantees._local import local_coverage_bound
from calliper.guarantees._marginal import (
    ASSUMPTIONS,
    Guarantee,
    conformal_coverage,
    coverage_law,
    fold_coverage,
    jackknife_coverage,
)
from calliper.guarantees._partition import Partition, partition
from calliper.guarantees._plug_in import LocalCoverageEstimate, plug_in_local_coverage

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
    "conformal_coverage",
    "coverage_law",
    "fold_coverage",
    "jackknife_coverage",
    "local_coverage_bound",
    "markov_local_coverage",
    "partition",
    "plug_in_local_coverage",
]
