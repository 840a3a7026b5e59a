"""Many files at once: in this process, in several processes, or on a Dask scheduler.

A worker gets the calibration once, and then one file after another. If a process dies, another one
starts its file again; Dask does the same.
"""

import os
import signal
import sys
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from joblib import cpu_count

from calliper._writing import remove_abandoned
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._answering import Answering, Tally, added_columns
from calliper.exceptions import CalliperError

#: Processes that may die at one file before the run fails.
MOST_DEATHS = 3

#: Seconds to wait for a scheduler.
PATIENCE = 10

#: How many threads libraries use; results do not depend on it.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT")


@dataclass(frozen=True)
class Task:
    """A file to read, where its output goes, and its length in bytes."""

    new: str
    output: str
    size: int


@dataclass(frozen=True)
class Stamp:
    """Size, modification time (ns) and, for inputs, checksum of a file."""

    size: int
    changed: int
    sum: str = ""

    @classmethod
    def of(cls, path: str, *, contents: bool = False) -> Self:
        """A file's stamp, with a checksum of its contents if requested."""
        contained = tables.sum_of(path) if contents else ""
        status = os.stat(path)
        return cls(status.st_size, status.st_mtime_ns, contained)


@dataclass(frozen=True)
class Written:
    """The result of a task: stamps of both files, counts, warnings."""

    task: Task
    read: Stamp
    made: Stamp
    tally: Tally
    said: tuple[str, ...] = ()


def work(answering: Answering, task: Task, report: out.Progress = lambda part: None) -> Written:
    """Put intervals on the rows of one file; its output appears whole or not at all."""
    before = Stamp.of(task.new)
    with tables.open_table(task.new, answering.form) as table:
        answering.calibration.columns.check(table, added_columns(answering.coverage))
        with out.writing(task.output):
            os.makedirs(os.path.dirname(task.output), exist_ok=True)
        tally = answering.write(table, task.output, report)
    after = Stamp.of(task.new, contents=True)
    if (before.size, before.changed) != (after.size, after.changed):
        Path(task.output).unlink()
        raise CalliperError(f"{task.new}: changed while it was being read; run the command again.")
    return Written(task, after, Stamp.of(task.output), tally)


def run_all(
    answering: Answering,
    tasks: Sequence[Task],
    report: out.Progress,
    *,
    workers: int,
    scheduler: str | None,
) -> Iterator[Written]:
    """The result of each task, in the order in which they finish."""
    total, parts = max(1, sum(task.size for task in tasks)), dict[str, float]()

    def tell(task: Task, part: float | None) -> None:
        parts[task.new] = task.size * (part or 0.0)
        report(sum(parts.values()) / total)

    if scheduler is not None:
        done = by_scheduler(answering, tasks, scheduler)
    elif workers == 1 or len(tasks) == 1:
        done = (work(answering, task, partial(tell, task)) for task in tasks)
    else:
        done = by_processes(answering, tasks, workers, tell)
    for written in done:
        tell(written.task, 1.0)
        yield written


class Worker:
    """A process, and the file that it works on."""

    def __init__(self, answering: Answering) -> None:
        # Not forked: a copy would lack the threads that the calibration has started.
        context = get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=serve, args=(far_end, answering), daemon=True)
        self.process.start()
        far_end.close()  # so that the end of the process is the end of the pipe
        self.task: Task | None = None

    def give(self, task: Task | None) -> None:
        """Send the next file; if the process has died, its answer will be missing."""
        self.task = task
        if task is not None:
            with suppress(OSError):
                self.pipe.send(task)

    def end(self) -> None:
        """End the process, which removes its incomplete file."""
        if self.task is not None:
            self.process.terminate()
        self.pipe.close()
        self.process.join()


def serve(pipe: Any, answering: Answering) -> None:
    """Run in a process: one file after another, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process decides
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_answer(answering, pipe.recv(), pipe))


def _answer(answering: Answering, task: Task, pipe: Any) -> Any:
    """The result of the task, or the error."""
    try:
        with out.recorded_warnings() as said:
            written = work(answering, task, pipe.send)
        return replace(written, said=tuple(said))
    except CalliperError as error:
        return error
    except MemoryError:
        return CalliperError(f"{task.new}: there was not enough memory: try fewer --workers.")
    except Exception:
        return RuntimeError(traceback.format_exc())


def by_processes(
    answering: Answering, tasks: Sequence[Task], n: int, tell: Any
) -> Iterator[Written]:
    """Run the tasks in n processes, which share the cores of this machine."""
    left, deaths = deque(tasks), Counter[str]()
    workers: list[Worker] = []
    try:
        while left or any(worker.task for worker in workers):
            with _starting(max(1, cpu_count() // n)):
                while left and len(workers) < n:
                    workers.append(Worker(answering))
                    workers[-1].give(left.popleft())
            ready = wait([worker.pipe for worker in workers if worker.task])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                try:  # a fraction, what was written, or an error
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    left.appendleft(_task_to_repeat(worker, deaths))
                    workers.remove(worker)
                    continue
                if isinstance(message, Exception):
                    raise message
                elif isinstance(message, Written):
                    yield message
                    worker.give(left.popleft() if left else None)
                else:
                    tell(worker.task, message)
    finally:
        for worker in workers:
            worker.end()


def _task_to_repeat(worker: Worker, deaths: Counter[str]) -> Task:
    """The task of a process that died; an error if processes died at it too often."""
    task, code = worker.task, worker.process.exitcode or 0
    assert task is not None
    remove_abandoned(Path(task.output).parent)
    deaths[task.new] += 1
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    hint = " (the system does so when memory is short)" if code == -signal.SIGKILL else ""
    what = f"a process working on {task.new} was ended {how}{hint}"
    if deaths[task.new] == MOST_DEATHS:
        raise CalliperError(f"{what}, {MOST_DEATHS} times: try fewer --workers.")
    out.note(f"warning: {what}; the file is started again")
    return task


@contextmanager
def _starting(n_threads: int) -> Iterator[None]:
    """Processes started in this block never get Ctrl-C, and use n threads each.

    This process gets Ctrl-C afterwards. Windows has no signal masks.
    """
    environment, masked = dict(os.environ), sys.platform != "win32"
    os.environ.update(dict.fromkeys(_THREADS, str(n_threads)))
    if masked:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for name in _THREADS:
            os.environ.pop(name)
        os.environ.update(environment)
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
