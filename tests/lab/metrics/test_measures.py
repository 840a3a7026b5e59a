"""One registry of measures: evaluations, comparisons and their page read the same."""

import warnings
from dataclasses import fields

import numpy as np
import pytest

from calliper import Intervals, metrics
from calliper.lab.comparison import compare
from calliper.lab.comparison._comparison import Record
from calliper.lab.evaluation import Problem, evaluate
from calliper.lab.metrics import MEASURES, Context, measured
from calliper.lab.report.page import PAGE_COLUMNS
from cases.comparisons import methods, points


def test_every_measure_says_what_it_means_and_the_page_says_it():
    assert all(measure.meaning for measure in MEASURES.values())
    shown = {column.title: column for column in PAGE_COLUMNS}
    for name, measure in MEASURES.items():
        if name != "tau_sqi":
            assert shown[measure.label or name].meaning == measure.meaning


def test_a_comparison_and_an_evaluation_measure_alike():
    test = points(300, seed=2)
    found = compare(points(200, seed=1), test, methods=methods(), levels=())
    record, answer = found.record("full", 0.9), found.answers[0]
    own = {field.name for field in fields(Record)} & MEASURES.keys() - {"worst_by_width"}
    assert own >= {"coverage", "mean_width", "tau_si", "r2_sqi", "worst_by_prediction"}
    context = Context(level=0.9, y_pred=test.y_pred)
    values = measured(own, test.y, answer.at(0.9), context)
    assert values == {name: getattr(record, name) for name in own}
    problem = Problem("p", Z=test.Z, y=test.y, y_pred=test.y_pred)
    (row,) = evaluate(problem, {"full": methods()["full"]}, n_splits=1)
    assert MEASURES.keys() <= row.keys()


def test_what_does_not_exist_is_nan_and_nobody_is_warned():
    y = np.linspace(-1, 1, 50)
    constant = Intervals(np.full(50, -1.0), np.ones(50), 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = measured(MEASURES, y, constant, Context(level=0.9, y_pred=0 * y))
    assert np.isnan(values["tau_si"]) and values["coverage"] == 1.0


def test_the_interval_score_is_the_mean_of_its_rows():
    rng = np.random.default_rng(0)
    y, half = rng.normal(size=200), rng.uniform(size=200)
    rows = metrics.interval_scores(y, (-half, half), coverage=0.8)
    assert metrics.interval_score(y, (-half, half), coverage=0.8) == rows.mean()
    assert rows[0] == pytest.approx(2 * half[0] + 10 * max(abs(y[0]) - half[0], 0))
