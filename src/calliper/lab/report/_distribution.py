"""Distributions over one input as a fan, and whether targets lie in them as they should."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from calliper._types import FloatArray
from calliper._validation import check_vector
from calliper.distribution import Distribution
from calliper.intervals import Intervals
from calliper.lab.report import _style as style
from calliper.metrics import ShareTable, pit_histogram
from calliper.rows import same_rows


@dataclass(eq=False)
class FanDisplay(style.Display):
    """Predictive distributions over one input; made by :meth:`from_distribution`.

    What to see: the fan opens where targets scatter, leans to the side on which they scatter more,
    and targets lie in each shade as often as it says.

    Attributes
    ----------
    x, median, y : (n,) the input, ascending, medians, and targets or None, in its order
    intervals : of equal tails, at several levels
    names : of x and y, for the axes
    ax_, figure_ : where it was drawn last

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((99, 1)), np.arange(1.0, 100.0), signs=np.tile([-1, 1, 1], 33))
    >>> Z = np.linspace(0, 1, 20)[:, None]
    >>> found = split.predict_distribution(Z, 100 * Z[:, 0])
    >>> FanDisplay.from_distribution(Z, found).median[:3].round(1)
    array([26. , 31.3, 36.5])
    """

    x: FloatArray
    intervals: Intervals
    median: FloatArray
    y: FloatArray | None = None
    names: tuple[str, str] = ("x", "y")

    @classmethod
    def from_distribution(
        cls,
        x: Any,
        distribution: Distribution,
        *,
        y: Any = None,
        coverage: Sequence[float] = (0.5, 0.8, 0.95),
    ) -> Self:
        """Equal tails at each level and the median, sorted by x; a series names its axis."""
        n, names = len(distribution), (style.name_of(x, "x"), style.name_of(y, "y"))
        x, y = same_rows(distribution, "distribution", x=x, y=y)
        place = check_vector(x, "x", n=n)
        order = np.argsort(place, kind="stable")
        lower, upper = distribution.interval(list(coverage))
        return cls(
            x=place[order],
            intervals=Intervals(lower[order], upper[order], tuple(coverage)),
            median=distribution.quantile(0.5)[order],
            y=None if y is None else check_vector(y, "y", n=n)[order],
            names=names,
        )

    def plot(self, ax: Any = None, *, name: str | None = None, color: str = style.BLUE) -> Self:
        """Draw the fan, the widest shade first; infinite ends reach beyond the axes."""
        ax = self._start(ax, (7.2, 4.2))
        (lower, upper), levels = self.intervals, np.asarray(self.intervals.coverage, float)
        shown = [lower.ravel(), upper.ravel(), *([] if self.y is None else [self.y])]
        low, high = style.limits(np.concatenate(shown))
        shades = np.linspace(0.6, 0.18, len(levels))
        for column in reversed(range(len(levels))):
            ends = style.drawn_ends(lower[:, column], upper[:, column], low, high)
            words = style.percent(levels[column])
            ax.fill_between(self.x, *ends, color=color, alpha=shades[column], lw=0, label=words)
        if self.y is not None:
            drawn = style.thin(len(self.x))
            ax.plot(self.x[drawn], self.y[drawn], "k.", ms=2.5, alpha=0.6, label="target")
        ax.plot(self.x, self.median, color=style.VERMILION, linewidth=1.2, label="median")
        ax.margins(x=0.01)
        ax.set_ylim(low, high)
        style.label(ax, *self.names, legend="best", ncols=2)
        style.entitle(ax, name or "Predictive distributions over the input", self._caption())
        return self

    def _caption(self) -> str:
        words = style.several(len(self.x), "row")
        if self.y is None:
            return words
        inside, levels = self.intervals.contains(self.y).mean(axis=0), self.intervals.coverage
        shares = zip(inside, np.asarray(levels, float), strict=True)
        told = [f"{style.percent(share)} in {style.percent(level)}" for share, level in shares]
        return f"{words}; targets: {', '.join(told)}"


@dataclass(eq=False)
class PITDisplay(style.Display):
    """Where in their distributions targets lie; made by :meth:`from_distribution`.

    What to see: bars alike and inside the band. Low outer bars mean distributions that are too
    wide, high ones too narrow, and a slope that they lie too high or too low. ``table`` holds the
    shares of the targets in equal bins, and their band.

    Parameters
    ----------
    table : ShareTable
        The shares, and their band.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((99, 1)), np.arange(1.0, 100.0), signs=np.tile([-1, 1, 1], 33))
    >>> Z = np.linspace(0, 1, 20)[:, None]
    >>> found = split.predict_distribution(Z, 100 * Z[:, 0])
    >>> PITDisplay.from_distribution(100 * Z[:, 0] + 5, found).table.n
    20
    """

    table: ShareTable

    @classmethod
    def from_distribution(
        cls, y: Any, distribution: Distribution, *, n_bins: int = 10, random_state: Any = 0
    ) -> Self:
        """Count targets; arguments as those of :func:`calliper.metrics.pit_histogram`."""
        return cls(pit_histogram(y, distribution, n_bins=n_bins, random_state=random_state))

    def plot(self, ax: Any = None, *, name: str | None = None, color: str = style.BLUE) -> Self:
        """Draw a bar for each bin, and the band in which chance leaves it."""
        ax, table = self._start(ax), self.table
        width = 1 / len(table.place)
        ax.bar(table.place, table.share, width, align="edge", color=color, alpha=0.55, ec="white")
        band: dict[str, Any] = {"color": style.ORANGE, "alpha": 0.35, "lw": 0, "zorder": 3}
        words = f"chance: {style.percent(table.level)} of the bars"
        ax.axhspan(table.lower[0], table.upper[0], label=words, **band)
        ax.axhline(width, label="expected", **style.TARGET)
        ax.set(xlim=(0, 1), ylim=(0, 1.25 * max(table.share.max(), table.upper.max())))
        style.in_percent(ax.yaxis)
        style.label(ax, "place of the target in its distribution", "share", ncols=2)
        caption = (
            f"{style.several(table.n, 'target')}, {table.n_outside} of the bars outside the band"
        )
        style.entitle(ax, name or "Are the distributions right?", caption)
        return self
