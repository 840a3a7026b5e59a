"""How good is a local mean? Three answers, each for every point left out.

For a candidate kernel, ŝ_{i;m} is the local mean at calibration point i without i and m. The
criteria of leaving m out are sums over i ≠ m, so that point m has no say in its own kernel:

    mse       ⟨(s_i − ŝ_{i;m})²⟩
    deviance  ⟨log ŝ_{i;m} + s_i / ŝ_{i;m}⟩          (gamma deviance, constants apart)
    mi        MI(s_i / ŝ_{i;m} ; X_i), summed over the features      (paper, Algorithm S.2)
"""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.information import random_ranks, rank_ksg


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
    rng : breaks ties among features and among scores, once for all
    """

    def __init__(
        self, components: FloatArray, n_neighbors: int, rng: np.random.RandomState
    ) -> None:
        n = len(components)
        self.x_orders = np.argsort(random_ranks(components.T, rng), axis=-1)
        self.shuffled, self.n_neighbors = rng.permutation(n), n_neighbors

    def of_columns(self, rescaled: FloatArray, left_out: IntArray) -> FloatArray:
        """One value a column of ``rescaled`` (N, M), its entry ``left_out[column]`` ignored."""
        n, n_columns = rescaled.shape
        values = rescaled.T[:, self.shuffled]  # equal scores then come in random order
        place = np.empty(n, dtype=np.intp)
        place[self.shuffled] = np.arange(n)
        columns = np.arange(n_columns)
        values[columns, place[left_out]] = np.nan  # sorts behind infinity
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
