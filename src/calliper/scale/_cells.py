"""Cells: neighbours are searched in a few parts of a fixed partition of space.

An index that is built on the calibration rows treats them unlike the new one, and then nothing is
proved. A partition that is fixed beforehand treats all members of the bag alike: cells are those of
the nearest of C centres, learnt on training rows or drawn as random directions. So the cell c(x) of
a row and the P cells P(x) that it probes, those of its P nearest centres, are functions of x alone.
The candidates of member i are the other members j with c(j) ∈ P(i), and its neighbours are the K
nearest of them, exactly. The only approximation is that a nearer point may lie in a cell that was
not probed.

A row is compared with its candidates, about P·N/C of N, after C centres have told it where to look.
Rows that probe a cell are compared with its members by one matrix product around the cell's centre.
All that may be as near as the K-th nearest in the row's own cell, by the bound

    | D̃ − D | ≤ τ (‖x‖² + ‖z‖²),    ‖z‖² ≤ 2‖x‖² + 2D,

on rounding are compared again by direct differences, so that ties are exact. The reverse search,
who would count a new row among its nearest, goes by lists of the points that probe a cell.

A member with n candidates is rescaled by the mean over min(K, n) of them; where n < K, a new point
that is a candidate always enters, and is one more. A member without any is rescaled by the median
of the whole bag, g(t) = min(max(t, a), b), with a ≤ b two neighbouring order statistics of the
calibration magnitudes: the same for all members, and not decreasing in t. So there is still one
crossing t_i each. At any t the comparison is the one with the constant g(t) in its place, and
t/g(t) does not decrease: what holds with b and ends at b or beyond ends there; else what holds with
a and ends at a or before ends there; else it ends between, where g(t) = t. With constants, all is
as in ``_knn.py``, with min(K, n) in the place of K. An offset is added to every scale, and so is
slope·t where it is asked for.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from numbers import Integral
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from calliper import kernels
from calliper._blocks import BLOCK_FLOATS, CHUNK_ROWS, map_slices, row_slices
from calliper._kept import Array, Keeps, Number
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import at_least
from calliper.exceptions import CalliperError
from calliper.quantile import Shares, power_of_two, row_order_statistics, row_thresholds, with_signs
from calliper.rows import Rows

#: Training rows per cell that centres are learnt on, and rounds of learning.
LEARNT_ON, ROUNDS = 40, 8
#: Cells that there may be however few points there are.
FEW_CELLS = 64
#: Rows that are searched for together: neighbouring rows share cells.
SEARCHED = 1 << 14
#: Pairs that may be compared, so many or so many times N√N; and kept, for each row on average. How
#: many cells each row may probe, where that makes more pairs.
FEW_PAIRS, MOST_OF_ROOT, MOST_KEPT, MOST_PROBED = 1 << 22, 48, 512, 256
#: Distances near the smallest number have absolute errors, up to this.
UNDERFLOW = 1e4 * float(np.finfo(float).tiny)


class Cells(BaseEstimator):  # type: ignore[misc]
    """A partition of space, fixed before calibration, and how many of its cells are searched.

    For ``KNN(10, cells=Cells(...))`` with :class:`FullRescaled`, from some 100,000 calibration
    points with many features on; see ``docs/large-data.md`` for when it pays. Coverage is proved
    as without cells.

    Parameters
    ----------
    n_cells : int, optional
        How many cells: by default 4√n for n training rows, or for n calibration rows where
        there are no training rows.
    n_probes : int, default 16
        In how many cells, those of the nearest centres, each point looks for its neighbours. More
        find nearer neighbours and take longer.
    random_state : int, RandomState or None
        Draws the training rows that cells start from; or, without training rows, directions: a
        row is then in the cell of the direction it agrees with most. Directions know nothing of
        the data: centre the features, or better, pass training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import KNN, FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z_train, Z = rng.normal(size=(2, 400, 5))
    >>> errors = rng.exponential(size=400)
    >>> method = FullRescaled(KNN(10, cells=Cells(20, n_probes=4, random_state=0)))
    >>> method.fit(Z, errors, training=Z_train).predict_radius(Z[:2], 0.9).shape
    (2,)
    """

    def __init__(
        self, n_cells: int | None = None, *, n_probes: int = 16, random_state: Any = None
    ) -> None:
        self.n_cells = n_cells
        self.n_probes = n_probes
        self.random_state = random_state

    def fixed(self, Z_train: kernels.Known, rng: kernels.Rng | None) -> "FixedCells":
        """The partition, which depends on training rows alone."""
        at_least(self.n_probes, 1, "n_probes of Cells")
        if self.n_cells is not None:
            at_least(self.n_cells, 1, "n_cells of Cells")
        own = check_random_state(rng if self.random_state is None else self.random_state)
        centres = None if Z_train is None else self._learnt(Z_train, own)
        return FixedCells(centres, self.n_cells, int(self.n_probes), own.randint(2**31 - 1))

    def _learnt(self, Z: FloatArray, rng: kernels.Rng) -> FloatArray:
        """(C, d) centres: means of what is nearest to them."""
        n_cells = self.n_cells or number_of_cells(len(Z))
        if len(Z) < n_cells:
            raise CalliperError(
                f"{n_cells} cells need at least as many training rows; got {len(Z)}. Ask for fewer "
                f"cells, or pass more training rows."
            )
        if len(Z) > LEARNT_ON * n_cells:
            Z = Z[rng.choice(len(Z), LEARNT_ON * n_cells, replace=False)]
        middle = Z.mean(axis=0)
        unit = power_of_two(Z - middle)
        learner = KMeans(n_cells, init="random", n_init=1, max_iter=ROUNDS, random_state=rng)
        with warnings.catch_warnings():
            # Copies of rows leave fewer different centres, which are as good.
            warnings.simplefilter("ignore", ConvergenceWarning)
            learner.fit(((Z - middle) / unit).astype(np.float32))
        return np.unique(learner.cluster_centers_.astype(np.float64) * unit + middle, axis=0)


def number_of_cells(n: int) -> int:
    """4√n, and 8 rows a cell at least."""
    return max(1, min(round(4 * sqrt(n)), n // 8))


def as_cells(given: Any) -> "Cells | FixedCells | None":
    """Cells as given, or a number of them."""
    if given is None or isinstance(given, Cells | FixedCells):
        return given
    if isinstance(given, Integral) and not isinstance(given, bool):
        return Cells(int(given))
    raise TypeError(f"cells must be Cells(...), a number of cells, or None; got {given!r}.")


@dataclass(frozen=True)
class FixedCells(Keeps):
    """Centres (C, d) learnt on training rows, or None: the seed then draws directions."""

    learnt: Annotated[FloatArray | None, Array("float64", ("C", "d"), optional=True)]
    n_cells: Annotated[int | None, Number(int, 1, 2**16, optional=True)]
    n_probes: Annotated[int, Number(int, 1)]
    seed: Annotated[int, Number(int, 0, 2**31 - 1)]

    def __repr__(self) -> str:
        how = f"{self.n_cells or 'some'} random directions"
        if self.learnt is not None:
            how = f"{len(self.learnt)} cells of training rows"
        return f"{how}, {self.n_probes} probed"

    def fixed(self, Z_train: kernels.Known, rng: kernels.Rng | None) -> Self:
        """As it is: nothing else is learnt of it."""
        return self

    def bag(self, rows: Rows, *, n_neighbors: int, offset: float) -> Any:
        """Thresholds of full conformal over the nearest in these cells."""
        if not isinstance(rows.Z, np.ndarray):
            raise TypeError("cells are searched on the CPU: pass Z as an array.")
        search = CellSearch(rows.Z, self.centres(*rows.Z.shape), self.n_probes)
        return BagCells(search, rows, n_neighbors, offset)

    def centres(self, n: int, d: int) -> FloatArray:
        """(C, d) centres for n points.

        Of directions of the same length, the nearest is the one that a row agrees with most.
        """
        if self.learnt is None:
            n_cells = self.n_cells or number_of_cells(n)
            if n_cells > max(n, FEW_CELLS):
                raise CalliperError(f"{n_cells} cells are too many for {n} points.")
            drawn = np.random.RandomState(self.seed).normal(size=(n_cells, d))
            length = np.sqrt(np.square(drawn).sum(axis=1, keepdims=True))
            return np.unique(drawn / length, axis=0)
        if self.learnt.shape[1] != d:
            raise CalliperError(
                f"cells were learnt on training rows with {self.learnt.shape[1]} features; got "
                f"{d} at calibration. Pass training rows in the space of Z."
            )
        return self.learnt


@dataclass(frozen=True)
class Located:
    """Rows (m, d), the cell of each (m,), and the cells that it probes (m, P)."""

    rows: FloatArray
    cell: IntArray
    probes: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, rows: IntArray) -> "Located":
        """Some of them."""
        return Located(self.rows[rows], self.cell[rows], self.probes[rows])


@dataclass(frozen=True)
class Found:
    """The K nearest candidates of some rows.

    Attributes
    ----------
    near : (m, K) points in order of distance, −1 where there are fewer
    size : (m,) how many candidates there are
    reach : (m,) the squared distance of the K-th, infinite if there are fewer
    shells : of rows that share the last place, all candidates up to it: (row, point, at reach)
    """

    near: IntArray
    size: IntArray
    reach: FloatArray
    shells: kernels.Pairs

    def shared(self, magnitudes: FloatArray, grid: kernels.Grid) -> tuple[IntArray, Any]:
        """The rows that share the last place, and their sums over nearer and tied candidates."""
        row, point, tied = self.shells
        rows, of_row = np.unique(row, return_inverse=True)

        def total(part: BoolArray) -> FloatArray:
            values = np.where(part, magnitudes[point], 0.0)
            return grid.rounded(grid.sums(values, lambda digit: 1.0 * np.bincount(of_row, digit)))

        size = np.bincount(of_row, tied).astype(float)
        seats = self.near.shape[1] - np.bincount(of_row, ~tied)
        return rows, kernels.SharedSums(total(~tied), total(tied), seats, size)


class CellSearch:
    """Points, (N, d), in the cells of different centres, (C, d), of which each probes P."""

    def __init__(self, points: FloatArray, centres: FloatArray, n_probes: int) -> None:
        self.points, self.partition = points, kernels.NeighborSearch(centres, kernels.EUCLIDEAN)
        self.n_probes = min(n_probes, len(centres))
        largest = power_of_two(np.array([points.min(initial=0), points.max(initial=0)]))
        least, most = kernels.ORDINARY
        if not least < largest < most:
            raise CalliperError(
                f"cells need features between {least:g} and {most:g} in size; got "
                f"{largest:.3g}. Divide the features by a constant, or use KNN without cells."
            )
        most = max(FEW_PAIRS, MOST_OF_ROOT * len(points) ** 1.5)
        _refuse_many(len(points) * self.n_probes, max(FEW_PAIRS, MOST_PROBED * len(points)))
        _refuse_many(len(points) * len(centres), max(16 * FEW_PAIRS, 2 * most))
        self.centres, self.located = centres, self.locate(points)
        #: Who is in each cell, and who probes it.
        self.members = _Lists(self.located.cell[:, None], len(centres))
        self.probing = _Lists(self.located.probes, len(centres))
        self.size = np.diff(self.members.start)
        _refuse_many(self.size[self.located.probes].sum(), most)
        #: τ, which bounds the rounding of products.
        self.tau = 8 * (points.shape[1] + 4) * float(np.finfo(float).eps)

    select = staticmethod(kernels.selected)

    def locate(self, rows: FloatArray) -> Located:
        """The cells of rows; those of a row do not depend on the other rows."""
        found = [
            np.sort(self.partition.nearest(rows[part], self.n_probes)[0], axis=1).astype(np.int32)
            for part in row_slices(len(rows), CHUNK_ROWS)
        ]
        probes: Any = np.concatenate(found)

        def nearest(part: slice) -> IntArray:
            """Of centres as near as one another, the first."""
            x, named = self.partition.scaled(rows[part]), probes[part]
            every = [kernels.paired_distances(x, self.partition.points[each]) for each in named.T]
            return np.asarray(named[np.arange(len(named)), np.argmin(every, axis=0)])

        cell = np.concatenate(map_slices(nearest, row_slices(len(rows), SEARCHED)))
        return Located(rows, cell, probes)

    def nearest_others(self, k: int) -> Found:
        """The K nearest candidates of each point."""
        _refuse_many(len(self.points) * k, max(FEW_PAIRS, MOST_KEPT * len(self.points)))
        return self.nearest(self.located, k, others=True)

    def nearest(self, new: Located, k: int, *, others: bool = False) -> Found:
        """The K nearest candidates of rows; of the points themselves, the ``others``."""
        order = np.argsort(new.cell, kind="stable")

        def search(block: slice) -> tuple[Any, ...]:
            return self._nearest(new.of(order[block]), order[block], k, others)

        parts = map_slices(search, row_slices(len(order), SEARCHED))
        near, reach, row, point, tied = map(np.concatenate, zip(*parts, strict=True))
        back = np.argsort(order)
        size = self.size[new.probes].sum(axis=1) - others
        return Found(near[back], size, reach[back], (row, point, tied))

    def _nearest(self, new: Located, name: IntArray, k: int, others: bool) -> tuple[Any, ...]:
        """The same for rows that are searched together, and what they are called outside."""
        most = self._bound(new, k + others)
        row, point, distance = self._pairs(
            new, new.probes, self.members, lambda mine, _: most[mine, None]
        )
        order = np.lexsort((distance, row))
        order = order[point[order] != name[row[order]]] if others else order
        row, point, distance = row[order], point[order], distance[order]
        rank = np.arange(len(row)) - np.searchsorted(row, np.arange(len(new)))[row]
        near, reach = np.full((len(new), k), -1, dtype=np.intp), np.full(len(new), np.inf)
        best, last = rank < k, rank == k - 1
        near[row[best], rank[best]], reach[row[last]] = point[best], distance[last]
        tied = distance == reach[row]
        shared = np.bincount(row[tied], minlength=len(new)) > 1
        shell = shared[row] & (distance <= reach[row])
        return near, reach, name[row[shell]], point[shell], tied[shell]

    def _bound(self, new: Located, n: int) -> FloatArray:
        """What the squared distance of a row's n-th candidate does not exceed, (m,)."""
        most, tau = np.full(len(new), np.inf), self.tau
        for mine, _, distance, x_norm, _ in self._products(new, new.cell[:, None], self.members):
            if distance.shape[1] >= n:
                edge = np.partition(distance, n - 1, axis=1)[:, n - 1]
                most[mine] = (edge + 3 * tau * x_norm + UNDERFLOW) / (1 - 2 * tau)
        return most

    def entering(self, new: Located, reach: FloatArray) -> kernels.Pairs:
        """All pairs (new row, point) such that the row is a candidate of the point within reach.

        The third array says where it is just as far as ``reach[point]``.
        """
        order = np.argsort(new.cell, kind="stable")

        def search(block: slice) -> kernels.Pairs:
            some = new.of(order[block])
            row, point, distance = self._pairs(
                some, some.cell[:, None], self.probing, lambda _, theirs: reach[theirs]
            )
            inside, edge = distance <= reach[point], distance == reach[point]
            return order[block][row[inside]], point[inside], edge[inside]

        row, point, at_edge = kernels.joined(map_slices(search, row_slices(len(new), CHUNK_ROWS)))
        by_row = np.argsort(row, kind="stable")
        return row[by_row], point[by_row], at_edge[by_row]

    def _pairs(
        self, new: Located, cells: IntArray, lists: "_Lists", limit: Callable[..., FloatArray]
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows, points listed for their cells, and distances, all up to a limit and some beyond."""
        kept, rows, points = 0, [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
        for mine, point, distance, x_norm, z_norm in self._products(new, cells, lists):
            distance -= self.tau * z_norm
            distance -= self.tau * x_norm[:, None]
            row, column = np.nonzero(distance <= limit(mine, point) + UNDERFLOW)
            rows.append(mine[row])
            kept += len(row)
            _refuse_many(kept, max(FEW_PAIRS, MOST_KEPT * len(new)))
            points.append(point[column])
        row, point = np.concatenate(rows), np.concatenate(points).astype(np.intp)
        parts = row_slices(len(row), max(1, BLOCK_FLOATS // new.rows.shape[1]))
        pairs = ((new.rows[row[part]], self.points[point[part]]) for part in parts)
        found = [kernels.paired_distances(*each) for each in pairs]
        return row, point, np.concatenate([np.empty(0), *found])

    def _products(self, new: Located, cells: IntArray, lists: "_Lists") -> Iterator[Any]:
        """For each of the cells (m, R) of rows, these rows, and the points listed for the cell.

        Then rounded squared distances of both, and their squared norms around the cell's centre.
        """
        naming = _Lists(cells, len(self.centres))
        for cell in np.flatnonzero(np.diff(naming.start)):
            mine, point, centre = naming[cell], lists[cell], self.centres[cell]
            x, z = new.rows[mine] - centre, self.points[point] - centre
            x_norm, z_norm = (np.einsum("ij,ij->i", each, each) for each in (x, z))
            distance = x @ (-2 * z.T)
            distance += z_norm
            distance += x_norm[:, None]
            yield mine, point, distance, x_norm, z_norm


def _refuse_many(n_pairs: int, most: float) -> None:
    """Refuse what would take longer, or more memory, than a search without cells."""
    if n_pairs > most:
        raise CalliperError(
            f"these cells need {n_pairs:,} comparisons: use fewer cells or probes, or none."
        )


class _Lists:
    """For each cell, the rows of (m, R) that name it."""

    def __init__(self, cells: IntArray, n_cells: int) -> None:
        order = np.argsort(cells, axis=None, kind="stable")
        self.indices: IntArray = (order // cells.shape[1]).astype(np.int32)
        self.start = np.searchsorted(cells.reshape(-1)[order], np.arange(n_cells + 1))

    def __getitem__(self, cell: Any) -> IntArray:
        return self.indices[self.start[cell] : self.start[cell + 1]]


class CellMean(kernels.MeanStatistic):
    """Mean of up to K candidates of N points; ``middle`` is the scale of one without any."""

    def __init__(self, found: Found, bag: "BagCells") -> None:
        self.k, self.offset, self.middle = bag.n_neighbors, bag.offset, bag.high
        k, magnitudes, self.scores = self.k, bag.magnitudes, bag.scores
        short = found.size < k
        member = np.where(found.near < 0, 0.0, magnitudes[found.near])
        self.full_sum = kernels.sum_of_each(member)
        self.inner_sum = np.where(short, self.full_sum, kernels.sum_of_each(member[:, :-1]))
        #: Of how many the mean is, without a new point that enters and with it.
        self.n_full = np.clip(found.size, 1, k)
        self.n_entered = np.minimum(found.size + 1, k)
        self.edge_weight = np.full(len(short), 0.5)
        self.edge_sum = self.inner_sum + 0.5 * np.where(short, 0.0, member[:, -1])
        crowded, tied = found.shared(magnitudes, bag.grid)
        self.share(tied, crowded)
        self._waiting = []
        self.alone = found.size == 0

    def of_calibration(self, level: float) -> FloatArray:
        scale = np.where(self.alone, self.middle, self.full_sum / self.n_full)
        return np.asarray(scale + self.offset)

    def crossing(self, entering: kernels.Entering, level: float, slope: float = 0.0) -> FloatArray:
        """t_i for points that new rows enter."""
        n = self.n_entered[entering.point]
        weight, others = self._entered(entering.point, entering.at_edge)
        if not slope:
            return kernels.positive_root(weight, others + n * self.offset, n * entering.product)
        linear = others / n + self.offset - slope * entering.score
        return kernels.signed_root(slope + weight / n, linear, entering.product)

    def between(
        self, pairs: kernels.Pairs, scale: FloatArray, alone: BoolArray, slope: float
    ) -> FloatArray:
        """All t_i, (m, N), where g(t) = t, of rows with these scales that enter these points.

        s_i·(c + ut + o + κt) ≥ t·(A_i + w_i t + o + κt); alone are c = 0 and u = 1, A = 0, w = 1.
        """
        (row, point, at_edge), scores = pairs, self.scores
        weight, mean = np.zeros((len(scale), len(scores))), np.empty((len(scale), len(scores)))
        weight[:], mean[:] = self.alone, np.where(self.alone, 0.0, self.full_sum / self.n_full)
        entered, others = self._entered(point, at_edge)
        weight[row, point] = entered / self.n_entered[point]
        mean[row, point] = others / self.n_entered[point]
        quadratic = weight + slope
        linear = mean + self.offset - scores * (alone[:, None] + slope)
        constant = scores * np.where(alone, self.offset, scale)[:, None]
        # Where nothing is quadratic, it ends at once or never.
        flat = quadratic == 0
        found = kernels.signed_root(np.where(flat, 1.0, quadratic), linear, constant)
        found[flat] = np.inf
        np.divide(constant, linear, out=found, where=flat & (linear > 0))
        return found


class BagCells(kernels.BagKNN):
    """Thresholds t_i over the K nearest of the candidates."""

    search: Any
    always_enters = False

    def __init__(self, search: CellSearch, rows: Rows, n_neighbors: int, offset: float) -> None:
        self.search, self.magnitudes, self.scores = search, rows.magnitudes, rows.scores
        self.n_neighbors, self.offset = n_neighbors, offset
        self.grid = kernels.Grid(self.magnitudes[np.isfinite(self.magnitudes)])
        middle = (len(self.magnitudes) + 2) // 2
        self.low, self.high = np.sort(self.magnitudes)[middle - 2 : middle]
        found = search.nearest_others(n_neighbors)
        self.reach, self.crowded = found.reach, np.unique(found.shells[0])
        self.statistic: Any = CellMean(found, self)
        self._orders = {}

    def extended(self, rows: Rows) -> None:
        """None: all points are searched again."""

    def for_file(self) -> dict[str, Any]:
        """Nothing: cells are searched again."""
        return {}

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        new, pairs = self._around(Z)
        scale, alone = self._scales(new)
        found = self._thresholds(pairs, scale, level, slope)
        if not self.statistic.alone.any() and not alone.any():
            return found
        a, b, at_low = self.low, self.high, self.with_offset(self.offset)
        at_low.statistic.middle = a
        low = at_low._thresholds(pairs, np.where(alone, a + self.offset, scale), level, slope)
        between = self.statistic.between(pairs, scale, alone, slope)
        # Where a = 0 nothing is compared at t = 0, and something beyond.
        below = np.where((low > a) | (a == 0), np.clip(between, a, b), low)
        return np.where(found < b, below, found)

    def _one_chunk(
        self, Z: FloatArray, asked: kernels.Asked, shares: Shares | None
    ) -> tuple[FloatArray, int]:
        """As for constant scales of what has no candidates, unless a radius is below these."""
        new = self._located(Z)
        radius, n_pairs = super()._one_chunk(new, asked, shares)  # type: ignore[arg-type]
        levels, ranks, signs = asked
        below = np.abs(radius).min(axis=1, initial=np.inf) < self.high
        alone = self.search.size[new.probes].sum(axis=1) == 0
        for row in np.flatnonzero(below & (alone | self.statistic.alone.any())):
            one = slice(row, row + 1)
            values = self.thresholds(Z[one])
            if signs is not None:
                values = with_signs(values, signs)
            own = shares and shares.of_rows(one)
            if own is None:
                radius[row] = row_order_statistics(values, ranks)[0]
            else:
                radius[row] = row_thresholds(values, levels, own)[0]
        return radius, n_pairs

    def _located(self, Z: Any) -> Located:
        return Z if isinstance(Z, Located) else self.search.locate(Z)

    def _around(self, Z: Any) -> tuple[Located, kernels.Pairs]:
        """New rows in their cells, and pairs (new row, calibration row) where it is near."""
        new = self._located(Z)
        return new, self.search.entering(new, self.reach)

    def _scale_of_new(self, Z: Any, level: float, found: Located) -> FloatArray:
        """The scale of each row, (m,), which is the same at every level."""
        return self._scales(found)[0]

    def _scales(self, new: Located) -> tuple[FloatArray, BoolArray]:
        """The scale of each row, with b in the place of g(t) where it has no candidates: (m,)."""
        found = self.search.nearest(new, self.n_neighbors)
        member = np.where(found.near < 0, 0.0, self.magnitudes[found.near])
        mean = kernels.sum_of_each(member) / np.clip(found.size, 1, self.n_neighbors)
        tied, shared = found.shared(self.magnitudes, self.grid)
        mean[tied] = shared.total / self.n_neighbors
        alone = found.size == 0
        return np.where(alone, self.high, mean) + self.offset, alone
