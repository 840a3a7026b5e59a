"""Rows that are no arrays in main memory: Dask, GPUs, cells, batches, inputs of networks.

Dask collections are taken by ``ConformalRegressor`` itself, and tensors on a GPU by calibrators;
see ``docs/large-data.md``. The core never imports this package: it asks
``calliper._handlers`` who handles rows that are not arrays.
"""

from calliper.scale._batches import BatchIntervals
from calliper.scale._cells import Cells
from calliper.scale._dask import connect

__all__ = ["BatchIntervals", "Cells", "connect"]
