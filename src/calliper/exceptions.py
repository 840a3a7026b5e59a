"""Errors and warnings that a caller may want to catch by name, and how to warn.

Every error is a :class:`CalliperError`, every warning a ``UserWarning``:

>>> from calliper import Split
>>> split = Split().fit([[0.0]] * 5, range(5))
>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always", SmallCalibrationWarning)
...     radius = split.predict_radius([[0.0]], 0.9)
>>> [each.category.__name__ for each in caught], radius
(['SmallCalibrationWarning'], array([inf]))
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any


class CalliperError(ValueError):
    """No valid interval can be computed from the input; the message says what to change."""


class CannotSaveError(CalliperError):
    """An object, such as a lambda, that cannot be stored in a file of plain data."""


class MissingFileError(CalliperError, FileNotFoundError):
    """There is no file of this name."""


class DamagedFileError(CalliperError):
    """A file that was altered or truncated, or is not a calliper file."""


class NewerFormatError(CalliperError):
    """A file in a newer format than this version can read."""


class OtherModelError(CalliperError):
    """A calibration was loaded with a model that it was not made for."""


class SmallCalibrationWarning(UserWarning):
    """Too few calibration rows for the level (intervals are infinite), or for the kernel."""


class ZeroScaleWarning(UserWarning):
    """Some local scales are zero, so the rescaled score of those points is infinite."""


class UnscaledFeaturesWarning(UserWarning):
    """Distances are measured on raw inputs of very different spreads, so the widest dominates."""


class UnbalancedBoxWarning(UserWarning):
    """Errors of several targets are compared without regard to their units."""


class EmbeddingWarning(UserWarning):
    """The space used for distances is less informative than it could be, or unexpected."""


class SharedRowsWarning(UserWarning):
    """Training rows are among the calibration rows, so the guarantee no longer holds."""


class ShiftWarning(UserWarning):
    """Weights leave few calibration rows, or make intervals infinite: the shift is large."""


class RowOrderWarning(UserWarning):
    """Rows are in order of time, or errors depend on the row number: later rows may differ."""


class SplitGroupsWarning(UserWarning):
    """Rows of one group were held out together, so there is no guarantee for new groups."""


class UnusedWarning(UserWarning):
    """An argument changes nothing; the message says what would."""


class RowLabelsWarning(UserWarning):
    """Values may belong to other rows: labels are in another order, or values contradict."""


class QuantileCrossingWarning(UserWarning):
    """A predicted lower quantile lies above an upper one; they were put in order."""


class InEveryBootstrapWarning(UserWarning):
    """Some rows are in every bootstrap, so no model left them out."""


class SparseBinsWarning(UserWarning):
    """Bins hold too few points for the measure, or there are fewer bins than requested."""


class FailedTrialsWarning(UserWarning):
    """A method or a measure failed on some splits; ``Records.failures`` has the messages."""


class TornStoreWarning(UserWarning):
    """A line of the store cannot be read; its trial is computed again."""


_CLASSES = [each for each in vars().values() if isinstance(each, type)]
#: Every error and every warning above.
__all__ = sorted(each.__name__ for each in _CLASSES if issubclass(each, Exception))

#: Modules that may lie between the user's line and a warning.
_PACKAGE = re.compile(r"(calliper|joblib|sklearn|concurrent|threading)(\.|$)")
#: In this thread: classes silenced; classes shown once already, None if all are shown again; the
#: function that shows.
_SILENT: ContextVar[tuple[tuple[type[Warning], ...], set[type[Warning]] | None, Any]] = ContextVar(
    "silent", default=((), None, warnings.warn)
)


@contextmanager
def for_a_while(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Give a variable of this thread another value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def unheard(*categories: type[Warning]) -> AbstractContextManager[None]:
    """Silence warnings of calliper in this thread; Python's own filters are for all threads."""
    before, *shown = _SILENT.get()
    return for_a_while(_SILENT, ((*before, *categories), *shown))


def once(
    said: set[type[Warning]], tell: Callable[..., None] = warnings.warn
) -> AbstractContextManager[None]:
    """Show each warning class once in this thread, by ``tell``; ``said`` are those shown so far."""
    return for_a_while(_SILENT, (_SILENT.get()[0], said, tell))


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called calliper, however deep this is."""
    unheard, said, tell = _SILENT.get()
    if issubclass(category, unheard) or (said is not None and category in said):
        return
    if said is not None:
        said.add(category)
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _PACKAGE.match(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    tell(message, category, stacklevel=level)
