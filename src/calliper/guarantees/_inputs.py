"""What the bounds check first: numbers, levels, probabilities of regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._validation import check_levels
from calliper.exceptions import CalliperError


def check_level(level: Any, name: str = "coverage") -> float:
    """One level, strictly inside (0, 1); ``name`` is how the caller's user knows it."""
    if np.ndim(level) != 0:
        raise CalliperError(f"{name} must be one level such as 0.9; got {level!r}: loop over them.")
    try:
        return check_levels(level)[0]
    except CalliperError as error:
        raise CalliperError(str(error).replace("coverage", name, 1)) from None


def check_rho(rho: Any) -> FloatArray:
    """Probabilities of regions, in (0, 1]."""
    values = _as_numbers(rho, "rho")
    _refuse(
        ~((values > 0) & (values <= 1)),
        values,
        "rho must lie in (0, 1]: it is the probability that an input falls into the region",
    )
    return values


def check_information(mutual_information: Any) -> FloatArray:
    """Mutual information in nats: non-negative, perhaps infinite."""
    values = _as_numbers(mutual_information, "mutual_information")
    _refuse(
        ~(values >= 0),
        values,
        "mutual_information must be a number of nats >= 0, which the true value always is",
        " An estimate below 0? Pass max(0, estimate), or use plug_in_local_coverage.",
    )
    return values


def check_ratio(ratio: Any, name: str) -> FloatArray:
    """A ratio of scores: non-negative, perhaps infinite."""
    values = _as_numbers(ratio, name)
    _refuse(~(values >= 0), values, f"{name} must be >= 0")
    return values


def broadcast(**named: FloatArray) -> list[FloatArray]:
    """The arrays in one common shape, or an error that names theirs."""
    try:
        return list(np.broadcast_arrays(*named.values()))
    except ValueError:
        shapes = " and ".join(f"{name} {values.shape}" for name, values in named.items())
        raise CalliperError(
            f"shapes do not fit together: {shapes}. For all pairs, pass one as a column, "
            f"values[:, None]."
        ) from None


def like_input(values: FloatArray) -> float | FloatArray:
    """A number if numbers came in, else the array."""
    return float(values) if values.ndim == 0 else values


def _as_numbers(values: Any, name: str) -> FloatArray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise CalliperError(f"{name} must be a number or an array; got {values!r}.") from None


def _refuse(wrong: BoolArray, values: FloatArray, expected: str, hint: str = "") -> None:
    """An error that names the first offending value."""
    if not wrong.any():
        return
    where = tuple(int(index) for index in np.argwhere(wrong)[0])
    place = f" at position {where if len(where) > 1 else where[0]}" if where else ""
    raise CalliperError(f"{expected}; got {values[where]:g}{place}.{hint}")
