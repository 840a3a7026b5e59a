"""Who computes: NumPy in main memory, or an engine that a kernel names or that holds the rows.

An engine is named outright (``"torch:cuda:0"``) or by rows that it holds already; nothing else
moves rows to it. Its name begins with a word that ``calliper._handlers`` knows, so that it is
imported only when somebody asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from calliper import _handlers
from calliper._types import FloatArray
from calliper.kernels._kernel import Bag, LeaveTwoOut, LocalMean, LocalQuantile
from calliper.kernels._neighbors import NeighborSearch
from calliper.kernels._radial import PlainRadial
from calliper.kernels._search import Metric, Search


class Radial(Protocol):
    """Points with radial weights, and all that is made of these."""

    def leave_two_out(self, magnitudes: FloatArray, offset: float) -> LeaveTwoOut:
        """Scales of the Jackknife+."""

    def bag(self, magnitudes: FloatArray, scores: FloatArray, offset: float) -> Bag:
        """Thresholds of full conformal."""

    def mean(self, magnitudes: FloatArray) -> LocalMean:
        """Means at new rows."""

    def local_quantile(self, scores: FloatArray) -> LocalQuantile:
        """Quantiles at new rows."""


class Engine(Protocol):
    """Makes of checked rows what a kernel asks."""

    def search(self, rows: Any, metric: Metric) -> Search:
        """The rows, ready to be searched for neighbours."""

    def radial(
        self, rows: Any, metric: Metric, length_scale: float, smoothing: float, step: float
    ) -> Radial:
        """The rows with radial weights."""


class NumpyEngine:
    """Arrays in main memory."""

    search = staticmethod(NeighborSearch)
    radial = staticmethod(PlainRadial)


def engine_of(rows: Any, named: str | None) -> Engine:
    """Who holds the rows, or else who is named; NumPy where nobody is."""
    if isinstance(rows, _handlers.EngineRows):
        held: Engine = rows.engine
        return held
    return check_engine(named)


def check_engine(named: Any) -> Engine:
    """The engine of that name, if it can compute here."""
    if named is None:
        return NumpyEngine()
    kind, _, where = named.partition(":") if isinstance(named, str) else ("", "", "")
    if kind not in _handlers.ENGINES:
        raise ValueError(f"engine must be {_handlers.ENGINE_NAMES}; got {named!r}.")
    engine: Engine = import_module(_handlers.ENGINES[kind]).engine(where)
    return engine
