"""Width against error: are intervals as wide as the errors ask for, tenth by tenth?"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.metrics import r2_sqi, tau_sqi
from calliper.metrics._bins import sqi_table
from calliper.metrics._inputs import IntervalsLike, level_of, one_level
from calliper.metrics._scored import Infinite, scores_and_widths
from calliper.report.displays._style import (
    BLUE,
    GREY,
    TARGET,
    VERMILION,
    entitle,
    percent,
    several,
    start,
    thin,
)


@dataclass(eq=False)
class WidthErrorDisplay:
    """Errors over widths, with the quantile of the errors in each tenth of the widths.

    What to see: the marks (CSQ, the error that a share c of each tenth stays below) lie on the
    line IS = 2 · CSQ, since an interval ŷ ± r that is right has width 2r and error quantile r.
    Above the line intervals are too narrow, below it too wide; a flat row of marks means that
    width says nothing about the error. R²_SQI measures the distance from the line.

    Attributes
    ----------
    widths, errors : (n,) upper − lower and |y − ŷ| of each row, from the smallest error up
    isq, csq : (B,) median width and error quantile of each bin, infinite in a bin of such widths
    coverage : the level of the quantile
    r2, tau : R²_SQI and τ_SQI of the same bins, NaN where undefined
    ax_, figure_ : where it was drawn last
    """

    widths: FloatArray
    errors: FloatArray
    isq: FloatArray
    csq: FloatArray
    coverage: float
    r2: float
    tau: float
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_intervals(
        cls,
        y: Any,
        intervals: IntervalsLike,
        *,
        y_pred: Any = None,
        coverage: float | None = None,
        infinite: Infinite = "keep",
        max_score: float | None = None,
        n_bins: int = 10,
        min_bin_size: int | None = None,
    ) -> WidthErrorDisplay:
        """Compute bins and measures; all parameters are those of :func:`calliper.metrics.r2_sqi`.

        Measures that are undefined are NaN here, without a warning: the figure says so.
        """
        read = one_level(intervals)
        level = level_of(read, coverage)
        policy: dict[str, Any] = {"y_pred": y_pred, "infinite": infinite, "max_score": max_score}
        bins: dict[str, Any] = {"n_bins": n_bins, "min_bin_size": min_bin_size}
        errors, widths = scores_and_widths(y, read, **policy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = sqi_table(errors, widths, level, bin_width="median", **bins)
            r2, tau = (
                measure(y, read, coverage=level, **policy, **bins) for measure in (r2_sqi, tau_sqi)
            )
        return cls(widths, errors, table.isq, table.csq, level, r2, tau)

    @property
    def n_infinite(self) -> int:
        """How many widths are infinite, and cannot be drawn."""
        return int(np.count_nonzero(np.isinf(self.widths)))

    def plot(
        self, ax: Any = None, *, name: str | None = None, color: str = BLUE
    ) -> WidthErrorDisplay:
        """Draw dots for rows (a share of them if they are many), marks for tenths, the line."""
        self.ax_, self.figure_ = ax, _ = start(ax, (5.6, 4.6))
        finite = np.flatnonzero(np.isfinite(self.widths))
        shown = finite[thin(len(finite))]
        label = "row" if len(shown) == len(finite) else f"row ({len(shown):,} of {len(finite):,})"
        ax.plot(
            self.widths[shown],
            self.errors[shown],
            ".",
            color=GREY,
            ms=2,
            alpha=0.5,
            label=label,
            rasterized=True,
        )
        drawable = np.isfinite(self.isq)
        bins = several(len(self.isq), "bin")
        right = 1.05 * self.widths[finite].max(initial=0.0) or 1.0
        ax.plot([0, right], [0, right / 2], label="ideal: IS = 2 · CSQ", **TARGET)
        ax.plot(
            self.isq[drawable],
            self.csq[drawable],
            "o-",
            color=color,
            ms=6,
            label=f"{percent(self.coverage)} quantile in {bins} of the widths",
        )
        # One outlying error must not press everything else to the floor.
        above = np.append(self.csq[drawable], right / 2)
        top = 1.15 * float(np.max(above))
        hidden = int(np.count_nonzero(self.errors[finite] > top))
        ax.set_xlim(0, right)
        ax.set_ylim(0, top)
        ax.set_xlabel("width of the interval, IS (unit of y)")
        ax.set_ylabel("error |y − ŷ| (unit of y)")
        ax.legend(frameon=False, fontsize=8.5, loc="upper left")
        if not len(finite):
            ax.text(0.5, 0.5, "all intervals are infinite", transform=ax.transAxes, ha="center",
                    color=VERMILION)  # fmt: skip
        entitle(ax, name or "Width against error", self._caption(hidden))
        return self

    def _caption(self, hidden: int) -> str:
        words = " · ".join(
            f"{symbol} = {_number(value)}" if np.isfinite(value) else f"{symbol} undefined"
            for symbol, value in (("R²_SQI", self.r2), ("τ_SQI", self.tau))
        )
        if self.n_infinite:
            words += f" · {several(self.n_infinite, 'infinite width')} not shown"
        if hidden:
            words += f" · {several(hidden, 'error')} above the axes"
        return words


def _number(value: float) -> str:
    """Two decimals; of a value far below 0 none, since they say nothing more."""
    return (f"{value:.2f}" if value > -10 else f"{value:.0f}").replace("-", "−")
