r"""Worst-slab coverage: the stretch of inputs, along some direction, that is covered least.

A slab is what lies between two parallel planes, S = {x : a ≤ v·x ≤ b}, with at least a share δ of
the points. Its coverage tends to the level asked for in *every* slab if coverage holds at every
input. Looking for the lowest value and quoting it would find chance as well as fault, so one part
of the rows chooses the slab and the other part measures it:

.. math:: \hat S = \arg\min_{v, a, b} \frac{\sum_i c_i 1\{x_i \in S\}}{\sum_i 1\{x_i \in S\}}
   \text{ on part 1}, \qquad
   \mathrm{WSC} = \text{mean of } c_i \text{ over } x_i \in \hat S \text{ on part 2}

The window of least mean is found by Dinkelbach's iteration: for a mean λ, the window with the
least Σ(c − λ) needs one running maximum over prefix sums; its own mean is the next λ, until none
is lower. That is O(n) an iteration and direction after one sort, fewer than the O(nL) of all
windows up to twice the least length L = ⌈δn⌉, and it keeps tied projections together.

Letters: δ → ``slab``, c → ``covered``, v → ``directions``.

Reference: M. Cauchois, S. Gupta, J. Duchi (2021), "Knowing what You Know: valid and validated
confidence sets in multiclass and multilabel prediction", JMLR 22(81), arXiv:2004.10181, section 4;
the two-part version: Y. Romano, M. Sesia, E. Candès (2020), "Classification with Valid and
Adaptive Coverage", NeurIPS, arXiv:2006.02544, supplement.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._types import BoolArray, FloatArray
from calliper.exceptions import CalliperError
from calliper.metrics._bins import at_least
from calliper.metrics._inputs import IntervalsLike, one_level
from calliper.metrics._rows import check_rows, choose_rows, too_few, unit_spread
from calliper.metrics._scored import undefined

# Features have unit spread, so projections closer than this differ by rounding only.
_SAME = 1e-9


class Slab(NamedTuple):
    """Points between two planes across a direction, and their coverage where it was found."""

    direction: FloatArray
    low: float
    high: float
    coverage: float


def worst_slab_coverage(
    y: Any,
    intervals: IntervalsLike,
    X: Any,
    *,
    slab: float = 0.1,
    n_directions: int = 1000,
    test_size: float = 0.75,
    max_points: int = 5000,
    random_state: Any = None,
) -> float:
    """Coverage of the slab of inputs that seems to be covered least, on rows that did not choose.

    Good: the level asked for, or little below. Constant intervals around uneven noise fall far
    below it.

    Misleads: it rises with blunt tools, since random directions hardly find a slab in many
    dimensions, and a small part 1 chooses badly: a good value is no proof. It scatters, being a
    mean over about ``slab`` of part 2 (0.1 · 0.75 · 5000 = 375 points: ± 0.016 at 90 %).

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level
    X : array of shape (m, d)
        Inputs, or an embedding; each column is divided by its standard deviation first.
    slab : float
        δ, the least share of the rows in the slab.
    n_directions : int
        Random directions tried; one input column has one direction only.
    test_size : float
        Share of the rows that measure; the others choose the slab.
    max_points : int
        If there are more rows, so many are taken at random.
    random_state : optional
        Seed of the sample, the two parts and the directions.

    Returns
    -------
    float
        NaN with an ``UndefinedMetricWarning`` if no row of the second part lies in the slab, if
        X is constant, or for fewer than 20 rows.

    References
    ----------
    Cauchois, Gupta, Duchi (2021), JMLR 22(81), arXiv:2004.10181; in two parts: Romano, Sesia,
    Candès (2020), arXiv:2006.02544.

    Examples
    --------
    Intervals that cover everywhere but for x > 0.8, where they cover half of the targets.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=4000)
    >>> y = np.where(x > 0.8, rng.choice([0.0, 2.0], size=4000), 0.0)
    >>> round(worst_slab_coverage(y, (y * 0 - 1, y * 0 + 1), x, random_state=0), 2)
    0.47
    """
    read = one_level(intervals)
    covered = read.contains(y)
    features = check_rows(X, len(covered))
    for name, share in (("slab", slab), ("test_size", test_size)):
        if not 0 < share < 1:
            raise CalliperError(f"{name} must lie strictly between 0 and 1; got {share!r}.")
    if reason := too_few(len(covered)):
        return undefined("worst_slab_coverage", reason)
    rng = check_random_state(random_state)
    rows = rng.permutation(choose_rows(len(covered), max_points, rng))
    features, covered = features[rows], covered[rows]
    features = unit_spread(features)
    if not features.shape[1]:
        return undefined("worst_slab_coverage", "every column of X is constant")
    part = max(1, round((1 - test_size) * len(rows)))
    directions = _directions(at_least(n_directions, 1, "n_directions"), features.shape[1], rng)
    found = find_slab(features[:part], covered[:part], directions, ceil(slab * part))
    place = features[part:] @ found.direction
    inside = (found.low - _SAME <= place) & (place <= found.high + _SAME)
    if not inside.any():
        reason = f"none of the {len(place)} rows that measure lies in the slab chosen by {part}"
        return undefined("worst_slab_coverage", reason)
    return float(covered[part:][inside].mean())


def _directions(n: int, d: int, rng: np.random.RandomState) -> FloatArray:
    if d == 1:
        return np.ones((1, 1))
    normal = rng.normal(size=(n, d))
    directions: FloatArray = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return directions


def find_slab(
    features: FloatArray, covered: BoolArray, directions: FloatArray, smallest: int
) -> Slab:
    """The slab of least coverage with at least ``smallest`` of the points, over all directions."""
    every = features @ directions[0]
    best = Slab(directions[0], float(every.min()), float(every.max()), float(covered.mean()))
    for block in row_slices(len(directions), max(1, BLOCK_FLOATS // len(features))):
        place = directions[block] @ features.T
        order = np.argsort(place, axis=1)
        place = np.take_along_axis(place, order, axis=1)
        hits = np.zeros((len(place), len(features) + 1))
        np.cumsum(covered[order], axis=1, out=hits[:, 1:])
        cut = np.ones(hits.shape, dtype=bool)
        cut[:, 1:-1] = np.diff(place, axis=1) > _SAME
        while True:
            row, start, stop = _least_sum(hits, cut, best.coverage, smallest)
            coverage = float((hits[row, stop] - hits[row, start]) / (stop - start))
            if coverage >= best.coverage:
                break
            low, high = float(place[row, start]), float(place[row, stop - 1])
            best = Slab(directions[block][row], low, high, coverage)
    return best


def _least_sum(
    hits: FloatArray, cut: BoolArray, mean: float, smallest: int
) -> tuple[int, int, int]:
    """Row, start and stop of the window with the least Σ(c − mean); cuts say where one may end."""
    excess = hits - mean * np.arange(hits.shape[1])
    opening = np.where(cut, excess, -np.inf)
    highest = np.maximum.accumulate(opening, axis=1)
    total = np.where(cut[:, smallest:], excess[:, smallest:], np.inf)
    total -= highest[:, : hits.shape[1] - smallest]
    row, last = np.unravel_index(int(np.argmin(total)), total.shape)
    return int(row), int(np.argmax(opening[row, : last + 1])), int(last) + smallest
