"""A method fitted to the rows of a file, with all that must be known of new rows beside it.

``calliper interval`` makes one and uses it at once; ``calliper calibrate`` keeps it in a file, with
which ``calliper interval --calibrated`` goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import click
import numpy as np

from calliper import __version__, files
from calliper._stored import CalibratedOnStored, calibrate_stored
from calliper._types import FloatArray
from calliper._writing import to_text
from calliper.calibrators import FullRescaled
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._methods import DEFAULT, DEFAULT_NEIGHBORS, METHODS, STATISTICS, MethodOptions
from calliper.cli._scales import fingerprint, read_scales
from calliper.exceptions import CalliperError
from calliper.kernels import named_kernels
from calliper.shift import LikelihoodRatio

#: Rows that a sketch is made of, at most.
SKETCHED = 500


@dataclass(frozen=True, kw_only=True)
class CalibrationRequest:
    """What is asked of a calibration: files, columns and the method."""

    shared: options.Shared
    calibration: str
    training: str | None
    scales: str | None
    method: str | None
    kernel: str | None
    neighbors: int | None
    statistic: str | None
    offset: float | None
    group: str | None
    weight: str | None
    shifted_to: str | None

    @property
    def options(self) -> MethodOptions:
        """The method, and what was said about it."""
        return MethodOptions(
            name=self.method or (DEFAULT if self.scales is None else "jackknife"),
            kernel=self.kernel,
            neighbors=self.neighbors,
            statistic=self.statistic,
            offset=self.offset,
            seed=self.shared.seed,
        )

    @property
    def inputs(self) -> list[str]:
        """All files that are read for it."""
        every = (self.calibration, self.training, self.scales, self.shifted_to)
        return [path for path in every if path is not None]

    def check(self) -> None:
        """Refuse what contradicts itself, before any work is done."""
        self.shared.check()
        has_training, has_scales = self.training is not None, self.scales is not None
        self.options.check(has_training=has_training, has_scales=has_scales)
        if self.weight is not None and self.shifted_to is not None:
            raise CalliperError("--weight and --shifted-to exclude one another: give one.")
        if self.shifted_to is not None and not has_training:
            raise CalliperError(
                "--shifted-to needs --training: weights are learnt by telling the new rows from "
                "rows apart from the calibration rows, which must have no say in them."
            )


#: The options of a request but the files of rows and the columns.
method_options = options.together(
    click.option(
        "--scales",
        metavar="FILE",
        help="Length scales from 'calliper tune', in place of --neighbors; for jackknife.",
    ),
    click.option(
        "--method",
        type=click.Choice([*METHODS]),
        metavar="NAME",
        help=f"See 'calliper methods'.  [default: {DEFAULT}; with --scales, jackknife]",
    ),
    click.option(
        "--kernel",
        type=click.Choice([*named_kernels()]),
        metavar="NAME",
        help=f"Which points count as near: {', '.join(named_kernels())}.  [default: by the method]",
    ),
    click.option(
        "--neighbors",
        type=click.IntRange(min=1),
        help=f"Nearest points, for methods that ask them.  [default: {DEFAULT_NEIGHBORS}]",
    ),
    click.option(
        "--statistic",
        type=click.Choice(STATISTICS),
        help="What neighbours' errors say, for full.  [default: mean]",
    ),
    click.option(
        "--offset",
        type=float,
        help="Added to every local scale, in the unit of the target.  [default: 0]",
    ),
    click.option(
        "--group",
        metavar="COLUMN",
        help="Reach the coverage in each group: each is calibrated on its own rows.",
    ),
    click.option(
        "--weight",
        metavar="COLUMN",
        help="How many times as often such rows come among the new ones as in calibration, up to a "
        "constant: a column of both. For full, jackknife, split and what learns by --training.",
    ),
    click.option(
        "--shifted-to",
        metavar="FILE",
        help="Learn such weights: rows like the new ones, often the new file itself, are told from "
        "those of --training by their features.",
    ),
)

#: Parameters that decide a calibration, and are decided where one is read from a file.
DECIDED = (
    *("calibration", "target", "prediction", "features", "features_prefix", "training", "scales"),
    *(
        "method",
        "kernel",
        "neighbors",
        "statistic",
        "offset",
        "group",
        "weight",
        "shifted_to",
        "gaps",
        "seed",
    ),
)


@dataclass(frozen=True)
class RowSchema:
    """What new rows must have as calibration rows had it.

    Attributes
    ----------
    columns : target, prediction and features
    prefix : what the names of all features start with, if they were named so
    alone : whether nearness is judged by the prediction, for want of features
    group, weight : columns of labels and of weights, if there are any
    """

    columns: tables.Columns
    prefix: str | None
    alone: bool
    group: str | None
    weight: str | None

    @classmethod
    def of(cls, request: CalibrationRequest, table: tables.Table) -> RowSchema:
        """By the options and the calibration rows, which must have it all."""
        shared = request.shared
        columns = shared.columns(table)
        alone = shared.features is None and shared.features_prefix is None
        schema = cls(columns, shared.features_prefix, alone, request.group, request.weight)
        tables.require_columns(table, [*columns.known, *schema.beyond])
        return schema

    @property
    def beyond(self) -> list[str]:
        """Columns that are neither target, prediction nor feature."""
        return [name for name in (self.weight, self.group) if name is not None]

    def numbers(self, columns: list[str]) -> list[str]:
        """These columns, led by the one of weights, if there is one."""
        return columns if self.weight is None else [self.weight, *columns]

    def check(self, table: tables.Table, added: list[str]) -> None:
        """The new rows have all that is needed and nothing that would be added."""
        tables.require_columns(table, [*self.columns.new, *self.beyond])
        known = {*self.columns.features}
        for name in table.columns:
            by_prefix = self.prefix is not None and name.startswith(self.prefix)
            if by_prefix and name not in known:
                raise CalliperError(
                    f"{table.name}: column {name!r} is a feature by its prefix, but the "
                    f"calibration file has none of this name; give both the same features."
                )
        tables.refuse_columns(table, added)


@dataclass(frozen=True, eq=False)
class FileCalibration:
    """A fitted method, and what new rows need beside it.

    Attributes
    ----------
    schema : columns of new rows
    filling : what stands in for gaps
    ratio : what gives rows weights, if it was learnt
    weights : those of the calibration rows, (N,), if they have any
    digest : of all that it was made from
    by_scales : whether length scales were read from a file
    sketch : errors of some calibration rows and half-widths there at 0.9, (2, n), to be drawn
    """

    calibrated: CalibratedOnStored
    schema: RowSchema
    filling: tables.Filling
    ratio: LikelihoodRatio | None
    weights: FloatArray | None
    digest: str
    by_scales: bool
    sketch: FloatArray | None = None

    def split(self, rows: FloatArray) -> tuple[FloatArray, dict[str, Any]]:
        """Numbers of new rows without the column of weights, and weights, if there are any."""
        if self.ratio is not None:
            return rows, {"weights": self.ratio(rows[:, 1:])}
        return (rows, {}) if self.schema.weight is None else (rows[:, 1:], {"weights": rows[:, 0]})

    def save(self, path: str) -> None:
        """Keep it in a file."""
        about = {name: value for name, value in vars(self).items() if name != "calibrated"}
        about |= {"schema": asdict(self.schema), "filling": vars(self.filling)}
        files.save(replace(self.calibrated, about=about), path)


def load_calibration(path: str) -> FileCalibration:
    """What was kept in a file by ``calliper calibrate``."""
    with tables.open_bytes(path):  # whose message says what is wrong with the name
        pass
    kind = files.inspect(path).header["object"]
    calibrated = files.load(path) if kind == CalibratedOnStored.__name__ else None
    if calibrated is None or calibrated.about is None:
        raise CalliperError(
            f"{path}: holds a {kind} that knows no columns, for calliper.load in Python; make a "
            f"file for the command line with calliper calibrate."
        )
    try:
        about, schema = dict(calibrated.about), dict(calibrated.about["schema"])
        about["schema"] = RowSchema(**schema | {"columns": tables.Columns(**schema["columns"])})
        about["filling"] = tables.Filling(**about["filling"] | {"n_filled": 0})
        return FileCalibration(calibrated=calibrated, **about)
    except (KeyError, TypeError) as error:
        raise CalliperError(
            f"{path}: says of its columns what this version cannot read; run calliper calibrate "
            f"again."
        ) from error


def calibrate_rows(
    request: CalibrationRequest, table: tables.Table, schema: RowSchema, *, sketched: bool = False
) -> FileCalibration:
    """The method, fitted to the calibration rows in ``table``; with a sketch of it if asked for."""
    columns, shared = schema.columns, request.shared
    scales = None if request.scales is None else read_scales(request.scales)
    if scales is not None:
        scales.require_columns(columns, has_training=request.training is not None)
    training, filling = tables.read_training(request.training, columns, shared.form)
    ratio, shifted = _ratio(request, columns, training, filling)
    needed = schema.numbers(columns.known)
    rows, groups = tables.read_labelled(table, needed, filling, schema.group)
    known, weights = (rows, None) if schema.weight is None else (rows[:, 1:], rows[:, 0])
    if ratio is not None:
        weights = ratio(known[:, 2:])
    if scales is not None:
        scales.require_rows(known, training)
    try:
        calibrated = calibrate_stored(
            request.options.build(None if scales is None else scales.chosen),
            replace(tables.stored(known), groups=groups, weights=weights),
            None if training is None else tables.stored(training),
        )
    except TypeError as error:  # a kernel that cannot do what the method asks of it says so
        if request.kernel is None:
            raise
        raise CalliperError(
            f"--kernel {request.kernel} does not go with --method {request.options.name}: {error}"
        ) from error
    made_from = [asdict(schema), asdict(request.options), groups]
    chosen = None if scales is None else scales.chosen
    digest = _digest(made_from, rows, training, filling.medians, shifted, chosen)
    sketch = _sketch(calibrated, known, groups, weights) if sketched else None
    return FileCalibration(
        calibrated, schema, filling, ratio, weights, digest, scales is not None, sketch
    )


def _sketch(
    calibrated: CalibratedOnStored, known: FloatArray, groups: Any, weights: FloatArray | None
) -> FloatArray:
    """Errors and half-widths, (2, n), of evenly spaced rows; not of those that weigh nothing."""
    counted = np.arange(len(known)) if weights is None else np.flatnonzero(weights > 0)
    shown = counted[:: -(-len(counted) // SKETCHED)]
    y, y_pred, X = known[shown, 0], known[shown, 1], known[shown, 2:]
    ends = calibrated.intervals(
        X,
        y_pred,
        0.9,
        groups=None if groups is None else [groups[row] for row in shown],
        weights=None if weights is None else weights[shown],
    )
    return np.stack([np.abs(y - y_pred), ends.width / 2])


def _ratio(
    request: CalibrationRequest, columns: tables.Columns, training: Any, filling: tables.Filling
) -> tuple[LikelihoodRatio | None, FloatArray | None]:
    """What tells shifted rows from training rows, and the shifted rows; None if not asked for."""
    if request.shifted_to is None:
        return None, None
    with tables.open_table(request.shifted_to, request.shared.form) as table:
        tables.require_columns(table, columns.features)
        now = tables.read_numbers(table, columns.features, filling)
    return LikelihoodRatio(random_state=request.shared.seed).fit(training[:, 2:], now), now


def _digest(about: list[Any], *arrays: FloatArray | None) -> str:
    """SHA-256 of numbers and names, and of the version that made something of them."""
    parts = [None if array is None else fingerprint(np.asarray(array)) for array in arrays]
    return sha256(to_text([__version__, about, parts]).encode()).hexdigest()


def summarise(
    calibration: FileCalibration, coverage: tuple[float, ...], how: Any, done: str
) -> None:
    """What was done, by which method, and what it promises; ``how`` is a confidence, or None."""
    calibrated = calibration.calibrated
    calibrator = calibrated.calibrator
    if calibrator.judges_nearness and calibration.schema.alone:
        options.note_prediction_alone()
    if calibration.by_scales:
        out.note("note: each length scale was chosen without its own point, as the proof requires")
    promises = [calibrated.guarantee(level, how) for level in coverage]
    name, n = promises[0].method, calibrator.n_calibration_
    out.note(f"{done} ({name}, {n} calibration points)")
    if isinstance(calibrator, FullRescaled):
        out.note(f"how local: {calibrator.locality_.describe()}")
    first, *further = (promise.describe() for promise in promises)
    out.note(first)
    for text in further:
        promise, _, given = text.partition("\n")
        if text != first:
            out.note(f"{promise[:-1]}, under the same assumptions." if given else text)
