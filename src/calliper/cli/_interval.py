"""``calliper interval``: intervals around predictions that are in a file, or in rows."""

from contextlib import ExitStack
from dataclasses import dataclass

import click
from click.core import ParameterSource

from calliper.cli import _answering as answers
from calliper.cli import _calibration as calibrations
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._options import File, option
from calliper.exceptions import CalliperError

#: Options that are needed unless --calibrated is given.
_NEEDED = ("calibration", "target", "prediction")

#: Options of calibrate that may be given with --calibrated, too.
_STILL_OPEN = ("output", "delimiter", "decimal", "encoding", "explain", "quiet")


def _bounds(values: tuple[float, float] | None) -> tuple[float, float] | None:
    if values is not None and not values[0] < values[1]:
        raise CalliperError(f"--bounds {values[0]} {values[1]}: LOW must be less than HIGH.")
    return values


@dataclass(frozen=True, kw_only=True)
class IntervalRequest(calibrations.CalibrationRequest):
    calibrated: File | None = option("Instead of --calibration: a file from 'calliper calibrate'.")
    new: File = option(
        "Rows that need intervals; '-' reads CSV from standard input. Or many files: a folder, or "
        "a pattern in quotation marks, such as 'folder/*.parquet'."
    )
    output: File = option("The result; '-' is CSV on standard output. For many files, a folder.")
    coverage: tuple[float, ...] = option(
        "Share of targets to cover; repeat it for several levels.  [default: 0.9]",
        multiple=True,
        metavar="FLOAT",
        check=options.levels,
    )
    bounds: tuple[float, float] | None = option(
        "The range that the target can take; 'inf' and '-inf' leave a side open.",
        type=float,
        nargs=2,
        metavar="LOW HIGH",
        check=_bounds,
    )
    confidence: float | None = option("Share of calibration sets that reach --coverage.")
    workers: int | None = option(
        "For many files: the number of processes.  [default: 1]", type=click.IntRange(1, 4096)
    )
    scheduler: str | None = option(
        "For many files: a Dask scheduler, e.g. tcp://host:8786.", metavar="ADDRESS"
    )
    overwrite: bool = option("For many files: also replace complete outputs.", False)

    @property
    def inputs(self) -> list[str]:
        """All files that it reads, without the new ones if they are rows."""
        known = super().inputs if self.calibrated is None else [str(self.calibrated)]
        return known if answers.is_many(self.new) else [self.new, *known]

    def check(self) -> None:
        context = click.get_current_context()
        if self.calibrated is None:
            for name in _NEEDED:
                if not self.given(name):
                    raise click.UsageError(f"Missing option '--{name}'", context)
            super().check()
        for parameter in calibrations.calibrate.params if self.calibrated is not None else ():
            name = str(parameter.name)
            given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if given and name not in _STILL_OPEN:
                what = f"{options.flag(name)} was set when {self.calibrated} was made"
                raise CalliperError(f"{what}: omit it, or run calliper calibrate again.")
        if answers.is_many(self.new):
            self.refuse_both("workers", "scheduler")
            answers.check_folder(self.new, self.output)
            return
        for name in ("workers", "scheduler", "overwrite"):
            if self.given(name):
                many = "is for many files, as in --new 'folder/*.parquet'"
                raise CalliperError(f"--{name} {many}: omit it.")
        for name, path in (("calibration", self.calibration), ("training", self.training)):
            if path is not None and out.is_same(path, self.new):
                what = f"--new {self.new} is also the --{name} file"
                raise CalliperError(f"{what}: pass a file with new rows.")
        tables.format_of(self.output)
        out.check_output(self.output, self.inputs)


@options.command(IntervalRequest, optional=_NEEDED)
def interval(request: IntervalRequest) -> None:
    """Put prediction intervals around the predictions in a file.

    \b
    calliper interval --calibration cal.csv --new new.csv --target y --prediction y_pred \\
        --features-prefix emb_ --coverage 0.8 --coverage 0.95 --output out.csv

    Every row is written with all its columns, followed by 'lower' and 'upper' (or 'lower_0.8',
    'upper_0.8', ... for several levels). An unbounded interval has the ends -inf and inf.

    \b
    Methods (see 'calliper methods'): full, jackknife, minmax, split, conditional; with --training
    also mad-split, slcp, rcp, locart, normalized-knn, lcp, rlcp and lvd.

    Files are .csv, .tsv (gzipped or not) or .parquet. CSV rows keep their text, Parquet columns
    their types. From CSV to Parquet, predictions and features become numbers.

    \b
    Many files, each written to a file of the same name; run it again to resume:
      calliper interval --calibrated model.calliper --new 'folder/*.parquet' \\
          --output folder-with-intervals --workers 8
    """  # noqa: D301
    form, output, added = request.form, request.output, answers.added_columns(request.coverage)
    with ExitStack() as stack:
        stack.enter_context(out.warnings_as_lines())
        if request.calibrated is not None:
            calibration = calibrations.load_calibration(request.calibrated)
            columns = calibration.columns
        else:
            known = stack.enter_context(tables.open_table(request.calibration, form))
            columns = request.columns(known)
        if several := answers.is_many(request.new):
            paths = answers.find_files(request.new)
            answers.check_alike([*paths.values()], form, columns, added)
        else:
            new = stack.enter_context(tables.open_table(request.new, form))
            columns.check(new, added)
        if request.calibrated is None:
            rows = calibrations.read_known(request, known, columns)
            calibration = calibrations.calibrate_rows(request, rows)
        how = (request.coverage, request.bounds, request.confidence)
        answering = answers.Answering(calibration, form, *how)
        hidden = request.quiet or output == "-"
        report = stack.enter_context(out.progress("writing", hidden=hidden))
        if several:
            tally, done = answers.write_all(answering, paths, request, report)
        else:
            tally = answering.write(new, output, report)
            where = "standard output" if output == "-" else output
            done = f"{tally.rows} rows written to {where}"
    answering.say(tally, done, explain=request.explain, quiet=request.quiet)
