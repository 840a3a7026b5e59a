"""How far to widen a learnt kernel so that most points have enough neighbours.

With weights w_j ∝ exp(−λ²D_j) to the others, a point has exp H(w) effective neighbours, H the
entropy. H falls as λ grows, point by point, so the largest λ ≤ 1 at which a given part of the
points have enough is found by bisection on log λ; a point that has enough at some λ has enough at
every smaller one, so each step looks only at those that the steps before left open.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from scipy.spatial.distance import cdist

from calliper._blocks import map_row_blocks
from calliper._types import BoolArray, FloatArray
from calliper.quantile import as_fraction

#: Steps of bisection.
N_STEPS = 40

#: Exponents no larger than this make weights equal.
FLAT = 1e-9


def widening_factor(points: FloatArray, coverage: float) -> float:
    """λ for points whose kernel is exp(−‖·‖²) at λ = 1; 0 if not even equal weights suffice.

    O(n²d) and a few times O(n²) for n points.
    """
    n, level = len(points), as_fraction(coverage)
    needed, n_required = float(2 / (1 - level)), ceil(level * n)
    if n - 1 < needed:
        return 0.0
    squared = cdist(points, points, "sqeuclidean")
    squared = squared[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1)
    unknown = ~_has_enough(squared, 1.0, needed)
    n_surely = n - int(unknown.sum())
    if n_surely >= n_required:
        return 1.0
    squared = squared[unknown]
    low, high = 0.5 * np.log(FLAT / squared.max()), 0.0  # has enough, has not
    for _ in range(N_STEPS):
        middle = (low + high) / 2
        enough = _has_enough(squared, np.exp(middle), needed)
        if n_surely + int(enough.sum()) >= n_required:
            low, squared = middle, squared[enough]
        else:
            high, n_surely, squared = middle, n_surely + int(enough.sum()), squared[~enough]
    return float(np.exp(low))


def _has_enough(squared: FloatArray, factor: float, needed: float) -> BoolArray:
    """Which rows of squared distances have ``needed`` effective neighbours at λ = ``factor``."""

    def one_block(rows: slice) -> BoolArray:
        exponent = squared[rows] * -(factor**2)
        exponent -= exponent.max(axis=1, keepdims=True)
        weight = np.exp(exponent)
        total = weight.sum(axis=1)
        entropy = np.log(total) - np.einsum("ij,ij->i", weight, exponent) / total
        return np.asarray(entropy >= np.log(needed))

    if not len(squared):
        return np.zeros(0, dtype=np.bool_)
    return np.concatenate(map_row_blocks(one_block, *squared.shape))
