"""The full predictive distribution of every row, in closed form.

With signed errors r_i = y_i − ŷ_i and t_i the size up to which a candidate's rescaled error does
not exceed that of calibration row i, a candidate y is beyond the point exactly when y > y_i*,

    y_i* = ŷ + sign(r_i)·t_i,     Π(y, τ) = (#{i : y_i* < y} + τ·(1 + #{i : y_i* = y})) / (N+1).

At a target from the same source, Π with τ uniform is uniform: a conformal predictive system. Order
statistics of y_i* are bounds, with −∞ at rank 0 and +∞ at rank N+1:

    P(Y ≤ y*_(⌈p(N+1)⌉)) ≥ p,     P(Y ≥ y*_(⌊p(N+1)⌋)) ≥ 1 − p.

Between two points Π is known up to 1/(N+1) only. The curve with 1/N at each of them, which ``cdf``,
``sf``, ``ppf``, ``mean``, ``std``, ``crps`` and ``sample`` use, lies in that band; ``exceedance``
is its middle. Under covariate shift the points count by their weights w_i, the new row by its own.

Reference: Vovk, Shen, Manokhin, Xie (2019), "Nonparametric predictive distributions based on
conformal prediction", doi:10.1007/s10994-018-5755-8. The closed form with local scales is, to our
knowledge, not published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from calliper import _validation as valid
from calliper._blocks import map_slices, row_slices
from calliper._types import BoolArray, Coverage, FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.quantile import (
    Shares,
    as_fraction,
    conformal_rank,
    count_true,
    effective_size,
    outward,
    row_thresholds,
)
from calliper.rows import same_rows
from calliper.scores import AbsoluteError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Distribution", "GroupedDistribution"]

#: Floats that a block of rows holds at a time: 8 MB.
MOST_FLOATS = 1 << 20
#: Quantiles that :meth:`Distribution.to_frame` shows.
SHOWN_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Predictive distributions of rows, from ``predict_distribution``; computed on demand.

    Attributes
    ----------
    y_pred : predictions of the m rows
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
    >>> distribution.cdf([10.5, 30.0]).round(3), distribution.exceedance(14.0)
    (array([0.333, 1.   ]), array([0.3 , 0.95]))
    """

    # Features of the rows; of rows of them all ±t_i, (m, N), or those of given ranks, (m, L); and
    # weights of a covariate shift, of the points in the order of ``_signed`` and of the rows.
    y_pred: FloatArray
    _Z: FloatArray
    _signed: Callable[..., FloatArray] = field(repr=False)
    n_calibration: int
    score: Any = field(default_factory=AbsoluteError)
    bounds: tuple[float, float] = (-np.inf, np.inf)
    index: Any = None
    _shares: Shares | None = None

    def __len__(self) -> int:
        return len(self.y_pred)

    def __repr__(self) -> str:
        return f"Distribution({len(self):,} rows, {self.n_calibration:,} calibration rows)"

    def quantile(self, p: Coverage, *, side: str = "upper") -> FloatArray:
        """A bound for each row, (m,) or (m, L): at least p of the targets are at or below "upper".

        "upper" is y*_(⌈p(N+1)⌉), "lower" y*_(⌊p(N+1)⌋), with at least 1 − p at or above it.
        """
        valid.check_option(side, ("upper", "lower"), "side")
        levels = valid.check_levels(p, "p")
        if side == "lower":
            levels = tuple(float(1 - as_fraction(level)) for level in levels)
        return valid.like_coverage(self._ends(levels, np.full(len(levels), side == "upper")), p)

    @valid.says_coverage
    def interval(self, coverage: Coverage = 0.9) -> Intervals:
        """Equal-tailed intervals, which follow the skewness of errors and have proven coverage.

        (1 − coverage)/2 may lie below, and as much above.
        """
        levels = valid.check_levels(coverage)
        tails = tuple(float((1 + as_fraction(level)) / 2) for level in levels)
        ends = self._ends(2 * tails, np.arange(2 * len(tails)) >= len(tails))
        lower, upper = (valid.like_coverage(part, coverage) for part in np.split(ends, 2, axis=1))
        return Intervals(lower, upper, levels[0] if np.ndim(coverage) == 0 else levels, self.index)

    def cdf(self, y: Any) -> FloatArray:
        """The share of the N points at or below y, which is a number, (m,), (m, L) or (1, L)."""
        _, not_above, total, _ = self._counts(y).swapaxes(0, 1)
        # Weights may add up to more than their total, by rounding.
        return np.asarray(np.minimum(not_above / total, 1.0))

    def sf(self, y: Any) -> FloatArray:
        """1 − :meth:`cdf`, the share of the N points above y, without points at y itself.

        Where y is a point, as quantiles are, it is too low by 1/N: :meth:`exceedance` is not.
        """
        return 1 - self.cdf(y)

    def exceedance(self, y: Any) -> FloatArray:
        """The probability that a target is above y: 1 − Π(y, ½), the middle of the proven range.

        A point at y counts half, and so does the new row. ``y`` as in :meth:`cdf`.
        """
        low, high = self.cdf_band(y)
        return 1 - (low + high) / 2

    def ppf(self, q: Any) -> FloatArray:
        """The inverse of :meth:`cdf`: the smallest point with a share of at least q at or below it.

        (m,), or (m, L) for L levels from 0 to 1; without the guarantee of :meth:`quantile`.
        """
        levels = np.atleast_1d(_targets(q))
        if levels.ndim > 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise CalliperError(f"q must be levels from 0 to 1, one or several; got {q!r:.80}.")

        def invert(points: FloatArray, share: FloatArray) -> FloatArray:
            n = points.shape[1]
            if share.ndim == 1:
                ranks = [max(ceil(as_fraction(level) * n), 1) for level in levels]
                return points[:, np.array(ranks) - 1]
            # Sums of weights are rounded; a level of 0 is that of the first point with a weight.
            need, reached = np.maximum(levels * (1 - 1e-12), 1e-300), np.cumsum(share, axis=1)
            column = np.stack([count_true(reached < each) for each in need], axis=1)
            return np.take_along_axis(points, np.minimum(column, n - 1), axis=1)

        return valid.like_coverage(self._of_curve(invert), q)

    def mean(self) -> FloatArray:
        """Mean of the :meth:`cdf` curve, (m,): infinite if a point is, NaN if both ±∞ occur."""
        return self._of_curve(_mean)

    def std(self) -> FloatArray:
        """The standard deviation of the curve of :meth:`cdf`, (m,); infinite where a point is."""
        return self._of_curve(_deviation)

    def cdf_band(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """The range of Π(y, τ) over all τ; ``y`` as in :meth:`cdf`."""
        below, not_above, total, own = self._counts(y).swapaxes(0, 1)
        low, high = below / (total + own), (not_above + own) / (total + own)
        return np.minimum(low, 1.0), np.minimum(high, 1.0)

    def pit(self, y: Any, *, random_state: Any = None) -> FloatArray:
        """Π(y, τ) at the target of each row, (m,): uniform if the assumptions hold.

        τ is drawn for each row. ``bounds`` do not enter: ends moved into them would tie.
        """
        (y,) = same_rows(self, "distribution", y=y)
        target = valid.check_vector(y, "y", n=len(self))
        below, not_above, total, own = self._counts(target, bounded=False).swapaxes(0, 1)
        tau = check_random_state(random_state).uniform(size=len(self))
        value = (below + tau * (own + not_above - below)) / (total + own)
        return np.asarray(np.minimum(value, 1.0))

    def crps(self, y: Any) -> FloatArray:
        """∫ (F(x) − 1{y ≤ x})² dx at the target of each row for the curve F of :meth:`cdf`, (m,).

        In the unit of y; infinite where a point stands at infinity, unless ``bounds`` are known.
        """
        (y,) = same_rows(self, "distribution", y=y)
        return self._of_curve(_crps, valid.check_vector(y, "y", n=len(self)))

    def sample(self, n: int, *, random_state: Any = None) -> FloatArray:
        """Draws for each row, (m, n), independent of one another, from the curve of :meth:`cdf`."""
        rng, size = check_random_state(random_state), (len(self), valid.at_least(n, 1, "n"))
        chosen = rng.randint(self.n_calibration, size=size)
        if self._shares is not None:
            chosen = rng.choice(self.n_calibration, size=size, p=self._mass / self._mass.sum())
        return self._by_blocks(lambda rows: np.take_along_axis(self._points(rows), chosen[rows], 1))

    def to_frame(self, p: Sequence[float] = SHOWN_QUANTILES) -> pd.DataFrame:
        """A pandas frame with quantiles as columns and the index of the input rows."""
        import pandas as pd

        names = [f"quantile_{level:g}" for level in valid.check_levels(p, "p")]
        return pd.DataFrame(self.quantile(list(p)), columns=names, index=self.index)

    def _moved(self, y_pred: FloatArray, score: Any, index: Any = None) -> Distribution:
        """The same errors around other predictions, (m,), by this score."""
        return replace(self, y_pred=y_pred, score=score, index=index)

    @property
    def centre(self) -> FloatArray:
        """Where an error of 0 would put the target, (m,)."""
        zero = np.zeros((len(self), 1))
        return np.asarray(self.score.target_at(self.y_pred[:, None], zero)[:, 0])

    @property
    def n_effective(self) -> float:
        """The equivalent number of points of equal weight."""
        return effective_size(self._counting.calibration)

    @property
    def _counting(self) -> Shares:
        """What each point and each row count for."""
        return self._shares or Shares(np.ones(self.n_calibration), np.ones(len(self)))

    @property
    def _mass(self) -> FloatArray:
        """The share of each point, (N,)."""
        return np.asarray(self._counting.calibration / self._counting.reached[-1])

    def _ends(self, levels: Sequence[float], upward: Any) -> FloatArray:
        """Bounds of a target with given probabilities, from above or below, (m, L)."""
        ranked = self._by_rank if self._shares is None else self._by_weight
        low, high = self._around(self.y_pred[:, None], ranked(levels, upward))
        y = np.where(upward, high, low)
        # Where the new row's scale is zero, too, an infinite point only ties with targets beyond ŷ.
        y = np.where(y == np.where(upward, -np.inf, np.inf), self.centre[:, None], y)
        return np.asarray(np.clip(y, *self.bounds))

    def _by_rank(self, levels: Sequence[float], upward: Any) -> FloatArray:
        """Errors with their signs at which bounds are, (m, L)."""
        n = self.n_calibration
        valid.warn_if_too_few(n, tuple(sorted(set(levels))))
        ranks = np.array([conformal_rank(level, n) for level in levels])
        ranks = np.where(upward, ranks, n + 1 - ranks)
        signed = np.tile(np.where(ranks > 0, np.inf, -np.inf), (len(self), 1))
        inside = (ranks > 0) & (ranks <= n)
        if inside.any():
            signed[:, inside] = self._signed(self._Z, ranks[inside].tolist())
        return signed

    def _by_weight(self, levels: Sequence[float], upward: Any) -> FloatArray:
        """The same where weights decide; bounds from below are those from above, mirrored."""

        def select(rows: slice) -> FloatArray:
            values, own = self._signed(self._Z[rows]), self._shares and self._shares.of_rows(rows)
            above, below = (row_thresholds(side * values, levels, own) for side in (1, -1))
            return np.where(upward, above, -below)

        return self._by_blocks(select)

    def _points(self, rows: slice) -> FloatArray:
        """All y_i* of some rows, (m, N), in no order."""
        points = self.score.target_at(self.y_pred[rows][:, None], self._signed(self._Z[rows]))
        return np.asarray(np.clip(points, *self.bounds))

    def _of_curve(self, ask: Callable[..., FloatArray], *beside: FloatArray) -> FloatArray:
        """``ask`` of ascending points, (m, N), shares, (N,) or (m, N) by weight, and ``beside``."""

        def answer(rows: slice) -> FloatArray:
            points, share = self._points(rows), self._mass
            if self._shares is None:
                points = np.sort(points, axis=1)
            else:
                order = np.argsort(points, axis=1)
                points, share = np.take_along_axis(points, order, axis=1), share[order]
            return ask(points, share, *(each[rows] for each in beside))

        return self._by_blocks(answer)

    def _around(self, y_pred: FloatArray, signed: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Where targets with these errors may lie, rounding considered: from where, up to where.

        A target that ties with its bound must keep to it. Errors are enlarged before they are added
        to the prediction: then the sum is rounded to the target or beyond, and never falls.
        """
        with np.errstate(over="ignore"):  # beyond the largest number there is no bound
            target_at = self.score.target_at
            low, high = (target_at(y_pred, side * _up(side * signed)) for side in (-1, 1))
        return low, high

    def _counts(self, y: Any, *, bounded: bool = True) -> FloatArray:
        """Of each y what :meth:`_count` finds: (m, 4), or (m, 4, L) if ``y`` has two axes."""
        (y,) = same_rows(self, "distribution", y=y)
        given = _targets(y)
        columns = np.atleast_2d(given[:, None] if given.ndim == 1 else given)
        if len(columns) not in (1, len(self)):
            raise CalliperError(f"y has {len(columns)} rows, the distribution has {len(self)}.")
        counts = self._count(np.broadcast_to(columns, (len(self), columns.shape[1])), bounded)
        return counts if given.ndim == 2 else counts[..., 0]

    def _count(self, target: FloatArray, bounded: bool) -> FloatArray:
        """How many points, or what weight: below, not above, in all, and the row's; (m, 4, L)."""
        total, own = self._counting.reached[-1], self._counting.new

        def count(rows: slice) -> FloatArray:
            y_pred, signed = self.y_pred[rows][:, None], self._signed(self._Z[rows])
            value = target[rows]
            if bounded:
                low, high = (np.clip(end, *self.bounds) for end in self._around(y_pred, signed))
            else:  # a score may put many errors at one target, which must not tie
                low, high, value = -_up(-signed), _up(signed), self.score.signed(value, y_pred)
            found = np.empty((len(value), 4, value.shape[1]))
            found[:, 2], found[:, 3] = total, own[rows][:, None]
            for at, column in enumerate(value.T[:, :, None]):
                found[:, 0, at] = self._sum(high < column)
                found[:, 1, at] = self._sum(low <= column)
            return found

        return self._by_blocks(count)

    def _sum(self, mask: BoolArray) -> Any:
        return count_true(mask) if self._shares is None else mask @ self._shares.calibration

    def _by_blocks(self, work: Callable[[slice], Any]) -> FloatArray:
        """``work(rows)`` of blocks of rows whose points fit in memory, joined."""
        step = max(1, MOST_FLOATS // self.n_calibration)
        return np.concatenate(map_slices(work, row_slices(len(self), step)))


def _crps(points: FloatArray, share: FloatArray, target: FloatArray) -> FloatArray:
    """∫ (F(x) − 1{y ≤ x})² dx of each row, (m,)."""
    gap = points - target[:, None]
    infinite = np.any(np.isinf(gap) & (share > 0), axis=1)
    gap = np.where(infinite[:, None] | (share == 0), 0.0, gap)
    rest = share * (2 * np.cumsum(share, axis=-1) - share - 1)
    found = (np.abs(gap) * share - gap * rest).sum(axis=1)
    return np.where(infinite, np.inf, np.maximum(found, 0.0))


def _mean(points: FloatArray, share: FloatArray) -> FloatArray:
    """Σ share · point of each row, (m,); infinities of both signs have no sum."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(share > 0, points * share, 0.0).sum(axis=1))


def _deviation(points: FloatArray, share: FloatArray) -> FloatArray:
    """√(Σ share · (point − mean)²) of each row, (m,); infinite where a point is."""
    infinite = np.any(np.isinf(points) & (share > 0), axis=1)
    known = np.where(infinite[:, None] | (share == 0), 0.0, points)
    gap = known - _mean(known, share)[:, None]
    return np.where(infinite, np.inf, np.sqrt((share * gap**2).sum(axis=1)))


def _up(signed: FloatArray) -> FloatArray:
    """Errors enlarged by what rounding may lack, and by one digit where these are very small."""
    up = np.nextafter(outward(signed), np.inf)
    return np.where((signed == 0) | np.isinf(signed), signed, up)


@dataclass(frozen=True, eq=False, repr=False)
class GroupedDistribution(Distribution):
    """Predictive distributions of rows in several groups: each row has that of its group.

    Attributes
    ----------
    parts : the row numbers of each group in the batch, and the distribution of these rows
    n_calibration : over all groups

    Examples
    --------
    >>> from calliper import ConformalRegressor, Split
    >>> X, y = np.tile([[0.0], [1.0]], (20, 1)), np.tile([1.0, 9.0, -1.0, -9.0], 10)
    >>> model = ConformalRegressor(lambda rows: np.zeros(len(rows)), Split(), embed="inputs")
    >>> _ = model.calibrate(X, y, groups=lambda rows: rows[:, 0])
    >>> found = model.predict_distribution(np.array([[0.0], [1.0]]))
    >>> type(found).__name__, found.quantile(0.9)
    ('GroupedDistribution', array([1., 9.]))
    """

    parts: tuple[tuple[IntArray, Distribution], ...] = ()

    def _moved(self, y_pred: FloatArray, score: Any, index: Any = None) -> GroupedDistribution:
        parts = tuple((rows, part._moved(y_pred[rows], score)) for rows, part in self.parts)
        return replace(self, y_pred=y_pred, score=score, index=index, parts=parts)

    @property
    def n_effective(self) -> float:
        """The equivalent number of points of equal weight, over all groups."""
        return sum(part.n_effective for _, part in self.parts)

    def sample(self, n: int, *, random_state: Any = None) -> FloatArray:
        """Draws for each row from the distribution of its group."""
        rng = check_random_state(random_state)
        return self._of_each(lambda part, rows: part.sample(n, random_state=rng))

    def _ends(self, levels: Sequence[float], upward: Any) -> FloatArray:
        return self._of_each(lambda part, rows: part._ends(levels, upward))

    def _count(self, target: FloatArray, bounded: bool) -> FloatArray:
        return self._of_each(lambda part, rows: part._count(target[rows], bounded))

    def _of_curve(self, ask: Callable[..., FloatArray], *beside: FloatArray) -> FloatArray:
        return self._of_each(lambda part, at: part._of_curve(ask, *(each[at] for each in beside)))

    def _of_each(self, answer: Callable[..., FloatArray]) -> FloatArray:
        """What each group's distribution answers, in the order of the rows."""
        found = [answer(part, rows) for rows, part in self.parts]
        joined = np.empty((len(self), *found[0].shape[1:]))
        for (rows, _), values in zip(self.parts, found, strict=True):
            joined[rows] = values
        return joined


def _targets(y: Any) -> FloatArray:
    """Targets to ask distributions about, of at most two axes."""
    try:
        given = np.asarray(y, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise CalliperError(f"y must be numbers: {error}.") from error
    if given.ndim > 2 or np.isnan(given).any():
        raise CalliperError(
            f"y must be one number, one per row, or (m, L), without NaN; got shape {given.shape}."
        )
    return given
