"""The verdict at one level: whether it covers and adapts, which method to use, its guarantee.

Rules, in this order:

1. A method *covers* if its coverage is not below what chance allows. Only then may it be chosen.
2. A method is *better* than another if their mean interval scores differ by at least 1 % and by
   more than the draws of test and calibration points explain, corrected for the number of methods.
3. Of the methods that cover, the one with the best score leads; those that it does not beat are
   as good. Among these, methods that cover every group come first, then split, which is the
   simplest, then the default, then methods with the full guarantee, then the best score.

:mod:`calliper.lab.comparison._contest` defines what chance allows, and what is better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from calliper.lab._words import listed, percent, percent_down, rough, seconds
from calliper.lab.comparison._answers import FEWEST_TEST_POINTS, Answer, Sets
from calliper.lab.comparison._checks import Check
from calliper.lab.comparison._contest import Scores
from calliper.lab.comparison._tables import CoveragePart, Record, Short

#: Fewer test points say little about coverage.
FEW_TEST_POINTS = 50
#: If a valid method may fall this far below the level, coverage cannot be judged.
WIDE_CHANCE = 0.1
#: Seconds from which run times are mentioned.
WORTH_WAITING = 1.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict at one level in plain words.

    Attributes
    ----------
    level : the coverage asked for
    method : the recommended method, or ``None``
    clear : whether it is better than a constant width beyond chance
    headline : the verdict in a line
    covers, adapts, why, promise : a sentence or two each
    as_good : methods that are as good within chance
    size : how wide its intervals are, compared with the model's own error
    caveat : the one thing to know before using it, or empty
    instead : the runner-up, and how it differs

    Examples
    --------
    >>> Verdict(level=0.9, headline="Too few test points to tell: 3.", covers="", promise="").adapts
    'Cannot be determined.'
    """

    level: float
    method: str | None = None
    clear: bool = False
    headline: str
    covers: str
    adapts: str = "Cannot be determined."
    why: str = "Cannot be determined."
    promise: str
    as_good: tuple[str, ...] = ()
    size: str = ""
    caveat: str = ""
    instead: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """All that the verdict at one level depends on; ``void`` is the check that rules it out."""

    sets: Sets
    answers: Sequence[Answer]
    records: Sequence[Record]
    parts: Sequence[CoveragePart]
    scores: Scores
    void: Check | None

    @property
    def n_test(self) -> int:
        """Number of test points."""
        return len(self.sets.test)

    @cached_property
    def constant(self) -> Record:
        """The record of split conformal, the baseline."""
        split = next(answer.method for answer in self.answers if answer.constant)
        return next(record for record in self.records if record.method == split)

    @cached_property
    def fit(self) -> list[Record]:
        """The methods that cover."""
        return [record for record in self.records if record.coverage >= record.chance_low]

    @cached_property
    def best(self) -> Record:
        """The best score of the methods that cover."""
        return min(self.fit, key=lambda record: record.score)

    @cached_property
    def as_good(self) -> list[Record]:
        """The methods that cover and that the best one does not beat, itself included."""
        return [record for record in self.fit if not self.beats(self.best, record)]

    @cached_property
    def chosen(self) -> Record:
        """The method to recommend."""
        default = {answer.method for answer in self.answers if answer.default}

        def preference(record: Record) -> tuple[Any, ...]:
            is_short = self.short(record, "group") is not None
            by_kind = record is not self.constant, record.method not in default
            return is_short, *by_kind, not full_promise(record), record.score

        return min(self.as_good, key=preference)

    @cached_property
    def clear(self) -> bool:
        """Whether the chosen method beats a constant width."""
        return self.beats(self.chosen, self.constant)

    @property
    def uneven(self) -> bool:
        """Whether the chosen method covers some part or group too little."""
        return bool(self.short(self.chosen, "prediction") or self.short(self.chosen, "group"))

    def beats(self, one: Record, other: Record) -> bool:
        """Whether one method is better than another beyond chance."""
        looks = max(len(self.fit) - 1, 1)
        return self.scores.better(one.method, other.method, looks)

    def part(self, record: Record, by: str) -> CoveragePart | None:
        """Coverage of a method in parts by one quantity, if the test set was cut by it."""
        own = (part for part in self.parts if part.method == record.method and part.by == by)
        return next(own, None)

    def short(self, record: Record, by: str) -> Short | None:
        """The worst part by one quantity that is covered less often than chance explains."""
        part, looks = self.part(record, by), len(self.records) if by == "group" else 1
        found = [] if part is None else part.short(len(self.sets.calibration), looks=looks)
        return min(found, key=lambda short: short.coverage, default=None)


def judge(case: Case) -> Verdict:
    """The verdict on the records of one level."""
    level = case.scores.level
    if case.void is not None:
        return _void(level, case.void)
    if case.n_test < FEWEST_TEST_POINTS:
        return Verdict(
            level=level,
            headline=f"Too few test points to tell: {case.n_test}.",
            covers=f"{case.n_test} test points say almost nothing about coverage: use at least "
            f"{FEWEST_TEST_POINTS}, and several hundred to tell methods apart.",
            promise=case.constant.guarantee,
        )
    if all(record.fraction_infinite == 1 for record in case.records):
        few = f"Too few calibration points for {percent(level)}"
        return Verdict(
            level=level,
            headline=f"{few}: every interval is infinite.",
            covers="Infinite intervals always cover but say nothing.",
            promise=case.constant.guarantee,
        )
    if not case.fit:
        return _none_covers(case.records)
    return Verdict(
        level=level,
        method=case.chosen.method,
        clear=case.clear,
        headline=say_headline(case),
        covers=say_covers(case),
        adapts=say_adapts(case),
        why=say_why(case),
        promise=case.chosen.guarantee,
        as_good=tuple(record.method for record in case.as_good if record is not case.chosen),
        size=say_size(case.chosen, float(case.sets.test.errors.mean())),
        caveat=say_caveat(case),
        instead=say_instead(case),
    )


def full_promise(record: Record) -> bool:
    """Whether the coverage asked for is proved in full."""
    return record.proved >= record.level - 1e-12


def _none_covers(records: Sequence[Record]) -> Verdict:
    best = max(records, key=lambda record: record.coverage)
    return Verdict(
        level=best.level,
        headline="No method covers: do not use these intervals yet.",
        covers=f"No: the best, {best.method}, covers {percent(best.coverage)} where "
        f"{percent(best.level)} was asked for and chance allows {percent(best.chance_low)}.",
        adapts="Not judged, since coverage comes first.",
        why="Coverage this low means that calibration and test points differ (drift, time, another "
        "source), or that the model was trained on the calibration points. See the warnings.",
        promise="None: the assumption behind every guarantee seems not to hold here.",
    )


def _void(level: float, check: Check) -> Verdict:
    """The verdict if rows of one set are in another, by a check such as "test-in-training"."""
    rows, _, there = check.kind.partition("-in-")
    what = "This comparison" if rows == "test" else "The guarantee"
    who = "calibration" if there == "calibration" else "model"
    return Verdict(
        level=level,
        headline=f"{what} is void: {rows} rows are {there} rows.",
        covers=f"{check.title} {check.meaning}",
        adapts="Not judged: the numbers below do not describe new rows.",
        why=f"Take {rows} rows that the {who} has not seen, and compare again.",
        promise="None: rows seen before break the assumption behind every guarantee.",
    )


def cannot_be_told(case: Case) -> bool:
    """Whether there are too few points to judge coverage."""
    few = case.n_test < FEW_TEST_POINTS
    return few or case.chosen.chance_low < case.chosen.level - WIDE_CHANCE


def say_headline(case: Case) -> str:
    """The verdict in a line, with the group that it does not hold for."""
    name, is_constant = case.chosen.method, case.chosen is case.constant
    group = case.short(case.chosen, "group")
    spared = group is None and case.short(case.constant, "group") is not None
    if cannot_be_told(case):
        what = "keep" if is_constant else "lean to"
        text = f"Too few points to tell whether it covers: {what} {name} for now"
    elif is_constant:
        text = f"No clear winner: keep a constant width ({name})"
    elif case.clear:
        text = f"Use {name}: it covers, and it adapts{' in part' if case.uneven else ''}"
    elif case.constant not in case.fit or spared:
        where = "every group" if spared else "here"
        text = f"Use {name}: a constant width does not cover {where}"
    else:
        text = f"Use {name}: it covers, and none is clearly better"
    if group is not None:
        text += f", but {group.where} is covered only {percent(group.coverage)}"
    return f"{text}."


def say_size(chosen: Record, mean_error: float) -> str:
    """How wide the intervals are, compared with the error of the model."""
    off = f"the model itself is off by {rough(mean_error)} on average"
    half = chosen.median_width / 2
    if not isfinite(half):
        return f"At least half of its intervals are infinite; {off}."
    how = "Always" if np.isnan(chosen.tau_si) else "Typically"
    return f"{how} ±\u2009{rough(half)}, in the unit of the target; {off}."


def say_caveat(case: Case) -> str:
    """The one thing to know before using it."""
    chosen = case.chosen
    if chosen.fraction_infinite > 0:
        return f"{percent(chosen.fraction_infinite)} of its intervals are infinite."
    for by, rows in (("group", "Rows of"), ("prediction", "Rows predicted")):
        if short := case.short(chosen, by):
            return (
                f"{rows} {short.where} are covered only {percent(short.coverage)}; chance alone "
                f"would seldom go below {percent(short.by_chance)}."
            )
    if not full_promise(chosen):
        return f"Only {percent_down(chosen.proved)} is proved, less than was asked for."
    return ""


def say_covers(case: Case) -> str:
    """Whether it covers."""
    chosen = case.chosen
    share, asked = percent(chosen.coverage), percent(chosen.level)
    low, high = percent(chosen.chance_low), percent(chosen.chance_high)
    words = "Yes" if chosen.coverage <= chosen.chance_high else "Yes, more than asked for"
    if cannot_be_told(case):
        words = "Too few points to tell"
    text = (
        f"{words}: {chosen.method} covers {share} of {case.n_test:,} test points. {asked} was "
        f"asked for, and chance alone puts it between {low} and {high} in 99 of 100 cases."
    )
    short = [record.method for record in case.records if record not in case.fit]
    return text + (f" Less than chance allows: {listed(short)}." if short else "")


def say_adapts(case: Case) -> str:
    """Whether it adapts."""
    chosen, constant, parts = case.chosen, case.constant, case.part(case.chosen, "prediction")
    n = 0 if parts is None else len(parts.table.n)
    worst, other = percent(chosen.worst_by_prediction), percent(constant.worst_by_prediction)
    part = "tenth of the predictions" if n == 10 else f"of {n} parts of the predictions"
    if chosen is constant:
        if n < 2:
            return "No need was found: the width is the same everywhere, as are the predictions."
        found, rest = "No need was found", ""
        if case.short(chosen, "prediction"):
            found, rest = "No", " No method here does clearly better."
        return (
            f"{found}: the width is the same everywhere. The worst {part} is covered {worst}.{rest}"
        )
    if not case.clear:
        return "Its interval score is not clearly different from that of a constant width."
    if not isfinite(chosen.relative_score):
        return "Yes: intervals of constant width are infinite, its own are not."
    gain, error = 100 * (1 - chosen.relative_score), 100 * chosen.relative_score_error
    digits = 0 if error >= 2 else 1
    found = "In part" if case.uneven else "Yes"
    text = (
        f"{found}: its interval score (width plus a penalty for misses) is {gain:.{digits}f} ± "
        f"{error:.{digits}f} % better than that of a constant width."
    )
    rest = f" The worst {part} is covered {worst} (constant width: {other})."
    return text + (rest if n > 1 else "")


def say_why(case: Case) -> str:
    """Why this method."""
    chosen, best = case.chosen, case.best
    as_good = listed([record.method for record in case.as_good if record is not chosen] or [""])
    rest = f" As good within chance: {as_good}." if as_good else ""
    if chosen is case.constant:
        return (
            f"No other method that covers has a better interval score than {chosen.method}, by "
            f"more than chance and by at least 1 %, and {chosen.method} is the simplest, with the "
            f"full guarantee."
        )
    if best is chosen:
        count = len(case.fit)
        return f"{chosen.method} has the best interval score of {count} methods that cover.{rest}"
    advantage = "is the default"
    if case.short(best, "group") and not case.short(chosen, "group"):
        advantage = "covers every group"
    elif full_promise(chosen) and not full_promise(best):
        advantage = "guarantees the full coverage"
    return (
        f"{best.method} has the best interval score, but {chosen.method} is as good on these "
        f"points, and {advantage}.{rest}"
    )


def say_instead(case: Case) -> str:
    """The runner-up, and how it differs from the chosen method."""
    chosen = case.chosen
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
    """How a mean width compares with another; empty if one is infinite."""
    if not (isfinite(other) and isfinite(width) and width > 0):
        return ""
    change = 100 * (other / width - 1)
    if abs(change) < 0.5:
        return "as wide on average"
    return f"{abs(change):.0f} % {'wider' if change > 0 else 'narrower'} on average"
