"""The whole predictive distribution of every row, in closed form.

With signed errors r_i = y_i − ŷ_i and t_i the size up to which a candidate's rescaled error does
not exceed that of calibration point i, a candidate y is beyond the point exactly when y > y_i*,

    y_i* = ŷ + sign(r_i)·t_i,     Π(y, τ) = (#{i : y_i* < y} + τ·(1 + #{i : y_i* = y})) / (N+1).

At a target from the same source, Π with τ uniform is uniform: a conformal predictive system. Order
statistics of y_i* are bounds, with −∞ at rank 0 and +∞ at rank N+1:

    P(Y ≤ y*_(⌈p(N+1)⌉)) ≥ p,     P(Y ≥ y*_(⌊p(N+1)⌋)) ≥ 1 − p.

Between two points Π is known up to 1/(N+1) only. The curve with 1/N at each of them, which ``cdf``,
``crps`` and ``sample`` take, lies in that band. Quantiles cost what intervals cost; all else needs
the N numbers of a row, which exist for a block of rows at a time.

Reference: Vovk, Shen, Manokhin, Xie (2019), "Nonparametric predictive distributions based on
conformal prediction", doi:10.1007/s10994-018-5755-8. The closed form with local scales is, to our
knowledge, not published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from calliper._blocks import map_slices, row_slices
from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import check_levels, check_vector, like_coverage, warn_if_too_few
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.quantile import ROUNDING, as_fraction, conformal_rank, count_true
from calliper.scores import AbsoluteError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Distribution"]

#: Floats that a block of rows holds at a time: 8 MB.
BLOCK_FLOATS = 1 << 20

#: What :meth:`Distribution.to_frame` shows.
SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Predictive distributions of a batch of rows, computed when they are asked something.

    Made by ``predict_distribution`` of ``ConformalRegressor`` and, on arrays, of calibrators.

    Attributes
    ----------
    y_pred, Z : predictions and features of the m rows
    signed : for rows of ``Z``, all ±t_i, (m, N), or those of given ranks, (m, L)
    n_calibration : N
    score : how an error with its sign becomes a target
    bounds : (y_min, y_max), the range that y can have; infinite where it is open
    index : row labels of the frame that the rows came in

    Examples
    --------
    >>> from calliper import Split
    >>> errors = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> split = Split().fit(np.zeros((9, 1)), abs(errors), signs=np.sign(errors))
    >>> distribution = split.predict_distribution(np.zeros((2, 1)), [10.0, 20.0])
    >>> distribution.quantile([0.1, 0.5, 0.9]).round(6)
    array([[ 7., 12., 16.],
           [17., 22., 26.]])
    >>> distribution.cdf([10.5, 30.0]).round(3), distribution.interval(0.8).width.round(6)
    (array([0.333, 1.   ]), array([9., 9.]))
    """

    y_pred: FloatArray
    Z: FloatArray
    signed: Callable[..., FloatArray] = field(repr=False)
    n_calibration: int
    score: Any = field(default_factory=AbsoluteError)
    bounds: tuple[float, float] = (-np.inf, np.inf)
    index: Any = None

    def __len__(self) -> int:
        return len(self.y_pred)

    def __repr__(self) -> str:
        return f"Distribution({len(self):,} rows, {self.n_calibration:,} calibration points)"

    def quantile(self, p: Coverage, *, side: str = "upper") -> FloatArray:
        """A bound for each row: (m,), or (m, L) for L increasing levels.

        "upper": y*_(⌈p(N+1)⌉), at or below which a target lies with probability at least p.
        "lower": y*_(⌊p(N+1)⌋), at or above which it lies with at least 1 − p.
        """
        if side not in ("upper", "lower"):
            raise ValueError(f"side must be 'upper' or 'lower'; got {side!r}.")
        levels = check_levels(p, "p")
        if side == "lower":
            levels = tuple(float(1 - as_fraction(level)) for level in levels)
        return like_coverage(self._ends(levels, np.full(len(levels), side == "upper")), p)

    def interval(self, coverage: Coverage = 0.9) -> Intervals:
        """Equal tails: (1 − coverage)/2 may lie below the interval, and as much above.

        It follows the skewness of errors, as that of ``predict_interval`` does not, and holds a new
        target with probability at least ``coverage``.
        """
        levels = check_levels(coverage)
        tails = tuple(float((1 + as_fraction(level)) / 2) for level in levels)
        ends = self._ends(2 * tails, np.arange(2 * len(tails)) >= len(tails))
        lower, upper = (like_coverage(part, coverage) for part in np.split(ends, 2, axis=1))
        return Intervals(lower, upper, levels[0] if np.ndim(coverage) == 0 else levels, self.index)

    def cdf(self, y: Any) -> FloatArray:
        """The share of the N points at or below y: (m,), or (m, L) if ``y`` has two axes.

        ``y`` is one number for all rows, one a row, (m,), or L of them, (m, L) or (1, L).
        """
        return self._counts(y, bounded=True)[1] / self.n_calibration

    def cdf_band(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Between what Π(y, τ) lies, whatever τ; ``y`` as in :meth:`cdf`."""
        below, not_above = self._counts(y, bounded=True)
        return below / (self.n_calibration + 1), (not_above + 1) / (self.n_calibration + 1)

    def pit(self, y: Any, *, random_state: Any = None) -> FloatArray:
        """Π(y, τ) at the target of each row, (m,): uniform if all is as promised.

        τ is drawn for each row. ``bounds`` do not enter: ends moved into them would tie.
        """
        below, not_above = self._counts(check_vector(y, "y", n=len(self)), bounded=False)
        tau = check_random_state(random_state).uniform(size=len(self))
        return np.asarray((below + tau * (1 + not_above - below)) / (self.n_calibration + 1))

    def crps(self, y: Any) -> FloatArray:
        """Continuous ranked probability score at the target of each row, (m,), in the unit of y.

        ∫ (F(x) − 1{y ≤ x})² dx for the curve F of :meth:`cdf`; infinite where a point stands at
        infinity, unless ``bounds`` are known.
        """
        target = check_vector(y, "y", n=len(self))[:, None]
        weight = 2 * np.arange(1, self.n_calibration + 1) - self.n_calibration - 1

        def score(rows: slice) -> FloatArray:
            gap = np.sort(self._points(rows), axis=1) - target[rows]
            infinite = np.isinf(gap).any(axis=1)
            gap[infinite] = 0.0
            found = np.abs(gap).mean(axis=1) - gap @ weight / self.n_calibration**2
            return np.where(infinite, np.inf, np.maximum(found, 0.0))

        return self._by_blocks(score)

    def sample(self, n: int, *, random_state: Any = None) -> FloatArray:
        """Draws for each row, (m, n), independent of one another, from the curve of :meth:`cdf`."""
        if not isinstance(n, Integral) or n < 1:
            raise CalliperError(f"n must be a whole number of at least 1; got {n!r}.")
        rng = check_random_state(random_state)
        chosen = rng.randint(self.n_calibration, size=(len(self), int(n)))
        return self._by_blocks(lambda rows: np.take_along_axis(self._points(rows), chosen[rows], 1))

    def to_frame(self, p: Sequence[float] = SHOWN) -> pd.DataFrame:
        """A pandas frame with quantiles as columns and the index of the rows that came in."""
        import pandas as pd

        names = [f"quantile_{level:g}" for level in check_levels(p, "p")]
        return pd.DataFrame(self.quantile(list(p)), columns=names, index=self.index)

    @property
    def centre(self) -> FloatArray:
        """Where an error of 0 would put the target, (m,)."""
        return np.asarray(self.score.place(self.y_pred[:, None], np.zeros((len(self), 1)))[:, 0])

    def _ends(self, levels: Sequence[float], upward: Any) -> FloatArray:
        """Bounds that a target keeps to with given probabilities, from above or below, (m, L)."""
        n = self.n_calibration
        warn_if_too_few(n, tuple(sorted(set(levels))))
        ranks = np.array([conformal_rank(level, n) for level in levels])
        ranks = np.where(upward, ranks, n + 1 - ranks)
        signed = np.tile(np.where(ranks > 0, np.inf, -np.inf), (len(self), 1))
        inside = (ranks > 0) & (ranks <= n)
        if inside.any():
            signed[:, inside] = self.signed(self.Z, ranks[inside].tolist())
        y, centre = self.score.place(self.y_pred[:, None], signed), self.centre[:, None]
        # Where the new row's scale is zero, too, an infinite point only ties with targets beyond ŷ.
        y = np.where(y == np.where(upward, -np.inf, np.inf), centre, y)
        # A target that ties with its bound must keep to it.
        slack = self._slack(y, centre)
        ends: FloatArray = np.clip(np.where(upward, y + slack, y - slack), *self.bounds)
        return ends

    def _points(self, rows: slice, *, bounded: bool = True) -> FloatArray:
        """All y_i* of some rows, (m, N), in no order."""
        points = self.score.place(self.y_pred[rows][:, None], self.signed(self.Z[rows]))
        return np.clip(points, *self.bounds) if bounded else np.asarray(points)

    def _counts(self, y: Any, *, bounded: bool) -> tuple[FloatArray, FloatArray]:
        """How many of the N points lie below each y, and how many not above it."""
        given = np.asarray(y, dtype=np.float64)
        if given.ndim > 2 or np.isnan(given).any():
            raise CalliperError(
                f"y must be a number, one a row, or (m, L), and never NaN; got shape {given.shape}."
            )
        columns, centre = given[:, None] if given.ndim == 1 else given, self.centre[:, None]
        columns = np.atleast_2d(columns)
        if len(columns) not in (1, len(self)):
            raise CalliperError(f"y has {len(columns)} rows, and there are {len(self)}.")
        target = np.broadcast_to(columns, (len(self), columns.shape[1]))

        def count(rows: slice) -> IntArray:
            points = self._points(rows, bounded=bounded)
            slack = self._slack(points, centre[rows])
            low, high = points - slack, points + slack
            each = target[rows].T[:, :, None]
            found = [(count_true(high < column), count_true(low <= column)) for column in each]
            return np.array(found).transpose(2, 1, 0)

        counts = self._by_blocks(count)
        below, not_above = counts[:, 0], counts[:, 1]
        return (below, not_above) if given.ndim == 2 else (below[:, 0], not_above[:, 0])

    def _slack(self, y: FloatArray, centre: FloatArray) -> FloatArray:
        """By what y may miss the target that it stands for, by rounding; 0 where it is infinite."""
        finite = np.where(np.isinf(y), 0.0, y)
        slack = ROUNDING * np.abs(finite - centre) + np.spacing(np.abs(finite) + 2 * np.abs(centre))
        return np.where(np.isinf(y) | (y == centre), 0.0, slack)

    def _by_blocks(self, work: Callable[[slice], Any]) -> FloatArray:
        """``work(rows)`` of blocks whose points fit, one behind the other."""
        step = max(1, BLOCK_FLOATS // self.n_calibration)
        return np.concatenate(map_slices(work, row_slices(len(self), step)))
