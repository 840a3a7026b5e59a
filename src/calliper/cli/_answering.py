"""Write the rows of a table with their intervals, a chunk at a time, in any process."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calliper._row_checks import find_shared
from calliper._types import FloatArray
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import FileCalibration
from calliper.intervals import Intervals
from calliper.shift import ShiftReport


@dataclass
class Tally:
    """Counts of rows that were written."""

    rows: int = 0  # written
    filled: int = 0  # cells without a number
    heaviest: float = 0.0  # the largest weight of a row, 0 without weights
    infinite: int = 0  # rows whose own weight makes their interval infinite
    known: int = 0  # calibration rows among them
    targets: int = 0  # rows that have a target
    inside: Any = 0  # those whose target is inside, for each level

    def add(self, other: "Tally") -> None:
        """Add the counts of another."""
        self.rows, self.filled = self.rows + other.rows, self.filled + other.filled
        self.infinite, self.known = self.infinite + other.infinite, self.known + other.known
        self.targets, self.inside = self.targets + other.targets, self.inside + other.inside
        self.heaviest = max(self.heaviest, other.heaviest)


@dataclass(frozen=True, eq=False)
class Answering:
    """A calibration, and the levels and bounds of the intervals to write."""

    calibration: FileCalibration
    form: tables.Form
    coverage: tuple[float, ...]
    bounds: tuple[float, float] | None
    confidence: float | None

    def write(self, new: Any, output: str, report: out.Progress = lambda part: None) -> Tally:
        """Write the new rows with their intervals, a chunk at a time."""
        columns, tally = self.calibration.columns, Tally()
        needed = columns.numbers(columns.new)
        filling = replace(self.calibration.filling, n_filled=0)
        added = added_columns(self.coverage)
        with (
            out.open_output(output) as handle,
            tables.open_writer(output, handle, new, self.form, added, needed) as write,
        ):
            for chunk in new.chunks():
                ends, counted = self._ends(chunk, filling.numbers(chunk, needed))
                tally.add(counted)
                write(chunk, ends)
                report(new.fraction_read())
            if not tally.rows:
                tables.refuse_no_rows(new)
        tally.filled = filling.n_filled
        return tally

    def _ends(self, chunk: Any, numbers: FloatArray) -> tuple[FloatArray, Tally]:
        """Lower and upper ends of each level, (m, 2 L), and what was counted."""
        rows, weights = self.calibration.split(numbers)
        how: dict[str, Any] = {"bounds": self.bounds, "confidence": self.confidence, **weights}
        columns, calibrated = self.calibration.columns, self.calibration.calibrated
        if columns.group is not None:
            how["groups"] = tables.known_labels(chunk, columns.group)
        ends = calibrated.intervals(rows[:, 1:], rows[:, 0], [*self.coverage], **how)
        tally, (lower, upper) = Tally(len(rows)), ends
        if calibrated.rows is not None:
            found = find_shared(calibrated.rows, rows, None)
            tally.known = found.n_shared if found.certain else 0
        y = chunk.floats(columns.target) if columns.target in chunk.table.columns else None
        if y is not None:
            inside = (lower <= y[:, None]) & (y[:, None] <= upper) & np.isfinite(y)[:, None]
            tally.targets, tally.inside = int(np.isfinite(y).sum()), inside.sum(axis=0)
        if weights:
            tally.heaviest = float(weights["weights"].max())
            tally.infinite = round(self._shift(weights["weights"]).infinite * len(rows))
        return ends.ends(), tally

    def _shift(self, weights: Any) -> ShiftReport:
        return ShiftReport.of(self.calibration.weights, weights, self.coverage[-1])

    def say(self, tally: Tally, done: str, *, explain: bool, quiet: bool) -> None:
        """Print what was written, guaranteed and observed; if ``quiet``, warnings only."""
        if tally.known:
            count = "all" if tally.known == tally.rows else f"{tally.known:,} of"
            out.note(
                f"warning: {count} {tally.rows:,} new rows are also calibration rows (same "
                "prediction and features): intervals around rows that were already used say "
                "nothing about new ones"
            )
        if quiet:
            return
        filling = self.calibration.filling
        replace(filling, n_filled=filling.n_filled + tally.filled).say()
        self.calibration.summarise(self.coverage, self.confidence, done, explain=explain)
        if tally.targets:
            pairs = zip(self.coverage, tally.inside / tally.targets, strict=True)
            seen = ", ".join(f"{share:.4g} (asked for: {at:g})" for at, share in pairs)
            name = self.calibration.columns.target
            out.note(f"coverage seen in {tally.targets:,} new rows that have {name!r}: {seen}")
        if tally.heaviest:
            share = tally.infinite / tally.rows
            out.note(replace(self._shift([tally.heaviest]), infinite=share).describe())


def added_columns(coverage: tuple[float, ...]) -> list[str]:
    """The columns that are added to new rows."""
    shape = (0,) if len(coverage) == 1 else (0, len(coverage))
    return Intervals(np.empty(shape), np.empty(shape), coverage).column_names()
