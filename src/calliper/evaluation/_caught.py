"""The warnings of one piece of work, also while other threads do theirs.

``warnings.catch_warnings`` changes the whole process: two threads inside it at once lose warnings
or leave the filters changed. Here the first thread to come in puts a hook in place, the last to
leave takes it away, and the hook sorts warnings by thread. A thread that a piece of work has
started itself is not known by it: its warnings go to every piece of work of that moment, marked.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_texts: dict[int, list[str]] = {}  # by thread
_inside = 0
_outside: Any = None


@contextmanager
def caught_warnings() -> Iterator[list[str]]:
    """A list that fills with the warnings of this thread, each different text once."""
    thread = threading.get_ident()
    texts: list[str] = []
    outer = _texts.get(thread)
    _enter()
    _texts[thread] = texts
    try:
        yield texts
    finally:
        if outer is None:
            del _texts[thread]
        else:
            _texts[thread] = outer
        _leave()


def _enter() -> None:
    global _inside, _outside
    with _lock:
        if _inside == 0:
            _outside = warnings.catch_warnings()
            _outside.__enter__()
            warnings.simplefilter("always")
            warnings.showwarning = _sort
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _outside.__exit__(None, None, None)


def _sort(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    text, here = f"{category.__name__}: {message}", _texts.get(threading.get_ident())
    if here is None:
        text += " (in another thread)"
    for texts in list(_texts.values()) if here is None else [here]:
        if text not in texts:
            texts.append(text)
