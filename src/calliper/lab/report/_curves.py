"""Curves: a measure over the calibration points, a criterion over the length scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.lab.evaluation import one_sigma
from calliper.lab.report import _style as style
from calliper.lab.tuning import CRITERIA_IN_WORDS, TuningCurve
from calliper.metrics import MEASURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_UNITS = {"mse": " of the local scale", "deviance": "", "mi": " (nats, not null-corrected)"}


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean of a measure over splits and its 1-σ percentile error at each N, of one method."""

    n_calibration: IntArray
    mean: FloatArray
    error: FloatArray
    n_splits: IntArray
    n_undefined: IntArray


@dataclass(eq=False)
class MetricCurveDisplay(style.Display):
    """A measure over the number of calibration points; made by :meth:`from_records`.

    What to look for: which method needs fewer points, and whether methods differ by more than the
    bars, the variation between splits of the same data.

    Attributes
    ----------
    curves : dict from the name of a method to its ``n_calibration``, ``mean``, ``error``,
        ``n_splits`` and ``n_undefined`` (splits without a value, left out of the mean)
    metric : its name in the records
    problem : its name
    level : the coverage asked for
    ax_, figure_ : where it was drawn last

    Examples
    --------
    >>> records = [
    ...     {"problem": "p", "method": "Split", "n_calibration": n, "level": 0.9, "coverage": 0.9}
    ...     for n in (50, 100)
    ... ]
    >>> MetricCurveDisplay.from_records(records, "coverage").curves["Split"].mean
    array([0.9, 0.9])
    """

    curves: dict[str, Curve]
    metric: str
    problem: str
    level: float

    @classmethod
    def from_records(
        cls, records: Any, metric: str, *, problem: str | None = None, level: float | None = None
    ) -> Self:
        """Mean and 1-σ error over the splits, for each method and N.

        Parameters
        ----------
        records : Records, frame, or iterable of dicts
            What :func:`calliper.lab.evaluation.evaluate` returns: ``problem``, ``method``,
            ``n_calibration``, ``split``, ``level`` (or, without it, ``coverage``) and the metric.
        metric : str
        problem, level : optional
            Needed if the records hold several.
        """
        rows = _rows(records)
        missing = {"problem", "method", "n_calibration", metric} - set(rows[0])
        if missing:
            raise CalliperError(
                f"records must have the fields problem, method, n_calibration and {metric!r}; "
                f"{', '.join(map(repr, sorted(missing)))} is not among {sorted(rows[0])}."
            )
        asked = "level" if "level" in rows[0] else "coverage"
        problem = _the_one(rows, "problem", "problem", problem)
        level = float(_the_one(rows, asked, "level", level))
        rows = [row for row in rows if row["problem"] == problem and row[asked] == level]
        names = dict.fromkeys(str(row["method"]) for row in rows)
        curves = {name: _curve([r for r in rows if r["method"] == name], metric) for name in names}
        return cls(curves, metric, str(problem), level)

    @property
    def label(self) -> str:
        """Name of the metric in the figure."""
        known = MEASURES.get(self.metric)
        words = (known and known.label) or self.metric.replace("_", " ")
        return words[0].upper() + words[1:] if words[0].isascii() else words

    def _draw(self, ax: Any) -> tuple[str, str]:
        """A line with bars for each method; N is on a logarithmic axis."""
        from matplotlib.ticker import NullLocator

        for place, method in enumerate(self.curves):
            self._draw_curve(ax, place, method)
        if self.metric in ("coverage", "empirical_coverage"):
            ax.axhline(self.level, label=f"asked for: {style.percent(self.level)}", **style.TARGET)
            style.in_percent(ax.yaxis)
        sizes = sorted({int(n) for curve in self.curves.values() for n in curve.n_calibration})
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        style.label(ax, "calibration points, N", self.label, legend="best")
        return f"{self.label}: {self.problem}", self._caption()

    def _draw_curve(self, ax: Any, place: int, method: str) -> None:
        """The line of one method, shifted sideways so that bars do not hide each other."""
        curve, (color, mark) = self.curves[method], style.SERIES[place % len(style.SERIES)]
        x = curve.n_calibration * 1.025 ** (place - (len(self.curves) - 1) / 2)
        finite = np.isfinite(curve.mean)
        bars: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "linewidth": 1.6, "ms": 5}
        bars |= {"color": color, "marker": mark, "label": method + _remarks(curve)}
        # No bar is drawn where the error is not known.
        ax.errorbar(x[finite], curve.mean[finite], yerr=curve.error[finite], **bars)
        # Infinite means: arrows at the top or the bottom of the axes.
        look = {"color": color, "ms": 8, "linestyle": "none", "clip_on": False}
        for edge, mark, mean in ((1, "^", np.inf), (0, "v", -np.inf)):
            if len(at := x[curve.mean == mean]):
                where = ax.get_xaxis_transform()
                ax.plot(at, [edge] * len(at), marker=mark, transform=where, **look)

    def _caption(self) -> str:
        splits = np.concatenate([curve.n_splits for curve in self.curves.values()])
        drawn = np.concatenate([c.error[np.isfinite(c.mean)] for c in self.curves.values()])
        known = np.isfinite(drawn)
        bars = ", bars ± 1 σ of a split" if known.any() else ""
        bars += "" if known.all() else "; no bar: one value, its error is not known"
        low, over = splits.min(), style.several(splits.max(), "split")
        span = "" if low == splits.max() else f"{low} to "
        return f"{style.percent(self.level)} asked for · mean over {span}{over}{bars}"


def _rows(records: Any) -> list[Mapping[str, Any]]:
    if style.columns_of(records):
        records = records.to_dict("records")
    rows = list(records) if isinstance(records, Iterable) else []
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise CalliperError(
            f"records must hold at least one row, each a dict; got {type(records).__name__} of "
            f"{len(rows)}."
        )
    return rows


def _the_one(rows: list[Mapping[str, Any]], key: str, name: str, value: Any) -> Any:
    """The value asked for, or the only one in the records."""
    present = list(dict.fromkeys(row[key] for row in rows))
    if value is None and len(present) > 1:
        raise CalliperError(f"records hold several of {name}: {present}; pass {name}= one of them.")
    if value is not None and value not in present:
        raise CalliperError(f"records hold no {name} {value!r}; there are {present}.")
    return present[0] if value is None else value


def _curve(rows: list[Mapping[str, Any]], metric: str) -> Curve:
    sizes = sorted({int(row["n_calibration"]) for row in rows})
    columns = []
    for n in sizes:
        found = np.array([row[metric] for row in rows if row["n_calibration"] == n], dtype=float)
        defined = found[~np.isnan(found)]
        columns.append((*one_sigma(defined), len(found), len(found) - len(defined)))
    mean, error, n_splits, n_undefined = np.array(columns).T
    counts = n_splits.astype(np.intp), n_undefined.astype(np.intp)
    return Curve(np.array(sizes), mean, error, *counts)


def _remarks(curve: Curve) -> str:
    """What the line of a method does not show: undefined values and infinite means."""
    words = []
    if n_lost := int(curve.n_undefined.sum()):
        words.append(f"{n_lost} of {curve.n_splits.sum()} undefined")
    if np.isinf(curve.mean).any():
        sizes = ", ".join(f"{n:,}" for n in curve.n_calibration[np.isinf(curve.mean)])
        words.append(f"infinite at N = {sizes}")
    return f" ({'; '.join(words)})" if words else ""


def draw_tuning(curve: TuningCurve) -> Figure:
    """Draw the criterion over the candidates, and below how many points chose each.

    Parameters
    ----------
    curve : TuningCurve
        From :func:`calliper.lab.tuning.tuning_curve`.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from calliper.lab.tuning import tuning_curve
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(60, 1))
    >>> curve = tuning_curve(Z, rng.exponential(size=60), Z_train=rng.uniform(size=(60, 1)))
    >>> len(draw_tuning(curve).axes)
    2
    """
    figure, axes = style.blank_figure((7.6, 5.0), 2, 1, sharex=True, height_ratios=(4, 1))
    axes[1].set_xscale("log")
    single = len(curve.candidates) == 1
    room = 2.0 if single else _half_width(curve.candidates) ** 1.5
    _set_up(axes[1].xaxis, float(curve.candidates[0] / room), float(curve.candidates[-1] * room))
    _draw_criterion(axes[0], curve)
    _draw_counts(axes[1], curve)
    place = curve.favourite
    words = f"{curve.candidates[place]:.3g}, chosen by {curve.counts[place]} of {len(curve.chosen)}"
    for axis in axes:
        look: dict[str, Any] = {"color": style.GREEN, "linewidth": 1.0, "linestyle": ":"}
        axis.axvline(curve.candidates[place], label=words, zorder=0, **look)
    axes[0].legend(frameon=False, fontsize=9.5, loc="best")
    figure.align_ylabels(axes)
    return figure


def _set_up(xaxis: Any, low: float, high: float) -> None:
    """Limits, and ticks in plain numbers, several a decade if there are few decades."""
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
    axis.fill_between(x, *band, color=style.BLUE, alpha=0.25, linewidth=0)
    axis.plot(x, mean, color=style.BLUE, linewidth=1.6, marker="o", markersize=3.5)
    axis.set_ylabel(CRITERIA_IN_WORDS[curve.criterion] + _UNITS[curve.criterion])
    title = "Smaller is better: mean over the points left out, shaded ± their deviation"
    axis.set_title(title, loc="left", fontsize=9.5, color=style.QUIET)
    value = curve.reference_value
    if value is not None and np.isfinite(value):
        look: dict[str, Any] = {"linewidth": 1.3, "linestyle": (0, (5, 2))}
        axis.axhline(value, color=style.VERMILION, label=curve.reference_name, **look)
        axis.margins(y=0.1)


def _draw_counts(axis: Any, curve: TuningCurve) -> None:
    factor = _half_width(curve.candidates)
    left, right = curve.candidates / factor, curve.candidates * factor
    axis.bar(left, curve.counts, right - left, align="edge", color=style.GREEN)
    axis.set_ylim(0, 1.05 * len(curve.chosen))
    axis.set_yticks([0, len(curve.chosen)])
    axis.set_ylabel("points that\nchose it")
    axis.set_xlabel(curve.what)


def _half_width(candidates: FloatArray) -> float:
    """Factor from the middle of a bar to its end, so that bars do not touch."""
    return float(np.exp(0.4 * min([0.25, *np.diff(np.log(candidates))])))
