"""Coverage in parts of the data: by width, by prediction, by a feature, by group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calliper._validation import check_levels
from calliper.exceptions import CalliperError
from calliper.metrics import (
    CoverageTable,
    coverage_by_group,
    coverage_by_value,
    coverage_by_width,
)
from calliper.metrics._inputs import IntervalsLike, one_level
from calliper.report.displays._style import BLUE, QUIET, TARGET, entitle, percent, start


@dataclass(eq=False)
class CoverageDisplay:
    """Coverage bin by bin with its 1-σ bounds, beside the level asked for.

    What to see: about two bars of three touch the line. Bars that stay off it on one side of the
    figure show where coverage is lost, and what it is paid with elsewhere.

    Attributes
    ----------
    table : CoverageTable
    coverage : the level asked for, or None
    what : what the bins are bins of, for the axis
    ax_, figure_ : where it was drawn last
    """

    table: CoverageTable
    coverage: float | None = None
    what: str = "bin"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_intervals(
        cls,
        y: Any,
        intervals: IntervalsLike,
        *,
        values: Any = None,
        groups: Any = None,
        what: str | None = None,
        n_bins: int = 10,
        coverage: float | None = None,
    ) -> CoverageDisplay:
        """Coverage by the values or the groups that are given, else by width.

        Parameters
        ----------
        y : array of shape (m,)
        intervals : Intervals or (lower, upper), of one level
        values, groups : array of shape (m,), optional
            As in :func:`calliper.metrics.coverage_by_value` and
            :func:`calliper.metrics.coverage_by_group`; one of them at most.
        what : str, optional
            What the values or groups are, with the unit, for the axis.
        n_bins : int
        coverage : float, optional
            The level to draw; by default the one the intervals carry, if any.
        """
        read = one_level(intervals)
        if values is not None and groups is not None:
            raise CalliperError("pass values or groups, not both: a figure has one axis for them.")
        if groups is not None:
            table, default = coverage_by_group(y, read, groups), "group"
        elif values is not None:
            table, default = coverage_by_value(y, read, values, n_bins=n_bins), "value"
        else:
            table = coverage_by_width(y, read, n_bins=n_bins)
            default = "width of the interval (unit of y)"
        level = read.coverage if coverage is None else coverage
        level = None if level is None else check_levels(level)[0]
        return cls(table, level, default if what is None else what)

    def plot(
        self, ax: Any = None, *, name: str | None = None, color: str = BLUE
    ) -> CoverageDisplay:
        """Draw a dot and its bounds for each bin: upright for bins of numbers, else in rows."""
        by_group = self.table.edges is None
        n_bins = len(self.table.n)
        size = (6.4, max(2.6, 1.8 + 0.32 * n_bins)) if by_group else (6.4, 4.0)
        self.ax_, self.figure_ = ax, _ = start(ax, size)
        place = np.arange(n_bins)
        middle = self.table.coverage
        bars = np.abs(np.stack([middle - self.table.lower, self.table.upper - middle]))
        look: dict[str, Any] = {
            "fmt": "o", "color": color, "ms": 5.5, "elinewidth": 1.6, "zorder": 3,
            "label": "covered, with 1-σ bounds",
        }  # fmt: skip
        if by_group:
            ax.errorbar(middle, place, xerr=bars, **look)
            self._name_groups(ax, place)
        else:
            ax.errorbar(place, middle, yerr=bars, **look)
            self._name_edges(ax)
        if self.coverage is not None:
            # In rows, not down into the legend.
            ends = [-0.6, n_bins - 0.5] if by_group else [-0.5, n_bins - 0.5]
            level = [self.coverage, self.coverage]
            line = (level, ends) if by_group else (ends, level)
            ax.plot(*line, label=f"asked for: {percent(self.coverage)}", **TARGET)
        self._bound(ax, by_group)
        ax.legend(frameon=False, fontsize=8.5, loc="lower left", ncols=2 if by_group else 1)
        smallest, largest = int(self.table.n.min()), int(self.table.n.max())
        size_words = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
        caption = f"worst {percent(self.table.worst)} · {size_words} rows in a bin"
        title = name or f"Coverage by {self.what.split(' (')[0]}"
        entitle(ax, title, caption.replace("a bin", "a group") if by_group else caption)
        return self

    def _bound(self, ax: Any, by_group: bool) -> None:
        """All bars in view with room for the legend below, and never past 1 without need."""
        low = min(float(self.table.lower.min()), 1.0 if self.coverage is None else self.coverage)
        span = max(1.0 - low, 0.05)
        if by_group:
            ax.set_xlim(max(-0.02, low - 0.15 * span), 1.0 + 0.05 * span)
        else:
            ax.set_ylim(low - 0.45 * span, 1.0 + 0.05 * span)
        axis = ax.xaxis if by_group else ax.yaxis
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda v, _: percent(v) if 0 <= v <= 1 else ""))
        (ax.set_xlabel if by_group else ax.set_ylabel)("share of targets inside")

    def _name_groups(self, ax: Any, place: Any) -> None:
        counts = [f"{label}  (n = {n:,})" for label, n in
                  zip(self.table.labels, self.table.n, strict=True)]  # fmt: skip
        ax.set_yticks(place, counts)
        ax.set_ylim(len(place) + 0.3, -0.6)  # the last row is the legend's
        ax.set_ylabel(self.what)
        ax.tick_params(axis="y", length=0)

    def _name_edges(self, ax: Any) -> None:
        """The edges between the bins, drawn equally wide because they hold equally many."""
        edges = self.table.edges
        assert edges is not None
        ticks = np.arange(len(edges)) - 0.5
        ax.set_xticks(ticks, [_short(edge) for edge in edges])
        crowded = max(len(_short(edge)) for edge in edges) * len(edges) > 60
        ax.tick_params(axis="x", labelsize=8.5)
        if crowded:
            for words in ax.get_xticklabels():
                words.set(rotation=35, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.5, len(edges) - 1.5)
        ax.set_xlabel(self.what)
        for tick in ticks:
            ax.axvline(tick, color=QUIET, alpha=0.12, linewidth=0.8, zorder=0)


def _short(edge: float) -> str:
    return "∞" if np.isinf(edge) else f"{edge:.3g}".replace("-", "−")
