"""Radial means without one more point, for all points at once and to full precision."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.scale._weights import RadialExponents, to_weights

#: Weights whose sum is smaller have lost digits to underflow; they are shifted anew.
FAINT = 1e-200


def means_without_each(
    exponents: RadialExponents, queries: FloatArray, sums: FloatArray, own: IntArray | None
) -> FloatArray:
    """(m, N) means at each query without each point; ``own`` (m,) is left out of all of a row.

    (A − w s)/(B − w) loses no digits unless the point left out carries most of A or of B. That
    can be the nearest point and the one with the largest share of A, one of each a row: they are
    summed without.

    Parameters
    ----------
    sums : (N, 2) magnitudes and ones
    """
    exponent, _ = exponents.to(queries)
    rows = np.arange(len(queries))
    if own is not None:
        exponent[rows, own] = -np.inf
    nearest = exponent.argmax(axis=1)
    weight = to_weights(exponent, exponent[rows, nearest])
    weighted = weight * sums[:, 0]
    total, total_weight = weighted.sum(axis=1), weight.sum(axis=1)
    mean: FloatArray = total[:, None] - weighted
    dominant = weighted.argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean /= total_weight[:, None] - weight
    for left_out in (dominant, nearest):
        kept = weight[rows, left_out]
        weight[rows, left_out] = 0.0
        rest, rest_weight = (weight @ sums).T
        weight[rows, left_out] = kept
        mean[rows, left_out] = rest / np.where(rest_weight > 0, rest_weight, 1.0)
        for row in np.flatnonzero(rest_weight < FAINT):
            out = [left_out[row]] if own is None else [left_out[row], own[row]]
            mean[row, left_out[row]] = mean_without(exponents, queries[row], sums, out)
    return mean


def mean_without(
    exponents: RadialExponents, query: FloatArray, sums: FloatArray, out: list[int]
) -> float:
    """The mean at one query without the points ``out``, shifted by the nearest that remains."""
    if len(set(out)) == len(sums):
        return float("nan")  # nobody is left to speak
    exponent, _ = exponents.to(query[None])
    exponent[0, out] = -np.inf
    total, total_weight = to_weights(exponent, exponent.max(axis=1))[0] @ sums
    return float(total / total_weight)
