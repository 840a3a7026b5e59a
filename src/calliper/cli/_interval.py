"""``calliper interval``: intervals around predictions that are in a file, or in many."""

from contextlib import ExitStack
from dataclasses import dataclass

import click
from click.core import ParameterSource

from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._answering import Answering, added_columns
from calliper.cli._calibrate import calibrate
from calliper.cli._calibration import (
    CalibrationRequest,
    calibrate_rows,
    load_calibration,
    read_rows,
)
from calliper.cli._folder import DataSet, check_folder, is_many
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
class IntervalRequest(CalibrationRequest):
    """The options of ``calliper interval``."""

    calibrated: File | None = option(
        "A file made by 'calliper calibrate', instead of --calibration and its options.",
        after="calibration",
    )
    new: File = option(
        "Rows that need intervals, with prediction and features; '-' reads CSV from standard "
        "input. May be larger than memory. Or many files: a folder, or a pattern in quotation "
        "marks, such as 'folder/*.parquet'."
    )
    output: File = option(
        "The result; '-' writes CSV to standard output. For many files, a folder.",
        after="prediction",
    )
    coverage: tuple[float, ...] = options.coverage(
        "Share of targets that should be inside; repeat it for several levels.  [default: 0.9]",
        several=True,
        after="explain",
    )
    bounds: tuple[float, float] | None = option(
        "The range that the target can take; 'inf' and '-inf' leave a side open.",
        type=float,
        nargs=2,
        metavar="LOW HIGH",
        check=_bounds,
    )
    confidence: float | None = option(
        "Share of calibration sets for which the coverage should hold; for split, mad-split, rcp, "
        "slcp and normalized-knn."
    )
    workers: int | None = option(
        "For many files: the number of processes.  [default: 1]", type=click.IntRange(1, 4096)
    )
    scheduler: str | None = option(
        "For many files: the Dask scheduler to process them on, e.g. tcp://host:8786.",
        metavar="ADDRESS",
    )
    overwrite: bool = option(
        "For many files: write all outputs again, even those that are complete.", False
    )

    @property
    def inputs(self) -> list[str]:
        """All files that it reads, without the new ones if they are many."""
        known = super().inputs if self.calibrated is None else [str(self.calibrated)]
        return known if is_many(self.new) else [self.new, *known]

    def check(self) -> None:
        if self.calibrated is None:
            context = click.get_current_context()
            for name in _NEEDED:
                if not self.given(name):
                    raise click.UsageError(f"Missing option '--{name}'", context)
            super().check()
        else:
            self._refuse_decided(self.calibrated)
        if is_many(self.new):
            self.refuse_both("workers", "scheduler")
            check_folder(self.new, self.output)
            return
        many = {"workers": self.workers, "scheduler": self.scheduler, "overwrite": self.overwrite}
        for name, value in many.items():
            if value:
                raise CalliperError(
                    f"--{name} is for many files, as in --new 'folder/*.parquet': omit it."
                )
        self._refuse_known()
        tables.format_of(self.output)
        out.check_output(self.output, self.inputs)

    def _refuse_decided(self, path: str) -> None:
        """Refuse options that were fixed when the calibration was made."""
        context = click.get_current_context()
        for name in (str(parameter.name) for parameter in calibrate.params):
            given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if given and name not in _STILL_OPEN:
                raise CalliperError(
                    f"{options.flag(name)} was decided when {path} was made: omit it, or "
                    f"run calliper calibrate again."
                )

    def _refuse_known(self) -> None:
        """Refuse new rows whose targets were used."""
        for name, path in (("calibration", self.calibration), ("training", self.training)):
            if path is not None and out.is_same(path, self.new):
                raise CalliperError(
                    f"--new {self.new} is the file of --{name}: intervals around rows that were "
                    "already used say nothing about new ones; name a file of new rows."
                )


@options.command(IntervalRequest, optional=_NEEDED)
def interval(request: IntervalRequest) -> None:
    """Put prediction intervals around the predictions in a file.

    \b
    calliper interval --calibration cal.csv --new new.csv --target y --prediction y_pred \\
        --features-prefix emb_ --coverage 0.8 --coverage 0.95 --output out.csv

    Every row of the new file is written to the output with all its columns, followed by 'lower'
    and 'upper' (or 'lower_0.8', 'upper_0.8', ... for several levels). An unbounded interval has
    the ends -inf and inf.

    With 300 calibration rows or more, the default method uses some of them to learn where errors
    are large, and calibrates on the others; see --learning-part.

    \b
    Methods, with the proven coverage if you ask for 0.9:
      full        widens where nearby calibration errors are large        0.9
      jackknife   the same, with the paper's leave-two-out scales         0.8
      split       the same width everywhere                               0.9
    with --training:
      mad-split   widens where nearby training errors were large          0.9
      locart      a width for each leaf of a tree of training errors      0.9 in each leaf
    and conditional, minmax, slcp, rcp, normalized-knn, lcp, rlcp, lvd: see 'calliper methods'.

    Files are .csv, .tsv (both also as .gz) or .parquet, and the output may be in another of
    these formats. CSV rows keep their text, Parquet columns their types. From CSV to
    Parquet, the prediction and the features become numbers and every other column stays text.

    \b
    Many files, each written to a file of the same name; run it again to resume:
      calliper interval --calibrated model.calliper --new 'folder/*.parquet' \\
          --output folder-with-intervals --workers 8
    """  # noqa: D301
    many, form = is_many(request.new), request.form
    added = added_columns(request.coverage)
    with ExitStack() as stack:
        stack.enter_context(out.warnings_as_lines())
        if request.calibrated is not None:
            calibration = load_calibration(request.calibrated)
            columns = calibration.columns
        else:
            known = stack.enter_context(tables.open_table(request.calibration, form))
            columns = request.columns(known)
        if many:
            data = DataSet.of(request.new, form)
            data.check(columns, added)
        else:
            new = stack.enter_context(tables.open_table(request.new, form))
            columns.check(new, added)
        if request.calibrated is None:
            calibration = calibrate_rows(request, read_rows(request, known, columns))
        levels, sure = request.coverage, request.confidence
        answering = Answering(calibration, form, levels, request.bounds, sure)
        hidden = request.quiet or request.output == "-"
        report = stack.enter_context(out.progress("writing", hidden=hidden))
        if many:
            who = {"workers": request.workers or 1, "scheduler": request.scheduler}
            tally, done = data.write(answering, request.output, report, request.overwrite, **who)
        else:
            tally = answering.write(new, request.output, report)
            where = "standard output" if request.output == "-" else request.output
            done = f"{tally.rows} rows written to {where}"
    answering.say(tally, done, explain=request.explain, quiet=request.quiet)
