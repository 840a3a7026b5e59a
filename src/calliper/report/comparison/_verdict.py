"""The verdict: does it cover, does it adapt, which method, what does it promise.

Rules, in this order, at one level:

1. A method *covers* if its coverage is not below what chance allows (:mod:`._chance`). It may be
   chosen only then.
2. A method is *better* than another if the mean of their paired interval scores differs by more
   than both draws explain, that of the test points and that of the calibration points, allowing
   for as many looks as there are methods, and by 1 % at least (:mod:`._contest`).
3. Of the methods that cover, the one with the best score leads; those that it does not beat are
   as good. Among these, split is kept if it is there, since it is the simplest; then the
   default; then whichever has the full promise and the best score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calliper.metrics import CoverageTable
from calliper.report.comparison import _sentences as say
from calliper.report.comparison._check import Check
from calliper.report.comparison._contest import choose
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._format import percent
from calliper.report.comparison._measures import Record
from calliper.report.comparison._redraw import Redrawn
from calliper.report.comparison._scores import Scores


@dataclass(frozen=True)
class Verdict:
    """The answer at one level, in plain words.

    Attributes
    ----------
    level : the coverage asked for
    method : the one to use; ``None`` if none can be recommended
    clear : whether it is better than a constant width by more than chance
    headline : the answer in a line
    covers, adapts, why, promise : a sentence or two each
    as_good : methods that cannot be told from it
    size : how wide its intervals are, beside the model's own error
    caveat : what to know if only one thing is read; empty if there is nothing
    instead : the runner-up, and what it wins and loses
    """

    level: float
    method: str | None
    clear: bool
    headline: str
    covers: str
    adapts: str
    why: str
    promise: str
    as_good: tuple[str, ...] = ()
    size: str = ""
    caveat: str = ""
    instead: str = ""


@dataclass(frozen=True)
class Facts:
    """What the verdicts of all levels share.

    ``mean_error`` is the model's mean absolute error; ``void`` says why nothing can be judged.
    """

    n_calibration: int
    n_test: int
    mean_error: float
    void: Check | None


def judge(
    answers: Sequence[Answer],
    records: Sequence[Record],
    scores: Scores,
    redrawn: Redrawn,
    by_prediction: Mapping[str, CoverageTable],
    facts: Facts,
) -> Verdict:
    """The verdict of the records of one level; ``by_prediction`` is coverage in parts of ŷ."""
    level, n_test = records[0].level, facts.n_test
    split = next(a.method for a in answers if a.constant)
    constant = next(r for r in records if r.method == split)
    if facts.void is not None:
        return _void(level, facts.void)
    if n_test < say.FEWEST_TEST_POINTS:
        return _no_answer(
            constant,
            f"Too few test points to tell: {n_test}.",
            f"{n_test} test points say next to nothing about coverage; bring "
            f"{say.FEWEST_TEST_POINTS} at the very least, and some hundreds to tell methods apart.",
        )
    if all(record.fraction_infinite == 1 for record in records):
        return _no_answer(
            constant,
            f"Too few calibration points for {percent(level)}: every interval is infinite.",
            "Infinite intervals cover always and say nothing.",
        )
    fit = [record for record in records if record.coverage >= record.chance_low]
    if not fit:
        return _none_covers(records)
    chosen, as_good, clear = choose(answers, fit, scores, redrawn, split)
    even = say.evenness(by_prediction[chosen.method], level, facts.n_calibration)
    few = say.cannot_be_told(chosen, n_test)
    return Verdict(
        level,
        chosen.method,
        clear,
        say.headline(chosen, clear, constant, even, few),
        say.covers(chosen, records, n_test),
        say.adapts(chosen, constant, clear, even),
        say.why(chosen, fit, as_good, split),
        chosen.guarantee,
        tuple(as_good),
        say.size(chosen, facts.mean_error),
        say.caveat(chosen, even),
        say.instead(chosen, fit, [a.method for a in answers if a.needs_training]),
    )


def _none_covers(records: Sequence[Record]) -> Verdict:
    best = max(records, key=lambda record: record.coverage)
    return Verdict(
        best.level,
        None,
        False,
        "No method covers: do not use these intervals yet.",
        f"No: the best, {best.method}, covers {percent(best.coverage)} where "
        f"{percent(best.level)} was asked for and chance allows {percent(best.chance_low)}.",
        "Not judged, since coverage comes first.",
        "Coverage below chance means that calibration and test points are not alike (drift, time, "
        "another source), or that the model has seen the calibration points. See the warnings.",
        "None: the assumption behind every promise seems not to hold here.",
    )


def _no_answer(constant: Record, headline: str, covers: str) -> Verdict:
    words = "Cannot be told."
    return Verdict(constant.level, None, False, headline, covers, words, words, constant.guarantee)


#: What is void, by the kind of the check that found it: the headline, and what to do.
_VOID = {
    "test-in-calibration": (
        "This comparison is void: test rows are calibration rows.",
        "Take test rows that the calibration has not seen, and compare again.",
    ),
    "test-in-training": (
        "This comparison is void: test rows are training rows.",
        "Take test rows that the model has not seen, and compare again.",
    ),
    "calibration-in-training": (
        "The guarantee is void: calibration rows are training rows.",
        "Take calibration rows that the model has not seen, and compare again.",
    ),
}


def _void(level: float, check: Check) -> Verdict:
    headline, remedy = _VOID[check.kind]
    return Verdict(
        level,
        None,
        False,
        headline,
        f"{check.title} {check.meaning}",
        "Not judged: the numbers below are not those of new rows.",
        remedy,
        "None: rows that were seen before break the assumption behind every promise.",
    )
