"""``calliper interval`` from outside, as a shell runs it."""

from __future__ import annotations

import csv
import os
import stat
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from shlex import split

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calliper import KNN, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import MADSplit
from calliper.scores import named_scores

BY_HAND = """\
name,y,y_pred,a,b
one,1.5,1.0,0.1,3
two,2.5,2.75,0.2,1
three,3.0,3.125,0.25,4
four,0.1,0.3,0.4,1
five,7.2,6.9,0.55,5
six,5.5,5.25,0.6,9
seven,2.1,2.6,0.65,2
eight,8.0,8.4,0.7,6
nine,1.25,1.0,0.9,5
"""
NEW_BY_HAND = "name,y_pred,a,b\nx,1.1,0.15,2\ny,3.3,0.5,4\nz,6.6,0.95,7\n"


def columns(path: Path, *names: str) -> np.ndarray:
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(row[name]) for name in names] for row in rows])


def python_intervals(folder, calibrator, coverage, *, training=False, bounds=None):
    """What the library gives for the rows of new.csv: columns of ends."""
    names = ("y_pred", "a", "b")
    cal, new = columns(folder / "cal.csv", "y", *names), columns(folder / "new.csv", *names)
    train = columns(folder / "train.csv", "y", *names) if training else None
    # The "model" looks its predictions up: rows are told apart by their features.
    known = np.concatenate([cal[:, 1:], new, *([train[:, 1:]] if training else [])])
    table = {(a, b): y_pred for y_pred, a, b in known.tolist()}

    def model(X):
        return np.array([table[a, b] for a, b in X.tolist()])

    extra = {"X_train": train[:, 2:], "y_train": train[:, 0]} if training else {}
    regressor = ConformalRegressor(model, calibrator, embed="inputs", learning_part=None)
    regressor.calibrate(cal[:, 2:], cal[:, 0], **extra)
    lower, upper = regressor.predict_interval(new[:, 1:], coverage, bounds=bounds)
    return np.stack([lower, upper], axis=-1).reshape(len(new), -1)


def test_a_file_made_by_hand_gives_what_python_gives_digit_for_digit(tmp_path, base):
    (tmp_path / "cal.csv").write_text(BY_HAND)
    (tmp_path / "new.csv").write_text(NEW_BY_HAND)
    args = split("--new new.csv --features a,b --neighbors 3 --coverage 0.8 --coverage 0.5")
    command = [sys.executable, "-m", "calliper", *base, *args]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    expected = python_intervals(tmp_path, FullRescaled(KNN(3), random_state=0), [0.5, 0.8])
    lines = NEW_BY_HAND.splitlines()
    text = [lines[0] + ",lower_0.5,upper_0.5,lower_0.8,upper_0.8"]
    rows = zip(lines[1:], expected.tolist(), strict=True)
    text += [",".join([line, *map(repr, ends)]) for line, ends in rows]
    assert (tmp_path / "out.csv").read_text() == "\n".join(text) + "\n"


@pytest.mark.filterwarnings("ignore::calliper.exceptions.UnscaledFeaturesWarning")
@pytest.mark.parametrize(
    ("options", "calibrator", "training"),
    [
        ("--method jackknife --neighbors 7 --seed 3", JackknifeRescaled(KNN(7), random_state=3), 0),
        ("--method full --statistic rms", FullRescaled(statistic="rms", random_state=0), 1),
        ("--method mad-split --offset 0.1", MADSplit(offset=0.1, random_state=0), 1),
        ("--method split", Split(), 0),
    ],
)
def test_every_method_equals_python(calliper, files, base, options, calibrator, training):
    args = ["--training", "train.csv"] if training else []
    done = calliper(*base, "--new", "new.csv", "--features", "a,b", *args, *options.split())
    assert done.returncode == 0, done.stderr
    expected = python_intervals(files, calibrator, 0.9, training=bool(training))
    np.testing.assert_array_equal(columns(files / "out.csv", "lower", "upper"), expected)


@pytest.mark.filterwarnings("ignore::calliper.exceptions.UnscaledFeaturesWarning")
def test_bounds_and_many_chunks_equal_python(calliper, files, base):
    header, *rows = (files / "new.csv").read_text().splitlines(keepends=True)
    # Long names fill a chunk with few rows: 50,000 rows of a thousand letters need several.
    many = [row.replace(",", f"{'n' * 1000},", 1) for row in rows for _ in range(1000)]
    (files / "many.csv").write_text(header + "".join(many))
    done = calliper(*base, *["--new", "many.csv", "--features", "a,b", "--bounds", "-0.98", "inf"])
    assert done.returncode == 0, done.stderr
    calibrator = FullRescaled(random_state=0)
    expected = python_intervals(files, calibrator, 0.9, bounds=(-0.98, np.inf))
    got = columns(files / "out.csv", "lower", "upper")
    np.testing.assert_array_equal(got, np.repeat(expected, 1000, axis=0))
    assert (got[:, 0] == -0.98).any()


def test_features_by_prefix_equal_features_by_name(calliper, files, base):
    for name in ("cal.csv", "new.csv"):
        text = (files / name).read_text().replace("id,a,b,", "id,emb_0,emb_1,", 1)
        (files / name).write_text(text)
    named = calliper(*base[:-1], "-", "--new", "new.csv", "--features", "emb_0, emb_1")
    prefixed = calliper(*base[:-1], "-", "--new", "new.csv", "--features-prefix", "emb_")
    assert named.returncode == prefixed.returncode == 0
    assert named.stdout == prefixed.stdout != ""


def test_other_columns_travel_through_byte_for_byte(calliper, files, base):
    new = (
        '\ufeffid,"a, quoted",text,y_pred,ünï\r\n'
        '007,"x, ""y""",  spaces  ,1.50,日本\r\n'
        '"007",,"two\r\nlines",1e0,é\r\n'
        "\r\n"
        "+1,-0,NA, 2 ,\r\n"
    )
    (files / "new.csv").write_bytes(new.encode())
    done = calliper(*base, "--new", "new.csv")
    assert done.returncode == 0, done.stderr
    out = (files / "out.csv").read_bytes().decode()
    records = [record for record in _records(new) if record.strip()]
    assert [record[: len(text)] for record, text in zip(_records(out), records, strict=True)] == (
        records
    )
    assert _records(out)[0] == records[0] + ",lower,upper"
    assert out.endswith("\r\n")


def _records(text: str) -> list[str]:
    """Records of a CSV text with two-line cells written as above."""
    mark = text.replace("two\r\nlines", "two\0lines").removesuffix("\r\n").split("\r\n")
    return [record.replace("\0", "\r\n") for record in mark]


def test_parquet_keeps_columns_types_and_index(calliper, files, base):
    frame = pd.read_csv(files / "new.csv").assign(
        small=np.arange(50, dtype=np.int8),
        when=pd.date_range("2024-01-01", periods=50, tz="Europe/Zurich"),
        kind=pd.Categorical(["b", "a"] * 25),
        text=["x,y", None] * 25,
        nested=[[1.0, 2.0]] * 50,
    )
    frame["y_pred"] = frame["y_pred"].astype(np.float32)
    frame.index = [f"row {i}" for i in range(50)]
    frame.to_parquet(files / "new.parquet", row_group_size=20)
    done = calliper(*base[:-1], "out.parquet", "--new", "new.parquet", "--features", "small,a")
    assert "no column 'small'" in done.stderr
    done = calliper(*base[:-1], "out.parquet", "--new", "new.parquet", "--features", "a,b")
    assert done.returncode == 0, done.stderr
    before, after = pq.read_table(files / "new.parquet"), pq.read_table(files / "out.parquet")
    assert after.column_names == [*before.column_names, "lower", "upper"]
    assert after.select(before.column_names).equals(before)
    assert after.schema.field("lower").type == pa.float64()
    assert list(pd.read_parquet(files / "out.parquet").index) == list(frame.index)


def test_csv_and_parquet_convert_into_one_another(calliper, files, base):
    args = ["--new", "new.csv", "--features", "a,b"]
    assert calliper(*base, *args).returncode == 0
    assert calliper(*base[:-1], "out.parquet", *args).returncode == 0
    table = pq.read_table(files / "out.parquet")
    assert table.schema.field("id").type == pa.string()
    assert table.column("id").to_pylist()[:2] == ["000000", "000001"]
    plain = table.drop_columns(["lower", "upper"])
    assert plain.schema.field("a").type == pa.float64()
    pq.write_table(plain, files / "new.parquet")
    done = calliper(*base[:-1], "back.csv", "--new", "new.parquet", "--features", "a,b")
    assert done.returncode == 0, done.stderr
    assert (files / "back.csv").read_text() == (files / "out.csv").read_text()
    done = calliper(*base[:-1], "out.tsv", *args)
    assert done.returncode == 0, done.stderr
    tabs = (files / "out.csv").read_text().replace(",", "\t")
    assert (files / "out.tsv").read_text() == tabs


def test_thousands_of_columns_are_looked_up_not_searched(tmp_path, monkeypatch):
    from calliper.cli._formats import TableFile
    from calliper.cli._options import Request
    from calliper.cli._tables import Filling, Form, open_table, read_rows, require_columns

    class Counted(str):
        seen = 0

        def __eq__(self, other):
            Counted.seen += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    n = 2000
    names = ",".join(["y", "y_pred", *(f"f{i}" for i in range(n))])
    (tmp_path / "wide.csv").write_text(f"{names}\n" + ",".join(["1"] * (n + 2)) + "\n")
    with open_table(str(tmp_path / "wide.csv"), Form()) as table:
        counted = [*map(Counted, table.columns)]
        monkeypatch.setattr(TableFile, "columns", counted)
        options = dict.fromkeys([field.name for field in fields(Request)])
        known = {"target": "y", "prediction": "y_pred", "features_prefix": "f"}
        columns = Request(**options | known).columns(table)
        require_columns(table, columns.known)
        columns.check(table, ["lower"])
        assert read_rows(table, columns.known, Filling())[0].shape == (1, n + 2)
    assert Counted.seen < 20 * n


def test_a_pipe_in_and_out(calliper, files, base):
    calliper(*base, "--new", "new.csv", "--quiet")
    done = calliper(*base[:-1], "-", "--new", "-", stdin=(files / "new.csv").read_text())
    assert done.stdout == (files / "out.csv").read_text()
    assert "50 rows written to standard output" in done.stderr


def test_what_is_said_on_standard_error(calliper, files, base):
    done = calliper(*base, "--new", "new.csv", "--coverage", "0.9")
    assert done.stdout == ""
    first, second, third, seen = done.stderr.splitlines()
    assert first == "note: no --features were given, so widths depend on the prediction alone"
    assert second == "50 rows written to out.csv (FullRescaled, 300 calibration rows)"
    assert third == (
        "FullRescaled: a new target lies in its interval with probability at least 0.9003 "
        "(requested: 0.9), under conditions that --explain lists."
    )
    assert seen == "coverage measured on 50 new rows that have 'y': 0.9 (requested: 0.9)"
    said = calliper(*base, "--new", "new.csv", "--explain").stderr
    assert "locality: KNN(n_neighbors=20), shrinkage 0.462, chosen by the number of" in said
    assert "This holds if" in said and "This probability is marginal" in said
    done = calliper(*base, "--new", "new.csv", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_coverage_far_below_the_level_is_pointed_out(calliper, files, base):
    table = pd.read_csv(files / "new.csv")
    far = table.assign(y=table.y_pred + 4 * (table.y - table.y_pred))  # errors of other rows
    far.to_csv(files / "far.csv", index=False)
    done = calliper(*base, "--new", "far.csv", "--quiet")
    assert done.returncode == 0 and done.stderr.startswith("warning: far fewer targets are inside")
    far[:3].to_csv(files / "few.csv", index=False)
    done = calliper(*base, "--new", "few.csv", "--quiet", "--coverage", "0.97")
    assert "far fewer" not in done.stderr, "three rows say little"


def test_the_promise_is_spelt_out_once(calliper, files, base):
    levels = ["--coverage", "0.8", "--coverage", "0.9", "--coverage", "0.9999"]
    done = calliper(*base, "--new", "new.csv", *levels, "--explain")
    *_, second, third, _ = lines = done.stderr.splitlines()
    first = next(line for line in lines if line.startswith("FullRescaled: "))
    assert first.endswith("at least 0.8006 (requested: 0.8).")
    assert sum(line.startswith(("This holds if", "This probability")) for line in lines) == 2
    assert second == (
        "FullRescaled: a new target lies in its interval with probability at least 0.9003 "
        "(requested: 0.9), under the same conditions."
    )
    assert third.endswith(
        "cannot support coverage 0.9999, so the interval is infinite and always covers."
    )
    split = calliper(*base, "--new", "new.csv", *levels[:4], "--method", "split").stderr
    assert split.splitlines()[-2].startswith("Split: ") and "(requested: 0.9)" in split


def test_calibration_rows_among_new_ones_are_noticed(calliper, files, base):
    header, *rows = (files / "cal.csv").read_text().splitlines(keepends=True)
    (files / "copy.csv").write_text(header + "".join(rows[::-1]))
    said = calliper(*base, "--new", "copy.csv", "--quiet").stderr
    assert said.startswith("warning: all 300 new rows are also calibration rows (same prediction")
    (files / "copy.csv").write_text((files / "new.csv").read_text() + "".join(rows[:20]))
    kept = ["calibrate", *base[1:-2], "--output", "m.calliper", "--quiet"]
    assert calliper(*kept) == (0, "", "")
    asked = "interval --calibrated m.calliper --new copy.csv --output out.csv --quiet"
    assert "warning: 20 of 70 new rows are also" in calliper(*asked.split()).stderr


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_coverage_seen_is_that_of_rows_with_a_target(calliper, files, base, kind):
    frame = pd.read_csv(files / "new.csv").astype({"y": object})
    frame.loc[frame.index[:10], "y"] = None
    if kind == "parquet":
        frame.astype({"y": float}).to_parquet(files / "some.parquet")
    else:
        frame.to_csv(files / "some.csv", index=False)
    levels = ["--coverage", 0.5, "--coverage", 0.8, "--output", f"out.{kind}"]
    said = calliper(*base, "--new", f"some.{kind}", *levels).stderr
    out = (pd.read_csv if kind == "csv" else pd.read_parquet)(files / f"out.{kind}")[10:]
    ends = [(out[f"lower_{at}"], out[f"upper_{at}"]) for at in (0.5, 0.8)]
    seen = [out.y.between(*each).mean() for each in ends]
    assert said.splitlines()[-1] == (
        f"coverage measured on 40 new rows that have 'y': {seen[0]:.4g} (requested: 0.5), "
        f"{seen[1]:.4g} (requested: 0.8)"
    )
    (files / "none.csv").write_text(pd.read_csv(files / "new.csv").drop(columns="y").to_csv())
    assert "coverage measured" not in calliper(*base, "--new", "none.csv").stderr


@pytest.mark.parametrize("name", [*named_scores()])
def test_a_score_gives_what_python_gives(calliper, files, base, name):
    done = calliper(*base, "--new", "new.csv", "--score", name, "--features", "a")
    assert done.returncode == 0, done.stderr
    cal, out = (
        pd.read_csv(files / name, float_precision="round_trip") for name in ("cal.csv", "out.csv")
    )
    rows, new = (frame[["a", "y_pred"]].to_numpy() for frame in (cal, out))
    how = {"score_function": named_scores()[name], "embed": lambda X: X[:, :1]}
    made = ConformalRegressor(
        lambda X: X[:, 1], FullRescaled(random_state=0), learning_part=None, **how
    )
    lower, upper = made.calibrate(rows, cal.y).predict_interval(new)
    np.testing.assert_array_equal(out[["lower", "upper"]], np.stack([lower, upper], axis=1))
    assert np.isinf(out.upper).all() == (name == "lower")


def test_too_few_points_give_infinite_ends_and_one_warning(calliper, files, base):
    header, *rows = (files / "new.csv").read_text().splitlines(keepends=True)
    (files / "new.csv").write_text(header + "".join(rows * 1500))  # more than one chunk
    done = calliper(*base, "--new", "new.csv", "--coverage", "0.999", "--quiet")
    assert done.returncode == 0
    assert done.stderr.count("warning:") == len(done.stderr.splitlines()) == 1
    assert "Use at least 999 rows" in done.stderr
    lines = (files / "out.csv").read_text().splitlines()
    assert len(lines) == 75_001
    assert all(line.endswith(",-inf,inf") for line in lines[1:])


def test_raw_features_of_unlike_spread_point_to_the_training_option(calliper, files, base):
    args = ["--new", "new.csv", "--features", "a,b", "--quiet"]
    assert "--training FILE" in calliper(*base, *args).stderr
    assert calliper(*base, *args, "--training", "train.csv").stderr == ""


# Not getrusage: its maximum outlives exec, so that it would measure the process of the tests.
MEASURED = """
import re, sys
from calliper.cli import main
code = main()
with open("/proc/self/status") as status:
    sys.stderr.write(re.search(r"VmHWM:\\s*(\\d+) kB", status.read())[1])
sys.exit(code)
"""


def peak_megabytes(folder: Path, *args: str) -> float:
    command = [sys.executable, "-c", MEASURED, *args, "--quiet", "--method", "split"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return int(done.stderr) / 1024


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")


@pytest.mark.long
@needs_proc
def test_memory_does_not_grow_with_the_new_file(files, base):
    header, *rows = (files / "new.csv").read_text().splitlines(keepends=True)
    peak = []
    for repeats in (2800, 8000):  # two full chunks, the one in work and the next; then six
        (files / "new.csv").write_text(header + "".join(rows * repeats))
        peak.append(peak_megabytes(files, *base, "--new", "new.csv"))
    assert os.path.getsize(files / "out.csv") > 2 * 2**24
    assert peak[1] < peak[0] + 16, f"peak memory grew from {peak[0]:.0f} to {peak[1]:.0f} MB"


@pytest.mark.long
@needs_proc
def test_memory_does_not_grow_with_the_new_file_in_parquet(files, base):
    rng, peak = np.random.default_rng(0), []
    for n in (240_000, 480_000):
        # Bytes that cannot be packed: the file is as large as what is in it, 120 and 240 MB. With
        # less, the allocator has not yet set aside what it keeps.
        long = pa.Array.from_buffers(pa.binary(500), n, [None, pa.py_buffer(rng.bytes(500 * n))])
        table = pa.table({"y_pred": rng.uniform(size=n), "long": long})
        pq.write_table(table, files / "new.parquet", row_group_size=20_000)
        peak.append(peak_megabytes(files, *base[:-1], "out.parquet", "--new", "new.parquet"))
    assert os.path.getsize(files / "out.parquet") > 200_000_000
    assert peak[1] < peak[0] + 60, f"peak memory grew from {peak[0]:.0f} to {peak[1]:.0f} MB"


def test_output_has_usual_permissions_and_a_link_stays_a_link(calliper, files, base):
    assert calliper(*base, "--new", "new.csv", umask=0o027).returncode == 0
    out = files / "out.csv"
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    out.chmod(0o604)
    (files / "link.csv").symlink_to(out)
    out.write_text("old")
    assert calliper(*base[:-1], "link.csv", "--new", "new.csv").returncode == 0
    assert (files / "link.csv").is_symlink()
    assert out.read_text().startswith("id,a,b,y,y_pred,lower,upper")
    assert stat.S_IMODE(out.stat().st_mode) == 0o604
