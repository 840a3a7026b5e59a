"""Work on the rows of a large problem in blocks that fit the processor's cache."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import numpy as np
from joblib import cpu_count
from threadpoolctl import ThreadpoolController

from calliper._types import FloatArray, IntArray
from calliper.exceptions import for_a_while

Result = TypeVar("Result")

#: Floats in one temporary of a block: 2 MB, small enough for the cache and large enough to make the
#: interpreter's overhead negligible.
BLOCK_FLOATS = 1 << 18
#: New rows that are searched for at a time, which bounds the memory of a prediction.
CHUNK_ROWS = 1 << 16

#: Both are slow to determine, and do not change.
_controller, _n_cores = cache(ThreadpoolController), cache(cpu_count)
#: Whether this thread may use one core only.
_ONE: ContextVar[bool] = ContextVar("one core", default=False)


def n_cores() -> int:
    """How many cores this thread may use."""
    return 1 if _ONE.get() else int(_n_cores())


def one_core() -> AbstractContextManager[None]:
    """Keep work in this thread; for callers that already run a thread on each core."""
    return for_a_while(_ONE, True)


class Scratch(threading.local):
    """A buffer of one thread, used again from block to block.

    The system hands out fresh megabytes page by page, which costs more than the arithmetic on them.
    """

    buffer = np.empty(0)

    def array(self, m: int, n: int) -> FloatArray:
        """An uninitialised array, (m, n); the next call reuses its memory."""
        if self.buffer.size < m * n:
            self.buffer = np.empty(m * n)
        return self.buffer[: m * n].reshape(m, n)


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
    workers = min(n_cores(), len(slices))
    with _OneThread():
        if workers <= 1:
            return [work(rows) for rows in slices]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, slices))


def map_row_blocks(work: Callable[[slice], Result], n_rows: int, row_floats: int) -> list[Result]:
    """:func:`map_slices` over rows by blocks that fit the cache; a row takes ``row_floats``."""
    return map_slices(work, row_slices(n_rows, max(1, BLOCK_FLOATS // max(1, row_floats))))


def distinct(rows: FloatArray) -> tuple[IntArray, IntArray]:
    """Where each of the different rows is first, and which of them every row is."""
    order, which = np.lexsort(rows.T), np.empty(len(rows), dtype=np.intp)
    ordered = rows[order]
    starts = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(rows)]
    which[order] = np.cumsum(starts) - 1
    return order[starts], which
