"""Checks of what a user passes: each says what was expected, what came, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set, Sized
from functools import partial, wraps
from importlib import import_module
from inspect import signature
from numbers import Integral, Real
from typing import Any, Self, TypeVar

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, validate_data

from calliper._handlers import (
    ENGINE_NAMES,
    ENGINES,
    EngineRows,
    handler_of_collection,
    handler_of_tensor,
    in_memory,
)
from calliper._types import BoolArray, Coverage, FloatArray, Levels
from calliper.exceptions import (
    CalliperError,
    SmallCalibrationWarning,
    UnusedWarning,
    ZeroScaleWarning,
    warn,
)
from calliper.quantile import conformal_rank, required_calibration_size

Method = TypeVar("Method", bound=Callable[..., Any])

#: Beyond this, squared distances overflow.
LARGEST_FEATURE = 1e150
#: Beyond this, sums of scores may overflow.
LARGEST_SCORE = 1e302
#: Most levels that an error message lists.
N_LISTED = 9
#: What holds rows that cannot be counted or picked, by the name of its type, and what to pass.
NO_ROWS = {
    "DataLoader": "Convert it to an array or a frame first",
    "LazyFrame": "Call collect()",
    "DMatrix": "Pass the array or the frame that it was made of",
    "QuantileDMatrix": "Pass the array or the frame that it was made of",
}
#: The default level; its identity tells it from a 0.9 that the user passes.
USUAL_COVERAGE = float("0.9")
#: What other libraries call a share of misses.
MISSES = frozenset({"alpha", "significance", "significance_level"})
#: What they call a level, or such a share.
LEVEL_WORDS = MISSES | {"confidence_level", "level"}
#: These, and arguments of other methods of ours.
OUR_WORDS = LEVEL_WORDS | {"coverage", "confidence"}
#: What to write for other arguments of other libraries, and for ours where they do not belong.
INSTEAD = {
    **dict.fromkeys(("group", "bins", "mc"), "groups=…, in calibrate and in predict_interval"),
    **dict.fromkeys(("prefit", "X_cal"), "calibrate(X_cal, y_cal) of a fitted model"),
    **dict.fromkeys(("y_min", "y_max"), "predict_interval(X, bounds=(low, high))"),
    "split_groups": "fit(X, y, split_groups=…)",
    "sample_weight": "fit(X, y, sample_weight=…), which trains the model with it",
    "method": "{}(model, calibrator=…)",
}
IN_CONSTRUCTOR = ("refits", "shuffle", "learning_part", "error_model", "embed", "random_state")
INSTEAD |= {name: f"{{}}(model, {name}=…)" for name in IN_CONSTRUCTOR}


def engine_of(rows: Any, named: str | None) -> Any:
    """The engine that holds the rows, or that is named; None where NumPy computes."""
    return rows.engine if isinstance(rows, EngineRows) else check_engine(named)


def check_engine(named: Any) -> Any:
    """The engine of this name, if it is available; None for no name."""
    if named is None:
        return None
    kind, _, where = named.partition(":") if isinstance(named, str) else ("", "", "")
    if kind not in ENGINES:
        raise ValueError(f"engine must be {ENGINE_NAMES}; got {named!r}.")
    return import_module(ENGINES[kind]).engine(where)


def refuse_level_words(called: Any, known: Mapping[str, Any]) -> None:
    """Point to ``coverage=`` if a class or method gets a level by another name; to others too."""
    if not known.keys() & (OUR_WORDS | INSTEAD.keys()):
        return
    made: Any = called
    found = signature(made.__init__ if isinstance(called, type) else called).parameters
    if any(each.kind is each.VAR_KEYWORD for each in found.values()):
        return  # it passes on what it does not know
    for name in (known.keys() - found.keys()) & INSTEAD.keys():
        owner = called.__name__ if "calibrator" in found else "ConformalRegressor"
        use = INSTEAD[name].format(owner)
        raise TypeError(f"{called.__name__} has no argument {name!r}. Use {use}.")
    here = "coverage" in found
    for name in (known.keys() - found.keys()) & (LEVEL_WORDS if here else OUR_WORDS):
        level = known[name] if isinstance(known[name], Real) else None
        if name in MISSES and level is not None:
            level = 1 - float(level)
        call = called.__name__ if here else "predict_interval"
        raise TypeError(
            f"{called.__name__} has no argument {name!r}. Use {call}("
            f"{'X, ' if call == 'predict_interval' else ''}coverage={level or USUAL_COVERAGE:g})"
            f"{f': coverage is 1 - {name}' if name in MISSES else ''}."
        )


class MadeByCoverage:
    """What refuses a level under another name when it is made, with the right one."""

    def __new__(cls, *given: Any, **known: Any) -> Self:
        refuse_level_words(cls, known)
        return super().__new__(cls)


def says_coverage(method: Method) -> Method:
    """Decorate a method: a level under another name is refused, with the right one."""
    method.__qualname__ = method.__name__  # errors name what was called, not a base class

    @wraps(method)
    def ask(self: Any, *given: Any, **known: Any) -> Any:
        refuse_level_words(method, known)
        return method(self, *given, **known)

    return ask  # type: ignore[return-value]


def unchanged_if_refused(method: Method) -> Method:
    """Decorate a method of an estimator: if it fails, the estimator stays as it was."""
    ask = says_coverage(method)

    @wraps(method)
    def call(self: Any, *given: Any, **known: Any) -> Any:
        before = dict(vars(self))
        try:
            return ask(self, *given, **known)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return call  # type: ignore[return-value]


def refuse_lone_confidence(coverage: Any, confidence: Any) -> None:
    """Refuse a confidence without a level that it is about."""
    if confidence is not None and coverage is USUAL_COVERAGE:
        raise CalliperError(
            f"With confidence={confidence!r}, pass coverage= too. Coverage is the share of targets "
            "inside their intervals; confidence is the share of calibration sets that reach this "
            f"coverage. If {confidence!r} is the coverage that you want, pass only coverage=."
        )


def as_array(values: Any, name: str, beside: Any = None) -> Any:
    """A tensor as an array, if it is on the device of the rows; anything else as given."""
    handler = None if isinstance(values, np.ndarray) else handler_of_tensor(values)
    return values if handler is None else handler.to_array(values, name, beside)


def refuse_collection(what: Any, name: str) -> None:
    """Refuse a collection before anything fetches all its rows into this process."""
    handler = None if isinstance(what, np.ndarray) else handler_of_collection(what)
    if handler is not None:
        handler.refuse(what, name)


def refuse_sparse(X: Any, name: str) -> None:
    """Refuse sparse rows, which have no cheap exact neighbours, before something densifies them."""
    if sparse.issparse(X):
        raise TypeError(
            f"{name} is sparse ({type(X).__name__}), but distances need dense rows: pass a dense "
            "array, or embed it first (for example with TruncatedSVD)."
        )


def refuse_no_rows(X: Any, name: str) -> None:
    """Refuse what has no rows to count: None, a dict, a set, a text, a loader, a Polars query."""
    kind = type(X).__name__
    how = NO_ROWS.get(kind, "Convert it to an array or a frame first")
    bare = isinstance(X, Mapping | Set | str | bytes) and not shape_of(X)
    if np.ma.is_masked(X):
        bare, how = True, "Fill masked values, or drop their rows"
    elif isinstance(X, Mapping):
        how += "; inputs by name are for calibrate and predict, around a fitted network"
    if X is None or bare or kind in NO_ROWS:
        raise CalliperError(
            f"{name} must be an array, a frame or a list with one entry for each row; got a "
            f"{kind} ({X!r:.40}). {how}."
        )
    if isinstance(X, list | tuple) and not X:
        raise CalliperError(f"{name} has no rows: pass at least one.")


def refuse_no_table(Z: Any, name: str) -> None:
    """Refuse features that are no table of numbers: what has no rows, sparse rows, dictionaries."""
    refuse_no_rows(Z, name)
    refuse_sparse(Z, name)
    refuse_flat(Z, name)
    if has_dicts(Z):
        raise CalliperError(
            f"{name} must have columns; got a list of {type(Z[0]).__name__}s, one for each row. "
            f"Convert it first: pandas.DataFrame({name}), or an array."
        )


def refuse_flat(X: Any, name: str) -> None:
    """Refuse numbers one after another where each row must have columns."""
    flat = isinstance(X, list | tuple) and len(X) and all(isinstance(each, Real) for each in X)
    if flat or len(shape_of(X)) == 1:
        raise CalliperError(
            f"{name} must be a table with columns; got {type(X).__name__} of shape {np.shape(X)}. "
            f"Reshape your data: numpy.reshape({name}, (-1, 1)) for a single column, or "
            f"numpy.reshape({name}, (1, -1)) for a single row. From a DataFrame, take one row as "
            "df.iloc[[0]] or one column as df[[name]]."
        )


def has_dicts(X: Any) -> bool:
    """Whether it is a list of a dict for each row."""
    return isinstance(X, list) and len(X) > 0 and isinstance(X[0], Mapping)


def n_rows(X: Any) -> int:
    """Number of rows of an array, a frame, a sparse matrix, a tensor, or a list of anything."""
    if sparse.issparse(X):
        return int(X.shape[0])
    refuse_no_rows(X, "rows")
    try:
        return len(X) if isinstance(X, Sized) else len(np.asarray(X))
    except TypeError:
        raise CalliperError(f"expected rows; got {X!r:.80}, which has none.") from None


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of an array, a frame or a tensor; () of anything else."""
    return getattr(values, "shape", ())


def is_frame(X: Any) -> bool:
    """Whether it is a frame of pandas, or of a library like it."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def labels_of(values: Any) -> Any:
    """Labels of the rows, as a series or a frame of pandas has them; None of anything else."""
    index = getattr(values, "index", None)  # of a list it is a method
    if index is None or callable(index) or handler_of_collection(values) is not None:
        return None
    return index


def numbers_or_zeros(Z: Any) -> Any:
    """``Z`` if it holds numbers; else, for methods that only count rows, as many zeros, (n, 1)."""
    if sparse.issparse(Z):
        return Z
    try:
        values = np.asarray(Z)
        if values.dtype.kind == "O":
            values = values.astype(np.float64)
    except (TypeError, ValueError):
        return np.zeros((n_rows(Z), 1))
    return Z if values.dtype.kind in "biufc" else np.zeros((n_rows(Z), 1))


def counted(wrong: Any, values: Any, what: str) -> str:
    """How many of the values are wrong, and the first of them; ``wrong`` are their positions."""
    one = len(wrong) == 1
    number = f"{len(wrong)} of {len(values)} values {'is' if one else 'are'} {what}"
    return f"{number} ({'' if one else 'first: '}{values[wrong[0]]} at position {wrong[0]})"


def check_vector(values: Any, name: str, *, n: int | None = None) -> FloatArray:
    """One finite number a row, as float64 of shape (n,); a column (n, 1) is flattened."""
    refuse_sparse(values, name)
    try:
        vector = np.asarray(values if isinstance(values, np.ndarray) else in_memory(values))
        text = vector.dtype == object and any(isinstance(value, str) for value in vector.flat)
        if text or vector.dtype.kind == "U":
            raise TypeError("got text. Convert it first, for example with astype(float)")
        if vector.dtype.kind not in "biufO":
            what = "Complex data not supported" if vector.dtype.kind == "c" else "got values"
            raise TypeError(f"{what} of type {vector.dtype}")
        if np.ma.is_masked(values):
            raise TypeError("some values are masked; remove those rows")
        vector = np.array(vector, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise CalliperError(f"{name} must be numbers: {error}.") from error
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1 or n not in (None, len(vector)):
        got = f"{len(vector)} values for {n} rows" if vector.ndim == 1 else f"shape {vector.shape}"
        raise CalliperError(f"{name} must have one value for each row, shape (n,); got {got}.")
    wrong = np.flatnonzero(~np.isfinite(vector))
    if len(wrong):
        found = counted(wrong, vector, "NaN or infinite")
        raise CalliperError(f"{name} must be finite, but {found}. Remove or correct such rows.")
    return vector


def check_sizes(
    values: Any, name: str, *, n: int | None = None, beside: Any = None, any_sign: bool = False
) -> FloatArray:
    """One number for each row, not too large to be added up; not negative unless ``any_sign``."""
    vector = check_vector(as_array(values, name, beside), name, n=n)
    negative = np.flatnonzero(vector < 0)
    if len(negative) and not any_sign:
        raise CalliperError(
            f"{name} must not be negative, but "
            f"{counted(negative, vector, 'below 0')}. Pass absolute errors. (Split also accepts "
            "signed scores, and then gives a one-sided bound.)"
        )
    largest = np.abs(vector).max(initial=0.0)
    if largest > LARGEST_SCORE:
        raise CalliperError(
            f"{name} must be at most {LARGEST_SCORE:g} in size, so that their sums are finite; "
            f"got {largest:.3g}. Divide targets and predictions by a constant first."
        )
    return vector


def check_signs(signs: Any, scores: FloatArray, beside: Any = None) -> FloatArray:
    """−1, 0 or 1 for each score, 0 exactly where the score is."""
    vector = check_vector(as_array(signs, "signs", beside), "signs", n=len(scores))
    for i in np.flatnonzero((np.abs(vector) != (scores != 0)) | (scores < 0)):
        raise CalliperError(
            f"signs must be -1 or 1 where a score is positive and 0 where it is 0, as np.sign(y - "
            f"y_pred) is; at position {i} the sign is {vector[i]:g} and the score {scores[i]:g}."
        )
    return vector


def check_features(Z: Any, name: str = "Z") -> FloatArray:
    """Rows of numbers, (n, d), apart from any estimator."""
    if not _is_plain(Z):
        refuse_no_table(Z, name)
        Z = check_array(Z, dtype=np.float64, order="C", input_name=name)
    return np.asarray(_refuse_huge(Z, name))


def _is_plain(Z: Any) -> bool:
    """Whether ``check_array`` would change nothing; it is slow for a single row."""
    if type(Z) is not np.ndarray or Z.dtype != np.float64 or Z.ndim != 2 or 0 in Z.shape:
        return False
    return bool(Z.flags.c_contiguous and np.isfinite(Z).all())


def has_known_columns(estimator: Any, Z: Any) -> bool:
    """Whether it is an array with the column count of ``fit``, or a frame with its names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        return is_frame(Z) and [*Z.columns] == [*names]
    known = getattr(estimator, "n_features_in_", None)
    return type(Z) is np.ndarray and Z.ndim == 2 and Z.shape[1] == known


def _refuse_huge(features: Any, name: str) -> Any:
    """Refuse features whose squared distances would overflow."""
    held = isinstance(features, EngineRows)
    low, high = features.ends() if held else (features.min(initial=0.0), features.max(initial=0.0))
    if max(-low, high) > LARGEST_FEATURE:
        raise CalliperError(
            f"{name} holds values as large as {max(-low, high):.3g}; distances are finite only up "
            f"to {LARGEST_FEATURE:g}. Rescale that feature or leave it out."
        )
    return features


def check_calibration(
    estimator: Any, Z: Any, scores: Any, *, any_sign: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Features and scores of the calibration rows, copied; remembers columns on ``estimator``."""
    refuse_no_table(Z, "Z")
    if scores is None:
        raise CalliperError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: "
            f"pass the scores of the calibration rows, for example abs(y - y_pred)."
        )
    scores = as_array(scores, "scores", Z)
    check_consistent_length(Z, scores)
    vector = check_sizes(scores, "scores", any_sign=any_sign)
    if isinstance(Z, EngineRows):
        features, estimator.n_features_in_ = Z, Z.shape[1]
    else:
        features = validate_data(estimator, Z, dtype=np.float64, order="C", copy=True)
    return _refuse_huge(features, "Z"), vector


def check_new_features(estimator: Any, Z: Any) -> Any:
    """Features of new rows, with the columns of ``fit``."""
    if isinstance(Z, EngineRows):
        if Z.shape[1] != (known := estimator.n_features_in_):
            raise CalliperError(f"Z has {Z.shape[1]} columns, but had {known} in fit.")
    elif not (has_known_columns(estimator, Z) and _is_plain(Z)):
        refuse_no_table(Z, "Z")
        Z = validate_data(estimator, Z, dtype=np.float64, order="C", reset=False)
    return _refuse_huge(Z, "Z")


def check_new_rows(estimator: Any, X: Any) -> None:
    """Refuse new rows that do not have the columns that ``estimator`` remembers."""
    refuse_collection(X, "X")
    if has_known_columns(estimator, X):
        if not len(X):
            raise CalliperError("X has no rows: pass at least one.")
        return
    own = vars(estimator)
    if is_named(X):
        known = own.get("feature_names_in_", ())
        if {*X} == {*known}:
            return
        before = ", ".join(known) if len(known) else "which had no names"
        raise CalliperError(
            f"inputs must have the names that they had in calibration, {before}; got "
            f"{', '.join(sorted(X))}."
        )
    refuse_no_rows(X, "X")
    if own.get("n_features_in_") is not None:
        (refuse_no_table if has_dicts(X) else refuse_flat)(X, "X")
    validate_data(estimator, X, skip_check_array=True, reset=False)


def is_named(X: Any) -> bool:
    """Whether rows are inputs by name, as a network takes them."""
    return isinstance(X, Mapping) and not sparse.issparse(X) and len(shape_of(X)) > 0


def check_predictions(y_pred: Any, X: Any, n_outputs: int = 1) -> FloatArray:
    """Finite predictions of the rows of X: (n,), or (n, n_outputs) for more than one."""
    n, shape = n_rows(X), shape_of(y_pred)
    if n_outputs == 1 and len(shape) == 2 and shape[1] > 1:
        raise CalliperError(
            f"predictions must have one value for each row, shape (n,); got shape {shape}. For a "
            "model that predicts quantiles, pass score_function=DistributionError(probabilities); "
            "for two quantiles, QuantileError() together with Split() also works. For several "
            "targets, use MultiTargetRegressor."
        )
    if n_outputs == 1:
        return check_vector(y_pred, "predictions", n=n)
    y_pred = y_pred if np.ma.is_masked(y_pred) else np.asarray(y_pred)
    if y_pred.ndim != 2 or y_pred.shape[1] != n_outputs:
        raise CalliperError(
            f"the score function takes {n_outputs} predictions for each row, one for each target "
            f"or quantile, shape (n, {n_outputs}); the model returned shape {y_pred.shape}."
        )
    names = (f"column {column} of predictions" for column in range(n_outputs))
    return np.stack([*map(partial(check_vector, n=n), y_pred.T, names)], axis=1)


def check_levels(coverage: Coverage, name: str = "coverage") -> Levels:
    """Levels, strictly inside (0, 1) and increasing; ``name`` is how users know them."""
    try:
        levels = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
    except (OverflowError, TypeError, ValueError):
        got = f"{coverage!r:.80}".splitlines()[0]
        raise CalliperError(f"{name} must be a number such as 0.9; got {got}.") from None
    if levels.ndim != 1 or not len(levels):
        raise CalliperError(f"{name} must be one level or a list of levels; got {coverage!r}.")
    if not np.all((levels > 0) & (levels < 1)):
        percentage = np.all((levels >= 2) & (levels < 100))
        hint = " If it is a percentage, divide by 100." if percentage else ""
        came = f"{coverage!r}"
        if len(levels) > N_LISTED:
            came = f"{len(levels):,} values from {levels.min():g} to {levels.max():g}"
        raise CalliperError(f"{name} must lie strictly between 0 and 1; got {came}.{hint}")
    if not np.all(np.diff(levels) > 0):
        raise CalliperError(
            f"levels must be in ascending order, without repeats; got {coverage!r}."
        )
    return tuple(float(level) for level in levels)


def check_level(level: Any, name: str = "coverage") -> float:
    """One level, strictly inside (0, 1); ``name`` is how the caller's user knows it."""
    levels = check_levels(level, name)
    if np.ndim(level) != 0:
        raise CalliperError(f"{name} must be one level such as 0.9; got {level!r}: loop over them.")
    return levels[0]


def check_inside(inside: Any) -> BoolArray:
    """Whether each target lay in its interval, (m,), from one truth value or several."""
    values = np.atleast_1d(inside)
    if values.ndim != 1 or not len(values) or not np.isin(values, [0, 1]).all():
        got = f"{inside!r:.80}".splitlines()[0]
        must = "inside must be True or False for each row, such as intervals.contains(y)"
        raise CalliperError(f"{must}; got {got}.")
    return values.astype(bool)


def check_steps(step: Any) -> list[int]:
    """The steps that labels belong to."""
    values = np.atleast_1d(np.asarray(step))
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise CalliperError(f"step must be an integer, or one for each row; got {step!r:.80}.")
    if not -(2**62) < values.min() <= values.max() < 2**62:  # the next one fits an array, too
        raise CalliperError(f"steps must be smaller than 2**62; got {step!r:.80}.")
    return [int(value) for value in values]


def check_bounds(bounds: tuple[float | None, float | None], known: Any = ()) -> tuple[float, float]:
    """The range of y as two numbers, None for an open side; refused if ``known`` ones leave it."""
    try:
        y_min, y_max = bounds
        low = -np.inf if y_min is None else float(y_min)
        high = np.inf if y_max is None else float(y_max)
    except (OverflowError, TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise CalliperError(
            f"bounds must be a pair (y_min, y_max) with y_min < y_max, each a number or None; got "
            f"{bounds!r:.80}."
        )
    least, most = (np.min(known), np.max(known)) if np.size(known) else (low, high)
    if least < low or most > high:
        raise CalliperError(
            f"bounds=({low:g}, {high:g}) must contain every target, but calibration targets range "
            f"from {least:.6g} to {most:.6g}. Pass the range of possible y, or leave bounds out."
        )
    return low, high


def like_coverage(per_level: FloatArray, coverage: Coverage) -> FloatArray:
    """Drop the axis of levels if the level is a plain number."""
    return np.asarray(per_level[..., 0] if np.ndim(coverage) == 0 else per_level)


def each_level(value: Callable[[float], float], coverage: Coverage) -> float | FloatArray:
    """``value(level)`` as a number for one level, as an array for several."""
    values = [value(level) for level in check_levels(coverage)]
    return values[0] if np.ndim(coverage) == 0 else np.array(values)


def check_option(value: Any, options: Sequence[str], name: str) -> str:
    """A parameter that must be one of some texts."""
    if value not in options:
        listed = f"{', '.join(map(repr, options[:-1]))} or {options[-1]!r}"
        raise CalliperError(f"{name} must be {listed}; got {value!r}.")
    return str(value)


def at_least(value: Any, least: int, name: str) -> int:
    """An integer that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise CalliperError(f"{name} must be an integer of at least {least}; got {value!r}.")
    return int(value)


def warn_of_unused(estimator: Any, names: Sequence[str], why: str) -> None:
    """Warn of parameters that differ from their defaults, and change nothing."""
    usual = signature(type(estimator)).parameters
    given = {name: usual[name].default for name in names if name in usual}
    now = estimator.get_params(deep=False)
    changed = [name for name, value in given.items() if not np.array_equal(now[name], value)]
    if changed:
        verb, them = ("has", "it") if len(changed) == 1 else ("have", "them")
        text = f"{', '.join(changed)} {verb} no effect on {type(estimator).__name__}, since {why}"
        warn(f"{text}: leave {them} out.", UnusedWarning)


def check_parts(front: Any) -> tuple[int | None, int]:
    """``refits`` and ``gap`` of a regressor: folds, or None, and rows between parts."""
    folds, gap = front.refits, at_least(front.gap, 0, "gap")
    whole = isinstance(folds, Integral) and not isinstance(folds, bool)
    if folds is not None and not (whole and (folds == 0 or folds >= 2)):
        raise CalliperError(
            f"refits must be None, 0 (never refit) or an integer of at least 2; got {folds!r}."
        )
    if not (front.shuffle is None or isinstance(front.shuffle, bool | np.bool_)):
        raise CalliperError(f"shuffle must be True, False or None; got {front.shuffle!r}.")
    if gap and front.shuffle is not False:
        raise CalliperError(
            f"gap={gap} only applies to rows in chronological order: also pass shuffle=False (got "
            f"shuffle={front.shuffle!r})."
        )
    return folds, gap


def check_size(value: Any, name: str, least: int = 0, most: float = LARGEST_SCORE) -> float:
    """A number in a range, such as a constant to add to every scale."""
    if not isinstance(value, Real) or not least <= float(value) <= most:
        raise ValueError(f"{name} must be a number from {least} to {most:g}; got {value!r}.")
    return float(value)


def warn_if_too_few(n: int, levels: Sequence[float]) -> list[int]:
    """Numbers of the levels that n points can reach; one warning for all others."""
    reached = reachable(n, levels)
    for level in levels[len(reached) : len(reached) + 1]:  # they increase
        warn(
            f"{n} calibration rows cannot support coverage {level:g}, so intervals are infinite. "
            f"Use at least {required_calibration_size(level)} rows, or a coverage of at most "
            f"{np.floor(1e4 * n / (n + 1)) / 1e4:g}.",
            SmallCalibrationWarning,
        )
    return reached


def reachable(n: int, levels: Sequence[float]) -> list[int]:
    """Numbers of the levels whose rank is at most n."""
    return [number for number, level in enumerate(levels) if conformal_rank(level, n) <= n]


def warn_if_zero_scales(scale: FloatArray) -> None:
    """Warn of calibration rows whose local scale is zero, with their number."""
    n_zero = int(np.count_nonzero(scale <= 0))
    if n_zero:
        warn(
            f"The local scale (the size of errors nearby) is zero at {n_zero} of {len(scale)} "
            "calibration rows, so their rescaled scores are infinite. Intervals are valid but may "
            "become infinite. Use more neighbours, or pass offset > 0 (a small value in the units "
            "of y, chosen without looking at the calibration data).",
            ZeroScaleWarning,
        )
