"""How good is a local mean? The choice of one kernel for each calibration point left out.

Kernels that differ in one number λ (a length scale, or K) are compared by a criterion. For a
candidate λ, ŝ_{i;m} is the local mean at calibration point i without i and m. The criteria of
leaving m out are sums over i ≠ m, so that point m has no influence on its own kernel:

    mse       ⟨(s_i − ŝ_{i;m})²⟩
    deviance  ⟨log ŝ_{i;m} + s_i / ŝ_{i;m}⟩          (gamma deviance, constants apart)
    mi        MI(s_i / ŝ_{i;m} ; X_i), summed over the features      (paper, Algorithm S.2)

λ_m is the best. The same λ_m serves the pair (m, new point) on both sides,

    s_m⁺ = s_m / ŝ_m(λ_m; all but m),    Δ_m = ŝ_{N+1}(λ_m; all but m) · s_m⁺,

so pairs are treated alike and the Jackknife+ bound holds. All N × G criteria come from closed-form
leave-two-out means in O(N² G); predicting costs one pass for each *different* λ chosen. The printed
Algorithm S.2 evaluates mi after the loop over m that it depends on, and normalises with the wrong
row; both are corrected here.

For large N, calibration points are randomly divided into F folds. For point m of fold f, the choice
of λ_f and both means leave out all of fold f. That is CV+ (Barber, Candès, Ramdas, Tibshirani 2021,
doi:10.1214/20-AOS1965), whose guarantee applies. There are only F choices, and F different means at
a new point, whose sums are added up from those of the single folds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.information import random_ranks, rank_ksg
from calliper.kernels._arithmetic import rescale
from calliper.kernels._kernel import LeaveTwoOut, Rng

CRITERIA = ("mse", "deviance", "mi")

#: Means at new rows, without each of a group of calibration points: (m, size of the group).
MeansWithout = Callable[[FloatArray], FloatArray]


def pointwise_loss(kind: str, magnitudes: FloatArray, scale: FloatArray) -> FloatArray:
    """The summand of ``"mse"`` or ``"deviance"``; a zero scale has an infinite deviance."""
    if kind == "mse":
        return np.square(magnitudes - scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(scale) + magnitudes / scale
    return np.where(scale > 0, loss, np.inf)


class RescaledInformation:
    """Mutual information of rescaled scores with the features, for every point left out.

    Parameters
    ----------
    components : (N, C) features, or their principal components
    n_neighbors : k of the estimator
    rng : breaks ties among features and among scores, once for all; new for each data set
    """

    def __init__(self, components: FloatArray, n_neighbors: int, rng: Rng) -> None:
        n = len(components)
        self.x_orders = np.argsort(random_ranks(components.T, rng), axis=-1)
        self.shuffled, self.n_neighbors = rng.permutation(n), n_neighbors

    def of_columns(self, rescaled: FloatArray, left_out: IntArray) -> FloatArray:
        """One value a column of ``rescaled`` (N, M), its entry ``left_out[column]`` ignored."""
        n, n_columns = rescaled.shape
        values = rescaled.T[:, self.shuffled]  # equal scores then come in random order
        position = np.empty(n, dtype=np.intp)
        position[self.shuffled] = np.arange(n)
        columns = np.arange(n_columns)
        values[columns, position[left_out]] = np.nan  # sorts behind infinity
        order = np.argsort(values, axis=1, kind="stable")
        ranks = np.empty((n_columns, n), dtype=np.intp)
        np.put_along_axis(ranks, self.shuffled[order], np.arange(n)[None, :], axis=1)
        total = np.zeros(n_columns)
        for x_order in self.x_orders:
            kept = x_order[None, :] != left_out[:, None]
            in_order = ranks[:, x_order][kept].reshape(n_columns, n - 1)
            total += rank_ksg(in_order, self.n_neighbors)
        return total

    def of_part(self, rescaled: FloatArray, kept: IntArray) -> float:
        """The value for the points ``kept`` alone; ``rescaled`` (n,) belongs to them."""
        n, chosen = len(kept), np.full(len(self.shuffled), -1, dtype=np.intp)
        chosen[kept] = np.arange(n)
        shuffled = chosen[self.shuffled]
        shuffled = shuffled[shuffled >= 0]
        ranks = np.empty(n, dtype=np.intp)
        ranks[shuffled[np.argsort(rescaled[shuffled], kind="stable")]] = np.arange(n)
        total = 0.0
        for x_order in self.x_orders:
            in_order = chosen[x_order]
            total += float(rank_ksg(ranks[in_order[in_order >= 0]][None], self.n_neighbors)[0])
        return total


def choose(criteria: FloatArray) -> IntArray:
    """For each column of (G, M) the row that is smallest; of equal ones the last, the smoothest.

    Flat criteria (all scores equal, say) carry no information, and then the least local kernel
    is the safest.
    """
    last = len(criteria) - 1
    return np.asarray(last - np.argmin(criteria[::-1], axis=0), dtype=np.intp)


class KernelFamily(Protocol):
    """Kernels that differ in one number, and what is left out: single points, or folds."""

    @property
    def fold(self) -> IntArray | None:
        """(N,) the fold of every calibration point, 0 … F−1; None if each is left out alone."""

    def without_two(self, candidate: float) -> FloatArray:
        """(N, N) means at point i (row) without i and m (column); the diagonal without i only.

        With folds, (N, F) means without i and without each fold.
        """

    def means_without(self, candidate: float, members: IntArray) -> MeansWithout:
        """For new rows, the means without each of the ``members``, which are points or folds."""


@dataclass(frozen=True)
class Tuning:
    """How to choose: the candidates in ascending smoothness, and what makes one the best."""

    candidates: FloatArray
    criterion: str
    information: RescaledInformation | None
    progress: Callable[[float], None]

    def values(
        self, magnitudes: FloatArray, without_two: FloatArray, fold: IntArray | None = None
    ) -> FloatArray:
        """The criterion of all others for every point left out, (N,), or every fold, (F,)."""
        if fold is not None:
            values = []
            for number, means in enumerate(without_two.T):
                kept = np.flatnonzero(fold != number)
                values.append(self.value(magnitudes[kept], means[kept], kept))
            return np.array(values)
        n = len(magnitudes)
        if self.information is not None:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ratio = np.where(without_two > 0, magnitudes[:, None] / without_two, np.inf)
            return self.information.of_columns(ratio, np.arange(n))
        loss = pointwise_loss(self.criterion, magnitudes[:, None], without_two)
        np.fill_diagonal(loss, 0.0)
        return np.asarray(loss.sum(axis=0) / (n - 1))

    def value(self, magnitudes: FloatArray, scale: FloatArray, kept: IntArray) -> float:
        """The criterion of the points ``kept`` alone, to which both arrays belong."""
        if self.information is not None:
            return self.information.of_part(rescale(magnitudes, scale), kept)
        return float(pointwise_loss(self.criterion, magnitudes, scale).mean())


class LeaveTwoOutTuned(LeaveTwoOut):
    """Local means of calibration magnitudes, with a candidate for each point or fold left out.

    Attributes
    ----------
    candidates, criteria : the grid (G,), and the criterion at each candidate and point, (G, N),
        or fold, (G, F)
    chosen : (N,) the candidate that goes with every calibration point, that of its fold
    without_one : (N,) ŝ_m(λ_m; all but m), or all but its fold
    """

    def __init__(
        self,
        family: KernelFamily,
        magnitudes: FloatArray,
        *,
        offset: float,
        tuning: Tuning | None = None,
        chosen: FloatArray | None = None,
        without_one: FloatArray | None = None,
    ) -> None:
        self.family, self.magnitudes, self.offset = family, magnitudes, offset
        self.fold, points = family.fold, np.arange(len(magnitudes))
        self.n_folds = None if self.fold is None else int(self.fold.max()) + 1
        self._out = points if self.fold is None else self.fold
        if tuning is not None:
            self.candidates = tuning.candidates
            self.criteria, means = self._scan(tuning)
            index = choose(self.criteria)[self._out]
            self.chosen = self.candidates[index]
        else:
            assert chosen is not None
            self.chosen = chosen
            self.candidates, index = np.unique(chosen, return_inverse=True)
            if without_one is not None:
                self.without_one = without_one
                return
            means = np.stack([np.diagonal(family.without_two(c)) for c in self.candidates])
        self.without_one = means[index, points] + offset

    def _scan(self, tuning: Tuning) -> tuple[FloatArray, FloatArray]:
        """Criteria, (G, N) or (G, F), and means without one point or its fold, (G, N)."""
        criteria, means = [], []
        for done, candidate in enumerate(tuning.candidates, start=1):
            without_two = self.family.without_two(candidate)
            means.append(without_two[np.arange(len(self._out)), self._out])
            without_two += self.offset
            criteria.append(tuning.values(self.magnitudes, without_two, self.fold))
            tuning.progress(done / len(tuning.candidates))
        return np.stack(criteria), np.stack(means)

    def for_file(self) -> dict[str, Any]:
        """What was drawn and chosen, and the scales that it leads to."""
        found = {"chosen": self.chosen, "without_one": self.without_one}
        return found if self.fold is None else {"fold": self.fold, **found}

    @cached_property
    def of_each(self) -> FloatArray:
        """The candidate of every point, (N,), or every fold, (F,)."""
        candidates = np.ones(self.n_folds or len(self.chosen))
        candidates[self._out] = self.chosen
        return candidates

    @cached_property
    def _groups(self) -> list[tuple[IntArray, MeansWithout]]:
        """Points or folds of one candidate each, and means at new rows without each of them."""
        groups = []
        for candidate in np.unique(self.of_each).tolist():
            members = np.flatnonzero(self.of_each == candidate)
            groups.append((members, self.family.means_without(candidate, members)))
        return groups

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows, each without one point or its fold, by the candidate of it."""
        means = np.empty((len(Z), len(self.of_each)))
        for members, means_without in self._groups:
            means[:, members] = means_without(Z)
        means += self.offset
        return means if self.fold is None else means[:, self.fold]


def best_for_all(family: KernelFamily, magnitudes: FloatArray, tuning: Tuning) -> float:
    """One candidate for a whole data set, by leave-one-out."""
    values, everyone = [], np.arange(len(magnitudes))
    for done, candidate in enumerate(tuning.candidates, start=1):
        means = np.diagonal(family.without_two(candidate))
        values.append(tuning.value(magnitudes, means, everyone))
        tuning.progress(done / len(tuning.candidates))
    return float(tuning.candidates[choose(np.array(values)[:, None])[0]])
