"""The tuning curve: how good each length scale is, and which ones were chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calliper._types import FloatArray
from calliper.tuning import MEASURES, TuningCurve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, as in the other figures.
_CURVE, _REFERENCE, _CHOSEN, _QUIET = "#0072B2", "#D55E00", "#009E73", "#444444"
_UNITS = {"mse": " of the local scale", "deviance": "", "mi": " (nats, not null-corrected)"}


def draw_tuning(curve: TuningCurve) -> Figure:
    """Above, the criterion against the length scale; below, how many points chose each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_xscale("log")
    _set_up(axes[1].xaxis, *_limits(curve.candidates))
    _draw_criterion(axes[0], curve)
    _draw_counts(axes[1], curve)
    _mark_favourite(axes, curve)
    figure.align_ylabels(axes)
    return figure


def _set_up(xaxis: Any, low: float, high: float) -> None:
    """Limits, and ticks in plain numbers: several in a decade where there are few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    xaxis.axes.set_xlim(low, high)
    subs = (1.0, 2.0, 5.0) if high / low < 1e4 else (1.0,)
    xaxis.set_major_locator(LogLocator(subs=subs))
    xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    xaxis.set_minor_formatter(NullFormatter())


def _draw_criterion(axis: Any, curve: TuningCurve) -> None:
    finite = np.isfinite(curve.mean)
    x, mean, deviation = (v[finite] for v in (curve.candidates, curve.mean, curve.deviation))
    band = (mean - deviation, mean + deviation)
    axis.fill_between(x, *band, color=_CURVE, alpha=0.25, linewidth=0)
    axis.plot(x, mean, color=_CURVE, linewidth=1.6, marker="o", markersize=3.5)
    axis.set_ylabel(MEASURES[curve.criterion] + _UNITS[curve.criterion])
    axis.set_title(
        "Smaller is better: mean over the points left out, shaded ± their deviation",
        loc="left",
        fontsize=9.5,
        color=_QUIET,
    )
    value = curve.reference_value
    if value is None or not np.isfinite(value):
        return
    axis.axhline(value, color=_REFERENCE, linewidth=1.3, linestyle=(0, (5, 2)))
    axis.margins(y=0.1)
    right = _room(mean[-(len(mean) // 3 + 1) :], value) >= _room(mean[: len(mean) // 3 + 1], value)
    axis.annotate(
        str(curve.reference_name),
        (1.0 if right else 0.0, value),
        (-4 if right else 4, 4),
        xycoords=axis.get_yaxis_transform(),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom",
        color=_REFERENCE,
        fontsize=9.5,
    )


def _room(mean: FloatArray, value: float) -> float:
    """How far this part of the curve stays away from the words just above the line."""
    return float(np.abs(mean - value).min()) if len(mean) else 0.0


def _draw_counts(axis: Any, curve: TuningCurve) -> None:
    factor = _half_width(curve.candidates)
    left, right = curve.candidates / factor, curve.candidates * factor
    axis.bar(left, curve.counts, right - left, align="edge", color=_CHOSEN)
    axis.set_ylim(0, 1.05 * len(curve.chosen))
    axis.set_yticks([0, len(curve.chosen)])
    axis.set_ylabel("points that\nchose it")
    axis.set_xlabel("length scale")


def _mark_favourite(axes: Any, curve: TuningCurve) -> None:
    """A line through both panels, and words beside it on the side with more room."""
    place = curve.favourite
    x, n = curve.candidates[place], len(curve.chosen)
    for axis in axes:
        axis.axvline(x, color=_CHOSEN, linewidth=1.0, linestyle=":", zorder=0)
    left = bool(np.log(x) > np.log(axes[1].get_xlim()).mean())
    edge = x * _half_width(curve.candidates) ** (-1 if left else 1)
    axes[1].annotate(
        f"{x:.3g}, chosen by {curve.counts[place]} of {n}",
        (edge, 0.5 * n),
        (-5 if left else 5, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        color=_CHOSEN,
        fontsize=9.5,
    )


def _half_width(candidates: FloatArray) -> float:
    """Factor from the middle of a bar to its end: bars do not touch and are not too wide."""
    return float(np.exp(0.4 * min([0.25, *np.diff(np.log(candidates))])))


def _limits(candidates: FloatArray) -> tuple[float, float]:
    factor = 2.0 if len(candidates) == 1 else _half_width(candidates) ** 1.5
    return float(candidates[0] / factor), float(candidates[-1] * factor)
