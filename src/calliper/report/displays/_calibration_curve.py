"""The calibration curve: coverage measured against coverage asked for, over all levels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.metrics._coverage_table import binomial_bounds
from calliper.metrics._inputs import IntervalsLike, as_intervals
from calliper.report.displays._style import BLUE, TARGET, entitle, percent, several, start


@dataclass(eq=False)
class CalibrationCurveDisplay:
    """Measured against asked for, level by level; made by :meth:`from_intervals`.

    What to see: points on the diagonal, within their bounds. Below it intervals are too narrow
    at that level, above it too wide. All levels are measured on the same rows, so neighbouring
    points err together.

    Attributes
    ----------
    asked : (L,) levels
    covered : (L,) share of the targets inside at each
    lower, upper : (L,) exact 68 % (1-σ) binomial bounds on it, for these very intervals
    n : number of test points
    ax_, figure_ : where it was drawn last
    """

    asked: FloatArray
    covered: FloatArray
    lower: FloatArray
    upper: FloatArray
    n: int
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_intervals(cls, y: Any, intervals: IntervalsLike) -> CalibrationCurveDisplay:
        """Count the targets inside at each level.

        Parameters
        ----------
        y : array of shape (m,)
        intervals : Intervals of several levels
            For example ``predict_interval(X, coverage=[0.1, 0.2, ..., 0.9])``.
        """
        read = as_intervals(intervals)
        if read.coverage is None:
            raise CalliperError(
                "intervals must carry their levels: pass Intervals(lower, upper, coverage=[...])."
            )
        asked = np.atleast_1d(np.asarray(read.coverage, float))
        inside = read.contains(y).reshape(len(read.lower), -1)
        if inside.shape[1] != len(asked):
            raise CalliperError(f"intervals have {inside.shape[1]} levels, and name {len(asked)}.")
        hits, n = inside.sum(axis=0), np.full(len(asked), len(inside))
        lower, upper = binomial_bounds(hits, n)
        return cls(asked, hits / n, lower, upper, len(inside))

    @property
    def largest_gap(self) -> float:
        """Largest distance from the diagonal over the levels."""
        return float(np.abs(self.covered - self.asked).max())

    def plot(
        self, ax: Any = None, *, name: str | None = None, color: str = BLUE, marker: str = "o"
    ) -> CalibrationCurveDisplay:
        """Draw the curve with its bounds; draw others on the same ``ax`` to compare."""
        fresh = ax is None or not ax.lines
        self.ax_, self.figure_ = ax, _ = start(ax, (5.0, 4.8))
        if fresh:
            ax.plot([0, 1], [0, 1], label="exact", **TARGET)
        ax.errorbar(
            self.asked,
            self.covered,
            yerr=np.abs(np.stack([self.covered - self.lower, self.upper - self.covered])),
            color=color,
            marker=marker,
            ms=4.5,
            linewidth=1.4,
            elinewidth=1.4,
            label=name or "measured, with 1-σ bounds",
        )
        from matplotlib.ticker import PercentFormatter

        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_aspect("equal")
        ax.set_xlabel("coverage asked for")
        ax.set_ylabel("coverage measured")
        ax.legend(frameon=False, fontsize=8.5, loc="upper left")
        if fresh:
            gap = f"largest distance from the diagonal {percent(self.largest_gap)}"
            entitle(ax, "Calibration curve", f"{several(self.n, 'test point')} · {gap}")
        else:
            for words in ax.texts[:1]:
                words.set_text(f"{several(self.n, 'test point')} · bars are 1-σ binomial bounds")
        return self
