"""``calliper compare``: which method to use on these data, as one page."""

import hashlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from calliper._types import FloatArray
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._methods import METHODS, MethodOptions
from calliper.cli._options import Column, File, Name, option
from calliper.exceptions import CalliperError
from calliper.lab.comparison import Comparison, Points
from calliper.lab.comparison import compare as compare_methods
from calliper.lab.report import Provenance, render_page

_ALONE = ("full", "jackknife", "split")
_WITH_TRAINING = (*_ALONE, "mad-split", "slcp", "locart")
_ENDINGS = {"html": (".html", ".htm"), "json": (".json",)}


@dataclass(frozen=True, kw_only=True)
class CompareRequest(options.Request):
    test: File | None = option("Other held-out rows, to evaluate the intervals.")
    data: File | None = option("Instead of --calibration and --test: one file, split at random.")
    group: Column | None = option("Show coverage in each group of test rows.")
    identity: Column | None = option("Names of the rows, shown in figures.", flag="--id")
    methods: tuple[Name, ...] = option(
        f"Repeat it for several methods.  [default: {', '.join(_ALONE)}; more with --training]",
        flag="--method",
        type=click.Choice([*METHODS]),
        multiple=True,
    )
    coverage: float = options.level("Share of targets that should be inside.")
    output: File | None = option("The report; '-' is standard output.  [default: report.html]")
    kind: Literal["html", "json"] | None = option(
        "A page, or all numbers as JSON.  [default: by the name of --output]", flag="--format"
    )

    @property
    def format(self) -> str:
        """``html`` or ``json``."""
        named_json = (self.output or "").lower().endswith(".json")
        return self.kind or ("json" if named_json else "html")

    @property
    def where(self) -> str:
        """Where the report goes."""
        return self.output or ("-" if self.format == "json" else "report.html")

    @property
    def inputs(self) -> list[str]:
        return [*filter(None, (self.calibration, self.test, self.data, self.training))]

    def check(self) -> None:
        super().check()
        wrong, given = "", [self.calibration is not None, self.test is not None]
        if self.data is not None and any(given):
            wrong = "--data is both calibration and test rows: omit --calibration and --test"
        elif self.data is None and not all(given):
            wrong = "pass --calibration and --test, or --data FILE, which is split into both"
        elif "-" in self.inputs:
            wrong = "compare reads files, not standard input: name a file"
        elif self.where != "-" and not self.where.lower().endswith(_ENDINGS[self.format]):
            ending = _ENDINGS[self.format][0]
            wrong = f"{self.where}: the name of the report must end in {ending}; rename it"
        elif not np.isfinite(self.score_function.invert(np.zeros(1), np.ones((1, 2)))).all():
            wrong = f"--score {self.score} gives one-sided intervals, with no width to compare"
        if wrong:
            raise CalliperError(f"{wrong}.")
        out.check_output(self.where, self.inputs)

    def chosen(self) -> list[MethodOptions]:
        """The methods; one that cannot work on these files is refused."""
        has_training = self.training is not None
        names = self.methods or (_WITH_TRAINING if has_training else _ALONE)
        if len(set(names)) < len(names):
            raise CalliperError(f"--method names the same method twice: {', '.join(names)}.")
        methods = [MethodOptions(name, seed=self.seed) for name in names]
        if self.kernel is not None and not any(method.takes_kernel for method in methods):
            raise CalliperError(f"--kernel applies to none of {', '.join(names)}: omit it.")
        methods = [replace(m, kernel=self.kernel) if m.takes_kernel else m for m in methods]
        for method in methods:
            method.check(has_training=has_training)
        return methods


@options.command(CompareRequest, optional=["calibration"])
def compare(request: CompareRequest) -> None:
    """Compare methods on a test set: which ones cover, which adapt, which one to use.

    \b
    calliper compare --calibration cal.csv --test test.csv --target y --prediction y_pred \\
        --features a,b --training train.csv --group site --output report.html

    Writes one HTML page that works offline: the verdict in words, the guarantee, interactive
    figures, a table, warnings, and everything needed to repeat the comparison. Every method is
    calibrated on the same rows; one that fails is shown as failed. With one file:

    \b
    calliper compare --data rows.csv --target y --prediction y_pred --features a,b
    """  # noqa: D301
    methods = request.chosen()
    parts, groups, filling = _read(request)
    hidden = request.quiet or (request.where == "-" and sys.stdout.isatty())
    with out.progress("comparing", hidden=hidden) as report:
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
    out.write_file(request.where, text.encode())
    _say(request, comparison)
    if not request.quiet:
        filling.say()


def _read(request: CompareRequest) -> tuple[dict[str, Points], Any, tables.Filling]:
    """Points of each part (calibration, test, training), groups of test points, the filling."""
    first, *others = request.inputs
    with tables.open_table(first, request.form) as table:
        columns = request.columns(table)
        # Only test rows are shown by name and group; calibration rows may have neither.
        identity = request.identity if request.identity in table.columns else None
    training, filling = tables.read_training(request.training, columns, request.form)

    def as_points(known: FloatArray, ids: Any = None) -> Points:
        return Points(known[:, 2:], known[:, 0], known[:, 1], ids, columns.features)

    def read(path: str, *labels: str | None) -> tuple[Points, Any]:
        with tables.open_table(path, request.form) as table:
            known, (ids, groups) = tables.read_rows(table, columns.known, filling, *labels)
        return as_points(known, ids), groups

    if request.data is None:
        calibration, _ = read(first, identity, None)
        test, groups = read(others[0], request.identity, request.group)
    else:
        both, groups = read(first, request.identity, request.group)
        if len(both) < 2:
            raise CalliperError(f"{first}: 1 row cannot be split into calibration and test rows.")
        order = np.random.default_rng(request.seed).permutation(len(both))
        halves = [np.sort(half) for half in np.split(order, [len(both) // 2])]
        calibration, test = map(both.take, halves)
        groups = groups and [groups[row] for row in halves[1]]
    parts = {"calibration": calibration, "test": test}
    if training is not None:
        parts["training"] = as_points(training)
    return parts, groups, filling


def _provenance(request: CompareRequest, parts: dict[str, Points]) -> Provenance:
    """What is needed to repeat the comparison; files are named without their folders."""
    paths, notes, files = [*request.inputs, request.where], [], []
    if request.data is not None:
        sizes = [f"{len(parts[part]):,} {part}" for part in ("calibration", "test")]
        split = "The file was split at random with this seed"
        notes.append(f"{split} into {' and '.join(sizes)} rows.")
    if any(_name(path) != path for path in paths):
        notes.append("Folders are left out of the command: run it where the files are.")
    read = {"calibration": request.calibration, "test": request.test, "training": request.training}
    for part, points in parts.items():
        path = read[part] or str(request.data)
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        files.append({"name": _name(path), "part": part, "n_rows": len(points), "sha256": digest})
    command = command_without_folders(paths)
    return Provenance(command=command, files=(*files,), notes=(*notes,), use=_use(request))


def command_without_folders(paths: Sequence[str]) -> str:
    """The command as it was typed, with these paths by their names, also after an equals sign."""
    words = ["calliper", *sys.argv[1:]]
    for path in paths:
        ends = {word for word in words if f"={word}".endswith(f"={path}")}
        words = [w.removesuffix(path) + _name(path) if w in ends else w for w in words]
    return shlex.join(words)


def _use(request: CompareRequest) -> str:
    """The command for new rows; the page fills in method and level."""
    words = []
    for each in fields(options.Request):
        value = getattr(request, each.name)
        if each.name in ("calibration", "training") and (value or each.name == "calibration"):
            value = _name(value or request.inputs[0])
        if value != each.default and each.name not in ("kernel", "seed", "quiet"):
            words += [options.flag(each.name), str(value)]
    how = f"--seed {request.seed} --method {{method}} --learning-part none --coverage {{coverage}}"
    return f"calliper interval {shlex.join(words)} {how} --new new.csv --output intervals.csv"


def _name(path: str) -> str:
    return Path(path.replace("\\", "/")).name


def _text(request: CompareRequest, comparison: Comparison, provenance: Provenance) -> str:
    if request.format == "json":
        return comparison.to_json(provenance=provenance.values()) + "\n"
    title = f"Intervals for {request.target} around {request.prediction}, judged on "
    title += provenance.files[1]["name"]
    what = {name: METHODS[name.split()[0]].about.width for name in comparison.methods}
    return render_page(comparison, title=title, provenance=provenance, descriptions=what)


def _say(request: CompareRequest, comparison: Comparison) -> None:
    """Print the verdict where the report does not go, then warnings and notes."""
    quiet, verdict = request.quiet, comparison.verdict
    if not quiet:
        echo = out.note if request.where == "-" else click.echo
        echo(verdict.headline)
        for line in filter(None, (verdict.size, verdict.caveat and f"But: {verdict.caveat}")):
            echo(out.wrapped(line))
        texts = (verdict.covers, verdict.adapts, verdict.why, verdict.instead)
        for title, text in zip(("covers?", "adapts?", "why?", "instead?"), texts, strict=True):
            if text:
                echo("\n" + out.wrapped(f"{title:9}{text}", indent=" " * 9))
        echo("")
    for check in comparison.checks:
        if check.severity != "note":
            out.note(out.in_options(f"warning: {check.title} {check.meaning}"))
        elif check.kind == "all-rows" and not quiet:
            out.note(out.in_options(f"{check.title} {check.meaning}"))
    if not quiet:
        options.note_if_alone(request.features is None and request.features_prefix is None)
        if request.where != "-":
            out.note(f"report written to {request.where}")
