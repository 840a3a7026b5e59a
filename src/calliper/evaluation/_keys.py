"""A name for each cell made of all that its result depends on.

Two runs share a cell exactly if data, calibrator, score, N, split, seed, levels, measures and
versions are the same. The code of classes is not looked into: its version stands for it.
"""

from __future__ import annotations

import platform
from functools import cache
from hashlib import sha256
from typing import Any

import joblib
import numpy as np
import scipy
import sklearn
from sklearn.base import clone

from calliper.evaluation._cell import Cell
from calliper.evaluation._measures import Measure
from calliper.exceptions import CalliperError


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    from calliper import __version__

    return (
        ("calliper", __version__),
        ("python", platform.python_version()),
        ("numpy", np.__version__),
        ("scipy", scipy.__version__),
        ("scikit-learn", sklearn.__version__),
    )


def versions() -> dict[str, str]:
    """Versions of what computes the records."""
    return dict(_versions())


class Keys:
    """Keys of cells; problems and methods that many cells share are hashed once."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[str, Any]] = {}

    def of(self, cell: Cell) -> str:
        """The key of one cell."""
        parts = (
            self._part(cell.problem),
            self._part(cell.method),
            *(self._part(measure) for measure in cell.measures.values()),
            tuple(cell.measures),
            (cell.problem.name, cell.name, cell.n_calibration, cell.n_test, cell.split),
            (cell.random_state, cell.levels),
            _versions(),
        )
        return sha256(repr(parts).encode()).hexdigest()  # texts and numbers only

    def _part(self, shared: Any) -> str:
        """The hash of an object, which is kept alive so that its id stays its own."""
        if id(shared) not in self._parts:
            self._parts[id(shared)] = _hash(_contents(shared), repr(shared)), shared
        return self._parts[id(shared)][0]


def _contents(shared: Any) -> Any:
    if isinstance(shared, Measure):
        return _function(shared.function)
    contents = dict(vars(shared))
    if "calibrator" in contents:  # what an earlier fit has left is no part of the method
        contents["calibrator"] = clone(contents["calibrator"])
    return contents


def _function(function: Any) -> Any:
    """A function by its name, instructions and constants, which pickling would leave out."""
    code = getattr(function, "__code__", None)
    if code is None:
        return function
    constants = [repr(c) for c in code.co_consts if not hasattr(c, "co_code")]
    return function.__module__, function.__qualname__, code.co_code, code.co_names, constants


def _hash(contents: Any, name: str) -> str:
    try:
        return str(joblib.hash(contents, coerce_mmap=True))
    except Exception as error:
        raise CalliperError(
            f"store= needs contents that can be compared with those of another run, and {name} "
            f"cannot be pickled ({error}): use functions and classes that are defined at the top "
            f"of a module, or leave store out."
        ) from error
