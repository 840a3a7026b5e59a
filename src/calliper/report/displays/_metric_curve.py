"""A measure against the number of calibration points, method by method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.evaluation import DEFAULT_MEASURES, one_sigma
from calliper.exceptions import CalliperError
from calliper.report.displays._style import SERIES, TARGET, entitle, percent, start


@dataclass(frozen=True, eq=False)
class Curve:
    """One method: mean of the measure over splits, and its 1-σ percentile error, for each N."""

    n_calibration: IntArray
    mean: FloatArray
    error: FloatArray
    n_splits: IntArray
    n_undefined: IntArray


@dataclass(eq=False)
class MetricCurveDisplay:
    """How a measure changes with more calibration points; made by :meth:`from_records`.

    What to see: which method needs fewer points, and whether methods differ by more than the
    bars, which is what another split of the same data would change.

    Attributes
    ----------
    curves : dict from the name of a method to its ``n_calibration``, ``mean``, ``error``,
        ``n_splits`` and ``n_undefined`` (splits without a value, left out of the mean)
    metric : its name in the records
    problem : what was measured
    level : the coverage asked for
    ax_, figure_ : where it was drawn last
    """

    curves: dict[str, Curve]
    metric: str
    problem: str
    level: float
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_records(
        cls,
        records: Any,
        metric: str,
        *,
        problem: str | None = None,
        level: float | None = None,
    ) -> MetricCurveDisplay:
        """Mean and 1-σ error over the splits, for each method and N.

        Parameters
        ----------
        records : Records, frame, or iterable of dicts
            What :func:`calliper.evaluation.evaluate` returns: ``problem``, ``method``,
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
        """What the figure calls the metric."""
        known = DEFAULT_MEASURES.get(self.metric)
        words = (known and known.label) or self.metric.replace("_", " ")
        return words[0].upper() + words[1:] if words[0].isascii() else words

    def plot(self, ax: Any = None, *, name: str | None = None) -> MetricCurveDisplay:
        """Draw a line with bars for each method; N is on a logarithmic axis."""
        self.ax_, self.figure_ = ax, _ = start(ax)
        sizes = sorted({int(n) for curve in self.curves.values() for n in curve.n_calibration})
        for place, (method, curve) in enumerate(self.curves.items()):
            color, mark = SERIES[place % len(SERIES)]
            # Side by side, or the bars of one method would hide those of another.
            x = curve.n_calibration * 1.025 ** (place - (len(self.curves) - 1) / 2)
            finite = np.isfinite(curve.mean)
            ax.errorbar(
                x[finite],
                curve.mean[finite],
                yerr=curve.error[finite],  # none is drawn where it is not known
                color=color,
                marker=mark,
                ms=5,
                linewidth=1.6,
                elinewidth=1.2,
                capsize=2.5,
                label=method + _remarks(curve),
            )
            for edge, at_edge in ((1, curve.mean == np.inf), (0, curve.mean == -np.inf)):
                _mark_edge(ax, x[at_edge], edge, color)
        if self.metric in ("coverage", "empirical_coverage"):
            ax.axhline(self.level, label=f"asked for: {percent(self.level)}", **TARGET)
            ax.yaxis.set_major_formatter(lambda value, _: percent(value))
        self._set_up(ax, sizes)
        ax.set_ylabel(self.label)
        ax.legend(frameon=False, fontsize=8.5, loc="best")
        entitle(ax, name or f"{self.label}: {self.problem}", self._caption())
        return self

    def _caption(self) -> str:
        splits = {int(s) for curve in self.curves.values() for s in curve.n_splits}
        drawn = np.concatenate([c.error[np.isfinite(c.mean)] for c in self.curves.values()])
        known = np.isfinite(drawn)
        bars = ", bars ± 1 σ of a split" if known.any() else ""
        bars += "" if known.all() else "; no bar: one value, its error is not known"
        over = f"{_span(splits)} split{'' if splits == {1} else 's'}"
        return f"{percent(self.level)} asked for · mean over {over}{bars}"

    def _set_up(self, ax: Any, sizes: list[int]) -> None:
        from matplotlib.ticker import NullLocator

        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.set_xlabel("calibration points, N")


def _rows(records: Any) -> list[Mapping[str, Any]]:
    if hasattr(records, "to_dict") and hasattr(records, "columns"):
        records = records.to_dict("records")
    rows = list(records) if isinstance(records, Iterable) else []
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise CalliperError(
            f"records must hold at least one row, each a dict; got {type(records).__name__} of "
            f"{len(rows)}."
        )
    return rows


def _the_one(rows: list[Mapping[str, Any]], key: str, name: str, value: Any) -> Any:
    """The value asked for, or the only one there is."""
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
    """What of a method is not on its line: values that do not exist, and infinite means."""
    words = []
    if n_lost := int(curve.n_undefined.sum()):
        words.append(f"{n_lost} of {curve.n_splits.sum()} undefined")
    if np.isinf(curve.mean).any():
        sizes = ", ".join(f"{n:,}" for n in curve.n_calibration[np.isinf(curve.mean)])
        words.append(f"infinite at N = {sizes}")
    return f" ({'; '.join(words)})" if words else ""


def _mark_edge(ax: Any, x: FloatArray, edge: int, color: str) -> None:
    """Arrows at the top (1) or the bottom (0) of the axes, for means beyond all numbers."""
    if len(x):
        look = {"color": color, "marker": "^" if edge else "v", "ms": 8, "linestyle": "none"}
        ax.plot(x, [edge] * len(x), transform=ax.get_xaxis_transform(), clip_on=False, **look)


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"
