"""Conditional coverage: by width, in slabs of inputs, and as a classifier sees it.

**Worst-slab coverage.** A slab lies between two parallel planes, S = {x : a ≤ v·x ≤ b}, and holds
at least a share δ of the points. If coverage holds at every input, it holds in *every* slab. The
lowest coverage found would partly be chance, so one part of the rows chooses the slab with the
least mean of c_i = 1{y_i covered}, and the other part measures it there.

Dinkelbach's iteration finds the window of least mean: for a mean λ, the window with the least
Σ(c − λ) needs one running maximum over prefix sums; its own mean is the next λ, until none is
lower. Each iteration is O(n) a direction after one sort, and tied projections stay together.

**Excess risk of the target coverage (ERT).** If coverage is c at every input, no forecast of misses
from x is better than the constant c. So train a classifier p̂(x) of being covered, by
cross-validation, and measure with a proper loss how much it beats c,
ERT = Ê[ℓ(c, C)] − Ê[ℓ(p̂(X), C)] with C = 1{covered} and p(x) the true coverage at x:

    l2   ℓ(p, C) = (p − C)²                        estimates E (p(X) − c)²
    kl   ℓ(p, C) = −C log p − (1−C) log(1−p)       estimates E KL(p(X) ‖ c)
    l1   ERT = Ê[sign(c − p̂(X)) (c − C)]           estimates E |p(X) − c|

Whatever the classifier, none exceeds in expectation what it estimates: the value is a lower bound,
tight if p̂ = p.

Letters: δ → ``slab``, v → ``directions``, c → ``coverage``, C → ``covered``, p̂ → ``forecast``.
"""

from math import ceil
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._types import BoolArray, FloatArray
from calliper._validation import at_least, check_option
from calliper.exceptions import CalliperError
from calliper.lab.metrics import _inputs as inputs
from calliper.lab.metrics._adaptivity import sort_widths
from calliper.lab.metrics._inputs import IntervalsLike, UndefinedError, nan_if_undefined

Loss = Literal["l1", "l2", "kl"]
Side = Literal["both", "under", "over"]

# Forecasts are kept this far from 0 and 1, where the log loss is infinite.
_CLIP = 1e-6
# Features have unit spread, so projections closer than this differ by rounding only.
_SAME_PROJECTION = 1e-9


@nan_if_undefined
def hsic(
    y: Any, intervals: IntervalsLike, *, max_points: int = 5000, random_state: Any = None
) -> float:
    r"""Dependence between being covered and the width: HSIC with Gaussian kernels.

    .. math:: \mathrm{HSIC} = \frac{\mathrm{tr}(K H L H)}{(n - 1)^2}, \qquad
       K_{ij} = e^{-(c_i - c_j)^2}, \quad L_{ij} = e^{-(w_i - w_j)^2}, \quad H = I - \tfrac1n 1 1^T

    with c = 1 if covered, else 0, and w the width divided by its standard deviation (Gretton et al.
    2005, doi:10.1007/11564089_7; for intervals Feldman, Bates, Romano 2021, arXiv:2106.00394).

    Good: 0, coverage is the same at every width; chance gives about 0.06/n at 90 % coverage.
    Misleads: it has no absolute scale, and misses coverage that varies with x at equal widths.

    Parameters
    ----------
    y, intervals : as in :func:`interval_score`
    max_points : int; size of the random sample if there are more rows: the cost is quadratic
    random_state : optional; seed of the sample

    Returns
    -------
    float of at least 0
        NaN with an ``UndefinedMetricWarning`` if all widths are equal (up to rounding) or one is
        infinite, if all targets are covered or none, or for fewer than 20 rows.

    Examples
    --------
    >>> width, inside = np.repeat([1.0, 2.0], 100), np.repeat([True, False, True], [50, 50, 100])
    >>> round(hsic(np.where(inside, 0.0, 9.0), (-width, width)), 4)
    0.0392
    """
    covered, widths = _covered_and_widths(y, intervals)
    rows = inputs.choose_rows(len(covered), max_points, random_state)
    covered, widths = covered[rows], widths[rows]
    _refuse_constant(covered, widths, f"in the {len(rows)} rows sampled, ")
    # K has two values: HKH = 2(1 − 1/e) aaᵀ with a = c − mean(c), so a quadratic form is left.
    a, w = covered - covered.mean(), widths / widths.max()  # so that squares do not overflow
    w /= w.std()
    form = float(a @ a)
    for block in row_slices(len(w), max(1, BLOCK_FLOATS // len(w))):  # above the diagonal
        above = np.exp(-np.square(w[block, None] - w[block.start :]))
        form += 2 * float(a[block] @ np.triu(above, 1) @ a[block.start :])
    return float(2 * (1 - np.exp(-1)) * form / (len(rows) - 1) ** 2)


@nan_if_undefined
def coverage_width_correlation(y: Any, intervals: IntervalsLike) -> float:
    r"""Absolute correlation between being covered and the width: \|Pearson(c, w)\|.

    Good: 0, misses are as frequent among wide intervals as among narrow ones; chance alone gives
    about 1/√m. Misleads: 0 may hide coverage that is low at both ends.

    Parameters
    ----------
    y, intervals : as in :func:`interval_score`

    Returns
    -------
    float in [0, 1]; NaN with a warning where :func:`hsic` is

    Examples
    --------
    >>> width, inside = np.repeat([1.0, 2.0], 100), np.repeat([True, False, True], [50, 50, 100])
    >>> round(coverage_width_correlation(np.where(inside, 0.0, 9.0), (-width, width)), 3)
    0.577
    """
    covered, widths = _covered_and_widths(y, intervals)
    w = widths / widths.max()  # so that squares neither overflow nor underflow
    c, w = covered - covered.mean(), w - w.mean()
    return float(min(1.0, abs(c @ w) / np.sqrt((c @ c) * (w @ w))))


def _covered_and_widths(y: Any, intervals: IntervalsLike) -> tuple[BoolArray, FloatArray]:
    """Both sorted by width, and neither constant."""
    read = inputs.one_level(intervals)
    order, widths = sort_widths(read)
    covered = read.contains(y)[order]
    inputs.refuse_few(len(widths))
    _refuse_constant(covered, widths)
    return covered, widths


def _refuse_constant(covered: BoolArray, widths: FloatArray, where: str = "") -> None:
    n, infinite = len(widths), np.count_nonzero(np.isinf(widths))
    if infinite:
        remedy = "remove those rows and quote fraction_infinite"
        raise UndefinedError(f"{where}{infinite} of {n} widths are infinite; {remedy}")
    if widths[0] == widths[-1]:
        raise UndefinedError(f"{where}all {n} widths are equal ({widths[0]:g})")
    if covered.all() or not covered.any():
        raise UndefinedError(f"{where}{'all' if covered[0] else 'none'} of {n} targets are covered")


class Slab(NamedTuple):
    """Points between two planes across a direction, and the coverage that chose them."""

    direction: FloatArray
    low: float
    high: float
    coverage: float


@nan_if_undefined
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
    """Coverage of the worst slab of inputs, on rows that were not used to choose it.

    Good: the level asked for, or slightly less. Misleads: random directions hardly find a slab in
    many dimensions, and it is a mean over few rows (0.1 · 0.75 · 5000 = 375: ± 0.016 at 90 %). From
    Cauchois, Gupta, Duchi (2021), arXiv:2004.10181, and Romano, Sesia, Candès (2020),
    arXiv:2006.02544.

    Parameters
    ----------
    y, intervals : as in :func:`interval_score`
    X : (m, d) inputs, or an embedding; columns are divided by their standard deviation first
    slab : float; δ, the smallest share of the rows in the slab
    n_directions : int; random directions to try; a single column has only one
    test_size : float; share of the rows that measure; the others choose the slab
    max_points : int; size of the random sample if there are more rows
    random_state : optional; seed of the sample, the two parts and the directions

    Returns
    -------
    float
        NaN with an ``UndefinedMetricWarning`` if no row of the second part lies in the slab, if
        X is constant, or for fewer than 20 rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=4000)
    >>> y = np.where(x > 0.8, rng.choice([0.0, 2.0], size=4000), 0.0)  # half covered there
    >>> round(worst_slab_coverage(y, (y * 0 - 1, y * 0 + 1), x, random_state=0), 2)
    0.47
    """
    covered, features = inputs.covered_and_features(y, inputs.one_level(intervals), X)
    for name, share in (("slab", slab), ("test_size", test_size)):
        if not 0 < share < 1:
            raise CalliperError(f"{name} must lie strictly between 0 and 1; got {share!r}.")
    inputs.refuse_few(len(covered))
    rng = check_random_state(random_state)
    rows = rng.permutation(inputs.choose_rows(len(covered), max_points, rng))
    features, covered = inputs.unit_spread(features[rows]), covered[rows]
    if not features.shape[1]:
        raise UndefinedError("every column of X is constant")
    part = max(1, round((1 - test_size) * len(rows)))
    n, d = at_least(n_directions, 1, "n_directions"), features.shape[1]
    directions = rng.normal(size=(n, d)) if d > 1 else np.ones((1, 1))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = find_slab(features[:part], covered[:part], directions, ceil(slab * part))
    along = features[part:] @ found.direction
    inside = (found.low - _SAME_PROJECTION <= along) & (along <= found.high + _SAME_PROJECTION)
    if not inside.any():
        which = f"none of the {len(along)} test rows"
        raise UndefinedError(f"{which} lies in the slab chosen on the other {part} rows")
    return float(covered[part:][inside].mean())


def find_slab(features: FloatArray, covered: BoolArray, directions: FloatArray, least: int) -> Slab:
    """The slab of least coverage with at least ``least`` of the points, over all directions."""
    every = features @ directions[0]
    best = Slab(directions[0], float(every.min()), float(every.max()), float(covered.mean()))
    for block in row_slices(len(directions), max(1, BLOCK_FLOATS // len(features))):
        along = directions[block] @ features.T
        order = np.argsort(along, axis=1)
        along = np.take_along_axis(along, order, axis=1)
        hits = np.zeros((len(along), len(features) + 1))
        np.cumsum(covered[order], axis=1, out=hits[:, 1:])
        cut = np.ones(hits.shape, dtype=bool)
        cut[:, 1:-1] = np.diff(along, axis=1) > _SAME_PROJECTION
        while True:
            row, start, stop = _least_sum(hits, cut, best.coverage, least)
            coverage = float((hits[row, stop] - hits[row, start]) / (stop - start))
            if coverage >= best.coverage:
                break
            ends = float(along[row, start]), float(along[row, stop - 1])
            best = Slab(directions[block][row], *ends, coverage)
    return best


def _least_sum(hits: FloatArray, cut: BoolArray, mean: float, least: int) -> tuple[int, int, int]:
    """Row, start and stop of the window with the least Σ(c − mean), between marked cuts."""
    excess = hits - mean * np.arange(hits.shape[1])
    opening = np.where(cut, excess, -np.inf)
    highest = np.maximum.accumulate(opening, axis=1)
    total = np.where(cut[:, least:], excess[:, least:], np.inf)
    total -= highest[:, : hits.shape[1] - least]
    row, last = np.unravel_index(int(np.argmin(total)), total.shape)
    return int(row), int(np.argmax(opening[row, : last + 1])), int(last) + least


@nan_if_undefined
def excess_risk_of_target_coverage(
    y: Any,
    intervals: IntervalsLike,
    X: Any,
    *,
    loss: Loss = "l1",
    side: Side = "both",
    coverage: float | None = None,
    classifier: Any = None,
    n_folds: int = 5,
    max_points: int = 5000,
    random_state: Any = None,
) -> float:
    """How far coverage at x is from the level, as far as a classifier can tell (ERT).

    Good: 0 or below; an ``"l1"`` of 0.05 means that coverage at x is off by at least 5 points on
    average. Misleads: a weak classifier finds nothing, and it includes the marginal miss: intervals
    that cover 99 % everywhere instead of 90 % have an l1 of 0.09. From Braun, Holzmüller, Jordan,
    Bach (2025), "Conditional Coverage Diagnostics for Conformal Prediction", arXiv:2512.11779.

    Parameters
    ----------
    y, intervals, X, max_points : as in :func:`worst_slab_coverage`
    loss : {"l1", "l2", "kl"}; for the mean of ``|p − c|``, (p − c)² or KL(p ‖ c) over inputs
    side : {"both", "under", "over"}
        Count inputs that seem to be covered too rarely, too often, or both, which is their sum.
    coverage : float, optional; c, by default the level of the intervals
    classifier : optional
        A scikit-learn classifier with ``predict_proba``; by default 50 boosted trees of 8 leaves.
    n_folds : int; folds of the cross-validation
    random_state : optional; seed of the sample, the folds and the default classifier

    Returns
    -------
    float; NaN with an ``UndefinedMetricWarning`` for fewer than 20 rows

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.integers(0, 2, size=2000)
    >>> y = np.where((x == 1) & (rng.random(2000) < 0.2), 9.0, 0.0)  # covered always, or at 80 %
    >>> ends = (y * 0 - 1, y * 0 + 1)
    >>> round(excess_risk_of_target_coverage(y, ends, x, coverage=0.9, random_state=0), 2)
    0.11
    """
    read = inputs.one_level(intervals)
    level = inputs.level_of(read, coverage)
    covered, features = inputs.covered_and_features(y, read, X)
    check_option(loss, get_args(Loss), "loss")
    check_option(side, get_args(Side), "side")
    folds = at_least(n_folds, 2, "n_folds")
    inputs.refuse_few(len(covered))
    rng = check_random_state(random_state)
    rows = inputs.choose_rows(len(covered), max_points, rng)
    if folds > len(rows):
        got = f"got {folds} for {len(rows)}"
        raise CalliperError(f"n_folds must be at most the number of rows; {got}: pass fewer.")
    forecast = _forecasts(classifier, features[rows], covered[rows], folds, rng)
    if side != "both":
        forecast = (np.minimum if side == "under" else np.maximum)(forecast, level)
    hit = covered[rows].astype(float)
    if loss == "l1":
        gain = np.sign(level - forecast) * (level - hit)
    elif loss == "l2":
        gain = (level - hit) ** 2 - (forecast - hit) ** 2
    else:
        p = np.clip(forecast, _CLIP, 1 - _CLIP)
        gain = hit * np.log(p / level) + (1 - hit) * np.log((1 - p) / (1 - level))
    return float(np.mean(gain))


def _forecasts(
    classifier: Any, X: FloatArray, covered: BoolArray, n_folds: int, rng: np.random.RandomState
) -> FloatArray:
    """Out-of-fold probability of each row of being covered."""
    forecast = np.empty(len(covered))
    if classifier is None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        # Few and shallow trees, for noisy labels and a smooth pattern.
        classifier = HistGradientBoostingClassifier(
            max_iter=50, max_leaf_nodes=8, early_stopping=False, random_state=rng.randint(2**31)
        )
    for train, test in KFold(n_folds, shuffle=True, random_state=rng).split(X):
        labels = covered[train]
        if labels.all() or not labels.any():
            forecast[test] = labels[0]
        else:
            forecast[test] = clone(classifier).fit(X[train], labels).predict_proba(X[test])[:, 1]
    return forecast
