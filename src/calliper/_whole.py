"""Whole files or none: written beside their place by another name, and moved there when complete.

Who writes a file holds a lock on it until it has its name. What a killed run has left is locked by
nobody, which is how the next one to write in that folder knows it, and removes it. No clock is
asked: a file that looks abandoned between its making and its locking is made once more.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any


class Unfinished:
    """A file beside its place, until it takes the place or is discarded.

    Attributes
    ----------
    target : where it goes, no link
    handle : open for writing bytes, and locked
    """

    def __init__(self, target: Path) -> None:
        remove_abandoned(target.parent)
        self.target, self.handle = target, _created(target.parent)
        self._path = Path(self.handle.name)

    def finish(self) -> None:
        """Write all of it to the disk, and give it its name."""
        self.handle.flush()
        os.fsync(self.handle.fileno())
        if self.target.exists():
            shutil.copymode(self.target, self._path)
        if os.name == "nt":  # where nothing open can be moved, and nothing is locked
            self.handle.close()
        os.replace(self._path, self.target)

    def discard(self) -> None:
        """Remove what has not got its name; close it in any case."""
        with suppress(OSError):  # on a disk that takes nothing any more, not even that
            self._path.unlink(missing_ok=True)
        with suppress(OSError):  # nor what is left in a buffer
            self.handle.close()


@contextmanager
def whole_file(path: Any) -> Iterator[Any]:
    """A file to write bytes to, which takes its place if the block ends well, or is removed."""
    part = Unfinished(Path(os.path.realpath(path)))  # a link stays a link
    try:
        yield part.handle
        part.finish()
    finally:
        part.discard()


def remove_abandoned(folder: Path) -> None:
    """Remove what runs that were killed have left behind: files of ours that nobody holds."""
    for path in folder.glob(".calliper-*.tmp"):
        with suppress(OSError), path.open("rb+") as handle:
            if lock(handle):
                path.unlink()


def lock(handle: Any) -> bool | None:
    """Whether the file is ours; it is until it is closed or the program ends, however that may be.

    False where another has it, None where nobody can tell.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _created(folder: Path) -> Any:
    """A new file, ours before anyone took it for abandoned."""
    while True:
        path = folder / f".calliper-{token_hex(8)}.tmp"
        handle = path.open("xb")
        if lock(handle) is not False and path.exists():
            return handle
        handle.close()
        path.unlink(missing_ok=True)
