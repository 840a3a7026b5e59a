"""Curves: a measure over the calibration points, a criterion over the length scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

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


class Curve(NamedTuple):
    """Mean of a measure over splits and its 1-σ percentile error at each N, of one method."""

    n_calibration: IntArray
    mean: FloatArray
    error: FloatArray
    n_splits: IntArray
    n_undefined: IntArray

    @classmethod
    def of(cls, rows: list[Mapping[str, Any]], metric: str) -> Self:
        """From the records of one method."""
        columns = []
        for n in sorted({int(row["n_calibration"]) for row in rows}):
            found = np.array([row[metric] for row in rows if row["n_calibration"] == n], float)
            defined = found[~np.isnan(found)]
            columns.append((n, *one_sigma(defined), len(found), len(found) - len(defined)))
        return cls(*map(np.array, zip(*columns, strict=True)))

    def remarks(self) -> str:
        """What its line does not show: undefined values and infinite means."""
        words = []
        if n_lost := int(self.n_undefined.sum()):
            words.append(f"{n_lost} of {self.n_splits.sum()} undefined")
        if np.isinf(self.mean).any():
            sizes = ", ".join(f"{n:,}" for n in self.n_calibration[np.isinf(self.mean)])
            words.append(f"infinite at N = {sizes}")
        return f" ({'; '.join(words)})" if words else ""


@dataclass(eq=False)
class MetricCurveDisplay(style.Display):
    """A measure over the number of calibration points; made by :meth:`from_records`.

    What to look for: whether methods differ by more than the bars, the variation between splits.

    Attributes
    ----------
    curves : dict from the name of a method to its ``n_calibration``, ``mean``, ``error``,
        ``n_splits`` and ``n_undefined`` (splits without a value, left out of the mean)
    metric, problem, level : names in the records, and the coverage asked for

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
        records : Records, frame, or iterable of dicts, from :func:`calliper.evaluate`, with
            ``problem``, ``method``, ``n_calibration``, ``level`` (or ``coverage``) and the metric
        metric : its name
        problem, level : needed if the records hold several
        """
        given = records.to_dict("records") if style.columns_of(records) else records
        rows = list(given) if isinstance(given, Iterable) else []
        if not rows or not all(isinstance(row, Mapping) for row in rows):
            raise CalliperError(
                f"records must hold at least one row, each a dict; got {type(given).__name__} of "
                f"{len(rows)}."
            )
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
        of = {name: [row for row in rows if row["method"] == name] for name in names}
        curves = {name: Curve.of(own, metric) for name, own in of.items()}
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

        for place, (method, curve) in enumerate(self.curves.items()):
            color, mark = style.SERIES[place % len(style.SERIES)]
            # Shifted sideways, so that bars do not hide each other.
            x = curve.n_calibration * 1.025 ** (place - (len(self.curves) - 1) / 2)
            finite = np.isfinite(curve.mean)
            bars: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "linewidth": 1.6, "ms": 5}
            bars |= {"color": color, "marker": mark, "label": method + curve.remarks()}
            # No bar is drawn where the error is not known.
            ax.errorbar(x[finite], curve.mean[finite], yerr=curve.error[finite], **bars)
            # Infinite means: arrows at the top or the bottom of the axes.
            look = {"color": color, "ms": 8, "linestyle": "none", "clip_on": False}
            for edge, mark, mean in ((1, "^", np.inf), (0, "v", -np.inf)):
                if len(at := x[curve.mean == mean]):
                    where = ax.get_xaxis_transform()
                    ax.plot(at, [edge] * len(at), marker=mark, transform=where, **look)
        if self.metric in ("coverage", "empirical_coverage"):
            style.asked(ax.axhline, self.level)
            style.in_percent(ax.yaxis)
        sizes = sorted({int(n) for curve in self.curves.values() for n in curve.n_calibration})
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        style.label(ax, "calibration points, N", self.label, legend="best")
        splits = np.concatenate([curve.n_splits for curve in self.curves.values()])
        drawn = np.concatenate([c.error[np.isfinite(c.mean)] for c in self.curves.values()])
        known = np.isfinite(drawn)
        caption = ", bars ± 1 σ of a split" if known.any() else ""
        caption += "" if known.all() else "; no bar: one value, its error is not known"
        low, over = splits.min(), style.several(splits.max(), "split")
        span = "" if low == splits.max() else f"{low} to "
        caption = f"{style.percent(self.level)} asked for · mean over {span}{over}{caption}"
        return f"{self.label}: {self.problem}", caption


def _the_one(rows: list[Mapping[str, Any]], key: str, name: str, value: Any) -> Any:
    """The value asked for, or the only one in the records."""
    present = list(dict.fromkeys(row[key] for row in rows))
    if value is None and len(present) > 1:
        raise CalliperError(f"records hold several of {name}: {present}; pass {name}= one of them.")
    if value is not None and value not in present:
        raise CalliperError(f"records hold no {name} {value!r}; there are {present}.")
    return present[0] if value is None else value


def draw_tuning(curve: TuningCurve) -> Figure:
    """Draw the criterion over the candidates, and below how many points chose each.

    Parameters
    ----------
    curve : TuningCurve from :func:`calliper.lab.tuning.tuning_curve`

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> from calliper.lab.tuning import tuning_curve
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(60, 1))
    >>> curve = tuning_curve(Z, rng.exponential(size=60), Z_train=rng.uniform(size=(60, 1)))
    >>> len(draw_tuning(curve).axes)
    2
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    how: dict[str, Any] = {"sharex": True, "height_ratios": (4, 1)}
    figure, (top, bottom) = style.blank_figure((7.6, 5.0), 2, 1, **how)
    x, place = curve.candidates, curve.favourite
    # Factor from the middle of a bar to its end, so that bars do not touch.
    factor = float(np.exp(0.4 * min([0.25, *np.diff(np.log(x))])))
    room = 2.0 if len(x) == 1 else factor**1.5
    low, high = float(x[0] / room), float(x[-1] * room)
    bottom.set(xscale="log", xlim=(low, high), xlabel=curve.what, ylabel="points that\nchose it")
    # Ticks in plain numbers, several a decade if there are few decades.
    bottom.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1e4 else (1.0,)))
    bottom.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    bottom.xaxis.set_minor_formatter(NullFormatter())
    finite = np.isfinite(curve.mean)
    mean, deviation, at = curve.mean[finite], curve.deviation[finite], x[finite]
    band = (mean - deviation, mean + deviation)
    top.fill_between(at, *band, color=style.BLUE, alpha=0.25, linewidth=0)
    top.plot(at, mean, color=style.BLUE, linewidth=1.6, marker="o", markersize=3.5)
    top.set_ylabel(CRITERIA_IN_WORDS[curve.criterion] + _UNITS[curve.criterion])
    title = "Smaller is better: mean over the points left out, shaded ± their deviation"
    top.set_title(title, loc="left", fontsize=9.5, color=style.QUIET)
    if curve.reference_value is not None and np.isfinite(curve.reference_value):
        dashes: dict[str, Any] = {"linewidth": 1.3, "linestyle": (0, (5, 2))}
        dashes |= {"color": style.VERMILION, "label": curve.reference_name}
        top.axhline(curve.reference_value, **dashes)
        top.margins(y=0.1)
    widths = x * factor - x / factor
    bottom.bar(x / factor, curve.counts, widths, align="edge", color=style.GREEN)
    bottom.set(ylim=(0, 1.05 * len(curve.chosen)), yticks=[0, len(curve.chosen)])
    words = f"{x[place]:.3g}, chosen by {curve.counts[place]} of {len(curve.chosen)}"
    for axis in (top, bottom):
        look: dict[str, Any] = {"color": style.GREEN, "linewidth": 1.0, "linestyle": ":"}
        axis.axvline(x[place], label=words, zorder=0, **look)
    top.legend(frameon=False, fontsize=9.5, loc="best")
    figure.align_ylabels([top, bottom])
    return figure
