"""``FullRescaled`` over the K nearest for calibration sets that no single machine holds.

The points are dealt to shards; what travels, and why the answer is the same to the last bit, is in
``_shards.py``. Shards are arrays in this process, or partitions of Dask collections, which
stay on the workers that hold them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from calliper._types import FloatArray
from calliper._validation import check_features, check_scores, refuse_huge_scores, warn_zero_scales
from calliper.calibrators import LARGEST, FullRescaled, ShrunkBag
from calliper.exceptions import CalliperError
from calliper.kernels import EUCLIDEAN, KNN, Grid
from calliper.quantile import exponent
from calliper.scale._dask import check_workers, current_client, is_collection, partitions
from calliper.scale._shards import ShardedBag, make_shard

#: Arguments that are larger are sent to all workers once, and not with every task.
LARGE_BYTES = 1 << 16


class Here:
    """Shards in this process, one after the other."""

    def each(self, work: Callable[..., Any], *parts: Sequence[Any], **same: Any) -> list[Any]:
        """``work`` of each shard's parts."""
        return [work(*one, **same) for one in zip(*parts, strict=True)]

    def fetch(self, parts: Sequence[Any]) -> list[Any]:
        """The parts."""
        return list(parts)


class OnCluster:
    """Shards on the workers of a Dask cluster, as futures that go when nobody holds them."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def each(self, work: Callable[..., Any], *parts: Sequence[Any], **same: Any) -> list[Any]:
        """``work`` of each shard's parts, left on a worker."""
        for name, value in same.items():
            if getattr(value, "nbytes", 0) > LARGE_BYTES:
                same[name] = self.client.scatter(value, broadcast=True, hash=False)
        tasks = zip(*parts, strict=True)
        return [self.client.submit(work, *one, **same, pure=False) for one in tasks]

    def fetch(self, parts: Sequence[Any]) -> list[Any]:
        """What came of it, in this process."""
        return list(self.client.gather(list(parts)))


class ShardedRescaled(FullRescaled):
    """``FullRescaled(KNN(K))`` of calibration points in shards; equal to it to the last bit.

    Parameters are those of :class:`FullRescaled`; the kernel is given, ``KNN(K)`` with Euclidean
    distances, K < N, and the statistic "mean" or "rms". Weights, distributions and ``extend`` are
    not known here. It lives as long as the cluster, and is not saved.

    Parameters
    ----------
    kernel : KNN
    shrinkage, statistic, offset, random_state :
        As for :class:`FullRescaled`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, errors = rng.uniform(size=(500, 2)), rng.exponential(size=500)
    >>> whole = FullRescaled(KNN(10)).fit(Z, errors)
    >>> sharded = ShardedRescaled(KNN(10)).fit(np.split(Z, 5), np.split(errors, 5))
    >>> new = rng.uniform(size=(100, 2))
    >>> bool((sharded.predict_radius(new) == whole.predict_radius(new)).all())
    True
    """

    def fit(self, Z: Any, scores: Any) -> Self:  # type: ignore[override]
        """Find the neighbours of all points in all shards.

        Parameters
        ----------
        Z, scores : lists of arrays (n, d) and (n,), one of each a shard; or two Dask collections
            with the same partitions, each of which is a shard on the worker that computes it
        """
        self._check_parameters()
        k = self._checked_kernel().n_neighbors
        workers, parts = _placed(Z, scores)
        facts = workers.fetch(workers.each(_facts, parts))
        parts = [part for part, fact in zip(parts, facts, strict=True) if fact[0]]
        facts = [fact for fact in facts if fact[0]]
        n, extremes = _joined(facts)
        if k >= n:
            raise CalliperError(
                f"{k} neighbours need at least {k + 1} calibration points; got {n} in all. Take "
                f"FullRescaled, or fewer neighbours."
            )
        self.kernel_, self.shrinkage_ = self._checked_kernel(), float(self.shrinkage or 0.0)
        self.statistic_ = self.statistic or "mean"
        self.power_ = 2 if self.statistic_ == "rms" else 1
        self.shift_ = LARGEST // self.power_ - exponent(np.append(extremes, self.offset))
        scaled = np.ldexp(extremes, self.shift_) ** self.power_
        self.least_ = self._least(extremes, scaled)
        grid = Grid(scaled)
        shards = workers.each(_scaled_shard, parts, shift=self.shift_, power=self.power_, grid=grid)
        offset = float(np.ldexp(float(self.offset), self.shift_)) ** self.power_
        offset /= 1 - self.shrinkage_
        bag: Any = ShardedBag(workers, shards, grid, n=n, n_neighbors=k, offset=offset)
        if self.shrinkage_:  # the two scores beside the median are all that it takes of them
            bag = ShrunkBag(bag, np.array(bag.middle), self.shrinkage_)
        self.bag_, self.levels_asked_ = bag, set()
        warn_zero_scales((bag.at_high if self.shrinkage_ else bag).n_zero(), n)
        self.n_features_in_, self.n_calibration_ = facts[0][1], n
        return self

    def extend(self, Z: Any, scores: Any, **how: Any) -> Self:
        """Shards are not extended."""
        raise CalliperError("ShardedRescaled has no extend: fit it again to all shards.")

    def _checked_kernel(self) -> KNN:
        kernel, statistic = self.kernel, self.statistic
        if not isinstance(kernel, KNN) or kernel.metric != EUCLIDEAN or statistic == "quantile":
            raise CalliperError(
                f"shards take KNN(K) with Euclidean distances and the statistic 'mean' or 'rms'; "
                f"got {kernel!r} and {statistic!r}. FullRescaled takes all, on one machine."
            )
        if self.shrinkage == 1:
            raise CalliperError("shrinkage=1 asks no neighbours: take Split().")
        return kernel.resolved()

    @property
    def has_distribution(self) -> bool:  # type: ignore[override]
        """None: signs are not kept in shards."""
        return False


def _placed(Z: Any, scores: Any) -> tuple[Any, list[Any]]:
    """Where shards are, and features with scores of each."""
    if is_collection(Z):
        client = current_client()
        if client is None:
            raise CalliperError(
                "shards of Dask collections live on workers: make a distributed.Client first, or "
                "pass lists of arrays."
            )
        check_workers(client)
        delayed = [client.compute(list(pair)) for pair in partitions(Z, {"scores": scores})]
        workers: Any = OnCluster(client)
        features, errors = zip(*delayed, strict=True)
    else:
        workers, features, errors = Here(), Z, scores
        if not isinstance(Z, list | tuple) or len(Z) != len(scores):
            raise CalliperError(
                f"Z and scores must be lists of arrays, one of each a shard; got a "
                f"{type(Z).__name__} of {len(Z)} and {len(scores)} scores."
            )
    return workers, workers.each(_checked, features, errors, range(len(features)))


def _checked(Z: Any, scores: Any, number: int) -> tuple[FloatArray, FloatArray]:
    """Features and scores of a shard."""
    if len(Z) != len(scores):
        raise CalliperError(f"shard {number} has {len(Z)} rows and {len(scores)} scores.")
    if not len(Z):
        return np.empty((0, 0)), np.empty(0)
    Z, scores = check_features(Z, f"Z of shard {number}"), check_scores(scores)
    refuse_huge_scores(scores, "scores")
    return Z, scores


def _facts(part: tuple[FloatArray, FloatArray]) -> tuple[int, int, FloatArray]:
    """Rows and columns of a shard, and its smallest positive and largest score."""
    Z, scores = part
    smallest = scores[scores > 0].min(initial=np.inf)
    extremes = np.array([smallest, scores.max(initial=0.0)])
    return len(Z), Z.shape[1], extremes[np.isfinite(extremes)]


def _joined(facts: list[tuple[int, int, FloatArray]]) -> tuple[int, FloatArray]:
    """The number of points in all, and scores among which are the smallest and the largest."""
    widths = sorted({fact[1] for fact in facts})
    if len(widths) != 1:
        raise CalliperError(
            f"all shards must have the same columns; they have {widths} of them."
            if widths
            else "all shards are empty: there is nothing to calibrate on."
        )
    return sum(fact[0] for fact in facts), np.concatenate([fact[2] for fact in facts])


def _scaled_shard(part: tuple[FloatArray, FloatArray], shift: int, power: int, grid: Grid) -> Any:
    Z, scores = part
    return make_shard(Z, np.ldexp(scores, shift) ** power, grid)
