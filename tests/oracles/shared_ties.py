"""A slow, literal oracle for K nearest neighbours with shared ties.

Written from the specification alone (algorithms.md 1.1-1.3, 2, 3 and 24).  Nothing here is
fast and nothing is clever: every quantity is recomputed from its definition, and every number is
an ``int`` or a ``fractions.Fraction``, so that no comparison is decided by rounding.  A float is
taken for exactly the binary number that it is.

Conventions
-----------
* ``distances`` are compared only with each other, so squared Euclidean distances serve.  They are
  exact; two distances tie iff they are equal as rational numbers.  Feed integers (or dyadic
  floats) wherever ties matter, or pass ``distance=rounded_distance`` for ties of float64 sums.
* K is capped at the size of the restricted set: N-1 for Jackknife+, N for full conformal.
* ``coverage`` = 1 - alpha; Q = ceil(coverage (N+1) - 1e-9) as in 1.1, and "p > alpha" is
  "(N+1) p > N+1-Q", which is the same thing without float noise.  Q = N+1 means infinite.
* ``offset`` is beta of 2.4: scale + beta; for rms sqrt(scale^2 + beta^2).
* ``shrinkage`` m: scale = (1-m) local + m g(t) + beta; for rms the squares are mixed,
  scale^2 = (1-m) local^2 + m g(t)^2 + beta^2.  g(t) is the ceil((N+1)/2)-th smallest of all N+1
  scores of the bag, the same number for every member.
* A scale may be 0.  Nothing is divided by it: s_i / scale_i >= t / scale_new is asked as
  s_i scale_new >= t scale_i, so scale_i = 0 counts as "holds", whatever the rest (2.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Number: TypeAlias = int | Fraction
Row: TypeAlias = tuple[Number, ...]
Distance: TypeAlias = Callable[[Row, Row], Number]
Method: TypeAlias = Callable[[list[Row], list[Number], Row, Number, Number], bool]

STATISTICS = ("mean", "rms", "quantile")


# ------------------------------------------------------------------ exact numbers
def exact(value: Any) -> Number:
    """The rational number that ``value`` is (a float is a binary fraction)."""
    if isinstance(value, np.generic):
        value = value.item()
    fraction = Fraction(value)
    return fraction.numerator if fraction.denominator == 1 else fraction


def exact_scores(scores: Any) -> list[Number]:
    numbers = [exact(s) for s in scores]
    if any(s < 0 for s in numbers):
        raise ValueError("scores must not be negative")
    return numbers


def exact_row(row: Any) -> Row:
    values = row if isinstance(row, (tuple, list, np.ndarray)) else [row]
    return tuple(exact(v) for v in values)


def exact_rows(rows: Any) -> list[Row]:
    return [exact_row(row) for row in rows]


def ceiling(value: Number) -> int:
    """ceil with the tolerance of 1.1, so that 0.9 * 10 is 9 and not 10."""
    return math.ceil(value - Fraction(1, 10**9))


def conformal_rank(coverage: Any, n: int) -> int:
    """Q of 1.1."""
    return ceiling(exact(coverage) * (n + 1))


# ------------------------------------------------------------------ distances and weights
def squared_distance(a: Row, b: Row) -> Number:
    total: Number = 0
    for u, v in zip(a, b, strict=True):
        total += (u - v) * (u - v)
    return total


def rounded_distance(a: Row, b: Row) -> Number:
    """The same in float64, feature by feature: ties as plain floating point sees them."""
    total = 0.0
    for u, v in zip(a, b, strict=True):
        total += (float(u) - float(v)) ** 2
    return exact(total)


def shared_weights(distances: Sequence[Any], k: int) -> list[Fraction]:
    """Weights of 24: 1 for the c strictly nearer than rho, (K-c)/|T| for each of T, else 0."""
    k = min(k, len(distances))
    if k == 0:
        return []
    rho = sorted(distances)[k - 1]
    c = sum(1 for d in distances if d < rho)
    tied = sum(1 for d in distances if d == rho)
    weights = []
    for d in distances:
        if d < rho:
            weights.append(Fraction(1))
        elif d == rho:
            weights.append(Fraction(k - c, tied))
        else:
            weights.append(Fraction(0))
    assert sum(weights) == k
    return weights


def weighted_order_statistic(
    values: Sequence[Number], weights: Sequence[Fraction], rank: int
) -> Number:
    """The smallest value whose weight at or below reaches ``rank``."""
    for v in sorted(values):
        if sum(w for u, w in zip(values, weights, strict=True) if u <= v) >= rank:
            return v
    raise AssertionError("the weights sum to less than the rank")


def local_scale(
    x: Row,
    rows: Sequence[Row],
    scores: Sequence[Number],
    k: int,
    statistic: str = "mean",
    level: Any = None,
    distance: Distance = squared_distance,
) -> Number:
    """Scale at ``x`` from the restricted set ``rows``; for rms its SQUARE, which is rational."""
    k = min(k, len(rows))
    weights = shared_weights([distance(x, row) for row in rows], k)
    if statistic == "mean":
        return exact(sum(w * s for w, s in zip(weights, scores, strict=True)) / Fraction(k))
    if statistic == "rms":
        return exact(sum(w * s * s for w, s in zip(weights, scores, strict=True)) / Fraction(k))
    if statistic == "quantile":
        return weighted_order_statistic(scores, weights, ceiling(exact(level) * k))
    raise ValueError(f"unknown statistic {statistic!r}")


def without(values: Sequence[Any], *indices: int) -> list[Any]:
    return [v for j, v in enumerate(values) if j not in indices]


# ------------------------------------------------------------------ split, Jackknife+, minmax
def order_statistic_or_inf(values: Sequence[Number | float], rank: int) -> Number | float:
    return math.inf if rank > len(values) else sorted(values)[rank - 1]


def split_radius(scores: Any, coverage: Any) -> Number | float:
    numbers = exact_scores(scores)
    return order_statistic_or_inf(numbers, conformal_rank(coverage, len(numbers)))


def leave_two_out_scale(
    bag_rows: Sequence[Row],
    bag_scores: Sequence[Number],
    i: int,
    j: int,
    k: int,
    distance: Distance = squared_distance,
) -> Number:
    """s_hat_ij of 2.1: at X_i, from the bag without i and j."""
    return local_scale(
        bag_rows[i], without(bag_rows, i, j), without(bag_scores, i, j), k, distance=distance
    )


def leave_two_out_matrix(
    Z: Any, scores: Any, k: int, distance: Distance = squared_distance
) -> list[list[Number]]:
    """s_hat_ij inside the calibration set alone, cal without {i, j}; the diagonal is
    s_hat_{i,N+1}, from cal without {i}.  (For tuning; no radius needs it.)"""
    rows, numbers = exact_rows(Z), exact_scores(scores)
    n = len(rows)
    return [
        [leave_two_out_scale(rows, numbers, i, j, k, distance) for j in range(n)] for i in range(n)
    ]


def _both_sides(
    Z: Any, scores: Any, z_new: Any, k: int, offset: Any, distance: Distance
) -> tuple[list[Number], list[Number], list[Number]]:
    """Scores, s_hat_{i,N+1} and s_hat_{N+1,i} in the bag with the new point last."""
    rows, numbers = exact_rows(Z), exact_scores(scores)
    n, beta = len(rows), exact(offset)
    bag = [*rows, exact_row(z_new)]
    bag_scores: list[Number] = [*numbers, 0]  # the new score is never looked at
    k = min(k, n - 1)
    of_calibration = [
        leave_two_out_scale(bag, bag_scores, i, n, k, distance) + beta for i in range(n)
    ]
    of_new = [leave_two_out_scale(bag, bag_scores, n, i, k, distance) + beta for i in range(n)]
    return numbers, of_calibration, of_new


def jackknife_radius(
    Z: Any,
    scores: Any,
    z_new: Any,
    k: int,
    coverage: Any,
    offset: Any = 0,
    distance: Distance = squared_distance,
) -> Number | float:
    """2.1: the Q-th smallest of s_hat_{N+1,i} s_i / s_hat_{i,N+1}; inf where that is 0 (2.4)."""
    if len(scores) == 1:
        return split_radius(scores, coverage)
    numbers, of_calibration, of_new = _both_sides(Z, scores, z_new, k, offset, distance)
    deltas: list[Number | float] = []
    for s, below, above in zip(numbers, of_calibration, of_new, strict=True):
        deltas.append(math.inf if below == 0 else exact(Fraction(above) * s / below))
    return order_statistic_or_inf(deltas, conformal_rank(coverage, len(numbers)))


def minmax_radius(
    Z: Any,
    scores: Any,
    z_new: Any,
    k: int,
    coverage: Any,
    offset: Any = 0,
    distance: Distance = squared_distance,
) -> Number | float:
    """3.6: (max_i s_hat_{N+1,i}) times the Q-th smallest of s_i / s_hat_{i,N+1}."""
    if len(scores) == 1:
        return split_radius(scores, coverage)
    numbers, of_calibration, of_new = _both_sides(Z, scores, z_new, k, offset, distance)
    ratios: list[Number | float] = []
    for s, below in zip(numbers, of_calibration, strict=True):
        ratios.append(math.inf if below == 0 else exact(Fraction(s) / below))
    ratio = order_statistic_or_inf(ratios, conformal_rank(coverage, len(numbers)))
    return math.inf if isinstance(ratio, float) else exact(max(of_new) * ratio)


# ------------------------------------------------------------------ full conformal
def bag_median(bag_scores: Sequence[Number]) -> Number:
    """g: the ceil((N+1)/2)-th smallest of all N+1 scores."""
    size = len(bag_scores)
    return sorted(bag_scores)[(size + 1) // 2 - 1]


def full_scales(
    Z: Any,
    scores: Any,
    z_new: Any,
    t: Any,
    k: int,
    statistic: str = "mean",
    level: Any = None,
    offset: Any = 0,
    shrinkage: Any = 0,
    distance: Distance = squared_distance,
) -> list[Number]:
    """Scales of all N+1 members when the new score is t (squares of them for rms)."""
    bag = [*exact_rows(Z), exact_row(z_new)]
    bag_scores = [*exact_scores(scores), exact(t)]
    beta, m = exact(offset), exact(shrinkage)
    g = bag_median(bag_scores)
    if statistic == "rms":
        beta, g = beta * beta, g * g
    scales = []
    for i in range(len(bag)):
        local = local_scale(
            bag[i], without(bag, i), without(bag_scores, i), k, statistic, level, distance
        )
        scales.append(exact((1 - m) * local + m * g + beta))
    return scales


def full_holds(
    Z: Any,
    scores: Any,
    z_new: Any,
    t: Any,
    k: int,
    statistic: str = "mean",
    level: Any = None,
    offset: Any = 0,
    shrinkage: Any = 0,
    distance: Distance = squared_distance,
) -> list[bool]:
    """For every calibration row: is it at least as strange as the new one with score t?"""
    *scales, of_new = full_scales(
        Z, scores, z_new, t, k, statistic, level, offset, shrinkage, distance
    )
    power = 2 if statistic == "rms" else 1
    new = exact(t) ** power
    return [
        s**power * of_new >= new * scale
        for s, scale in zip(exact_scores(scores), scales, strict=True)
    ]


def full_p_value(
    Z: Any,
    scores: Any,
    z_new: Any,
    t: Any,
    k: int,
    statistic: str = "mean",
    level: Any = None,
    offset: Any = 0,
    shrinkage: Any = 0,
    distance: Distance = squared_distance,
) -> Fraction:
    """p(t) = (1 + #{i <= N: sigma_i(t) >= sigma_{N+1}(t)}) / (N+1) of 3.1."""
    holds = full_holds(Z, scores, z_new, t, k, statistic, level, offset, shrinkage, distance)
    return Fraction(1 + sum(holds), 1 + len(holds))


def accepted(p: Fraction, n: int, coverage: Any) -> bool:
    """p > alpha, with the tolerance of 1.1."""
    return p * (n + 1) > n + 1 - conformal_rank(coverage, n)


def largest_true(holds: Callable[[Number], bool], beyond: Number, steps: int = 52) -> float:
    """sup{t >= 0: holds(t)} of a predicate true up to some point and false after it.

    ``beyond``: a number such that a predicate still true there is true for ever.
    """
    if holds(beyond):
        return math.inf
    high = max(0, math.ceil(math.log2(float(beyond)))) + 1  # false at 2**high
    low = -300
    if not holds(Fraction(2) ** low):
        return 0.0
    while high - low > 1:  # the power of two below the end ...
        middle = (low + high) // 2
        if holds(Fraction(2) ** middle):
            low = middle
        else:
            high = middle
    below, above = Fraction(2) ** low, Fraction(2) ** high
    for _ in range(steps):  # ... then plain halving
        half = (below + above) / 2
        if holds(half):
            below = half
        else:
            above = half
    return float((below + above) / 2)


def beyond_every_crossing(scores: Sequence[Number], scales: Sequence[Number], power: int) -> Number:
    """A t beyond all finite crossings, from scores and scales taken at some t0 > max(scores).

    From t0 on the new point's scale is constant (g has stopped moving, as N >= 2, or N = 1 and g
    is the one score), and the scale of i only grows; so a comparison that ends at all ends by
    max(t0, s_i scale_new / scale_i) (for rms: of the squares, whose root is below 1 + square).
    """
    bound: Number = max([*scores, 0]) + 1
    *of_calibration, of_new = scales
    for s, scale in zip(scores, of_calibration, strict=True):
        if scale > 0:
            bound = max(bound, exact(Fraction(s**power) * of_new / scale) + 1)
    return math.ceil(bound) + 1


def full_crossing_by_bisection(
    Z: Any,
    scores: Any,
    z_new: Any,
    i: int,
    k: int,
    statistic: str = "mean",
    level: Any = None,
    offset: Any = 0,
    shrinkage: Any = 0,
    distance: Distance = squared_distance,
) -> float:
    """t_i = sup{t: comparison i holds}."""
    numbers = exact_scores(scores)
    options = (k, statistic, level, offset, shrinkage, distance)
    start = max(numbers) + 1
    beyond = beyond_every_crossing(
        numbers, full_scales(Z, scores, z_new, start, *options), 2 if statistic == "rms" else 1
    )
    return largest_true(lambda t: full_holds(Z, scores, z_new, t, *options)[i], beyond)


def full_radius_by_bisection(
    Z: Any,
    scores: Any,
    z_new: Any,
    k: int,
    coverage: Any,
    statistic: str = "mean",
    level: Any = None,
    offset: Any = 0,
    shrinkage: Any = 0,
    distance: Distance = squared_distance,
) -> float:
    """sup{t: p(t) > alpha}; inf if it never ends.  ``level`` None: the coverage."""
    numbers = exact_scores(scores)
    n = len(numbers)
    options = (k, statistic, coverage if level is None else level, offset, shrinkage, distance)
    start = max(numbers) + 1
    beyond = beyond_every_crossing(
        numbers, full_scales(Z, scores, z_new, start, *options), 2 if statistic == "rms" else 1
    )
    return largest_true(
        lambda t: accepted(full_p_value(Z, scores, z_new, t, *options), n, coverage), beyond
    )


# ------------------------------------------------------------------ exact coverage of a bag
def full_method(
    k: int,
    statistic: str = "mean",
    level: Any = None,
    offset: Any = 0,
    shrinkage: Any = 0,
    distance: Distance = squared_distance,
) -> Method:
    def covers(Z: list[Row], scores: list[Number], z_new: Row, t: Number, coverage: Number) -> bool:
        at = coverage if level is None else level
        p = full_p_value(Z, scores, z_new, t, k, statistic, at, offset, shrinkage, distance)
        return accepted(p, len(scores), coverage)

    return covers


def jackknife_method(k: int, offset: Any = 0, distance: Distance = squared_distance) -> Method:
    def covers(Z: list[Row], scores: list[Number], z_new: Row, t: Number, coverage: Number) -> bool:
        return t <= jackknife_radius(Z, scores, z_new, k, coverage, offset, distance)

    return covers


def minmax_method(k: int, offset: Any = 0, distance: Distance = squared_distance) -> Method:
    def covers(Z: list[Row], scores: list[Number], z_new: Row, t: Number, coverage: Number) -> bool:
        return t <= minmax_radius(Z, scores, z_new, k, coverage, offset, distance)

    return covers


def bag_coverage(bag_Z: Any, bag_scores: Any, method: Method, coverage: Any) -> int:
    """How many of the N+1 members are covered when each in turn is the new point.

    Divided by N+1 this is the coverage of an exchangeable draw from the bag, exactly.
    """
    rows, numbers, level = exact_rows(bag_Z), exact_scores(bag_scores), exact(coverage)
    return sum(
        method(without(rows, i), without(numbers, i), rows[i], numbers[i], level)
        for i in range(len(rows))
    )
