"""Tables that go wrong in every way a table can, given to the command line.

Each number makes one run of the real command, in this process: a table of a few rows, written as
CSV or Parquet with something odd about it, then perhaps damaged byte by byte. Right is one of two
ends: exit code 0 and an output that has every row of its input, its cells unchanged, with intervals
that are numbers or infinite and not upside down; or exit code 2, one line that says what is wrong,
and a folder as it was before. Found is all else: a traceback, another exit code, more than 10
seconds, NaN, a file half written or left over.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import random
import shutil
import signal
import sys
import traceback
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calliper
from calliper.cli import _interval, main
from calliper.cli._calibration import load_calibration

#: Seconds of processor time that a run may take; ``compare`` and ``tune`` need some.
MOST_SECONDS = 10

#: What the columns are: target, prediction, features, group, weight, and something to carry.
COLUMNS = ["y", "p", "f_a", "f_b", "g", "w", "note"]

#: Cells where a number is expected.
CELLS = [
    "", " ", "nan", "NaN", "NA", "n/a", "null", "None", "inf", "-inf", "Infinity", "+1", "-0", "1e5", "1E-400",
    "1e400", "1_000", "1,5", "1.5", "1.234,5", "0x10", "1e", "١٢", "½", "1" * 400, "-" + "9" * 5000, "1.7976931348623157e308",
    "5e-324", "=1+1", "abc", '"', "a\nb", "a\r\nb", "x,y", "x;y", "\t", "\x00", "\ufeff1", "Zürich", "😀", "\udcff", "TRUE",
    "1" + " " * 30, " 2 ", "2\u00a0", "1e150", "-1e302", "1e307", "0", "0.0", "1d5", "１２", "'5'", "#N/A", "1" + "0" * 309,
]  # fmt: skip
NAMES = ["", " ", "p ", " p", "P", "lower", "upper", "lower_0.5", "f_", "f_c", "y", "p", "a,b", 'a"b', "a\nb", "\ufeffp",
         "é", "e\u0301", "😀", "x" * 3000, "\x00", "None", "0", "__index_level_0__"]  # fmt: skip
ENCODINGS = ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "ascii", "utf-7",
             "cp037", "shift_jis", "utf8", "idna", "punycode", "hz", "unicode_escape"]  # fmt: skip

#: What is kept by ``calliper calibrate`` beforehand: its options.
KEPT = {
    "split": ["--method", "split"],
    "full": [],
    "features": ["--features-prefix", "f_"],
    "groups": ["--group", "g", "--features", "f_a,f_b"],
    "weights": ["--weight", "w", "--method", "split"],
    "taught": ["--training", "train.csv", "--features-prefix", "f_", "--method", "mad-split"],
}
METHODS = ["split", "full", "jackknife", "minmax", "lcp", "rlcp", "conditional", "mad-split", "slcp", "rcp",
           "normalized-knn", "locart"]  # fmt: skip
BYTES = [
    b"\x00",
    b'"',
    b"\n",
    b"\r",
    b",",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"PAR1",
    b"\xc3",
    b"\x1a",
]


class Hang(BaseException):
    """The time is up; nothing in the program catches this."""


def good_rows(rng, n):
    """A table as texts: header and rows."""
    numbers = [
        [f"{rng.choice([rng.random(), rng.randrange(4), 0.5])}" for _ in "ypab"] for _ in range(n)
    ]
    extra = [
        [rng.choice("uv"), f"{rng.choice([1, 0.5, 2.5])}", rng.choice(["", "text", "7"])]
        for _ in range(n)
    ]
    return [[*COLUMNS], *(a + b for a, b in zip(numbers, extra, strict=True))]


def odd_rows(rng):
    """A table of a few rows, with none, one or several things wrong."""
    rows = good_rows(rng, rng.choice([0, 1, 2, 3, 5, 8, 20]))
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 4])):
        row, place = rng.randrange(len(rows)), rng.randrange(len(COLUMNS))
        how = rng.randrange(8)
        if how <= 2:
            rows[row] = [
                rng.choice(CELLS) if i == place else cell for i, cell in enumerate(rows[row])
            ]
        elif how == 3:
            rows[0] = [rng.choice(NAMES) if i == place else name for i, name in enumerate(rows[0])]
        elif how == 4:
            rows[row] = rng.choice(
                [rows[row][:place], [*rows[row], "more"], [], [""], rows[row] * 2]
            )
        elif how == 5:
            order = rng.sample(range(len(COLUMNS)), rng.randrange(len(COLUMNS) + 1))
            rows = [[each[i] for i in order if i < len(each)] for each in rows]
        elif how == 6:
            rows = rng.choice(
                [rows[:1], rows[1:], [], rows + rows[1:], [*rows, [], []], [[], *rows]]
            )
        else:
            long = rng.choice(["x", '"', ",", "9", "\n"]) * rng.choice([1000, 100_000])
            rows[row] = [long if i == place else cell for i, cell in enumerate(rows[row])]
        if not rows:
            break
    return rows


def as_text(rng, rows, delimiter, decimal):
    """CSV in some way that somebody writes it."""
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, None])
    end = rng.choice(["\n", "\n", "\r\n", "\r", "\n\n", "\u2028"])
    if decimal == ",":
        rows = (
            [rows[0], *([cell.replace(".", ",") for cell in row] for row in rows[1:])]
            if rows
            else rows
        )
    if quoting is None:  # as somebody writes it who has not heard of quotation marks
        text = "".join(delimiter.join(row) + end for row in rows)
    else:
        target = io.StringIO(newline="")
        csv.writer(target, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
        text = target.getvalue()
    return rng.choice(
        [text, text, text, text.rstrip("\r\n"), text + end, end + text, text.replace('"', "", 1)]
    )


def as_csv(rng, delimiter, decimal):
    """The bytes of a text file, and how its letters are stored."""
    text = as_text(rng, odd_rows(rng), delimiter, decimal)
    encoding = rng.choice(ENCODINGS) if rng.random() < 0.2 else "utf-8"
    try:
        data = text.encode(encoding, errors="surrogateescape")
    except (UnicodeError, ValueError):
        data = text.encode("utf-8", errors="surrogatepass")
    return (
        rng.choice([b"\xef\xbb\xbf", b"\xff\xfe"]) + data if rng.random() < 0.05 else data
    ), encoding


def _columns(n):
    """Columns of n values, of every type that Parquet has, by name."""
    count = range(n)
    moment = datetime(2024, 2, 29, 12, tzinfo=UTC)
    return {
        **{str(kind): lambda k=kind: pa.array(list(count), k) for kind in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
        **{str(kind): lambda k=kind: pa.array([i / 4 for i in count], k) for kind in (pa.float32(), pa.float64())},
        "float16": lambda: pa.array(np.arange(n, dtype=np.float16)),
        "nan": lambda: pa.array([math.nan if i % 2 else 1.0 for i in count], pa.float64()),
        "infinite": lambda: pa.array([math.inf if i == n - 1 else 1.0 for i in count], pa.float64()),
        "huge": lambda: pa.array([2**63 - 1 - i for i in count], pa.int64()),
        "null": lambda: pa.nulls(n), "some null": lambda: pa.array([None if i == 1 else 0.5 for i in count], pa.float64()),
        "all null": lambda: pa.nulls(n, pa.float64()), "boolean": lambda: pa.array([i % 2 == 0 for i in count], pa.bool_()),
        "text": lambda: pa.array([f"{i}.5" for i in count], pa.string()),
        "large text": lambda: pa.array(["é,\"\n" * i for i in count], pa.large_string()),
        "binary": lambda: pa.array([bytes([255, i]) for i in count], pa.binary()),
        "fixed": lambda: pa.array([bytes([i % 256, 0]) for i in count], pa.binary(2)),
        "decimal": lambda: pa.array([Decimal(i) / 4 for i in count], pa.decimal128(12, 3)),
        "wide decimal": lambda: pa.array([Decimal(10) ** 60 for i in count], pa.decimal256(70, 2)),
        "timestamp": lambda: pa.array([moment + timedelta(i) for i in count], pa.timestamp("ns", "Europe/Zurich")),
        "date": lambda: pa.array([date(2024, 1, 1)] * n, pa.date32()), "time": lambda: pa.array([time(1)] * n, pa.time64("us")),
        "duration": lambda: pa.array([timedelta(1)] * n, pa.duration("us")),
        "dictionary": lambda: pa.array([f"{i % 2}" for i in count]).dictionary_encode(),
        "numbers by dictionary": lambda: pa.array([i % 2 * 0.5 for i in count], pa.float64()).dictionary_encode(),
        "list": lambda: pa.array([[0.5] * i for i in count], pa.list_(pa.float64())),
        "struct": lambda: pa.array([{"a": i} for i in count], pa.struct([("a", pa.int64())])),
        "map": lambda: pa.array([[("k", i)] for i in count], pa.map_(pa.string(), pa.int64())),
        "fixed list": lambda: pa.array([[0.5, 1.0]] * n, pa.list_(pa.float64(), 2)),
    }  # fmt: skip


def as_parquet(rng):
    """The bytes of a Parquet file: sound, but perhaps with columns of other types than one expects."""
    n = rng.choice([0, 1, 2, 3, 5, 20])
    kinds = _columns(n)
    rows = good_rows(rng, n)[1:]
    table = {name: pa.array([float(row[i]) if i in (0, 1, 2, 3, 5) else row[i] for row in rows],
                            pa.string() if i in (4, 6) else pa.float64()) for i, name in enumerate(COLUMNS)}  # fmt: skip
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        name = rng.choice([*COLUMNS, *COLUMNS, rng.choice(NAMES)])
        table[name] = kinds[rng.choice([*kinds])]()
    names = [*table]
    if rng.random() < 0.1:
        names = rng.sample(names, rng.randrange(len(names)))
    if rng.random() < 0.03 and names:
        names.append(names[0])
    target = io.BytesIO()
    whole = pa.Table.from_arrays([table[name] for name in names], names=names)
    how = {"row_group_size": rng.choice([None, 1, 2]), "compression": rng.choice(["none", "snappy", "zstd", "gzip"]),
           "data_page_version": rng.choice(["1.0", "2.0"]), "use_dictionary": rng.random() < 0.7,
           "store_schema": rng.random() < 0.8, "write_statistics": rng.random() < 0.5}  # fmt: skip
    try:
        pq.write_table(whole, target, **how)
    except (pa.ArrowException, ValueError):  # what Parquet cannot hold
        pq.write_table(pa.table({"p": pa.array([0.5] * n, pa.float64())}), target)
    return target.getvalue()


def damaged(rng, data):
    """Bytes changed, cut off, repeated, or nothing but noise."""
    data, how = bytearray(data), rng.randrange(7)
    place = rng.randrange(len(data) + 1)
    if how == 0:
        for _ in range(rng.choice([1, 1, 3, 20])):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[place:]
    elif how == 2:
        del data[place : place + rng.choice([1, 4, 64])]
    elif how == 3:
        data[place:place] = rng.choice(BYTES) * rng.choice([1, 1, 5])
    elif how == 4:
        end = max(0, len(data) - rng.randrange(1, 600))  # of Parquet, the footer
        data[end : end + 4] = rng.choice([b"\xff" * 4, bytes(4), rng.randbytes(4)])
    elif how == 5:
        data[place:] = data[place // 2 :]
    else:
        data = bytearray(rng.choice([rng.randbytes(rng.randrange(300)), bytes(rng.randrange(9))]))
    return bytes(data)


def table_file(rng, stem, delimiter, decimal):
    """Write an odd table; its name, and the encoding that is true of it."""
    if rng.random() < 0.35:
        data, encoding, ending = as_parquet(rng), "utf-8", ".parquet"
        zipped = False
    else:
        data, encoding = as_csv(rng, delimiter, decimal)
        zipped = rng.random() < 0.05
        ending = (".tsv" if delimiter == "\t" else ".csv") + ".gz" * zipped
    if rng.random() < 0.25 and not zipped:
        data = damaged(rng, data)
    if zipped:
        data = gzip.compress(data, mtime=0)
        data = damaged(rng, data) if rng.random() < 0.3 else data
    if rng.random() < 0.01:
        ending = rng.choice([".csv", ".parquet", ".csv.gz", ".tsv", ".CSV"])
    Path(stem + ending).write_bytes(data)
    return stem + ending, encoding


def prepare(folder):
    """Go there, with good files to go with odd ones; what examines a number."""
    os.chdir(folder)
    pa.set_cpu_count(1)
    rng = random.Random(0)
    for name, n in (("cal", 30), ("train", 25), ("new", 3)):
        with open(f"{name}.csv", "w") as file:
            csv.writer(file).writerows(good_rows(rng, n))
    os.mkdir("kept")
    for name, options in KEPT.items():
        code, said, _ = called(["calibrate", "--calibration", "cal.csv", "--target", "y", "--prediction", "p",
                                *options, "--output", f"kept/{name}.calliper"])  # fmt: skip
        assert code == 0, said
    # Read once each: files that were tampered with are another campaign's.
    _interval.load_calibration = cache(load_calibration)
    return examine


def arguments(rng):
    """One command, its odd files written; what it was, what is read row by row, and the output."""
    delimiter, decimal = rng.choices(
        [(",", "."), (";", "."), ("\t", "."), (";", ","), ("|", ".")], [6, 1, 1, 1, 1]
    )[0]
    form = ["--delimiter", delimiter] if rng.random() < 0.97 else []
    form += ["--decimal", decimal] if decimal == "," else []
    good = delimiter == "," and decimal == "."
    kind = rng.choices(
        ["kept", "both", "known", "calibrate", "training", "slow"], [70, 7, 7, 12, 4, 0.1]
    )[0]
    odd, encoding = table_file(rng, "odd", delimiter, decimal)
    if encoding != "utf-8" and rng.random() < 0.8 and kind != "slow":
        form += ["--encoding", encoding]
        good = False
    columns = ["--target", "y", "--prediction", "p"]
    method = ["--method", rng.choice(METHODS)] if rng.random() < 0.7 else []
    what = rng.choice(
        [
            [],
            ["--features", "f_a,f_b"],
            ["--features-prefix", "f_"],
            ["--group", "g"],
            ["--weight", "w"],
        ]
    )
    output = f"out/{kind}" + rng.choice([".csv", ".csv", ".csv", ".parquet", ".tsv", ".csv.gz"])
    asked = []
    for level in rng.choice([[], [], [0.5], [0.5, 0.95], [1 / 3, 0.999]]):
        asked += ["--coverage", f"{level}"]
    asked += rng.choice(
        [[], [], [], ["--bounds", "0", "1"], ["--bounds", "-inf", "0.25"], ["--confidence", "0.9"]]
    )
    if kind == "kept":
        name = f"kept/{rng.choice([*KEPT])}.calliper"
        return (
            ["interval", "--calibrated", name, "--new", odd, "--output", output, *asked, *form],
            odd,
            output,
        )
    if kind == "known":
        other = "new.csv" if good else odd
        given = ["--calibration", odd, "--new", other, "--output", output]
        return ["interval", *given, *columns, *method, *what, *asked, *form], other, output
    if kind == "both":
        new, _ = table_file(rng, "new-odd", delimiter, decimal)
        given = ["--calibration", odd, "--new", new, "--output", output]
        return ["interval", *given, *columns, *method, *what, *asked, *form], new, output
    if kind == "training":
        given = [
            "--calibration",
            "cal.csv",
            "--training",
            odd,
            "--new",
            "new.csv",
            "--output",
            output,
        ]
        method = [
            "--method",
            rng.choice(["mad-split", "slcp", "rcp", "locart", "normalized-knn", "full"]),
        ]
        return ["interval", *given, *columns, *method, *what, *asked, *form], "new.csv", output
    if kind == "slow":
        name = rng.choice(["compare", "tune"])
        then = (
            ["--test", "new.csv", "--output", "out/page.html"]
            if name == "compare"
            else ["--output", "out/tuned.calliper"]
        )
        training = ["--training", "train.csv"] if name == "tune" else []
        return [name, "--calibration", odd, *columns, *training, *then, *form], None, then[-1]
    output = "out/odd.calliper"
    training = ["--training", "train.csv"] if good and rng.random() < 0.3 else []
    return (
        [
            "calibrate",
            "--calibration",
            odd,
            *training,
            *columns,
            *method,
            *what,
            "--output",
            output,
            *form,
        ],
        None,
        output,
    )


def called(words):
    """Exit code, what standard error said, and what standard output did."""
    streams, before = (io.StringIO(), io.StringIO()), (sys.argv, sys.stdout, sys.stderr)
    sys.argv, sys.stdout, sys.stderr = ["calliper", *words], *streams
    try:
        code = main()
    finally:
        sys.argv, sys.stdout, sys.stderr = before
    return code, streams[1].getvalue(), streams[0].getvalue()


def examine(number):
    """What is wrong with how the run of a number ended; '' if nothing is, and how it ended."""
    rng = random.Random(number)
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    for path in Path().glob("*odd*"):
        path.unlink()
    words, carried, output = arguments(rng)
    old = rng.random() < 0.1
    if old:
        Path(output).write_bytes(b"old")
    ended = f"{words[0]}{'' if words[1] != '--calibrated' else ' kept'}"
    signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        code, said, printed = called(words)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if code == 0:
            return _wrong_output(words, carried, output), f"{ended} done"
        return _wrong_refusal(code, said, printed, output, old), f"{ended} refused"
    except (Exception, Hang, SystemExit) as error:
        places = [
            f"{Path(at.filename).name}:{at.lineno}"
            for at in traceback.extract_tb(error.__traceback__)[-3:]
        ]
        return (
            f"{type(error).__name__} {error!s:.100} {' '.join(places)}; {' '.join(words)}",
            f"{ended} raised",
        )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _ring(number, frame):
    raise Hang(f"more than {MOST_SECONDS} seconds")


def _wrong_refusal(code, said, printed, output, old):
    if code != 2:
        return f"exit code {code}: {said[:200]}"
    if not said.startswith("calliper: error: ") or said.count("\n") != 1 or len(said) < 30:
        return f"said: {said[:200]!r}"
    left = sorted(os.listdir("out"))
    if left != ([Path(output).name] if old else []) or (
        old and Path(output).read_bytes() != b"old"
    ):
        return f"refused, and left {left}"
    return f"printed {printed[:80]!r}" if printed else ""


def _wrong_output(words, carried, output):
    """What is wrong with what a run that succeeded has written."""
    if sorted(os.listdir("out")) != [Path(output).name]:
        return f"succeeded, and left {sorted(os.listdir('out'))}"
    if output.endswith(".calliper"):
        made = calliper.load(output).regressor.calibrator_
        return "" if made.n_calibration_ >= 1 else "kept nothing"
    if carried is None:
        return ""
    n_levels = max(1, words.count("--coverage"))
    usual = ";" if "--decimal" in words else ","
    delimiter, encoding = (
        _option(words, "--delimiter", usual),
        _option(words, "--encoding", "utf-8"),
    )
    before = read_again(carried, delimiter, encoding)
    after = read_again(output, delimiter, encoding)
    if len(after) != len(before):
        return f"{len(before) - 1} rows became {len(after) - 1}"
    kept_text = carried.endswith(".parquet") == output.endswith(".parquet")
    if kept_text and [row[: -2 * n_levels] for row in after] != before:
        return "cells were changed"
    comma = (
        "," if _option(words, "--decimal", ".") == "," and not output.endswith(".parquet") else "."
    )
    ends = np.array(
        [[float(f"{c}".replace(comma, ".")) for c in row[-2 * n_levels :]] for row in after[1:]]
    )
    if np.isnan(ends).any():
        return "an end is NaN"
    return "" if np.all(ends[:, ::2] <= ends[:, 1::2]) else "an interval is upside down"


def _option(words, name, otherwise):
    return words[words.index(name) + 1] if name in words else otherwise


def _values(column):
    """What is in a column; days that Python's calendar lacks as the texts that Arrow has."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        return column.cast("string").to_pylist()


def read_again(path, delimiter, encoding):
    """Header and rows of a file by other means than the command's."""
    data = Path(path).read_bytes()
    if path.lower().endswith(".parquet"):
        table = pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)
        columns = [_values(table.column(i)) for i in range(table.num_columns)]
        texts = [[repr(v) if v != v else v for v in column] for column in columns]
        return [table.column_names, *([*row] for row in zip(*texts, strict=True))]
    data = gzip.decompress(data) if path.endswith(".gz") else data
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        encoding = name if data.startswith(mark) else encoding
    text = io.StringIO(data.decode(encoding), newline="")
    delimiter = "\t" if ".tsv" in path.lower() else delimiter
    return [row for row in csv.reader(text, delimiter=delimiter, strict=True) if row]
