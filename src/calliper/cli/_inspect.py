"""``calliper inspect``: what a saved calibration is, what it promises and how it was made."""

from dataclasses import asdict
from typing import Any

import click
import numpy as np

from calliper import files
from calliper._stored import CalibratedOnStored
from calliper._writing import to_text
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import FileCalibration, load_calibration
from calliper.exceptions import CalliperError


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
        made = load_calibration(file) if by_us else None
        if as_json:
            roles: dict[str, Any] = {}
            if made is not None:  # of a file that was saved in Python its header has them
                roles = {**asdict(made.columns), "columns": made.columns.features}
            click.echo(to_text({**kept.header, **roles}, indent=1))
        else:
            first, *rest = kept.describe() if made is None else _described(kept, made)
            click.echo(out.wrapped(f"{file}: {first}"))
            for line in rest:
                click.echo(out.wrapped(line, indent="  "))
        if figure is not None:
            if made is None or made.sketch is None:
                what = "was saved in Python and holds no rows for --figure to draw"
                raise CalliperError(f"{file}: {what}; omit it.")
            from calliper.lab.report import draw_calibration

            (errors, widths), method = made.sketch, made.calibrated.regressor.guarantee(0.9).method
            out.write_figure(draw_calibration(errors, widths, method), figure)


def _described(kept: files.Kept, made: FileCalibration) -> list[str]:
    """The file in words, with its columns by their roles, and how wide its intervals are."""
    first, *rest = kept.describe()
    columns = made.columns
    text = f"columns: target {columns.target!r}, prediction {columns.prediction!r}, "
    text += f"{len(columns.features)} features: {tables.listed(columns.features, most=8)}"
    for part, name in (("group", columns.group), ("weight", columns.weight)):
        text += "" if name is None else f"; {part} {name!r}"
    lines = [first.replace(CalibratedOnStored.__name__, "stored predictions,"), text]
    if made.ratio is not None:
        lines.append("weights for a shift, learnt from the features")
    how = "filled with medians of training rows" if len(made.filling.medians) else "an error"
    lines.append(f"missing feature values: {how}")
    # The header names no model of the user's.
    lines += [out.in_options(line) for line in rest if not line.startswith("model:")]
    if made.sketch is not None:
        titles = ("calibration errors", "half-widths at 0.9")
        for title, values in zip(titles, made.sketch, strict=True):
            low, middle, high = np.quantile(values, [0, 0.5, 0.99], method="lower")
            lines.append(f"{title}: {low:.3g} to {high:.3g} (median {middle:.3g}; 99 % of rows)")
    return lines
