"""Slow reference implementations of the methods that learn on training data, and of minmax.

Plain loops straight from the definitions; section numbers refer to the algorithm notes. Quantities
of KNN are exact rationals, weights of RBF carry 60 digits (see ``oracles``), so a radius of SLCP,
RCP or minmax is the true value rounded once. The difficulties of ``NormalizedKNN`` hold square
roots and exponentials and are floats.
"""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np

from oracles.rescaled import (
    MP,
    Coverage,
    Kernel,
    Matrix,
    Vector,
    conformal_rank,
    exact_coverage,
    exact_numbers,
    kernel_weights,
    mad_split_radius,
    nearest,
    split_radius,
    squared_distance,
    to_float,
    weighted_mean,
)


def local_quantile(
    Z_train: Matrix, scores_train: Vector, z: Vector, kernel: Kernel,
    coverage: Coverage,
) -> float:  # fmt: skip
    """§1.2 without mass at infinity: the first score at which the weights reach the level."""
    weights = dict(kernel_weights(Z_train, z, range(len(Z_train)), kernel))
    level, total = exact_coverage(coverage), sum(weights.values())
    slack: Any = 0
    needed: Any = math.ceil(level * total) if kernel[0] == "knn" else None
    if needed is None:  # the notes' tolerance, for weights that are not rational
        slack = MP.mpf(10) ** -12 * total
        needed = MP.mpf(level.numerator) / level.denominator * total
    reached: Any = 0
    for k in sorted(weights, key=lambda k: float(scores_train[k])):
        reached += weights[k]
        if reached >= needed - slack:
            return float(scores_train[k])
    raise AssertionError("all weights together reach every level")


def slcp_radius(
    Z: Matrix, scores: Vector, z_new: Vector, Z_train: Matrix, scores_train: Vector,
    kernel: Kernel, coverage: Coverage,
) -> float:  # fmt: skip
    """§9.7: Q(x) + the rank-th smallest of s_i - Q(X_i); not below 0 if no score is."""

    def local(z: Vector) -> Fraction:
        return Fraction(local_quantile(Z_train, scores_train, z, kernel, coverage))

    rank = conformal_rank(coverage, len(scores))
    if rank > len(scores):
        return math.inf
    shifted = sorted(Fraction(float(s)) - local(z) for z, s in zip(Z, scores, strict=True))
    radius = local(z_new) + shifted[rank - 1]
    return float(max(radius, Fraction(0)) if min(scores) >= 0 else radius)


def rcp_knn_radius(
    Z: Matrix, scores: Vector, z_new: Vector, Z_train: Matrix, scores_train: Vector, K: int,
    coverage: Coverage, offset: float,
) -> float:  # fmt: skip
    """§10, RCP: scores divided by the local quantile at the same level."""

    def scale(z: Vector) -> float:
        kernel = ("knn", float(K))
        return local_quantile(Z_train, scores_train, z, kernel, coverage) + offset

    return mad_split_radius(scores, [scale(z) for z in Z], scale(z_new), coverage)


def raw_difficulty(
    name: str, Z_train: Matrix, y_train: Vector, scores_train: Vector, z: Vector,
    allowed: list[int], K: int,
) -> float:  # fmt: skip
    """§9.3 before division by the training median, from the K nearest among ``allowed``."""
    near = nearest(Z_train, z, allowed, K)
    if name == "distance":
        return math.fsum(w * math.sqrt(squared_distance(Z_train[k], z)) for k, w in near)
    values = y_train if name == "labels" else scores_train
    exact = {k: Fraction(float(values[k])) for k, _ in near}
    mean = sum(w * exact[k] for k, w in near) / K
    if name == "labels":
        return math.sqrt(sum(w * (exact[k] - mean) ** 2 for k, w in near) / K)
    assert name == "residuals"
    return float(mean)


def normalized_scale(
    Z_train: Matrix, y_train: Vector, scores_train: Vector, z: Vector, K: int,
    difficulty: str, form: str, gamma: float, rho: float,
) -> float:  # fmt: skip
    """§9.3: what the score at z is divided by; K is cut to the n - 1 others of a training point."""
    everyone = list(range(len(Z_train)))
    K = min(K, len(everyone) - 1)
    parts = []
    for name in difficulty.split("+"):
        at_training = []
        for k in everyone:
            others = [j for j in everyone if j != k]
            at_training.append(
                raw_difficulty(name, Z_train, y_train, scores_train, Z_train[k], others, K)
            )
        unit = statistics.median(at_training) or statistics.fmean(at_training) or 1.0
        raw = raw_difficulty(name, Z_train, y_train, scores_train, z, everyone, K)
        parts.append(raw / unit)
    if form == "sum":
        return gamma + sum(parts)
    return sum(math.exp(g * part) for g, part in zip((gamma, rho), parts, strict=False))


def normalized_radius(
    Z: Matrix, scores: Vector, z_new: Vector, coverage: Coverage, **scale: Any
) -> float:
    """§9.3 with §2.4: split conformal on the divided scores."""
    scales = [normalized_scale(z=z, **scale) for z in Z]
    return mad_split_radius(scores, scales, normalized_scale(z=z_new, **scale), coverage)


def leaf_of(tree: Any, z: Vector) -> int:
    """The leaf that z falls into, walked by hand; the tree compares in single precision."""
    node = 0
    while tree.children_left[node] != -1:
        left = float(np.float32(z[tree.feature[node]])) <= tree.threshold[node]
        node = tree.children_left[node] if left else tree.children_right[node]
    return int(node)


def locart_radius(Z: Matrix, scores: Vector, z_new: Vector, tree: Any, coverage: Coverage) -> float:
    """§10, LoCart: split conformal among the calibration rows in the new point's leaf."""
    leaf = leaf_of(tree, z_new)
    inside = [float(s) for z, s in zip(Z, scores, strict=True) if leaf_of(tree, z) == leaf]
    return split_radius(inside, coverage)


def minmax_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, kernel: Kernel,
    coverage: Coverage, offset: float = 0.0,
) -> float:  # fmt: skip
    """§3.6: (max over i of scale_{N+1,i}) times the Q-th smallest s_i / scale_{i,N+1}."""
    n = len(scores)
    if n == 1:
        return split_radius(scores, coverage)
    m, s = exact_numbers(magnitudes, kernel), exact_numbers(scores, kernel)
    (b,) = exact_numbers([offset], kernel)
    new_scales, rescaled = [], []
    for i in range(n):
        others = [k for k in range(n) if k != i]
        scale_i = weighted_mean(kernel_weights(Z, Z[i], others, kernel), m) + b
        new_scales.append(weighted_mean(kernel_weights(Z, z_new, others, kernel), m) + b)
        rescaled.append(math.inf if scale_i == 0 else s[i] / scale_i)
    rank = conformal_rank(coverage, n)
    threshold = sorted(rescaled)[rank - 1] if rank <= n else math.inf
    return math.inf if threshold == math.inf else to_float(max(new_scales) * threshold)
