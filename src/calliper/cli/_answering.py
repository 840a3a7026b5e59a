"""New rows with their intervals, a chunk at a time: of one file, or of many as one data set.

Of many files, each has an output of the same name, in the same sub-folder, which appears when it is
complete. The journal ``_calliper.jsonl`` beside them has a line of JSON for the settings and one
for each file that is done, with stamps of its input and output. Lines are only added, so a run can
be continued however it was stopped. The work is done in this process, in several, or on a Dask
scheduler. If a process dies, another one starts its file again.
"""

import glob
import json
import os
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import takewhile
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from calliper import __version__
from calliper._row_checks import find_shared
from calliper._types import FloatArray
from calliper._writing import lock, remove_abandoned, to_text
from calliper.calibrators import Grouped
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import FileCalibration
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.shift import SURELY, ShiftReport

JOURNAL = "_calliper.jsonl"

_HIDDEN = ("_", ".")  # by convention, what has such a name is not data
_ADVICE = "choose another --output folder, or pass --overwrite"

ENOUGH = 4  # misses that are expected before their number is judged
MOST_DEATHS = 3  # of processes at one file, before the run fails
PATIENCE = 10  # seconds to wait for a scheduler


@dataclass
class Tally:
    """Counts of rows that were written."""

    rows: int = 0
    filled: int = 0  # cells without a number
    heaviest: float = 0.0  # the largest weight of a row, 0 without weights
    infinite: int = 0  # rows whose own weight makes their interval infinite
    known: int = 0  # calibration rows among them
    targets: int = 0  # rows that have a target
    inside: Any = 0  # those whose target is inside, for each level

    def add(self, other: "Tally") -> None:
        self.rows, self.filled = self.rows + other.rows, self.filled + other.filled
        self.infinite, self.known = self.infinite + other.infinite, self.known + other.known
        self.targets, self.inside = self.targets + other.targets, self.inside + other.inside
        self.heaviest = max(self.heaviest, other.heaviest)


@dataclass(frozen=True, eq=False)
class Answering:
    """A calibration, and the levels and bounds of the intervals to write."""

    calibration: FileCalibration
    form: tables.Form
    coverage: tuple[float, ...]
    bounds: tuple[float, float] | None
    confidence: float | None

    def write(self, new: Any, output: str, report: out.Progress = lambda part: None) -> Tally:
        """Write the new rows with their intervals, a chunk at a time."""
        columns, tally = self.calibration.columns, Tally()
        needed = columns.numbers(columns.new)
        filling = replace(self.calibration.filling, n_filled=0)
        added = added_columns(self.coverage)
        with (
            out.open_output(output) as handle,
            tables.open_writer(output, handle, new, self.form, added, needed) as write,
        ):
            for chunk in new.chunks():
                ends, counted = self._ends(chunk, filling.numbers(chunk, needed))
                tally.add(counted)
                write(chunk, ends)
                report(new.fraction_read())
            if not tally.rows:
                tables.refuse_no_rows(new)
        tally.filled = filling.n_filled
        return tally

    def _ends(self, chunk: Any, numbers: FloatArray) -> tuple[FloatArray, Tally]:
        """Lower and upper ends of each level, (m, 2 L), and what was counted."""
        rows, weights = self.calibration.split(numbers)
        how: dict[str, Any] = {"bounds": self.bounds, "confidence": self.confidence, **weights}
        columns, calibrated = self.calibration.columns, self.calibration.calibrated
        if columns.group is not None:
            how["groups"] = tables.known_labels(chunk, columns.group)
        ends = calibrated.intervals(rows[:, 1:], rows[:, 0], [*self.coverage], **how)
        tally, (lower, upper) = Tally(len(rows)), ends
        if calibrated.rows is not None:
            found = find_shared(calibrated.rows, rows, None)
            tally.known = found.n_shared if found.certain else 0
        y = chunk.floats(columns.target) if columns.target in chunk.table.columns else None
        if y is not None:
            inside = (lower <= y[:, None]) & (y[:, None] <= upper) & np.isfinite(y)[:, None]
            tally.targets, tally.inside = int(np.isfinite(y).sum()), inside.sum(axis=0)
        if weights:
            tally.heaviest = float(weights["weights"].max())
            tally.infinite = round(self._shift(weights["weights"]).infinite * len(rows))
        return ends.ends(), tally

    def _shift(self, weights: Any) -> ShiftReport:
        of = self.calibration.calibrated.regressor.calibrators_[0]
        parts = of.calibrators_.values() if isinstance(of, Grouped) else [of]
        known = np.concatenate([part.weights_ for part in parts])
        return ShiftReport.of(known, weights, self.coverage[-1])

    def say(self, tally: Tally, done: str, *, explain: bool, quiet: bool) -> None:
        """Print what was written, guaranteed and observed; if ``quiet``, warnings only."""
        if tally.known:
            count = "all" if tally.known == tally.rows else f"{tally.known:,} of"
            what = "are also calibration rows (same prediction and features)"
            out.note(f"warning: {count} {tally.rows:,} new rows {what}: their targets were used")
        if tally.targets and not tally.heaviest:
            self._compare(tally.inside / tally.targets, tally.targets)
        if quiet:
            return
        filling = self.calibration.filling
        replace(filling, n_filled=filling.n_filled + tally.filled).say()
        self.calibration.summarise(self.coverage, self.confidence, done, explain=explain)
        if tally.targets:
            pairs = zip(self.coverage, tally.inside / tally.targets, strict=True)
            seen = ", ".join(f"{share:.4g} (requested: {at:g})" for at, share in pairs)
            name = self.calibration.columns.target
            out.note(f"coverage measured on {tally.targets:,} new rows that have {name!r}: {seen}")
        if tally.heaviest:
            share = tally.infinite / tally.rows
            out.note(replace(self._shift([tally.heaviest]), infinite=share).describe())

    def _compare(self, shares: FloatArray, n: int) -> None:
        """Warn if fewer of n targets are inside than chance explains, at any level."""
        asked = np.array(self.coverage)
        n_before = self.calibration.calibrated.regressor.calibration_.n_calibration
        chance = np.sqrt(asked * (1 - asked) * (1 / n + 1 / n_before))
        enough = n * (1 - asked) > ENOUGH  # misses expected, for chance to be normal
        if (enough & (shares < asked - SURELY * chance)).any():
            out.note(
                "warning: far fewer targets are inside than requested, so the intervals are too "
                "narrow. Either the model was trained on the calibration rows, or the new rows "
                "come from a different distribution."
            )


def added_columns(coverage: tuple[float, ...]) -> list[str]:
    """The columns that are added to new rows."""
    shape = (0,) if len(coverage) == 1 else (0, len(coverage))
    return Intervals(np.empty(shape), np.empty(shape), coverage).column_names()


def is_many(new: str) -> bool:
    return os.path.isdir(new) or (glob.has_magic(new) and not os.path.exists(new))


def check_folder(new: str, output: str) -> None:
    """Refuse an output that cannot be a folder, or lies among the inputs."""
    where = os.path.realpath(output)
    is_table = output.lower().endswith((".csv", ".tsv", ".parquet", ".gz"))
    if output == "-" or os.path.isfile(where) or (is_table and not os.path.isdir(where)):
        what = f"--new {new} means several files"
        raise CalliperError(f"{what}: --output must be a folder, not {output}.")
    if not os.path.isdir(os.path.dirname(where)):
        missing = f"there is no folder {os.path.dirname(where)}"
        raise CalliperError(f"cannot write {output}: {missing}; create it.")
    if os.path.isdir(new) and Path(where).is_relative_to(os.path.realpath(new)):
        raise CalliperError(f"--output {output} is inside the input folder: choose another.")


def find_files(new: str) -> dict[str, str]:
    """Tables in a folder, or that match a pattern, by their names below what all are in."""
    whole = os.path.isdir(new)
    # Of a pattern, up to its first wildcard.
    base = Path(*takewhile(lambda part: whole or not glob.has_magic(part), Path(new).parts))
    found = [new] if whole else glob.glob(new, recursive=True)
    inner = {path for name in found for path in (Path(name), *Path(name).rglob("*"))}
    paths = {
        path.relative_to(base).as_posix(): str(path)
        for path in sorted(inner)
        if path.name.lower().endswith(tables.FORMATS)
        and path.is_file()
        and not any(part.startswith(_HIDDEN) for part in path.relative_to(base).parts)
    }
    if not paths:
        what = "the folder contains" if whole else "the pattern matches"
        raise CalliperError(f"--new {new}: {what} no .csv, .tsv or .parquet file; check the name.")
    kinds = {tables.format_of(path): path for path in paths.values()}
    if len(kinds) > 1:
        one, other = sorted(kinds)[:2]
        what = f"there are {one} and {other} files ({kinds[one]}, {kinds[other]})"
        raise CalliperError(f"--new {new}: {what}; select one format with a pattern.")
    return paths


def check_alike(
    paths: Sequence[str], form: tables.Form, columns: tables.Columns, added: list[str]
) -> None:
    """Refuse files that lack a column, or whose columns are not those of the first."""
    first: dict[str, str] = {}
    for path in paths:
        with tables.open_table(path, form) as table:
            columns.check(table, added)
            own = {each.name: str(each.type) for each in table.schema}
            if table.n_rows == 0:
                tables.refuse_no_rows(table)
        first = first or own
        if others := [f"{name} {kind}" for name, kind in own.items() ^ first.items()]:
            what = f"not the columns of {paths[0]} ({', '.join(sorted(others))})"
            raise CalliperError(f"{path}: {what}; give all files the same columns.")


class Task(NamedTuple):
    """A file: its name below both folders, its path, and that of its output."""

    name: str
    new: str
    output: str

    def is_done(self, stamps: Any) -> bool:
        """Whether neither input nor output has changed since they had these stamps."""
        return os.path.exists(self.output) and [_stamp(self.new), _stamp(self.output)] == stamps


def _stamp(path: str) -> list[int]:
    """Size and modification time (ns) of a file."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


class Written(NamedTuple):
    """What came of a task: stamps of input and output, counts, warnings of another process."""

    task: Task
    stamps: list[list[int]]
    tally: Tally
    said: Sequence[str] = ()


def write_all(
    answering: Answering, paths: dict[str, str], request: Any, report: out.Progress
) -> tuple[Tally, str]:
    """Write what is not yet written; the counts, and a text that says what was done."""
    output, overwrite = request.output, request.overwrite
    tally, said, folder = Tally(), dict[str, None](), os.path.realpath(output)
    every = [Task(n, os.path.abspath(p), os.path.join(folder, n)) for n, p in paths.items()]
    with _journal(output, every, _made_with(answering), overwrite=overwrite) as (stamps, add):
        tasks = [task for task in every if not task.is_done(stamps.get(task.name))]
        n_done = before = len(every) - len(tasks)
        if request.scheduler is None:
            done = by_processes(answering, tasks, request.workers or 1)
        else:
            done = by_scheduler(answering, tasks, request.scheduler)
        try:
            for written in done:
                name, rows = written.task.name, written.tally.rows
                add({"done": name, "rows": rows, "stamps": written.stamps})
                tally.add(written.tally)
                said.update(dict.fromkeys(written.said))
                n_done += 1
                report((n_done - before) / len(tasks))
        except CalliperError as error:
            so_far = f"{n_done} of {len(every)} files are complete in {output}"
            raise CalliperError(f"{error} {so_far}; run the same command to continue.") from error
    for warning in said:
        warnings.warn(warning, stacklevel=1)
    text = f"{tally.rows} rows in {len(tasks)} files written to {output}"
    return tally, text + (f"; {before} already complete" if before else "")


def _made_with(answering: Answering) -> dict[str, Any]:
    """Everything that determines the outputs, by the names of options."""
    form = answering.form
    return {
        "version of calliper": __version__,
        "calibration": answering.calibration.digest,
        "coverage": list(answering.coverage),
        "bounds": None if answering.bounds is None else [repr(end) for end in answering.bounds],
        "confidence": answering.confidence,
        "form of text": [form.delimiter, form.decimal, form.encoding],
    }


@contextmanager
def _journal(
    output: str, tasks: Sequence[Task], made_with: dict[str, Any], *, overwrite: bool
) -> Iterator[tuple[dict[str, Any], Callable[[dict[str, Any]], None]]]:
    """Stamps of files that are done in a folder, and how to note more; locked for this run."""
    with ExitStack() as stack:
        with out.writing(output):
            os.makedirs(output, exist_ok=True)
            handle = stack.enter_context(open(os.path.join(output, JOURNAL), "a+b", buffering=0))
        if lock(handle) is False:
            raise CalliperError(f"{output}: another run is writing there; wait until it finishes.")

        def add(event: dict[str, Any]) -> None:
            with out.writing(os.path.join(output, JOURNAL)):
                handle.write(to_text(event).encode() + b"\n")
                os.fsync(handle.fileno())

        if overwrite:
            handle.truncate(0)
        events, before = _events(handle), {}
        if events and isinstance(events[0], dict):
            before = events[0].get("made_with", {})
        for name, now in made_with.items():
            if events and before.get(name) != now:
                raise CalliperError(f"{output}: contains outputs for another {name}; {_ADVICE}.")
        for task in tasks:
            if not events and not overwrite and os.path.exists(task.output):
                what = "exists, and was not made by this command"
                raise CalliperError(f"{task.output}: {what}; {_ADVICE}.")
        if not events:
            add({"made_with": made_with})
        yield {event["done"]: event["stamps"] for event in events[1:]}, add


def _events(handle: Any) -> list[Any]:
    """The lines of a journal; one that was cut off is left out, and ended."""
    handle.seek(0)
    content, events = handle.read(), []
    if content and not content.endswith(b"\n"):  # a run was killed while it wrote
        handle.write(b"\n")
    for line in content.splitlines():
        with suppress(ValueError):
            events.append(json.loads(line))
    return events


def work(answering: Answering, task: Task) -> Written:
    """Put intervals on the rows of one file; its output appears whole or not at all."""
    before = _stamp(task.new)
    with tables.open_table(task.new, answering.form) as table:
        answering.calibration.columns.check(table, added_columns(answering.coverage))
        with out.writing(task.output):
            os.makedirs(os.path.dirname(task.output), exist_ok=True)
        tally = answering.write(table, task.output)
    if _stamp(task.new) != before:
        Path(task.output).unlink()
        raise CalliperError(f"{task.new}: changed while it was being read; run the command again.")
    return Written(task, [before, _stamp(task.output)], tally)


def by_processes(answering: Answering, tasks: Sequence[Task], n: int) -> Iterator[Written]:
    """Run the tasks in n processes, each a pool of its own: one that dies breaks its pool only."""
    n = min(n, len(tasks))
    if n < 2:
        yield from map(partial(work, answering), tasks)
        return
    left, deaths, n_threads = deque(tasks), Counter[str](), max(1, cpu_count() // n)
    at_work: dict[Future[Written], tuple[ProcessPoolExecutor, Task]] = {}

    def start(pool: ProcessPoolExecutor | None = None) -> None:
        # Not forked: a copy would lack the threads that the calibration has started.
        how = (1, get_context("spawn"), prepare, (n_threads,))
        pool, task = pool or pools.enter_context(ProcessPoolExecutor(*how)), left.popleft()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as it will be in the process
        at_work[pool.submit(work_here, answering, task)] = pool, task
        signal.signal(signal.SIGINT, before)

    with ExitStack() as pools:
        try:
            for _ in range(n):
                start()
            while at_work:
                for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                    pool, task = at_work.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        note_death(task, deaths)
                        left.appendleft(task)
                        start()
                    else:
                        if left:
                            start(pool)
        except BaseException:
            for child in active_children():
                child.terminate()  # which removes its incomplete file
            raise


def note_death(task: Task, deaths: Counter[str]) -> None:
    """Say that a process died at a file; an error if that happened too often."""
    remove_abandoned(Path(task.output).parent)
    deaths[task.name] += 1
    what = f"a process working on {task.new} was killed (the system does so when memory is short)"
    if deaths[task.name] == MOST_DEATHS:
        raise CalliperError(f"{what}, {MOST_DEATHS} times: try fewer --workers.")
    out.note(f"warning: {what}; the file is processed again")


def prepare(n_threads: int) -> None:
    """Prepare a process for its work: with so many threads, until it or its parent is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    threadpool_limits(n_threads)
    os.environ["LOKY_MAX_CPU_COUNT"] = str(n_threads)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def work_here(answering: Answering, task: Task) -> Written:
    """A task in a process of its own, with what was warned of."""
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        with out.recorded_warnings() as said:
            written = work(answering, task)
        return written._replace(said=said)
    except SystemExit as stop:  # which the pool would take for an answer
        os._exit(int(str(stop)))


def by_scheduler(answering: Answering, tasks: Sequence[Task], address: str) -> Iterator[Written]:
    """Run the tasks on the workers of a Dask scheduler, which must see the same files."""
    dask: Any = import_module("distributed")
    with import_module("calliper.scale").connect(address, timeout=PATIENCE) as client:
        if not client.nthreads():
            raise CalliperError(f"--scheduler {address}: has no workers; start some.")
        held = client.scatter(answering, broadcast=True, hash=False)
        futures = [client.submit(work, held, task, pure=False) for task in tasks]
        try:
            for future in dask.as_completed(futures):
                yield future.result()
        except dask.KilledWorker as error:
            raise CalliperError(f"--scheduler {address}: {error}") from error
        finally:
            client.cancel(futures)
