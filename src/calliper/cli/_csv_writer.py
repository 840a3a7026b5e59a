"""Rows of text with columns appended; numbers are written so that they read back exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from calliper._types import FloatArray
from calliper.cli._cells import csv_texts

if TYPE_CHECKING:
    from calliper.cli._tables import Chunk, Table


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
