"""Finished trials on disk, each under a key of everything that its result depends on.

Two runs share a trial exactly if data, calibrator, score, N, split, seed, levels, measures and the
versions of calliper, numpy, scipy and scikit-learn are the same. Objects are compared by their
class's name and what they hold, arrays by their numbers. A function is compared by

- its module and qualified name,
- its instructions, and the version of Python that compiled them,
- the values of its defaults, and of what it has closed over.

Pickling would identify a function by its name, so two measures made by one factory, or one measure
before and after an edit, would look the same. Comments and layout do not count. Global names that a
function reads, and classes, are compared by name only; the version of calliper stands for its own.

The store holds one line of JSON for each trial. A killed run leaves complete lines and at most one
torn line at the end, which is removed when the store is next opened. Only the process that called
``evaluate`` writes.
"""

import json
import os
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
    """Rows of finished trials; ``path`` is a ``.jsonl`` file, or a folder for one.

    Without a path nothing is kept.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._trials: dict[str, list[Row]] = {}
        self._hashes: dict[int, tuple[str, Any]] = {}
        self.path = None if path is None else Path(path)
        if self.path is None:
            return
        given, is_file = self.path, self.path.suffix == ".jsonl"
        self.path = given if is_file else given / "trials.jsonl"
        if self.path.is_dir() or (not is_file and given.is_file()):
            raise CalliperError(
                f"store must be a folder or a .jsonl file; {given} is neither: rename it."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
            self._warn(f"the last line is incomplete ({len(content) - whole} bytes, cut off)")
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                trial: dict[str, Any] = json.loads(line)
                self._trials[trial["key"]] = [read_row(row) for row in trial["rows"]]
            except (ValueError, KeyError, TypeError, AttributeError):
                self._warn(f"line {number} is not the record of a trial")

    def get(self, trial: Trial) -> list[Row] | None:
        """The rows of a finished trial without errors, or None."""
        rows = None if self.path is None else self._trials.get(self.key(trial))
        return None if rows is None or any(row["error"] for row in rows) else rows

    def add(self, trial: Trial, rows: list[Row]) -> None:
        """Append a trial; a run killed meanwhile leaves the whole line or a part of it."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(to_text({"key": self.key(trial), "rows": rows}) + "\n")

    def key(self, trial: Trial) -> str:
        """The hash of everything that a trial's result depends on."""
        draw = trial.draw
        parts = (
            self._hash(trial.problem),
            self._hash(trial.method),
            *(self._hash(measure) for measure in trial.measures.values()),
            tuple(trial.measures),
            (draw.problem, trial.name, draw.n_calibration, trial.n_test, draw.split),
            (draw.random_state, trial.levels),
            tuple(versions().items()),
        )
        return sha256(repr(parts).encode()).hexdigest()  # texts and numbers only

    def _hash(self, shared: Any) -> str:
        """The hash of an object, computed once; it is kept alive so that its id is not reused."""
        if id(shared) not in self._hashes:
            self._hashes[id(shared)] = _fresh_hash(shared), shared
        return self._hashes[id(shared)][0]

    def _warn(self, what: str) -> None:
        warn(f"{self.path}: {what}; that trial will be computed again.", TornStoreWarning)


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that the numbers depend on."""
    others = ("numpy", "scipy", "scikit-learn")
    return {"calliper": __version__, **{name: version(name) for name in others}}


def _fresh_hash(shared: Any) -> str:
    try:
        if isinstance(shared, Measure):
            # A callable object is known by the name of its class: add the code of its __call__.
            called = type(shared.function).__call__
            code = called if isinstance(called, FunctionType) else None
            return content_hash((shared.function, code))
        contents = dict(vars(shared))
        if "calibrator" in contents:  # without the results of an earlier fit
            contents["calibrator"] = clone(contents["calibrator"])
        return content_hash(contents)
    except Exception as error:
        raise CalliperError(
            f"store= compares methods and measures with those of other runs, and {shared!r} holds "
            f"something that cannot be compared ({error}): keep locks, open files and the like out "
            f"of it, define classes at the top level of a module, or omit store."
        ) from error


def content_hash(contents: Any) -> str:
    """The hash of an object; raises what pickling raises if it cannot be pickled."""
    return str(_Hasher(coerce_mmap=True).hash(contents))


class _Hasher(NumpyHasher):  # type: ignore[misc]
    """joblib's hasher, with functions by their code and sets in a fixed order."""

    def save(self, obj: Any) -> None:
        if isinstance(obj, MethodType):  # joblib would take its name
            obj = ("method", obj.__func__, obj.__self__)
        super().save(obj)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            # As a state, which is saved after the function is memoised: it may close over itself.
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
    """Code, defaults and closure of a function, but not the global names that it reads."""
    closed: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            closed.append(("cell", cell.cell_contents))
        except ValueError:  # a name that is not bound yet
            closed.append("empty")
    does = sys.version_info[:2], function.__code__
    return does, function.__defaults__, function.__kwdefaults__, closed


def _instructions(code: CodeType) -> tuple[Any, ...]:
    """What code does, without its file and line numbers."""
    # Constants one by one: whether equal ones are the same object depends on the compiler.
    constants = [content_hash((type(c).__name__, c)) for c in code.co_consts]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, constants, counts, names
