"""``calliper interval``: intervals around predictions that are in a file."""

from __future__ import annotations

from typing import Any

import click

from calliper._validation import check_levels
from calliper.cli._calibration import STATISTICS, Method
from calliper.cli._columns import Names
from calliper.cli._intervals import Files, intervals_from_files
from calliper.cli._methods import DEFAULT, METHODS
from calliper.cli._stream import Question
from calliper.exceptions import CalliperError


def _levels(
    context: click.Context, parameter: click.Parameter, values: tuple[float, ...]
) -> tuple[float, ...]:
    """Levels in ascending order, whatever order they were typed in."""
    levels = sorted(values) or [0.9]
    if len(set(levels)) < len(levels):
        raise CalliperError(f"--coverage is given twice with one value among {levels}.")
    try:
        return check_levels(levels)
    except CalliperError as error:
        raise CalliperError(f"--{error}") from error


def _bounds(
    context: click.Context, parameter: click.Parameter, values: tuple[float, float] | None
) -> tuple[float, float] | None:
    if values is not None and not values[0] < values[1]:
        raise CalliperError(f"--bounds {values[0]} {values[1]}: LOW must be less than HIGH.")
    return values


@click.command()
@click.option(
    "--calibration",
    metavar="FILE",
    required=True,
    help="Rows the model has not seen, with target, prediction and features.",
)
@click.option(
    "--new",
    metavar="FILE",
    required=True,
    help="Rows to put intervals around, with prediction and features; '-' reads CSV from "
    "standard input. May be larger than memory.",
)
@click.option("--target", metavar="COLUMN", required=True, help="The true values.")
@click.option("--prediction", metavar="COLUMN", required=True, help="What the model said.")
@click.option(
    "--output", metavar="FILE", required=True, help="The result; '-' writes CSV to standard output."
)
@click.option(
    "--features",
    metavar="A,B,...",
    help="Columns in which nearness is judged; the prediction alone if not given.",
)
@click.option("--features-prefix", metavar="TEXT", help="Or: all columns that start with this.")
@click.option(
    "--training",
    metavar="FILE",
    help="Rows the model was trained on, with the same columns: features are standardised by them, "
    "and some methods learn from them. Without it, features are taken as they are.",
)
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
@click.option(
    "--coverage",
    type=float,
    multiple=True,
    callback=_levels,
    help="How often the target shall be inside; once for each level.  [default: 0.9]",
)
@click.option(
    "--neighbors",
    type=click.IntRange(min=1),
    help="Nearest points, for methods that ask them.  [default: 10; slcp: 20; rcp: trees instead]",
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
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Settles ties in distance, and whatever else a method draws.",
)
@click.option("--quiet", is_flag=True, help="Only errors and warnings on standard error.")
def interval(**options: Any) -> None:
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

    Files are .csv (UTF-8, commas), .tsv or .parquet, and the output may be another of these than
    the new file. CSV rows keep their very text, Parquet columns their types. From CSV to Parquet,
    the prediction and the features become numbers and every other column stays text.
    """  # noqa: D301
    take = options.pop
    where = ("calibration", "new", "training", "output", "scales")
    files = Files(*(take(name) for name in where))
    names = Names(take("target"), take("prediction"), take("features"), take("features_prefix"))
    question = Question(take("coverage"), take("bounds"))
    quiet = take("quiet")
    name = take("method") or (DEFAULT if files.scales is None else "jackknife")
    intervals_from_files(files, names, Method(name, **options), question, quiet=quiet)
