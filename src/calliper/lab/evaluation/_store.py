"""Finished trials on disk, each by a key that is made of all that its result depends on.

Two runs share a trial exactly if data, calibrator, score, N, split, seed, levels, measures and the
versions of calliper, numpy, scipy and scikit-learn are the same. Objects are compared by their
class's name and what they hold, arrays by their numbers. A function is compared by

- its module and qualified name,
- its instructions, and the version of Python that compiled them,
- the values of its defaults, and of what it has closed over.

Pickling would keep a function by its name, so that two measures made by one factory, or one measure
before and after an edit, would look the same. Comments and layout are no part of the instructions.
What a function reads from its module and the code of classes are left to their names: the version
of calliper stands for its own.

The store holds one line of JSON a trial, appended in one piece. A run that is killed leaves whole
lines, or at most a torn last one, which is cut off when the store is next opened. The single writer
is the process that called ``evaluate``.
"""

import json
import os
import platform
import sys
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from joblib.hashing import NumpyHasher
from sklearn.base import clone

from calliper._version import __version__
from calliper._writing import to_text
from calliper.exceptions import CalliperError, TornStoreWarning, warn
from calliper.lab.evaluation._plan import Trial
from calliper.lab.evaluation._records import Row, read_row
from calliper.metrics import Measure


class Store:
    """Rows of finished trials by key; ``path`` is a ``.jsonl`` file, or a folder to hold one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path)
        self.path = given if given.suffix == ".jsonl" else given / "trials.jsonl"
        if self.path.is_dir() or (given.suffix != ".jsonl" and given.is_file()):
            raise CalliperError(
                f"store must be a folder or a .jsonl file; {given} is neither: rename it."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._trials: dict[str, list[Row]] = {}
        if self.path.exists():
            self._read()

    def get(self, key: str) -> list[Row] | None:
        """The rows of a finished trial, if it is there; one in which anything raised is not."""
        rows = self._trials.get(key)
        return None if rows is None or any(row["error"] for row in rows) else rows

    def add(self, key: str, rows: list[Row]) -> None:
        """Append a trial: one call to write, so that a kill leaves all of the line or its start."""
        line = to_text({"key": key, "rows": rows}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            rest = memoryview(line.encode())
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
            self._warn(f"the last line is torn ({len(content) - whole} bytes, cut off)")
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                trial: dict[str, Any] = json.loads(line)
                self._trials[trial["key"]] = [read_row(row) for row in trial["rows"]]
            except (ValueError, KeyError, TypeError, AttributeError):
                self._warn(f"line {number} is no record of a trial")

    def _warn(self, what: str) -> None:
        warn(f"{self.path}: {what}; that trial will be computed again.", TornStoreWarning)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Versions of what decides the numbers."""
    others = ("numpy", "scipy", "scikit-learn")
    return ("calliper", __version__), *((name, version(name)) for name in others)


def versions() -> dict[str, str]:
    """Versions of what computes the records."""
    return {**dict(_versions()), "python": platform.python_version()}


class Keys:
    """Keys of trials; problems and methods that many trials share are hashed once."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[str, Any]] = {}

    def of(self, trial: Trial) -> str:
        """The key of one trial."""
        draw = trial.draw
        parts = (
            self._part(trial.problem),
            self._part(trial.method),
            *(self._part(measure) for measure in trial.measures.values()),
            tuple(trial.measures),
            (draw.problem, trial.name, draw.n_calibration, trial.n_test, draw.split),
            (draw.random_state, trial.levels),
            _versions(),
        )
        return sha256(repr(parts).encode()).hexdigest()  # texts and numbers only

    def _part(self, shared: Any) -> str:
        """The hash of an object, which is kept alive so that its id stays its own."""
        if id(shared) not in self._parts:
            self._parts[id(shared)] = _hash(shared), shared
        return self._parts[id(shared)][0]


def _hash(shared: Any) -> str:
    try:
        return content_hash(_contents(shared))
    except Exception as error:
        raise CalliperError(
            f"store= needs contents that can be compared with those of another run, and {shared!r} "
            f"holds something that cannot ({error}): keep locks, open files and the like out of "
            f"methods and measures, define classes at the top of a module, or leave store out."
        ) from error


def _contents(shared: Any) -> Any:
    if isinstance(shared, Measure):
        # The class of an object that can be called is known by its name: add what it does.
        called = type(shared.function).__call__
        return shared.function, called if isinstance(called, FunctionType) else None
    contents = dict(vars(shared))
    if "calibrator" in contents:  # what an earlier fit has left is no part of the method
        contents["calibrator"] = clone(contents["calibrator"])
    return contents


def content_hash(contents: Any) -> str:
    """The hash; raises what pickling raises if something in it has no contents to compare."""
    return str(_Hasher(coerce_mmap=True).hash(contents))


class _Hasher(NumpyHasher):  # type: ignore[misc]
    """joblib's, which knows arrays, with functions by what they do and sets in a fixed order."""

    def save(self, obj: Any) -> None:
        if isinstance(obj, MethodType):  # joblib would take its name
            obj = ("method", obj.__func__, obj.__self__)
        super().save(obj)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            # As a state, which is saved after the function is known: it may close over itself.
            return tuple, (("function", obj.__module__, obj.__qualname__),), _parts(obj)
        if isinstance(obj, CodeType):
            return tuple, (_instructions(obj),)
        if isinstance(obj, set | frozenset):
            # Their order differs from one process to the next.
            return tuple, ((type(obj).__name__, *sorted(map(content_hash, obj))),)
        if isinstance(obj, ModuleType):
            return tuple, (("module", obj.__name__),)
        return NotImplemented


def _parts(function: FunctionType) -> Any:
    """All that decides what a function computes, but for what it reads from its module."""
    does = sys.version_info[:2], function.__code__
    closed = [_closed_over(cell) for cell in function.__closure__ or ()]
    return does, function.__defaults__, function.__kwdefaults__, closed


def _closed_over(cell: Any) -> Any:
    try:
        return ("cell", cell.cell_contents)
    except ValueError:  # a name that was not bound yet
        return "empty"


def _instructions(code: CodeType) -> tuple[Any, ...]:
    """What code does; not where it stands in which file."""
    # Constants one by one: whether equal ones are one object depends on who compiled them.
    constants = [content_hash((type(c).__name__, c)) for c in code.co_consts]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, constants, counts, names
