"""Any rows that a model takes, as numbers: columns of numbers, categories, text, dates, sparse.

Nearness and the model of out-of-fold errors need finite numbers. What becomes of a column is learnt
from training rows, never from calibration or new rows. A row has the same features whatever rows
come with it: the cell counts, not the type that a batch happens to have.

| column of training rows | feature |
|---|---|
| numbers, booleans; text and objects if all are numbers | the number |
| dates (a naive one is UTC), durations | days since the training median |
| categories with an order of their own (pandas' ``ordered``) | the position in that order |
| other categories, text, anything else | the place of the level, see below |
| a sparse matrix of more than 512 columns or 2e7 cells | 30 singular components |

*Gaps.* A number or time that is missing or unreadable (text in a column of numbers) is at the
training median. Infinite numbers, and those beyond ±1e30, are at ±1e30.

*Levels* are put in order of their mean target, each shrunk towards the mean ȳ of all N rows as if
by 10 more rows; n and s are the number of rows of a level and the sum of their targets:

    key = (s + 10·ȳ) / (n + 10),      place = (rows of levels before it + n / 2) / N  in [0, 1].

The place is the mean rank of the level's rows over N (Bross' ridit, doi:10.2307/2527727): common
levels are apart even where their means are equal, rare ones take little room. Without targets the
most frequent level comes first. A gap is a level like another. Levels with fewer than 5 rows would
be ordered by their own noise: they form one level together with levels never seen. Hence a column
of ids or of free text is constant.

A model of the target that is given this order has seen the answer, the more so the rarer a level
is. ``learn_and_encode`` places each training row by an order that its own target had no part in;
this is what a model of the error is given, with the out-of-fold error as target.

Frames go by the names of columns, arrays by position. Lists of texts, pictures or graphs have no
columns and are refused.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import KFold
from sklearn.utils.extmath import randomized_svd

from calliper._handlers import in_memory
from calliper._kept import Array, Keeps, Number, Plain
from calliper._types import FloatArray, IntArray
from calliper._validation import is_frame
from calliper.exceptions import CalliperError
from calliper.models import comes_from, without_names

#: Inputs beyond are as good as infinite: trees compute in single precision, distances square.
LARGEST_INPUT = 1e30
#: A level of fewer training rows counts as never seen.
FEWEST_OF_LEVEL = 5
#: Rows of the overall mean that shrink the mean target of a level.
SHRINKAGE = 10.0
#: A sparse matrix beyond either is reduced.
MOST_SPARSE_COLUMNS, MOST_SPARSE_CELLS = 512, 2e7
#: Components that it is reduced to, and the most training rows that these are learnt from.
N_COMPONENTS, MOST_SPARSE_ROWS = 30, 20_000
#: Folds, so that no row is judged by what was learnt from it.
N_PARTS = 5
MICROSECONDS_A_DAY = 86_400e6

#: One column of a batch: values of any type, (n,).
Values = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Column:
    """What becomes of one column.

    Attributes
    ----------
    kind : "numbers", "times" or "levels"
    gap : the feature of a cell that has none of its own
    letter, origin : of times, "M" for dates or "m" for durations, and microseconds at 0
    places, by_target : of levels, and whether targets ordered them
    """

    kind: str
    gap: float = 0.0
    letter: str = ""
    origin: int = 0
    places: dict[Hashable, float] | None = None
    by_target: bool = False

    def read(self, values: Values) -> FloatArray:
        """The feature of each cell, NaN for ``gap``."""
        if self.kind == "numbers":
            return _numbers(values)
        if self.kind == "levels":
            return self.locate(_cells(values))
        times = _times(values, self.letter)
        days = (times.astype(np.int64) - self.origin) / MICROSECONDS_A_DAY
        return np.where(np.isnat(times), np.nan, days)

    def locate(self, cells: Sequence[Hashable]) -> FloatArray:
        """Places of levels, NaN for those without."""
        places = self.places or {}
        return np.array([places.get(cell, np.nan) for cell in cells], dtype=np.float64)

    @classmethod
    def again(cls, known: Any) -> Self:
        """As a file says."""
        made = cls(**known)
        numbers = [made.gap, *(made.places or {}).values()]
        if not all(type(each) is float and np.isfinite(each) for each in numbers):
            raise CalliperError(f"a column of {made.kind} has features that are not numbers.")
        if made.kind not in ("numbers", "times", "levels"):
            raise CalliperError(f"a column cannot be of kind {made.kind!r}.")
        if made.kind == "times" and not (made.letter in ("m", "M") and type(made.origin) is int):
            raise CalliperError("a column of times has no origin.")
        return made


def numbers_of(values: Values) -> Column:
    """Numbers as they are; gaps at the training median, 0 if there is none."""
    numbers = _numbers(values)
    known = np.clip(numbers[~np.isnan(numbers)], -LARGEST_INPUT, LARGEST_INPUT)
    return Column(kind="numbers", gap=float(np.median(known)) if len(known) else 0.0)


def times_of(values: Values, letter: str) -> Column:
    """Days since the training median."""
    times = _times(values, letter)
    known = times[~np.isnat(times)].astype(np.int64)
    origin = int(np.median(known)) if len(known) else 0
    return Column(kind="times", letter=letter, origin=origin)


def levels_of(cells: Sequence[Hashable], y: FloatArray | None) -> Column:
    """Places on [0, 1] by mean target, or by frequency: see the module's docstring."""
    counts = Counter(cells)
    common = sorted((level for level, n in counts.items() if n >= FEWEST_OF_LEVEL), key=str)
    numbers = {level: number for number, level in enumerate(common)}
    code = np.array([numbers.get(cell, len(common)) for cell in cells], dtype=np.intp)
    size = np.bincount(code, minlength=len(common) + 1).astype(np.float64)
    keys = np.append(-size[:-1], np.inf) if y is None else _mean_targets(code, size, y)
    order = np.argsort(keys, kind="stable")
    mean_rank = np.empty(len(size))
    mean_rank[order] = (np.cumsum(size[order]) - size[order] / 2) / max(len(code), 1)
    places = dict(zip(common, mean_rank.tolist(), strict=False))
    gap, by_target = float(mean_rank[-1]), y is not None
    return Column(kind="levels", places=places, gap=gap, by_target=by_target)


def levels_in_order(cells: Sequence[Hashable], order: Sequence[Hashable]) -> Column:
    """Positions in a given order; the training median for gaps and what is not in it."""
    places = {level: float(place) for place, level in enumerate(order)}
    known = [places[cell] for cell in cells if cell in places]
    return Column(kind="levels", places=places, gap=float(np.median(known)) if known else 0.0)


def _mean_targets(code: IntArray, size: FloatArray, y: FloatArray) -> FloatArray:
    """Mean target of each level, shrunken; in a unit that cannot overflow."""
    beyond = y / max(float(np.abs(y).max(initial=0.0)), 1e-300)
    beyond -= beyond.mean()
    return np.asarray(np.bincount(code, beyond, len(size)) / (size + SHRINKAGE))


@dataclass(frozen=True, kw_only=True)
class ColumnEncoder(Keeps):
    """From rows of any kind to finite features, as learnt from training rows.

    Attributes
    ----------
    columns : what becomes of each column; none if they are reduced together
    names : the names of columns, by which frames go; None to go by position
    components : (c, d) singular vectors of a sparse matrix that is too large, if it was one
    largest : larger numbers are moved there

    Examples
    --------
    >>> towns = np.array([["Bern", 1.0]] * 10 + [["Basel", 3.0]] * 30, dtype=object)
    >>> encode = ColumnEncoder.learn(towns, np.repeat([5.0, 2.0], [10, 30]))
    >>> encode.kinds
    ('levels', 'numbers')
    >>> encode([["Basel", 7], ["Bern", None], ["Thun", 2]])
    array([[0.375, 7.   ],
           [0.875, 3.   ],
           [0.75 , 2.   ]])
    """

    columns: Annotated[tuple[Column, ...], Plain()]
    names: Annotated[tuple[Hashable, ...] | None, Plain()] = None
    components: Annotated[FloatArray | None, Array("float64", ("c", "d"), optional=True)] = None
    largest: Annotated[float, Number(least=0, finite=False)] = LARGEST_INPUT

    def for_file(self) -> dict[str, Any]:
        """What a file holds."""
        columns = [vars(column) for column in self.columns]
        names = None if self.names is None else list(self.names)
        return {**vars(self), "columns": columns, "names": names}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """The encoder, its columns checked one by one."""
        names, columns = state["names"], state["columns"]
        whole = isinstance(columns, list) and (names is None or isinstance(names, list))
        if not whole or (names is not None and len(names) != len(columns)):
            raise CalliperError("the columns of an encoder do not match their names.")
        state["columns"] = tuple(map(Column.again, columns))
        return cls(**{**state, "names": None if names is None else tuple(names)})

    @classmethod
    def of_numbers(cls, d: int) -> Self:
        """An encoder of d columns of numbers, 0 at gaps, where there are no training rows."""
        return cls(columns=(Column(kind="numbers"),) * d)

    @classmethod
    def learn(cls, X_train: Any, y_train: FloatArray | None = None) -> Self:
        """Learn what becomes of each column; targets order the levels."""
        if sparse.issparse(X_train):
            n, d = X_train.shape
            if d > MOST_SPARSE_COLUMNS or n * d > MOST_SPARSE_CELLS > N_COMPONENTS * n:
                return cls(columns=(), components=_components(sparse.csr_array(X_train)))
        names, columns = _opened(X_train)
        return cls(columns=tuple(_learnt(column, y_train) for column in columns), names=names)

    @classmethod
    def learn_and_encode(cls, X_train: Any, y_train: FloatArray) -> tuple[Self, FloatArray]:
        """As ``learn``, and features of the training rows for a model of ``y_train``.

        As the encoder gives them, except for levels: each of 5 folds is placed by the targets of
        the other four.
        """
        encoder = cls.learn(X_train, y_train)
        features = encoder(X_train)
        for place, column in enumerate(encoder.columns):
            if column.by_target and len(y_train) >= N_PARTS:
                cells = _cells(_values(_opened(X_train)[1][place]))
                features[:, place] = _left_out_places(cells, y_train)
        return encoder, features

    def __call__(self, X: Any) -> FloatArray:
        """Features (n, d) of rows."""
        if self.components is not None:
            return np.asarray(_finite(sparse.csr_array(X)) @ self.components.T, dtype=np.float64)
        if is_frame(X) and self.names == tuple(X.columns):
            X = without_names(X, "biuf")
        whole = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim == 2
        if whole and set(self.kinds) == {"numbers"} and X.shape[1] == len(self.columns):
            return self._finished(np.array(X, dtype=np.float64, order="C"))
        columns = self._in_order(*_opened(X))
        read = zip(self.columns, columns, strict=True)
        return self._finished(np.column_stack([known.read(_values(c)) for known, c in read]))

    @property
    def n_features(self) -> int:
        """Number of features that come out."""
        return len(self.columns) if self.components is None else len(self.components)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each column is taken for."""
        return tuple(column.kind for column in self.columns)

    def _finished(self, features: FloatArray) -> FloatArray:
        """Gaps filled, nothing infinite; in place."""
        gaps = np.array([column.gap for column in self.columns])
        np.copyto(features, gaps, where=np.isnan(features))
        return np.clip(features, -self.largest, self.largest, out=features)

    def _in_order(self, names: tuple[Hashable, ...] | None, columns: list[Any]) -> list[Any]:
        """Columns as among the training rows."""
        if names is not None and self.names is not None and names != self.names:
            places = {name: place for place, name in enumerate(names)}
            missing = [name for name in self.names if name not in places]
            if missing:
                raise CalliperError(
                    f"inputs lack {len(missing)} of the {len(self.names)} columns of the training "
                    f"rows, first {missing[0]!r}: pass the same columns."
                )
            return [columns[places[name]] for name in self.names]
        if len(columns) != len(self.columns):
            raise CalliperError(
                f"inputs have {len(columns)} columns, but training rows {len(self.columns)}: pass "
                f"the same columns."
            )
        return columns


def _learnt(column: Any, y: FloatArray | None) -> Column:
    """What becomes of a column of training rows."""
    values = _values(column)
    if type(column.dtype).__name__ in ("CategoricalDtype", "Categorical", "Enum"):
        if not comes_from(column, "polars") and column.dtype.ordered:
            return levels_in_order(_cells(values), [*column.dtype.categories])
        return levels_of(_cells(values), y)
    if values.dtype.kind in "biuf":
        return numbers_of(values)
    if values.dtype.kind in "mM":
        return times_of(values, values.dtype.kind)
    return _learnt_from(_cells(values), values, y)


def _learnt_from(cells: list[Hashable], values: Values, y: FloatArray | None) -> Column:
    """What becomes of a column of text or objects."""
    known = [cell for cell in cells if cell is not None]
    for letter, kind in (("M", date), ("m", timedelta)):
        if known and all(isinstance(cell, kind) for cell in known):
            return times_of(values, letter)
    if not np.isnan([_number(cell) for cell in known if cell != "nan"]).any():
        return numbers_of(values)
    return levels_of(cells, y)


def _left_out_places(cells: list[Hashable], y: FloatArray) -> FloatArray:
    """The place of each row's level, as learnt from the rows of other folds."""
    found = np.empty(len(y))
    for others, fold in KFold(N_PARTS, shuffle=True, random_state=0).split(found):
        learnt = levels_of([cells[row] for row in others], y[others])
        own = learnt.locate([cells[row] for row in fold])
        found[fold] = np.where(np.isnan(own), learnt.gap, own)
    return found


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # a whole number of many digits
        return LARGEST_INPUT if cell > 0 else -LARGEST_INPUT
    except (TypeError, ValueError):
        return np.nan


def _numbers(values: Values) -> FloatArray:
    """Cells as numbers, NaN where there is none."""
    if values.dtype.kind in "mMV":
        return np.full(len(values), np.nan)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # one by one: some are missing, or text
        return np.array([_number(cell) for cell in values.tolist()], dtype=np.float64)


def _times(values: Values, letter: str) -> Values:
    """Cells as dates in UTC (``letter`` "M") or durations ("m"), to the microsecond; else NaT."""
    dtype = f"{letter}8[us]"
    if values.dtype.kind == letter:
        return values.astype(dtype)
    kind = date if letter == "M" else timedelta
    cells = [_utc(cell) if isinstance(cell, kind) else None for cell in _cells(values)]
    return np.array(cells, dtype=dtype)


def _utc(cell: Any) -> Any:
    aware = isinstance(cell, datetime) and cell.tzinfo is not None
    return cell.astimezone(UTC).replace(tzinfo=None) if aware else cell


def _cells(values: Values) -> list[Hashable]:
    """Cells as keys, None for whatever stands for a gap."""
    if values.dtype.kind in "mM":  # finer ones would come as whole numbers
        values = values.astype(f"{values.dtype.kind}8[us]")
    return [_cell(cell) for cell in values.tolist()]


def _cell(cell: Any) -> Hashable:
    if isinstance(cell, str):
        return cell
    if type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell):
        return None
    try:
        hash(cell)
    except TypeError:
        return repr(cell)
    return cell  # type: ignore[no-any-return]


def _opened(X: Any) -> tuple[tuple[Hashable, ...] | None, list[Any]]:
    """Names of columns, None to go by position, and columns: arrays or series of a frame."""
    if is_frame(X):  # pandas
        return _named(tuple(X.columns), [X.iloc[:, place] for place in range(X.shape[1])])
    if hasattr(X, "get_columns"):  # polars
        return _named(tuple(X.columns), X.get_columns())
    if hasattr(X, "column_names"):  # Arrow
        return _opened(X.to_pandas())
    if hasattr(X, "to_frame"):  # a series of either
        return None, [X]
    array = _array(X)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] == 0:
        raise CalliperError(f"inputs must have rows and columns; got shape {array.shape}.")
    return None, list(array.T)


def _named(
    names: tuple[Hashable, ...], columns: list[Any]
) -> tuple[tuple[Hashable, ...] | None, list[Any]]:
    if not names:
        raise CalliperError("inputs have no columns.")
    return (names if len(set(names)) == len(names) else None), columns


def _array(X: Any) -> Values:
    if sparse.issparse(X):
        return np.asarray(X.toarray())
    X = in_memory(X)
    if hasattr(X, "__array__"):
        return np.asarray(X)
    try:
        array = np.array(X, dtype=object)
    except ValueError:  # rows of different shapes
        array = np.empty(0)
    if array.ndim < 2:
        raise CalliperError(
            f"inputs must have rows and columns; got a {type(X).__name__} without columns, or of "
            f"rows of different lengths."
        )
    return array


def _values(column: Any) -> Values:
    """A column as an array (n,): of numbers, dates or durations if its type says so, of objects."""
    if isinstance(column, np.ndarray):
        return column
    if comes_from(column, "polars"):
        if column.dtype.is_nested() or type(column.dtype).__name__ in ("Int128", "UInt128"):
            return np.fromiter(column.to_list(), dtype=object, count=len(column))
        return np.asarray(column.to_numpy())
    if isinstance(column.dtype, np.dtype):
        return np.asarray(column)
    kind = column.dtype.kind
    if kind in "biuf":  # with gaps, by Arrow, or sparse
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind in "mM":  # dates with a time zone become UTC
        return np.asarray(column.to_numpy(dtype=f"{kind}8[us]"))
    return np.asarray(column.astype(object).to_numpy())


def _components(rows: Any) -> FloatArray:
    """Singular vectors (c, d) of training rows, evenly picked if there are many."""
    n = rows.shape[0]
    some = _finite(rows[np.arange(0, n, max(1, -(-n // MOST_SPARSE_ROWS)))])
    size = min(N_COMPONENTS, *some.shape)
    _, values, vectors = randomized_svd(some, n_components=size, random_state=0)
    kept = values > 1e-6 * values.max(initial=0.0)  # others are noise
    return np.asarray(vectors[kept] if kept.any() else vectors[:1], dtype=np.float64)


def _finite(rows: Any) -> Any:
    """Gaps as 0, which is what is not stored."""
    data = np.clip(
        np.nan_to_num(rows.data.astype(np.float64), nan=0.0), -LARGEST_INPUT, LARGEST_INPUT
    )
    return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
