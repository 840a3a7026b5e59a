"""Conditional calibration: coverage that holds for groups, or any reweighting by a basis.

Split conformal compares a new score with one quantile of the others. Here the quantile is a
function of the input, linear in a basis Φ and fitted to all N+1 scores, the new one among them;
the new score is accepted unless a best fit passes below it. The largest accepted is the radius:

    ĝ_S = argmin_{g ∈ span Φ} Σ_i ℓ_{1−α}(s_i − g(X_i)) + ℓ_{1−α}(S − g(x)),
    Δ(x) = sup{S : S ≤ ĝ_S(x) for every such ĝ_S}
         = min{g(x) : g minimises Σ_i ℓ_{1−α}(s_i − g(X_i)) − (1−α) g(x)},   +∞ if nothing does.

Letters: s → ``scores``, S → the score imputed to x, Φ → ``basis`` and a constant, which is always
in it, ℓ_c(r) = max{c r, (c−1) r}. The last line needs no search for S: a score beyond Δ(x) acts
on the fit like one at infinity, so one linear program with the new point there gives Δ(x). It is
solved at 1−α less 1e-9, so that of several fits the one lowest at x is found.

Guarantee, for exchangeable data: for every f ≥ 0 in the span of Φ, coverage is at least 1−α under
inputs reweighted by f, that is E[f(x) 1{s ≤ Δ(x)}] ≥ (1−α) E[f(x)]; without ties and for
independent draws at most p/(N+1) · E[max_i f(X_i)]/E[f(x)] more, p the dimension of the span. f = 1
is marginal coverage; f the indicator of a group is coverage within the group. Where the calibration
points cannot speak for x (a group not among them, an input far outside), Δ(x) is infinite.

The paper's randomised cutoff, which covers exactly 1−α, and its kernel classes are not offered.
The authors' package ``conditionalconformal`` (0.0.5) is compared with in the tests but not used:
its exact search fails under recent versions of NumPy; its bisection ends at twice the largest
score, where only infinity is valid; below a level of 0.5 it takes the lower end of the set; and an
input outside the span of the calibration points is projected into it.

Cost: O(N p² + p³) to fit and for each level and distinct new row of the basis, and for these about
p edges of O(N (p + log N)).

Reference: Gibbs, Cherian, Candès (2025), "Conformal prediction with conditional guarantees",
JRSS B, doi:10.1093/jrsssb/qkaf008, arXiv:2305.12616, Theorem 2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import (
    check_calibration,
    check_features,
    check_levels,
    check_new_features,
    each_level,
    like_coverage,
    warn_if_too_few,
)
from calliper.calibrators._conditional_descent import (
    TooManyEdgesError,
    any_vertex,
    lowest_vertex,
    weights_on,
)
from calliper.calibrators._conditional_span import Span
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.guarantees import ASSUMPTIONS, Guarantee
from calliper.quantile import conformal_rank, power_of_two

#: How far below the level the new point pulls, which settles ties in favour of the lower fit.
BELOW = 1e-9


class ConditionalCalibration(BaseEstimator):  # type: ignore[misc]
    """Coverage 1 − α under every reweighting of inputs by a basis; takes any real score.

    Parameters
    ----------
    basis : callable, optional
        From features (m, d) to columns (m, k), such as indicators of groups, which may overlap;
        fixed without the calibration points. A constant is added always. By default the features
        themselves: the radius is linear in them but for the pull of each new point.

    Attributes
    ----------
    n_dimensions_ : p, dimensions of the span on the calibration points, the constant included
    n_calibration_ : N

    Notes
    -----
    Each level is its own regression: with few points, radii at different levels may cross.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> ConditionalCalibration().fit(Z, errors).predict_radius([[0.1], [0.9]]).round(2)
    array([0.15, 1.43])
    >>> halves = ConditionalCalibration(basis=lambda Z: Z > 0.5).fit(Z, errors)
    >>> halves.predict_radius([[0.1], [0.4], [0.9]]).round(2)
    array([0.45, 0.45, 1.25])
    >>> halves.guaranteed_coverage(0.9)
    0.9
    """

    needs: tuple[str, ...] = ()
    judges_nearness = True
    uses_left_out = False

    def __init__(self, *, basis: Callable[[Any], Any] | None = None) -> None:
        self.basis = basis

    def fit(self, Z: Any, scores: Any) -> Self:
        """Evaluate the basis at the calibration points.

        Parameters
        ----------
        Z : (N, d) features
        scores : (N,)
        """
        Z, scores = check_calibration(self, Z, scores)
        self.basis_ = self.basis
        columns = _columns(self.basis_, Z)
        self.span_ = Span(columns)
        self._design = self.span_.coordinates(columns)[0]
        self.n_dimensions_ = self._design.shape[1]
        self._unit = power_of_two(scores)
        self._scores = scores / self._unit
        self._vertices: dict[float, IntArray] = {}
        self.n_calibration_ = len(scores)
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """Δ at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, levels = check_new_features(self, Z), check_levels(coverage)
        warn_if_too_few(self.n_calibration_, levels)
        columns = _columns(self.basis_, Z)
        if columns.shape[1] != len(self.span_.centre):
            raise CalliperError(
                f"basis gave {len(self.span_.centre)} columns in fit and {columns.shape[1]} now: "
                f"fix them beforehand, for example the list of groups."
            )
        columns, place = np.unique(columns, axis=0, return_inverse=True)
        rows, inside = self.span_.coordinates(columns)
        distinct = np.full((len(rows), len(levels)), np.inf)
        for j, level in enumerate(levels):
            if conformal_rank(level, self.n_calibration_) <= self.n_calibration_:
                for i in np.flatnonzero(inside):
                    distinct[i, j] = self._cutoff(rows[i], level)
        if self._scores.min() >= 0:
            np.maximum(distinct, 0.0, out=distinct)
        radius = distinct[place.ravel()] * self._unit
        self._warn_if_infinite(radius, levels)
        _warn_if_given_up(radius)
        return like_coverage(np.where(np.isnan(radius), np.inf, radius), coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved coverage at a level, or at each of several, marginal and for each f."""
        check_is_fitted(self)
        return each_level(_proved, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved, n = float(self.guaranteed_coverage(coverage)), self.n_calibration_
        if proved == 1:
            return Guarantee("ConditionalCalibration", coverage, n, proved)
        what = "the features" if self.basis_ is None else "the basis"
        note = (
            f"a new target lies in its interval with probability at least {coverage:g}, over all "
            f"inputs and under every reweighting of them by a non-negative combination of a "
            f"constant and {what} (within a group, if its indicator is one), provided that "
            f"{'; and '.join(ASSUMPTIONS)}. This probability averages over draws of the {n} "
            f"calibration points; it promises nothing for one given input. With these very "
            f"calibration points coverage may be lower or higher; no bound on that is known for "
            f"this method."
        )
        return Guarantee("ConditionalCalibration", coverage, n, proved, note=note)

    def _cutoff(self, row: FloatArray, level: float) -> float:
        """Δ in units of the scores kept, a little enlarged so that rounding excludes no tie.

        NaN if the search for it was given up.
        """
        pull = (level - BELOW) * row
        start = self._calibration_vertex(level)
        try:
            vertex = lowest_vertex(self._design, self._scores, level, pull, start)
        except TooManyEdgesError:
            return np.nan
        if vertex is None:
            return np.inf
        terms = weights_on(self._design[vertex], row[None])[0] * self._scores[vertex]
        return float(terms.sum() + 1e-11 * np.abs(terms).sum())

    def _calibration_vertex(self, level: float) -> IntArray:
        """The fit to the calibration points alone, where every new point's descent starts."""
        if level not in self._vertices:
            nothing, start = np.zeros(self.n_dimensions_), any_vertex(self._design)
            try:
                vertex = lowest_vertex(self._design, self._scores, level, nothing, start)
            except TooManyEdgesError:  # any start will do
                vertex = None
            self._vertices[level] = start if vertex is None else vertex
        return self._vertices[level]

    def _warn_if_infinite(self, radius: FloatArray, levels: tuple[float, ...]) -> None:
        n = self.n_calibration_
        for level, column in zip(levels, radius.T, strict=True):
            infinite = int(np.isinf(column).sum())
            if infinite and conformal_rank(level, n) <= n:
                warnings.warn(
                    f"At {infinite} of {len(column)} new rows the {n} calibration points cannot "
                    f"support coverage {level:g} over {self.n_dimensions_} dimensions of the "
                    f"basis: the only valid interval there is infinite. Use fewer columns or more "
                    f"points, and have each group among them.",
                    SmallCalibrationWarning,
                    stacklevel=3,
                )
                return


def _warn_if_given_up(radius: FloatArray) -> None:
    given_up = int(np.isnan(radius).any(axis=1).sum())
    if given_up:
        warnings.warn(
            f"At {given_up} of {len(radius)} new rows the search was given up, lost in rounding: "
            f"the interval there is infinite, which is valid but not the smallest. Columns of the "
            f"basis that are almost combinations of others? Leave them out.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _proved(coverage: float, n: int) -> float:
    return 1.0 if conformal_rank(coverage, n) > n else coverage


def _columns(basis: Callable[[Any], Any] | None, Z: FloatArray) -> FloatArray:
    """The basis at each row, (m, k)."""
    if basis is None:
        return Z
    if not callable(basis):
        raise TypeError(f"basis must be a function of the features or None; got {basis!r}.")
    columns = np.asarray(basis(Z))
    if columns.ndim != 2 or len(columns) != len(Z):
        raise CalliperError(
            f"basis must give one row of columns for each of {len(Z)} rows, shape ({len(Z)}, k); "
            f"got shape {columns.shape}."
        )
    return check_features(columns, "basis(Z)")
