"""What any map may return, turned into rows of finite numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper._validation import check_features, n_rows, refuse_sparse
from calliper.exceptions import CalliperError

#: Inputs beyond are as good as infinite: trees compute in single precision, distances square.
LARGEST = 1e30


def as_features(values: Any, X: Any, *, name: str = "X") -> FloatArray:
    """Features (m, d) that a map has made of the rows of ``X``; ``name`` is blamed for gaps."""
    table = _table(values, name)
    try:
        features = check_features(table, name)
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


@dataclass(frozen=True)
class Filled:
    """Inputs as numbers, with the training median of the column in place of each gap.

    Models that take rows with gaps predict for them, so that they must have a place as well.
    What no training row has held, such as a category that is not a number, is a gap, too.
    """

    medians: FloatArray

    @classmethod
    def learn(cls, values: Any) -> Filled:
        """Medians of training rows, 0 for a column without numbers; text is refused."""
        features = _numbers(values, strict=True)
        columns = [column[~np.isnan(column)] for column in features.T]
        return cls(np.array([np.median(known) if len(known) else 0.0 for known in columns]))

    def __call__(self, values: Any) -> FloatArray:
        """The numbers (m, d) of rows."""
        features = _numbers(values, strict=False)
        return np.clip(np.where(np.isnan(features), self.medians, features), -LARGEST, LARGEST)


def _numbers(values: Any, *, strict: bool) -> FloatArray:
    """Numbers with NaN at gaps; text is refused, or a gap as well."""
    table = _table(values, "X")
    try:
        features = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):  # one by one: some are missing, or text
        cells = np.asarray(table, dtype=object)
        numbers = [_number(cell, strict) for cell in cells.ravel()]
        features = np.array(numbers).reshape(cells.shape)
    if features.ndim != 2:
        raise CalliperError(f"inputs must have rows and columns; got shape {features.shape}.")
    return features


def _number(cell: Any, strict: bool) -> float:
    try:
        return float(cell)
    except TypeError:  # None and its like
        return np.nan
    except ValueError:
        if strict:
            raise
        return np.nan


def _table(values: Any, name: str) -> Any:
    refuse_sparse(values, name)
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values).reshape(-1, 1) if getattr(values, "ndim", 2) == 1 else values
