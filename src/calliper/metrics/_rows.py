"""Which rows a costly measure looks at, how few are too few, and their columns in one unit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from calliper._types import FloatArray, IntArray
from calliper._validation import check_features
from calliper.exceptions import CalliperError
from calliper.metrics._bins import at_least

#: Below this, dependence between coverage and anything else cannot be told from chance.
FEWEST = 20


def choose_rows(n: int, max_points: int, random_state: Any) -> IntArray:
    """All rows in order, or ``max_points`` of them at random."""
    size = at_least(max_points, FEWEST, "max_points")
    if n <= size:
        return np.arange(n)
    # Sampled without listing all n first: RandomState would permute them.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def too_few(n: int) -> str | None:
    """Why n rows are too few, or None."""
    return (
        f"{n} rows are too few to measure it, at least {FEWEST} are needed" if n < FEWEST else None
    )


def check_rows(X: Any, n: int) -> FloatArray:
    """Features of the test rows, one row for each target."""
    column = np.asarray(X) if np.ndim(X) == 1 else None
    features = check_features(X if column is None else column[:, None], "X")
    if len(features) != n:
        raise CalliperError(f"X has {len(features)} rows for {n} targets.")
    return features


def unit_spread(features: FloatArray) -> FloatArray:
    """Columns around 0 with standard deviation 1; constant ones are left out."""
    low, high = features.min(axis=0), features.max(axis=0)
    varies = high > low  # the deviation of a constant may be a rounding error above 0
    between = (features[:, varies] - low[varies]) / (high - low)[varies]
    centred = between - between.mean(axis=0)
    scaled: FloatArray = centred / centred.std(axis=0)
    return scaled
