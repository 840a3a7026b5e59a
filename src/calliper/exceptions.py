"""Errors and warnings that a caller may want to catch by name, and the one way to warn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

__all__ = [
    "CalliperError",
    "CannotSaveError",
    "DamagedFileError",
    "EmbeddingWarning",
    "FailedTrialsWarning",
    "InEveryBootstrapWarning",
    "NewerFormatError",
    "OtherModelError",
    "OtherVersionWarning",
    "QuantileCrossingWarning",
    "RowOrderWarning",
    "SharedRowsWarning",
    "ShiftWarning",
    "SmallCalibrationWarning",
    "SparseBinsWarning",
    "TornStoreWarning",
    "UnbalancedBoxWarning",
    "UnscaledFeaturesWarning",
    "ZeroScaleWarning",
]


class CalliperError(ValueError):
    """An input that no valid interval can be computed from; the message says what to change."""


class CannotSaveError(CalliperError):
    """Something of the user's own that a file which runs nothing cannot hold as it is."""


class DamagedFileError(CalliperError):
    """A file that is not, or no longer, what was saved: altered, cut off, or something else."""


class NewerFormatError(CalliperError):
    """A file of a later version, whose format this one does not know."""


class OtherModelError(CalliperError):
    """A calibration was loaded beside another model than the one that it was made for."""


class OtherVersionWarning(UserWarning):
    """A file was made with another version of a library that its numbers may depend on."""


class SmallCalibrationWarning(UserWarning):
    """Too few calibration points for what was asked.

    Raised when the level needs more points than there are (the only valid radius is then
    infinite) or when a kernel asks for more neighbours than exist (all are used).
    """


class ZeroScaleWarning(UserWarning):
    """Some local scales are zero, so the rescaled score of those points is infinite."""


class UnscaledFeaturesWarning(UserWarning):
    """Nearness is judged on raw inputs whose spreads differ so much that one of them decides."""


class UnbalancedBoxWarning(UserWarning):
    """Errors of several targets are compared as they are, whatever unit each of them has."""


class EmbeddingWarning(UserWarning):
    """The space where nearness is judged says less than it could, or is not what was expected."""


class SharedRowsWarning(UserWarning):
    """Rows that must be apart are in both sets, so that what was proved no longer holds."""


class ShiftWarning(UserWarning):
    """Weights leave few calibration points, or make intervals infinite: the shift is large."""


class RowOrderWarning(UserWarning):
    """Errors depend on the row number: rows to come may err otherwise than those before."""


class QuantileCrossingWarning(UserWarning):
    """A predicted lower quantile lies above an upper one; they were put in order."""


class InEveryBootstrapWarning(UserWarning):
    """Some rows are in every bootstrap, so that no model can judge them."""


class SparseBinsWarning(UserWarning):
    """Bins hold too few points for what is measured in them, or there are fewer than asked for."""


class FailedTrialsWarning(UserWarning):
    """A method or a measure raised on some splits; ``Records.failures`` has the texts."""


class TornStoreWarning(UserWarning):
    """A line of the store cannot be read; its trial is computed again."""


#: What stands between a user's line and a warning of ours.
_PASSED_OVER = frozenset({"calliper", "joblib", "sklearn", "concurrent", "threading"})


#: What this thread does not want to hear, since it deals with it.
_UNHEARD: ContextVar[tuple[type[Warning], ...]] = ContextVar("unheard", default=())


@contextmanager
def unheard(category: type[Warning]) -> Iterator[None]:
    """No such warning of calliper's, in this thread; Python's own filters are those of all."""
    token = _UNHEARD.set((*_UNHEARD.get(), category))
    try:
        yield
    finally:
        _UNHEARD.reset(token)


def warn(message: str, category: type[Warning]) -> None:
    """Warn with the line of the user's code that called into calliper, however deep this is."""
    if issubclass(category, _UNHEARD.get()):
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame) in _PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    """Top-level package of the code that a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
