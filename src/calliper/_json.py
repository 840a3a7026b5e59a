"""Strict JSON, spelt one way everywhere.

JSON has no infinity and no NaN, and what Python writes for them other languages refuse to read. So
infinities are the texts ``"inf"`` and ``"-inf"``, and NaN, a number that does not exist, is null.
All other floats come back to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isinf, isnan, nan
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value as strict JSON has it: arrays as lists, NaN as null, infinity as "inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and isnan(value):
        return None
    if isinstance(value, float) and isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def number(value: Any) -> Any:
    """What :func:`plain` made of a number, as a number again; other values as they are."""
    if value is None:
        return nan
    return float(value) if value in ("inf", "-inf") else value


def to_text(value: Any, **how: Any) -> str:
    """Strict JSON of a value that :func:`plain` can turn; ``how`` as ``json.dumps`` takes it."""
    return json.dumps(plain(value), allow_nan=False, **how)
