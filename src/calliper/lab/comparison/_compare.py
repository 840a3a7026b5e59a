"""Compare methods on one calibration set and one test set: numbers, warnings, verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calliper._notebook import Progress, reporter
from calliper._validation import check_levels
from calliper._writing import to_text
from calliper.calibrators import Split
from calliper.exceptions import CalliperError
from calliper.lab.comparison._answers import Answer, Points, Sets, ask, check_labels
from calliper.lab.comparison._checks import Check, check_answers, check_data, check_parts
from calliper.lab.comparison._contest import Resamples, Scores, redraw
from calliper.lab.comparison._tables import CoveragePart, Deciles, Record, deciles
from calliper.lab.comparison._verdict import Case, Verdict, judge
from calliper.rows import same_rows
from calliper.scores import Score

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)

#: Increased when a field of the JSON changes its meaning or is removed, not when one is added.
SCHEMA = 1

_GRAVEST_FIRST = ("void", "warning", "note")


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The result of :func:`compare`; :meth:`to_json` writes it, ``calliper.lab.report`` shows it.

    Attributes
    ----------
    calibration, test : the points
    levels, coverage : all levels, and the one that the verdict is about
    answers : the intervals of each method, or its failure
    records : measures of each method that did not fail, at each level
    parts, deciles : coverage in parts of the test set; errors in each tenth of the widths
    checks : findings about the data, the most severe first
    verdicts : one for each level

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 200))
    >>> found = compare(*(Points(each, each, 0 * each) for each in x), methods={"split": Split()})
    >>> found.coverage, len(found.records) == len(found.levels)
    (0.9, True)
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
    parts: tuple[CoveragePart, ...]
    deciles: tuple[Deciles, ...]
    checks: tuple[Check, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict at ``coverage``."""
        return self.verdicts[self.levels.index(self.coverage)]

    @property
    def is_void(self) -> bool:
        """Whether rows in two sets make the numbers meaningless."""
        return any(check.severity == "void" for check in self.checks)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods that did not fail."""
        return tuple(answer.method for answer in self.answers if answer.intervals is not None)

    def record(self, method: str, level: float) -> Record:
        """The measures of one method at one level."""
        return next(r for r in self.records if r.method == method and r.level == level)

    def to_json(self, *, provenance: Mapping[str, Any] | None = None) -> str:
        """All numbers as JSON; ``null`` for undefined numbers, ``"inf"`` for infinity.

        The schema is in ``docs/judging-intervals.md``.
        """
        values = {**self.to_values(), "provenance": dict(provenance or {})}
        return to_text(values, ensure_ascii=False, indent=1)

    def to_values(self) -> dict[str, Any]:
        """The values that :meth:`to_json` writes: everything but the points."""
        return {
            "schema": SCHEMA,
            "coverage": self.coverage,
            "levels": list(self.levels),
            "methods": list(self.methods),
            "random_state": self.random_state,
            "n_calibration": len(self.calibration),
            "n_test": len(self.test),
            "n_training": self.n_training,
            "features": list(self.test.feature_names),
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "checks": [asdict(check) for check in self.checks],
            "records": [asdict(record) for record in self.records],
            "failures": [
                {"method": a.method, "failure": a.failure} for a in self.answers if a.failure
            ],
            "parts": [part.to_values() for part in self.parts],
            "deciles": [asdict(tenths) for tenths in self.deciles],
        }


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
    score_function: Score | None = None,
    random_state: int = 0,
    progress: Progress | bool | None = None,
) -> Comparison:
    """Calibrate every method on the same points and recommend one.

    Each method is fitted once for all levels. Failures are recorded, and the other methods are
    still compared. Plain split conformal is the baseline and is added if it is missing.

    Parameters
    ----------
    calibration, test : Points
        Rows that the model was not trained on; none in both.
    methods : mapping of names to calibrators
        Copies of them are fitted.
    levels : sequence of float
        Levels to compare at; ``coverage`` is added if it is missing.
    coverage : float
        The level that the verdict is about.
    training : Points, optional
        Rows that the model was trained on: they standardise features, and some methods learn from
        them.
    groups : sequence of labels, optional
        A label for each test point; coverage is reported for each group.
    group_name : str
        Name of the groups, such as their column.
    score_function : Score, optional
        Definition of the error; by default the absolute error. It must give both ends.
    random_state : int
        Seed of the resamples; the methods have their own.
    progress : callable or True, optional
        Called with the fraction done, between 0 and 1; ``True`` shows it, in a notebook as a bar.

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
    level = check_levels(float(coverage))[0]
    every = check_levels(sorted({*map(float, levels), level}))
    (groups,) = same_rows(test, "test", groups=groups)
    labels = None if groups is None else check_labels(groups, "groups", n=len(test))
    sets = Sets(calibration, test, training, labels, str(group_name), score_function)
    named, report, answers = dict(methods), reporter(progress, "comparing"), list[Answer]()
    if not named:
        raise CalliperError("methods must name at least one calibrator; got none.")
    if not any(isinstance(calibrator, Split) for calibrator in named.values()):
        named["split" if "split" not in named else "split conformal"] = Split()
    for name, calibrator in named.items():
        report(0.5 * len(answers) / len(named))
        answers.append(ask(name, calibrator, sets, every))
    report(0.5)
    answered = [answer for answer in answers if answer.intervals is not None]
    if not any(answer.constant for answer in answered):
        failure = next(answer.failure for answer in answers if answer.constant)
        raise CalliperError(f"even split conformal failed: {failure}")
    checks = [*check_data(sets, random_state=random_state), *check_parts(named, sets)]
    report(0.6)
    redrawn, factor = redraw(
        {answer.method: named[answer.method] for answer in answered},
        sets,
        every,
        random_state=random_state,
        progress=lambda fraction: report(0.6 + 0.3 * fraction),
    )
    resamples = Resamples(len(test), random_state)
    void = next((check for check in checks if check.severity == "void"), None)
    cases = [
        Case(sets, answered, Scores(test.y, answered, at, resamples, others, factor), void)
        for at, others in zip(every, redrawn, strict=True)
    ]
    verdicts, asked = tuple(map(judge, cases)), every.index(level)
    checks += check_answers(
        answers, cases[asked].parts, sets, levels=every, chosen=verdicts[asked].method
    )
    report(1.0)
    return Comparison(
        calibration=calibration,
        test=test,
        n_training=None if training is None else len(training),
        levels=every,
        coverage=level,
        random_state=random_state,
        groups=labels,
        group_name=sets.group_name,
        shown_features=sets.shown_features,
        answers=tuple(answers),
        records=tuple(record for case in cases for record in case.records),
        parts=tuple(part for case in cases for part in case.parts),
        deciles=tuple(deciles(answer, at, test) for at in every for answer in answered),
        checks=tuple(sorted(checks, key=lambda check: _GRAVEST_FIRST.index(check.severity))),
        verdicts=verdicts,
    )
