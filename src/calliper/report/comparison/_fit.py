"""Every method on the same calibration points and test points, at every level at once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from calliper.calibrators import Split
from calliper.embedding import Embedding, fit_embedding
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.report.comparison._points import Points
from calliper.scores import AbsoluteError

_SCORE = AbsoluteError()


@dataclass(frozen=True, eq=False)
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
    """

    method: str
    intervals: Intervals | None
    guarantees: tuple[Guarantee, ...] = ()
    seconds: float = 0.0
    constant: bool = False
    default: bool = False
    needs_training: bool = False
    what: str = ""
    failure: str | None = None
    warned: tuple[str, ...] = field(default=())

    def at(self, level: float) -> Intervals:
        """Its intervals at one level."""
        if self.intervals is None:
            raise CalliperError(f"{self.method} failed: {self.failure}")
        return self.intervals.at(level)


def ask(
    name: str,
    calibrator: Any,
    calibration: Points,
    test: Points,
    levels: Sequence[float],
    training: Points | None,
) -> Answer:
    """Fit a copy of the calibrator and ask it for intervals; an error becomes the answer."""
    kind = type(calibrator).__name__
    about: dict[str, Any] = {
        "constant": isinstance(calibrator, Split),
        "default": kind == "FullRescaled",
        "what": (type(calibrator).__doc__ or "").strip().split("\n")[0],
        "needs_training": _needs_training(calibrator, calibration),
    }
    start = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            method = clone(calibrator)
            embedding = _embedding(method, calibration, training)
            _fit(method, embedding, calibration, training)
            radius = method.predict_radius(embedding.transform(test.Z), list(levels))
            guarantees = tuple(method.guarantee(level) for level in levels)
        except Exception as error:  # whatever one method does, the others are still compared
            seconds = perf_counter() - start
            reason = f"{type(error).__name__}: {error}"
            return Answer(name, None, seconds=seconds, failure=reason, **about)
    lower, upper = _SCORE.invert(test.y_pred[:, None], radius)
    intervals = Intervals(lower, upper, tuple(levels))
    warned = tuple(dict.fromkeys(" ".join(str(entry.message).split()) for entry in caught))
    seconds = perf_counter() - start
    return Answer(name, intervals, guarantees, seconds, warned=warned, **about)


def _embedding(method: Any, calibration: Points, training: Points | None) -> Embedding:
    """Features standardised by training rows, if there are any; never by calibration rows."""
    if isinstance(method, Split):
        return Embedding(None, None)
    return fit_embedding(None, None if training is None else training.Z, calibration.Z)


def _fit(method: Any, embedding: Embedding, calibration: Points, training: Points | None) -> None:
    more: dict[str, Any] = {}
    if training is not None:
        more["Z_train"] = embedding.transform(training.Z)
        more["scores_train"] = _SCORE.measure(training.y, training.y_pred)
        more["y_train"] = training.y
    wanted = {name: value for name, value in more.items() if has_fit_parameter(method, name)}
    scores = _SCORE.measure(calibration.y, calibration.y_pred)
    method.fit(embedding.transform(calibration.Z), scores, **wanted)


def _needs_training(method: Any, calibration: Points) -> bool:
    """Whether ``fit`` refuses to do without training rows; asked with a handful of rows."""
    if not has_fit_parameter(method, "Z_train"):
        return False
    few = calibration.take(np.arange(min(len(calibration), 5)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            clone(method).fit(few.Z, few.errors)
        except CalliperError as error:
            return "_train" in str(error)
        except Exception:  # it fails for another reason, which its answer tells
            return False
    return False
