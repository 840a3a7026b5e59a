"""Quantile regression by descent along edges, for problems that differ in one linear term.

A vertex is a fit β that passes through p of the N scores, p the number of columns of Φ. From it
lead 2p edges, each letting go of one score. The objective

    F(β) = Σ_i ℓ(s_i − Φ_iᵀβ) − bᵀβ,    ℓ(r) = max{c r, (c − 1) r},

is convex and linear between scores, so that the steepest edge followed to its lowest point leads
to a better vertex, and a vertex without a falling edge is a minimum. The slopes come from the
multipliers η of the scores on the vertex: an edge falls where one of them leaves [c − 1, c].

Letters: Φ → ``design``, s → ``scores``, b → ``pull``, c → ``level``.

A fit is written as W s_V, with s_V the scores on the vertex and W = Φ Φ_V⁻¹. In coordinates β the
small scores of one group would be differences of the large ones of another; here a row of W is
zero at vertices of other groups, so that scores keep their digits whatever their sizes. W follows
the vertex by one elimination an edge, and is computed anew where its roundings might add up.

Ties would let descent stand still, so each score is thought to be moved by its own multiple of an
amount that is smaller than any number: s + εu. Residuals are then pairs, compared by their second
part where the first is zero up to rounding. No score is moved in fact.

Cost: O(N p² + p³) at the start and the end, O(N p + N log N) an edge. Starting from the minimum for
b = 0 a new b of the size of one row takes about p edges.

Reference: Barrodale, Roberts (1973), "An improved algorithm for discrete l1 linear approximation",
doi:10.1137/0710069.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from calliper._types import FloatArray, IntArray

#: What a residual may be wrong by, in relation to the terms that it is the difference of.
ROUNDING = 1e-13

#: Weights on a score that are zero up to rounding; those of a row sum to 1.
NO_WEIGHT = 1e-12

#: How far a multiplier may leave its range by rounding.
SLACK = 1e-10

#: Eliminations after which the weights are computed anew.
FRESH = 50

#: Edges after which descent is taken to be lost in rounding; a few for each column are usual.
MOST_EDGES = 1000


class TooManyEdgesError(ArithmeticError):
    """Descent is lost in rounding; nothing is known about the minimum."""


def any_vertex(design: FloatArray) -> IntArray:
    """Some p rows of a matrix (N, p) of full rank that are as independent as possible."""
    _, _, order = qr(design.T, mode="economic", pivoting=True)
    return np.asarray(order[: design.shape[1]], dtype=np.intp)


def weights_on(vertex: FloatArray, rows: FloatArray) -> FloatArray:
    """Each row (m, p) as a combination of those of the vertex (p, p): (m, p)."""
    return _without_fuzz(np.asarray(np.linalg.solve(vertex.T, rows.T).T, dtype=np.float64))


def lowest_vertex(
    design: FloatArray, scores: FloatArray, level: float, pull: FloatArray, start: IntArray
) -> IntArray | None:
    """The p rows through which a minimum of F passes; ``None`` if F falls without end.

    Raises ``TooManyEdgesError`` if neither is found.

    Parameters
    ----------
    design : (N, p) of full rank
    scores : (N,)
    level : c, inside (0, 1)
    pull : (p,)
    start : (p,) independent rows
    """
    n, vertex, age = len(scores), start.copy(), FRESH
    rows = np.vstack([design, pull])
    nudges = np.random.default_rng(0).uniform(size=n)  # u, the same at every call
    for _ in range(MOST_EDGES + 20 * len(vertex)):
        if age == FRESH:
            weights, age = weights_on(design[vertex], rows), 0
        W = weights[:-1]
        sizes = np.abs(W)
        residual = scores - W @ scores[vertex]
        terms = np.abs(scores) + sizes @ np.abs(scores[vertex])
        residual[np.abs(residual) <= ROUNDING * terms] = 0.0
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
            if age == 0:
                return vertex
            age = FRESH  # look again without the roundings of the way here
            continue
        edge = W[:, leaving] if on_vertex[leaving] < 0 else -W[:, leaving]
        entering = _lowest_on_edge(residual, nudge, edge, -excess[leaving])
        if entering is None:
            return None
        vertex[leaving] = entering
        weights, age = _exchange(weights, leaving, weights[entering]), age + 1
    raise TooManyEdgesError


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


def _exchange(weights: FloatArray, leaving: int, entering: FloatArray) -> FloatArray:
    """The weights after one row of the vertex has given way to another, known by its weights."""
    share = weights[:, leaving] / entering[leaving]
    changed = weights - np.outer(share, entering)
    changed[:, leaving] = share
    return _without_fuzz(changed)


def _without_fuzz(weights: FloatArray) -> FloatArray:
    weights[np.abs(weights) <= NO_WEIGHT] = 0.0
    return weights
