"""Many files as one data set: find them, check that they are alike, resume where a run stopped.

Each file has an output of the same name, in the same sub-folder, which appears when it is complete.
The journal ``_calliper.jsonl`` beside them has a line of JSON for each event: the settings,
the files that are planned, and the stamps of input and output of each file that is done. Lines are
only added, so a run can be continued however it was stopped.
"""

import glob
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Self

from calliper import __version__
from calliper._writing import lock, to_text
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._answering import Answering, Tally
from calliper.cli._csv import Form
from calliper.cli._workers import Stamp, Task, Written, run_all
from calliper.exceptions import CalliperError

JOURNAL = "_calliper.jsonl"
_HEAD = {"format": "calliper outputs", "version": 1}

#: By convention, files and folders of these names are not data.
_HIDDEN = ("_", ".")

_GIGA = 1e9
_ADVICE = "name another --output folder, or give --overwrite"


def is_many(new: str) -> bool:
    """Whether this is a folder or a pattern."""
    return os.path.isdir(new) or (glob.has_magic(new) and not os.path.exists(new))


def check_folder(new: str, output: str) -> None:
    """Refuse an output that cannot be a folder, or lies among the inputs."""
    where = os.path.realpath(output)
    is_table = output.lower().endswith((".csv", ".tsv", ".parquet", ".gz"))
    if output == "-" or os.path.isfile(where) or (is_table and not os.path.isdir(where)):
        raise CalliperError(f"--new {new} is several files: give --output a folder, not {output}.")
    if not os.path.isdir(os.path.dirname(where)):
        raise CalliperError(
            f"cannot write {output}: there is no folder {os.path.dirname(where)}; create it."
        )
    if os.path.isdir(new) and Path(where).is_relative_to(os.path.realpath(new)):
        raise CalliperError(
            f"--output {output} lies in the folder that is read: choose another, or name the files "
            f"by a pattern, such as {new.rstrip('/')}/*.parquet."
        )


@dataclass(frozen=True)
class DataSet:
    """Files to put intervals on."""

    new: str  # how they were named
    paths: dict[str, str]  # of each, by its name below the folder that all are in
    form: Form

    @classmethod
    def of(cls, new: str, form: Form) -> Self:
        """The files in a folder, or that match a pattern."""
        parts = Path(new).parts
        if not os.path.isdir(new):  # of a pattern, up to its first wildcard
            parts = tuple(takewhile(lambda part: not glob.has_magic(part), parts))
        base = Path(*parts)
        found = [new] if os.path.isdir(new) else glob.glob(new, recursive=True)
        below = {name: Path(name).relative_to(base).parts for name in found}
        seen = [name for name in found if not any(p.startswith(_HIDDEN) for p in below[name])]
        paths = sorted({path for name in seen for path in _files(name)})
        if not paths:
            what = "the folder holds" if os.path.isdir(new) else "the pattern matches"
            raise CalliperError(
                f"--new {new}: {what} no .csv, .tsv or .parquet file; check the name."
            )
        kinds = {tables.format_of(path): path for path in paths}
        if len(kinds) > 1:
            one, other = sorted(kinds)[:2]
            raise CalliperError(
                f"--new {new}: there are {one} and {other} files ({kinds[one]}, {kinds[other]}); "
                f"name those of one format by a pattern, such as '{base}/**/*{other}'."
            )
        return cls(new, {Path(path).relative_to(base).as_posix(): path for path in paths}, form)

    def check(self, columns: tables.Columns, added: list[str]) -> None:
        """Refuse files that lack a column, or whose columns are not those of the first."""
        first: dict[str, str] = {}
        for path in self.paths.values():
            with tables.open_table(path, self.form) as table:
                columns.check(table, added)
                own = table.kinds()
                if table.n_rows == 0:
                    tables.refuse_no_rows(table)
            first = first or own
            for name in [*first, *own]:
                if own.get(name) != first.get(name):
                    raise CalliperError(
                        f"{path}: {_has(name, own)}, but {_has(name, first)} in "
                        f"{next(iter(self.paths.values()))}; give all files the same columns."
                    )

    def write(
        self, answering: Answering, output: str, report: out.Progress, overwrite: bool, **who: Any
    ) -> tuple[Tally, str]:
        """Write what is not yet written; the counts, and a text that says what was done."""
        tally, folder = Tally(), os.path.realpath(output)
        with _journal(output, _made_with(answering), overwrite=overwrite) as journal:
            tasks = [
                Task(path, os.path.join(folder, *name.split("/")), os.path.getsize(path))
                for name in journal.undone(self.paths)
                for path in (os.path.abspath(self.paths[name]),)
            ]
            _warn_of_space(output, tasks)
            said: dict[str, None] = {}
            try:
                for written in run_all(answering, tasks, report, **who):
                    journal.add(os.path.relpath(written.task.output, folder), written)
                    tally.add(written.tally)
                    said.update(dict.fromkeys(written.said))
            except CalliperError as error:
                done = [entry for name, entry in journal.done.items() if name in self.paths]
                size = sum(entry["made"]["size"] for entry in done) / _GIGA
                raise CalliperError(
                    f"{error} {len(done)} of {len(self.paths)} files are complete in {output} "
                    f"({size:.3g} GB); run the same command to continue."
                ) from error
        for text in said:
            out.note(out.in_options(f"warning: {text}"))
        before = len(self.paths) - len(tasks)
        text = f"{tally.rows} rows in {len(tasks)} files written to {output}"
        return tally, text + (f"; {before} already complete" if before else "")


def _has(name: str, kinds: dict[str, str]) -> str:
    return f"column {name!r} holds {kinds[name]}" if name in kinds else f"there is no {name!r}"


def _files(path: str) -> Iterator[str]:
    """The file itself, or all tables below a folder."""
    if not os.path.isdir(path):
        yield path
        return
    for folder, inner, names in os.walk(path):
        inner[:] = [name for name in inner if not name.startswith(_HIDDEN)]
        for name in names:
            if not name.startswith(_HIDDEN) and name.lower().endswith(tables.FORMATS):
                yield os.path.join(folder, name)


def _made_with(answering: Answering) -> dict[str, Any]:
    """Everything that determines the outputs, by the names of options."""
    form = answering.form
    return {
        "calliper": __version__,
        "calibration": answering.calibration.digest,
        "coverage": list(answering.coverage),
        "bounds": None if answering.bounds is None else [repr(end) for end in answering.bounds],
        "confidence": answering.confidence,
        "delimiter": form.delimiter,
        "decimal": form.decimal,
        "encoding": form.encoding,
        "gaps": "fill" if len(answering.calibration.filling.medians) else "refuse",
    }


@dataclass
class Journal:
    """The record of what was done in an output folder."""

    folder: str
    handle: BinaryIO
    planned: set[str] = field(default_factory=set)  # names of outputs that are ours, done or not
    done: dict[str, Any] = field(default_factory=dict)  # entries of those that are done

    def read(self, made_with: dict[str, Any]) -> None:
        """Read the journal, or start it if it is empty."""
        self.handle.seek(0)
        content, events = self.handle.read(), list[dict[str, Any]]()
        if content and not content.endswith(b"\n"):  # a run was killed while it wrote
            self.handle.write(b"\n")
        for line in content.splitlines():
            with suppress(ValueError):  # where a line was cut off
                events += [event] if isinstance(event := json.loads(line), dict) else []
        if not events:
            self._append({**_HEAD, "made_with": made_with})
            return
        self._refuse_other(events[0], made_with)
        for event in events[1:]:
            self.planned.update(event.get("planned", ()))
            if "done" in event:
                self.done[event["done"]] = event

    def undone(self, paths: dict[str, str]) -> list[str]:
        """Names of files whose output is missing or out of date; they are now planned."""
        left = [name for name, path in paths.items() if not self._is_done(name, path)]
        for name in left:
            output = os.path.join(self.folder, name)
            if name not in self.planned and os.path.exists(output):
                raise CalliperError(
                    f"{output}: exists, and was not made by this command; {_ADVICE}."
                )
        if new := [name for name in left if name not in self.planned]:
            self._append({"planned": new})
            self.planned.update(new)
        return left

    def add(self, name: str, written: Written) -> None:
        """Record that a file is done."""
        entry = {"done": Path(name).as_posix(), "rows": written.tally.rows}
        entry |= {"read": asdict(written.read), "made": asdict(written.made)}
        self._append(entry)
        self.done[Path(name).as_posix()] = entry

    def _is_done(self, name: str, path: str) -> bool:
        """Whether output and input are unchanged."""
        entry = self.done.get(name)
        if entry is None:
            return False
        output, read = os.path.join(self.folder, name), Stamp(**entry["read"])
        if not os.path.exists(output) or Stamp.of(output) != Stamp(**entry["made"]):
            return False
        now = Stamp.of(path)
        same = (now.size, now.changed) == (read.size, read.changed)
        return same or (now.size == read.size and tables.sum_of(path) == read.sum)

    def _append(self, event: dict[str, Any]) -> None:
        with out.writing(os.path.join(self.folder, JOURNAL)):
            self.handle.write(to_text(event).encode() + b"\n")
            self.handle.flush()
            os.fsync(self.handle.fileno())

    def _refuse_other(self, head: dict[str, Any], made_with: dict[str, Any]) -> None:
        """Refuse to mix outputs that were made with different settings."""
        before = head.get("made_with")
        if not before or any(head.get(name) != value for name, value in _HEAD.items()):
            raise CalliperError(
                f"{self.folder}: {JOURNAL} was not written by this version of calliper; {_ADVICE}."
            )
        for name, now in made_with.items():
            was = before.get(name)
            if was != now:
                option = name if name == "calliper" else f"--{name}"
                what = f"made with {option} {_in_words(was)}, not {_in_words(now)}"
                what = "of another calibration" if name == "calibration" else what
                raise CalliperError(f"{self.folder}: holds outputs {what}; {_ADVICE}.")


def _in_words(value: Any) -> str:
    """The value of an option as a user types it."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def _journal(output: str, made_with: dict[str, Any], *, overwrite: bool) -> Iterator[Journal]:
    """The journal of a folder, locked for this run; the folder is created if needed."""
    folder = os.path.realpath(output)
    with ExitStack() as stack:
        with out.writing(output):
            os.makedirs(folder, exist_ok=True)
            handle = stack.enter_context(open(os.path.join(folder, JOURNAL), "a+b", buffering=0))
        if not lock(handle):
            raise CalliperError(f"{output}: another run is writing there; wait for its end.")
        if overwrite:
            handle.truncate(0)
        journal = Journal(output, handle)
        if overwrite:  # whatever is in the folder may be replaced
            journal.planned = {Path(path).relative_to(folder).as_posix() for path in _files(folder)}
        journal.read(made_with)
        yield journal


def _warn_of_space(output: str, tasks: Sequence[Task]) -> None:
    """Outputs are a little larger than inputs."""
    needed, free = sum(task.size for task in tasks), shutil.disk_usage(output).free
    if free < needed:
        out.note(
            f"warning: there are {free / _GIGA:.3g} GB free for {output}, and the outputs may take "
            f"{needed / _GIGA:.3g} GB"
        )
