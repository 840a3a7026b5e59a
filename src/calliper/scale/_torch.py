"""Exact neighbours on a torch device: tiles of rounded distances propose, double precision decides.

One matrix product gives ‖z̃‖² − 2x̃·z̃ of a strip of queries and all points, where ˜ is rounding to
the ten bits that tensor cores multiply (TF32). Each row then has some candidates, whose distances
are summed in double precision, coordinate by coordinate, in the same order as in ``_search.py``, so
that ties are the same to the last bit. Rows are rounded here and not by the device: products of
ten bits are exact in every mode of it, and how far each row was moved, ε, is known. With τ for the
rounding of sums,

    | d(x, z) − √D | ≤ ε_x + ε_z,    | D − D̃ | ≤ τ (‖x̃‖² + ‖z̃‖²),    D = ‖x̃ − z̃‖²,

so the last candidate's D̃ bounds the distance of every other point. Where that does not suffice, the
row is searched again with products in double precision, and, where there are more copies than
candidates, compared with all points directly.

A tile is read once. Only the minima of its blocks of columns are sorted: the k smallest entries lie
in the k blocks of smallest minima. They serve the reverse search too: points are kept in the order
of their reach, so that a block has about one reach, and entries are compared with their own only in
blocks whose minimum is below it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, reduce
from threading import Lock
from typing import Any

import numpy as np

from calliper._blocks import row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels import EUCLIDEAN, FARTHEST, ORDINARY, TIED_SHELL, Pairs, Search
from calliper.quantile import power_of_two
from calliper.scale._device import DeviceRows, Tensor, import_torch, to_columns

torch = import_torch()

#: Entries of a tile, and rows whose candidates are compared at a time.
TILE = {"cuda": 1 << 31, "cpu": 1 << 23}
BATCH = 1 << 16

#: Columns that share a minimum.
BLOCK = 128

#: Pairs whose distances are summed at a time.
PAIRS_AT_ONCE = 1 << 24

#: Queries down and points across, in :func:`squared_distances`.
BY_ROW = (slice(None), None)

#: Held while the precision of products, a setting of the whole process, is changed.
_PRECISION = Lock()

#: Largest relative change of a number by rounding to ten bits, by way of single precision.
TEN_BITS = 2.0**-11 * (1 + 2.0**-10)


class Strips:
    """How many queries at a time: as many as a tile has room for.

    Attributes
    ----------
    entries : of a tile; fewer once memory has run out
    """

    def __init__(self, device: str) -> None:
        self.device, self.entries = device, TILE["cpu" if device == "cpu" else "cuda"]

    def of(self, work: Callable[[slice], Any], m: int, row_entries: int) -> Iterator[Any]:
        """``work`` on strips of m queries, halved where memory runs out."""
        start = 0
        while start < m:
            size = max(1, min(m, self.entries // row_entries))
            try:
                done = work(slice(start, min(start + size, m)))
            except torch.cuda.OutOfMemoryError as error:
                if size == 1:
                    raise CalliperError(
                        f"{self.device} has no memory left for one row of {row_entries:,} "
                        f"distances: free some memory, or calibrate on fewer points."
                    ) from error
                self.entries = size // 2 * row_entries
                torch.cuda.empty_cache()
                continue
            yield done
            start += size


class TorchSearch(Search):
    """The points of a calibration set on a device.

    Parameters
    ----------
    rows : (N, d) there
    """

    def __init__(self, rows: DeviceRows) -> None:
        self.metric, self.rows, self.device = EUCLIDEAN, rows, rows.device
        largest = power_of_two(np.array(rows.ends()))
        self.unit = 1.0 if ORDINARY[0] < largest < ORDINARY[1] else largest
        self.strips = Strips(self.device)
        self._order: Tensor = None
        self._tiles: dict[Any, Tiles] = {}

    def __reduce__(self) -> Any:
        """The rows: all else is quickly made again."""
        return type(self), (self.rows,)

    @cached_property
    def columns(self) -> Tensor:
        """(d, N) in the unit of the search."""
        return self._scaled(self.rows)

    @cached_property
    def points(self) -> FloatArray:  # type: ignore[override]
        """(N, d) in main memory, where points by the thousand share a place."""
        return np.ascontiguousarray(self.columns.T.cpu().numpy())

    def scaled(self, rows: Any) -> FloatArray:
        """Rows in the unit of the search, in main memory."""
        return super().scaled(np.asarray(rows))

    def _scaled(self, rows: Any) -> Tensor:
        columns = to_columns(rows, self.device)
        if self.unit == 1:
            return columns
        return (columns / self.unit).clamp(-ORDINARY[1], ORDINARY[1])

    def nearest(self, queries: Any, n: int) -> tuple[IntArray, BoolArray]:
        return self._search(self._scaled(queries), n)[:2]

    def nearest_others(self, n: int) -> tuple[IntArray, BoolArray]:
        if n == 0:
            return np.empty((len(self.rows), 0), dtype=np.intp), np.zeros(len(self.rows), bool)
        return self._search(self.columns, n, torch.arange(len(self.rows), device=self.device))[:2]

    def others_of(self, points: IntArray, n: int) -> tuple[IntArray, BoolArray]:
        own = torch.as_tensor(points, device=self.device)
        return self._search(self.columns[:, own], n, own)[:2]

    def around(
        self, queries: Any, n: int, reach: FloatArray
    ) -> tuple[tuple[IntArray, BoolArray], Pairs]:
        """Both from the same tiles."""
        near, tied, pairs = self._search(self._scaled(queries), n, reach=reach)
        return (near, tied), pairs

    def balls_containing(self, queries: Any, reach: FloatArray) -> Pairs:
        return self._search(self._scaled(queries), 1, reach=reach)[2]

    def shell(
        self, rows: Any, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """As :meth:`Search.shell`."""
        x, k = to_columns(rows, self.device), min(n + TIED_SHELL, len(self.rows))
        own = None if left_out is None else torch.as_tensor(left_out, device=self.device)

        def one_batch(batch: slice) -> tuple[Tensor, ...]:
            ours = _some(own, batch)
            near, distance, outside, _ = self._candidates(x[:, batch], k, ours, torch.float64)
            return near, distance, distance[:, n - 1] < outside

        near, distance, inside = _joined(map(one_batch, row_slices(x.shape[1], BATCH)))
        return near, distance, inside

    def distance_to(self, neighbor: IntArray, points: IntArray | None = None) -> FloatArray:
        own = np.arange(len(self.rows)) if points is None else points
        return np.asarray(self._paired(self.columns, own, neighbor).cpu().numpy())

    def select(self, *merged: Any) -> FloatArray:
        """On the device, unless there are weights: the host would take as long as the search."""
        *given, ranks, shares = merged
        if shares is not None:
            return super().select(*merged)
        there = Merged(*(torch.as_tensor(each, device=self.device) for each in given))
        return np.stack([there.ranked(rank).cpu().numpy() for rank in ranks], axis=1)

    def _search(
        self, x: Tensor, n: int, own: Tensor = None, reach: FloatArray | None = None
    ) -> tuple[IntArray, BoolArray, Pairs]:
        """The n nearest, where the last place is tied, and balls that contain x, (d, m).

        ``own`` (m,) names a point that does not count for each.
        """
        balls = None if reach is None else self._balls(reach)

        def one_batch(batch: slice) -> tuple[Tensor, ...]:
            near, tied, pairs, edge = self._one_batch(x[:, batch], n, _some(own, batch), balls)
            pairs[:, 0] += batch.start
            return near, tied, pairs, edge

        batches = row_slices(x.shape[1], max(1, min(BATCH, PAIRS_AT_ONCE // (2 * n))))
        near, tied, pairs, edge = _joined(map(one_batch, batches))
        return near, tied, (*np.ascontiguousarray(pairs.T), edge)

    def _one_batch(self, x: Tensor, n: int, own: Tensor, balls: Tensor) -> tuple[Tensor, ...]:
        """Neighbours (m, n), ties (m,), pairs (p, 2) inside balls, and which are at the edge."""
        most = len(self.rows) - (own is not None)
        k, exact = min(n + 6 + n // 4, most), torch.float64
        first = torch.float32 if self._tile(torch.float32).takes(x) else exact
        near, distance, outside, pairs = self._candidates(x, k, own, first, balls)
        near, tied, sure = _settled(near, distance, outside, n)
        left = torch.nonzero(~sure)[:, 0]
        for wider in (min(n + TIED_SHELL, most), None):
            if len(left):
                ours, directly = _some(own, left), wider is None
                again = self._candidates(x[:, left], wider or n + 1, ours, exact, directly=directly)
                near[left], tied[left], sure = _settled(*again[:3], n)
                left = left[~sure]
        if own is None:  # in the order of the points
            near[:, :-1] = near[:, :-1].sort(dim=1).values
        distance = self._paired(x, *pairs.T)
        reach = distance if balls is None else balls[pairs[:, 1]]
        inside = distance <= reach
        return near, tied, pairs[inside], (distance == reach)[inside]

    def _candidates(
        self,
        x: Tensor,
        k: int,
        own: Tensor,
        dtype: Any,
        balls: Any = None,
        *,
        directly: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Some k of the nearest, their distances in order, what all others exceed, and pairs.

        Pairs (p, 2) of a query and a point are all that may be in a ball, if ``balls`` are given.
        Otherwise, all points may be compared ``directly``.
        """
        tiles, k = self._tile(dtype), min(k + (own is not None), len(self.rows))

        def one_strip(rows: slice) -> tuple[Tensor, ...]:
            if directly:
                distance = squared_distances(x[:, rows], BY_ROW, self.columns, slice(None))
                near = distance.topk(k, largest=False).indices
                return near, torch.full_like(x[0, rows], torch.inf), near[:0, :2]
            near, outside, pairs = tiles.strip(x[:, rows], k, balls)
            pairs[:, 0] += rows.start
            return near, outside, pairs

        width = len(self.rows) * (8 if directly else dtype.itemsize // 4)
        strips = self.strips.of(one_strip, x.shape[1], width)
        near, outside, pairs = map(torch.cat, zip(*strips, strict=True))
        distance = squared_distances(x, BY_ROW, self.columns, near)
        if own is not None:
            distance[near == own[:, None]] = torch.inf
        distance, order = distance.sort(dim=1, stable=True)
        return near.gather(1, order), distance, outside, pairs

    def _paired(self, x: Tensor, row: Any, point: Any) -> Tensor:
        """Squared distances of some queries to one point each, (p,)."""
        row, point = (torch.as_tensor(each, device=self.device) for each in (row, point))
        parts = row_slices(len(row), PAIRS_AT_ONCE) or [slice(0)]
        return torch.cat([squared_distances(x, row[p], self.columns, point[p]) for p in parts])

    def _balls(self, reach: FloatArray) -> Tensor:
        """Reaches on the device; the first that are seen decide the order of the columns."""
        balls = torch.as_tensor(reach, device=self.device)
        if self._order is None:
            self._order, self._tiles = balls.argsort(), {}
        return balls

    def _tile(self, dtype: Any) -> "Tiles":
        if dtype not in self._tiles:
            self._tiles[dtype] = Tiles(self.columns, dtype, self._order)
        return self._tiles[dtype]


class Tiles:
    """Points, rounded, and what is known of their rounding; in blocks of columns.

    Parameters
    ----------
    columns : (d, N) points
    dtype : float32 for ten bits of each number, float64 for all
    order : (N,) in which they are kept, or None for their own
    """

    def __init__(self, columns: Tensor, dtype: Any, order: Tensor) -> None:
        (d, n), device = columns.shape, columns.device
        self.dtype, self.single = dtype, dtype == torch.float32
        self.block = BLOCK if n >= 8 * BLOCK else 1
        self.n_blocks = n if self.block == 1 else -(-n // (8 * self.block)) * 8
        # Members of a block stand apart, so that minima are taken along whole lines of a tile.
        rank = torch.arange(n, device=device)
        column = rank % self.block * self.n_blocks + rank // self.block
        order = rank if order is None else order
        padded = self.block * self.n_blocks
        self.point, self.column_of = (
            torch.zeros(size, dtype=torch.long, device=device) for size in (padded, n)
        )
        self.point[column], self.column_of[order] = order, column
        self.centre = columns.mean(dim=1, keepdim=True)
        ends = torch.aminmax(columns - self.centre)
        largest = power_of_two(np.array([float(end) for end in ends]))
        self.unit = largest if self.single else 1.0
        info = torch.finfo(dtype)
        self.tau, self.tiny = 4 * (d + 4) * info.eps, (d + 4) * info.tiny
        # Tensor cores are fastest where both factors have their rows in one piece.
        self.right = torch.zeros(padded, d, dtype=dtype, device=device)
        bias = torch.full((padded,), torch.inf, dtype=torch.float64, device=device)
        self.moved = torch.zeros(padded, dtype=torch.float64, device=device)
        for rows in row_slices(n, 1 << 17):
            column_of = self.column_of[rows]
            rounded, bias[column_of], self.moved[column_of] = self._round(columns[:, rows])
            self.right[column_of] = rounded.mul_(-2).T
        self.bias, self.most_moved = bias.to(dtype), float(self.moved.max())
        self.slack = torch.where(torch.isinf(bias), 0.0, self.tau * bias)

    def takes(self, x: Tensor) -> bool:
        """Whether no query is so far that single precision would overflow."""
        far = (x - self.centre).abs_().amax() > FARTHEST * self.unit
        return not (self.single and bool(far))

    def _round(self, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rounded columns, their squared norms, and how far each was moved at most."""
        exact = (columns - self.centre) / self.unit
        rounded = to_ten_bits(exact.float()) if self.single else exact
        norm = rounded.double().square().sum(dim=0)
        moved = (exact - rounded).square_().sum(dim=0).sqrt_()
        # Centring rounds, too, and numbers below the smallest may become zero.
        return rounded, norm, moved + 1e-15 * norm.sqrt() + self.tiny

    def strip(self, x: Tensor, k: int, balls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates of each query, what the squared distances of all others exceed, and pairs.

        Peak memory is one entry for each query and point, and a hundredth of that.
        """
        rounded, norm, moved = self._round(x)
        with full_speed(x.device.type):
            tile = torch.addmm(self.bias, rounded.T.contiguous(), self.right.T)
        blocks = tile.view(len(tile), self.block, self.n_blocks)
        minima = blocks.amin(dim=1)
        column, last = self._smallest(tile, blocks, minima, k)
        outside = self._beyond(last, norm, moved)
        if k == len(self.column_of):
            outside.fill_(torch.inf)
        pairs = torch.empty(0, 2, dtype=torch.long, device=x.device)
        if balls is not None:
            pairs = self._entered(blocks, minima, norm, moved, balls)
        return self.point[column], outside, pairs

    def _smallest(
        self, tile: Tensor, blocks: Tensor, minima: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Columns of the k smallest entries of each row, and the largest of these."""
        if minima.shape[1] < 2 * k:
            value, column = tile.topk(k, largest=False, sorted=False)
            return column, value.amax(dim=1)
        block = minima.topk(k, largest=False, sorted=False).indices
        inner = blocks[torch.arange(len(tile), device=tile.device)[:, None], :, block]
        value, column_of = inner.flatten(1).topk(k, largest=False, sorted=False)
        column = block.gather(1, column_of // self.block) + column_of % self.block * self.n_blocks
        return column, value.amax(dim=1)

    def _beyond(self, last: Tensor, norm: Tensor, moved: Tensor) -> Tensor:
        """What the squared distance exceeds of every point whose entry is at least ``last``."""
        # ‖z̃‖ ≤ ‖x̃‖ + √D bounds the rounding of a point that is not known.
        least = (last + norm - 3 * self.tau * norm - self.tiny) / (1 + 2 * self.tau)
        root = least.clamp_(min=0).sqrt_()
        by_size = TEN_BITS * (norm.sqrt() + root) + self.tiny
        other = by_size.clamp(max=self.most_moved) if self.single else self.most_moved
        bound = (root - moved - other).clamp_(min=0) * self.unit
        return bound.square_() * (1 - 1e-12)

    def _entered(
        self, blocks: Tensor, minima: Tensor, norm: Tensor, moved: Tensor, reach: Tensor
    ) -> Tensor:
        """Pairs (p, 2) of a query and a point in whose ball it may be."""
        radius = self.moved.clone()
        radius[self.column_of] += reach.sqrt() * ((1 + 1e-12) / self.unit)
        radius, slack = (each.view(self.block, -1).T for each in (radius, self.slack))
        level = (self.tau - 1) * norm + self.tiny + moved.square()
        largest, most = radius.amax(dim=1), slack.amax(dim=1)
        # (r + ε)² + τ‖z̃‖² − (1 − τ)‖x̃‖², of a block and of each of its points
        limit = torch.addr((largest.square() + most)[None], 2 * moved, largest) + level[:, None]
        row, block = torch.nonzero(minima <= limit, as_tuple=True)
        own = (radius[block] + moved[row, None]).square_() + slack[block]
        own += (level - moved.square())[row, None]
        hit, column_of = torch.nonzero(blocks[row, :, block] <= own, as_tuple=True)
        column = block[hit] + column_of * self.n_blocks
        return torch.stack([row[hit], self.point[column]], dim=1)


class Merged:
    """Multiples of ascending values, (m, N), which some exceptions replace; see ``select``.

    How many are at most a column's multiple does not decrease from column to column, so halving
    finds the first column at which there are enough, in twice as many as a row has exceptions.
    """

    def __init__(
        self, ordered: Tensor, factor: Tensor, row: Tensor, position: Tensor, value: Tensor
    ) -> None:
        self.ordered, self.factor, self.row, self.position = ordered, factor, row, position
        by_value = value.argsort()
        self.value = value[by_value[row[by_value].argsort(stable=True)]]
        self.count = torch.bincount(row, minlength=len(factor))
        self.start = self.count.cumsum(0) - self.count

    def ranked(self, rank: int) -> Tensor:
        """The rank-th smallest of each row, (m,)."""
        n = len(self.ordered)
        low, high = (rank - 1 - self.count).clamp_(min=0), (rank - 1 + self.count).clamp_(max=n)
        for _ in range(int((high - low).max()).bit_length()):
            middle = (low + high) // 2
            regular, others = self._up_to(middle)
            enough, open_ = regular + others >= rank, low < high
            high = torch.where(enough & open_, middle, high)
            low = torch.where(~enough & open_, middle + 1, low)
        regular, _ = self._up_to(low - 1)
        # Of the exceptions beyond the column before, the one that would be the rank-th of all.
        entry = rank - 1 - regular
        inside = entry < self.count
        padded = torch.cat([self.value, self.value.new_full((1,), torch.inf)])
        exception = padded[torch.where(inside, self.start + entry, len(self.value))]
        return torch.minimum(exception, self._multiple(low))

    def _multiple(self, column: Tensor) -> Tensor:
        """Those of one column for each row; infinite beyond the last, −∞ before the first."""
        value = self.ordered[column.clamp(0, len(self.ordered) - 1)]
        # An infinite rescaled score stays infinite even where the local scale is zero.
        value = torch.where(torch.isinf(value), value, value * self.factor)
        value = torch.where(column < 0, -torch.inf, value)
        return torch.where(column < len(self.ordered), value, torch.inf)

    def _up_to(self, column: Tensor) -> tuple[Tensor, Tensor]:
        """How many regular multiples, and exceptions, are at most that of the column, (m,) each."""
        multiple, none = self._multiple(column), torch.zeros_like(self.count)
        others = none.index_add(0, self.row, (self.value <= multiple[self.row]).long())
        taken = none.index_add(0, self.row, (self.position <= column[self.row]).long())
        return column.clamp(max=len(self.ordered) - 1) + 1 - taken, others


def squared_distances(x: Tensor, row: Any, points: Tensor, point: Any) -> Tensor:
    """Squared distances of queries (d, m) to points (d, N), summed one column after another.

    ``row`` and ``point`` say which of them; their shapes are broadcast.
    """
    columns = zip(x, points, strict=True)
    terms = ((theirs[point] - ours[row]).square_() for ours, theirs in columns)
    return reduce(torch.Tensor.add_, terms)


def _some(own: Tensor, rows: Any) -> Tensor:
    """Some of the points that do not count, if there are any."""
    return None if own is None else own[rows]


def _joined(batches: Iterator[tuple[Tensor, ...]]) -> list[Any]:
    """The parts of all batches, joined in main memory."""
    return [torch.cat(part).cpu().numpy() for part in zip(*batches, strict=True)]


def to_ten_bits(numbers: Tensor) -> Tensor:
    """Float32 rounded to ten bits behind the leading one, in place."""
    bits = numbers.view(torch.int32)
    bits.add_(1 << 12).bitwise_and_(-(1 << 13))
    return numbers


@contextmanager
def full_speed(kind: str) -> Iterator[None]:
    """Tensor cores on CUDA, where products are exact; whole single precision elsewhere."""
    with _PRECISION:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if kind == "cuda" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def _settled(near: Tensor, distance: Tensor, outside: Tensor, n: int) -> tuple[Tensor, ...]:
    """The first n, whether the n-th is tied, and whether no point outside is as near."""
    edge = distance[:, n - 1]
    tied = torch.zeros_like(edge, dtype=torch.bool)
    for other in {max(n - 2, 0), min(n, distance.shape[1] - 1)} - {n - 1}:
        tied |= distance[:, other] == edge
    return near[:, :n].contiguous(), tied, edge < outside
