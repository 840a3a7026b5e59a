"""Rows that two sets share, such as calibration rows that the model was trained on.

Two rows are the same if inputs *and* target agree, numbers to four digits of the
spread of their column, since files round. Rows also coincide by chance, where values are few or the
data hold copies. If the two sets are random parts of one pool, every split of the pool is equally
likely, so the pool is split again some times: if equal rows are divided between the sets more
evenly than in those splits, by six standard deviations, it is not chance. Two rules find what this
cannot: sets that are the same but for the order of rows; and ten rows or more in common, at least
1 %, or five and 5 %, where a column hardly ever repeats a value and no row is twice in its own set.
For pools that hold ten (five) copies, split at random, the last rule is wrong about once in 2¹⁰
(2⁵); false alarms of the others are rarer than one in 10⁵. Sets that were not split at random, such
as even and odd rows of a sorted table, may be divided too evenly without sharing a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from calliper._handlers import in_memory
from calliper._kept import Array, Keeps, Number, Plain
from calliper._types import FloatArray, Frame, IntArray
from calliper.exceptions import CalliperError, SharedRowsWarning, warn

#: Texts of an empty cell, in Python, NumPy and pandas.
GAPS = frozenset({"", "None", "nan", "NaN", "NaT", "<NA>"})
#: The consequence if the model was trained on calibration rows.
SEEN_IN_TRAINING = (
    "The model has seen them, so its errors there are smaller than on new rows. Calibrate on "
    "rows that were not used for training."
)
#: Share of a column's spread within which numbers agree.
AGREEMENT = 1e-4
#: Standard deviations beyond chance, and the number of random splits.
BEYOND, N_DEALT = 6.0, 40
#: Fewest shared rows, in number and share, that are noticed where only copies can coincide.
FEW = ((5, 0.05), (10, 0.01))
#: Share of the rows that counts as all; share of different values that makes a column fine.
NEARLY_ALL, FINE = 0.99, 0.95
#: Fewest different rows for which equal counts in both sets mean copies; most copies of one row
#: that are few.
_CELLS, _FEW_ROWS = 20, 8
#: Numbers that a row is projected to, and the offsets of two grids that they are rounded on: what
#: lies at an edge of one grid does not in the other.
_PROJECTED, _OFFSETS = 3, (0.318, 0.818)
#: Low end and spread of each column, None for text.
Units = tuple[tuple[float, float] | None, ...]
#: More columns than this are projected without units; the number that stands for a gap.
_WIDE, _GAP = 512, -97.3


@dataclass(frozen=True, kw_only=True)
class SharedRows:
    """How many rows of one set are in another, and whether that can be chance."""

    n_shared: int  # rows of the second set that also occur in the first
    n_rows: int  # rows of the second set
    by_chance: float = 0.0  # about how many would be shared by chance
    certain: bool = False  # whether chance cannot explain it
    all_shared: bool = False  # whether it is certain, and all rows but 1 % are shared
    by_target: bool = True  # whether targets were compared, too

    def describe(self, rows: str = "calibration", known: str = "training") -> str:
        """What was found, in a sentence."""
        count = "All" if self.n_shared == self.n_rows else f"{self.n_shared:,} of"
        same = "same inputs and target" if self.by_target else "same inputs"
        text = f"{count} {self.n_rows:,} {rows} rows are also {known} rows ({same})"
        if self.by_chance < 0.5:
            return f"{text}."
        text += f"; about {min(self.by_chance, self.n_shared):,.0f} may coincide by chance"
        return f"{text}, but not all." if self.certain else f"{text}."


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSketch(Keeps):
    """Rows as a few numbers each, by which copies of them are recognised; 24 bytes a row.

    Attributes
    ----------
    numbers : (n, 3) random projections of columns in units of their spread
    units : low end and spread of columns; None for text
    fine : whether a column hardly ever repeats a value
    names : of the columns of a frame
    has_targets : whether the last column is the target
    """

    numbers: Annotated[FloatArray, Array("float64", ("n", _PROJECTED))]
    units: Annotated[Units, Array("float64", ("u", 2), finite=False)]
    fine: Annotated[bool, Number(bool)]
    names: Annotated[tuple[Any, ...] | None, Plain()] = None
    has_targets: Annotated[bool, Number(bool)] = True

    def for_file(self) -> dict[str, Any]:
        """What a file holds; there, a column of text has an infinite unit."""
        units = [(np.inf, np.inf) if unit is None else unit for unit in self.units]
        return {**vars(self), "units": np.array(units, dtype=np.float64).reshape(-1, 2)}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """The sketch, with units as they were."""
        units = (None if low == np.inf else (low, unit) for low, unit in state["units"].tolist())
        return cls(**{**state, "units": tuple(units)})

    def columns(self, X: Any, y: Any) -> list[NDArray[Any]]:
        """Columns of other rows: by name where both have names, else by position."""
        if self.names is not None and set(self.names) <= set(_names(X) or ()):
            X = X[list(self.names)]
        return [*_columns(X), *(_columns(y) if self.has_targets else [])]


def sketch_rows(X: Any, y: Any = None) -> RowSketch:
    """What to keep of rows to find them in another set; inputs alone if ``y`` is None.

    ``X`` are arrays of any shape, frames, sparse matrices, tensors, or lists of anything.
    """
    columns = [*_columns(X), *([] if y is None else _columns(y))]
    units = tuple(_unit(column) for column in columns)
    fine = any(len(np.unique(_coded(column))) > FINE * len(column) for column in columns)
    numbers, has_targets = _projected(columns, units), y is not None
    return RowSketch(
        numbers=numbers, units=units, fine=fine, names=_names(X), has_targets=has_targets
    )


def find_shared(known: RowSketch, X: Any, y: Any) -> SharedRows:
    """How many rows are among the known ones, and whether that can be chance.

    Rows with another number of columns share nothing.

    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> known = sketch_rows(X[:100], X[:100, 0])
    >>> find_shared(known, X[90:190], X[90:190, 0]).describe()
    '10 of 100 calibration rows are also training rows (same inputs and target).'
    """
    columns = known.columns(X, y)
    n_a, n_b = len(known.numbers), len(columns[-1])
    if len(columns) != len(known.units) or not n_a or not n_b:
        return SharedRows(n_shared=0, n_rows=n_b)
    numbers = np.concatenate([known.numbers, _projected(columns, known.units)])
    found = [_judge(_cells(numbers, offset), n_a, known.fine) for offset in _OFFSETS]
    clearest = max(found, key=lambda shared: (shared.certain, shared.n_shared))
    return replace(clearest, by_target=known.has_targets)


def _judge(cell: IntArray, n_a: int, fine: bool) -> SharedRows:
    """The answer; ``cell`` numbers the equal rows of both sets, the first's ``n_a`` rows first."""
    in_a, in_b = (np.bincount(part, minlength=cell.max() + 1) for part in (cell[:n_a], cell[n_a:]))
    n_b, n_shared = len(cell) - n_a, _n_shared(in_a, in_b)
    if not n_shared:
        return SharedRows(n_shared=0, n_rows=n_b)
    dealt = list(_dealt(in_a + in_b, n_a))
    by_chance = float(np.mean([_n_shared(*each) for each in dealt]))
    even = np.array([_evenness(*each) for each in dealt])
    beyond = _evenness(in_a, in_b) > even.mean() + BEYOND * max(float(even.std()), 0.25)
    equal = np.array_equal(in_a, in_b) and len(in_a) >= _CELLS
    no_twins = max(in_a.max(), in_b.max()) == 1
    enough = any(n_shared >= max(count, share * n_b) for count, share in FEW)
    certain = bool(beyond or equal or (fine and no_twins and enough))
    return SharedRows(
        n_shared=n_shared,
        n_rows=n_b,
        by_chance=0.0 if no_twins else by_chance,  # no sign that the pool holds copies
        certain=certain,
        all_shared=certain and n_shared >= NEARLY_ALL * n_b,
    )


def _dealt(size: IntArray, n_a: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows of each cell in either set, for random splits of all rows.

    Cells of one row share nothing: they are drawn together and left out.
    """
    rng, twins = np.random.default_rng(0), size[size > 1]
    lonely = int(size.sum() - twins.sum())
    for _ in range(N_DEALT):
        in_a = rng.multivariate_hypergeometric([*twins, lonely], n_a, method="marginals")[:-1]
        yield in_a, twins - in_a


def _n_shared(in_a: IntArray, in_b: IntArray) -> int:
    """Rows of the second set that are in the first."""
    return int(in_b[in_a > 0].sum())


def _evenness(in_a: IntArray, in_b: IntArray) -> float:
    """Σ ab/(a+b) over cells of few rows, large if all are divided alike, as copies are.

    Large cells are left out, since a stratified split divides them alike, too.
    """
    size = in_a + in_b
    few = (size > 1) & (size <= _FEW_ROWS)
    return float((in_a[few] * in_b[few] / size[few]).sum())


def _cells(numbers: FloatArray, offset: float) -> IntArray:
    """The cell of each row: rows whose numbers agree within the tolerance share one."""
    steps = np.ascontiguousarray(np.floor(numbers / AGREEMENT + offset) + 0.0)
    rows = steps.view(np.dtype((np.void, steps.strides[0])))  # faster than unique over an axis
    return np.unique(rows.ravel(), return_inverse=True)[1].reshape(-1)


def _projected(columns: list[NDArray[Any]], units: Units) -> FloatArray:
    """(n, 3) numbers that agree for rows which agree in all columns, and for no others."""
    rng = np.random.default_rng(0)
    numbers = np.zeros((len(columns[-1]), _PROJECTED))
    for column, unit in zip(columns, units, strict=True):
        numbers += np.outer(_coded(column, unit), rng.normal(size=_PROJECTED))
    return np.asarray(numbers / np.sqrt(len(columns)))


def _unit(column: NDArray[Any]) -> tuple[float, float] | None:
    """The low end and the spread of a column of numbers; None for text."""
    if column.dtype.kind != "f":
        return None
    finite = column[np.isfinite(column)]
    if not len(finite):
        return 0.0, 1.0
    low, high = np.percentile(finite, [5, 95])
    return float(low), float((high - low) or np.ptp(finite) or 1.0)


def _coded(column: NDArray[Any], unit: tuple[float, float] | None = None) -> FloatArray:
    """A number for each cell: itself, in units of the spread if known, or a hash of its text."""
    if column.dtype.kind != "f":
        texts = ["" if str(cell) in GAPS else str(cell) for cell in column.tolist()]
        return np.array([crc32(text.encode()) / 2**20 if text else _GAP for text in texts])
    if unit is None:
        return np.asarray(np.nan_to_num(column, nan=_GAP))
    with np.errstate(over="ignore"):
        scaled = (column - unit[0]) / unit[1]
    return np.asarray(np.nan_to_num(scaled, nan=_GAP, posinf=1e9, neginf=-1e9))


def _columns(X: Any) -> list[NDArray[Any]]:
    """The columns of rows of any kind; one column of things where rows are not numbers."""
    if sparse.issparse(X):
        X = _narrowed(X)
    X = in_memory(X)
    if isinstance(X, Frame):
        return [_as_numbers(np.asarray(X[name])) for name in X.columns]
    try:
        rows = np.asarray(X)
    except ValueError:  # rows of different lengths
        rows = np.array([repr(row) for row in X], dtype=object)
    if not rows.ndim:
        raise TypeError(f"X must be a table of rows; got a {type(X).__name__}.")
    rows = rows.reshape(len(rows), -1)
    if rows.shape[1] > _WIDE and rows.dtype.kind in "biuf":
        rows = _narrowed(np.nan_to_num(rows.astype(np.float64), nan=_GAP))
    return [_as_numbers(column) for column in rows.T]


def _names(X: Any) -> tuple[Any, ...] | None:
    """Names of the columns of a frame."""
    return tuple(X.columns) if isinstance(X, Frame) else None


def _narrowed(rows: Any) -> Any:
    """Rows of many numbers, projected to a few."""
    return rows @ np.random.default_rng(1).normal(size=(rows.shape[1], _PROJECTED))


def _as_numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Floats, dates as microseconds; the column itself if it holds text."""
    if column.dtype.kind in "mM":
        micro = column.astype(f"{column.dtype.kind}8[us]").astype(np.int64)
        return np.where(np.isnat(column), np.nan, micro)
    try:
        return column.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        return column


def refuse_seen(training: RowSketch, X: Any, y: Any) -> str | None:
    """Why there is no guarantee if the model was trained on calibration rows; None if it was not.

    Warns if it was trained on some of them, and refuses if on all.
    """
    found = find_shared(training, X, y)
    why = f"{found.describe()} {SEEN_IN_TRAINING}"
    if found.all_shared:
        raise CalliperError(why)
    if not found.certain:
        return None
    warn(f"The guarantee no longer holds. {why}", SharedRowsWarning)
    return why
