"""The frame of all displays: colours that everyone can tell apart, plain axes, a title."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import floor, log10
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which is safe for colour-blind readers.
BLUE, ORANGE, VERMILION, GREEN = "#0072B2", "#E69F00", "#D55E00", "#009E73"
PURPLE, SKY, QUIET, GREY = "#CC79A7", "#56B4E9", "#444444", "#8C8C8C"

#: Colours and markers of several methods, which also differ without colour.
SERIES = tuple(zip((BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY), "os^DvP", strict=True))
TARGET: dict[str, Any] = {"color": "#000000", "linewidth": 1.1, "linestyle": (0, (4, 2))}

#: Most dots in one figure; more would hide each other.
MOST_DOTS = 5000


@dataclass(eq=False)
class Display:
    """Numbers that :meth:`plot` draws; ``ax_`` and ``figure_`` are where they were drawn last."""

    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    _size: ClassVar[Any] = (6.4, 4.2)
    #: Whether several may share axes: ``name`` is then a label, and the first one has the title.
    _is_curve: ClassVar[bool] = False
    #: Draws on the axes, styled by ``look``, and returns the title and the caption.
    _draw: ClassVar[Callable[..., tuple[str, str]]]

    def plot(self, ax: Any = None, *, name: str | None = None, **look: Any) -> Self:
        """Draw on ``ax``, by default on new axes; ``ax_`` and ``figure_`` then refer to them.

        Parameters
        ----------
        ax : matplotlib axes, optional
        name : the title; of a curve, its name in the legend, as several may share the axes
        **look : ``color``; ``cmap`` for dots coloured by width, ``marker`` of a calibration curve
        """
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=self._size, layout="constrained")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        fresh = not ax.lines or not self._is_curve
        if self._is_curve:
            look, name = {"fresh": fresh, "name": name, **look}, None
        title, caption = self._draw(ax, **look)
        if fresh:  # a title, and a caption in small type below it
            pad, where = 22 + 12 * caption.count("\n"), {"xycoords": "axes fraction"}
            ax.set_title(name or title, loc="left", fontweight="bold", fontsize=11, pad=pad)
            look = {"textcoords": "offset points", "va": "bottom", "fontsize": 9, "color": QUIET}
            ax.annotate(caption, (0, 1), (0, 6), **where, **look)
        return self


def blank_figure(size: tuple[float, float], *grid: int, **how: Any) -> tuple[Figure, Any]:
    """A figure without a window, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(*grid, **how)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def label(ax: Any, x: str, y: str, *, legend: str | None = "upper left", ncols: int = 1) -> None:
    """Name both axes, and add a legend without a frame unless ``legend`` is None."""
    ax.set_xlabel(literal(x))
    ax.set_ylabel(literal(y))
    if legend is not None:
        ax.legend(frameon=False, fontsize=8.5, loc=legend, ncols=ncols)


def literal(name: str) -> str:
    """A name as it is spelt: a column called ``$x$`` is not a formula."""
    return name.replace("$", r"\$")


def columns_of(frame: Any) -> list[Any]:
    """Names of the columns of a frame; an empty list for anything else."""
    return [*getattr(frame, "columns", ())]


def name_of(column: Any, default: str) -> str:
    """The name of a series, or of the one column of a frame; otherwise the default."""
    columns = columns_of(column)
    name = columns[0] if len(columns) == 1 else getattr(column, "name", None)
    return str(name) if isinstance(name, str | int) and name != "" else default


def asked(line: Callable[..., Any], level: float) -> None:
    """Draw the level asked for by ``axhline`` or ``axvline``."""
    line(level, label=f"requested: {percent(level)}", **TARGET)


def in_percent(axis: Any) -> None:
    """Label an axis in percent, between 0 and 100 % only."""
    axis.set_major_formatter(lambda v, _: percent(v) if -1e-9 <= v <= 1 + 1e-9 else "")


def percent(value: float) -> str:
    """A share in percent: ``90 %``, ``97.5 %``; less than all is never ``100 %``."""
    missing = 100 * (1 - value)
    # Three digits, and just below 100 % enough for two digits of what is missing.
    digits = 3 - floor(log10(missing)) if 1e-9 < missing < 1 else 3
    return f"{100 * value:.{digits}g} %"


def several(n: int, thing: str) -> str:
    """``1 interval``, ``12,000 intervals``."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"
