"""``calliper monitor``: a log of intervals and targets, an answer, and an exit code."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from calliper.monitoring import CoverageMonitor

LOG = ["monitor", "--labels", "log.csv", "--target", "y"]


def write(path, inside, *, sign=",", point="."):
    """A log in order of time; some ends are infinite, and the last target is not known yet."""
    lines = [sign.join(["day", "lower", "upper", "y"])]
    for day, held in enumerate(inside):
        ends = ("-inf", "1.5") if day % 7 else ("-1.5", "1.5" if not held else "inf")
        lines.append(sign.join([f"d{day}", *ends, "0.5" if held else "2.5"]).replace(".", point))
    path.write_text("\n".join([*lines, sign.join(["later", "0", "1", ""])]) + "\n")


@pytest.fixture
def good():
    return np.arange(300) % 10 > 0


@pytest.fixture
def bad(good):
    return np.r_[good, np.arange(200) % 2 > 0]


def test_exit_code_and_words(calliper, tmp_path, good, bad):
    write(tmp_path / "log.csv", good)
    done = calliper(*LOG, "--n-calibration", 500)
    assert (done.returncode, done.stderr.strip()) == (
        0,
        "note: 1 rows without a target were left out",
    )
    assert " ".join(done.stdout.split()) == CoverageMonitor(0.9, 500).update(good).describe()
    write(tmp_path / "log.csv", bad)
    expected = CoverageMonitor(0.9, 500).update(bad)
    done = calliper(*LOG, "--n-calibration", 500, "--time", "day", "--figure", "m.png")
    assert done.returncode == 1 and (tmp_path / "m.png").stat().st_size > 1000
    assert f"since_day: d{expected.since}\n" in done.stdout
    said = json.loads(calliper(*LOG, "--n-calibration", 500, "--json").stdout)
    assert (said["alarm"], said["since"], said["labels"]) == (True, expected.since, 500)
    assert said["evidence"] == expected.evidence


def test_times_in_another_order_are_pointed_out(calliper, tmp_path, bad):
    rows = [
        f"2026-01-{1 + day // 24:02}T{day % 24:02}:00,0,1,{2 * held}"
        for day, held in enumerate(bad[:240])
    ]
    for lines, falls in ((rows, False), (rows[::-1], True)):
        (tmp_path / "log.csv").write_text("\n".join(["at,lower,upper,y", *lines]))
        done = calliper(*LOG, "--tolerated", 0.2, "--time", "at")
        assert ("'at' is not in ascending order" in " ".join(done.stderr.split())) == falls


def test_parquet_decimal_commas_and_other_names(calliper, tmp_path, bad):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"lo": np.full(500, -np.inf), "hi": np.ones(500), "t": np.where(bad, 0.5, 2.5)}
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    named = ["--lower", "lo", "--upper", "hi", "--target", "t", "--tolerated", 0.2]
    assert calliper("monitor", "--labels", "log.parquet", *named).returncode == 1
    assert calliper("monitor", "--labels", "log.parquet", *named[:-1], 0.5).returncode == 0
    write(tmp_path / "log.csv", bad, sign=";", point=",")
    assert calliper(*LOG, "--online", "--decimal", ",").returncode == 1


def test_what_was_promised_is_read_from_the_file(calliper, files, bad):
    write(files / "log.csv", bad)
    rows = ["--calibration", "cal.csv", "--target", "y", "--prediction", "y_pred"]
    calliper("calibrate", *rows, "--method", "split", "--output", "split.calliper")
    said = json.loads(calliper(*LOG, "--calibrated", "split.calliper", "--json").stdout)
    assert said["evidence"] == CoverageMonitor(0.9, 300).update(bad).evidence
    calliper("calibrate", *rows, "--output", "full.calliper")
    done = calliper(*LOG, "--calibrated", "full.calliper")
    assert done.returncode == 2 and "exactly one of --tolerated, the share of misses" in done.stderr
    done = calliper(*LOG, "--calibrated", "full.calliper", "--tolerated", 0.1)
    assert done.returncode == 2 and "--tolerated and --calibrated cannot be combined" in done.stderr


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ((), [], "the miss rate to compare with"),
        ((), ["--tolerated", 0.9], "at most 0.55 at level 0.9"),
        ((), ["--tolerated", 2], "tolerated must lie strictly between 0 and 1"),
        ((), ["--online", "--lower", "nowhere"], "no column 'nowhere'"),
        ((), ["--n-calibration", 500, "--calibrated", "x"], "cannot be combined"),
        ((",1.5,", ",wide,"), ["--online"], "'wide' is not a number"),
        ((",1.5,", ",,"), ["--online"], "column 'upper': '' is not a number"),
        (("0.5", "many"), ["--online"], "'many' is not a number"),
        (("0.5", ""), ["--online"], "no row has a target"),
    ],
)
def test_bad_logs_are_one_line_and_code_2(calliper, tmp_path, good, change, more, message):
    write(tmp_path / "log.csv", good[1:9])
    text = (tmp_path / "log.csv").read_text()
    (tmp_path / "log.csv").write_text(text.replace(*change) if change else text)
    done = calliper(*LOG, *more)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("calliper: error") == 1 and not done.stdout


def test_times_that_cannot_be_read_are_named(calliper, files, bad):
    write(files / "log.csv", bad)
    table = pd.read_csv(files / "log.csv").assign(day="first of May")
    table.to_csv(files / "log.csv", index=False)
    done = calliper(*LOG, "--online", "--time", "day")
    assert "note: 'day' holds neither numbers nor ISO dates" in done.stderr
