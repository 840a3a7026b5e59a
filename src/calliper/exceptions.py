"""Errors and warnings that a caller may want to catch by name, and the one way to warn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
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
    """An input that no valid interval can be computed from; the message says what to change.

    Examples
    --------
    >>> from calliper import Split
    >>> Split().fit([[0.0]] * 9, range(9)).predict_radius([[0.0]], 1.5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    calliper.exceptions.CalliperError: coverage must lie strictly between 0 and ...
    """


class CannotSaveError(CalliperError):
    """Something of the user's own that a file which runs nothing cannot hold as it is.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> line = LinearRegression().fit(X[:200], y[:200])
    >>> import tempfile
    >>> from calliper import save
    >>> model = ConformalRegressor(line, embed=lambda rows: rows[:, :3]).calibrate(X[200:], y[200:])
    >>> save(model, tempfile.mkdtemp() + "/line.calliper")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    calliper.exceptions.CannotSaveError: embed (<lambda>) cannot be saved: a file ...
    """


class DamagedFileError(CalliperError):
    """A file that is not, or no longer, what was saved: altered, cut off, or something else.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from calliper import load
    >>> path = Path(tempfile.mkdtemp()) / "other.calliper"
    >>> _ = path.write_bytes(b"something else")
    >>> load(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    calliper.exceptions.DamagedFileError: '...' is no whole file of calliper: ...
    """


class NewerFormatError(CalliperError):
    """A file of a later version, whose format this one does not know.

    Examples
    --------
    >>> issubclass(NewerFormatError, CalliperError)
    True
    """


class OtherModelError(CalliperError):
    """A calibration was loaded beside another model than the one that it was made for.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> line = LinearRegression().fit(X[:200], y[:200])
    >>> import tempfile
    >>> from calliper import load, save
    >>> path = tempfile.mkdtemp() + "/line.calliper"
    >>> save(ConformalRegressor(line, embed="prediction").calibrate(X[200:], y[200:]), path)
    >>> load(path, LinearRegression().fit(X[:100], y[:100]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    calliper.exceptions.OtherModelError: LinearRegression predicts the 5 rows that the ...
    """


class OtherVersionWarning(UserWarning):
    """A file was made with another version of a library that its numbers may depend on.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", OtherVersionWarning)  # stop there
    """


class SmallCalibrationWarning(UserWarning):
    """Too few calibration points for what was asked.

    Raised when the level needs more points than there are (the only valid radius is then
    infinite) or when a kernel asks for more neighbours than exist (all are used).

    Examples
    --------
    >>> from calliper import Split
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = Split().fit([[0.0]] * 5, range(5)).predict_radius([[0.0]], 0.9)
    >>> [each.category.__name__ for each in caught]
    ['SmallCalibrationWarning']
    """


class ZeroScaleWarning(UserWarning):
    """Some local scales are zero, so the rescaled score of those points is infinite.

    Examples
    --------
    >>> from calliper import KNN, JackknifeRescaled
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = JackknifeRescaled(KNN(2)).fit([[i] for i in range(30)], [0.0] * 25 + [1.0] * 5)
    >>> [each.category.__name__ for each in caught]
    ['ZeroScaleWarning']
    """


class UnscaledFeaturesWarning(UserWarning):
    """Nearness is judged on raw inputs whose spreads differ so much that one of them decides.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> line = LinearRegression().fit(X[:200], y[:200])
    >>> scale = [1] * 9 + [9999]
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = ConformalRegressor(line, embed="inputs").calibrate(X[200:] * scale, y[200:])
    >>> [each.category.__name__ for each in caught]
    ['UnscaledFeaturesWarning']
    """


class UnbalancedBoxWarning(UserWarning):
    """Errors of several targets are compared as they are, whatever unit each of them has.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_linnerud
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import MultiTargetRegressor
    >>> X, Y = load_linnerud(return_X_y=True)
    >>> line = LinearRegression().fit(X[:8], Y[:8])
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = MultiTargetRegressor(line, embed="prediction").calibrate(X[8:], Y[8:])
    >>> [each.category.__name__ for each in caught]
    ['UnbalancedBoxWarning']
    """


class EmbeddingWarning(UserWarning):
    """The space where nearness is judged says less than it could, or is not what was expected.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> line = LinearRegression().fit(X[:200], y[:200])
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = ConformalRegressor(lambda rows: line.predict(rows)).calibrate(X[200:], y[200:])
    >>> [each.category.__name__ for each in caught]
    ['EmbeddingWarning']
    """


class SharedRowsWarning(UserWarning):
    """Rows that must be apart are in both sets, so that what was proved no longer holds.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> line = LinearRegression().fit(X[:200], y[:200])
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = ConformalRegressor(line).calibrate(
    ...         X[100:], y[100:], X_train=X[:200], y_train=y[:200]
    ...     )
    >>> [each.category.__name__ for each in caught]
    ['SharedRowsWarning']
    """


class ShiftWarning(UserWarning):
    """Weights leave few calibration points, or make intervals infinite: the shift is large.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import ConformalRegressor, Split
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = ConformalRegressor(lambda rows: np.zeros(len(rows)), Split(), embed="inputs")
    >>> _ = model.calibrate(X, X[:, 0] % 0.1, weights=lambda rows: np.exp(30 * rows[:, 0]))
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.predict_interval(X[-20:])
    >>> [each.category.__name__ for each in caught]
    ['ShiftWarning']
    """


class RowOrderWarning(UserWarning):
    """Errors depend on the row number: rows to come may err otherwise than those before.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import ConformalRegressor
    >>> X = np.arange(500.0)[:, None]
    >>> y = X[:, 0] * np.tile([-1, 1], 250)
    >>> model = ConformalRegressor(lambda rows: np.zeros(len(rows)), embed="inputs")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.calibrate(X, y)
    >>> [each.category.__name__ for each in caught]
    ['RowOrderWarning']
    """


class QuantileCrossingWarning(UserWarning):
    """A predicted lower quantile lies above an upper one; they were put in order.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import ConformalRegressor, QuantileError, Split
    >>> def crossed(rows):
    ...     return np.tile([2.0, 1.0], (len(rows), 1))
    >>> model = ConformalRegressor(crossed, Split(), score_function=QuantileError())
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.calibrate(np.arange(40.0)[:, None], np.arange(40.0) % 7)
    >>> [each.category.__name__ for each in caught]
    ['QuantileCrossingWarning']
    """


class InEveryBootstrapWarning(UserWarning):
    """Some rows are in every bootstrap, so that no model can judge them.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InEveryBootstrapWarning)  # stop there
    """


class SparseBinsWarning(UserWarning):
    """Bins hold too few points for what is measured in them, or there are fewer than asked for.

    Examples
    --------
    >>> from calliper.metrics import coverage_by_width
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = coverage_by_width([0.0] * 6, ([-1.0] * 6, [1, 2, 3, 4, 5, 6]))
    >>> [each.category.__name__ for each in caught]
    ['SparseBinsWarning']
    """


class FailedTrialsWarning(UserWarning):
    """A method or a measure raised on some splits; ``Records.failures`` has the texts.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", FailedTrialsWarning)  # stop there
    """


class TornStoreWarning(UserWarning):
    """A line of the store cannot be read; its trial is computed again.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", TornStoreWarning)  # stop there
    """


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


#: Classes of what this thread has said already and does not say again, and who says the rest.
_SAID: ContextVar[tuple[set[type[Warning]], Callable[..., None]] | None] = ContextVar(
    "said", default=None
)


@contextmanager
def once(said: set[type[Warning]], tell: Callable[..., None] = warnings.warn) -> Iterator[None]:
    """Of each class that is not among those said only the first, in this thread; it is then.

    ``tell`` is called with it in place of :func:`warnings.warn`.
    """
    token = _SAID.set((said, tell))
    try:
        yield
    finally:
        _SAID.reset(token)


def warn(message: str, category: type[Warning]) -> None:
    """Warn with the line of the user's code that called into calliper, however deep this is."""
    said, tell = _SAID.get() or (None, warnings.warn)
    if issubclass(category, _UNHEARD.get()) or (said is not None and category in said):
        return
    if said is not None:
        said.add(category)
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame) in _PASSED_OVER:
        level, frame = level + 1, frame.f_back
    tell(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    """Top-level package of the code that a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
