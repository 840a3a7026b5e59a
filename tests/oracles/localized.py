"""Slow reference implementations of the localised methods, straight from the definitions.

Section numbers refer to the algorithm notes. Weights are floats taken as exact rationals, or carry
60 decimal digits, so that sums and comparisons are exact; loops are plain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from oracles.rescaled import MP, Coverage, Matrix, Vector, exact_coverage, nearest, squared_distance

#: §1.2: masses that differ by less than this part of the total count as equal.
TOLERANCE = Fraction(1, 10**12)


def weighted_quantile(
    values: Vector, weights: Sequence[Any], at_infinity: Any, coverage: Coverage
) -> float:
    """§1.2: first value whose cumulated weight reaches level * total - 1e-12 * total."""
    pairs = sorted(zip((float(v) for v in values), weights, strict=True), key=lambda pair: pair[0])
    total = sum((w for _, w in pairs), at_infinity)
    if total == 0:
        return math.inf
    needed, reached = exact_coverage(coverage) - TOLERANCE, 0 * at_infinity
    for value, weight in pairs:
        reached += weight
        if reached * needed.denominator >= total * needed.numerator:
            return value
    return math.inf


def radial_weight(kind: str, a: Vector, b: Vector, h: float) -> Fraction:
    """§9.6: exp(-D/h); or its Gaussian sibling exp(-D^2 / 2 h^2)."""
    d2 = squared_distance(a, b)
    return Fraction(math.exp(-math.sqrt(d2) / h if kind == "exponential" else -d2 / (2 * h * h)))


def radial_bag(kind: str, Z: Matrix, h: float) -> list[list[Fraction]]:
    """H_ij over the bag, whose last row is the new point."""
    return [[radial_weight(kind, a, b, h) for b in Z] for a in Z]


def neighbor_bag(Z: Matrix, K: int) -> list[list[Fraction]]:
    """H_ij: 1 for i itself, and what j weighs among the K nearest of i in the bag."""
    size = len(Z)
    bag = []
    for i in range(size):
        others = [j for j in range(size) if j != i]
        weights = dict(nearest(Z, Z[i], others, min(K, size - 1))) | {i: Fraction(1)}
        bag.append([weights.get(j, Fraction(0)) for j in range(size)])
    return bag


def lcp_keeps(H: list[list[Fraction]], scores: Vector, v: Fraction, coverage: Coverage) -> bool:
    """§9.6: whether #{i: T_i >= T_{n+1}} > alpha (n+1), with T up to 1e-12."""
    V = [Fraction(float(s)) for s in scores] + [v]
    size = len(V)
    T = []
    for i in range(size):
        below = sum((H[i][j] for j in range(size) if V[j] < V[i]), Fraction(0))
        T.append(below / sum(H[i]))
    at_least = sum(1 for t in T if t >= T[-1] - TOLERANCE)
    return at_least > (1 - exact_coverage(coverage)) * size


def lcp_radius(H: list[list[Fraction]], scores: Vector, coverage: Coverage) -> float:
    """§9.6 by trying candidates: the supremum of the scores v that are kept.

    What is kept changes only at calibration scores, so the scores and a value in each gap between
    them decide.
    """
    distinct = sorted({float(s) for s in scores})
    if lcp_keeps(H, scores, Fraction(distinct[-1]) + 1, coverage):
        return math.inf
    for place in range(len(distinct) - 1, -1, -1):
        value = Fraction(distinct[place])
        gap = (value + Fraction(distinct[place - 1])) / 2 if place else value - 1
        if lcp_keeps(H, scores, value, coverage) or lcp_keeps(H, scores, gap, coverage):
            return distinct[place]
    return -math.inf


def rlcp_radius(
    Z: Matrix, scores: Vector, z: Vector, centre: Vector, h: float, coverage: Coverage
) -> float:
    """§9.9: weights k(X_i, centre), and k(x, centre) at infinity."""

    def weight(a: Vector) -> Any:
        pairs = zip(a, centre, strict=True)
        squared = sum((MP.mpf(float(p)) - MP.mpf(float(q))) ** 2 for p, q in pairs)
        return MP.exp(-squared / (2 * MP.mpf(float(h)) ** 2))

    return weighted_quantile(scores, [weight(a) for a in Z], weight(z), coverage)


def metric_exponent(A: Matrix, a: Vector, b: Vector) -> float:
    """§9.5: ||A(a - b)||^2 / d, the mean over the d rows of A."""
    total = 0.0
    for row in A:
        total += sum(w * (float(p) - float(q)) for w, p, q in zip(row, a, b, strict=True)) ** 2
    return total / len(A)


def mlkr_loss(A: Matrix, X: Matrix, y: Vector, b: float) -> float:
    """§9.5: mean squared error of the leave-one-out kernel mean, smoothed by b."""
    n = len(y)
    loss = 0.0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        k = {j: math.exp(-metric_exponent(A, X[i], X[j])) for j in others}
        ybar = sum(float(y[j]) for j in others) / (n - 1)
        numerator = sum(k[j] * float(y[j]) for j in others) + b * ybar
        loss += (numerator / (sum(k.values()) + b) - float(y[i])) ** 2
    return loss / n


def lvd_radius(A: Matrix, X: Matrix, scores: Vector, x: Vector, coverage: Coverage) -> float:
    """§9.5, inputs already standardised: weights k(x, X_i), mass 1 at infinity."""
    weights = [Fraction(math.exp(-metric_exponent(A, x, a))) for a in X]
    return weighted_quantile(scores, weights, Fraction(1), coverage)


def effective_sizes(A: Matrix, X: Matrix, factor: float) -> list[float]:
    """§9.5: exp(H(w)) of each point's normalised weights to the others, with factor * A."""
    sizes = []
    for i in range(len(X)):
        e = [-(factor**2) * metric_exponent(A, X[i], X[j]) for j in range(len(X)) if j != i]
        w = [math.exp(value - max(e)) for value in e]
        total = sum(w)
        sizes.append(math.exp(-sum(v / total * math.log(v / total) for v in w if v > 0)))
    return sizes
