"""Rows with known targets, and the intervals of each method on them at all levels at once."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import rankdata

from calliper._stored import calibrate_rows
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.calibration import measured
from calliper.calibrators import FullRescaled, Split, as_calibrator
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.rows import labels_of, same_rows
from calliper.scores import Score, as_score

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
        names = tuple(map(str, self.feature_names)) or tuple(f"z{i}" for i in range(d))
        if len(names) != d or len(set(names)) < len(names):
            raise CalliperError(
                f"feature_names must be {d} different names, one for each column of Z; got "
                f"{len(names)}: {names!r}."
            )
        labels = map(labels_of, (self.Z, self.y, self.y_pred))
        checked = {
            "index": next((each for each in labels if each is not None), None),
            "Z": Z,
            "y": y,
            "y_pred": check_vector(self.y_pred, "y_pred", n=n),
            "ids": None if self.ids is None else check_labels(self.ids, "ids", n=n),
            "feature_names": names,
        }
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


def check_labels(labels: Sequence[Any], name: str, *, n: int) -> tuple[str, ...]:
    """One label for each row as text; :data:`NO_LABEL` where it is None, NaN or their text."""
    known = (None if label is None or label != label else str(label) for label in labels)
    missing = ("", "nan", "<na>")
    texts = [NO_LABEL if t is None or t.strip().lower() in missing else t for t in known]
    if len(texts) != n:
        raise CalliperError(f"{name} has {len(texts)} labels for {n} rows.")
    return tuple(texts)


@dataclass(frozen=True, eq=False)
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

    def __post_init__(self) -> None:
        expected = self.calibration.feature_names
        for points, name in ((self.test, "test"), (self.training, "training")):
            if points is not None and points.feature_names != expected:
                raise CalliperError(
                    f"calibration and {name} points must have the same features; got "
                    f"{expected} and {points.feature_names}."
                )

    @cached_property
    def shown_features(self) -> tuple[int, ...]:
        """Columns by which the test points are cut into parts.

        Chosen by calibration errors, so that the test rows stay independent of the choice.
        """
        Z, known = self.calibration.Z, self.calibration
        # A feature that equals the prediction is shown as the prediction.
        found = [i for i, z in enumerate(Z.T) if np.ptp(z) > 0 and (z != known.y_pred).any()]
        if len(found) > MOST_FEATURES and np.ptp(known.errors) > 0:
            # The rank correlation of each with the error, (d,).
            strength = np.abs(np.corrcoef(rankdata(Z[:, found], axis=0).T, rankdata(known.errors)))
            found = [found[i] for i in np.argsort(strength[-1, :-1])[::-1]]
        return tuple(sorted(found[:MOST_FEATURES]))


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
    start, answer, score = perf_counter(), dict[str, Any](), as_score(sets.score)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tails: Any = [
                None if rows is None else measured(score, rows.Z, rows.y, rows.y_pred)
                for rows in (sets.calibration, sets.training)
            ]
            fitted, space = calibrate_rows(calibrator, tails[0], tails[1], sets.score)
            placed = space.transform(sets.test.Z)
            answer["intervals"] = fitted.intervals(sets.test.y_pred, placed, tuple(levels))
            answer["guarantees"] = tuple(fitted.guarantee(level) for level in levels)
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
