"""Every method on the same calibration points and test points, at every level at once."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

from calliper._stored import calibrate_rows, rows_with_errors
from calliper.calibrators import FullRescaled, Split, as_calibrator
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.lab.comparison._points import Points, features_to_show
from calliper.rows import Rows
from calliper.scores import Score


@dataclass(frozen=True, eq=False, kw_only=True)
class Sets:
    """The rows of a comparison; training rows are those that the model has learnt from.

    ``groups`` are labels of the test points, and ``group_name`` is what they are; ``score`` is what
    is called an error.
    """

    calibration: Points
    test: Points
    training: Points | None = None
    groups: tuple[str, ...] | None = None
    group_name: str = "group"
    score: Score | None = None

    @cached_property
    def shown_features(self) -> tuple[int, ...]:
        """Columns that the test points are cut into parts by."""
        return features_to_show(self.calibration)


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """What one method said, or why it said nothing.

    Attributes
    ----------
    method : its name
    intervals : of every test point at every level, (m, L); ``None`` if it failed
    guarantees : what is promised at each level
    seconds : to fit and to answer
    constant : whether it is plain split conformal, the yardstick
    default : whether it is the method that calliper takes if none is named
    needs_training : whether it cannot do without training rows
    what : what it is, in a line
    failure : the error, in words
    warned : what it warned about, each once

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
    """Fit a copy of the calibrator and ask it for intervals; an error is returned."""
    answer: dict[str, Any] = {}
    start = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer |= _answer(calibrator, sets, tuple(levels))
        except Exception as error:  # whatever one method does, the others are still compared
            answer["failure"] = f"{type(error).__name__}: {error}"
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
    """The intervals of the test points, and what is promised at each level."""
    score = sets.score
    training = None if sets.training is None else _rows(sets.training, score)
    rows = _rows(sets.calibration, score)
    fitted, space = calibrate_rows(calibrator, rows, training, score)
    intervals = fitted.intervals(sets.test.y_pred, space.transform(sets.test.Z), levels)
    promised = tuple(fitted.guarantee(level) for level in levels)
    return {"intervals": intervals, "guarantees": promised}


def _rows(points: Points, score: Score | None) -> list[Rows]:
    return rows_with_errors(points.Z, points.y, points.y_pred, score)
