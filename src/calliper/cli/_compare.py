"""``calliper compare``: which method to use on these data, as one page."""

from __future__ import annotations

from typing import Any

import click

from calliper._validation import check_levels
from calliper.cli._columns import Names
from calliper.cli._compare_files import CompareFiles, Question, report_from_files
from calliper.cli._methods import METHODS
from calliper.exceptions import CalliperError


def _level(context: click.Context, parameter: click.Parameter, value: float) -> float:
    try:
        return check_levels(value)[0]
    except CalliperError as error:
        raise CalliperError(f"--{error}") from error


@click.command()
@click.option(
    "--calibration",
    metavar="FILE",
    help="Rows the model has not seen, with target, prediction and features.",
)
@click.option("--test", metavar="FILE", help="Other such rows, to judge the intervals on.")
@click.option(
    "--data",
    metavar="FILE",
    help="In place of both: one file, split at random into a calibration and a test half.",
)
@click.option("--target", metavar="COLUMN", required=True, help="The true values.")
@click.option("--prediction", metavar="COLUMN", required=True, help="What the model said.")
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
    "and some methods learn from them.",
)
@click.option("--group", metavar="COLUMN", help="Show coverage in each group of test rows.")
@click.option("--id", "identity", metavar="COLUMN", help="Names of the rows, shown in figures.")
@click.option(
    "--method",
    "methods",
    type=click.Choice([*METHODS]),
    metavar="NAME",
    multiple=True,
    help="Once for each; see 'calliper methods'.  [default: full, jackknife, split; with "
    "--training also mad-split, slcp, locart]",
)
@click.option(
    "--coverage",
    type=float,
    default=0.9,
    show_default=True,
    callback=_level,
    help="How often the target shall be inside; the page shows other levels too.",
)
@click.option(
    "--report",
    metavar="FILE",
    help="Where the page goes; '-' is standard output.  [default: report.html; for json: -]",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["html", "json"]),
    help="A page for people, or all numbers for machines.  [default: by the name of the report]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Settles ties, draws resamples and splits --data.",
)
@click.option("--quiet", is_flag=True, help="Only errors and warnings on standard error.")
def compare(**options: Any) -> None:
    """Compare methods on a test set: does it cover, does it adapt, which one to use.

    \b
    calliper compare --calibration cal.csv --test test.csv --target y --prediction y_pred \\
        --features a,b --training train.csv --group site --report report.html

    Writes one HTML page that works offline: the verdict in words, what is promised, figures to
    explore (choose level and method, hover over points), a table, warnings that matter and all
    it takes to repeat it. Every method is calibrated on the same rows and judged on the others;
    one that fails is shown as failed. With one file:

    \b
    calliper compare --data rows.csv --target y --prediction y_pred --features a,b
    """  # noqa: D301
    take = options.pop
    files = CompareFiles(
        take("calibration"), take("test"), take("data"), take("training"), take("report"),
        take("kind"),
    )  # fmt: skip
    names = Names(take("target"), take("prediction"), take("features"), take("features_prefix"))
    quiet = take("quiet")
    report_from_files(files, names, Question(**options), quiet=quiet)
