"""The verdict says what the problem is known to be."""

from __future__ import annotations

import numpy as np
import pytest
from comparisons import methods, points

from calliper import KNN, RBF, FullRescaled
from calliper.report.comparison import Points, _checks, compare


def test_noise_that_changes_asks_for_an_adaptive_method():
    found = compare(points(1000, seed=1), points(2000, seed=2), methods=methods())
    verdict = found.verdict
    assert verdict.method == "full" and verdict.clear
    assert verdict.headline.startswith("Use full: it covers")
    assert verdict.covers.startswith("Yes") and "2,000 test points" in verdict.covers
    assert "at least 0.9" in verdict.promise
    # As good, with a weaker promise: named, not chosen.
    assert "jackknife" in verdict.as_good


@pytest.mark.parametrize("seed", range(3))
def test_constant_noise_keeps_split(seed):
    sets = (points(n, seed=10 * seed + n, spread="constant") for n in (500, 1000))
    verdict = compare(*sets, methods=methods()).verdict
    assert verdict.method == "split" and not verdict.clear
    assert verdict.headline == "No clear winner: keep split."


def test_false_winners_are_rare(monkeypatch):
    """Where split is right, another method is recommended seldom, over many test sets."""
    monkeypatch.setattr(_checks, "drift", lambda *rows: [])
    wrong = 0
    for seed in range(20):
        sets = (points(200, seed=2 * seed + i, spread="constant") for i in range(2))
        verdict = compare(*sets, methods={"wide": FullRescaled(RBF(5.0))}, levels=()).verdict
        wrong += verdict.method != "split"
    assert wrong <= 3


def test_no_method_covers_where_noise_has_grown():
    test = points(1000, seed=2)
    louder = Points(test.Z, test.y_pred + 3 * (test.y - test.y_pred), test.y_pred, None, ("a", "b"))
    verdict = compare(points(500, seed=1), louder, methods=methods()).verdict
    assert verdict.method is None
    assert verdict.headline == "No method covers: do not use these intervals yet."


def test_rows_in_both_sets_void_the_comparison():
    same = points(300, seed=1)
    verdict = compare(same, same, methods=methods()).verdict
    assert verdict.method is None and "void" in verdict.headline
    assert "300 of 300 test rows are also calibration rows" in verdict.covers


def test_too_few_test_points():
    verdict = compare(points(100, seed=1), points(19, seed=2), methods=methods()).verdict
    assert verdict.method is None and "Too few test points" in verdict.headline


def test_too_few_calibration_points():
    found = compare(points(15, seed=1), points(100, seed=2), methods=methods(), coverage=0.99)
    assert found.verdict.method is None
    assert "every interval is infinite" in found.verdict.headline
    lower = found.verdicts[found.levels.index(0.5)]
    assert lower.method is not None


def test_a_method_that_undercovers_is_not_chosen():
    """One with a better score and too little coverage is passed over, and named."""

    class Narrow(FullRescaled):
        def predict_radius(self, Z, coverage=0.9):
            return 0.9 * super().predict_radius(Z, coverage)

    compared = {"narrow": Narrow(KNN(50), random_state=0), "full": FullRescaled(random_state=0)}
    found = compare(points(2000, seed=1), points(4000, seed=2), methods=compared, levels=())
    narrow = found.record("narrow", 0.9)
    assert narrow.coverage < narrow.chance_low
    assert found.verdict.method == "full"
    assert "Less than chance allows: narrow" in found.verdict.covers


def test_the_verdict_follows_the_level():
    found = compare(points(500, seed=1), points(500, seed=2), methods=methods(), coverage=0.8)
    assert [verdict.level for verdict in found.verdicts] == [0.5, 0.8, 0.9, 0.95, 0.99]
    assert found.verdict.level == 0.8 and np.isclose(found.coverage, 0.8)
