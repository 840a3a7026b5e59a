"""CSV and Parquet, streamed: rows are copied unchanged, and only needed cells are parsed.

A chunk has its columns as Arrow arrays: of texts if the file is CSV. Lines of CSV are copied letter
by letter, unless they get another delimiter; Parquet columns keep their types. Numbers that are
added to the rows are written so that they read back exactly.
"""

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
from dataclasses import dataclass, replace
from math import inf, isfinite, isinf, nan
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calliper._blocks import CHUNK_ROWS
from calliper._types import FloatArray
from calliper.cli._tables import Form
from calliper.exceptions import CalliperError

#: Letters, values and bytes in a chunk, which bound memory where rows are wide.
CHUNK_LETTERS, CHUNK_VALUES, CHUNK_BYTES = 1 << 22, 1 << 22, 1 << 24

#: Bytes of a Parquet column that are read ahead, instead of a whole row group.
BUFFER_BYTES = 1 << 20

#: Longest cell: room for a document, not for a whole file behind a forgotten quotation mark.
MAX_CELL = 1 << 26

#: Byte order marks and their encodings; an output starts with the mark of its input.
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}

#: What programs write for a missing number.
_GAPS = frozenset({"", "nan", "na", "n/a", "none", "null"})

_POINT_FOR_COMMA = str.maketrans(".,", ",.")


class Table:
    """A table in a file: its columns, and its rows in chunks."""

    unit = "row"  # what rows are counted in
    newline, mark = "\n", b""
    n_rows: int | None = None  # None if it is not known before all is read
    schema: Any  # of the columns, all text if the file is CSV

    def __init__(self, name: str, form: Form) -> None:
        self.name, self.form = name, form

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.schema.names
        return names

    def header(self, delimiter: str) -> str:
        """The names of the columns as a line of text."""
        return csv_texts([self.columns], delimiter)[0]

    def chunks(self, columns: Sequence[str] | None = None) -> "Iterator[Chunk]":
        """Rows in order; of their columns only those that are named, if any are."""
        raise NotImplementedError

    def fraction_read(self) -> float | None:
        """The share of the file that has been read; None if its length is not known."""
        raise NotImplementedError


class CsvTable(Table):
    """A CSV file with a header; empty lines are skipped."""

    unit = "line"

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        csv.field_size_limit(MAX_CELL)
        super().__init__(name, form)
        self._file, status = handle, os.fstat(handle.fileno())
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
        with self._readable():
            _, names, raw = next(self._records(), (0, [], ""))
            self.schema = pa.schema([(name, pa.string()) for name in names])
        if not names:
            raise CalliperError(f"{name}: the file is empty; it needs a header and rows.")
        self._header = raw.rstrip("\r\n")
        self.newline = raw[len(self._header) :] or "\n"

    def header(self, delimiter: str) -> str:
        """The first line as it is, if it has this delimiter."""
        return self._header if delimiter == self.form.delimiter else super().header(delimiter)

    def chunks(self, columns: Sequence[str] | None = None) -> "Iterator[Chunk]":
        """See :class:`Table`."""
        place_of = {name: place for place, name in enumerate(self.columns)}
        names = [*dict.fromkeys(place_of if columns is None else columns)]
        with self._readable():
            records = self._records()
            while block := _block(records):
                lines, cells, raws = zip(*block, strict=True)
                for line, record in zip(lines, cells, strict=True):
                    if len(record) != len(place_of):
                        raise CalliperError(
                            f"{self.name}, line {line}: {len(record)} cells, but the header has "
                            f"{len(place_of)} columns; repair the line (put a cell that contains "
                            f"{self.form.delimiter!r} in quotation marks)."
                        )
                places = [place_of[name] for name in names]
                texts = [pa.array([row[place] for row in cells], pa.string()) for place in places]
                yield Chunk(self, pa.record_batch(texts, names), lines, raws)

    def fraction_read(self) -> float | None:
        """See :class:`Table`."""
        return self._file.tell() / self._size if self._size else None

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(self._text):
            self._pending.append(line)
            yield line if number else line.removeprefix("\ufeff")  # the mark of a rare encoding

    def _records(self) -> Iterator[tuple[int, list[str], str]]:
        """Line number, cells and text of every record."""
        line = self._reader.line_num + 1
        for cells in self._reader:
            raw = "".join(self._pending)
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


def _block(records: Iterator[tuple[int, list[str], str]]) -> list[tuple[int, list[str], str]]:
    """The next records, as many as a chunk has; their texts without line ends."""
    taken, letters = [], 0
    for line, cells, raw in records:
        taken.append((line, cells, raw.rstrip("\r\n")))
        letters += len(raw)
        if len(taken) == CHUNK_ROWS or letters > CHUNK_LETTERS:
            break
    return taken


class ParquetTable(Table):
    """A Parquet file."""

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        super().__init__(name, form)
        with self._readable():
            # With pre_buffer, everything that was read would stay in memory.
            self._file = pq.ParquetFile(handle, buffer_size=BUFFER_BYTES, pre_buffer=False)
            self.schema = self._file.schema_arrow
            assert self.columns
        self.n_rows, self._rows_read = int(self._file.metadata.num_rows), 0

    def chunks(self, columns: Sequence[str] | None = None) -> "Iterator[Chunk]":
        """See :class:`Table`."""
        names = None if columns is None else [*dict.fromkeys(columns)]
        with self._readable():
            for batch in self._file.iter_batches(batch_size=self._batch_size(), columns=names):
                if len(batch):
                    first = self._rows_read + 1
                    self._rows_read += len(batch)
                    yield Chunk(self, batch, range(first, self._rows_read + 1))

    def fraction_read(self) -> float | None:
        """See :class:`Table`."""
        return self._rows_read / max(1, self.n_rows or 0)

    def _batch_size(self) -> int:
        about = self._file.metadata
        groups = (about.row_group(place) for place in range(about.num_row_groups))
        row_bytes: int = sum(group.total_byte_size for group in groups) // max(1, about.num_rows)
        by_values = CHUNK_VALUES // max(1, len(self.columns))
        return max(1, min(CHUNK_ROWS, by_values, CHUNK_BYTES // max(1, row_bytes)))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise CalliperError(
                f"cannot read {self.name} as Parquet: {error}; write the file again."
            ) from error


@dataclass(frozen=True)
class Chunk:
    """Rows of a table: columns, the place of each row in the file, and lines of CSV as text."""

    table: Table
    batch: Any
    places: Sequence[int]
    raws: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.batch)

    def where(self, row: int) -> str:
        """The place of a row."""
        return f"{self.table.unit} {self.places[row]}"

    def why(self, row: int, name: str) -> str:
        """Why a cell is not a finite number."""
        cell = self.batch.column(name)[row].as_py()
        if self.raws:
            return _what_is_wrong(cell, self.table.form.decimal)
        return "the value is missing" if cell is None else f"{cell} is not a finite number"

    def texts(self, delimiter: str) -> Sequence[str]:
        """Each row as a line of CSV: as it is in the file, or quoted where it must be."""
        if self.raws and delimiter == self.table.form.delimiter:
            return self.raws
        return csv_texts(zip(*map(self.labels, self.table.columns), strict=True), delimiter)

    def floats(self, name: str) -> FloatArray | None:
        """One column as numbers: NaN if missing, infinite if none; None if it holds no numbers."""
        column = self.batch.column(name)
        if self.raws:
            return _as_numbers(column, self.table.form.decimal)
        if not _is_numeric(column.type):
            return None
        # Not "safe": integers beyond 2^53 are rounded, as everywhere in Python.
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def labels(self, name: str) -> list[str]:
        """One column as text; what is missing is empty."""
        column = self.batch.column(name)
        try:
            values = column if column.type == pa.float64() else column.cast(pa.string())
            texts = ["" if v is None else f"{v}" for v in values.to_pylist()]
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._no_text(name, f"{column.type}") from error
        if pa.types.is_temporal(column.type):  # Arrow prints this for dates that do not exist
            for text in (text for text in texts if text.startswith("<value out of range")):
                raise self._no_text(name, f"a {column.type} {text[1:-1]}")
        if _is_numeric(column.type):
            return [text.replace(".", self.table.form.decimal) for text in texts]
        return texts

    def _no_text(self, name: str, what: str) -> CalliperError:
        """The error for a column that CSV cannot hold."""
        return CalliperError(
            f"{self.table.name}, column {name!r}: {what} has no text form; write .parquet."
        )


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
        """Write the rows of a chunk, with these numbers added to each."""
        join, decimal = self._form.delimiter.join, self._form.decimal
        rows = zip(chunk.texts(self._form.delimiter), added.tolist(), strict=True)
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


class ParquetWriter:
    """Writes the rows of a table as Parquet: of a CSV file, ``numeric`` columns as numbers."""

    def __init__(
        self, handle: BinaryIO, table: Table, added: Sequence[str], numeric: Sequence[str]
    ) -> None:
        schema = table.schema
        if isinstance(table, CsvTable):
            kinds = {name: pa.float64() for name in numeric}
            schema = pa.schema([(name, kinds.get(name, pa.string())) for name in schema.names])
        self.schema = schema
        for name in added:
            self.schema = self.schema.append(pa.field(name, pa.float64()))
        self._writer = pq.ParquetWriter(handle, self.schema)

    def write(self, chunk: Chunk, added: FloatArray) -> None:
        """Write the rows of a chunk as a group of rows; a gap among numbers of CSV is null."""
        columns = [
            column
            if column.type == self.schema.field(name).type
            else pa.array(chunk.floats(name), from_pandas=True)
            for name, column in zip(chunk.batch.schema.names, chunk.batch.columns, strict=True)
        ]
        columns += [pa.array(column) for column in np.ascontiguousarray(added.T)]
        self._writer.write_batch(pa.record_batch(columns, schema=self.schema))

    def close(self) -> None:
        """Write the footer, without which the file cannot be read."""
        self._writer.close()

    def abandon(self) -> None:
        """Write no footer, which would fail if the file is closed already."""
        self._writer.is_open = False


def _is_numeric(kind: Any) -> bool:
    is_any = pa.types
    return bool(is_any.is_floating(kind) or is_any.is_integer(kind) or is_any.is_decimal(kind))


def _as_numbers(texts: Any, decimal: str) -> FloatArray:
    """Texts as numbers: NaN for a gap, infinite for what is neither."""
    if decimal == ".":
        with suppress(pa.ArrowInvalid):
            return np.asarray(texts.cast(pa.float64()).to_numpy())
    return np.array([_as_number(text, decimal) for text in texts.to_pylist()])


def _as_number(text: str, decimal: str) -> float:
    text = text.translate(_POINT_FOR_COMMA) if decimal == "," else text
    try:
        # Python reads 1_000 as a number, but no program writes numbers like this.
        return inf if "_" in text else float(text)
    except ValueError:
        return nan if text.strip().lower() in _GAPS else inf


def _what_is_wrong(cell: str, decimal: str) -> str:
    """Why a cell is not a finite number."""
    text, other = cell.strip(), {".": ",", ",": "."}[decimal]
    if not text:
        return "the cell is empty"
    hint = ""
    if decimal == "." and isfinite(_as_number(text, ",")):
        hint = " (if the comma is a decimal one, give --decimal ,)"
    if re.fullmatch(rf"[+-]?\d{{1,3}}([{other}]\d{{3}})+([{decimal}]\d*)?", text):
        sign = {",": "commas", ".": "points"}[other]
        return f"{cell!r} has {sign} between thousands{hint}: write {text.replace(other, '')}"
    if isinf(_as_number(text, ".")) and not text.lower().endswith(("inf", "infinity")):
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
