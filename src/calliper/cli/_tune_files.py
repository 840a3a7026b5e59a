"""From files to length scales: read, tune, write, and show what was found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from calliper._types import FloatArray
from calliper.cli._columns import Names, require_columns
from calliper.cli._demo_figure import check_figure_name
from calliper.cli._intervals import read_training
from calliper.cli._output import check_output, open_output, writing
from calliper.cli._scales import Origin, scales_text
from calliper.cli._tables import open_table, read_numbers
from calliper.cli._terminal import note, progress, warnings_as_lines
from calliper.cli._tune_table import print_curve
from calliper.embedding import fit_embedding
from calliper.exceptions import CalliperError
from calliper.kernels import TunedRBF
from calliper.scores import AbsoluteError
from calliper.tuning import TuningCurve, tuning_curve


@dataclass(frozen=True)
class Search:
    """What is tried, as the options name it; ``None`` where an option was not given."""

    criterion: str
    grid: str | None
    scan: int | None
    sample: int | None
    expand: float | None
    length_scales: tuple[float, ...] | None
    components: int | None
    seed: int

    def check(self, *, has_training: bool) -> None:
        """Refuse options that contradict one another or would not be heeded."""
        if self.length_scales is None and not has_training:
            raise CalliperError(
                "--training FILE is needed, whose distances span the grid; or give the grid "
                "itself, as in --length-scales 0.1,0.2,0.5."
            )
        if self.length_scales is not None:
            for name in ("grid", "scan", "sample", "expand"):
                if getattr(self, name) is not None:
                    raise CalliperError(f"--length-scales is the grid itself: omit --{name}.")
        if self.components is not None and self.criterion != "mi":
            raise CalliperError("--components is for --criterion mi only: omit it.")
        if self.components is not None and not has_training:
            raise CalliperError("--components are fitted to training rows: give --training FILE.")

    def kernel(self, report: Callable[[float], None]) -> TunedRBF:
        """The kernel; what was not given has the library's default."""
        options: dict[str, Any] = {
            "grid": self.grid,
            "n_scan": self.scan,
            "n_sample": self.sample,
            "expand": self.expand,
            "length_scales": self.length_scales,
            "n_components": self.components,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return TunedRBF(self.criterion, progress=report, **given)


@dataclass(frozen=True)
class TuneFiles:
    """Where rows come from, and where scales and figure go to."""

    calibration: str
    training: str | None
    output: str
    figure: str | None

    def check(self) -> None:
        """Refuse an output that cannot be, before any work is done."""
        if Path(self.output).suffix.lower() != ".json":
            raise CalliperError(f"{self.output}: the name must end in .json; rename it.")
        check_output(self.output, [self.calibration, self.training or self.calibration])
        if self.figure is not None:
            check_figure_name(self.figure)


def scales_from_files(files: TuneFiles, names: Names, search: Search, *, quiet: bool) -> None:
    """All of ``calliper tune`` but its options."""
    names.check()
    search.check(has_training=files.training is not None)
    files.check()
    with warnings_as_lines():
        with open_table(files.calibration) as table:
            columns = names.resolve(table)
            require_columns(table, columns.known)
            known = read_numbers(table, columns.known)
        training = read_training(files.training, columns)
        with progress("tuning", hidden=quiet) as report:
            curve = _curve(search, known, training, report)
        grid = "given" if search.length_scales is not None else search.grid or "auto"
        origin = Origin.of(columns, known, training)
        _write(files, scales_text(curve, origin, grid=grid, seed=search.seed), curve)
    if not quiet:
        _show(files, curve)
        if names.judges_by_prediction:
            note("note: no --features, so nearness was judged by the prediction alone")


def _curve(
    search: Search,
    known: FloatArray,
    training: FloatArray | None,
    report: Callable[[float], None],
) -> TuningCurve:
    """The curve, in the very features that ``calliper interval`` judges nearness in."""
    X, X_train = known[:, 2:], None if training is None else training[:, 2:]
    embedding = fit_embedding(None, X_train, X)
    return tuning_curve(
        embedding.transform(X),
        AbsoluteError().measure(known[:, 0], known[:, 1]),
        kernel=search.kernel(report),
        Z_train=None if X_train is None else embedding.transform(X_train),
        random_state=search.seed,
    )


def _write(files: TuneFiles, text: str, curve: TuningCurve) -> None:
    """Both files, or neither."""
    with ExitStack() as stack:
        output = stack.enter_context(open_output(files.output))
        with writing(files.output):
            output.write(text.encode())
        if files.figure is not None:
            from calliper.report import draw_tuning

            figure = stack.enter_context(open_output(files.figure))
            kind = Path(files.figure).suffix[1:].lower()
            with writing(files.figure):
                draw_tuning(curve).savefig(figure, format=kind)


def _show(files: TuneFiles, curve: TuningCurve) -> None:
    print_curve(curve)
    width = min(98, get_terminal_size((100, 24)).columns)
    click.echo(f"\n{click.wrap_text(curve.describe(), width=width)}")
    note(f"\n{len(curve.chosen)} length scales written to {files.output}")
    if files.figure is not None:
        note(f"figure written to {files.figure}")
    note(f"to use them: calliper interval --scales {files.output} with the same files and features")
