"""``calliper demo``: every method on one small problem, as a table, a picture and a page.

The methods are calibrated and measured once, by the comparison that the page shows; the table and
the picture show the same intervals.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from math import floor, isnan
from pathlib import Path
from typing import Any

import click
import numpy as np

from calliper import metrics
from calliper.calibrators import FullRescaled, JackknifeRescaled, MADSplit, Split
from calliper.cli import _output as out
from calliper.cli._compare import command_without_folders
from calliper.cli._options import seed as seed_option
from calliper.kernels import KNN, RBF
from calliper.lab.comparison import Answer, Comparison, Points, compare
from calliper.lab.datasets import OneDimensional, one_dimensional
from calliper.lab.report import BandDisplay, Provenance, draw_bands, render_page

DEMO_LEVEL, K = 0.9, 20
N_TRAINING, N_CALIBRATION, N_TEST = 2000, 1000, 5000
_N_SHOWN = 500  # test points in the picture; more would hide the bands
_CAPTIONS = {
    "Split": "same width everywhere; proved {}",
    "JackknifeRescaled": "as wide as errors near by; proved {}",
    "FullRescaled": "as wide as errors near by; proved {}",
}

_EXPLANATION = (
    "The noise of this problem changes with x. One width for all (Split) is too wide where there "
    "is little noise and too narrow where there is much. The rescaled methods follow the noise and "
    "come closer to the oracle, which knows it: narrower on average, and a better (smaller) score.",
    "Coverage is marginal: it is promised on average over draws of the calibration points and over "
    "all x, not at each x. One draw, such as this, scatters by a percent or two around it.",
    "coverage: share of the {n_test} test points inside. score: width plus a penalty for each miss."
    " τ_SI, τ_SQI, R²_SQI: do larger errors get wider intervals? 1 is best; a constant width has "
    "none of them (-).",
)


@click.command()
@click.option(
    "--output",
    metavar="FILE",
    default="calliper-demo.png",
    help="The figure: .png, .pdf or .svg; a page with its name, .html, lies beside it.",
)
@seed_option("Draws the data and the model.")
def demo(output: str, seed: int) -> None:
    """Show adaptive intervals on a problem with known noise.

    Trains a small random forest, calibrates every method on the same points, prints how they
    compare, draws three of them and writes a page to explore. Takes seconds and downloads
    nothing.

    \b
    calliper demo --seed 1 --output demo.png
    """  # noqa: D301
    out.check_figure_name(output)
    out.need("rich", "jinja2", "bokeh")
    page = str(Path(output).with_suffix(".html"))
    out.check_output(page)
    with out.progress("training and calibrating") as report:
        comparison, problem = demonstrate(seed, report)
        with out.open_output(output) as handle:
            out.save_figure(draw_bands(*_picture(comparison, problem)), handle, output)
        out.write_text(page, _page(comparison, figure=output))
    _print_table(measured(comparison, problem))
    for sentence in _EXPLANATION:
        click.echo(f"\n{out.wrapped(sentence.format(n_test=N_TEST))}")
    out.note(f"\nfigure written to {output}")
    out.note(f"report written to {page}: open it in a browser")


def calibrators(seed: int) -> dict[str, Any]:
    """Every method, by the name that table and page give it."""
    return {
        "Split": Split(),
        "MADSplit, KNN": MADSplit(KNN(K), random_state=seed),
        "MADSplit, RBF": MADSplit(RBF("median"), random_state=seed),
        "JackknifeRescaled": JackknifeRescaled(KNN(K), random_state=seed),
        "FullRescaled": FullRescaled(KNN(K), random_state=seed),
        "FullRescaled, rms": FullRescaled(KNN(K), statistic="rms", random_state=seed),
        "FullRescaled, quantile": FullRescaled(KNN(K), statistic="quantile", random_state=seed),
    }


def demonstrate(seed: int, report: out.Progress) -> tuple[Comparison, OneDimensional]:
    """Methods compared around a forest that some rows trained, and the law that drew the rows."""
    from sklearn.ensemble import RandomForestRegressor

    problem = one_dimensional(N_TRAINING + N_CALIBRATION + N_TEST, random_state=seed)
    model = RandomForestRegressor(min_samples_leaf=20, random_state=seed)
    model.fit(problem.X[:N_TRAINING], problem.y[:N_TRAINING])
    every = Points(problem.X, problem.y, model.predict(problem.X), feature_names=("x",))
    rows = np.arange(len(every))
    training, calibration, test = np.split(rows, [N_TRAINING, N_TRAINING + N_CALIBRATION])
    comparison = compare(
        every.take(calibration),
        every.take(test),
        methods=calibrators(seed),
        coverage=DEMO_LEVEL,
        training=every.take(training),
        random_state=seed,
        progress=report,
    )
    return comparison, problem


#: What the table shows of a method: its name, what is proved, and measures, NaN if there is none.
DemoRow = tuple[str, float | None, tuple[float, ...]]


def measured(comparison: Comparison, problem: OneDimensional) -> list[DemoRow]:
    """A row for each method, as the page has it, and one for the oracle."""
    rows: list[DemoRow] = []
    for answer in comparison.answers:
        record = comparison.record(answer.method, DEMO_LEVEL)
        sizes = (record.coverage, record.mean_width, record.score)
        ranks = (record.tau_si, _tau_sqi(comparison, answer), record.r2_sqi)
        rows.append((answer.method, record.proved, (*sizes, *ranks)))
    return [*rows, ("(oracle)", None, _of_oracle(comparison.test, problem))]


def _tau_sqi(comparison: Comparison, answer: Answer) -> float:
    test = comparison.test
    with warnings.catch_warnings():
        # Where all widths are equal there is no rank to compare: the table shows a dash.
        warnings.simplefilter("ignore")
        return metrics.tau_sqi(test.y, answer.at(DEMO_LEVEL), y_pred=test.y_pred)


def _of_oracle(test: Points, problem: OneDimensional) -> tuple[float, ...]:
    """The same measures of the best intervals there are, around the true mean."""
    y, best, mean = test.y, problem.oracle(test.Z, DEMO_LEVEL), problem.mean(test.Z)
    sizes = metrics.empirical_coverage(y, best), metrics.mean_width(best)
    ranks = (metrics.tau_si, metrics.tau_sqi, metrics.r2_sqi)
    ranked = (rank(y, best, y_pred=mean) for rank in ranks)
    return (*map(float, sizes), metrics.interval_score(y, best), *ranked)


def _picture(
    comparison: Comparison, problem: OneDimensional
) -> tuple[dict[str, BandDisplay], dict[str, str]]:
    """A constant and two adaptive bands at the test points, around the oracle; and captions."""
    test, bands, captions = comparison.test, {}, {}
    known: Any = {"y_pred": test.y_pred, "oracle": problem.oracle(test.Z, DEMO_LEVEL)}
    order = np.argsort(test.Z[:, 0], kind="stable")
    drawn = np.where(order < _N_SHOWN, test.y[order], np.nan)
    for answer in comparison.answers:
        if answer.method in _CAPTIONS:
            band = BandDisplay.from_intervals(test.Z, answer.at(DEMO_LEVEL), y=test.y, **known)
            bands[answer.method] = replace(band, y=drawn)
            proved = comparison.record(answer.method, DEMO_LEVEL).proved
            captions[answer.method] = _CAPTIONS[answer.method].format(promise(proved))
    return bands, captions


def _page(comparison: Comparison, *, figure: str) -> str:
    """The comparison to explore; ``figure`` is named without its folder."""
    return render_page(
        comparison,
        title="Demonstration: noise that changes with x",
        provenance=Provenance(
            command=command_without_folders([figure]),
            notes=("Data: calliper.lab.datasets.one_dimensional with this seed.",),
        ),
    )


def promise(proved: float) -> str:
    """The proved coverage in percent, rounded down so as not to promise more."""
    return f"≥ {floor(proved * 1000) / 10:.1f} %"


def _print_table(rows: Sequence[DemoRow]) -> None:
    """A row for each method; the last, the oracle, set apart."""
    terminal = out.console()
    table = out.titled_table(
        f"Intervals at coverage {DEMO_LEVEL:g} from {N_CALIBRATION} calibration points, "
        f"{K} nearest neighbours",
        padding=(0, 1 if terminal.width >= out.WIDTH else 0),
    )
    table.add_column("method", no_wrap=True)
    for name in ("proved", "coverage", "width", "width/2", "score", "τ_SI", "τ_SQI", "R²_SQI"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(*row), end_section=row is rows[-2])
    terminal.print(table)


def _cells(method: str, proved: float | None, measures: Sequence[float]) -> list[str]:
    coverage, width, score, *ranks = measures
    sizes = [f"{value:.3f}" for value in (width, width / 2, score)]
    promised = "" if proved is None else promise(proved)
    return [method, promised, f"{coverage:.1%}", *sizes, *map(_rank, ranks)]


def _rank(value: float) -> str:
    if isnan(value):
        return "-"
    # Widths that hardly vary give R² of minus hundreds; how many says nothing.
    return "< -10" if value < -10 else f"{value:.2f}"
