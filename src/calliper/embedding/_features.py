"""What any map may return, turned into rows of finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper._validation import check_features, n_rows, refuse_sparse
from calliper.exceptions import CalliperError


def as_features(values: Any, X: Any) -> FloatArray:
    """Features (m, d) that a map has made of the rows of ``X``."""
    refuse_sparse(values, "X")
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if getattr(values, "ndim", 2) == 1:
        values = np.asarray(values).reshape(-1, 1)
    try:
        features = check_features(values, "X")
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise CalliperError(
            f"nearness needs numbers, but the inputs hold text ({error}): pass embed=, a "
            f"transformer or function that turns inputs into numbers, or 'prediction'."
        ) from error
    if len(features) != n_rows(X):
        raise CalliperError(
            f"embed turned {n_rows(X)} rows into {len(features)}; it must keep rows."
        )
    return features
