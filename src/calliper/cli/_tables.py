"""Tables in files: which format a name stands for, and what every format offers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from calliper._types import FloatArray
from calliper.cli._csv import CsvTable
from calliper.cli._csv_writer import CsvWriter
from calliper.exceptions import CalliperError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_FORMATS = (*_DELIMITERS, ".parquet")


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
