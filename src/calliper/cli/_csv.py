"""CSV, streamed: rows are copied unchanged, and only needed cells are parsed.

Numbers that are added to the rows are written so that they read back exactly. Where cells get
another delimiter, the standard writer quotes them by its own rules.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, isinf, nan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from calliper._blocks import CHUNK_ROWS
from calliper._types import FloatArray
from calliper.exceptions import CalliperError

if TYPE_CHECKING:
    from calliper.cli._tables import Chunk, Table

#: Characters in a chunk, which bounds memory where rows are wide.
CHUNK_LETTERS = 1 << 24

#: Longest cell: room for a document, not for a whole file behind a forgotten quotation mark.
MAX_CELL = 1 << 26

#: Byte order marks and their encodings; an output starts with the mark of its input.
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}

#: What programs write for a missing number.
_GAPS = frozenset({"", "nan", "na", "n/a", "none", "null"})

_POINT_FOR_COMMA = str.maketrans(".,", ",.")


@dataclass(frozen=True)
class Form:
    """The form of text files: delimiter, decimal sign and encoding.

    With ``gaps``, feature cells may lack numbers where training rows can fill them.
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    zipped: bool = False
    gaps: bool = True


class CsvTable:
    """A CSV file with a header; empty lines are skipped."""

    n_rows: int | None = None  # not known before all is read

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        csv.field_size_limit(MAX_CELL)
        self.name, self._file = name, handle
        status = os.fstat(handle.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0  # unknown for a pipe
        content: Any = gzip.GzipFile(fileobj=handle) if form.zipped else handle
        with self._readable():
            start = content.peek(4)
        self.mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
        self.form = replace(form, encoding=_MARKS.get(self.mark, form.encoding))
        _check_start(start, name, self.form)
        content.read(len(self.mark))
        self._text = io.TextIOWrapper(content, encoding=self.form.encoding, newline="")
        self._pending: list[str] = []  # lines of the record that is being read
        self._reader = csv.reader(self._lines(), delimiter=form.delimiter, strict=True)
        first = next(self._records(), None)
        if first is None:
            raise CalliperError(f"{name}: the file is empty; it needs a header and rows.")
        _, self.columns, raw = first
        self._header = raw.rstrip("\r\n")
        self.newline = raw[len(raw.rstrip("\r\n")) :] or "\n"

    def chunks(self, needed: Sequence[str], *, carry: bool) -> Iterator[CsvChunk]:
        """Rows in order; without ``carry`` only their needed cells."""
        place_of = {name: place for place, name in enumerate(self.columns)}
        places = [place_of[name] for name in needed]
        chunk, letters = CsvChunk(self, needed), 0
        for line, record, raw in self._records():
            if len(record) != len(self.columns):
                raise CalliperError(
                    f"{self.name}, line {line}: {len(record)} cells, but the header has "
                    f"{len(self.columns)} columns; repair the line (put a cell that contains "
                    f"{self.form.delimiter!r} in quotation marks)."
                )
            chunk.cells.extend([record[place] for place in places])
            chunk.lines.append(line)
            letters += len(raw)
            if carry:
                chunk.raws.append(raw.rstrip("\r\n"))
            if len(chunk.lines) == CHUNK_ROWS or letters > CHUNK_LETTERS:
                yield chunk
                chunk, letters = CsvChunk(self, needed), 0
        if chunk.lines:
            yield chunk

    def header(self, delimiter: str) -> str:
        """The first line, without its end."""
        same = delimiter == self.form.delimiter
        return self._header if same else csv_texts([self.columns], delimiter)[0]

    def schema(self, numeric: Sequence[str]) -> Any:
        """For Parquet: columns that were read as numbers are numbers, all others text."""
        import pyarrow as pa

        kinds = {name: pa.float64() for name in numeric}
        try:
            return pa.schema([(name, kinds.get(name, pa.string())) for name in self.columns])
        except UnicodeEncodeError as error:
            raise _no_parquet(self.name, "the name of a column", error) from error

    def kinds(self) -> dict[str, str]:
        """What each column holds: text, as far as is known."""
        return dict.fromkeys(self.columns, "text")

    def fraction_read(self) -> float | None:
        """The share of the file that has been read; None for a pipe."""
        return self._file.tell() / self._size if self._size else None

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(self._text):
            self._pending.append(line)
            yield line if number else line.removeprefix("\ufeff")  # the mark of a rare encoding

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
        try:
            yield
        except csv.Error as error:
            where = f"{self.name}, line {self._reader.line_num}"
            raise CalliperError(f"{where}: {error}; check the quotation marks.") from error
        except UnicodeError as error:
            where = f"{self.name}, line {self._reader.line_num + 1} or below"
            raise CalliperError(
                f"{where}: not {self.form.encoding.upper()}; save the file as UTF-8, or name its "
                "encoding, as in --encoding latin-1."
            ) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CalliperError(
                f"cannot read {self.name} as gzip: {error}; write the file again."
            ) from error


@dataclass(frozen=True)
class CsvChunk:
    """Rows of a CSV file: needed cells with their lines, and the text of each row."""

    table: CsvTable
    needed: Sequence[str]
    cells: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    raws: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """The place of a row."""
        return f"line {self.lines[row]}"

    def why(self, row: int, name: str) -> str:
        """Why a cell of a needed column is not a finite number."""
        cell = self.cells[row * len(self.needed) + self.needed.index(name)]
        return _what_is_wrong(cell, self.table.form.decimal)

    def texts(self, delimiter: str) -> list[str]:
        """Each row as it is in the file, or quoted again for another delimiter."""
        if delimiter == self.table.form.delimiter:
            return self.raws
        return csv_texts(self._cells(), delimiter)

    def labels(self, name: str) -> list[str]:
        """One column as text."""
        place = self.table.columns.index(name)
        return [cells[place] for cells in self._cells()]

    def floats(self, name: str) -> FloatArray | None:
        """One column as numbers: NaN for a gap, infinite for what is not a number."""
        if name in self._numbers:
            return self._numbers[name]
        return _as_numbers(self.labels(name), self.table.form.decimal)

    @cached_property
    def _numbers(self) -> dict[str, FloatArray]:
        """The needed columns."""
        values = _as_numbers(self.cells, self.table.form.decimal)
        return dict(zip(self.needed, values.reshape(len(self), -1).T, strict=True))

    def arrow(self, schema: Any) -> Any:
        """The rows as a record batch; a gap among numbers is null."""
        import pyarrow as pa

        texts = zip(schema, zip(*self._cells(), strict=True), strict=True)
        try:
            columns = [
                pa.array(
                    cells if each.type == pa.string() else self.floats(each.name), from_pandas=True
                )
                for each, cells in texts
            ]
        except UnicodeEncodeError as error:
            raise _no_parquet(self.table.name, "a cell", error) from error
        return pa.record_batch(columns, schema=schema)

    def _cells(self) -> Iterator[list[str]]:
        return csv.reader(self.raws, delimiter=self.table.form.delimiter, strict=True)


class CsvWriter:
    """Writes the rows of a table as CSV; those of a CSV file are copied."""

    def __init__(self, handle: BinaryIO, table: Table, added: Sequence[str], form: Form) -> None:
        self._form, self._newline, self._encoding = form, table.newline, table.form.encoding
        self._encoder = codecs.getincrementalencoder(self._encoding)()
        # No time and no name in its head: the same rows give the same bytes.
        self._zip = gzip.GzipFile("", "wb", fileobj=handle, mtime=0) if form.zipped else None
        self._handle: Any = self._zip or handle
        self._handle.write(table.mark)
        names = csv_texts([added], form.delimiter)
        self._write([form.delimiter.join([table.header(form.delimiter), *names])])

    def write(self, chunk: Chunk, added: FloatArray) -> None:
        """Write the rows of a chunk."""
        rows = zip(chunk.texts(self._form.delimiter), added.tolist(), strict=True)
        join, decimal = self._form.delimiter.join, self._form.decimal
        self._write(
            [
                join([text, *(repr(value).replace(".", decimal) for value in numbers)])
                for text, numbers in rows
            ]
        )

    def close(self) -> None:
        """Finish the encoding, and a compressed file."""
        self._handle.write(self._encoder.encode("", final=True))
        if self._zip is not None:
            self._zip.close()

    def abandon(self) -> None:
        """Write nothing more."""
        if self._zip is not None:
            self._zip.fileobj = None  # type: ignore[assignment]

    def _write(self, lines: list[str]) -> None:
        text = "".join([f"{line}{self._newline}" for line in lines])
        try:
            self._handle.write(self._encoder.encode(text))
        except UnicodeEncodeError as error:
            raise CalliperError(
                f"{self._encoding} cannot encode {error.object[error.start]!r}: give --encoding "
                "utf-8."
            ) from error


def _no_parquet(name: str, what: str, error: UnicodeEncodeError) -> CalliperError:
    """The error for text that is not valid UTF-8, Parquet's only encoding."""
    return CalliperError(
        f"{name}: {what} cannot be written to Parquet ({error}); write .csv, or name the right "
        f"--encoding."
    )


def is_gap(text: str) -> bool:
    """Whether a cell stands for a missing number."""
    return text.strip().lower() in _GAPS


def _as_numbers(cells: Sequence[str], decimal: str) -> FloatArray:
    """The cells as numbers: NaN for a gap, infinite for what is neither."""
    if decimal == ",":
        cells = [cell.translate(_POINT_FOR_COMMA) for cell in cells]
    # Python reads 1_000 as a number, but no program writes numbers like this.
    if "_" not in "".join(cells):
        with suppress(ValueError):
            return np.array(list(map(float, cells)))
    return np.array([_as_number(cell) for cell in cells])


def _as_number(cell: str) -> float:
    try:
        return nan if is_gap(cell) else inf if "_" in cell else float(cell)
    except ValueError:
        return inf


def _what_is_wrong(cell: str, decimal: str) -> str:
    """Why a cell is not a finite number."""
    text, other = cell.strip(), {".": ",", ",": "."}[decimal]
    if not text:
        return "the cell is empty"
    hint = ""
    if decimal == "." and isfinite(_as_numbers([text], ",")[0]):
        hint = " (if the comma is a decimal one, give --decimal ,)"
    if re.fullmatch(rf"[+-]?\d{{1,3}}([{other}]\d{{3}})+([{decimal}]\d*)?", text):
        sign = {",": "commas", ".": "points"}[other]
        return f"{cell!r} has {sign} between thousands{hint}: write {text.replace(other, '')}"
    if isinf(_as_number(text)) and not text.lower().endswith(("inf", "infinity")):
        return f"{cell!r} is not a number{hint}"
    return f"{cell!r} is not a {'finite number' if decimal == '.' else 'number with a comma'}"


def csv_texts(rows: Iterable[Sequence[str]], delimiter: str) -> list[str]:
    """Each row as one line of CSV without its end, quoted where it must be."""
    lines: list[str] = []
    # The writer quotes cells that contain its line end, so it must be the usual one.
    end = "\r\n"
    writer = csv.writer(
        SimpleNamespace(write=lines.append), delimiter=delimiter, lineterminator=end
    )
    writer.writerows(rows)
    return [line.removesuffix(end) for line in lines]


def _check_start(start: bytes, name: str, form: Form) -> None:
    """Refuse a file whose first bytes show that it is compressed, or UTF-16."""
    if start.startswith(b"PK\x03\x04"):
        raise CalliperError(f"{name}: the file is a workbook or an archive; save it as CSV.")
    if start.startswith(b"\x1f\x8b") and not form.zipped:
        what = "unpack it" if name == "-" else f"name it {name}.gz, or unpack it"
        raise CalliperError(f"{name}: the file is compressed by gzip; {what}.")
    # In UTF-16, every other byte of numbers and of most names is zero; in most others, none.
    if start.count(0) > len(start) / 4 and 0 not in "a".encode(form.encoding):
        order = "le" if start[1::2].count(0) >= start[::2].count(0) else "be"
        raise CalliperError(
            f"{name}: not {form.encoding.upper()}; it looks like UTF-16 without a byte order mark: "
            f"give --encoding utf-16-{order}."
        )
