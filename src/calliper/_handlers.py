"""Rows that are computed later, elsewhere: who answers for them, by the type of the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

#: Collections that are computed later: by the package of their type, the module that answers.
COLLECTIONS = {"dask": "calliper._dask", "dask_expr": "calliper._dask"}


def handler_of_collection(X: Any) -> Any:
    """What answers for rows that are computed later, by the type of X; None for any other."""
    packages = (base.__module__.partition(".")[0] for base in type(X).__mro__)
    found = next((COLLECTIONS[package] for package in packages if package in COLLECTIONS), None)
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


def refuse_collection(what: Any, name: str) -> None:
    """For what is computed in this process: say so before something fetches all rows."""
    if handler_of_collection(what) is not None:
        raise TypeError(
            f"{name} is a Dask {type(what).__name__}, whose rows would all have to come into this "
            f"process. calibrate, predict, predict_interval and predict_distribution take such; "
            f"elsewhere pass {name}.compute(), or a sample of it."
        )
