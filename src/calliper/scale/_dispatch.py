"""Which closed form belongs to which kernel."""

from __future__ import annotations

import warnings
from functools import singledispatch
from typing import Any, Protocol

import numpy as np

from calliper._types import FloatArray
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.kernels import KNN, RBF, ForestProximity, TunedKNN, TunedRBF
from calliper.kernels._search import NeighborSearch
from calliper.scale._bag_knn import BagKNN
from calliper.scale._bag_rbf import BagRBF
from calliper.scale._bag_similarity import BagSimilarity
from calliper.scale._knn import LeaveTwoOutKNN
from calliper.scale._learnt import LearntBag, LearntKernel
from calliper.scale._mean import NearestMean, RadialMean
from calliper.scale._rbf import LeaveTwoOutRBF
from calliper.scale._shrunk import Bag
from calliper.scale._similarity import SharedLeaves, Similarity, SmoothedRadial
from calliper.scale._similarity_means import LeaveTwoOutSimilarity, SimilarityMean
from calliper.scale._statistic import STATISTICS
from calliper.scale._tune import tuned_leave_two_out
from calliper.scale._weights import RadialExponents


class LeaveTwoOut(Protocol):
    """Scales that the Jackknife+ compares: without the point, and without it and the new one."""

    without_one: FloatArray

    def prepare(self, scores: FloatArray) -> FloatArray: ...

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray: ...


class LocalMean(Protocol):
    """A mean over other data, for new rows."""

    def predict(self, Z: FloatArray) -> FloatArray: ...


def _at_most(kernel: KNN, largest: int) -> int:
    """K, or all points there are, with a warning."""
    if kernel.n_neighbors > largest:
        warnings.warn(
            f"{kernel.n_neighbors} neighbours were asked for but a calibration point has only "
            f"{largest} to choose from: all are used, which leaves little or no adaptivity. "
            f"Calibrate on more points or ask for fewer neighbours.",
            SmallCalibrationWarning,
            stacklevel=4,
        )
    return int(min(kernel.n_neighbors, largest))


def _similarity(kernel: RBF | ForestProximity, Z: FloatArray) -> Similarity | None:
    """Weights that are given outright; None for bare radial ones, which need a shift."""
    if isinstance(kernel, ForestProximity):
        return SharedLeaves(kernel, Z)
    exponents = RadialExponents(Z, float(kernel.length_scale), kernel.metric)
    return SmoothedRadial(exponents, kernel.smoothing) if kernel.smoothing else None


@singledispatch
def leave_two_out(
    kernel: Any,
    Z: FloatArray,
    magnitudes: FloatArray,
    *,
    offset: float,
    rng: np.random.RandomState,
    Z_train: FloatArray | None = None,
) -> LeaveTwoOut:
    """Scales of the Jackknife+ for N ≥ 2 calibration points; ``rng`` settles ties."""
    raise TypeError(
        f"no leave-two-out scale is known for {kernel!r}: use FullRescaled, or another kernel."
    )


@leave_two_out.register
def _(
    kernel: KNN,
    Z: FloatArray,
    magnitudes: FloatArray,
    *,
    offset: float,
    rng: np.random.RandomState,
    Z_train: FloatArray | None = None,
) -> LeaveTwoOut:
    search = NeighborSearch(Z, rng.uniform(size=len(Z)), kernel.metric)
    return LeaveTwoOutKNN(search, magnitudes, _at_most(kernel, len(Z) - 1), offset)


@leave_two_out.register(RBF)
@leave_two_out.register(ForestProximity)
def _(
    kernel: RBF | ForestProximity,
    Z: FloatArray,
    magnitudes: FloatArray,
    *,
    offset: float,
    rng: np.random.RandomState,
    Z_train: FloatArray | None = None,
) -> LeaveTwoOut:
    similarity = _similarity(kernel, Z)
    if similarity is not None:
        return LeaveTwoOutSimilarity(similarity, magnitudes, offset)
    exponents = RadialExponents(Z, float(kernel.length_scale), kernel.metric)
    return LeaveTwoOutRBF(exponents, magnitudes, offset)


@leave_two_out.register(TunedKNN)
@leave_two_out.register(TunedRBF)
def _(
    kernel: TunedKNN | TunedRBF,
    Z: FloatArray,
    magnitudes: FloatArray,
    *,
    offset: float,
    rng: np.random.RandomState,
    Z_train: FloatArray | None = None,
) -> LeaveTwoOut:
    return tuned_leave_two_out(kernel, Z, magnitudes, offset=offset, rng=rng, Z_train=Z_train)


@singledispatch
def bag_scale(
    kernel: Any,
    Z: FloatArray,
    magnitudes: FloatArray,
    scores: FloatArray,
    *,
    statistic: str,
    offset: float,
    priorities: FloatArray,
) -> Bag:
    """Thresholds of full conformal; ``priorities`` (N+1,) end with the new point's."""
    raise TypeError(f"no scale over the bag is known for {kernel!r}.")


@bag_scale.register
def _(
    kernel: KNN,
    Z: FloatArray,
    magnitudes: FloatArray,
    scores: FloatArray,
    *,
    statistic: str,
    offset: float,
    priorities: FloatArray,
) -> Bag:
    return BagKNN(
        NeighborSearch(Z, priorities[:-1], kernel.metric),
        magnitudes,
        scores,
        n_neighbors=_at_most(kernel, len(Z)),
        statistic=STATISTICS[statistic],
        offset=offset,
        priority=float(priorities[-1]),
    )


@bag_scale.register(RBF)
@bag_scale.register(ForestProximity)
def _(
    kernel: RBF | ForestProximity,
    Z: FloatArray,
    magnitudes: FloatArray,
    scores: FloatArray,
    *,
    statistic: str,
    offset: float,
    priorities: FloatArray,
) -> Bag:
    if statistic == "quantile":
        raise CalliperError("statistic='quantile' takes the K nearest: use kernel=KNN(...).")
    similarity = _similarity(kernel, Z)
    if similarity is not None:
        return BagSimilarity(similarity, magnitudes, scores, offset)
    exponents = RadialExponents(Z, float(kernel.length_scale), kernel.metric)
    return BagRBF(exponents, magnitudes, scores, offset)


@bag_scale.register
def _(
    kernel: LearntKernel,
    Z: FloatArray,
    magnitudes: FloatArray,
    scores: FloatArray,
    *,
    statistic: str,
    offset: float,
    priorities: FloatArray,
) -> Bag:
    moved = kernel.metric.transform(Z)
    bag = bag_scale(
        kernel.kernel,
        moved,
        magnitudes,
        scores,
        statistic=statistic,
        offset=offset,
        priorities=priorities,
    )
    return LearntBag(bag, kernel.metric)


@singledispatch
def local_mean(
    kernel: Any, Z: FloatArray, magnitudes: FloatArray, priorities: FloatArray
) -> LocalMean:
    """The kernel's mean, at new rows, of ``magnitudes`` observed at ``Z``."""
    raise TypeError(f"no local mean is known for {kernel!r}: use FullRescaled, or another kernel.")


@local_mean.register
def _(kernel: KNN, Z: FloatArray, magnitudes: FloatArray, priorities: FloatArray) -> LocalMean:
    search = NeighborSearch(Z, priorities, kernel.metric)
    return NearestMean(search, magnitudes, _at_most(kernel, len(Z)))


@local_mean.register(RBF)
@local_mean.register(ForestProximity)
def _(
    kernel: RBF | ForestProximity, Z: FloatArray, magnitudes: FloatArray, priorities: FloatArray
) -> LocalMean:
    similarity = _similarity(kernel, Z)
    if similarity is not None:
        return SimilarityMean(similarity, magnitudes)
    return RadialMean(RadialExponents(Z, float(kernel.length_scale), kernel.metric), magnitudes)
