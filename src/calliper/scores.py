"""Scores: how wrong a prediction is, and the inverse that turns a radius into an interval.

``measure(y, y_pred)`` and ``invert(y_pred, radius)`` belong together: y lies in
``invert(y_pred, r)`` exactly when ``measure(y, y_pred) <= r``, except that ends are rounded outward
by a few last digits, so that no tie is lost. A score of two tails has two columns; each tail is
calibrated on its own at level 1 − α/2, and a union bound gives 1 − α. A score that tells sides
apart has ``signed(y, ŷ)``, whose size is the score and which grows with y, and its inverse
``target_at(ŷ, signed)``. Predictions may carry an axis of levels before the last: (m, 1, n_outputs)
against a radius of shape (m, L).

``QuantileError`` is conformalised quantile regression: the error of an interval that a model of
two quantiles already proposes. It is how far y lies outside, negative inside. The Q-th smallest
error, Q = ⌈(1−α)(N+1)⌉, then moves both ends outwards, or inwards if the model was too careful:

    plain        s = max(q_lo − y, y − q_hi)                            [q_lo − Δ, q_hi + Δ]
    ratio        s = max(q_lo − y, y − q_hi) / (q_hi − q_lo + ε)        CQR-r
    median       s = max((q_lo − y)/(q_med − q_lo + ε), (y − q_hi)/(q_hi − q_med + ε))   CQR-m
    asymmetric   s_lo = q_lo − y and s_hi = y − q_hi, each calibrated at 1−α/2

Letters: q_lo, q_med, q_hi → the columns of ``y_pred``, ε → ``offset``, Δ → ``radius``.

Guarantee: that of the calibrator, 1−α with ``Split``; it holds whatever the quantiles are, trained
for the level asked for or for another. Quantiles that cross are put in order row by row, which
treats calibration and new points alike and so keeps it. A negative radius can empty an interval;
a single point is then returned, which loses no coverage.

References: Romano, Patterson, Candès (2019), "Conformalized quantile regression",
arXiv:1905.03222 (plain, and asymmetric in Theorem 2). Kivaranovic, Johnson, Leeb (2020),
"Adaptive, distribution-free prediction intervals for deep networks", arXiv:1905.10634 (CQR-m).
Sesia, Candès (2020), "A comparison of some conformal quantile regression methods",
doi:10.1002/sta4.261 (CQR-r).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from calliper._types import FloatArray
from calliper._validation import check_option, check_size, check_vector
from calliper.declarations import About
from calliper.exceptions import CalliperError, QuantileCrossingWarning, ZeroScaleWarning, warn
from calliper.quantile import above, below, multiple, not_below

__all__ = [
    "AbsoluteError",
    "DistributionError",
    "JointError",
    "QuantileError",
    "ScaledError",
    "Score",
    "SignedError",
]

#: What :class:`QuantileError` offers.
VARIANTS = ("plain", "ratio", "median", "asymmetric")
#: The mean of q(z), z normal, is a sum of these (Gauss and Hermite).
MEAN_NODES, MEAN_WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
MEAN_WEIGHTS /= MEAN_WEIGHTS.sum()
#: As far out as a target can be in normal units: as good as infinite, and sums of it are numbers.
AS_GOOD_AS_INFINITE = 2.0**200


class Score(BaseEstimator, ABC):  # type: ignore[misc]
    """A nonconformity score: how wrong a prediction is, and which targets score no higher.

    Attributes
    ----------
    n_tails : radii of an interval; two where each side of the prediction has its own
    n_outputs : predictions a row
    units : (k,) sizes of usual errors of k targets, or None
    has_sides : whether ``signed`` tells on which side of the prediction a target lies
    has_distribution : whether ``target_at`` is the inverse of ``signed``, so that there is one
    about : what people choose it by, where it makes a method of its own
    cli : its names on the command line, each with the parameters that it stands for

    Examples
    --------
    >>> isinstance(AbsoluteError(), Score), AbsoluteError().n_tails
    (True, 1)
    """

    n_tails: Any = 1
    n_outputs: Any = 1
    units: Any = None
    has_sides = False
    has_distribution = False
    about: About | None = None
    cli: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The score of each row, (n,), or of each tail, (n, 2); by default ``|signed|``."""
        return np.abs(self.signed(y, y_pred))

    def magnitude(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The size of the error that local scales are averaged from, (n,)."""
        return np.abs(self.signed(y, y_pred))

    @abstractmethod
    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The targets whose score is at most ``radius``: both ends."""

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """One central number for each row's predictions."""
        return y_pred

    def signed(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The score with the sign of the error, (n,); it grows with y."""
        raise NotImplementedError

    def target_at(self, y_pred: FloatArray, signed: FloatArray) -> FloatArray:
        """The target with this signed score."""
        raise NotImplementedError


def as_score(score: Any) -> Score:
    """The score; the absolute error for None."""
    if score is None:
        return AbsoluteError()
    if not isinstance(score, Score):
        what = "score_function must be a score such as AbsoluteError() or SignedError()"
        how = "Your own score must derive from calliper.scores.Score"
        raise TypeError(f"{what}; got {score!r}. {how}.")
    return score


def named_scores() -> dict[str, Score]:
    """Every score that has a name on the command line, by that name."""
    kinds: list[type[Score]] = [globals()[name] for name in __all__]
    return {name: kind(**how) for kind in kinds for name, how in kind.cli.items()}


class AbsoluteError(Score):
    """s = ``|y − ŷ|``; the interval is ŷ ± radius.

    >>> AbsoluteError().measure(np.array([1.0, 4.0]), np.array([2.0, 2.0]))
    array([1., 2.])
    """

    cli: ClassVar = {"absolute": {}}
    has_sides = True
    has_distribution = True

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets whose score is at most ``radius``: [ŷ − radius, ŷ + radius]."""
        return below(y_pred, radius), above(y_pred, radius)

    def signed(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The signed error, y − ŷ, from which distributions are built."""
        return y - y_pred

    def target_at(self, y_pred: FloatArray, signed: FloatArray) -> FloatArray:
        """The target with this signed error: ŷ + signed."""
        return y_pred + signed


class JointError(Score):
    """s = ``max_j |y_j − ŷ_j|/u_j`` over the targets of a row; the box is ŷ_j ± u_j·radius.

    Targets and predictions have shape (n, k).

    Parameters
    ----------
    units : (k,) the u_j > 0, such as usual errors, chosen without calibration rows

    Examples
    --------
    >>> JointError([1.0, 100.0]).measure(np.array([[3.0, 150.0]]), np.array([[2.0, 0.0]]))
    array([1.5])
    """

    has_sides = True

    def __init__(self, units: Any) -> None:
        self.units = units

    @property
    def n_outputs(self) -> int:
        """Number of predictions per row: one for each target."""
        return len(self._checked_units())

    def signed(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The largest error in units of u_j, signed, (n,)."""
        units, shape = self._checked_units(), np.shape(y)
        if shape != np.shape(y_pred) or shape[1:] != units.shape:
            raise CalliperError(
                f"JointError takes targets and predictions of shape (n, {len(units)}), one column "
                f"for each unit; got {shape} and {np.shape(y_pred)}."
            )
        errors = (y - y_pred) / units
        return np.asarray(errors[np.arange(len(errors)), np.abs(errors).argmax(axis=1)])

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets whose score is at most ``radius``: ŷ_j ± u_j·radius, with a last axis of k."""
        with np.errstate(over="ignore"):  # an end that is no number is no bound
            reach = self._checked_units() * not_below(radius)[..., None]
        return below(y_pred, reach, digits=4), above(y_pred, reach, digits=4)

    def _checked_units(self) -> FloatArray:
        units = check_vector(self.units, "units")
        if not np.all(units > 0):
            raise CalliperError(f"units must be positive, one for each target; got {self.units!r}.")
        return units


class SignedError(Score):
    """How far y lies below or above ŷ: intervals with two radii, or one-sided bounds.

    The score of the upper tail is max(y − ŷ, 0), that of the lower tail max(ŷ − y, 0): a target on
    the other side scores 0, so a bound never crosses the prediction.

    Parameters
    ----------
    side : {"both", "lower", "upper"}
        ``"both"``: [ŷ − r_lower, ŷ + r_upper], each tail calibrated at 1 − α/2, so that by the
        union bound a method with guarantee 1 − α keeps it. ``"lower"``: [ŷ − r, ∞), ``"upper"``:
        (−∞, ŷ + r], with the guarantee of the method as it is.

    Examples
    --------
    >>> SignedError("upper").measure(np.array([1.0, 5.0]), np.array([2.0, 2.0]))
    array([0., 3.])
    """

    cli: ClassVar = {"signed": {}, "lower": {"side": "lower"}, "upper": {"side": "upper"}}

    def __init__(self, side: str = "both") -> None:
        self.side = side

    @property
    def n_tails(self) -> int:
        """Number of radii: 2 for ``"both"``, 1 for a bound."""
        return 2 if self._checked_side() == "both" else 1

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """Positive part of the error on each side: (n, 2) as (lower, upper), or (n,)."""
        tails = np.maximum(y_pred - y, 0.0), np.maximum(y - y_pred, 0.0)
        side = self._checked_side()
        return np.stack(tails, axis=-1) if side == "both" else tails[int(side == "upper")]

    def magnitude(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """``|y − ŷ|``: errors on both sides say how hard a neighbourhood is."""
        return np.abs(y - y_pred)

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the targets whose score is at most ``radius`` in each tail (last axis if two)."""
        side, no_bound = self._checked_side(), np.full_like(radius, np.inf)
        down, up = (radius, no_bound) if side == "lower" else (no_bound, radius)
        if side == "both":
            down, up = radius[..., 0], radius[..., 1]
        return below(y_pred, down), above(y_pred, up)

    def _checked_side(self) -> str:
        return check_option(self.side, ("both", "lower", "upper"), "side")


class CurveError(Score):
    """How far out y lies on a curve q(z) that is predicted for each row and never falls.

    With z(y) the z of least size with q(z) = y, s = ``|z(y)|``, and the interval is [q(−radius),
    q(radius)], around the centre q(0): it holds y exactly when s is at most the radius.
    """

    has_sides = True
    has_distribution = True

    @abstractmethod
    def sides(self, y_pred: FloatArray) -> tuple[Side, Side]:
        """The curves that predictions stand for: below the centre, mirrored, and above."""

    def signed(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """z(y): negative below the centre."""
        down, up = self.sides(y_pred)
        return np.where(y < up.knots[..., 0], -down.reach(-np.asarray(y)), up.reach(y))

    def target_at(self, y_pred: FloatArray, signed: FloatArray) -> FloatArray:
        """q(z)."""
        (down, up), size = self.sides(y_pred), np.abs(signed)
        return np.where(signed < 0, -down.end(size), up.end(size))

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[q(−radius), q(radius)], rounded outward: it holds every target that scores ≤ radius."""
        down, up = self.sides(y_pred)
        return -down.end(radius, outward=True), up.end(radius, outward=True)

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """q(0)."""
        return np.asarray(self.sides(y_pred)[1].knots[..., 0])


@dataclass(eq=False, repr=False, kw_only=True)
class ScaledError(CurveError):
    """How far y lies from a centre, in separate units below and above it.

    Predictions are the centre and the two positive units of each row, (n, 3) as (centre, down,
    up): the curve is two straight lines that meet at the centre, with the units as slopes. So
    s = (centre − y)/down below the centre and (y − centre)/up above, and the interval is
    [centre − radius·down, centre + radius·up]. ``ErrorModel`` learns them from left-out errors.

    Targets may have ends, such as counts that are never below 0. A target beyond an end scores
    ``beyond`` more, so intervals stop at an end until the radius is larger than that. Coverage does
    not rest on the ends: a calibration row beyond them counts with its large score.

    Parameters
    ----------
    lowest, highest : float, default −∞ and ∞
        The ends. They must not depend on calibration rows; centres are moved between them.
    beyond : float, default 0
        What is added to the score of a target beyond an end.
    pull : float, default 0
        The unit on the side of an end is at least this part of the distance from centre to end, so
        that intervals reach ends at which many targets lie.

    Examples
    --------
    >>> rows = np.array([[2.0, 1.0, 4.0], [2.0, 1.0, 4.0]])
    >>> ScaledError().measure(np.array([1.0, 4.0]), rows)
    array([1. , 0.5])
    >>> ScaledError(lowest=0.0, beyond=100.0).invert(rows, np.array([1.0, 3.0]))
    (array([1., 0.]), array([ 6., 14.]))
    """

    n_outputs = 3

    lowest: float = -np.inf
    highest: float = np.inf
    beyond: float = 0.0
    pull: float = 0.0

    def sides(self, y_pred: FloatArray) -> tuple[Side, Side]:
        """The line on each side of the centre."""
        known = self.lowest, self.highest, self.beyond, self.pull
        numbers = all(isinstance(each, Real) for each in known)
        if not (numbers and known[0] < known[1] and 0 <= min(known[2:]) <= max(known[2:]) < np.inf):
            what = "ScaledError needs lowest < highest, and beyond and pull finite and >= 0"
            raise CalliperError(f"{what}; got {self!r}.")
        centre, units = np.clip(y_pred[..., :1], self.lowest, self.highest), y_pred[..., 1:]
        if self.pull:
            room = np.concatenate([centre - self.lowest, self.highest - centre], axis=-1)
            units = np.maximum(units, self.pull * np.where(np.isinf(room), 0.0, room))
        return sides_through(np.zeros(1), centre, units[..., 0], units[..., 1])

    def describe_ends(self) -> str:
        """Where intervals are cut off, in words; empty if targets have no limits."""
        ends = " and ".join(f"{e:g}" for e in (self.lowest, self.highest) if np.isfinite(e))
        known = f"cut off at {ends}, where targets end, except at very high levels"
        return known if ends else ""

    def signed(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """z(y), with a larger size for targets beyond an end."""
        z = super().signed(y, y_pred)
        return z + self.beyond * (np.greater(y, self.highest).astype(float) - (y < self.lowest))

    def target_at(self, y_pred: FloatArray, signed: FloatArray) -> FloatArray:
        """q(z), held at an end of the targets until z has passed ``beyond``."""
        near = super().target_at(y_pred, signed)
        further = np.sign(signed) * np.maximum(np.abs(signed) - self.beyond, 0.0)
        far = super().target_at(y_pred, further)
        below, above = np.minimum(far, self.lowest), np.maximum(far, self.highest)
        return np.asarray(np.clip(near, below, above))

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[q(−radius), q(radius)], rounded outward: it holds every target that scores ≤ radius."""
        low, high = super().invert(y_pred, radius)
        further = radius
        for _ in range(4):  # as in ``above``; scores beyond an end were rounded as sums
            further = np.nextafter(further, np.inf)
        further = np.maximum(further - self.beyond, 0.0)
        far = super().invert(y_pred, further)
        low = np.maximum(low, np.minimum(far[0], self.lowest))
        return low, np.minimum(high, np.maximum(far[1], self.highest))


class QuantileError(Score):
    """How far y lies outside the predicted quantiles, negative inside; CQR if used with ``Split``.

    Predictions are the lower and the upper quantile of each row, shape (n, 2); with
    ``variant="median"`` the median stands between them, shape (n, 3). ``QuantileModel`` trains
    one. Scores may be negative: use ``Split`` or another calibrator that takes any real score.
    ``DistributionError`` is usually better: it serves all levels, and any method.

    Parameters
    ----------
    variant : {"plain", "ratio", "median", "asymmetric"}, default "plain"
        ``"plain"`` moves both ends by the same length, ``"ratio"`` in proportion to the width
        between the quantiles, ``"median"`` each end in proportion to its distance from the
        median, ``"asymmetric"`` each end by its own length.
    offset : float, default 1e-6
        ε, added to the widths that ``"ratio"`` and ``"median"`` divide by, in the unit of y;
        positive, and chosen without looking at the calibration data.

    Examples
    --------
    >>> quantiles = np.array([[0.0, 2.0], [0.0, 4.0]])
    >>> score = QuantileError()
    >>> score.measure(np.array([2.5, 1.0]), quantiles)
    array([ 0.5, -1. ])
    >>> score.invert(quantiles, np.array([0.5, 0.5]))
    (array([-0.5, -0.5]), array([2.5, 4.5]))
    """

    about = About(
        width="that of two predicted quantiles, plus a constant",
        when="if the model can be trained for quantiles: QuantileError and Split",
        cost="a fit of each quantile; O(N log N + M)",
        needs="a model of quantiles",
        python="QuantileError and Split",
    )

    def __init__(self, variant: str = "plain", *, offset: float = 1e-6) -> None:
        self.variant = variant
        self.offset = offset

    @property
    def n_tails(self) -> int:
        """Number of radii: 2 for ``"asymmetric"``, else 1."""
        return 2 if check_option(self.variant, VARIANTS, "variant") == "asymmetric" else 1

    @property
    def n_outputs(self) -> int:
        """Number of predictions per row: two quantiles, plus the median for ``"median"``."""
        return 3 if check_option(self.variant, VARIANTS, "variant") == "median" else 2

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """Distance of y outside the quantiles: (n,), or (n, 2) as (lower, upper)."""
        tails = self._tails(y, y_pred)
        warn_if_crossed(np.asarray(y_pred))
        return tails if self.n_tails == 2 else np.asarray(tails.max(axis=-1))

    def magnitude(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The score of the worse tail, (n,); negative inside."""
        return np.asarray(self._tails(y, y_pred).max(axis=-1))

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the targets whose score is at most ``radius`` in each tail (last axis if two).

        Where there is none, the point at which the ends meet as the radius falls: the middle of
        the quantiles, or the median for ``"median"``; with two radii, the middle of the ends.
        """
        q, units = self._quantiles(y_pred)
        low, high = q[..., 0], q[..., -1]
        radii = not_below(radius if self.n_tails == 2 else np.stack([radius] * 2, axis=-1))
        digits = 4 if self.variant in ("ratio", "median") else 1
        with np.errstate(over="ignore", invalid="ignore"):  # an end that is no number is no bound
            reach = units * radii
            lower = below(low, reach[..., 0], digits=digits)
            upper = above(high, reach[..., 1], digits=digits)
            meeting = (lower + upper) / 2
            if self.n_tails == 1:
                meeting = low + units[..., 0] / units.sum(axis=-1) * (high - low)
        meeting = np.where(np.isfinite(meeting), meeting, (low + high) / 2)
        empty = lower > upper
        return np.where(empty, meeting, lower), np.where(empty, meeting, upper)

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """One number per row: the median if it is predicted, else the middle of the quantiles."""
        q, _ = self._quantiles(y_pred)
        return np.asarray(q[..., 1] if self.n_outputs == 3 else (q[..., 0] + q[..., 1]) / 2)

    def _tails(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        q, units = self._quantiles(y_pred)
        return np.asarray(np.stack([q[..., 0] - y, y - q[..., -1]], axis=-1) / units)

    def _quantiles(self, y_pred: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Quantiles in order, (…, n_outputs), and the unit in which each end moves, (…, 2)."""
        q, expected = np.asarray(y_pred, dtype=np.float64), self.n_outputs
        if q.ndim < 2 or q.shape[-1] != expected:
            columns = "lower, median and upper" if expected == 3 else "lower and upper"
            what = f"QuantileError({self.variant!r}) takes {columns} quantiles as predictions"
            how = "QuantileModel(estimator, probabilities) predicts them"
            raise CalliperError(f"{what}, shape (n, {expected}); got shape {q.shape}. {how}.")
        q = np.sort(q, axis=-1)
        if self.variant not in ("ratio", "median"):
            return q, np.ones((*q.shape[:-1], 2))
        offset = check_size(self.offset, "offset")
        if offset == 0:
            raise ValueError("offset must be positive: quantiles that coincide have no width.")
        return q, np.broadcast_to(np.diff(q, axis=-1) + offset, (*q.shape[:-1], 2))


class DistributionError(CurveError):
    """A score: how far y lies from the centre of its predicted distribution, as a normal z-score.

    Predictions are quantiles of each row, (n, K). With z_k = Φ⁻¹(p_k), q(z) is the piecewise linear
    curve through (z_k, q_k), z(y) the z of least size with q(z) = y, and s = ``|z(y)|``; the
    interval is [q(−radius), q(radius)]. One calibration serves all levels, and intervals are nested
    in the level. An atom, where many quantiles are equal, scores the least z of its flat piece, and
    ties as equal errors do. Beyond the outermost quantiles the curve goes on with the slope of its
    last piece, and with no less than half of its mean slope, itself moved a quarter of the way to
    ``slope``: end pieces of forests are flat. Where all quantiles of a row are equal and ``slope``
    is not known, only an infinite interval holds any other target.

    Reference: Chernozhukov, Wüthrich, Zhu (2021), "Distributional conformal prediction",
    arXiv:1909.07889; in normal units, so that scores can be rescaled.

    Parameters
    ----------
    probabilities : (K,) the p_k between 0 and 1 of the columns, two or more, all different
    slope : float, optional
        The usual slope of q(z), which is about a standard deviation, in the unit of y. It must not
        depend on calibration rows; by default it is that of training rows, where they are known.

    Examples
    --------
    >>> score = DistributionError([0.1, 0.5, 0.9])
    >>> quantiles = np.array([[0.0, 1.0, 4.0], [0.0, 1.0, 4.0]])
    >>> score.signed(np.array([4.0, 0.0]), quantiles).round(3)
    array([ 1.282, -1.282])
    >>> [end.round(3) for end in score.invert(quantiles, np.array([1.0, 3.0]))]
    [array([ 0.22 , -1.341]), array([3.341, 8.023])]
    """

    def __init__(self, probabilities: Any, *, slope: float | None = None) -> None:
        self.probabilities = probabilities
        self.slope = slope

    @property
    def n_outputs(self) -> int:
        """Number of predictions per row: one for each probability."""
        return len(self._checked()[0])

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The score ``|z(y)|``, (n,)."""
        warn_if_crossed(np.asarray(y_pred)[..., np.argsort(self._checked()[0])])
        size = self.magnitude(y, y_pred)
        n = int(np.count_nonzero(size >= AS_GOOD_AS_INFINITE))
        if n:
            warn(
                f"At {n} of {len(size)} points, all predicted quantiles are equal and the target "
                "differs from them, so only an infinite interval contains it. Pass X_train and "
                "y_train, or set slope= of the score to about the standard deviation of a target.",
                ZeroScaleWarning,
            )
        return size

    def mean_and_ends(self, y_pred: FloatArray) -> FloatArray:
        """(3, n) the mean of each curve and its 5 % and 95 % quantiles, none of them NaN."""
        most = np.finfo(np.float64).max
        y_pred = np.asarray(y_pred)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            # By rows: a matrix product rounds a row differently in another batch.
            mean = (self.target_at(y_pred, MEAN_NODES) * MEAN_WEIGHTS).sum(axis=-1)
            low, high = self.target_at(y_pred, ndtri([0.05, 0.95])).T
        mean = np.where(np.isnan(mean), self.centre(y_pred)[:, 0], mean)
        return np.asarray(np.clip([mean, low, high], -most, most))

    def mean_slope(self, y_pred: FloatArray) -> FloatArray:
        """(q_K − q_1)/(z_K − z_1) of each row."""
        p, _ = self._checked()
        with np.errstate(over="ignore"):
            return np.asarray(np.ptp(y_pred, axis=-1) / np.ptp(ndtri(p)))

    def sides(self, y_pred: FloatArray) -> tuple[Side, Side]:
        """The curves through the quantiles, continued beyond the outermost ones."""
        p, slope = self._checked()
        q = np.asarray(y_pred, dtype=np.float64)
        if q.ndim < 2 or q.shape[-1] != len(p):
            what = f"DistributionError takes {len(p)} quantiles as predictions"
            each = f"one for each probability, shape (n, {len(p)})"
            raise CalliperError(f"{what}, {each}; got shape {q.shape}.")
        q, z = np.sort(q, axis=-1), ndtri(np.sort(p))
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.mean_slope(q)
            least = mean / 2 if slope is None else (3 * mean + slope) / 8
            first = np.maximum((q[..., 1] - q[..., 0]) / (z[1] - z[0]), least)
            last = np.maximum((q[..., -1] - q[..., -2]) / (z[-1] - z[-2]), least)
        return sides_through(z, q, first, last, farthest=AS_GOOD_AS_INFINITE)

    def _checked(self) -> tuple[FloatArray, float | None]:
        """Probabilities as they came, (K,), and the usual slope."""
        p = check_vector(self.probabilities, "probabilities")
        if len(p) < 2 or not np.all((p > 0) & (p < 1)) or len(np.unique(ndtri(p))) < len(p):
            hint = " If these are percentages, divide by 100." if min(p, default=0) >= 1 else ""
            raise CalliperError(
                f"probabilities must be two or more different numbers between 0 and 1, one for "
                f"each predicted quantile; got {self.probabilities!r}.{hint}"
            )
        if self.slope is not None and not 0 < float(self.slope) <= 1e300:
            raise CalliperError(f"slope must be None, or from 0 to 1e300; got {self.slope!r}.")
        return p, self.slope and float(self.slope)


def sides_through(
    heights: FloatArray,
    knots: FloatArray,
    first: FloatArray,
    last: FloatArray,
    farthest: float = np.inf,
) -> tuple[Side, Side]:
    """Both sides of curves with knots (…, K) at heights z_k, (K,) and increasing.

    They are straight between knots, and beyond the outermost ones with slopes ``first`` and
    ``last``, (…,). No target is further out than at the height ``farthest``.
    """
    index = int(np.searchsorted(heights, 0.0))
    if index == len(heights) or heights[index] != 0:  # a knot at the centre parts the sides
        before = max(index - 1, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = np.diff(knots, axis=-1) / np.diff(heights)
            steps = np.concatenate([first[..., None], pieces, last[..., None]], axis=-1)
            middle = knots[..., before] - steps[..., index] * heights[before]
        if index < len(heights):  # rounding may carry it over a knot
            middle = np.minimum(middle, knots[..., index])
        if index:
            middle = np.maximum(middle, knots[..., before])
        knots, heights = np.insert(knots, index, middle, -1), np.insert(heights, index, 0.0)
    down = Side(-knots[..., index::-1], -heights[index::-1], first, farthest)
    return down, Side(knots[..., index:], heights[index:], last, farthest)


class Side:
    """The curve of each row from its centre outward: knots (…, J) at heights (J,), from 0 on.

    Beyond the last of them it has the slope ``last``, up to a knot at infinity.
    """

    def __init__(
        self, knots: FloatArray, heights: FloatArray, last: FloatArray, farthest: float
    ) -> None:
        with np.errstate(over="ignore"):
            slopes = np.diff(knots, axis=-1) / np.diff(heights)
        self.slopes = np.concatenate([slopes, last[..., None]], axis=-1)
        self.knots = np.concatenate([knots, np.full_like(knots[..., :1], np.inf)], axis=-1)
        self.heights = np.append(heights, farthest)

    def reach(self, y: FloatArray) -> FloatArray:
        """The least height at which the curve is at y; 0 for y before the centre."""
        y = np.asarray(y, dtype=np.float64)
        piece = np.count_nonzero(self.knots[..., 1:] < y[..., None], axis=-1)
        start, slope, behind = self._piece(piece)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            further = np.maximum((y - start) / slope, np.nextafter(0.0, 1.0))  # 0 is for start
        further = np.where((y > start) & (slope < np.inf), further, 0.0)
        limit = self.heights[piece + 1]
        height = np.minimum(self.heights[piece] + further, limit)
        return np.asarray(np.where((y > start) & (y == behind), limit, height))

    def end(self, height: FloatArray, *, outward: bool = False) -> FloatArray:
        """The curve at a height; rounded outward, no y whose ``reach`` is the height lies beyond.

        Beyond the first knot a reach was rounded as a sum, by less than a last digit; the rest is
        as :func:`above` says, with one digit more for the difference.
        """
        piece = np.searchsorted(self.heights[1:-1], height, side="right")
        start, slope, behind = self._piece(piece)
        with np.errstate(over="ignore", invalid="ignore"):
            if outward:
                height = np.where(piece > 0, np.nextafter(height, np.inf), height)
            move = multiple(not_below(height - self.heights[piece]), slope)
            end = above(start, move, digits=5) if outward else start + move
        # Local scales divide scores: a radius that comes from one as good as infinite is smaller.
        infinite = height >= np.sqrt(self.heights[-1])
        return np.where(infinite, np.inf, np.minimum(end, behind))

    def _piece(self, piece: Any) -> tuple[Any, ...]:
        """Start and slope of pieces by number, and where the next begins."""
        every = self.knots, self.slopes, self.knots[..., 1:]
        if len(self.heights) == 2:
            return tuple(each[..., 0] for each in every)
        number = piece.reshape(*[1] * (self.knots.ndim - 1 - piece.ndim), *piece.shape, 1)
        return tuple(np.take_along_axis(each, number, -1)[..., 0] for each in every)


def warn_if_crossed(y_pred: FloatArray) -> None:
    """One warning that counts the rows whose quantiles are out of order."""
    gaps = (steps := np.diff(y_pred, axis=-1)).min(axis=-1)
    n_crossed = int(np.count_nonzero(gaps < 0))
    if n_crossed:
        of = "quantile models that overfit; regularise them or train on more rows"
        if (steps < 0).reshape(-1, steps.shape[-1]).mean(axis=0).max() > 0.9:  # the same two
            of = "models or probabilities that are swapped, or in another order than you think"
        what = f"Predicted quantiles cross at {n_crossed} of {gaps.size} rows"
        why = f"by up to {-gaps.min():.3g}: they are sorted, and the guarantee holds"
        warn(f"{what}, {why}. This suggests {of}.", QuantileCrossingWarning)
