"""Many files as one data set: find them, check that they are alike, resume where a run stopped.

Each file has an output of the same name, in the same sub-folder, which appears when it is complete.
The journal ``_calliper.jsonl`` beside them has a line of JSON for the settings and one for each
file that is done, with stamps of its input and output. Lines are only added, so a run can be
continued however it was stopped.

The work is done in this process, in several, or on a Dask scheduler. A process gets the calibration
once, and then one file after another; if it dies, another one starts its file again.
"""

import glob
import json
import os
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import takewhile
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

from joblib import cpu_count
from threadpoolctl import threadpool_limits

from calliper import __version__
from calliper._writing import lock, remove_abandoned, to_text
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._answering import Answering, Tally, added_columns
from calliper.exceptions import CalliperError

JOURNAL = "_calliper.jsonl"
_FORMAT = {"format": "calliper outputs", "version": 2}

#: By convention, files and folders of these names are not data.
_HIDDEN = ("_", ".")

_ADVICE = "name another --output folder, or give --overwrite"

#: Processes that may die at one file before the run fails.
MOST_DEATHS = 3

#: Seconds to wait for a scheduler.
PATIENCE = 10


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


def find_files(new: str) -> dict[str, str]:
    """The files in a folder, or that match a pattern, by their names below what all are in."""
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
        raise CalliperError(f"--new {new}: {what} no .csv, .tsv or .parquet file; check the name.")
    kinds = {tables.format_of(path): path for path in paths}
    if len(kinds) > 1:
        one, other = sorted(kinds)[:2]
        raise CalliperError(
            f"--new {new}: there are {one} and {other} files ({kinds[one]}, {kinds[other]}); "
            f"name those of one format by a pattern, such as '{base}/**/*{other}'."
        )
    return {Path(path).relative_to(base).as_posix(): path for path in paths}


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


def check_alike(
    paths: Sequence[str], form: tables.Form, columns: tables.Columns, added: list[str]
) -> None:
    """Refuse files that lack a column, or whose columns are not those of the first."""
    first: dict[str, str] = {}
    for path in paths:
        with tables.open_table(path, form) as table:
            columns.check(table, added)
            own = {each.name: f"column {each.name!r} holds {each.type}" for each in table.schema}
            if table.n_rows == 0:
                tables.refuse_no_rows(table)
        first = first or own
        for name in [*first, *own]:
            if own.get(name) != first.get(name):
                here, there = (kinds.get(name, f"there is no {name!r}") for kinds in (own, first))
                raise CalliperError(
                    f"{path}: {here}, but {there} in {paths[0]}; give all files the same columns."
                )


class Task(NamedTuple):
    """A file: its name below both folders, its path, and that of its output."""

    name: str
    new: str
    output: str


class Written(NamedTuple):
    """What came of a task: stamps of input and output, counts, warnings of another process."""

    task: Task
    stamps: list[list[int]]
    tally: Tally
    said: Sequence[str] = ()


def write_all(
    answering: Answering,
    paths: dict[str, str],
    output: str,
    report: out.Progress,
    overwrite: bool,
    workers: int,
    scheduler: str | None,
) -> tuple[Tally, str]:
    """Write what is not yet written; the counts, and a text that says what was done."""
    tally, said, folder = Tally(), dict[str, None](), os.path.realpath(output)
    with _open_journal(output, overwrite=overwrite) as journal:
        journal.read(_made_with(answering), paths)
        every = [Task(n, os.path.abspath(p), os.path.join(folder, n)) for n, p in paths.items()]
        tasks = [task for task in every if not journal.has(task)]
        n_done = before = len(every) - len(tasks)
        try:
            for written in _run(answering, tasks, workers, scheduler):
                journal.add(written)
                tally.add(written.tally)
                said.update(dict.fromkeys(written.said))
                n_done += 1
                report((n_done - before) / len(tasks))
        except CalliperError as error:
            raise CalliperError(
                f"{error} {n_done} of {len(every)} files are complete in {output}; run the same "
                "command to continue."
            ) from error
    for text in said:
        warnings.warn(text, stacklevel=1)
    text = f"{tally.rows} rows in {len(tasks)} files written to {output}"
    return tally, text + (f"; {before} already complete" if before else "")


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
    }


def _stamp(path: str) -> list[int]:
    """Size and modification time (ns) of a file."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


@contextmanager
def _open_journal(output: str, *, overwrite: bool) -> "Iterator[Journal]":
    """The journal of a folder, locked for this run; the folder is created if needed."""
    with ExitStack() as stack:
        with out.writing(output):
            os.makedirs(output, exist_ok=True)
            handle = stack.enter_context(open(os.path.join(output, JOURNAL), "a+b", buffering=0))
        if lock(handle) is False:
            raise CalliperError(f"{output}: another run is writing there; wait for its end.")
        if overwrite:
            handle.truncate(0)
        yield Journal(output, handle, overwrite)


@dataclass
class Journal:
    """The record of what was done in an output folder."""

    folder: str
    handle: BinaryIO
    overwrite: bool
    done: dict[str, list[list[int]]] = field(default_factory=dict)  # stamps of files

    def read(self, made_with: dict[str, Any], names: dict[str, str]) -> None:
        """Read what was done with these settings; an empty journal is started."""
        self.handle.seek(0)
        content, events = self.handle.read(), list[Any]()
        if content and not content.endswith(b"\n"):  # a run was killed while it wrote
            self.handle.write(b"\n")
        for line in content.splitlines():
            with suppress(ValueError):  # where a line was cut off
                events.append(json.loads(line))
        if events:
            self._refuse_other(events[0], made_with)
            self.done = {event["done"]: event["stamps"] for event in events[1:]}
            return
        for path in (os.path.join(self.folder, name) for name in names):
            if os.path.exists(path) and not self.overwrite:
                raise CalliperError(f"{path}: exists, and was not made by this command; {_ADVICE}.")
        self._append({**_FORMAT, "made_with": made_with})

    def has(self, task: Task) -> bool:
        """Whether a file is done, and neither input nor output has changed since."""
        stamps, pair = self.done.get(task.name), (task.new, task.output)
        return os.path.exists(task.output) and [*map(_stamp, pair)] == stamps

    def add(self, written: Written) -> None:
        """Record that a file is done."""
        rows = written.tally.rows
        self._append({"done": written.task.name, "rows": rows, "stamps": written.stamps})

    def _append(self, event: dict[str, Any]) -> None:
        with out.writing(os.path.join(self.folder, JOURNAL)):
            self.handle.write(to_text(event).encode() + b"\n")
            self.handle.flush()
            os.fsync(self.handle.fileno())

    def _refuse_other(self, head: Any, made_with: dict[str, Any]) -> None:
        """Refuse to mix outputs that were made with different settings."""
        before = head.pop("made_with", None) if isinstance(head, dict) else None
        if head != _FORMAT or not before:
            raise CalliperError(
                f"{self.folder}: {JOURNAL} was not written by this version of calliper; {_ADVICE}."
            )
        for name, now in made_with.items():
            if (was := before.get(name)) != now:
                option = name if name == "calliper" else f"--{name}"
                what = f"made with {option} {_in_words(was)}, not {_in_words(now)}"
                what = "of another calibration" if name == "calibration" else what
                raise CalliperError(f"{self.folder}: holds outputs {what}; {_ADVICE}.")


def _in_words(value: Any) -> str:
    """The value of an option as a user types it."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


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


def _run(
    answering: Answering, tasks: Sequence[Task], workers: int, scheduler: str | None
) -> Iterator[Written]:
    """The result of each task, in the order in which they finish."""
    if scheduler is not None:
        return by_scheduler(answering, tasks, scheduler)
    if min(workers, len(tasks)) > 1:
        return by_processes(answering, tasks, min(workers, len(tasks)))
    return (work(answering, task) for task in tasks)


def by_processes(answering: Answering, tasks: Sequence[Task], n: int) -> Iterator[Written]:
    """Run the tasks in n processes, each a pool of its own: one that dies breaks its pool only."""
    left, deaths = deque(tasks), Counter[str]()
    at_work: dict[Future[Written], tuple[ProcessPoolExecutor, Task]] = {}
    how = (answering, max(1, cpu_count() // n))

    def start(pool: ProcessPoolExecutor | None) -> None:
        # Not forked: a copy would lack the threads that the calibration has started.
        pool = pool or pools.enter_context(ProcessPoolExecutor(1, get_context("spawn"), take, how))
        with _without_ctrl_c():
            at_work[pool.submit(work_here, left[0])] = pool, left.popleft()

    with ExitStack() as pools:
        try:
            for _ in range(n):
                start(None)
            while at_work:
                for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                    pool, task = at_work.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        note_death(task, deaths)
                        left.appendleft(task)
                        start(None)
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
    out.note(f"warning: {what}; the file is started again")


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes started in this block never get Ctrl-C; this one gets it afterwards."""
    if sys.platform == "win32":  # which has no signal masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: What a process has taken.
_taken: list[Answering] = []


def take(answering: Answering, n_threads: int) -> None:
    """Prepare a process for its work: with so many threads, until it or its parent is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    Thread(target=_end_with_parent, daemon=True).start()
    threadpool_limits(n_threads)
    os.environ["LOKY_MAX_CPU_COUNT"] = str(n_threads)
    _taken[:] = [answering]


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def work_here(task: Task) -> Written:
    """A task in a process that is prepared."""
    try:
        with out.recorded_warnings() as said:
            written = work(_taken[0], task)
        return written._replace(said=said)
    except SystemExit as stop:  # which the pool would take for an answer
        os._exit(int(str(stop)))


def by_scheduler(answering: Answering, tasks: Sequence[Task], address: str) -> Iterator[Written]:
    """Run the tasks on the workers of a Dask scheduler, which must see the same files."""
    try:
        dask: Any = import_module("dask.distributed")
        connect = import_module("calliper.scale").connect
    except ModuleNotFoundError as error:
        needs = "pip install 'dask[distributed]'"
        raise CalliperError(f"--scheduler needs {error.name}: {needs}.") from error
    with connect(address, timeout=PATIENCE) as client:
        if not client.nthreads():
            raise CalliperError(f"--scheduler {address}: has no workers; start some.")
        held = client.scatter(answering, broadcast=True, hash=False)
        futures = [client.submit(work, held, task, pure=False) for task in tasks]
        try:
            for future in dask.as_completed(futures):
                yield future.result()
        except dask.KilledWorker as error:
            raise CalliperError(
                f"workers of --scheduler {address} died at the same file again and again "
                f"({out.one_line(str(error))}); they may be short of memory."
            ) from error
        finally:
            client.cancel(futures)
