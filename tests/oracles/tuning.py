"""Slow references for kernel tuning, mutual information and local coverage bounds.

Section numbers refer to the algorithm notes, "Eq.", "Alg." and "Theorem" to the paper.
Logarithms are natural.  Sums are carried with 60 digits or exact rationals and rounded once.
Squared distances are float sums over the columns, as in the other oracles.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from oracles import rescaled as base
from oracles.rescaled import MP, Coverage, Matrix, Vector, exact_numbers, to_float

Number = float | Fraction | str  # a str is read as an exact decimal
digamma = functools.cache(MP.digamma)
Joint = list[list[Fraction]]  # P(X = row, S = column), the columns in increasing order of S


def exact(value: Number) -> Any:
    """The number in 60-digit arithmetic; inf is allowed, nan is not."""
    if value == math.inf:
        return MP.inf
    fraction = Fraction(value)
    return MP.mpf(fraction.numerator) / fraction.denominator


def _rbf_mean(Z: Matrix, values: Sequence[Any], z: Vector, allowed: list[int], l: float) -> Any:
    """Eq. (5) with §8.1: sum_k K(z, Z_k) values_k / sum_k K(z, Z_k) over k in `allowed`."""
    assert allowed, "the scale of an empty set is undefined"
    return base.weighted_mean(base.kernel_weights(Z, z, allowed, ("rbf", l), None), values)


def leave_two_out_scale(
    Z: Matrix, magnitudes: Vector, i: int, m: int, length_scale: float
) -> float:
    """§5.2, Alg. S.2: scale of i from all points but i and m (i = m allowed), RBF of §2.6."""
    others = [k for k in range(len(magnitudes)) if k not in (i, m)]
    values = exact_numbers(magnitudes, ("rbf", length_scale))
    return to_float(_rbf_mean(Z, values, Z[i], others, length_scale))


def leave_two_out_knn(Z: Matrix, magnitudes: Vector, i: int, m: int, K: int) -> float:
    """§2.3: mean over the K nearest, ties shared (§24), of i among all but i, m.

    K is cut to the number of those points.
    """
    others = [k for k in range(len(magnitudes)) if k not in (i, m)]
    weights = base.kernel_weights(Z, Z[i], others, ("knn", float(K)))
    return to_float(base.weighted_mean(weights, exact_numbers(magnitudes, ("knn", float(K)))))


def integer_ranks(values: Vector, priorities: Vector | None = None) -> list[int]:
    """§5.4, §6: ranks 0..N-1 by (value, priority); inf ranks last; an undecided tie raises."""
    order = [0.0] * len(values) if priorities is None else [float(u) for u in priorities]
    keys = [(float(v), u) for v, u in zip(values, order, strict=True)]
    if len(set(keys)) < len(keys):
        raise ValueError("tie in value and in priority")
    return [sum(1 for other in keys if other < key) for key in keys]


def criterion(
    Z: Matrix, magnitudes: Vector, m: int, scale_of: Callable[[int, int], float], kind: str, *,
    k: int = 3, x_priorities: Vector | None = None, s_priorities: Vector | None = None,
) -> float:  # fmt: skip
    """§5.2-5.3: the tuning criterion on the points i != m, with scale_of(i, m) for their scales.

    "mse": mean of (s_i - scale)^2.  "deviance": mean of log(scale) + s_i / scale, and +inf as
    soon as one scale is 0, even where s_i = 0.  "mi": sum over the columns of Z of rank_ksg
    between that column and s_i / scale (+inf where the scale is 0, §2.4), neither clipped nor
    corrected for its null mean; the priorities decide ties and are indexed like Z.
    """
    rest = [i for i in range(len(magnitudes)) if i != m]
    pairs = [(MP.mpf(float(magnitudes[i])), MP.mpf(float(scale_of(i, m)))) for i in rest]
    if kind == "mse":
        return to_float(sum((s - scale) ** 2 for s, scale in pairs) / len(pairs))
    if kind == "deviance":
        if any(scale == 0 for _, scale in pairs):
            return math.inf
        return to_float(sum(MP.log(scale) + s / scale for s, scale in pairs) / len(pairs))
    if kind != "mi":
        raise ValueError(f"unknown criterion {kind!r}")
    rescaled = [math.inf if scale == 0 else to_float(s / scale) for s, scale in pairs]
    u = None if x_priorities is None else [float(x_priorities[i]) for i in rest]
    v = None if s_priorities is None else [float(s_priorities[i]) for i in rest]
    s_ranks = integer_ranks(rescaled, v)
    columns = [[float(Z[i][c]) for i in rest] for c in range(len(Z[0]))]
    return math.fsum(rank_ksg(integer_ranks(column, u), s_ranks, k) for column in columns)


def choose_scale(values: Vector, largest: bool = True) -> int:
    """§5.2: index of the smallest criterion value (not nan), on a grid of increasing scales.

    Equal values, all inf included, go to the LARGEST scale: §5.3 names "ties, so argmin returns
    the smallest l" as the failure of clipped MI.  largest=False gives the first index.
    """
    minimizers = [n for n, v in enumerate(values) if v == min(values)]
    return minimizers[-1] if largest else minimizers[0]


def _tuned_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, left_out: Sequence[set[int]],
    lengths: Sequence[float], coverage: Coverage, offset: float,
) -> float:  # fmt: skip
    """Q-th smallest of scale_{N+1,m} s_m / scale_m, both without left_out[m]; §2.4, §4 (N = 1)."""
    n = len(scores)
    if n == 1:
        return base.split_radius(scores, coverage)
    values, s = exact_numbers(magnitudes, ("rbf", 1.0)), exact_numbers(scores, ("rbf", 1.0))
    deltas = []
    for m in range(n):
        allowed = [k for k in range(n) if k not in left_out[m]]
        scale_m = _rbf_mean(Z, values, Z[m], allowed, lengths[m]) + MP.mpf(offset)
        scale_new = _rbf_mean(Z, values, z_new, allowed, lengths[m]) + MP.mpf(offset)
        deltas.append(math.inf if scale_m == 0 else to_float(scale_new * s[m] / scale_m))
    return base.order_statistic(deltas, base.conformal_rank(coverage, n))


def tuned_jackknife_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector,
    length_scales_per_point: Vector, coverage: Coverage, offset: float = 0.0,
) -> float:  # fmt: skip
    """Eq. (5)-(6), Alg. S.2 with §8.1-8.4: both scales of m use l_m and all points but m."""
    lengths = [float(length) for length in length_scales_per_point]
    left_out = [{m} for m in range(len(scores))]
    return _tuned_radius(Z, magnitudes, scores, z_new, left_out, lengths, coverage, offset)


def fold_tuned_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, folds: Sequence[int],
    length_scale_of_fold: Mapping[int, float] | Sequence[float], coverage: Coverage,
    offset: float = 0.0,
) -> float:  # fmt: skip
    """§5.4, fold version: both scales of m leave out the whole fold of m, folds[m] its label."""
    n = len(scores)
    lengths = [float(length_scale_of_fold[folds[m]]) for m in range(n)]
    left_out = [{k for k in range(n) if folds[k] == folds[m]} for m in range(n)]
    return _tuned_radius(Z, magnitudes, scores, z_new, left_out, lengths, coverage, offset)


def cv_plus_guarantee(coverage: Coverage, n: int, n_folds: int) -> float:
    """§5.4: 1 - 2 alpha - min{2 (1 - 1/F) / (N/F + 1), (1 - F/N) / (F + 1)}, clipped to [0, 1].

    Stated for F folds of equal size N/F; N/F is not rounded here.
    """
    assert 2 <= n_folds <= n
    alpha, F, N = 1 - base.exact_coverage(coverage), Fraction(n_folds), Fraction(n)
    loss = min(2 * (1 - 1 / F) / (N / F + 1), (1 - F / N) / (F + 1))
    return float(min(max(1 - 2 * alpha - loss, Fraction(0)), Fraction(1)))


def _ksg(x: Sequence[Any], y: Sequence[Any], k: int) -> Any:
    """§6, KSG-1 on exact numbers: psi(k) + psi(N) - mean of psi(n_x + 1) + psi(n_y + 1).

    epsilon_i: k-th smallest max-norm distance to another point; n_x, n_y: strict counts.
    """
    N = len(x)
    if len(y) != N or not 1 <= k <= N - 1:
        raise ValueError("need equally many x and y, and 1 <= k <= N - 1")
    total = MP.mpf(0)
    for i in range(N):
        others = [j for j in range(N) if j != i]
        epsilon = sorted(max(abs(x[j] - x[i]), abs(y[j] - y[i])) for j in others)[k - 1]
        n_x = sum(1 for j in others if abs(x[j] - x[i]) < epsilon)
        n_y = sum(1 for j in others if abs(y[j] - y[i]) < epsilon)
        total += digamma(n_x + 1) + digamma(n_y + 1)
    return digamma(k) + digamma(N) - total / N


def ksg(x: Sequence[Number] | Vector, y: Sequence[Number] | Vector, k: int) -> float:
    """§6, KSG-1 on the exact values of finite numbers: neither scaled, jittered nor clipped."""
    return float(_ksg([Fraction(v) for v in x], [Fraction(v) for v in y], k))


def rank_ksg(x_ranks: Sequence[int], y_ranks: Sequence[int], k: int) -> float:
    """§5.4, §6: KSG-1 on integer ranks; both arguments are permutations of 0..N-1."""
    x, y = [int(r) for r in x_ranks], [int(r) for r in y_ranks]
    assert sorted(x) == sorted(y) == list(range(len(x))), "not a permutation"
    return float(_ksg(x, y, k))


def mean_null(n: int, k: int) -> float:
    """§6: mean of rank_ksg over all n! relative orders, each equally likely; for n <= 7."""
    x = list(range(n))
    total = sum((_ksg(x, y, k) for y in itertools.permutations(x)), MP.mpf(0))
    return float(total / math.factorial(n))


def paper_bound(mi: Number, coverage: Number, rho: Number) -> float:
    """Theorem S.1 (§7): c - sqrt(1 - exp(-MI)) / rho, not clipped; MI >= 0."""
    assert exact(mi) >= 0
    return float(exact(coverage) - MP.sqrt(-MP.expm1(-exact(mi))) / exact(rho))


def trivial_bound(coverage: Number, rho: Number) -> float:
    """§7.1: what marginal coverage alone implies, max(0, 1 - (1 - c) / rho)."""
    return float(max(Fraction(0), 1 - (1 - Fraction(coverage)) / Fraction(rho)))


def binary_kl(p: Any, q: Any) -> Any:
    """KL divergence of Bernoulli(p) from Bernoulli(q): 0 log 0 = 0, a > 0 over 0 is inf."""
    total = MP.mpf(0)
    for a, b in ((p, q), (1 - p, 1 - q)):
        if a > 0:
            total += MP.inf if b == 0 else a * MP.log(a / b)
    return total


def binary_bound(mi: Number, coverage: Number, rho: Number) -> float:
    """§7.3: smallest p <= c with rho kl(p, c) + (1 - rho) kl((c - rho p)/(1 - rho), c) <= MI.

    The left side falls from p = max(0, (c - 1 + rho)/rho) to 0 at p = c: plain bisection.
    rho = 1 gives c; an MI that the lower end satisfies (inf included) gives the lower end.
    """
    information, c, r = exact(mi), exact(coverage), exact(rho)
    assert 0 <= information and 0 <= c <= 1 and 0 < r <= 1
    if r == 1:
        return float(c)

    def satisfied(p: Any) -> bool:
        rest = min(MP.mpf(1), max(MP.mpf(0), (c - r * p) / (1 - r)))
        return bool(r * binary_kl(p, c) + (1 - r) * binary_kl(rest, c) <= information)

    low, high = max(MP.mpf(0), (c - 1 + r) / r), c
    if satisfied(low):
        return float(low)
    for _ in range(170):  # halves an interval inside [0, 1] to below 1e-50
        middle = (low + high) / 2
        low, high = (low, middle) if satisfied(middle) else (middle, high)
    return float(high)


def random_joint(rng: np.random.Generator, nx: int, ns: int) -> Joint:
    """A random exact pmf, from nearly independent to strongly dependent, some cells at 0."""
    strength, sparsity = float(rng.choice([0.02, 0.2, 1.0, 3.0])), float(rng.choice([0.0, 0.2]))
    rows, columns = rng.exponential(size=nx), rng.exponential(size=ns)
    counts = [[0] * ns for _ in range(nx)]
    for i in range(nx):
        for j in range(ns):
            weight = float(rows[i] * columns[j]) * math.exp(strength * float(rng.normal()))
            counts[i][j] = 0 if rng.random() < sparsity else int(1e6 * weight)
        counts[i][int(rng.integers(ns))] += 1  # no row is empty
    total = sum(sum(row) for row in counts)
    return [[Fraction(count, total) for count in row] for row in counts]


def subset_probability(joint: Joint, x_subset: Collection[int]) -> Fraction:
    """The probability rho that X lies in x_subset."""
    return sum((sum(joint[i], Fraction(0)) for i in set(x_subset)), Fraction(0))


def conditional_coverage(joint: Joint, x_subset: Collection[int], threshold_index: int) -> Fraction:
    """P(S <= its value at threshold_index | X in x_subset); all rows give the coverage c."""
    covered = sum((sum(joint[i][: threshold_index + 1]) for i in set(x_subset)), Fraction(0))
    return covered / subset_probability(joint, x_subset)


def discrete_mi(joint: Joint) -> float:
    """Sum of p(x, s) log(p(x, s) / (p(x) p(s))), empty cells giving 0."""
    p_x = [sum(row, Fraction(0)) for row in joint]
    p_s = [sum(column, Fraction(0)) for column in zip(*joint, strict=True)]
    cells = [(p, p_x[i] * p_s[j]) for i, row in enumerate(joint) for j, p in enumerate(row)]
    return float(sum((exact(p) * MP.log(exact(p / q)) for p, q in cells if p > 0), MP.mpf(0)))


def clopper_pearson_lower(successes: int, n: int, delta: Number) -> float:
    """§7.6, one-sided: the p with P(Bin(n, p) >= successes) = delta; no success gives 0."""
    if successes == 0:
        return 0.0
    low, high = MP.mpf(0), MP.mpf(1)
    for _ in range(170):
        p = (low + high) / 2
        terms = [math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(successes, n + 1)]
        low, high = (p, high) if sum(terms) <= exact(delta) else (low, p)
    return float(low)


def markov_bound(q: Number) -> float:
    """Markov: the coverage P(s / mean <= q) is at least 1 - 1/q, and 0 if q < 1."""
    return float(max(MP.mpf(0), 1 - 1 / exact(q)))


def cantelli_bound(ratio: Number, tau: Number) -> float:
    """§8.11: P(s/mean >= tau) <= r^2 / (r^2 + (tau - 1)^2), r = sd/mean; 1 for tau <= 1."""
    r, t = exact(ratio), exact(tau)
    return 1.0 if t <= 1 else float(r * r / (r * r + (t - 1) ** 2))


def cantelli_threshold(ratio: Number, alpha: Number) -> float:
    """The tau at which cantelli_bound equals alpha: 1 + r sqrt((1 - alpha) / alpha)."""
    return float(1 + exact(ratio) * MP.sqrt((1 - exact(alpha)) / exact(alpha)))
