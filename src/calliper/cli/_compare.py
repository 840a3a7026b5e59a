"""``calliper compare``: which method to use on these data, as one page."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from calliper._types import FloatArray
from calliper.cli import _options as options
from calliper.cli._csv import is_gap
from calliper.cli._methods import METHODS, MethodOptions
from calliper.cli._options import Column, File, Name, option
from calliper.cli._output import check_output, note, one_line, progress, wrapped, write_text
from calliper.cli._tables import (
    Columns,
    Filling,
    open_table,
    read_file,
    read_training,
    sum_of,
)
from calliper.exceptions import CalliperError
from calliper.lab.comparison import Comparison, Points
from calliper.lab.comparison import compare as compare_methods
from calliper.lab.report import Provenance, render_page

_ALONE = ("full", "jackknife", "split")
_WITH_TRAINING = (*_ALONE, "mad-split", "slcp", "locart")
_ENDINGS = {"html": (".html", ".htm"), "json": (".json",)}


@dataclass(frozen=True, kw_only=True)
class CompareRequest(options.Request):
    """The options of ``calliper compare``."""

    test: File | None = option(
        "Other held-out rows, to evaluate the intervals.", after="calibration"
    )
    data: File | None = option(
        "Instead of both: one file, split at random into a calibration and a test half."
    )
    group: Column | None = option("Show coverage in each group of test rows.", after="training")
    identity: Column | None = option("Names of the rows, shown in figures.", flag="--id")
    methods: tuple[Name, ...] = option(
        "Repeat it for several; see 'calliper methods'.  [default: full, jackknife, split; with "
        "--training also mad-split, slcp, locart]",
        flag="--method",
        type=click.Choice([*METHODS]),
        multiple=True,
    )
    coverage: float = options.coverage(
        "Share of targets that should be inside; the page shows other levels too."
    )
    output: File | None = option(
        "File for the report; '-' means standard output.  [default: report.html; for json: -]"
    )
    kind: Literal["html", "json"] | None = option(
        "An HTML page, or all numbers as JSON.  [default: by the extension of --output]",
        flag="--format",
    )

    @property
    def format(self) -> str:
        """``html`` or ``json``."""
        named_json = Path(self.output or "").suffix.lower() == ".json"
        return self.kind or ("json" if named_json else "html")

    @property
    def where(self) -> str:
        """Where the report goes."""
        return self.output or ("-" if self.format == "json" else "report.html")

    @property
    def inputs(self) -> list[str]:
        """All files that are read."""
        every = (self.calibration, self.test, self.data, self.training)
        return [path for path in every if path is not None]

    def check(self) -> None:
        """Refuse options that contradict one another, before any work is done."""
        super().check()
        self._check_inputs()
        suffix, endings = Path(self.where).suffix.lower(), _ENDINGS[self.format]
        if self.where != "-" and suffix not in endings:
            raise CalliperError(
                f"{self.where}: the name of a report in {self.format} must end in {endings[0]}; "
                "rename it."
            )
        if not np.isfinite(self.score_function.invert(np.zeros(1), np.ones((1, 2)))).all():
            raise CalliperError(
                f"--score {self.score} gives one-sided intervals, which have no width to compare: "
                "give a two-sided score."
            )
        check_output(self.where, self.inputs)

    def _check_inputs(self) -> None:
        given = (self.calibration is not None, self.test is not None)
        if self.data is not None and any(given):
            raise CalliperError(
                "--data is both calibration and test rows: omit --calibration and --test."
            )
        if self.data is None and not all(given):
            raise CalliperError(
                "--calibration FILE and --test FILE are needed, or --data FILE, which is split."
            )
        if "-" in self.inputs:
            raise CalliperError("compare reads files, not standard input: name a file.")

    def chosen(self) -> list[MethodOptions]:
        """The methods; one that cannot work on these files is refused."""
        has_training = self.training is not None
        names = self.methods or (_WITH_TRAINING if has_training else _ALONE)
        if len(set(names)) < len(names):
            raise CalliperError(f"--method names the same method twice: {', '.join(names)}.")
        plain = [MethodOptions(name=name, seed=self.seed) for name in names]
        kernel = self.kernel
        if kernel is not None and not any(method.takes_kernel for method in plain):
            raise CalliperError(f"--kernel applies to none of {', '.join(names)}: omit it.")
        methods = [replace(each, kernel=kernel) if each.takes_kernel else each for each in plain]
        for method in methods:
            method.check(has_training=has_training)
        return methods


@options.command(CompareRequest, optional=["calibration"])
def compare(request: CompareRequest) -> None:
    """Compare methods on a test set: which ones cover, which adapt, which one to use.

    \b
    calliper compare --calibration cal.csv --test test.csv --target y --prediction y_pred \\
        --features a,b --training train.csv --group site --output report.html

    Writes one HTML page that works offline. It contains the verdict in words, the guarantee,
    interactive figures (choose level and method, hover over points), a table, warnings, and
    everything needed to repeat the comparison. Every method is calibrated on the same rows and
    evaluated on the others; a method that fails is shown as failed. With one file:

    \b
    calliper compare --data rows.csv --target y --prediction y_pred --features a,b
    """  # noqa: D301
    methods = request.chosen()
    parts, groups, filling = _read(request)
    hidden = request.quiet or (request.where == "-" and sys.stdout.isatty())
    with progress("comparing", hidden=hidden) as report:
        comparison = compare_methods(
            parts["calibration"],
            parts["test"],
            methods={method.words: method.build() for method in methods},
            coverage=request.coverage,
            training=parts.get("training"),
            groups=groups,
            group_name=request.group or "group",
            score_function=request.score_function,
            random_state=request.seed,
            progress=report,
        )
        text = _text(request, comparison, _provenance(request, parts))
    write_text(request.where, text)
    _say(request, comparison)
    if not request.quiet:
        filling.say()


def _read(request: CompareRequest) -> tuple[dict[str, Points], Any, Filling]:
    """Points of each part (calibration, test, training), groups of test points, the filling."""
    first, *others = request.inputs
    with open_table(first, request.form) as table:
        columns = request.columns(table)
        # Only test rows are shown by name and group; calibration rows may have neither.
        identity = request.identity if request.identity in table.columns else None
    training, filling = read_training(request.training, columns, request.form)

    def as_points(known: FloatArray, ids: Any = None) -> Points:
        return Points(known[:, 2:], known[:, 0], known[:, 1], ids, columns.features)

    def read(path: str, *labels: str | None) -> tuple[Points, Any]:
        try:
            known, (ids, groups) = read_file(path, request.form, columns.known, filling, labels)
        except CalliperError:
            _refuse_missing_predictions(request, path, columns)
            raise
        return as_points(known, ids), groups

    if request.data is not None:
        both, groups = read(first, request.identity, request.group)
        if len(both) < 2:
            raise CalliperError(f"{first}: 1 row cannot be split into calibration and test rows.")
        order = np.random.default_rng(request.seed).permutation(len(both))
        halves = [np.sort(half) for half in np.split(order, [len(both) // 2])]
        calibration, test = (both.take(half) for half in halves)
        groups = groups and [groups[row] for row in halves[1]]
    else:
        calibration, _ = read(first, identity, None)
        test, groups = read(others[0], request.identity, request.group)
    parts = {"calibration": calibration, "test": test}
    if training is not None:
        parts["training"] = as_points(training)
    return parts, groups, filling


def _refuse_missing_predictions(request: CompareRequest, path: str, columns: Columns) -> None:
    """If predictions are missing, say how many and where."""
    cells: list[str | None] = []
    # Any other error has been raised already.
    with suppress(CalliperError):
        _, (found,) = read_file(
            path, request.form, [columns.target], Filling(), [columns.prediction]
        )
        cells = found or []
    missing = [row for row, text in enumerate(cells, 1) if is_gap(text or "")]
    if missing:
        first = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise CalliperError(
            f"{path}: {len(missing)} of {len(cells)} rows have no prediction in column "
            f"{columns.prediction!r} (rows {first} below the header): predict them, or remove them."
        ) from None


def _provenance(request: CompareRequest, parts: dict[str, Points]) -> Provenance:
    """What is needed to repeat the comparison; files are named without their folders."""
    paths, notes = [*request.inputs, request.where], []
    if request.data is not None:
        notes.append(
            f"The file was split at random with this seed into {len(parts['calibration']):,} "
            f"calibration and {len(parts['test']):,} test rows."
        )
    if any(_name(path) != path for path in paths):
        notes.append("Folders are left out of the command: run it where the files are.")
    read = [request.data] * 2 if request.data is not None else [*request.inputs[:2]]
    files = zip(parts.items(), [*read, request.training], strict=False)
    return Provenance(
        command=command_without_folders(paths),
        files=tuple(
            {
                "name": _name(str(path)),
                "part": part,
                "n_rows": len(points),
                "sha256": sum_of(str(path)),
            }
            for (part, points), path in files
        ),
        notes=tuple(notes),
        use=_use(request),
    )


def command_without_folders(paths: Sequence[str]) -> str:
    """The command as it was typed, with these paths by their names, also after an equals sign."""
    names = {path: _name(path) for path in paths}
    words = ["calliper"]
    for argument in sys.argv[1:]:
        option, equals, value = argument.partition("=")
        if equals and option.startswith("--"):
            words.append(f"{option}={names.get(value, value)}")
        else:
            words.append(names.get(argument, argument))
    return shlex.join(words)


#: Values of options that need not be repeated.
_DEFAULTS = {"score": "absolute", "decimal": ".", "encoding": "utf-8", "gaps": "fill"}


def _use(request: CompareRequest) -> str:
    """The command for new rows; the page fills in method and level."""
    given = {each.name: getattr(request, each.name) for each in options.in_order(options.Request)}
    training = given.pop("training")
    given |= {"calibration": _name(request.inputs[0]), "training": training and _name(training)}
    said = [
        word
        for name, value in given.items()
        if value not in (None, _DEFAULTS.get(name)) and name not in ("kernel", "seed", "quiet")
        for word in (options.flag(name), str(value))
    ]
    return (
        f"calliper interval {shlex.join(said)} --seed {request.seed} --method {{method}} "
        f"--learning-part none --coverage {{coverage}} --new new.csv --output intervals.csv"
    )


def _name(path: str) -> str:
    """The name of a file without its folder, on any system."""
    return Path(path.replace("\\", "/")).name


def _text(request: CompareRequest, comparison: Comparison, provenance: Provenance) -> str:
    """The report: JSON or HTML."""
    if request.format == "json":
        return comparison.to_json(provenance=provenance.values()) + "\n"
    file = provenance.files[1]["name"]
    title = f"Intervals for {request.target} around {request.prediction}, judged on {file}"
    first = {name: name.split()[0] for name in comparison.methods}
    what = {name: METHODS[word].about.width for name, word in first.items() if word in METHODS}
    return render_page(comparison, title=title, provenance=provenance, descriptions=what)


def _say(request: CompareRequest, comparison: Comparison) -> None:
    """Print the verdict where the report does not go, then warnings and notes."""
    quiet, verdict = request.quiet, comparison.verdict
    if not quiet:
        echo = note if request.where == "-" else click.echo
        echo(verdict.headline)
        for line in filter(None, (verdict.size, verdict.caveat and f"But: {verdict.caveat}")):
            echo(wrapped(line))
        said = {"covers": verdict.covers, "adapts": verdict.adapts}
        said |= {"why": verdict.why, "instead": verdict.instead}
        for title, text in said.items():
            if text:
                echo("\n" + wrapped(f"{title + '?':9}{text}", subsequent_indent=" " * 9))
        echo("")
    for check in comparison.checks:
        if check.severity != "note":
            note(one_line(f"warning: {check.title} {check.meaning}"))
        elif check.kind == "all-rows" and not quiet:
            note(one_line(f"{check.title} {check.meaning}"))
    if not quiet:
        options.note_if_alone(request.features is None and request.features_prefix is None)
        if request.where != "-":
            note(f"report written to {request.where}")
