"""Rows with known targets, as a comparison takes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import rankdata

from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.exceptions import CalliperError
from calliper.rows import labels_of, same_rows

#: The label of rows that have none.
NO_LABEL = "(missing)"
#: Fewer test points, in all or in a part, say nothing about coverage.
FEWEST_TEST_POINTS = 20
#: Features that are looked at one by one; of more, those that go with the error most.
MOST_FEATURES = 8


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
    #: Row labels of what came as a series or a frame; None if nothing did.
    index: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        same_rows(self.Z, "Z", y=self.y, y_pred=self.y_pred, ids=self.ids)
        y = check_vector(self.y, "y")
        _refuse_missing(self.y_pred)
        one = np.ndim(self.Z) == 1
        Z = check_features(np.asarray(self.Z, dtype=float)[:, None] if one else self.Z)
        n, d = Z.shape
        if n != len(y):
            raise CalliperError(f"Z has {n} rows, y has {len(y)}.")
        y_pred = check_vector(self.y_pred, "y_pred", n=n)
        names = tuple(map(str, self.feature_names)) or tuple(f"z{i}" for i in range(d))
        if len(names) != d or len(set(names)) < len(names):
            raise CalliperError(
                f"feature_names must be {d} different names, one for each column of Z; got "
                f"{len(names)}: {names!r}."
            )
        ids = None if self.ids is None else check_labels(self.ids, "ids", n=n)
        labels = [labels_of(each) for each in (self.Z, self.y, self.y_pred)]
        index = next((each for each in labels if each is not None), None)
        checked = {"Z": Z, "y": y, "y_pred": y_pred, "ids": ids, "feature_names": names}
        checked["index"] = index
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def errors(self) -> FloatArray:
        """``|y − ŷ|``."""
        return np.abs(self.y - self.y_pred)

    def take(self, rows: IntArray) -> "Points":
        """Some of the rows."""
        ids = None if self.ids is None else tuple(self.ids[row] for row in rows)
        return Points(self.Z[rows], self.y[rows], self.y_pred[rows], ids, self.feature_names)

    def and_also(self, other: "Points") -> "Points":
        """The rows of both, without their ids."""
        pairs = ((self.Z, other.Z), (self.y, other.y), (self.y_pred, other.y_pred))
        Z, y, y_pred = map(np.concatenate, pairs)
        return Points(Z, y, y_pred, feature_names=self.feature_names)


def features_to_show(calibration: Points) -> tuple[int, ...]:
    """Which columns are looked at; chosen by calibration errors, so that the test stays a test."""
    Z = calibration.Z
    varying = [column for column in range(Z.shape[1]) if np.ptp(Z[:, column]) > 0]
    # A feature that is the prediction is shown as the prediction.
    varying = [i for i in varying if not np.array_equal(Z[:, i], calibration.y_pred)]
    if len(varying) <= MOST_FEATURES:
        return tuple(varying)
    error = rankdata(calibration.errors)
    if np.ptp(error) == 0:
        return tuple(varying[:MOST_FEATURES])
    strength = [abs(np.corrcoef(rankdata(Z[:, i]), error)[0, 1]) for i in varying]
    best = np.argsort(strength)[::-1][:MOST_FEATURES]
    return tuple(sorted(varying[i] for i in best))


def check_labels(labels: Sequence[Any], name: str, *, n: int) -> tuple[str, ...]:
    """One label a row, as text; :data:`NO_LABEL` where there is none."""
    texts = tuple(NO_LABEL if _is_missing(label) else str(label) for label in labels)
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
