"""The numbers of a comparison are those of the metrics, and failures do no harm."""

from __future__ import annotations

import json
import warnings
from math import isnan, nan
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from calliper import KNN, CalliperError, FullRescaled, metrics
from calliper.calibrators import MADSplit
from calliper.declarations import Uses
from calliper.lab.comparison import LEVELS, Points, _contest, compare
from calliper.lab.comparison._contest import by_chance
from calliper.quantile import conformal_rank
from calliper.scores import AbsoluteError
from cases.comparisons import methods, points


@pytest.fixture(scope="module")
def found():
    groups = ["one", "two"] * 300
    return compare(points(500, seed=1), points(600, seed=2), methods=methods(), groups=groups)


def test_a_record_for_every_method_and_level(found):
    pairs = [(record.method, record.level) for record in found.records]
    assert sorted(pairs) == sorted((m, v) for m in methods() for v in LEVELS)


def test_numbers_are_those_of_the_metrics(found):
    test = found.test
    for record in found.records:
        calibrator = methods()[record.method]
        scores = AbsoluteError().measure(found.calibration.y, found.calibration.y_pred)
        calibrator.fit(found.calibration.Z, scores)
        radius = calibrator.predict_radius(test.Z, record.level)
        ends = AbsoluteError().invert(test.y_pred, radius)
        assert record.coverage == metrics.empirical_coverage(test.y, ends)
        assert record.mean_width == pytest.approx(metrics.mean_width(ends))
        assert record.score == pytest.approx(
            metrics.interval_score(test.y, ends, coverage=record.level)
        )
        assert record.proved == calibrator.guaranteed_coverage(record.level)
        by_value = metrics.coverage_by_value(test.y, ends, test.y_pred)
        assert record.worst_by_prediction == by_value.worst
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tau = metrics.tau_si(test.y, ends, y_pred=test.y_pred)
        np.testing.assert_equal(record.tau_si, tau)


def test_errors_are_those_of_resampled_test_points(found):
    """Of the score, and of its ratio to that of split on the same rows."""
    rng, m = np.random.default_rng(7), len(found.test)
    drawn = rng.integers(m, size=(1000, m))
    for record in found.records[6:9]:
        scores = [
            metrics.interval_scores(found.test.y, answer.at(record.level), coverage=record.level)
            for answer in found.answers
            if answer.method in (record.method, "split")
        ]
        own, split = (each[drawn].mean(axis=1) for each in (scores[0], scores[-1]))
        assert record.score_error == pytest.approx(own.std(), rel=0.1)
        assert record.relative_score_error == pytest.approx((own / split).std(), rel=0.1, abs=1e-9)


def test_groups_are_in_natural_order_and_missing_ones_are_said():
    labels = [10.0, 9.0, None, float("nan"), ""] * 20
    found = compare(
        points(100, seed=1), points(100, seed=2), methods=methods(), groups=labels, group_name="age"
    )
    part = next(part for part in found.parts if part.by == "group")
    assert part.table.labels == ("9.0", "10.0", "(missing)") and part.name == "age"
    assert part.table.n.tolist() == [20, 20, 60]
    check = next(check for check in found.checks if check.kind == "missing-groups")
    assert check.severity == "warning" and "60 of 100 test rows have no group" in check.title


def test_split_is_the_yardstick_and_ratios_are_of_pairs(found):
    split, full = found.record("split", 0.9), found.record("full", 0.9)
    assert (split.relative_score, split.relative_score_error) == (1.0, 0.0)
    assert full.relative_score == pytest.approx(full.score / split.score)
    independent = full.relative_score * np.hypot(
        full.score_error / full.score, split.score_error / split.score
    )
    assert 0 < full.relative_score_error < independent


def test_constant_widths_have_no_measure_of_adaptivity(found):
    split = found.record("split", 0.9)
    assert isnan(split.tau_si) and isnan(split.r2_sqi) and isnan(split.worst_by_width)


def test_split_is_added():
    found = compare(
        points(100, seed=1), points(100, seed=2), methods={"full": FullRescaled(random_state=0)}
    )
    assert found.methods == ("full", "split")


def test_chance_allows_for_both_draws():
    """99 of 100 draws of calibration and test scores lie in the range."""
    n, m, level, rng = 60, 200, 0.8, np.random.default_rng(0)
    chance = by_chance(level, n, m, [0.005, 0.995])
    calibration, test = rng.uniform(size=(4000, n)), rng.uniform(size=(4000, m))
    rank = conformal_rank(level, n)
    radius = np.sort(calibration, axis=1)[:, rank - 1]
    covered = (test <= radius[:, None]).mean(axis=1)
    outside = np.mean((covered < chance[0]) | (covered > chance[1]))
    assert outside <= 0.01 + 4 * np.sqrt(0.01 / 4000)
    binomial_alone = stats.binom(m, level).ppf(0.005) / m
    assert chance[0] < binomial_alone


def test_a_method_that_fails_is_recorded_and_the_others_go_on():
    needs_training = {"mad": MADSplit(), **methods()}
    found = compare(points(100, seed=1), points(100, seed=2), methods=needs_training)
    failed = next(answer for answer in found.answers if answer.method == "mad")
    assert failed.intervals is None and "training" in failed.failure
    assert found.methods == ("full", "jackknife", "split")
    assert any(check.kind == "failed" and "mad" in check.title for check in found.checks)
    assert json.loads(found.to_json())["failures"][0]["method"] == "mad"


def test_training_rows_reach_the_methods_that_learn_from_them():
    found = compare(
        points(100, seed=1),
        points(100, seed=2),
        training=points(100, seed=3),
        methods={"mad": MADSplit(random_state=0)},
    )
    assert found.methods == ("mad", "split")


def test_json_has_every_number_and_is_strict(found):
    values = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert values["schema"] == 1
    assert len(values["records"]) == len(found.records)
    for stored, record in zip(values["records"], found.records, strict=True):
        assert stored["coverage"] == record.coverage and stored["score"] == record.score
        assert (stored["tau_si"] is None) == isnan(record.tau_si)
    kinds = {(part["by"], part["name"]) for part in values["parts"]}
    assert kinds == {
        ("width", ""), ("prediction", ""), ("group", "group"), ("feature", "a"), ("feature", "b")
    }  # fmt: skip


def test_infinite_numbers_are_words_in_json():
    found = compare(points(15, seed=1), points(50, seed=2), methods=methods(), coverage=0.95)
    stored = json.loads(found.to_json(), parse_constant=pytest.fail)["records"]
    assert {r["mean_width"] for r in stored if r["level"] == 0.99} == {"inf"}


def test_the_same_seed_gives_the_same_numbers(found):
    again = compare(found.calibration, found.test, methods=methods(), groups=found.groups)
    for one, other in zip(found.records, again.records, strict=True):
        np.testing.assert_equal(
            {**vars(one), "seconds": 0}, {**vars(other), "seconds": 0}
        )  # NaN equals NaN here
    assert again.verdicts == found.verdicts and again.checks == found.checks


def test_progress_is_told():
    told = []
    compare(points(50, seed=1), points(50, seed=2), methods=methods(), progress=told.append)
    assert told == sorted(told) and told[0] == 0 and told[-1] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": {}}, "name at least one calibrator"),
        ({"coverage": 1.5}, "strictly between 0 and 1"),
        ({"groups": ["a"]}, "groups has 1 labels for 50 rows"),
        ({"training": Points(np.zeros((3, 1)), np.zeros(3), np.zeros(3))}, "same features"),
    ],
)
def test_bad_input(change, message):
    options = {"methods": methods(), **change}
    with pytest.raises(CalliperError, match=message):
        compare(points(50, seed=1), points(50, seed=2), **options)


def test_missing_predictions_are_counted():
    y_pred = np.zeros(100)
    y_pred[[3, 8, 50]] = nan
    with pytest.raises(CalliperError, match=r"y_pred must be finite, but 3 of 100 .* position 3"):
        Points(np.zeros((100, 1)), np.zeros(100), y_pred)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_names": ("a",)}, "2 different names"),
        ({"ids": ["x"]}, "ids has 1 labels for 4 rows"),
        ({"Z": np.zeros((3, 2))}, "y must .* got 4 values for 3 rows"),
        ({"y": [1.0, nan, 2.0, 3.0]}, "y must be finite"),
    ],
)
def test_bad_points(change, message):
    good = {"Z": np.zeros((4, 2)), "y": np.zeros(4), "y_pred": np.zeros(4)}
    with pytest.raises(CalliperError, match=message):
        Points(**{**good, **change})


class Learning(FullRescaled):
    """Says that it learns from training rows, and keeps how many rows it was fitted to."""

    uses = Uses(needs=("training",), learns="nothing")
    sizes: ClassVar[list[int]] = []

    def _learn(self, rows):
        self.sizes.append(len(rows))
        super()._learn(rows)


class Wary(FullRescaled):
    """Needs no training rows, and speaks of them where calibration rows are few."""

    def _learn(self, rows):
        if len(rows) < 10:
            raise CalliperError("so few points: training errors would not help either")
        super()._learn(rows)


def test_a_method_says_itself_what_it_needs_and_is_not_tried_out():
    compared = {"learning": Learning(KNN(20)), "wary": Wary(KNN(20)), **methods()}
    sets = points(100, seed=1), points(100, seed=2)
    for training in (None, points(100, seed=3)):
        Learning.sizes.clear()
        found = compare(*sets, methods=compared, training=training, levels=())
        needs = {answer.method for answer in found.answers if answer.needs_training}
        assert needs == {"learning"}
        # Once for its answer, and on the other draws if it has one: never on a handful of rows.
        once = [100] + [50] * 2 * _contest.N_DRAWS
        assert Learning.sizes == ([] if training is None else once)
