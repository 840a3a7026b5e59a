"""Quantile regression by descent along edges, for problems that differ in one linear term.

A vertex is a fit β that passes through p of the N scores, p the number of columns of Φ. From it
lead 2p edges, each letting go of one score. The objective

    F(β) = Σ_i ℓ(s_i − Φ_iᵀβ) − bᵀβ,    ℓ(r) = max{c r, (c − 1) r},

is convex and linear between scores, so that the steepest edge followed to its lowest point leads
to a better vertex, and a vertex without a falling edge is a minimum. The slopes come from the
multipliers η of the scores on the vertex: an edge falls where one of them leaves [c − 1, c].

Letters: Φ → ``design``, s → ``scores``, b → ``pull``, c → ``level``.

Ties would let descent stand still, so it sees scores moved by a ten-billionth of their size, each
by another amount; what is computed from the vertex takes the scores as they are.

Cost: O(N p + p³ + N log N) an edge. Starting from the minimum for b = 0 a new b of the size of one
row takes about p edges.

Reference: Barrodale, Roberts (1973), "An improved algorithm for discrete l1 linear approximation",
doi:10.1137/0710069.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from calliper._types import FloatArray, IntArray

#: By how much ties are broken, in relation to the scores.
TIE_BREAK = 1e-10

#: How far a multiplier may leave its range by rounding.
SLACK = 1e-10

#: Edges after which descent is taken to be lost in rounding; a few for each column are usual.
MOST_EDGES = 1000


def without_ties(scores: FloatArray) -> FloatArray:
    """The scores, each moved by its own very small amount; the same ones at every call."""
    sizes = np.abs(scores)
    usual = float(np.median(sizes[sizes > 0])) if sizes.any() else 1.0
    noise = np.random.default_rng(0).uniform(size=len(scores))
    return np.asarray(scores + TIE_BREAK * (sizes + usual) * noise)


def any_vertex(design: FloatArray) -> IntArray:
    """Some p rows of a matrix (N, p) of full rank that are as independent as possible."""
    _, _, order = qr(design.T, mode="economic", pivoting=True)
    return np.asarray(order[: design.shape[1]], dtype=np.intp)


def lowest_vertex(
    design: FloatArray, scores: FloatArray, level: float, pull: FloatArray, start: IntArray
) -> IntArray | None:
    """The p rows through which a minimum of F passes; ``None`` if F falls without end.

    Parameters
    ----------
    design : (N, p) of full rank
    scores : (N,) without ties
    level : c, inside (0, 1)
    pull : (p,)
    start : (p,) independent rows
    """
    vertex = start.copy()
    for _ in range(MOST_EDGES + 20 * len(vertex)):
        inverse = np.linalg.inv(design[vertex])
        residual = scores - design @ (inverse @ scores[vertex])
        residual[vertex] = 0.0
        multiplier = np.where(residual > 0, level, level - 1)
        multiplier[vertex] = 0.0
        balance = -(multiplier @ design + pull)
        on_vertex = balance @ inverse
        excess = np.maximum(on_vertex - level, level - 1 - on_vertex)
        excess[excess <= SLACK + 1e-12 * (np.abs(balance) @ np.abs(inverse))] = 0.0
        leaving = int(np.argmax(excess / np.linalg.norm(inverse, axis=0)))
        if excess[leaving] == 0:
            return vertex
        direction = 1.0 if on_vertex[leaving] < 0 else -1.0
        edge = design @ (direction * inverse[:, leaving])
        entering = _lowest_on_edge(residual, edge, -excess[leaving])
        if entering is None:
            return None
        vertex[leaving] = entering
    return None


def _lowest_on_edge(residual: FloatArray, edge: FloatArray, slope: float) -> int | None:
    """The score at which F stops falling: each one that is passed adds to the slope."""
    with np.errstate(divide="ignore", invalid="ignore"):
        step = residual / edge
    ahead = np.flatnonzero((step > 0) & (np.abs(edge) > 1e-12))
    ahead = ahead[np.argsort(step[ahead])]
    slopes = slope + np.cumsum(np.abs(edge[ahead]))
    stop = int(np.searchsorted(slopes, 0.0))
    return int(ahead[stop]) if stop < len(ahead) else None
