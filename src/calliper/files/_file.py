"""The file: two lines of JSON, then numbers and a hash, and nothing that could run.

    {"format": …}               what it is, for people and for ``inspect``
    {"nodes": …, "arrays": …}   the object: names of classes, parameters, which numbers are where
    numbers                     one array after another, each at a multiple of 64 bytes
    hash                        SHA-256 of everything before

Nothing is compressed, so that a file cannot unfold to more than it is long, and arrays that follow
one another share no number. A file that was altered or cut off does not have its hash and is
refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calliper._writing import whole_file
from calliper.exceptions import CalliperError, DamagedFileError, MissingFileError, NewerFormatError

#: Number of the format that is written, and the largest that is read.
FORMAT = 4

#: Types that arrays may have: numbers, texts and times.
ARRAY_TYPES = re.compile(r"b1|[iu][1248]|f[248]|U[1-9][0-9]*|[mM]8\[([YMWDhms]|[munpfa]s)\]")
#: Columns that an array without rows may have.
MOST_COLUMNS = 1 << 16
#: Arrays start at multiples of so many bytes.
ALIGNED = 64
#: Numbers written at a time, and bytes of the hash.
CHUNK, HASH = 1 << 17, 32


def is_kept(kind: np.dtype[Any]) -> bool:
    """Whether arrays of this type can be in a file."""
    return ARRAY_TYPES.fullmatch(kind.str[1:]) is not None


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds: a header, nodes, and the arrays that they name by number."""

    header: dict[str, Any]
    nodes: Any
    arrays: list[NDArray[Any]]


def write(path: Any, contents: Contents) -> None:
    """Write all of it, or nothing."""
    file = Path(path)
    try:
        with whole_file(file) as handle:
            _write(handle, contents)
    except (OSError, ValueError) as error:  # a path without a name is a ValueError
        why = getattr(error, "strerror", None) or error
        raise CalliperError(
            f"cannot write {str(file)!r} ({why}): choose a file in an existing folder with free "
            "space and write permission."
        ) from error


def _write(handle: Any, contents: Contents) -> None:
    total = sha256()
    for part in _parts(contents):
        total.update(part)
        handle.write(part)
    handle.write(total.digest())


def _parts(contents: Contents) -> Iterator[bytes]:
    """All bytes before the hash."""
    table = [[each.dtype.str[1:], list(each.shape), _order(each)] for each in contents.arrays]
    how: Any = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    lines = (contents.header, {"nodes": contents.nodes, "arrays": table})
    text = "".join(json.dumps(line, **how) + "\n" for line in lines)
    data = text.encode("utf-8", "surrogatepass")
    yield data + _padding(len(data))
    for array in contents.arrays:
        flat = array.ravel(order=_order(array)).astype(array.dtype.newbyteorder("<"), copy=False)
        for start in range(0, flat.size, CHUNK):
            yield flat[start : start + CHUNK].tobytes()
        yield _padding(flat.nbytes)


def _order(array: NDArray[Any]) -> Literal["C", "F"]:
    """How it lies in memory, which is kept: sums depend on it in their last digit."""
    return "F" if array.ndim > 1 and array.strides[0] < array.strides[-1] else "C"


def _padding(length: int) -> bytes:
    return bytes(-length % ALIGNED)


def read(path: Any) -> Contents:
    """What a file holds, its hash compared; everything but such a file is refused."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            "the first argument must be the path of a file, as in load(path, model); got "
            f"{path!r:.60}."
        )
    file = Path(path)
    try:
        handle = file.open("rb")
    except (OSError, ValueError) as error:  # a path that holds a zero is a ValueError
        if isinstance(error, FileNotFoundError):
            raise MissingFileError(f"there is no file {str(file)!r}: check the path.") from error
        why = getattr(error, "strerror", None) or error
        raise CalliperError(f"{str(file)!r} cannot be read: {why}.") from error
    with handle, refused_as_damaged(file):
        data = bytearray(os.fstat(handle.fileno()).st_size)  # memory that may be written to
        handle.readinto(data)
        first = data.find(b"\n")
        try:
            header = _parsed(data[:first])
        except ValueError as error:
            raise ValueError(
                "it is truncated, or it was not written by calliper.save or 'calliper calibrate'"
            ) from error
        _check_format(file, header)
        if sha256(memoryview(data)[:-HASH]).digest() != data[-HASH:]:
            raise DamagedFileError(
                f"{str(file)!r} was modified or truncated: its contents do not match its hash."
            )
        second = data.index(b"\n", first + 1)
        whole = _parsed(data[first + 1 : second])
        return Contents(header, whole["nodes"], _arrays(data, second + 1, whole["arrays"]))


@contextmanager
def refused_as_damaged(
    file: Any, passed: tuple[type[Exception], ...] = (CalliperError, Warning)
) -> Iterator[None]:
    """Whatever fails while a file is read is the fault of the file, but for what is ``passed``."""
    try:
        yield
    except passed:  # a warning may have been made an error
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error!s:.200}"
        if isinstance(error, CalliperError):
            why = str(error)
        elif type(error) is ValueError:
            why = f"{error!s:.200}."
        raise DamagedFileError(f"{str(file)!r} is not a complete calliper file: {why}") from error


def _parsed(data: bytearray) -> Any:
    """Strict JSON: no name twice, no NaN and no infinity."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    def refused(word: str) -> Any:
        raise ValueError(f"{word} is not a number")

    text = data.decode("utf-8", "surrogatepass")
    return json.loads(text, object_pairs_hook=once, parse_constant=refused)


def _check_format(file: Path, header: Any) -> None:
    number = header.get("format") if isinstance(header, dict) else None
    if not isinstance(number, int) or number < 1:
        raise ValueError("it names no format")
    if number < FORMAT:
        raise ValueError(f"no released version wrote format {number}: calibrate again")
    if number > FORMAT:
        raise NewerFormatError(
            f"{str(file)!r} has format {number}, written by calliper {header.get('calliper')!r}; "
            f"this version reads formats up to {FORMAT}: update calliper."
        )


def _arrays(data: bytearray, start: int, table: Any) -> list[NDArray[Any]]:
    """Arrays that follow one another and fill the file: no number is in two."""
    arrays, end = [], len(data) - HASH
    start += -start % ALIGNED
    for name, shape, order in table:
        known = ARRAY_TYPES.fullmatch(name) and order in ("C", "F") and len(shape) <= 8
        if not known or not all(
            type(each) is int and 0 <= each <= end + MOST_COLUMNS for each in shape
        ):
            raise ValueError(f"an array of type {name!r:.20} and shape {shape!r:.60} is invalid")
        kind, size = np.dtype(f"<{name}"), prod(shape)
        length = size * kind.itemsize
        if start + length > end:
            raise ValueError(f"an array of shape {shape} ends beyond the file")
        flat = np.frombuffer(data, kind, size, start)
        if name == "b1" and (flat.view(np.uint8) > 1).any():
            raise ValueError("a boolean is neither true nor false")
        if name[0] == "U":
            flat.tolist()  # which fails if it is no text
        arrays.append(flat.astype(name, copy=False).reshape(shape, order=order))
        start += length + -length % ALIGNED
    if start != end:
        raise ValueError("it holds numbers that belong to no array")
    return arrays
