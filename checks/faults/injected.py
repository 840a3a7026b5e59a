"""Runs that fail at the n-th step that writes, each in a process forked from this one.

A step is whatever changes a disk: a file made, bytes written (once before and once in the middle
of them), a file flushed to the disk, renamed, removed, given a mode, cut, a folder made. A request
is a line of JSON on standard input, the answer another on standard output. Processes are forked,
since the import of the library takes longer than most runs; workers too.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import io
import json
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.util import Finalize
from pathlib import Path

STEPS = ("fsync", "replace", "unlink", "remove", "chmod", "truncate", "mkdir")
REAL = {name: getattr(os, name) for name in ("open", "write", *STEPS)}
OPEN, CLOCK = io.open, time.time
#: What a full disk refuses; it still renames and removes.
GROWS = {"make", "write", "torn", "fsync", "mkdir"}


class Fault:
    """What goes wrong, in which process, and from which step on."""

    def __init__(self, kind: str = "none", at: int = 0, who: str = "first", once: str = "") -> None:
        self.kind, self.at, self.who, self.once = kind, at, who, once
        self.count, self.active = 0, who == "first"

    def step(self, what: str) -> bool:
        """Count a step; True if it is the one that tears a write."""
        if not self.active or self.kind == "clock":
            return False
        self.count += 1
        lasts = self.kind in ("full", "read-only")
        hit = self.count >= self.at if lasts else self.count == self.at
        if self.kind == "none" or not hit or (self.kind == "full" and what not in GROWS):
            return False
        if self.who == "worker" and not self.first_death():
            return False
        if what == "torn" and self.kind != "stop":
            return True
        self.strike()
        return False

    def strike(self) -> None:
        if self.kind in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if self.kind == "kill" else signal.SIGINT)
        elif self.kind == "memory":
            raise MemoryError
        else:
            number = errno.ENOSPC if self.kind == "full" else errno.EROFS
            raise OSError(number, os.strerror(number))

    def first_death(self) -> bool:
        """One worker fails, and no other after it; one whose disk is full has it full for good."""
        try:
            os.close(REAL["open"](self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return self.kind in ("full", "read-only")
        return True

    def written(self, write, data):
        self.step("write")
        if self.step("torn"):
            write(bytes(data)[: len(data) // 2])
            self.strike()
        return write(data)


fault = Fault()


class Raw(io.FileIO):
    def write(self, data):
        return fault.written(super().write, data)

    def truncate(self, size=None):
        fault.step("truncate")
        return super().truncate(size)


def opened(path, mode="r", buffering=-1, *rest, **known):
    """As ``open``, but that what is written to the file goes through :class:`Raw`."""
    if isinstance(path, int) or not set(mode) & set("wxa"):
        return OPEN(path, mode, buffering, *rest, **known)
    fault.step("make")
    raw = Raw(path, mode.replace("b", "").replace("t", ""))
    if buffering == 0:
        return raw
    handle = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return handle if "b" in mode else io.TextIOWrapper(handle, *rest, **known)


def stepping(name):
    def call(*args, **known):
        fault.step(name)
        return REAL[name](*args, **known)

    return call


def os_open(path, flags, *rest, **known):
    if flags & os.O_CREAT:
        fault.step("make")
    return REAL["open"](path, flags, *rest, **known)


def install(request) -> None:
    """Make the fault happen in this process, and in those that it starts."""
    global fault
    fault = Fault(**request["fault"])
    builtins.open = io.open = opened
    for name in STEPS:
        setattr(os, name, stepping(name))
    os.open = os_open
    os.write = lambda number, data: fault.written(lambda part: REAL["write"](number, part), data)
    if fault.kind == "clock":  # a decade forth, and a decade back
        jumps = iter([(-1) ** n * 3e8 for n in range(10**6)])
        time.time = lambda: CLOCK() + next(jumps)
    fork_workers(request["counted"])


def fork_workers(counted) -> None:
    from calliper.cli import _answering

    prepare = _answering.prepare

    def prepared(n_threads):
        """As a process that was not forked: its faults are its own, and it counts its steps."""
        fault.active, fault.count = fault.who == "worker", 0
        Finalize(None, count, exitpriority=0)
        prepare(n_threads)

    def count():
        with OPEN(counted, "a") as file:
            file.write(f"{fault.count}\n")

    _answering.prepare = prepared
    _answering.get_context = lambda how: multiprocessing.get_context("fork")


def save(seed: int) -> None:
    import numpy as np

    import calliper

    Z = np.random.default_rng(seed).normal(size=(400, 2))
    calliper.save(calliper.FullRescaled(calliper.KNN(5)).fit(Z, np.abs(Z[:, 0])), "made.calliper")


def records(seed: int) -> None:
    from calliper.lab.evaluation import Records

    row = {"problem": "a", "method": "Split", "status": "ok", "coverage": 0.9}
    Records([row | {"split": n} for n in range(2000 + seed)]).to_json("made.json")


def evaluated(seed: int) -> None:
    """Finished trials in a store, and from them the records."""
    from calliper import Split
    from calliper.lab.evaluation import evaluate
    from cases.evaluation import fan, without_time

    found = evaluate(fan(), {"m": Split()}, n_splits=4, store="store")
    with OPEN("made.txt", "w") as file:
        file.write(repr(without_time(found)))


def fetched(seed: int) -> None:
    """A file of data that comes over a wire."""
    from studies.experiments.data import fetching

    def downloader(address, path, _):
        with open(path, "wb", buffering=0) as file:
            for _ in range(3):
                file.write(b"12345678" * 100)

    digest = hashlib.sha256(b"12345678" * 300).hexdigest()
    file = fetching.RemoteFile("made.bin", digest)
    fetching._download("wire://a", Path("cache/made.bin"), file, downloader)


def command(args) -> int:
    from calliper.cli import main

    sys.argv = ["calliper", *args]
    try:
        return main() or 0
    except SystemExit as end:
        return int(end.code or 0)


def perform(request) -> None:
    """Do what is asked for, in this process, and end it."""
    os.chdir(request["cwd"])
    said = REAL["open"](request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(said, number)
    install(request)
    try:
        what, *args = request["args"]
        code = command(args) if what == "calliper" else globals()[what](*args) or 0
    except BaseException as error:
        from calliper import CalliperError

        expected = isinstance(error, CalliperError | MemoryError | KeyboardInterrupt | OSError)
        expected = expected and what != "calliper"
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        code = 2 if expected else 1
    fault.active = False
    sys.stdout.flush(), sys.stderr.flush()
    REAL["write"](request["told"], json.dumps(fault.count).encode())
    os._exit(code)


def serve() -> None:
    import matplotlib.figure  # noqa: F401

    import calliper.cli._app
    import calliper.cli._formats
    import calliper.lab.evaluation  # noqa: F401
    import studies.experiments.data.fetching  # noqa: F401

    while line := sys.stdin.readline():
        request = json.loads(line)
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(heard)
            perform(request | {"told": told})
        os.close(told)
        count = b""
        while part := os.read(heard, 100):  # until the last process that this one has started ends
            count += part
        os.close(heard)
        _, status = os.waitpid(child, 0)
        answer = {"code": os.waitstatus_to_exitcode(status), "count": int(count or b"0")}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
