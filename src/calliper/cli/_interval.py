"""``calliper interval``: intervals around predictions that are in a file."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

from calliper._calibrated import CalibratedOnStored, calibrate_stored
from calliper._types import FloatArray
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._methods import DEFAULT, DEFAULT_NEIGHBORS, METHODS, STATISTICS, MethodOptions
from calliper.cli._scales import Scales, read_scales
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.shift import LikelihoodRatio, ShiftReport


@dataclass(frozen=True, kw_only=True)
class IntervalRequest:
    """What ``calliper interval`` is asked for: files, method, levels and bounds."""

    shared: options.Shared
    calibration: str
    new: str
    output: str
    training: str | None
    scales: str | None
    method: str | None
    coverage: tuple[float, ...]
    neighbors: int | None
    statistic: str | None
    offset: float | None
    bounds: tuple[float, float] | None
    confidence: float | None
    group: str | None
    weight: str | None
    shifted_to: str | None

    @property
    def options(self) -> MethodOptions:
        """The method, and what was said about it."""
        return MethodOptions(
            name=self.method or (DEFAULT if self.scales is None else "jackknife"),
            neighbors=self.neighbors,
            statistic=self.statistic,
            offset=self.offset,
            seed=self.shared.seed,
        )

    @property
    def levels(self) -> float | tuple[float, ...]:
        """The level, or the levels if there are several."""
        return self.coverage[0] if len(self.coverage) == 1 else self.coverage

    @property
    def beyond(self) -> list[str]:
        """Columns of calibration and new rows that are neither target, prediction nor feature."""
        return [name for name in (self.weight, self.group) if name is not None]

    def numbers(self, columns: list[str]) -> list[str]:
        """These columns, led by the one of weights, if there is one."""
        return columns if self.weight is None else [self.weight, *columns]

    @property
    def column_names(self) -> list[str]:
        """The columns that are added to the new rows."""
        shape = (0,) if len(self.coverage) == 1 else (0, len(self.coverage))
        return Intervals(np.empty(shape), np.empty(shape), self.coverage).column_names()

    def check(self) -> None:
        """Refuse what contradicts itself or cannot be written, before any work is done."""
        self.shared.names.check()
        has_training, has_scales = self.training is not None, self.scales is not None
        self.options.check(has_training=has_training, has_scales=has_scales)
        tables.format_of(self.output)
        if self.weight is not None and self.shifted_to is not None:
            raise CalliperError("--weight and --shifted-to exclude one another: give one.")
        if self.shifted_to is not None and not has_training:
            raise CalliperError(
                "--shifted-to needs --training: weights are learnt by telling the new rows from "
                "rows apart from the calibration rows, which must have no say in them."
            )
        inputs = (self.calibration, self.new, self.training, self.scales, self.shifted_to)
        out.check_output(self.output, [path for path in inputs if path is not None])


def _bounds(
    context: click.Context, parameter: click.Parameter, values: tuple[float, float] | None
) -> tuple[float, float] | None:
    if values is not None and not values[0] < values[1]:
        raise CalliperError(f"--bounds {values[0]} {values[1]}: LOW must be less than HIGH.")
    return values


@click.command()
@options.calibration_file()
@click.option(
    "--new",
    metavar="FILE",
    required=True,
    help="Rows to put intervals around, with prediction and features; '-' reads CSV from "
    "standard input. May be larger than memory.",
)
@options.known_columns
@click.option(
    "--output", metavar="FILE", required=True, help="The result; '-' writes CSV to standard output."
)
@options.feature_columns
@options.training_file("some methods learn from them. Without it, features are taken as they are.")
@click.option(
    "--scales",
    metavar="FILE",
    help="Length scales from 'calliper tune', in place of --neighbors; for jackknife.",
)
@click.option(
    "--method",
    type=click.Choice([*METHODS]),
    metavar="NAME",
    help=f"See above.  [default: {DEFAULT}; with --scales, jackknife]",
)
@options.coverage(
    "How often the target shall be inside; once for each level.  [default: 0.9]", several=True
)
@click.option(
    "--neighbors",
    type=click.IntRange(min=1),
    help=f"Nearest points, for methods that ask them.  [default: {DEFAULT_NEIGHBORS}]",
)
@click.option(
    "--statistic",
    type=click.Choice(STATISTICS),
    help="What neighbours' errors say, for full.  [default: mean]",
)
@click.option(
    "--offset",
    type=float,
    help="Added to every local scale, in the unit of the target.  [default: 0]",
)
@click.option(
    "--bounds",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    callback=_bounds,
    help="The range that the target can have; 'inf' and '-inf' leave a side open.",
)
@click.option(
    "--confidence",
    type=float,
    help="Reach the coverage with these very calibration rows, in this share of draws of them; for "
    "split, mad-split, rcp, slcp and normalized-knn.",
)
@click.option(
    "--group",
    metavar="COLUMN",
    help="Reach the coverage in each group: each is calibrated on its own rows.",
)
@click.option(
    "--weight",
    metavar="COLUMN",
    help="How many times as often such rows come among the new ones as in calibration, up to a "
    "constant: a column of both files. For full, jackknife, split and what learns by --training.",
)
@click.option(
    "--shifted-to",
    metavar="FILE",
    help="Learn such weights: rows like the new ones, often the new file itself, are told from "
    "those of --training by their features.",
)
@options.file_form
@options.seed_and_quiet("Decides whatever a method draws at random.")
@options.takes(IntervalRequest)
def interval(request: IntervalRequest) -> None:
    """Put prediction intervals around the predictions in a file.

    \b
    calliper interval --calibration cal.csv --new new.csv --target y --prediction y_pred \\
        --features-prefix emb_ --coverage 0.8 --coverage 0.95 --output out.csv

    Every row of the new file is written to the output with all its columns, then 'lower' and
    'upper' (or 'lower_0.8', 'upper_0.8', ... for several levels). An interval without a bound
    has the ends -inf and inf.

    \b
    Methods, with the coverage that is proved if 0.9 is asked for:
      full        widens where calibration errors near by are large       0.9
      jackknife   the same, by the paper's leave-two-out scales           0.8
      split       the same width everywhere                               0.9
    with the help of --training:
      mad-split   widens where training errors near by were large         0.9
      locart      a width for each leaf of a tree of training errors      0.9 in each leaf
    and conditional, minmax, slcp, rcp, normalized-knn, lcp, rlcp, lvd: see 'calliper methods'.

    Files are .csv, .tsv (both also with .gz) or .parquet, and the output may be another of these
    than the new file. CSV rows keep their very text, Parquet columns their types. From CSV to
    Parquet, the prediction and the features become numbers and every other column stays text.
    """  # noqa: D301
    request.check()
    _write_intervals(request)


def _write_intervals(request: IntervalRequest) -> None:
    """Read, calibrate, write, and say what was done."""
    scales = None if request.scales is None else read_scales(request.scales)
    with ExitStack() as stack:
        stack.enter_context(out.warnings_as_lines())
        form = request.shared.form
        known = stack.enter_context(tables.open_table(request.calibration, form))
        columns = request.shared.names.resolve(known)
        tables.require_columns(known, [*columns.known, *request.beyond])
        new = stack.enter_context(tables.open_table(request.new, form))
        _check_new(request, new, columns)
        calibrated, filling, weighing = _calibrate(request, known, columns, scales)
        hidden = request.shared.quiet or request.output == "-"
        report = stack.enter_context(out.progress("writing", hidden=hidden))
        needed = request.numbers(columns.new)
        n_rows = _stream(request, calibrated, new, needed, filling, weighing, report)
    if not request.shared.quiet:
        filling.say()
        _summarise(request, calibrated, n_rows)
        weighing.say(request.coverage[-1])


def _check_new(request: IntervalRequest, new: tables.Table, columns: tables.Columns) -> None:
    """The new rows have all that is needed and nothing that would be added."""
    tables.require_columns(new, [*columns.new, *request.beyond])
    request.shared.names.require_same_features(new, columns)
    tables.refuse_columns(new, request.column_names)


@dataclass(eq=False)
class Weighing:
    """Weights of rows: from a column that leads them, by a ratio that was learnt, or none."""

    led: bool
    n_features: int
    ratio: LikelihoodRatio | None = None
    seen: list[FloatArray] = field(default_factory=list)

    def split(self, rows: FloatArray) -> tuple[FloatArray, dict[str, Any]]:
        """Rows without a column of weights; and their weights, if any, which are remembered."""
        if not self.led and self.ratio is None:
            return rows, {}
        weights = rows[:, 0] if self.ratio is None else self.ratio(rows[:, -self.n_features :])
        self.seen.append(weights)
        return rows[:, int(self.led) :], {"weights": weights}

    def say(self, level: float) -> None:
        """What the weights leave of the calibration rows, which came first."""
        if self.seen:
            report = ShiftReport.of(self.seen[0], np.concatenate(self.seen[1:]), level)
            out.note(report.describe())


def _weighing(
    request: IntervalRequest, columns: tables.Columns, training: Any, filling: tables.Filling
) -> Weighing:
    """Weights as they were asked for; the ratio is learnt of training rows and shifted ones."""
    weighing = Weighing(request.weight is not None, len(columns.features))
    if request.shifted_to is not None:
        with tables.open_table(request.shifted_to, request.shared.form) as table:
            tables.require_columns(table, columns.features)
            now = tables.read_numbers(table, columns.features, filling)
        weighing.ratio = LikelihoodRatio(random_state=request.shared.seed)
        weighing.ratio.fit(training[:, 2:], now)
    return weighing


def _calibrate(
    request: IntervalRequest, table: tables.Table, columns: tables.Columns, scales: Scales | None
) -> tuple[CalibratedOnStored, tables.Filling, Weighing]:
    """The method, fitted to the calibration rows in ``table``, what fills gaps, and weights."""
    if scales is not None:
        scales.require_columns(columns, has_training=request.training is not None)
    training, filling = tables.read_training(request.training, columns, request.shared.form)
    weighing = _weighing(request, columns, training, filling)
    needed = request.numbers(columns.known)
    known, groups = tables.read_labelled(table, needed, filling, request.group)
    known, weights = weighing.split(known)
    if scales is not None:
        scales.require_rows(known, training)
    calibrator = request.options.build(None if scales is None else scales.chosen)
    calibrated = calibrate_stored(
        calibrator,
        tables.stored(known),
        None if training is None else tables.stored(training),
        groups=groups,
        **weights,
    )
    return calibrated, filling, weighing


def _stream(
    request: IntervalRequest,
    calibrated: CalibratedOnStored,
    new: tables.Table,
    needed: list[str],
    filling: tables.Filling,
    weighing: Weighing,
    report: out.Progress,
) -> int:
    """Write the new rows with their intervals, a chunk at a time; returns how many there were."""
    output, form, n_rows = request.output, request.shared.form, 0
    with ExitStack() as stack:
        handle = stack.enter_context(out.open_output(output))
        added = request.column_names
        writer = stack.enter_context(
            tables.open_writer(output, handle, new, form, numeric=needed, added=added)
        )
        for chunk in new.chunks(needed, carry=True, gaps=filling.gaps):
            rows, weights = weighing.split(filling.fill(chunk.numbers.copy()))
            y_pred, X = rows[:, 0], rows[:, 1:]
            how: dict[str, Any] = {"confidence": request.confidence, **weights}
            if request.group is not None:
                how["groups"] = tables.known_labels(chunk, request.group)
            ends = calibrated.intervals(X, y_pred, request.levels, bounds=request.bounds, **how)
            with out.writing(output):
                writer.write(chunk, np.stack([*ends], axis=-1).reshape(len(X), -1))
            n_rows += len(X)
            report(new.fraction_read())
        if not n_rows:
            tables.refuse_no_rows(new)
    return n_rows


def _summarise(request: IntervalRequest, calibrated: CalibratedOnStored, n_rows: int) -> None:
    calibrator = calibrated.calibrator
    if calibrator.judges_nearness:
        request.shared.note_prediction_alone()
    if request.scales is not None:
        out.note("note: each length scale was chosen without its own point, as the proof requires")
    where = "standard output" if request.output == "-" else request.output
    promises = [calibrated.guarantee(level, request.confidence) for level in request.coverage]
    name, n = promises[0].method, calibrator.n_calibration_
    out.note(f"{n_rows} rows written to {where} ({name}, {n} calibration points)")
    if hasattr(calibrator, "locality_"):
        out.note(f"how local: {calibrator.locality_.describe()}")
    first, *further = (promise.describe() for promise in promises)
    out.note(first)
    for text in further:
        promise, given, _ = text.partition(", provided that ")
        if given in first and text != first:
            out.note(f"{promise}, under the same assumptions" if given else text)
