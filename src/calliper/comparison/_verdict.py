"""The verdict: does it cover, does it adapt, which method, what does it promise.

Rules, in this order, at one level:

1. A method *covers* if its coverage is not below what chance allows. It may be chosen only then.
2. A method is *better* than another if the mean of their paired interval scores differs by more
   than both draws explain, that of the test points and that of the calibration points, allowing
   for as many looks as there are methods, and by 1 % at least.
3. Of the methods that cover, the one with the best score leads; those that it does not beat are
   as good. Among these, split is kept if it is there, since it is the simplest; then the
   default; then whichever has the full promise and the best score.

What chance allows, and what is better, is said in :mod:`calliper.comparison._contest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from calliper.comparison._answers import Answer
from calliper.comparison._checks import Check
from calliper.comparison._contest import Redrawn, Scores, better, bins_by_chance
from calliper.comparison._points import FEWEST_TEST_POINTS
from calliper.comparison._tables import Record
from calliper.comparison._words import listed, percent, percent_down, rough, seconds
from calliper.metrics import CoverageTable

#: Fewer test points say little about coverage.
FEW_TEST_POINTS = 50
#: If an honest method may fall this far below the level, coverage cannot be told.
WIDE = 0.1
#: Seconds that are worth a word in the choice of a method.
WORTH_WAITING = 1.0


@dataclass(frozen=True, kw_only=True)
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
    method: str | None = None
    clear: bool = False
    headline: str
    covers: str
    adapts: str
    why: str
    promise: str
    as_good: tuple[str, ...] = ()
    size: str = ""
    caveat: str = ""
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
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
    if n_test < FEWEST_TEST_POINTS:
        return _no_answer(
            constant,
            f"Too few test points to tell: {n_test}.",
            f"{n_test} test points say next to nothing about coverage; bring "
            f"{FEWEST_TEST_POINTS} at the very least, and some hundreds to tell methods apart.",
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
    even = evenness(by_prediction[chosen.method], level, facts.n_calibration)
    few = cannot_be_told(chosen, n_test)
    return Verdict(
        level=level,
        method=chosen.method,
        clear=clear,
        headline=say_headline(chosen, clear, constant, even, few),
        covers=say_covers(chosen, records, n_test),
        adapts=say_adapts(chosen, constant, clear, even),
        why=say_why(chosen, fit, as_good, split),
        promise=chosen.guarantee,
        as_good=tuple(as_good),
        size=say_size(chosen, facts.mean_error),
        caveat=say_caveat(chosen, even),
        instead=say_instead(chosen, fit, [a.method for a in answers if a.needs_training]),
    )


def choose(
    answers: Sequence[Answer],
    fit: Sequence[Record],
    scores: Scores,
    redrawn: Redrawn,
    split: str,
) -> tuple[Record, list[str], bool]:
    """The record to recommend, the names it cannot be told from, and whether it beats split."""
    best = min(fit, key=lambda record: record.score)
    looks = max(len(fit) - 1, 1)
    as_good = [r.method for r in fit if not better(scores, redrawn, best.method, r.method, looks)]
    default = {answer.method for answer in answers if answer.default}

    def preference(record: Record) -> tuple[bool, bool, bool, float]:
        ranks = record.method != split, not full_promise(record), record.method not in default
        return *ranks, record.score

    beats = {r.method for r in fit if better(scores, redrawn, r.method, split, looks)}
    candidates = [r for r in fit if r.method in as_good]
    if split not in as_good and best.method in beats:
        # One that is as good as the best but not clearly better than split would be no reason.
        candidates = [r for r in candidates if r.method in beats]
    chosen = min(candidates, key=preference)
    others = [name for name in as_good if name != chosen.method]
    return chosen, others, chosen.method in beats


def full_promise(record: Record) -> bool:
    """Whether all of the coverage asked for is proved."""
    return record.proved >= record.level - 1e-12


def _none_covers(records: Sequence[Record]) -> Verdict:
    best = max(records, key=lambda record: record.coverage)
    return Verdict(
        level=best.level,
        headline="No method covers: do not use these intervals yet.",
        covers=f"No: the best, {best.method}, covers {percent(best.coverage)} where "
        f"{percent(best.level)} was asked for and chance allows {percent(best.chance_low)}.",
        adapts="Not judged, since coverage comes first.",
        why="Coverage below chance means that calibration and test points are not alike (drift, "
        "time, another source), or that the model has seen the calibration points. See the "
        "warnings.",
        promise="None: the assumption behind every promise seems not to hold here.",
    )


def _no_answer(constant: Record, headline: str, covers: str) -> Verdict:
    words = "Cannot be told."
    return Verdict(
        level=constant.level,
        headline=headline,
        covers=covers,
        adapts=words,
        why=words,
        promise=constant.guarantee,
    )


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
        level=level,
        headline=headline,
        covers=f"{check.title} {check.meaning}",
        adapts="Not judged: the numbers below are not those of new rows.",
        why=remedy,
        promise="None: rows that were seen before break the assumption behind every promise.",
    )


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """Coverage in parts of the predictions: how many there are, and one that chance cannot explain.

    ``where`` is the range of the predictions in it; empty if chance explains all.
    """

    n_parts: int
    where: str = ""
    coverage: float = 1.0
    by_chance: float = 0.0

    @property
    def uneven(self) -> bool:
        """Whether some part is covered less than chance explains."""
        return bool(self.where)

    @property
    def words(self) -> str:
        """``"tenth"`` if there are ten."""
        if self.n_parts == 10:
            return "worst tenth of the predictions"
        return f"worst of {self.n_parts} parts of the predictions"


def evenness(table: CoverageTable, level: float, n_calibration: int) -> Evenness:
    """The part that is covered least for its number of points, if any falls below chance."""
    if len(table.n) < 2:
        return Evenness(n_parts=len(table.n))
    bounds = bins_by_chance(level, n_calibration, table.n)
    short = np.flatnonzero(table.coverage < bounds)
    if not len(short):
        return Evenness(n_parts=len(table.n))
    worst = int(short[np.argmin(table.coverage[short])])
    return Evenness(
        n_parts=len(table.n),
        where=table.labels[worst],
        coverage=float(table.coverage[worst]),
        by_chance=float(bounds[worst]),
    )


def cannot_be_told(record: Record, n_test: int) -> bool:
    """Whether so few points leave room for almost any coverage."""
    return n_test < FEW_TEST_POINTS or record.chance_low < record.level - WIDE


def say_headline(chosen: Record, clear: bool, constant: Record, even: Evenness, few: bool) -> str:
    """The answer in a line."""
    if few:
        what = "keep" if chosen is constant else "lean to"
        return f"Too few points to tell whether it covers: {what} {chosen.method} for now."
    if chosen is constant:
        return f"No clear winner: keep a constant width ({chosen.method})."
    if not clear:
        return f"Use {chosen.method}: a constant width does not cover here."
    if even.uneven:
        return f"Use {chosen.method}: it covers, and adapts in part."
    return f"Use {chosen.method}: it covers, and it adapts."


def say_size(chosen: Record, mean_error: float) -> str:
    """How wide the intervals are, in plain words, beside the error of the model."""
    off = f"the model itself is off by {rough(mean_error)} on average"
    half = chosen.median_width / 2
    if not isfinite(half):
        return f"At least half of its intervals are infinite; {off}."
    how = "Always" if np.isnan(chosen.tau_si) else "Typically"
    return f"{how} ±\u2009{rough(half)}, in the unit of the target; {off}."


def say_caveat(chosen: Record, even: Evenness) -> str:
    """What to know before using it, if only one thing is read."""
    if chosen.fraction_infinite > 0:
        return f"{percent(chosen.fraction_infinite)} of its intervals are infinite."
    if even.uneven:
        return (
            f"Rows predicted {even.where} are covered only {percent(even.coverage)}; chance alone "
            f"would seldom go below {percent(even.by_chance)}."
        )
    if not full_promise(chosen):
        return f"It proves {percent_down(chosen.proved)}, less than was asked for."
    return ""


def say_covers(chosen: Record, records: Sequence[Record], n_test: int) -> str:
    """Does it cover?"""
    share, asked = percent(chosen.coverage), percent(chosen.level)
    low, high = percent(chosen.chance_low), percent(chosen.chance_high)
    words = "Yes" if chosen.coverage <= chosen.chance_high else "Yes, more than asked for"
    if cannot_be_told(chosen, n_test):
        words = "Cannot be told from so few"
    text = (
        f"{words}: {chosen.method} covers {share} of {n_test:,} test points. {asked} was asked "
        f"for, and chance alone puts it between {low} and {high} in 99 cases of 100."
    )
    short = [r.method for r in records if r.coverage < r.chance_low]
    return text + (f" Less than chance allows: {listed(short)}." if short else "")


def say_adapts(chosen: Record, constant: Record, clear: bool, even: Evenness) -> str:
    """Does it adapt?"""
    worst = f"The {even.words} is covered {percent(chosen.worst_by_prediction)}"
    if chosen is constant:
        if even.n_parts < 2:
            return "No need was found: the width is the same everywhere, as are the predictions."
        found = "No" if even.uneven else "No need was found"
        rest = " No method here does clearly better." if even.uneven else ""
        return f"{found}: the width is the same everywhere. {worst}.{rest}"
    if not clear:
        return "Its interval score cannot be told from that of a constant width."
    if not isfinite(chosen.relative_score):
        return "Yes: intervals of constant width are infinite, its own are not."
    gain, error = 100 * (1 - chosen.relative_score), 100 * chosen.relative_score_error
    digits = 0 if error >= 2 else 1
    text = (
        f"{'In part' if even.uneven else 'Yes'}: its interval score (width plus a fine for misses) "
        f"is {gain:.{digits}f} ± {error:.{digits}f} % better than that of a constant width."
    )
    if even.n_parts < 2:
        return text
    return f"{text} {worst} (constant width: {percent(constant.worst_by_prediction)})."


def say_why(chosen: Record, fit: Sequence[Record], as_good: Sequence[str], split: str) -> str:
    """Which method, and why?"""
    if chosen.method == split:
        return (
            f"No other method that covers has an interval score better than {split}'s by more than "
            f"chance allows and by 1 % at least, and {split} is the simplest, with the full "
            f"promise."
        )
    best = min(fit, key=lambda record: record.score)
    if best is not chosen:
        more = full_promise(chosen) and not full_promise(best)
        reason = "promises the full coverage" if more else "is the default"
        return (
            f"{best.method} has the best interval score, but {chosen.method} cannot be told from "
            f"it by these points, and {reason}. As good within chance: {listed(as_good)}."
        )
    rest = f" As good within chance: {listed(as_good)}." if as_good else ""
    return f"{chosen.method} has the best interval score of {len(fit)} methods that cover.{rest}"


def say_instead(chosen: Record, fit: Sequence[Record], needs_training: Sequence[str]) -> str:
    """The runner-up, and what it wins and loses against the choice."""
    others = [record for record in fit if record is not chosen]
    if not others:
        return "No other method covers."
    other = min(others, key=lambda record: record.score)
    parts = []
    if isfinite(other.mean_width) and isfinite(chosen.mean_width) and chosen.mean_width > 0:
        change = 100 * (other.mean_width / chosen.mean_width - 1)
        how = (
            "as wide"
            if abs(change) < 0.5
            else f"{abs(change):.0f} % " + ("wider" if change > 0 else "narrower")
        )
        parts.append(f"{how} on average")
    worst = percent(other.worst_by_prediction), percent(chosen.worst_by_prediction)
    parts.append(f"worst part of the predictions covered {worst[0]} (here {worst[1]})")
    if abs(other.proved - chosen.proved) > 0.001:
        parts.append(f"proves {percent_down(other.proved)} (here {percent_down(chosen.proved)})")
    if (other.method in needs_training) != (chosen.method in needs_training):
        needs = "needs" if other.method in needs_training else "does without"
        parts.append(f"{needs} training data")
    quick, slow = sorted([other.seconds, chosen.seconds])
    if slow >= WORTH_WAITING and slow > 2 * quick:
        parts.append(f"{seconds(other.seconds)} s (here {seconds(chosen.seconds)} s)")
    return f"{other.method}: {'; '.join(parts)}."
