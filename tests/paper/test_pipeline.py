"""The parts between problems and records, on problems of a few hundred points."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator

from calliper import CalliperError, ConformalRegressor, Intervals, Split
from calliper.calibrators import LVD
from calliper.kernels import learn_metric
from calliper.lab.evaluation import Problem
from calliper.lab.metrics import Context
from studies.experiments.deutschmann2024 import lvd, methods, run, study
from studies.experiments.deutschmann2024.artefact import Artefact, Rows
from studies.experiments.deutschmann2024.config import TASKS
from studies.experiments.deutschmann2024.measures import capped, mean_width
from studies.experiments.deutschmann2024.problems import alphaseq, tabular, trained
from studies.experiments.deutschmann2024.study import Study, run_all
from studies.experiments.deutschmann2024.whole import Whole


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] * rng.normal(size=600)
    return X, y


@pytest.fixture
def problem(data):
    X, y = data
    y_pred = np.sin(4 * X[:, 0])
    return Problem(
        "fan",
        Z=X[300:],
        y=y[300:],
        y_pred=y_pred[300:],
        Z_train=X[:300],
        y_train=y[:300],
        y_pred_train=y_pred[:300],
    )


@pytest.mark.parametrize("tuned", [False, True])
def test_a_given_metric_gives_what_lvd_learns_itself(problem, tuned):
    errors = np.abs(problem.y - problem.y_pred)
    train = {"training": (problem.Z_train, None, problem.y_train)}
    metric = learn_metric(problem.Z_train, problem.y_train, random_state=np.random.RandomState(3))
    given = LVD(metric=metric, random_state=3).fit(problem.Z, errors, **train)
    learnt = LVD(random_state=3).fit(problem.Z, errors, **train)
    np.testing.assert_array_equal(
        given.predict_radius(problem.Z[:50], 0.8), learnt.predict_radius(problem.Z[:50], 0.8)
    )
    # Tuned, both widen by as much on the same sample of training rows.
    learnt.tuned = given.tuned = tuned
    given._sample = learnt._sample
    np.testing.assert_array_equal(
        given.predict_radius(problem.Z[:50], 0.9), learnt.predict_radius(problem.Z[:50], 0.9)
    )


def test_a_metric_is_learnt_once(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(lvd, "LOCAL", tmp_path)
    first = lvd.learnt_once(problem.Z_train, problem.y_train)
    monkeypatch.setattr(lvd, "learn_metric", None)
    again = lvd.learnt_once(problem.Z_train, problem.y_train)
    np.testing.assert_array_equal(first.matrix, again.matrix)
    assert len(list((tmp_path / "metrics").iterdir())) == 1


def test_whole_is_the_regressor(data):
    X, y = data
    model = RandomForestRegressor(20, random_state=0).fit(X[:300], y[:300])
    usual = ConformalRegressor(model, error_model=None, random_state=1)
    usual.calibrate(X[300:500], y[300:500], X_train=X[:300], y_train=y[:300])
    errors = np.abs(y[300:500] - model.predict(X[300:500]))
    whole = Whole(FrozenEstimator(model), X[:300], y[:300], 1).fit(X[300:500], errors)
    expected = usual.predict_interval(X[500:], 0.9).width / 2
    np.testing.assert_allclose(whole.predict_radius(X[500:], 0.9), expected, rtol=1e-6)


def test_infinite_half_widths_count_as_the_largest_calibration_error():
    y_pred = np.array([1.0, 5.0])
    intervals = Intervals(np.array([0.0, -np.inf]), np.array([2.0, np.inf]), 0.9)
    context = Context(level=0.9, y_pred=y_pred, n_calibration=10, Z=y_pred[:, None], max_score=3.0)
    shown = capped(intervals, context)
    assert shown.lower.tolist() == [0.0, 2.0] and shown.upper.tolist() == [2.0, 8.0]
    assert mean_width(y_pred, intervals, context) == 4.0
    assert np.isinf(intervals.upper[1])  # the intervals themselves stay as they are


def test_studies_of_one_title_are_divisions_of_one_block(problem, tmp_path):
    studies = [
        Study("T", problem, {"Split": Split()}, n_calibration=[50], divisions=2, first=first)
        for first in (0, 2)
    ]
    records = run_all(studies, tmp_path / "cells.jsonl")
    assert [(row["problem"], row["split"]) for row in records] == [("T", s) for s in range(4)]
    assert str(records.rows) == str(run_all(studies, tmp_path / "cells.jsonl").rows)  # with NaN
    assert len(records.runs) == 1


def test_quick_studies_take_every_kind_of_method(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(lvd, "LOCAL", tmp_path)
    rows = Rows(problem.y_pred, problem.Z, problem.y, np.arange(300))
    read = trained.problem_of("fan", Artefact(rows, rows, {}))
    (study,) = trained.usual_studies(TASKS["clearance"], read, quick=True)
    records = run_all([study], tmp_path / "cells.jsonl")
    assert not records.failures
    assert set(methods.PAPER_METHODS) < {row["method"] for row in records}


def test_slow_methods_are_measured_on_fewer_rows(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(lvd, "LOCAL", tmp_path)
    studies = trained.usual_studies(TASKS["clearance"], problem, quick=False, most_test_rows=40)
    limits = {name: s.n_test for s in studies for name in s.methods}
    assert limits[methods.OURS] is None and limits["LCP"] == limits[methods.TUNED_MSE] == 40


def test_amino_acids_are_counted():
    counts = alphaseq.amino_acid_counts(["AAC", "WYX"])
    assert counts.sum(axis=1).tolist() == [3.0, 2.0]
    assert counts[0, 0] == 2.0


def test_a_run_ends_with_what_it_left_out_and_where_results_lie(tmp_path, monkeypatch, capsys):
    def missing(name):
        raise CalliperError(f"no {name}")

    monkeypatch.setattr(study, "LEFT_OUT", {})
    monkeypatch.setattr(run, "LEFT_OUT", study.LEFT_OUT)
    monkeypatch.setattr(tabular, "load_tabular", missing)
    assert not tabular.studies(quick=True)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/main.md").write_text("# The paper's Table 1\n\n| task |\n")
    run._say_end(tmp_path, quick=True)
    said = capsys.readouterr().err.splitlines()
    left_out = said[-2:]
    at = said.index(f"records, tables and figures: {tmp_path}")
    assert said[at + 1 : -2] == [
        "table: main.md, The paper's Table 1",
        *("# The paper's Table 1", "", "| task |", ""),
        "NOT MADE by a quick run: Table 3 (make tuning-table)",
    ]
    for line, title in zip(left_out, ("concrete", "yacht"), strict=True):
        assert line.startswith(f"LEFT OUT for want of data: {title} (")
