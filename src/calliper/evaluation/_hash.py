"""A hash of what an object is made of: the same in every process, another for other code.

Pickling keeps a function by its name, so that two measures made by one factory, or one measure
before and after an edit, would look the same. Here a function is its instructions, those of the
functions inside it, its constants, its defaults and what it has closed over. What it reads from
its module, and the code of classes, are left to their names.
"""

from __future__ import annotations

from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from joblib.hashing import NumpyHasher


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
    closed = [_cell(cell) for cell in function.__closure__ or ()]
    return function.__code__, function.__defaults__, function.__kwdefaults__, closed


def _cell(cell: Any) -> Any:
    try:
        return ("cell", cell.cell_contents)
    except ValueError:  # a name that was not bound yet
        return "empty"


def _instructions(code: CodeType) -> tuple[Any, ...]:
    """All that decides what is computed; not where it stands in which file."""
    # Constants one by one: whether equal ones are one object depends on who compiled them.
    constants = [content_hash((type(c).__name__, c)) for c in code.co_consts]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, constants, counts, names
