"""Cells of inputs that are fixed before anyone looks at held-out points.

k-means on training inputs gives G centres c_1 … c_G; a point belongs to its nearest centre:

    cell(z) = argmin_g ‖z − c_g‖.

Letters: c_g → ``centres``, G → ``n_cells``.

Assumptions: bounds per cell (``cell_coverage``) hold for cells on which the held-out points had no
influence. Cells of training inputs are such; so is any rule that is fixed in advance: a season, a
site, a chemical scaffold.

Reference: Lloyd (1982), "Least squares quantization in PCM", doi:10.1109/TIT.1982.1056489.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper._validation import check_features
from calliper.exceptions import CalliperError


@dataclass(frozen=True, eq=False)
class Partition:
    """Cells of inputs: each point belongs to the nearest of fixed centres (G, d)."""

    centres: FloatArray

    @property
    def labels(self) -> range:
        """All cells: pass them as ``labels`` to ``cell_coverage`` to list empty ones too."""
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
    """Cells by k-means on *training* inputs, so that held-out points have no say in them.

    Distances are taken in the columns as given: standardise them first if their units differ.

    Parameters
    ----------
    Z_train : (n, d) inputs or embeddings that are neither calibration nor held-out points
    n_cells : G, at most the number of distinct rows
    random_state : int, RandomState or None

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
