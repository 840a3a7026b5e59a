"""Cells: neighbours are searched in a few parts of a fixed partition of space.

An index that is built on the calibration points treats them unlike the new one, and then nothing is
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
"""

import warnings
from collections.abc import Iterator
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
from calliper.quantile import power_of_two
from calliper.rows import Rows

#: Training rows per cell that centres are learnt on, and rounds of learning.
LEARNT_ON, ROUNDS = 40, 8

#: Rows that are searched for together: neighbouring rows share cells.
SEARCHED = 1 << 14

#: Below the smallest number, errors are no longer relative.
TINY = 1e4 * float(np.finfo(float).tiny)


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

    def of(self, rows: IntArray) -> "Placed":
        """Some of them."""
        return Placed(self.rows[rows], self.cell[rows], self.probes[rows])


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

        seats = self.near.shape[1] - np.bincount(of_row, ~tied)
        return rows, kernels.SharedSums(total(~tied), total(tied), seats, np.bincount(of_row, tied))


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
        #: τ, which bounds the rounding of products.
        self.tau = 8 * (points.shape[1] + 4) * float(np.finfo(float).eps)

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
        return self.nearest(self.placed, k, others=True)

    def nearest(self, new: Placed, k: int, *, others: bool = False) -> Found:
        """The K nearest candidates of rows; of the points themselves, the ``others``."""
        order = np.argsort(new.cell, kind="stable")

        def search(block: slice) -> tuple[Any, ...]:
            return self._nearest(new.of(order[block]), order[block], k, others)

        parts = map_slices(search, row_slices(len(order), SEARCHED))
        near, reach, row, point, tied = map(np.concatenate, zip(*parts, strict=True))
        back = np.argsort(order)
        size = self.size[new.probes].sum(axis=1) - others
        return Found(near[back], size, reach[back], (row, point, tied))

    def _nearest(self, new: Placed, name: IntArray, k: int, others: bool) -> tuple[Any, ...]:
        """The same for rows that are searched together, and what they are called outside."""
        row, point = self._within(new, k + others)
        if others:
            other = point != name[row]
            row, point = row[other], point[other]
        distance = self._distances(new.rows, row, point)
        order = np.lexsort((distance, row))
        row, point, distance = row[order], point[order], distance[order]
        rank = np.arange(len(row)) - np.searchsorted(row, np.arange(len(new)))[row]
        near, reach = np.full((len(new), k), -1, dtype=np.intp), np.full(len(new), np.inf)
        best, last = rank < k, rank == k - 1
        near[row[best], rank[best]], reach[row[last]] = point[best], distance[last]
        tied = distance == reach[row]
        shared = np.bincount(row[tied], minlength=len(new)) > 1
        shell = shared[row] & (distance <= reach[row])
        return near, reach, name[row[shell]], point[shell], tied[shell]

    def _within(self, new: Placed, n: int) -> tuple[IntArray, IntArray]:
        """Pairs (row, candidate) with all candidates as near as the n-th, and some beyond."""
        most, tau = np.full(len(new), np.inf), self.tau
        for mine, _, distance, x_norm, _ in self._products(new, new.cell[:, None], self.members):
            if distance.shape[1] >= n:
                edge = np.partition(distance, n - 1, axis=1)[:, n - 1]
                most[mine] = (edge + 3 * tau * x_norm + TINY) / (1 - 2 * tau)
        none = np.empty(0, dtype=np.intp)
        rows, points = [none], [none]
        for mine, member, distance, x_norm, z_norm in self._products(new, new.probes, self.members):
            distance -= tau * z_norm
            row, column = np.nonzero(distance <= (most[mine] + tau * x_norm + TINY)[:, None])
            rows.append(mine[row])
            points.append(member[column])
        return np.concatenate(rows), np.concatenate(points)

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
            distance -= self.tau * x_norm[:, None]
            row, column = np.nonzero(distance <= reach[point] + self.tau * z_norm + TINY)
            rows.append(mine[row])
            points.append(point[column])
        row, point = np.concatenate(rows), np.concatenate(points).astype(np.intp)
        distance = self._distances(new.rows, row, point)
        inside = distance <= reach[point]
        at_edge = distance[inside] == reach[point[inside]]
        return name[row[inside]], point[inside], at_edge

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


class _Lists:
    """For each cell, the rows of (m, R) that name it."""

    def __init__(self, cells: IntArray, n_cells: int) -> None:
        order = np.argsort(cells, axis=None, kind="stable")
        self.indices: IntArray = (order // cells.shape[1]).astype(np.int32)
        self.start = np.searchsorted(cells.reshape(-1)[order], np.arange(n_cells + 1))

    def __getitem__(self, cell: Any) -> IntArray:
        return self.indices[self.start[cell] : self.start[cell + 1]]
