"""Nearer neighbours count more: the mean over the K nearest, and over the 4K nearest.

    ŝ = ½ · (1/K) Σ over the K nearest + ½ · (1/4K) Σ over the 4K nearest

In many dimensions half of each is better than any number in between. Both means are linear in a new
score t. A new point that enters the 4K nearest of point i, and perhaps its K nearest, crosses where

    w t² + A t − s_i ŝ_{N+1} = 0,    w = ½ w_K/K + ½ w_4K/4K,   A = ½ A_K/K + ½ A_4K/4K,

with the weights w and the sums A of the others as in ``_statistic.py``, of either mean. Where it
does not enter the K nearest, w_K = 0 and A_K is the sum of all K. The rest is ``_knn.py``.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from calliper._types import FloatArray, IntArray
from calliper._validation import at_least
from calliper.exceptions import CalliperError
from calliper.kernels._kernel import NOTHING, Kernel, Known, Rng, ScalesAtLevel, Stored, stored
from calliper.kernels._knn import KNN, BagKNN, Entered
from calliper.kernels._nearest import Nearest
from calliper.kernels._search import EUCLIDEAN, Metric, check_metric, search_of
from calliper.kernels._statistic import Edge, MeanStatistic
from calliper.rows import Rows

#: How many times as many neighbours the wider mean is over.
WIDER = 4


@dataclass(eq=False, repr=False)
class GradedKNN(Kernel, BaseEstimator):  # type: ignore[misc]
    """The scale is the average of two means: over the K nearest, and over the 4K nearest.

    For :class:`FullRescaled`, with the mean or the root mean square, and its default in wide
    spaces without a unit of their own, such as a network's embedding.

    Parameters
    ----------
    n_neighbors : int, default 10
        K, as for :class:`KNN`.
    metric : str or callable, default "euclidean"
        As for :class:`KNN`.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(200, 1))
    >>> errors = Z[:, 0] * rng.uniform(size=200)
    >>> FullRescaled(GradedKNN(8)).fit(Z, errors).predict_radius([[0.1], [0.9]], 0.9).round(1)
    array([0.1, 0.9])
    """

    cli = "graded-knn"
    by_distance = True
    engines = ("torch",)

    n_neighbors: int = 10
    _: KW_ONLY
    metric: Metric = EUCLIDEAN

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        check_metric(self.metric)
        return replace(self, n_neighbors=at_least(self.n_neighbors, 1, "n_neighbors"))

    @property
    def parts(self) -> tuple[KNN, KNN]:
        """The K nearest, and the 4K nearest."""
        k = self.n_neighbors
        return KNN(k, metric=self.metric), KNN(WIDER * k, metric=self.metric)

    def bag(
        self, rows: Rows, *, statistic: str, offset: float, known: Stored = NOTHING
    ) -> "BagGraded":
        if statistic == "quantile":
            raise TypeError(
                f"{self!r} does not support statistic='quantile': use KNN(...), or the mean."
            )
        search, wide = search_of(rows.Z, self.metric), self.parts[1].at_most(len(rows.Z))

        def bag(name: str, k: int) -> BagKNN:
            nearest = Nearest(search, rows.magnitudes, k)
            return BagKNN(nearest, rows.scores, MeanStatistic, 0.0, stored(known, name))

        inner, outer = bag("near", min(self.n_neighbors, wide)), bag("wide", wide)
        if known and (inner.reach > outer.reach).any():
            raise CalliperError("the file's K nearest points are farther than its 4K nearest.")
        return BagGraded(inner, outer, offset)

    def widened(self, multiple: float, most: int) -> Self:
        """A copy with K multiplied, limited to K ≥ 1 and 4K ≤ ``most``."""
        k = max(1, min(round(self.n_neighbors * multiple), most // WIDER))
        return replace(self, n_neighbors=k)

    @classmethod
    def scales_of_others(
        cls, kernels: Sequence[Any], Z: FloatArray, magnitudes: FloatArray, *, statistic: str
    ) -> ScalesAtLevel:
        both = [part for kernel in kernels for part in kernel.parts]
        means = KNN.scales_of_others(both, Z, magnitudes, statistic=statistic)
        return lambda level: (means(level)[::2] + means(level)[1::2]) / 2


class GradedMean(MeanStatistic):
    """The mean of two means; ``at_edge``: 1 at the wider edge, plus 2 inside the inner, 4 at it."""

    def __init__(self, near: Any, wide: Any, offset: float) -> None:
        self.k, self.offset, self.near, self.wide = 1, offset, near, wide

    def of_calibration(self, level: float) -> FloatArray:
        both = self.near.of_calibration(level) + self.wide.of_calibration(level)
        return np.asarray(both / 2 + self.offset)

    def _entered(self, point: IntArray, at_edge: Edge) -> tuple[FloatArray, FloatArray]:
        weight, others = self.wide._entered(point, (at_edge & 1) > 0)
        inner, rest = self.near._entered(point, at_edge >= 4)
        inner = np.where(at_edge < 2, 0.0, inner)
        rest = np.where(at_edge < 2, self.near.full_sum[point], rest)
        k, wider = 2 * self.near.k, 2 * self.wide.k
        return inner / k + weight / wider, rest / k + others / wider


class BagGraded(BagKNN):
    """Thresholds t_i over the K nearest and over more: of a bag of each, without an offset."""

    def __init__(self, near: BagKNN, wide: BagKNN, offset: float) -> None:
        self.near, self.wide, self.offset = near, wide, offset
        self.scores, self.n_neighbors, self.search = wide.scores, wide.n_neighbors, wide.search
        self.crowded = np.union1d(self.near.crowded, self.wide.crowded)
        self.statistic = GradedMean(self.near.statistic, self.wide.statistic, offset)
        self._orders = {}

    def extended(self, rows: Rows) -> "BagGraded | None":
        wide = self.wide.extended(rows)
        near = None if wide is None else self.near.extended(rows)
        return None if wide is None or near is None else BagGraded(near, wide, self.offset)

    def for_file(self) -> dict[str, Any]:
        return {"near": self.near.known, "wide": self.wide.known}

    def _scale_of_new(self, Z: FloatArray, level: float, found: Any) -> FloatArray:
        near = self.near._scale_of_new(Z, level, found[0])
        return (near + self.wide._scale_of_new(Z, level, found[1])) / 2 + self.offset

    def _around(self, Z: FloatArray) -> tuple[Any, Entered]:
        """The nearest of either bag, pairs where the row is among 4K, and where in them it is."""
        wide, (row, point, at_edge) = self.wide._around(Z)
        near, (inner_row, inner_point, at_inner_edge) = self.near._around(Z)
        n = len(self.scores)
        pair, inner = row * n + point, inner_row * n + inner_point
        order = np.argsort(pair)
        position = order[np.searchsorted(pair, inner, sorter=order)]
        where = at_edge.astype(np.intp)
        where[position] += np.where(at_inner_edge, 4, 2)
        return (near, wide), (row, point, where)
