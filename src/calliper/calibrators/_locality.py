"""How local left-out errors want a scale to be, and local scales mixed with a global one.

*The search.* Errors on training rows that the model was not fitted to (out of fold, out of bag)
stand in for the calibration errors. Bags of N+1 of them are drawn. Each member in turn is the new
point: its radius is the conformal quantile of the others' rescaled errors times its own scale,
which is the full method except that one score has no influence on its neighbours' scales. Interval
scores are divided by plain split's mean on the same bag and averaged over levels. A candidate
replaces the rule only if it is better by more than a standard error of the difference, point by
point; plain split is one of the candidates. Always taking the best follows noise and is worse on
average. Bags have the size at hand, since what is best for 2,000 points is too local for 100; if
there are fewer errors than N+1, the bag is all of them, and the choice errs on the smooth side.

Rule and search use training data and the number of calibration points, nothing else about them, so
the full method keeps its 1−α whatever is chosen.

*The mixture.* The global scale is the median of all scores of the bag,

    ŝ_i(t) = (1−m)·local_i(t) + m·g(t),    g(t) the ⌈(N+1)/2⌉-th smallest of s_1 … s_N and t.

The median treats all members of the bag alike, so the guarantee holds. It is a clamp: with a ≤ b
the neighbouring order statistics of the calibration scores, g(t) = min(max(t, a), b). Scales matter
up to a common factor, so κg(t), κ = m/(1−m), is added to every local scale:

    below a   the constant κa is added: the closed form with an offset, radius R_a
    above b   the constant κb is added: the same, radius R_b
    between   κt is added; comparison i holds as long as t·(L_i(t) + κt) ≤ s_i·(L_{N+1} + κt),
              a quadratic equation for t_i

Each comparison still holds up to one t_i: s_i L_{N+1} + t·(κs_i − L_i(t) − κt) is a non-negative
constant plus t times something that decreases, so once negative it stays negative. The answer is
R_b if R_b ≥ b, else R_a if R_a ≤ a, else it lies between.

Letters: m → ``shrinkage``, κ → ``slope``, a, b → ``low``, ``high``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from calliper._kept import Keeps, Number, Part, Text
from calliper._types import FloatArray, IntArray
from calliper.kernels import STATISTICS, Bag, Kernel, as_kernel, rescale
from calliper.quantile import Shares, conformal_rank, power_of_two

#: Levels whose interval scores are averaged.
SCORED_LEVELS = (0.8, 0.9, 0.95)

#: What is tried besides plain split: multiples of the rule's K or length scale, and, where K
#: nearest are the rule, shares of the global scale besides the rule's.
MULTIPLES = tuple(np.sqrt(2.0) ** step for step in range(-3, 4))
SHRINKAGES = (0.0, 0.1, 0.2, 0.5, 0.75)

#: Fewer errors say too little; members of a bag, and of all bags, are limited by time.
LEAST_ERRORS, MOST_MEMBERS, MOST_IN_ALL = 60, 1500, 8000


@dataclass(frozen=True)
class Locality(Keeps):
    """Which points count as neighbours, how much of the scale is global, and how that was chosen.

    Attributes
    ----------
    kernel : the kernel used
    shrinkage : share of the global scale; 1 is plain split conformal
    chosen_by : "user", "rule", or "left-out errors"
    n_errors : number of left-out errors that were looked at; 0 if none
    against_split : estimated interval score over that of plain split, mean over levels; NaN if
        nothing was estimated
    statistic : what of the neighbours' scores is the scale
    """

    kernel: Annotated[Kernel, Part("kernels")]
    shrinkage: Annotated[float, Number(least=0, most=1)]
    chosen_by: Annotated[str, Text(("user", "rule", "left-out errors"))]
    n_errors: Annotated[int, Number(int, 0)] = 0
    against_split: Annotated[float, Number(finite=False)] = float("nan")
    statistic: Annotated[str, Text(tuple(STATISTICS))] = "mean"

    @classmethod
    def again(cls, state: dict[str, Any]) -> Locality:
        """With the parameters of its kernel checked."""
        return cls(**{**state, "kernel": as_kernel(state["kernel"]).resolved()})

    def describe(self) -> str:
        """In words, for a report."""
        of = "" if self.statistic == "mean" else f" ({self.statistic})"
        what = f"{self.kernel!r}{of}, shrinkage {self.shrinkage:g}"
        if self.shrinkage == 1:
            what = "plain split (one scale for all)"
        if self.chosen_by == "user":
            return f"{what}, as given"
        why = "chosen by the number of calibration points"
        if self.chosen_by == "left-out errors":
            why = f"chosen on {self.n_errors} left-out errors"
        elif self.n_errors:
            why += f"; nothing else was clearly better on {self.n_errors} left-out errors"
        if np.isnan(self.against_split):
            return f"{what}, {why}"
        gain = f"estimated interval score {self.against_split:.3f} times that of plain split"
        return f"{what}, {why} ({gain})"


def search_locality(
    rule: Locality,
    Z: FloatArray,
    errors: FloatArray,
    n: int,
    *,
    free: bool,
    statistic: str,
    offset: float,
    rng: np.random.RandomState,
) -> Locality:
    """The rule, or what is clearly better for N = n calibration points.

    Parameters
    ----------
    Z, errors : (m, d) and (m,) left-out training rows and the sizes of their errors
    free : whether the share of the global scale may differ from the rule's
    """
    unit = power_of_two(np.append(errors, offset))  # squares must not overflow
    errors, offset = errors / unit, offset / unit
    size = min(n + 1, len(errors), MOST_MEMBERS)
    levels = [level for level in SCORED_LEVELS if conformal_rank(level, size - 1) < size]
    if len(errors) < LEAST_ERRORS or not levels or not errors.any():
        return rule
    kernels, shares = _candidates(rule, size, free)
    total, count = np.zeros((len(kernels) * len(shares) + 1, len(errors))), np.zeros(len(errors))
    n_bags = 1 if size == len(errors) else min(-(-4 * len(errors) // size), -(-MOST_IN_ALL // size))
    for _ in range(n_bags):
        members = rng.choice(len(errors), size, replace=False)
        scales = _scales(kernels, shares, Z[members], errors[members], statistic, offset)
        count[members] += 1
        for level in levels:
            score = _interval_scores(errors[members], scales(level), level)
            total[:, members] += score / (score[-1].mean() * len(levels))
    seen = count > 0
    best, against = _clearly_best(total[:, seen] / count[seen], free)
    if best == 0:
        return replace(rule, n_errors=len(errors), against_split=against)
    share, kernel = divmod(best, len(kernels))
    m = (*shares, 1.0)[share]
    chosen_by, n_errors = "left-out errors", len(errors)
    return Locality(kernels[kernel], m, chosen_by, n_errors, against, statistic)


def _candidates(rule: Locality, size: int, free: bool) -> tuple[list[Kernel], list[float]]:
    """Kernels and shares to combine, those of the rule first."""
    kernels = [rule.kernel.widened(multiple, size // 2) for multiple in (1.0, *MULTIPLES)]
    different = list({repr(kernel): kernel for kernel in kernels}.values())
    shares = [rule.shrinkage]
    if free and not rule.kernel.smoothing:  # a smoothed kernel has its global part already
        shares += [m for m in SHRINKAGES if m != rule.shrinkage]
    return different, shares


def _clearly_best(score: FloatArray, free: bool) -> tuple[int, float]:
    """Which of (candidates, points) is taken, and its mean in units of the last, plain split.

    The first is the rule; if its intervals are infinite, it loses to whatever has finite ones.
    """
    score = score / score[-1].mean()
    mean = score.mean(axis=1)
    with np.errstate(invalid="ignore"):
        difference = score - score[0]
        error = difference.std(axis=1) / np.sqrt(score.shape[1])
        better = mean < mean[0] - np.where(np.isfinite(mean[0]), error, 0.0)
    if not free:  # plain split is no mixture with the share that was given
        better[-1] = False
    candidates = np.flatnonzero(better & np.isfinite(mean))
    best = int(candidates[np.argmin(mean[candidates])]) if len(candidates) else 0
    return best, float(mean[best])


def _scales(
    kernels: list[Kernel],
    shares: list[float],
    Z: FloatArray,
    errors: FloatArray,
    statistic: str,
    offset: float,
) -> Callable[[float], FloatArray]:
    """For any level, the scales of all members of a bag, (candidates, n); the last are split's."""
    power = 2 if statistic == "rms" else 1
    sizes = errors**power
    middle = np.sort(sizes)[(len(sizes) - 1) // 2]
    local = kernels[0].scales_of_others(kernels, Z, sizes, statistic=statistic)

    def mixed(level: float) -> FloatArray:
        scale = np.concatenate([(1 - m) * local(level) + m * middle for m in shares])
        scale = (scale + offset**power) ** (1 / power)
        return np.vstack([scale, np.ones(len(errors))])

    return mixed


def _interval_scores(errors: FloatArray, scale: FloatArray, level: float) -> FloatArray:
    """(candidates, n) half the interval score of each member with the others as calibration set."""
    ratio = rescale(errors, scale)
    ordered = np.sort(ratio, axis=1)
    rank = conformal_rank(level, ratio.shape[1] - 1)
    quantile, following = ordered[:, [rank - 1]], ordered[:, [rank]]
    # Without a member that is at or below the quantile, the next in order takes its place.
    threshold = np.where(ratio <= quantile, following, quantile)
    with np.errstate(invalid="ignore"):
        radius = np.where(np.isinf(threshold), np.inf, threshold * scale)
        return np.asarray(radius + np.maximum(errors - radius, 0.0) / (1 - level))


class ShrunkBag:
    """Thresholds t_i of the full method with shrunk scales.

    Parameters
    ----------
    bag : the local scales
    magnitudes : (N,) what scales are made of, N ≥ 2
    shrinkage : m, at least 0 and below 1
    """

    def __init__(self, bag: Bag, magnitudes: FloatArray, shrinkage: float) -> None:
        self.bag, self.slope = bag, shrinkage / (1 - shrinkage)
        middle = (len(magnitudes) + 2) // 2
        below, above = np.partition(magnitudes, [middle - 2, middle - 1])[middle - 2 : middle]
        self.low, self.high = float(below), float(above)
        self.at_low = bag.with_offset(bag.offset + self.slope * self.low)
        self.at_high = bag.with_offset(bag.offset + self.slope * self.high)

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, times 1/(1−m), (N,)."""
        return self.at_high.calibration_scale(level)

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i, by weight if given: (m, L)."""

        def ask(bag: Bag, rows: IntArray, column: int | None = None) -> FloatArray:
            own = shares and shares.of_rows(rows)
            if column is None:
                return bag.order_statistics(Z[rows], levels, own)
            asked = [levels[column]]
            return bag.order_statistics(Z[rows], asked, own, self.slope)[:, 0]

        return self._settle(len(Z), ask)

    def signed_order_statistics(
        self, Z: FloatArray, signs: FloatArray, ranks: list[int]
    ) -> FloatArray:
        """For each row and rank, the rank-th smallest of ±t_i with signs (N,): (m, L)."""

        def ask(bag: Bag, rows: IntArray, column: int | None = None) -> FloatArray:
            if column is None:
                return bag.signed_order_statistics(Z[rows], signs, ranks)
            asked, slope = [ranks[column]], self.slope
            return bag.signed_order_statistics(Z[rows], signs, asked, slope=slope)[:, 0]

        return self._settle(len(Z), ask)

    def _settle(self, m: int, ask: Callable[..., FloatArray]) -> FloatArray:
        """R_b, R_a, or what lies between them, (m, L): each column by its size, of either sign.

        ``ask`` gives the thresholds of some rows for a bag; of one column with the slope.
        """
        radius = ask(self.at_high, np.arange(m))
        small = np.abs(radius) < self.high
        rows = np.flatnonzero(small.any(axis=1))
        if not len(rows):
            return radius
        below = ask(self.at_low, rows)
        radius[rows] = np.where(small[rows], below, radius[rows])
        # Where a = 0 nothing is added at t = 0 and something beyond: R_a = 0 settles nothing.
        unsettled = small[rows] & ((np.abs(below) > self.low) | (self.low == 0))
        for column in np.flatnonzero(unsettled.any(axis=0)):
            inside = rows[unsettled[:, column]]
            found = ask(self.bag, inside, int(column))
            radius[inside, column] = np.sign(found) * np.clip(np.abs(found), self.low, self.high)
        return radius

    def thresholds(self, Z: FloatArray) -> FloatArray:
        """All thresholds t_i of a few rows, (m, N), in the order of the calibration points."""
        high, low = self.at_high.thresholds(Z), self.at_low.thresholds(Z)
        between = np.clip(self.bag.thresholds(Z, slope=self.slope), self.low, self.high)
        below = np.where((low > self.low) | (self.low == 0), between, low)
        return np.where(high < self.high, below, high)
