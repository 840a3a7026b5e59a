"""Where intervals are wide: the inputs in two dimensions, coloured by width."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from calliper._types import FloatArray
from calliper._validation import check_features
from calliper.exceptions import CalliperError
from calliper.metrics._inputs import IntervalsLike, one_level
from calliper.metrics._rows import unit_spread
from calliper.report.displays._style import (
    BLUE,
    MOST_POINTS,
    VERMILION,
    entitle,
    percent,
    several,
    start,
)


@dataclass(eq=False)
class EmbeddingDisplay:
    """Inputs in the plane of their two main directions, coloured by width.

    What to see: regions of one colour, so that width follows the input. A mix of all colours
    everywhere means that width is noise, or that it follows a direction not shown: look at how
    much of the variance the two directions hold.

    Attributes
    ----------
    position : (n, 2) coordinates of the rows that are drawn
    widths : (n,) widths of their intervals, perhaps infinite
    rows : (n,) which rows these are
    explained : share of the variance along each direction; None if the coordinates were given
    n_rows : number of rows there were
    ax_, figure_ : where it was drawn last
    """

    position: FloatArray
    widths: FloatArray
    rows: Any
    explained: FloatArray | None
    n_rows: int
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_intervals(
        cls,
        X: Any,
        intervals: IntervalsLike,
        *,
        project: bool = True,
        max_points: int = MOST_POINTS,
        random_state: Any = None,
    ) -> EmbeddingDisplay:
        """Find the two main directions of all rows, and take the rows to draw.

        Parameters
        ----------
        X : array of shape (m, d), d ≥ 2
            Inputs, or an embedding in which nearness is judged.
        intervals : Intervals or (lower, upper), of one level
        project : bool
            True: principal components of X with each column divided by its standard deviation.
            False: the two columns of X are coordinates already, for example from UMAP.
        max_points : int
            If there are more rows, so many are drawn at random.
        random_state : optional
            Seed of that choice.
        """
        read = one_level(intervals)
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
        return cls(position[rows], read.width[rows], rows, explained, n)

    def plot(
        self, ax: Any = None, *, name: str | None = None, cmap: str = "viridis"
    ) -> EmbeddingDisplay:
        """Draw wide intervals on top; the colours span the 2nd to the 98th percentile."""
        self.ax_, self.figure_ = ax, figure = start(ax, (6.0, 4.8))
        finite = np.isfinite(self.widths)
        order = np.flatnonzero(finite)[np.argsort(self.widths[finite])]
        low, high = np.percentile(self.widths[order], [2, 98]) if len(order) else (0.0, 0.0)
        look: dict[str, Any] = {"s": 9, "linewidths": 0, "rasterized": True}
        if high > low:
            look |= {"c": self.widths[order], "cmap": cmap, "vmin": low, "vmax": high}
            dots = ax.scatter(*self.position[order].T, **look)
            figure.colorbar(dots, ax=ax, label="width of the interval (unit of y)", extend="both")
        else:
            ax.scatter(*self.position[order].T, color=BLUE, **look)
        if not finite.all():
            ax.plot(*self.position[~finite].T, "x", color=VERMILION, ms=4, label="infinite")
            ax.legend(frameon=False, fontsize=8.5)
        for axis, number in ((ax.xaxis, 0), (ax.yaxis, 1)):
            share = None if self.explained is None else percent(float(self.explained[number]))
            axis.set_label_text(
                f"column {number + 1}"
                if share is None
                else f"direction {number + 1} ({share} of the variance)"
            )
        entitle(ax, name or "Where intervals are wide", self._caption())
        return self

    def _caption(self) -> str:
        words = several(self.n_rows, "row")
        if len(self.rows) < self.n_rows:
            words = f"{len(self.rows):,} of {words}, drawn at random"
        if self.explained is not None:
            words += " · two main directions of the standardised inputs"
        finite = self.widths[np.isfinite(self.widths)]
        if len(finite) and finite.min() == finite.max():
            words += f" · all finite widths are {finite[0]:.3g}"
        n_infinite = int(np.count_nonzero(np.isinf(self.widths)))
        return words + (f" · {n_infinite:,} infinite" if n_infinite else "")


def _project(features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Principal components of the standardised columns, with signs fixed by the largest weight."""
    scaled = unit_spread(features)
    if not scaled.shape[1]:
        raise CalliperError("every column of X is constant: all rows would lie on one point.")
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    main = vectors[:, ::-1][:, :2]
    main = main * np.sign(main[np.abs(main).argmax(axis=0), np.arange(main.shape[1])])
    position = np.zeros((len(scaled), 2))
    position[:, : main.shape[1]] = scaled @ main
    explained = np.append(values[::-1], 0.0)[:2] / values.sum()
    return position, explained
