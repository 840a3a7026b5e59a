"""Results of an evaluation, one row for each problem × method × N × split × level, and their store.

The store has each finished trial under a key of everything that its result depends on: data,
calibrator, score, N, split, seed, levels, measures, and versions. Objects are compared as joblib
compares them, by their class's name and what they hold; functions by their instructions, defaults
and closures, since by name two measures made by one factory would look the same.

It holds one line of JSON for each trial. A killed run leaves complete lines and at most one torn
line at the end, which is removed when the store is next opened. Only the process that called
``evaluate`` writes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from joblib.hashing import NumpyHasher
from sklearn.base import clone

from calliper._version import __version__
from calliper._writing import number, to_text, whole_file
from calliper.exceptions import CalliperError, TornStoreWarning, warn

if TYPE_CHECKING:
    import pandas as pd

    from calliper.lab.evaluation._evaluate import Trial

Row = dict[str, Any]

#: Fields of every row beside its measures.
ROW_FIELDS = (
    "problem", "method", "n_calibration", "n_test", "split", "level", "status",
    "error", "warnings", "seconds_fit", "seconds_predict", "guaranteed",
)  # fmt: skip


@dataclass(frozen=True)
class Records:
    """Tidy rows, and the settings that produced them.

    Parameters
    ----------
    rows : list of dicts
        With ``problem``, ``method``, ``n_calibration``, ``n_test``, ``split``, ``level``,
        ``status`` ("ok", "failed" or "skipped"), ``error`` (its text), ``warnings``,
        ``seconds_fit``, ``seconds_predict``, ``guaranteed`` (the proved coverage) and each measure,
        NaN if undefined.
    measures : dict; of each measure, which values are good, and its label
    runs : list of dicts; settings, seed and versions of the runs

    Examples
    --------
    >>> records = Records([{"problem": "a", "method": "Split", "status": "ok", "coverage": 0.9}])
    >>> len(records), Records.from_json(records.to_json()) == records
    (1, True)
    """

    rows: list[Row]
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def failures(self) -> list[Row]:
        """Rows in which the method (status "failed") or a measure raised an error."""
        return [row for row in self.rows if row["error"] and row["status"] != "skipped"]

    def where(self, **values: Any) -> Records:
        """Only the rows with these values, for example ``where(problem="bike", level=0.9)``."""
        kept = [row for row in self.rows if all(row[k] == v for k, v in values.items())]
        return Records(kept, self.measures, self.runs)

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Strict JSON with one row on each line; also written to ``path`` if given."""
        head = to_text({"measures": self.measures, "runs": self.runs})[:-1]
        text = f'{head}, "rows": [\n' + ",\n".join(map(to_text, self.rows)) + "\n]}\n"
        if path is not None:
            with whole_file(path) as handle:
                handle.write(text.encode())
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Records:
        """Records from the text of :meth:`to_json`, or from the path of such a file."""
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
        try:
            read = json.loads(text)
            return cls([read_row(row) for row in read["rows"]], read["measures"], read["runs"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = "expected what Records.to_json writes; it cannot be read"
            raise CalliperError(f"{what} ({error!r}).") from error


def read_row(row: Row) -> Row:
    """A row from JSON, with measures as numbers."""
    return {key: value if key in ROW_FIELDS else number(value) for key, value in row.items()}


class Store:
    """Rows of finished trials; ``path`` is a ``.jsonl`` file, a folder for one, or None."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._trials: dict[str, list[Row]] = {}
        self._hashes: dict[int, tuple[str, Any]] = {}
        self.path = None if path is None else Path(path)
        if self.path is None:
            return
        given, is_file = self.path, self.path.suffix == ".jsonl"
        self.path = given if is_file else given / "trials.jsonl"
        if self.path.is_dir() or (not is_file and given.is_file()):
            what = f"store must be a folder or a .jsonl file; {given} is neither"
            raise CalliperError(f"{what}: rename it.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
            self._warn(f"the last line is incomplete ({len(content) - whole} bytes, cut off)")
        for line_number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                trial: dict[str, Any] = json.loads(line)
                self._trials[trial["key"]] = [read_row(row) for row in trial["rows"]]
            except (ValueError, KeyError, TypeError, AttributeError):
                self._warn(f"line {line_number} is not the record of a trial")

    def _warn(self, what: str) -> None:
        warn(f"{self.path}: {what}; that trial will be computed again.", TornStoreWarning)

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
        shared = trial.problem, trial.method, *(m.function for m in trial.measures.values())
        plain = {**vars(trial), "measures": tuple(trial.measures)}
        del plain["problem"], plain["method"]
        return content_hash((*map(self._hash, shared), plain, versions()))

    def _hash(self, shared: Any) -> str:
        """The hash of an object, computed once; it is kept alive so that its id is not reused."""
        if id(shared) not in self._hashes:
            try:
                # A callable object is known by its class: add the code of its __call__.
                called = type(shared).__call__ if callable(shared) else None
                code = called if isinstance(called, FunctionType) else None
                contents: Any = [shared, code] if callable(shared) else dict(vars(shared))
                if "calibrator" in contents:  # without the results of an earlier fit
                    contents["calibrator"] = clone(contents["calibrator"])
                self._hashes[id(shared)] = content_hash(contents), shared
            except Exception as error:
                raise CalliperError(
                    f"store= compares methods and measures with those of other runs, and "
                    f"{shared!r} holds something that cannot be compared ({error}): keep locks, "
                    f"open files and the like out of it, define classes at the top level of a "
                    f"module, or omit store."
                ) from error
        return self._hashes[id(shared)][0]


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that the numbers depend on."""
    others = ("numpy", "scipy", "scikit-learn")
    return {"calliper": __version__, **{name: version(name) for name in others}}


def content_hash(contents: Any) -> str:
    """The hash of an object; raises what pickling raises if it cannot be pickled."""
    return str(_Hasher(coerce_mmap=True).hash(contents))


class _Hasher(NumpyHasher):  # type: ignore[misc]
    """joblib's hasher, with functions by their code and frozen sets in a fixed order."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            # As a state, which is saved after the function is memoised: it may close over itself.
            closed = [cell.cell_contents for cell in obj.__closure__ or ()]
            held = obj.__code__, obj.__defaults__, obj.__kwdefaults__, closed
            return tuple, (("function", obj.__module__, obj.__qualname__),), held
        if isinstance(obj, CodeType):
            # Constants one by one: whether equal ones are the same object depends on the compiler.
            constants = [content_hash((type(c).__name__, c)) for c in obj.co_consts]
            names = obj.co_names, obj.co_varnames, obj.co_freevars, obj.co_argcount
            does = sys.version_info[:2], obj.co_code, obj.co_exceptiontable, obj.co_flags
            return tuple, ((does, names, constants),)
        if isinstance(obj, frozenset):
            return tuple, (("frozenset", *sorted(map(content_hash, obj))),)
        if isinstance(obj, ModuleType):
            return tuple, (("module", obj.__name__),)
        return NotImplemented
