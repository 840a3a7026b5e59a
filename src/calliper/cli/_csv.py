"""CSV, streamed: rows keep their very text, and only needed cells are made into numbers.

Numbers that are added to the rows are written so that they read back exactly.
"""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from calliper._blocks import CHUNK_ROWS
from calliper._types import FloatArray
from calliper.exceptions import CalliperError

if TYPE_CHECKING:
    from calliper.cli._tables import Chunk, Table

#: Letters of text in a chunk, which bounds memory where rows are wide.
CHUNK_LETTERS = 1 << 24

#: Longest cell: room for a document, not for a whole file behind a forgotten quotation mark.
MAX_CELL = 1 << 26


class CsvTable:
    """A CSV file in UTF-8 with a header; lines that are empty are left out."""

    def __init__(self, handle: BinaryIO, name: str, delimiter: str) -> None:
        csv.field_size_limit(MAX_CELL)
        self.name, self.delimiter = name, delimiter
        self._size = _size(handle)
        self._text = io.TextIOWrapper(handle, encoding="utf-8", newline="")
        self._pending: list[str] = []  # lines of the record that is being read
        self._reader = csv.reader(self._lines(), delimiter=delimiter, strict=True)
        first = next(self._records(), None)
        if first is None:
            raise CalliperError(f"{name}: the file is empty; it needs a header and rows.")
        _, self.columns, raw = first
        self._header = raw.rstrip("\r\n")
        self.newline = raw[len(self._header) :] or "\n"

    def chunks(self, needed: Sequence[str], *, carry: bool) -> Iterator[CsvChunk]:
        """Rows in order; without ``carry`` their numbers only."""
        places = [self.columns.index(name) for name in needed]
        raws, cells, lines, letters = [], [], [], 0
        for line, record, raw in self._records():
            if len(record) != len(self.columns):
                raise CalliperError(
                    f"{self.name}, line {line}: {len(record)} cells, but the header has "
                    f"{len(self.columns)} columns; repair the line."
                )
            cells.extend([record[place] for place in places])
            lines.append(line)
            letters += len(raw)
            if carry:
                raws.append(raw.rstrip("\r\n"))
            if len(lines) == CHUNK_ROWS or letters > CHUNK_LETTERS:
                yield CsvChunk(self, needed, self._numbers(cells, needed, lines), raws)
                raws, cells, lines, letters = [], [], [], 0
        if lines:
            yield CsvChunk(self, needed, self._numbers(cells, needed, lines), raws)

    def header(self, delimiter: str) -> str:
        """The first line, without its end."""
        if delimiter == self.delimiter:
            return self._header
        return csv_texts([self.columns], delimiter)[0]

    def schema(self, numeric: Sequence[str]) -> Any:
        """For Parquet: columns that were read as numbers are numbers, all others text."""
        import pyarrow as pa

        kinds = {name: pa.float64() for name in numeric}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in self.columns])

    def fraction_read(self) -> float | None:
        """How much of the file is behind us; unknown for a pipe."""
        return self._text.buffer.tell() / self._size if self._size else None

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(self._text):
            self._pending.append(line)
            yield line.removeprefix("\ufeff") if number == 0 else line

    def _records(self) -> Iterator[tuple[int, list[str], str]]:
        """Line number, cells and text of every record."""
        line = self._reader.line_num + 1
        with self._readable():
            for cells in self._reader:
                raw = self._pending[0] if len(self._pending) == 1 else "".join(self._pending)
                self._pending.clear()
                if cells:
                    yield line, cells, raw
                line = self._reader.line_num + 1

    @contextmanager
    def _readable(self) -> Iterator[None]:
        where = f"{self.name}, line {{}}"
        try:
            yield
        except csv.Error as error:
            where = where.format(self._reader.line_num)
            raise CalliperError(f"{where}: {error}; check the quotation marks.") from error
        except UnicodeDecodeError as error:
            where = where.format(self._reader.line_num + 1)
            raise CalliperError(f"{where} or below: not UTF-8; save the file as UTF-8.") from error

    def _numbers(self, cells: list[str], needed: Sequence[str], lines: list[int]) -> FloatArray:
        values, wrong = finite_numbers(cells)
        if wrong is not None:
            line, column = lines[wrong // len(needed)], needed[wrong % len(needed)]
            raise CalliperError(
                f"{self.name}, line {line}, column {column!r}: {what_is_wrong(cells[wrong])}; "
                f"repair or remove the row."
            )
        return values.reshape(len(lines), len(needed))


@dataclass(frozen=True)
class CsvChunk:
    """Rows of a CSV file."""

    table: CsvTable
    needed: Sequence[str]
    numbers: FloatArray
    raws: list[str]

    def texts(self, delimiter: str) -> list[str]:
        """Each row as it stood in the file, or newly quoted for another delimiter."""
        if delimiter == self.table.delimiter:
            return self.raws
        return csv_texts(self._cells(), delimiter)

    def arrow(self, schema: Any) -> Any:
        """The rows as a record batch."""
        import pyarrow as pa

        numbers = dict(zip(self.needed, self.numbers.T, strict=True))
        texts = zip(self.table.columns, zip(*self._cells(), strict=True), strict=True)
        arrays = [pa.array(numbers.get(name, column)) for name, column in texts]
        return pa.record_batch(arrays, schema=schema)

    def _cells(self) -> Iterator[list[str]]:
        return csv.reader(self.raws, delimiter=self.table.delimiter, strict=True)


class CsvWriter:
    """Writes the rows of a table as CSV, in the table's own words where they are CSV already."""

    def __init__(
        self, handle: BinaryIO, table: Table, added: Sequence[str], delimiter: str
    ) -> None:
        self._handle, self._delimiter, self._newline = handle, delimiter, table.newline
        names = csv_texts([added], delimiter)[0]
        header = f"{table.header(delimiter)}{delimiter}{names}{self._newline}"
        self._handle.write(header.encode())

    def write(self, chunk: Chunk, added: FloatArray) -> None:
        """Write the rows of a chunk."""
        rows = zip(chunk.texts(self._delimiter), added.tolist(), strict=True)
        join, end = self._delimiter.join, self._newline
        lines = [f"{join([text, *map(repr, numbers)])}{end}" for text, numbers in rows]
        self._handle.write("".join(lines).encode())

    def close(self) -> None:
        """Nothing is left to write."""


def finite_numbers(cells: Sequence[str]) -> tuple[FloatArray, int | None]:
    """All cells as numbers, and the place of the first that is not a finite one, if any."""
    try:
        values = np.array(list(map(float, cells)))
        wrong = not np.isfinite(values).all()
    except ValueError:
        values, wrong = np.empty(0), True
    # Python reads 1_000 as a number; no program that writes CSV means that by it.
    if wrong or "_" in "".join(cells):
        return values, next(i for i, text in enumerate(cells) if what_is_wrong(text))
    return values, None


def what_is_wrong(text: str) -> str | None:
    """Why a cell is not a finite number, in words; ``None`` if it is one."""
    if not text.strip():
        return "the cell is empty"
    try:
        number = float(text)
    except ValueError:
        return f"{text!r} is not a number"
    if "_" in text:
        return f"{text!r} is not a number"
    return None if np.isfinite(number) else f"{text!r} is not a finite number"


def csv_texts(rows: Iterable[Sequence[str]], delimiter: str) -> list[str]:
    """Each row as one line of CSV without its end, quoted where it must be."""
    lines: list[str] = []
    csv.writer(
        SimpleNamespace(write=lines.append), delimiter=delimiter, lineterminator=""
    ).writerows(rows)
    return lines


def _size(handle: BinaryIO) -> int:
    """Bytes of a plain file; 0 for a pipe, which does not say."""
    status = os.fstat(handle.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
