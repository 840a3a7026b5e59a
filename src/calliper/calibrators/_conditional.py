"""Conditional calibration: coverage that holds for groups, or under any reweighting by a basis.

The quantile that a new score is compared with is a function of the input, linear in a basis Φ and
fitted to all N+1 scores, the new one included. The new score is accepted unless a best fit passes
below it; the largest accepted one is the radius:

    ĝ_S = argmin_{g ∈ span Φ} Σ_i ℓ_{1−α}(s_i − g(X_i)) + ℓ_{1−α}(S − g(x)),
    Δ(x) = sup{S : S ≤ ĝ_S(x) for every such ĝ_S}
         = min{g(x) : g minimises Σ_i ℓ_{1−α}(s_i − g(X_i)) − (1−α) g(x)},   +∞ if nothing does.

Letters: s → ``scores``, S → the score imputed to x, Φ → ``basis`` and a constant, ℓ_c(r) = max{c r,
(c−1) r}. A score beyond Δ(x) acts on the fit like one at infinity, so one linear program gives
Δ(x), solved at 1−α less 1e-9, so that of several fits the one lowest at x is found.

Guarantee, for exchangeable data: for every f ≥ 0 in the span of Φ, coverage is at least 1−α under
inputs reweighted by f, that is E[f(x) 1{s ≤ Δ(x)}] ≥ (1−α) E[f(x)]; without ties and for
independent draws at most p/(N+1) · E[max_i f(X_i)]/E[f(x)] more, p the dimension of the span. f = 1
is marginal coverage, the indicator of a group coverage within it. Where the calibration rows say
nothing about x (a group not among them, an input far outside), Δ(x) is infinite.

It is solved by descent along edges. A vertex is a fit β through p of the N scores; 2p edges lead
from it, each letting go of one score. The objective

    F(β) = Σ_i ℓ(s_i − Φ_iᵀβ) − bᵀβ,    b = (1−α) Φ(x) → ``pull``,  c = 1−α → ``level``,

is convex and linear between scores: the steepest edge, followed to its lowest point, leads to a
better vertex, and a vertex without a falling edge is a minimum. An edge falls where the multiplier
of its score leaves [c − 1, c]. Every new point starts from the minimum for b = 0.

A fit is written as W s_V, with s_V the scores on the vertex and W = Φ Φ_V⁻¹, so that small scores
of one group are never differences of the large ones of another. Against ties each score counts as
moved by its own infinitesimal, s + εu: residuals are pairs, whose second part decides where the
first is zero up to rounding.

References: Gibbs, Cherian, Candès (2025), "Conformal prediction with conditional guarantees", JRSS
B, doi:10.1093/jrsssb/qkaf008, arXiv:2305.12616, Theorem 2. Barrodale, Roberts (1973), "An improved
algorithm for discrete l1 linear approximation", doi:10.1137/0710069 (descent).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.linalg import qr
from sklearn.exceptions import ConvergenceWarning

from calliper import _validation as valid
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.calibrators._calibrator import MOST_LEVELS, Calibrator
from calliper.declarations import About
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.quantile import Shares, conformal_rank, power_of_two
from calliper.rows import Rows

#: How far below the level the new point pulls, which settles ties in favour of the lower fit.
BELOW = 1e-9
#: Ratio of the largest to the smallest score beyond which sums and comparisons lose the smallest.
LARGEST_SPAN = 1e300
#: Directions in which calibration rows differ by less, in relation to the others, are none.
LEAST_DIRECTION = 1e-9
#: What a residual may be wrong by, in relation to the terms that it is the difference of.
RESIDUAL_ROUNDING = 1e-13
#: Weights on a score that are zero up to rounding; those of a row sum to 1.
NO_WEIGHT = 1e-12
#: How far a multiplier may leave its range by rounding.
SLACK = 1e-10
#: Edges after which descent is taken to be lost in rounding; a few for each column are usual.
MOST_EDGES = 1000


class ConditionalCalibration(Calibrator):
    """Coverage 1 − α under every reweighting of inputs by a basis; takes any real score.

    Each level is its own regression: with few points, radii at different levels may cross.

    Parameters
    ----------
    basis : callable, optional
        From rows, as they were passed (a frame to ``ConformalRegressor`` is a frame here), to
        columns (m, k), such as indicators of groups, which may overlap; fixed without the
        calibration rows. A constant is added always. By default the features themselves.

    Attributes
    ----------
    n_dimensions_ : p, dimensions of the span on the calibration rows, the constant included

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
    """

    about = About(
        cli="conditional",
        width="a linear function of the features; infinite far outside the data",
        when="if coverage must hold along each feature too (in Python, in each group)",
        cost="O(N d²) to fit, then about d times O(N (d² + log N)) per new row and level",
    )
    takes_inputs = True
    averages = "all inputs, or these reweighted so,"
    takes_any_score = True
    _rounded = True

    def __init__(self, *, basis: Callable[[Any], Any] | None = None) -> None:
        self.basis = basis

    def _as_rows(self, Z: Any, held: Any) -> Any:
        """The basis at each row, (m, k), if there is one."""
        basis = self.basis if held is None else self.basis_
        if basis is None:
            return super()._as_rows(Z, held)
        if not callable(basis):
            raise TypeError(f"basis must be a function of the features or None; got {basis!r}.")
        valid.refuse_sparse(Z, "Z")
        valid.refuse_no_rows(Z, "Z")
        rows, n = _array(Z, "Z") if isinstance(Z, list) else Z, valid.n_rows(Z)
        columns = _array(basis(rows), "basis(Z)")
        if columns.ndim != 2 or len(columns) != n:
            what = f"basis must return one row of values for each of {n} rows, shape ({n}, k)"
            raise CalliperError(f"{what}; got shape {columns.shape}.")
        if held is not None and columns.shape[1] != self.n_features_in_:
            raise CalliperError(
                f"basis returned {self.n_features_in_} columns in fit and {columns.shape[1]} now: "
                "it must always return the same columns, for example by a fixed list of groups."
            )
        return valid.check_features(columns, "basis(Z)")

    def restore(self, state: dict[str, Any]) -> None:
        """Fit again to the basis columns, which are what a file stores."""
        basis, self.basis = self.basis, None
        super().restore(state)
        self.basis = self.basis_ = basis

    def _learn(self, rows: Rows) -> None:
        sizes = np.abs(rows.scores[rows.scores != 0])
        if len(sizes) and sizes.max() > LARGEST_SPAN * sizes.min():
            raise CalliperError(
                f"scores from {sizes.min():.3g} to {sizes.max():.3g} in size differ too much to "
                "add in double precision. Set the smallest to 0, or use Split."
            )
        self.span_ = Span(rows.Z)
        self._design = self.span_.coordinates(rows.Z)[0]
        self.n_dimensions_ = self._design.shape[1]
        self._unit = power_of_two(rows.scores)
        self._scores = rows.scores / self._unit
        self._vertices: dict[float, IntArray | None] = {}
        self.basis_ = self.basis

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        columns, index = np.unique(Z, axis=0, return_inverse=True)
        rows, inside = self.span_.coordinates(columns)
        distinct = np.full((len(rows), len(levels)), np.inf)
        for j, level in enumerate(levels):
            for i in np.flatnonzero(inside):
                distinct[i, j] = self._cutoff(rows[i], level)
        if self._scores.min() >= 0:
            np.maximum(distinct, 0.0, out=distinct)
        radius = distinct[index.ravel()] * self._unit
        self._warn(radius, levels)
        return np.where(np.isnan(radius), np.inf, radius)

    def _proved(self, level: float) -> float:
        return 1.0 if conformal_rank(level, self.n_calibration_) > self.n_calibration_ else level

    def _note(self, level: float, proved: float) -> str | None:
        if proved == 1:
            return None
        what = "the features" if self.basis_ is None else "the basis"
        return (
            f"a new target lies in its interval with probability at least {level:g}, over all "
            f"inputs and under every reweighting of them by a non-negative combination of a "
            f"constant and {what} (within a group, if its indicator is one)."
        )

    def _cutoff(self, row: FloatArray, level: float) -> float:
        """Δ in the unit of scores, a little enlarged so as to exclude no tie; NaN if given up."""
        pull, start = (level - BELOW) * row, self._calibration_vertex(level)
        try:
            vertex = lowest_vertex(self._design, self._scores, level, pull, start)
        except ArithmeticError:
            return np.nan
        if vertex is None:
            return np.inf
        terms = weights_on(self._design[vertex], row[None])[0] * self._scores[vertex]
        return float(terms.sum() + 1e-11 * np.abs(terms).sum())

    def _calibration_vertex(self, level: float) -> IntArray | None:
        """The fit to the calibration rows alone, where every new point's descent starts."""
        known = self._vertices if len(self._vertices) < MOST_LEVELS else {}
        if level not in known:
            vertex, nothing = None, np.zeros(self.n_dimensions_)
            with suppress(ArithmeticError):  # any start will do
                vertex = lowest_vertex(self._design, self._scores, level, nothing)
            known[level] = vertex
            self._vertices = known
        return known[level]

    def _warn(self, radius: FloatArray, levels: list[float]) -> None:
        """Say of how many rows too little is known, and at how many the search was given up."""
        m, infinite = len(radius), np.isinf(radius).sum(axis=0)
        if infinite.any():
            first = int(np.argmax(infinite > 0))
            warn(
                f"At {infinite[first]} of {m} new rows the {self.n_calibration_} calibration "
                f"rows cannot support coverage {levels[first]:g} over {self.n_dimensions_} "
                "dimensions of the basis, so intervals there are infinite. Use fewer columns, or "
                "more rows with some from each group.",
                SmallCalibrationWarning,
            )
        given_up = int(np.isnan(radius).any(axis=1).sum())
        if given_up:
            warn(
                f"At {given_up} of {m} new rows the search failed because of rounding, so the "
                "interval there is infinite, which is valid but not the smallest. Leave out "
                "columns of the basis that are almost combinations of others.",
                ConvergenceWarning,
            )


def _array(rows: Any, name: str) -> Any:
    """Rows as an array; refused where they are of several lengths."""
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise CalliperError(f"rows of {name} must all be of one length: {error}.") from error


class Span:
    """Coordinates in which columns at the calibration rows have unit spread; copies add none."""

    def __init__(self, columns: FloatArray) -> None:
        self.centre = columns.mean(axis=0)
        centred = columns - self.centre
        largest = np.maximum(np.abs(columns).max(axis=0, initial=0.0), 1e-300)
        spread = np.sqrt(np.square(centred / largest).mean(axis=0)) * largest
        self.unit = np.where(spread > LEAST_DIRECTION * largest, spread, largest)
        _, sizes, axes = np.linalg.svd(centred / self.unit, full_matrices=False)
        kept = sizes > LEAST_DIRECTION * np.sqrt(len(columns))
        self.axes = axes[kept].T
        self.sizes = sizes[kept] / np.sqrt(len(columns))

    def coordinates(self, columns: FloatArray) -> tuple[FloatArray, BoolArray]:
        """A constant and p − 1 coordinates of each row, and whether they say all there is."""
        scaled = (columns - self.centre) / self.unit
        # One row at a time: products of matrices round by the number of rows.
        along = np.stack([row @ self.axes for row in scaled])
        rest = np.abs(scaled - along @ self.axes.T).max(axis=1, initial=0.0)
        inside = rest <= 1e-6 * (1 + np.abs(scaled).max(axis=1, initial=0.0))
        return np.column_stack([np.ones(len(columns)), along / self.sizes]), inside


def weights_on(vertex: FloatArray, rows: FloatArray) -> FloatArray:
    """Each row (m, p) as a combination of those of the vertex (p, p): (m, p)."""
    weights = np.asarray(np.linalg.solve(vertex.T, rows.T).T, dtype=np.float64)
    weights[np.abs(weights) <= NO_WEIGHT] = 0.0
    return weights


def lowest_vertex(
    design: FloatArray,
    scores: FloatArray,
    level: float,
    pull: FloatArray,
    start: IntArray | None = None,
) -> IntArray | None:
    """The p rows of a design (N, p) of full rank that a minimum of F passes; None if F falls on.

    Raises ``ArithmeticError`` if it is lost in rounding.
    """
    if start is None:
        start = qr(design.T, mode="economic", pivoting=True)[2][: design.shape[1]]
    n, vertex = len(scores), np.array(start, dtype=np.intp)
    rows = np.vstack([design, pull])
    nudges = np.random.default_rng(0).uniform(size=n)  # u, the same at every call
    for _ in range(MOST_EDGES + 20 * len(vertex)):
        weights = weights_on(design[vertex], rows)
        W = weights[:-1]
        sizes = np.abs(W)
        residual = scores - W @ scores[vertex]
        terms = np.abs(scores) + sizes @ np.abs(scores[vertex])
        residual[np.abs(residual) <= RESIDUAL_ROUNDING * terms] = 0.0
        nudge = nudges - W @ nudges[vertex]
        residual[vertex] = nudge[vertex] = 0.0
        above = (residual > 0) | ((residual == 0) & (nudge > 0))
        multiplier = np.where(above, level, level - 1)
        multiplier[vertex] = 0.0
        on_vertex, length = -(multiplier @ W + weights[-1]), sizes.sum(axis=0)
        excess = np.maximum(on_vertex - level, level - 1 - on_vertex)
        excess[excess <= SLACK + 1e-16 * length] = 0.0
        leaving = int(np.argmax(excess / length))
        if excess[leaving] == 0:
            return vertex
        edge = W[:, leaving] if on_vertex[leaving] < 0 else -W[:, leaving]
        entering = _lowest_on_edge(residual, nudge, edge, -excess[leaving])
        if entering is None:
            return None
        vertex[leaving] = entering
    raise ArithmeticError("lost in rounding")


def _lowest_on_edge(
    residual: FloatArray, nudge: FloatArray, edge: FloatArray, slope: float
) -> int | None:
    """The score at which F stops falling: each one that is passed adds to the slope."""
    with np.errstate(divide="ignore", invalid="ignore"):
        step, small_step = residual / edge, nudge / edge
    is_ahead = (step > 0) | ((step == 0) & (small_step > 0))
    ahead = np.flatnonzero(is_ahead & (edge != 0))
    ahead = ahead[np.lexsort((small_step[ahead], step[ahead]))]
    slopes = slope + np.cumsum(np.abs(edge[ahead]))
    stop = int(np.searchsorted(slopes, 0.0))
    return int(ahead[stop]) if stop < len(ahead) else None
