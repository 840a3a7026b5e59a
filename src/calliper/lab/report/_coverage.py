"""Figures of coverage: over levels, in parts of the data, over time, over calibration draws."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import stats

from calliper import metrics
from calliper._notebook import sampled
from calliper._types import FloatArray
from calliper._validation import at_least, check_level, check_levels, check_vector
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError
from calliper.guarantees import coverage_law
from calliper.lab.report import _style as style
from calliper.quantile import conformal_rank


@dataclass(eq=False)
class CalibrationCurveDisplay(style.Display):
    """Measured against nominal coverage at each level; made by :meth:`from_intervals`.

    What to look for: points on the diagonal, within their bounds; below it intervals are too
    narrow. All levels are measured on the same rows, so neighbouring points deviate together.

    Attributes
    ----------
    asked : (L,) levels, ascending
    covered : (L,) share of the targets inside at each
    lower, upper : (L,) exact 68 % (1-σ) binomial bounds on it
    n : number of test points

    Examples
    --------
    >>> from calliper import Intervals
    >>> y, radius = np.linspace(-1, 1, 101), np.tile([0.5, 0.9], (101, 1))
    >>> intervals = Intervals(-radius, radius, (0.5, 0.9))
    >>> CalibrationCurveDisplay.from_intervals(y, intervals).covered.round(2)
    array([0.5 , 0.89])
    """

    asked: FloatArray
    covered: FloatArray
    lower: FloatArray
    upper: FloatArray
    n: int

    _size = (5.0, 4.8)
    _is_curve = True

    @classmethod
    def from_intervals(cls, y: Any, intervals: metrics.IntervalsLike) -> Self:
        """Count the targets y, (m,), inside intervals of several levels.

        Such as those of ``predict_interval(X, coverage=[0.1, 0.2, ..., 0.9])``.
        """
        read = metrics.as_intervals(intervals)
        if read.coverage is None:
            remedy = "pass Intervals(lower, upper, coverage=[...])"
            raise CalliperError(f"intervals must carry their levels: {remedy}.")
        asked = np.atleast_1d(np.asarray(read.coverage, float))
        inside = read.contains(y).reshape(len(read.lower), -1)
        order, n = np.argsort(asked), np.full(len(asked), len(inside))
        hits = inside.sum(axis=0)[order]
        return cls(asked[order], hits / n, *metrics.binomial_bounds(hits, n), n=len(inside))

    @property
    def largest_gap(self) -> float:
        """Largest distance from the diagonal at any level."""
        return float(np.abs(self.covered - self.asked).max())

    def _draw(
        self, ax: Any, fresh: bool, name: str | None, color: str = style.BLUE, marker: str = "o"
    ) -> tuple[str, str]:
        points = style.several(self.n, "test point")
        if fresh:
            ax.plot([0, 1], [0, 1], label="exact", **style.TARGET)
        for words in ax.texts[:1]:  # of the first curve
            words.set_text(f"{points} · bars are 1-σ binomial bounds")
        look: dict[str, Any] = {"color": color, "marker": marker, "ms": 4.5, "linewidth": 1.4}
        look |= {"elinewidth": 1.4, "label": name or "measured, with 1-σ bounds"}
        bars = np.abs([self.covered - self.lower, self.upper - self.covered])
        ax.errorbar(self.asked, self.covered, yerr=bars, **look)
        for axis in (ax.xaxis, ax.yaxis):
            style.in_percent(axis)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        style.label(ax, "coverage asked for", "coverage measured")
        gap = f"largest distance from the diagonal {style.percent(self.largest_gap)}"
        return "Calibration curve", f"{points} · {gap}"


@dataclass(eq=False)
class CoverageDisplay(style.Display):
    """Coverage in each bin with its 1-σ bounds, and the requested level.

    What to look for: about two of three bars touch the line. Bars off it on one side of the figure
    show where coverage is lost, and where intervals are too wide in return.

    Attributes
    ----------
    table : CoverageTable
    coverage : the level asked for, or None
    what : the binned quantity, for the axis

    Examples
    --------
    >>> y, ends = np.tile([0.0, 0.5, 2.0, 0.1], 20), (-np.ones(80), np.ones(80))
    >>> CoverageDisplay.from_intervals(y, ends, groups=list("aabb") * 20).table.coverage
    array([1. , 0.5])
    """

    table: metrics.CoverageTable
    coverage: float | None = None
    what: str = "bin"

    @classmethod
    def from_intervals(
        cls,
        y: Any,
        intervals: metrics.IntervalsLike,
        *,
        values: Any = None,
        groups: Any = None,
        what: str | None = None,
        n_bins: int = 10,
        coverage: float | None = None,
    ) -> Self:
        """Coverage by the given values or groups, or by width.

        Parameters
        ----------
        y, intervals, values, groups, n_bins : as in
            :func:`calliper.lab.metrics.coverage_by_value` and
            :func:`calliper.lab.metrics.coverage_by_group`; values or groups, not both
        what : name of the values or groups, with the unit; by default that of the series
        coverage : the level to draw; by default that of the intervals, if known
        """
        read = metrics.one_level(intervals)
        if values is not None and groups is not None:
            raise CalliperError("pass values or groups, not both: a figure has one axis for them.")
        name = "width of the interval (unit of y)"
        if groups is not None:
            table, name = metrics.coverage_by_group(y, read, groups), style.name_of(groups, "group")
        elif values is not None:
            table = metrics.coverage_by_value(y, read, values, n_bins=n_bins)
            name = style.name_of(values, "value")
        else:
            table = metrics.coverage_by_width(y, read, n_bins=n_bins)
        level = read.coverage if coverage is None else coverage
        level = None if level is None else check_levels(level)[0]
        return cls(table, level, name if what is None else what)

    @property
    def _size(self) -> tuple[float, float]:
        in_rows = self.table.edges is None
        return 6.4, max(2.6, 1.8 + 0.32 * len(self.table.n)) if in_rows else 4.0

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        """A dot with its bounds for each bin: bins of numbers side by side, groups in rows."""
        from matplotlib.ticker import MaxNLocator

        table, in_rows, n_bins = self.table, self.table.edges is None, len(self.table.n)
        turned = slice(None, None, -1 if in_rows else 1)  # coverage is on the other axis
        look: dict[str, Any] = {"fmt": "o", "color": color, "ms": 5.5, "elinewidth": 1.6}
        bars = np.abs([table.coverage - table.lower, table.upper - table.coverage])
        look |= {"xerr" if in_rows else "yerr": bars, "zorder": 3}
        dots = (np.arange(n_bins), table.coverage)
        ax.errorbar(*dots[turned], label="covered, with 1-σ bounds", **look)
        low = float(table.lower.min())
        if self.coverage is not None:
            ends = [-0.6 if in_rows else -0.5, n_bins - 0.5]  # not into the legend
            low = min(low, self.coverage)
            style.asked(lambda at, **how: ax.plot(*(ends, [at] * 2)[turned], **how), self.coverage)
        span, inside = max(1.0 - low, 0.05), "share of targets inside"
        axis = ax.xaxis if in_rows else ax.yaxis
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        style.in_percent(axis)
        if in_rows:
            named = zip(table.labels, table.n, strict=True)
            names = [style.literal(f"{name}  (n = {n:,})") for name, n in named]
            ax.set_yticks(np.arange(n_bins), names)
            ax.tick_params(axis="y", length=0)
            # The last row is the legend's.
            ax.set_ylim(n_bins + 0.3, -0.6)
            ax.set_xlim(max(-0.02, low - 0.15 * span), 1.0 + 0.05 * span)
            style.label(ax, inside, self.what, legend="lower left", ncols=2)
        else:
            self._name_edges(ax)
            ax.set_ylim(low - 0.45 * span, 1.0 + 0.05 * span)
            style.label(ax, self.what, inside, legend="lower left")
        least, most = int(table.n.min()), int(table.n.max())
        size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        size += f" rows in a {'group' if in_rows else 'bin'}"
        by = style.literal(self.what.split(" (")[0])
        return f"Coverage by {by}", f"worst {style.percent(table.worst)} · {size}"

    def _name_edges(self, ax: Any) -> None:
        """Edges of the bins, which are drawn equally wide because they have equal counts."""
        edges = self.table.edges
        assert edges is not None
        known = edges[~np.isnan(edges)]
        names = ["∞" if np.isinf(edge) else f"{edge:.3g}".replace("-", "−") for edge in known]
        ticks = np.arange(len(known)) - 0.5
        for tick in ticks:
            ax.axvline(tick, color=style.QUIET, alpha=0.12, linewidth=0.8, zorder=0)
        if len(known) < len(edges):  # rows without a value: named in the middle of their bin
            ticks, names = np.append(ticks, len(edges) - 2), [*names, self.table.labels[-1]]
        ax.set_xticks(ticks, names)
        ax.tick_params(axis="x", labelsize=8.5)
        if max(map(len, names)) * len(edges) > 60:  # crowded
            for words in ax.get_xticklabels():
                words.set(rotation=35, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.5, len(edges) - 1.5)


@dataclass(eq=False)
class RunningCoverageDisplay(style.Display):
    """Coverage over the latest ``window`` steps; made by :meth:`from_outside`.

    What to look for: a line that stays in the grey band, where chance alone keeps it nine times
    out of ten; below it there is drift that nothing corrects.

    Attributes
    ----------
    running, mean : (T − window + 1,) share inside in each window, and over all steps
    coverage, window : the level asked for, and steps in a window
    lower, upper : 5th and 95th percentile of the share in a window by chance alone

    Examples
    --------
    >>> outside = np.arange(500) % 10 == 0
    >>> RunningCoverageDisplay.from_outside(outside, coverage=0.9, window=100).mean
    0.9
    """

    running: FloatArray
    coverage: float
    window: int
    mean: float
    lower: float
    upper: float

    _size = (7.2, 4.0)
    _is_curve = True

    @classmethod
    def from_outside(cls, outside: Any, *, coverage: float, window: int = 200) -> Self:
        """Average over windows, where targets were outside (1) or not (0), in order of time, (T,).

        Such as ``history.outside`` of a controller, or ``~intervals.contains(y)``; ``coverage`` is
        the level asked for in the long run.
        """
        values, level = check_vector(outside, "outside"), check_level(coverage)
        size = at_least(window, 1, "window")
        if len(values) < size or values.min() < 0 or values.max() > 1:
            what = f"outside must hold at least {size} shares between 0 and 1, one window"
            span = f"from {values.min(initial=0):g} to {values.max(initial=0):g}"
            raise CalliperError(f"{what}; got {len(values)}, {span}.")
        total = np.concatenate([[0.0], np.cumsum(values)])
        running = 1 - (total[size:] - total[:-size]) / size
        low, high = (stats.binom(size, level).ppf([0.05, 0.95]) / size).tolist()
        return cls(running, level, size, float(1 - values.mean()), low, high)

    def _draw(
        self, ax: Any, fresh: bool, name: str | None, color: str = style.BLUE
    ) -> tuple[str, str]:
        if fresh:
            band = "9 of 10, by chance alone"
            ax.axhspan(self.lower, self.upper, color=style.GREY, alpha=0.22, lw=0, label=band)
            style.asked(ax.axhline, self.coverage)
        label = f"{name or 'running'}: {style.percent(self.mean)} in all"
        shown = sampled(len(self.running), style.MOST_DOTS)
        ax.plot(shown + self.window, self.running[shown], color=color, linewidth=1.5, label=label)
        low = min(self.lower, *(float(np.min(line.get_ydata())) for line in ax.lines))
        ax.set_ylim(1.0 - 1.4 * (1.0 - low), 1.0 + 0.02 * (1.0 - low))  # the legend is below
        style.in_percent(ax.yaxis)
        style.label(ax, "step", "share of targets inside", legend="lower left", ncols=2)
        window = style.several(self.window, "step")
        return "Coverage over time", f"share inside of the latest {window}"


@dataclass(eq=False)
class MonitorDisplay(style.Display):
    """Evidence that something is wrong, after each label; made by :meth:`from_monitor`.

    What to look for: a line far below the limit. Reaching the limit raises the alarm.

    Attributes
    ----------
    log_evidence : (T,) natural logarithm of the evidence after each label
    limit : the evidence of an alarm
    alarm_at, since : label of the alarm and where it probably began; None without an alarm

    Examples
    --------
    >>> from calliper.monitoring import CoverageMonitor
    >>> monitor = CoverageMonitor(0.9, tolerated=0.1).update([True] * 20 + [False] * 8)
    >>> MonitorDisplay.from_monitor(monitor).alarm_at
    25
    """

    log_evidence: FloatArray
    limit: float
    alarm_at: int | None
    since: int | None

    _size = (7.2, 4.0)

    @classmethod
    def from_monitor(cls, monitor: Any) -> Self:
        """The evidence of a monitor of ``calliper.monitoring``, after at least one label."""
        if not len(trace := monitor.log_evidence):
            raise CalliperError("the monitor has seen no label yet: update it first.")
        return cls(trace, monitor.limit, monitor.alarm_at, monitor.since)

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        shown = sampled(len(self.log_evidence), style.MOST_DOTS)
        ax.plot(shown, self.log_evidence[shown] / np.log(10), color=color, linewidth=1.5)
        ax.axhline(np.log10(self.limit), label=f"alarm at {self.limit:.4g}", **style.TARGET)
        for label, words, hue in (
            (self.since, "probably since", style.ORANGE),
            (self.alarm_at, "alarm at", style.VERMILION),
        ):
            if label is not None:
                ax.axvline(label, color=hue, linewidth=1.2, label=f"{words} label {label:,}")
        ax.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:g}}}$")
        style.label(ax, "label", "evidence")
        return "Evidence over time", "against the claim that nothing is wrong"


@dataclass(eq=False)
class CoverageLawDisplay(style.Display):
    """Coverage for many calibration sets of one size, and its law; from :meth:`from_coverages`.

    The law, Beta(Q, N+1−Q) with Q = ⌈c(N+1)⌉, is exact for Split and MADSplit if points are
    exchangeable and scores have no ties; measured on ``n_test`` points it is beta-binomial.

    What to look for: bars that follow the line. Bars to the left of it mean that exchangeability
    fails, or that the method is another one, whose law is not known.

    Attributes
    ----------
    coverages : (R,) measured coverage of each calibration draw, ascending
    coverage, n_calibration, n_test : the level asked for, N, and the test points of each, or None
    mean, error : of the coverages, and the standard error of that mean
    law_mean, law_quantiles : Q/(N+1), and 5th and 95th percentile of the law
    x, density : the law, at 400 points or at each possible coverage
    share_inside : share of the coverages between the two percentiles

    Examples
    --------
    >>> shares = [0.88, 0.91, 0.93]
    >>> display = CoverageLawDisplay.from_coverages(shares, coverage=0.9, n_calibration=99)
    >>> display.law_mean, round(display.mean, 3)
    (0.9, 0.907)
    """

    coverages: FloatArray
    coverage: float
    n_calibration: int
    n_test: int | None
    mean: float
    error: float
    law_mean: float
    law_quantiles: tuple[float, float]
    x: FloatArray
    density: FloatArray
    share_inside: float

    @classmethod
    def from_coverages(
        cls, coverages: Any, *, coverage: float, n_calibration: int, n_test: int | None = None
    ) -> Self:
        """Compare measured coverages, (R,), with their law at the level ``coverage``.

        One for each independent calibration set of ``n_calibration`` points, measured on
        ``n_test`` points, or known exactly.
        """
        values = np.sort(check_vector(coverages, "coverages"))
        if len(values) < 2 or values[0] < 0 or values[-1] > 1:
            span = f" from {values[0]:g} to {values[-1]:g}" if len(values) else ""
            what = "coverages must be at least two shares between 0 and 1"
            raise CalliperError(f"{what}; got {len(values)}{span}.")
        level, n = check_levels(coverage)[0], at_least(n_calibration, 1, "n_calibration")
        rank = conformal_rank(level, n)
        if rank > n:
            what = f"{n} calibration rows cannot support coverage {level:g}"
            why = "every interval is infinite and covers, so there is no law to compare with"
            raise CalliperError(f"{what}: {why}.")
        size = 1 if n_test is None else at_least(n_test, 1, "n_test")
        law = stats.betabinom(size, rank, n + 1 - rank) if n_test else coverage_law(level, n)
        first, low, high, last = law.ppf([1e-4, 0.05, 0.95, 1 - 1e-4])
        x = np.arange(first, last + 1) if n_test else np.linspace(first, last, 400)
        density = (law.pmf(x) if n_test else law.pdf(x)) * size
        x, low, high = x / size, float(low / size), float(high / size)
        inside = (values >= low - 1e-12) & (values <= high + 1e-12)
        mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
        law_values = rank / (n + 1), (low, high), x, density
        return cls(values, level, n, n_test, mean, error, *law_values, float(inside.mean()))

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        law = "Beta" if self.n_test is None else "beta-binomial"
        words = f"measured, {len(self.coverages):,} calibration sets"
        bars: dict[str, Any] = {"density": True, "color": color, "alpha": 0.4, "label": words}
        ax.hist(self.coverages, bins=self._bins(), **bars)
        ax.plot(self.x, self.density, color=style.VERMILION, linewidth=1.8, label=f"{law} law")
        style.asked(ax.axvline, self.coverage)
        style.in_percent(ax.xaxis)
        ax.set_ylim(0, 1.3 * max(self.density.max(), ax.get_ylim()[1] / 1.05))
        style.label(ax, "coverage given one calibration set", "density")
        test = "" if self.n_test is None else f", {self.n_test:,} test points each"
        low, high = self.law_quantiles
        return "Coverage over calibration draws", (
            f"N = {self.n_calibration:,}{test} · mean {style.percent(self.mean)} (law: "
            f"{style.percent(self.law_mean)})\n{style.percent(self.share_inside)} lie between the "
            f"law's 5th and 95th percentiles, {low:.3f} and {high:.3f}"
        )

    def _bins(self) -> FloatArray:
        """About √R bars; between the possible values where coverage is a share of few points."""
        low, high = min(self.coverages[0], self.x[0]), max(self.coverages[-1], self.x[-1])
        n_bars = int(np.clip(np.sqrt(len(self.coverages)), 5, 40))
        if self.n_test is None:
            return np.linspace(low, high, n_bars + 1)
        step = max(1, round((high - low) * self.n_test / n_bars))
        first, last = round(low * self.n_test) - 0.5, high * self.n_test + 0.5
        return np.arange(first, last + step - 1e-9, step) / self.n_test


@dataclass(eq=False)
class PITDisplay(style.Display):
    """Where targets lie in their distributions; made by :meth:`from_distribution`.

    What to look for: bars of equal height, inside the band. Low outer bars mean distributions that
    are too wide, high ones too narrow, and a slope that they lie too high or too low.

    Parameters
    ----------
    table : ShareTable of the targets in equal bins, with their band

    Examples
    --------
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((99, 1)), np.arange(1.0, 100.0), signs=np.tile([-1, 1, 1], 33))
    >>> found = split.predict_distribution(np.zeros((20, 1)), np.zeros(20))
    >>> PITDisplay.from_distribution(np.full(20, 5.0), found).table.n
    20
    """

    table: metrics.ShareTable

    @classmethod
    def from_distribution(
        cls, y: Any, distribution: Distribution, *, n_bins: int = 10, random_state: Any = 0
    ) -> Self:
        """Count targets in bins, with arguments of :func:`calliper.lab.metrics.pit_histogram`."""
        return cls(metrics.pit_histogram(y, distribution, n_bins=n_bins, random_state=random_state))

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        table, width = self.table, 1 / len(self.table.place)
        ax.bar(table.place, table.share, width, align="edge", color=color, alpha=0.55, ec="white")
        band: dict[str, Any] = {"color": style.ORANGE, "alpha": 0.35, "lw": 0, "zorder": 3}
        words = f"chance: {style.percent(table.level)} of the bars"
        ax.axhspan(table.lower[0], table.upper[0], label=words, **band)
        ax.axhline(width, label="expected", **style.TARGET)
        ax.set(xlim=(0, 1), ylim=(0, 1.25 * max(table.share.max(), table.upper.max())))
        style.in_percent(ax.yaxis)
        style.label(ax, "probability below the target", "share", ncols=2)
        words = f"{table.n_outside} of the bars outside the band"
        return "Calibration of the distributions", f"{style.several(table.n, 'target')}, {words}"
