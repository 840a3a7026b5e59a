"""Rows that are not arrays, and engines that are not NumPy: who handles them.

The core knows neither Dask nor tensors nor devices. Whoever meets rows of another kind asks here,
by the type of the rows; whoever is told an engine by name asks by that name. What handles them lies
in ``calliper.scale`` and is imported when it is asked for, and not before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from calliper._types import FloatArray

Method = TypeVar("Method", bound=Callable[..., Any])

#: Collections that are computed later, elsewhere: by the package of their type, what answers them.
COLLECTIONS = {"dask": "calliper.scale._dask", "dask_expr": "calliper.scale._dask"}

#: Arrays of other libraries, likewise, and what makes rows or NumPy's arrays of them.
TENSORS = {"torch": "calliper.scale._device"}

#: Engines by the first part of their names: functions of the rest of it.
ENGINES = {"torch": "calliper.scale._device"}
ENGINE_NAMES = "None, 'torch' (the current CUDA device) or 'torch:DEVICE', such as 'torch:cuda:0'"

#: What makes cells of whatever ``KNN(cells=...)`` was given.
CELLS = "calliper.scale._cells"


class EngineRows(ABC):
    """Checked rows of features, (n, d), that an engine holds; NumPy sees a copy of them.

    Attributes
    ----------
    shape : (n, d)
    engine : who computes with them
    """

    shape: tuple[int, int]
    engine: Any
    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: Any) -> EngineRows:
        """Some of them."""

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """All of them in main memory."""

    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The least and the largest number."""

    @abstractmethod
    def vstack(self, more: Any) -> EngineRows:
        """These and then others, which may be in main memory."""

    @abstractmethod
    def check_beside(self, rows: Any, kernel: Any) -> None:
        """Refuse new rows that are not held alike, unless the kernel names who fetches them."""


def handler_of_collection(X: Any) -> Any:
    """What answers for rows that are computed later, by the type of X; None for any other."""
    return _handler(X, COLLECTIONS)


def handler_of_tensor(values: Any) -> Any:
    """What makes rows of a tensor, by its type; None for anything else."""
    return _handler(values, TENSORS)


def _handler(what: Any, handlers: dict[str, str]) -> Any:
    packages = (base.__module__.partition(".")[0] for base in type(what).__mro__)
    found = next((handlers[package] for package in packages if package in handlers), None)
    return None if found is None else import_module(found)


def handled(method: Method) -> Method:
    """Of a regressor: what is asked of rows that are computed later, their handler answers."""

    @wraps(method)
    def ask(self: Any, X: Any, *given: Any, **known: Any) -> Any:
        handler = handler_of_collection(X)
        if handler is None:
            return method(self, X, *given, **known)
        self._check_calibrated()
        return handler.answer(method.__name__, self, X, *given, **known)

    return ask  # type: ignore[return-value]


def as_array(values: Any, name: str, beside: Any = None) -> Any:
    """A tensor of numbers for each row as an array, if it is where the rows are; else as given."""
    handler = handler_of_tensor(values)
    return values if handler is None else handler.to_array(values, name, beside)


def refuse_collection(what: Any, name: str) -> None:
    """For what is computed in this process: say so before something fetches all rows."""
    if handler_of_collection(what) is not None:
        raise TypeError(
            f"{name} is a Dask {type(what).__name__}, whose rows would all have to come into this "
            f"process. calibrate, predict, predict_interval and predict_distribution take such; "
            f"elsewhere pass {name}.compute(), or a sample of it."
        )
