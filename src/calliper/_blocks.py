"""Work on the rows of a large problem in blocks that fit the processor's cache."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")

#: Floats in one temporary of a block: 2 MB, small enough for the cache and large enough to make the
#: interpreter's overhead negligible.
BLOCK_FLOATS = 1 << 18
#: New rows that are searched for at a time, which bounds the memory of a prediction.
CHUNK_ROWS = 1 << 16


#: Both take a while to find out.
_controller, _n_cores = cache(ThreadpoolController), cache(cpu_count)
#: Whether this thread may use one core only.
_ONE: ContextVar[bool] = ContextVar("one core", default=False)


def n_cores() -> int:
    """How many cores this thread may use."""
    return 1 if _ONE.get() else int(_n_cores())


@contextmanager
def one_core() -> Iterator[None]:
    """Keep work in this thread; for callers that already run a thread on each core."""
    token = _ONE.set(True)
    try:
        yield
    finally:
        _ONE.reset(token)


class Scratch(threading.local):
    """Buffers of one thread, used again from block to block.

    The system hands out fresh megabytes page by page, which costs more than the arithmetic on them.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: Any = np.float64) -> NDArray[Any]:
        """An uninitialised array; the next call by that name reuses its memory."""
        size = shape[0] * shape[1]
        buffer = self.buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self.buffers[name] = np.empty(size, dtype=dtype)
        return buffer[:size].reshape(shape)


def row_slices(n_rows: int, step: int) -> list[slice]:
    """Consecutive slices of at most ``step`` rows."""
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


class _OneThread:
    """Limits linear algebra to one thread while any of these is entered.

    The last to leave restores what the first found, so that predictions that overlap in time leave
    the setting as it was. The weak set forgets one that Ctrl-C interrupts on entering or leaving.
    """

    lock = threading.RLock()
    inside: ClassVar[WeakSet[_OneThread]] = WeakSet()
    limiter: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self._restore()
                _OneThread.limiter = _controller().limit(limits=1, user_api="blas")
            self.inside.add(self)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside.discard(self)
            if not self.inside:
                self._restore()

    def __del__(self) -> None:
        self.__exit__()

    @classmethod
    def _restore(cls) -> None:
        if cls.limiter is not None:
            cls.limiter.restore_original_limits()
            cls.limiter = None

    @classmethod
    def forked(cls) -> None:
        """In a forked process no other thread is inside, and none will release the lock."""
        cls.lock, cls.inside = threading.RLock(), WeakSet()
        cls._restore()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_OneThread.forked)


def map_slices(work: Callable[[slice], Result], slices: list[slice]) -> list[Result]:
    """``work(rows)`` for each slice, results in order, on all cores.

    NumPy releases the interpreter lock in the loops that matter, so threads suffice. Linear algebra
    is limited to one thread each while they run, so that no core is used twice.
    """
    if len(slices) == 1:  # too little for threads, also those of linear algebra
        with _OneThread():
            return [work(slices[0])]
    workers = min(n_cores(), len(slices))
    if workers <= 1:
        return [work(rows) for rows in slices]
    with _OneThread(), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, slices))


def map_row_blocks(work: Callable[[slice], Result], n_rows: int, row_floats: int) -> list[Result]:
    """:func:`map_slices` over blocks of rows that fit the cache.

    ``row_floats`` is how many floats one row needs in the largest temporary of ``work``.
    """
    return map_slices(work, row_slices(n_rows, max(1, BLOCK_FLOATS // max(1, row_floats))))
