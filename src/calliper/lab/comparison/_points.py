"""Rows with known targets, as a comparison takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.exceptions import CalliperError

#: The label of rows that have none.
MISSING = "(missing)"
#: Fewer test points, in all or in a part, say nothing about coverage.
FEWEST_TEST_POINTS = 20


@dataclass(frozen=True, eq=False)
class Points:
    """Features, targets and predictions of the same rows, and what names them.

    Parameters
    ----------
    Z : array of shape (n, d), or (n,) for one feature
        Features in which nearness is judged.
    y, y_pred : arrays of shape (n,)
        True targets, and what the model said of them.
    ids : sequence of n names, optional
        What the rows are called; shown where a point is.
    feature_names : sequence of d names, optional
        By default ``z0``, ``z1``, …

    Examples
    --------
    >>> Points([[0.0], [1.0]], y=[1.0, 2.0], y_pred=[1.1, 1.9]).feature_names
    ('z0',)
    """

    Z: FloatArray
    y: FloatArray
    y_pred: FloatArray
    ids: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        y = check_vector(self.y, "y")
        _refuse_missing(self.y_pred)
        Z: Any = np.asarray(self.Z, dtype=float) if np.ndim(self.Z) == 1 else self.Z
        features = check_features(Z.reshape(-1, 1) if np.ndim(Z) == 1 else Z)
        if len(features) != len(y):
            raise CalliperError(f"Z has {len(features)} rows, y has {len(y)}.")
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "y_pred", check_vector(self.y_pred, "y_pred", n=len(y)))
        object.__setattr__(self, "Z", features)
        names = tuple(map(str, self.feature_names)) or tuple(
            f"z{i}" for i in range(features.shape[1])
        )
        if len(names) != features.shape[1] or len(set(names)) < len(names):
            raise CalliperError(
                f"feature_names must be {features.shape[1]} different names, one for each column "
                f"of Z; got {len(names)}: {names!r}."
            )
        object.__setattr__(self, "feature_names", names)
        if self.ids is not None:
            object.__setattr__(self, "ids", check_labels(self.ids, "ids", n=len(y)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def errors(self) -> FloatArray:
        """``|y − ŷ|``."""
        return np.abs(self.y - self.y_pred)

    def take(self, rows: IntArray) -> Points:
        """Some of the rows."""
        ids = None if self.ids is None else tuple(self.ids[row] for row in rows)
        return Points(
            self.Z[rows],
            y=self.y[rows],
            y_pred=self.y_pred[rows],
            ids=ids,
            feature_names=self.feature_names,
        )

    def and_also(self, other: Points) -> Points:
        """The rows of both, without their ids."""
        return Points(
            np.concatenate([self.Z, other.Z]),
            y=np.concatenate([self.y, other.y]),
            y_pred=np.concatenate([self.y_pred, other.y_pred]),
            feature_names=self.feature_names,
        )


def check_labels(labels: Sequence[Any], name: str, *, n: int) -> tuple[str, ...]:
    """One label a row, as text; :data:`MISSING` where there is none."""
    texts = tuple(MISSING if _is_missing(label) else str(label) for label in labels)
    if len(texts) != n:
        raise CalliperError(f"{name} has {len(texts)} labels for {n} rows.")
    return texts


def _is_missing(label: Any) -> bool:
    """None, NaN, and what files make of them."""
    return label is None or label != label or str(label).strip().lower() in ("", "nan", "<na>")


def _refuse_missing(y_pred: Any) -> None:
    """A model that has no answer for some rows: how many, and which."""
    try:
        missing = np.flatnonzero(np.isnan(np.asarray(y_pred, dtype=float)))
    except (TypeError, ValueError):
        return  # not numbers at all: the check that follows says so
    if len(missing):
        first = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise CalliperError(
            f"y_pred must have a prediction for every row: {len(missing)} of {np.size(y_pred)} "
            f"are missing (rows {first}). Predict those rows, or remove them from all arrays."
        )
