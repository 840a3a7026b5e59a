"""``calliper tune``: choose how local each calibration row is on the others, and save it."""

from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite
from typing import Any

import click

from calliper._row_checks import refuse_seen, sketch_rows
from calliper.cli import _calibration as calibration
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli._options import File, option
from calliper.cli._tables import open_table
from calliper.exceptions import CalliperError
from calliper.kernels import TunedKNN, TunedRBF
from calliper.lab.tuning import CRITERIA_IN_WORDS, TuningCurve, tuning_curve
from calliper.space import fit_embedding

#: Bytes for each pair of calibration rows, as measured; and how many are worth a warning.
_PAIR_BYTES, _MANY_BYTES = {"mse": 30, "deviance": 30, "mi": 70}, 2e9


def _length_scales(text: str | None) -> tuple[float, ...] | None:
    """Positive numbers separated by commas, in ascending order."""
    if text is None:
        return None
    try:
        scales = sorted({float(part) for part in text.split(",")})
    except ValueError:
        scales = []
    # The bounds of the kernel: squares beyond them overflow or underflow.
    if not scales or not all(1e-150 < scale < 1e150 for scale in scales):
        known = "positive numbers, as in --length-scales 0.1,0.2,0.5"
        raise CalliperError(f"--length-scales {text!r}: must be {known}.")
    return tuple(scales)


@dataclass(frozen=True, kw_only=True)
class TuneRequest(calibration.CalibrateRequest):
    method: options.Name = options.Name("jackknife")
    learning_part: None = None
    figure: File | None = option("Draw the criterion: .png, .pdf or .svg.")
    criterion: str = option("See above.", "mse", type=click.Choice([*CRITERIA_IN_WORDS]))
    length_scales: tuple[float, ...] | None = option(
        "The scales to try; without --training, of features that are not standardised.  "
        "[default: 30 scales that span the distances between training rows]",
        metavar="L,M,...",
        check=_length_scales,
    )

    def check(self) -> None:
        options.Request.check(self)
        if self.kernel not in (None, "tuned-rbf", "tuned-knn"):
            what = f"--kernel {self.kernel} has nothing to tune"
            raise CalliperError(f"{what}: use tuned-rbf or tuned-knn.")
        if self.radial and self.length_scales is None and self.training is None:
            why = "because the grid is derived from distances between its rows"
            other = "or set the grid yourself, as in --length-scales 0.1,0.2,0.5"
            raise CalliperError(f"--training FILE is needed, {why}; {other}.")
        if not self.radial and self.length_scales is not None:
            raise CalliperError("--length-scales is for --kernel tuned-rbf: omit it.")
        calibration.check_kept(self.output, self.inputs)
        if self.figure is not None:
            out.check_figure_name(self.figure)

    @property
    def radial(self) -> bool:
        """Whether length scales are tuned, or else numbers of neighbours."""
        return self.kernel != "tuned-knn"

    def tuned_kernel(self, report: Any = None) -> Any:
        """The kernel, with the defaults of the library."""
        if not self.radial:
            return TunedKNN(self.criterion, progress=report)
        return TunedRBF(self.criterion, length_scales=self.length_scales, progress=report)


@options.command(TuneRequest, without=calibration.CalibrationRequest.__annotations__)
def tune(request: TuneRequest) -> None:
    """Tune how local the intervals are at each calibration row, and calibrate.

    \b
    calliper tune --calibration cal.csv --training train.csv --target y --prediction y_pred \\
        --features a,b --figure tuning.png --output tuned.calliper
    calliper interval --calibrated tuned.calliper --new new.csv --output out.csv

    Prints the criterion for each length scale (with --kernel tuned-knn, for each number of
    neighbours) and for the 10 nearest neighbours. The scale of each calibration row is chosen on
    all the others, so the guarantee of --method jackknife, which is saved in the file, still holds.

    \b
    Criteria; smaller is better:
      mse       squared error of the local mean as a prediction of each error
      deviance  the same, relative to the local mean: less affected by a few large errors
      mi        mutual information of rescaled errors and features, as in the paper; slower
    """  # noqa: D301
    with out.warnings_as_lines():
        with open_table(request.calibration, request.form) as table:
            rows = calibration.read_known(request, table, request.columns(table))
        n, about = len(rows.known), _PAIR_BYTES[request.criterion] * len(rows.known) ** 2
        if about > _MANY_BYTES and request.radial:
            need = f"needs about {about / 1e9:.0f} GB of memory"
            less = "half as many rows need a quarter of that, and TunedRBF(n_folds=10) in Python"
            out.note(f"warning: tuning on {n} calibration rows {need}; {less} needs far less")
        with out.progress("tuning", hidden=request.quiet) as report:
            curve = _curve(request, rows, report)
        # TunedRBF can be given what was chosen, and need not choose again.
        kernel = TunedRBF(chosen=curve.chosen) if request.radial else request.tuned_kernel()
        method = request.options.build(kernel)
        made = calibration.calibrate_rows(request, rows, method, curve.chosen)
        with ExitStack() as stack:  # both files, or neither
            if request.figure is not None:
                from calliper.lab.report import draw_tuning

                handle = stack.enter_context(out.open_output(request.figure))
                handle.write(out.drawn(draw_tuning(curve), request.figure))
            made.save(request.output, rows)
    if not request.quiet:
        _show(request, curve)
        options.note_if_alone(rows.columns.alone)
        rows.filling.say()


def _curve(request: TuneRequest, rows: calibration.KnownRows, report: Any) -> TuningCurve:
    """The curve in the same features that ``calliper interval`` judges nearness in."""
    known, training = rows.known, rows.training
    X, X_train = known[:, 2:], None if training is None else training[:, 2:]
    if training is not None:
        refuse_seen(sketch_rows(X_train, training[:, 0]), X, known[:, 0])
    embedding = fit_embedding(None, X_train, X)
    errors = request.score_function.magnitude(known[:, 0], known[:, 1])
    kernel, Z = request.tuned_kernel(report), embedding.transform(X)
    Z_train = None if X_train is None else embedding.transform(X_train)
    return tuning_curve(Z, errors, kernel=kernel, Z_train=Z_train, random_state=request.seed)


def _show(request: TuneRequest, curve: TuningCurve) -> None:
    """Print a row for each candidate and, set apart, the kernel to compare with; and notes."""
    form = "#.4g" if curve.what == "length scale" else "g"
    found = zip(curve.candidates, curve.mean, curve.deviation, curve.counts, strict=True)
    rows = [
        [format(at, form), _number(mean), f"{off:.2g}" if isfinite(off) else "-", str(count or "")]
        for at, mean, off, count in found
    ]
    if curve.reference_name is not None:
        value = curve.reference_value
        rows.append([curve.reference_name, "too few points" if value is None else _number(value)])
    names = (curve.what, f"{curve.criterion}, mean", "± deviation", "points")
    columns = {name: {"justify": "right", "no_wrap": True} for name in names}
    title, last = f"Tuned on {len(curve.chosen)} calibration rows", len(curve.candidates) - 1
    out.print_table(title, columns, rows, line_after=last, padding=(0, 1))
    click.echo(f"\n{out.wrapped(curve.describe())}")
    output = request.output
    out.note(f"\ncalibration of {len(curve.chosen)} rows written to {output}")
    if request.figure is not None:
        out.note(f"figure written to {request.figure}")
    out.note(f"to use it: calliper interval --calibrated {output} --new new.csv --output out.csv")


def _number(value: float) -> str:
    return f"{value:#.5g}" if isfinite(value) else f"{value:g}"
