"""``calliper interval`` on many files: same bytes as one by one, resumed, refused, interrupted."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from shlex import split

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calliper import _writing
from calliper.cli import _answering
from calliper.cli._interval import interval
from calliper.exceptions import CalliperError

pytestmark = pytest.mark.long

BASE = split(
    "interval --calibration cal.csv --target y --prediction y_pred --features a,b "
    "--learning-part none"
)
NAMES = [f"year={2020 + k % 2}/part-{k}.parquet" for k in range(4)]


def rows(n, seed, decimals=9):
    rng = np.random.default_rng(seed)
    a, b = np.round(rng.uniform(size=(2, n)), decimals)
    return pa.table({"id": np.arange(n), "a": a, "b": b, "y_pred": a + b})


@pytest.fixture
def folder(files):
    """``data`` with four files in two sub-folders, and what is not data."""
    for seed, name in enumerate(NAMES):
        path = files / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(40, seed), path)
    (files / "data" / "_SUCCESS").touch()
    (files / "data" / "_temporary").mkdir()
    (files / "data" / "_temporary" / "half.parquet").touch()
    return files


def outputs(path):
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith("_")
    }


def stamps(path):
    return {name: (path / name).stat().st_mtime_ns for name in outputs(path)}


def ok(done):
    assert done.returncode == 0, done.stderr
    return done.stderr


def error_of(done):
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("calliper: error: ").strip()


def test_every_way_to_name_many_files_gives_the_bytes_of_one_by_one(calliper, folder):
    expected = {}
    for name in NAMES:
        ok(calliper(*BASE, "--new", f"data/{name}", "--output", "one.parquet", "--quiet"))
        expected[name] = (folder / "one.parquet").read_bytes()
    said = ok(calliper(*BASE, "--new", "data", "--output", "out"))
    assert "160 rows in 4 files written to out (FullRescaled, 300 calibration rows)" in said
    assert outputs(folder / "out") == expected
    ok(calliper(*BASE, "--new", "data/*/*.parquet", "--output", "two"))
    assert outputs(folder / "two") == expected
    ok(calliper(*BASE, "--new", "data/year=2020", "--output", "three"))
    assert [*outputs(folder / "three")] == ["part-0.parquet", "part-2.parquet"]
    ok(calliper(*BASE, "--new", f"{folder}/data/year=*", "--output", "four"))
    assert outputs(folder / "four") == expected


def test_a_folder_of_text_files_and_warnings_of_workers_once(calliper, folder):
    (folder / "texts").mkdir()
    for name in ("one.csv", "two.csv"):
        (folder / "texts" / name).write_text((folder / "new.csv").read_text())
    args = [*BASE, "--coverage", "0.999", "--quiet"]
    ok(calliper(*args, "--new", "new.csv", "--output", "out.csv"))
    said = ok(calliper(*args, "--new", "texts", "--output", "out", "--workers", 2))
    assert said.count("Use at least 999 rows") == 1
    assert set(outputs(folder / "out").values()) == {(folder / "out.csv").read_bytes()}


def test_groups_of_rows_make_no_difference_to_any_bit(calliper, folder):
    """With one decimal, many neighbours are at the same distance."""
    table, ends = rows(70_000, 9, decimals=1), []
    for size in (999, 70_000):
        shutil.rmtree(folder / "data")
        (folder / "data").mkdir()
        pq.write_table(table, folder / "data" / "all.parquet", row_group_size=size)
        ok(calliper(*BASE, "--new", "data", "--output", "out", "--overwrite"))
        ends.append(pq.read_table(folder / "out" / "all.parquet"))
    assert ends[0].equals(ends[1])
    ok(calliper(*BASE, "--new", "data/all.parquet", "--output", "one.parquet"))
    assert pq.read_table(folder / "one.parquet").equals(ends[0])


def test_a_second_run_does_what_is_not_done(calliper, folder):
    args = [*BASE, "--new", "data", "--output", "out"]
    ok(calliper(*args))
    whole, before = outputs(folder / "out"), stamps(folder / "out")
    said = ok(calliper(*args))
    assert "0 rows in 0 files written to out; 4 already complete" in said
    assert stamps(folder / "out") == before
    pq.write_table(rows(40, 77), folder / "data" / NAMES[0])
    (folder / "out" / NAMES[1]).unlink()
    (folder / "out" / NAMES[2]).write_text("altered")
    pq.write_table(rows(7, 78), folder / "data" / "more.parquet")
    with open(folder / "out" / "_calliper.jsonl", "a") as journal:
        journal.write('{"done": "year=2020/pa')  # killed while it wrote
    said = ok(calliper(*args))
    assert "127 rows in 4 files written to out; 1 already complete" in said
    now = outputs(folder / "out")
    assert [name for name in NAMES if now[name] == whole[name]] == NAMES[1:]
    assert stamps(folder / "out")[NAMES[3]] == before[NAMES[3]]
    assert "0 rows in 0 files" in ok(calliper(*args))


def test_a_kill_between_an_output_and_its_line_is_made_good(calliper, folder):
    args = [*BASE, "--new", "data", "--output", "out"]
    ok(calliper(*args))
    journal = folder / "out" / "_calliper.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    assert "40 rows in 1 files written to out; 3 already" in ok(calliper(*args))


def test_outputs_of_another_calibration_are_refused_by_name(calliper, folder):
    args = [*BASE, "--new", "data", "--output", "out"]
    ok(calliper(*args))
    words = error_of(calliper(*args, "--neighbors", 7))
    assert "out: contains outputs for another calibration; choose another --output folder" in words
    words = error_of(calliper(*args, "--coverage", "0.8", "--coverage", 0.5))
    assert "contains outputs for another coverage; choose another" in words
    words = error_of(calliper(*args, "--bounds", 0, "inf"))
    assert "contains outputs for another bounds; choose another" in words
    before = outputs(folder / "out")
    assert "160 rows in 4 files" in ok(calliper(*args, "--neighbors", 7, "--overwrite"))
    assert all(now != before[name] for name, now in outputs(folder / "out").items())
    assert "0 rows in 0 files" in ok(calliper(*args, "--neighbors", 7))
    (folder / "out" / "_calliper.jsonl").write_text('{"format": "else"}\n')
    assert "for another version of calliper; choose another" in error_of(calliper(*args))
    (folder / "out" / "_calliper.jsonl").unlink()
    assert "exists, and was not made by this command; choose" in error_of(calliper(*args))


def test_two_runs_do_not_share_a_folder(calliper, folder):
    import fcntl

    (folder / "out").mkdir()
    with open(folder / "out" / "_calliper.jsonl", "ab") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        words = error_of(calliper(*BASE, "--new", "data", "--output", "out"))
    assert words == "out: another run is writing there; wait until it finishes."


FIRST, OTHER = "data/year=2020/part-0.parquet", "data/year=2021/part-3.parquet"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--new nothing/*.parquet", "the pattern matches no .csv, .tsv or .parquet file; check"),
        ("--new data/_temporary", "--new data/_temporary: cannot be"),
        ("--new data --output out.csv", "several files: --output must be a folder, not out.csv"),
        ("--new data --output -", "several files: --output must be a folder, not -"),
        ("--new data --output data/out", "--output data/out is inside the input folder"),
        ("--new data --output no/where", "there is no folder"),
        ("--new data --workers 0", "0 is not in the range"),
        (
            "--new data --workers 2 --scheduler tcp://a:1",
            "--workers and --scheduler cannot be combined",
        ),
        ("--new new.csv --output out.csv --workers 2", "--workers is for many files, as in --new"),
        ("--new new.csv --output out.csv --overwrite", "--overwrite is for many files"),
        ("--new mixed", "there are .csv and .parquet files (mixed/"),
        ("--new torn", "torn/all.parquet as .parquet"),
    ],
)
def test_options(calliper, folder, options, words):
    (folder / "mixed").mkdir()
    (folder / "mixed" / "a.csv").write_text("y_pred\n1\n")
    (folder / "torn").mkdir()
    (folder / "torn" / "all.parquet").write_bytes(b"")
    pq.write_table(rows(3, 0), folder / "mixed" / "b.parquet")
    args = options.split()
    args += [] if "--output" in args else ["--output", "out"]
    if words.endswith("cannot be"):  # named itself, a hidden folder is read
        assert error_of(calliper(*BASE, *args)).startswith("cannot read data/_temporary/half")
    else:
        assert words in error_of(calliper(*BASE, *args))
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (rows(5, 0).drop_columns(["b"]), f"{OTHER}: no column 'b'; its columns"),
        (
            rows(5, 0).drop_columns(["id"]),
            f"{OTHER}: not the columns of data/year=2020/part-0.parquet (id int64)",
        ),
        (
            rows(5, 0).append_column("more", pa.array([1] * 5)),
            f"{OTHER}: not the columns of {FIRST} (more int64); give all",
        ),
        (
            rows(5, 0).set_column(0, "id", pa.array(["x"] * 5)),
            f"{OTHER}: not the columns of {FIRST} (id int64, id string)",
        ),
        (rows(5, 0).slice(0, 0), f"{OTHER}: there are columns but no rows"),
        (rows(5, 0).append_column("upper", pa.array([1] * 5)), "already has a column 'upper'"),
    ],
)
def test_files_that_are_not_alike(calliper, folder, table, words):
    pq.write_table(table, folder / OTHER)
    assert words in error_of(calliper(*BASE, "--new", "data", "--output", "out"))
    assert not (folder / "out").exists()


def test_a_bad_row_in_a_late_file_keeps_what_is_done(calliper, folder):
    good = pq.read_table(folder / OTHER, partitioning=None)
    pq.write_table(good.set_column(1, "a", pa.array([None, *[0.5] * 39])), folder / OTHER)
    args = [*BASE, "--new", "data", "--output", "out"]
    words = error_of(calliper(*args, "--workers", 2))
    assert "part-3.parquet, row 1, column 'a': the value is missing" in words
    assert words.endswith("; run the same command to continue.")
    counted = int(re.search(r"(\d) of 4 files are complete in out;", words)[1])
    assert counted <= len(outputs(folder / "out")) < 4
    pq.write_table(good, folder / OTHER)
    assert f"in {4 - counted} files written" in ok(calliper(*args))
    assert len(outputs(folder / "out")) == 4


def test_a_full_disk_says_how_much_is_written(folder, monkeypatch):
    real, left = os.fsync, [2]

    def full(number):
        if os.readlink(f"/proc/self/fd/{number}").endswith(".tmp"):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(os, "fsync", full)
    args = [*BASE[1:], "--new", "data", "--output", "out", "--quiet"]
    with pytest.raises(CalliperError, match=r"No space left on device. 2 of 4 files are complete"):
        interval.main(args, standalone_mode=False)
    assert len(outputs(folder / "out")) == 2
    monkeypatch.setattr(os, "fsync", real)
    interval.main(args, standalone_mode=False)
    assert len(outputs(folder / "out")) == 4


def test_a_file_that_changes_while_it_is_read_is_not_answered(folder, monkeypatch):
    real = _answering.Answering.write

    def late(self, new, output):
        os.utime(new.name)
        return real(self, new, output)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(_answering.Answering, "write", late)
    with pytest.raises(CalliperError, match=r"changed while it was being read.* 0 of 4 files"):
        interval.main(
            [*BASE[1:], "--new", "data", "--output", "out", "--quiet"], standalone_mode=False
        )
    assert outputs(folder / "out") == {}


@pytest.fixture
def running(folder):
    """Two processes in the middle of their work; and the command."""
    for seed, name in enumerate(NAMES):
        pq.write_table(rows(140_000, seed), folder / "data" / name)
    args = [*BASE, "--new", "data", "--output", "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "calliper", *args, "--workers", "2", "--quiet"],
        cwd=folder,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in (folder / "out").rglob(".calliper*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)
    yield process, args
    if process.poll() is None:
        process.kill()
    process.wait()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        numbers = file.read().split()
    named = {int(n): open(f"/proc/{n}/cmdline").read() for n in numbers}  # noqa: SIM115
    return [number for number, command in named.items() if "spawn_main" in command]


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")


@needs_proc
def test_a_worker_that_is_killed_half_way_costs_its_file_only(running, calliper, folder):
    process, args = running
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "was killed (the system does so when memory is short); the file is processed" in said
    assert [*folder.rglob(".calliper*")] == []
    assert "0 rows in 0 files" in ok(calliper(*args))
    ok(calliper(*args[:-1], "alone"))
    assert outputs(folder / "out") == outputs(folder / "alone")


@needs_proc
def test_ctrl_c_ends_all_and_the_next_run_goes_on(running, calliper, folder):
    process, args = running
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "calliper: stopped by SIGINT\n")
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    assert [*folder.rglob(".calliper*")] == []
    before = outputs(folder / "out")
    assert len(before) < 4
    ok(calliper(*args))
    assert len(outputs(folder / "out")) == 4 and before.items() <= outputs(folder / "out").items()


def test_a_file_that_kills_every_process_is_named_and_leaves_nothing(tmp_path):
    task, deaths = (
        _answering.Task("bad", "bad.parquet", str(tmp_path / "out")),
        _answering.Counter(),
    )
    for _ in range(2):
        (tmp_path / ".calliper-0.tmp").touch()
        _answering.note_death(task, deaths)
        assert not [*tmp_path.iterdir()]
    (tmp_path / ".calliper-0.tmp").touch()
    with pytest.raises(CalliperError, match=r"bad.parquet was killed.*3 times: try fewer"):
        _answering.note_death(task, deaths)
    assert not [*tmp_path.iterdir()]


def test_a_file_that_looked_abandoned_for_a_moment_is_made_once_more(tmp_path, monkeypatch):
    """Another run sweeps between its making and its locking, whatever the clock says."""
    seen = []

    def swept_meanwhile(handle):
        seen.append(handle.name)
        if len(seen) == 1:
            os.unlink(handle.name)
        return len(seen) != 2  # the second is being swept: another has the lock

    monkeypatch.setattr(_writing, "lock", swept_meanwhile)
    with _writing.whole_file(tmp_path / "made") as handle:
        handle.write(b"all")
        assert handle.name == seen[2]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_workers_of_a_scheduler_write_the_same(calliper, folder, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    how = {"n_workers": 1, "threads_per_worker": 2, "processes": True, "dashboard_address": None}
    ok(calliper(*BASE, "--new", "data", "--output", "alone"))
    with distributed.LocalCluster(**how) as cluster:
        args = [*BASE, "--new", "data", "--scheduler", cluster.scheduler_address]
        ok(calliper(*args, "--output", "out"))
        assert outputs(folder / "out") == outputs(folder / "alone")
        good = pq.read_table(folder / OTHER, partitioning=None)
        pq.write_table(good.set_column(1, "a", pa.array([None, *[0.5] * 39])), folder / OTHER)
        words = error_of(calliper(*args, "--output", "other"))
        assert "the value is missing" in words and "of 4 files are complete in other" in words


def test_a_scheduler_that_cannot_be_reached(folder, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(_answering, "PATIENCE", 0.2)
    args = [*BASE[1:], "--new", "data", "--output", "out", "--scheduler"]
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(
            CalliperError, match=rf"no scheduler answers at {address} within.* 0 of"
        ):
            interval.main([*args, address], standalone_mode=False)


def test_the_journal_is_plain_lines(calliper, folder):
    ok(calliper(*BASE, "--new", "data", "--output", "out"))
    head, *done = map(json.loads, (folder / "out/_calliper.jsonl").read_text().splitlines())
    assert head["made_with"]["coverage"] == [0.9]
    assert [e["done"] for e in done] == NAMES[::2] + NAMES[1::2]
    assert {e["rows"] for e in done} == {40}
