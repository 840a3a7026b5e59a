"""The verdict: does it cover, does it adapt, which method, what does it promise.

Rules, in this order, at one level:

1. A method *covers* if its coverage is not below what chance allows (:mod:`._chance`). It may be
   chosen only then.
2. A method is *better* than another if the mean of their paired interval scores differs by more
   than its error does by chance, allowing for as many looks as there are methods.
3. Of the methods that cover, the one with the best score leads; those that it does not beat are
   as good. Among these, split is kept if it is there, since it is the simplest; then the
   default; then whichever has the full promise and the best score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from calliper.report.comparison._chance import worst_bin_by_chance
from calliper.report.comparison._fit import Answer
from calliper.report.comparison._measures import Record, Scores

#: Fewer test points say nothing about coverage.
FEWEST_TEST_POINTS = 20


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


def judge(
    answers: Sequence[Answer],
    records: Sequence[Record],
    scores: Scores,
    *,
    sizes: tuple[int, int],
    void: str | None,
) -> Verdict:
    """The verdict of the records of one level, from ``sizes`` calibration and test points.

    ``void`` says why the numbers mean nothing.
    """
    n_test = sizes[1]
    level = records[0].level
    split = next(a.method for a in answers if a.constant)
    constant = next(r for r in records if r.method == split)
    if void is not None:
        return _void(level, void)
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
    chosen, as_good, clear = _choose(answers, fit, scores, split)
    defaults = [answer.method for answer in answers if answer.default]
    even = worst_bin_by_chance(level, sizes[0], max(n_test // 10, 1), 10)
    return Verdict(
        level,
        chosen.method,
        clear,
        _headline(chosen, clear, constant, even),
        _covers(chosen, records, n_test),
        _adapts(chosen, constant, clear, even),
        _why(chosen, fit, as_good, split, chosen.method in defaults),
        chosen.guarantee,
        tuple(as_good),
    )


def _choose(
    answers: Sequence[Answer], fit: Sequence[Record], scores: Scores, split: str
) -> tuple[Record, list[str], bool]:
    """The record to recommend, the names it cannot be told from, and whether it beats split."""
    best = min(fit, key=lambda record: record.score)
    looks = max(len(fit) - 1, 1)
    as_good = [r.method for r in fit if not _better(scores, best.method, r.method, looks)]
    level, default = best.level, {a.method for a in answers if a.default}

    def preference(record: Record) -> tuple[bool, bool, bool, float]:
        full_promise = record.proved >= level - 1e-12
        ranks = record.method != split, not full_promise, record.method not in default
        return *ranks, record.score

    beats = {r.method for r in fit if _better(scores, r.method, split, looks)}
    candidates = [r for r in fit if r.method in as_good]
    if split not in as_good and best.method in beats:
        # One that is as good as the best but not clearly better than split would be no reason.
        candidates = [r for r in candidates if r.method in beats]
    chosen = min(candidates, key=preference)
    others = [name for name in as_good if name != chosen.method]
    return chosen, others, chosen.method in beats


def _better(scores: Scores, one: str, other: str, looks: int) -> bool:
    """Whether ``one`` has the smaller mean score by more than chance allows."""
    a, b = scores.names.index(one), scores.names.index(other)
    if a == b or not np.isfinite(scores.means[a]):
        return False
    if not np.isfinite(scores.means[b]):
        return True
    difference = scores.resampled[:, b] - scores.resampled[:, a]
    wanted = stats.norm.isf(0.025 / looks)
    gain = float(scores.means[b] - scores.means[a])
    return gain > wanted * float(difference.std()) and gain > 1e-9 * float(scores.means[b])


def _headline(chosen: Record, clear: bool, constant: Record, even: float) -> str:
    if chosen is constant:
        return f"No clear winner: keep {chosen.method}."
    if not clear:
        return f"Use {chosen.method}: a constant width does not cover here."
    if chosen.worst_by_prediction < even:
        return f"Use {chosen.method}: it covers, and adapts in part."
    return f"Use {chosen.method}: it covers, and it adapts."


def _covers(chosen: Record, records: Sequence[Record], n_test: int) -> str:
    share, asked = percent(chosen.coverage), percent(chosen.level)
    low, high = percent(chosen.chance_low), percent(chosen.chance_high)
    words = "Yes" if chosen.coverage <= chosen.chance_high else "Yes, more than asked for"
    text = (
        f"{words}: {chosen.method} covers {share} of {n_test:,} test points. {asked} was asked "
        f"for, and chance alone puts it between {low} and {high} in 99 cases of 100."
    )
    short = [r.method for r in records if r.coverage < r.chance_low]
    return text + (f" Less than chance allows: {listed(short)}." if short else "")


def _adapts(chosen: Record, constant: Record, clear: bool, even: float) -> str:
    worst, short = percent(chosen.worst_by_prediction), chosen.worst_by_prediction < even
    told = f"chance alone would seldom go below {percent(even)}"
    if chosen is constant:
        rest = " No method here does clearly better." if short else ""
        return (
            f"{'No' if short else 'No need was found'}: the width is the same everywhere. The "
            f"worst tenth of the predictions is covered {worst}; {told}.{rest}"
        )
    if not clear:
        return "Its interval score cannot be told from that of a constant width."
    if not np.isfinite(chosen.relative_score):
        return "Yes: intervals of constant width are infinite, its own are not."
    gain, error = 100 * (1 - chosen.relative_score), 100 * chosen.relative_score_error
    digits = 0 if error >= 2 else 1
    return (
        f"{'In part' if short else 'Yes'}: its interval score (width plus a fine for misses) is "
        f"{gain:.{digits}f} ± {error:.{digits}f} % better than that of a constant width. The worst "
        f"tenth of the predictions is covered {worst} (constant width: "
        f"{percent(constant.worst_by_prediction)}); {told}."
    )


def _why(
    chosen: Record, fit: Sequence[Record], as_good: Sequence[str], split: str, default: bool
) -> str:
    if chosen.method == split:
        return (
            f"No other method that covers has an interval score better than {split}'s by more than "
            f"chance allows, and {split} is the simplest, with the full promise."
        )
    best = min(fit, key=lambda record: record.score)
    if best is not chosen:
        reason = "needs no training data" if default else "promises the full coverage"
        return (
            f"{best.method} has the best interval score, but {chosen.method} cannot be told from "
            f"it by these test points, and {reason}. As good within chance: {listed(as_good)}."
        )
    rest = f" As good within chance: {listed(as_good)}." if as_good else ""
    return f"{chosen.method} has the best interval score of {len(fit)} methods that cover.{rest}"


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


def _void(level: float, why: str) -> Verdict:
    nothing = "Not judged: the numbers below mean nothing."
    return Verdict(
        level,
        None,
        False,
        "This comparison is void: test rows are calibration rows.",
        why,
        nothing,
        "Take test rows that the calibration has not seen, and compare again.",
        "None can be checked on these rows.",
    )


def percent(share: float) -> str:
    """A share in percent, as precise as it is worth."""
    return f"{100 * share:.1f}".removesuffix(".0") + "\u00a0%"


def listed(names: Sequence[str]) -> str:
    """Names with commas, and an "and" before the last."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
