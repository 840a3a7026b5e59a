"""The band: intervals over one input, the targets inside and outside, the best there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._validation import check_vector
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.metrics._inputs import IntervalsLike, one_level
from calliper.report.displays._style import (
    BLUE,
    GREY,
    TARGET,
    VERMILION,
    entitle,
    limits,
    percent,
    several,
    start,
)


@dataclass(eq=False)
class BandDisplay:
    """Intervals over one input; made by :meth:`from_intervals`.

    What to see: the band is wide where targets scatter and narrow where they do not, and the
    targets outside lie everywhere along x rather than in one stretch.

    Attributes
    ----------
    x : (n,) the input, ascending; all other arrays are in its order
    lower, upper : (n,) ends of the intervals, perhaps infinite
    y, covered : (n,) targets, and whether they lie inside; None without targets
    y_pred : (n,) predictions, or None
    oracle : the best intervals there are, or None
    coverage : the level asked for, or None
    ax_, figure_ : where it was drawn last
    """

    x: FloatArray
    lower: FloatArray
    upper: FloatArray
    y: FloatArray | None = None
    covered: BoolArray | None = None
    y_pred: FloatArray | None = None
    oracle: Intervals | None = None
    coverage: float | None = None
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_intervals(
        cls,
        x: Any,
        intervals: IntervalsLike,
        *,
        y: Any = None,
        y_pred: Any = None,
        oracle: IntervalsLike | None = None,
    ) -> BandDisplay:
        """Sort everything by x, and see which targets lie inside.

        Parameters
        ----------
        x : array of shape (n,) or (n, 1)
        intervals : Intervals or (lower, upper), of one level
            At each x.
        y, y_pred : array of shape (n,), optional
            Targets and predictions at each x.
        oracle : Intervals or (lower, upper), optional
            The best intervals there are at each x, if the law of the data is known.
        """
        read = one_level(intervals)
        n = len(read.lower)
        if np.ndim(x) == 2 and np.shape(x)[1] != 1:
            raise CalliperError(
                f"x must be one input a row; got {np.shape(x)[1]} columns: pass one of them, or "
                f"see EmbeddingDisplay."
            )
        place = check_vector(x, "x", n=n)
        order = np.argsort(place, kind="stable")
        best = None if oracle is None else one_level(oracle)
        if best is not None and len(best.lower) != n:
            raise CalliperError(f"oracle has {len(best.lower)} intervals for {n} rows.")
        level = None if read.coverage is None else float(np.atleast_1d(read.coverage)[0])
        return cls(
            place[order],
            read.lower[order],
            read.upper[order],
            None if y is None else check_vector(y, "y", n=n)[order],
            None if y is None else read.contains(y)[order],
            None if y_pred is None else check_vector(y_pred, "y_pred", n=n)[order],
            None if best is None else Intervals(best.lower[order], best.upper[order]),
            level,
        )

    @property
    def n_infinite(self) -> int:
        """How many intervals have no end on one side or on both."""
        return int(np.count_nonzero(np.isinf(self.upper - self.lower)))

    def plot(self, ax: Any = None, *, name: str | None = None, color: str = BLUE) -> BandDisplay:
        """Draw the band; infinite intervals reach beyond the axes."""
        self.ax_, self.figure_ = ax, _ = start(ax, (7.2, 4.2))
        shown = [self.lower, self.upper, *(v for v in (self.y, self.y_pred) if v is not None)]
        low, high = limits(np.concatenate(shown))
        far = 10 * (high - low)
        ax.fill_between(
            self.x,
            np.maximum(self.lower, low - far),
            np.minimum(self.upper, high + far),
            color=color,
            alpha=0.35,
            linewidth=0,
            label="interval" if self.coverage is None else f"{percent(self.coverage)} interval",
        )
        if self.oracle is not None:
            ax.plot(self.x, self.oracle.lower, label="oracle (knows the noise)", **TARGET)
            ax.plot(self.x, self.oracle.upper, **TARGET)
        if self.y_pred is not None:
            ax.plot(self.x, self.y_pred, color="#000000", linewidth=0.9, label="prediction")
        if self.y is not None and self.covered is not None:
            inside, outside = self.covered, ~self.covered
            ax.plot(self.x[inside], self.y[inside], ".", color=GREY, ms=3, label="target inside")
            ax.plot(
                self.x[outside], self.y[outside], "o", color=VERMILION, ms=3, label="target outside"
            )
        ax.set_ylim(low, high)
        ax.margins(x=0.01)
        ax.set_xlabel("x")
        ax.set_ylabel("y")
        ax.legend(edgecolor="none", framealpha=0.85, fontsize=8.5, ncols=2, loc="best")
        entitle(ax, name or "Intervals over the input", self._caption())
        return self

    def _caption(self) -> str:
        words = several(len(self.x), "row")
        if self.covered is not None:
            words += f", {percent(float(self.covered.mean()))} of the targets inside"
        if self.n_infinite:
            words += f"; {several(self.n_infinite, 'interval')} infinite, past the axes"
        return words
