"""Rows: the forms in which they are passed, and what is known about each.

Calibration, training and left-out rows are all :class:`Rows`. Where values of the same rows come
with labels, as series and frames of pandas do, the labels must agree.

Groups and weights are values, one for each row; the name of a column of the frame that the rows are
in; or a function of the rows. A name or a function is remembered from calibration and applied to
new rows; values must be given again.

A trend of errors in the order of rows shows in rank correlations of the row number with the size
of the error and with the error itself. If rows are exchangeable, every order of them is equally
likely, and the correlation r of n ranks (ties share theirs) has mean 0 and variance 1/(n − 1),
whatever the errors are; r √(n − 1) is about normal. Each of the two is tested at half the level.

Least squares with a free constant (linear models, boosting with equal weights for all rows, trees)
makes errors on training rows add up to zero. On other rows their mean, in units of its standard
error, is within 10⁻⁵ of zero about once in 10⁵ cases. Rounded numbers may add up to zero by chance:
they are recognised by the smallest difference between two errors, so a hundred rows or so are
needed. Subsampling, other losses and penalties on leaves leave no such sign.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Annotated, Any, Self

import numpy as np
from scipy import sparse
from scipy.special import ndtr
from scipy.stats import rankdata
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import check_consistent_length, validate_data

from calliper import _validation as valid
from calliper._handlers import INPUTS, NETWORKS, as_tensor, handler_of, handler_of_tensor, in_memory
from calliper._kept import Keeps, Number, Plain
from calliper._types import AgeingWeights, FloatArray, Frame, IntArray
from calliper.exceptions import (
    CalliperError,
    RowLabelsWarning,
    RowOrderWarning,
    SharedRowsWarning,
    warn,
)

#: Rows that a model is recognised by.
N_PROBES = 5
#: Stands for values that were given at calibration and belong to its rows.
GIVEN = Ellipsis
#: Level of the test for a trend; a sum of zero: the mean error times √n, in units of the mean size.
TREND_LEVEL, ZERO_SUM = 1e-4, 1e-5
#: How names of time types begin, in pandas and Polars; fewer times may be in order by chance.
TIME_TYPES, FEWEST_TIMES = ("datetime64", "period", "Date"), 8
#: Names of types of columns that are kept; of others, pandas opens files, or Polars panics.
COLUMN_TYPES = re.compile(
    r"U?Int(8|16|32|64|128)|Float(16|32|64)|[Bb]oolean|String|string|str|Date|Categorical|Null"
    r"|Sparse\[(bool|u?int|float)\d*, [\w.-]+\]|\w+(\[\w+\])?\[pyarrow\]"
)


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of n rows; None where nothing is.

    >>> rows = Rows(np.zeros((3, 1)), scores=np.array([1.0, 2.0, 3.0]))
    >>> rows.latest(2).scores, len(rows.join(rows))
    (array([2., 3.]), 6)
    """

    Z: Any  # (n, d) features
    scores: Any = None  # (n,) errors, as a score measures them
    magnitudes: Any = None  # (n,) sizes of the errors that local scales are made of
    signs: Any = None  # (n,) signs of the errors
    weights: Any = None  # (n,) weights of a covariate shift
    groups: Any = None  # (n,) labels
    targets: Any = None  # (n,) targets

    @classmethod
    def of(cls, given: Any) -> Rows | None:
        """Rows unchanged, or made of (Z, scores), (Z, scores, targets) or features alone."""
        if given is None or isinstance(given, Rows):
            return given
        if not isinstance(given, tuple):
            return cls(given)
        if not 1 <= len(given) <= 3:
            raise CalliperError(
                f"rows must be (Z, scores) or (Z, scores, targets); got {len(given)} values."
            )
        Z, scores, targets = (*given, None, None)[:3]
        return cls(Z, scores=scores, targets=targets)

    @classmethod
    def given(cls, Z: Any, **known: Any) -> Self:
        """Rows of what a user passes; row labels must agree, and are dropped."""
        return cls(Z, **dict(zip(known, same_rows(Z, "Z", **known), strict=True)))

    def __len__(self) -> int:
        return valid.n_rows(self.Z) if self.scores is None else len(self.scores)

    def take(self, rows: Any) -> Rows:
        """Some of the rows, by their numbers."""
        return self._of_each(lambda values: _safe_indexing(values, rows))

    def latest(self, n: int) -> Rows:
        """The last n rows."""
        return self._of_each(lambda values: values[-n:])

    def _of_each(self, pick: Callable[[Any], Any]) -> Rows:
        known = (vars(self)[each.name] for each in fields(self))
        return Rows(*(None if values is None else pick(values) for values in known))

    def join(self, other: Rows) -> Rows:
        """These rows followed by others, of which the same is known."""
        joined: dict[str, Any] = {"Z": stacked(self.Z, other.Z)}
        for name in (each.name for each in fields(self)[1:]):
            before, added = vars(self)[name], vars(other)[name]
            if (before is None) != (added is None):
                one, two = ("extend", "fit") if before is None else ("fit", "extend")
                raise CalliperError(f"{name} passed to {one}, but not to {two}: pass them to both.")
            joined[name] = None if before is None else np.concatenate([before, added])
        return Rows(**joined)


def gathered(X: Any, y: Any = None, model: Any = None) -> tuple[Any, Any]:
    """Rows and targets; inputs by name (for networks also a list of dicts) or a loader as rows."""
    if sparse.issparse(X):
        return X.tocsr(), y
    handler = handler_of(model, NETWORKS) if valid.has_dicts(X) else handler_of(X, INPUTS)
    return (X, y) if handler is None else handler.gathered(X, y)


def first_rows(X: Any) -> Any:
    """A few rows as they came, to recognise a model by its predictions."""
    return _safe_indexing(indexable(X)[0], np.arange(min(N_PROBES, valid.n_rows(X))))


def refuse_lengths(X: Any, name: str, values: Any, other: str) -> None:
    """Refuse values that are not one for each row of X."""
    try:
        check_consistent_length(X, values)
    except ValueError as error:
        raise CalliperError(
            f"{other} must have one value for each row of {name}; got {valid.n_rows(X)} rows and "
            f"{valid.n_rows(values)} values."
        ) from error


def check_known_rows(estimator: Any, X: Any, y: Any) -> FloatArray:
    """Remember the columns of X on ``estimator``; return y as numbers."""
    valid.refuse_collection(X, "X")
    by_name = isinstance(X, Mapping) and valid.is_named(X)
    if not by_name:
        valid.refuse_no_rows(X, "X")
    if y is None:
        tensor = handler_of_tensor(X) is not None or not valid.shape_of(X)
        own = " Only a DataLoader of (inputs, targets) brings its own." if tensor else ""
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None.{own}"
        )
    validate_data(estimator, X, skip_check_array=True)
    if by_name:
        estimator.feature_names_in_ = np.array(sorted(X), dtype=object)
    n = valid.shape_of(y)[:1]
    parts = isinstance(X, list | tuple) and {valid.shape_of(each)[:1] for each in X} == {n}
    if parts and n and n != (len(X),):
        raise CalliperError(
            f"X is a {type(X).__name__} of {len(X)} inputs, each with one entry per row. For "
            "several inputs pass a dict, such as {'ids': ids, 'mask': mask}."
        )
    refuse_lengths(X, "X", y, "y")
    shape = y.shape if isinstance(y, np.ndarray) else valid.shape_of(y)
    if len(shape) == 2 and shape[1] == 1:
        said = "A column-vector y was passed when a 1d array was expected; it is flattened."
        warn(said, DataConversionWarning)
    if len(shape) == 2 and shape[1] > 1:
        raise CalliperError(
            f"y must have one value for each row, shape (n,); got shape {shape}. For several "
            "targets use MultiTargetRegressor(estimator): it returns an interval for each target."
        )
    return valid.check_vector(y, "y")


def row_values(given: Any, X: Any, name: str) -> Any:
    """One value for each row of ``X``, (n,), if any are given; ``name`` is known to the user."""
    if given is None:
        return None
    columns = list(getattr(X, "columns", ()))
    if isinstance(given, str):
        if given not in columns:
            has = f"its columns are {columns[:20]}" if columns else "its columns have no names"
            raise CalliperError(f"{name}={given!r} must name a column of X; {has}.")
        given = X[given]
    given = given(X) if callable(given) else given
    try:
        values = np.asarray(given)
        if values.dtype.kind in "US" and isinstance(given, list) and any(map(_is_missing, given)):
            values = np.array(given, dtype=object)  # as text, nothing would be missing
    except ValueError as error:
        raise CalliperError(f"{name} must have one value for each row: {error}.") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (valid.n_rows(X),):
        named = isinstance(given, list) and all(
            isinstance(each, str) and each in columns for each in given
        )
        how = " Pass one column name, or a function of X that combines several columns."
        raise CalliperError(
            f"{name} must have one value for each of the {valid.n_rows(X)} rows; got shape "
            f"{values.shape}.{how if named else ''}"
        )
    return values


@dataclass(frozen=True)
class RowSources(Keeps):
    """Where groups and weights of rows come from: values, a column name or a function; or None."""

    groups: Annotated[Any, Plain("groups")] = None
    weights: Annotated[Any, Plain("weights")] = None

    def check_kept(self) -> None:
        """Refuse values of rows, which no file holds."""
        if any(remembered(each) is not each for each in vars(self).values()):
            raise CalliperError("groups and weights must be stored as a name or a function.")

    def of_calibration(self, X: Any) -> Rows:
        """Groups and weights of the calibration rows."""
        groups, weights = self.groups, self.weights
        if isinstance(weights, AgeingWeights):
            weights = weights.of_age(valid.n_rows(X))
        groups, weights = row_values(groups, X, "groups"), row_values(weights, X, "weights")
        return Rows(None, groups=groups, weights=weights)

    def remembered(self) -> RowSources:
        """The same without values of calibration rows."""
        return RowSources(remembered(self.groups), remembered(self.weights))

    def of_new(self, X: Any, groups: Any = None, weights: Any = None) -> Rows:
        """Groups and weights of new rows: as given now, or as calibration was told."""
        values = {}
        for name, given in (("groups", groups), ("weights", weights)):
            before = vars(self)[name]
            if before is None and given is not None:
                raise CalliperError(
                    f"{name} were passed for new rows, but not for calibration: also pass {name}= "
                    "to calibrate()."
                )
            if before is GIVEN and given is None:
                raise CalliperError(
                    f"{name} were passed to calibrate() as values: also pass {name}= for the new "
                    "rows (only a column name or a function is remembered)."
                )
            values[name] = row_values(before if given is None else given, X, name)
        return Rows(None, **values)


def remembered(given: Any) -> Any:
    """What calibration keeps of groups or weights: a name or a function, never values."""
    return given if given is None or isinstance(given, str) or callable(given) else GIVEN


def stacked(first: Any, second: Any) -> Any:
    """The rows of both, as a frame if they are frames."""
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second], ignore_index=True)
    if hasattr(first, "vstack"):  # a frame of polars, or rows on a device
        return first.vstack(second)
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")
    try:
        return np.concatenate([np.asarray(first), np.asarray(second)])
    except (TypeError, ValueError) as error:
        raise CalliperError(
            f"rows with other columns or types cannot be added: {error}."
        ) from error


def rows_of_groups(labels: Any, name: str = "groups") -> dict[Any, IntArray]:
    """The numbers of each group's rows, in order of appearance; missing labels are refused."""
    rows: list[Any] = np.asarray(labels).tolist()
    found: dict[Any, list[int]] = defaultdict(list)
    try:
        for row, label in enumerate(rows):
            found[label].append(row)
    except TypeError as error:
        raise CalliperError(f"{name} must be labels such as strings or numbers: {error}.") from None
    missing = sorted(row for label, own in found.items() if _is_missing(label) for row in own)
    if missing:
        raise CalliperError(
            f"{name} must have a label in every row: {valid.counted(missing, rows, 'missing')}. "
            f"Fill missing labels, for example with 'unknown'."
        )
    return {label: np.array(numbers, dtype=np.intp) for label, numbers in found.items()}


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # a missing value of pandas does not say whether it equals itself
        return True


def same_rows(rows: Any, name: str, /, **values: Any) -> tuple[Any, ...]:
    """Values of the same rows, series as arrays; refused if labels say that the rows differ.

    Where two of them have labels, these must be the same in the same order. A plain ``RangeIndex``
    only counts rows, since scaled frames lose their labels: rows are then matched by position, with
    one warning if the other's labels are the same numbers in another order.
    """
    given = {name: rows, **values}.items()
    for each, of in given:
        if isinstance(of, type):
            raise TypeError(f"{each} is the class {of.__name__}: pass an instance of it.")
    found = {each: valid.labels_of(of) for each, of in given if of is not None}
    labels = {each: known for each, known in found.items() if known is not None}
    moved = [pair for pair in combinations(labels, 2) if _is_moved(*pair, labels)]
    if moved:
        counted, other = moved[0]
        warn(
            f"{other} is matched with {counted} by position: one of them has only row numbers as "
            "labels, and the other has these numbers in another order. If the rows already "
            f"correspond, pass {other}.to_numpy(); if the labels are right, pass "
            f"{other}.loc[{counted}.index].",
            RowLabelsWarning,
        )
    return tuple(
        np.asarray(of) if each in labels and not isinstance(of, Frame) else of
        for each, of in values.items()
    )


def _is_moved(first: str, second: str, known: dict[str, Any]) -> bool:
    """Whether one has the other's row numbers in another order; labels that differ are refused."""
    labels, others = known[first], known[second]
    held = all(hasattr(each, "equals") for each in (labels, others))
    if len(labels) != len(others) or not len(labels) or (held and labels.equals(others)):
        return False  # another number of rows is refused elsewhere
    if _only_counts(labels) or _only_counts(others):
        one, two = np.asarray(labels), np.asarray(others)
        whole = one.dtype.kind in "iu" and two.dtype.kind in "iu" and not np.array_equal(one, two)
        return whole and np.array_equal(np.sort(one), np.sort(two))
    # Moments in two time zones are equal one by one; JSON has dates as text.
    listed = ([*each] if held else [*map(str, each)] for each in (labels, others))
    _refuse_unequal(first, second, *listed)
    return False


def _only_counts(labels: Any) -> bool:
    """Whether labels are a plain ``RangeIndex``, or the list that it becomes in JSON."""
    n = len(labels)
    if not hasattr(labels, "equals"):
        return [*labels] == [*range(n)]
    return type(labels).__name__ == "RangeIndex" and labels[0] == 0 and labels[n - 1] == n - 1


def _refuse_unequal(name: str, other: str, labels: list[Any], others: list[Any]) -> None:
    """If labels differ, say how, and what to do about it."""
    if labels == others:
        return
    moved = Counter(labels) == Counter(others)
    how = "have the same row labels in different orders" if moved else "have different row labels"
    at = next(row for row, label in enumerate(labels) if label != others[row])
    by_label = "Labels are not unique: pass"
    if len({*labels}) == len(labels):
        by_label = (
            f"Pass {other}.loc[{name}.index], or"
            if moved
            else f"Align {other} with {name}, or pass"
        )
    raise CalliperError(
        f"{name} and {other} {how}: the label at position {at} is {labels[at]!r:.40} in {name} and "
        f"{others[at]!r:.40} in {other}. {by_label} {other}.to_numpy() if the rows already "
        "correspond."
    )


@dataclass(frozen=True, kw_only=True)
class RowTrend(Keeps):
    """Errors that depend on the row number."""

    of_size: Annotated[bool, Number(bool)]  # whether their size does, or the signed error
    correlation: Annotated[float, Number()]  # rank correlation with the row number
    p_value: Annotated[float, Number()]
    first: Annotated[float, Number()]  # mean size, or mean error, in the first quarter of the rows
    last: Annotated[float, Number()]  # and in the last

    def describe(self, *, in_time: bool = False) -> str:
        """What was found, and what to do; ``in_time`` if the latest rows calibrate already."""
        what = "size of the error" if self.of_size else "error"
        remedy = "train on the older rows and calibrate on the latest ones"
        remedy += " (shuffle=False where calliper splits)"
        if in_time:
            remedy = "calibrate on fewer rows, the latest, or let the level adapt (calliper.online)"
        return (
            f"The {what} depends on the row number among the calibration rows: its mean is "
            f"{self.first:.3g} in the first quarter and {self.last:.3g} in the last (rank "
            f"correlation {self.correlation:.2f}, p = {self.p_value:.1g}). If rows are in order "
            "of time, errors may change again on later rows, and coverage may be lower than "
            f"promised: {remedy}. If they are sorted by something else, nothing is wrong."
        )


def find_trend(errors: Any, order: Any = None) -> RowTrend | None:
    """How errors y − ŷ depend on row numbers, by default 0, 1, …; None if chance explains it."""
    errors = np.asarray(errors, dtype=np.float64)
    if order is not None:
        errors = errors[np.argsort(order, kind="stable")]
    found = [_trend(np.abs(errors), of_size=True), _trend(errors, of_size=False)]
    clearest = min(found, key=lambda trend: trend.p_value)
    return clearest if clearest.p_value < TREND_LEVEL else None


def _trend(values: FloatArray, *, of_size: bool) -> RowTrend:
    n, quarter = len(values), max(len(values) // 4, 1)
    rows, ranks = np.arange(n) - (n - 1) / 2, rankdata(values) - (n + 1) / 2
    spread = np.sqrt((rows @ rows) * (ranks @ ranks))
    correlation = float(rows @ ranks / spread) if spread > 0 else 0.0
    return RowTrend(
        of_size=of_size,
        correlation=correlation,
        p_value=min(1.0, float(4 * ndtr(-abs(correlation) * np.sqrt(max(n - 1, 0))))),
        first=float(values[:quarter].mean()),
        last=float(values[-quarter:].mean()),
    )


def warn_of_errors(
    errors: FloatArray, order: Any, everything: FloatArray | None, *, in_time: bool = False
) -> RowTrend | None:
    """The trend of errors, if any; warns of it, and if they, or those of all rows, sum to zero."""
    _warn_of_zero_sum(errors if everything is None else everything)
    trend = find_trend(errors, order)
    if trend is not None:
        warn(trend.describe(in_time=in_time), RowOrderWarning)
    return trend


def _warn_of_zero_sum(errors: FloatArray) -> None:
    """Warn if errors of calibration rows add up to zero, as they do on training rows."""
    n, size = len(errors), float(np.abs(errors).mean())
    if size == 0 or abs(errors.mean()) * np.sqrt(n) > ZERO_SUM * size:
        return
    ordered = np.sort(errors / size)
    if np.allclose(ordered, -ordered[::-1], rtol=0, atol=1e-9):
        return  # symmetric by construction, as of a sine on a grid
    steps = np.diff(np.unique(ordered.round(5)))
    if len(steps) and steps.min() <= 3 * ZERO_SUM * np.sqrt(n):
        warn(
            f"The errors of all {n:,} calibration rows add up to zero. This is typical of rows "
            "that a least-squares model was trained on, and very unlikely otherwise. If the model "
            "was trained on these rows, its errors here are smaller than on new rows and there is "
            "no guarantee: calibrate on rows that were not used for training.",
            SharedRowsWarning,
        )


def warn_of_times(X: Any, y: Any, what: str, remedy: str = "") -> None:
    """Warn of rows in order of time that ``what`` splits at random, or needs in order and has not.

    Without a ``remedy``, it needs the order.
    """
    found = _times(X) or _times(y)
    orders = {*found.values()}
    where, order = next((each for each in found.items() if each[1] != "no"), ("", "no"))
    if remedy and order != "no":
        sort = " (sort rows by time first)" if order == "descending" else ""
        warn(
            f"{what} rows at random, but {where} holds times in {order} order{sort}. If new rows "
            f"are later than these, coverage may be lower than promised: {remedy}, or shuffle=True "
            "if the order does not matter.",
            RowOrderWarning,
        )
    elif not remedy and orders and "ascending" not in orders:
        warn(
            f"{what} assumes that the last rows are the latest, but "
            f"{where or next(iter(found))} holds times in {order} order: sort rows by time first.",
            RowOrderWarning,
        )


def _times(table: Any) -> dict[str, str]:
    """Where a frame or a series holds times, and in which order."""
    if not hasattr(table, "dtypes"):
        return {}
    pandas = hasattr(table, "iloc")
    found = {"the index": table.index} if pandas else {}
    for number, name in enumerate(table.columns if isinstance(table, Frame) else ()):
        found[f"column {name!r}"] = table.iloc[:, number] if pandas else table[name]
    orders = {}
    for where, values in found.items():
        times: Any = values.to_numpy() if str(values.dtype).startswith(TIME_TYPES) else ()
        times = times[times == times] if len(times) else times  # without missing ones
        if len(times) >= FEWEST_TIMES and times[0] != times[-1]:
            rises, falls = (times[1:] >= times[:-1]).all(), (times[1:] <= times[:-1]).all()
            orders[where] = "ascending" if rises else "descending" if falls else "no"
    return orders


def state_of(X: Any) -> dict[str, Any] | None:
    """The first rows as plain values; None for kinds that cannot be restored."""
    rows: Any = first_rows(X)
    if isinstance(rows, np.ndarray | list):
        return {"kind": "rows", "rows": rows}
    if handler_of_tensor(rows) is not None:
        return {"kind": "tensor", "rows": in_memory(rows)}
    kind = "pandas" if valid.is_frame(rows) else "polars"
    try:
        frame = rows.reset_index(drop=True) if kind == "pandas" else rows
        columns = [each for _, each in frame.items()] if kind == "pandas" else frame.get_columns()
        kept = [_state_of_column(column) for column in columns]
        state = {"kind": kind, "names": list(frame.columns), "columns": kept}
        return state if frame.equals(rows_again(state)) else None
    except Exception:  # no frame, or a type that its name does not restore
        return None


def _state_of_column(column: Any) -> dict[str, Any]:
    """Plain cells, None for gaps, and the name of their type; categories by their numbers."""
    kind, cells = column.dtype, column
    if isinstance(kind, np.dtype):
        return {"cells": column.to_numpy(), "type": None}
    if type(kind).__name__ == "CategoricalDtype":
        known = {"categories": list(kind.categories), "ordered": bool(kind.ordered)}
        return {"cells": np.asarray(column.cat.codes), **known}
    if hasattr(column, "notna"):
        cells = column.astype(object).where(column.notna(), None)
    return {"cells": [*cells], "type": str(kind).partition("(")[0]}


def rows_again(state: dict[str, Any]) -> Any:
    """The rows of :func:`state_of`."""
    if state["kind"] == "tensor":
        return as_tensor(state["rows"])
    for kind in (each.get("type") for each in state.get("columns", ())):
        if kind is not None and not COLUMN_TYPES.fullmatch(kind):
            raise CalliperError(f"a column has type {kind!r:.40}.")
    if state["kind"] == "pandas":
        import pandas as pd

        series = []
        for each in state["columns"]:
            cells = each["cells"]
            if "categories" in each:
                cells = pd.Categorical.from_codes(cells, each["categories"], each["ordered"])
            series.append(pd.Series(cells, dtype=each.get("type")))
        return pd.concat(series, axis=1).set_axis(state["names"], axis=1)
    if state["kind"] == "polars":
        import polars as pl

        parts = zip(state["names"], state["columns"], strict=True)
        return pl.DataFrame(
            [pl.Series(name, each["cells"], getattr(pl, each["type"])) for name, each in parts]
        )
    return state["rows"]
