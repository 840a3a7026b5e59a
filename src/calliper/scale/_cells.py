"""Cells: neighbours are searched in a few parts of a fixed partition of space.

An index that is built on the calibration points treats them unlike the new one, and then nothing is
proved. A partition that is fixed beforehand treats all members of the bag alike: cells are those of
the nearest of C centres, learnt on training rows or drawn as random directions. So the cell c(x) of
a row and the P cells P(x) that it probes, those of its P nearest centres, are functions of x alone.
The candidates of member i are the other members j with c(j) ∈ P(i), and its neighbours are the K
nearest of them, exactly. The only approximation is that a nearer point may lie in a cell that was
not probed.

A row is compared with its candidates, about P·N/C of N, after C centres have told it where to look.
Rows that probe a cell are compared with its members by one matrix product around the cell's centre;
the best are compared again by direct differences, and rows in doubt, or with a tie for the last
place, with all of their candidates. The reverse search, who would count a new row among its
nearest, goes by lists of the points that probe a cell.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from numbers import Integral
from typing import Annotated, Any, NamedTuple, Self

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
from calliper.quantile import power_of_two
from calliper.rows import Rows

#: Training rows per cell that centres are learnt on, and rounds of learning.
LEARNT_ON, ROUNDS = 40, 8

#: Candidates beyond those asked for, so that rounding does not push a true neighbour out.
SPARE = 6

#: Rows that are searched for together: neighbouring rows share cells.
SEARCHED = 1 << 14


class Cells(BaseEstimator):  # type: ignore[misc]
    """A partition of space, fixed before calibration, and how many of its cells are searched.

    For ``KNN(10, cells=Cells(...))`` with :class:`FullRescaled`, from some 100,000 calibration
    points with many features on; see ``docs/large-data.md`` for when it pays. Coverage is proved
    as without cells.

    Parameters
    ----------
    n_cells : int, optional
        How many cells: by default 4√n for n training rows, or for n calibration points where
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

    def placed(self, Z_train: kernels.Known, rng: kernels.Rng | None) -> "PlacedCells":
        """The partition, which depends on training rows alone."""
        at_least(self.n_probes, 1, "n_probes of Cells")
        if self.n_cells is not None:
            at_least(self.n_cells, 1, "n_cells of Cells")
        own = check_random_state(rng if self.random_state is None else self.random_state)
        centres = None if Z_train is None else self._learnt(Z_train, own)
        return PlacedCells(centres, self.n_cells, int(self.n_probes), own.randint(2**31 - 1))

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


def as_cells(given: Any) -> "Cells | PlacedCells | None":
    """Cells as given, or a number of them."""
    if given is None or isinstance(given, Cells | PlacedCells):
        return given
    if isinstance(given, Integral) and not isinstance(given, bool):
        return Cells(int(given))
    raise TypeError(f"cells must be Cells(...), a number of cells, or None; got {given!r}.")


@dataclass(frozen=True)
class PlacedCells(Keeps):
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

    def placed(self, Z_train: kernels.Known, rng: kernels.Rng | None) -> Self:
        """As it is: nothing else is learnt of it."""
        return self

    def bag(self, rows: Rows, *, n_neighbors: int, offset: float) -> Any:
        """Thresholds of full conformal over the nearest in these cells."""
        from calliper.scale._cell_bag import BagCells  # which builds on what is below

        if not isinstance(rows.Z, np.ndarray):
            raise TypeError("cells are searched by the processor: pass Z as an array.")
        search, k = CellSearch(rows.Z, self.centres(*rows.Z.shape), self.n_probes), n_neighbors
        return BagCells(search, rows.magnitudes, rows.scores, n_neighbors=k, offset=offset)

    def centres(self, n: int, d: int) -> FloatArray:
        """(C, d) centres for n points.

        Of directions of the same length, the nearest is the one that a row agrees with most.
        """
        if self.learnt is None:
            n_cells = self.n_cells or number_of_cells(n)
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
class Placed:
    """Rows (m, d), the cell of each (m,), and the cells that it probes (m, P)."""

    rows: FloatArray
    cell: IntArray
    probes: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, rows: slice | IntArray | BoolArray) -> "Placed":
        """Some of them."""
        return Placed(self.rows[rows], self.cell[rows], self.probes[rows])


class Found(NamedTuple):
    """The K nearest candidates of some rows.

    Attributes
    ----------
    near : (m, K) points in order of distance, −1 where there are fewer
    size : (m,) how many candidates there are
    reach : (m,) the squared distance of the K-th, infinite if there are fewer
    tied : (m,) rows that share the last place, or of which ``near`` and ``reach`` are not sure
    """

    near: IntArray
    size: IntArray
    reach: FloatArray
    tied: BoolArray


class CellSearch:
    """Points in their cells.

    Parameters
    ----------
    points : (N, d)
    centres : (C, d), all different
    n_probes : P
    """

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
        self.centres, self.placed = centres, self.locate(points)
        #: Who is in each cell, and who probes it.
        self.members = _Lists(self.placed.cell[:, None], len(centres))
        self.probing = _Lists(self.placed.probes, len(centres))
        self.size = np.diff(self.members.start)
        #: Bounds the rounding of products, relative to the squared norms of both rows.
        self.tolerance = 8 * (points.shape[1] + 4) * float(np.finfo(float).eps)

    select = staticmethod(kernels.selected)

    def locate(self, rows: FloatArray) -> Placed:
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
        return Placed(rows, cell, probes)

    def nearest_others(self, k: int) -> Found:
        """The K nearest candidates of each point."""
        return self.nearest(self.placed, k, np.arange(len(self.points)))

    def nearest(self, new: Placed, k: int, own: IntArray | None = None) -> Found:
        """The K nearest candidates of rows, of which ``own`` says what points they are."""
        order = np.argsort(new.cell, kind="stable")

        def search(block: slice) -> Found:
            rows = order[block]
            return self._nearest(new.of(rows), k, None if own is None else own[rows])

        parts = map_slices(search, row_slices(len(order), SEARCHED))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Found(*(np.concatenate(part)[back] for part in zip(*parts, strict=True)))

    def entering(self, new: Placed, reach: FloatArray) -> kernels.Pairs:
        """All pairs (new row, point) such that the row is a candidate of the point within reach.

        The third array says where it is just as far as ``reach[point]``.
        """
        order = np.argsort(new.cell, kind="stable")
        found = map_slices(
            lambda rows: self._entering(new.of(order[rows]), order[rows], reach),
            row_slices(len(new), CHUNK_ROWS),
        )
        row, point, at_edge = kernels.joined(found)
        by_row = np.argsort(row, kind="stable")
        return row[by_row], point[by_row], at_edge[by_row]

    def _entering(self, new: Placed, name: IntArray, reach: FloatArray) -> kernels.Pairs:
        rows, points = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
        for mine, point, distance, x_norm, z_norm in self._products(
            new, new.cell[:, None], self.probing
        ):
            distance -= self.tolerance * x_norm[:, None]
            most = reach[point] + self.tolerance * z_norm + TINY
            row, column = np.nonzero(distance <= most)
            rows.append(mine[row])
            points.append(point[column])
        row, point = np.concatenate(rows), np.concatenate(points).astype(np.intp)
        distance = self._distances(new.rows, row, point)
        inside = distance <= reach[point]
        at_edge = distance[inside] == reach[point[inside]]
        return name[row[inside]], point[inside], at_edge

    def _nearest(self, new: Placed, k: int, own: IntArray | None = None) -> Found:
        """As :meth:`nearest` for rows that are searched together."""
        count = self.size[new.probes].sum(axis=1) - (own is not None)
        n_best = k + SPARE
        index, furthest = self._best(new, n_best, own)
        row, column = np.nonzero(index >= 0)
        distance = np.full(index.shape, np.inf)
        distance[row, column] = self._distances(new.rows, row, index[row, column])
        order = np.argsort(distance, axis=1, kind="stable")
        index = np.take_along_axis(index, order, axis=1)
        distance = np.take_along_axis(distance, order, axis=1)
        reach = distance[:, k - 1]
        enough = count >= k
        tied = (reach == distance[:, k]) | ((reach == distance[:, k - 2]) & (k > 1))
        sure = (reach < furthest) | (count <= n_best)
        tied = enough & (tied | ~sure)
        return Found(index[:, :k], count, np.where(enough, reach, np.inf), tied)

    def _best(self, new: Placed, n_best: int, own: IntArray | None) -> tuple[IntArray, FloatArray]:
        """Candidates (m, n) by rounded distances, −1 where there are fewer.

        And a lower bound of the distance of any other, (m,).
        """
        m, tolerance, n_kept = len(new), self.tolerance, n_best + (own is not None)
        bound, norm = np.full(m, np.inf), np.zeros(m)
        for mine, _, distance, x_norm, _ in self._products(new, new.cell[:, None], self.members):
            if distance.shape[1] > n_kept:
                edge = np.partition(distance, n_kept - 1, axis=1)[:, n_kept - 1]
                bound[mine] = edge * (1 + 2 * tolerance) + 4 * tolerance * x_norm + TINY
        none = np.empty(0, dtype=np.intp)
        rows, points, values = [none], [none], [np.empty(0)]
        for mine, member, distance, x_norm, _ in self._products(new, new.probes, self.members):
            norm[mine] = np.maximum(norm[mine], x_norm)
            row, column = np.nonzero(distance <= bound[mine, None])
            rows.append(mine[row])
            points.append(member[column])
            values.append(distance[row, column])
        row, point, value = np.concatenate(rows), np.concatenate(points), np.concatenate(values)
        if own is not None:
            other = point != own[row]
            row, point, value = row[other], point[other], value[other]
        index, furthest = _smallest(row, point, value, (m, n_best))
        # ‖z‖² ≤ 2‖x‖² + 2‖x − z‖² bounds the rounding of those that were not kept.
        return index, (furthest - 3 * tolerance * norm) / (1 + 2 * tolerance) - TINY

    def _products(self, new: Placed, cells: IntArray, lists: "_Lists") -> Iterator[Any]:
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

    def _distances(self, rows: FloatArray, row: IntArray, point: IntArray) -> FloatArray:
        """Squared distances of pairs by direct differences, in parts that fit the cache."""
        parts = row_slices(len(row), max(1, BLOCK_FLOATS // rows.shape[1]))
        found = [
            kernels.paired_distances(rows[row[part]], self.points[point[part]]) for part in parts
        ]
        return np.concatenate([np.empty(0), *found])

    def of_one(self, row: FloatArray, probes: IntArray, own: int | None) -> tuple[IntArray, Any]:
        """All candidates of one row, (n,), and their distances by direct differences, (1, n)."""
        found = np.concatenate([self.members[cell] for cell in probes]).astype(np.intp)
        found = found if own is None else found[found != own]
        return found, kernels.all_distances(row[None], self.points[found], kernels.EUCLIDEAN)


#: Below the smallest number, errors are no longer relative.
TINY = 1e4 * float(np.finfo(float).tiny)


class _Lists:
    """For each cell, the rows of (m, R) that name it."""

    def __init__(self, cells: IntArray, n_cells: int) -> None:
        order = np.argsort(cells, axis=None, kind="stable")
        self.indices: IntArray = (order // cells.shape[1]).astype(np.int32)
        self.start = np.searchsorted(cells.reshape(-1)[order], np.arange(n_cells + 1))

    def __getitem__(self, cell: Any) -> IntArray:
        return self.indices[self.start[cell] : self.start[cell + 1]]


def _smallest(
    row: IntArray, point: IntArray, value: FloatArray, shape: tuple[int, int]
) -> tuple[IntArray, FloatArray]:
    """Of the points of each row those (m, n) of the smallest values, −1 where there are fewer.

    And what no other value is below, (m,), infinite where there are fewer.
    """
    m, n = shape
    # In single precision, numbers that are not negative are in the order of their bits.
    top = float(value.max(initial=0.0)) or 1.0
    bits = np.maximum(value / top, 0).astype(np.float32).view(np.uint32)
    order = np.argsort(row.astype(np.int64) << 32 | bits, kind="stable")
    row = row[order]
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(m))[row]
    best = rank < n
    row, rank, order = row[best], rank[best], order[best]
    index, largest = np.full(shape, -1, dtype=np.intp), np.full(m, np.inf)
    index[row, rank] = point[order]
    last = rank == n - 1
    largest[row[last]] = value[order[last]] * (1 - 1e-6) - 1e-37 * top
    return index, largest
