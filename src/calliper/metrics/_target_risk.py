r"""Excess risk of the target coverage (ERT): how much better than "c everywhere" can one do?

If coverage is c at every input, nobody can forecast misses from x better than by saying c. So
train a classifier p̂(x) of being covered, by cross-validation, and measure with a proper loss how
much it beats the constant c:

.. math:: \mathrm{ERT}_\ell = \hat E[\ell(c, C)] - \hat E[\ell(\hat p(X), C)], \qquad
   C = 1\{\text{covered}\}

    l2   ℓ(p, C) = (p − C)²                        estimates E (p(X) − c)²
    kl   ℓ(p, C) = −C log p − (1−C) log(1−p)       estimates E KL(p(X) ‖ c)
    l1   ERT = Ê[sign(c − p̂(X)) (c − C)]           estimates E |p(X) − c|

with p(x) the true coverage at x. In expectation none exceeds what it estimates, whatever the
classifier: the value is a lower bound on the fault, tight if p̂ = p.

Letters: c → ``coverage``, C → ``covered``, p̂ → ``forecast``.

Reference: S. Braun, D. Holzmüller, M. Jordan, F. Bach (2025), "Conditional Coverage Diagnostics for
Conformal Prediction", arXiv:2512.11779.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from calliper._types import BoolArray, FloatArray
from calliper.exceptions import CalliperError
from calliper.metrics._bins import at_least
from calliper.metrics._inputs import IntervalsLike, level_of, one_level
from calliper.metrics._rows import check_rows, choose_rows, too_few
from calliper.metrics._scored import undefined

Loss = Literal["l1", "l2", "kl"]
Side = Literal["both", "under", "over"]
_CLIP = 1e-6


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
    """How far coverage at x is from the level asked for, as far as a classifier can tell (ERT).

    Good: 0 or below, the classifier found no input where coverage differs from the level. With
    ``"l1"`` the value reads as a mean distance: 0.05 says that coverage at x is off by 5 points
    on average, at least.

    Misleads: it is a lower bound. A weak classifier, few rows or many dimensions see nothing;
    negative values mean "no evidence", not "better than perfect". It contains the marginal miss
    as well: intervals that all cover 99 % instead of 90 % have an l1 of 0.09.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level
    X : array of shape (m, d)
        Inputs, or an embedding.
    loss : {"l1", "l2", "kl"}
        Estimates the mean of |p − c|, (p − c)² or KL(p ‖ c) over inputs, p the coverage there.
    side : {"both", "under", "over"}
        Count inputs forecast to be covered too rarely, too often, or both; the first two sum to
        the third.
    coverage : float, optional
        c; by default the level the intervals carry.
    classifier : optional
        A scikit-learn classifier with ``predict_proba``; by default 50 boosted trees of 8 leaves.
    n_folds : int
        Parts of the cross-validation; no row is forecast by a model that has seen it.
    max_points : int
        If there are more rows, so many are taken at random. More rows find smaller faults.
    random_state : optional
        Seed of that sample, the folds and the default classifier.

    Returns
    -------
    float
        NaN with an ``UndefinedMetricWarning`` for fewer than 20 rows.

    References
    ----------
    S. Braun, D. Holzmüller, M. Jordan, F. Bach (2025), "Conditional Coverage Diagnostics for
    Conformal Prediction", arXiv:2512.11779.

    Examples
    --------
    One half of the inputs is always covered, the other at 80 %: 0.1 from 90 % everywhere.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.integers(0, 2, size=2000)
    >>> y = np.where((x == 1) & (rng.random(2000) < 0.2), 9.0, 0.0)
    >>> ends = (y * 0 - 1, y * 0 + 1)
    >>> round(excess_risk_of_target_coverage(y, ends, x, coverage=0.9, random_state=0), 2)
    0.11
    """
    read = one_level(intervals)
    level = level_of(read, coverage)
    covered = read.contains(y)
    features = check_rows(X, len(covered))
    if loss not in ("l1", "l2", "kl"):
        raise CalliperError(f"loss must be 'l1', 'l2' or 'kl'; got {loss!r}.")
    if side not in ("both", "under", "over"):
        raise CalliperError(f"side must be 'both', 'under' or 'over'; got {side!r}.")
    folds = at_least(n_folds, 2, "n_folds")
    if reason := too_few(len(covered)):
        return undefined("excess_risk_of_target_coverage", reason)
    rng = check_random_state(random_state)
    rows = choose_rows(len(covered), max_points, rng)
    if folds > len(rows):
        raise CalliperError(
            f"n_folds must be at most the number of rows; got {folds} for {len(rows)}: pass fewer."
        )
    forecast = _forecasts(classifier, features[rows], covered[rows], folds, rng)
    if side == "under":
        forecast = np.minimum(forecast, level)
    elif side == "over":
        forecast = np.maximum(forecast, level)
    return _excess(forecast, covered[rows].astype(float), level, loss)


def _forecasts(
    classifier: Any, X: FloatArray, covered: BoolArray, n_folds: int, rng: np.random.RandomState
) -> FloatArray:
    """Probability of being covered, of each row by a classifier that has not seen it."""
    forecast = np.empty(len(covered))
    if classifier is None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        # Shallow and few: what is sought is a smooth pattern in noisy labels.
        classifier = HistGradientBoostingClassifier(
            max_iter=50, max_leaf_nodes=8, early_stopping=False, random_state=rng.randint(2**31)
        )
    for train, test in KFold(n_folds, shuffle=True, random_state=rng).split(X):
        labels = covered[train]
        if labels.all() or not labels.any():
            forecast[test] = labels[0]
        else:
            fitted = clone(classifier).fit(X[train], labels)
            forecast[test] = fitted.predict_proba(X[test])[:, 1]
    return forecast


def _excess(forecast: FloatArray, covered: FloatArray, level: float, loss: Loss) -> float:
    if loss == "l1":
        return float(np.mean(np.sign(level - forecast) * (level - covered)))
    if loss == "l2":
        return float(np.mean((level - covered) ** 2 - (forecast - covered) ** 2))
    bounded = np.clip(forecast, _CLIP, 1 - _CLIP)
    return float(
        np.mean(
            covered * np.log(bounded / level) + (1 - covered) * np.log((1 - bounded) / (1 - level))
        )
    )
