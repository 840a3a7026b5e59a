"""Do calibration and test points look alike? A classifier that is asked to tell them apart.

If the two sets are exchangeable, no classifier can: the area under its curve (AUC), measured on
rows that it has not seen, scatters around 1/2. Where it can, features have drifted, and the
guarantee, which assumes exchangeable points, does not apply. Which features differ is said by
Kolmogorov and Smirnov's test of each, with Bonferroni's correction for their number.

Reference: D. Lopez-Paz, M. Oquab (2017), "Revisiting Classifier Two-Sample Tests",
arXiv:1610.06545.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
from scipy import stats

from calliper._types import FloatArray
from calliper.report.comparison._check import Check
from calliper.report.comparison._points import Points

#: Rows of each set that the classifier is trained on, and points that it takes at the least.
MOST_ROWS, FEWEST_ROWS = 2_000, 30
#: Of perfectly alike sets, the share that is suspected.
DOUBT = 0.001
#: An AUC below this is so near 1/2 that coverage can hardly feel it.
HARMLESS = 0.55


def drift(calibration: Points, test: Points, random_state: int) -> Iterator[Check]:
    """A warning if the two sets can be told apart."""
    if min(len(calibration), len(test)) < FEWEST_ROWS:
        return
    names = (*calibration.feature_names, "the prediction")
    known, new = (np.column_stack([points.Z, points.y_pred]) for points in (calibration, test))
    auc, p_value = told_apart(known, new, random_state)
    differing = _differing(known, new)
    if p_value >= DOUBT and not differing:
        return
    which = [names[i] for i in differing]
    more = f" and {len(which) - 5} more" if len(which) > 5 else ""
    found = f" Features that differ: {', '.join(which[:5])}{more}." if which else ""
    small = auc < HARMLESS
    yield Check(
        "drift",
        "note" if small else "warning",
        f"Calibration and test features differ{' a little' if small else ''}: a classifier "
        f"tells them apart with AUC {auc:.2f} (0.5 is none).{found}",
        "Every guarantee here assumes that calibration and new points are exchangeable. If the "
        "test rows are what the future looks like, it does not hold as stated, and coverage may "
        "be lower than promised; calibrate on rows like them.",
    )


def told_apart(first: FloatArray, second: FloatArray, random_state: int) -> tuple[float, float]:
    """The cross-validated AUC of first against second, and its p-value if they are alike."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    rng = np.random.default_rng(random_state)
    sets = [rows[rng.permutation(len(rows))[:MOST_ROWS]] for rows in (first, second)]
    X, which = np.concatenate(sets), np.repeat([0, 1], [len(rows) for rows in sets])
    model = HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=8, early_stopping=False, random_state=random_state
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=random_state)
    guess = cross_val_predict(model, X, which, cv=folds, method="predict_proba")[:, 1]
    a, b = map(len, sets)
    auc = float(roc_auc_score(which, guess))
    # Mann and Whitney's variance; three folds have three classifiers, which widens it a little.
    error = sqrt((a + b + 1) / (12 * a * b)) * 1.15
    return auc, float(stats.norm.sf((auc - 0.5) / error))


def _differing(first: FloatArray, second: FloatArray) -> list[int]:
    """Columns whose distributions differ, the most different first."""
    p_values = np.array(
        [
            stats.ks_2samp(a, b, method="asymp").pvalue
            for a, b in zip(first.T, second.T, strict=True)
        ]
    )
    order = np.argsort(p_values)
    return [int(i) for i in order if p_values[i] * len(p_values) < DOUBT]
