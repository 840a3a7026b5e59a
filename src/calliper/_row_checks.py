"""Rows that two sets share, such as calibration rows that the model was trained on.

Rows are the same if inputs *and* target agree, numbers to about four digits of the spread of their
column, since files round. Rows also coincide by chance, where values are few or the data hold
copies. If both sets are random parts of one pool, every split of the pool is equally likely. Rows
are shared for certain if equal rows are divided between the sets more evenly than such splits do,
by six standard deviations; if the sets are the same but for the order of rows; or if ten rows or
more are shared, at least 1 %, or five and 5 %, where a column hardly ever repeats a value and no
row is twice in its own set. For pools that hold ten (five) copies, split at random, the last rule
is wrong about once in 2¹⁰ (2⁵); false alarms of the others are rarer than one in 10⁵. Sets that
were not split at random, such as even and odd rows of a sorted table, may be divided too evenly
without sharing a row.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from calliper._handlers import in_memory
from calliper._kept import Array, Keeps, NameList, Number
from calliper._types import FloatArray, Frame, IntArray
from calliper.exceptions import CalliperError, SharedRowsWarning, warn

#: Texts of an empty cell, in Python, NumPy and pandas.
GAPS = frozenset({"", "None", "nan", "NaN", "NaT", "<NA>"})
#: The consequence if the model was trained on calibration rows.
SEEN_IN_TRAINING = (
    "The model's errors on them are therefore smaller than on new rows. Calibrate on rows that "
    "were not used for training."
)
AGREEMENT = 1e-4  # share of a column's spread within which numbers agree
BEYOND = 6.0  # standard deviations beyond which chance explains nothing
#: Fewest shared rows, in number and share, that are noticed where only copies can coincide.
FEW = ((5, 0.05), (10, 0.01))
NEARLY_ALL = 0.99  # share of the rows that counts as all
FINE = 0.95  # share of different values that makes a column fine
FEWEST_KINDS = 20  # fewest different rows for which two equal sets mean copies
_FEW_ROWS = 8  # most rows of a cell whose division between the sets is judged
_PROJECTED = 3  # numbers that a row is projected to
_WIDE = 512  # most columns that are projected in units of their spread
_GAP = -97.3  # stands for a gap
#: Offsets of two grids, since rows at the edge of a cell may fall on either side; and factors
#: that make one number of the cell of a row.
_OFFSETS = (0.318, 0.818)
_MIX = np.random.default_rng(2).integers(2**62, size=_PROJECTED)


@dataclass(frozen=True, kw_only=True)
class SharedRows:
    """How many rows of one set are in another, and whether that can be chance."""

    n_shared: int  # rows of the second set that also occur in the first
    n_rows: int  # rows of the second set
    by_chance: float = 0.0  # about how many would be shared by chance
    certain: bool = False  # whether chance cannot explain it
    by_target: bool = True  # whether targets were compared, too

    @property
    def all_shared(self) -> bool:
        """Whether it is certain, and all rows but 1 % are shared."""
        return self.certain and self.n_shared >= NEARLY_ALL * self.n_rows

    def describe(self) -> str:
        """What was found, in a sentence."""
        count = "All" if self.n_shared == self.n_rows else f"{self.n_shared:,} of"
        same = "same inputs and target" if self.by_target else "same inputs"
        text = f"{count} {self.n_rows:,} calibration rows are also training rows ({same})"
        if self.by_chance < 0.5:
            return f"{text}."
        text += f"; about {min(self.by_chance, self.n_shared):,.0f} may coincide by chance"
        return f"{text}, but not all." if self.certain else f"{text}."


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowSketch(Keeps):
    """Rows as a few numbers each, by which copies of them are recognised; 24 bytes a row.

    ``numbers`` are random projections of columns in units of their spread, ``units`` low end and
    spread of each column; ``fine`` says whether one hardly ever repeats a value. The last column is
    the target if it ``has_targets``.
    """

    numbers: Annotated[FloatArray, Array("float64", ("n", _PROJECTED))]
    units: Annotated[FloatArray, Array("float64", ("u", 2))]
    fine: Annotated[bool, Number(bool)]
    names: Annotated[tuple[Any, ...] | None, NameList(optional=True)] = None
    has_targets: Annotated[bool, Number(bool)] = True


def sketch_rows(X: Any, y: Any = None) -> RowSketch:
    """What to keep of rows of any kind to find them in another set; inputs alone without ``y``."""
    columns = [*_columns(X), *([] if y is None else _columns(y))]
    units = np.array([_unit(column) for column in columns])
    return RowSketch(
        numbers=_projected(columns, units),
        units=units,
        fine=any(len(np.unique(column)) > FINE * len(column) for column in columns),
        names=tuple(X.columns) if isinstance(X, Frame) else None,
        has_targets=y is not None,
    )


def find_shared(known: RowSketch, X: Any, y: Any) -> SharedRows:
    """How many rows are among the known ones, and whether that can be chance.

    Columns of frames go by name. Rows with another number of columns share nothing.

    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> known = sketch_rows(X[:100], X[:100, 0])
    >>> find_shared(known, X[90:190], X[90:190, 0]).describe()
    '10 of 100 calibration rows are also training rows (same inputs and target).'
    """
    names = dict.fromkeys(known.names or ())  # a file might name a column twice
    if names and isinstance(X, Frame) and names.keys() <= {*X.columns}:
        X = X[[*names]]
    columns = [*_columns(X), *(_columns(y) if known.has_targets else [])]
    n = len(columns[-1])
    if len(columns) != len(known.units) or not len(known.numbers) or not n:
        return SharedRows(n_shared=0, n_rows=n)
    numbers = np.concatenate([known.numbers, _projected(columns, known.units)])
    found = [_judged(numbers, known, offset) for offset in _OFFSETS]
    return max(found, key=lambda shared: (shared.certain, shared.n_shared))


def _judged(numbers: FloatArray, known: RowSketch, offset: float) -> SharedRows:
    """The answer if rows are the same that lie in one cell of a grid; known rows come first."""
    keys = np.floor(numbers / AGREEMENT + offset).astype(np.int64) @ _MIX
    cells, cell = np.unique(keys, return_inverse=True)
    n_a, n_b = len(known.numbers), len(numbers) - len(known.numbers)
    in_a, in_b = (np.bincount(part, minlength=len(cells)) for part in (cell[:n_a], cell[n_a:]))
    n_shared, size = int(in_b[in_a > 0].sum()), in_a + in_b
    no_twins = max(in_a.max(), in_b.max()) == 1
    same = len(cells) >= FEWEST_KINDS and np.array_equal(in_a, in_b)
    enough = any(n_shared >= max(count, share * n_b) for count, share in FEW)
    evenly, q = _too_evenly(in_a, size, n_a / (n_a + n_b)), n_b / (n_a + n_b)
    return SharedRows(
        n_shared=n_shared,
        n_rows=n_b,
        # Without twins in a set there is no sign that the pool holds copies.
        by_chance=0.0 if no_twins else float((size * (q - q**size)).sum()),
        certain=bool(evenly or same or (known.fine and no_twins and enough)),
        by_target=known.has_targets,
    )


def _too_evenly(in_a: IntArray, size: IntArray, p: float) -> bool:
    """Whether Σ ab/(a+b) over cells is beyond chance, for a of each cell about Binomial(a + b, p).

    Large cells are left out, since a stratified split divides them alike, too.
    """
    few = (size > 1) & (size <= _FEW_ROWS)
    a, s, pq = in_a[few], size[few], p * (1 - p)
    mean = s * (s - 1) * pq
    square = s * (s - 1) * (s - 2) * (s - 3) * pq**2 + s * (s - 1) ** 2 * pq
    error = np.sqrt(((square - mean**2) / s**2).sum())
    return bool(((a * (s - a) - mean) / s).sum() > BEYOND * max(float(error), 0.25))


def _projected(columns: list[FloatArray], units: FloatArray) -> FloatArray:
    """(n, 3) numbers that agree for rows which agree in all columns, and for no others."""
    rng = np.random.default_rng(0)
    numbers = np.zeros((len(columns[-1]), _PROJECTED))
    for column, (low, unit) in zip(columns, units, strict=True):
        with np.errstate(over="ignore"):
            scaled = np.clip(np.nan_to_num((column - low) / unit, nan=_GAP), -1e9, 1e9)
        numbers += np.outer(scaled, rng.normal(size=_PROJECTED))
    return np.asarray(numbers / np.sqrt(len(columns)))


def _unit(column: FloatArray) -> tuple[float, float]:
    """The low end and the spread of a column."""
    finite = column[np.isfinite(column)]
    if not len(finite):
        return 0.0, 1.0
    low, high = np.percentile(finite, [5, 95])
    return float(low), float((high - low) or np.ptp(finite) or 1.0)


def _columns(X: Any) -> list[FloatArray]:
    """The columns of rows of any kind, as numbers; many numbers a row are projected to a few."""
    X = in_memory(X)
    if isinstance(X, Frame):
        return [_numbers(np.asarray(X[name])) for name in X.columns]
    if not sparse.issparse(X):
        try:
            rows = np.asarray(X)
        except ValueError:  # rows of different lengths
            rows = np.array([repr(row) for row in X], dtype=object)
        if not rows.ndim:
            raise TypeError(f"X must be a table of rows; got a {type(X).__name__}.")
        rows = rows.reshape(len(rows), -1)
        if rows.shape[1] <= _WIDE or rows.dtype.kind not in "biuf":
            return [_numbers(column) for column in rows.T]
        X = np.nan_to_num(rows.astype(np.float64), nan=_GAP)
    return list((X @ np.random.default_rng(1).normal(size=(X.shape[1], _PROJECTED))).T)


def _numbers(column: NDArray[Any]) -> FloatArray:
    """Numbers as they are, dates as microseconds, and of anything else a hash of its text."""
    if column.dtype.kind in "mM":
        micro = column.astype(f"{column.dtype.kind}8[us]").astype(np.int64)
        return np.where(np.isnat(column), np.nan, micro)
    try:
        return column.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        texts = (str(cell) for cell in column.tolist())
        return np.array([0.0 if text in GAPS else float(crc32(text.encode())) for text in texts])


def warn_of_copies(X: Any, y: FloatArray) -> None:
    """Warn if rows occur more than once, though two columns hardly repeat among different rows."""
    n = len(y)
    cells = np.floor(sketch_rows(X, y).numbers / AGREEMENT + _OFFSETS[0]).astype(np.int64) @ _MIX
    _, first = np.unique(cells, return_index=True)
    columns = [*_columns(X), *_columns(y)]
    fine = [len(np.unique(column[first])) > FINE * len(first) for column in columns]
    n_copies = n - len(first)
    if (
        len(first) >= FEWEST_KINDS
        and sum(fine) > 1
        and any(n_copies >= max(count, share * n) for count, share in FEW)
    ):
        warn(
            f"{n_copies:,} of {n:,} rows are copies of others (same inputs and target). Unless "
            "new rows are duplicated in the same way, coverage is too low, because copies of a row "
            "end up on both sides of a split. Remove duplicates before you split the data.",
            SharedRowsWarning,
        )


def refuse_seen(training: RowSketch | None, X: Any, y: Any) -> str | None:
    """Why nothing is proved if a model was trained on some of these rows; refused if on all."""
    if training is None:
        return None
    found = find_shared(training, X, y)
    why = f"{found.describe()} {SEEN_IN_TRAINING}"
    if found.all_shared:
        raise CalliperError(why)
    if not found.certain:
        return None
    warn(f"The guarantee no longer holds. {why}", SharedRowsWarning)
    return why
