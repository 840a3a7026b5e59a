"""A name for each cell made of all that its result depends on.

Two runs share a cell exactly if data, calibrator, score, N, split, seed, levels, measures and
versions are the same. Functions are compared by their code, classes by their name: the version
of calliper stands for its own.
"""

from __future__ import annotations

import platform
from functools import cache
from hashlib import sha256
from types import FunctionType
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.base import clone

from calliper.evaluation._cell import Cell
from calliper.evaluation._hash import content_hash
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
            self._parts[id(shared)] = _hash(shared), shared
        return self._parts[id(shared)][0]


def _contents(shared: Any) -> Any:
    if isinstance(shared, Measure):
        # The class of an object that can be called is known by its name: add what it does.
        called = type(shared.function).__call__
        return shared.function, called if isinstance(called, FunctionType) else None
    contents = dict(vars(shared))
    if "calibrator" in contents:  # what an earlier fit has left is no part of the method
        contents["calibrator"] = clone(contents["calibrator"])
    return contents


def _hash(shared: Any) -> str:
    try:
        return content_hash(_contents(shared))
    except Exception as error:
        raise CalliperError(
            f"store= needs contents that can be compared with those of another run, and {shared!r} "
            f"holds something that cannot ({error}): keep locks, open files and the like out of "
            f"methods and measures, define classes at the top of a module, or leave store out."
        ) from error
