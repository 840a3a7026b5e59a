"""What calliper writes: files that are complete or not there at all, and strict JSON.

**Files** are written under another name in the same folder and renamed when complete. Whoever
writes a file holds a lock on it until it has its name, so a file without a lock was left by a
killed run, and the next one to write in that folder removes it. This needs no clock: a file that
looks abandoned between its making and its locking is simply made once more. A file that replaces
another is at no time readable by more users than that one.

**JSON** has no infinity and no NaN, and other languages refuse to read what Python writes for them.
So infinities are the texts ``"inf"`` and ``"-inf"``, and NaN is null. All other floats come back
to the last bit.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite, isnan, nan
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np


@contextmanager
def whole_file(path: Any) -> Iterator[Any]:
    """A file to write bytes to, which is there if the block ends well, and otherwise is not."""
    target = Path(os.path.realpath(path))  # a link stays a link
    remove_abandoned(target.parent)
    handle = _created(target)
    made = Path(handle.name)
    try:
        yield handle
        handle.flush()
        os.fsync(handle.fileno())
        if target.exists():
            shutil.copymode(target, made)
        if os.name == "nt":  # where nothing open can be moved, and nothing is locked
            handle.close()
        os.replace(made, target)
    finally:
        with suppress(OSError):  # a broken disk may refuse even that
            made.unlink(missing_ok=True)
        with suppress(OSError):  # or to write what is left in a buffer
            handle.close()


def remove_abandoned(folder: Path) -> None:
    """Remove what killed runs have left behind: files of ours that nobody has locked."""
    for path in folder.glob(".calliper-*.tmp"):
        with suppress(OSError), path.open("rb+") as handle:
            if lock(handle):
                path.unlink()


def lock(handle: Any) -> bool | None:
    """Whether it was locked, until it is closed or the program ends; None if that is unknown."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _created(target: Path) -> Any:
    """A new file beside it, locked before another run took it for abandoned."""
    # The owner can always write: ``remove_abandoned`` opens the file to see if it is locked.
    mode = 0o600 | stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666
    while True:
        path = target.with_name(f".calliper-{token_hex(8)}.tmp")
        handle = open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        if lock(handle) is not False and path.exists():
            return handle
        handle.close()
        path.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """A value as strict JSON has it: arrays as lists, NaN as null, infinity as "inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return None if isnan(value) else str(value)
    return value


def number(value: Any) -> Any:
    """What :func:`plain` made of a number, as a number again; other values as they are."""
    if value is None:
        return nan
    return float(value) if value in ("inf", "-inf") else value


def to_text(value: Any, **how: Any) -> str:
    """Strict JSON of a value that :func:`plain` can turn; ``how`` as ``json.dumps`` takes it."""
    return json.dumps(plain(value), allow_nan=False, **how)
