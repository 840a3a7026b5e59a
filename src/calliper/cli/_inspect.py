"""``calliper inspect``: what a saved calibration is, what it promises and how it was made."""

from typing import Any

import click
import numpy as np

from calliper import files
from calliper._stored import CalibratedOnStored
from calliper._types import FloatArray
from calliper._writing import to_text
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import FileCalibration, load_calibration
from calliper.exceptions import CalliperError

_BARS = "▁▂▃▄▅▆▇█"
_N_BARS = 40
_TITLES = ("calibration errors", "half-widths at 0.9")


@click.command()
@click.argument("file")
@click.option(
    "--figure", metavar="FILE", help="Draw calibration errors and half-widths: .png, .pdf or .svg."
)
@click.option("--json", "as_json", is_flag=True, help="Print the header of the file as JSON.")
def inspect(file: str, figure: str | None, as_json: bool) -> None:
    """Show what a saved calibration is, what it guarantees and how it was made.

    \b
    calliper inspect model.calliper
    calliper inspect model.calliper --figure model.png

    Files saved in Python can be inspected too. Opening a file runs no code; a modified or
    truncated file is rejected.
    """  # noqa: D301
    if figure is not None:
        out.check_figure_name(figure)
    with out.warnings_as_lines():
        kept = files.inspect(file)
        by_us = kept.header["object"] == CalibratedOnStored.__name__
        calibration = load_calibration(file) if by_us else None
        if as_json:
            parts: dict[str, Any] = {}
            if calibration is not None:  # of a file that was saved in Python its header has them
                of, roles = calibration.columns, ("target", "prediction", "group", "weight")
                parts = {"columns": [*of.features], **{name: getattr(of, name) for name in roles}}
            click.echo(to_text({**kept.header, **parts}, indent=1))
        else:
            _say(file, kept, calibration)
        if figure is not None:
            _draw(file, calibration, figure)


def _say(file: str, kept: files.Kept, calibration: FileCalibration | None) -> None:
    first, *rest = kept.describe()
    if calibration is not None:  # its header names no model of the user's
        first = first.replace(CalibratedOnStored.__name__, "stored predictions,")
        said = [out.in_options(line) for line in rest if not line.startswith("model:")]
        rest = [*_columns(calibration), *said]
    click.echo(out.wrapped(f"{file}: {first}"))
    for line in rest:
        click.echo(out.wrapped(line, indent="  "))
    if calibration is not None and calibration.sketch is not None:
        click.echo("")
        for title, values in zip(_TITLES, calibration.sketch, strict=True):
            _print_bars(title, values)


def _columns(calibration: FileCalibration) -> list[str]:
    """The columns by their roles, and how gaps are filled."""
    columns = calibration.columns
    text = f"target {columns.target!r}, prediction {columns.prediction!r}, "
    text += f"{len(columns.features)} features: {tables.listed(columns.features, most=8)}"
    for part, name in (("group", columns.group), ("weight", columns.weight)):
        text += "" if name is None else f"; {part} {name!r}"
    gaps = "filled with medians of training rows" if len(calibration.filling.medians) else "refused"
    learnt = [] if calibration.ratio is None else ["weights for a shift, learnt from the features"]
    return [f"columns: {text}", *learnt, f"gaps among features: {gaps}"]


def _print_bars(title: str, values: FloatArray) -> None:
    """A line of bars from the smallest value to the 99th percentile."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        click.echo(f"{title}: all infinite")
        return
    low, high = float(finite.min()), float(np.quantile(finite, 0.99))
    if high - low <= 1e-9 * abs(high):  # but for rounding
        click.echo(f"{title}: {low:.3g} everywhere")
        return
    count, _ = np.histogram(finite, bins=_N_BARS, range=(low, high))
    level = np.ceil(count / count.max() * (len(_BARS) - 1)).astype(int)
    infinite = len(values) - len(finite)
    tail = f", {infinite} infinite" if infinite else ""
    bars = "".join(_BARS[each] for each in level)
    middle = f"median {np.median(finite):.3g}{tail}"
    click.echo(f"{title}  {format(low, '.3g'):>8} {bars} {high:.3g}  ({middle})")


def _draw(file: str, calibration: FileCalibration | None, figure: str) -> None:
    if calibration is None or calibration.sketch is None:
        raise CalliperError(
            f"{file}: was saved in Python and holds no rows for --figure to draw; omit it."
        )
    from calliper.lab.report import draw_calibration

    errors, widths = calibration.sketch
    made = draw_calibration(errors, widths, calibration.calibrated.guarantee(0.9).method)
    out.write_figure(made, figure)
