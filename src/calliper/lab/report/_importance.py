"""Which columns make intervals wide, over all rows and in one row.

The importance of column j is what a permutation π of it changes, over m rows of widths w(x_i),

    I_j = mean_i |w(x_i with x_{π(i)j} in place of x_ij) − w(x_i)|,

scikit-learn's permutation importance of the width as a function of the inputs. For one row x it
moves the width by

    M_j(x) = w(x) − mean_i w(x with x_ij in place of x_j),

which is positive if the value in the row makes the interval wider than the values of other rows
would. Only intervals are needed, so any model and any method can be explained. Correlated columns
share their effect, and permuted rows may not occur in practice; neither number is about causes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.utils import _safe_indexing, check_random_state

from calliper._types import FloatArray
from calliper._validation import at_least, check_level, n_rows
from calliper.exceptions import CalliperError
from calliper.lab.report import _style as style

if TYPE_CHECKING:
    import pandas as pd

#: Columns that a figure shows.
MOST_BARS = 20


@dataclass(eq=False)
class WidthImportanceDisplay(style.Display):
    """The effect of each column on the width, over all rows and optionally in one row.

    Attributes
    ----------
    columns : (d,) names
    importance : (d,) mean change of the width when the column is permuted, in the unit of y
    deviation : (d,) its standard deviation over permutations
    mean_width : of all rows
    moves : (d,) what the value in that row adds to its width, or None
    width : of that row, or None
    ax_, figure_ : where it was drawn last

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import ConformalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(600, 2))
    >>> y = X[:, 0] * rng.normal(size=600)
    >>> model = ConformalRegressor(LinearRegression(), random_state=0).fit(X, y)
    >>> found = WidthImportanceDisplay.from_model(model, X[:100], row=0, random_state=0)
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
        model : calibrated ``ConformalRegressor`` or other model with ``predict_interval``, or a
            fitted calibrator, whose features are then explained
        X : array or frame, (m, d)
        coverage : the level of the intervals
        row : int, optional
            The row of X to explain.
        n_repeats : permutations of each column
        max_rows : size of the random sample if there are more rows
        random_state : seed of the permutations and the sample
        """
        if not hasattr(model, "predict_interval") and not hasattr(model, "predict_radius"):
            raise CalliperError(
                f"model must have predict_interval or predict_radius; got a {type(model).__name__}."
            )
        widths = partial(_widths, model, check_level(coverage))
        at_least(n_repeats, 1, "n_repeats")
        rng, n = check_random_state(random_state), n_rows(X)
        if not hasattr(X, "iloc"):
            X = np.asarray(X)
        if len(X.shape) != 2 or n < 2:
            raise CalliperError(
                f"X must have two dimensions and at least two rows; got shape {X.shape}."
            )
        if row is not None and not 0 <= row < n:
            raise CalliperError(f"row must be a number from 0 to {n - 1}; got {row!r}.")
        some = np.sort(rng.permutation(n)[: at_least(max_rows, 2, "max_rows")])
        few = _safe_indexing(X, some)
        found = permutation_importance(
            SimpleNamespace(fit=len),  # which scikit-learn requires and does not call
            few,
            before := widths(few),
            scoring=lambda _, rows, y: -float(np.abs(widths(rows) - y).mean()),
            n_repeats=n_repeats,
            random_state=rng,
        )
        d = X.shape[1]
        names = style.columns_of(X) or [f"column {number}" for number in range(1, d + 1)]
        made = cls(
            tuple(map(str, names)),
            found.importances_mean,
            found.importances_std,
            float(before.mean()),
        )
        if row is not None:
            made.width = float(widths(_safe_indexing(X, [row, row]))[0])
            made.moves = np.array(
                [made.width - widths(_with(X, row, few, j)).mean() for j in range(d)]
            )
        return made

    def to_frame(self) -> pd.DataFrame:
        """A row for each column, the most important first."""
        import pandas as pd

        found = {"importance": self.importance, "deviation": self.deviation}
        if self.moves is not None:
            found["move"] = self.moves
        frame = pd.DataFrame(found, index=pd.Index(self.columns, name="column"))
        ordered: pd.DataFrame = frame.iloc[self._order()]
        return ordered

    @property
    def _size(self) -> tuple[float, float]:
        return 6.4, 1.2 + 0.28 * min(len(self.columns), MOST_BARS)

    def _draw(self, ax: Any) -> tuple[str, str]:
        """A bar for each column: its effect in the row, or its importance over rows."""
        order = self._order()[:MOST_BARS][::-1]
        names = [style.literal(self.columns[j]) for j in order]
        if self.moves is None:
            ax.barh(names, self.importance[order], xerr=self.deviation[order], color=style.BLUE)
            words = f"mean width {self.mean_width:.3g}"
            style.label(ax, "mean change of the width if permuted (unit of y)", "", legend=None)
        else:
            moves = self.moves[order]
            colours = np.where(moves > 0, style.VERMILION, style.BLUE)
            ax.barh(names, moves, color=list(colours))
            ax.axvline(0, color="black", lw=0.8)
            words = f"width {self.width:.3g} · mean width {self.mean_width:.3g}"
            style.label(ax, "moves the width of this row by (unit of y)", "", legend=None)
        if len(order) < len(self.columns):
            words += f" · {len(order)} of {len(self.columns)} columns"
        return "Which columns make intervals wide", words

    def _order(self) -> Any:
        """Numbers of the columns by their effect, largest first."""
        size = self.importance if self.moves is None else np.abs(self.moves)
        return np.argsort(-size, kind="stable")


def _widths(model: Any, level: float, X: Any) -> FloatArray:
    """(m,) widths of the intervals of a model or calibrator; an infinite one is an error."""
    if hasattr(model, "predict_interval"):
        width = np.asarray(model.predict_interval(X, coverage=level).width)
    else:
        width = 2 * np.asarray(model.predict_radius(X, level))
    if not np.isfinite(width).all():
        raise CalliperError(
            f"{np.count_nonzero(~np.isfinite(width))} of {len(width)} intervals are infinite at "
            f"coverage {level:g}, whatever the columns: ask for a lower level, or calibrate on "
            f"more rows."
        )
    return width


def _with(X: Any, row: int, others: Any, column: int) -> Any:
    """The row repeated, with the values of the other rows in one column."""
    rows = _safe_indexing(X, np.full(n_rows(others), row))
    if hasattr(rows, "iloc"):
        rows = rows.copy()
        rows[rows.columns[column]] = others.iloc[:, column].to_numpy()
        return rows.astype({rows.columns[column]: others.dtypes.iloc[column]})
    rows = np.array(rows)
    rows[:, column] = others[:, column]
    return rows
