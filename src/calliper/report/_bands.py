"""Bands side by side: each method's intervals over one input, around the best there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper.intervals import Intervals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which people of all kinds of colour vision can tell apart.
_CONSTANT, _ADAPTIVE, _QUIET = "#E69F00", "#0072B2", "#444444"
_MODEL: dict[str, Any] = {"color": "#000000", "linewidth": 1.1, "zorder": 3}
_DASHED: dict[str, Any] = {"color": "#000000", "linewidth": 1.1, "linestyle": (0, (4, 2))}
_INSIDE: dict[str, Any] = {"color": "#8C8C8C", "linestyle": "", "marker": ".", "markersize": 2.5}
_OUTSIDE: dict[str, Any] = {"color": "#D55E00", "linestyle": "", "marker": "o", "markersize": 2.5}


@dataclass(frozen=True, eq=False)
class Band:
    """What one panel shows.

    Attributes
    ----------
    title, caption : name of the method, and what to see
    intervals : its intervals at each x of the grid
    covered : whether each test point lies in its interval
    adaptive : whether the width may change with x
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
    grid, y_pred : (m,) ascending x, and the model's predictions there
    oracle : the best intervals there are, at each x of the grid
    x, y : (n,) test points
    """

    grid: FloatArray
    y_pred: FloatArray
    oracle: Intervals
    x: FloatArray
    y: FloatArray


def draw_bands(scene: Scene, bands: Sequence[Band]) -> Figure:
    """A column for each band: above it lies over the data, below its half-width stands alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.7, 5.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(
        2, len(bands), sharex=True, sharey="row", squeeze=False, height_ratios=(5, 3)
    )
    for (data, half_width), band in zip(axes.T, bands, strict=True):
        _draw_data(data, scene, band)
        _draw_half_width(half_width, scene, band)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
    for axis in axes[1]:
        axis.set_ylim(bottom=0)
        axis.set_xlabel("x")
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("half-width")
    figure.legend(
        handles=_legend(bands), loc="outside lower center", ncols=6, frameon=False, fontsize=9.5
    )
    return figure


def _draw_data(axis: Any, scene: Scene, band: Band) -> None:
    axis.fill_between(scene.grid, *band.intervals, color=_colour(band), alpha=0.4, linewidth=0)
    axis.plot(scene.grid, scene.y_pred, **_MODEL)
    for end in scene.oracle:
        axis.plot(scene.grid, end, **_DASHED)
    outside = ~band.covered
    axis.plot(scene.x[~outside], scene.y[~outside], **_INSIDE)
    axis.plot(scene.x[outside], scene.y[outside], **_OUTSIDE)
    axis.set_title(f"{band.title}\n", loc="left", fontweight="bold", fontsize=12)
    caption = axis.text(0, 1.03, band.caption, transform=axis.transAxes, fontsize=9.5, color=_QUIET)
    caption.set_in_layout(False)  # a long one must not push the panels apart


def _draw_half_width(axis: Any, scene: Scene, band: Band) -> None:
    best, own = scene.oracle.width / 2, band.intervals.width / 2
    colour = _colour(band)
    axis.fill_between(scene.grid, best, own, color=colour, alpha=0.25, linewidth=0)
    axis.plot(scene.grid, own, color=colour, linewidth=1.6)
    axis.plot(scene.grid, best, **_DASHED)
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
            arrowprops={"arrowstyle": "->", "color": _QUIET, "linewidth": 0.8},
        )


def _legend(bands: Sequence[Band]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = {band.adaptive: _colour(band) for band in bands}
    names = {False: "constant band", True: "adaptive band"}
    return [
        *(Patch(color=colour, alpha=0.5, label=names[kind]) for kind, colour in kinds.items()),
        Line2D([], [], label="oracle (knows the noise)", **_DASHED),
        Line2D([], [], label="model", **_MODEL),
        Line2D([], [], label="test point", **_INSIDE),
        Line2D([], [], label="outside its interval", **_OUTSIDE),
    ]


def _colour(band: Band) -> str:
    return _ADAPTIVE if band.adaptive else _CONSTANT
