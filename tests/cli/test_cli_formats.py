"""Whatever is in the cells, and whatever becomes of the format: every output reads back.

Run as a script with a number to try more: ``python tests/cli/test_cli_formats.py 10000``.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calliper import AbsoluteError, Split
from calliper.cli._interval import interval
from calliper.cli._tables import Form, open_table

FORMATS = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")
PIECES = ['"', '""', "'", ",", ";", "\t", "|", "\n", "\r", "\r\n", " ", "", "a", "é", "0", "-1.5"]
PIECES += ["=1+1", "\\", "\\n", "\x0b", "\x85", "#", "nan", ".", "\0"]
WIDE = ["日本", "\u2028", "😀", "\ufeff"]
FORMS = {
    Form(): [],
    Form(";"): ["--delimiter", ";"],
    Form("|", ","): ["--delimiter", "|", "--decimal", ","],
    Form(";", ",", "latin-1"): ["--decimal", ",", "--encoding", "latin-1"],
    Form(",", ".", "utf-16"): ["--encoding", "utf-16"],
}
RNG = np.random.default_rng(0)
Y, Y_PRED = RNG.normal(size=(2, 12))


def text(draw, form):
    pieces = PIECES if form.encoding == "latin-1" else PIECES + WIDE
    return "".join(draw.choices(pieces, k=draw.randint(0, 4)))


def delimiter(ending, form):
    return "\t" if ending.startswith(".tsv") else form.delimiter


def written(path, ending, form, names, columns, draw):
    """A file by other means than those that are tested: quoted wherever it may be."""
    if ending == ".parquet":
        pq.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
        return
    sign, end = delimiter(ending, form), draw.choice(["\n", "\r\n"])
    must = {'"', "\n", "\r", sign}

    def quoted(cell):
        bare = not must & set(cell) and draw.random() < 0.5
        return cell if bare else '"' + cell.replace('"', '""') + '"'

    rows = [names, *zip(*columns, strict=True)]
    lines = [sign.join(map(quoted, row)) for row in rows]
    content = (end.join(lines) + draw.choice([end, ""])).encode(form.encoding)
    if form.encoding == "utf-8" and draw.random() < 0.3:
        content = b"\xef\xbb\xbf" + content
    Path(path).write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)


def read_back(path, ending, form):
    """Names, and columns as they are in Parquet, as text in CSV."""
    if ending == ".parquet":
        table = pq.read_table(path)
        return table.column_names, [column.to_pylist() for column in table.columns]
    content = Path(path).read_bytes()
    content = gzip.decompress(content) if ending.endswith(".gz") else content
    encoding = {"utf-8": "utf-8-sig"}.get(form.encoding, form.encoding)
    lines = io.StringIO(content.decode(encoding), newline="")
    names, *rows = csv.reader(lines, delimiter=delimiter(ending, form), strict=True)
    assert {len(row) for row in rows} == {len(names)}
    return names, [list(column) for column in zip(*rows, strict=True)]


def run_once(folder, seed):
    """One run on random cells; what was read back must be what was written."""
    draw = random.Random(seed)
    form = draw.choice([*FORMS])
    start, end = draw.choice(FORMATS), draw.choice(FORMATS)
    n, new, out = draw.randint(1, 6), f"{folder}/new{start}", f"{folder}/out{end}"
    others = {f"{i}{text(draw, form)}": [text(draw, form) for _ in range(n)] for i in range(3)}
    numbers = [draw.choice([draw.gauss(0, 1), 1e-300, 1e22, -0.0, 7.0]) for _ in range(n)]
    number_texts = [repr(value).replace(".", form.decimal) for value in numbers]
    pairs = [*others.items(), ("y_pred", numbers if start == ".parquet" else number_texts)]
    draw.shuffle(pairs)
    names, columns = map(list, zip(*pairs, strict=True))
    written(new, start, form, names, columns, draw)
    written(f"{folder}/cal.parquet", ".parquet", form, ["y", "y_pred"], [Y, Y_PRED], draw)
    args = ["--calibration", f"{folder}/cal.parquet", "--new", new, "--output", out]
    args += ["--target", "y", "--prediction", "y_pred", "--method", "split", "--quiet"]
    interval.main([*args, *FORMS[form]], standalone_mode=False)
    got_names, got = read_back(out, end, form)
    assert got_names == [*names, "lower", "upper"]
    wanted = number_texts if end != ".parquet" else numbers
    for name, column in zip(names, got, strict=False):
        assert column == (wanted if name == "y_pred" else others[name]), (seed, start, end, name)
    radius = Split().fit(np.zeros((12, 1)), abs(Y - Y_PRED)).predict_radius(np.zeros((n, 1)), 0.9)
    ends = AbsoluteError().invert(np.array(numbers), radius)
    for column, expected in zip(got[-2:], ends, strict=True):
        values = [float(str(cell).replace(",", ".")) for cell in column]
        assert values == expected.tolist(), (seed, start, end)
    with open_table(new, form) as table:
        chunks = list(table.chunks())
        for name in others:
            assert [label for chunk in chunks for label in chunk.labels(name)] == others[name]
    return start, end


@pytest.mark.parametrize("part", range(2))
def test_random_cells_read_back_equal_in_all_pairs_of_formats(tmp_path, part):
    tried = {run_once(tmp_path, seed) for seed in range(part, 240, 2)}
    assert len(tried) > 20


def test_the_same_rows_give_the_same_bytes(calliper, files, base):
    for name in ("one.csv.gz", "two.csv.gz"):
        done = calliper(*base[:-1], name, "--new", "new.csv", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
    one, two = ((files / name).read_bytes() for name in ("one.csv.gz", "two.csv.gz"))
    assert one == two and len(one) < 0.7 * len(gzip.decompress(one))


def test_a_file_as_a_german_excel_writes_it(calliper, files, base):
    (files / "cal.csv").write_text("y;y_pred;größe\n" + "1,5;1,0;2,5\n2,0;1,0;3\n" * 10, "cp1252")
    (files / "new.csv").write_text("größe;y_pred;text\n2,75;1,25;a, b\n", "cp1252")
    options = ["--new", "new.csv", "--features", "größe", "--coverage", "0.5"]
    done = calliper(*base, *options, "--decimal", ",", "--encoding", "cp1252", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = (files / "out.csv").read_text("cp1252").splitlines()
    assert first == "größe;y_pred;text;lower;upper"
    assert second.startswith("2,75;1,25;a, b;0,") and second.count(",") == 5


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_enough(calliper, files, base, encoding):
    for name in ("cal.csv", "new.csv"):
        (files / name).write_text((files / name).read_text(), encoding)
    done = calliper(*base, "--new", "new.csv", "--features", "a", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert (files / "out.csv").read_bytes()[:2] == (files / "new.csv").read_bytes()[:2]
    assert (files / "out.csv").read_text(encoding).startswith("id,a,b,y,y_pred,lower,upper\n")
    assert calliper(*base[:-1], "out.tsv", "--new", "new.csv", "--quiet").returncode == 0
    assert (files / "out.tsv").read_text(encoding).startswith("id\ta\tb")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--delimiter ab", "--delimiter 'ab': must be one character"),
        ("--delimiter 1", "must be one character"),
        ("--delimiter -", "must be one character"),
        ("--decimal , --delimiter ,", "--decimal , needs a --delimiter other than a comma"),
        ("--encoding klingon", "--encoding 'klingon': must be an encoding that Python knows"),
        ("--encoding latin2x", "knows, such as utf-8, latin-1, utf-16, cp1252."),
        ("--new zipped.csv", "compressed with gzip; name it zipped.csv.gz, or unpack it."),
        ("--new unmarked-le.csv", "unmarked-le.csv, line 1 or below: not UTF-8"),
        ("--new unmarked-be.csv", "unmarked-be.csv, line 1 or below: not UTF-8"),
        ("--encoding hex", "must be an encoding that Python knows"),
        ("--encoding idna", "must be an encoding that Python knows"),
        ("--encoding punycode", "must be an encoding that Python knows"),
        ("--encoding utf-16", "not UTF-16"),
        ("--decimal ,", "if ',' separates cells, use --delimiter ','"),
        ("--new torn.csv.gz", "cannot read torn.csv.gz as .csv.gz: Compressed file ended"),
        ("--new cal.csv.gz", "cannot read cal.csv.gz as .csv.gz: Not a gzipped file"),
        (
            "--new points.csv --decimal ,",
            "'1.5' is not a number (if its point is a decimal",
        ),
        ("--new commas.csv", "'1,5' is not a number (if its comma is a decimal separator, use"),
        ("--new wide.parquet --encoding latin-1", "latin-1 cannot encode '日': use --encoding"),
    ],
)
def test_bad_forms(calliper, files, base, leftovers, options, words):
    (files / "torn.csv.gz").write_bytes(gzip.compress((files / "new.csv").read_bytes())[:-20])
    (files / "cal.csv.gz").write_bytes((files / "cal.csv").read_bytes())
    (files / "zipped.csv").write_bytes(gzip.compress((files / "new.csv").read_bytes()))
    for order in ("le", "be"):
        (files / f"unmarked-{order}.csv").write_text("y_pred,Höhe\n1,2\n", f"utf-16-{order}")
    (files / "points.csv").write_text("y_pred;a\n1.5;1\n")
    (files / "commas.csv").write_text('y_pred,a\n"1,5",1\n')
    pq.write_table(pa.table({"y_pred": [1.0], "text": ["日"]}), files / "wide.parquet")
    if "points" in options:
        (files / "cal.csv").write_text("y;y_pred\n1,5;1\n2;1\n")
    done = calliper(*base, "--new", "new.csv", *options.split())
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr
    assert not (files / "out.csv").exists() and leftovers() == []


def with_gaps(path, column, places, mark=""):
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    for place in places:
        rows[place][header.index(column)] = mark
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")


def test_gaps_of_features_get_the_training_median(calliper, files, base):
    """As embed="auto" does in Python."""
    args = [*base, "--new", "new.csv", "--features", "a,b", "--training", "train.csv"]
    _, *rows = csv.reader((files / "train.csv").read_text().splitlines())
    median = repr(float(np.median([float(row[1]) for row in rows])))
    for name in ("cal.csv", "new.csv"):
        with_gaps(files / name, "a", [3, 7], median)
    assert calliper(*args, "--quiet").returncode == 0
    expected = [row[-2:] for row in csv.reader((files / "out.csv").read_text().splitlines())]
    for name, marks in (("cal.csv", ("", "NaN")), ("new.csv", ("NA", " null "))):
        for place, mark in zip((3, 7), marks, strict=True):
            with_gaps(files / name, "a", [place], mark)
    done = calliper(*args)
    assert done.returncode == 0
    assert (
        "note: 4 missing feature values were filled with the median of the training" in done.stderr
    )
    got = list(csv.reader((files / "out.csv").read_text().splitlines()))
    assert [row[-2:] for row in got] == expected
    assert (got[4][1], got[8][1]) == ("NA", " null ")  # the rows keep their words
    done = calliper(*args, "--missing", "error")
    assert done.returncode == 2 and "cal.csv, line 5, column 'a': the cell is empty" in done.stderr
    assert "calibrate with --training FILE without --missing error" in done.stderr
    assert calliper(*[*args[:-2], "--quiet"]).returncode == 2
    assert calliper(*args, "--output", "out.parquet", "--quiet").returncode == 0
    assert pq.read_table(files / "out.parquet").column("a").null_count == 2


def test_gaps_in_parquet_in_training_rows_and_in_the_other_commands(calliper, files):
    for name in ("cal.csv", "new.csv", "train.csv"):
        with_gaps(files / name, "b", [0, 2, 9])
    data = [
        "--target",
        "y",
        "--prediction",
        "y_pred",
        "--features",
        "a,b",
        "--training",
        "train.csv",
    ]
    done = calliper("compare", "--calibration", "cal.csv", "--test", "new.csv", *data)
    assert done.returncode == 0, done.stderr
    assert "note: 9 missing feature values" in done.stderr
    tune = ["tune", "--calibration", "cal.csv", *data, "--output", "t.calliper"]
    tune += ["--length-scales", "0.3,1"]
    assert calliper(*tune).returncode == 0
    rows = [
        [float(cell or "nan") for cell in row]
        for row in csv.reader((files / "new.csv").read_text().splitlines()[1:])
    ]
    columns = dict(zip(("id", "a", "b", "y", "y_pred"), zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns), files / "new.parquet")
    args = ["interval", "--calibrated", "t.calliper", "--quiet"]
    for new, out in (("new.csv", "one.csv"), ("new.parquet", "two.csv")):
        assert calliper(*args, "--new", new, "--output", out).returncode == 0
    one, two = (
        list(csv.reader((files / f).read_text().splitlines())) for f in ("one.csv", "two.csv")
    )
    assert [row[-2:] for row in one] == [row[-2:] for row in two]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        count = int(sys.argv[1])
        pairs = {run_once(name, 1_000_000 + seed) for seed in range(count)}
    sys.stdout.write(f"{count} runs read back equal, {len(pairs)} pairs of formats\n")
