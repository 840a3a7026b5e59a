"""Lower bounds on the coverage in cells of inputs, proved by held-out points.

Data cannot bound mutual information from above, so no local bound built on it can be certified.
Coverage in a few cells can: divide the inputs into G cells *before* looking at held-out points,
count how many of the n_g points of cell g lie in their intervals, and invert the binomial law
(Clopper and Pearson) at level δ/G, so that by Bonferroni all G bounds hold together:

    L_g = max{p : P(Bin(n_g, p) ≥ k_g) ≤ δ/G} = Beta⁻¹(δ/G; k_g, n_g − k_g + 1),
    P(L_g ≤ coverage in cell g, for all g) ≥ 1 − δ.

Any rule that is fixed in advance defines such cells: a season, a site, a chemical scaffold. So does
k-means on training inputs: a point belongs to the nearest of G centres.

Letters: 1−δ → ``confidence``, n_g, k_g/n_g, L_g → ``n``, ``coverage``, ``lower`` of a ``Cell``.

Assumptions: held-out points are independent draws from the distribution of new points, and were
not used for training, calibration or the choice of cells. The bounds are conditional on the
calibration set: they hold for these intervals, whatever the method, not on average over calibration
draws. They do not say how coverage varies *inside* a cell.

References: Clopper, Pearson (1934), "The use of confidence or fiducial limits illustrated in the
case of the binomial", doi:10.1093/biomet/26.4.404. Lloyd (1982), "Least squares quantization in
PCM", doi:10.1109/TIT.1982.1056489 (k-means).
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from calliper._notebook import card, floored, folded, table
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_level, check_vector
from calliper.exceptions import CalliperError
from calliper.rows import numbered, same_rows

#: Cells that a notebook shows.
SHOWN_CELLS = 30


@dataclass(frozen=True, eq=False)
class Partition:
    """Cells of inputs: each point belongs to the nearest of fixed centres (G, d).

    Parameters
    ----------
    centres : (G, d)

    Examples
    --------
    >>> import numpy as np
    >>> Partition(np.array([[0.0], [10.0]])).assign([[1.0], [8.0]])
    array([0, 1])
    """

    centres: FloatArray

    @property
    def labels(self) -> range:
        """All cells, as ``labels`` for ``cell_coverage`` that includes empty ones."""
        return range(len(self.centres))

    def assign(self, Z: Any) -> IntArray:
        """The cell of each row, 0 … G−1."""
        from sklearn.metrics import pairwise_distances_argmin

        features = check_features(Z)
        if features.shape[1] != self.centres.shape[1]:
            raise CalliperError(
                f"Z has {features.shape[1]} columns, but the partition was made from rows of "
                f"{self.centres.shape[1]}."
            )
        return np.asarray(pairwise_distances_argmin(features, self.centres), dtype=np.intp)


def partition(Z_train: Any, n_cells: int = 10, *, random_state: Any = None) -> Partition:
    """Cells by k-means on *training* inputs, independent of the held-out points.

    Distances use the columns as given: standardise them first if their units differ.

    Parameters
    ----------
    Z_train : (n, d) inputs or embeddings that are neither calibration nor held-out points
    n_cells : G, at most the number of distinct rows
    random_state : int, RandomState or None

    Returns
    -------
    Partition
        Its ``assign(Z)`` gives the cell of each row.

    Examples
    --------
    >>> cells = partition([[0.0], [0.1], [5.0], [5.1]], 2, random_state=0)
    >>> np.sort(cells.centres[:, 0])
    array([0.05, 5.05])
    >>> first, second = cells.assign([[-1.0], [9.0]])
    >>> bool(first != second)
    True
    """
    from sklearn.cluster import KMeans

    features = check_features(Z_train, "Z_train")
    n_distinct = len(np.unique(features, axis=0))
    if not isinstance(n_cells, int | np.integer) or not 1 <= n_cells <= n_distinct:
        raise CalliperError(
            f"n_cells must be an integer between 1 and {n_distinct}, the number of distinct rows "
            f"of Z_train; got {n_cells!r}."
        )
    fitted = KMeans(int(n_cells), n_init=10, random_state=random_state).fit(features)
    return Partition(np.asarray(fitted.cluster_centers_, dtype=np.float64))


@dataclass(frozen=True)
class Cell:
    """Held-out points of one cell.

    Parameters
    ----------
    label : the cell
    n : number of held-out points in it
    coverage : share of them that lie in their intervals; NaN if there are none
    lower : lower bound on the coverage of new points in this cell; 0 if there are no points

    Examples
    --------
    >>> found = cell_coverage(["a", "a", "b"], [True, False, True])
    >>> found.cells[0].label, found.cells[0].coverage
    ('a', 0.5)
    """

    label: Hashable
    n: int
    coverage: float
    lower: float


@dataclass(frozen=True)
class CellCoverage:
    """Cells with lower bounds that all hold with probability ``confidence``.

    Parameters
    ----------
    cells : tuple of Cell
    confidence : probability that all bounds hold

    Examples
    --------
    >>> found = cell_coverage(["a"] * 50, [True] * 45 + [False] * 5)
    >>> round(found.cells[0].lower, 2), found.confidence
    (0.8, 0.95)
    """

    cells: tuple[Cell, ...]
    confidence: float

    @property
    def worst(self) -> Cell:
        """The cell with the lowest bound."""
        return min(self.cells, key=lambda cell: cell.lower)

    def _repr_html_(self) -> str:
        worst = sorted(self.cells, key=lambda cell: cell.lower)[:SHOWN_CELLS]
        rows = [
            [str(cell.label), f"{cell.n:,}", f"{cell.coverage:.3f}", floored(cell.lower)]
            for cell in worst
        ]
        names = ["cell", "held-out points", "covered", "at least"]
        listed = table([names, *rows])
        title = "Coverage cell by cell, the lowest bounds first"
        fact = f"all {len(self.cells):,} bounds hold together with probability {self.confidence:g}"
        return card(title, [fact], listed, folded("In words", self.describe()))

    def describe(self) -> str:
        """The bounds in words, with their assumptions."""
        lines = [
            f"cell {cell.label}: "
            + (f"{cell.n} held-out points, {cell.coverage:.3f} covered" if cell.n else "no points")
            + f", coverage at least {floored(cell.lower)}"
            for cell in self.cells
        ]
        return "\n".join(lines) + (
            f"\nAll {len(lines)} bounds hold together with probability at least "
            f"{self.confidence:g} over the draw of the held-out points, provided that these are "
            f"independent draws from the distribution of new points and were not used for "
            f"training, calibration or the choice of cells. They hold for these intervals, and for "
            f"each cell as a whole: coverage may vary inside a cell."
        )


def cell_coverage(
    cells: Any, covered: Any, *, confidence: float = 0.95, labels: Iterable[Any] | None = None
) -> CellCoverage:
    """Lower bounds on the coverage in each cell that hold together, from held-out points.

    Parameters
    ----------
    cells : (m,) labels
        The cell of each held-out point, for example ``partition(Z_train).assign(Z_test)``.
    covered : (m,) of bool
        Whether its target lies in its interval, for example ``intervals.contains(y_test)``.
    confidence : float, default 0.95
        Probability that all bounds hold.
    labels : iterable, optional
        All cells, including those without points; by default the cells that occur. The bounds
        hold given the number of points in each cell, so empty ones may be left out.

    Returns
    -------
    CellCoverage
        The cells with their bounds, in the order of ``labels``.

    Examples
    --------
    >>> result = cell_coverage(["a"] * 100 + ["b"] * 50, [True] * 92 + [False] * 8 + [True] * 50)
    >>> [(cell.label, cell.n, cell.coverage, round(cell.lower, 3)) for cell in result.cells]
    [('a', 100, 0.92, 0.848), ('b', 50, 1.0, 0.929)]
    """
    level = check_level(confidence, "confidence")
    cells, covered = same_rows(None, "rows", cells=cells, covered=covered)
    names, cell = numbered(cells, "cells")
    values = check_vector(covered, "covered", n=len(cell))
    for wrong in np.flatnonzero(~np.isin(values, (0, 1))):
        raise CalliperError(
            f"covered must be True or False for each row; got {values[wrong]:g} at position "
            f"{wrong}. Pass intervals.contains(y)."
        )
    every = names if labels is None else numbered(list(labels), "labels")[0]
    unknown = [name for name in names if name not in every]
    if unknown:
        raise CalliperError(f"labels must name all cells; {unknown} of cells are not in {every}.")
    cell = np.array([every.index(name) for name in names])[cell]
    n, k = (np.bincount(rows, minlength=len(every)) for rows in (cell, cell[values == 1]))
    # Clopper and Pearson's one-sided bounds; 0 without a success.
    bound = stats.beta.ppf((1 - level) / len(every), np.maximum(k, 1), n - k + 1)
    lower = np.where(k > 0, bound, 0.0)
    share = np.divide(k, n, out=np.full(len(n), np.nan), where=n > 0)
    columns = zip(every, n.tolist(), share.tolist(), lower.tolist(), strict=True)
    return CellCoverage(tuple(Cell(*column) for column in columns), level)
