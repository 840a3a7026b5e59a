"""Bad input to the command: one line that says what to do, exit code 2, no traceback, no output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEADER, ROW = "id,y_pred,a\n", "1,0.5,0.25\n"


def error_of(done) -> str:
    """The one line of an error, without its beginning."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("calliper: error: ") and done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("calliper: error: ").strip()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--new none.csv", "cannot read none.csv: No such file or directory; check the name"),
        ("--new .", "--new . means several files: --output must be a folder, not out.csv"),
        ("--new folder.csv --output there", "--new folder.csv: the folder contains no .csv, .tsv"),
        ("--calibration folder.csv --new new.csv", "it is a folder; name a file in it"),
        ("--new new.xlsx", "new.xlsx: the name must end in .csv, .tsv, .parquet"),
        ("--new new.csv --output out.xls", "save a workbook as .csv"),
        ("--new book.csv", "book.csv: the file is a workbook or an archive; save it as CSV."),
        ("--new new.txt", "new.txt: the name must end in .csv, .tsv, .parquet"),
        ("--new cal.csv", "--new cal.csv is also the --calibration file"),
        ("--new train.csv --training train.csv", "--new train.csv is also the --training file"),
        ("--new new.csv --kernel rbf", "--kernel rbf learns from training rows: pass --training"),
        ("--new new.csv --output nowhere/out.csv", "there is no folder"),
        ("--new new.csv --output folder.csv", "it is a folder; name a file in it"),
        ("--new new.csv --output new.csv", "--output new.csv is also an input"),
        ("--new new.csv --output hard-link.csv", "--output hard-link.csv is also an input"),
        ("--new new.csv --output /proc/out.csv", "cannot write /proc/out.csv"),
        ("--new new.csv --output pipe.csv", "not a plain file; use --output -"),
        (
            "--new new.csv --prediction yhat",
            "no column 'yhat'; its columns are 'id', 'a', 'b', 'y'",
        ),
        ("--new new.csv --target y_pred", "--target and --prediction are both 'y_pred'"),
        ("--new new.csv --features a,c", "cal.csv: no column 'c'; its columns"),
        ("--new new.csv --features a,,b", "names must differ, as in --features a,b,c"),
        ("--new new.csv --features a,a", "names must differ"),
        ("--new new.csv --features a,y", "the features include the target 'y'"),
        ("--new new.csv --features-prefix y", "the features include the target 'y'"),
        ("--new new.csv --features-prefix emb_", "no column starts with 'emb_'; its columns"),
        ("--new new.csv --features a --features-prefix b", "cannot be combined: use one"),
        ("--new new.csv --method mad-split", "pass --training FILE"),
        ("--new new.csv --method jackknife --statistic rms", "jackknife does not use --statistic"),
        ("--new new.csv --method split --neighbors 3", "does not use --neighbors"),
        ("--new new.csv --method best", "'best' is not one of 'full', 'jackknife'"),
        (
            "--new new.csv --coverage 90",
            "strictly between 0 and 1; got [90.0]. If it is a percentage",
        ),
        ("--new new.csv --coverage 1", "strictly between 0 and 1"),
        ("--new new.csv --coverage nan", "strictly between 0 and 1"),
        ("--new new.csv --coverage high", "--coverage must be a number such as 0.9; got high."),
        ("--new new.csv --coverage 90%", "got 90%. Write --coverage 0.9."),
        ("--new new.csv --coverage 80%,97.5%", "Write --coverage 0.8 --coverage 0.975."),
        ("--new new.csv --coverage 0.8,0.9", "Write --coverage 0.8 --coverage 0.9."),
        ("--new new.csv --coverage 0,9 --decimal ,", "got 0,9. Write --coverage 0.9."),
        ("--new new.csv cal.csv", "put a pattern of several files in quotation marks"),
        ("--new new.csv --coverage 0.9 --coverage 0.90", "names the same level twice"),
        ("--new new.csv --neighbors 0", "0 is not in the range x>=1"),
        ("--new new.csv --offset nan", "--offset must be a finite number"),
        ("--new new.csv --bounds 1 0", "LOW must be less than HIGH"),
        ("--new new.csv --bounds nan 0", "LOW must be less than HIGH"),
        ("--new new.csv --colour red", "No such option '--colour'"),
        ("--new new.csv --alpha 0.1", "--coverage', 1 less the share of misses (see"),
        ("--new new.csv --confidence-level 0.9", "inside with 'calliper interval --coverage' (see"),
        ("--new new.csv --confidence 0.9", "Leave out --confidence, or choose a method"),
        ("--new new.csv surplus", "unexpected extra argument"),
        ("--new new.csv --features a, b", "no space after the comma, as in --features a,b (see"),
        ("", "Missing option '--new'"),
    ],
)
def test_options(calliper, files, base, leftovers, options, words):
    (files / "folder.csv").mkdir()
    (files / "hard-link.csv").hardlink_to(files / "new.csv")
    os.mkfifo(files / "pipe.csv")
    (files / "book.csv").write_bytes(b"PK\x03\x04" + bytes(40))
    assert words in error_of(calliper(*base, *options.split()))
    assert not (files / "out.csv").exists() and leftovers() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "new.csv: the file is empty"),
        ("\n\n", "new.csv: the file is empty"),
        (HEADER, "new.csv: there are columns but no rows"),
        (HEADER + ROW + "1,0.5\n", "new.csv, line 3: 2 cells, but the header has 3 columns"),
        (HEADER + "1,0.5,0.25,9\n", "line 2: 4 cells"),
        ("id,y_pred,id\n" + ROW, "column 'id' occurs more than once"),
        (HEADER + ROW + "1,abc,0\n", "new.csv, line 3, column 'y_pred': 'abc' is not a number"),
        (HEADER + '"two\nlines",1,2\n1,1_0,0\n', "line 4, column 'y_pred': '1_0' is not a number"),
        (HEADER + "1,,0\n", "line 2, column 'y_pred': the cell is empty"),
        (HEADER + ROW + "1,1,nan\n", "line 3, column 'a': 'nan' is not a finite number"),
        (
            HEADER + ROW + "1,1,\n",
            "calibrate with --training FILE to fill missing values with its medians, or fix",
        ),
        (HEADER + ROW + "1,,1\n", "the cell is empty; fix or remove the row."),
        (
            HEADER + "1,2,flat\n" * 8 + "1,2,\n1,2,house\n" + "1,2,flat\n" * 8,
            "'flat' is not a number; fix or remove the row, or leave the column out of",
        ),
        (HEADER + ROW * 3 + "1,2,flat\n", "'flat' is not a number; fix or remove the row, or"),
        (HEADER + '1,2,"3,4"\n' * 5, "use --decimal ,); fix or remove the row, or"),
        (HEADER + "1,high,1\n" * 5, "'high' is not a number; fix or remove the row."),
        (HEADER + "1,-inf,0\n", "'-inf' is not a finite number"),
        (HEADER + '1,"1,5",0\n', "'1,5' is not a number (if its comma is a decimal separator, use"),
        (HEADER + '1,"1,588.07",0\n', "'1,588.07' is not a number;"),
        (
            HEADER + '1,"1,588",0\n',
            "(if its comma is a decimal separator, use --decimal ,)",
        ),
        (HEADER + ROW * 3 + '1,"row, 0",0\n', "'row, 0' is not a number; fix or remove the row"),
        (HEADER + "row, 0,1,0\n", "4 cells, but the header has 3 columns; fix the line (put a"),
        (HEADER + '"1,0.5,0.25\n', "check the quotation marks"),
        ("id;y_pred;a\n1;2;3\n", "if ';' separates cells, use --delimiter ';'"),
        ("id,y_pred,a,lower\n1,2,3,4\n", "already has a column 'lower'"),
    ],
)
def test_new_rows_as_csv(calliper, files, base, leftovers, text, words):
    (files / "new.csv").write_text(text)
    assert words in error_of(calliper(*base, "--new", "new.csv", "--features", "a", "--quiet"))
    assert not (files / "out.csv").exists() and leftovers() == []


@pytest.mark.parametrize("again", ["--new new.csv", "--calibration train.csv", "--method split"])
def test_an_option_that_is_given_twice(calliper, files, base, again):
    args = [*base, "--new", "new.csv", "--method", "full", *again.split()]
    words = f"{again.split()[0]} is given twice: give it once (see"
    assert words in error_of(calliper(*args, as_given=True))


def test_letters_that_are_not_utf8(calliper, files, base):
    (files / "new.csv").write_bytes(HEADER.encode() + "é,1,2\n".encode("latin-1"))
    done = calliper(*base, "--new", "new.csv", "--features", "a", "--quiet")
    assert "not UTF-8; save the file as UTF-8, or name its encoding" in error_of(done)
    done = calliper(*base, "--new", "new.csv", "--features", "a", "--encoding", "latin-1")
    assert done.returncode == 0
    assert (files / "out.csv").read_text("latin-1").splitlines()[1].startswith("é,1,2,")


@pytest.mark.parametrize("option", ["--calibration", "--training"])
def test_rows_with_known_targets_are_checked_alike(calliper, files, base, option):
    args = [*base, "--new", "new.csv", "--features", "a", "--quiet", option, "bad.csv"]
    (files / "bad.csv").write_text("y,y_pred,a\n1,2,3\n?,2,3\n")
    assert "bad.csv, line 3, column 'y': '?' is not a number" in error_of(calliper(*args))
    (files / "bad.csv").write_text("y,y_pred,a\n")
    assert "bad.csv: there are columns but no rows" in error_of(calliper(*args))
    (files / "bad.csv").write_text("y_pred,a\n1,2\n")
    assert "bad.csv: no column 'y'" in error_of(calliper(*args))


def test_errors_too_large_for_a_number(calliper, files, base):
    (files / "cal.csv").write_text("y,y_pred,a\n1e308,-1e308,1\n1,2,3\n")
    done = calliper(*base, "--new", "new.csv", "--features", "a", "--quiet")
    assert "scores must be finite" in error_of(done)


@pytest.mark.parametrize("options", ["", "--training train.csv"])
def test_features_too_large_for_distances(calliper, files, base, options):
    (files / "new.csv").write_text("y_pred,a\n1,1e200\n")
    done = calliper(*base, "--new", "new.csv", "--features", "a", *options.split())
    assert "up to 1e+150. Rescale that feature or leave it out" in error_of(done)


def test_a_prefix_that_fits_more_columns_in_the_new_file(calliper, files, base):
    (files / "new.csv").write_text("y_pred,a,ab\n1,2,3\n")
    done = calliper(*base, "--new", "new.csv", "--features-prefix", "a")
    assert "column 'ab' is a feature by its prefix" in error_of(done)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"y_pred": ["1", "2"]}, "column 'y_pred': holds string, not numbers"),
        ({"y_pred": [1.0, None]}, "row 2, column 'y_pred': the value is missing"),
        ({"y_pred": [float("nan"), 1.0]}, "row 1, column 'y_pred': nan is not a finite number"),
        (
            {"y_pred": [1.0], "a": ["flat"]},
            "not numbers; name a column of numbers",
        ),
        (
            {"y_pred": [1.0], "a": pa.array([None], pa.float64())},
            "missing; calibrate with --training FILE",
        ),
        ({"y_pred": pa.array([], pa.float64())}, "there are columns but no rows"),
        (
            {"y_pred": [1.0], "z": [[1]]},
            "column 'z': list<element: int64> cannot be written as text",
        ),
    ],
)
def test_new_rows_as_parquet(calliper, files, base, leftovers, columns, words):
    pq.write_table(pa.table(columns), files / "new.parquet")
    features = ["--features", "a"] if "a" in columns else []
    assert words in error_of(calliper(*base, "--new", "new.parquet", *features, "--quiet"))
    assert not (files / "out.csv").exists() and leftovers() == []


def test_a_file_that_is_parquet_by_name_only(calliper, files, base):
    (files / "new.parquet").write_text("y_pred\n1\n")
    done = calliper(*base, "--new", "new.parquet")
    assert "cannot read new.parquet as .parquet" in error_of(done)


def test_unknown_command_and_figure(calliper):
    assert "No such command 'intervals'" in error_of(calliper("intervals"))
    assert "must end in .png, .pdf, .svg" in error_of(calliper("demo", "--output", "demo.gif"))
    assert "there is no folder" in error_of(calliper("demo", "--output", "nowhere/demo.png"))


def test_a_disk_that_is_full(calliper, files, base):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = calliper(*base[:-1], "-", "--new", "new.csv", "--quiet", stdout="/dev/full")
    assert (done.returncode, done.stderr) == (
        2,
        "calliper: error: cannot write to standard output: No space left on device.\n",
    )


#: A child for each command, from a process that has loaded none yet; some lack a package.
CHILDREN = """\
import os, sys
import calliper
for package, *args in eval(sys.argv[1]):
    child = os.fork()
    if not child:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        sys.modules[package], sys.argv = None, ["calliper", *args]
        from calliper.cli import main
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def errors_of_children(folder, cases):
    """What each of them said before it ended with code 2."""
    command = [sys.executable, "-c", CHILDREN, repr(cases)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["2"] * len(cases), done
    return done.stderr.splitlines()


@pytest.mark.long
def test_extras_that_are_not_installed(files, base):
    pq.write_table(pa.table({"y_pred": [1.0]}), files / "new.parquet")
    interval = ["pyarrow", *base, "--new", "new.parquet"]
    cases = [("click", "--version"), interval, ("matplotlib", "demo"), ("rich", "demo")]
    assert errors_of_children(files, cases) == [
        f"calliper: error: this command needs {package}, which comes with the extra cli: "
        'pip install "calliper[cli]"'
        for package, *_ in cases
    ]


@pytest.mark.parametrize(
    ("output", "streams", "code", "words"),
    [
        ("-", ">&-", 2, "error: cannot write to standard output: it is closed; name a file."),
        ("out.csv", ">&- <&-", 0, "50 rows written to out.csv"),
        ("out.csv --new -", "<&-", 2, "error: -: the file is empty"),
    ],
)
@pytest.mark.long
def test_streams_that_are_closed(files, base, output, streams, code, words):
    program = [sys.executable, "-m", "calliper", *base[:-1], output]
    new = [] if "--new" in output else ["--new", "new.csv"]
    shell = " ".join([*program, *new, streams])
    done = subprocess.run(shell, shell=True, cwd=files, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code and words in done.stderr
    assert "Traceback" not in done.stderr
    if code == 0:
        assert len((files / "out.csv").read_text().splitlines()) == 51


@pytest.mark.long
def test_nothing_is_said_after_the_error(files, base, leftovers):
    """A writer that is taken down with the program must not write into a file that is closed."""
    (files / "new.csv").write_text(HEADER + ROW + "1,abc,0\n")
    outputs = ["out.parquet", "out.csv.gz"]
    said = errors_of_children(files, [("", *base[:-1], o, "--new", "new.csv") for o in outputs])
    assert len(said) == 2 and all("'abc' is not a number" in line for line in said)
    assert leftovers() == [] and not any((files / output).exists() for output in outputs)


def test_advice_speaks_of_options(calliper, files, base):
    """Messages of the library name arguments of Python, which mean nothing here."""
    args = [*base, "--new", "new.csv", "--features", "a,b", "--quiet"]
    few = "y,y_pred,a,b\n" + "1,1,1,1000\n2,1,2,5\n1,1,1,100\n" * 9
    (files / "few.csv").write_text(few)
    said = calliper(*args, "--calibration", "few.csv", "--neighbors", 20).stderr
    said += calliper(*args, "--calibration", "few.csv", "--neighbors", 99).stderr
    said += calliper(*args, "--method", "locart", "--training", "train.csv").stderr
    said += calliper(*args, "--training", "cal.csv").stderr
    assert "Pass --training FILE to standardise them." in said
    assert "fewer --neighbors" in said
    assert "rows of --calibration are also in --training" in said
    for word in ("X_train", "embed=", "min_leaf", "pass offset", "Here:"):
        assert word not in said


@pytest.mark.parametrize("command", ["interval", "tune"])
def test_calibration_rows_that_are_training_rows(calliper, files, base, command):
    data = "--calibration cal.csv --target y --prediction y_pred --features a,b"
    more = "--new new.csv --output out.csv" if command == "interval" else "--output t.calliper"
    args = [command, *data.split(), *more.split(), "--training"]
    assert "All 300 rows of --calibration are also in --training" in error_of(
        calliper(*args, "cal.csv")
    )
    _, *rows = (files / "cal.csv").read_text().splitlines(keepends=True)
    (files / "mixed.csv").write_text((files / "train.csv").read_text() + "".join(rows[:30]))
    done = calliper(*args, "mixed.csv")
    assert done.returncode == 0
    assert "warning: The guarantee no longer holds. 30 of 300 rows of --calibration" in done.stderr
    assert "with probability at least" not in done.stderr


def test_rows_whose_order_matters(calliper, files, base):
    header, *rows = (files / "cal.csv").read_text().splitlines(keepends=True)
    rows.sort(key=lambda row: float(row.split(",")[1]))  # noise grows with a
    (files / "cal.csv").write_text(header + "".join(rows))
    done = calliper(*base, "--new", "new.csv")
    assert done.returncode == 0
    assert "warning: The size of the error depends on the row number" in done.stderr
    assert "shuffle=" not in done.stderr
