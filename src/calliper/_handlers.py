"""Modules that are imported only when they are needed.

Those of rows that are not NumPy arrays (Dask collections, tensors, inputs of networks) are found by
the type of the rows, those of names of a package by the name.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from calliper._types import FloatArray

#: Modules that handle collections that are computed later, by the package of their type, or by
#: package and name.
COLLECTIONS = {"dask": "calliper.scale._dask", "dask_expr": "calliper.scale._dask"}
#: The same for arrays of other libraries, which become rows or arrays of NumPy.
TENSORS = {"torch.Tensor": "calliper.scale._device"}
#: The same for inputs of networks, which become rows.
INPUTS = dict.fromkeys(
    ("builtins.dict", "collections.Mapping", "torch.DataLoader"), "calliper.scale._inputs"
)
#: The same for models that take a dict for each row.
NETWORKS = {"torch.Module": "calliper.scale._inputs"}
#: Modules of engines, by the first part of an engine's name.
ENGINES = {"torch": "calliper.scale._device"}
ENGINE_NAMES = "None, 'torch' (the current CUDA device) or 'torch:DEVICE', such as 'torch:cuda:0'"
#: The module behind ``KNN(cells=...)``.
CELLS = "calliper.scale._cells"


class EngineRows(ABC):
    """Checked rows of features, (n, d), that an engine holds; NumPy sees a copy of them.

    ``engine`` computes with them, by its ``search`` and ``radial``. ``ends`` gives the least and
    the largest number, ``vstack`` these and then others, perhaps in main memory; ``check_beside``
    refuses new rows held elsewhere, unless the kernel names an engine for them.
    """

    shape: tuple[int, int]
    engine: Any
    ndim = 2
    ends: Callable[[], tuple[float, float]]
    vstack: Callable[[Any], EngineRows]
    check_beside: Callable[[Any, Any], None]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: Any) -> EngineRows:
        """Some of them."""

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """All of them in main memory."""


def handler_of(what: Any, handlers: dict[str, str]) -> Any:
    """The module that handles it, by its type; None where none does."""
    kinds = ((base.__module__.partition(".")[0], base.__name__) for base in type(what).__mro__)
    names = (name for package, kind in kinds for name in (package, f"{package}.{kind}"))
    found = next((handlers[name] for name in names if name in handlers), None)
    return None if found is None else import_module(found)


def handler_of_collection(X: Any) -> Any:
    """The module that handles rows that are computed later; None for any other X."""
    return handler_of(X, COLLECTIONS)


def handler_of_tensor(values: Any) -> Any:
    """The module that makes rows of a tensor; None for anything else."""
    return handler_of(values, TENSORS)


def in_memory(values: Any) -> Any:
    """A tensor as an array in main memory; anything else as it came."""
    handler = handler_of_tensor(values)
    return values if handler is None else handler.in_memory(values)


def as_tensor(array: Any) -> Any:
    """The tensor that :func:`in_memory` has made an array of."""
    return import_module(TENSORS["torch.Tensor"]).as_tensor(array)


def on_demand(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: imports the module of a name, by ``homes``.

    A name that is its module's own (``"metrics": "metrics"``) is the module itself.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        found = module if name == homes[name] else getattr(module, name)
        vars(sys.modules[package])[name] = found  # so that this is called once for each name
        return found

    return find
