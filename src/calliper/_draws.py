"""Random draws that differ from data set to data set even if the seed is fixed.

With a fixed seed the same numbers are drawn for all data. Where they decide something about data
points (which of two equal ones comes first, where a weight is centred), a guarantee that holds on
average over draws need not hold for that seed. So seeds also depend on the data, by a cryptographic
hash: each data set has its own, and the same data have the same.
"""

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
    """64 bits for each number of rows, (m, d), by key, row, and how often the row came before."""
    seen: dict[bytes, int] = {}
    bits = []
    for row in as_bytes(rows):
        seen[row] = copies = seen.get(row, 0) + 1
        bits.append(shake_128(key + copies.to_bytes(8, "little") + row).digest(len(row)))
    return np.frombuffer(b"".join(bits), dtype="<u8").reshape(rows.shape)
