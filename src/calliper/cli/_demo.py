"""``calliper demo``: every method on one small problem, as a table, a picture and a page."""

from collections.abc import Sequence
from dataclasses import replace
from math import floor
from pathlib import Path
from typing import Any

import click
import numpy as np

from calliper import metrics
from calliper.calibrators import FullRescaled, JackknifeRescaled, MADSplit, Split
from calliper.cli import _output as out
from calliper.cli._compare import command_without_folders
from calliper.cli._options import SEED
from calliper.kernels import KNN, RBF
from calliper.lab.comparison import Comparison, Points, compare
from calliper.lab.datasets import OneDimensional, one_dimensional
from calliper.lab.report import BandDisplay, Provenance, draw_bands, render_page

DEMO_LEVEL, K = 0.9, 20
N_TRAINING, N_CALIBRATION, N_TEST = 2000, 1000, 5000
_N_SHOWN = 500  # test points in the picture; more would hide the bands
_CAPTIONS = {"Split": "same width everywhere"}
_CAPTIONS |= dict.fromkeys(("JackknifeRescaled", "FullRescaled"), "as wide as nearby errors")

_EXPLANATION = (
    "The noise of this problem changes with x. One width for all (Split) is too wide where there "
    "is little noise and too narrow where there is much. The rescaled methods follow the noise and "
    "come closer to the oracle, which knows it.",
    "Coverage is marginal: it is promised on average over draws of the calibration rows and "
    "over all x, not at each x. A single draw like this one varies by a percent or two around it.",
    "coverage: share of the test points inside. worst tenth: the same in the tenth of the "
    "predictions where it is lowest. score: width plus a penalty for each miss.",
)


@click.command()
@click.option(
    "--output",
    metavar="FILE",
    default="calliper-demo.png",
    help="The figure: .png, .pdf or .svg; the page has the same name, with .html.",
)
@click.option("--seed", default=0, **SEED)
def demo(output: str, seed: int) -> None:
    """Show adaptive intervals on a problem with known noise.

    Trains a small random forest, calibrates every method on the same points, prints a
    comparison, draws three of the methods and writes an interactive page. This takes seconds
    and downloads nothing.

    \b
    calliper demo --seed 1 --output demo.png
    """  # noqa: D301
    out.check_figure_name(output)
    out.need("rich", "jinja2", "bokeh")
    page = str(Path(output).with_suffix(".html"))
    out.check_output(page)
    with out.progress("training and calibrating") as report:
        comparison, problem = demonstrate(seed, report)
        out.write_file(output, out.drawn(draw_bands(*_picture(comparison, problem)), output))
        notes = ("Data: calliper.lab.datasets.one_dimensional with this seed.",)
        made_by = Provenance(command=command_without_folders([output]), notes=notes)
        title = "Demonstration: noise that changes with x"
        out.write_file(page, render_page(comparison, title=title, provenance=made_by).encode())
    _print_table(comparison, problem)
    for sentence in _EXPLANATION:
        click.echo(f"\n{out.wrapped(sentence)}")
    out.note(f"\nfigure written to {output}")
    out.note(f"report written to {page}: open it in a browser")


def calibrators(seed: int) -> dict[str, Any]:
    """Every method, by its name in the table and on the page."""
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
    """Compare the methods around a random forest; the result, and the problem with its law."""
    from sklearn.ensemble import RandomForestRegressor

    problem = one_dimensional(N_TRAINING + N_CALIBRATION + N_TEST, random_state=seed)
    model = RandomForestRegressor(min_samples_leaf=20, random_state=seed)
    model.fit(problem.X[:N_TRAINING], problem.y[:N_TRAINING])
    every = Points(problem.X, problem.y, model.predict(problem.X), feature_names=("x",))
    parts = np.split(np.arange(len(every)), [N_TRAINING, N_TRAINING + N_CALIBRATION])
    training, calibration, test = map(every.take, parts)
    how: Any = {"methods": calibrators(seed), "coverage": DEMO_LEVEL, "random_state": seed}
    return compare(calibration, test, training=training, progress=report, **how), problem


def _picture(
    comparison: Comparison, problem: OneDimensional
) -> tuple[dict[str, BandDisplay], dict[str, str]]:
    """Bands at the test points, around the oracle; and captions."""
    test, bands, captions = comparison.test, {}, {}
    known: Any = {"y_pred": test.y_pred, "oracle": problem.oracle(test.Z, DEMO_LEVEL)}
    order = np.argsort(test.Z[:, 0], kind="stable")
    drawn = np.where(order < _N_SHOWN, test.y[order], np.nan)
    for answer in comparison.answers:
        if answer.method in _CAPTIONS:
            band = BandDisplay.from_intervals(test.Z, answer.at(DEMO_LEVEL), y=test.y, **known)
            bands[answer.method] = replace(band, y=drawn)
            proved = _promise(comparison.record(answer.method, DEMO_LEVEL).proved)
            captions[answer.method] = f"{_CAPTIONS[answer.method]}; proved {proved}"
    return bands, captions


def _promise(proved: float) -> str:
    return f"≥ {floor(proved * 1000) / 10:.1f} %"  # rounded down so as not to promise more


def _print_table(comparison: Comparison, problem: OneDimensional) -> None:
    """A row for each method, as the page has it; the last, the oracle, set apart."""
    test, rows = comparison.test, list[Sequence[Any]]()
    for answer in comparison.answers:
        found = comparison.record(answer.method, DEMO_LEVEL)
        measures = found.coverage, found.mean_width, found.worst_by_prediction, found.score
        rows.append((answer.method, _promise(found.proved), *measures))
    context = metrics.Context(level=DEMO_LEVEL, y_pred=test.y_pred)
    names = ("coverage", "mean_width", "worst_by_prediction", "interval_score")
    best = metrics.measured(names, test.y, problem.oracle(test.Z, DEMO_LEVEL), context)
    rows.append(("(oracle)", "", *best.values()))
    titles = ("proved", "coverage", "width", "worst tenth", "score")
    columns = {name: {"justify": "right", "no_wrap": True} for name in titles}
    out.print_table(
        f"Coverage {DEMO_LEVEL:g} asked for, {N_CALIBRATION} calibration rows, {K} neighbours",
        {"method": {"no_wrap": True}, **columns},
        [
            (method, proved, f"{coverage:.1%}", f"{width:.3f}", f"{worst:.1%}", f"{score:.3f}")
            for method, proved, coverage, width, worst, score in rows
        ],
        line_after=len(rows) - 2,
        padding=(0, 1 if out.console().width >= out.WIDTH else 0),
    )
