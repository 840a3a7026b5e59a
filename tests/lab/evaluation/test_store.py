"""A finished cell is never computed twice, whatever happened to the run that computed it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

from calliper import KNN, CalliperError, FullRescaled, Split
from calliper.lab.evaluation import FailedTrialsWarning, Records, TornStoreWarning, evaluate
from calliper.lab.metrics import Measure
from cases.evaluation import Failing, Logging, Slow, fan, without_time

SCRIPT = """
import sys
from pathlib import Path
from cases.evaluation import Slow, fan
from joblib import parallel_config
from calliper.lab.evaluation import evaluate

log, store, n_jobs = sys.argv[1:]
with parallel_config("threading", n_jobs=int(n_jobs)):
    evaluate(fan(), {"m": Slow(Path(log))}, n_splits=20, store=store)
"""


def finished(store: Path) -> int:
    path = store / "trials.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.long
def test_a_killed_run_goes_on_where_it_was(tmp_path, n_jobs):
    log, store = tmp_path / "log", tmp_path / "store"
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(log), str(store), str(n_jobs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    deadline = time.monotonic() + 120
    while finished(store) < 5 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept, begun = finished(store), count(log)
    assert 5 <= kept < 20
    # What was being computed is lost, and what had just been handed over by a thread.
    assert begun - kept <= (1 if n_jobs == 1 else 3)
    records = run(log, store, method=Slow(log), n_splits=20)
    assert count(log) == begun + (20 - kept)
    assert finished(store) == 20
    assert [row["split"] for row in records] == list(range(20))
    assert without_time(records) == without_time(run(log, None, method=Slow(log), n_splits=20))


def run(log, store, **changed):
    method = changed.pop("method", None) or Logging(log)
    problem = changed.pop("problem", None) or fan()
    return evaluate(problem, {"m": method}, **{"n_splits": 3, "store": store, **changed})


def count(log):
    return len(log.read_text().splitlines())


@pytest.mark.parametrize("name", ["store", "trials.jsonl", "deep/er/store"])
def test_a_second_run_computes_nothing(tmp_path, name):
    log, store = tmp_path / "log", tmp_path / name
    first = run(log, store)
    told = []
    second = run(log, store, progress=told.append)
    assert count(log) == 3
    assert told == [1.0]
    assert without_time(second) == without_time(first)
    assert [r["seconds_fit"] for r in second] == [r["seconds_fit"] for r in first]


def test_more_splits_or_methods_compute_what_is_new(tmp_path):
    log, store = tmp_path / "log", tmp_path / "store"
    run(log, store)
    run(log, store, n_splits=5)
    assert count(log) == 5
    evaluate(fan(), {"m": Logging(log), "other": Logging(log)}, n_splits=5, store=store)
    assert count(log) == 10


def closed(value):
    return lambda y, intervals, context: float(np.size(value))


def two(y, intervals, context):
    return 2.0


CHANGES = {
    "levels": {"coverage": 0.8},
    "seed": {"random_state": 1},
    "size": {"n_calibration": 50},
    "test rows": {"n_test": 10},
    "data": {"problem": fan(seed=1)},
    "groups": {"problem": fan(groups=np.zeros(120))},
    "measure": {"measures": {"two": two}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_computed_anew(tmp_path, change):
    log, store = tmp_path / "log", tmp_path / "store"
    run(log, store)
    run(log, store, **CHANGES[change])
    assert count(log) == 6


def test_another_parameter_measure_or_version_is_computed_anew(tmp_path, monkeypatch):
    log, store = tmp_path / "log", tmp_path / "store"
    run(log, store, measures={"one": lambda y, intervals, context: 1.0})
    run(log, store, measures={"one": lambda y, intervals, context: 1.5})
    assert count(log) == 6
    run(log, store, method=Logging(log, tag="other"))
    assert count(log) == 9
    monkeypatch.setattr("calliper.lab.evaluation._records.versions", lambda: {"calliper": "0"})
    run(log, store, method=Logging(log, tag="other"))
    assert count(log) == 12


def test_an_earlier_fit_is_no_part_of_the_method(tmp_path):
    log, store = tmp_path / "log", tmp_path / "store"
    run(log, store)
    used = Logging(log).fit(np.zeros((1, 1)), np.zeros(1))
    used.left_over_ = 1
    run(log, store, method=used)
    assert count(log) == 4


def test_nested_parameters_count(tmp_path):
    store = tmp_path / "trials.jsonl"
    for n_neighbors in (3, 4, 3):
        evaluate(fan(), {"m": FullRescaled(KNN(n_neighbors))}, n_splits=2, store=store)
    assert len(store.read_text().splitlines()) == 4


def test_a_torn_last_line_is_cut_off_with_a_warning(tmp_path):
    log, store = tmp_path / "log", tmp_path / "trials.jsonl"
    first = run(log, store)
    whole = store.read_bytes()
    store.write_bytes(whole[:-40])
    with pytest.warns(TornStoreWarning, match="last line is incomplete .* computed again"):
        second = run(log, store)
    assert count(log) == 4
    assert without_time(second) == without_time(first)
    assert len(store.read_bytes().splitlines()) == 3
    run(log, store)
    assert count(log) == 4


def test_a_bad_line_in_between_costs_its_cell_only(tmp_path):
    log, store = tmp_path / "log", tmp_path / "trials.jsonl"
    run(log, store)
    lines = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(lines[0] + b"[1, 2]\n" + lines[2])
    with pytest.warns(TornStoreWarning, match="line 2 is not the record"):
        run(log, store)
    assert count(log) == 4


def test_failed_cells_are_tried_again(tmp_path):
    store = tmp_path / "store"
    for _ in range(2):
        with pytest.warns(FailedTrialsWarning):
            evaluate(fan(), {"m": Failing(), "Split": Split()}, n_splits=2, store=store)
    lines = [json.loads(line) for line in (store / "trials.jsonl").read_text().splitlines()]
    assert [line["rows"][0]["status"] for line in lines] == ["failed"] * 2 + ["ok"] * 2 + [
        "failed"
    ] * 2


def test_cells_in_which_a_measure_raised_are_tried_again(tmp_path):
    log, store, broken = tmp_path / "log", tmp_path / "store", tmp_path / "broken"
    measures = {"m": lambda y, intervals, context, broken=broken: float(1 / (not broken.exists()))}
    broken.touch()
    with pytest.warns(FailedTrialsWarning, match="ZeroDivisionError"):
        run(log, store, measures=measures)
    broken.unlink()
    assert [row["m"] for row in run(log, store, measures=measures)] == [1.0] * 3
    run(log, store, measures=measures)
    assert count(log) == 6


def test_infinite_and_undefined_values_come_back(tmp_path):
    measures = {"inf": lambda *_: -np.inf, "nan": Measure(lambda *_: np.nan)}
    rows = [run(tmp_path / "log", tmp_path / "s", measures=measures).rows[0] for _ in range(2)]
    assert [row["inf"] for row in rows] == [-np.inf] * 2
    assert all(np.isnan(row["nan"]) for row in rows)
    row = {"method": "inf", "error": None, "a": np.inf, "b": -np.inf, "c": 1.5, "d": True}
    text = Records([{**row, "e": np.nan}]).to_json()
    json.loads(text, parse_constant=pytest.fail)
    (read,) = Records.from_json(text)
    assert np.isnan(read.pop("e")) and read == row


def test_what_cannot_be_stored(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CalliperError, match="must be a folder or a"):
        run(tmp_path / "log", tmp_path / "file")
    for held in (
        {"method": Logging(tmp_path / "log", tag=Lock())},
        {"measures": {"m": closed(Lock())}},
    ):
        with pytest.raises(CalliperError, match=r"something that cannot .*cannot pickle '_thread"):
            run(tmp_path / "log", tmp_path / "store", **held)
