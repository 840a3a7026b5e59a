"""New rows through a calibrated method, a chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calliper.cli._calibration import Calibrated
from calliper.cli._output import open_output, writing
from calliper.cli._tables import Table, make_writer, refuse_no_rows
from calliper.cli._terminal import Progress
from calliper.intervals import Intervals


@dataclass(frozen=True)
class Question:
    """What is asked of every new row."""

    levels: tuple[float, ...]
    bounds: tuple[float, float] | None = None

    def column_names(self) -> list[str]:
        """The columns that are added to the new rows."""
        shape = (0,) if len(self.levels) == 1 else (0, len(self.levels))
        return Intervals(np.empty(shape), np.empty(shape), self.levels).column_names()


def write_intervals(
    calibrated: Calibrated,
    new: Table,
    needed: Sequence[str],
    question: Question,
    output: str,
    report: Progress,
) -> int:
    """Write the rows of ``new`` with their intervals; returns how many there were."""
    added, rows = question.column_names(), 0
    with open_output(output) as handle:
        with writing(output):
            writer = make_writer(output, handle, new, needed, added)
        for chunk in new.chunks(needed, carry=True):
            intervals = calibrated.intervals(chunk.numbers, question.levels, question.bounds)
            ends = np.stack([intervals.lower, intervals.upper], axis=-1)
            with writing(output):
                writer.write(chunk, ends.reshape(len(ends), -1))
            rows += len(ends)
            report(new.fraction_read())
        if not rows:
            refuse_no_rows(new)
        with writing(output):
            writer.close()
    return rows
