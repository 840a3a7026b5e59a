"""Coverage near one input: what is bounded, what is only estimated, and coverage in cells."""

from calliper.lab.bounds._cells import Cell, CellCoverage, Partition, cell_coverage, partition
from calliper.lab.bounds._local import (
    LocalCoverageEstimate,
    cantelli_local_coverage,
    cantelli_threshold,
    local_coverage_bound,
    markov_local_coverage,
    plug_in_local_coverage,
)

__all__ = [
    "Cell",
    "CellCoverage",
    "LocalCoverageEstimate",
    "Partition",
    "cantelli_local_coverage",
    "cantelli_threshold",
    "cell_coverage",
    "local_coverage_bound",
    "markov_local_coverage",
    "partition",
    "plug_in_local_coverage",
]
