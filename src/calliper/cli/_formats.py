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
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calliper._blocks import CHUNK_ROWS
from calliper._types import FloatArray
from calliper.cli._tables import Form, format_of
from calliper.exceptions import CalliperError

#: Letters, values and bytes in a chunk, which bound memory where rows are wide; bytes of a Parquet
#: column that are read ahead; and letters of a cell: room for a document, not for a whole file
#: behind a forgotten quotation mark.
CHUNK_LETTERS, CHUNK_VALUES, CHUNK_BYTES = 1 << 22, 1 << 22, 1 << 24
BUFFER_BYTES, MAX_CELL = 1 << 20, 1 << 26

#: Byte order marks and their encodings; an output starts with the mark of its input.
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}

_GAPS = frozenset({"", "nan", "na", "n/a", "none", "null"})  # for a missing number
_POINT_FOR_COMMA = str.maketrans(".,", ",.")


class TableFile:
    """A table in a file: its columns, and its rows in chunks."""

    unit = "row"  # what rows are counted in
    newline, mark = "\n", b""
    n_rows: int | None = None  # None if it is not known before all is read
    schema: Any  # of the columns, all text if the file is CSV

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        self.name, self.form, self._handle = name, form, handle
        status = os.fstat(handle.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0  # unknown for a pipe

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def header(self, delimiter: str) -> str:
        """The names of the columns as a line of text."""
        return csv_texts([self.columns], delimiter)[0]

    def chunks(self, columns: Sequence[str] | None = None) -> "Iterator[Chunk]":
        """Rows in order; of their columns only those that are named, if any are."""
        raise NotImplementedError

    def fraction_read(self) -> float | None:
        """About the share of the file that has been read; None if its length is not known."""
        return self._handle.tell() / self._size if self._size else None

    @contextmanager
    def _readable(self, line: Callable[[], int] = int) -> Iterator[None]:
        """Turn a failure to read into an error that names the file and, in CSV, the line."""
        try:
            yield
        except csv.Error as error:
            where = f"{self.name}, line {line()}"
            raise CalliperError(f"{where}: {error}; check the quotation marks.") from error
        except UnicodeError as error:
            what = f"line {line() + 1} or below: not {self.form.encoding.upper()}"
            how = "save the file as UTF-8, or name its encoding, as in --encoding latin-1"
            raise CalliperError(f"{self.name}, {what}; {how}.") from error
        except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
            what = f"cannot read {self.name} as {format_of(self.name)}: {error}"
            raise CalliperError(f"{what}; write the file again.") from error


class CsvTable(TableFile):
    """A CSV file with a header; empty lines are skipped."""

    unit = "line"

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        csv.field_size_limit(MAX_CELL)
        super().__init__(handle, name, form)
        content: Any = gzip.GzipFile(fileobj=handle) if form.zipped else handle
        with self._readable():
            start = content.peek(4)
        _check_start(start, name, form)
        self.mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
        self.form = replace(form, encoding=_MARKS.get(self.mark, form.encoding))
        content.read(len(self.mark))
        self._text = io.TextIOWrapper(content, encoding=self.form.encoding, newline="")
        self._pending: list[str] = []  # lines of the record that is being read
        self._reader = csv.reader(self._lines(), delimiter=form.delimiter, strict=True)
        with self._readable(lambda: self._reader.line_num):
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
        index_of = {name: index for index, name in enumerate(self.columns)}
        names = [*dict.fromkeys(index_of if columns is None else columns)]
        with self._readable(lambda: self._reader.line_num):
            records = self._records()
            while block := _block(records):
                lines, cells, raws = zip(*block, strict=True)
                for line, record in zip(lines, cells, strict=True):
                    if len(record) != len(index_of):
                        raise CalliperError(
                            f"{self.name}, line {line}: {len(record)} cells, but the header has "
                            f"{len(index_of)} columns; fix the line (put a cell that contains "
                            f"{self.form.delimiter!r} in quotation marks)."
                        )
                indices = [index_of[name] for name in names]
                texts = [pa.array([row[index] for row in cells], pa.string()) for index in indices]
                yield Chunk(self, pa.record_batch(texts, names), lines, raws)

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


def _block(records: Iterator[tuple[int, list[str], str]]) -> list[tuple[int, list[str], str]]:
    """The next records, as many as a chunk has; their texts without line ends."""
    taken, letters = [], 0
    for line, cells, raw in records:
        taken.append((line, cells, raw.rstrip("\r\n")))
        letters += len(raw)
        if len(taken) == CHUNK_ROWS or letters > CHUNK_LETTERS:
            break
    return taken


class ParquetTable(TableFile):
    """A Parquet file."""

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        super().__init__(handle, name, form)
        with self._readable():
            # With pre_buffer, everything that was read would stay in memory.
            self._file = pq.ParquetFile(handle, buffer_size=BUFFER_BYTES, pre_buffer=False)
            self.schema = self._file.schema_arrow
            self.n_rows = int(self._file.metadata.num_rows) if self.columns else 0

    def chunks(self, columns: Sequence[str] | None = None) -> "Iterator[Chunk]":
        names, first = None if columns is None else [*dict.fromkeys(columns)], 1
        with self._readable():
            for batch in self._file.iter_batches(batch_size=self._batch_size(), columns=names):
                if len(batch):
                    yield Chunk(self, batch, range(first, first + len(batch)))
                    first += len(batch)

    def _batch_size(self) -> int:
        about = self._file.metadata
        groups = (about.row_group(index) for index in range(about.num_row_groups))
        row_bytes: int = sum(group.total_byte_size for group in groups) // max(1, about.num_rows)
        by_values = CHUNK_VALUES // max(1, len(self.columns))
        return max(1, min(CHUNK_ROWS, by_values, CHUNK_BYTES // max(1, row_bytes)))


@dataclass(frozen=True)
class Chunk:
    """Rows of a table: columns, the number of each row in the file, and lines of CSV as text."""

    table: TableFile
    batch: Any
    numbers: Sequence[int]
    raws: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.batch)

    def where(self, row: int) -> str:
        return f"{self.table.unit} {self.numbers[row]}"

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
        decimal = self.table.form.decimal
        if self.raws:
            if decimal == ".":
                with suppress(pa.ArrowInvalid):
                    return np.asarray(column.cast(pa.float64()).to_numpy())
            return np.array([_as_number(text, decimal) for text in column.to_pylist()])
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
        where = f"{self.table.name}, column {name!r}"
        return CalliperError(f"{where}: {what} cannot be written as text; write .parquet.")


@contextmanager
def csv_writer(
    handle: BinaryIO, table: TableFile, added: Sequence[str], form: Form
) -> "Iterator[Callable[[Chunk, FloatArray], None]]":
    """Writes the rows of a table as CSV, with more columns; those of a CSV file are copied."""
    encoding, join, decimal = table.form.encoding, form.delimiter.join, form.decimal
    encoder = codecs.getincrementalencoder(encoding)()
    # No time and no name in its head: the same rows give the same bytes.
    packed = gzip.GzipFile("", "wb", fileobj=handle, mtime=0) if form.zipped else None
    target: Any = packed or handle

    def put(texts: Iterable[str], more: Iterable[Sequence[str]]) -> None:
        lines = [join([text, *own]) + table.newline for text, own in zip(texts, more, strict=True)]
        try:
            target.write(encoder.encode("".join(lines)))
        except UnicodeEncodeError as error:
            what = f"{encoding} cannot encode {error.object[error.start]!r}"
            raise CalliperError(f"{what}: use --encoding utf-8.") from error

    def write(chunk: Chunk, numbers: FloatArray) -> None:
        ends = ([repr(v).replace(".", decimal) for v in row] for row in numbers.tolist())
        put(chunk.texts(form.delimiter), ends)

    try:
        target.write(table.mark)
        put([table.header(form.delimiter)], [csv_texts([added], form.delimiter)])
        yield write
        target.write(encoder.encode("", final=True))
        if packed is not None:
            packed.close()
    except BaseException:
        if packed is not None:  # which would write its end when it is taken down
            packed.fileobj = None  # type: ignore[assignment]
        raise


@contextmanager
def parquet_writer(
    handle: BinaryIO, table: TableFile, added: Sequence[str], numeric: Sequence[str]
) -> "Iterator[Callable[[Chunk, FloatArray], None]]":
    """Writes the rows of a table as Parquet; of a CSV file, ``numeric`` columns as numbers."""
    own = table.schema
    if isinstance(table, CsvTable):
        kinds = {name: pa.float64() for name in numeric}
        own = pa.schema([(name, kinds.get(name, pa.string())) for name in own.names])
    ends = [pa.field(name, pa.float64()) for name in added]
    schema = pa.schema([*own, *ends], metadata=own.metadata)
    writer = pq.ParquetWriter(handle, schema)

    def write(chunk: Chunk, numbers: FloatArray) -> None:
        columns = [
            column
            if column.type == field.type
            else pa.array(chunk.floats(field.name), from_pandas=True)
            for field, column in zip(own, chunk.batch.columns, strict=True)
        ]
        columns += [pa.array(column) for column in np.ascontiguousarray(numbers.T)]
        writer.write_batch(pa.record_batch(columns, schema=schema))

    try:
        yield write
        writer.close()
    except BaseException:  # a footer would fail if the file is closed already
        writer.is_open = False
        raise


def _is_numeric(kind: Any) -> bool:
    is_any = pa.types
    return bool(is_any.is_floating(kind) or is_any.is_integer(kind) or is_any.is_decimal(kind))


def _as_number(text: str, decimal: str) -> float:
    """A text as a number: NaN for a gap, infinite for what is neither."""
    text = text.translate(_POINT_FOR_COMMA) if decimal == "," else text
    try:
        # Python reads 1_000 as a number, but no program writes numbers like this.
        return inf if "_" in text else float(text)
    except ValueError:
        return nan if text.strip().lower() in _GAPS else inf


def _what_is_wrong(cell: str, decimal: str) -> str:
    """Why a cell is not a finite number."""
    text, hint = cell.strip(), ""
    if not text:
        return "the cell is empty"
    if isfinite(_as_number(text, ".,".replace(decimal, ""))):
        sign = "comma" if decimal == "." else "point"
        hint = f" (if its {sign} is a decimal separator, use --decimal {'.,'.replace(decimal, '')})"
    elif text.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return f"{cell!r} is not a finite number"
    return f"{cell!r} is not a number{hint}"


def csv_texts(rows: Iterable[Sequence[str]], delimiter: str) -> list[str]:
    """Each row as one line of CSV without its end, quoted where it must be."""
    lines: list[str] = []
    # The writer quotes cells that contain its line end, so it must be the usual one.
    end = "\r\n"
    target = SimpleNamespace(write=lines.append)
    csv.writer(target, delimiter=delimiter, lineterminator=end).writerows(rows)
    return [line.removesuffix(end) for line in lines]


def _check_start(start: bytes, name: str, form: Form) -> None:
    """Refuse a file whose first bytes show that it is compressed."""
    if start.startswith(b"PK\x03\x04"):
        raise CalliperError(f"{name}: the file is a workbook or an archive; save it as CSV.")
    if start.startswith(b"\x1f\x8b") and not form.zipped:
        what = "unpack it" if name == "-" else f"name it {name}.gz, or unpack it"
        raise CalliperError(f"{name}: the file is compressed with gzip; {what}.")
