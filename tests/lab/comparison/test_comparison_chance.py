"""A winner is no accident of the calibration draw, nor of the test draw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calliper import KNN, FullRescaled, Split
from calliper.lab.comparison import Comparison, _contest
from calliper.lab.comparison._contest import Scores, ask, redraw, row_scores
from cases.comparisons import points

pytestmark = pytest.mark.long


def asked(compared, calibration, test, *, level=0.9, seed=0, redrawn=True):
    given = {"levels": (level,), "coverage": level, "random_state": seed}
    found = Comparison(calibration=calibration, test=test, **given)
    answers = [ask(name, method, found) for name, method in compared.items()]
    others, factor = redraw(compared, found) if redrawn else ([None], 0.0)
    return Scores([*compared], row_scores(found, answers, level), others[0], factor)


def test_false_winners_are_rare(monkeypatch):
    """Where split is right, no other wins by the luck of its few calibration rows.

    With so many test points a lucky radius is better beyond all doubt, on these and all others;
    only another calibration draw tells that it was luck. Nominal: 2.5 of 100.
    """
    monkeypatch.setattr(_contest, "REDRAWN_ROWS", 500)
    wrong = misled = 0
    for seed in range(40):
        sets = [points(n, seed=2 * seed + n % 2, spread="constant") for n in (50, 1501)]
        compared = {"other": FullRescaled(KNN(30), random_state=seed), "split": Split()}
        scores = asked(compared, *sets, seed=seed)
        wrong += scores.better("other", "split", 1)
        scores.redrawn = np.ones_like(scores.redrawn)
        misled += scores.better("other", "split", 1)
    assert wrong <= stats.binom(40, 0.025).ppf(0.99)
    assert misled > wrong, "the draw of the calibration set matters here, or this tests nothing"


def test_small_gains_are_not_worth_a_name():
    """However sure: with many points a gain of half a percent is real, and no reason."""
    rows = np.random.default_rng(0).exponential(size=200)
    for gain, expected in ((0.005, False), (0.02, True)):
        both = np.column_stack([rows * (1 - gain), rows])
        scores = Scores(["one", "other"], both, np.ones((8, 2, 2)), 0.5)
        assert scores.better("one", "other", 1) == expected


def test_other_draws_tell_how_much_another_calibration_set_would_change():
    """Their variance of a difference, against that over fresh calibration sets of N points."""
    compared = {"full": FullRescaled(KNN(20), random_state=0), "split": Split()}
    test = points(1500, seed=0)
    fresh = [
        asked(compared, points(200, seed=k), test, redrawn=False).means @ [1, -1]
        for k in range(1, 41)
    ]
    true = np.var(fresh, ddof=1)
    for m in (1500, 300):  # sets of N, and of fewer
        found = [
            asked(compared, points(200, seed=k), test.take(np.arange(m)), seed=k)
            for k in range(1, 6)
        ]
        assert found[0].factor == (0.5 if m == 1500 else 125 / 400)
        # With few test points their noise is in it too: too large, never too small.
        ratio = np.mean([one.variance(0, 1) for one in found]) / true
        assert 0.4 < ratio < (2.5 if m == 1500 else 8)


def test_sets_that_are_too_small_for_the_level_tell_nothing():
    """99 points reach 99 %, half of them do not: then nothing is called better."""
    compared = {"full": FullRescaled(KNN(20), random_state=0), "split": Split()}
    sets = points(99, seed=1), points(60, seed=2)
    scores = asked(compared, *sets, level=0.99)
    assert scores.variance(0, 1) == np.inf
    assert not scores.better("full", "split", 1)
