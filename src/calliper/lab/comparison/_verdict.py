"""The verdict: does it cover, does it adapt, which method, what does it promise.

Rules, in this order, at one level:

1. A method *covers* if its coverage is not below what chance allows. It may be chosen only then.
2. A method is *better* than another if the mean of their paired interval scores differs by more
   than both draws explain, that of the test points and that of the calibration points, allowing
   for as many looks as there are methods, and by 1 % at least.
3. Of the methods that cover, the one with the best score leads; those that it does not beat are
   as good. Among these, one that covers every group comes before one that does not, if there are
   groups; then split is kept if it is there, since it is the simplest; then the default; then
   whichever has the full promise and the best score.

What chance allows, and what is better, is said in :mod:`calliper.lab.comparison._contest`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from calliper.lab._words import listed, percent, percent_down, rough, seconds
from calliper.lab.comparison._answers import Answer, Sets
from calliper.lab.comparison._checks import Check
from calliper.lab.comparison._contest import Redrawn, Scores, better
from calliper.lab.comparison._evenness import Evenness, evenness, short_groups
from calliper.lab.comparison._points import FEWEST_TEST_POINTS
from calliper.lab.comparison._tables import CoveragePart, Record

#: Fewer test points say little about coverage.
FEW_TEST_POINTS = 50
#: If an honest method may fall this far below the level, coverage cannot be told.
WIDE_CHANCE = 0.1
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

    Examples
    --------
    >>> Verdict(level=0.9, headline="Too few test points to tell: 3.", covers="", promise="").adapts
    'Cannot be told.'
    """

    level: float
    method: str | None = None
    clear: bool = False
    headline: str
    covers: str
    adapts: str = "Cannot be told."
    why: str = "Cannot be told."
    promise: str
    as_good: tuple[str, ...] = ()
    size: str = ""
    caveat: str = ""
    instead: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """What the verdict of one level is judged by; ``void`` says why nothing can be judged."""

    sets: Sets
    answers: Sequence[Answer]
    records: Sequence[Record]
    parts: Sequence[CoveragePart]
    scores: Scores
    redrawn: Redrawn
    void: Check | None

    @property
    def level(self) -> float:
        """The coverage asked for."""
        return self.scores.level

    @property
    def n_test(self) -> int:
        """Test points."""
        return len(self.sets.test)

    @property
    def n_calibration(self) -> int:
        """Calibration points."""
        return len(self.sets.calibration)

    @property
    def constant(self) -> Record:
        """The yardstick, split conformal."""
        split = next(answer.method for answer in self.answers if answer.constant)
        return next(record for record in self.records if record.method == split)

    @property
    def fit(self) -> list[Record]:
        """The methods that cover."""
        return [record for record in self.records if record.coverage >= record.chance_low]

    def evenness(self, method: str, by: str, *, looks: int = 1) -> Evenness:
        """Of the coverage of a method in parts by one quantity, if there are such."""
        own = (part for part in self.parts if part.method == method and part.by == by)
        return evenness(next(own, None), self.n_calibration, looks=looks)

    def in_groups(self, method: str) -> Evenness:
        """Of its coverage in the groups; each method is one look at them."""
        return self.evenness(method, "group", looks=len(self.records))


@dataclass(frozen=True, eq=False, kw_only=True)
class Recommendation:
    """The method to recommend, the best by score, and what cannot be told from that."""

    chosen: Record
    best: Record
    as_good: list[str]
    clear: bool  # whether it beats a constant width
    spared: bool  # whether it covers each group, and split does not
    evenness: Evenness  # of its coverage in parts of the predictions
    groups: Evenness  # and in the groups


def judge(case: Case) -> Verdict:
    """The verdict of the records of one level."""
    if case.void is not None:
        return _void(case.level, case.void)
    if case.n_test < FEWEST_TEST_POINTS:
        return Verdict(
            level=case.level,
            headline=f"Too few test points to tell: {case.n_test}.",
            covers=f"{case.n_test} test points say next to nothing about coverage; bring "
            f"{FEWEST_TEST_POINTS} at the very least, and some hundreds to tell methods apart.",
            promise=case.constant.guarantee,
        )
    if all(record.fraction_infinite == 1 for record in case.records):
        few = f"Too few calibration points for {percent(case.level)}"
        return Verdict(
            level=case.level,
            headline=f"{few}: every interval is infinite.",
            covers="Infinite intervals always cover and say nothing.",
            promise=case.constant.guarantee,
        )
    return _recommended(case) if case.fit else _none_covers(case.records)


def _recommended(case: Case) -> Verdict:
    choice = choose(case)
    return Verdict(
        level=case.level,
        method=choice.chosen.method,
        clear=choice.clear,
        headline=say_headline(case, choice),
        covers=say_covers(choice.chosen, case.records, case.n_test),
        adapts=say_adapts(choice, case.constant),
        why=say_why(case, choice),
        promise=choice.chosen.guarantee,
        as_good=tuple(choice.as_good),
        size=say_size(choice.chosen, float(case.sets.test.errors.mean())),
        caveat=say_caveat(choice),
        instead=say_instead(case, choice.chosen),
    )


def choose(case: Case) -> Recommendation:
    """The method to recommend among those that cover."""
    fit, split = case.fit, case.constant.method
    best = min(fit, key=lambda record: record.score)
    looks = max(len(fit) - 1, 1)

    def beats(one: str, other: str) -> bool:
        return better(case.scores, case.redrawn, one, other, looks)

    as_good = [record for record in fit if not beats(best.method, record.method)]
    short = {m for short in short_groups(case.parts, case.n_calibration) for m in short.found}
    default = {answer.method for answer in case.answers if answer.default}

    def preference(record: Record) -> tuple[bool, bool, bool, bool, float]:
        name = record.method
        by_kind = name != split, name not in default, not full_promise(record)
        return name in short, *by_kind, record.score

    chosen = min(as_good, key=preference)
    return Recommendation(
        chosen=chosen,
        best=best,
        as_good=[record.method for record in as_good if record is not chosen],
        clear=beats(chosen.method, split),
        spared=split in short and chosen.method not in short,
        evenness=case.evenness(chosen.method, "prediction"),
        groups=case.in_groups(chosen.method),
    )


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


def _void(level: float, check: Check) -> Verdict:
    """That rows of one set are in another, by the kind of the check: ``"test-in-training"``."""
    rows, _, there = check.kind.partition("-in-")
    what = "This comparison" if rows == "test" else "The guarantee"
    who = "calibration" if there == "calibration" else "model"
    return Verdict(
        level=level,
        headline=f"{what} is void: {rows} rows are {there} rows.",
        covers=f"{check.title} {check.meaning}",
        adapts="Not judged: the numbers below are not those of new rows.",
        why=f"Take {rows} rows that the {who} has not seen, and compare again.",
        promise="None: rows that were seen before break the assumption behind every promise.",
    )


def cannot_be_told(record: Record, n_test: int) -> bool:
    """Whether so few points leave room for almost any coverage."""
    return n_test < FEW_TEST_POINTS or record.chance_low < record.level - WIDE_CHANCE


def say_headline(case: Case, choice: Recommendation) -> str:
    """The answer in a line, and the group that it does not hold for."""
    text, groups = _plain_headline(case, choice), choice.groups
    if not groups.uneven:
        return f"{text}."
    return f"{text}, but {groups.where} is covered only {percent(groups.coverage)}."


def _plain_headline(case: Case, choice: Recommendation) -> str:
    name, is_constant = choice.chosen.method, choice.chosen is case.constant
    if cannot_be_told(choice.chosen, case.n_test):
        what = "keep" if is_constant else "lean to"
        return f"Too few points to tell whether it covers: {what} {name} for now"
    if is_constant:
        return f"No clear winner: keep a constant width ({name})"
    if choice.clear:
        part = "adapts in part" if choice.evenness.uneven or choice.groups.uneven else "it adapts"
        return f"Use {name}: it covers, and {part}"
    if case.constant not in case.fit or choice.spared:
        where = "every group" if choice.spared else "here"
        return f"Use {name}: a constant width does not cover {where}"
    return f"Use {name}: it covers, and none is clearly better"


def say_size(chosen: Record, mean_error: float) -> str:
    """How wide the intervals are, in plain words, beside the error of the model."""
    off = f"the model itself is off by {rough(mean_error)} on average"
    half = chosen.median_width / 2
    if not isfinite(half):
        return f"At least half of its intervals are infinite; {off}."
    how = "Always" if np.isnan(chosen.tau_si) else "Typically"
    return f"{how} ±\u2009{rough(half)}, in the unit of the target; {off}."


def say_caveat(choice: Recommendation) -> str:
    """What to know before using it, if only one thing is read."""
    chosen = choice.chosen
    if chosen.fraction_infinite > 0:
        return f"{percent(chosen.fraction_infinite)} of its intervals are infinite."
    for even, rows in ((choice.groups, "Rows of"), (choice.evenness, "Rows predicted")):
        if even.uneven:
            return (
                f"{rows} {even.where} are covered only {percent(even.coverage)}; chance alone "
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


def say_adapts(choice: Recommendation, constant: Record) -> str:
    """Does it adapt?"""
    chosen, even = choice.chosen, choice.evenness
    if chosen is constant:
        return _say_constant(chosen, even)
    if not choice.clear:
        return "Its interval score cannot be told from that of a constant width."
    if not isfinite(chosen.relative_score):
        return "Yes: intervals of constant width are infinite, its own are not."
    gain, error = 100 * (1 - chosen.relative_score), 100 * chosen.relative_score_error
    digits = 0 if error >= 2 else 1
    text = (
        f"{'In part' if even.uneven or choice.groups.uneven else 'Yes'}: its interval score (width "
        f"plus a penalty for misses) is {gain:.{digits}f} ± {error:.{digits}f} % better than that "
        f"of a constant width."
    )
    worst, other = percent(chosen.worst_by_prediction), percent(constant.worst_by_prediction)
    rest = f" The {even.words} is covered {worst} (constant width: {other})."
    return text + (rest if even.n_parts > 1 else "")


def _say_constant(chosen: Record, even: Evenness) -> str:
    if even.n_parts < 2:
        return "No need was found: the width is the same everywhere, as are the predictions."
    found = "No" if even.uneven else "No need was found"
    rest = " No method here does clearly better." if even.uneven else ""
    worst = f"The {even.words} is covered {percent(chosen.worst_by_prediction)}"
    return f"{found}: the width is the same everywhere. {worst}.{rest}"


def say_why(case: Case, choice: Recommendation) -> str:
    """Which method, and why?"""
    chosen, best = choice.chosen, choice.best
    if chosen is case.constant:
        return (
            f"No other method that covers has an interval score better than {chosen.method}'s by "
            f"more than chance allows and by 1 % at least, and {chosen.method} is the simplest, "
            f"with the full promise."
        )
    if best is not chosen:
        return (
            f"{best.method} has the best interval score, but {chosen.method} cannot be told from "
            f"it by these points, and {_advantage(case, choice)}. As good within chance: "
            f"{listed(choice.as_good)}."
        )
    rest = f" As good within chance: {listed(choice.as_good)}." if choice.as_good else ""
    count = len(case.fit)
    return f"{chosen.method} has the best interval score of {count} methods that cover.{rest}"


def _advantage(case: Case, choice: Recommendation) -> str:
    """What the choice has that the best by score has not."""
    if case.in_groups(choice.best.method).uneven and not choice.groups.uneven:
        return "leaves no group short"
    more = full_promise(choice.chosen) and not full_promise(choice.best)
    return "promises the full coverage" if more else "is the default"


def say_instead(case: Case, chosen: Record) -> str:
    """The runner-up, and its gains and losses against the choice."""
    others = [record for record in case.fit if record is not chosen]
    if not others:
        return "No other method covers."
    other = min(others, key=lambda record: record.score)
    worst = percent(other.worst_by_prediction), percent(chosen.worst_by_prediction)
    parts = [
        _wider(other.mean_width, chosen.mean_width),
        f"worst part of the predictions covered {worst[0]} (here {worst[1]})",
    ]
    if abs(other.proved - chosen.proved) > 0.001:
        parts.append(f"proves {percent_down(other.proved)} (here {percent_down(chosen.proved)})")
    trained = [answer.method for answer in case.answers if answer.needs_training]
    if (other.method in trained) != (chosen.method in trained):
        parts.append(f"{'needs' if other.method in trained else 'does without'} training data")
    quick, slow = sorted([other.seconds, chosen.seconds])
    if slow >= WORTH_WAITING and slow > 2 * quick:
        parts.append(f"{seconds(other.seconds)} s (here {seconds(chosen.seconds)} s)")
    return f"{other.method}: {'; '.join(filter(None, parts))}."


def _wider(other: float, width: float) -> str:
    """How a mean width compares with another; empty where it cannot be said."""
    if not (isfinite(other) and isfinite(width) and width > 0):
        return ""
    change = 100 * (other / width - 1)
    if abs(change) < 0.5:
        return "as wide on average"
    return f"{abs(change):.0f} % {'wider' if change > 0 else 'narrower'} on average"
