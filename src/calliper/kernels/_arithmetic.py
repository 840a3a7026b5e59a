"""Ratios, products and roots of scales and scores, with their rules at zero and infinity."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray

#: Where one point carries more than this part of a sum, the rest is summed without it.
DOMINANT = 0.999


def rescale(scores: FloatArray, scale: FloatArray) -> FloatArray:
    """S / ŝ; +∞ wherever ŝ = 0, even for s = 0.

    The rule follows from comparing scores by cross-multiplication, s_i ŝ_j > s_j ŝ_i: a point of
    zero scale loses no comparison, and only an infinite rescaled score never loses one. Likewise a
    ratio too small to have all its digits is raised to the next number, and never to zero.
    """
    rescaled = np.full_like(scores, np.inf)
    with np.errstate(over="ignore", under="ignore"):  # an infinite ratio is valid
        np.divide(scores, scale, out=rescaled, where=scale > 0)
    lossy = (scores > 0) & (rescaled < np.finfo(np.float64).tiny)
    return np.where(lossy, np.nextafter(rescaled, np.inf), rescaled) if lossy.any() else rescaled


def times(scale: FloatArray, rescaled: FloatArray) -> FloatArray:
    """ŝ · s⁺ in place of the scales; infinite where s⁺ is, even if the scale is zero."""
    with np.errstate(invalid="ignore"):
        scale *= rescaled
    np.copyto(scale, np.inf, where=np.isinf(rescaled))
    return scale


def positive_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The t ≥ 0 with quadratic·t² + linear·t = constant, for non-negative coefficients.

    2c / (b + √(b² + 4ac)) never subtracts. Where b = a = 0 nothing bounds t, unless c = 0 too
    and a > 0, when t = 0.
    """
    with np.errstate(over="ignore"):
        denominator = linear + np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    root: FloatArray = np.where((constant == 0) & (np.asarray(quadratic) > 0), 0.0, np.inf)
    np.divide(2 * constant, denominator, out=root, where=denominator > 0)
    return root


def signed_root(
    quadratic: float | FloatArray, linear: FloatArray, constant: FloatArray
) -> FloatArray:
    """The largest t ≥ 0 with quadratic·t² + linear·t ≤ constant.

    Here quadratic > 0 and constant ≥ 0, while the linear term may have any sign; whichever of
    the two forms of the root does not subtract is taken.
    """
    root = np.hypot(linear, 2 * np.sqrt(quadratic * constant))
    outer = (np.maximum(-linear, 0.0) + root) / (2 * quadratic)
    return np.where(linear < 0, outer, positive_root(quadratic, np.maximum(linear, 0.0), constant))
