"""The verdict says what the problem is known to be."""

from __future__ import annotations

import numpy as np
import pytest

from calliper import KNN, FullRescaled, Split
from calliper.calibrators import LoCart, MADSplit
from calliper.lab._words import percent
from calliper.lab.comparison import Points, compare
from calliper.lab.comparison._comparison import Cut
from calliper.lab.comparison._contest import short_bins
from calliper.lab.metrics import CoverageTable
from cases.comparisons import methods, points


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
    assert verdict.headline == "No clear winner: keep a constant width (split)."


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


@pytest.mark.parametrize("which", ["calibration", "test"])
def test_rows_that_the_model_has_seen_change_the_headline(which):
    calibration, test = points(300, seed=1), points(300, seed=2)
    training = {"calibration": calibration, "test": test}[which]
    verdict = compare(calibration, test, methods=methods(), training=training).verdict
    assert verdict.method is None and f"{which} rows are training rows" in verdict.headline
    assert verdict.promise.startswith("None")


def test_coverage_of_a_few_points_cannot_be_told():
    verdict = compare(points(60, seed=1), points(30, seed=2), methods=methods()).verdict
    assert verdict.covers.startswith("Too few points to tell")
    assert verdict.headline.startswith("Too few points to tell")


def test_a_handful_of_tied_predictions_is_no_tenth():
    """A bin is held against the chance of its own number of points, and named for what it is."""
    part = {"labels": ("1", "2", "5"), "n": np.array([1000, 997, 3])}
    rest = dict.fromkeys(("mean_width", "lower", "upper"), np.zeros(3))

    def short(coverage):
        table = CoverageTable(coverage=np.array(coverage), **part, **rest)
        return short_bins(Cut("split", 0.9, "prediction", "", table), 1500)

    assert not short([0.91, 0.9, 1 / 3])
    assert [*short([0.91, 0.8, 1.0])] == [1]


def test_one_prediction_for_all_has_no_worst_part():
    rng = np.random.default_rng(0)
    sets = [Points(x, x * e, 0 * x) for x, e in zip(rng.uniform(size=(2, 800)),
            rng.normal(size=(2, 800)), strict=True)]  # fmt: skip
    verdict = compare(*sets, methods={"full": FullRescaled(KNN(50), random_state=0)}).verdict
    assert (
        verdict.method == "full" and "tenth" not in verdict.adapts and "worst" not in verdict.adapts
    )


def test_the_reason_is_the_promise_not_the_data():
    """Full and jackknife need the same data; what tells them apart is what they prove."""
    for seed in range(6):
        sets = points(800, seed=2 * seed), points(2000, seed=2 * seed + 1)
        verdict = compare(*sets, methods=methods(), levels=()).verdict
        assert verdict.method == "full" and "training data" not in verdict.why
        if verdict.why.startswith("jackknife has the best"):
            assert "and guarantees the full coverage" in verdict.why
            return
    pytest.fail("jackknife never led: choose other seeds")


def test_the_default_is_kept_where_it_is_as_good():
    """Even if another has the best score and alone is clearly better than a constant width."""
    compared = methods() | {"locart": LoCart(random_state=0), "mad": MADSplit(random_state=0)}
    found = compare(
        points(120, seed=1),
        points(150, seed=2),
        training=points(120, seed=3),
        methods=compared,
        levels=(),
        coverage=0.8,
    )
    verdict = found.verdict
    assert "split" not in verdict.as_good and not verdict.clear, "or this tests nothing"
    assert verdict.method == "full" and verdict.why.startswith("locart has the best")
    assert "and is the default" in verdict.why


def test_the_trade_off_is_told():
    verdict = compare(points(1000, seed=1), points(2000, seed=2), methods=methods()).verdict
    assert verdict.size.startswith("Typically ±") and "off by" in verdict.size
    assert verdict.instead.startswith("jackknife: ") and "(here 90" in verdict.instead


def test_levels_near_one_are_not_called_certain():
    found = compare(
        points(1500, seed=1), points(500, seed=2), methods={"split": Split()}, coverage=0.999
    )
    assert "99.9\u00a0% was asked for" in found.verdict.covers
    assert percent(0.9999) == "99.99\u00a0%" and percent(1.0) == "100\u00a0%"
    assert percent(0.00001) == "0.001\u00a0%" and percent(0.1225) == "12.3\u00a0%"


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
        def predict_radius(self, Z, coverage=0.9, **how):
            return 0.9 * super().predict_radius(Z, coverage, **how)

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
