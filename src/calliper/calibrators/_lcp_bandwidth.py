"""The bandwidth of localised conformal prediction, chosen on training errors.

Each of up to 2,000 training points is left out and gets the radius that the others would give it.
Of the bandwidths that leave at most 5 % of these radii infinite, the one of the smallest mean
radius wins, infinite ones counting as the largest training error; if all leave more, the largest.
The bag of a point left out is always the whole sample, so that one matrix of weights serves all:
the new point's weight is a row, and what the others lose without it a column.

Cost: O(n² (d + B log n)) for n training points and B bandwidths.

Guan (2023) proposes this with the mean of finite lengths and a multiple of their bootstrap
spread; the sample here is large enough to do without.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray
from calliper._validation import check_features, check_vector
from calliper.calibrators._lcp_localizers import nearest_mask, radial_weights
from calliper.calibrators._lcp_search import OrderedScores, largest_kept
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.kernels import EUCLIDEAN, all_distances
from calliper.quantile import conformal_rank

#: Most training points that are left out, one by one.
MOST_POINTS = 2000

#: Largest part of infinite radii that a bandwidth may leave.
MOST_INFINITE = 0.05

#: Bandwidths that are tried, as multiples of the median distance.
MULTIPLES = 2.0 ** np.arange(-7, 5.5, 0.75)


def check_bandwidth(bandwidth: Any, localizer: str, n: int) -> float | None:
    """The bandwidth as a number, or None for one that is still to be chosen."""
    if isinstance(bandwidth, str):
        if bandwidth != "auto":
            raise ValueError(f"bandwidth is a number or 'auto'; got {bandwidth!r}.")
        return None
    if localizer != "neighbors":
        if not isinstance(bandwidth, Real) or not 0 < float(bandwidth) < np.inf:
            raise ValueError(f"bandwidth must be a positive, finite number; got {bandwidth!r}.")
        return float(bandwidth)
    if not isinstance(bandwidth, Integral) or bandwidth < 1:
        raise ValueError(f"bandwidth counts neighbours, an integer >= 1; got {bandwidth!r}.")
    if int(bandwidth) > n:
        warnings.warn(
            f"{bandwidth} neighbours were asked for and only {n} exist: all are used.",
            SmallCalibrationWarning,
            stacklevel=3,
        )
    return float(bandwidth)


def training_sample(
    Z: FloatArray, Z_train: Any, scores_train: Any, rng: np.random.RandomState
) -> tuple[FloatArray, FloatArray]:
    """Training points and errors, as many as a bag has members or fewer."""
    if Z_train is None or scores_train is None:
        raise CalliperError(
            "bandwidth='auto' is chosen on training errors: pass Z_train and scores_train to "
            "fit (X_train and y_train to ConformalRegressor.calibrate), or a number."
        )
    train = check_features(Z_train, "Z_train")
    if train.shape[1] != Z.shape[1]:
        raise CalliperError(f"Z_train has {train.shape[1]} columns, Z has {Z.shape[1]}.")
    scores = check_vector(scores_train, "scores_train", n=len(train))
    if len(train) < 3:
        raise CalliperError(f"bandwidth='auto' needs 3 training points; got {len(train)}.")
    chosen = rng.permutation(len(train))[: min(max(3, len(Z) + 1), MOST_POINTS)]
    return train[chosen], scores[chosen]


def tuned_bandwidth(
    name: str, Z: FloatArray, scores: FloatArray, coverage: float, rng: np.random.RandomState
) -> float:
    """The best bandwidth of a grid at this level, for n training points and their errors."""
    order = np.argsort(scores, kind="stable")
    Z, ordered = Z[order], OrderedScores(scores[order])
    priorities = rng.uniform(size=len(Z))
    distances = cdist(Z, Z) if name != "neighbors" else all_distances(Z, Z, EUCLIDEAN)
    rank, best, least = conformal_rank(coverage, len(Z) - 1), 0.0, np.inf
    for bandwidth in _grid(name, distances):
        radius = _left_out(ordered, _bag(name, distances, bandwidth, priorities), rank)
        best, infinite = best or bandwidth, np.isinf(radius)
        mean = np.where(infinite, ordered.values[-1], radius).mean()
        if infinite.mean() <= MOST_INFINITE and mean < least:
            best, least = bandwidth, mean
    return best


def _grid(name: str, distances: FloatArray) -> list[float]:
    """From flat weights to narrow ones."""
    n = len(distances)
    if name == "neighbors":
        return sorted(set(np.geomspace(1, n - 1, 16).round().tolist()), reverse=True)
    median = float(np.median(distances[np.triu_indices(n, 1)]))
    if median == 0:
        raise CalliperError(
            "bandwidth='auto' goes by the median distance between training inputs, which is 0; "
            "pass a number."
        )
    return [float(bandwidth) for bandwidth in median * MULTIPLES[::-1]]


def _bag(name: str, distances: FloatArray, bandwidth: float, priorities: FloatArray) -> FloatArray:
    """H_ij over the sample, (n, n), each point's weight of itself one."""
    if name != "neighbors":
        return radial_weights(distances.copy(), name, bandwidth)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    H = nearest_mask(others, int(bandwidth), priorities).astype(np.float64)
    np.fill_diagonal(H, 1.0)
    return H


def _left_out(ordered: OrderedScores, H: FloatArray, rank: int) -> FloatArray:
    """The radius of each point from all the others, (n,)."""
    n, scratch = len(ordered), Scratch()
    columns = np.arange(n)
    total = H.sum(axis=1)
    prefix = np.cumsum(H, axis=1)[columns, ordered.n_below - 1]
    below = np.where(ordered.n_below > 0, prefix, 0.0)

    def one_block(rows: slice) -> FloatArray:
        here, place = columns[rows], np.arange(rows.stop - rows.start)
        weight, back = H[rows].copy(), H.T[rows]
        was_below = ordered.n_below[None, :] > here[:, None]
        share = (below - np.where(was_below, back, 0.0)) / total
        with_new = share + back / total
        # A point left out is no member that could be counted, and has no weight.
        weight[place, here] = 0.0
        share[place, here] = with_new[place, here] = np.inf
        return largest_kept(ordered, weight, share, with_new, [rank], scratch)[:, 0]

    return np.concatenate(map_row_blocks(one_block, n, 4 * n))
