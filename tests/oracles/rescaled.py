"""Slow reference implementations, written straight from the definitions.

Section numbers refer to the algorithm notes, "Eq." and "Alg." to the paper.  KNN quantities are
exact rationals; RBF quantities carry 60 decimal digits with unbounded exponents.  A returned
radius is therefore the true value rounded once to a float (down, for the full method).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

Vector = Sequence[float] | NDArray[np.float64]
Matrix = Sequence[Sequence[float]] | NDArray[np.float64]
Coverage = Fraction | str
Kernel = tuple[str, float]  # ("knn", K), ("graded", K) or ("rbf", length scale)
Weights = list[tuple[int, Any]]  # (index of a bag member, its positive weight)

MP: Any = mpmath.MPContext()
MP.dps = 60


def exact_coverage(coverage: Coverage) -> Fraction:
    """The coverage 1 - alpha as an exact rational; binary floats are refused."""
    if not isinstance(coverage, (Fraction, str)) or not 0 < Fraction(coverage) < 1:
        raise ValueError("coverage must be a Fraction or a decimal string inside (0, 1)")
    return Fraction(coverage)


def to_float(value: Any) -> float:
    """Round an exact number to a float; beyond the float range it becomes inf."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def conformal_rank(coverage: Coverage, n: int) -> int:
    """§1.1: Q = ceil((1 - alpha) (n + 1)); Q = n + 1 stands for an infinite threshold."""
    return math.ceil(exact_coverage(coverage) * (n + 1))


def order_statistic(values: Vector, rank: int) -> float:
    """§1.1: the rank-th smallest value (ranks start at 1), inf beyond the last one."""
    ordered = sorted(float(v) for v in values)
    return ordered[rank - 1] if rank <= len(ordered) else math.inf


def split_radius(scores: Vector, coverage: Coverage) -> float:
    """§9.1: the Q-th smallest score."""
    return order_statistic(scores, conformal_rank(coverage, len(scores)))


def mad_split_radius(scores: Vector, scales: Vector, scale_new: float, coverage: Coverage) -> float:
    """§9.2 with §2.4: Q-th smallest of scale_new * s_i / scale_i, +inf where scale_i = 0."""
    new, pairs = Fraction(float(scale_new)), zip(scores, scales, strict=True)
    exact = [(Fraction(float(s)), Fraction(float(scale))) for s, scale in pairs]
    products = [math.inf if scale == 0 else to_float(new * s / scale) for s, scale in exact]
    return order_statistic(products, conformal_rank(coverage, len(products)))


def squared_distance(a: Vector, b: Vector) -> float:
    """Plain sum over the columns, left to right, in floats."""
    total = 0.0
    for a_c, b_c in zip(a, b, strict=True):
        difference = float(a_c) - float(b_c)
        total += difference * difference
    return total


def nearest(Z: Matrix, z: Vector, allowed: Collection[int], K: int) -> Weights:
    """§24: the K members of `allowed` nearest to z; those as far as the K-th share its place."""
    if not 1 <= K <= len(allowed):
        raise ValueError("need 1 <= K <= number of allowed points")
    distance = {j: squared_distance(Z[j], z) for j in allowed}
    reach = sorted(distance.values())[K - 1]
    nearer = [j for j in allowed if distance[j] < reach]
    tied = [j for j in allowed if distance[j] == reach]
    share = Fraction(K - len(nearer), len(tied))
    return [*((j, Fraction(1)) for j in nearer), *((j, share) for j in tied)]


def kernel_weights(Z: Matrix, z: Vector, allowed: Collection[int], kernel: Kernel) -> Weights:
    """Weights of the members of `allowed` in a local scale at z (§2.3 KNN, §2.6 RBF).

    K is cut to the size of `allowed` (§4).
    """
    name, parameter = kernel
    if name == "knn":
        return nearest(Z, z, allowed, min(int(parameter), len(allowed)))
    if name == "graded":
        ks = [min(int(multiple * parameter), len(allowed)) for multiple in (1, 4)]
        return [(j, w / k) for k in ks for j, w in nearest(Z, z, allowed, k)]
    if name == "rbf":
        length = MP.mpf(float(parameter))
        squares = [(j, MP.mpf(squared_distance(Z[j], z))) for j in allowed]
        return [(j, MP.exp(-d2 / (2 * length * length))) for j, d2 in squares]
    raise ValueError(f"unknown kernel {name!r}")


def exact_numbers(values: Vector, kernel: Kernel) -> list[Any]:
    """The values, without rounding, in the arithmetic of the kernel; they must be >= 0."""
    if not all(0 <= float(v) < math.inf for v in values):
        raise ValueError("values must be finite and non-negative")
    kind: Any = MP.mpf if kernel[0] == "rbf" else Fraction
    return [kind(float(v)) for v in values]


def weighted_mean(weights: Weights, values: Sequence[Any]) -> Any:
    """Eq. (5) with the numerator K(X_i, X_k): sum w_k v_k / sum w_k."""
    numerator = sum(w * values[k] for k, w in weights)
    return numerator / sum(w for _, w in weights)


def weighted_rank(weights: Weights, values: Sequence[Any], level: Fraction) -> Any:
    """§24: the smallest value whose weight at or below reaches ceil(level K)."""
    needed, reached = math.ceil(level * sum(w for _, w in weights)), Fraction(0)
    for k, w in sorted(weights, key=lambda pair: values[pair[0]]):
        reached += w
        if reached >= needed:
            return values[k]
    raise AssertionError("all weights together reach every rank")


def _jackknife_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, kernel: Kernel,
    coverage: Coverage, offset: float,
) -> float:  # fmt: skip
    """§2.1, Eq. (6): Q-th smallest of Delta_i = scale_{N+1,i} s_i / scale_{i,N+1}.

    Both scales use the calibration rows other than i.  scale_{i,N+1} = 0 gives Delta_i = inf
    whatever the rest (§2.4); scale_{N+1,i} = 0 otherwise gives 0.  N = 1: plain split.
    """
    n = len(scores)
    if n == 1:
        return split_radius(scores, coverage)
    m = exact_numbers(magnitudes, kernel)
    s = exact_numbers(scores, kernel)
    (b,) = exact_numbers([offset], kernel)
    deltas = []
    for i in range(n):
        others = [k for k in range(n) if k != i]
        scale_i = weighted_mean(kernel_weights(Z, Z[i], others, kernel), m) + b
        scale_new = weighted_mean(kernel_weights(Z, z_new, others, kernel), m) + b
        deltas.append(math.inf if scale_i == 0 else to_float(scale_new * s[i] / scale_i))
    return order_statistic(deltas, conformal_rank(coverage, n))


def jackknife_knn_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, K: int,
    coverage: Coverage, offset: float = 0.0,
) -> float:  # fmt: skip
    """§2.1 with the K nearest inside the restricted set (§2.3), K cut to N - 1."""
    kernel = ("knn", float(K))
    return _jackknife_radius(Z, magnitudes, scores, z_new, kernel, coverage, offset)


def jackknife_rbf_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, length_scale: float,
    coverage: Coverage, offset: float = 0.0,
) -> float:  # fmt: skip
    """§2.1 with the weights exp(-d^2 / (2 l^2)) of §2.6."""
    kernel = ("rbf", length_scale)
    return _jackknife_radius(Z, magnitudes, scores, z_new, kernel, coverage, offset)


def _p_value_function(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, coverage: Coverage | None,
    kernel: Kernel, statistic: str, offset: float,
) -> Callable[[float], Fraction]:  # fmt: skip
    """The map t -> p(t) of §3.1; the weights are found once because they do not involve t."""
    if statistic not in ("mean", "rms") and (statistic, kernel[0]) != ("quantile", "knn"):
        raise ValueError(f"no statistic {statistic!r} for the kernel {kernel[0]!r}")
    level = None if coverage is None else exact_coverage(coverage)
    n = len(scores)
    bag = np.vstack([np.asarray(Z, dtype=float), np.asarray(z_new, dtype=float)])
    rows = []
    for i in range(n + 1):
        others = [k for k in range(n + 1) if k != i]
        rows.append(kernel_weights(bag, bag[i], others, kernel))
    m = exact_numbers(magnitudes, kernel)
    s = exact_numbers(scores, kernel)
    (b,) = exact_numbers([offset], kernel)
    # rms scales are compared through their squares; both sides are non-negative
    power = 2 if statistic == "rms" else 1
    slack = MP.mpf(10) ** -40 if kernel[0] == "rbf" else 0  # 60-digit rounding of equal sides

    def scale(i: int, bag_magnitudes: list[Any]) -> Any:
        if statistic == "quantile":
            assert level is not None, "the quantile statistic needs a coverage"
            return weighted_rank(rows[i], bag_magnitudes, level) + b
        return weighted_mean(rows[i], [v**power for v in bag_magnitudes]) + b**power

    def p_value(t: float) -> Fraction:
        (candidate,) = exact_numbers([t], kernel)
        bag_magnitudes = [*m, candidate]
        scale_new = scale(n, bag_magnitudes)  # free of t: the row excludes its own point
        count = 0
        for i in range(n):
            right = candidate**power * scale(i, bag_magnitudes)
            count += int(s[i] ** power * scale_new >= right * (1 - slack))
        return Fraction(1 + count, n + 1)

    return p_value


def full_p_value(
    t: float, Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector,
    coverage: Coverage | None, *, kernel: Kernel, statistic: str = "mean", offset: float = 0.0,
) -> Fraction:  # fmt: skip
    """§3.1: p(t) = (1 + #{i <= N: sigma_i(t) >= sigma_{N+1}(t)}) / (N + 1).

    Every comparison is s_i * scale_new >= t * scale_i(t), with t a member of the bag.  This
    one rule yields all the zero cases of §3.2-3.4 and §4: a calibration scale that is 0 for
    every t always satisfies it (t_i = inf, even for s_i = 0); if the new point carries the
    only weight on a non-zero score, scale_i(t) grows with t and s_i * scale_new = 0 leaves
    t = 0 alone; so does scale_new = 0 with a positive calibration scale.  p(0) = 1 always.
    """
    return _p_value_function(Z, magnitudes, scores, z_new, coverage, kernel, statistic, offset)(t)


def full_radius(
    Z: Matrix, magnitudes: Vector, scores: Vector, z_new: Vector, coverage: Coverage, *,
    kernel: Kernel, statistic: str = "mean", offset: float = 0.0,
) -> float:  # fmt: skip
    """§3.1: sup{t >= 0: p(t) > alpha}, bisected to the largest float inside the set.

    inf if the largest float is still inside; 0 if the smallest positive one is outside.
    """
    alpha = 1 - exact_coverage(coverage)
    p_value = _p_value_function(Z, magnitudes, scores, z_new, coverage, kernel, statistic, offset)
    if p_value(sys.float_info.max) > alpha:
        return math.inf
    if p_value(math.ulp(0.0)) <= alpha:
        return 0.0
    low = 1.0
    while p_value(low) <= alpha:
        low /= 2
    high = 2 * low
    while p_value(high) > alpha:
        low, high = high, min(2 * high, sys.float_info.max)
    while True:  # low is inside, high is outside
        middle = low + (high - low) / 2
        if not low < middle < high:
            return low
        low, high = (middle, high) if p_value(middle) > alpha else (low, middle)


def bag_coverage(
    Z: Matrix, s: Vector, radius_of: Callable[[Any, Any, Any, Coverage], float],
    coverage: Coverage,
) -> Fraction:  # fmt: skip
    """§13.6: share of the bag members covered when each in turn plays the new point."""
    rows, values = np.asarray(Z, dtype=float), np.asarray(s, dtype=float)
    covered = 0
    for j in range(len(values)):
        rest = [k for k in range(len(values)) if k != j]
        covered += int(values[j] <= radius_of(rows[rest], values[rest], rows[j], coverage))
    return Fraction(covered, len(values))


def kendall_tau_b(a: Vector, b: Vector) -> float:
    """(concordant - discordant) / sqrt(pairs untied in a * pairs untied in b); nan if 0 / 0."""
    balance = untied_a = untied_b = 0
    for i in range(len(a)):
        for j in range(i):
            sign_a = int(a[i] > a[j]) - int(a[i] < a[j])
            sign_b = int(b[i] > b[j]) - int(b[i] < b[j])
            balance += sign_a * sign_b
            untied_a += abs(sign_a)
            untied_b += abs(sign_b)
    if untied_a == 0 or untied_b == 0:
        return math.nan
    return balance / math.sqrt(untied_a * untied_b)


def tau_si(scores: Vector, widths: Vector) -> float:
    """§11.1: Kendall tau-b between the scores and the interval widths."""
    return kendall_tau_b(scores, widths)


def linear_quantile(values: Vector, level: Fraction) -> Fraction:
    """Exact quantile with linear interpolation between the order statistics."""
    ordered = sorted(Fraction(float(v)) for v in values)
    position = level * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def width_bins(widths: Vector, n_bins: int = 10) -> list[int]:
    """§11.1: bin = (number of distinct edges <= width) - 1, clipped; finite widths only."""
    edges = sorted({linear_quantile(widths, Fraction(j, n_bins)) for j in range(n_bins + 1)})
    at_most = [sum(1 for edge in edges if edge <= Fraction(float(w))) for w in widths]
    return [max(0, min(count - 1, len(edges) - 2)) for count in at_most]


def sqi_table(
    scores: Vector, widths: Vector, coverage: Coverage, n_bins: int = 10, min_count: int = 1
) -> list[tuple[int, float, float]]:
    """§11.1: (bin, ISQ = median width, CSQ = linear coverage-quantile of the scores) per bin.

    From the narrowest bin up, a bin with fewer than min_count points is joined with the next;
    what is left over at the top joins the bin below it.  A joined bin keeps its lowest index.
    """
    bins = width_bins(widths, n_bins)
    groups: list[list[int]] = []
    pending: list[int] = []
    for index in sorted(set(bins)):
        pending = pending + [i for i in range(len(bins)) if bins[i] == index]
        if len(pending) >= min_count:
            groups.append(pending)
            pending = []
    if pending:
        top = groups.pop() if groups else []
        groups.append(top + pending)
    table = []
    for group in groups:
        isq = linear_quantile([widths[i] for i in group], Fraction(1, 2))
        csq = linear_quantile([scores[i] for i in group], exact_coverage(coverage))
        table.append((min(bins[i] for i in group), float(isq), float(csq)))
    return table


def tau_sqi(
    scores: Vector, widths: Vector, coverage: Coverage, n_bins: int = 10, min_count: int = 1
) -> float:
    """§11.1: tau-b between the bin index and CSQ; nan with fewer than two bins."""
    table = sqi_table(scores, widths, coverage, n_bins, min_count)
    return kendall_tau_b([index for index, _, _ in table], [csq for _, _, csq in table])


def r2_sqi(
    scores: Vector, widths: Vector, coverage: Coverage, n_bins: int = 10, min_count: int = 1
) -> float:
    """§11.1: 1 - sum (ISQ - 2 CSQ)^2 / sum (ISQ - mean ISQ)^2; nan if < 2 bins or SS_tot = 0."""
    table = sqi_table(scores, widths, coverage, n_bins, min_count)
    isq = [Fraction(width) for _, width, _ in table]
    csq = [Fraction(score) for _, _, score in table]
    mean = sum(isq, Fraction(0)) / len(isq)
    total = sum((v - mean) ** 2 for v in isq)
    if len(table) < 2 or total == 0:
        return math.nan
    residual = sum((v - 2 * q) ** 2 for v, q in zip(isq, csq, strict=True))
    return float(1 - residual / total)


def interval_score(y: Vector, lower: Vector, upper: Vector, coverage: Coverage) -> float:
    """§11.2: mean of width + (2 / alpha) * (distance of y from the interval)."""
    penalty = 2 / (1 - exact_coverage(coverage))
    total = Fraction(0)
    for value, low, high in zip(y, lower, upper, strict=True):
        if math.isinf(float(high) - float(low)):
            return math.inf
        v, lo, hi = (Fraction(float(x)) for x in (value, low, high))
        total += (hi - lo) + penalty * (max(lo - v, Fraction(0)) + max(v - hi, Fraction(0)))
    return to_float(total / len(y))
