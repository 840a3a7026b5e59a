"""New rows that do not fit on one machine, or more speed: Dask, devices, cells, batches.

Dask collections are taken by ``ConformalRegressor`` itself, and tensors on a GPU by calibrators;
see ``docs/large-data.md``. The core never imports this package: it asks
``calliper._validation`` who handles rows that are not arrays.
"""

from calliper.scale._batches import BatchIntervals
from calliper.scale._cells import Cells
from calliper.scale._dask import connect

__all__ = ["BatchIntervals", "Cells", "connect"]
