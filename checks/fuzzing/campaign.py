"""Inputs by the hundred thousand, on several processes, so that a crash or a hang is seen, too.

Three kinds of input, each made of a number alone: a saved file that was tampered with
(``files``), a table given to the command line (``readers``), a call of the Python API
(``machines``, where a number makes several sequences of calls). A campaign goes on where the
last one stopped; what it counted and found is in ``results.json``.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

from checks.fuzzing import files, machines, readers

RESULTS = Path(__file__).with_name("results.json")

#: Numbers in one piece of work, and the share of processor time of each kind.
BATCH = {"files": 2000, "readers": 1000, "machines": 60}
SHARE = {"files": 1, "readers": 2, "machines": 3}

#: Seconds that a process may be silent, asleep or not given a turn; one that is at work on a file
#: or a table has an alarm of its own before that.
MOST_SILENCE = 900


def examiners(kinds, folder):
    """What is called with a folder, and gives what is called with a number, by kind.

    All that takes long is done here, once, and nothing that starts a thread: what is forked later
    would wait for threads that it did not inherit.
    """
    made = {}
    if "files" in kinds:
        bases = files.good_files(folder)
        made["files"] = lambda own: partial(files.examine_alone, bases, own / "x", files.Watch())
    if "readers" in kinds:
        made["readers"] = readers.prepare
    if "machines" in kinds:
        made["machines"] = machines.prepare
    return made


def _work(prepare, numbers, pipe):
    """In a process of its own: examine numbers, and tell of each."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        examine = prepare(Path(folder))
        for number in numbers:
            wrong, ended = examine(number)
            pipe.send((number, wrong, Counter([ended] if isinstance(ended, str) else ended)))
        os.chdir("/")
    pipe.send(time.process_time())


def memory():
    """A folder in memory, where there is one: disks are slow to say that all is written."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Job:
    """A process at work on some numbers."""

    def __init__(self, kind, numbers, prepare):
        self.kind, self.numbers, self.heard = kind, [*numbers], time.monotonic()
        self.seconds = None
        context = get_context("fork")
        self.pipe, far = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(prepare, self.numbers, far))
        self.process.start()
        far.close()

    def hear(self, state):
        """Count what it tells; False if it has ended."""
        try:
            told = self.pipe.recv()
        except EOFError:
            self.process.join()
            if self.seconds is None:
                found(state, self.numbers.pop(0), f"hung or crashed ({self.process.exitcode})")
            return False
        self.heard = time.monotonic()
        if isinstance(told, float):
            self.seconds = told
            state["seconds"] = round(state["seconds"] + told, 1)
            return True
        number, wrong, ended = told
        self.numbers.remove(number)
        state["inputs"] += sum(ended.values())
        state["ended"] = dict(Counter(state["ended"]) + ended)
        if wrong:
            found(state, number, wrong)
        return True


def fresh_state():
    """Of a kind that nobody has tried."""
    return {"next": 0, "inputs": 0, "seconds": 0.0, "ended": {}, "found": []}


def read():
    """What was tried and found so far, by kind."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return {kind: kept.get(kind, fresh_state()) for kind in BATCH}


def write(results):
    """Keep it, the file whole or as it was."""
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    part.replace(RESULTS)


def found(state, number, wrong):
    """Note and say what was found."""
    state["found"].append([number, wrong])
    print(f"found at {number}: {wrong}", flush=True)


def run(results, kinds, *, jobs=2, minutes=1e6, most=10**12, first=None):
    """Try so many inputs of each kind more, or for so long; with a ``first`` number, keep nothing."""
    until, said = time.monotonic() + 60 * minutes, time.monotonic()
    goal = {kind: results[kind]["inputs"] + most for kind in kinds}
    begun = {kind: results[kind]["next"] if first is None else first for kind in kinds}
    left, at_work = {kind: [] for kind in kinds}, []

    def next_job():
        open_kinds = [kind for kind in kinds if results[kind]["inputs"] < goal[kind]]
        if not open_kinds or time.monotonic() > until:
            return None
        kind = min(open_kinds, key=lambda each: results[each]["seconds"] / SHARE[each])
        numbers, left[kind] = left[kind], []
        if not numbers:
            n = max(1, min(BATCH[kind], most // (250 if kind == "machines" else 1)))
            numbers = range(begun[kind], begun[kind] + n)
            begun[kind] += n
        return Job(kind, numbers, prepare[kind])

    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        prepare = examiners(kinds, Path(folder))
        while True:
            while len(at_work) < jobs and (job := next_job()):
                at_work.append(job)
            if not at_work:
                return results
            ready = wait([job.pipe for job in at_work], timeout=5)
            for job in [*at_work]:
                if job.pipe in ready and not job.hear(results[job.kind]):
                    left[job.kind] += job.numbers
                    at_work.remove(job)
                elif time.monotonic() - job.heard > MOST_SILENCE:
                    job.process.kill()
            if time.monotonic() - said > 20 or not at_work:
                said = time.monotonic()
                if first is None:
                    write(results | {kind: results[kind] | {"next": begun[kind]} for kind in kinds})
                print(
                    "  ".join(f"{kind} {results[kind]['inputs']:,}" for kind in kinds), flush=True
                )


def table(results):
    """What was tried and found, a line for each way in which inputs ended."""
    lines = [f"{'kind':10}{'ended':34}{'inputs':>12}"]
    for kind, state in results.items():
        for ended, count in sorted(state["ended"].items()):
            lines.append(f"{kind:10}{ended:34}{count:12,}")
        lines.append(f"{kind:10}{'in all':34}{state['inputs']:12,}  {len(state['found'])} found")
    total = sum(state["inputs"] for state in results.values())
    n_found = sum(len(state["found"]) for state in results.values())
    return "\n".join([*lines, f"{total:,} inputs, {n_found} found"])
