"""Rows that two sets have in common: calibration rows that are training rows, and the like.

Rows are the same if inputs *and* target are. Numbers are compared to some digits of the spread of
their column, since files round and ``float32`` does; text, categories and gaps exactly. It is
tried with nine digits, then five, four and three, each on two grids half a step apart, so that
what an edge of one parts the other keeps together. Equal rows form a *cell*, with a of its rows in
the first set, b in the second, c = a + b in all.

Rows also coincide by chance, where values are few or the data hold copies. What chance does is
known, whatever the data: if the two sets are random parts of one pool then, given the sizes c of
the cells, the b's are hypergeometric. Rows put into both sets make the cells too evenly divided.
So among cells of about one size, holding C rows, B of them in the second set, the statistic is

    T = Σ b (c − b) / c,

large if all cells are divided alike. By Chernoff's bound, for every θ > 0,

    P(T ≥ t | B) ≤ exp(−θ t) Π E exp(θ b (c − b) / c) · P_θ(Σ b = B) / P(Σ b = B)

with b ~ Bin(c, B / C), P_θ the law so tilted, and P_θ(Σ b = B) at most about 1 / √(2π Var_θ Σ b).
Sizes of cells are judged apart, so that a drift between the sets, which divides cells *less*
evenly, raises no alarm. Nor does a split stratified by the inputs or by the target: what that
explains is taken from t. A bound below 10⁻⁶ is taken for certain.

That needs 24 shared rows where no others coincide. Where the values of a column hardly ever recur,
only copies coincide, and two further rules are used (see `_few_copies`), with error probability
10⁻⁶ for all pools split at random, and 2⁻¹⁰ for those that hold about ten copies of rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import bdtrc, gammaln, xlog1py, xlogy

from calliper._types import BoolArray, FloatArray, IntArray

#: Digits of the spread of a column that rows must share: exact, then ever rougher.
DIGITS = (9, 5, 4, 3)
#: The chance, at each number of digits, that is taken for none.
LEVEL = 1e-6
#: Shared rows that are noticed where only copies can coincide, and which share of the rows.
FEW, FEW_SHARE = 10, 0.01
#: Digits of all numbers of a row together that make a coincidence of fine values unlikely.
_ALL_DIGITS = 8
#: Share of the rows that is as good as all.
NEARLY_ALL = 0.99
#: Share of different values in a column that hardly ever recur.
_FINE = 0.95
#: Rows in a stratum of targets, at least; the chance at which a split seems stratified; how often
#: it is then redrawn, and how many standard deviations T must lie beyond.
_STRATUM, _SEEMS, _REDRAWN, _STANDS_OUT = 16, 0.05, 40, 4.5
#: Numbers that stand for the inputs of a row; more columns are projected.
_WIDTH = 8
#: Edges of the two grids; odd fractions, since data like to lie on even ones.
_OFFSETS = (0.3183098861837907, 0.8183098861837907)
_TILTS = np.geomspace(0.05, 5e3, 48)
_CHUNK, _SAMPLE, _LOOKED_AT = 1 << 22, 4096, 64

_Keys = NDArray[np.uint64]
_Block = NDArray[Any]
#: How many, whole or as floating-point numbers.
_Counts = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class SharedRows:
    """Which part of one set is in another, and whether that can be chance.

    Attributes
    ----------
    n_shared
        Rows of the second set that also occur in the first.
    n_rows
        Rows of the second set.
    by_chance
        About how many would be so by chance, judged by the twins within the first set.
    certain
        Whether there is more in common than chance would bring.
    all_shared
        Whether, beyond chance, all rows of the second set, or 99 % of them, are in the first.
    """

    n_shared: int
    n_rows: int
    by_chance: float = 0.0
    certain: bool = False
    all_shared: bool = False

    def describe(self, rows: str = "calibration", known: str = "training") -> str:
        """What was found, in one or two sentences; for a message.

        >>> SharedRows(n_shared=12, n_rows=100, certain=True).describe()
        '12 of 100 calibration rows are also training rows (same inputs and target).'
        """
        count = "All" if self.n_shared == self.n_rows else f"{self.n_shared:,} of"
        text = f"{count} {self.n_rows:,} {rows} rows are also {known} rows (same inputs and target)"
        if self.by_chance < 0.5:
            return f"{text}."
        chance = f"{text}; about {min(self.by_chance, self.n_shared):,.0f} may be twins by chance"
        return f"{chance}, but not all." if self.certain else f"{chance}."


def find_shared(X_a: Any, y_a: Any, X_b: Any, y_b: Any) -> SharedRows:
    """Which rows of the second set are in the first, and whether that can be chance.

    Parameters
    ----------
    X_a, X_b
        Inputs, one row each: arrays of any shape, frames, sparse matrices, tensors, lists of
        anything. Columns are compared by position.
    y_a, y_b
        Targets.

    Returns
    -------
    SharedRows
        Nothing shared if the inputs have different widths.

    Notes
    -----
    Takes O((n_a + n_b) d) time, and memory for some twenty numbers a row beside the inputs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> find_shared(X[:100], X[:100, 0], X[90:190], X[90:190, 0]).describe()
    '10 of 100 calibration rows are also training rows (same inputs and target).'
    """
    n_a, n_b = _n_rows(y_a), _n_rows(y_b)
    inputs = _encode(X_a, X_b)
    targets = _encode(y_a, y_b)
    if not n_a or not n_b or inputs is None or targets is None:
        return SharedRows(n_shared=0, n_rows=n_b)
    found = []
    for cells in _all_cells(inputs, targets, n_a):
        found.append(_judge(cells))
        if found[-1].all_shared:
            break
    return max(found, key=_weight)


def _weight(shared: SharedRows) -> tuple[bool, float]:
    return shared.certain, shared.n_shared - shared.by_chance


# ------------------------------------------------------------------------------------------------
# Chance


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Groups of equal rows: the cell of each row, and how many rows of each set a cell holds."""

    of_row: IntArray
    n_a: int
    #: Digits that rows of a cell share, all numbers together.
    digits: int
    #: Cells with the same inputs, and cells with the same target.
    alike: tuple[IntArray, IntArray]
    #: Whether a column of the inputs, and of the targets, hardly ever repeats a value.
    fine: tuple[bool, bool]
    a: IntArray = field(init=False)
    b: IntArray = field(init=False)

    def __post_init__(self) -> None:
        n_cells = len(self.alike[0])
        object.__setattr__(self, "a", np.bincount(self.of_row[: self.n_a], minlength=n_cells))
        object.__setattr__(self, "b", np.bincount(self.of_row[self.n_a :], minlength=n_cells))

    @property
    def c(self) -> IntArray:
        return self.a + self.b


def _judge(cells: _Cells) -> SharedRows:
    """The answer for one number of digits."""
    n_b = len(cells.of_row) - cells.n_a
    n_shared = int(cells.b[cells.a > 0].sum())
    if not n_shared:
        return SharedRows(n_shared=0, n_rows=n_b)
    by_chance = n_b * float(cells.a[cells.a > 1].sum()) / cells.n_a
    equal = np.array_equal(cells.a, cells.b)
    certain = _few_copies(cells) or _same_order(cells) or _too_even(cells)
    return SharedRows(
        n_shared=n_shared,
        n_rows=n_b,
        by_chance=by_chance,
        certain=certain,
        all_shared=certain and (equal or (n_shared >= NEARLY_ALL * n_b > 2 * by_chance)),
    )


def _few_copies(cells: _Cells) -> bool:
    """Whether rows that only a copy can explain are in both sets, rather than twice in one.

    If the pool held copies, split at random, a pair would come apart with probability 2 p q, at
    most 1/2. Either so many did that this has probability 10⁻⁶; or ten or more, and 1 % of the
    second set, did while not one pair stayed together.
    """
    if not _only_copies(cells):
        return False
    n_b = len(cells.of_row) - cells.n_a
    pairs, apart = int((cells.c == 2).sum()), int(((cells.a == 1) & (cells.b == 1)).sum())
    p = n_b / len(cells.of_row)
    enough = apart >= FEW and apart >= FEW_SHARE * n_b and cells.digits >= _ALL_DIGITS
    none_together = int(max(cells.a.max(), cells.b.max())) == 1
    by_chance = bdtrc(apart - 1, pairs, 2 * p * (1 - p)) if apart else 1.0
    return (enough and none_together) or bool(by_chance <= LEVEL)


def _only_copies(cells: _Cells) -> bool:
    """Whether rows are too finely resolved to coincide by chance.

    A column of the inputs hardly ever repeats a value; or the target hardly does, and the same
    inputs often come with different targets, so that equal inputs do not make equal targets.
    """
    inputs, target = cells.fine
    n_cells, n_inputs = len(cells.a), int(cells.alike[0].max()) + 1
    return inputs or (target and n_cells - n_inputs >= int((cells.c > 1).sum()))


def _same_order(cells: _Cells) -> bool:
    """Whether the sets are the same row by row, and rows differ enough for that to mean much."""
    of_a, of_b = cells.of_row[: cells.n_a], cells.of_row[cells.n_a :]
    if not np.array_equal(of_a, of_b):
        return False
    orders = gammaln(cells.n_a + 1) - gammaln(cells.a + 1.0).sum()
    all_orders = gammaln(2 * cells.n_a + 1) - gammaln(cells.c + 1.0).sum()
    return bool(orders - all_orders <= np.log(LEVEL))


def _too_even(cells: _Cells) -> bool:
    """Whether cells are divided more evenly between the sets than chance would divide them."""
    if not _more_even(cells.b, cells.c, LEVEL):
        return False
    by_inputs, by_target = cells.alike
    few = np.bincount(by_target, cells.c)[by_target] < _STRATUM
    by_target = np.where(few, -1, by_target) + 1  # none would stratify by a target so rare
    return _beyond_strata(cells, by_inputs) and _beyond_strata(cells, by_target)


def _beyond_strata(cells: _Cells, strata: IntArray) -> bool:
    """Whether cells are divided too evenly even if the split was stratified, as it may seem.

    It seems so if strata of several cells are divided too evenly. Then the sets must be equal,
    which no such split makes them; or T stand out from what it is if rows change sets within
    strata; or rows of one stratum coincide more often across the sets than within.
    """
    several = np.bincount(strata)[strata] > 1
    b, c = (np.bincount(strata[several], counts[several]) for counts in (cells.b, cells.c))
    if not _more_even(b, c, _SEEMS) or np.array_equal(cells.a, cells.b):
        return True
    redrawn = [_evenness(b, cells.c) for b in _redrawn(cells, strata)]
    beyond = _evenness(cells.b, cells.c) - np.mean(redrawn)
    return bool(beyond > _STANDS_OUT * np.std(redrawn)) or _across(cells, strata)


def _across(cells: _Cells, strata: IntArray) -> bool:
    """Whether rows of one small stratum coincide more often across the sets than within them."""
    small = np.bincount(strata, cells.c)[strata] < _STRATUM
    a, b, strata = cells.a[small], cells.b[small], strata[small]
    equal = np.array(_pairs(a, b), dtype=float)
    alike = np.array(_pairs(np.bincount(strata, a), np.bincount(strata, b)), dtype=float)
    if not alike.all():
        return False
    share = equal.sum() / alike.sum()
    deviation = np.sqrt(share * (1 - share) * (1 / alike).sum())
    across, within = equal / alike
    return bool(across - within > _STANDS_OUT * deviation)


def _pairs(a: _Counts, b: _Counts) -> tuple[float, float]:
    """Pairs of rows in one group: one row in each set, and both in the same."""
    return float((a * b).sum()), float((a * (a - 1) + b * (b - 1)).sum() / 2)


def _redrawn(cells: _Cells, strata: IntArray) -> Iterator[_Counts]:
    """Rows of each cell in the second set, if rows changed sets at random within strata."""
    rng, stratum = np.random.default_rng(0), strata[cells.of_row]
    in_b = (np.arange(len(stratum)) >= cells.n_a)[np.argsort(stratum, kind="stable")]
    for _ in range(_REDRAWN):
        order = np.lexsort((rng.random(len(stratum)), stratum))
        yield np.bincount(cells.of_row[order], in_b, minlength=len(cells.c))


def _evenness(b: _Counts, c: _Counts) -> float:
    return float((b * (c - b) / c).sum())


def _more_even(b: _Counts, c: _Counts, level: float) -> bool:
    """Whether T is larger than by chance of the given level, sizes of cells judged apart."""
    b, c = b[c > 1].astype(float), c[c > 1].astype(float)
    kind = np.unique(np.floor(4 * np.log2(c)), return_inverse=True)[1]
    in_b, size = np.bincount(kind, b), np.bincount(kind, c)
    apart = in_b * (size - in_b) / (size * (size - 1))
    observed = _evenness(b, c)
    if observed <= ((c - 1) * apart[kind]).sum():
        return False
    return bool(_log_bound(observed, b, c, kind) <= np.log(level))


def _log_bound(observed: float, b: _Counts, c: _Counts, kind: IntArray) -> float:
    """Logarithm of the bound on P(T ≥ observed), given how many rows of each kind are in b."""
    in_b, size = np.bincount(kind, b), np.bincount(kind, c)
    sizes, first, count = np.unique(c, return_index=True, return_counts=True)
    kind = kind[first]
    law = _Law(sizes, (in_b / size)[kind])
    given = _log_binomial(in_b, size, in_b / size).sum()
    bounds = []
    for tilt in _TILTS:
        log_mean, variance = law.tilted(tilt)
        spread = 2 * np.pi * np.bincount(kind, count * variance)
        log_mode = -0.5 * np.log(np.maximum(spread, 1.0)).sum()
        bounds.append(count @ log_mean - tilt * observed + log_mode - given)
    return float(min(bounds))


class _Law:
    """b ~ Bin(c, p) for several c and p, and its law tilted by exp(θ b (c − b) / c)."""

    def __init__(self, c: FloatArray, p: FloatArray) -> None:
        length = c.astype(np.intp) + 1
        self.start = np.cumsum(length) - length
        self.length = length
        self.b = np.arange(length.sum()) - np.repeat(self.start, length).astype(float)
        n = np.repeat(c, length)
        self.statistic = self.b * (n - self.b) / n
        self.log_weight = _log_binomial(self.b, n, np.repeat(p, length))

    def tilted(self, tilt: float) -> tuple[FloatArray, FloatArray]:
        """Logarithm of E exp(θ b (c − b) / c), and the variance of b in the tilted law."""
        log_weight = self.log_weight + tilt * self.statistic
        top = np.maximum.reduceat(log_weight, self.start)
        weight = np.exp(log_weight - np.repeat(top, self.length))
        total = np.add.reduceat(weight, self.start)
        mean = np.add.reduceat(weight * self.b, self.start) / total
        deviation = self.b - np.repeat(mean, self.length)
        return top + np.log(total), np.add.reduceat(weight * deviation**2, self.start) / total


def _log_binomial(k: _Counts, n: _Counts, p: FloatArray) -> FloatArray:
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    log_p: FloatArray = ways + xlogy(k, p) + xlog1py(n - k, -p)
    return log_p


# ------------------------------------------------------------------------------------------------
# Cells


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Rows of both sets, one after the other, as a few numbers each."""

    #: What must be equal exactly: text, categories, gaps.
    exact: _Keys
    #: Numbers, in units of the spread of their column.
    numbers: FloatArray
    #: Whether a column hardly ever repeats a value.
    fine: bool

    def keys(self, digits: int, offset: float, seed: int = 1) -> _Keys:
        """One number for each row, the same for rows of one cell of the grid."""
        keys = _mixed(self.exact + np.uint64(seed))
        for column in self.numbers.T:
            steps = np.floor(column * 10.0**digits + offset)
            cell = np.clip(steps, -(2.0**62), 2.0**62).astype(np.int64).view(np.uint64)
            keys = _mixed(keys ^ _mixed(cell))
        return keys


def _all_cells(inputs: _Rows, targets: _Rows, n_a: int) -> Iterator[_Cells]:
    """Cells at each number of digits that makes a difference."""
    fine, n_cells = (inputs.fine, targets.fine), 0
    for digits in DIGITS:
        x, y = ([rows.keys(digits, offset) for offset in _OFFSETS] for rows in (inputs, targets))
        both = [_mixed(_x ^ _mixed(_y)) for _x, _y in zip(x, y, strict=True)]
        of_row = _linked(*both)
        first = np.unique(of_row, return_index=True)[1]
        if len(first) == n_cells:
            continue
        n_cells = len(first)
        alike = (_labels(x[0][first]), _labels(y[0][first]))
        shared_digits = digits * (1 + max(inputs.numbers.shape[1], 1))
        yield _Cells(of_row=of_row, n_a=n_a, digits=shared_digits, alike=alike, fine=fine)


def _linked(keys: _Keys, others: _Keys) -> IntArray:
    """Labels of the rows, the same for rows that share either key."""
    left, right = _labels(keys), _labels(others)
    n_left, n = int(left.max()) + 1, len(keys)
    size = n_left + int(right.max()) + 1
    graph = sparse.coo_array((np.ones(n, dtype=bool), (left, n_left + right)), shape=(size, size))
    of_node = connected_components(graph, directed=False)[1]
    return np.asarray(of_node[left], dtype=np.intp)


def _labels(keys: _Keys) -> IntArray:
    return np.unique(keys, return_inverse=True)[1].astype(np.intp)


def _mixed(keys: _Keys) -> _Keys:
    """Numbers that look like chance, different for different numbers (splitmix64)."""
    keys = keys + np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


# ------------------------------------------------------------------------------------------------
# From anything to rows


def _encode(a: Any, b: Any) -> _Rows | None:
    """Both sets as one; None if they have different widths."""
    if sparse.issparse(a) or sparse.issparse(b):
        return _encode_sparse(a, b)
    pairs = _paired(_blocks(a), _blocks(b))
    if pairs is None:
        return None
    n = sum(map(len, pairs[0])) if pairs else _n_rows(a) + _n_rows(b)
    exact, numbers = np.zeros(n, dtype=np.uint64), list[tuple[_Block, _Block]]()
    fine = False
    for place, pair in enumerate(pairs):
        if not all(block.dtype.kind in "biuf" for block in pair):
            codes, column = _coded(*pair)
            exact = _mixed(exact + np.uint64(place)) ^ _mixed(codes)
            pair = (column[: len(pair[0])], column[len(pair[0]) :])
            fine = fine or _is_fine(codes[: len(pair[0]), None])
        fine = fine or _is_fine(pair[0])
        numbers.append(pair)
    values, gaps = _numbers(numbers, n)
    return _Rows(exact=exact + gaps, numbers=values, fine=fine)


def _encode_sparse(a: Any, b: Any) -> _Rows | None:
    if a.shape[1] != b.shape[1]:
        return None
    both = sparse.vstack([sparse.csr_array(a), sparse.csr_array(b)]).astype(np.float64).tocsr()
    if both.shape[1] <= _LOOKED_AT and both.shape[0] * both.shape[1] <= 8 * _CHUNK:
        dense = both.toarray()
        return _encode(dense[: a.shape[0]], dense[a.shape[0] :])
    both.data = np.where(np.isfinite(both.data), both.data, -np.e)
    largest = abs(both).max(axis=0).toarray().ravel()
    sketch = both @ (_weights(both.shape[1]) / np.where(largest > 0, largest, 1.0)[:, None])
    exact = np.zeros(both.shape[0], dtype=np.uint64)
    return _Rows(exact=exact, numbers=_scaled(sketch), fine=False)


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _blocks(X: Any) -> list[_Block]:
    """Columns of a frame, or the whole of an array of numbers, or the columns of another."""
    if hasattr(X, "iter_columns"):  # polars
        return [_array(column) for column in X.iter_columns()]
    if hasattr(X, "itercolumns"):  # pyarrow
        return [_array(column) for column in X.itercolumns()]
    if isinstance(X, Mapping) or (hasattr(X, "columns") and hasattr(X, "items")):
        return [_array(column) for _, column in X.items()]
    return [_array(X)]


def _array(X: Any) -> _Block:
    """An array of two dimensions, or of objects where the rows are no numbers."""
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths
        array = np.fromiter(map(repr, X), dtype=object, count=len(X))
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)


def _paired(a: list[_Block], b: list[_Block]) -> list[tuple[_Block, _Block]] | None:
    """Blocks that belong together by position; None if the widths differ."""
    if sum(block.shape[1] for block in a) != sum(block.shape[1] for block in b):
        return None
    alike = [block.shape[1] for block in a] == [block.shape[1] for block in b]
    if not alike or any(block.dtype.kind not in "biuf" for block in [*a, *b]):
        a, b = _columns(a), _columns(b)
    return list(zip(a, b, strict=True))


def _columns(blocks: list[_Block]) -> list[_Block]:
    return [block[:, [j]] for block in blocks for j in range(block.shape[1])]


def _coded(a: _Block, b: _Block) -> tuple[_Keys, FloatArray]:
    """A column that is not all numbers: codes of what is text, and what is a number or a date."""
    n = len(a) + len(b)
    no_codes, no_numbers = np.zeros(n, dtype=np.uint64), np.empty((n, 0))
    if {a.dtype.kind, b.dtype.kind} == {"M"} or {a.dtype.kind, b.dtype.kind} == {"m"}:
        return no_codes, np.concatenate([_instants(a), _instants(b)])
    values = [_plain(value) for value in [*_listed(a), *_listed(b)]]
    if all(isinstance(value, Real) for value in values if value is not None):
        floats = np.array(
            [np.nan if value is None else value for value in values], dtype=np.float64
        )
        return no_codes, floats[:, None]
    known: dict[Hashable, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    return np.array(codes, dtype=np.uint64), no_numbers


def _instants(block: _Block) -> FloatArray:
    """Dates or durations in microseconds."""
    instants = block.astype(f"{block.dtype.kind}8[us]")
    return np.where(np.isnat(instants), np.nan, instants.astype(np.int64).astype(np.float64))


def _listed(block: _Block) -> Sequence[Any]:
    if block.dtype.kind in "Mm":
        block = block.astype(f"{block.dtype.kind}8[us]")
    values: list[Any] = block.ravel().tolist()
    return values


def _plain(value: Any) -> Hashable:
    """A value that can be looked up; None for all kinds of gap."""
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return value if isinstance(value, Hashable) else repr(value)


def _is_fine(block: _Block) -> bool:
    """Whether a column hardly ever repeats a value; of very many columns some are looked at."""
    columns = block[:, :: block.shape[1] // _LOOKED_AT + 1].T
    return any(_differ(column[:1000]) and _differ(column) for column in columns)


def _differ(values: _Block) -> bool:
    return len(np.unique(values)) >= _FINE * len(values)


def _numbers(pairs: list[tuple[_Block, _Block]], n: int) -> tuple[FloatArray, _Keys]:
    """All numbers in units of their spread, projected if they are many; and keys of the gaps."""
    width = sum(block.shape[1] for block, _ in pairs)
    numbers, gaps = np.zeros((n, min(width, _WIDTH))), np.zeros(n, dtype=np.uint64)
    weights = _weights(width)
    done = 0
    for chunk in _chunks(pairs):
        gaps += _gaps(chunk, done)
        part = weights[done : done + chunk.shape[1]]
        numbers += _scaled(chunk) @ part
        done += chunk.shape[1]
    return (numbers if width <= _WIDTH else _scaled(numbers)), gaps


def _weights(width: int) -> FloatArray:
    """Weights of the projection; none if there is no need."""
    if width <= _WIDTH:
        return np.eye(width)
    return np.random.default_rng(0).standard_normal((width, _WIDTH))


def _chunks(pairs: list[tuple[_Block, _Block]]) -> Iterator[FloatArray]:
    """Columns of both sets, some at a time."""
    for a, b in pairs:
        step = _CHUNK // max(len(a) + len(b), 1) + 1
        for j in range(0, a.shape[1], step):
            parts = [block[:, j : j + step].astype(np.float64) for block in (a, b)]
            yield np.concatenate(parts)


def _gaps(chunk: FloatArray, done: int) -> _Keys:
    """Keys of which numbers are missing or infinite; these become the least of their column."""
    infinite: BoolArray = ~np.isfinite(chunk)
    keys = np.zeros(len(chunk), dtype=np.uint64)
    for j in np.flatnonzero(infinite.any(axis=0)):
        column, rows = chunk[:, j], infinite[:, j]
        sign = np.nan_to_num(column[rows], nan=2.0, posinf=3.0, neginf=4.0).astype(np.uint64)
        keys[rows] += _mixed(sign + np.uint64(8 * (done + j)))
        column[rows] = column[~rows].min() if not rows.all() else 0.0
    return keys


def _scaled(chunk: FloatArray) -> FloatArray:
    """Columns in units of their spread, or of a tenth of their size where they hardly spread."""
    looked_at = chunk[:: len(chunk) // _SAMPLE + 1]
    low, high = np.percentile(looked_at, [5, 95], axis=0) if chunk.size else np.zeros((2, 0))
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(high > low, high - low, np.ptp(chunk, axis=0))
        unit = np.maximum(spread, np.maximum(np.abs(low), np.abs(high)) / 10)
        return np.asarray(np.nan_to_num((chunk - low) / np.where(unit > 0, unit, 1.0)))
