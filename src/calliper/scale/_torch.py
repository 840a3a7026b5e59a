"""Neighbours and radial weights on a torch device, as exact as in main memory.

**Neighbours.** Products of rounded rows propose, double precision decides. One matrix product gives
D̃ = ‖z̃‖² − 2x̃·z̃ + ‖x̃‖² of a strip of queries and all points, where ˜ is rounding to the ten bits
that tensor cores multiply (TF32), so that products are exact in every mode of the device. Each row
then has some candidates, whose distances are summed in double precision, coordinate by coordinate,
in the order of ``_search.py``, so that ties are the same to the last bit.
With β for the rounding of rows and τ for that of sums,

    | d(x, z) − √D | ≤ β (‖x̃‖ + ‖z̃‖),    | D − D̃ | ≤ τ (‖x̃‖² + ‖z̃‖²),    D = ‖x̃ − z̃‖²,

and ‖z̃‖ ≤ ‖x̃‖ + √D, so the last candidate's D̃ bounds the distance of every other point. Where that
does not suffice, the row is searched again with products in double precision, and, where there are
more copies than candidates, compared with all points directly.

**Radial weights.** All N thresholds of a row are solved there, and one selected. The equations are
those of ``_rbf.py``, in double precision. Exponents −d²/2l² come from one matrix product where that
is accurate to δ = 10⁻¹¹, and from direct differences where it is not. A weight is then right up to
e^±δ, a mean or scale up to e^±2δ, and the root t of k t² + A t = C, which does not decrease in C
and does not increase in k and A, up to e^±4δ. Thresholds are enlarged by ten δ: they are never too
small, and exceed those of the plain engine by less than twenty δ.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from threading import Lock
from typing import Any

import numpy as np

from calliper import kernels
from calliper._blocks import row_slices
from calliper._types import BoolArray, FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.quantile import Shares, conformal_rank, power_of_two
from calliper.scale._device import DeviceRows, Tensor, import_torch, to_columns

torch = import_torch()

#: Entries of a tile.
TILE = {"cuda": 1 << 30, "cpu": 1 << 23}
#: Rows whose candidates are compared at a time, and the most candidates of all of them.
BATCH, MOST_CANDIDATES = 1 << 16, 1 << 23
#: Columns of a tile that share a minimum: the k smallest entries lie in k blocks.
BLOCK = 128
#: Queries down and points across, in :func:`squared_distances`.
BY_ROW = (slice(None), None)
#: Held while the precision of products, a setting of the whole process, is changed.
_PRECISION = Lock()
#: Largest error of an exponent that the fast expansion of squared distances may cause.
EXPONENT_ERROR = 1e-11
#: Thresholds are enlarged by this part.
ENLARGED = 1e-10
#: Arrays of the size of a tile that are alive at a time, counting double precision twice.
ALIVE = 12


class TorchSearch(kernels.NeighborSearch):
    """The points of a calibration set, (N, d), on a device."""

    def __init__(self, rows: DeviceRows) -> None:
        self.metric, self.rows, self.device = kernels.EUCLIDEAN, rows, rows.device
        largest = power_of_two(np.array(rows.ends()))
        self.unit = 1.0 if kernels.ORDINARY[0] < largest < kernels.ORDINARY[1] else largest

    def __reduce__(self) -> Any:
        """The rows: all else is quickly made again."""
        return type(self), (self.rows,)

    @cached_property
    def columns(self) -> Tensor:
        """(d, N) in the unit of the search."""
        return self._scaled(self.rows)

    @cached_property
    def points(self) -> FloatArray:  # type: ignore[override]
        """(N, d) in main memory, for where thousands of points coincide."""
        return np.ascontiguousarray(self.columns.T.cpu().numpy())

    @cached_property
    def _tiles(self) -> "tuple[Tiles, Tiles]":
        """In ten bits, and in double precision."""
        return Tiles(self.columns, torch.float32), Tiles(self.columns, torch.float64)

    def scaled(self, rows: Any) -> FloatArray:
        """Rows in the unit of the search, in main memory."""
        return super().scaled(np.asarray(rows))

    def _scaled(self, rows: Any) -> Tensor:
        columns = to_columns(rows, self.device)
        if self.unit == 1:
            return columns
        return (columns / self.unit).clamp(-kernels.ORDINARY[1], kernels.ORDINARY[1])

    def nearest(self, queries: Any, n: int) -> tuple[IntArray, BoolArray]:
        return self._search(self._scaled(queries), n)[:2]

    def nearest_others(self, n: int) -> tuple[IntArray, BoolArray]:
        if n == 0:
            return np.empty((len(self.rows), 0), dtype=np.intp), np.zeros(len(self.rows), bool)
        return self.others_of(np.arange(len(self.rows)), n)

    def others_of(self, points: IntArray, n: int) -> tuple[IntArray, BoolArray]:
        return self._search(self.columns[:, self._there(points)], n, points)[:2]

    def extended(self, points: Any) -> None:
        """None: all points are moved to the device again."""

    def around(
        self, queries: Any, n: int, reach: FloatArray
    ) -> tuple[tuple[IntArray, BoolArray], kernels.Pairs]:
        """Both from the same tiles."""
        near, tied, pairs = self._search(self._scaled(queries), n, reach=reach)
        return (near, tied), pairs

    def balls_containing(self, queries: Any, reach: FloatArray) -> kernels.Pairs:
        return self._search(self._scaled(queries), 1, reach=reach)[2]

    def shell(
        self, rows: Any, n: int, left_out: IntArray | None = None
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """As :meth:`NeighborSearch.shell`."""

        def one_batch(x: Tensor, own: Tensor) -> tuple[Tensor, ...]:
            most, tiles = n + kernels.TIED_SHELL, self._tiles[1]
            near, distance, outside, _ = self._candidates(x, own, most, tiles)
            return near, distance, distance[:, n - 1] < outside

        x = to_columns(rows, self.device)
        near, distance, inside = self._in_batches(one_batch, x, left_out, n)
        return near, distance, inside

    def distance_to(self, neighbor: IntArray, points: IntArray | None = None) -> FloatArray:
        own = np.arange(len(self.rows)) if points is None else points
        pairs = self._there(own), self.columns, self._there(neighbor)
        return np.asarray(squared_distances(self.columns, *pairs).cpu().numpy())

    def _there(self, values: Any) -> Tensor:
        return torch.as_tensor(values, device=self.device)

    def _in_batches(
        self, work: Callable[..., tuple[Tensor, ...]], x: Tensor, own: IntArray | None, n: int
    ) -> list[Any]:
        """What ``work`` makes of queries and of what points they are, joined in main memory."""
        own_there = self._there(np.full(x.shape[1], -1) if own is None else own)
        step = max(1, min(BATCH, MOST_CANDIDATES // n))
        batches = (work(x[:, b], own_there[b]) for b in row_slices(x.shape[1], step))
        return [torch.cat(part).cpu().numpy() for part in zip(*batches, strict=True)]

    def select(self, *merged: Any) -> FloatArray:
        """On the device, unless there are weights: the host would take as long as the search."""
        *given, ranks, shares = merged
        if shares is not None:
            return super().select(*merged)
        there = Merged(*(torch.as_tensor(each, device=self.device) for each in given))
        return np.stack([there.ranked(rank).cpu().numpy() for rank in ranks], axis=1)

    def _search(
        self, x: Tensor, n: int, own: IntArray | None = None, reach: FloatArray | None = None
    ) -> tuple[IntArray, BoolArray, kernels.Pairs]:
        """The n nearest, where the last place is tied, and balls that contain x, (d, m).

        ``own`` (m,) names a point that does not count for each.
        """
        balls, begin = None if reach is None else self._there(reach), 0

        def one_batch(x: Tensor, own: Tensor) -> tuple[Tensor, ...]:
            nonlocal begin
            near, tied, pairs = self._nearest(x, own, n, balls)
            distance = squared_distances(x, pairs[:, 0], self.columns, pairs[:, 1])
            edge = distance if balls is None else balls[pairs[:, 1]]
            inside = distance <= edge
            pairs[:, 0] += begin
            begin += x.shape[1]
            return near, tied, pairs[inside], (distance == edge)[inside]

        near, tied, pairs, at_edge = self._in_batches(one_batch, x, own, n)
        if own is None:  # in the order of the points
            near[:, :-1].sort(axis=1)
        return near, tied, (*np.ascontiguousarray(pairs.T), at_edge)

    def _nearest(self, x: Tensor, own: Tensor, n: int, balls: Tensor) -> tuple[Tensor, ...]:
        """The n nearest of a batch, ties, and pairs that may be in balls; each step if needed."""
        single, double = self._tiles
        first = single if single.takes(x) else double
        near, distance, outside, pairs = self._candidates(x, own, n + 6 + n // 4, first, balls)
        near, tied, sure = _settled(near, distance, outside, n)
        for more, tiles in ((kernels.TIED_SHELL, double), (1, None)):
            left = torch.nonzero(~sure)[:, 0]
            if len(left):
                again = self._candidates(x[:, left], own[left], n + more, tiles)
                near[left], tied[left], sure[left] = _settled(*again[:3], n)
        return near, tied, pairs

    def _candidates(
        self, x: Tensor, own: Tensor, k: int, tiles: "Tiles | None", balls: Tensor = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Some k of the nearest, their distances in order, what all others exceed, and pairs.

        Pairs (p, 2) of a query and a point are all that may be in a ball, if ``balls`` are given.
        Without tiles, all points are compared directly.
        """
        k = min(k + 1, len(self.rows))  # one of them may be the query's own point

        def one_strip(rows: slice) -> tuple[Tensor, ...]:
            if tiles is None:
                distance = squared_distances(x[:, rows], BY_ROW, self.columns, slice(None))
                near = distance.topk(k, largest=False).indices
                return near, torch.full_like(x[0, rows], torch.inf), near[:0, :2]
            near, outside, pairs = tiles.strip(x[:, rows], k, balls)
            pairs[:, 0] += rows.start
            return near, outside, pairs

        width = len(self.rows) * (8 if tiles is None else tiles.dtype.itemsize // 4)
        strips = in_strips(one_strip, x.shape[1], width, self.device)
        near, outside, pairs = map(torch.cat, zip(*strips, strict=True))
        distance = squared_distances(x, BY_ROW, self.columns, near)
        distance[near == own[:, None]] = torch.inf
        distance, order = distance.sort(dim=1, stable=True)
        return near.gather(1, order), distance, outside, pairs


class Tiles:
    """Points, (d, N), rounded to ten bits of each number (float32), or whole (float64)."""

    def __init__(self, columns: Tensor, dtype: Any) -> None:
        self.dtype, self.single = dtype, dtype == torch.float32
        (d, self.n), info = columns.shape, torch.finfo(dtype)
        self.beta = 2.0**-11 * (1 + 2.0**-9) if self.single else 1e-15
        self.tau, self.tiny = 4 * (d + 4) * info.eps, (d + 4) * info.tiny
        self.centre = columns.mean(dim=1, keepdim=True)
        ends = torch.aminmax(columns - self.centre)
        self.unit = power_of_two(np.array([*map(float, ends)])) if self.single else 1.0
        rounded, self.norm = self._rounded(columns)
        padding = -self.n % BLOCK
        self.right = torch.nn.functional.pad(rounded.T.mul_(-2), (0, 0, 0, padding)).contiguous()
        self.bias = torch.nn.functional.pad(self.norm.to(dtype), (0, padding), value=torch.inf)

    def takes(self, x: Tensor) -> bool:
        """Whether no query is so far that single precision would overflow."""
        return bool((x - self.centre).abs_().amax() <= kernels.FARTHEST * self.unit)

    def _rounded(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded columns, and their squared norms."""
        exact = (columns - self.centre) / self.unit
        rounded = to_ten_bits(exact.float()) if self.single else exact
        return rounded, rounded.double().square().sum(dim=0)

    def strip(self, x: Tensor, k: int, balls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates of each query, what the squared distances of all others exceed, and pairs."""
        rounded, norm = self._rounded(x)
        with full_speed(x.device.type):
            tile = torch.addmm(self.bias, rounded.T.contiguous(), self.right.T)
        near, last = _smallest(tile, k)
        outside = self._beyond(last, norm)
        if k == self.n:
            outside.fill_(torch.inf)
        pairs = torch.empty(0, 2, dtype=torch.long, device=x.device)
        if balls is not None:
            # Who is inside a ball has ‖x̃‖ ≤ ‖z̃‖ + r, up to rounding.
            reach = balls.sqrt() * ((1 + 1e-12) / self.unit)
            moved = self.beta * (1 + 4 * self.beta) * (2 * self.norm.sqrt() + reach) + self.tiny
            most = ((reach + moved).square_() + self.tau * self.norm + self.tiny) * (1 + self.tau)
            tile += ((1 - 2 * self.tau) * norm).to(self.dtype)[:, None]
            pairs = torch.nonzero(tile[:, : self.n] <= most.to(self.dtype))
        return near, outside, pairs

    def _beyond(self, last: Tensor, norm: Tensor) -> Tensor:
        """What the squared distance exceeds of every point whose entry is at least ``last``."""
        # ‖z̃‖² ≤ 2‖x̃‖² + 2D bounds the rounding of a point that is not known.
        least = (last + norm - 3 * self.tau * norm - self.tiny) / (1 + 2 * self.tau)
        root = least.clamp_(min=0).sqrt_()
        moved = self.beta * (2 * norm.sqrt() + root) + self.tiny
        return ((root - moved).clamp_(min=0) * self.unit).square_() * (1 - 1e-12)


def in_strips(work: Callable[[slice], Any], m: int, row_entries: int, device: str) -> Iterator[Any]:
    """``work`` on strips of m queries that a tile has room for, halved where memory runs out."""
    start, size = 0, max(1, TILE["cpu" if device == "cpu" else "cuda"] // row_entries)
    while start < m:
        try:
            done = work(slice(start, min(start + size, m)))
        except torch.cuda.OutOfMemoryError as error:
            if size == 1:
                raise CalliperError(
                    f"{device} has no memory left for one row of {row_entries:,} distances: free "
                    f"some memory, or calibrate on fewer rows."
                ) from error
            size = min(size, m) // 2 or 1
            torch.cuda.empty_cache()
            continue
        yield done
        start += size


def squared_distances(x: Tensor, row: Any, points: Tensor, point: Any) -> Tensor:
    """Squared distances of queries (d, m) to points (d, N), summed one column after another.

    ``row`` and ``point`` say which of them; their shapes are broadcast.
    """
    columns = zip(x, points, strict=True)
    terms = ((theirs[point] - ours[row]).square_() for ours, theirs in columns)
    return reduce(torch.Tensor.add_, terms)


def to_ten_bits(numbers: Tensor) -> Tensor:
    """Float32 rounded to ten bits behind the leading one, in place."""
    numbers.view(torch.int32).add_(1 << 12).bitwise_and_(-(1 << 13))
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


def _smallest(tile: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Columns of the k smallest entries of each row, and the largest of these, (m,)."""
    blocks = tile.view(len(tile), -1, BLOCK)
    if blocks.shape[1] < 2 * k:
        value, column = tile.topk(k, largest=False, sorted=False)
        return column, value.amax(dim=1)
    block = blocks.amin(dim=2).topk(k, largest=False, sorted=False).indices
    inner = blocks.gather(1, block[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    value, index = inner.topk(k, largest=False, sorted=False)
    return block.gather(1, index // BLOCK) * BLOCK + index % BLOCK, value.amax(dim=1)


def _settled(near: Tensor, distance: Tensor, outside: Tensor, n: int) -> tuple[Tensor, ...]:
    """The first n, whether the n-th is tied, and whether no point outside is as near."""
    edge = distance[:, n - 1]
    tied = torch.zeros_like(edge, dtype=torch.bool)
    for other in {max(n - 2, 0), min(n, distance.shape[1] - 1)} - {n - 1}:
        tied |= distance[:, other] == edge
    return near[:, :n].contiguous(), tied, edge < outside


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


class TorchRadial:
    """Exponents −d²/2l² to points, (N, d), on a device, and weights of them; as :class:`RBF`."""

    def __init__(
        self, rows: DeviceRows, length_scale: float, smoothing: float, step: float
    ) -> None:
        self.rows, self.two_l2 = rows, 2 * length_scale**2
        self.near, self.floor = kernels.Radial.parts_of(smoothing, len(rows))
        self.side = step * length_scale if step else 0.0

    def leave_two_out(self, *given: Any) -> kernels.LeaveTwoOut:
        """Scales of the Jackknife+."""
        return LeaveTwoOutTorchRadial(self, *given)

    def bag(self, *given: Any) -> kernels.Bag:
        """Thresholds of full conformal."""
        return BagTorchRadial(self, *given[:3])

    def mean(self, magnitudes: FloatArray) -> Any:
        """Not supported on a device."""
        what = "radial weights for FullRescaled and JackknifeRescaled only"
        raise CalliperError(f"{self.rows.device} computes {what}: leave out engine=.")

    local_quantile = mean

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "points"}

    @cached_property
    def points(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Points (d, N), their mean (d, 1), points less it, and their squared norms (N,)."""
        columns = self.on_grid(self.rows)
        centre = columns.mean(dim=1, keepdim=True)
        return columns, centre, columns - centre, (columns - centre).square().sum(dim=0)

    def on_grid(self, rows: Any) -> Tensor:
        """Rows as columns, rounded to the grid if there is one."""
        columns = to_columns(rows, self.rows.device)
        if not self.side:
            return columns
        middles = torch.round(columns / self.side) * self.side
        return torch.where(middles.isfinite(), middles, columns)

    def there(self, values: FloatArray) -> Tensor:
        """An array on the device."""
        return torch.as_tensor(np.ascontiguousarray(values), device=self.rows.device)

    def exponents(self, x: Tensor, own: slice | None = None) -> Tensor:
        """(m, N) exponents of queries (d, m); −∞ at themselves if they are these points."""
        columns, centre, points, points_norm = self.points
        centred = x - centre
        norm, rounding = centred.square().sum(dim=0), 4 * (len(x) + 4) * np.finfo(float).eps
        size = float(norm.max() + points_norm.max() + centre.square().sum())
        if rounding * size <= EXPONENT_ERROR * self.two_l2:
            tile = torch.addmm(points_norm, centred.T, points, alpha=-2)
            tile += norm[:, None]
            tile.clamp_(min=0)
        else:
            tile = squared_distances(x, BY_ROW, columns, slice(None))
        tile.div_(-self.two_l2).clamp_(min=kernels.Radial.least)
        if own is not None:
            row = torch.arange(x.shape[1], device=x.device)
            tile[row, row + own.start] = -torch.inf
        return tile

    def weights(self, exponent: Tensor) -> tuple[Tensor, Tensor]:
        """Weights up to a factor of each row, and the exponent that has weight one, (m,).

        With a floor, there is no factor.
        """
        if not self.floor:
            largest = exponent.amax(dim=1)
            return torch.exp(exponent - largest[:, None]), largest
        weight = torch.exp(exponent).mul_(self.near).add_(self.floor)
        weight.masked_fill_(torch.isinf(exponent), 0.0)
        return weight, torch.zeros_like(weight[:, 0])

    def mean_of_others(self, magnitudes: FloatArray) -> FloatArray:
        """(N, 3): mean of the others, sum of their weights, and the exponent of weight one."""
        sums, columns = self.there(magnitudes), self.points[0]

        def average(rows: slice) -> Tensor:
            weight, largest = self.weights(self.exponents(columns[:, rows], rows))
            total = weight.sum(dim=1)
            return torch.stack([weight @ sums / total, total, largest], dim=1)

        return self._in_strips(average, columns.shape[1])

    def of_rows(self, rows: Any, work: Callable[[Tensor], Tensor]) -> FloatArray:
        """What ``work`` makes of the exponents of new rows, (m, N), in main memory."""
        x = self.on_grid(rows)
        return self._in_strips(lambda part: work(self.exponents(x[:, part])), x.shape[1])

    def _in_strips(self, work: Callable[[slice], Tensor], m: int) -> FloatArray:
        entries, device = ALIVE * len(self.rows), self.rows.device
        parts = in_strips(lambda rows: work(rows).cpu().numpy(), m, entries, device)
        return np.concatenate([*parts])


class BagTorchRadial(kernels.Bag):
    """Thresholds t_i with radial weights, on a device."""

    def __init__(
        self, radial: TorchRadial, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.radial, self.magnitudes, self.scores, self.offset = radial, magnitudes, scores, offset
        self.mean, self.weight, self.largest = radial.mean_of_others(magnitudes).T

    def calibration_scale(self, level: float) -> FloatArray:
        return np.asarray(self.mean + self.offset)

    def order_statistics(
        self, Z: Any, asked: Any, shares: Any = None, slope: float = 0.0, signs: Any = None
    ) -> FloatArray:
        if shares is not None or slope or signs is not None:
            return super().order_statistics(Z, asked, shares, slope, signs)
        ranks = [conformal_rank(level, len(self.scores)) for level in asked]
        solve = self._solver(0.0)
        return self.radial.of_rows(Z, lambda exponent: ranked(solve(exponent), ranks))

    def thresholds(self, Z: Any, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        return self.radial.of_rows(Z, self._solver(slope))

    def _solver(self, slope: float) -> Callable[[Tensor], Tensor]:
        """A function of exponents, (m, N), that gives thresholds, (m, N)."""
        arrays = (self.scores, self.magnitudes, self.weight, self.largest, self.mean + self.offset)
        scores, magnitudes, others, largest, scale = map(self.radial.there, arrays)
        linear = others * scale

        def solve(exponent: Tensor) -> Tensor:
            weight, _ = self.radial.weights(exponent)
            product = scores * ((weight @ magnitudes / weight.sum(dim=1)) + self.offset)[:, None]
            # A new point nearer than all others shrinks their weights instead of growing its own.
            excess = torch.sub(largest, exponent, out=weight)
            shrink = torch.exp(excess.clamp(max=0))
            entering = excess.clamp_(min=0).neg_().exp_()
            entering.mul_(self.radial.near).add_(self.radial.floor)
            total = shrink * others + entering
            rest = shrink.mul_(linear).add_(self.offset * entering)
            linear_term = rest.div_(total).sub_(slope * scores)
            found = signed_root(entering.div_(total).add_(slope), linear_term, product)
            return found.mul_(1 + ENLARGED)

        return solve


class LeaveTwoOutTorchRadial(kernels.LeaveTwoOut):
    """Radial means with one or two points left out, on a device."""

    def __init__(
        self,
        radial: TorchRadial,
        magnitudes: FloatArray,
        offset: float,
        without_one: FloatArray | None = None,
    ) -> None:
        self.radial, self.magnitudes, self.offset = radial, magnitudes, offset
        if without_one is None:
            without_one = radial.mean_of_others(magnitudes)[:, 0] + offset
        self.without_one = without_one

    def without_each(self, Z: Any) -> FloatArray:
        return self.radial.of_rows(Z, self._means)

    def order_statistics(
        self, Z: Any, asked: Sequence[Any], shares: Shares | None = None
    ) -> FloatArray:
        if shares is not None:
            return super().order_statistics(Z, asked, shares)
        rescaled = self.radial.there(self.rescaled)

        def select(exponent: Tensor) -> Tensor:
            value = self._means(exponent).mul_(rescaled)
            return ranked(value.masked_fill_(torch.isinf(rescaled), torch.inf), [*asked])

        return self.radial.of_rows(Z, select)

    def _means(self, exponent: Tensor) -> Tensor:
        """(m, N), with the offset, a little enlarged."""
        sums, (weight, _) = self.radial.there(self.magnitudes), self.radial.weights(exponent)
        weighted, row = weight * sums, torch.arange(len(weight), device=weight.device)
        heavy = weighted.argmax(dim=1), weight.argmax(dim=1)
        rest = weight.sum(dim=1)[:, None] - weight
        mean = (weighted.sum(dim=1)[:, None] - weighted).div_(rest)
        # Where a point carries most of a sum, the sum is made without it: subtracting would round.
        for left_out in heavy:
            kept = exponent[row, left_out]
            exponent[row, left_out] = -torch.inf
            others, _ = self.radial.weights(exponent)
            exponent[row, left_out] = kept
            mean[row, left_out] = (others @ sums) / others.sum(dim=1)
        return mean.add_(self.offset).mul_(1 + ENLARGED)


def ranked(values: Tensor, ranks: list[int]) -> Tensor:
    """The rank-th smallest of each row of (m, N), for each rank: (m, L)."""
    return torch.stack([values.kthvalue(rank, dim=1).values for rank in ranks], dim=1)


def positive_root(quadratic: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """As :func:`calliper.kernels.positive_root`, where quadratic > 0."""
    denominator = linear + torch.hypot(linear, (quadratic * constant).sqrt_().mul_(2))
    unbounded = torch.where((constant == 0) & (quadratic > 0), 0.0, torch.inf)
    return torch.where(denominator > 0, 2 * constant / denominator, unbounded)


def signed_root(quadratic: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """As :func:`calliper.kernels.signed_root`."""
    root = torch.hypot(linear, (quadratic * constant).sqrt_().mul_(2))
    outer = (root - linear.clamp(max=0)) / (2 * quadratic)
    return torch.where(linear < 0, outer, positive_root(quadratic, linear.clamp(min=0), constant))
