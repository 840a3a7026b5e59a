"""Names of a package whose module is imported on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
