"""Bands: intervals over one input, alone or side by side, around the best there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
            oracle=None if best is None else Intervals(best.lower[order], best.upper[order]),
            coverage=level,
            names=names,
        )

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


@dataclass(frozen=True, eq=False)
class Band:
    """What one panel shows.

    Attributes
    ----------
    title, caption : name of the method, and what to see
    intervals : its intervals at each x of the grid
    covered : whether each test point lies in its interval
    adaptive : whether the width may change with x

    Examples
    --------
    >>> from calliper import Intervals
    >>> Band("growing", "a line", Intervals([-1.0], [1.0], 0.9), np.array([True])).adaptive
    True
    """

    title: str
    caption: str
    intervals: Intervals
    covered: BoolArray
    adaptive: bool = True


@dataclass(frozen=True, eq=False)
class Scene:
    """What all panels share.

    Attributes
    ----------
    grid, y_pred : (m,) x of the lines, and the model's predictions there
    oracle : the best intervals there are, at each x of the grid
    x, y : (n,) test points

    Examples
    --------
    >>> from calliper import Intervals
    >>> x = np.linspace(0, 1, 50)
    >>> Scene(grid=x, y_pred=0 * x, oracle=Intervals(-x, x, 0.9), x=x, y=x / 2).grid.shape
    (50,)
    """

    grid: FloatArray
    y_pred: FloatArray
    oracle: Intervals
    x: FloatArray
    y: FloatArray


def draw_bands(scene: Scene, bands: Sequence[Band]) -> Figure:
    """A column for each band: above it lies over the data, below its half-width stands alone.

    Parameters
    ----------
    scene : Scene
        What all panels share.
    bands : sequence of Band
        A column each.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Intervals
    >>> x = np.linspace(0, 1, 50)
    >>> intervals = Intervals(-x, x, 0.9)
    >>> scene = Scene(grid=x, y_pred=0 * x, oracle=intervals, x=x, y=x / 2)
    >>> band = Band("growing", "a line", intervals, np.ones(50, dtype=bool))
    >>> len(draw_bands(scene, [band]).axes)
    2
    """
    scene, bands = _in_order(scene, bands)
    shared: dict[str, Any] = {"sharex": True, "sharey": "row", "squeeze": False}
    figure, axes = style.blank_figure((10.7, 5.6), 2, len(bands), height_ratios=(5, 3), **shared)
    for (data, half_width), band in zip(axes.T, bands, strict=True):
        _draw_data(data, scene, band)
        _draw_half_width(half_width, scene, band)
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


def _in_order(scene: Scene, bands: Sequence[Band]) -> tuple[Scene, list[Band]]:
    """The same along an ascending grid: lines join neighbours."""
    order = np.argsort(scene.grid, kind="stable")

    def ordered(ends: Intervals) -> Intervals:
        return Intervals(ends.lower[order], ends.upper[order])

    grid, y_pred, oracle = scene.grid[order], scene.y_pred[order], ordered(scene.oracle)
    scene = replace(scene, grid=grid, y_pred=y_pred, oracle=oracle)
    return scene, [replace(band, intervals=ordered(band.intervals)) for band in bands]


def _draw_data(axis: Any, scene: Scene, band: Band) -> None:
    axis.fill_between(scene.grid, *band.intervals, color=_colour(band), alpha=0.4, linewidth=0)
    axis.plot(scene.grid, scene.y_pred, **_MODEL)
    for end in scene.oracle:
        axis.plot(scene.grid, end, **style.TARGET)
    outside = ~band.covered
    axis.plot(scene.x[~outside], scene.y[~outside], **_INSIDE)
    axis.plot(scene.x[outside], scene.y[outside], **_OUTSIDE)
    axis.set_title(f"{band.title}\n", loc="left", fontweight="bold", fontsize=12)
    caption = axis.text(
        0, 1.03, band.caption, transform=axis.transAxes, fontsize=9.5, color=style.QUIET
    )
    caption.set_in_layout(False)  # a long one must not push the panels apart


def _draw_half_width(axis: Any, scene: Scene, band: Band) -> None:
    best, own = scene.oracle.width / 2, band.intervals.width / 2
    colour = _colour(band)
    axis.fill_between(scene.grid, best, own, color=colour, alpha=0.25, linewidth=0)
    axis.plot(scene.grid, own, color=colour, linewidth=1.6)
    axis.plot(scene.grid, best, **style.TARGET)
    if not band.adaptive:
        _say_where_wrong(axis, scene.grid, best, own)


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


def _legend(bands: Sequence[Band]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = {band.adaptive: _colour(band) for band in bands}
    names = {False: "constant band", True: "adaptive band"}
    return [
        *(Patch(color=colour, alpha=0.5, label=names[kind]) for kind, colour in kinds.items()),
        Line2D([], [], label="oracle (knows the noise)", **style.TARGET),
        Line2D([], [], label="model", **_MODEL),
        Line2D([], [], label="test point", **_INSIDE),
        Line2D([], [], label="outside its interval", **_OUTSIDE),
    ]


def _colour(band: Band) -> str:
    return style.BLUE if band.adaptive else style.ORANGE
