"""``calliper calibrate``: calibrate once, and save it to a file that executes nothing."""

from dataclasses import dataclass

from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import CalibrationRequest, calibrate_rows, read_rows, summarise
from calliper.exceptions import CalliperError

ENDING = ".calliper"


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(CalibrationRequest):
    """The options of ``calliper calibrate``."""

    output: options.File = options.option(
        f"File to save the calibration to: {ENDING}.", after="prediction"
    )

    def check(self) -> None:
        super().check()
        check_kept(self.output, self.inputs)


def check_kept(output: str, inputs: list[str]) -> None:
    """Refuse a file that a calibration cannot be saved to."""
    if not output.lower().endswith(ENDING):
        raise CalliperError(f"{output}: the name must end in {ENDING}; rename it.")
    out.check_output(output, inputs)


@options.command(CalibrateRequest)
def calibrate(request: CalibrateRequest) -> None:
    """Calibrate a method and save it to a file, for use on later rows.

    \b
    calliper calibrate --calibration cal.csv --target y --prediction y_pred --features a,b \\
        --training train.csv --output model.calliper
    calliper interval --calibrated model.calliper --new new.csv --output out.csv

    The intervals are the same, digit for digit, as from 'calliper interval' in one step. The file
    holds the calibration points as numbers, column names and what was learnt from training rows.
    Opening it runs no code; 'calliper inspect' shows what it holds and what it guarantees.
    """  # noqa: D301
    with (
        out.warnings_as_lines(),
        tables.open_table(request.calibration, request.form) as table,
    ):
        rows = read_rows(request, table, request.columns(table))
        calibration = calibrate_rows(request, rows)
        calibration.save(request.output, rows)
    if not request.quiet:
        calibration.filling.say()
        done = f"calibration written to {request.output}"
        summarise(calibration, (0.9,), None, done, explain=request.explain)
