"""Scores: how wrong a prediction is, beside the inverse that turns a radius into an interval.

``measure(y, y_pred)`` and ``invert(y_pred, radius)`` belong together: y lies in
``invert(y_pred, r)`` exactly when ``measure(y, y_pred) <= r``. A score of two tails has two
columns; each tail is calibrated on its own at level 1 − α/2, and a union bound gives 1 − α.
``magnitude`` is the size of the error that local scales are averaged from.

A score that takes several predictions a row says how many in ``n_outputs`` (one if it does not
say) and gives the one number between them in ``centre(y_pred)``. Predictions may carry an axis of
levels before the last: (m, 1, n_outputs) against a radius of shape (m, L).
"""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from calliper._types import FloatArray
from calliper.quantile_scores import QuantileCrossingWarning, QuantileError

__all__ = ["AbsoluteError", "QuantileCrossingWarning", "QuantileError", "SignedError"]


class AbsoluteError(BaseEstimator):  # type: ignore[misc]
    """s = |y − ŷ|; the interval is ŷ ± radius.

    >>> AbsoluteError().measure(np.array([1.0, 4.0]), np.array([2.0, 2.0]))
    array([1., 2.])
    """

    n_tails = 1

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """|y − ŷ|, shape (n,)."""
        return np.abs(y - y_pred)

    def magnitude(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """The score itself."""
        return np.abs(y - y_pred)

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets whose score is at most ``radius``: [ŷ − radius, ŷ + radius]."""
        return below(y_pred, radius), above(y_pred, radius)


class SignedError(BaseEstimator):  # type: ignore[misc]
    """How far y lies below or above ŷ: intervals with two radii, or one-sided bounds.

    The score of the upper tail is max(y − ŷ, 0), that of the lower tail max(ŷ − y, 0). A target
    on the other side scores 0, so a bound never crosses the prediction.

    Parameters
    ----------
    side : {"both", "lower", "upper"}
        ``"both"``: [ŷ − r_lower, ŷ + r_upper], each tail calibrated at 1 − α/2, so that a method
        with guarantee 1 − α covers with probability at least 1 − α by the union bound (and one
        with 1 − 2α at least 1 − 2α). ``"lower"``: [ŷ − r, ∞). ``"upper"``: (−∞, ŷ + r]. The
        one-sided bounds carry the guarantee of the method as it is.
    """

    def __init__(self, side: str = "both") -> None:
        self.side = side

    @property
    def n_tails(self) -> int:
        """Two radii for ``"both"``, one for a bound."""
        return 2 if self._checked_side() == "both" else 1

    def measure(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """Positive part of the error on each side: (n, 2) as (lower, upper), or (n,)."""
        below, above = np.maximum(y_pred - y, 0.0), np.maximum(y - y_pred, 0.0)
        side = self._checked_side()
        if side == "both":
            return np.stack([below, above], axis=-1)
        return below if side == "lower" else above

    def magnitude(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """|y − ŷ|: errors on both sides say how hard a neighbourhood is."""
        return np.abs(y - y_pred)

    def invert(self, y_pred: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets whose score is at most ``radius`` in every tail (last axis, for two)."""
        side = self._checked_side()
        if side == "both":
            return below(y_pred, radius[..., 0]), above(y_pred, radius[..., 1])
        unbounded = np.full_like(y_pred - radius, np.inf)
        if side == "lower":
            return below(y_pred, radius), unbounded
        return -unbounded, above(y_pred, radius)

    def _checked_side(self) -> str:
        if self.side not in ("both", "lower", "upper"):
            raise ValueError(f"side must be 'both', 'lower' or 'upper'; got {self.side!r}.")
        return self.side


def below(y_pred: FloatArray, radius: FloatArray) -> FloatArray:
    """ŷ − radius, a last digit further: no target whose measured error is the radius falls out.

    Both the error of a target and the end of the interval are rounded, each by up to half a digit
    of the larger of ŷ and the radius.
    """
    return y_pred - radius - _last_digit(y_pred, radius)


def above(y_pred: FloatArray, radius: FloatArray) -> FloatArray:
    """ŷ + radius, a last digit further; see :func:`below`."""
    return y_pred + radius + _last_digit(y_pred, radius)


def _last_digit(y_pred: FloatArray, radius: FloatArray) -> FloatArray:
    size = np.abs(y_pred) + np.abs(radius)
    exact = ~np.isfinite(size) | (radius == 0)
    return np.where(exact, 0.0, np.spacing(np.where(exact, 1.0, size)))
