"""The grid of length scales, from training inputs alone (paper, Algorithm S.2, lines 2–4).

The smallest and largest distance of random pairs span the grid. The lower end decides what mutual
information chooses: below the spacing of the points, the rescaled score is the ratio of two
neighbouring scores, whose law is the same everywhere, so the information is as low there as at a
good scale. The guarded grid therefore starts where a kernel averages some ten points: a ball that
holds k of n points holds them in a volume V_d r^d, a radial kernel weighs a volume (2π)^{d/2} l^d.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels import TunedRBF
from calliper.kernels._distances import EUCLIDEAN, squared_distances
from calliper.kernels._search import NeighborSearch

#: Neighbours whose distance guards the lower end, and training inputs that are looked at for it.
GUARD_NEIGHBORS, GUARD_POINTS = 10, 2000


def length_scale_grid(
    kernel: TunedRBF, Z_train: FloatArray, rng: np.random.RandomState
) -> FloatArray:
    """Length scales, ascending, evenly spaced in their logarithm."""
    distances = _pair_distances(kernel, Z_train, rng)
    low, high = distances.min() / kernel.expand, distances.max() * kernel.expand
    if kernel.grid == "guarded" or (kernel.grid == "auto" and kernel.criterion == "mi"):
        low = min(max(low, _neighbor_distance(kernel, Z_train, rng)), high)
    if kernel.n_scan == 1:
        return np.array([np.sqrt(low * high)])
    return np.geomspace(low, high, kernel.n_scan)


def _pair_distances(kernel: TunedRBF, Z: FloatArray, rng: np.random.RandomState) -> FloatArray:
    """Positive distances of random pairs; copies of one input say nothing about scale."""
    positive = np.empty(0)
    for _ in range(20):
        first = rng.randint(len(Z), size=kernel.n_sample)
        second = rng.randint(len(Z), size=kernel.n_sample)
        if kernel.metric == EUCLIDEAN:
            squared = np.square(Z[first] - Z[second]).sum(axis=1)
        else:
            squared = np.array(
                [
                    squared_distances(Z[[a]], Z[[b]], kernel.metric).item()
                    for a, b in zip(first, second, strict=True)
                ]
            )
        positive = np.concatenate([positive, np.sqrt(squared[squared > 0])])
        if len(positive) >= kernel.n_sample:
            return positive[: kernel.n_sample]
    if not len(positive):
        raise CalliperError(
            f"all of {len(Z)} training inputs are the same, so no length scale can be read off "
            f"them: pass length_scales=, or other features."
        )
    return positive


def _neighbor_distance(kernel: TunedRBF, Z: FloatArray, rng: np.random.RandomState) -> float:
    """The length scale whose kernel weighs as much as the median ball of ten neighbours."""
    if len(Z) > GUARD_POINTS:
        # A sample has wider gaps than the whole; the guard errs on the smooth side.
        Z = Z[rng.choice(len(Z), GUARD_POINTS, replace=False)]
    k = min(GUARD_NEIGHBORS, len(Z) - 1)
    if k < 1:
        return 0.0
    search = NeighborSearch(Z, rng.uniform(size=len(Z)), kernel.metric)
    distance = search.distance_to(search.nearest_others(k)[:, -1])
    median = float(np.median(distance))
    radius = float(np.sqrt(median)) if kernel.metric == EUCLIDEAN else median
    d = Z.shape[1]
    log_ball = d / 2 * np.log(np.pi) - gammaln(d / 2 + 1)
    return radius * float(np.exp(log_ball / d) / np.sqrt(2 * np.pi))
