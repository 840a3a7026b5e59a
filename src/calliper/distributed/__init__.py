"""More rows than one machine holds: shards, and one function for every engine of batches.

Dask collections are taken by ``ConformalRegressor`` itself; see ``docs/scale.md``.
"""

from calliper._dask import connect
from calliper.distributed._batches import BatchIntervals
from calliper.distributed._sharded import ShardedRescaled

__all__ = ["BatchIntervals", "ShardedRescaled", "connect"]
