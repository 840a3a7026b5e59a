"""Problems and methods: held-out rows with their predictions, and calibrators to compare."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper._validation import check_features, check_vector
from calliper.exceptions import CalliperError
from calliper.rows import same_rows
from calliper.scores import Score, as_score


@dataclass(frozen=True, eq=False)
class Problem:
    """Held-out rows with the predictions of a model; splits are drawn from them.

    Parameters
    ----------
    name : str
        Name in the records; the splits depend on it.
    Z : array of shape (n, d)
        Features of the held-out rows.
    y, y_pred : arrays of shape (n,)
        Targets and predictions.
    Z_train, y_train, y_pred_train : arrays of n_train rows, optional
        Training rows of the model, for methods that learn from them (``MADSplit``).
    groups : array of shape (n,), optional
        A label for each row, for measures by group; splits ignore it.
    X : array of shape (n, p), optional
        Inputs for measures that use them; by default Z.
    score_function : score, default AbsoluteError()
        Definition of the error.
    outputs, outputs_train : mappings from a name to an array of n (n_train) rows, optional
        Other predictions of the same rows, such as two quantiles of shape (n, 2), for a
        :class:`Method` that names them.

    Examples
    --------
    >>> problem = Problem("line", Z=[[0.0], [1.0]], y=[0.1, 0.8], y_pred=[0.0, 1.0])
    >>> len(problem)
    2
    """

    name: str
    _: KW_ONLY
    Z: FloatArray
    y: FloatArray
    y_pred: FloatArray
    Z_train: FloatArray | None = None
    y_train: FloatArray | None = None
    y_pred_train: FloatArray | None = None
    groups: Any = None
    X: Any = None
    score_function: Score | None = None
    outputs: Mapping[str, FloatArray] = field(default_factory=dict)
    outputs_train: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise CalliperError(f"name must be a non-empty string; got {self.name!r}.")
        more = {"groups": self.groups, "X": self.X}
        checked = _checked("", self.Z, self.y, self.y_pred, self.outputs, **more)
        known: dict[str, Any] = {"y": self.y_train, "y_pred": self.y_pred_train}
        known["outputs"] = self.outputs_train or None
        if self.Z_train is not None:
            checked |= _checked("_train", self.Z_train, **known)
            if self.y_pred_train is not None and self.y_train is None:
                raise CalliperError("y_pred_train given without y_train: pass both.")
        elif given := [f"{name}_train" for name, value in known.items() if value is not None]:
            raise CalliperError(f"{', '.join(given)} given without Z_train: pass all of them.")
        for name, rows in (("groups", self.groups), ("X", self.X)):
            checked[name] = None if rows is None else _rows(rows, name, len(checked["Z"]))
        checked["score_function"] = as_score(self.score_function)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.Z)

    def __repr__(self) -> str:
        rows, columns = self.Z.shape
        return f"Problem({self.name!r}, {rows} held-out rows, {columns} features)"


def _checked(suffix: str, Z: Any, y: Any, y_pred: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    """Checked arrays of one set of rows, held-out or training, by field name."""
    known = {f"y{suffix}": y, f"y_pred{suffix}": y_pred}
    same_rows(Z, f"Z{suffix}", **known, **more, **(outputs or {}))
    features = check_features(Z, f"Z{suffix}")
    checked: dict[str, Any] = {f"Z{suffix}": features}
    for name, values in known.items():
        if values is not None:
            checked[name] = check_vector(values, name, n=len(features))
    checked[f"outputs{suffix}"] = {
        key: _numbers(values, f"outputs{suffix}[{key!r}]", len(features))
        for key, values in dict(outputs or {}).items()
    }
    return checked


@dataclass(frozen=True, eq=False)
class Method:
    """A calibrator with its own score or its own predictions.

    Parameters
    ----------
    calibrator : calibrator
    score_function : score, optional
        Replaces that of the problem.
    outputs : str, optional
        Name of predictions in ``Problem.outputs``; by default ``y_pred``. On a problem without
        them the method is skipped, which the records show.

    Examples
    --------
    >>> from calliper import QuantileError, Split
    >>> cqr = Method(Split(), score_function=QuantileError(), outputs="quantiles")
    """

    calibrator: Any
    _: KW_ONLY
    score_function: Score | None = None
    outputs: str | None = None

    def __post_init__(self) -> None:
        missing = {"fit", "predict_radius", "get_params"} - {*dir(self.calibrator)}
        if isinstance(self.calibrator, type) or missing:
            raise CalliperError(
                f"a method needs a calibrator such as FullRescaled(): an object with fit and "
                f"predict_radius, and with get_params (derive it from BaseEstimator), so that "
                f"each split has its own copy; got {self.calibrator!r}."
            )

    def describe(self) -> str:
        """The method as one would type it, on one line."""
        parts = [repr(self.calibrator)]
        if self.score_function is not None:
            parts.append(f"score_function={self.score_function!r}")
        if self.outputs is not None:
            parts.append(f"outputs={self.outputs!r}")
        text = parts[0] if len(parts) == 1 else f"Method({', '.join(parts)})"
        return " ".join(text.split())

    def predictions(self, problem: Problem) -> tuple[FloatArray, FloatArray | None]:
        """Its predictions of the held-out rows, and of the training rows if known."""
        if self.outputs is None:
            return problem.y_pred, problem.y_pred_train
        return problem.outputs[self.outputs], problem.outputs_train.get(self.outputs)

    def why_skipped(self, problem: Problem) -> str | None:
        """Why a problem lacks what this method needs, or None."""
        if self.outputs is None or self.outputs in problem.outputs:
            return None
        there = ", ".join(problem.outputs) or "none"
        return f"{problem.name!r} has no outputs named {self.outputs!r} (there: {there})"


def _rows(values: Any, name: str, n: int) -> Any:
    array = np.asarray(values)
    if array.ndim == 0 or len(array) != n:
        raise CalliperError(f"{name} must have {n} rows, as Z has; got shape {array.shape}.")
    return array


def _numbers(values: Any, name: str, n: int) -> FloatArray:
    """Finite predictions of one column or several."""
    array = _rows(values, name, n)
    if array.ndim == 1:
        return check_vector(array, name)
    columns = [check_vector(c, f"column {i} of {name}") for i, c in enumerate(array.T)]
    return np.stack(columns, axis=1)
