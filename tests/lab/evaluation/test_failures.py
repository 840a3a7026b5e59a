"""What goes wrong is on record, and loses nothing else."""

import warnings

import numpy as np
import pytest
from joblib import parallel_config

from calliper import KNN, FullRescaled, Split
from calliper.lab.evaluation import FailedTrialsWarning, evaluate
from cases.evaluation import Dying, Failing, Threaded, fan, without_time

pytestmark = pytest.mark.long

METHODS = {"Split": Split(), "FullRescaled": FullRescaled(KNN(5))}


def test_a_failure_is_recorded_and_loses_no_other():
    methods = {"failing": Failing(at_most=20), **METHODS}
    with pytest.warns(FailedTrialsWarning, match="2 of 12 rows have errors .failing.; .* too many"):
        records = evaluate(fan(), methods, n_splits=2, n_calibration=[20, 30])
    assert [row["n_calibration"] for row in records.failures] == [30, 30]
    failed = records.failures[0]
    assert failed["status"] == "failed"
    assert failed["error"] == "RuntimeError: 30 points are too many"
    assert np.isnan(failed["coverage"]) and failed["seconds_fit"] is None
    alone = evaluate(fan(), METHODS, n_splits=2, n_calibration=[20, 30])
    kept = [row for row in records if row["method"] != "failing"]
    assert without_time(kept) == without_time(alone)


def test_a_measure_that_raises_is_nan_and_loses_no_other():
    measures = {"bad": lambda *_: 1 / 0, "good": lambda y, intervals, context: context.level}
    with pytest.warns(FailedTrialsWarning, match="bad raised ZeroDivisionError"):
        records = evaluate(fan(), {"Split": Split()}, n_splits=1, measures=measures)
    row = records.rows[0]
    assert row["status"] == "ok" and row["good"] == 0.9 and np.isnan(row["bad"])
    assert row["error"] == "measure bad raised ZeroDivisionError: division by zero"


def test_warnings_of_a_cell_are_recorded_and_not_shown():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = evaluate(fan(), METHODS, n_splits=1, n_calibration=[5, 40])
    small = records.where(n_calibration=5, method="Split").rows[0]
    assert any(text.startswith("SmallCalibrationWarning: 5 ") for text in small["warnings"])
    large = records.where(n_calibration=40, method="FullRescaled").rows[0]
    assert not any("SmallCalibration" in text for text in large["warnings"])
    assert small["fraction_infinite"] == 1.0 and small["mean_width"] == np.inf


def test_warnings_from_threads_of_a_method_are_recorded():
    records = evaluate(fan(), {"m": Threaded()}, n_splits=1)
    assert "UserWarning: from a thread (in another thread)" in records.rows[0]["warnings"]


def test_a_worker_that_dies_fails_its_cell_and_loses_no_other(tmp_path):
    methods = {"Split": Split(), "dying": Dying(at_most=20), **METHODS}
    options = {"n_splits": 1, "n_calibration": [20, 30, 40]}
    with parallel_config("loky", n_jobs=2), pytest.warns(FailedTrialsWarning, match="process died"):
        records = evaluate(fan(), methods, store=tmp_path / "store", **options)
    (failed,) = records.failures
    assert (failed["method"], failed["n_calibration"], failed["status"]) == ("dying", 20, "failed")
    others = {**methods, "dying": Failing(at_most=99)}
    alone = evaluate(fan(), others, **options)
    assert [row["method"] for row in records] == [row["method"] for row in alone]
    pairs = zip(without_time(records), without_time(alone), strict=True)
    assert [one["n_calibration"] for one, other in pairs if one != other] == [20]
