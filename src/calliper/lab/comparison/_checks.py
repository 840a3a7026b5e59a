"""Checks of the data and the answers that decide how far the numbers can be trusted.

**Rows that occur twice**, within one set or in two, whatever was predicted for them.

**Drift.** A classifier is trained to tell calibration and test points apart. If they are
exchangeable, its AUC on held-out rows scatters around 1/2. Kolmogorov-Smirnov tests with
Bonferroni's correction tell which features differ.

Reference: D. Lopez-Paz, M. Oquab (2017), "Revisiting Classifier Two-Sample Tests",
arXiv:1610.06545.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
from scipy import stats

from calliper._row_checks import find_shared, sketch_rows
from calliper._types import FloatArray
from calliper.calibrators import as_calibrator
from calliper.lab._words import first_of, listed, percent
from calliper.lab.comparison._comparison import NO_LABEL, Check, Comparison, Cut, Points, Severity
from calliper.lab.comparison._contest import FEWEST_TEST_POINTS, short_bins
from calliper.quantile import conformal_rank, required_calibration_size
from calliper.rows import find_trend
from calliper.scores import AbsoluteError, as_score
from calliper.space import n_teaching

#: Share of the targets at an extreme value that suggests a detection limit.
CENSORED = 0.02
#: Most rows of each set that the classifier is trained on, and the fewest that it needs.
CLASSIFIED_ROWS, FEWEST_CLASSIFIED = 2_000, 30
#: Share of exchangeable sets that are suspected.
DRIFT_DOUBT = 0.001
#: Below this AUC the effect on coverage is small.
HARMLESS = 0.55

_SEEN = (
    "The model was trained on them: their errors are smaller than on new rows, and no guarantee "
    "holds. Use rows that were not used for training."
)
#: What each kind of finding means.
_MEANINGS = {
    "test-in-calibration": "The intervals were calibrated on these rows, so their coverage is "
    "meaningless. Split the rows first, then compare.",
    "calibration-in-training": _SEEN,
    "test-in-training": _SEEN,
    "twins": "Targets and features take few values, so different rows may coincide. If these are "
    "the same rows, all numbers here are meaningless: check.",
    "duplicated-ids": "Rows of one unit are alike, so the errors given here are too small. If new "
    "rows come from new units, split by unit.",
    "shared-ids": "If an id is a unit (a patient, a molecule), coverage on new units may be lower "
    "than here. Split by unit.",
    "drift": "Every guarantee here assumes that calibration and new rows are exchangeable. If "
    "new rows will look like the test rows, coverage may be lower than guaranteed: calibrate on "
    "rows like them.",
    "censored": "This looks like a detection limit. Intervals cover the recorded value, not the "
    "true one beyond the limit, and errors look smaller than they are.",
    "missing-groups": "They are treated as one group, though they may have nothing in common: fill "
    "in the labels, or remove the rows.",
    "small-group": "Read their coverage together with its error bar; that of one row says nothing.",
    "short-group": "Coverage is guaranteed on average over all rows, not in each group; if all "
    "were covered alike, coverage this low would occur in one of 100 cases. Calibrating by group "
    "repairs it where a group has enough calibration rows (9 at 0.9): groups= in Python, calliper "
    "interval --group. Or use features that tell the groups apart.",
    "few-test-points": f"At least {FEWEST_TEST_POINTS} are needed; several hundred measure "
    "coverage to a few percent.",
    "infinite": "They are valid and always cover, but say nothing.",
    "all-rows": "By default, ConformalRegressor and calliper interval learn how the model errs "
    "from a part of them: pass learning_part=None for the intervals here.",
}


def _found(kind: str, title: str, severity: Severity = "warning") -> Check:
    return Check(kind, severity, title, _MEANINGS[kind])


def check_data(found: Comparison, methods: Mapping[str, Any]) -> Iterator[Check]:
    """Problems of the rows; and a note on methods that elsewhere learn from a part of them."""
    calibration, test, training = found.calibration, found.test, found.training
    yield from _seen("test-in-calibration", calibration, test)
    if training is not None:
        yield from _seen("calibration-in-training", training, calibration)
        yield from _seen("test-in-training", training, test)
    yield from _ids(calibration, test)
    if (trend := find_trend(calibration.y - calibration.y_pred)) is not None:
        title, end, meaning = trend.describe().partition("). ")
        yield Check("row-order", "warning", title + end.strip(), meaning)
    yield from drift(calibration, test, found.random_state)
    y = np.concatenate([calibration.y, test.y])
    for value, side in ((y.min(), "smallest"), (y.max(), "largest")):
        share = float(np.mean(y == value))
        # A few distinct values are a scale, not a detection limit.
        if share >= CENSORED and len(np.unique(y)) > 2 / CENSORED:
            title = f"{percent(share)} of the targets have the {side} value, {value:g}."
            yield _found("censored", title)
    sizes, n = Counter(found.groups or ()), len(calibration)
    if NO_LABEL in sizes:
        how_many = f"{sizes[NO_LABEL]:,} of {sizes.total():,}"
        title = f"{how_many} test rows have no group; they are shown as {NO_LABEL}."
        yield _found("missing-groups", title)
    if names := sorted(name for name, count in sizes.items() if count < FEWEST_TEST_POINTS):
        what = f"{'has' if len(names) == 1 else 'have'} fewer than {FEWEST_TEST_POINTS} test points"
        title = f"{len(names):,} of {len(sizes):,} groups {what}: {first_of(names)}."
        yield _found("small-group", title, "note")
    able = [name for name, each in methods.items() if "left_out" in as_calibrator(each).uses]
    if able and isinstance(as_score(found.score_function), AbsoluteError) and n_teaching(n, "auto"):
        yield _found("all-rows", f"{listed(able)} calibrated on all {n:,} rows.", "note")


def check_answers(found: Comparison) -> Iterator[Check]:
    """Problems of the numbers of points, and of what the methods answered."""
    n, n_test = len(found.calibration), len(found.test)
    if out_of_reach := [level for level in found.levels if conformal_rank(level, n) > n]:
        title = f"{n:,} calibration rows are too few for {listed([*map(percent, out_of_reach)])}."
        lowest = out_of_reach[0]
        needed = f"{percent(lowest)} needs {required_calibration_size(lowest):,} points."
        meaning = f"The only valid interval is infinite then. {needed}"
        yield Check("few-calibration-points", "warning", title, meaning)
    if n_test < FEWEST_TEST_POINTS:
        yield _found("few-test-points", f"There are only {n_test} test points.")
    parts = [each for each in found.parts if (each.level, each.by) == (found.coverage, "group")]
    yield from _short_groups(parts, n, found.verdict.method)
    for answer in found.answers:
        if answer.intervals is None:
            title = f"{answer.method} failed and is not compared."
            yield Check("failed", "warning", title, str(answer.failure))
            continue
        if infinite := float(np.isinf(answer.at(found.coverage).width).mean()):
            which = f"{'All' if infinite == 1 else percent(infinite)} of the intervals"
            title = f"{which} of {answer.method} at {percent(found.coverage)} are infinite."
            yield _found("infinite", title)
        for text in answer.warned:
            # The number of points is reported above, for all methods together.
            if not text.startswith(f"{n} calibration rows cannot support"):
                yield Check("method-warning", "note", f"{answer.method} warned.", text)


def _seen(kind: str, known: Points, points: Points) -> Iterator[Check]:
    """Rows that are in a set where they must not be, or that may be."""
    shared = find_shared(sketch_rows(known.Z, known.y), points.Z, points.y)
    rows, _, there = kind.partition("-in-")
    title = f"{shared.n_shared:,} of {len(points):,} {rows} rows are also {there} rows."
    if shared.certain:
        yield _found(kind, title, "void")
    elif shared.n_shared > len(points) / 2:
        yield Check(kind, "warning", title, _MEANINGS["twins"])


def _ids(calibration: Points, test: Points) -> Iterator[Check]:
    for points, name in ((calibration, "calibration"), (test, "test")):
        twice = [label for label, count in Counter(points.ids or ()).items() if count > 1]
        if twice:
            title = f"{len(twice):,} ids occur more than once among the {name} rows, such as "
            yield _found("duplicated-ids", f"{title}{twice[0]!r}.")
    if both := set(calibration.ids or ()) & set(test.ids or ()):
        title = f"{len(both):,} ids are in both the calibration and the test rows, such as "
        yield _found("shared-ids", f"{title}{min(both)!r}.")


def _short_groups(parts: Sequence[Cut], n_calibration: int, chosen: str | None) -> Iterator[Check]:
    """Groups that are covered less often than chance explains, the worst first, in one warning."""
    short: dict[int, dict[str, float]] = {}  # by number of the group and method: chance allows
    for part in parts:
        for number, bound in short_bins(part, n_calibration, len(parts)).items():
            short.setdefault(number, {})[part.method] = bound
    told = []
    for number, allowed in short.items():
        shares = {part.method: float(part.table.coverage[number]) for part in parts}
        methods = dict.fromkeys([each for each in (chosen, *allowed) if each is not None])
        words = {each: f"{percent(shares[each])} by {each}" for each in methods}
        said = [text + " (recommended)" * (each == chosen) for each, text in words.items()]
        name, table, lowest = parts[0].name, parts[0].table, min(shares[each] for each in allowed)
        error, n = sqrt(lowest * (1 - lowest) / table.n[number]), int(table.n[number])
        chance = f"standard error {percent(error)}, chance allows {percent(min(allowed.values()))}"
        where = f"{name} {table.labels[number]!r} ({n:,} rows)"
        told.append((lowest, f"{where}, {listed(said)} ({chance})"))
    if told:
        what = f"groups {'is' if len(told) == 1 else 'are'} covered less than chance explains"
        first = "; ".join(words for _, words in sorted(told)[:5])
        rest = f"; and {len(told) - 5} more" if len(told) > 5 else ""
        yield _found("short-group", f"{len(told)} of {len(table.n)} {what}: {first}{rest}.")


def drift(calibration: Points, test: Points, random_state: int) -> Iterator[Check]:
    """A warning if the two sets can be told apart."""
    if min(len(calibration), len(test)) < FEWEST_CLASSIFIED:
        return
    names = (*calibration.feature_names, "the prediction")
    known, new = (np.column_stack([points.Z, points.y_pred]) for points in (calibration, test))
    auc, p_value = told_apart(known, new, random_state)
    # By column, with Bonferroni's correction, the most different first.
    p_values = stats.ks_2samp(known, new, method="asymp").pvalue * len(names)
    differing = [names[i] for i in np.argsort(p_values) if p_values[i] < DRIFT_DOUBT]
    if p_value >= DRIFT_DOUBT and not differing:
        return
    found = f" Features that differ: {first_of(differing, str)}." if differing else ""
    small = auc < HARMLESS
    what = f"Calibration and test features differ{' a little' if small else ''}"
    how = f"a classifier tells them apart with AUC {auc:.2f} (0.5 would be chance)"
    yield _found("drift", f"{what}: {how}.{found}", "note" if small else "warning")


def told_apart(first: FloatArray, second: FloatArray, random_state: int) -> tuple[float, float]:
    """The cross-validated AUC of first against second, and its p-value under exchangeability."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    rng = np.random.default_rng(random_state)
    sets = [rows[rng.permutation(len(rows))[:CLASSIFIED_ROWS]] for rows in (first, second)]
    X, which = np.concatenate(sets), np.repeat([0, 1], [len(rows) for rows in sets])
    model = HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=8, early_stopping=False, random_state=random_state
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=random_state)
    guess = cross_val_predict(model, X, which, cv=folds, method="predict_proba")[:, 1]
    a, b = map(len, sets)
    auc = float(roc_auc_score(which, guess))
    # Mann-Whitney's variance; three folds have three classifiers, which widens it a little.
    error = sqrt((a + b + 1) / (12 * a * b)) * 1.15
    return auc, float(stats.norm.sf((auc - 0.5) / error))
