"""``calliper demo``: every method on one small problem, as a table, a picture and a page."""

from __future__ import annotations

import sys
from shutil import get_terminal_size

import click

from calliper.cli._demo_figure import check_figure_name, write_figure
from calliper.cli._demo_table import print_table
from calliper.cli._terminal import note, progress

LEVEL = 0.9

_EXPLANATION = (
    "The noise of this problem changes with x. One width for all (Split) is too wide where there "
    "is little noise and too narrow where there is much. The rescaled methods follow the noise and "
    "come closer to the oracle, which knows it: narrower on average, and a better (smaller) score.",
    "Coverage is marginal: it is promised on average over draws of the calibration points and over "
    "all x, not at each x. One draw, such as this, scatters by a percent or two around it.",
    "coverage: share of the {n_test} test points inside. score: width plus a fine for each miss. "
    "τ_SI, τ_SQI, R²_SQI: do larger errors get wider intervals? 1 is best; a constant width has "
    "none of them (-).",
)


@click.command()
@click.option(
    "--output",
    metavar="FILE",
    default="calliper-demo.png",
    show_default=True,
    help="The figure: .png, .pdf or .svg; a page with its name, .html, lies beside it.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Draws the data, the model and the ties.",
)
def demo(output: str, seed: int) -> None:
    """Show adaptive intervals on a problem with known noise.

    Trains a small random forest, calibrates every method on the same points, prints how they
    compare, draws three of them and writes a page to explore. Takes seconds and downloads
    nothing.

    \b
    calliper demo --seed 1 --output demo.png
    """  # noqa: D301
    from calliper.cli._comparison import N_TEST, Comparison, calibrators
    from calliper.cli._demo_report import report_name, write_report

    check_figure_name(output)
    page = report_name(output)
    rows, methods = [], {}
    with progress("training and calibrating") as report:
        report(0.0)
        comparison = Comparison(LEVEL, seed)
        for name, method in comparison.methods():
            rows.append(comparison.measure(name, method))
            methods[name] = method
            report(len(rows) / (2 * len(calibrators(seed)) + 1))
        write_figure(comparison, methods, output)
        write_report(comparison, page, figure=output)
    print_table([*rows, comparison.measure_oracle()], LEVEL)
    # A pipe has no width of its own, whatever the system says of it.
    width = min(98, get_terminal_size((100, 24)).columns) if sys.stdout.isatty() else 98
    for sentence in _EXPLANATION:
        click.echo(f"\n{click.wrap_text(sentence.format(n_test=N_TEST), width=width)}")
    note(f"\nfigure written to {output}")
    note(f"report written to {page}: open it in a browser")
