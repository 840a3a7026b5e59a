"""A table of coverage bin by bin, with the error that the number of points leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from calliper._types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

#: Probability beyond one standard deviation on one side of a normal law: bounds hold 68.3 %.
ONE_SIGMA_TAIL = float(stats.norm.sf(1.0))


@dataclass(frozen=True, eq=False)
class CoverageTable:
    """Coverage in each bin, or group, of the test points; what ``coverage_by_…`` return.

    Attributes
    ----------
    labels : names of the B bins, from the lowest values to the highest
    n : (B,) number of points, at least 1
    coverage : (B,) share of their targets inside their interval
    mean_width : (B,) mean of upper − lower, infinite if one of them is
    lower, upper : (B,) exact 68 % (1-σ) binomial bounds on the coverage of each bin
    edges : (B + 1,) smallest value of each bin, then the largest of all; None for groups

    Notes
    -----
    The bounds are Clopper and Pearson's: whatever the coverage of a bin is, they contain it with
    a probability of at least 68 %, one bin at a time. Of ten honest bins about three miss them.
    """

    labels: tuple[str, ...]
    n: IntArray
    coverage: FloatArray
    mean_width: FloatArray
    lower: FloatArray
    upper: FloatArray
    edges: FloatArray | None = None

    @property
    def worst(self) -> float:
        """The smallest coverage of all bins; with many small bins it is low by chance alone.

        By width bins it is known as size-stratified coverage (SSC), by groups as
        feature-stratified coverage (FSC).
        """
        return float(self.coverage.min())

    def gap(self, coverage: float, *, weighted: bool = False) -> float:
        """Mean distance of the bins' coverage from the level asked for (CovGap).

        Good: small; it cannot reach 0, since even perfect bins of n points scatter by about
        √(c(1−c)/n). ``weighted`` counts a bin by its points instead of once.
        """
        weights = self.n if weighted else None
        return float(np.average(np.abs(self.coverage - coverage), weights=weights))

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a row for each bin."""
        import pandas as pd

        columns = ("n", "coverage", "lower", "upper", "mean_width")
        return pd.DataFrame(
            {name: getattr(self, name) for name in columns}, index=pd.Index(self.labels, name="bin")
        )


def coverage_table(
    labels: Sequence[str],
    covered: BoolArray,
    widths: FloatArray,
    start: IntArray,
    edges: FloatArray | None = None,
) -> CoverageTable:
    """The table of rows that lie bin after bin, each bin from ``start`` to the next; O(n)."""
    n = np.diff(np.append(start, len(covered)))
    hits = np.add.reduceat(covered, start, dtype=np.intp)
    lower, upper = binomial_bounds(hits, n)
    mean_width = np.add.reduceat(widths, start) / n
    return CoverageTable(tuple(labels), n, hits / n, mean_width, lower, upper, edges)


def binomial_bounds(hits: IntArray, n: IntArray) -> tuple[FloatArray, FloatArray]:
    """Clopper and Pearson's 1-σ bounds on a probability, from hits among n."""
    lower = stats.beta.ppf(ONE_SIGMA_TAIL, np.maximum(hits, 1), n - hits + 1)
    upper = stats.beta.ppf(1 - ONE_SIGMA_TAIL, hits + 1, np.maximum(n - hits, 1))
    return np.where(hits > 0, lower, 0.0), np.where(hits < n, upper, 1.0)
