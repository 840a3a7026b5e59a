"""The example service, through its real port: two workers, clients in parallel, bad requests."""

import asyncio
import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from calliper import Intervals
from studies.benchmarks.service import EXAMPLE, Client, hammer, loaded, serving

pytestmark = pytest.mark.long

ROW = {"age": 50.0, "sex": 1.0, "bmi": 25.0, "bp": 90.0, "s1": 200.0, "s2": 120.0, "s3": 50.0,
       "s4": 4.0, "s5": 4.5, "s6": 90.0}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def address(folder):
    with serving(folder) as address:
        yield address


@pytest.fixture
def http(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


def test_clients_in_parallel_get_what_the_file_says_and_labels_are_all_counted(address, folder):
    client = Client()
    asyncio.run(hammer(address, client, 16, requests=6))
    assert len(client.answers) == 96
    assert client.n_wrong(loaded(folder)) == 0
    assert client.told(address) == client.counted()


def test_it_says_how_it_is_and_what_it_promises(http):
    assert http.get("/health").json() == {"status": "ok"}
    about = http.get("/about").json()
    assert about["columns"] == [*ROW]
    assert "with probability at least 0.9" in about["promises"]["0.9"]


def without(name):
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"rows": [ROW, without("bmi")]}, (1, "bmi", "the column is missing")),
        ({"rows": [ROW, ROW | {"bp": "high"}]}, (1, "bp", "expected a number, got 'high'")),
        ({"rows": [ROW | {"bp": None}]}, (0, "bp", "expected a number, got None")),
        ({"rows": [ROW | {"bp": True}]}, (0, "bp", "expected a number, got True")),
        ({"rows": [ROW | {"bp": [1.0]}]}, (0, "bp", "expected a number, got [1.0]")),
        ({"rows": [ROW | {"age": math.nan}]}, (0, "age", "expected a finite number, got nan")),
        ({"rows": [ROW | {"age": -math.inf}]}, (0, "age", "expected a finite number, got -inf")),
        ({"rows": [ROW | {"age": 10**400}]}, (0, "age", "expected a finite number, got 1000")),
        ({"rows": [ROW | {"length": 1.0}]}, (0, "length", "no such column")),
        ({"rows": []}, (None, None, "expected 1 to 1000 rows, got 0")),
        ({"rows": [ROW] * 1001}, (None, None, "expected 1 to 1000 rows, got 1001")),
        ({"rows": [ROW], "coverge": 0.5}, (None, None, "Extra inputs are not permitted")),
        ({"rows": [ROW], "coverage": 0.91}, (None, None, "coverage must be one of")),
        ({"rows": [ROW], "coverage": 90}, (None, None, "coverage must be a share")),
        ({"rows": [ROW], "coverage": math.nan}, (None, None, "coverage must be one of")),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(http, body, expected):

    answer = http.post("/intervals", content=json.dumps(body), headers=JSON)
    problem = answer.json()["detail"][0]
    assert answer.status_code == 422
    assert (problem.get("row"), problem.get("column")) == expected[:2]
    assert problem["problem"].startswith(expected[2])


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "NaN", '{"rows": NaN}', '{"rows": [3]}', "[" * 9999]
)
def test_what_is_no_request_is_refused(http, text):
    answer = http.post("/intervals", content=text, headers=JSON)
    assert answer.status_code in (400, 422) and answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/intervals", '{"rows": [{"\\ud800": 1}]}'),
        ("/intervals", '{"rows": [{"age": "\\ud800"}]}'),
        ("/labels", '{"labels": [{"id": "\\ud800", "y": 3}]}'),
        ("/labels", '{"labels": [{"id": "a", "y": {"\\ud800": "\\ud800"}}]}'),
    ],
)
def test_half_a_surrogate_pair_is_refused(http, path, text):
    answer = http.post(path, content=text, headers=JSON)
    assert answer.status_code == 422 and answer.json()["detail"]


def test_what_is_missing_is_said_in_words():
    for file in ("app.py", "train.py"):
        code = "import sys, runpy; sys.modules['skops'] = None; runpy.run_path(sys.argv[1])"
        command = [sys.executable, "-c", code, str(EXAMPLE / file)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 1 and "Traceback" not in said.stderr
        assert said.stderr.endswith("the service needs pip install 'calliper[service]'.\n")


def test_a_folder_that_is_not_there_is_said_in_words(tmp_path):
    serve = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLE), "app:app"]
    env = {**os.environ, "CALLIPER_FOLDER": str(tmp_path)}
    for command, words in (
        ([sys.executable, str(EXAMPLE / "train.py")], "name the folder to write to"),
        (serve, "CALLIPER_FOLDER must name a folder that train.py has made"),
    ):
        said = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert said.returncode and words in said.stderr


def test_a_label_is_on_the_disk_when_it_is_taken(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    ledger = pytest.importorskip("ledger")
    made, said = ledger.Ledger(tmp_path / "x.sqlite"), []
    connect = sqlite3.connect

    def watched(*given, **how):
        database = connect(*given, **how)
        database.set_trace_callback(said.append)
        return database

    monkeypatch.setattr(sqlite3, "connect", watched)
    (name,) = made.add(Intervals(np.zeros(1), np.ones(1), 0.9))
    said.clear()
    made.label({name: 0.5})
    assert said.index("PRAGMA synchronous = FULL") < said.index("COMMIT")
    assert made.totals() == [(0.9, 1, 1)]


def test_a_worker_waits_while_another_makes_the_ledger(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    ledger, path = pytest.importorskip("ledger"), tmp_path / "x.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE theirs (id TEXT)")
    later = threading.Timer(0.3, other.execute, ["COMMIT"])
    later.start()
    assert ledger.Ledger(path).totals() == []
    later.join()
    other.close()
    with closing(sqlite3.connect(path)) as third:
        assert third.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_alarm_goes_off_over_all_workers(http):
    asked = http.post("/intervals", json={"rows": [ROW] * 40, "coverage": 0.8}).json()
    far = [{"id": name, "y": 1e9} for name in asked["ids"]]
    http.post("/labels", json={"labels": far})
    found = http.get("/monitor").json()
    (level,) = [each for each in found["levels"] if each["coverage"] == 0.8]
    assert found["alarm"] and level["alarm"] and "24.00% is tolerated" in level["says"]


def test_many_problems_are_cut(http):
    answer = http.post("/intervals", json={"rows": [{}] * 100})
    assert len(answer.json()["detail"]) == 21
    assert answer.json()["detail"][-1] == {"problem": "and 980 more"}


def test_labels_are_counted_once_and_all_or_none(http):
    asked = {"rows": [ROW, ROW], "coverage": 0.99}
    first, second = http.post("/intervals", json=asked).json()["ids"]

    def send(*labels):
        answer = http.post("/labels", json={"labels": [{"id": i, "y": y} for i, y in labels]})
        found = answer.json().get("coverage", [])
        total = [each for each in found if each["asked"] == 0.99]
        return answer.status_code, total, str(answer.json().get("detail", ""))

    for _ in range(2):  # who asks again is not counted again
        status, (total,), _ = send((first, 1e9))
        assert status == 200 and (total["labelled"], total["inside"]) == (1, 0)
        np.testing.assert_allclose(total["standard_error"], math.sqrt(0.99 * 0.01))
    for labels, words in [
        ([(second, 150.0), (first, 3.0)], "has label 1e+09 already, and now 3"),
        ([(second, 150.0), ("nobody", 3.0)], "no interval was answered by that id"),
        ([(second, "much")], "expected a number, got 'much'"),
        ([], "expected 1 to 1000 labels, got 0"),
        ([(second, 150.0), (second, 3.0)], "label 0 has its id"),
        ([(second, 150.0), (second, 150.0)], "label 0 has its id"),
    ]:
        status, _, detail = send(*labels)
        assert status == 422 and words in detail
    status, (total,), _ = send((second, 150.0))
    assert (total["labelled"], total["inside"], total["share"]) == (2, 1, 0.5)
