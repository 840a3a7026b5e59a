"""Slow and plain: quantile scores and refitting methods straight from their definitions.

Loops over points, exact fractions for ranks, sorting; nothing is shared with the package.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf
from statistics import mean, median

from sklearn.base import clone

# --- quantile regression -------------------------------------------------------------------


def quantile_scores(y, row, variant, offset):
    """The scores of one target against its predicted quantiles: one, or one for each tail."""
    row = sorted(row)
    low, high = row[0], row[-1]
    if variant == "plain":
        return [max(low - y, y - high)]
    if variant == "ratio":
        return [max(low - y, y - high) / (high - low + offset)]
    if variant == "median":
        middle = row[1]
        return [max((low - y) / (middle - low + offset), (y - high) / (high - middle + offset))]
    return [low - y, y - high]


def smallest(values, rank):
    """The rank-th smallest, 1-based; −∞ before the first and ∞ after the last."""
    if rank < 1:
        return -inf
    return sorted(values)[rank - 1] if rank <= len(values) else inf


def quantile_interval(y, rows, new_row, coverage, variant, offset):
    """All targets that score at most the threshold of each tail, or the point closest to that."""
    alpha = 1 - Fraction(coverage)
    scores = [
        quantile_scores(target, row, variant, offset) for target, row in zip(y, rows, strict=True)
    ]
    tails = len(scores[0])
    rank = ceil((1 - alpha / tails) * (len(y) + 1))
    radius = [smallest([s[tail] for s in scores], rank) for tail in range(tails)]
    new_row = sorted(new_row)
    low, high = new_row[0], new_row[-1]
    below = above = 1.0
    if variant == "ratio":
        below = above = high - low + offset
    if variant == "median":
        below, above = new_row[1] - low + offset, high - new_row[1] + offset
    lower, upper = low - below * radius[0], high + above * radius[-1]
    if lower <= upper:
        return lower, upper
    if tails == 2:
        return ((lower + upper) / 2,) * 2
    return ((above * low + below * high) / (above + below),) * 2


# --- refitting -----------------------------------------------------------------------------


def refitted(estimator, X, y, keep):
    keep = list(keep)
    return clone(estimator).fit(X[keep], y[keep])


def one(model, x):
    return float(model.predict(x.reshape(1, -1))[0])


def plus_interval(centres, errors, coverage):
    """⌊α(n+1)⌋-th smallest of μ₋ᵢ(x) − Rᵢ, ⌈(1−α)(n+1)⌉-th smallest of μ₋ᵢ(x) + Rᵢ.

    Where these are out of order: between those of the last rank where they are, as far as the next
    rank allows.
    """
    n = len(errors)

    def at(rank):
        pairs = list(zip(centres, errors, strict=True))
        return smallest([c - r for c, r in pairs], n + 1 - rank), smallest(
            [c + r for c, r in pairs], rank
        )

    lower, upper = at(ceil(Fraction(coverage) * (n + 1)))
    if lower <= upper:
        return lower, upper
    last = max(rank for rank in range(1, n + 1) if at(rank)[0] > at(rank)[1])
    lower, upper = at(last + 1)
    return (min(max(sum(at(last)) / 2, lower), upper),) * 2


def minmax_interval(centres, errors, coverage):
    """min μ₋ᵢ(x) − R, max μ₋ᵢ(x) + R with R the ⌈(1−α)(n+1)⌉-th smallest error."""
    radius = smallest(errors, ceil(Fraction(coverage) * (len(errors) + 1)))
    return min(centres) - radius, max(centres) + radius


def fold_intervals(estimator, X, y, folds, new, coverage, minmax):
    """CV+ over the given folds, each a list of rows; folds of one row are the Jackknife+."""
    n, models = len(y), {}
    for fold in folds:
        model = refitted(estimator, X, y, [i for i in range(n) if i not in set(fold)])
        models.update(dict.fromkeys(fold, model))
    errors = [abs(y[i] - one(models[i], X[i])) for i in range(n)]
    interval = minmax_interval if minmax else plus_interval
    return [interval([one(models[i], x) for i in range(n)], errors, coverage) for x in new]


def quantile_fold_interval(pairs, errors, coverage):
    """CV+ of CQR at one point: order statistics of q_lo − Rᵢ and q_hi + Rᵢ, a pair a row.

    Where a pair moved inwards has passed itself, both its ends are its middle.
    """
    n, downs, ups = len(errors), [], []
    for (low, high), error in zip(pairs, errors, strict=True):
        down, up = low - error, high + error
        downs.append(down if down <= up else (low + high) / 2)
        ups.append(up if down <= up else (low + high) / 2)
    rank = ceil(Fraction(coverage) * (n + 1))
    return smallest(downs, n + 1 - rank), smallest(ups, rank)


def bootstrap_intervals(estimator, X, y, bootstraps, new, coverage, aggregate):
    """Jackknife+-after-bootstrap; a point in every bootstrap is as wrong as can be."""
    combine = {"mean": mean, "median": median}[aggregate]
    n = len(y)
    models = [refitted(estimator, X, y, rows) for rows in bootstraps]
    without = [
        [m for m, rows in zip(models, bootstraps, strict=True) if i not in set(rows)]
        for i in range(n)
    ]
    errors, centres = [], [[] for _ in new]
    for i in range(n):
        if not without[i]:
            errors.append(inf)
            for list_of_x in centres:
                list_of_x.append(0.0)
            continue
        errors.append(abs(y[i] - combine([one(m, X[i]) for m in without[i]])))
        for x, list_of_x in zip(new, centres, strict=True):
            list_of_x.append(combine([one(m, x) for m in without[i]]))
    return [plus_interval(c, errors, coverage) for c in centres]
