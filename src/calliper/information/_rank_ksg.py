"""The KSG estimator of mutual information on integer ranks, many problems at once.

Mutual information does not change under monotone maps, so both variables may be replaced by their
ranks 0 … n−1. On ranks the estimator of Kraskov, Stögbauer and Grassberger (its first form),

    ψ(k) + ψ(n) − ⟨ψ(n_x + 1) + ψ(n_y + 1)⟩,

needs no search structure: ε_i, the k-th smallest max(|Δx|, |Δy|), is found by walking outwards in
the order of x, step after step, until the step itself exceeds the k-th distance; and the counts
n_x, n_y of points nearer than ε_i in one variable alone are arithmetic. All points of many
problems walk together, so each step is a handful of operations on short integers.

Reference: Kraskov, Stögbauer, Grassberger (2004), "Estimating mutual information", Eq. 8,
doi:10.1103/PhysRevE.69.066138.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from calliper._blocks import map_slices, row_slices
from calliper._types import FloatArray, IntArray

#: Integers that one block of problems keeps in cache.
BLOCK_INTEGERS = 1 << 18

#: When less than one point in so many is left, walking stops.
STRAGGLERS = 128


def random_ranks(values: FloatArray, rng: np.random.RandomState) -> IntArray:
    """Ranks 0 … n−1 along the last axis; ties, infinite ones among them, in random order."""
    order = np.lexsort((rng.uniform(size=values.shape), values), axis=-1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(values.shape[-1]), axis=-1)
    return ranks


def rank_ksg(y_ranks: IntArray, n_neighbors: int) -> FloatArray:
    """Mutual information of each row's ranks with their positions, in nats; may be negative.

    Parameters
    ----------
    y_ranks : (R, n) each row a permutation of 0 … n−1, in the order of the other variable
    n_neighbors : k, at most n − 1
    """
    n = y_ranks.shape[1]
    dtype = np.int16 if n < 2**15 else np.int32
    step = max(1, BLOCK_INTEGERS // ((n_neighbors + 4) * n))
    values = map_slices(
        lambda rows: _one_block(y_ranks[rows].astype(dtype), n_neighbors),
        row_slices(len(y_ranks), step),
    )
    return np.concatenate(values)


def _one_block(y: NDArray[Any], k: int) -> FloatArray:
    n = y.shape[1]
    epsilon = _kth_distances(y, k)
    inside = epsilon.astype(np.intp) - 1
    psi = np.concatenate([[np.nan], digamma(np.arange(1, n + 1))])
    total = np.zeros(len(y))
    for centre in (np.arange(n)[None, :], y.astype(np.intp)):
        count = np.minimum(n - 1, centre + inside) - np.maximum(0, centre - inside) + 1
        total += psi[count].mean(axis=1)
    estimate: FloatArray = psi[k] + psi[n] - total
    return estimate


def _kth_distances(y: NDArray[Any], k: int) -> NDArray[Any]:
    """ε of every point: the k-th smallest Chebyshev distance of its ranks to another's."""
    n = y.shape[1]
    nearest = np.full((k, *y.shape), np.iinfo(y.dtype).max, dtype=y.dtype)
    left, right, larger = (np.empty_like(y) for _ in range(3))
    for step in range(1, n):
        width = n - step
        np.subtract(y[:, step:], y[:, :-step], out=left[:, :width])
        np.abs(left[:, :width], out=left[:, :width])
        np.maximum(left[:, :width], step, out=left[:, :width])
        np.copyto(right[:, :width], left[:, :width])
        _insert(nearest[:, :, :width], left[:, :width], larger[:, :width])
        _insert(nearest[:, :, step:], right[:, :width], larger[:, :width])
        # Every further point is more than a step away, so smaller distances are final. The last
        # few points, far from all others, are cheaper to finish one by one.
        if step % 8 == 0:
            row, place = np.nonzero(nearest[-1] > step)
            if len(row) <= y.size // STRAGGLERS:
                nearest[-1, row, place] = _kth_distances_of(y, row, place, k)
                break
    return np.asarray(nearest[-1])


def _kth_distances_of(y: NDArray[Any], row: IntArray, place: IntArray, k: int) -> NDArray[Any]:
    """ε of single points, from all distances of their rows."""
    distance = np.abs(y[row] - y[row, place][:, None])
    np.maximum(
        distance, np.abs(np.arange(y.shape[1]) - place[:, None]).astype(y.dtype), out=distance
    )
    distance[np.arange(len(row)), place] = np.iinfo(y.dtype).max
    return np.partition(distance, k - 1, axis=1)[:, k - 1]


def _insert(ascending: NDArray[Any], value: NDArray[Any], larger: NDArray[Any]) -> None:
    """Put ``value`` into its place of each ascending list of k; ``value``, ``larger`` are spent."""
    for slot in ascending[:-1]:
        np.maximum(slot, value, out=larger)
        np.minimum(slot, value, out=slot)
        value, larger = larger, value
    np.minimum(ascending[-1], value, out=ascending[-1])
