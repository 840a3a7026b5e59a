"""Locality checked on left-out errors: the rule, unless another candidate is clearly better.

Errors of the model on training rows that it was not fitted to (out of fold, out of bag) play the
calibration errors. Bags of N+1 of them are drawn; each member in turn is the new point, rescaled
by its neighbours in the bag, and its radius is the conformal quantile of the others' ratios times
its own scale. That is the full method but for the influence of one score on its neighbours' scales.
Interval scores are divided by plain split's mean on the same bag and averaged over levels. A
candidate replaces the rule only if it is better by more than a standard error of the difference,
point by point; of those, the best. Plain split is one of them. Taking the best of all instead
follows noise and is worse on average.

Bags have the size at hand, since what is best for 2,000 points is too local for 100. If there are
fewer errors than N+1, the bag is all of them, and the choice errs on the smooth side.

The choice is a function of training data and of N, not of the calibration points, so the full
method keeps its 1−α, whatever is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.spatial.distance import cdist

from calliper._types import FloatArray
from calliper.kernels import KNN, RBF
from calliper.kernels._distances import EUCLIDEAN
from calliper.kernels._search import NeighborSearch
from calliper.quantile import conformal_rank
from calliper.scale._locality import SMOOTHING, Locality, rounded
from calliper.scale._ratio import rescale
from calliper.scale._statistic import QuantileStatistic

#: Levels whose interval scores are averaged.
LEVELS = (0.8, 0.9, 0.95)

#: What is tried besides plain split: multiples of the rule's K or length scale, and, where K
#: nearest are the rule, shares of the global scale besides the rule's.
MULTIPLES = tuple(np.sqrt(2.0) ** step for step in range(-3, 4))
SHRINKAGES = (0.0, 0.1, 0.2, 0.5, 0.75)

#: Fewer errors say too little; members of a bag, and of all bags, are limited by time.
LEAST_ERRORS, MOST_MEMBERS, MOST_IN_ALL = 60, 1500, 8000


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
    size = min(n + 1, len(errors), MOST_MEMBERS)
    levels = [level for level in LEVELS if conformal_rank(level, size - 1) < size]
    if len(errors) < LEAST_ERRORS or not levels or not errors.any():
        return rule
    kernels, shares = _candidates(rule, size, free)
    total, count = np.zeros((len(kernels) * len(shares) + 1, len(errors))), np.zeros(len(errors))
    n_bags = 1 if size == len(errors) else min(-(-4 * len(errors) // size), -(-MOST_IN_ALL // size))
    for _ in range(n_bags):
        members = rng.choice(len(errors), size, replace=False)
        scales = _scales(kernels, shares, Z[members], errors[members], statistic, offset, rng)
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
    return Locality(kernels[kernel], m, "left-out errors", len(errors), against)


def _candidates(rule: Locality, size: int, free: bool) -> tuple[list[KNN] | list[RBF], list[float]]:
    """Kernels and shares to combine, those of the rule first."""
    kernel, shares = rule.kernel, [rule.shrinkage]
    multiples = [1.0, *(multiple for multiple in MULTIPLES if multiple != 1)]
    if isinstance(kernel, RBF):
        lengths = [float(kernel.length_scale) * multiple for multiple in multiples]
        return [RBF(rounded(length), smoothing=SMOOTHING) for length in lengths], shares
    assert isinstance(kernel, KNN)
    if free:
        shares += [m for m in SHRINKAGES if m != rule.shrinkage]
    ks = [max(1, min(round(kernel.n_neighbors * each), size // 2)) for each in multiples]
    return [KNN(k) for k in dict.fromkeys(ks)], shares


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
    kernels: list[KNN] | list[RBF],
    shares: list[float],
    Z: FloatArray,
    errors: FloatArray,
    statistic: str,
    offset: float,
    rng: np.random.RandomState,
) -> Callable[[float], FloatArray]:
    """For any level, the scales of all members of a bag, (candidates, n); the last are split's."""
    power = 2 if statistic == "rms" else 1
    sizes = errors**power
    middle = np.partition(sizes, (len(sizes) - 1) // 2)[(len(sizes) - 1) // 2]
    if isinstance(kernels[0], RBF):
        local = _radial_means([float(kernel.length_scale) for kernel in kernels], Z, sizes)
    else:
        local = _nearest([kernel.n_neighbors for kernel in kernels], Z, sizes, statistic, rng)

    def mixed(level: float) -> FloatArray:
        scale = np.concatenate([(1 - m) * local(level) + m * middle for m in shares])
        scale = (scale + offset**power) ** (1 / power)
        return np.vstack([scale, np.ones(len(errors))])

    return mixed


def _nearest(
    ks: list[int], Z: FloatArray, sizes: FloatArray, statistic: str, rng: np.random.RandomState
) -> Callable[[float], FloatArray]:
    """Scales over the K nearest others; neighbours are sorted once for all K."""
    search = NeighborSearch(Z, rng.uniform(size=len(Z)), EUCLIDEAN)
    member = sizes[search.nearest_others(max(ks))]
    if statistic == "quantile":
        nearest = [QuantileStatistic(member[:, : k - 1], member[:, k - 1], 0.0) for k in ks]
        return lambda level: np.stack([each.of_calibration(level) for each in nearest])
    sums = np.cumsum(member, axis=1)
    means = np.stack([sums[:, k - 1] / k for k in ks])
    return lambda level: means


def _radial_means(
    length_scales: list[float], Z: FloatArray, sizes: FloatArray
) -> Callable[[float], FloatArray]:
    """Means of the others with smoothed radial weights."""
    squared = cdist(Z, Z, "sqeuclidean")
    np.fill_diagonal(squared, np.inf)
    rest = SMOOTHING * (sizes.sum() - sizes) / (len(sizes) - 1)
    means = []
    for length_scale in length_scales:
        weight = np.exp(squared / (-2 * length_scale**2))
        means.append((weight @ sizes + rest) / (weight.sum(axis=1) + SMOOTHING))
    stacked = np.stack(means)
    return lambda level: stacked


def _interval_scores(errors: FloatArray, scale: FloatArray, level: float) -> FloatArray:
    """(candidates, n) half the interval score of each member with the others as calibration set."""
    ratio = np.stack([rescale(errors, row) for row in scale])
    ordered = np.sort(ratio, axis=1)
    rank = conformal_rank(level, ratio.shape[1] - 1)
    quantile, following = ordered[:, [rank - 1]], ordered[:, [rank]]
    # Without a member that is at or below the quantile, the next in order takes its place.
    threshold = np.where(ratio <= quantile, following, quantile)
    with np.errstate(invalid="ignore"):
        radius = np.where(np.isinf(threshold), np.inf, threshold * scale)
        return np.asarray(radius + np.maximum(errors - radius, 0.0) / (1 - level))
