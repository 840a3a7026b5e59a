"""Finished cells on disk: one line of JSON each, appended in one piece.

A run that is killed leaves whole lines, or at most a torn last one, which is cut off when the
store is next opened. The single writer is the process that called ``evaluate``.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from calliper.evaluation._cell import Row
from calliper.evaluation._json import from_strict, to_strict
from calliper.exceptions import CalliperError


class TornStoreWarning(UserWarning):
    """A line of the store cannot be read; its cell is computed again."""


class Store:
    """Rows of finished cells by key; ``path`` is a ``.jsonl`` file, or a folder to hold one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path)
        self.path = given if given.suffix == ".jsonl" else given / "cells.jsonl"
        if self.path.is_dir() or (given.suffix != ".jsonl" and given.is_file()):
            raise CalliperError(
                f"store must be a folder or a .jsonl file; {given} is neither: rename it."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._cells: dict[str, list[Row]] = {}
        if self.path.exists():
            self._read()

    def get(self, key: str) -> list[Row] | None:
        """The rows of a finished cell, if it is there; one in which anything raised is not."""
        rows = self._cells.get(key)
        return None if rows is None or any(row["error"] for row in rows) else rows

    def add(self, key: str, rows: list[Row]) -> None:
        """Append a cell: one call to write, so that a kill leaves all of the line or its start."""
        line = json.dumps({"key": key, "rows": to_strict(rows)}, allow_nan=False) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            rest = memoryview(line.encode())
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
            self._warn(f"the last line is torn ({len(content) - whole} bytes, cut off)")
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                cell: dict[str, Any] = json.loads(line)
                self._cells[cell["key"]] = from_strict(cell["rows"])
            except (ValueError, KeyError, TypeError):
                self._warn(f"line {number} is no record of a cell")

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"{self.path}: {what}; that cell will be computed again.",
            TornStoreWarning,
            stacklevel=5,
        )
