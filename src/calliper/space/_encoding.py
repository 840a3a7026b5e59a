"""Any rows that a model takes, as numbers: columns of numbers, categories, text, dates, sparse.

Nearness and the model of out-of-fold errors need finite numbers. What becomes of a column is learnt
from training rows, never from calibration or new rows. A row has the same features whatever rows
come with it: the cell counts, not the type that a batch happens to have.

| column of training rows | feature |
|---|---|
| numbers, booleans; text and objects if all are numbers | the number |
| dates (a naive one is UTC), durations | days since the training median |
| categories with an order of their own (pandas' ``ordered``) | the position in that order |
| other categories, text, anything else | the code of the level, see below |
| a sparse matrix of more than 512 columns or 2e7 cells | 30 singular components |

*Gaps.* A number or time that is missing or unreadable (text in a column of numbers) is at the
training median. Infinite numbers, and those beyond ±1e30, are at ±1e30.

*Levels* are put in order of their mean target, each shrunk towards the mean ȳ of all N rows as if
by 10 more rows; n and s are the number of rows of a level and the sum of their targets:

    key = (s + 10·ȳ) / (n + 10),      code = (rows of levels before it + n / 2) / N  in [0, 1].

The code is the mean rank of the level's rows over N (Bross' ridit, doi:10.2307/2527727): common
levels are apart even where their means are equal, rare ones take little room. Without targets the
most frequent level comes first. A gap is a level like another. Levels with fewer than 5 rows would
be ordered by their own noise: they form one level with those never seen, so ids are constant.

A model of the target that is given this order has seen the answer. ``learn_and_encode`` codes the
levels in each of 5 folds of training rows by the targets of the other four.

Frames go by the names of columns, arrays by position; lists of texts, pictures or graphs have none.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import KFold
from sklearn.utils.extmath import randomized_svd

from calliper._handlers import in_memory
from calliper._kept import Array, Inline, Keeps, NameList, Number, Plain, Text
from calliper._types import FloatArray
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
EPOCH, DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
#: One column of a batch: values of any type, (n,).
Values = NDArray[Any]
#: Names of columns, or None to go by position.
Names = tuple[Hashable, ...] | None


@dataclass(frozen=True, kw_only=True)
class Column(Keeps):
    """What becomes of one column; ``by_target`` says whether targets ordered its levels.

    ``gap`` is the feature of a cell without one, ``origin`` the day 0, ``places`` codes of levels.
    """

    kind: Annotated[str, Text(("numbers", "times", "levels"))]
    gap: Annotated[float, Number()] = 0.0
    origin: Annotated[float, Number()] = 0.0
    places: Annotated[dict[Hashable, float], Plain()] = field(default_factory=dict)
    by_target: Annotated[bool, Number(bool)] = False

    def read(self, values: Values) -> FloatArray:
        """The feature of each cell, NaN for ``gap``."""
        if self.kind == "levels":
            return np.array([self.places.get(cell, np.nan) for cell in _cells(values)], dtype=float)
        return _numbers(values) if self.kind == "numbers" else _days(values) - self.origin

    def check_kept(self) -> None:
        codes: Any = [*self.places.values()] if isinstance(self.places, dict) else [None]
        if {*map(type, codes)} - {float} or not np.isfinite(codes).all():
            raise CalliperError("the codes of a categorical column must be finite numbers.")

    @classmethod
    def learn(cls, column: Any, y: FloatArray | None) -> Self:
        """What becomes of a column of training rows."""
        values = _values(column)
        if type(column.dtype).__name__ in ("CategoricalDtype", "Categorical", "Enum"):
            if not comes_from(column, "polars") and column.dtype.ordered:
                codes = {level: float(n) for n, level in enumerate(column.dtype.categories)}
                at = [codes[cell] for cell in _cells(values) if cell in codes]
                return cls(kind="levels", places=codes, gap=_median(at))
            return cls.of_levels(_cells(values), y)
        kind = values.dtype.kind
        cells = [] if kind in "biufmM" else _cells(values)
        known = [cell for cell in cells if cell is not None]
        if kind in "mM" or (known and all(isinstance(cell, date | timedelta) for cell in known)):
            return cls(kind="times", origin=_median(_days(values)))
        if not np.isnan([_number(cell) for cell in known if cell != "nan"]).any():
            numbers = np.clip(_numbers(values), -LARGEST_INPUT, LARGEST_INPUT)
            return cls(kind="numbers", gap=_median(numbers))
        return cls.of_levels(cells, y)

    @classmethod
    def of_levels(cls, cells: Sequence[Hashable], y: FloatArray | None) -> Self:
        """Codes on [0, 1] by mean target, or by frequency: see the module's docstring."""
        counts = Counter(cells)
        common = sorted((level for level, n in counts.items() if n >= FEWEST_OF_LEVEL), key=str)
        numbers = {level: number for number, level in enumerate(common)}
        code = np.array([numbers.get(cell, len(common)) for cell in cells], dtype=np.intp)
        size = np.bincount(code, minlength=len(common) + 1).astype(np.float64)
        keys = np.append(-size[:-1], np.inf)
        if y is not None:  # mean targets, shrunken, in a unit that cannot overflow
            beyond = y / max(float(np.abs(y).max(initial=0.0)), 1e-300)
            keys = np.bincount(code, beyond - beyond.mean(), len(size)) / (size + SHRINKAGE)
        order, rank = np.argsort(keys, kind="stable"), np.empty(len(size))
        rank[order] = (np.cumsum(size[order]) - size[order] / 2) / max(len(code), 1)
        *codes, gap = rank.tolist()
        known: dict[Hashable, float] = dict(zip(common, codes, strict=True))
        return cls(kind="levels", places=known, gap=gap, by_target=y is not None)


def _median(numbers: Any) -> float:
    """The median of what is known; 0 if nothing is."""
    known = np.asarray(numbers)[~np.isnan(numbers)]
    return float(np.median(known)) if len(known) else 0.0


@dataclass(frozen=True, kw_only=True)
class ColumnEncoder(Keeps):
    """From rows of any kind to finite features, up to ``largest``, as learnt from training rows.

    Frames go by names, the rest by position. A sparse matrix that is too large is reduced by its
    ``components``, (c, d) singular vectors, and has no columns.
    """

    columns: Annotated[tuple[Column, ...], Inline(Column, several=True)]
    names: Annotated[Names, NameList(optional=True)] = None
    components: Annotated[FloatArray | None, Array("float64", ("c", "d"), optional=True)] = None
    largest: Annotated[float, Number(least=0, finite=False)] = LARGEST_INPUT

    def check_kept(self) -> None:
        names, n = self.names, len(self.columns)
        if names is not None and not (isinstance(names, tuple) and len(names) == n):
            raise CalliperError("the columns of an encoder do not match their names.")
        if not self.n_features:
            raise CalliperError("an encoder has no columns.")

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
        return cls(columns=tuple(Column.learn(each, y_train) for each in columns), names=names)

    @classmethod
    def learn_and_encode(cls, X_train: Any, y_train: FloatArray) -> tuple[Self, FloatArray]:
        """As ``learn``, and features of the training rows, levels coded by targets of others."""
        encoder = cls.learn(X_train, y_train)
        features = encoder(X_train)
        by_target = [index for index, column in enumerate(encoder.columns) if column.by_target]
        for index in by_target if len(y_train) >= N_PARTS else ():
            values = _values(_opened(X_train)[1][index])
            for others, fold in KFold(N_PARTS, shuffle=True, random_state=0).split(features):
                learnt = Column.of_levels(_cells(values[others]), y_train[others])
                own = learnt.read(values[fold])
                features[fold, index] = np.where(np.isnan(own), learnt.gap, own)
        return encoder, features

    def __call__(self, X: Any) -> FloatArray:
        """Features (n, d) of rows."""
        if self.components is not None:
            return np.asarray(_finite(sparse.csr_array(X)) @ self.components.T, dtype=np.float64)
        if is_frame(X) and self.names == tuple(X.columns):
            X = without_names(X, "biuf")
        whole = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim == 2
        if whole and set(self.kinds) == {"numbers"} and X.shape[1] == len(self.columns):
            features = np.array(X, dtype=np.float64, order="C")
        else:
            pairs = zip(self.columns, self._in_order(*_opened(X)), strict=True)
            features = np.column_stack([known.read(_values(column)) for known, column in pairs])
        gaps = np.array([column.gap for column in self.columns])
        np.copyto(features, gaps, where=np.isnan(features))
        return np.clip(features, -self.largest, self.largest, out=features)

    @property
    def n_features(self) -> int:
        return len(self.columns) if self.components is None else len(self.components)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(column.kind for column in self.columns)

    def _in_order(self, names: Names, columns: list[Any]) -> list[Any]:
        """Columns as among the training rows."""
        if names is not None and self.names is not None and names != self.names:
            missing = [name for name in self.names if name not in names]
            if missing:
                raise CalliperError(
                    f"inputs lack {len(missing)} of the {len(self.names)} columns of the training "
                    f"rows, first {missing[0]!r}: pass the same columns."
                )
            return [columns[names.index(name)] for name in self.names]
        if len(columns) != len(self.columns):
            what = f"inputs have {len(columns)} columns, but training rows {len(self.columns)}"
            raise CalliperError(f"{what}: pass the same columns.")
        return columns


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


def _days(values: Values) -> FloatArray:
    """Dates as days since 1970 in UTC, durations as days, to the microsecond; NaN for the rest."""
    if values.dtype.kind not in "mM":
        return np.array([_day(cell) for cell in _cells(values)], dtype=np.float64)
    days = values.astype(f"{values.dtype.kind}8[us]").astype(np.int64) / (DAY / DAY.resolution)
    return np.where(np.isnat(values), np.nan, days)


def _day(cell: Any) -> float:
    if isinstance(cell, datetime):
        cell = (cell if cell.tzinfo else cell.replace(tzinfo=UTC)) - EPOCH
    elif isinstance(cell, date):
        cell = (cell.toordinal() - EPOCH.toordinal()) * DAY
    return cell / DAY if isinstance(cell, timedelta) else np.nan


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


def _opened(X: Any) -> tuple[Names, list[Any]]:
    """Names of columns, None to go by position, and columns: arrays or series of a frame."""
    if hasattr(X, "column_names"):  # Arrow
        X = X.to_pandas()
    if is_frame(X) or hasattr(X, "get_columns"):  # pandas, Polars
        names = tuple(X.columns)
        if not names:
            raise CalliperError("inputs have no columns.")
        columns = [X.iloc[:, at] for at in range(len(names))] if is_frame(X) else X.get_columns()
        return (names if len(set(names)) == len(names) else None), columns
    if hasattr(X, "to_frame"):  # a series of either
        return None, [X]
    array = _array(X)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] == 0:
        raise CalliperError(f"inputs must have rows and columns; got shape {array.shape}.")
    return None, list(array.T)


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
        what = f"inputs must have rows and columns; got a {type(X).__name__} without columns"
        raise CalliperError(f"{what}, or of rows of different lengths.")
    return array


def _values(column: Any) -> Values:
    """A column as an array (n,): of numbers, dates or durations if its type says so, of objects."""
    if isinstance(column, np.ndarray):
        return column
    dtype = column.dtype
    if comes_from(column, "polars"):
        if dtype.is_nested() or type(dtype).__name__ in ("Int128", "UInt128"):
            return np.fromiter(column.to_list(), dtype=object, count=len(column))
        return np.asarray(column.to_numpy())
    if isinstance(dtype, np.dtype):
        return np.asarray(column)
    if dtype.kind in "biuf":  # with gaps, by Arrow, or sparse
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if dtype.kind in "mM":  # dates with a time zone become UTC
        return np.asarray(column.to_numpy(dtype=f"{dtype.kind}8[us]"))
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
    data = np.clip(np.nan_to_num(rows.data.astype(np.float64)), -LARGEST_INPUT, LARGEST_INPUT)
    return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
