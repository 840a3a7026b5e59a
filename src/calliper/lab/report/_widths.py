"""Figures of widths: against errors, over the inputs in two dimensions, and column by column."""

from dataclasses import dataclass
from numbers import Integral
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from sklearn.decomposition import PCA
from sklearn.inspection import permutation_importance
from sklearn.utils import _safe_indexing, check_random_state

from calliper import metrics
from calliper._notebook import sampled
from calliper._types import FloatArray
from calliper._validation import at_least, check_features, check_level
from calliper.exceptions import CalliperError, unheard
from calliper.lab.report import _style as style
from calliper.models import comes_from
from calliper.rows import same_rows

#: Columns that a figure shows.
MOST_BARS = 20


@dataclass(eq=False)
class WidthErrorDisplay(style.Display):
    """Errors against widths, with the quantile of the errors in each tenth of the widths.

    What to look for: markers (CSQ, the error quantile at level c of each tenth) on the line
    IS = 2 · CSQ, since a correct interval ŷ ± r has width 2r and error quantile r. Above it
    intervals are too narrow; a flat row means that widths say nothing about errors.

    Attributes
    ----------
    widths, errors : (n,) upper − lower and ``|y − ŷ|`` of each row, from the smallest error up
    isq, csq : (B,) median width and error quantile of each bin; infinite for infinite widths
    coverage : the level of the quantile
    r2, tau : R²_SQI and τ_SQI of the same bins, NaN where undefined

    Examples
    --------
    >>> x = np.linspace(0.1, 1, 200)
    >>> display = WidthErrorDisplay.from_intervals(np.sin(40 * x) * x, (-x, x), coverage=0.9)
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

    _size = (5.6, 4.6)

    @classmethod
    def from_intervals(
        cls,
        y: Any,
        intervals: metrics.IntervalsLike,
        *,
        y_pred: Any = None,
        coverage: float | None = None,
        n_bins: int = 10,
    ) -> Self:
        """Compute bins and measures; parameters are those of :func:`calliper.lab.metrics.r2_sqi`.

        Undefined measures are NaN without a warning: the figure says so.
        """
        read = metrics.one_level(intervals)
        level = metrics.level_of(read, coverage)
        errors, widths = metrics.scores_and_widths(y, read, y_pred)
        how: dict[str, Any] = {"y_pred": y_pred, "coverage": level, "n_bins": n_bins}
        with unheard(Warning):
            isq, csq = metrics.sqi_table(errors, widths, level, n_bins=n_bins)
            r2, tau = metrics.r2_sqi(y, read, **how), metrics.tau_sqi(y, read, **how)
        return cls(widths, errors, isq, csq, coverage=level, r2=r2, tau=tau)

    @property
    def n_infinite(self) -> int:
        """Number of infinite widths, which cannot be drawn."""
        return int(np.count_nonzero(np.isinf(self.widths)))

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
        said = [] if finite.any() else ["all intervals are infinite"]
        for symbol, value in (("R²_SQI", self.r2), ("τ_SQI", self.tau)):
            known = f"= {value:.{2 if value > -10 else 0}f}".replace("-", "−")
            said.append(f"{symbol} {known if np.isfinite(value) else 'undefined'}")
        if self.n_infinite:
            said.append(f"{style.several(self.n_infinite, 'infinite width')} not shown")
        if hidden := int(np.count_nonzero(self.errors[finite] > top)):
            said.append(f"{style.several(hidden, 'error')} above the axes")
        return "Width against error", " · ".join(said)


@dataclass(eq=False)
class EmbeddingDisplay(style.Display):
    """Inputs on their first two principal components, coloured by width.

    What to look for: regions of one colour, where width follows the input. A mix of all colours
    means that width is noise, or follows a direction not shown.

    Attributes
    ----------
    position, widths : (n, 2) coordinates and (n,) widths of the rows
    explained : share of the variance along each direction; None if the coordinates were given
    names : of the coordinates

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> EmbeddingDisplay.from_intervals(X, (-np.ones(100), np.ones(100))).position.shape
    (100, 2)
    """

    position: FloatArray
    widths: FloatArray
    explained: FloatArray | None
    names: tuple[str, ...] = ("column 1", "column 2")

    _size = (6.0, 4.8)

    @classmethod
    def from_intervals(
        cls, X: Any, intervals: metrics.IntervalsLike, *, project: bool = True
    ) -> Self:
        """Find the two main directions of all rows.

        Parameters
        ----------
        X : (m, d), d ≥ 2, inputs, or an embedding in which nearness is judged
        intervals : Intervals or (lower, upper), of one level
        project : whether to draw principal components of the standardised columns; if False,
            the two columns of X are coordinates already, and those of a frame name the axes
        """
        read = metrics.one_level(intervals)
        same_rows(read, "intervals", X=X)
        position = check_features(X, "X")
        n, d = position.shape
        if n != len(read.lower):
            raise CalliperError(f"X has {n} rows for {len(read.lower)} intervals.")
        if d < 2 or (not project and d != 2):
            wanted = "at least two columns" if project else "two columns if project=False"
            raise CalliperError(f"X must have {wanted}; got {d}. For one, use BandDisplay.")
        names, explained = [*map(str, style.columns_of(X) or cls.names)], None
        if project:
            scaled = metrics.unit_spread(position)
            if not scaled.shape[1]:
                raise CalliperError("every column of X is constant: all rows lie on one point.")
            main = PCA(min(2, *scaled.shape), svd_solver="covariance_eigh")
            position, explained = np.zeros((n, 2)), np.zeros(2)
            position[:, : main.n_components] = main.fit_transform(scaled)
            explained[: main.n_components] = main.explained_variance_ratio_
            shares = [f"({style.percent(float(share))} of the variance)" for share in explained]
            names = [f"direction {i} {share}" for i, share in enumerate(shares, start=1)]
        return cls(position, read.width, explained, tuple(names))

    def _draw(self, ax: Any, cmap: str = "viridis") -> tuple[str, str]:
        """Wide intervals are on top; the colours span the 2nd to the 98th percentile."""
        some = sampled(len(self.widths), style.MOST_DOTS)
        widths, position = self.widths[some], self.position[some]
        finite = np.isfinite(widths)
        order = np.flatnonzero(finite)[np.argsort(widths[finite])]
        known, n_infinite = widths[order], int(np.count_nonzero(~finite))
        low, high = np.percentile(known, [2, 98]) if len(known) else (0.0, 0.0)
        look: dict[str, Any] = {"s": 9, "linewidths": 0, "rasterized": True, "cmap": cmap}
        dots = ax.scatter(*position[order].T, c=known, vmin=low, vmax=high, **look)
        if high > low:
            words = "width of the interval (unit of y)"
            ax.figure.colorbar(dots, ax=ax, label=words, extend="both")
        if n_infinite:
            ax.plot(*position[~finite].T, "x", color=style.VERMILION, ms=4, label="infinite")
        style.label(ax, self.names[0], self.names[1], legend="best" if n_infinite else None)
        words = style.several(len(self.widths), "row")
        if len(some) < len(self.widths):
            words = f"{len(some):,} of {words}"
        if self.explained is not None:
            words += " · two main directions of the standardised inputs"
        if len(known) and known[0] == known[-1]:
            words += f" · all finite widths are {known[0]:.3g}"
        return "Where intervals are wide", words + f" · {n_infinite:,} infinite" * bool(n_infinite)


@dataclass(eq=False)
class WidthImportanceDisplay(style.Display):
    """Which columns make intervals wide, over all rows and, if asked for, in one row.

    The importance of column j is what a permutation π of it changes, over m rows of widths w(x_i)::

        I_j = mean_i |w(x_i with x_{π(i)j} in place of x_ij) − w(x_i)|,

    scikit-learn's permutation importance of the width. Correlated columns share their effect. In
    one row, column j moves the width by its own width less the mean with others' values of j.

    Attributes
    ----------
    columns : (d,) names
    importance, deviation : (d,) I_j, in the unit of y, and its standard deviation over permutations
    mean_width : of all rows
    moves, width : (d,) what each column adds to the width of the row, and that width; or None

    Examples
    --------
    >>> from calliper import FullRescaled
    >>> Z = np.random.default_rng(0).uniform(size=(600, 2))
    >>> method = FullRescaled().fit(Z, Z[:, 0])
    >>> found = WidthImportanceDisplay.from_model(method, Z[:100], row=0, random_state=0)
    >>> bool(found.importance[0] > 2 * found.importance[1])
    True
    """

    columns: tuple[str, ...]
    importance: FloatArray
    deviation: FloatArray
    mean_width: float
    moves: FloatArray | None = None
    width: float | None = None

    @classmethod
    def from_model(
        cls,
        model: Any,
        X: Any,
        coverage: float = 0.9,
        *,
        row: int | None = None,
        n_repeats: int = 5,
        max_rows: int = 500,
        random_state: Any = None,
    ) -> Self:
        """Permute each column of some rows, and predict intervals again.

        Parameters
        ----------
        model : with ``predict_interval``, or a fitted calibrator, of whose features X consists
        X : array or frame, (m, d)
        coverage : the level of the intervals
        row : the row of X to explain, if one is wanted
        n_repeats, max_rows, random_state : permutations of each column, most rows, and the seed
        """
        has_intervals = hasattr(model, "predict_interval")
        if not (has_intervals or hasattr(model, "predict_radius")):
            got = f"got a {type(model).__name__}"
            raise CalliperError(f"model must have predict_interval or predict_radius; {got}.")
        level = check_level(coverage)

        def widths(rows: Any) -> FloatArray:
            """The widths of the intervals, (m,); an infinite one is an error."""
            if has_intervals:
                width = np.asarray(model.predict_interval(rows, coverage=level).width)
            else:
                width = 2 * np.asarray(model.predict_radius(rows, level))
            if n_infinite := np.count_nonzero(~np.isfinite(width)):
                what = f"{n_infinite} of {len(width)} intervals are infinite at coverage {level:g}"
                remedy = "request a lower level, or calibrate on more rows"
                raise CalliperError(f"{what}, whatever the columns: {remedy}.")
            return width

        X = X.to_pandas() if comes_from(X, "polars") else X
        X = X if hasattr(X, "iloc") else np.asarray(X)
        if len(X.shape) != 2 or len(X) < 2:
            what = "X must have two dimensions and at least two rows"
            raise CalliperError(f"{what}; got shape {X.shape}.")
        if row is not None and (isinstance(row, bool) or not isinstance(row, Integral)):
            raise TypeError(f"row must be a whole number; got {row!r}.")
        if row is not None and not 0 <= row < len(X):
            raise CalliperError(f"row must be a number from 0 to {len(X) - 1}; got {row!r}.")
        rng, most = check_random_state(random_state), at_least(max_rows, 2, "max_rows")
        few = _safe_indexing(X, np.sort(rng.permutation(len(X))[:most]))
        found = permutation_importance(
            SimpleNamespace(fit=len),  # which scikit-learn requires and does not call
            few,
            before := widths(few),
            scoring=lambda _, rows, y: -float(np.abs(widths(rows) - y).mean()),
            n_repeats=at_least(n_repeats, 1, "n_repeats"),
            random_state=rng,
        )
        names = style.columns_of(X) or [f"column {j}" for j in range(1, X.shape[1] + 1)]
        known = found.importances_mean, found.importances_std, float(before.mean())
        made = cls(tuple(map(str, names)), *known)
        if row is not None:
            made.width = own = float(widths(_safe_indexing(X, [row, row]))[0])
            others = (_with_values(X, row, few, j) for j in range(X.shape[1]))
            made.moves = np.array([own - widths(rows).mean() for rows in others])
        return made

    def to_frame(self) -> Any:
        """A pandas frame with a row for each column, the largest effect first."""
        import pandas as pd

        found = {"importance": self.importance, "deviation": self.deviation}
        if self.moves is not None:
            found["move"] = self.moves
        return pd.DataFrame(found, index=pd.Index(self.columns, name="column")).iloc[self._order()]

    def _order(self) -> Any:
        """Numbers of the columns by their effect, largest first."""
        size = self.importance if self.moves is None else np.abs(self.moves)
        return np.argsort(-size, kind="stable")

    @property
    def _size(self) -> tuple[float, float]:
        return 6.4, 1.2 + 0.28 * min(len(self.columns), MOST_BARS)

    def _draw(self, ax: Any) -> tuple[str, str]:
        order = self._order()[:MOST_BARS][::-1]
        names = [style.literal(self.columns[j]) for j in order]
        words = f"mean width {self.mean_width:.3g}"
        if self.moves is None:
            ax.barh(names, self.importance[order], xerr=self.deviation[order], color=style.BLUE)
            style.label(ax, "mean change of the width if permuted (unit of y)", "", legend=None)
        else:
            colors = [*np.where(self.moves[order] > 0, style.VERMILION, style.BLUE)]
            ax.barh(names, self.moves[order], color=colors)
            ax.axvline(0, color="black", lw=0.8)
            words = f"width {self.width:.3g} · {words}"
            style.label(ax, "moves the width of this row by (unit of y)", "", legend=None)
        if len(order) < len(self.columns):
            words += f" · {len(order)} of {len(self.columns)} columns"
        return "Which columns make intervals wide", words


def _with_values(X: Any, row: int, others: Any, column: int) -> Any:
    """The row repeated, with the values of the other rows in one column."""
    rows = _safe_indexing(X, np.full(len(others), row)).copy()
    if hasattr(rows, "iloc"):
        rows.isetitem(column, others.iloc[:, column].array)
    else:
        rows[:, column] = others[:, column]
    return rows


def draw_calibration(errors: FloatArray, widths: FloatArray, method: str) -> Any:
    """Draw calibration errors against half-widths at coverage 0.9; both should grow together.

    Parameters
    ----------
    errors, widths : (n,) calibration errors, and half-widths of the same rows
    method : its name, for the title

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> errors = np.linspace(0, 1, 50)
    >>> len(draw_calibration(errors, errors + 0.1, "FullRescaled").axes)
    2
    """
    figure, (left, right) = style.blank_figure((8.4, 3.6), 1, 2)
    finite, words = np.isfinite(widths), "half-width at 0.9"
    most = float(np.quantile(np.append(errors, widths[finite]), 0.995)) or 1.0
    bins = np.linspace(0.0, most, 40)
    left.hist(errors, bins, color=style.SKY, label="calibration error")
    left.hist(widths[finite], bins, histtype="step", color=style.VERMILION, label=words)
    style.label(left, "size, in the unit of the target", "rows", legend="upper right")
    left.set_title(method, loc="left", fontsize=10)
    right.plot(widths[finite], errors[finite], ".", color=style.BLUE, markersize=4)
    right.axline((0, 0), slope=1, **style.TARGET)
    right.set(xlim=(0, most), ylim=(0, most))
    style.label(right, words, "calibration error", legend=None)
    inside = style.percent(float(np.mean(errors <= widths)))
    note = f"{len(errors)} rows that it was calibrated on, {inside} below the line"
    if not finite.all():
        note += f"; {np.count_nonzero(~finite)} of infinite width are not drawn"
    right.set_title(note, loc="left", fontsize=9)
    return figure
