"""Is one method better than another, or was it lucky? And which one is to be used?"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from scipy import stats

from calliper.report.comparison._fit import Answer
from calliper.report.comparison._measures import Record
from calliper.report.comparison._redraw import Redrawn
from calliper.report.comparison._scores import Scores

#: Share of the score that a difference must make to be worth a name, however sure it is.
WORTH_NAMING = 0.01
#: Share of the comparisons of equal methods in which one is called better, at each side.
DOUBT = 0.025


def better(scores: Scores, redrawn: Redrawn, one: str, other: str, looks: int) -> bool:
    """Whether ``one`` has the smaller mean score by more than both draws explain.

    The gain is held against the errors of the test draw (resamples) and of the calibration draw
    (``redrawn``), with Student's law for the few of these and Bonferroni's correction for
    ``looks``.
    """
    a, b = scores.names.index(one), scores.names.index(other)
    if a == b or not np.isfinite(scores.means[a]):
        return False
    if not np.isfinite(scores.means[b]):
        return True
    gain = float(scores.means[b] - scores.means[a])
    if gain <= WORTH_NAMING * float(scores.means[b]):
        return False
    of_test = float((scores.resampled[:, b] - scores.resampled[:, a]).var())
    of_calibration = redrawn.variance(a, b)
    if not np.isfinite(of_calibration):
        return False
    total = of_test + of_calibration
    # Welch and Satterthwaite: only the calibration sets are few.
    few = len(redrawn.scores)
    freedom = inf if of_calibration == 0 else few * (total / of_calibration) ** 2
    return gain > float(stats.t.isf(DOUBT / looks, freedom)) * sqrt(total)


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
