"""Conformalised quantile regression: the error of an interval that a model already predicts.

A model of two quantiles proposes an interval for each input, narrow where it believes the target
is certain. Its error is how far y lies outside; inside it is negative. The Q-th smallest error,
Q = ⌈(1−α)(N+1)⌉, then moves both ends outwards, or inwards if the model was too careful:

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

import warnings

import numpy as np
from sklearn.base import BaseEstimator

from calliper._types import FloatArray
from calliper._validation import check_offset
from calliper.exceptions import CalliperError

VARIANTS = ("plain", "ratio", "median", "asymmetric")


class QuantileCrossingWarning(UserWarning):
    """A predicted lower quantile lies above an upper one; they were put in order."""


class QuantileError(BaseEstimator):  # type: ignore[misc]
    """How far y lies outside the predicted quantiles, negative inside: with ``Split``, CQR.

    Predictions are the lower and the upper quantile of each row, shape (n, 2); with
    ``variant="median"`` the median stands between them, shape (n, 3). ``QuantilePair`` trains such
    a model. Scores may be negative, so methods that rescale them refuse; use ``Split`` or another
    calibrator that takes any real score.

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

    def __init__(self, variant: str = "plain", *, offset: float = 1e-6) -> None:
        self.variant = variant
        self.offset = offset

    @property
    def n_tails(self) -> int:
        """Two radii for ``"asymmetric"``, else one."""
        return 2 if self._checked_variant() == "asymmetric" else 1

    @property
    def n_outputs(self) -> int:
        """Predictions a row: two quantiles, and the median between them for ``"median"``."""
        return 3 if self._checked_variant() == "median" else 2

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """Distance of y outside the quantiles: (n,), or (n, 2) as (lower, upper)."""
        tails = self._tails(y, y_pred)
        _warn_if_crossed(np.asarray(y_pred))
        return tails if self.n_tails == 2 else np.asarray(tails.max(axis=-1))

    def magnitude(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The score of the worse tail, (n,); negative inside."""
        return np.asarray(self._tails(y, y_pred).max(axis=-1))

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets whose score is at most ``radius`` in every tail (last axis, for two).

        Where there is none, the point at which the ends meet as the radius falls: the middle of
        the quantiles, or the median for ``"median"``; with two radii, the middle of the ends.
        """
        low, high, below, above = self._quantiles(y_pred)
        two = self.n_tails == 2
        down, up = (radius[..., 0], radius[..., 1]) if two else (radius, radius)
        lower, upper = low - below * down, high + above * up
        with np.errstate(invalid="ignore"):
            meeting = (lower + upper) / 2 if two else low + below / (below + above) * (high - low)
        meeting = np.where(np.isfinite(meeting), meeting, (low + high) / 2)
        empty = lower > upper
        return np.where(empty, meeting, lower), np.where(empty, meeting, upper)

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """One number a row: the median if it is predicted, else the middle of the quantiles."""
        if self.n_outputs == 3:
            return np.asarray(self._ordered(y_pred)[..., 1])
        low, high, _, _ = self._quantiles(y_pred)
        return np.asarray((low + high) / 2)

    def _tails(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        low, high, below, above = self._quantiles(y_pred)
        return np.stack([(low - y) / below, (y - high) / above], axis=-1)

    def _quantiles(self, y_pred: FloatArray) -> tuple[FloatArray, ...]:
        """Lower and upper quantile, and the unit in which each end moves."""
        ordered = self._ordered(y_pred)
        low, high = ordered[..., 0], ordered[..., -1]
        if self.variant == "median":
            median, offset = ordered[..., 1], self._checked_offset()
            return low, high, median - low + offset, high - median + offset
        if self.variant == "ratio":
            width = high - low + self._checked_offset()
            return low, high, width, width
        return low, high, np.ones_like(low), np.ones_like(high)

    def _ordered(self, y_pred: FloatArray) -> FloatArray:
        outputs, expected = np.asarray(y_pred, dtype=np.float64), self.n_outputs
        if outputs.ndim < 2 or outputs.shape[-1] != expected:
            columns = "lower, median and upper" if expected == 3 else "lower and upper"
            raise CalliperError(
                f"QuantileError({self.variant!r}) takes {columns} quantiles as predictions, shape "
                f"(n, {expected}); got shape {outputs.shape}. QuantilePair(estimator"
                f"{', median=True' if expected == 3 else ''}) predicts them."
            )
        return np.sort(outputs, axis=-1)

    def _checked_variant(self) -> str:
        if self.variant not in VARIANTS:
            names = ", ".join(repr(name) for name in VARIANTS)
            raise ValueError(f"variant must be one of {names}; got {self.variant!r}.")
        return self.variant

    def _checked_offset(self) -> float:
        offset = check_offset(self.offset)
        if offset == 0:
            raise ValueError("offset must be positive: quantiles that coincide have no width.")
        return offset


def _warn_if_crossed(y_pred: FloatArray) -> None:
    """One warning that counts the rows whose quantiles are out of order."""
    gaps = np.diff(y_pred, axis=-1).min(axis=-1)
    n_crossed = int(np.count_nonzero(gaps < 0))
    if n_crossed:
        warnings.warn(
            f"Predicted quantiles cross at {n_crossed} of {gaps.size} calibration points, by up to "
            f"{-gaps.min():.3g}: they are put in order, which keeps the guarantee. Crossing is a "
            f"sign of quantile models that overfit; regularise them or train on more rows.",
            QuantileCrossingWarning,
            stacklevel=3,
        )
