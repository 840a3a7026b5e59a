"""Rows with known targets, and the intervals of each method on them at all levels at once."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import rankdata

from calliper._stored import calibrate_rows, rows_with_errors
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.calibrators import FullRescaled, Split, as_calibrator
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.rows import labels_of, same_rows
from calliper.scores import Score

#: The label of rows that have none.
NO_LABEL = "(missing)"
#: With fewer test points, in all or in a part, nothing can be said about coverage.
FEWEST_TEST_POINTS = 20
#: Features examined one by one; of more, those most correlated with the error.
MOST_FEATURES = 8


@dataclass(frozen=True, eq=False)
class Points:
    """Features, targets, predictions and names of the same rows.

    Parameters
    ----------
    Z : array of shape (n, d), or (n,) for one feature
        Features.
    y, y_pred : arrays of shape (n,)
        Targets, and predictions of the model.
    ids : sequence of n names, optional
        Names of the rows, shown with their points.
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
    #: Row labels if a series or a frame was passed, otherwise None.
    index: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        same_rows(self.Z, "Z", y=self.y, y_pred=self.y_pred, ids=self.ids)
        y = check_vector(self.y, "y")
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
    """The columns to examine, chosen by calibration errors to keep the test rows independent."""
    Z = calibration.Z
    varying = [column for column in range(Z.shape[1]) if np.ptp(Z[:, column]) > 0]
    # A feature that equals the prediction is shown as the prediction.
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
    """One label for each row as text; :data:`NO_LABEL` where it is missing."""
    texts = tuple(NO_LABEL if _is_missing(label) else str(label) for label in labels)
    if len(texts) != n:
        raise CalliperError(f"{name} has {len(texts)} labels for {n} rows.")
    return texts


def _is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, or their text in files."""
    return label is None or label != label or str(label).strip().lower() in ("", "nan", "<na>")


@dataclass(frozen=True, eq=False, kw_only=True)
class Sets:
    """The rows of a comparison; ``training`` are those that the model was trained on.

    ``groups`` are labels of the test points, called ``group_name``; ``score`` defines the error.
    """

    calibration: Points
    test: Points
    training: Points | None = None
    groups: tuple[str, ...] | None = None
    group_name: str = "group"
    score: Score | None = None

    @cached_property
    def shown_features(self) -> tuple[int, ...]:
        """Columns by which the test points are cut into parts."""
        return features_to_show(self.calibration)


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """The intervals of one method, or why it failed.

    Attributes
    ----------
    method : its name
    intervals : of every test point at every level, (m, L); ``None`` if it failed
    guarantees : the guarantee at each level
    seconds : time to fit and predict
    constant : whether it is plain split conformal, the baseline
    default : whether it is the default method of calliper
    needs_training : whether it needs training rows
    what : description in a line
    failure : the error message
    warned : its warnings, each once

    Examples
    --------
    >>> from calliper import Intervals
    >>> answer = Answer(method="split", intervals=Intervals([[0.0]], [[2.0]], (0.9,)))
    >>> answer.at(0.9).width
    array([2.])
    """

    method: str
    intervals: Intervals | None = None
    guarantees: tuple[Guarantee, ...] = ()
    seconds: float = 0.0
    constant: bool = False
    default: bool = False
    needs_training: bool = False
    what: str = ""
    failure: str | None = None
    warned: tuple[str, ...] = ()

    def at(self, level: float) -> Intervals:
        """Its intervals at one level."""
        if self.intervals is None:
            raise CalliperError(f"{self.method} failed: {self.failure}")
        return self.intervals.at(level)


def ask(name: str, calibrator: Any, sets: Sets, levels: Sequence[float]) -> Answer:
    """Fit a copy of the calibrator and predict intervals; errors are recorded."""
    start = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = _answer(calibrator, sets, tuple(levels))
        except Exception as error:  # whatever one method does, the others are still compared
            answer = {"failure": f"{type(error).__name__}: {error}"}
    warned = dict.fromkeys(" ".join(str(entry.message).split()) for entry in caught)
    return Answer(
        method=name,
        seconds=perf_counter() - start,
        constant=isinstance(calibrator, Split),
        default=type(calibrator) is FullRescaled,
        what=(type(calibrator).__doc__ or "").strip().split("\n")[0],
        needs_training=bool(as_calibrator(calibrator).uses.needs),
        warned=() if "failure" in answer else tuple(warned),
        **answer,
    )


def _answer(calibrator: Any, sets: Sets, levels: tuple[float, ...]) -> dict[str, Any]:
    """The intervals of the test points, and the guarantee at each level."""

    def rows(points: Points | None) -> Any:
        if points is None:
            return None
        return rows_with_errors(points.Z, points.y, points.y_pred, sets.score)

    known = rows(sets.calibration), rows(sets.training)
    fitted, space = calibrate_rows(calibrator, *known, sets.score)
    intervals = fitted.intervals(sets.test.y_pred, space.transform(sets.test.Z), levels)
    promised = tuple(fitted.guarantee(level) for level in levels)
    return {"intervals": intervals, "guarantees": promised}
