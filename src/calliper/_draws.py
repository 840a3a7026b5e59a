"""Draws that are new for every data set, at a given seed too.

Whoever fixes a seed draws the same numbers for all data. Where such numbers settle something about
data points (which of two equal ones comes first, where a weight is centred), a promise that holds
on average over the draws need not hold given the seed. Seeds that depend on the data as well, by a
cryptographic hash, make the draws new for each data set and repeatable for one and the same.
"""

from __future__ import annotations

from hashlib import shake_128
from typing import Any

import numpy as np

from calliper._types import FloatArray


def seed_of(*columns: FloatArray) -> int:
    """A number below 2³² that depends on rows, (n,) or (n, d), but not on their order."""
    rows = as_bytes(np.column_stack(columns))
    return int.from_bytes(shake_128(b"".join(sorted(rows))).digest(4), "little")


def as_bytes(rows: FloatArray) -> list[bytes]:
    """The bytes of each row; those of negative zero are zero's."""
    return [row.tobytes() for row in (rows + 0.0).astype("<f8")]


def random_bits(key: bytes, rows: FloatArray) -> Any:
    """64 random bits for each number of some rows, (m, d); equal rows have bits of their own.

    They depend on the key, a row's numbers, and how many equal rows came before.
    """
    seen: dict[bytes, int] = {}
    bits = []
    for row in as_bytes(rows):
        seen[row] = copies = seen.get(row, 0) + 1
        bits.append(shake_128(key + copies.to_bytes(8, "little") + row).digest(len(row)))
    return np.frombuffer(b"".join(bits), dtype="<u8").reshape(rows.shape)
