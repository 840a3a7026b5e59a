"""Kernel and share of the global scale for the full method, from training data and N alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.scale._locality import Locality, locality_rule
from calliper.scale._locality_search import search_locality
from calliper.scale._resolve import resolve_kernel
from calliper.scale._tune import fixed_kernel

#: Rows and the sizes of the errors on them, where there are any.
Errors = tuple[FloatArray | None, FloatArray | None]


def choose_locality(
    kernel: Any,
    shrinkage: float | None,
    n: int,
    *,
    trained: Errors,
    left_out: Errors,
    length_scale: float | None,
    statistic: str,
    offset: float,
    rng: np.random.RandomState,
) -> Locality:
    """What the user gave, else the rule for N = n points, else what left-out errors prefer."""
    rows, errors = left_out
    if kernel is not None:
        given = resolve_kernel(kernel, trained[0], rng)
        known = trained if errors is None else left_out
        return Locality(fixed_kernel(given, *known, rng), shrinkage or 0.0, "user")
    rule = locality_rule(n, length_scale, shrinkage, statistic=statistic)
    if rows is None or errors is None:
        return rule
    return search_locality(
        rule, rows, errors, n, free=shrinkage is None, statistic=statistic, offset=offset, rng=rng
    )
