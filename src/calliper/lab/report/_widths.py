"""Figures of widths: against errors, and over the inputs in two dimensions."""

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from calliper import metrics
from calliper._notebook import sampled
from calliper._types import FloatArray
from calliper._validation import check_features
from calliper.exceptions import CalliperError
from calliper.lab.report import _style as style
from calliper.rows import same_rows


@dataclass(eq=False)
class WidthErrorDisplay(style.Display):
    """Errors over widths, with the quantile of the errors in each tenth of the widths.

    What to look for: markers (CSQ, the error quantile at level c of each tenth) on the line
    IS = 2 · CSQ, since a correct interval ŷ ± r has width 2r and error quantile r. Above the line
    intervals are too narrow, below it too wide; a flat row of markers means that widths say
    nothing about errors. R²_SQI measures the distance from the line.

    Attributes
    ----------
    widths, errors : (n,) upper − lower and ``|y − ŷ|`` of each row, from the smallest error up
    isq, csq : (B,) median width and error quantile of each bin; infinite for infinite widths
    coverage : the level of the quantile
    r2, tau : R²_SQI and τ_SQI of the same bins, NaN where undefined

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Intervals
    >>> x = np.linspace(0.1, 1, 200)
    >>> intervals = Intervals(-x, x, 0.9)
    >>> display = WidthErrorDisplay.from_intervals(np.sin(40 * x) * x, intervals, y_pred=0 * x)
    >>> round(display.tau, 2)
    1.0
    """

    widths: FloatArray
    errors: FloatArray
    isq: FloatArray
    csq: FloatArray
    coverage: float
    r2: float
    tau: float

    @classmethod
    def from_intervals(
        cls,
        y: Any,
        intervals: metrics.IntervalsLike,
        *,
        y_pred: Any = None,
        coverage: float | None = None,
        infinite: metrics.Infinite = "keep",
        max_score: float | None = None,
        n_bins: int = 10,
        min_bin_size: int | None = None,
    ) -> Self:
        """Compute bins and measures; all parameters are those of :func:`calliper.metrics.r2_sqi`.

        Undefined measures are NaN without a warning: the figure says so.
        """
        read = metrics.one_level(intervals)
        level = metrics.level_of(read, coverage)
        policy: dict[str, Any] = {"y_pred": y_pred, "infinite": infinite, "max_score": max_score}
        bins: dict[str, Any] = {"n_bins": n_bins, "min_bin_size": min_bin_size}
        errors, widths = metrics.scores_and_widths(y, read, **policy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = metrics.sqi_table(errors, widths, level, **bins)
            r2, tau = (
                measure(y, read, coverage=level, **policy, **bins)
                for measure in (metrics.r2_sqi, metrics.tau_sqi)
            )
        return cls(widths, errors, table.isq, table.csq, coverage=level, r2=r2, tau=tau)

    @property
    def n_infinite(self) -> int:
        """Number of infinite widths, which cannot be drawn."""
        return int(np.count_nonzero(np.isinf(self.widths)))

    _size = (5.6, 4.6)

    def _draw(self, ax: Any, color: str = style.BLUE) -> tuple[str, str]:
        finite, drawable = np.isfinite(self.widths), np.isfinite(self.isq)
        right = 1.05 * self.widths[finite].max(initial=0.0) or 1.0
        # One outlying error must not squeeze everything else.
        top = 1.15 * float(self.csq[drawable].max(initial=right / 2))
        every = np.flatnonzero(finite)
        shown = every[sampled(len(every), style.MOST_DOTS)]
        words = "row" if len(shown) == len(every) else f"row ({len(shown):,} of {len(every):,})"
        dots: dict[str, Any] = {"color": style.GREY, "ms": 2, "alpha": 0.5, "rasterized": True}
        ax.plot(self.widths[shown], self.errors[shown], ".", label=words, **dots)
        ax.plot([0, right], [0, right / 2], label="ideal: IS = 2 · CSQ", **style.TARGET)
        bins = style.several(len(self.isq), "bin")
        words = f"{style.percent(self.coverage)} quantile in {bins} of the widths"
        ax.plot(self.isq[drawable], self.csq[drawable], "o-", color=color, ms=6, label=words)
        ax.set(xlim=(0, right), ylim=(0, top))
        style.label(ax, "width of the interval, IS (unit of y)", "error |y − ŷ| (unit of y)")
        if not finite.any():
            words = "all intervals are infinite"
            ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", color=style.VERMILION)
        words = " · ".join(
            f"{symbol} = {value:.{2 if value > -10 else 0}f}".replace("-", "−")
            if np.isfinite(value)
            else f"{symbol} undefined"
            for symbol, value in (("R²_SQI", self.r2), ("τ_SQI", self.tau))
        )
        if self.n_infinite:
            words += f" · {style.several(self.n_infinite, 'infinite width')} not shown"
        if hidden := int(np.count_nonzero(self.errors[finite] > top)):
            words += f" · {style.several(hidden, 'error')} above the axes"
        return "Width against error", words


@dataclass(eq=False)
class EmbeddingDisplay(style.Display):
    """Inputs in the plane of their two main directions, coloured by width.

    What to look for: regions of one colour, where width follows the input. A mix of all colours
    everywhere means that width is noise, or follows a direction not shown: check how much of the
    variance the two directions explain.

    Attributes
    ----------
    position : (n, 2) coordinates of the rows drawn
    widths : (n,) widths of their intervals, perhaps infinite
    rows : (n,) numbers of these rows
    explained : share of the variance along each direction; None if the coordinates were given
    names : of the coordinates, for the axes
    n_rows : number of all rows

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Intervals
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> display = EmbeddingDisplay.from_intervals(X, Intervals(-np.ones(100), np.ones(100), 0.9))
    >>> display.position.shape
    (100, 2)
    """

    position: FloatArray
    widths: FloatArray
    rows: Any
    explained: FloatArray | None
    n_rows: int
    names: tuple[str, str] = ("column 1", "column 2")

    @classmethod
    def from_intervals(
        cls,
        X: Any,
        intervals: metrics.IntervalsLike,
        *,
        project: bool = True,
        max_points: int = style.MOST_DOTS,
        random_state: Any = None,
    ) -> Self:
        """Find the two main directions of all rows, and choose the rows to draw.

        Parameters
        ----------
        X : array of shape (m, d), d ≥ 2
            Inputs, or an embedding in which nearness is judged.
        intervals : Intervals or (lower, upper), of one level
        project : bool
            True: principal components of X with each column divided by its standard deviation.
            False: the two columns of X are coordinates already, for example from UMAP; those of
            a frame name the axes.
        max_points : int
            Draw a random sample of this size if there are more rows.
        random_state : optional
            Seed of the sample.
        """
        read = metrics.one_level(intervals)
        same_rows(read, "intervals", X=X)
        features = check_features(X, "X")
        n, d = features.shape
        if n != len(read.lower):
            raise CalliperError(f"X has {n} rows for {len(read.lower)} intervals.")
        if d < 2 or (not project and d != 2):
            wanted = "at least two columns" if project else "two columns if project=False"
            raise CalliperError(f"X must have {wanted}; got {d}. One input? See BandDisplay.")
        position, explained = _project(features) if project else (features, None)
        rows = np.arange(n)
        if n > max_points:
            rows = np.sort(check_random_state(random_state).permutation(n)[:max_points])
        names: Any = map(str, style.columns_of(X) or ("column 1", "column 2"))
        if explained is not None:
            shares = (style.percent(float(share)) for share in explained)
            names = (f"direction {i} ({s} of the variance)" for i, s in enumerate(shares, start=1))
        first, second = names
        drawn = position[rows], read.width[rows], rows
        return cls(*drawn, explained, n_rows=n, names=(first, second))

    _size = (6.0, 4.8)

    def _draw(self, ax: Any, cmap: str = "viridis") -> tuple[str, str]:
        """Wide intervals are on top; the colours span the 2nd to the 98th percentile."""
        finite = np.isfinite(self.widths)
        order = np.flatnonzero(finite)[np.argsort(self.widths[finite])]
        low, high = np.percentile(self.widths[order], [2, 98]) if len(order) else (0.0, 0.0)
        look: dict[str, Any] = {"s": 9, "linewidths": 0, "rasterized": True}
        if high > low:
            look |= {"c": self.widths[order], "cmap": cmap, "vmin": low, "vmax": high}
            dots, words = ax.scatter(*self.position[order].T, **look), "width of the interval"
            ax.figure.colorbar(dots, ax=ax, label=f"{words} (unit of y)", extend="both")
        else:
            ax.scatter(*self.position[order].T, color=style.BLUE, **look)
        if not finite.all():
            ax.plot(*self.position[~finite].T, "x", color=style.VERMILION, ms=4, label="infinite")
        style.label(ax, *self.names, legend=None if finite.all() else "best")
        words = style.several(self.n_rows, "row")
        if len(self.rows) < self.n_rows:
            words = f"{len(self.rows):,} of {words}, drawn at random"
        if self.explained is not None:
            words += " · two main directions of the standardised inputs"
        known, n_infinite = self.widths[order], int(np.count_nonzero(~finite))
        if len(known) and known[0] == known[-1]:
            words += f" · all finite widths are {known[0]:.3g}"
        words += f" · {n_infinite:,} infinite" if n_infinite else ""
        return "Where intervals are wide", words


def _project(features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Principal components of standardised columns, signs fixed by the largest weight."""
    scaled = metrics.unit_spread(features)
    if not scaled.shape[1]:
        raise CalliperError("every column of X is constant: all rows would lie on one point.")
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    main = vectors[:, ::-1][:, :2]
    main = main * np.sign(main[np.abs(main).argmax(axis=0), np.arange(main.shape[1])])
    position = np.zeros((len(scaled), 2))
    position[:, : main.shape[1]] = scaled @ main
    explained = np.append(values[::-1], 0.0)[:2] / values.sum()
    return position, explained


def draw_calibration(errors: FloatArray, widths: FloatArray, method: str) -> Any:
    """A figure of calibration errors and half-widths at 0.9 of the same rows, (n,) each.

    What to look for: errors that grow with the half-width.

    Parameters
    ----------
    errors, widths : (n,)
        Calibration errors, and half-widths of the same rows.
    method : str
        Its name, for the title.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> errors = np.linspace(0, 1, 50)
    >>> len(draw_calibration(errors, errors + 0.1, "FullRescaled").axes)
    2
    """
    figure, (left, right) = style.blank_figure((8.4, 3.6), 1, 2)
    finite = np.isfinite(widths)
    most = float(np.quantile(np.append(errors, widths[finite]), 0.995))
    bins = np.linspace(0.0, most or 1.0, 40)
    left.hist(errors, bins, color=style.SKY, label="calibration error")
    left.hist(
        widths[finite], bins, histtype="step", color=style.VERMILION, label="half-width at 0.9"
    )
    style.label(left, "size, in the unit of the target", "rows", legend="upper right")
    right.plot(widths[finite], errors[finite], ".", color=style.BLUE, markersize=4)
    right.axline((0, 0), slope=1, **style.TARGET)
    right.set(xlim=(0, most or 1.0), ylim=(0, most or 1.0))
    inside = float(np.mean(errors <= widths))
    note = f"{len(errors)} rows that it was calibrated on, {style.percent(inside)} below the line"
    if not finite.all():
        note += f"; {np.count_nonzero(~finite)} of infinite width are not drawn"
    style.label(right, "half-width at 0.9", "calibration error", legend=None)
    left.set_title(method, loc="left", fontsize=10)
    right.set_title(note, loc="left", fontsize=9)
    return figure
