"""The file: one zip that holds arrays and JSON, and nothing that could run.

    header.json     what it is, for people and for ``inspect``
    object.json     the object: names of classes, parameters, and which numbers belong where
    float64.npy …   all numbers of one type, one array after another
    sha256          of everything before

Members are stored as they are, never compressed, so that a file cannot unfold to more than it is
long; sizes are compared with the length of the file before anything is read. ``numpy.load`` opens
the arrays, any zip program the rest. What is altered, cut off or swapped does not have its hash and
is refused.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calliper._writing import whole_file
from calliper.exceptions import (
    CalliperError,
    DamagedFileError,
    MissingFileError,
    NewerFormatError,
)

#: Number of the format that is written, and the largest that is read.
FORMAT = 2

HEADER, OBJECT, HASH = "header.json", "object.json", "sha256"
#: Types of numbers that have a member of their own, in the order of the file.
NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
#: Members that the hash is of.
ORDER = (HEADER, OBJECT, *(f"{name}.npy" for name in NUMBERS))
#: Columns that an array without rows may have.
MOST_COLUMNS = 1 << 16
#: Bytes before the numbers of an array.
NPY_HEAD = 128
#: Bytes read or written at a time.
CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds: a header, nodes, and the arrays that they name by number."""

    header: dict[str, Any]
    nodes: Any
    arrays: list[NDArray[Any]]


def write(path: Any, contents: Contents) -> None:
    """Write all of it, or nothing."""
    place = Path(path)
    try:
        with whole_file(place) as handle:
            _write(handle, contents)
    except (OSError, ValueError) as error:  # a path without a name is a ValueError
        why = getattr(error, "strerror", None) or error
        raise CalliperError(
            f"nothing was written to {str(place)!r} ({why}): give the path of a file, where there "
            f"is room and permission to write."
        ) from error


def _write(handle: Any, contents: Contents) -> None:
    total, arrays = sha256(), contents.arrays
    table = [[each.dtype.name, list(each.shape), _order(each)] for each in arrays]
    whole = {"nodes": contents.nodes, "arrays": table}
    with zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED) as archive:

        def member(name: str, parts: Iterator[bytes]) -> None:
            total.update(name.encode())
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as target:
                for part in parts:
                    total.update(part)
                    target.write(part)

        member(HEADER, iter([_json(contents.header)]))
        member(OBJECT, iter([_json(whole)]))
        for name in NUMBERS:
            of_type = [each for each in arrays if each.dtype.name == name]
            if of_type:
                member(f"{name}.npy", _npy(name, of_type))
        archive.writestr(zipfile.ZipInfo(HASH), total.hexdigest())


def _order(array: NDArray[Any]) -> Literal["C", "F"]:
    """How it lies in memory, which is kept: sums depend on it in their last digit."""
    return "F" if array.ndim > 1 and array.strides[0] < array.strides[-1] else "C"


def _npy(name: str, arrays: list[NDArray[Any]]) -> Iterator[bytes]:
    """The bytes of one flat array that holds all of them."""
    kind = np.dtype(name).newbyteorder("<")
    yield _npy_head(kind, sum(array.size for array in arrays))
    for array in arrays:
        flat = np.asarray(array.ravel(order=_order(array)), dtype=kind)
        for start in range(0, flat.size, CHUNK):
            yield flat[start : start + CHUNK].tobytes()


def _npy_head(kind: Any, size: int) -> bytes:
    """How ``numpy.load`` knows a flat array; always as long, so that it is compared, not parsed."""
    said = f"{{'descr': {kind.str!r}, 'fortran_order': False, 'shape': ({size},), }}"
    return (
        b"\x93NUMPY\x02\x00"
        + (NPY_HEAD - 12).to_bytes(4, "little")
        + (said.ljust(NPY_HEAD - 13) + "\n").encode()
    )


def _json(value: Any) -> bytes:
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def read(path: Any) -> Contents:
    """What a file holds, its hash compared; everything but such a file is refused."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"the path of a file comes first, as in load(path, model); got {path!r:.60}."
        )
    place = Path(path)
    try:
        handle = place.open("rb")
    except (OSError, ValueError) as error:  # a path that holds a zero is a ValueError
        if isinstance(error, FileNotFoundError):
            raise MissingFileError(f"there is no file {str(place)!r}: check the path.") from error
        why = getattr(error, "strerror", None) or error
        raise CalliperError(f"{str(place)!r} cannot be read: {why}.") from error
    with handle, refused_as_damaged(place), zipfile.ZipFile(handle) as archive:
        members = _checked_members(archive, os.fstat(handle.fileno()).st_size)
        header = _parsed(_bytes(archive, members[HEADER]))
        _check_format(place, header)
        data = {name: _bytes(archive, members[name]) for name in ORDER if name in members}
        if _hash(data).encode() != _bytes(archive, members[HASH]):
            raise DamagedFileError(
                f"{str(place)!r} was altered: its contents do not match their hash."
            )
        whole = _parsed(data[OBJECT])
        blocks = {n: _numbers(n, data[f"{n}.npy"]) for n in NUMBERS if f"{n}.npy" in data}
        return Contents(header, whole["nodes"], _arrays(blocks, whole["arrays"]))


@contextmanager
def refused_as_damaged(place: Path) -> Iterator[None]:
    """Whatever fails while a file is read is the fault of the file."""
    try:
        yield
    except (CalliperError, Warning):  # a warning may have been made an error
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error!s:.200}"
        if isinstance(error, zipfile.BadZipFile):
            why = (
                "it is truncated or of another kind; calliper.save and calliper calibrate write "
                "calliper files."
            )
        elif type(error) is ValueError:
            why = f"{error!s:.200}."
        raise DamagedFileError(f"{str(place)!r} is not a complete calliper file: {why}") from error


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


def _checked_members(archive: zipfile.ZipFile, length: int) -> dict[str, zipfile.ZipInfo]:
    """Members by name: those that belong here, stored as they are and no longer than the file."""
    known, members = {*ORDER, HASH}, dict[str, zipfile.ZipInfo]()
    for info in archive.infolist():
        stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & ~0x800
        inside = info.file_size == info.compress_size <= length - info.header_offset
        if info.filename not in known or info.filename in members or not stored or not inside:
            raise ValueError(f"it has a member {info.filename[:40]!r} that does not belong there")
        members[info.filename] = info
    if not {HEADER, OBJECT, HASH} <= set(members):
        raise ValueError("parts are missing")
    if sum(info.file_size for info in members.values()) > length:
        raise ValueError("members overlap")
    return members


def _bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    """A member's bytes, as memory that may be written to."""
    whole, filled = bytearray(info.file_size), 0
    with archive.open(info) as source:
        while part := source.read(CHUNK):
            whole[filled : filled + len(part)] = part
            filled += len(part)
    if filled != len(whole):
        raise ValueError(f"{info.filename} ends early")
    return whole


def _check_format(place: Path, header: Any) -> None:
    number = header.get("format") if isinstance(header, dict) else None
    if not isinstance(number, int) or number < 1:
        raise ValueError("it names no format")
    if number < FORMAT:
        raise ValueError(f"no released version wrote format {number}: calibrate again")
    if number > FORMAT:
        raise NewerFormatError(
            f"{str(place)!r} has format {number}, written by calliper {header.get('calliper')!r}; "
            f"this version reads formats up to {FORMAT}: update calliper."
        )


def _hash(data: Mapping[str, bytearray]) -> str:
    total = sha256()
    for name, content in data.items():
        total.update(name.encode())
        total.update(content)
    return total.hexdigest()


def _numbers(name: str, data: bytearray) -> NDArray[Any]:
    """The flat array of a member that has just the type and length that it should have."""
    kind = np.dtype(name).newbyteorder("<")
    size = (len(data) - NPY_HEAD) // kind.itemsize
    if data[:NPY_HEAD] != _npy_head(kind, size):
        raise ValueError(f"{name}.npy does not match its header")
    numbers = np.frombuffer(data, dtype=kind, count=size, offset=NPY_HEAD)
    if name == "bool" and (numbers.view(np.uint8) > 1).any():
        raise ValueError("a boolean is neither true nor false")
    return numbers if kind.isnative else numbers.astype(name)


def _arrays(blocks: dict[str, NDArray[Any]], table: Any) -> list[NDArray[Any]]:
    """Arrays that follow one another in their members and fill them: no number is in two."""
    arrays, filled = [], dict.fromkeys(blocks, 0)
    for name, shape, order in table:
        block = blocks[name]
        if not all(type(each) is int and 0 <= each <= len(block) + MOST_COLUMNS for each in shape):
            raise ValueError(f"an array has shape {shape!r:.60}")
        start, size = filled[name], prod(shape)
        if start + size > len(block) or len(shape) > 8 or order not in ("C", "F"):
            raise ValueError(f"an array of shape {shape} ends beyond its member")
        arrays.append(np.reshape(block[start : start + size], shape, order=order))
        filled[name] += size
    if any(filled[name] != len(block) for name, block in blocks.items()):
        raise ValueError("a member holds numbers that belong to no array")
    return arrays
