"""Tables in files: formats, columns by the part they play, and rows with known targets."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from calliper._calibrated import StoredRows
from calliper._types import FloatArray
from calliper.cli._csv import CsvTable, CsvWriter
from calliper.exceptions import CalliperError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_FORMATS = (*_DELIMITERS, ".parquet")

#: Names that an error message lists before it only counts.
_LISTED = 20


class Chunk(Protocol):
    """Some consecutive rows: the numbers that were asked for, and the rest as it came."""

    @property
    def numbers(self) -> FloatArray: ...

    def texts(self, delimiter: str) -> list[str]: ...

    def arrow(self, schema: Any) -> Any: ...


class Table(Protocol):
    """A table that is read from first to last, once."""

    name: str
    columns: list[str]
    newline: str

    def chunks(self, needed: Sequence[str], *, carry: bool) -> Iterator[Chunk]: ...

    def header(self, delimiter: str) -> str: ...

    def schema(self, numeric: Sequence[str]) -> Any: ...

    def fraction_read(self) -> float | None: ...


class Writer(Protocol):
    """Takes chunks, adds columns of numbers to them and writes both."""

    def write(self, chunk: Chunk, added: FloatArray) -> None: ...

    def close(self) -> None: ...


def format_of(path: str) -> str:
    """The extension, if it is one that can be read and written; ``-`` is CSV."""
    extension = ".csv" if path == "-" else Path(path).suffix.lower()
    if extension not in _FORMATS:
        raise CalliperError(f"{path}: the name must end in {', '.join(_FORMATS)}; rename it.")
    return extension


@contextmanager
def open_table(path: str) -> Iterator[Table]:
    """The table in a file; ``-`` is CSV on standard input."""
    extension = format_of(path)
    with _open(path) as handle:
        table = _table(handle, path, extension)
        repeated = [name for name in dict.fromkeys(table.columns) if table.columns.count(name) > 1]
        if repeated:
            raise CalliperError(f"{path}: column {repeated[0]!r} occurs more than once; rename it.")
        yield table


def read_numbers(table: Table, needed: Sequence[str]) -> FloatArray:
    """The needed columns of the whole table, (n, number of columns); at least one row."""
    parts = [chunk.numbers for chunk in table.chunks(needed, carry=False)]
    if not parts:
        refuse_no_rows(table)
    return np.concatenate(parts)


def refuse_no_rows(table: Table) -> None:
    """A header with nothing below it is a mistake of whoever wrote the file."""
    raise CalliperError(f"{table.name}: there are columns but no rows; at least one is needed.")


def make_writer(
    path: str, handle: BinaryIO, table: Table, numeric: Sequence[str], added: Sequence[str]
) -> Writer:
    """What writes the rows of ``table`` with ``added`` columns, in the format of ``path``."""
    extension = format_of(path)
    if extension in _DELIMITERS:
        return CsvWriter(handle, table, added, _DELIMITERS[extension])
    from calliper.cli._parquet import ParquetWriter

    return ParquetWriter(handle, table.schema(numeric), added)


@dataclass(frozen=True)
class Columns:
    """Names of the target, the prediction and the features in which nearness is judged."""

    target: str
    prediction: str
    features: tuple[str, ...]

    @property
    def known(self) -> list[str]:
        """What a table with known targets must have: target, prediction, features."""
        return [self.target, *self.new]

    @property
    def new(self) -> list[str]:
        """What a table of new rows must have: prediction, features."""
        return [self.prediction, *self.features]


@dataclass(frozen=True)
class Names:
    """Columns as the options name them: features by a list, by a prefix or not at all."""

    target: str
    prediction: str
    features: str | None = None
    prefix: str | None = None

    def check(self) -> None:
        """Refuse names that contradict one another."""
        if self.target == self.prediction:
            raise CalliperError(
                f"--target and --prediction are both {self.target!r}: name two columns."
            )
        if self.features is not None and self.prefix is not None:
            raise CalliperError("--features and --features-prefix exclude one another: give one.")

    @property
    def judges_by_prediction(self) -> bool:
        """Whether nothing was said about features."""
        return self.features is None and self.prefix is None

    def resolve(self, calibration: Table) -> Columns:
        """The columns; a prefix is filled in by the calibration table."""
        features = [self.prediction]
        if self.features is not None:
            features = split_names(self.features)
        elif self.prefix is not None:
            features = [name for name in calibration.columns if name.startswith(self.prefix)]
            if not features:
                raise CalliperError(
                    f"{calibration.name}: no column starts with {self.prefix!r}; "
                    f"{_listed(calibration)}."
                )
        if self.target in features:
            raise CalliperError(
                f"the features include the target {self.target!r}, which new rows do not have: "
                f"leave it out."
            )
        return Columns(self.target, self.prediction, tuple(features))

    def require_same_features(self, table: Table, columns: Columns) -> None:
        """No column has the prefix in this table but not in the calibration table."""
        if self.prefix is None:
            return
        for name in table.columns:
            if name.startswith(self.prefix) and name not in columns.features:
                raise CalliperError(
                    f"{table.name}: column {name!r} is a feature by its prefix, but the "
                    f"calibration file has none of this name; give both the same features."
                )


def split_names(text: str) -> list[str]:
    """Names separated by commas; one that contains a comma stands in quotation marks."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names or len(set(names)) < len(names):
        raise CalliperError(f"--features {text!r}: give different names, as in --features a,b,c.")
    return names


def require_columns(table: Table, needed: Sequence[str]) -> None:
    """Every needed column is in the table."""
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise CalliperError(f"{table.name}: no column {missing[0]!r}; {_listed(table)}.")


def refuse_columns(table: Table, added: Sequence[str]) -> None:
    """No column is in the table that is about to be added."""
    present = [name for name in added if name in table.columns]
    if present:
        raise CalliperError(
            f"{table.name}: has a column {present[0]!r} already, which would be added; rename it."
        )


def read_known(path: str | None, columns: Columns) -> FloatArray | None:
    """Rows with known targets, (n, 2 + d): target, prediction, features; None without a file."""
    if path is None:
        return None
    with open_table(path) as table:
        require_columns(table, columns.known)
        return read_numbers(table, columns.known)


def stored(known: FloatArray) -> StoredRows:
    """Rows of :func:`read_known` by their parts."""
    return StoredRows(X=known[:, 2:], y=known[:, 0], y_pred=known[:, 1])


def _table(handle: BinaryIO, path: str, extension: str) -> Table:
    if extension in _DELIMITERS:
        return CsvTable(handle, path, _DELIMITERS[extension])
    from calliper.cli._parquet import ParquetTable

    return ParquetTable(handle, path)


def _open(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    if os.path.isdir(path):
        raise CalliperError(f"cannot read {path}: it is a folder; name a file in it.")
    try:
        return open(path, "rb")
    except OSError as error:
        raise CalliperError(f"cannot read {path}: {error.strerror}; check the name.") from error


def _listed(table: Table) -> str:
    names, more = table.columns[:_LISTED], len(table.columns) - _LISTED
    text = "there are " + ", ".join(map(repr, names)) + (f" and {more} more" if more > 0 else "")
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        return f"{text}: separate cells by commas in .csv and by tabs in .tsv"
    return text
