"""Tables in files: their form, the roles of columns, and reading of rows."""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import numpy as np

from calliper._types import FloatArray
from calliper.cli._output import note
from calliper.exceptions import CalliperError

if TYPE_CHECKING:  # pyarrow is not loaded before a file is read
    from calliper.cli._formats import Chunk, TableFile

FORMATS = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")

#: Labels of rows; None where a cell is empty, or for a column that was not named.
Labels = list[str | None] | None


@dataclass(frozen=True)
class Form:
    """The form of text files; with ``fills``, training rows fill missing feature values."""

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    zipped: bool = False
    fills: bool = True

    def of(self, extension: str) -> Form:
        """The form with what the extension says: tabs, compression."""
        delimiter = "\t" if extension.startswith(".tsv") else self.delimiter
        return replace(self, delimiter=delimiter, zipped=extension.endswith(".gz"))


def format_of(path: str) -> str:
    """The extension, which must be a known one; ``-`` is CSV."""
    for extension in FORMATS:
        if path == "-" or path.lower().endswith(extension):
            return extension
    known = ", ".join(FORMATS)
    raise CalliperError(f"{path}: the name must end in {known}; save a workbook as .csv.")


@contextmanager
def open_table(path: str, form: Form) -> Iterator[TableFile]:
    """The table in a file; ``-`` is CSV on standard input."""
    from calliper.cli._formats import CsvTable, ParquetTable

    kind = ParquetTable if format_of(path) == ".parquet" else CsvTable
    with _open_bytes(path) as handle:
        table = kind(handle, path, form.of(format_of(path)))
        for name, count in Counter(table.columns).items():
            if count > 1:
                raise CalliperError(f"{path}: column {name!r} occurs more than once; rename it.")
        yield table


def _open_bytes(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    if os.path.isdir(path):
        raise CalliperError(f"cannot read {path}: it is a folder; name a file in it.")
    try:
        return open(path, "rb")
    except OSError as error:
        raise CalliperError(f"cannot read {path}: {error.strerror}; check the name.") from error


def open_writer(
    path: str, handle: BinaryIO, table: TableFile, form: Form, added: list[str], numeric: list[str]
) -> AbstractContextManager[Callable[[Chunk, FloatArray], None]]:
    """Writes chunks of ``table`` with ``added`` columns of numbers, in the format of ``path``."""
    from calliper.cli._formats import csv_writer, parquet_writer

    if format_of(path) == ".parquet":
        return parquet_writer(handle, table, added, numeric)
    return csv_writer(handle, table, added, form.of(format_of(path)))


@dataclass(eq=False)
class Filling:
    """What fills missing values in the last ``n_features`` columns; without medians, an error."""

    n_features: int = 0
    medians: FloatArray = field(default_factory=lambda: np.empty(0))
    n_filled: int = 0

    def say(self) -> None:
        """Print how many cells were filled, if any."""
        if self.n_filled:
            what = f"{self.n_filled:,} missing feature values were filled with the median"
            note(f"note: {what} of the training rows (--missing error stops instead)")

    def numbers(self, chunk: Chunk, needed: Sequence[str]) -> FloatArray:
        """The needed columns of a chunk, with missing features filled."""
        columns = [chunk.floats(name) for name in needed]
        nothing = np.full(len(chunk), np.inf)
        values = np.stack([nothing if each is None else each for each in columns], axis=1)
        first = values.shape[1] - self.n_features
        allowed = np.isnan(values)
        allowed[:, : first if len(self.medians) else None] = False
        for row, column in np.argwhere(~np.isfinite(values) & ~allowed)[:1].tolist():
            _refuse_cell(chunk, row, needed[column], is_feature=column >= first)
        return self.fill(values)

    def fill(self, rows: FloatArray) -> FloatArray:
        """The rows with missing features filled, in place."""
        features = rows[:, rows.shape[1] - len(self.medians) :]
        gaps = np.isnan(features)
        self.n_filled += int(gaps.sum())
        np.copyto(features, self.medians, where=gaps)
        return rows


def _refuse_cell(chunk: Chunk, row: int, name: str, *, is_feature: bool) -> NoReturn:
    """Say where a cell without a finite number is, and what to do about it."""
    values, where = chunk.floats(name), f"column {name!r}"
    if values is None:
        wrong = f"holds {chunk.table.schema.field(name).type}, not numbers"
        remedy = "name a column of numbers, or convert this one"
    else:
        where, wrong = f"{chunk.where(row)}, {where}", chunk.why(row, name)
        remedy = "fix or remove the row"
    if is_feature:
        remedy += ", or leave the column out of --features"
    if is_feature and values is not None and np.isnan(values[row]):
        how = "" if chunk.table.form.fills else " without --missing error"
        filled = f"calibrate with --training FILE{how} to fill missing values with its medians"
        remedy = f"{filled}, or {remedy}"
    raise CalliperError(f"{chunk.table.name}, {where}: {wrong}; {remedy}.")


@dataclass(frozen=True)
class Columns:
    """Columns by their roles, which calibration rows and new rows must have.

    Features are named one by one or by a prefix, or the prediction stands in for them, alone.
    """

    target: str
    prediction: str
    features: tuple[str, ...]
    prefix: str | None = None
    alone: bool = False
    group: str | None = None
    weight: str | None = None

    @property
    def known(self) -> list[str]:
        """What a table with known targets must have: target, prediction, features."""
        return [self.target, *self.new]

    @property
    def new(self) -> list[str]:
        """What a table of new rows must have: prediction, features."""
        return [self.prediction, *self.features]

    def numbers(self, columns: list[str]) -> list[str]:
        """These columns, after the one of weights, if there is one."""
        return columns if self.weight is None else [self.weight, *columns]

    def check(self, table: TableFile, added: list[str]) -> None:
        """Refuse new rows that lack what is needed, or have what would be added."""
        require_columns(table, [*self.numbers(self.new), self.group])
        known = {*self.features}
        for name in table.columns:
            by_prefix = self.prefix is not None and name.startswith(self.prefix)
            if by_prefix and name not in known:
                what = "is a feature by its prefix, but the calibration file has none of this name"
                raise CalliperError(f"{table.name}: column {name!r} {what}; rename it.")
            if name in added:
                what = f"already has a column {name!r}, which is to be added"
                raise CalliperError(f"{table.name}: {what}; rename it.")


def split_names(text: str) -> list[str]:
    """Names separated by commas; one that contains a comma stands in quotation marks."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names or len(set(names)) < len(names):
        raise CalliperError(f"--features {text!r}: names must differ, as in --features a,b,c.")
    return names


def require_columns(table: TableFile, needed: Sequence[str | None]) -> None:
    present = {*table.columns, None}
    for name in needed:
        if name not in present:
            raise CalliperError(f"{table.name}: no column {name!r}; {there_are(table)}.")


def there_are(table: TableFile) -> str:
    names = table.columns
    text = f"its columns are {listed(names)}"
    if len(names) == 1 and (signs := [sign for sign in ";\t|," if sign in names[0]]):
        return f"{text}: if {signs[0]!r} separates cells, use --delimiter {signs[0]!r}"
    return text


def listed(names: Sequence[str], most: int = 20) -> str:
    """The first of the names, and how many more there are."""
    more = len(names) - most
    return ", ".join(map(repr, names[:most])) + (f" and {more} more" if more > 0 else "")


def refuse_no_rows(table: TableFile) -> None:
    raise CalliperError(f"{table.name}: there are columns but no rows; at least one is needed.")


def known_labels(chunk: Chunk, label: str) -> list[str | None]:
    """A column as text without outer blanks; None if nothing remains."""
    return [text.strip() or None for text in chunk.labels(label)]


def read_rows(
    table: TableFile, needed: Sequence[str], filling: Filling, *names: str | None
) -> tuple[FloatArray, list[Labels]]:
    """The needed columns of all rows, at least one, and labels; None for names that are None."""
    require_columns(table, [*needed, *names])
    labels: list[Labels] = [None if name is None else [] for name in names]
    numbers = []
    for chunk in table.chunks([*needed, *filter(None, names)]):
        numbers.append(filling.numbers(chunk, needed))
        for name, texts in zip(names, labels, strict=True):
            if name is not None and texts is not None:
                texts += known_labels(chunk, name)
    if not numbers:
        refuse_no_rows(table)
    return np.concatenate(numbers), labels


def read_training(
    path: str | None, columns: Columns, form: Form
) -> tuple[FloatArray | None, Filling]:
    """Training rows, (n, 2 + d): target, prediction, features; and how they fill cells."""
    n_features = len(columns.features)
    filling = Filling(n_features, np.full(n_features if path and form.fills else 0, np.nan))
    if path is None:
        return None, filling
    with open_table(path, form) as table:
        rows, _ = read_rows(table, columns.known, filling)
    if form.fills:
        known = [column[~np.isnan(column)] for column in rows[:, 2:].T]
        medians = [np.median(values) if len(values) else 0.0 for values in known]
        filling = Filling(n_features, np.array(medians))
    return filling.fill(rows), filling
