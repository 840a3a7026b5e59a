"""``calliper calibrate``, ``interval --calibrated`` and ``inspect``: two steps give one's bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from shlex import split

import numpy as np
import pandas as pd
import pytest

from calliper import CalliperError, FullRescaled, load, save

ROWS = split("--calibration cal.csv --target y --prediction y_pred")
TRAINED = ["--features", "a,b", "--training", "train.csv"]


def ok(done):
    assert done.returncode == 0, done.stderr
    return done


def error_of(done):
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("calliper: error: ").strip()


@pytest.fixture
def labelled(files):
    """Files with a column of groups and one of weights, and gaps among training and new rows."""
    for name in ("cal.csv", "train.csv", "new.csv"):
        header, *rows = (files / name).read_text().splitlines()
        rows = [f"{row},{'ab'[i % 2]},{1 + i % 3}" for i, row in enumerate(rows)]
        if name == "new.csv":
            cells = rows[3].split(",")
            rows[3] = ",".join([cells[0], "", *cells[2:]])
        (files / name).write_text("\n".join([f"{header},kind,w", *rows]) + "\n")
    return files


@pytest.mark.parametrize(
    ("made", "asked"),
    [
        (TRAINED, "--coverage 0.8 --coverage 0.95 --bounds -1 inf"),
        ([*TRAINED, "--neighbors", 7, "--offset", 0.1, "--statistic", "rms"], ""),
        ([*TRAINED, "--method", "jackknife", "--group", "kind"], "--coverage 0.5"),
        ([*TRAINED, "--method", "mad-split", "--seed", 3], "--confidence 0.9"),
        ([*TRAINED, "--method", "rcp", "--weight", "w"], "--coverage 0.7"),
        ([*TRAINED, "--method", "locart"], ""),
        ([*TRAINED, "--shifted-to", "new.csv"], "--coverage 0.6"),
        ([*TRAINED, "--method", "rlcp"], "--coverage 0.7"),
        (["--method", "split"], "--confidence 0.95"),
        (["--features-prefix", "b"], ""),
    ],
)
def test_two_steps_give_the_bytes_of_one(calliper, labelled, made, asked):
    asked = ["--new", "new.csv", *asked.split()]
    ok(calliper("interval", *ROWS, *made, *asked, "--output", "one.csv"))
    ok(calliper("calibrate", *ROWS, *made, "--output", "m.calliper"))
    for name in ("cal.csv", "train.csv"):
        (labelled / name).unlink()
    done = ok(calliper("interval", "--calibrated", "m.calliper", *asked, "--output", "two.csv"))
    assert (labelled / "two.csv").read_bytes() == (labelled / "one.csv").read_bytes()
    assert "50 rows written to two.csv" in done.stderr
    said = ok(calliper("inspect", "m.calliper")).stdout
    counts = ["in each of the 2"] if "kind" in made else ["on 200 rows by", "on 300 rows by"]
    assert any(count in said for count in counts)
    assert "half-widths at 0.9" in said


def test_frames_given_to_a_loaded_file_have_the_columns_of_the_table(calliper, files):
    ok(calliper("calibrate", *ROWS, *TRAINED, "--output", "m.calliper"))
    kept, new = load(files / "m.calliper"), pd.read_csv(files / "new.csv")
    for columns in (["b", "a"], ["a"]):
        with pytest.raises(CalliperError, match=r"must be \['a', 'b'\], as at calibration; got"):
            kept.intervals(new[columns], new.y_pred, 0.9)
    by_name = kept.intervals(new[["a", "b"]], new.y_pred, 0.9)
    plain = kept.intervals(new[["a", "b"]].to_numpy(), new.y_pred.to_numpy(), 0.9)
    np.testing.assert_array_equal(by_name, plain)


def test_a_folder_goes_on_with_what_was_kept_from_one_step(calliper, files):
    (files / "data").mkdir()
    for name in ("1.csv", "2.csv"):
        (files / "data" / name).write_text((files / "new.csv").read_text())
    asked = ["--new", "data", "--output", "out"]
    ok(calliper("interval", *ROWS, *TRAINED, *asked))
    ok(calliper("calibrate", *ROWS, *TRAINED, "--output", "m.calliper"))
    said = ok(calliper("interval", "--calibrated", "m.calliper", *asked)).stderr
    assert "0 rows in 0 files written to out; 2 already complete" in said


@pytest.mark.parametrize(
    "option",
    [
        *("--calibration cal.csv", "--target y", "--prediction y_pred", "--features a"),
        *("--features-prefix a", "--training train.csv", "--kernel knn", "--method split"),
        *("--neighbors 3", "--statistic mean", "--offset 0", "--group id", "--weight a"),
        *("--shifted-to new.csv", "--missing fill", "--seed 0", "--score signed"),
    ],
)
def test_what_was_decided_cannot_be_said_again(calliper, files, option):
    args = ["--calibrated", "m.calliper", "--new", "new.csv", "--output", "out.csv"]
    words = error_of(calliper("interval", *args, *option.split()))
    assert words.startswith(f"{option.split()[0]} was set when m.calliper was made: omit it")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("interval --new new.csv --output o.csv", "Missing option '--calibration' (see"),
        ("interval --calibration cal.csv --new new.csv --output o.csv", "option '--target' (see"),
        (
            "interval --calibrated no.calliper --new new.csv --output o.csv",
            "there is no file 'no",
        ),
        ("interval --calibrated m.calliper --new other.csv --output o.csv", "no column 'b'; its"),
        ("interval --calibrated m.calliper --new new.csv --output m.calliper", "must end in .csv"),
        ("interval --calibrated p.calliper --new new.csv --output o.csv", "without column names"),
        ("inspect q.calliper", "q.calliper: this version cannot read its description"),
        ("inspect p.calliper --figure f.png", "was saved in Python and holds no rows for --figure"),
        ("inspect m.calliper --figure f.bmp", "a figure's name must end in .png"),
        ("inspect none.calliper", "there is no file 'none.calliper': check the path"),
        ("inspect .", "'.' cannot be read: Is a directory"),
        ("calibrate", "Missing option '--target'"),
        ("calibrate @ --coverage 0.9", "targets inside with 'calliper interval --coverage' (see"),
        ("calibrate @ --output m.json", "m.json: the name must end in .calliper"),
        ("calibrate @ --output no/m.calliper", "there is no folder"),
        ("calibrate @ --output x.calliper --method mad-split", "pass --training FILE"),
        ("calibrate @ --output x.calliper --features a,c", "cal.csv: no column 'c'"),
    ],
)
def test_bad_input(calliper, files, options, words):
    (files / "other.csv").write_text("y_pred,a\n1,2\n")
    ok(calliper("calibrate", *ROWS, *TRAINED, "--output", "m.calliper"))
    rng = np.random.default_rng(0)
    method = FullRescaled().fit(rng.normal(size=(50, 1)), rng.uniform(size=50))
    save(method, files / "p.calliper")
    kept = load(files / "m.calliper")
    save(replace(kept, about={"wanted": {}}), files / "q.calliper")
    args = [part for word in options.split() for part in (ROWS if word == "@" else [word])]
    assert words in error_of(calliper(*args))


def _newer(path):
    first, rest = path.read_bytes()[:-32].split(b"\n", 1)
    whole = json.dumps({**json.loads(first), "format": 99}).encode() + b"\n" + rest
    path.write_bytes(whole + sha256(whole).digest())


@pytest.mark.parametrize("kind", ["altered", "cut", "empty", "other", "newer"])
def test_files_that_are_not_whole(calliper, files, kind):
    ok(calliper("calibrate", *ROWS, "--output", "m.calliper"))
    path = files / "m.calliper"
    content = bytearray(path.read_bytes())
    if kind == "altered":
        content[len(content) // 2] ^= 1
    elif kind == "newer":
        _newer(path)
        content = path.read_bytes()
    path.write_bytes(
        {"cut": content[:-300], "empty": b"", "other": b"a,b\n1,2\n"}.get(kind, content)
    )
    asked = ["--new", "new.csv", "--output", "out.csv"]
    for done in (calliper("interval", "--calibrated", path, *asked), calliper("inspect", path)):
        assert "m.calliper" in error_of(done)
        assert ("format 99" in done.stderr) == (kind == "newer")
    assert not (files / "out.csv").exists()


def test_inspect_says_what_it_is_and_draws_it(calliper, labelled):
    made = ["--group", "kind", "--output", "m.calliper"]
    said = ok(calliper("calibrate", *ROWS, *TRAINED, *made, "--explain")).stderr
    assert "calibration written to m.calliper (" in said and "within each group" in said
    done = ok(calliper("inspect", "m.calliper", "--figure", "m.png"))
    assert done.stderr == "figure written to m.png\n"
    assert (labelled / "m.png").read_bytes().startswith(b"\x89PNG")
    words = " ".join(done.stdout.split())
    assert (
        "m.calliper: stored predictions, calibrated on 300 rows by FullRescaled in each of the 2"
        in words
    )
    assert "columns: target 'y', prediction 'y_pred', 2 features: 'a', 'b'; group 'kind'" in words
    assert "missing feature values: filled with medians of training rows" in words
    assert "a new target lies in its interval with probability at least" in words
    errors, widths = done.stdout.splitlines()[-2:]
    assert errors.startswith("calibration errors: ") and "(median 0." in errors
    assert widths.startswith("half-widths at 0.9: ")
    header = json.loads(ok(calliper("inspect", "m.calliper", "--json")).stdout)
    assert header["object"] == "CalibratedOnStored"
    assert len(repr(load(labelled / "m.calliper"))) < 500
    roles = [header[name] for name in ("columns", "target", "prediction", "group", "weight")]
    assert roles == [["a", "b"], "y", "y_pred", "kind", None]


def test_too_few_rows_have_infinite_widths(calliper, files):
    lines = (files / "cal.csv").read_text().splitlines(keepends=True)
    (files / "cal.csv").write_text("".join(lines[:6]))
    ok(calliper("calibrate", *ROWS, "--method", "split", "--output", "m.calliper"))
    assert "half-widths at 0.9: inf to inf" in ok(calliper("inspect", "m.calliper")).stdout
