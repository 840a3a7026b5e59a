"""The page of the demonstration: the same methods on the same points, to explore."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from calliper.cli._compare_provenance import without_folders
from calliper.cli._comparison import Comparison, calibrators
from calliper.cli._output import check_output, open_output, writing
from calliper.datasets import OneDimensional


def report_name(output: str) -> str:
    """The page lies beside the figure and has its name."""
    name = str(Path(output).with_suffix(".html"))
    check_output(name, [])
    return name


def write_report(demonstration: Comparison, output: str, *, figure: str) -> None:
    """Compare all methods and write the page; ``figure`` is told by its name alone."""
    from calliper.comparison import Points, compare
    from calliper.report.page import Provenance, render_page

    def points(rows: OneDimensional) -> Points:
        return Points(rows.X, rows.y, demonstration.model.predict(rows.X), feature_names=("x",))

    seed = demonstration.seed
    comparison = compare(
        points(demonstration.calibration),
        points(demonstration.test),
        methods=calibrators(seed),
        coverage=demonstration.coverage,
        training=points(demonstration.train),
        random_state=seed,
    )
    text = render_page(
        comparison,
        title="Demonstration: noise that changes with x",
        provenance=Provenance(
            shlex.join(["calliper", *without_folders(sys.argv[1:], [figure])]),
            notes=("The data are drawn from calliper.datasets.one_dimensional with this seed.",),
        ),
    )
    with open_output(output) as handle, writing(output):
        handle.write(text.encode())
