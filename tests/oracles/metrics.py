"""Measures of coverage straight from their definitions: loops, matrices, all windows."""

from __future__ import annotations

from fractions import Fraction
from math import comb, exp, inf, log

import numpy as np


def contained(y, lower, upper):
    return [low <= value <= high for value, low, high in zip(y, lower, upper, strict=True)]


def quantile_bins(values, n_bins):
    """Bin of each row: the middle rank of its value, as a share of the rows, times n_bins.

    Infinite values have a bin of their own, and do not count as rows.
    """
    values = list(values)
    n = sum(value < inf for value in values)
    places = []
    for value in values:
        below = sum(other < value for other in values)
        same = sum(other == value for other in values)
        middle = Fraction(2 * below + same, 2)
        places.append(n_bins if value == inf else middle * n_bins // n)
    renumbered = {place: rank for rank, place in enumerate(sorted(set(places)))}
    return [renumbered[place] for place in places]


def at_least(k, n, p):
    """P(Binomial(n, p) ≥ k)."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def worst_window(place, covered, smallest):
    """Least mean over all windows of at least ``smallest`` points that split no tie."""
    order = sorted(range(len(place)), key=lambda row: place[row])
    place, covered = [place[row] for row in order], [covered[row] for row in order]
    n, best = len(place), Fraction(2)
    for start in range(n):
        for stop in range(start + smallest, n + 1):
            splits = (start > 0 and place[start] == place[start - 1]) or (
                stop < n and place[stop] == place[stop - 1]
            )
            if not splits:
                best = min(best, Fraction(sum(covered[start:stop]), stop - start))
    return best


def hsic(covered, widths):
    """tr(KHLH)/(n−1)² with explicit matrices."""
    n = len(covered)
    scaled = np.asarray(widths) / np.std(widths)
    K = np.array([[exp(-((float(a) - float(b)) ** 2)) for b in covered] for a in covered])
    L = np.array([[exp(-((a - b) ** 2)) for b in scaled] for a in scaled])
    H = np.eye(n) - np.ones((n, n)) / n
    return float(np.trace(K @ H @ L @ H) / (n - 1) ** 2)


def excess_risk(forecast, covered, level, loss, side):
    """Mean over rows of loss(level) − loss(forecast), row by row."""
    total = 0.0
    for p, c in zip(forecast, covered, strict=True):
        if (side == "under" and p > level) or (side == "over" and p < level):
            continue
        if loss == "l1":
            total += (level - c) * (1 if level > p else -1 if level < p else 0)
        elif loss == "l2":
            total += (level - c) ** 2 - (p - c) ** 2
        else:
            p = min(max(p, 1e-6), 1 - 1e-6)
            total += log(p / level) if c else log((1 - p) / (1 - level))
    return total / len(forecast)
