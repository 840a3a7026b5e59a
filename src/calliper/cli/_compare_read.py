"""Points from files: numbers, and the labels that stand beside them."""

from __future__ import annotations

import csv
import hashlib
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from calliper._types import FloatArray
from calliper.cli._cells import what_is_wrong
from calliper.cli._columns import Columns, Names, require_columns
from calliper.cli._tables import open_table, read_numbers
from calliper.comparison import Points
from calliper.exceptions import CalliperError
from calliper.report.page import SourceFile


@dataclass(frozen=True, eq=False)
class Rows:
    """What a file holds: points, and the group of each if one was asked for."""

    points: Points
    groups: tuple[str, ...] | None
    file: str

    def __len__(self) -> int:
        return len(self.points)

    def take(self, places: FloatArray) -> Rows:
        """Some of the rows."""
        points, ids, groups = self.points, self.points.ids, self.groups
        chosen = Points(
            points.Z[places],
            points.y[places],
            points.y_pred[places],
            None if ids is None else tuple(ids[i] for i in places),
            points.feature_names,
        )
        return Rows(chosen, None if groups is None else tuple(groups[i] for i in places), self.file)

    def source(self, part: str) -> SourceFile:
        """The file by name and sum; its folder stays private."""
        with open(self.file, "rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        return SourceFile(self.file.replace("\\", "/").rsplit("/", 1)[-1], part, len(self), digest)


def read_rows(path: str, columns: Columns, *, identity: str | None, group: str | None) -> Rows:
    """All rows of a file with known targets."""
    with open_table(path) as table:
        labels = [name for name in (identity, group) if name is not None]
        require_columns(table, [*columns.known, *labels])
        try:
            numbers = read_numbers(table, columns.known)
        except CalliperError as error:
            _refuse_missing_predictions(path, columns)
            raise error from None
    ids = None if identity is None else read_labels(path, identity, beside=columns.target)
    points = Points(numbers[:, 2:], numbers[:, 0], numbers[:, 1], ids, columns.features)
    groups = None if group is None else read_labels(path, group, beside=columns.target)
    return Rows(points, groups, path)


def resolve_columns(path: str, names: Names) -> Columns:
    """The columns that play a part, as the first file has them."""
    with open_table(path) as table:
        return names.resolve(table)


def has_column(path: str, name: str) -> bool:
    """Whether the file has this column."""
    with open_table(path) as table:
        return name in table.columns


def read_labels(path: str, column: str, *, beside: str) -> tuple[str, ...]:
    """One column as text; tables are read for the numbers ``beside`` it."""
    with open_table(path) as table:
        place = table.columns.index(column)
        return tuple(
            cells[place]
            for chunk in table.chunks([beside], carry=True)
            for cells in csv.reader(chunk.texts(","), strict=True)
        )


def _refuse_missing_predictions(path: str, columns: Columns) -> None:
    """If predictions are missing, how many and where: a model may have had no answer for some."""
    missing: list[int] = []
    with suppress(CalliperError):  # something else is wrong too, and was said already
        cells = read_labels(path, columns.prediction, beside=columns.target)
        missing = [row for row, text in enumerate(cells, start=1) if _is_missing(text)]
    if missing:
        first = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise CalliperError(
            f"{path}: {len(missing)} of {len(cells)} rows have no prediction in column "
            f"{columns.prediction!r} (rows {first} below the header): predict them, or remove them."
        )


def _is_missing(text: str) -> bool:
    return what_is_wrong(text) is not None and text.strip().lower() in ("", "nan", "na", "none")


def split_at_random(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """A calibration half and a test half."""
    if len(rows) < 2:
        raise CalliperError(f"{rows.file}: 1 row cannot be split into calibration and test rows.")
    order = np.random.default_rng(seed).permutation(len(rows))
    half = len(rows) // 2
    return rows.take(np.sort(order[:half])), rows.take(np.sort(order[half:]))
