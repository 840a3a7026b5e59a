"""From files to a report: read, compare, write, and say the verdict."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size

import click

from calliper.cli._calibration import Method
from calliper.cli._columns import Names
from calliper.cli._compare_provenance import provenance_of
from calliper.cli._compare_read import (
    Rows,
    has_column,
    read_rows,
    resolve_columns,
    split_at_random,
)
from calliper.cli._methods import METHODS
from calliper.cli._output import check_output, open_output, writing
from calliper.cli._terminal import note, one_line, progress
from calliper.comparison import Comparison, compare
from calliper.exceptions import CalliperError
from calliper.report.page import Provenance, render_page

_ALONE = ("full", "jackknife", "split")
_WITH_TRAINING = (*_ALONE, "mad-split", "slcp", "locart")


@dataclass(frozen=True)
class CompareFiles:
    """Where rows come from and where the report goes, as the options name them."""

    calibration: str | None
    test: str | None
    data: str | None
    training: str | None
    report: str | None
    kind: str | None

    @property
    def format(self) -> str:
        """``html`` or ``json``."""
        named_json = self.report is not None and Path(self.report).suffix.lower() == ".json"
        return self.kind or ("json" if named_json else "html")

    @property
    def output(self) -> str:
        """Where the report goes."""
        return self.report or ("-" if self.format == "json" else "report.html")

    @property
    def inputs(self) -> list[str]:
        """All files that are read."""
        every = (self.calibration, self.test, self.data, self.training)
        return [path for path in every if path is not None]

    def check(self) -> None:
        """Refuse what contradicts itself or cannot be written, before any work is done."""
        apart = self.calibration is not None and self.test is not None
        some = self.calibration is not None or self.test is not None
        if self.data is not None and some:
            raise CalliperError(
                "--data is both calibration and test rows: omit --calibration and --test."
            )
        if self.data is None and not apart:
            raise CalliperError(
                "--calibration FILE and --test FILE are needed, or --data FILE, which is split."
            )
        if "-" in self.inputs:
            raise CalliperError("rows are read from files here, not from standard input: name one.")
        suffix, wanted = Path(self.output).suffix.lower(), {"html": (".html", ".htm")}
        endings = wanted.get(self.format, (".json",))
        if self.output != "-" and suffix not in endings:
            raise CalliperError(
                f"{self.output}: the name of a report in {self.format} must end in {endings[0]}; "
                f"rename it."
            )
        try:
            check_output(self.output, self.inputs)
        except CalliperError as error:
            raise CalliperError(str(error).replace("--output", "--report")) from error


@dataclass(frozen=True)
class Question:
    """What is compared; names of columns and methods as the options give them."""

    group: str | None
    identity: str | None
    methods: tuple[str, ...]
    coverage: float
    seed: int

    def chosen(self, *, has_training: bool) -> list[Method]:
        """The methods, each with its seed; what cannot work on these files is refused."""
        names = self.methods or (_WITH_TRAINING if has_training else _ALONE)
        if len(set(names)) < len(names):
            raise CalliperError(f"--method is given twice with one name among {', '.join(names)}.")
        methods = [Method(name, seed=self.seed) for name in names]
        for method in methods:
            method.check(has_training=has_training)
        return methods


def report_from_files(
    files: CompareFiles, names: Names, question: Question, *, quiet: bool
) -> None:
    """All of ``calliper compare`` but its options."""
    names.check()
    files.check()
    methods = question.chosen(has_training=files.training is not None)
    calibration, test, training = _read(files, names, question)
    hidden = quiet or (files.output == "-" and sys.stdout.isatty())
    with progress("comparing", hidden=hidden) as report:
        comparison = compare(
            calibration.points,
            test.points,
            methods={method.name: method.build() for method in methods},
            coverage=question.coverage,
            training=None if training is None else training.points,
            groups=test.groups,
            group_name=question.group or "group",
            random_state=question.seed,
            progress=report,
        )
        sources = {"calibration": calibration, "test": test, "training": training}
        provenance = provenance_of(files, names, question.seed, sources)
        text = _text(files, names, comparison, provenance)
    with open_output(files.output) as handle, writing(files.output):
        handle.write(text.encode())
    if not quiet:
        _say_verdict(files, comparison)
    for check in comparison.checks:
        if check.severity != "note":
            note(one_line(f"warning: {check.title} {check.meaning}"))
    if not quiet:
        if names.judges_by_prediction:
            note("note: no --features, so nearness was judged by the prediction alone")
        if files.output != "-":
            note(f"report written to {files.output}")


def _read(files: CompareFiles, names: Names, question: Question) -> tuple[Rows, Rows, Rows | None]:
    columns = resolve_columns(files.inputs[0], names)
    labels = {"identity": question.identity, "group": question.group}
    if files.data is not None:
        calibration, test = split_at_random(read_rows(files.data, columns, **labels), question.seed)
    else:
        assert files.calibration is not None
        assert files.test is not None
        # Only test rows are shown by name and group; calibration rows may have neither.
        known = question.identity
        if known is not None and not has_column(files.calibration, known):
            known = None
        calibration = read_rows(files.calibration, columns, identity=known, group=None)
        test = read_rows(files.test, columns, **labels)
    if files.training is None:
        return calibration, test, None
    return calibration, test, read_rows(files.training, columns, identity=None, group=None)


def _text(files: CompareFiles, names: Names, comparison: Comparison, provenance: Provenance) -> str:
    if files.format == "json":
        return comparison.to_json(provenance=provenance.values()) + "\n"
    file = provenance.files[1].name
    title = f"Intervals for {names.target} around {names.prediction}, judged on {file}"
    what = {name: METHODS[name].what for name in comparison.methods if name in METHODS}
    return render_page(comparison, title=title, provenance=provenance, descriptions=what)


def _say_verdict(files: CompareFiles, comparison: Comparison) -> None:
    """In words, where the report does not go."""
    echo = note if files.output == "-" else click.echo
    verdict, seen = comparison.verdict, sys.stdout.isatty()
    width = min(98, get_terminal_size((100, 24)).columns) if seen else 98
    echo(verdict.headline)
    for line in filter(None, (verdict.size, verdict.caveat and f"But: {verdict.caveat}")):
        echo(click.wrap_text(line, width=width))
    for title in ("covers", "adapts", "why", "instead"):
        if not getattr(verdict, title):
            continue
        text = f"{title + '?':9}{getattr(verdict, title)}"
        echo("\n" + click.wrap_text(text, width=width, subsequent_indent=" " * 9))
    echo("")
