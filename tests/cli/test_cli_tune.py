"""``calliper tune`` from outside, as a shell runs it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from calliper import AbsoluteError, JackknifeRescaled, load
from calliper.kernels import TunedKNN, TunedRBF
from calliper.lab.tuning import tuning_curve
from calliper.rows import Rows

DATA = ["--calibration", "cal.csv", "--target", "y", "--prediction", "y_pred", "--features", "a,b"]
TUNE = ["tune", *DATA, "--output", "tuned.calliper"]
TRAINED = [*TUNE, "--training", "train.csv"]
USE = ["interval", "--calibrated", "tuned.calliper", "--new", "new.csv", "--output", "out.csv"]


@pytest.fixture
def folder(files):
    """The files of all tests with fewer rows; other.csv is like cal.csv."""
    for name, source, n in (("other", "train", 100), ("cal", "cal", 100), ("train", "train", 90)):
        (files / f"{name}.csv").write_text(rows(files / f"{source}.csv", n))
    return files


def rows(path, n):
    header, *lines = path.read_text().splitlines(keepends=True)
    return header + "".join((lines * n)[:n])


def columns(path, *names):
    with open(path, newline="") as file:
        return np.array([[float(row[name]) for name in names] for row in csv.DictReader(file)])


def read(folder, training=True):
    """Features of calibration, new and training rows, and calibration scores."""
    cal, new, train = (columns(folder / f"{f}.csv", "a", "b") for f in ("cal", "new", "train"))
    y, y_pred = columns(folder / "cal.csv", "y", "y_pred").T
    if training:
        scaler = StandardScaler().fit(train)
        return [*map(scaler.transform, (cal, new, train)), abs(y - y_pred)]
    return [cal, new, None, abs(y - y_pred)]


def error_of(done) -> str:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("calliper: error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


CASES = {
    "": (TunedRBF(), 0),
    "--seed 7": (TunedRBF(), 7),
    "--criterion deviance --length-scales 0.1,3,1": (
        TunedRBF("deviance", length_scales=[0.1, 1.0, 3.0]),
        0,
    ),
    "--criterion mi --length-scales 0.2,1": (TunedRBF("mi", length_scales=[0.2, 1.0]), 0),
    "--kernel tuned-knn --criterion deviance": (TunedKNN("deviance"), 0),
}


@pytest.mark.parametrize(("options", "expected"), CASES.items())
def test_files_give_what_python_gives_digit_for_digit(calliper, folder, options, expected):
    kernel, seed = expected
    done = calliper(*TRAINED, *options.split())
    assert done.returncode == 0, done.stderr
    done = calliper(*USE, "--coverage", 0.8, "--coverage", 0.9)
    assert done.returncode == 0, done.stderr
    Z, new, Z_train, scores = read(folder)
    method = JackknifeRescaled(kernel, random_state=seed)
    method.fit_to(Rows(Z, scores), training=Z_train)
    radius = method.predict_radius(new, [0.8, 0.9])
    y_pred = columns(folder / "new.csv", "y_pred")
    out = columns(folder / "out.csv", "lower_0.8", "lower_0.9", "upper_0.8", "upper_0.9")
    np.testing.assert_array_equal(out, np.hstack(AbsoluteError().invert(y_pred, radius)))
    kept = load(folder / "tuned.calliper").regressor.calibrator_
    np.testing.assert_array_equal(kept.scale_.chosen, method.scale_.chosen)


def test_a_grid_that_is_given_needs_no_training_and_takes_features_as_they_are(calliper, folder):
    args = [*TUNE, "--length-scales", "0.1,1,30"]
    assert "--training FILE" in calliper(*args).stderr  # spreads are unlike
    assert calliper(*USE, "--quiet").returncode == 0
    Z, new, _, scores = read(folder, training=False)
    kernel = TunedRBF(length_scales=[0.1, 1, 30])
    radius = JackknifeRescaled(kernel, random_state=0).fit(Z, scores).predict_radius(new, 0.9)
    y_pred = columns(folder / "new.csv", "y_pred")[:, 0]
    upper = AbsoluteError().invert(y_pred, radius)[1]
    np.testing.assert_array_equal(columns(folder / "out.csv", "upper")[:, 0], upper)


@pytest.mark.parametrize("criterion", ["mse", "deviance", "mi"])
def test_the_table_has_every_scale_and_the_ten_nearest(calliper, folder, criterion):
    done = calliper(*TRAINED, "--criterion", criterion, "--length-scales", "0.1,0.3,1,3")
    Z, _, Z_train, scores = read(folder)
    kernel = TunedRBF(criterion, length_scales=[0.1, 0.3, 1.0, 3.0])
    curve = tuning_curve(Z, scores, kernel=kernel, Z_train=Z_train, random_state=0)
    table, _, words = done.stdout.partition("\n\n")
    lines = [line.split() for line in table.splitlines()]
    for scale, mean, count in zip(curve.candidates, curve.mean, curve.counts, strict=True):
        (line,) = [line for line in lines if line[:1] == [f"{scale:#.4g}"]]
        assert line[1] == f"{mean:#.5g}" and line[3:] == ([str(count)] if count else [])
    assert ["10", "nearest", "neighbours", f"{curve.reference_value:#.5g}"] in lines
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "".join(curve.describe().split()) == "".join(words.split())
    assert "calibration of 100 rows written to tuned.calliper" in done.stderr
    assert "calliper interval --calibrated tuned.calliper" in done.stderr


def test_much_memory_is_said_before_the_work(folder, monkeypatch, capsys):
    from calliper.cli import _tune

    def at_work(*arguments):
        raise KeyError("at work")

    monkeypatch.setattr(_tune, "_curve", at_work)
    monkeypatch.chdir(folder)
    with pytest.raises(KeyError, match="at work"):
        _tune.tune.main(TRAINED[1:], standalone_mode=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_tune, "_MANY_BYTES", 30 * 99**2)
    with pytest.raises(KeyError, match="at work"):
        _tune.tune.main(TRAINED[1:], standalone_mode=False)
    assert "tuning on 100 calibration rows needs about 0 GB" in capsys.readouterr().err


def test_quiet_and_the_figure(calliper, folder):
    done = calliper(*TRAINED, "--length-scales", "0.3,1", "--figure", "tuning.png", "--quiet")
    assert done == (0, "", "")
    assert (folder / "tuning.png").read_bytes().startswith(b"\x89PNG")
    done = calliper(*TRAINED, "--length-scales", "0.3,1", "--figure", "tuning.svg")
    assert "<svg" in (folder / "tuning.svg").read_text()[:1000]
    assert "figure written to tuning.svg" in done.stderr


def test_nearness_by_the_prediction_alone_and_by_a_prefix(calliper, folder):
    args = [part for part in TRAINED if part not in ("--features", "a,b")]
    done = calliper(*args, "--length-scales", "0.3,1")
    assert "widths depend on the prediction alone" in done.stderr
    assert (
        calliper(*args, "--length-scales", "0.3,1", "--features-prefix", "a", "--quiet").returncode
        == 0
    )
    assert "1 features: 'a'" in calliper("inspect", "tuned.calliper").stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "--training FILE is needed, because the grid is derived from distances"),
        ("--length-scales 1,x", "must be positive numbers, as in --length-scales 0.1,0.2,0.5"),
        ("--length-scales 0,1", "must be positive numbers"),
        ("--length-scales nan", "must be positive numbers"),
        ("--training train.csv --criterion best", "'best' is not one of 'mse', 'deviance', 'mi'"),
        ("--training train.csv --folds 5", "No such option '--folds'"),
        ("--training none.csv", "cannot read none.csv"),
        ("--training same.csv", "all 2 training inputs are the same"),
        ("--training train.csv --calibration short.csv", "2 calibration rows are too few"),
        ("--training train.csv --features c", "cal.csv: no column 'c'"),
        ("--training train.csv --target y_pred", "are both 'y_pred'"),
        ("--training train.csv --output tuned.json", "the name must end in .calliper"),
        ("--training train.csv --output -", "the name must end in .calliper"),
        ("--training train.csv --output no/tuned.calliper", "there is no folder"),
        ("--kernel knn", "--kernel knn has nothing to tune: use tuned-rbf or tuned-knn."),
        ("--kernel tuned-knn --length-scales 3", "--length-scales is for --kernel tuned-rbf: omit"),
        ("--training train.csv --figure tuning.gif", "must end in .png, .pdf, .svg"),
        ("--training train.csv --figure no/tuning.png", "there is no folder"),
    ],
)
def test_bad_options_of_tune(calliper, folder, leftovers, options, words):
    (folder / "same.csv").write_text("y,y_pred,a,b\n1,1,2,3\n2,1,2,3\n")
    (folder / "short.csv").write_text("y,y_pred,a,b\n1,1,2,3\n2,1,2,4\n")
    assert words in error_of(calliper(*TUNE, *options.split()))
    assert not (folder / "tuned.calliper").exists() and leftovers() == []


def test_the_output_is_none_of_the_inputs(calliper, folder):
    os.link(folder / "cal.csv", folder / "cal.calliper")
    done = calliper(*TRAINED, "--output", "cal.calliper")
    assert "--output cal.calliper is also an input" in error_of(done)


@pytest.mark.long
def test_a_signal_leaves_nothing_behind(folder, leftovers):
    (folder / "cal.csv").write_text(rows(folder / "cal.csv", 1500))
    training = (folder / "train.csv").read_text()
    (folder / "train.csv").unlink()
    os.mkfifo(folder / "train.csv")
    (folder / "tuned.calliper").write_text("of an earlier run")
    scales = ",".join(f"{scale:.3f}" for scale in np.linspace(0.1, 3, 200))
    slow = ["--criterion", "mi", "--length-scales", scales, "--figure", "tuning.png"]
    process = subprocess.Popen(
        [sys.executable, "-m", "calliper", *TRAINED, *slow],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    (folder / "train.csv").write_text(training)  # waits until someone reads
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "calliper: stopped by SIGINT\n")
    assert process.returncode == 130
    assert leftovers() == [] and not (folder / "tuning.png").exists()
    assert (folder / "tuned.calliper").read_text() == "of an earlier run"


@pytest.mark.parametrize("args", [["tune", "--help"], ["--help"]])
def test_help_has_an_example(calliper, args):
    assert "calliper tune --calibration cal.csv" in calliper(*args).stdout
