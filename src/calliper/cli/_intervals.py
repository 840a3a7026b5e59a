"""From files to a file: read, calibrate, write, and say what was done."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from calliper.cli._calibration import Calibrated, Method, calibrate
from calliper.cli._columns import Names, refuse_columns, require_columns
from calliper.cli._output import check_output
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

    def check(self) -> None:
        """Refuse an output that cannot be, before any work is done."""
        format_of(self.output)
        check_output(self.output, [self.calibration, self.new, self.training or self.new])


def intervals_from_files(
    files: Files, names: Names, method: Method, question: Question, *, quiet: bool
) -> None:
    """All of ``calliper interval`` but its options."""
    names.check()
    method.check(has_training=files.training is not None)
    files.check()
    with ExitStack() as stack:
        stack.enter_context(warnings_as_lines())
        known = stack.enter_context(open_table(files.calibration))
        columns = names.resolve(known)
        require_columns(known, columns.known)
        new = stack.enter_context(open_table(files.new))
        require_columns(new, columns.new)
        names.require_same_features(new, columns)
        refuse_columns(new, question.column_names())
        training = None
        if files.training is not None:
            table = stack.enter_context(open_table(files.training))
            require_columns(table, columns.known)
            training = read_numbers(table, columns.known)
        calibrated = calibrate(method, read_numbers(known, columns.known), training)
        report = stack.enter_context(progress("writing", hidden=quiet or files.output == "-"))
        rows = write_intervals(calibrated, new, columns.new, question, files.output, report)
    if not quiet:
        if method.name != "split" and names.judges_by_prediction:
            note("note: no --features, so nearness was judged by the prediction alone")
        _summarise(calibrated, question, rows, files.output)


def _summarise(calibrated: Calibrated, question: Question, rows: int, output: str) -> None:
    where = "standard output" if output == "-" else output
    n = calibrated.calibrator.n_calibration_
    method = type(calibrated.calibrator).__name__
    note(f"{rows} rows written to {where} ({method}, {n} calibration points)")
    for level in question.levels:
        note(calibrated.calibrator.guarantee(level).describe())
