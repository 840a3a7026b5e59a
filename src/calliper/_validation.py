"""Every check of what a user passes: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set, Sized
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, validate_data

from calliper._handlers import EngineRows
from calliper._types import Coverage, FloatArray
from calliper.exceptions import CalliperError, SmallCalibrationWarning, ZeroScaleWarning, warn
from calliper.quantile import conformal_rank, required_calibration_size

#: Beyond this, squared distances overflow.
LARGEST_FEATURE = 1e150
#: Beyond this, sums of scores may overflow.
LARGEST_SCORE = 1e302


def refuse_sparse(X: Any, name: str) -> None:
    """Refuse sparse rows, which have no cheap exact neighbours, before something densifies them."""
    if sparse.issparse(X):
        raise TypeError(
            f"{name} is sparse ({type(X).__name__}), which calliper does not take: "
            f"pass a dense array, or embed it first (for example with TruncatedSVD)."
        )


def refuse_no_rows(X: Any, name: str) -> None:
    """Refuse what has a length but no rows: a dictionary, a set, a text."""
    if isinstance(X, Mapping | Set | str | bytes):
        raise CalliperError(
            f"{name} must be an array, a frame or a list with one entry for each row; got a "
            f"{type(X).__name__} ({X!r:.40}). Make an array or a frame of it first."
        )


def n_rows(X: Any) -> int:
    """Number of rows of an array, a frame, a sparse matrix, a tensor, or a list of anything."""
    if sparse.issparse(X):
        return int(X.shape[0])
    refuse_no_rows(X, "rows")
    try:
        return len(X) if isinstance(X, Sized) else len(np.asarray(X))
    except TypeError:
        raise CalliperError(f"rows were expected, and there are none in {X!r:.80}.") from None


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


def check_vector(values: Any, name: str, *, n: int | None = None) -> FloatArray:
    """One finite number a row, as float64 of shape (n,); a column (n, 1) is flattened."""
    refuse_sparse(values, name)
    try:
        vector = np.asarray(values)
        if np.iscomplexobj(vector):
            raise TypeError("Complex data not supported")
        if vector.dtype.kind not in "biufO":
            raise TypeError(f"got values of type {vector.dtype}")
        if np.ma.is_masked(values):
            raise TypeError("some values are masked; remove those rows")
        vector = np.array(vector, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise CalliperError(f"{name} must be numbers, one for each row: {error}.") from error
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise CalliperError(
            f"{name} must have one value for each row, shape (n,); got shape {vector.shape}."
        )
    if n is not None and len(vector) != n:
        raise CalliperError(f"{name} has {len(vector)} values for {n} rows.")
    wrong = np.flatnonzero(~np.isfinite(vector))
    if len(wrong):
        raise CalliperError(
            f"{name} must be finite: {len(wrong)} of {len(vector)} values are NaN or infinite, "
            f"the first ({vector[wrong[0]]}) at position {wrong[0]}. Remove or repair those rows."
        )
    return vector


def check_scores(scores: Any, name: str = "scores", *, n: int | None = None) -> FloatArray:
    """Finite and non-negative: what a local mean may be divided by."""
    vector = check_vector(scores, name, n=n)
    negative = np.flatnonzero(vector < 0)
    if len(negative):
        raise CalliperError(
            f"Negative values in {name}: rescaling needs non-negative scores, and {len(negative)} "
            f"of {len(vector)} are below 0, the first ({vector[negative[0]]}) at position "
            f"{negative[0]}. Pass absolute errors, or use Split, which takes any score."
        )
    return vector


def check_signs(signs: Any, scores: FloatArray) -> FloatArray:
    """−1, 0 or 1 for each score, 0 exactly where the score is."""
    vector = check_vector(signs, "signs", n=len(scores))
    for i in np.flatnonzero((np.abs(vector) != (scores != 0)) | (scores < 0)):
        raise CalliperError(
            f"signs must be -1 or 1 where a score is positive and 0 where it is 0, as np.sign(y - "
            f"y_pred) is; at position {i} the sign is {vector[i]:g} and the score {scores[i]:g}."
        )
    return vector


def check_features(Z: Any, name: str = "Z") -> FloatArray:
    """Rows in which nearness is judged, apart from any estimator."""
    if not _is_plain(Z):
        refuse_sparse(Z, name)
        Z = check_array(Z, dtype=np.float64, order="C", input_name=name)
    return np.asarray(_refuse_huge(Z, name))


def _is_plain(Z: Any) -> bool:
    """Whether ``check_array`` would change nothing; asking it takes long for a single row."""
    if type(Z) is not np.ndarray or Z.dtype != np.float64 or Z.ndim != 2 or 0 in Z.shape:
        return False
    return bool(Z.flags.c_contiguous and np.isfinite(Z).all())


def has_known_columns(estimator: Any, Z: Any) -> bool:
    """Whether it is an array of as many columns as in ``fit``, or a frame of the same names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        return hasattr(Z, "iloc") and hasattr(Z, "columns") and [*Z.columns] == [*names]
    known = getattr(estimator, "n_features_in_", None)
    return type(Z) is np.ndarray and Z.ndim == 2 and Z.shape[1] == known


def _refuse_huge(features: Any, name: str) -> Any:
    """Refuse features whose squared distances would overflow."""
    if isinstance(features, EngineRows):
        largest = max(abs(end) for end in features.ends())
    else:
        largest = max(features.max(initial=0.0), -features.min(initial=0.0))
    if largest > LARGEST_FEATURE:
        raise CalliperError(
            f"{name} holds values as large as {largest:.3g}; distances are numbers only up to "
            f"{LARGEST_FEATURE:g}. Rescale that feature or leave it out."
        )
    return features


def forget_fit(estimator: Any) -> None:
    """Remove what an earlier fit has left, so that one that fails leaves nothing fitted."""
    for name in [name for name in vars(estimator) if name.endswith("_") and name[0] != "_"]:
        delattr(estimator, name)


def check_calibration(
    estimator: Any, Z: Any, scores: Any, *, non_negative: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Features and scores of the calibration points, copied; remembers columns on ``estimator``."""
    refuse_sparse(Z, "Z")
    if scores is None:
        raise CalliperError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: "
            f"pass the scores of the calibration points, for example abs(y - y_pred)."
        )
    check_consistent_length(Z, scores)
    check = check_scores if non_negative else check_vector
    vector = check(scores, "scores")
    if isinstance(Z, EngineRows):
        features, estimator.n_features_in_ = Z, Z.shape[1]
    else:
        features = validate_data(estimator, Z, dtype=np.float64, order="C", copy=True)
    return _refuse_huge(features, "Z"), vector


def refuse_huge_scores(scores: FloatArray, name: str) -> None:
    """Refuse scores whose sums would overflow."""
    largest = max(scores.max(initial=0.0), -scores.min(initial=0.0))
    if largest > LARGEST_SCORE:
        raise CalliperError(
            f"{name} must be at most {LARGEST_SCORE:g} in size, so that sums of them are numbers; "
            f"got {largest:.3g}. Divide targets and predictions by a constant first."
        )


def check_training(rows: Any, Z: FloatArray, name: str = "Z_train") -> FloatArray | None:
    """Training features, if given: the same columns as the calibration features."""
    if rows is None:
        return None
    features = check_features(rows, name)
    if features.shape[1] != Z.shape[1]:
        raise CalliperError(f"{name} has {features.shape[1]} columns, Z has {Z.shape[1]}.")
    return features


def check_new_features(estimator: Any, Z: Any) -> Any:
    """Features of new rows: the same columns as in ``fit``."""
    if isinstance(Z, EngineRows):
        if Z.shape[1] != estimator.n_features_in_:
            known = estimator.n_features_in_
            raise CalliperError(f"Z has {Z.shape[1]} columns, and had {known} when it was fitted.")
    elif not (has_known_columns(estimator, Z) and _is_plain(Z)):
        refuse_sparse(Z, "Z")
        Z = validate_data(estimator, Z, dtype=np.float64, order="C", reset=False)
    return _refuse_huge(Z, "Z")


def check_levels(coverage: Coverage, name: str = "coverage") -> tuple[float, ...]:
    """The levels asked for, strictly inside (0, 1) and increasing; ``name`` as users know them."""
    try:
        levels = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
    except (OverflowError, TypeError, ValueError):
        raise CalliperError(f"{name} must be a number such as 0.9; got {coverage!r}.") from None
    if levels.ndim != 1 or not len(levels):
        raise CalliperError(f"{name} must be one level or a list of levels; got {coverage!r}.")
    if not np.all((levels > 0) & (levels < 1)):
        hint = " Percent? Divide by 100." if np.all((levels >= 2) & (levels < 100)) else ""
        raise CalliperError(f"{name} must lie strictly between 0 and 1; got {coverage!r}.{hint}")
    if not np.all(np.diff(levels) > 0):
        raise CalliperError(f"levels must increase without repeats; got {coverage!r}: sort them.")
    return tuple(float(level) for level in levels)


def check_level(level: Any, name: str = "coverage") -> float:
    """One level, strictly inside (0, 1); ``name`` is how the caller's user knows it."""
    levels = check_levels(level, name)
    if np.ndim(level) != 0:
        raise CalliperError(f"{name} must be one level such as 0.9; got {level!r}: loop over them.")
    return levels[0]


def check_bounds(bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    """The range of y as two numbers; None leaves a side open."""
    try:
        low, high = bounds
        low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    except (OverflowError, TypeError, ValueError):
        raise CalliperError(
            f"bounds must be a pair (y_min, y_max) of numbers or None; got {bounds!r:.80}."
        ) from None
    if not low < high:
        raise CalliperError(f"bounds must be (y_min, y_max) with y_min < y_max; got {bounds!r}.")
    return low, high


def like_coverage(per_level: FloatArray, coverage: Coverage) -> FloatArray:
    """Drop the axis of levels if one level was asked for as a plain number."""
    return np.asarray(per_level[..., 0] if np.ndim(coverage) == 0 else per_level)


def each_level(
    value: Callable[[float, int], float], coverage: Coverage, n: int
) -> float | FloatArray:
    """``value(level, n)`` as a number for one level, as an array for several."""
    values = [value(level, n) for level in check_levels(coverage)]
    return values[0] if np.ndim(coverage) == 0 else np.array(values)


def check_option(value: Any, options: Sequence[str], name: str) -> str:
    """One of the texts that a parameter may be."""
    if value not in options:
        listed = f"{', '.join(map(repr, options[:-1]))} or {options[-1]!r}"
        raise CalliperError(f"{name} must be {listed}; got {value!r}.")
    return str(value)


def check_window(window: Any) -> int:
    """How many of the latest rows are kept."""
    return at_least(window, 1, "window")


def at_least(value: Any, least: int, name: str) -> int:
    """An integer that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise CalliperError(f"{name} must be an integer of at least {least}; got {value!r}.")
    return int(value)


def check_offset(offset: float) -> float:
    """A constant that may be added to every scale."""
    if not isinstance(offset, Real) or not 0 <= float(offset) < np.inf:
        raise ValueError(f"offset must be a finite number >= 0; got {offset!r}.")
    return float(offset)


def warn_if_too_few(n: int, levels: tuple[float, ...]) -> None:
    """One warning for all levels that N points cannot reach."""
    unreachable = [level for level in levels if conformal_rank(level, n) > n]
    if unreachable:
        warn(
            f"{n} calibration points cannot support coverage {unreachable[0]:g}: the only valid "
            f"interval is infinite. At least {required_calibration_size(unreachable[0])} points "
            f"are required, or a level of at most {n / (n + 1):.4g}.",
            SmallCalibrationWarning,
        )


def warn_if_zero_scales(scale: FloatArray) -> None:
    """One warning that counts the calibration points whose local scale is zero."""
    warn_zero_scales(int(np.count_nonzero(scale <= 0)), len(scale))


def warn_zero_scales(n_zero: int, n: int) -> None:
    """The same where they were counted already."""
    if n_zero:
        warn(
            f"The local scale is zero at {n_zero} of {n} calibration points, so their "
            f"rescaled scores are infinite: valid, but intervals may become infinite. Many exact "
            f"predictions? Use more neighbours, or pass offset > 0 (a small error in the unit of "
            f"y, chosen without looking at the calibration data).",
            ZeroScaleWarning,
        )
