"""The sentences of the verdict, one function each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from calliper.metrics import CoverageTable
from calliper.report.comparison._chance import bins_by_chance
from calliper.report.comparison._contest import full_promise
from calliper.report.comparison._format import listed, percent, percent_down, rough, seconds
from calliper.report.comparison._measures import Record

#: Fewer test points say nothing about coverage, fewer than these little.
FEWEST_TEST_POINTS, FEW_TEST_POINTS = 20, 50
#: If an honest method may fall this far below the level, coverage cannot be told.
WIDE = 0.1
#: Seconds that are worth a word in the choice of a method.
WORTH_WAITING = 1.0


@dataclass(frozen=True)
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
        return Evenness(len(table.n))
    bounds = bins_by_chance(level, n_calibration, table.n)
    short = np.flatnonzero(table.coverage < bounds)
    if not len(short):
        return Evenness(len(table.n))
    worst = int(short[np.argmin(table.coverage[short])])
    return Evenness(
        len(table.n), table.labels[worst], float(table.coverage[worst]), float(bounds[worst])
    )


def cannot_be_told(record: Record, n_test: int) -> bool:
    """Whether so few points leave room for almost any coverage."""
    return n_test < FEW_TEST_POINTS or record.chance_low < record.level - WIDE


def headline(chosen: Record, clear: bool, constant: Record, even: Evenness, few: bool) -> str:
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


def size(chosen: Record, mean_error: float) -> str:
    """How wide the intervals are, in plain words, beside the error of the model."""
    off = f"the model itself is off by {rough(mean_error)} on average"
    half = chosen.median_width / 2
    if not isfinite(half):
        return f"At least half of its intervals are infinite; {off}."
    how = "Always" if np.isnan(chosen.tau_si) else "Typically"
    return f"{how} ±\u2009{rough(half)}, in the unit of the target; {off}."


def caveat(chosen: Record, even: Evenness) -> str:
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


def covers(chosen: Record, records: Sequence[Record], n_test: int) -> str:
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


def adapts(chosen: Record, constant: Record, clear: bool, even: Evenness) -> str:
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


def why(chosen: Record, fit: Sequence[Record], as_good: Sequence[str], split: str) -> str:
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


def instead(chosen: Record, fit: Sequence[Record], needs_training: Sequence[str]) -> str:
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
