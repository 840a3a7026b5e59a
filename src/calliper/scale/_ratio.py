"""Scores divided by local scales, with zero scales settled once for all methods."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray


def rescale(scores: FloatArray, scale: FloatArray) -> FloatArray:
    """S / ŝ; +∞ wherever ŝ = 0, even for s = 0.

    The rule follows from comparing scores by cross-multiplication, s_i ŝ_j > s_j ŝ_i: a point of
    zero scale loses no comparison, and only an infinite rescaled score never loses one.
    """
    rescaled = np.full_like(scores, np.inf)
    with np.errstate(over="ignore"):  # a tiny scale may carry the ratio to infinity, which is valid
        np.divide(scores, scale, out=rescaled, where=scale > 0)
    return rescaled
