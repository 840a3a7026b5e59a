"""Leave-two-out means with a kernel for every point left out (paper, Algorithm S.2).

For each candidate λ (a length scale, or a K) and each calibration point m, a criterion says how
well the local means without m predict the other scores; λ_m is the best. The same λ_m serves the
pair (m, new point) on both sides,

    s_m⁺ = s_m / ŝ_m(λ_m; all but m),    Δ_m = ŝ_{N+1}(λ_m; all but m) · s_m⁺,

and since point m has no say in λ_m, pairs are treated alike and the Jackknife+ bound holds. All
N × G criteria come from closed-form leave-two-out means in O(N² G); predicting costs one pass for
each *different* λ chosen. The printed Algorithm S.2 evaluates mi after the loop over m that it
depends on, and normalises with the wrong row; both are corrected here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calliper._blocks import CHUNK_ROWS, map_row_blocks, row_slices
from calliper._types import FloatArray, IntArray
from calliper.quantile import row_order_statistics
from calliper.scale._criterion import RescaledInformation, choose, pointwise_loss
from calliper.scale._ratio import rescale

#: Means at new rows, without each of a group of calibration points: (m, size of the group).
MeansWithout = Callable[[FloatArray], FloatArray]


class Family(Protocol):
    """Kernels that differ in one number."""

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i (row) without i and m (column); the diagonal without i only."""

    def means_without(self, candidate: float, members: IntArray) -> MeansWithout:
        """For new rows, the means without each of the ``members``."""


@dataclass(frozen=True)
class Tuning:
    """How to choose: the candidates in ascending smoothness, and what makes one the best."""

    candidates: FloatArray
    criterion: str
    information: RescaledInformation | None
    progress: Callable[[float], None]

    def values(self, magnitudes: FloatArray, without_two: FloatArray) -> FloatArray:
        """The criterion of every point left out, (N,)."""
        n = len(magnitudes)
        if self.information is not None:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ratio = np.where(without_two > 0, magnitudes[:, None] / without_two, np.inf)
            return self.information.of_columns(ratio, np.arange(n))
        loss = pointwise_loss(self.criterion, magnitudes[:, None], without_two)
        np.fill_diagonal(loss, 0.0)
        return np.asarray(loss.sum(axis=0) / (n - 1))


class LeaveTwoOutTuned:
    """Local means of calibration magnitudes, with a candidate for each point left out.

    Attributes
    ----------
    candidates, criteria : the grid (G,), and the criterion at each candidate and point, (G, N)
    chosen : (N,) the candidate that goes with every calibration point
    without_one : (N,) ŝ_m(λ_m; all but m)
    """

    def __init__(
        self,
        family: Family,
        magnitudes: FloatArray,
        *,
        offset: float,
        tuning: Tuning | None = None,
        chosen: FloatArray | None = None,
    ) -> None:
        self.family, self.magnitudes, self.offset = family, magnitudes, offset
        own = np.arange(len(magnitudes))
        if tuning is not None:
            self.candidates = tuning.candidates
            self.criteria, means = self._scan(tuning)
            index = choose(self.criteria)
            self.chosen = self.candidates[index]
        else:
            assert chosen is not None
            self.chosen = chosen
            self.candidates, index = np.unique(chosen, return_inverse=True)
            means = np.stack([np.diagonal(family.without_two(c)) for c in self.candidates])
        self.without_one: FloatArray = means[index, own] + offset

    def _scan(self, tuning: Tuning) -> tuple[FloatArray, FloatArray]:
        """Criteria, and means without one point, both (G, N)."""
        criteria, means = [], []
        for done, candidate in enumerate(tuning.candidates, start=1):
            without_two = self.family.without_two(candidate)
            means.append(np.diagonal(without_two).copy())
            without_two += self.offset
            criteria.append(tuning.values(self.magnitudes, without_two))
            tuning.progress(done / len(tuning.candidates))
        return np.stack(criteria), np.stack(means)

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_m⁺, grouped by candidate."""
        self.rescaled = rescale(scores, self.without_one)
        self.groups = []
        for candidate in np.unique(self.chosen):
            members = np.flatnonzero(self.chosen == candidate)
            self.groups.append((members, self.family.means_without(candidate, members)))
        return self.rescaled

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of Δ_m over m: (m, L)."""
        chunks = row_slices(len(Z), CHUNK_ROWS)
        return np.concatenate([self._by_blocks(Z[chunk], ranks) for chunk in chunks])

    def _by_blocks(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        def select(rows: slice) -> FloatArray:
            products = [
                times(means(Z[rows]) + self.offset, self.rescaled[members])
                for members, means in self.groups
            ]
            return row_order_statistics(np.concatenate(products, axis=1), ranks)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.magnitudes)))


def times(mean: FloatArray, rescaled: FloatArray) -> FloatArray:
    """ŝ · s⁺ in place; infinite where the rescaled score is, even if the local mean is zero."""
    with np.errstate(invalid="ignore"):
        mean *= rescaled
    mean[:, np.isinf(rescaled)] = np.inf
    return mean


def best_for_all(
    family: Family, magnitudes: FloatArray, tuning: Tuning, offset: float
) -> tuple[float, FloatArray]:
    """One candidate for a whole data set, by leave-one-out, and the criterion of each."""
    values, everyone = [], np.arange(len(magnitudes))
    for done, candidate in enumerate(tuning.candidates, start=1):
        means = np.diagonal(family.without_two(candidate)) + offset
        if tuning.information is not None:
            values.append(tuning.information.of_part(rescale(magnitudes, means), everyone))
        else:
            values.append(float(pointwise_loss(tuning.criterion, magnitudes, means).mean()))
        tuning.progress(done / len(tuning.candidates))
    criteria = np.array(values)
    return float(tuning.candidates[choose(criteria[:, None])[0]]), criteria
