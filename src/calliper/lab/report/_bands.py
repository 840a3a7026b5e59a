"""Bands: intervals over one input, alone or side by side, around the best there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._validation import check_vector
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.report import _style as style
from calliper.metrics import IntervalsLike, one_level
from calliper.rows import same_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MODEL: dict[str, Any] = {"color": "#000000", "linewidth": 1.1, "zorder": 3}
_INSIDE: dict[str, Any] = {"color": style.GREY, "linestyle": "", "marker": ".", "ms": 2.5}
_OUTSIDE: dict[str, Any] = {"color": style.VERMILION, "linestyle": "", "marker": "o", "ms": 2.5}


@dataclass(eq=False)
class BandDisplay(style.Display):
    """Intervals over one input; made by :meth:`from_intervals`.

    What to see: the band is wide where targets scatter and narrow where they do not, and the
    targets outside lie everywhere along x rather than in one stretch.

    Attributes
    ----------
    x : (n,) the input, ascending; all other arrays are in its order
    lower, upper : (n,) ends of the intervals, perhaps infinite
    y, covered : (n,) targets, and whether they lie inside; None without targets
    y_pred : (n,) predictions, or None
    oracle : the best intervals there are, or None
    coverage : the level asked for, or None
    names : of x and y, for the axes
    ax_, figure_ : where it was drawn last

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Intervals
    >>> x = np.linspace(0, 1, 50)
    >>> intervals = Intervals(-x, x, 0.9)
    >>> bool(BandDisplay.from_intervals(x[:, None], intervals, y=x / 2).covered.all())
    True
    """

    x: FloatArray
    lower: FloatArray
    upper: FloatArray
    y: FloatArray | None = None
    covered: BoolArray | None = None
    y_pred: FloatArray | None = None
    oracle: Intervals | None = None
    coverage: float | None = None
    names: tuple[str, str] = ("x", "y")

    @classmethod
    def from_intervals(
        cls,
        x: Any,
        intervals: IntervalsLike,
        *,
        y: Any = None,
        y_pred: Any = None,
        oracle: IntervalsLike | None = None,
    ) -> Self:
        """Sort everything by x, and see which targets lie inside.

        Parameters
        ----------
        x : array of shape (n,) or (n, 1)
            A series, or a frame of one column, names the axis; so does that of ``y``.
        intervals : Intervals or (lower, upper), of one level
            At each x.
        y, y_pred : array of shape (n,), optional
            Targets and predictions at each x.
        oracle : Intervals or (lower, upper), optional
            The best intervals there are at each x, if the law of the data is known.
        """
        read = one_level(intervals)
        n, names = len(read.lower), (style.name_of(x, "x"), style.name_of(y, "y"))
        x, y, y_pred = same_rows(read, "intervals", x=x, y=y, y_pred=y_pred)
        if np.ndim(x) == 2 and np.shape(x)[1] != 1:
            raise CalliperError(
                f"x must be one input a row; got {np.shape(x)[1]} columns: pass one of them, or "
                f"see EmbeddingDisplay."
            )
        place = check_vector(x, "x", n=n)
        order = np.argsort(place, kind="stable")
        best = None if oracle is None else one_level(oracle)
        if best is not None and len(best.lower) != n:
            raise CalliperError(f"oracle has {len(best.lower)} intervals for {n} rows.")
        level = None if read.coverage is None else float(np.atleast_1d(read.coverage)[0])
        return cls(
            x=place[order],
            lower=read.lower[order],
            upper=read.upper[order],
            y=None if y is None else check_vector(y, "y", n=n)[order],
            covered=None if y is None else read.contains(y)[order],
            y_pred=None if y_pred is None else check_vector(y_pred, "y_pred", n=n)[order],
            oracle=None if best is None else best[order],
            coverage=level,
            names=names,
        )

    @property
    def adaptive(self) -> bool:
        """Whether some intervals are wider than others, by more than rounding."""
        width = self.upper - self.lower
        return bool(np.ptp(width) > 1e-9 * width.max())

    @property
    def n_infinite(self) -> int:
        """How many intervals have no end on one side or on both."""
        return int(np.count_nonzero(np.isinf(self.upper - self.lower)))

    def plot(self, ax: Any = None, *, name: str | None = None, color: str = style.BLUE) -> Self:
        """Draw the band; infinite intervals reach beyond the axes."""
        ax = self._start(ax, (7.2, 4.2))
        shown = [self.lower, self.upper, *(v for v in (self.y, self.y_pred) if v is not None)]
        low, high = style.limits(np.concatenate(shown))
        ends = style.drawn_ends(self.lower, self.upper, low, high)
        level = "" if self.coverage is None else f"{style.percent(self.coverage)} "
        ax.fill_between(
            self.x, *ends, color=color, alpha=0.35, linewidth=0, label=f"{level}interval"
        )
        if self.oracle is not None:
            ax.plot(self.x, self.oracle.lower, label="oracle (knows the noise)", **style.TARGET)
            ax.plot(self.x, self.oracle.upper, **style.TARGET)
        if self.y_pred is not None:
            ax.plot(self.x, self.y_pred, color="#000000", linewidth=0.9, label="prediction")
        if self.y is not None and self.covered is not None:
            inside, outside = self.covered, ~self.covered
            ax.plot(self.x[inside], self.y[inside], label="target inside", **_INSIDE)
            ax.plot(self.x[outside], self.y[outside], label="target outside", **_OUTSIDE)
        ax.margins(x=0.01)
        x, y = map(style.literal, self.names)
        ax.set(ylim=(low, high), xlabel=x, ylabel=y)
        ax.legend(edgecolor="none", framealpha=0.85, fontsize=8.5, ncols=2, loc="best")
        style.entitle(ax, name or "Intervals over the input", self._caption())
        return self

    def _caption(self) -> str:
        words = style.several(len(self.x), "row")
        if self.covered is not None:
            words += f", {style.percent(float(self.covered.mean()))} of the targets inside"
        if self.n_infinite:
            words += f"; {style.several(self.n_infinite, 'interval')} infinite, past the axes"
        return words


def draw_bands(
    bands: Mapping[str, BandDisplay], captions: Mapping[str, str] | None = None
) -> Figure:
    """A column for each band: above it lies over the data, below its half-width stands alone.

    Parameters
    ----------
    bands : mapping from a title to a BandDisplay
        All with targets, predictions and the oracle. Targets that are NaN are not drawn.
    captions : mapping from a title to a line, optional
        What to see.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Intervals
    >>> x = np.linspace(0, 1, 50)
    >>> known = {"y": x / 2, "y_pred": 0 * x, "oracle": (-x, x)}
    >>> band = BandDisplay.from_intervals(x, Intervals(-x, x, 0.9), **known)
    >>> len(draw_bands({"growing": band}, {"growing": "a line"}).axes)
    2
    """
    for title, band in bands.items():
        if band.oracle is None or band.y_pred is None:
            raise CalliperError(f"the band {title!r} has no oracle, or no y_pred: give it both.")
    shared: dict[str, Any] = {"sharex": True, "sharey": "row", "squeeze": False}
    figure, axes = style.blank_figure((10.7, 5.6), 2, len(bands), height_ratios=(5, 3), **shared)
    for (data, half_width), (title, band) in zip(axes.T, bands.items(), strict=True):
        _draw_data(data, band)
        data.set_title(f"{title}\n", loc="left", fontweight="bold", fontsize=12)
        where: dict[str, Any] = {"transform": data.transAxes, "fontsize": 9.5, "color": style.QUIET}
        caption = data.text(0, 1.03, (captions or {}).get(title, ""), **where)
        caption.set_in_layout(False)  # a long one must not push the panels apart
        _draw_half_width(half_width, band)
        half_width.set_xlabel("x")
        half_width.margins(x=0)
        data.margins(x=0)
    axes[1, 0].set_ylim(bottom=0)  # of all panels, whose scale is shared and known only now
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("half-width")
    figure.legend(
        handles=_legend(bands), loc="outside lower center", ncols=6, frameon=False, fontsize=9.5
    )
    return figure


def _draw_data(axis: Any, band: BandDisplay) -> None:
    axis.fill_between(band.x, band.lower, band.upper, color=_colour(band), alpha=0.4, linewidth=0)
    axis.plot(band.x, band.y_pred, **_MODEL)
    for end in band.oracle or ():
        axis.plot(band.x, end, **style.TARGET)
    if band.y is not None and band.covered is not None:
        for rows, look in ((band.covered, _INSIDE), (~band.covered, _OUTSIDE)):
            axis.plot(band.x[rows], band.y[rows], **look)


def _draw_half_width(axis: Any, band: BandDisplay) -> None:
    assert band.oracle is not None
    best, own = band.oracle.width / 2, (band.upper - band.lower) / 2
    colour = _colour(band)
    axis.fill_between(band.x, best, own, color=colour, alpha=0.25, linewidth=0)
    axis.plot(band.x, own, color=colour, linewidth=1.6)
    axis.plot(band.x, best, **style.TARGET)
    if not band.adaptive:
        _say_where_wrong(axis, band.x, best, own)


def _say_where_wrong(axis: Any, grid: FloatArray, best: FloatArray, own: FloatArray) -> None:
    """Words where a constant width misses the best one by most, in the middle of the panel."""
    # The half-width has several equal peaks and troughs: point at those nearest the middle.
    span = np.ptp(grid)
    far = 0.05 * best.max() * np.abs(grid - grid.mean()) / span
    for words, excess, side in (("too wide", own - best, -1), ("too narrow", best - own, 1)):
        at = int(np.argmax(excess - far))
        axis.annotate(
            words,
            (grid[at], (best[at] + own[at]) / 2),
            (grid[at] + 0.12 * side * span, 1.25 * best.max()),
            ha="center",
            fontsize=9.5,
            arrowprops={"arrowstyle": "->", "color": style.QUIET, "linewidth": 0.8},
        )


def _legend(bands: Mapping[str, BandDisplay]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = {band.adaptive: _colour(band) for band in bands.values()}
    names = {False: "constant band", True: "adaptive band"}
    return [
        *(Patch(color=colour, alpha=0.5, label=names[kind]) for kind, colour in kinds.items()),
        Line2D([], [], label="oracle (knows the noise)", **style.TARGET),
        Line2D([], [], label="model", **_MODEL),
        Line2D([], [], label="test point", **_INSIDE),
        Line2D([], [], label="outside its interval", **_OUTSIDE),
    ]


def _colour(band: BandDisplay) -> str:
    return style.BLUE if band.adaptive else style.ORANGE
