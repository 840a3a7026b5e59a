"""``calliper compare`` from outside."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

CALIBRATION = ["--calibration", "cal.csv"]
COLUMNS = ["--target", "y", "--prediction", "y_pred"]


@pytest.fixture
def compare(files):
    (files / "new.csv").rename(files / "test.csv")
    return ["compare", *CALIBRATION, "--test", "test.csv", *COLUMNS]


def test_a_page(calliper, compare, files):
    done = calliper(*compare, "--features", "a,b", "--training", "train.csv", "--id", "id")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Too few points to tell") and "covers?" in done.stdout
    assert done.stderr.splitlines()[-1] == "report written to report.html"
    assert "full calibrated on all 300 rows. By default" in done.stderr
    text = (files / "report.html").read_text("utf-8")
    digest = hashlib.sha256((files / "cal.csv").read_bytes()).hexdigest()
    assert digest in text and "calliper compare --calibration cal.csv" in text
    assert "mad-split" in text and "locart" in text
    assert str(files) not in text, "a report does not tell where on the disk it was made"
    assert "wide where nearby calibration errors are large" in text, "what a method is, in a line"


def test_folders_stay_private_and_what_was_found_can_be_used(calliper, files):
    (files / "new.csv").rename(files / "test.csv")
    paths = ["--calibration", str(files / "cal.csv"), f"--test={files / 'test.csv'}"]
    done = calliper("compare", *paths, *COLUMNS, "--output", str(files / "r.json"), "--quiet")
    assert done.returncode == 0, done.stderr
    text = (files / "r.json").read_text("utf-8")
    assert str(files) not in text
    told = json.loads(text)["provenance"]
    assert "--calibration cal.csv --test=test.csv" in told["command"]
    assert "Folders are left out" in told["notes"][0]
    words = told["use"].format(method="full", coverage=0.9).replace("new.csv", "test.csv").split()
    done = calliper(*words[1:])
    assert done.returncode == 0, done.stderr
    assert (files / "intervals.csv").exists()


def test_a_kernel_and_a_score_reach_the_methods_and_the_command(calliper, compare, files):
    how = ["--kernel", "rbf", "--score", "signed", "--training", "train.csv", "--format", "json"]
    values = json.loads(calliper(*compare, *how, "--method", "full", "--method", "split").stdout)
    assert values["methods"] == ["full --kernel rbf", "split"] and not values["failures"]
    width = {r["method"]: r["mean_width"] for r in values["records"] if r["level"] == 0.9}
    for method, expected in width.items():
        words = values["provenance"]["use"].format(method=method, coverage=0.9).split()
        done = calliper(*words[1:], "--new", "test.csv")
        assert done.returncode == 0, done.stderr
        table = np.genfromtxt(files / "intervals.csv", delimiter=",", names=True)
        assert np.mean(table["upper"] - table["lower"]) == pytest.approx(expected)


def test_groups_without_a_name_are_said(calliper, compare, files):
    rows = (files / "test.csv").read_text().splitlines()
    lines = [rows[0] + ",site"] + [f"{row},{(10, 9, '')[i % 3]}" for i, row in enumerate(rows[1:])]
    (files / "sites.csv").write_text("\n".join(lines))
    done = calliper(*compare, "--test", "sites.csv", "--group", "site", "--format", "json")
    values = json.loads(done.stdout)
    part = next(part for part in values["parts"] if part["by"] == "group")
    assert part["labels"] == ["9", "10", "(missing)"] and part["name"] == "site"
    assert "16 of 50 test rows have no group" in done.stderr


def test_json_for_machines(calliper, compare):
    done = calliper(*compare, "--features", "a,b", "--format", "json", "--coverage", "0.8")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert values["coverage"] == 0.8 and values["methods"] == ["full", "jackknife", "split"]
    assert [file["part"] for file in values["provenance"]["files"]] == ["calibration", "test"]
    assert "covers?" in done.stderr


def test_json_by_its_name(calliper, compare, files):
    assert calliper(*compare, "--output", "numbers.json", "--quiet").stderr == ""
    assert json.loads((files / "numbers.json").read_text())["n_test"] == 50


def test_numbers_are_those_of_interval(calliper, compare, files):
    done = calliper(*compare, "--features", "a,b", "--training", "train.csv", "--format", "json")
    record = next(
        r for r in json.loads(done.stdout)["records"] if r["method"] == "full" and r["level"] == 0.9
    )
    options = ["--training", "train.csv", "--features", "a,b", "--output", "out.csv"]
    options += ["--learning-part", "none"]
    calliper("interval", *CALIBRATION, "--new", "test.csv", *COLUMNS, *options)
    columns = np.genfromtxt(files / "out.csv", delimiter=",", names=True)
    inside = (columns["lower"] <= columns["y"]) & (columns["y"] <= columns["upper"])
    assert record["coverage"] == pytest.approx(inside.mean())
    width = (columns["upper"] - columns["lower"]).mean()
    assert record["mean_width"] == pytest.approx(width)


def test_one_file_is_split(calliper, files):
    command = ["compare", "--data", "cal.csv", *COLUMNS, "--format", "json"]
    one, again, other = (calliper(*command, "--seed", seed) for seed in (1, 1, 2))
    values = json.loads(one.stdout)
    assert (values["n_calibration"], values["n_test"]) == (150, 150)
    assert "split at random" in values["provenance"]["notes"][0]
    scores = [
        [record["score"] for record in json.loads(done.stdout)["records"]]
        for done in (one, again, other)
    ]
    assert scores[0] == scores[1] != scores[2]


def test_groups_and_other_formats(calliper, compare, files):
    import pyarrow.csv
    import pyarrow.parquet

    rows = (files / "test.csv").read_text().splitlines()
    lines = [rows[0] + ",site"] + [f'{row},"x, {i % 2}"' for i, row in enumerate(rows[1:])]
    (files / "sites.csv").write_text("\n".join(lines))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(files / "sites.csv"), files / "sites.parquet")
    for name in ("sites.csv", "sites.parquet"):
        options = ["--test", name, "--group", "site", "--format", "json"]
        done = calliper("compare", *CALIBRATION, *COLUMNS, *options)
        assert done.returncode == 0, done.stderr
        parts = [part for part in json.loads(done.stdout)["parts"] if part["by"] == "group"]
        assert parts[0]["labels"] == ["x, 0", "x, 1"] and parts[0]["n"] == [25, 25]


def test_groups_with_quotes_and_line_breaks_in_their_names(calliper, files):
    import pyarrow.parquet

    rows = (files / "new.csv").read_text().splitlines()[1:]
    names, cells = (
        ("id", "a", "b", "y", "y_pred"),
        zip(*(row.split(",") for row in rows), strict=True),
    )
    columns = {name: [*map(float, column)] for name, column in zip(names, cells, strict=True)}
    columns["site"] = ['two\nlines, "quoted"', "a\rb"] * 25
    columns["list"] = [[1, 2]] * 50
    pyarrow.parquet.write_table(pyarrow.table(columns), files / "sites.parquet")
    options = ["--test", "sites.parquet", "--group", "site", "--format", "json"]
    done = calliper("compare", *CALIBRATION, *COLUMNS, *options)
    assert done.returncode == 0, done.stderr
    parts = [part for part in json.loads(done.stdout)["parts"] if part["by"] == "group"]
    assert sorted(parts[0]["labels"]) == sorted(set(columns["site"]))


def test_shared_rows_are_said_loudly(calliper, files):
    done = calliper("compare", *CALIBRATION, "--test", "cal.csv", *COLUMNS)
    assert done.returncode == 0 and done.stdout.startswith("This comparison is void")
    assert "warning: 300 of 300 test rows are also calibration rows" in done.stderr
    assert "void" in (files / "report.html").read_text("utf-8")


def test_a_missing_prediction_is_named(calliper, compare, files):
    rows = (files / "test.csv").read_text().splitlines()
    for place in (3, 7):
        rows[place] = ",".join([*rows[place].split(",")[:-1], ""])
    (files / "test.csv").write_text("\n".join(rows))
    done = calliper(*compare)
    assert done.returncode == 2
    assert "test.csv, line 4, column 'y_pred': the cell is empty" in done.stderr
    assert not (files / "report.html").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--data", "cal.csv"], "omit --calibration and --test"),
        (["--method", "mad-split"], "pass --training FILE"),
        (["--method", "full", "--method", "full"], "names the same method twice"),
        (["--coverage", "90"], "strictly between 0 and 1"),
        (["--group", "nope"], "no column 'nope'"),
        (["--id", "nope"], "no column 'nope'"),
        (["--output", "test.csv"], "must end in .html"),
        (["--output", "x.html", "--format", "json"], "must end in .json"),
        (["--output", "none/x.html"], "there is no folder"),
        (["--test", "-"], "not standard input"),
        (["--features", "y"], "include the target"),
        (["--training", "nope.csv"], "cannot read nope.csv"),
    ],
)
def test_errors(calliper, compare, leftovers, files, more, message):
    done = calliper(*compare, *more)
    assert done.returncode == 2
    assert done.stderr.startswith("calliper: error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1 and leftovers() == []
    assert not (files / "report.html").exists()


def test_files_are_needed(calliper, files):
    done = calliper("compare", "--test", "new.csv", *COLUMNS)
    assert done.returncode == 2 and "or --data FILE" in done.stderr
