"""Rows that two sets have in common: calibration rows that are training rows, and the like.

Rows are the same if inputs *and* target are, numbers to four digits of the spread of their column,
since files round. Rows also coincide by chance, where values are few or the data hold copies. What
chance does is known: if the two sets are random parts of one pool, every way to deal the rows to
them is equally likely. So rows are dealt anew some times: if equal rows are divided between the
sets more evenly than that, by six standard deviations, it is no chance. Two rules see what this
cannot: sets that are the same but for the order of rows; and ten rows or more in common, 1 % at
least, where a column hardly ever repeats a value and no row is twice in its own set. Of pools that
hold ten copies, dealt at random, the last rule is wrong about one in 2¹⁰; wrong alarms of the
others are rarer than one in 10⁵.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from calliper._types import FloatArray, IntArray

#: Part of a column's spread to which numbers must agree.
TOLERANCE = 1e-4
#: Standard deviations beyond chance, and how often rows are dealt anew to know it.
BEYOND, N_DEALT = 6.0, 40
#: Shared rows that are noticed where only copies can coincide, at least, and their share.
FEW, FEW_SHARE = 10, 0.01
#: Share of the rows that is as good as all; share of different values that makes a column fine.
NEARLY_ALL, FINE = 0.99, 0.95
#: Kinds of rows of which no two sets hold the same number each by chance; rows of one kind that
#: are few.
_CELLS, _FEW_ROWS = 20, 8
#: Numbers that a row is projected to, and the two grids they are rounded on: what lies at an edge
#: of one does not in the other.
_PROJECTED, _OFFSETS = 3, (0.318, 0.818)
#: Columns beyond which rows are projected as they are, without units.
_WIDE = 512


@dataclass(frozen=True, kw_only=True)
class SharedRows:
    """Which part of one set is in another, and whether that can be chance.

    Attributes
    ----------
    n_shared : rows of the second set that also occur in the first
    n_rows : rows of the second set
    by_chance : about how many would be so by chance
    certain : whether there is more in common than chance would bring
    all_shared : whether, beyond chance, the second set is in the first but for 1 % of it
    """

    n_shared: int
    n_rows: int
    by_chance: float = 0.0
    certain: bool = False
    all_shared: bool = False

    def describe(self, rows: str = "calibration", known: str = "training") -> str:
        """What was found, in a sentence; for a message.

        >>> SharedRows(n_shared=12, n_rows=100, certain=True).describe()
        '12 of 100 calibration rows are also training rows (same inputs and target).'
        """
        count = "All" if self.n_shared == self.n_rows else f"{self.n_shared:,} of"
        text = f"{count} {self.n_rows:,} {rows} rows are also {known} rows (same inputs and target)"
        if self.by_chance < 0.5:
            return f"{text}."
        text += f"; about {min(self.by_chance, self.n_shared):,.0f} may be twins by chance"
        return f"{text}, but not all." if self.certain else f"{text}."


def find_shared(X_a: Any, y_a: Any, X_b: Any, y_b: Any) -> SharedRows:
    """Which rows of the second set are in the first, and whether that can be chance.

    Parameters
    ----------
    X_a, X_b : inputs, one row each: arrays of any shape, frames, sparse matrices, tensors, lists
        of anything; columns are compared by position
    y_a, y_b : targets

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> find_shared(X[:100], X[:100, 0], X[90:190], X[90:190, 0]).describe()
    '10 of 100 calibration rows are also training rows (same inputs and target).'
    """
    a, b = ([*_columns(X), *_columns(y)] for X, y in ((X_a, y_a), (X_b, y_b)))
    n_a, n_b = len(a[-1]), len(b[-1])
    if len(a) != len(b) or not n_a or not n_b:
        return SharedRows(n_shared=0, n_rows=n_b)
    numbers, fine = _sketch(a, b)
    found = [_judge(_cells(numbers, offset), n_a, fine) for offset in _OFFSETS]
    return max(found, key=lambda shared: (shared.certain, shared.n_shared))


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
    copies = fine and no_twins and n_shared >= max(FEW, FEW_SHARE * n_b)
    certain = bool(beyond or equal or copies)
    return SharedRows(
        n_shared=n_shared,
        n_rows=n_b,
        by_chance=0.0 if no_twins else by_chance,  # no sign that the pool holds copies
        certain=certain,
        all_shared=certain and n_shared >= NEARLY_ALL * n_b,
    )


def _dealt(size: IntArray, n_a: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows of each cell in either set, each time that all rows are dealt to them anew.

    Cells of one row share nothing, so they are dealt together and left out.
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
    """Σ ab/(a+b) over cells of few rows, large if all are divided alike.

    Rows put into both sets divide cells so. Large cells are left out: a stratified split does too.
    """
    size = in_a + in_b
    few = (size > 1) & (size <= _FEW_ROWS)
    return float((in_a[few] * in_b[few] / size[few]).sum())


def _cells(numbers: FloatArray, offset: float) -> IntArray:
    """The cell of each row: rows whose numbers agree up to the tolerance have the same."""
    steps = np.floor(numbers / TOLERANCE + offset) + 0.0
    rows = np.ascontiguousarray(steps).view(
        np.dtype((np.void, steps.dtype.itemsize * steps.shape[1]))
    )
    return np.unique(rows.ravel(), return_inverse=True)[1].reshape(-1)


def _sketch(a: list[NDArray[Any]], b: list[NDArray[Any]]) -> tuple[FloatArray, bool]:
    """A few numbers for each row of both sets, and whether a column hardly ever repeats a value.

    They are random projections of columns in units of their spread: rows that agree in all columns
    agree in these, and others do not.
    """
    rng = np.random.default_rng(0)
    n, n_a = len(a[-1]) + len(b[-1]), len(a[-1])
    numbers, fine = np.zeros((n, _PROJECTED)), False
    for column in _in_pairs(a, b):
        fine = fine or len(np.unique(column[:n_a])) > FINE * n_a
        numbers += np.outer(_in_units(column), rng.normal(size=_PROJECTED))
    return numbers / np.sqrt(max(len(a), 1)), fine


def _in_pairs(a: list[NDArray[Any]], b: list[NDArray[Any]]) -> Iterator[FloatArray]:
    """Columns of both sets as numbers, those of the second below those of the first."""
    for left, right in zip(a, b, strict=True):
        both = (
            [*left, *right]
            if left.dtype.kind != right.dtype.kind
            else np.concatenate([left, right])
        )
        column = np.asarray(both, dtype=object if isinstance(both, list) else None)
        try:
            yield column.astype(np.float64)
        except (TypeError, ValueError):  # text, categories, mixed: numbered as they come
            known: dict[str, int] = {}
            yield np.array([known.setdefault(str(each), len(known)) for each in column], float)


def _in_units(column: FloatArray) -> FloatArray:
    """A column in units of its spread; gaps and infinities have places of their own."""
    finite = column[np.isfinite(column)]
    low, high = np.percentile(finite, [5, 95]) if len(finite) else (0.0, 0.0)
    unit = (high - low) or float(np.ptp(finite) if len(finite) else 0.0) or 1.0
    with np.errstate(over="ignore"):
        scaled = (column - low) / unit
    return np.nan_to_num(scaled, nan=-97.3, posinf=1e9, neginf=-1e9)


def _columns(X: Any) -> list[NDArray[Any]]:
    """The columns of rows of any kind; one column of things where rows are not numbers."""
    if sparse.issparse(X):
        X = _narrowed(X)
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if hasattr(X, "columns") and hasattr(X, "shape"):
        return [_plain(np.asarray(X[name])) for name in X.columns]
    try:
        rows = np.asarray(X)
    except ValueError:  # rows of different lengths
        rows = np.array([repr(row) for row in X], dtype=object)
    rows = rows.reshape(len(rows), -1)
    if rows.shape[1] > _WIDE and rows.dtype.kind in "biuf":
        rows = _narrowed(np.nan_to_num(rows.astype(np.float64), nan=-97.3))
    return [_plain(column) for column in rows.T]


def _narrowed(rows: Any) -> Any:
    """Rows of very many numbers, projected to a few."""
    return rows @ np.random.default_rng(1).normal(size=(rows.shape[1], _PROJECTED))


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """Dates as numbers of microseconds, all else as it is."""
    if column.dtype.kind in "mM":
        gaps = np.isnat(column)
        column = column.astype(f"{column.dtype.kind}8[us]").astype(np.int64).astype(np.float64)
        column[gaps] = np.nan
    return column
