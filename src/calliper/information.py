"""Mutual information of features and scores, with its null distribution and standard error.

Near zero an estimate means nothing without its null law, which is known on ranks: under
independence every order of the scores is equally likely. So the mean of that law is subtracted from
each estimate, and an exact permutation p-value and a standard error are given. For several features
it is the *sum of the marginal* informations, as in the paper, which is not a bound.

Mutual information does not change under monotone maps, so both variables may be replaced by their
ranks 0 … n−1. On ranks the estimator of Kraskov, Stögbauer and Grassberger (its first form),

    ψ(k) + ψ(n) − ⟨ψ(n_x + 1) + ψ(n_y + 1)⟩,

needs one search, or walk along x: for ε_i, the k-th smallest max(|Δx|, |Δy|). The counts n_x, n_y
of points nearer than ε_i in one variable are arithmetic.

References: Kraskov, Stögbauer, Grassberger (2004), "Estimating mutual information", Eq. 8,
doi:10.1103/PhysRevE.69.066138 (estimator); Holmes and Nemenman (2019),
doi:10.1103/PhysRevE.100.022404 (standard error by subsampling).
"""

from dataclasses import dataclass
from hashlib import shake_128
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.special import digamma
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_features, check_vector
from calliper.exceptions import CalliperError
from calliper.rows import same_rows

__all__ = ["MutualInformation", "mutual_information"]

#: Parts of the points whose estimates give the standard error, and the number of partitions.
SUBSAMPLES, PARTITIONS = 4, 10
#: Fewer ranks fit short integers, on which walking is faster than a tree.
SHORT = 2**15


@dataclass(frozen=True)
class MutualInformation:
    """An estimate in nats, with its null distribution and standard error.

    Parameters
    ----------
    estimate : raw estimate minus its mean under independence; slightly negative values happen
    raw : the estimate as the formula gives it
    null_mean, null_deviation : of its law if scores do not depend on the features
    p_value : share of permutations with at least this estimate, itself included
    standard_error : from the scatter over subsamples; NaN if there are too few points
    per_component : corrected estimate for each feature or component; ``estimate`` is their sum
    n, n_neighbors : number of points, and k of the estimator

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mutual_information(rng.normal(size=(200, 1)), rng.normal(size=200), random_state=0).n
    200
    """

    estimate: float
    raw: float
    null_mean: float
    null_deviation: float
    p_value: float
    standard_error: float
    per_component: tuple[float, ...]
    n: int
    n_neighbors: int

    def describe(self) -> str:
        """The estimate in words."""
        n = len(self.per_component)
        summed = f" (the sum over {n} features, which is not a bound)" if n > 1 else ""
        return (
            f"mutual information {self.estimate:.4f} ± {self.standard_error:.4f} nats{summed}, "
            f"p = {self.p_value:.3g} against independence, from {self.n} points"
        )


def mutual_information(
    Z: Any,
    scores: Any,
    *,
    n_neighbors: int = 10,
    n_components: int | None = None,
    Z_train: Any = None,
    n_permutations: int = 199,
    random_state: Any = None,
) -> MutualInformation:
    """Estimate the mutual information between features and scores.

    Parameters
    ----------
    Z : (n, d) features; for d > 1 the marginal informations are summed
    scores : (n,) numbers; ties are broken at random, infinities count as largest
    n_neighbors : int, default 10; k of the estimator: the usual 3 scatters twice as much near 0
    n_components : int, optional; sum over this many principal components instead of all features
    Z_train : (n, d), optional; rows to which these are fitted, by default ``Z``
    n_permutations : int, default 199; for the null law; the smallest p-value is 1 / (this + 1)
    random_state : int, RandomState or None; breaks ties, permutes and subsamples

    Returns
    -------
    MutualInformation; the estimate, its null law and its standard error

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, noise = rng.normal(size=(2, 1000))
    >>> found = mutual_information(x[:, None], 0.6 * x + 0.8 * noise, random_state=0)
    >>> round(found.estimate, 2)  # the truth is -log(1 - 0.6²) / 2 = 0.22
    0.24
    >>> found.p_value
    0.005
    """
    features = check_features(Z)
    n, (scores,) = len(features), same_rows(Z, "Z", scores=scores)
    scores = np.asarray(scores, dtype=np.float64)
    infinite = np.isposinf(scores)  # a rescaled score with a zero scale
    values = check_vector(np.where(infinite, 0.0, scores), "scores", n=n)
    values[infinite.reshape(-1)] = np.inf
    if not 1 <= n_neighbors < n - 1:
        raise CalliperError(
            f"n_neighbors must lie between 1 and n - 2 = {n - 2}; got {n_neighbors}."
        )
    at_least(n_permutations, 1, "n_permutations")
    if Z_train is not None and n_components is None:
        raise CalliperError("Z_train is only used to find components: also pass n_components.")
    components = principal_components(features, n_components, Z_train)
    rng = check_random_state(random_state)
    # Ties of features are broken by the data as well as the seed, differently in every data set.
    anew = np.random.RandomState(seed_of(features, values)).permutation(n)
    x_ranks = random_ranks(components.T, rng, anew)
    y_ranks = random_ranks(values, rng)
    raw = _marginals(x_ranks, y_ranks[None], n_neighbors)[:, 0]
    shuffled = np.stack([rng.permutation(n) for _ in range(n_permutations)])
    null = _marginals(x_ranks, shuffled, n_neighbors)
    total, null_total = raw.sum(), null.sum(axis=0)
    return MutualInformation(
        estimate=float(total - null_total.mean()),
        raw=float(total),
        null_mean=float(null_total.mean()),
        null_deviation=float(null_total.std(ddof=1)) if n_permutations > 1 else float("nan"),
        p_value=float((1 + np.count_nonzero(null_total >= total)) / (n_permutations + 1)),
        standard_error=_standard_error(x_ranks, y_ranks, n_neighbors, rng),
        per_component=tuple(float(v) for v in raw - null.mean(axis=1)),
        n=n,
        n_neighbors=n_neighbors,
    )


def principal_components(Z: FloatArray, n_components: int | None, Z_train: Any) -> FloatArray:
    """Z, or its first principal components, fitted to training features."""
    if n_components is None:
        return Z
    reference = Z if Z_train is None else check_features(Z_train, "Z_train")
    most = min(reference.shape)
    if not 1 <= n_components <= most:
        raise CalliperError(
            f"n_components must lie between 1 and {most}, the smaller of the number of features "
            f"and of rows; got {n_components}."
        )
    return np.asarray(PCA(n_components).fit(reference).transform(Z))


def _marginals(x_ranks: IntArray, y_ranks: IntArray, k: int) -> FloatArray:
    """Estimates by component (rows) and by row of score ranks (columns)."""
    return np.stack([rank_ksg(y_ranks[:, np.argsort(x)], k) for x in x_ranks])


def _standard_error(
    x_ranks: IntArray, y_ranks: IntArray, k: int, rng: np.random.RandomState
) -> float:
    """From quarters of the points: the variance of the estimator is proportional to 1/n."""
    size, variance = len(y_ranks) // SUBSAMPLES, []
    if size <= k + 1:
        return float("nan")
    for _ in range(PARTITIONS):
        parts = rng.permutation(len(y_ranks))[: SUBSAMPLES * size].reshape(SUBSAMPLES, size)
        x_part = np.argsort(np.argsort(x_ranks[:, parts], axis=-1), axis=-1)
        y_part = np.argsort(np.argsort(y_ranks[parts], axis=-1), axis=-1)
        pairs = zip(x_part.swapaxes(0, 1), y_part[:, None], strict=True)
        estimates = [_marginals(x, y, k).sum() for x, y in pairs]
        variance.append(np.var(estimates, ddof=1) / SUBSAMPLES)
    return float(np.sqrt(np.mean(variance)))


def random_ranks(
    values: FloatArray, rng: np.random.RandomState, anew: IntArray | None = None
) -> IntArray:
    """Ranks 0 … n−1 along the last axis, with ties in random order; ``anew`` permutes the draws."""
    drawn = rng.uniform(size=values.shape)
    order = np.lexsort((drawn if anew is None else drawn[..., anew], values), axis=-1)
    return np.argsort(order, axis=-1)


def seed_of(*columns: FloatArray) -> int:
    """A number below 2³² that depends on rows, (n,) or (n, d), but not on their order.

    With one seed for all data the same numbers would be drawn for all. Where they decide something
    about data points (which of two equal ones comes first, where a weight is centred), a guarantee
    that holds on average over draws need not hold for that seed.
    """
    rows = as_bytes(np.column_stack(columns))
    return int.from_bytes(shake_128(b"".join(sorted(rows))).digest(4), "little")


def as_bytes(rows: FloatArray) -> list[bytes]:
    """The bytes of each row; those of negative zero are zero's."""
    return [row.tobytes() for row in (rows + 0.0).astype("<f8")]


def rank_ksg(y_ranks: IntArray, n_neighbors: int) -> FloatArray:
    """Mutual information, in nats, of each row of (R, n) ranks with their positions."""
    n, k = y_ranks.shape[1], n_neighbors
    psi, find = np.append(np.nan, digamma(np.arange(1, n + 1))), _walk if n < SHORT else _search

    def estimate(rows: slice) -> FloatArray:
        y = y_ranks[rows]
        inside, total = find(y, k).astype(np.intp) - 1, np.zeros(len(y))
        for centre in (np.arange(n), y):
            count = np.minimum(n - 1, centre + inside) - np.maximum(0, centre - inside) + 1
            total += psi[count].mean(axis=1)
        return np.asarray(psi[k] + psi[n] - total)

    return np.concatenate(map_row_blocks(estimate, len(y_ranks), (k + 4) * n))


def _search(y: IntArray, k: int) -> Any:
    """ε of each point of one row; a tree that is not balanced is built faster."""
    points = np.column_stack([np.arange(y.size), *y]).astype(np.float64)
    tree = KDTree(points, balanced_tree=False, compact_nodes=False)
    return tree.query(points, k=[k + 1], p=np.inf)[0].T


def _walk(ranks: IntArray, k: int) -> Any:
    """ε of each point of all rows together: each step is a few operations on short integers."""
    x, y = np.arange(ranks.shape[1], dtype=np.int16), ranks.astype(np.int16)
    nearest = np.full((k, *y.shape), len(x), dtype=y.dtype)  # ascending
    for step in x[1:]:
        distance = np.maximum(np.abs(y[:, step:] - y[:, :-step]), step)
        for side in (np.s_[step:], np.s_[:-step]):
            value = distance
            for slot in nearest[:, :, side]:
                larger = np.maximum(slot, value)
                np.minimum(slot, value, out=slot)
                value = larger
        # Nearer ones are all found. The last few points are compared with all others instead.
        if np.count_nonzero(nearest[-1] > step) <= y.size // 128:
            break
    row, point = np.nonzero(nearest[-1] > step)
    distance = np.maximum(np.abs(x - x[point, None]), np.abs(y[row] - y[row, point, None]))
    nearest[-1, row, point] = np.partition(distance, k, axis=1)[:, k]  # each is nearest to itself
    return nearest[-1]
