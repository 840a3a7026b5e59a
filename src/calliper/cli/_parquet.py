"""Parquet, streamed batch by batch; columns keep their types."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calliper._blocks import CHUNK_ROWS
from calliper._types import FloatArray
from calliper.cli._csv import Form, csv_texts
from calliper.exceptions import CalliperError

#: Values and bytes in a batch, which bound memory where rows have many columns or long texts.
BATCH_VALUES, BATCH_BYTES = 1 << 22, 1 << 24

#: Bytes of a column that are read ahead, instead of a whole row group.
BUFFER_BYTES = 1 << 20


_NUMERIC = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)


class ParquetTable:
    """A Parquet file."""

    newline, mark = "\n", b""

    def __init__(self, handle: BinaryIO, name: str, form: Form) -> None:
        self.name, self.form, self._rows_read = name, form, 0
        with self._readable():
            # With pre_buffer, everything that was read would stay in memory.
            self._file = pq.ParquetFile(handle, buffer_size=BUFFER_BYTES, pre_buffer=False)
            self.columns: list[str] = self._file.schema_arrow.names
        self.n_rows: int | None = int(self._file.metadata.num_rows)

    def chunks(self, needed: Sequence[str], *, carry: bool) -> "Iterator[ParquetChunk]":
        """Rows in order, see :meth:`CsvTable.chunks`."""
        columns = None if carry else list(dict.fromkeys(needed))
        with self._readable():
            for batch in self._file.iter_batches(batch_size=self._batch_size(), columns=columns):
                if len(batch):
                    chunk = ParquetChunk(self, needed, batch, self._rows_read)
                    self._rows_read += len(batch)
                    yield chunk

    def header(self, delimiter: str) -> str:
        """The names of the columns as a line of text."""
        return csv_texts([self.columns], delimiter)[0]

    def schema(self, numeric: Sequence[str]) -> Any:
        """Names, types and metadata of the columns."""
        return self._file.schema_arrow

    def kinds(self) -> dict[str, str]:
        """What each column holds."""
        return {field.name: str(field.type) for field in self._file.schema_arrow}

    def fraction_read(self) -> float | None:
        """The share of the file that has been read."""
        return self._rows_read / max(1, self.n_rows or 0)

    def _batch_size(self) -> int:
        about = self._file.metadata
        groups = (about.row_group(place) for place in range(about.num_row_groups))
        row_bytes: int = sum(group.total_byte_size for group in groups) // max(1, about.num_rows)
        by_values = BATCH_VALUES // max(1, len(self.columns))
        return max(1, min(CHUNK_ROWS, by_values, BATCH_BYTES // max(1, row_bytes)))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise CalliperError(
                f"cannot read {self.name} as Parquet: {error}; write the file again."
            ) from error


@dataclass(frozen=True)
class ParquetChunk:
    """Rows of a Parquet file."""

    table: ParquetTable
    needed: Sequence[str]
    batch: Any
    first: int  # rows before these

    def __len__(self) -> int:
        return len(self.batch)

    def where(self, row: int) -> str:
        """The place of a row."""
        return f"row {self.first + row + 1}"

    def why(self, row: int, name: str) -> str:
        """Why a cell is not a finite number."""
        cell = self.batch.column(name)[row].as_py()
        return "the value is missing" if cell is None else f"{cell} is not a finite number"

    def texts(self, delimiter: str) -> list[str]:
        """Each row as a line of CSV; what is missing is empty."""
        columns = [self.labels(name) for name in self.batch.schema.names]
        return csv_texts(zip(*columns, strict=True), delimiter)

    def floats(self, name: str) -> FloatArray | None:
        """One column as numbers, non-finite where missing; None if it has no numbers."""
        column = self.batch.column(name)
        if not any(is_kind(column.type) for is_kind in _NUMERIC):
            return None
        # Not "safe": integers beyond 2^53 are rounded, as everywhere in Python.
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def arrow(self, schema: Any) -> Any:
        """The rows as they are."""
        return self.batch

    def labels(self, name: str) -> list[str]:
        """One column as text; what is missing is empty."""
        column, comma = self.batch.column(name), self.table.form.decimal == ","
        try:
            values = column if column.type == pa.float64() else column.cast(pa.string())
            texts = ["" if v is None else f"{v}" for v in values.to_pylist()]
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._no_text(name, f"{column.type}") from error
        if pa.types.is_temporal(column.type):  # Arrow prints this for dates that do not exist
            for text in (text for text in texts if text.startswith("<value out of range")):
                raise self._no_text(name, f"a {column.type} {text[1:-1]}")
        if comma and any(is_kind(column.type) for is_kind in _NUMERIC):
            return [text.replace(".", ",") for text in texts]
        return texts

    def _no_text(self, name: str, what: str) -> CalliperError:
        """The error for a column that CSV cannot hold."""
        return CalliperError(
            f"{self.table.name}, column {name!r}: {what} has no text form; write .parquet."
        )


class ParquetWriter:
    """Appends columns of numbers to record batches."""

    def __init__(self, handle: BinaryIO, schema: Any, added: Sequence[str]) -> None:
        self.source, self.schema = schema, schema
        for name in added:
            self.schema = self.schema.append(pa.field(name, pa.float64()))
        self._writer = pq.ParquetWriter(handle, self.schema)

    def write(self, chunk: Any, added: FloatArray) -> None:
        """Write the rows of a chunk as a group of rows."""
        batch = chunk.arrow(self.source)
        arrays = [*batch.columns, *(pa.array(column) for column in np.ascontiguousarray(added.T))]
        self._writer.write_batch(pa.record_batch(arrays, schema=self.schema))

    def close(self) -> None:
        """Write the footer, without which the file cannot be read."""
        self._writer.close()

    def abandon(self) -> None:
        """Write no footer, which would fail if the file is closed already."""
        self._writer.is_open = False
