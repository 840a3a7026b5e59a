"""Runs of ``calliper interval`` that end early: Ctrl-C, a kill, a closed pipe, a bad last row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names"),
]


@pytest.fixture
def running(files, base):
    """A run in the middle of its work: a chunk is written, and the new file has no end yet."""
    header, *rows = (files / "new.csv").read_text().splitlines(keepends=True)
    (files / "new.csv").unlink()
    os.mkfifo(files / "new.csv")
    (files / "out.csv").write_text("of an earlier run")
    process = subprocess.Popen(
        [sys.executable, "-m", "calliper", *base, "--new", "new.csv", "--quiet"],
        cwd=files,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        # Under nohup the tests themselves ignore it, and what they start would too.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    with open(files / "new.csv", "w") as pipe:
        pipe.write(header + "".join(rows * 1500))
        pipe.flush()
        _wait_until(lambda: any(file.stat().st_size for file in files.glob(".calliper*")))
        yield process
        if process.poll() is None:
            process.kill()
    process.wait()


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_leaves_nothing_behind(running, files, leftovers, name, code):
    running.send_signal(getattr(signal, name))
    _, said = running.communicate(timeout=30)
    assert running.returncode == code
    assert said == f"calliper: stopped by {name}\n"
    assert leftovers() == []
    assert (files / "out.csv").read_text() == "of an earlier run"


def test_not_even_a_kill_touches_the_output(running, files):
    running.kill()
    running.wait(timeout=30)
    assert (files / "out.csv").read_text() == "of an earlier run"


def test_what_a_kill_left_is_removed_and_a_run_at_work_is_not_disturbed(
    running, calliper, files, base, leftovers
):
    (files / "rows.csv").write_text("y_pred\n1\n")
    args = [*base[:-1], "other.csv", "--new", "rows.csv", "--quiet"]
    (mine,) = leftovers()
    assert calliper(*args).returncode == 0
    assert leftovers() == [mine]
    running.kill()
    running.wait(timeout=30)
    assert leftovers() == [mine]
    assert calliper(*args).returncode == 0
    assert leftovers() == []


def test_a_bad_row_far_down_leaves_nothing_behind(calliper, files, base, leftovers):
    header, *rows = (files / "new.csv").read_text().splitlines(keepends=True)
    (files / "new.csv").write_text(header + "".join(rows * 1500) + "1,2,3,4,five\n")
    (files / "out.csv").write_text("of an earlier run")
    done = calliper(*base, "--new", "new.csv", "--quiet")
    assert done.returncode == 2
    assert "new.csv, line 75002, column 'y_pred': 'five' is not a number" in done.stderr
    assert leftovers() == []
    assert (files / "out.csv").read_text() == "of an earlier run"


def test_quiet_when_the_reader_has_seen_enough(files, base):
    header, *rows = (files / "new.csv").read_text().splitlines(keepends=True)
    (files / "new.csv").write_text(header + "".join(rows * 1500))
    command = [sys.executable, "-m", "calliper", *base[:-1], "-", "--new", "new.csv"]
    process = subprocess.Popen(
        [*command, "--quiet"],
        cwd=files,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"id,a,b,y,y_pred,lower,upper\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141
    process.stderr.close()
