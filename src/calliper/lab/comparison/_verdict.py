"""The verdict at one level: whether it covers and adapts, which method to use, its guarantee.

Rules, in this order:

1. A method *covers* if its coverage is not below what chance allows. Only then may it be chosen.
2. A method is *better* than another if their mean interval scores differ by at least 1 % and by
   more than the draws of test and calibration rows explain, corrected for the number of methods.
3. Of the methods that cover, the one with the best score leads; those that it does not beat are
   as good. Among these, methods that cover every group come first, then split, which is the
   simplest, then the default, then methods with the full guarantee, then the best score.

:mod:`calliper.lab.comparison._contest` defines what chance allows, and what is better.
"""

from functools import partial
from math import isfinite, isnan
from typing import Any

from calliper.lab._words import listed, percent, percent_down, rough, seconds
from calliper.lab.comparison import _contest as contest
from calliper.lab.comparison._comparison import Check, Comparison, Record, Verdict

#: Fewer test points say little about coverage.
FEW_TEST_POINTS = 50
#: If a valid method may fall this far below the level, coverage cannot be judged.
WIDE_CHANCE = 0.1
#: Seconds from which run times are mentioned.
WORTH_WAITING = 1.0


class Case:
    """All that the verdict at one level depends on.

    Of the methods that cover (``fit``), the ``best`` has the best score, those ``as_good`` are not
    beaten by it, and ``chosen`` is to be recommended; ``clear`` if it beats a constant width.
    """

    def __init__(self, found: Comparison, level: float, scores: contest.Scores) -> None:
        self.found, self.level, self.scores, answers = found, level, scores, found.answered
        self.parts = [part for answer in answers for part in contest.cut(found, answer, level)]
        self.records = [contest.measure(found, each, level, scores, self.parts) for each in answers]
        pairs = [*zip(self.records, answers, strict=True)]
        self.constant = next(record for record, answer in pairs if answer.constant)
        self.fit = [record for record in self.records if record.coverage >= record.chance_low]
        if not self.fit:
            return
        self.best = min(self.fit, key=lambda record: record.score)
        self.as_good = [record for record in self.fit if not self.beats(self.best, record)]
        default = {record.method for record, answer in pairs if answer.default}

        def preference(record: Record) -> tuple[Any, ...]:
            is_short = self.short(record, "group") is not None
            by_kind = record is not self.constant, record.method not in default
            return is_short, *by_kind, not _full_promise(record), record.score

        self.chosen = min(self.as_good, key=preference)
        self.clear = self.beats(self.chosen, self.constant)
        few = len(found.test) < FEW_TEST_POINTS
        self.too_few = few or self.chosen.chance_low < level - WIDE_CHANCE
        uneven = self.short(self.chosen, "prediction") or self.short(self.chosen, "group")
        self.in_part = " in part" if uneven else ""

    def beats(self, one: Record, other: Record) -> bool:
        """Whether one method is better than another beyond chance."""
        return self.scores.better(one.method, other.method, max(len(self.fit) - 1, 1))

    def short(self, record: Record, by: str) -> tuple[float, str, float] | None:
        """The worst bin by one quantity that is covered less often than chance explains.

        Its coverage, its name, and the coverage that chance allows.
        """
        looks, n = len(self.records) if by == "group" else 1, len(self.found.calibration)
        for part in self.parts:
            own = (part.method, part.by) == (record.method, by)
            if own and (low := contest.short_bins(part, n, looks)):
                at = min(low, key=lambda number: part.table.coverage[number])
                label, share = part.table.labels[at], float(part.table.coverage[at])
                return share, f"{part.name} {label!r}" if by == "group" else label, low[at]
        return None


def judge(case: Case) -> Verdict:
    """The verdict on the records of one level."""
    level, n_test = case.level, len(case.found.test)
    for check in case.found.checks:
        if check.severity == "void":
            return _void(level, check)
    unknown = partial(Verdict, level=level, promise=case.constant.guarantee)
    if n_test < contest.FEWEST_TEST_POINTS:
        said = f"{n_test} test points say almost nothing about coverage: use at least "
        said += f"{contest.FEWEST_TEST_POINTS}, and several hundred to tell methods apart."
        return unknown(headline=f"Too few test points to tell: {n_test}.", covers=said)
    if all(record.fraction_infinite == 1 for record in case.records):
        few = f"Too few calibration rows for {percent(level)}: every interval is infinite."
        return unknown(headline=few, covers="Infinite intervals always cover but say nothing.")
    if not case.fit:
        return _none_covers(max(case.records, key=lambda record: record.coverage))
    return Verdict(
        level=level,
        method=case.chosen.method,
        clear=case.clear,
        headline=_headline(case),
        covers=_covers(case),
        adapts=_adapts(case),
        why=_why(case),
        promise=case.chosen.guarantee,
        as_good=tuple(record.method for record in case.as_good if record is not case.chosen),
        size=_size(case),
        caveat=_caveat(case),
        instead=_instead(case),
    )


def _full_promise(record: Record) -> bool:
    return record.proved >= record.level - 1e-12


def _none_covers(best: Record) -> Verdict:
    return Verdict(
        level=best.level,
        headline="No method covers: do not use these intervals yet.",
        covers=f"No: the best, {best.method}, covers {percent(best.coverage)} where "
        f"{percent(best.level)} was asked for and chance allows {percent(best.chance_low)}.",
        adapts="Not judged, since coverage comes first.",
        why="Coverage this low means that calibration and test points differ (drift, time, another "
        "source), or that the model was trained on the calibration rows. See the warnings.",
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


def _headline(case: Case) -> str:
    name, is_constant = case.chosen.method, case.chosen is case.constant
    group = case.short(case.chosen, "group")
    spared = group is None and case.short(case.constant, "group") is not None
    if case.too_few:
        what = "keep" if is_constant else "lean to"
        text = f"Too few points to tell whether it covers: {what} {name} for now"
    elif is_constant:
        text = f"No clear winner: keep a constant width ({name})"
    elif case.clear:
        text = f"Use {name}: it covers, and it adapts{case.in_part}"
    elif case.constant not in case.fit or spared:
        text = f"Use {name}: a constant width does not cover {'every group' if spared else 'here'}"
    else:
        text = f"Use {name}: it covers, and none is clearly better"
    if group is not None:
        text += f", but {group[1]} is covered only {percent(group[0])}"
    return f"{text}."


def _size(case: Case) -> str:
    mean_error, half = float(case.found.test.errors.mean()), case.chosen.median_width / 2
    off = f"the model itself is off by {rough(mean_error)} on average"
    if not isfinite(half):
        return f"At least half of its intervals are infinite; {off}."
    how = "Always" if isnan(case.chosen.tau_si) else "Typically"
    return f"{how} ±\u2009{rough(half)}, in the unit of the target; {off}."


def _caveat(case: Case) -> str:
    chosen = case.chosen
    if chosen.fraction_infinite > 0:
        return f"{percent(chosen.fraction_infinite)} of its intervals are infinite."
    for by, rows in (("group", "Rows of"), ("prediction", "Rows predicted")):
        if short := case.short(chosen, by):
            share, where, allowed = short
            chance = f"chance alone would seldom go below {percent(allowed)}"
            return f"{rows} {where} are covered only {percent(share)}; {chance}."
    if not _full_promise(chosen):
        return f"Only {percent_down(chosen.proved)} is proved, less than was asked for."
    return ""


def _covers(case: Case) -> str:
    chosen = case.chosen
    words = "Yes" if chosen.coverage <= chosen.chance_high else "Yes, more than asked for"
    words = "Too few points to tell" if case.too_few else words
    short = [record.method for record in case.records if record not in case.fit]
    return (
        f"{words}: {chosen.method} covers {percent(chosen.coverage)} of {len(case.found.test):,} "
        f"test points. {percent(chosen.level)} was asked for, and chance alone puts it between "
        f"{percent(chosen.chance_low)} and {percent(chosen.chance_high)} in 99 of 100 cases."
    ) + (f" Less than chance allows: {listed(short)}." if short else "")


def _adapts(case: Case) -> str:
    chosen, constant = case.chosen, case.constant
    n = next((len(p.table.n) for p in case.parts if p.by == "prediction"), 0)  # alike for all
    worst, other = percent(chosen.worst_by_prediction), percent(constant.worst_by_prediction)
    part = "tenth of the predictions" if n == 10 else f"of {n} parts of the predictions"
    if chosen is constant:
        if n < 2:
            return "No need was found: the width is the same everywhere, as are the predictions."
        same = f"the width is the same everywhere. The worst {part} is covered {worst}."
        if case.short(chosen, "prediction"):
            return f"No: {same} No method here does clearly better."
        return f"No need was found: {same}"
    if not case.clear:
        return "Its interval score is not clearly different from that of a constant width."
    if not isfinite(chosen.relative_score):
        return "Yes: intervals of constant width are infinite, its own are not."
    gain, error = 100 * (1 - chosen.relative_score), 100 * chosen.relative_score_error
    digits = 0 if error >= 2 else 1
    return (
        f"{case.in_part.strip().capitalize() or 'Yes'}: its interval score (width plus a penalty "
        f"for misses) is {gain:.{digits}f} ± {error:.{digits}f} % better than that of a constant "
        f"width."
    ) + (f" The worst {part} is covered {worst} (constant width: {other})." if n > 1 else "")


def _why(case: Case) -> str:
    chosen, best, name = case.chosen, case.best, case.chosen.method
    if chosen is case.constant:
        what = f"No other method that covers has a better interval score than {name}"
        praise = f"{name} is the simplest, with the full guarantee"
        return f"{what}, by more than chance and by at least 1 %, and {praise}."
    others = [record.method for record in case.as_good if record is not chosen]
    rest = f" As good within chance: {listed(others)}." if others else ""
    if best is chosen:
        return f"{name} has the best interval score of {len(case.fit)} methods that cover.{rest}"
    advantage = "is the default"
    if case.short(best, "group") and not case.short(chosen, "group"):
        advantage = "covers every group"
    elif _full_promise(chosen) and not _full_promise(best):
        advantage = "guarantees the full coverage"
    as_good = f"{name} is as good on these points, and {advantage}"
    return f"{best.method} has the best interval score, but {as_good}.{rest}"


def _instead(case: Case) -> str:
    chosen = case.chosen
    others = [record for record in case.fit if record is not chosen]
    if not others:
        return "No other method covers."
    other, parts = min(others, key=lambda record: record.score), []
    if isfinite(other.mean_width) and isfinite(chosen.mean_width) and chosen.mean_width > 0:
        change = 100 * (other.mean_width / chosen.mean_width - 1)
        how = f"{abs(change):.0f} % {'wider' if change > 0 else 'narrower'}"
        parts.append(f"{'as wide' if abs(change) < 0.5 else how} on average")
    worst = percent(other.worst_by_prediction), percent(chosen.worst_by_prediction)
    parts.append(f"worst part of the predictions covered {worst[0]} (here {worst[1]})")
    if abs(other.proved - chosen.proved) > 0.001:
        parts.append(f"proves {percent_down(other.proved)} (here {percent_down(chosen.proved)})")
    trained = [answer.method for answer in case.found.answered if answer.needs_training]
    if (other.method in trained) != (chosen.method in trained):
        parts.append(f"{'needs' if other.method in trained else 'does without'} training data")
    quick, slow = sorted([other.seconds, chosen.seconds])
    if slow >= WORTH_WAITING and slow > 2 * quick:
        parts.append(f"{seconds(other.seconds)} s (here {seconds(chosen.seconds)} s)")
    return f"{other.method}: {'; '.join(parts)}."
