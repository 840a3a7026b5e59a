"""Calibration rows that teach where the model errs: the command line gives what Python gives."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from calliper import KNN, ConformalRegressor, FullRescaled, JackknifeRescaled, Split, load

ROWS = ["--calibration", "cal.csv", "--target", "y", "--prediction", "y_pred", "--features", "a,b"]
LEVELS = [0.5, 0.9]

pytestmark = pytest.mark.usefixtures("all_trees")  # as the command has them


@pytest.fixture
def table(tmp_path):
    """Files whose errors depend on ``b``, which the model ignores; groups and weights."""
    rng = np.random.default_rng(0)
    for name, n in (("cal", 700), ("train", 200), ("new", 60)):
        a, b = rng.uniform(size=(2, n))
        frame = pd.DataFrame({"a": a, "b": b, "y_pred": 3 * a})
        frame["y"] = 3 * a + (b > 0.7) + (0.1 + b) * rng.normal(size=n)
        frame["kind"], frame["w"] = np.where(a > 0.3, "p", "q"), np.exp(a)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def python_ends(folder, calibrator=None, *, seed=0, training=False, per_row=(), **how):
    """Ends by ConformalRegressor around a model that answers what the files hold."""
    cal, train, new = (
        pd.read_csv(folder / f"{name}.csv", float_precision="round_trip")
        for name in ("cal", "train", "new")
    )
    every = pd.concat([cal, train, new])
    said = dict(zip(zip(every.a, every.b, strict=True), every.y_pred, strict=True))

    def model(X):
        return np.array([said[a, b] for a, b in X.tolist()])

    def features(frame):
        return frame[["a", "b"]].to_numpy()

    made = ConformalRegressor(model, calibrator, random_state=seed, **how)
    known = {"X_train": features(train), "y_train": train.y} if training else {}
    columns = {"groups": "kind", "weights": "w"}
    made.calibrate(
        features(cal),
        cal.y.to_numpy(),
        **{name: cal[columns[name]].to_numpy() for name in per_row},
        **known,
    )
    asked = {name: new[columns[name]].to_numpy() for name in per_row}
    return made, made.predict_interval(features(new), LEVELS, **asked)


def ends_in(path):
    out = pd.read_csv(path, float_precision="round_trip")
    return tuple(out[[f"{end}_{at}" for at in LEVELS]].to_numpy() for end in ("lower", "upper"))


@pytest.mark.filterwarnings("ignore::calliper.exceptions.UnusedWarning")
@pytest.mark.parametrize(
    ("options", "how"),
    [
        ("", {}),
        ("--seed 5", {"seed": 5}),
        ("--learning-part 0.4", {"learning_part": 0.4}),
        ("--learning-part 250", {"learning_part": 250}),
        ("--training train.csv", {"training": True}),
        (
            "--neighbors 7 --learning-part none",
            {"calibrator": FullRescaled(KNN(7)), "learning_part": None, "embed": "inputs"},
        ),
        ("--group kind", {"per_row": ["groups"]}),
        ("--weight w", {"per_row": ["weights"]}),
        ("--method split --learning-part 0.5", {"calibrator": Split(), "learning_part": 0.5}),
        (
            "--method jackknife --learning-part 300",
            {"calibrator": JackknifeRescaled(), "learning_part": 300},
        ),
        ("--method jackknife", {"calibrator": JackknifeRescaled(), "embed": "inputs"}),
    ],
)
def test_digit_for_digit_as_in_python_in_one_step_and_in_two(calliper, table, options, how):
    levels = [word for at in LEVELS for word in ("--coverage", at)]
    asked = ["--new", "new.csv", *levels]
    done = calliper("interval", *ROWS, *options.split(), *asked, "--output", "one.csv")
    assert done.returncode == 0, done.stderr
    made, expected = python_ends(table, **how)
    for found, end in zip(ends_in(table / "one.csv"), expected, strict=True):
        np.testing.assert_array_equal(found, end)
    taught, n = made.calibration_.n_taught, made.calibrators_[0].n_calibration_
    assert taught + n == 700 and (taught > 0) == (how.get("embed") != "inputs")
    count = f"{n} rows to calibrate and {taught} to learn" if taught else f"{n} calibration rows)"
    assert count in done.stderr

    kept = calliper("calibrate", *ROWS, *options.split(), "--output", "m.calliper")
    assert kept.returncode == 0 and count in kept.stderr
    calliper("interval", "--calibrated", "m.calliper", *asked, "--output", "two.csv")
    assert (table / "two.csv").read_bytes() == (table / "one.csv").read_bytes()
    said = " ".join(calliper("inspect", "m.calliper").stdout.split())
    assert (f"; {taught} others used to learn where errors are large" in said) == (taught > 0)
    header = json.loads(calliper("inspect", "m.calliper", "--json").stdout)
    assert header["n_taught"] == taught
    assert load(table / "m.calliper").regressor.calibration_.n_taught == taught


def test_a_level_beyond_the_rows_that_calibrate_is_answered_from_all(calliper, table):
    levels = ["--coverage", 0.998, "--new", "new.csv", "--output", "out.csv"]
    done = calliper("interval", *ROWS, *levels)
    assert done.returncode == 0
    assert "needs more than the 245 calibration rows" in done.stderr
    assert "To calibrate on all rows, set --learning-part none" in done.stderr
    made, _ = python_ends(table)
    new, out = (
        pd.read_csv(table / name, float_precision="round_trip") for name in ("new.csv", "out.csv")
    )
    with pytest.warns(UserWarning, match="Split on all 700"):
        expected = made.predict_interval(new[["a", "b"]].to_numpy(), 0.998)
    assert np.isfinite(expected.upper).all()
    np.testing.assert_array_equal(out.upper, expected.upper)
    np.testing.assert_array_equal(out.lower, expected.lower)


def test_few_rows_or_another_score_all_calibrate(calliper, table):
    asked = ["--new", "new.csv", "--output", "out.csv"]
    signed = calliper("interval", *ROWS, *asked, "--score", "signed")
    assert "(FullRescaled, 700 calibration rows)" in signed.stderr
    signed = calliper("interval", *ROWS, *asked, "--score", "signed", "--learning-part", 0.5)
    assert "warning: --learning-part is not used: SignedError" in signed.stderr
    pd.read_csv(table / "cal.csv", float_precision="round_trip")[:299].to_csv(
        table / "cal.csv", index=False
    )
    assert "299 calibration rows)" in calliper("interval", *ROWS, *asked).stderr


def test_a_group_that_is_missing_is_refused_before_any_row_teaches(calliper, table):
    frame = pd.read_csv(table / "cal.csv", float_precision="round_trip")
    frame.loc[5, "kind"] = None
    frame.to_csv(table / "cal.csv", index=False)
    done = calliper("interval", *ROWS, "--new", "new.csv", "--output", "o.csv", "--group", "kind")
    assert done.returncode == 2 and "(None at position 5)" in done.stderr


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("half", "--learning-part must be auto, none, a share such as 0.5, or a number of rows"),
        (
            "700",
            "must be auto, none, a fraction between 0 and 1, or a number of rows from 0 to 699",
        ),
        ("1.5", "number of rows from 0 to 699; got 1.5"),
        ("-1", "number of rows from 0 to 699; got -1"),
    ],
)
def test_parts_that_are_none(calliper, table, part, words):
    asked = ["--new", "new.csv", "--output", "out.csv", f"--learning-part={part}"]
    done = calliper("interval", *ROWS, *asked)
    assert done.returncode == 2 and words in done.stderr
