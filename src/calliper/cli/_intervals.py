"""From files to a file: read, calibrate, write, and say what was done."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from calliper._types import FloatArray
from calliper.cli._calibration import Calibrated, Method, calibrate
from calliper.cli._columns import Columns, Names, refuse_columns, require_columns
from calliper.cli._output import check_output
from calliper.cli._scales import read_scales
from calliper.cli._stream import Question, write_intervals
from calliper.cli._tables import format_of, open_table, read_numbers
from calliper.cli._terminal import note, progress, warnings_as_lines


@dataclass(frozen=True)
class Files:
    """Where rows come from and go to."""

    calibration: str
    new: str
    training: str | None
    output: str
    scales: str | None = None

    def check(self) -> None:
        """Refuse an output that cannot be, before any work is done."""
        format_of(self.output)
        inputs = (self.calibration, self.new, self.training, self.scales)
        check_output(self.output, [path for path in inputs if path is not None])


def intervals_from_files(
    files: Files, names: Names, method: Method, question: Question, *, quiet: bool
) -> None:
    """All of ``calliper interval`` but its options."""
    names.check()
    has_training = files.training is not None
    method.check(has_training=has_training, has_scales=files.scales is not None)
    files.check()
    scales = None if files.scales is None else read_scales(files.scales)
    with ExitStack() as stack:
        stack.enter_context(warnings_as_lines())
        known = stack.enter_context(open_table(files.calibration))
        columns = names.resolve(known)
        require_columns(known, columns.known)
        new = stack.enter_context(open_table(files.new))
        require_columns(new, columns.new)
        names.require_same_features(new, columns)
        refuse_columns(new, question.column_names())
        if scales is not None:
            scales.require_columns(columns)
            scales.require_training(has_training=has_training)
        training = read_training(files.training, columns)
        rows_known, chosen = read_numbers(known, columns.known), None
        if scales is not None:
            scales.require_rows(rows_known, training)
            chosen = scales.chosen
        calibrated = calibrate(method, rows_known, training, chosen)
        report = stack.enter_context(progress("writing", hidden=quiet or files.output == "-"))
        rows = write_intervals(calibrated, new, columns.new, question, files.output, report)
    if not quiet:
        if method.name != "split" and names.judges_by_prediction:
            note("note: no --features, so nearness was judged by the prediction alone")
        if scales is not None:
            note("note: each length scale was chosen without its own point, as the proof requires")
        _summarise(calibrated, question, rows, files.output)


def read_training(path: str | None, columns: Columns) -> FloatArray | None:
    """Rows that the model was trained on: target, prediction, features."""
    if path is None:
        return None
    with open_table(path) as table:
        require_columns(table, columns.known)
        return read_numbers(table, columns.known)


def _summarise(calibrated: Calibrated, question: Question, rows: int, output: str) -> None:
    where = "standard output" if output == "-" else output
    n = calibrated.calibrator.n_calibration_
    method = type(calibrated.calibrator).__name__
    note(f"{rows} rows written to {where} ({method}, {n} calibration points)")
    for level in question.levels:
        note(calibrated.calibrator.guarantee(level).describe())
