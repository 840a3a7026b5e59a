"""Compare methods on one calibration set and one test set: numbers, warnings, verdict."""

from collections.abc import Mapping, Sequence
from typing import Any

from calliper._notebook import Progress, reporter
from calliper._validation import check_levels
from calliper.calibrators import Split
from calliper.exceptions import CalliperError
from calliper.lab.comparison._checks import check_answers, check_data
from calliper.lab.comparison._comparison import Comparison, Points, check_labels
from calliper.lab.comparison._contest import Scores, ask, deciles, redraw, row_scores
from calliper.lab.comparison._verdict import Case, judge
from calliper.rows import same_rows
from calliper.scores import Score

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)

_GRAVEST_FIRST = ("void", "warning", "note")


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

    A method that fails is recorded, and the others are still compared. Plain split conformal is
    the baseline and is added if it is missing.

    Parameters
    ----------
    calibration, test : Points that the model was not trained on; none in both
    methods : mapping of names to calibrators, copies of which are fitted
    levels, coverage : levels to compare at, and the one that the verdict is about
    training : Points that it was trained on: they scale features, and some methods need them
    groups, group_name : a label for each test point, and what the labels are called
    score_function : definition of the error, by default the absolute one; it must give both ends
    random_state : seed of the other calibration sets that are drawn; the methods have their own
    progress : called with the fraction done, between 0 and 1; ``True`` shows it

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import KNN, FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> both = zip(rng.uniform(size=(2, 1000)), rng.normal(size=(2, 1000)))
    >>> sets = [Points(x, y=x * e, y_pred=0 * x) for x, e in both]
    >>> compare(*sets, methods={"full": FullRescaled(KNN(50))}).verdict.headline
    'Use full: it covers, and it adapts.'
    """
    level = check_levels(float(coverage))[0]
    (groups,) = same_rows(test, "test", groups=groups)
    found = Comparison(
        calibration=calibration,
        test=test,
        training=training,
        levels=check_levels(sorted({*map(float, levels), level})),
        coverage=level,
        groups=None if groups is None else check_labels(groups, "groups", n=len(test)),
        group_name=str(group_name),
        score_function=score_function,
        random_state=random_state,
    )
    named, report = dict(methods), reporter(progress, "comparing")
    if not named:
        raise CalliperError("methods must name at least one calibrator; got none.")
    if not any(isinstance(calibrator, Split) for calibrator in named.values()):
        named["split" if "split" not in named else "split conformal"] = Split()
    for name, calibrator in named.items():
        report(0.5 * len(found.answers) / len(named))
        found.answers += (ask(name, calibrator, found),)
    report(0.5)
    if not any(answer.constant for answer in found.answered):
        failure = next(answer.failure for answer in found.answers if answer.constant)
        raise CalliperError(f"split conformal, the baseline, failed: {failure}")
    found.checks = (*check_data(found, named),)
    report(0.6)
    able = {method: named[method] for method in found.methods}
    redrawn, factor = redraw(able, found, lambda fraction: report(0.6 + 0.3 * fraction))
    for at, others in zip(found.levels, redrawn, strict=True):
        rows = row_scores(found, found.answered, at)
        case = Case(found, at, Scores(found.methods, rows, others, factor))
        found.records += (*case.records,)
        found.parts += (*case.parts,)
        found.deciles += (*deciles(found, at),)
        found.verdicts += (judge(case),)
    checks = [*found.checks, *check_answers(found)]
    found.checks = (*sorted(checks, key=lambda check: _GRAVEST_FIRST.index(check.severity)),)
    report(1.0)
    return found
