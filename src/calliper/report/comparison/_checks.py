"""Warnings that matter: what in the data or the answers makes numbers mean less than they seem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from calliper.quantile import conformal_rank, required_calibration_size
from calliper.report.comparison._check import Check, Severity
from calliper.report.comparison._drift import drift
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._format import counted, listed, percent
from calliper.report.comparison._overlap import duplicate_rows, shared_rows
from calliper.report.comparison._points import MISSING, Points
from calliper.report.comparison._sentences import FEWEST_TEST_POINTS

#: Share of the targets at one extreme value that looks like a limit of measurement.
CENSORED = 0.02
#: Share of rows in common that makes a comparison void, beyond twins that occur anyway.
SHARED = 0.01


def check_data(
    calibration: Points,
    test: Points,
    training: Points | None,
    groups: Sequence[str] | None,
    *,
    random_state: int,
) -> Iterator[Check]:
    """What is wrong with the rows, whatever the method."""
    yield from _overlap(calibration, test, training)
    yield from _ids(calibration, test)
    yield from drift(calibration, test, random_state)
    yield from _censored(calibration, test)
    yield from _duplicates(calibration)
    yield from _groups(groups)


def check_answers(
    answers: Sequence[Answer],
    levels: Sequence[float],
    coverage: float,
    n_calibration: int,
    n_test: int,
) -> Iterator[Check]:
    """What is wrong with the number of points, and with what the methods answered."""
    yield from _too_few(levels, n_calibration, n_test)
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
                yield Check("method-warning", "note", f"{answer.method} warned.", text)


def _overlap(calibration: Points, test: Points, training: Points | None) -> Iterator[Check]:
    yield from _seen(
        "test-in-calibration",
        calibration,
        test,
        "The intervals were made from the errors of these very rows, so their coverage is "
        "meaningless. Split the rows first, then compare.",
    )
    if training is None:
        return
    for points, name in ((calibration, "calibration"), (test, "test")):
        yield from _seen(
            f"{name}-in-training",
            training,
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
