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
doi:10.1214/20-AOS1965), whose guarantee applies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calliper._types import BoolArray, FloatArray, IntArray
from calliper.information import random_ranks, rank_ksg
from calliper.kernels._arithmetic import rescale
from calliper.kernels._kernel import LeaveTwoOut, Rng
from calliper.kernels._nearest import Nearest
from calliper.kernels._rbf import RadialMeans

CRITERIA = ("mse", "deviance", "mi")

#: Local means without each of N calibration points, or each of F folds of them: ``to`` new rows,
#: (m, N) or (m, F), and ``among`` the points without themselves, the diagonal without i only.
Means = Nearest | RadialMeans

#: The means of kernels that differ in one number, by that number.
Family = Callable[[float], Means]


def pointwise_loss(kind: str, magnitudes: FloatArray, scale: FloatArray) -> FloatArray:
    """The summand of ``"mse"`` or ``"deviance"``; a zero scale has an infinite deviance."""
    if kind == "mse":
        return np.square(magnitudes - scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(scale) + magnitudes / scale
    return np.where(scale > 0, loss, np.inf)


class RescaledInformation:
    """Mutual information of rescaled scores with the features, for every point left out.

    Of (N, C) features or components, with k neighbours; ``rng`` breaks ties, once for all.
    """

    def __init__(self, components: FloatArray, n_neighbors: int, rng: Rng) -> None:
        n = len(components)
        self.x_orders = np.argsort(random_ranks(components.T, rng), axis=-1)
        self.shuffled, self.n_neighbors = rng.permutation(n), n_neighbors

    def of_columns(self, rescaled: FloatArray, left_out: BoolArray) -> FloatArray:
        """One value for each column of ``rescaled`` (N, M), without as many points each (M, N)."""
        n_columns, n = left_out.shape
        values = np.where(left_out, np.nan, rescaled.T)  # sorts behind infinity
        # Equal scores come in random order.
        order = np.argsort(values[:, self.shuffled], axis=1, kind="stable")
        ranks = np.empty((n_columns, n), dtype=np.intp)
        np.put_along_axis(ranks, self.shuffled[order], np.arange(n)[None, :], axis=1)
        total = np.zeros(n_columns)
        for x_order in self.x_orders:
            in_order = ranks[:, x_order][~left_out[:, x_order]].reshape(n_columns, -1)
            total += rank_ksg(in_order, self.n_neighbors)
        return total


def choose(criteria: FloatArray) -> IntArray:
    """For each column of (G, M) the row that is smallest; of equal ones the last, the smoothest."""
    return np.asarray(len(criteria) - 1 - np.argmin(criteria[::-1], axis=0))


@dataclass(frozen=True)
class Tuning:
    """How to choose: the candidates in ascending smoothness, and what makes one the best."""

    candidates: FloatArray
    criterion: str
    information: RescaledInformation | None
    progress: Callable[[float], None]

    def criteria(
        self,
        magnitudes: FloatArray,
        left_out: BoolArray,
        scales: Callable[[float], FloatArray],
    ) -> FloatArray:
        """The criterion of each candidate, (G, M), by (N, M) scales without (M, N) points."""
        found = np.empty((len(self.candidates), len(left_out)))
        for done, candidate in enumerate(self.candidates):
            found[done] = self.values(magnitudes[:, None], scales(candidate), left_out)
            self.progress((done + 1) / len(self.candidates))
        return found

    def values(self, magnitudes: FloatArray, scale: FloatArray, left_out: BoolArray) -> FloatArray:
        """The criterion for each column of scales (N, M), and of magnitudes (N, 1): (M,)."""
        n_out = left_out.sum(axis=1)
        if self.information is None:
            loss = pointwise_loss(self.criterion, magnitudes, scale)
            loss[left_out.T] = 0.0
            return np.asarray(loss.sum(axis=0) / (len(loss) - n_out))
        ratio, found = rescale(magnitudes, scale), np.empty(len(left_out))
        for number in np.unique(n_out):
            columns = n_out == number
            found[columns] = self.information.of_columns(ratio[:, columns], left_out[columns])
        return found

    def best_for_all(self, family: Family, magnitudes: FloatArray) -> float:
        """One candidate for a whole data set, by leave-one-out."""
        none = np.zeros((1, len(magnitudes)), dtype=bool)
        criteria = self.criteria(
            magnitudes, none, lambda candidate: np.diagonal(family(candidate).among())[:, None]
        )
        return float(self.candidates[choose(criteria)[0]])


class LeaveTwoOutTuned(LeaveTwoOut):
    """Local means of calibration magnitudes, with a candidate for each point or fold left out.

    Attributes
    ----------
    candidates, criteria : the grid (G,), and the criterion there for each point or fold left out
    chosen : (N,) the candidate that goes with every calibration point, that of its fold
    without_one : (N,) ŝ_m(λ_m; all but m), or all but its fold
    """

    def __init__(
        self,
        family: Family,
        magnitudes: FloatArray,
        *,
        offset: float,
        fold: IntArray | None = None,
        tuning: Tuning | None = None,
        chosen: FloatArray | None = None,
        without_one: FloatArray | None = None,
    ) -> None:
        self.family, self.offset, self.fold = family, offset, fold
        points, self.n_folds = np.arange(len(magnitudes)), None if fold is None else fold.max() + 1
        self._out, own = points if fold is None else fold, {}

        def scales(candidate: float) -> FloatArray:
            without_two = family(candidate).among()
            without_two += offset
            own[candidate] = without_two[points, self._out]
            return without_two

        if chosen is None:
            assert tuning is not None
            left_out = np.equal.outer(np.arange(self.n_folds or len(points)), self._out)
            self.candidates = tuning.candidates
            self.criteria = tuning.criteria(magnitudes, left_out, scales)
            chosen = self.candidates[choose(self.criteria)[self._out]]
        elif without_one is None:
            for candidate in np.unique(chosen):
                scales(candidate)
        if without_one is None:
            without_one = np.array([own[each][point] for point, each in enumerate(chosen)])
        self.chosen, self.without_one = chosen, without_one

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
    def _groups(self) -> list[tuple[IntArray, Means]]:
        """Points or folds of one candidate each, and the means that belong to it."""
        different = np.unique(self.of_each).tolist()
        return [(np.flatnonzero(self.of_each == each), self.family(each)) for each in different]

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows, each without one point or its fold, by the candidate of it."""
        means = np.empty((len(Z), len(self.of_each)))
        for members, of_candidate in self._groups:
            means[:, members] = of_candidate.to(Z)[:, members]
        means += self.offset
        return means if self.fold is None else means[:, self.fold]
