"""Problems and methods of ``evaluate``, and the checks of its arguments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper._validation import at_least, check_features, check_vector
from calliper.exceptions import CalliperError
from calliper.lab.evaluation._records import ROW_FIELDS
from calliper.lab.metrics import MEASURES, Measure
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
    Z : (n, d) features of the held-out rows
    y, y_pred : (n,) targets and predictions
    Z_train, y_train, y_pred_train : arrays of n_train rows, optional
        Training rows of the model, for methods that learn from them (``MADSplit``).
    groups : (n,) labels, optional; for measures by group; splits ignore it
    X : (n, p), optional; inputs for measures that use them; by default Z
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
        if self.y_pred_train is not None and self.y_train is None:
            raise CalliperError("y_pred_train given without y_train: pass both.")
        held_out = self._checked("", "y", "y_pred", "groups", "X")
        trained = self._checked("_train", "y_train", "y_pred_train")
        self.__dict__.update(held_out, **trained, score_function=as_score(self.score_function))

    def _checked(self, suffix: str, *names: str) -> dict[str, Any]:
        """What is given for the held-out rows, or for the training rows, as arrays."""
        mine, of_models, known = f"Z{suffix}", f"outputs{suffix}", vars(self)
        given = {name: known[name] for name in names if known[name] is not None}
        outputs = dict(known[of_models])
        if known[mine] is None:
            if given or outputs:
                named = ", ".join([*given, *[of_models] * bool(outputs)])
                raise CalliperError(f"{named} given without {mine}: pass all of them.")
            return {}
        same_rows(known[mine], mine, **given, **outputs)
        Z = check_features(known[mine], mine)
        for name, values in given.items():
            check = _rows if name in ("groups", "X") else check_vector
            given[name] = check(values, name, n=len(Z))
        for name, values in outputs.items():
            outputs[name] = _numbers(values, f"{of_models}[{name!r}]", len(Z))
        return {mine: Z, of_models: outputs, **given}

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
            what = "a calibrator such as FullRescaled(), with fit, predict_radius and get_params"
            more = "(derive it from BaseEstimator, so that each split can have its own copy)"
            raise CalliperError(f"a method needs {what} {more}; got {self.calibrator!r}.")

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
        """What this method needs and a problem lacks, or None."""
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


def check_problems(problems: Any) -> list[Problem]:
    """The problems as a list, with different names."""
    found = [problems] if isinstance(problems, Problem) else list(problems)
    for problem in found:
        if not isinstance(problem, Problem):
            got = f"problems must be Problem objects; got {type(problem).__name__}"
            raise CalliperError(f'{got}. Write Problem("name", Z=..., y=..., y_pred=...).')
    _refuse_repeats([problem.name for problem in found], "problems")
    return found


def check_methods(calibrators: Any) -> dict[str, Method]:
    """The methods by name."""
    found = calibrators if isinstance(calibrators, Iterable) else [calibrators]
    given = found.values() if isinstance(found, Mapping) else found
    methods = [each if isinstance(each, Method) else Method(each) for each in given]
    named = isinstance(found, Mapping)
    names = [*map(str, found)] if named else [method.describe() for method in methods]
    _refuse_repeats(names, "calibrators")
    return dict(zip(names, methods, strict=True))


def check_measures(measures: Mapping[str, Any] | None) -> dict[str, Measure]:
    """The measures by name; by default those of calliper."""
    if measures is None:
        return dict(MEASURES)
    if not isinstance(measures, Mapping) or not measures:
        what = "measures must map names to functions of (y, intervals, context)"
        raise CalliperError(f"{what}; got {measures!r}.")
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
            both = f"it names {sorted(n_calibration)}, the problems are {sorted(names)}"
            raise CalliperError(f"n_calibration must name every problem and no other; {both}.")
        n_calibration = n_calibration[problem.name]
    rows, wanted = len(problem), 1 if n_test is None else at_least(n_test, 1, "n_test")
    if n_calibration is None:
        n_calibration = max(1, rows // 2)
    found = [*n_calibration] if isinstance(n_calibration, Iterable) else [n_calibration]
    _refuse_repeats(found, "n_calibration")
    for n in (at_least(n, 1, "n_calibration") for n in found):
        if n + wanted > rows:
            what = f"{problem.name!r} has {rows} held-out rows, too few for {n} to calibrate"
            tested = f"{'any' if n_test is None else n_test} to test"
            how = f"lower n_calibration to at most {max(0, rows - wanted)}, or hold out more rows"
            raise CalliperError(f"{what} and {tested}: {how}.")
        yield n, rows - n if n_test is None else wanted


def _refuse_repeats(names: list[Any], what: str) -> None:
    if not names:
        raise CalliperError(f"{what} must not be empty: there is nothing to evaluate.")
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise CalliperError(f"{what} must differ; {', '.join(repeated)} occurs more than once.")
