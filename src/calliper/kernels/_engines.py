"""Who computes: NumPy in main memory, or an engine that a kernel names or that holds the rows.

An engine is named outright (``"torch:cuda:0"``) or by rows that it holds already; nothing else
moves rows to it. Its name begins with a word that ``calliper._handlers`` knows, so that it is
imported only when somebody asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from calliper import _handlers
from calliper.kernels._neighbors import NeighborSearch
from calliper.kernels._radial import PlainRadial
from calliper.kernels._search import Metric, Search


class Engine:
    """Makes of checked rows what a kernel asks; this one of arrays in main memory."""

    def search(self, rows: Any, metric: Metric) -> Search:
        """The rows, ready to be searched for neighbours."""
        return NeighborSearch(rows, metric)

    def radial(
        self, rows: Any, metric: Metric, length_scale: float, smoothing: float, step: float
    ) -> Any:
        """The rows with radial weights, which answers as :class:`PlainRadial` does."""
        return PlainRadial(rows, metric, length_scale, smoothing, step)


def engine_of(rows: Any, named: str | None) -> Engine:
    """Who holds the rows, or else who is named; NumPy where nobody is."""
    if isinstance(rows, _handlers.EngineRows):
        held: Engine = rows.engine
        return held
    return check_engine(named)


def check_engine(named: Any) -> Engine:
    """The engine of that name, if it can compute here."""
    if named is None:
        return Engine()
    kind, _, where = named.partition(":") if isinstance(named, str) else ("", "", "")
    if kind not in _handlers.ENGINES:
        raise ValueError(f"engine must be {_handlers.ENGINE_NAMES}; got {named!r}.")
    engine: Engine = import_module(_handlers.ENGINES[kind]).engine(where)
    return engine
