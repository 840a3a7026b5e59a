"""Bands and curves: intervals and distributions over one input, a measure over N or a scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from calliper._notebook import sampled
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import check_vector
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.evaluation import one_sigma
from calliper.lab.metrics import MEASURES, IntervalsLike, one_level
from calliper.lab.report import _style as style
from calliper.lab.tuning import CRITERIA_IN_WORDS, TuningCurve
from calliper.rows import same_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNITS = {"mse": " of the local scale", "deviance": "", "mi": " (nats, not null-corrected)"}


@dataclass(eq=False)
class BandDisplay(style.Display):
    """Intervals against one input; made by :meth:`from_intervals`.

    What to look for: a band that is wide where targets scatter, and targets outside everywhere
    along x, not in one stretch.

    Attributes
    ----------
    x : (n,) the input, ascending; all other arrays are in its order
    lower, upper : (n,) ends of the intervals, perhaps infinite
    y, covered, y_pred : (n,) targets, whether they lie inside, and predictions, or None
    oracle, coverage : the best possible intervals, and the level asked for, or None
    names : of x and y, for the axes

    Examples
    --------
    >>> x = np.linspace(0, 1, 50)
    >>> bool(BandDisplay.from_intervals(x, (-x, x), y=x / 2).covered.all())
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

    _size = (7.2, 4.2)

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
        """Sort everything by x, and find the targets inside.

        Parameters
        ----------
        x : (n,) or (n, 1); a series, or a frame of one column, names the axis, as that of y does
        intervals : Intervals or (lower, upper), of one level
        y, y_pred : (n,) targets and predictions at each x, optional
        oracle : the best possible intervals at each x, if the law of the data is known
        """
        read = one_level(intervals)
        best = None if oracle is None else one_level(oracle)
        if best is not None and len(best.lower) != len(read.lower):
            text = f"oracle has {len(best.lower)} intervals for {len(read.lower)} rows."
            raise CalliperError(text)
        order, known = _in_order(read, "intervals", len(read.lower), x=x, y=y, y_pred=y_pred)
        return cls(
            lower=read.lower[order],
            upper=read.upper[order],
            covered=None if y is None else read.contains(y)[order],
            oracle=None if best is None else best[order],
            coverage=None if read.coverage is None else float(np.atleast_1d(read.coverage)[0]),
            **known,
        )

    @property
    def adaptive(self) -> bool:
        """Whether widths differ by more than rounding."""
        width = self.upper - self.lower
        return bool(np.ptp(width) > 1e-9 * width.max())

    @property
    def n_infinite(self) -> int:
        """Number of intervals with an infinite end."""
        return int(np.count_nonzero(np.isinf(self.upper - self.lower)))

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        level = "" if self.coverage is None else f"{style.percent(self.coverage)} "
        ax.set_ylim(*self._paint(ax, color, f"{level}interval"))
        ax.margins(x=0.01)
        style.label(ax, *self.names, legend=None)
        ax.legend(edgecolor="none", framealpha=0.85, fontsize=8.5, ncols=2, loc="best")
        words = style.several(len(self.x), "row")
        if self.covered is not None:
            words += f", {style.percent(float(self.covered.mean()))} of the targets inside"
        if self.n_infinite:
            words += f"; {style.several(self.n_infinite, 'interval')} infinite, past the axes"
        return "Intervals over the input", words

    def _paint(self, ax: Any, color: str, label: str) -> tuple[float, float]:
        """Draw the band and what is known at each x; the limits of y that show all finite ends."""
        ends, others, look = (self.lower, self.upper), (self.y, self.y_pred), (color, 0.35, label)
        limits = _fill(ax, self.x, ends, others, [look])
        if self.oracle is not None:
            ax.plot(self.x, self.oracle.lower, label="oracle (knows the noise)", **style.TARGET)
            ax.plot(self.x, self.oracle.upper, **style.TARGET)
        if self.y_pred is not None:
            ax.plot(self.x, self.y_pred, color="#000000", linewidth=1.0, label="prediction")
        if self.y is not None and self.covered is not None:
            for where, rows, color, marker in (
                ("inside", self.covered, style.GREY, "."),
                ("outside", ~self.covered, style.VERMILION, "o"),
            ):
                dots: dict[str, Any] = {"color": color, "marker": marker, "linestyle": ""}
                ax.plot(self.x[rows], self.y[rows], ms=2.5, label=f"target {where}", **dots)
        return limits


def _in_order(rows: Any, what: str, n: int, **given: Any) -> tuple[IntArray, dict[str, Any]]:
    """The order of ascending x, and in that order x and other values of the same rows."""
    names = style.name_of(given["x"], "x"), style.name_of(given["y"], "y")
    given = dict(zip(given, same_rows(rows, what, **given), strict=True))
    if np.ndim(given["x"]) == 2 and (d := np.shape(given["x"])[1]) != 1:
        what = f"x must have one value for each row; got {d} columns"
        raise CalliperError(f"{what}: pass one of them, or see EmbeddingDisplay.")
    found: Any = {k: None if v is None else check_vector(v, k, n=n) for k, v in given.items()}
    order = np.argsort(found["x"], kind="stable")
    known = {name: None if values is None else values[order] for name, values in found.items()}
    return order, {**known, "names": names}


def _fill(ax: Any, x: FloatArray, ends: Any, others: Any, looks: Any) -> tuple[float, float]:
    """Shade between the ends of each level, the last first; the limits of y that show everything.

    ``looks`` are colour, opacity and name of each level. Infinite ends reach beyond the axis.
    """
    values = np.concatenate([np.ravel(each) for each in (*ends, *others) if each is not None])
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    space = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    low, high = low - space, high + space
    least, most = low - 10 * (high - low), high + 10 * (high - low)
    columns = (np.reshape(each, (len(x), -1)).T for each in ends)
    for bottom, top, (color, alpha, label) in reversed([*zip(*columns, looks, strict=True)]):
        shown = np.maximum(bottom, least), np.minimum(top, most)
        ax.fill_between(x, *shown, color=color, alpha=alpha, linewidth=0, label=label)
    return low, high


def draw_bands(
    bands: Mapping[str, BandDisplay], captions: Mapping[str, str] | None = None
) -> Figure:
    """Draw bands with the data side by side, and the half-width of each below.

    Parameters
    ----------
    bands : mapping from a title to a BandDisplay with targets, predictions and the oracle
        Targets that are NaN are not drawn.
    captions : mapping from a title to a line on what to look for, optional

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> x = np.linspace(0, 1, 50)
    >>> known = {"y": x / 2, "y_pred": 0 * x, "oracle": (-x, x)}
    >>> band = BandDisplay.from_intervals(x, (-x, x), **known)
    >>> len(draw_bands({"growing": band}, {"growing": "a line"}).axes)
    2
    """
    shared: dict[str, Any] = {"sharex": True, "sharey": "row", "squeeze": False}
    figure, axes = style.blank_figure((10.7, 5.6), 2, len(bands), height_ratios=(5, 3), **shared)
    handles: dict[str, Any] = {}
    for (data, half_width), (title, band) in zip(axes.T, bands.items(), strict=True):
        if band.oracle is None or band.y_pred is None:
            raise CalliperError(f"the band {title!r} has no oracle, or no y_pred: give it both.")
        kind, color = ("adaptive", style.BLUE) if band.adaptive else ("constant", style.ORANGE)
        band._paint(data, color, f"{kind} band")
        handles |= dict(zip(*data.get_legend_handles_labels()[::-1], strict=True))
        data.set_title(f"{title}\n", loc="left", fontweight="bold", fontsize=12)
        where: dict[str, Any] = {"transform": data.transAxes, "fontsize": 9.5, "color": style.QUIET}
        caption = data.text(0, 1.03, (captions or {}).get(title, ""), **where)
        caption.set_in_layout(False)  # a long one must not push the panels apart
        best, own = band.oracle.width / 2, (band.upper - band.lower) / 2
        half_width.fill_between(band.x, best, own, color=color, alpha=0.25, linewidth=0)
        half_width.plot(band.x, own, color=color, linewidth=1.6)
        half_width.plot(band.x, best, **style.TARGET)
        if not band.adaptive:
            _mark_misfit(half_width, band.x, best, own)
        half_width.set_xlabel("x")
        half_width.margins(x=0)
        data.margins(x=0)
    axes[1, 0].set_ylim(bottom=0)  # of all panels, whose scale is shared and known only now
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("half-width")
    look: dict[str, Any] = {"loc": "outside lower center", "ncols": 6, "frameon": False}
    labels = sorted(handles, key=lambda label: not label.endswith("band"))
    figure.legend([handles[label] for label in labels], labels, fontsize=9.5, **look)
    return figure


def _mark_misfit(axis: Any, grid: FloatArray, best: FloatArray, own: FloatArray) -> None:
    """Point at where a constant width is too wide and too narrow by most, near the middle."""
    span, top = np.ptp(grid), best.max()
    far = 0.05 * top * np.abs(grid - grid.mean()) / span  # of several equal peaks
    arrow = {"arrowstyle": "->", "color": style.QUIET, "linewidth": 0.8}
    for words, excess, side in (("too wide", own - best, -1), ("too narrow", best - own, 1)):
        at = int(np.argmax(excess - far))
        middle, beside = (best[at] + own[at]) / 2, grid[at] + 0.12 * side * span
        where = (grid[at], middle), (beside, 1.25 * top)
        axis.annotate(words, *where, ha="center", fontsize=9.5, arrowprops=arrow)


@dataclass(eq=False)
class FanDisplay(style.Display):
    """Predictive distributions against one input; made by :meth:`from_distribution`.

    What to look for: a fan that opens where targets scatter and leans to the side where they
    scatter more; each shade holds its share of the targets.

    Attributes
    ----------
    x, median, y : (n,) the input, ascending, medians, and targets or None, in its order
    intervals : of equal tails, at several levels
    names : of x and y, for the axes

    Examples
    --------
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((99, 1)), np.arange(1.0, 100.0), signs=np.tile([-1, 1, 1], 33))
    >>> found = split.predict_distribution(np.zeros((20, 1)), np.zeros(20))
    >>> FanDisplay.from_distribution(np.arange(20), found).median[:3]
    array([26., 26., 26.])
    """

    x: FloatArray
    intervals: Intervals
    median: FloatArray
    y: FloatArray | None = None
    names: tuple[str, str] = ("x", "y")

    _size = (7.2, 4.2)

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
        order, known = _in_order(distribution, "distribution", len(distribution), x=x, y=y)
        lower, upper = distribution.interval(list(coverage))
        intervals = Intervals(lower[order], upper[order], tuple(coverage))
        return cls(intervals=intervals, median=distribution.quantile(0.5)[order], **known)

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        levels = np.asarray(self.intervals.coverage, float)
        shades = zip(np.linspace(0.6, 0.18, len(levels)), levels, strict=True)
        looks = [(color, shade, style.percent(level)) for shade, level in shades]
        limits = _fill(ax, self.x, self.intervals, [self.y], looks)
        caption = style.several(len(self.x), "row")
        if self.y is not None:
            drawn = sampled(len(self.x), style.MOST_DOTS)
            ax.plot(self.x[drawn], self.y[drawn], "k.", ms=2.5, alpha=0.6, label="target")
            shares = zip(self.intervals.contains(self.y).mean(axis=0), levels, strict=True)
            told = [f"{style.percent(share)} in {style.percent(level)}" for share, level in shares]
            caption += f"; targets: {', '.join(told)}"
        ax.plot(self.x, self.median, color=style.VERMILION, linewidth=1.2, label="median")
        ax.margins(x=0.01)
        ax.set_ylim(*limits)
        style.label(ax, *self.names, legend="best", ncols=2)
        return "Predictive distributions over the input", caption


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
    """A measure against the number of calibration rows; made by :meth:`from_records`.

    What to look for: whether methods differ by more than the bars, the variation between splits.

    Attributes
    ----------
    curves : dict from the name of a method to its ``n_calibration``, ``mean``, ``error``,
        ``n_splits`` and ``n_undefined`` (splits without a value, left out of the mean)
    metric, problem, level : names in the records, and the coverage asked for

    Examples
    --------
    >>> record = {"problem": "p", "method": "Split", "level": 0.9, "coverage": 0.9}
    >>> records = [{**record, "n_calibration": n} for n in (50, 100)]
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
        known = sorted(rows[0]) if rows and isinstance(rows[0], Mapping) else []
        if not {"problem", "method", "n_calibration", metric} <= {*known}:
            needed = f"a dict with problem, method, n_calibration and {metric!r}"
            got = f"got {len(rows)} of {known}"
            raise CalliperError(f"records must hold at least one row, each {needed}; {got}.")
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

        for index, (method, curve) in enumerate(self.curves.items()):
            color, mark = style.SERIES[index % len(style.SERIES)]
            # Shifted sideways, so that bars do not hide each other.
            x = curve.n_calibration * 1.025 ** (index - (len(self.curves) - 1) / 2)
            finite = np.isfinite(curve.mean)
            bars: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "linewidth": 1.6, "ms": 5}
            bars |= {"color": color, "marker": mark, "label": method + curve.remarks()}
            # No bar is drawn where the error is not known.
            ax.errorbar(x[finite], curve.mean[finite], yerr=curve.error[finite], **bars)
        if self.metric in ("coverage", "empirical_coverage"):
            style.asked(ax.axhline, self.level)
            style.in_percent(ax.yaxis)
        sizes = sorted({int(n) for curve in self.curves.values() for n in curve.n_calibration})
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        style.label(ax, "calibration rows, N", self.label, legend="best")
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
        raise CalliperError(f"records hold more than one {name}: {present}; pass one as {name}=.")
    if value is not None and value not in present:
        raise CalliperError(f"records hold no {name} {value!r}; there are {present}.")
    return present[0] if value is None else value


def draw_tuning(curve: TuningCurve) -> Figure:
    """Draw the criterion of each candidate, and under it how many points chose it.

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

    figure, axes = style.blank_figure((7.6, 5.0), 2, 1, sharex=True, height_ratios=(4, 1))
    top, bottom = axes
    x, chosen = curve.candidates, curve.favourite
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
    mean, off, at = curve.mean[finite], curve.deviation[finite], x[finite]
    top.fill_between(at, mean - off, mean + off, color=style.BLUE, alpha=0.25, linewidth=0)
    top.plot(at, mean, color=style.BLUE, linewidth=1.6, marker="o", markersize=3.5)
    top.set_ylabel(CRITERIA_IN_WORDS[curve.criterion] + _UNITS[curve.criterion])
    title = "Smaller is better: mean over the points left out, shaded ± their deviation"
    top.set_title(title, loc="left", fontsize=9.5, color=style.QUIET)
    if curve.reference_value is not None and np.isfinite(curve.reference_value):
        dashes: dict[str, Any] = {"lw": 1.3, "ls": (0, (5, 2)), "color": style.VERMILION}
        top.axhline(curve.reference_value, label=curve.reference_name, **dashes)
        top.margins(y=0.1)
    bottom.bar(x / factor, curve.counts, x * factor - x / factor, align="edge", color=style.GREEN)
    bottom.set(ylim=(0, 1.05 * len(curve.chosen)), yticks=[0, len(curve.chosen)])
    words = f"{x[chosen]:.3g}, chosen by {curve.counts[chosen]} of {len(curve.chosen)}"
    for axis in axes:
        axis.axvline(x[chosen], label=words, zorder=0, color=style.GREEN, lw=1.0, ls=":")
    top.legend(frameon=False, fontsize=9.5, loc="best")
    figure.align_ylabels([top, bottom])
    return figure
