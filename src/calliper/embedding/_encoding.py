"""Any rows that a model takes, as numbers: columns of numbers, categories, text, dates, sparse.

Nearness and the model of left-out errors need finite numbers. What becomes of a column is learnt
from training rows and never from calibration or new rows, and a row has the same features in
whatever company it comes: the cell counts, and never the type that a batch happens to have.

| column of training rows | feature |
|---|---|
| numbers, booleans; decimals, text and objects if all are numbers | the number |
| dates, times (a naive one is UTC), periods | days since the training median |
| durations, times of day | days beyond the training median |
| categories with an order of their own (pandas' ``ordered``) | the position in that order |
| other categories, text, anything that can be hashed | the place of the level, see below |
| (almost) unique texts, lists, pictures | 0: it says nothing (``ignored``) |
| nothing but gaps | 0 |
| sparse, at most 512 columns and 2e7 cells, or 30 columns | as numbers |
| sparse and larger | 30 singular components of all such columns, after the other features |

*Gaps.* A number or a time that is missing, or that is none (text in a column of numbers), is at the
training median. Infinite numbers, and those beyond ±1e30, are at ±1e30.

*Levels* are put in order of their mean target, each drawn towards the mean ȳ of all N rows as if by
10 rows more; n and s are the number of rows of a level and the sum of their targets:

    key = (s + 10·ȳ) / (n + 10),      place = (rows of levels before it + n / 2) / N  in [0, 1].

The place is the mean rank of the level's rows over N (Bross' ridit, doi:10.2307/2527727): common
levels are apart even where their means are equal, rare ones take little room. With as many rows in
each they are whole numbers in another unit. Without targets the most frequent level comes first, or
the order of a polars Enum is taken. A gap is a level like another. Levels with fewer than 5 rows
would be ordered by their own noise: they are one level together, and levels never seen are put
there, too (at ȳ, if none is rare; last, without targets). Hence a column of ids or of free text is
constant. Levels are the same if Python says that they are equal: 1 is 1.0 but not "1". Codes of
categories mean nothing here, and neither does a batch's own list of categories.

A model that learns the target from its own order has seen the answer, the more so the rarer a level
is. ``learn_and_encode`` places each training row by an order that its own target had no part in;
with the left-out error as target this is what a model of the error should be given.

Frames go by the names of columns: another order does not matter, more columns are left alone, a
missing one is an error. Arrays, and frames with a name twice, go by position. An array of one
dimension is one column. Lists of texts, pictures or graphs have no columns and are refused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import KFold
from sklearn.utils.extmath import randomized_svd

from calliper._types import FloatArray, IntArray
from calliper._validation import check_vector
from calliper.exceptions import CalliperError

#: Inputs beyond are as good as infinite: trees compute in single precision, distances square.
LARGEST = 1e30
#: A level of fewer training rows is not told from those never seen.
FEWEST_ROWS = 5
#: Rows of the overall mean that the mean target of a level is drawn by.
SHRINKAGE = 10.0
#: Sparse columns beyond either are reduced.
MOST_COLUMNS, MOST_CELLS = 512, 2e7
#: Components that they are reduced to, and training rows that these are learnt from, at most.
N_COMPONENTS, MOST_ROWS = 30, 20_000
#: Components are kept whose singular value is larger than this part of the first: others are noise.
LEAST_COMPONENT = 1e-6

#: Rows of pandas that are faster taken as objects, all at once.
FEW_ROWS = 64
#: Parts of the training rows that are set apart in turn to place their own levels.
N_FOLDS = 5
EPOCH, MICROSECOND, MICROSECONDS_A_DAY = (
    datetime(1970, 1, 1),
    timedelta(microseconds=1),
    86_400_000_000,
)
NAT = -(2**63)  # as NumPy has it
#: Types of columns that are told by name, since neither pandas nor polars is imported.
CATEGORIES, WITHOUT_NUMPY = ("CategoricalDtype", "Categorical", "Enum"), ("Int128", "UInt128")
#: Types of cells; a datetime is a date, pandas' own are both.
DATES, DURATIONS = (date, np.datetime64), (timedelta, time, np.timedelta64)
NUMBERS = (int, float, Decimal, np.integer, np.floating, np.bool_, type(None))
CANNOT_COMPARE = (TypeError, ValueError, ArithmeticError)

#: One column of a batch: values of any type, (n,).
Values = NDArray[Any]


class Column(Protocol):
    """What becomes of one column."""

    kind: ClassVar[str]

    @property
    def gap(self) -> float:
        """The feature of a cell that has none of its own."""

    def read(self, values: Values) -> FloatArray:
        """The feature of each cell, NaN for ``gap``."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers as they are; the training median for gaps."""

    gap: float
    kind: ClassVar[str] = "numbers"

    @classmethod
    def learn(cls, values: Values) -> Numbers:
        """The median of what is known, 0 if there is none."""
        return cls(gap=_median(as_numbers(values)))

    def read(self, values: Values) -> FloatArray:
        """Numbers, NaN at gaps."""
        return as_numbers(values)


@dataclass(frozen=True, kw_only=True)
class Times:
    """Days since the training median, of dates or of durations (``letter`` "M" or "m")."""

    letter: str
    origin: int
    gap: float = 0.0
    kind: ClassVar[str] = "times"

    @classmethod
    def learn(cls, values: Values, letter: str) -> Times:
        """The median in microseconds."""
        times = as_times(values, letter)
        known = times[~np.isnat(times)].astype(np.int64)
        return cls(letter=letter, origin=int(np.median(known)) if len(known) else 0)

    def read(self, values: Values) -> FloatArray:
        """Days, NaN at gaps."""
        times = as_times(values, self.letter)
        days = (times.astype(np.int64) - self.origin) / MICROSECONDS_A_DAY
        return np.where(np.isnat(times), np.nan, days)


@dataclass(frozen=True, kw_only=True)
class Levels:
    """A place for each level; one for those that are rare or new."""

    places: dict[Hashable, float]
    gap: float
    by_target: bool = False
    kind: ClassVar[str] = "levels"

    @classmethod
    def learn(cls, cells: list[Hashable], y: FloatArray | None) -> Levels:
        """Places on [0, 1] by mean target, or by frequency: see the module's first lines."""
        levels, code = _numbered(cells)
        places, gap = _places(code, len(levels), y)
        known = {
            level: place for level, place in zip(levels, places.tolist(), strict=True) if place >= 0
        }
        return cls(places=known, gap=gap, by_target=y is not None)

    @classmethod
    def in_order(cls, cells: list[Hashable], order: Sequence[Hashable]) -> Levels:
        """Positions in a given order; the training median for gaps and what is not in it."""
        places = {level: float(place) for place, level in enumerate(order)}
        known = np.array([places.get(cell, np.nan) for cell in cells], dtype=np.float64)
        return cls(places=places, gap=_median(known))

    def read(self, values: Values) -> FloatArray:
        """Places, NaN for what has none."""
        return self.locate(levels_of(values))

    def locate(self, cells: list[Hashable]) -> FloatArray:
        """Places of cells that are levels already."""
        place = self.places.get
        return np.array([place(cell, np.nan) for cell in cells], dtype=np.float64)


@dataclass(frozen=True)
class Nothing:
    """A column that says nothing, and is not looked at."""

    gap: float = 0.0
    kind: ClassVar[str] = "nothing"

    def read(self, values: Values) -> FloatArray:
        """The same for every row."""
        return np.zeros(len(values))


def _median(numbers: FloatArray) -> float:
    """Of those that are no gap; 0 if there are none, or if it lies between −∞ and ∞."""
    known = numbers[~np.isnan(numbers)]
    with np.errstate(invalid="ignore", over="ignore"):
        median = float(np.median(known)) if len(known) else 0.0
    return 0.0 if np.isnan(median) else median


def _numbered(cells: list[Hashable]) -> tuple[list[Hashable], IntArray]:
    """Levels in the order of their texts, which decides ties, and the number of each cell's."""
    levels = sorted(dict.fromkeys(cells), key=str)
    numbers = {level: number for number, level in enumerate(levels)}
    return levels, np.array([numbers[cell] for cell in cells], dtype=np.intp)


def _places(code: IntArray, n_levels: int, y: FloatArray | None) -> tuple[FloatArray, float]:
    """The place of each level, −1 for those that are rare, and the place of all of these."""
    n = np.bincount(code, minlength=n_levels)
    common = np.flatnonzero(n >= FEWEST_ROWS)
    group = np.full(n_levels, len(common))
    group[common] = np.arange(len(common))
    size = np.bincount(group, n, minlength=len(common) + 1).astype(np.float64)
    keys = _frequency_keys(size) if y is None else _target_keys(group[code], size, y)
    order = np.argsort(keys, kind="stable")
    mean_rank = np.empty(len(size))
    mean_rank[order] = (np.cumsum(size[order]) - size[order] / 2) / max(len(code), 1)
    places = np.full(n_levels, -1.0)
    places[common] = mean_rank[:-1]
    return places, float(mean_rank[-1])


def _target_keys(group: IntArray, size: FloatArray, y: FloatArray) -> FloatArray:
    """Mean target of each group, shrunken: from ȳ, and in a unit that cannot overflow."""
    beyond = y / max(float(np.abs(y).max(initial=0.0)), 1e-300)
    beyond -= beyond.mean() if len(y) else 0.0
    return np.asarray(np.bincount(group, beyond, len(size)) / (size + SHRINKAGE))


def _frequency_keys(size: FloatArray) -> FloatArray:
    """The most frequent first, what is rare (the last of them) at the end."""
    return np.append(-size[:-1], np.inf)


def _left_out_places(cells: list[Hashable], y: FloatArray) -> FloatArray:
    """The place of each row's level, as learnt from the rows of other folds."""
    levels, code = _numbered(cells)
    found = np.zeros(len(y))
    if len(y) >= N_FOLDS:
        for others, fold in KFold(N_FOLDS, shuffle=True, random_state=0).split(found):
            places, gap = _places(code[others], len(levels), y[others])
            own = places[code[fold]]
            found[fold] = np.where(own < 0, gap, own)
    return found


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Many sparse columns as a few components of greatest variation."""

    columns: tuple[int, ...]
    components: FloatArray

    @classmethod
    def learn(cls, rows: sparse.csr_array, columns: Sequence[int]) -> Reduction:
        """Singular vectors (d, c) of training rows, evenly picked if there are many."""
        n = rows.shape[0]
        some = _finite(rows[np.arange(0, n, max(1, -(-n // MOST_ROWS)))])
        size = min(N_COMPONENTS, *some.shape)
        _, values, vectors = randomized_svd(some, n_components=size, random_state=0)
        kept = values > LEAST_COMPONENT * values.max(initial=0.0)
        return cls(columns=tuple(columns), components=np.ascontiguousarray(vectors[kept].T))

    def __call__(self, rows: sparse.csr_array) -> FloatArray:
        """Components of rows, (n, c)."""
        return np.asarray(_finite(rows) @ self.components, dtype=np.float64)


def _finite(rows: sparse.csr_array) -> sparse.csr_array:
    """Gaps as 0, which is what is not stored."""
    data = np.clip(np.where(np.isnan(rows.data), 0.0, rows.data), -LARGEST, LARGEST)
    return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


@dataclass(frozen=True, kw_only=True)
class ColumnEncoder:
    """From rows of any kind to finite features, as learnt from training rows.

    Attributes
    ----------
    columns : what becomes of each column; None for those that are reduced together
    names : the names of columns, by which frames go; None to go by position
    reduction : what becomes of sparse columns that are too many, if there are such

    Examples
    --------
    >>> import numpy as np
    >>> towns = np.array([["Bern", 1.0]] * 10 + [["Basel", 3.0]] * 30, dtype=object)
    >>> encode = ColumnEncoder.learn(towns, np.repeat([5.0, 2.0], [10, 30]))
    >>> encode
    ColumnEncoder(2 columns: 1 of levels, 1 of numbers)
    >>> encode([["Basel", 7], ["Bern", None], ["Thun", 2]])
    array([[0.375, 7.   ],
           [0.875, 3.   ],
           [0.75 , 2.   ]])
    """

    columns: tuple[Column | None, ...]
    names: tuple[Hashable, ...] | None = None
    reduction: Reduction | None = None

    @classmethod
    def of_numbers(cls, d: int) -> ColumnEncoder:
        """D columns of numbers, 0 at gaps: for who has no training rows."""
        return cls(columns=(Numbers(gap=0.0),) * d)

    @classmethod
    def learn(cls, X_train: Any, y_train: Any = None) -> ColumnEncoder:
        """Learn from training rows what becomes of each column.

        Parameters
        ----------
        X_train : array, frame, tensor, sparse matrix or list of rows
        y_train : (n,) what levels are ordered by, such as the target, or None
        """
        table = open_table(X_train)
        y = None if y_train is None else check_vector(y_train, "y_train", n=table.n)
        reduced = _reduced(table)
        if not reduced:
            table = table.dense()
        return cls(
            columns=tuple(
                None if place in reduced else _learn_column(table.column(place), y)
                for place in range(table.d)
            ),
            names=table.names,
            reduction=Reduction.learn(table.matrix_of(reduced), reduced) if reduced else None,
        )

    @classmethod
    def learn_and_encode(cls, X_train: Any, y_train: Any) -> tuple[ColumnEncoder, FloatArray]:
        """As ``learn``, and features of the training rows for a model of ``y_train``.

        They are those of the encoder but for levels, which are placed by the other rows' targets:
        rows are dealt to 5 folds, and each fold is placed by what the other four teach.
        """
        encoder, table = cls.learn(X_train, y_train), open_table(X_train)
        features, y = encoder(X_train), check_vector(y_train, "y_train", n=table.n)
        for feature, (place, column) in enumerate(encoder._kept):
            if isinstance(column, Levels) and column.by_target:
                levels = levels_of(values_of(table.column(place)))
                features[:, feature] = _left_out_places(levels, y)
        return encoder, features

    def __call__(self, X: Any) -> FloatArray:
        """Features (n, d) of rows."""
        table = open_table(X, quickly=True)
        places = table.places(self.names, len(self.columns))
        if self.reduction is None:
            return self._finished(self._read(table.dense(), places))
        components = self.reduction(table.matrix_of([places[i] for i in self.reduction.columns]))
        return np.hstack([self._finished(self._read(table, places)), components])

    @property
    def n_features(self) -> int:
        """Number of features that come out."""
        return len(self._gaps) + (
            0 if self.reduction is None else self.reduction.components.shape[1]
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each column is taken for."""
        return tuple("sparse" if column is None else column.kind for column in self.columns)

    @property
    def ignored(self) -> tuple[Hashable, ...]:
        """Names, or positions, of columns that say nothing: (almost) unique texts and the like."""
        names = self.names or range(len(self.columns))
        return tuple(
            name for name, kind in zip(names, self.kinds, strict=True) if kind == Nothing.kind
        )

    @cached_property
    def _kept(self) -> list[tuple[int, Column]]:
        """Columns that are not reduced, with their positions among training rows."""
        return [(i, column) for i, column in enumerate(self.columns) if column is not None]

    @cached_property
    def _gaps(self) -> FloatArray:
        return np.array([column.gap for _, column in self._kept])

    @cached_property
    def _all_numbers(self) -> bool:
        return all(isinstance(column, Numbers) for column in self.columns)

    def _read(self, table: Table, places: Sequence[int]) -> FloatArray:
        """Features with NaN at gaps, but without what is reduced."""
        if self._all_numbers and table.block is not None:
            block = table.block if isinstance(places, range) else table.block[:, places]
            return np.array(block, dtype=np.float64, order="C")
        features = np.empty((table.n, len(self._gaps)))
        for feature, (i, column) in enumerate(self._kept):
            if isinstance(column, Nothing):  # long texts need not be taken out of their frame
                features[:, feature] = column.gap
            else:
                features[:, feature] = column.read(values_of(table.column(places[i])))
        return features

    def _finished(self, features: FloatArray) -> FloatArray:
        """Gaps filled, nothing infinite; in place."""
        np.copyto(features, self._gaps, where=np.isnan(features))
        return np.clip(features, -LARGEST, LARGEST, out=features)

    def __repr__(self) -> str:
        counts = Counter(self.kinds)
        parts = ", ".join(f"{n} of {kind}" for kind, n in sorted(counts.items()))
        return f"ColumnEncoder({len(self.columns)} columns: {parts})"


def _learn_column(column: Any, y: FloatArray | None) -> Column:
    """What becomes of a column of training rows."""
    values = values_of(column)
    if type(column.dtype).__name__ in CATEGORIES:
        return _learn_category(column.dtype, levels_of(values), y)
    kind = _kind_of(values)
    if kind == "number":
        return Numbers.learn(values)
    if kind in ("M", "m"):
        return Times.learn(values, kind)
    return _learn_levels(levels_of(values), y)


def _learn_category(dtype: Any, levels: list[Hashable], y: FloatArray | None) -> Column:
    """An order that is meant is kept; that of an Enum may be, and is if nothing else is known."""
    if getattr(dtype, "ordered", False) or (y is None and type(dtype).__name__ == "Enum"):
        return Levels.in_order(levels, list(dtype.categories))
    return _learn_levels(levels, y)


def _learn_levels(levels: list[Hashable], y: FloatArray | None) -> Column:
    learnt = Levels.learn(levels, y)
    return learnt if learnt.places else Nothing()


def _kind_of(values: Values) -> str:
    """``"number"``, ``"M"`` for dates, ``"m"`` for durations, ``""`` for anything else."""
    if values.dtype.kind in "biuf":
        return "number"
    if values.dtype.kind in "mM":
        return values.dtype.kind
    if all(issubclass(each, NUMBERS) for each in set(map(type, values.tolist()))):
        return "number"
    cells = [cell for cell in cells_of(values) if cell is not None]
    types = set(map(type, cells))
    if types and all(issubclass(each, DATES) or hasattr(each, "start_time") for each in types):
        return "M"
    if types and all(issubclass(each, DURATIONS) for each in types):
        return "m"
    return "number" if _are_numbers(cells) else ""


def _are_numbers(cells: Sequence[Any]) -> bool:
    try:
        for cell in cells:
            _number(cell)
    except (TypeError, ValueError):
        return False
    return True


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # a whole number of many digits
        return math.inf if cell > 0 else -math.inf


def _number_or_nan(cell: Any) -> float:
    try:
        return _number(cell)
    except (TypeError, ValueError):
        return math.nan


def as_numbers(values: Values) -> FloatArray:
    """Cells as numbers, NaN where there is none."""
    if values.dtype.kind in "mMV":
        return np.full(len(values), np.nan)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # one by one: some are missing, or text
        return np.array([_number_or_nan(cell) for cell in values.tolist()], dtype=np.float64)


def as_times(values: Values, letter: str) -> Values:
    """Cells as dates in UTC (``letter`` "M") or durations ("m"), to the microsecond; else NaT."""
    dtype = f"{letter}8[us]"
    if values.dtype.kind == letter:
        return values.astype(dtype)
    if values.dtype.kind != "O":
        return np.full(len(values), "NaT", dtype=dtype)
    count = _moment if letter == "M" else _duration
    return np.array([count(cell) for cell in cells_of(values)], dtype=np.int64).view(dtype)


def _moment(cell: Any) -> int:
    """Microseconds since 1970 in UTC; ``NAT`` for what is no date, or not within reach."""
    cell = getattr(cell, "start_time", cell)  # of a period
    try:
        if isinstance(cell, datetime):
            if cell.tzinfo is not None:
                cell = cell.astimezone(UTC).replace(tzinfo=None)
            return int((cell - EPOCH) // MICROSECOND)
        if isinstance(cell, date):
            return (cell.toordinal() - EPOCH.toordinal()) * MICROSECONDS_A_DAY
        return int(cell.astype("M8[us]").astype(np.int64)) if hasattr(cell, "astype") else NAT
    except OverflowError:
        return NAT


def _duration(cell: Any) -> int:
    """Microseconds; ``NAT`` for what is no duration and no time of day."""
    if isinstance(cell, timedelta):
        count = cell // MICROSECOND
        return count if abs(count) < 2**63 else NAT
    if isinstance(cell, time):
        seconds = cell.hour * 3600 + cell.minute * 60 + cell.second
        return seconds * 1_000_000 + cell.microsecond
    return int(cell.astype("m8[us]").astype(np.int64)) if hasattr(cell, "astype") else NAT


def cells_of(values: Values) -> list[Any]:
    """Cells as Python's own objects, None for whatever stands for a gap."""
    if values.dtype.kind in "mM":  # finer ones would come as whole numbers
        values = values.astype(f"{values.dtype.kind}8[us]")
    cells = values.tolist()
    try:
        return [None if cell != cell else cell for cell in cells]
    except CANNOT_COMPARE:  # pandas' NA, or arrays
        return [None if _is_gap(cell) else cell for cell in cells]


def _is_gap(cell: Any) -> bool:
    if type(cell).__name__ == "NAType":
        return True
    try:
        return bool(cell != cell)
    except CANNOT_COMPARE:
        return False


def levels_of(values: Values) -> list[Hashable]:
    """Cells as keys; what cannot be hashed, such as a list, is unlike any other."""
    cells = cells_of(values)
    try:
        hash(tuple(cells))
    except TypeError:
        return [cell if _is_hashable(cell) else object() for cell in cells]
    return cells


def _is_hashable(cell: Any) -> bool:
    try:
        hash(cell)
    except TypeError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of any kind, open to be read column by column.

    Attributes
    ----------
    n, d : number of rows and columns
    column : from a position to an array (n,) or a Series
    names : of columns; None to go by position
    block : (n, d) all of it, if it came as an array of numbers
    matrix : (n, d) all of it, if it came as a sparse matrix
    """

    n: int
    d: int
    column: Callable[[int], Any]
    names: tuple[Hashable, ...] | None = None
    block: Values | None = None
    matrix: sparse.csr_array | None = None

    def places(self, names: tuple[Hashable, ...] | None, d: int) -> Sequence[int]:
        """Where the learnt columns are."""
        if names is None or self.names is None:
            if self.d != d:
                raise CalliperError(f"inputs have {self.d} columns; training rows have {d}.")
            return range(d)
        if names == self.names:
            return range(d)
        found = {name: place for place, name in enumerate(self.names)}
        missing = [name for name in names if name not in found]
        if missing:
            raise CalliperError(
                f"inputs lack {len(missing)} of {d} columns of the training rows, the first "
                f"being {missing[0]!r}; they have {', '.join(map(repr, self.names[:8]))}"
                f"{', …' if self.d > 8 else ''}."
            )
        return [found[name] for name in names]

    def dense(self) -> Table:
        """The same without anything sparse."""
        return self if self.matrix is None else _of_array(self.matrix.toarray())

    def matrix_of(self, places: Sequence[int]) -> sparse.csr_array:
        """Columns as a sparse matrix."""
        if self.matrix is not None:
            return self.matrix
        columns = [as_numbers(values_of(self.column(place))) for place in places]
        stored = [np.flatnonzero(column) for column in columns]
        data = [column[rows] for column, rows in zip(columns, stored, strict=True)]
        ends = np.cumsum([0, *map(len, stored)])
        shape = (self.n, len(columns))
        by_column = (np.concatenate(data), np.concatenate(stored), ends)
        return sparse.csc_array(by_column, shape=shape).tocsr()


def open_table(X: Any, *, quickly: bool = False) -> Table:
    """Rows by their columns; an error if they have none.

    A few rows of pandas are taken out ``quickly``, at the cost of what the types of columns say:
    cells are the same.
    """
    if sparse.issparse(X) and X.ndim == 2:
        matrix = sparse.csr_array(X, dtype=np.float64)
        return Table(n=X.shape[0], d=X.shape[1], column=_no_column, matrix=matrix)
    if hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        table = _of_frame(len(X), tuple(X.columns), lambda place: X.iloc[:, place])
        return _at_once(table, X) if quickly and table.n <= FEW_ROWS else table
    if hasattr(X, "get_columns"):  # polars
        return _of_frame(len(X), tuple(X.columns), X.get_columns().__getitem__)
    if hasattr(X, "to_frame") and hasattr(X, "dtype"):  # a Series of either
        return Table(n=len(X), d=1, column=lambda place: X)
    if hasattr(X, "to_pandas"):  # Arrow, and frames that follow pandas
        return open_table(X.to_pandas())
    return _of_array(_as_array(X))


def _no_column(place: int) -> Any:
    raise NotImplementedError("a sparse matrix is read as a whole")


def _of_frame(n: int, names: tuple[Hashable, ...], column: Callable[[int], Any]) -> Table:
    if not names:
        raise CalliperError("inputs have no columns.")
    unique = len(set(names)) == len(names)
    return Table(n=n, d=len(names), column=column, names=names if unique else None)


def _at_once(table: Table, X: Any) -> Table:
    """The same frame as one array: a Series for each column takes longer than all the rest."""
    try:
        return replace(_of_array(np.asarray(X)), names=table.names)
    except (TypeError, ValueError):  # columns that have no type in common
        return table


def _of_array(array: Values) -> Table:
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise CalliperError(f"inputs must have rows and columns; got shape {array.shape}.")
    return Table(
        n=array.shape[0],
        d=array.shape[1],
        column=lambda place: array[:, place],
        block=array if array.dtype.kind in "biuf" else None,
    )


def _as_array(X: Any) -> Values:
    if hasattr(X, "detach"):  # a tensor, which may be of a type that NumPy has not
        return np.asarray(X.detach().cpu().double().numpy())
    if hasattr(X, "__array__"):
        return np.asarray(X)
    if not isinstance(X, list | tuple):
        raise CalliperError(f"inputs must have rows and columns; a {type(X).__name__} has none.")
    try:
        array = np.array(X, dtype=object)
    except ValueError:  # rows of different shapes
        array = np.empty(0)
    if array.ndim < 2:
        kinds = sorted({type(row).__name__ for row in X[:100]})
        raise CalliperError(
            f"inputs must have rows and columns; got a list of {' and '.join(kinds) or 'nothing'}"
            f" without columns, or of different lengths."
        )
    return array


def values_of(column: Any) -> Values:
    """A column as an array (n,): of numbers, dates or durations if its type says so, of objects."""
    if isinstance(column, np.ndarray):
        return column
    return _pandas_values(column) if hasattr(column.dtype, "kind") else _polars_values(column)


def _pandas_values(column: Any) -> Values:
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return np.asarray(column)
    if dtype.kind in "biuf":  # with gaps, by Arrow, or sparse
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if dtype.kind in "mM":  # dates with a time zone become UTC
        try:
            return np.asarray(column.to_numpy(dtype=f"{dtype.kind}8[us]"))
        except (TypeError, ValueError):  # Arrow's days with gaps
            pass
    return np.asarray(column.astype(object).to_numpy())


def _polars_values(column: Any) -> Values:
    if column.dtype.is_nested() or type(column.dtype).__name__ in WITHOUT_NUMPY:
        return np.fromiter(column.to_list(), dtype=object, count=len(column))
    return np.asarray(column.to_numpy())


def _reduced(table: Table) -> Sequence[int]:
    """Sparse columns that are too many, or too long, to be filled up."""
    columns: Sequence[int] = range(table.d)
    if table.matrix is None:
        columns = [] if table.block is not None else [i for i in columns if _is_sparse(table, i)]
    few = len(columns) <= MOST_COLUMNS and table.n * len(columns) <= MOST_CELLS
    return [] if few or len(columns) <= N_COMPONENTS else columns


def _is_sparse(table: Table, place: int) -> bool:
    return type(table.column(place).dtype).__name__ == "SparseDtype"
