"""Every method on one calibration set and one test set: numbers, warnings, verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from calliper._validation import check_levels
from calliper.calibrators import Split
from calliper.exceptions import CalliperError
from calliper.report.comparison._check import Check
from calliper.report.comparison._checks import check_answers, check_data
from calliper.report.comparison._fit import Answer, ask
from calliper.report.comparison._measures import Record, measure
from calliper.report.comparison._points import Points, check_labels
from calliper.report.comparison._redraw import Redrawn, redraw
from calliper.report.comparison._scores import Resamples, Scores
from calliper.report.comparison._sentences import FEWEST_TEST_POINTS
from calliper.report.comparison._tables import Deciles, Part, cut, deciles, features_to_show
from calliper.report.comparison._verdict import Facts, Verdict, judge

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)

#: Told how much of the work is done, between 0 and 1.
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Comparison:
    """All that was found; :meth:`to_json` for machines, ``calliper.report.page`` for people.

    Attributes
    ----------
    calibration, test : the points
    levels, coverage : all levels, and the one that was asked about
    answers : what each method said, failures among them
    records : a row for each method that did not fail and each level
    parts, deciles : coverage in parts of the test set; errors in each tenth of the widths
    checks : what to know before trusting the numbers, the gravest first
    verdicts : one for each level
    """

    calibration: Points
    test: Points
    n_training: int | None
    levels: tuple[float, ...]
    coverage: float
    random_state: int
    groups: tuple[str, ...] | None
    group_name: str
    shown_features: tuple[int, ...]
    answers: tuple[Answer, ...]
    records: tuple[Record, ...]
    parts: tuple[Part, ...]
    deciles: tuple[Deciles, ...]
    checks: tuple[Check, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict at the level that was asked about."""
        return self.verdicts[self.levels.index(self.coverage)]

    @property
    def is_void(self) -> bool:
        """Whether rows that were seen before make the numbers meaningless."""
        return any(check.severity == "void" for check in self.checks)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods that answered."""
        return tuple(answer.method for answer in self.answers if answer.intervals is not None)

    def record(self, method: str, level: float) -> Record:
        """The measures of one method at one level."""
        return next(r for r in self.records if r.method == method and r.level == level)

    def to_json(self, *, provenance: Mapping[str, Any] | None = None) -> str:
        """All numbers as JSON; ``null`` where a number does not exist, ``"inf"`` for infinity.

        The schema is in ``docs/compare.md``.
        """
        from calliper.report.comparison._json import as_text

        return as_text(self, provenance)


def compare(
    calibration: Points,
    test: Points,
    *,
    methods: Mapping[str, Any],
    levels: Sequence[float] = LEVELS,
    coverage: float = 0.9,
    training: Points | None = None,
    groups: Sequence[Any] | None = None,
    group_name: str = "group",
    random_state: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Calibrate every method on the same points and say which one to use.

    Each method is fitted once and asked for all levels. One that fails is recorded and shown, and
    the others go on. Plain split conformal is the yardstick, and is added if it is not there.

    Parameters
    ----------
    calibration, test : Points
        Rows that the model has not seen; none in both.
    methods : mapping of names to calibrators
        Not fitted; copies are.
    levels : sequence of float
        Levels to look at; ``coverage`` is added if it is not among them.
    coverage : float
        The level that the verdict is about.
    training : Points, optional
        Rows that the model was trained on: features are standardised by them, and some methods
        learn from them.
    groups : sequence of labels, optional
        One for each test point; coverage is shown for each group.
    group_name : str
        What the groups are, such as the name of their column.
    random_state : int
        Draws resamples; the methods have their own.
    progress : callable, optional
        Told how much is done.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import KNN, FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> def points(n):
    ...     x = rng.uniform(size=n)
    ...     return Points(x, y=x * rng.normal(size=n), y_pred=np.zeros(n))
    >>> found = compare(points(1000), points(1000), methods={"full": FullRescaled(KNN(50))})
    >>> found.verdict.headline
    'Use full: it covers, and it adapts.'
    >>> round(found.record("full", 0.9).coverage, 2)
    0.89
    """
    every, level = _levels(levels, coverage)
    _check_columns(calibration, test, training)
    labels = None if groups is None else check_labels(groups, "groups", n=len(test))
    named = _with_yardstick(methods)
    report = progress or (lambda fraction: None)
    answers: list[Answer] = []
    for name, calibrator in named.items():
        report(0.5 * len(answers) / len(named))
        answers.append(ask(name, calibrator, calibration, test, every, training))
    _refuse_all_failed(answers)
    report(0.5)
    n, m = len(calibration), len(test)
    checks = [
        *check_data(calibration, test, training, labels, random_state=random_state),
        *check_answers(answers, every, level, n, m),
    ]
    report(0.6)
    comparison = Comparison(
        calibration,
        test,
        None if training is None else len(training),
        every,
        level,
        random_state,
        labels,
        str(group_name),
        features_to_show(calibration),
        tuple(answers),
        (),
        (),
        (),
        tuple(sorted(checks, key=lambda check: ("void", "warning", "note").index(check.severity))),
        (),
    )
    redrawn = redraw(
        {answer.method: named[answer.method] for answer in answers if answer.intervals is not None},
        calibration,
        test,
        every,
        training,
        random_state=random_state,
        progress=lambda fraction: report(0.6 + 0.3 * fraction),
    )
    measured = _measured(comparison, redrawn)
    report(1.0)
    return measured


def _measured(comparison: Comparison, redrawn: Sequence[Redrawn]) -> Comparison:
    """The comparison with its numbers filled in, level by level."""
    test, n = comparison.test, len(comparison.calibration)
    answered = [answer for answer in comparison.answers if answer.intervals is not None]
    split = next(answer.method for answer in answered if answer.constant)
    void = next((check for check in comparison.checks if check.severity == "void"), None)
    facts = Facts(n, len(test), float(test.errors.mean()), void)
    resamples = Resamples(len(test), comparison.random_state)
    labels = comparison.groups, comparison.group_name
    records, parts, tenths, verdicts = [], [], [], []
    for level, others in zip(comparison.levels, redrawn, strict=True):
        scores = Scores(test.y, answered, level, resamples)
        by_prediction = {}
        for answer in answered:
            own = [*cut(answer, level, test, comparison.shown_features, *labels)]
            parts += own
            tenths.append(deciles(answer, level, test))
            worst = _worst(own, "prediction"), _worst(own, "width")
            records.append(measure(answer, level, test, scores, split, worst, n))
            by_prediction[answer.method] = next(p.table for p in own if p.by == "prediction")
        here = [record for record in records if record.level == level]
        verdicts.append(judge(answered, here, scores, others, by_prediction, facts))
    return replace(
        comparison,
        records=tuple(records),
        parts=tuple(parts),
        deciles=tuple(tenths),
        verdicts=tuple(verdicts),
    )


def _worst(parts: Sequence[Part], by: str) -> float:
    """Coverage of the worst part; those of a handful of points count if there are no others."""
    found = [part.table for part in parts if part.by == by]
    if not found:
        return nan
    large = found[0].n >= FEWEST_TEST_POINTS
    return float(found[0].coverage[large].min()) if large.any() else found[0].worst


def _levels(levels: Sequence[float], coverage: float) -> tuple[tuple[float, ...], float]:
    level = check_levels(float(coverage))[0]
    return check_levels(sorted({*map(float, levels), level})), level


def _check_columns(calibration: Points, test: Points, training: Points | None) -> None:
    for points, name in ((test, "test"), (training, "training")):
        if points is not None and points.feature_names != calibration.feature_names:
            raise CalliperError(
                f"calibration and {name} points must have the same features; got "
                f"{calibration.feature_names} and {points.feature_names}."
            )


def _with_yardstick(methods: Mapping[str, Any]) -> dict[str, Any]:
    named = dict(methods)
    if not named:
        raise CalliperError("methods must name one calibrator at least; got none.")
    if not any(isinstance(calibrator, Split) for calibrator in named.values()):
        name = "split" if "split" not in named else "split conformal"
        named[name] = Split()
    return named


def _refuse_all_failed(answers: Sequence[Answer]) -> None:
    """Without the yardstick there is nothing to compare with."""
    yardsticks = [answer for answer in answers if answer.constant]
    if all(answer.intervals is None for answer in yardsticks):
        raise CalliperError(f"even split conformal failed: {yardsticks[0].failure}")
