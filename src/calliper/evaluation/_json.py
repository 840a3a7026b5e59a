"""Rows as strict JSON, which has no word for infinity or "not a number"."""

from __future__ import annotations

from math import isfinite
from typing import Any

_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def to_strict(value: Any) -> Any:
    """The value with {"float": "Infinity"} and the like for numbers that JSON does not have."""
    if isinstance(value, float) and not isfinite(value):
        word = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return {"float": word}
    if isinstance(value, dict):
        return {key: to_strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_strict(item) for item in value]
    return value


def from_strict(value: Any) -> Any:
    """The inverse of :func:`to_strict`; tuples come back as lists."""
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return _WORDS[value["float"]]
        return {key: from_strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_strict(item) for item in value]
    return value
