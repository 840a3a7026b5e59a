"""``calliper tune``: a length scale for every calibration point, chosen on the others."""

from __future__ import annotations

from math import isnan
from typing import Any

import click

from calliper.cli._columns import Names
from calliper.cli._tune_files import Search, TuneFiles, scales_from_files
from calliper.exceptions import CalliperError
from calliper.kernels import CRITERIA


def _length_scales(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[float, ...] | None:
    """Positive numbers separated by commas, in ascending order."""
    if text is None:
        return None
    try:
        scales = sorted({float(part) for part in text.split(",")})
    except ValueError:
        scales = []
    # The bounds of the kernel: squares of what lies outside are no numbers.
    if not scales or not all(1e-150 < scale < 1e150 for scale in scales):
        raise CalliperError(
            f"--length-scales {text!r}: give positive numbers, as in --length-scales 0.1,0.2,0.5."
        )
    return tuple(scales)


def _number(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    """A range does not keep out what is not a number."""
    if value is not None and isnan(value):
        raise CalliperError(f"--{parameter.name} must be a number; got {value}.")
    return value


@click.command()
@click.option(
    "--calibration",
    metavar="FILE",
    required=True,
    help="Rows the model has not seen, with target, prediction and features.",
)
@click.option(
    "--training",
    metavar="FILE",
    help="Rows the model was trained on, with the same columns: features are standardised by them, "
    "and their distances span the grid.",
)
@click.option("--target", metavar="COLUMN", required=True, help="The true values.")
@click.option("--prediction", metavar="COLUMN", required=True, help="What the model said.")
@click.option("--output", metavar="FILE", required=True, help="The length scales: .json.")
@click.option("--figure", metavar="FILE", help="The curve: .png, .pdf or .svg.")
@click.option(
    "--features",
    metavar="A,B,...",
    help="Columns in which nearness is judged; the prediction alone if not given.",
)
@click.option("--features-prefix", metavar="TEXT", help="Or: all columns that start with this.")
@click.option(
    "--criterion",
    type=click.Choice(CRITERIA),
    default="mse",
    show_default=True,
    help="See above.",
)
@click.option(
    "--grid",
    type=click.Choice(["auto", "guarded", "paper"]),
    help="Whether to keep to scales that average some ten points; auto: for mi.  [default: auto]",
)
@click.option("--scan", type=click.IntRange(1, 1000), help="Scales to try.  [default: 30]")
@click.option(
    "--sample",
    type=click.IntRange(1, 10**6),
    help="Pairs of training rows whose distances span the grid.  [default: 1000]",
)
@click.option(
    "--expand",
    type=click.FloatRange(1, 1e6),
    callback=_number,
    help="Factor that widens the grid at both ends.  [default: 1]",
)
@click.option(
    "--length-scales",
    metavar="L,M,...",
    callback=_length_scales,
    help="The grid itself; without --training, features are then taken as they are.",
)
@click.option(
    "--components",
    type=click.IntRange(min=1),
    help="For mi: principal components of the features.  [default: all features]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Draws pairs and settles ties.",
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors and warnings.")
def tune(**options: Any) -> None:
    """Choose how local the intervals are: a length scale for each calibration point.

    \b
    calliper tune --calibration cal.csv --training train.csv --target y --prediction y_pred \\
        --features a,b --figure tuning.png --output scales.json
    calliper interval --scales scales.json --calibration cal.csv --training train.csv \\
        --target y --prediction y_pred --features a,b --new new.csv --output out.csv

    Prints how good each length scale is, with the 10 nearest neighbours for comparison. The scale
    of a calibration point is chosen on all others, so that the proof for --method jackknife holds.

    \b
    Criteria; smaller is better:
      mse       squared error of the local mean error as a guess of the next one
      deviance  the same relative to its size, less swayed by a few large errors
      mi        mutual information of rescaled error and features, as in the paper; slower
    """  # noqa: D301
    take = options.pop
    files = TuneFiles(take("calibration"), take("training"), take("output"), take("figure"))
    names = Names(take("target"), take("prediction"), take("features"), take("features_prefix"))
    quiet = take("quiet")
    scales_from_files(files, names, Search(**options), quiet=quiet)
