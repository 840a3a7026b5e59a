"""Warnings that matter: what in the data or the answers makes numbers mean less than they seem.

**Rows that occur twice**, within one set or in two. Rows are the same if target and features are,
to five digits of the spread of each column: files round, and another run of the model predicts
differently in the last digits. Predictions are left out, since the same row may have been predicted
by two models.

**Drift.** Do calibration and test points look alike? A classifier is asked to tell them apart. If
the two sets are exchangeable, no classifier can: the area under its curve (AUC), measured on rows
that it has not seen, scatters around 1/2. Where it can, features have drifted, and the guarantee,
which assumes exchangeable points, does not apply. Which features differ is said by Kolmogorov and
Smirnov's test of each, with Bonferroni's correction for their number.

Reference: D. Lopez-Paz, M. Oquab (2017), "Revisiting Classifier Two-Sample Tests",
arXiv:1610.06545.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from scipy import stats

from calliper._types import BoolArray, FloatArray
from calliper.comparison._answers import Answer, Sets
from calliper.comparison._points import FEWEST_TEST_POINTS, MISSING, Points
from calliper.comparison._words import counted, listed, percent
from calliper.quantile import conformal_rank, required_calibration_size

Severity = Literal["void", "warning", "note"]
_Keys = np.ndarray[tuple[int], np.dtype[np.void]]

#: Share of the targets at one extreme value that looks like a limit of measurement.
CENSORED = 0.02
#: Share of rows in common that makes a comparison void, beyond twins that occur anyway.
SHARED = 0.01
#: Digits of the spread of a column that rows must share.
DIGITS = 5
#: Rows of each set that the classifier is trained on, and points that it takes at the least.
MOST_ROWS, FEWEST_ROWS = 2_000, 30
#: Of perfectly alike sets, the share that is suspected.
DOUBT = 0.001
#: An AUC below this is so near 1/2 that coverage can hardly feel it.
HARMLESS = 0.55


@dataclass(frozen=True)
class Check:
    """Something to know before trusting the numbers.

    ``severity`` is ``"void"`` (they mean nothing), ``"warning"`` or ``"note"``; ``kind`` is a
    word for machines; ``title`` says what was found and ``meaning`` what follows from it.
    """

    kind: str
    severity: Severity
    title: str
    meaning: str


def check_data(sets: Sets, groups: Sequence[str] | None, *, random_state: int) -> Iterator[Check]:
    """What is wrong with the rows, whatever the method."""
    calibration, test = sets.calibration, sets.test
    yield from _overlap(sets)
    yield from _ids(calibration, test)
    yield from drift(calibration, test, random_state)
    yield from _censored(calibration, test)
    yield from _duplicates(calibration)
    yield from _groups(groups)


def check_answers(
    answers: Sequence[Answer], sets: Sets, *, levels: Sequence[float], coverage: float
) -> Iterator[Check]:
    """What is wrong with the number of points, and with what the methods answered."""
    n_calibration = len(sets.calibration)
    yield from _too_few(levels, n_calibration, len(sets.test))
    for answer in answers:
        if answer.intervals is None:
            yield Check(
                "failed",
                "warning",
                f"{answer.method} failed and is not compared.",
                str(answer.failure),
            )
            continue
        yield from _widths(answer, coverage)
        for text in answer.warned:
            # What concerns the number of points is said above, for all methods together.
            if not text.startswith(f"{n_calibration} calibration points cannot support"):
                yield Check(
                    "method-warning",
                    "note",
                    f"{answer.method} warned.",
                    text,
                )


def _overlap(sets: Sets) -> Iterator[Check]:
    yield from _seen(
        "test-in-calibration",
        sets.calibration,
        sets.test,
        "The intervals were made from the errors of these very rows, so their coverage is "
        "meaningless. Split the rows first, then compare.",
    )
    if sets.training is None:
        return
    for points, name in ((sets.calibration, "calibration"), (sets.test, "test")):
        yield from _seen(
            f"{name}-in-training",
            sets.training,
            points,
            "The model has seen them: their errors are smaller than those on new rows, and "
            "no guarantee holds. Use rows that took no part in training.",
        )


def _seen(kind: str, known: Points, points: Points, meaning: str) -> Iterator[Check]:
    """Rows that are in a set where they must not be."""
    shared, by_chance = shared_rows(known, points)
    if not shared:
        return
    rows, _, there = kind.partition("-in-")
    share = shared / len(points)
    severity: Severity = "warning" if share <= max(SHARED, 2 * by_chance) else "void"
    if share <= SHARED:
        meaning = "So few may be twins by chance; if they are the same rows, remove them from one."
    elif severity == "warning":
        meaning = (
            "Targets and features take few values, so that rows coincide without being the same. "
            "If these are the same rows, all numbers here are meaningless: make sure."
        )
    yield Check(
        kind,
        severity,
        f"{shared:,} of {len(points):,} {rows} rows are also {there} rows.",
        meaning,
    )


def _ids(calibration: Points, test: Points) -> Iterator[Check]:
    for points, name in ((calibration, "calibration"), (test, "test")):
        if points.ids is None:
            continue
        twice = [label for label, count in Counter(points.ids).items() if count > 1]
        if twice:
            yield Check(
                "duplicated-ids",
                "warning",
                f"{len(twice):,} ids occur more than once among the {name} rows, "
                f"such as {twice[0]!r}.",
                "Rows of one unit are alike, so there are fewer independent points than rows, and "
                "the errors given here are too small. If units shall be new, split by unit.",
            )
    if calibration.ids is not None and test.ids is not None:
        both = set(calibration.ids) & set(test.ids)
        if both:
            yield Check(
                "shared-ids",
                "warning",
                f"{len(both):,} ids are in both the calibration and the test rows, such as "
                f"{min(both)!r}.",
                "If an id is a unit (a patient, a molecule), coverage on new units may be lower "
                "than coverage here. Split by unit.",
            )


def _censored(calibration: Points, test: Points) -> Iterator[Check]:
    y = np.concatenate([calibration.y, test.y])
    for value, side in ((y.min(), "smallest"), (y.max(), "largest")):
        share = float(np.mean(y == value))
        # Few distinct values are a scale, not a limit of measurement.
        if share >= CENSORED and len(np.unique(y)) > 2 / CENSORED:
            yield Check(
                "censored",
                "warning",
                f"{percent(share)} of the targets have the {side} value, {value:g}.",
                "It looks like a limit of measurement. There the recorded value, not the true "
                "one, is covered; beyond the limit intervals promise nothing, and errors at it "
                "look smaller than they are.",
            )


def _duplicates(calibration: Points) -> Iterator[Check]:
    count = duplicate_rows(calibration.Z)
    if count > max(CENSORED * len(calibration), 1):
        yield Check(
            "duplicated-inputs",
            "note",
            f"{count:,} of {len(calibration):,} calibration rows share their features with another "
            f"row.",
            "Ties in distance are settled at random, which is valid. But repeated measurements of "
            "one unit are not independent points: if that is what they are, split by unit.",
        )


def _groups(groups: Sequence[str] | None) -> Iterator[Check]:
    if groups is None:
        return
    sizes = Counter(groups)
    single = sorted(name for name, count in sizes.items() if count == 1)
    small = sorted(name for name, count in sizes.items() if 1 < count < FEWEST_TEST_POINTS)
    if MISSING in sizes:
        yield Check(
            "missing-groups",
            "warning",
            f"{sizes[MISSING]:,} of {len(groups):,} test rows have no group; they are shown as "
            f"{MISSING}.",
            "Nothing is known of what they have in common: fill them in, or remove them.",
        )
    if single:
        yield Check(
            "single-member-group",
            "warning",
            f"{counted(len(single), len(sizes), 'groups')} one member: {_first(single)}.",
            "Its coverage is 0 or 1 and says nothing.",
        )
    if small:
        yield Check(
            "small-group",
            "note",
            f"{counted(len(small), len(sizes), 'groups')} fewer than {FEWEST_TEST_POINTS} test "
            f"points: {_first(small)}.",
            "Read their coverage with its error bar.",
        )


def _too_few(levels: Sequence[float], n: int, n_test: int) -> Iterator[Check]:
    out_of_reach = [level for level in levels if conformal_rank(level, n) > n]
    if out_of_reach:
        need = required_calibration_size(out_of_reach[0])
        yield Check(
            "few-calibration-points",
            "warning",
            f"{n:,} calibration points are too few for {listed([*map(percent, out_of_reach)])}.",
            f"The only valid interval is then infinite. {percent(out_of_reach[0])} needs {need:,} "
            f"points.",
        )
    if n_test < FEWEST_TEST_POINTS:
        yield Check(
            "few-test-points",
            "warning",
            f"There are only {n_test} test points.",
            f"Nothing can be said with fewer than {FEWEST_TEST_POINTS}; some hundreds tell "
            f"coverage to a few percent.",
        )


def _widths(answer: Answer, coverage: float) -> Iterator[Check]:
    width = answer.at(coverage).width
    infinite = float(np.isinf(width).mean())
    if infinite:
        which = "All" if infinite == 1 else percent(infinite)
        yield Check(
            "infinite",
            "warning",
            f"{which} of the intervals of {answer.method} at {percent(coverage)} are infinite.",
            "They are valid, cover always and say nothing; the mean width and the interval score "
            "are infinite with them.",
        )
    elif len(width) > 1 and not answer.constant and np.ptp(width) <= 1e-9 * width.max():
        yield Check(
            "constant-widths",
            "note",
            f"{answer.method} gives every test point the same width.",
            "It does not adapt here; measures of adaptivity do not exist for it.",
        )


def _first(names: Sequence[str]) -> str:
    more = len(names) - 5
    return ", ".join(map(repr, names[:5])) + (f" and {more} more" if more > 0 else "")


def shared_rows(known: Points, test: Points) -> tuple[int, float]:
    """How many test rows are in the other set, and what share may be so by chance.

    Rows coincide by chance where both targets and features lie on a coarse grid: where the target
    of a known row also occurs with other features, and its features with another target. Copies
    of a row say nothing about that.
    """
    ours, theirs = (np.column_stack([points.y, points.Z]) for points in (known, test))
    quantum = _quantum(np.concatenate([ours, theirs]))
    shared = np.zeros(len(test), dtype=bool)
    # Two grids, half a step apart: what lies at the edge of a cell in one does not in the other.
    for offset in (0.0, 0.5):
        shared |= np.isin(_keys(theirs, quantum, offset), _keys(ours, quantum, offset))
    return int(shared.sum()), _by_chance(ours, quantum)


def duplicate_rows(rows: FloatArray) -> int:
    """How many rows equal another."""
    _, counts = np.unique(_keys(rows, _quantum(rows), 0.0), return_counts=True)
    return int(counts[counts > 1].sum())


def _by_chance(rows: FloatArray, quantum: FloatArray) -> float:
    """Share of the rows whose target has other features too, and whose features other targets."""
    rows = rows[np.unique(_keys(rows, quantum, 0.0), return_index=True)[1]]  # without copies
    targets = _occurs_again(_keys(rows[:, :1], quantum[:1], 0.0))
    features = _occurs_again(_keys(rows[:, 1:], quantum[1:], 0.0))
    return float(np.mean(targets & features))


def _occurs_again(keys: _Keys) -> BoolArray:
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    again: BoolArray = counts[place] > 1
    return again


def _quantum(rows: FloatArray) -> FloatArray:
    """The step of the grid in each column: a power of ten, DIGITS below its spread."""
    low, high = np.percentile(rows, [5, 95], axis=0)
    spread = np.where(high > low, high - low, np.ptp(rows, axis=0))
    spread = np.where(spread > 0, spread, 1.0)
    steps: FloatArray = 10.0 ** (np.floor(np.log10(spread)) - DIGITS)
    return steps


def _keys(rows: FloatArray, quantum: FloatArray, offset: float) -> _Keys:
    """The cell of each row as one value that compares by its bytes; −0 is 0."""
    cells = np.ascontiguousarray(np.floor(rows / quantum + 0.5 + offset) + 0.0)
    return cells.view(np.dtype((np.void, cells.dtype.itemsize * cells.shape[1]))).ravel()


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
