"""Problems, methods and trials of ``evaluate``, and the checks of its arguments.

A trial is one method on one split of one problem. The calibration and test rows depend only on
(random_state, name of the problem, N, number of the split), so adding a problem, a method or a
split changes no other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.exceptions import CalliperError
from calliper.lab.evaluation._records import ROW_FIELDS, Row
from calliper.metrics import MEASURES, Measure, at_least
from calliper.rows import same_rows
from calliper.scores import Score, as_score

#: N of every problem: one, several, or a mapping from names of problems; None is half the rows.
Sizes = int | Sequence[int] | Mapping[str, int | Sequence[int]] | None


@dataclass(frozen=True, eq=False)
class Problem:
    """Held-out rows with the predictions of a model; splits are drawn from them.

    Parameters
    ----------
    name : str; name in the records; the splits depend on it
    Z : array of shape (n, d); features of the held-out rows
    y, y_pred : arrays of shape (n,); targets and predictions
    Z_train, y_train, y_pred_train : arrays of n_train rows, optional
        Training rows of the model, for methods that learn from them (``MADSplit``).
    groups : array of shape (n,), optional
        A label for each row, for measures by group; splits ignore it.
    X : array of shape (n, p), optional; inputs for measures that use them; by default Z
    score_function : score, default AbsoluteError(); definition of the error
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
        checked: dict[str, Any] = {"score_function": as_score(self.score_function)}
        more: dict[str, Any] = {"groups": self.groups, "X": self.X}
        held_out: dict[str, Any] = {"y": self.y, "y_pred": self.y_pred, **more}
        trained: dict[str, Any] = {"y_train": self.y_train, "y_pred_train": self.y_pred_train}
        for suffix, Z, given_outputs, known in (
            ("", self.Z, self.outputs, held_out),
            ("_train", self.Z_train, self.outputs_train, trained),
        ):
            outputs = dict(given_outputs)
            if Z is None:
                known |= {f"outputs{suffix}": outputs or None}
                if given := [name for name, value in known.items() if value is not None]:
                    text = f"{', '.join(given)} given without Z{suffix}: pass all of them."
                    raise CalliperError(text)
                continue
            same_rows(Z, f"Z{suffix}", **known, **outputs)
            checked[f"Z{suffix}"] = features = check_features(Z, f"Z{suffix}")
            for name, values in known.items():
                if values is not None:
                    check = _rows if name in more else check_vector
                    checked[name] = check(values, name, n=len(features))
            checked[f"outputs{suffix}"] = {
                key: _numbers(values, f"outputs{suffix}[{key!r}]", len(features))
                for key, values in outputs.items()
            }
        if self.y_pred_train is not None and self.y_train is None:
            raise CalliperError("y_pred_train given without y_train: pass both.")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.Z)

    def __repr__(self) -> str:
        rows, columns = self.Z.shape
        return f"Problem({self.name!r}, {rows} held-out rows, {columns} features)"


@dataclass(frozen=True, eq=False)
class Method:
    """A calibrator with its own score or its own predictions.

    Parameters
    ----------
    calibrator : calibrator
    score_function : score, optional; replaces that of the problem
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
        own = {"score_function": self.score_function, "outputs": self.outputs}
        words = "".join(f", {name}={each!r}" for name, each in own.items() if each is not None)
        text = f"Method({self.calibrator!r}{words})" if words else repr(self.calibrator)
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


def _rows(values: Any, name: str, *, n: int) -> Any:
    """Values of any kind, one or several for each row."""
    array = np.asarray(values)
    if array.ndim == 0 or len(array) != n:
        raise CalliperError(f"{name} must have {n} rows, as Z has; got shape {array.shape}.")
    return array


def _numbers(values: Any, name: str, n: int) -> FloatArray:
    """Finite predictions of one column or several."""
    array = _rows(values, name, n=n)
    if array.ndim == 1:
        return check_vector(array, name)
    columns = [check_vector(c, f"column {i} of {name}") for i, c in enumerate(array.T)]
    return np.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Everything that the rows and the seed of a split depend on."""

    random_state: int
    problem: str
    n_calibration: int
    split: int

    def rows(self, n: int, n_test: int) -> tuple[IntArray, IntArray]:
        """Calibration rows, (N,), and test rows, (n_test,), none in both."""
        rows = np.random.default_rng(self._seeds()).permutation(n)
        return rows[: self.n_calibration], rows[self.n_calibration : self.n_calibration + n_test]

    @property
    def method_seed(self) -> int:
        """Seed for methods without one: the same for all methods, different for each split."""
        return int(self._seeds().spawn(1)[0].generate_state(1)[0] >> 1)

    def _seeds(self) -> np.random.SeedSequence:
        name = int.from_bytes(sha256(self.problem.encode()).digest()[:16], "big")
        return np.random.SeedSequence([self.random_state, name, self.n_calibration, self.split])


@dataclass(frozen=True, eq=False, kw_only=True)
class Trial:
    """One method on one split of one problem, at all levels; ``name`` is that of the method."""

    problem: Problem
    name: str
    method: Method
    draw: Draw
    n_test: int
    levels: tuple[float, ...]
    measures: Mapping[str, Measure]

    def rows(self, status: str, **more: Any) -> list[Row]:
        """A row for each level, with the fields that every row has."""
        known = {
            **dict.fromkeys(ROW_FIELDS),
            "problem": self.problem.name,
            "method": self.name,
            "n_calibration": self.draw.n_calibration,
            "n_test": self.n_test,
            "split": self.draw.split,
            "status": status,
            **dict.fromkeys(self.measures, float("nan")),
            **more,
        }
        return [{**known, "level": level, "warnings": []} for level in self.levels]


def check_problems(problems: Any) -> list[Problem]:
    """The problems as a list, with different names."""
    found = [problems] if isinstance(problems, Problem) else list(problems)
    if not found:
        raise CalliperError("problems must not be empty: nothing to evaluate on.")
    for problem in found:
        if not isinstance(problem, Problem):
            raise CalliperError(
                f"problems must be Problem objects; got {type(problem).__name__}. "
                f'Write Problem("name", Z=..., y=..., y_pred=...).'
            )
    _refuse_repeats([problem.name for problem in found], "problems")
    return found


def check_methods(calibrators: Any) -> dict[str, Method]:
    """The methods by name."""
    found = calibrators if isinstance(calibrators, Iterable) else [calibrators]
    by_name = isinstance(found, Mapping)
    given = found.values() if isinstance(found, Mapping) else found
    methods = [each if isinstance(each, Method) else Method(each) for each in given]
    if not methods:
        raise CalliperError("calibrators must not be empty: nothing to evaluate.")
    names = [*map(str, found)] if by_name else [method.describe() for method in methods]
    _refuse_repeats(names, "calibrators")
    return dict(zip(names, methods, strict=True))


def check_measures(measures: Mapping[str, Any] | None) -> dict[str, Measure]:
    """The measures by name; by default those of calliper."""
    if measures is None:
        return dict(MEASURES)
    if not isinstance(measures, Mapping) or not measures:
        raise CalliperError(
            f"measures must map names to functions of (y, intervals, context); got {measures!r}."
        )
    for name in measures:
        if name in ROW_FIELDS:
            raise CalliperError(f"{name} is a field of every row: rename the measure.")
    return {n: m if isinstance(m, Measure) else Measure(m) for n, m in measures.items()}


def sizes(
    n_calibration: Sizes, n_test: int | None, problem: Problem, names: list[str]
) -> Iterator[tuple[int, int]]:
    """Numbers of calibration and test rows of one problem; ``names`` are those of all problems."""
    if isinstance(n_calibration, Mapping):
        if n_calibration.keys() != set(names):
            raise CalliperError(
                f"n_calibration must name every problem and no other; it names "
                f"{sorted(n_calibration)}, the problems are {sorted(names)}."
            )
        n_calibration = n_calibration[problem.name]
    rows, wanted = len(problem), 1 if n_test is None else at_least(n_test, 1, "n_test")
    if n_calibration is None:
        n_calibration = max(1, rows // 2)
    found = [*n_calibration] if isinstance(n_calibration, Iterable) else [n_calibration]
    _refuse_repeats(found, "n_calibration")
    for n in (at_least(n, 1, "n_calibration") for n in found):
        if n + wanted > rows:
            raise CalliperError(
                f"{problem.name!r} has {rows} held-out rows, too few for {n} to calibrate and "
                f"{'any' if n_test is None else n_test} to test: lower n_calibration to at most "
                f"{max(0, rows - wanted)}, or hold out more rows."
            )
        yield n, rows - n if n_test is None else wanted


def _refuse_repeats(names: list[Any], what: str) -> None:
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise CalliperError(f"{what} must differ; {', '.join(repeated)} occurs more than once.")
