"""A method calibrated on the rows of a file, with what it needs to know about new rows.

``calliper interval`` makes one and uses it at once; ``calliper calibrate`` saves it to a file that
executes nothing, for ``calliper interval --calibrated``.
"""

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import click
import joblib
import numpy as np

from calliper import __version__, files
from calliper._row_checks import sketch_rows
from calliper._stored import CalibratedOnStored, StoredRows, stored_predictions
from calliper._types import FloatArray
from calliper.calibrators import FullRescaled, as_calibrator
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._methods import DEFAULT, METHODS, MethodOptions
from calliper.cli._options import Column, File, Name, option
from calliper.exceptions import CalliperError, UnusedWarning, unheard
from calliper.kernels import STATISTICS
from calliper.regressor import ConformalRegressor
from calliper.rows import rows_of_groups
from calliper.scores import AbsoluteError, Score, as_score
from calliper.shift import LikelihoodRatio
from calliper.space import deal

ENDING = ".calliper"
SKETCHED = 500  # most rows in a sketch


def _learning_part(text: str) -> Any:
    """What ``learning_part`` of ConformalRegressor takes; ranges are checked there."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    known = "auto, none, a share such as 0.5, or a number of rows"
    raise CalliperError(f"--learning-part must be {known}; got {text!r}.")


@dataclass(frozen=True, kw_only=True)
class CalibrationRequest(options.Request):
    method: Name = option("See 'calliper methods'.", DEFAULT, type=click.Choice([*METHODS]))
    neighbors: int | None = option(
        "Number of neighbours.  [default: see 'calliper methods --long']",
        type=click.IntRange(min=1),
    )
    statistic: str | None = option(
        "Statistic of the neighbours' errors, for --method full.  [default: mean]",
        type=click.Choice([*STATISTICS]),
    )
    offset: float | None = option("Added to every local scale.  [default: 0]")
    learning_part: str | float | None = option(
        "Calibration rows used to learn about the model's errors, not to calibrate: a share, a "
        "number, none or auto. With auto, the default method does so with 300 rows or more.",
        "auto",
        metavar="PART",
        check=_learning_part,
    )
    group: Column | None = option("Column of group labels: each group is calibrated separately.")
    weight: Column | None = option(
        "Column of weights, in calibration and new rows: how much more often a row occurs among "
        "new rows than among calibration rows, up to a constant factor."
    )
    shifted_to: File | None = option(
        "Learn these weights from a file of rows like the new ones, ideally not the same rows."
    )
    explain: bool = option("Explain the guarantee and its conditions in full.", False)

    @property
    def options(self) -> MethodOptions:
        how = (self.kernel, self.neighbors, self.statistic, self.offset, self.seed)
        return MethodOptions(self.method, *how)

    @property
    def inputs(self) -> list[str]:
        return [*filter(None, (self.calibration, self.training, self.shifted_to))]

    def columns(self, calibration: Any) -> tables.Columns:
        """All columns, which the calibration rows must have."""
        found = replace(super().columns(calibration), group=self.group, weight=self.weight)
        tables.require_columns(calibration, [*found.known, self.weight, self.group])
        return found

    def check(self) -> None:
        super().check()
        self.options.check(has_training=self.training is not None)
        weighed = "--weight" if self.weight is not None else "--shifted-to"
        if (self.weight or self.shifted_to) and "weights" not in self.options.build().uses:
            what = f"--method {self.method} does not use {weighed}"
            raise CalliperError(f"{what}: see calliper methods.")
        self.refuse_both("weight", "shifted_to")
        if self.shifted_to is not None and self.training is None:
            why = "weights are learnt by separating new rows from training rows"
            raise CalliperError(f"--shifted-to needs --training: {why}.")
        for path in filter(None, (self.calibration, self.training)):
            if self.shifted_to is not None and out.is_same(path, self.shifted_to):
                what = f"--shifted-to {path} is also a file of calibration or training rows"
                raise CalliperError(f"{what}: pass a file with rows like the new ones.")


class KnownRows(NamedTuple):
    """Rows with known targets, (n, 2 + d): target, prediction and features; and what they have.

    The ratio gives rows weights if it was learnt, from rows that are ``shifted``.
    """

    columns: tables.Columns
    known: FloatArray
    training: FloatArray | None
    groups: tables.Labels
    weights: FloatArray | None
    filling: tables.Filling
    ratio: LikelihoodRatio | None
    shifted: FloatArray | None


def read_known(request: CalibrationRequest, table: Any, columns: tables.Columns) -> KnownRows:
    """Calibration rows in ``table``, and those of the other files."""
    training, filling = tables.read_training(request.training, columns, request.form)
    ratio = shifted = weights = None
    if request.shifted_to is not None and training is not None:
        with tables.open_table(request.shifted_to, request.form) as like_new:
            shifted, _ = tables.read_rows(like_new, columns.features, filling)
        ratio = LikelihoodRatio(random_state=request.seed).fit(training[:, 2:], shifted)
    needed = columns.numbers(columns.known)
    rows, (labels,) = tables.read_rows(table, needed, filling, columns.group)
    if columns.weight is not None:
        rows, weights = rows[:, 1:], rows[:, 0]
    if ratio is not None:
        weights = ratio(rows[:, 2:])
    return KnownRows(columns, rows, training, labels, weights, filling, ratio, shifted)


@dataclass(frozen=True, eq=False)
class FileCalibration:
    """A calibrated method, and what it needs to know about new rows.

    The digest is a checksum of what it was made from; the sketch, (2, n), errors of some rows and
    half-widths there at 0.9, to be drawn.
    """

    calibrated: CalibratedOnStored
    columns: tables.Columns
    filling: tables.Filling
    ratio: LikelihoodRatio | None
    digest: str
    sketch: FloatArray | None = None

    def split(self, rows: FloatArray) -> tuple[FloatArray, dict[str, Any]]:
        """Numbers of new rows without the column of weights, and weights, if there are any."""
        if self.ratio is not None:
            return rows, {"weights": self.ratio(rows[:, 1:])}
        return (rows, {}) if self.columns.weight is None else (rows[:, 1:], {"weights": rows[:, 0]})

    def save(self, path: str, rows: KnownRows) -> None:
        """Save it to a file, with a sketch of errors and widths on these rows."""
        about = {name: value for name, value in vars(self).items() if name != "calibrated"}
        about |= {"columns": asdict(self.columns), "filling": vars(self.filling)}
        about["sketch"] = self._sketch(rows)
        files.save(replace(self.calibrated, about=about), path)

    def _sketch(self, rows: KnownRows) -> FloatArray:
        """Errors and half-widths, (2, n), of evenly spaced rows that have a weight."""
        known, groups, weights = rows.known, rows.groups, rows.weights
        counted = np.arange(len(known)) if weights is None else np.flatnonzero(weights > 0)
        shown = counted[:: -(-len(counted) // SKETCHED)]
        y, y_pred, X = known[shown, 0], known[shown, 1], known[shown, 2:]
        how: dict[str, Any] = {"weights": None if weights is None else weights[shown]}
        how["groups"] = None if groups is None else [groups[row] for row in shown]
        ends = self.calibrated.intervals(X, y_pred, 0.9, **how)
        return np.stack([np.abs(y - y_pred), ends.width / 2])

    def summarise(
        self, coverage: tuple[float, ...], confidence: float | None, done: str, *, explain: bool
    ) -> None:
        """Print what was done, the method, and its guarantee: in a line, or in full."""
        calibrator = self.calibrated.regressor.calibrators_[0]
        options.note_if_alone(calibrator.judges_nearness and self.columns.alone)
        promises = [self.calibrated.regressor.guarantee(level, confidence) for level in coverage]
        count = f"{calibrator.n_calibration_} calibration rows"
        if taught := self.calibrated.regressor.calibration_.n_taught:
            count = f"{calibrator.n_calibration_} rows to calibrate and {taught} to learn from"
        out.note(f"{done} ({promises[0].method}, {count})")
        if explain and isinstance(calibrator, FullRescaled):
            out.note(f"locality: {calibrator.locality_.describe()}")
        given = "the same conditions" if explain else "conditions that --explain lists"
        for index, text in enumerate(dict.fromkeys(each.describe() for each in promises)):
            promise, *conditions = map(out.in_options, text.splitlines())
            if conditions and not (explain and index == 0):
                promise, conditions = f"{promise.removesuffix('.')}, under {given}.", []
            for line in (promise, *conditions):
                out.note(line)


def calibrate_rows(
    request: CalibrationRequest, rows: KnownRows, calibrator: Any = None, tuned: Any = None
) -> FileCalibration:
    """The method fitted to the rows: as requested, or with what was ``tuned`` on them before."""
    try:
        calibrated = calibrate_stored(
            calibrator or request.options.build(),
            rows.known,
            rows.training,
            score=request.score_function,
            learning_part=request.learning_part,
            random_state=request.seed,
            groups=rows.groups,
            weights=rows.weights,
        )
    except TypeError as error:  # raised by a kernel that does not support the method
        if request.kernel is None:
            raise
        both = f"--kernel {request.kernel} cannot be combined with --method {request.method}"
        raise CalliperError(f"{both}: choose another --kernel, or --method full.") from error
    calibrated = replace(calibrated, rows=sketch_rows(rows.known[:, 1:]))
    how = (__version__, asdict(request.options), request.learning_part, request.score)
    others = (rows.training, rows.groups, rows.weights, rows.filling.medians, rows.shifted, tuned)
    digest = joblib.hash([how, asdict(rows.columns), rows.known, others])
    return FileCalibration(calibrated, rows.columns, rows.filling, rows.ratio, digest)


def calibrate_stored(
    calibrator: Any,
    known: FloatArray,
    training: FloatArray | None = None,
    *,
    score: Score | None = None,
    learning_part: Any = None,
    random_state: Any = None,
    groups: Any = None,
    weights: Any = None,
) -> CalibratedOnStored:
    """Calibrate on stored rows, (n, 2 + d): target, prediction, features.

    Where some rows teach, the space is chosen as :class:`ConformalRegressor` does by default. Else
    nearness is judged in the features: standardised by training rows, if there are any; never by
    calibration rows.
    """
    y, X = known[:, 0], StoredRows(known[:, 2:], known[:, 1])
    more: dict[str, Any] = {}
    if training is not None:
        more = {"X_train": StoredRows(training[:, 2:], training[:, 1]), "y_train": training[:, 0]}
    teach = isinstance(as_score(score), AbsoluteError)
    method = as_calibrator(calibrator)
    if learning_part == "auto" and "left_out" not in method.uses:
        teach = False
    if teach:  # told by counts alone, as calibrate does
        if groups is not None:
            rows_of_groups(groups)  # refuses missing labels, which cannot be dealt
        taught, _ = deal(len(y), learning_part, labels=groups, random_state=random_state)
        teach = len(taught) > 0
    regressor = ConformalRegressor(
        stored_predictions,
        calibrator,
        score_function=score,
        embed="auto" if teach or not method.judges_nearness else "inputs",
        learning_part=learning_part,
        random_state=random_state,
    )
    with unheard(*((UnusedWarning,) if teach else ())):  # training rows may also fill cells
        regressor.calibrate(X, y, groups=groups, weights=weights, **more)
    return CalibratedOnStored(regressor)


def load_calibration(path: str) -> FileCalibration:
    """Load what ``calliper calibrate`` saved."""
    kind = files.inspect(path).header["object"]
    calibrated = files.load(path) if kind == CalibratedOnStored.__name__ else None
    if calibrated is None or calibrated.about is None or calibrated.rows is None:
        what = f"contains a {kind} without column names, saved in Python"
        raise CalliperError(f"{path}: {what}; create a file with calliper calibrate.")
    try:
        about = dict(calibrated.about)
        about["columns"] = tables.Columns(**about["columns"])
        about["filling"] = tables.Filling(**about["filling"] | {"n_filled": 0})
        return FileCalibration(calibrated=calibrated, **about)
    except (KeyError, TypeError) as error:
        what = "this version cannot read its description of the columns"
        raise CalliperError(f"{path}: {what}; run calliper calibrate again.") from error


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(CalibrationRequest):
    output: File = option(f"The {ENDING} file to save the calibration to.")

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

    The intervals are the same, digit for digit, as from 'calliper interval' in one step. Opening
    the file runs no code; 'calliper inspect' shows what it holds and what it guarantees.
    """  # noqa: D301
    with out.warnings_as_lines(), tables.open_table(request.calibration, request.form) as table:
        rows = read_known(request, table, request.columns(table))
        calibration = calibrate_rows(request, rows)
        calibration.save(request.output, rows)
    if not request.quiet:
        calibration.filling.say()
        done = f"calibration written to {request.output}"
        calibration.summarise((0.9,), None, done, explain=request.explain)
