"""SLCP: split conformal around a local quantile of training errors.

The training errors near x say how large an error to expect there: their kernel-weighted quantile
at the level asked for. Calibration scores are measured from it, and their conformal threshold
corrects it by the same amount everywhere:

    Q̂(x) = inf{v : Σ_j w_j(x) 1{V_j ≤ v} ≥ 1−α},  w_j(x) = K(x, X_j) / Σ_l K(x, X_l),
    Δ(x) = Q̂(x) + q,   q = Q-th smallest of s_i − Q̂(X_i),   Q = ⌈(1−α)(N+1)⌉.

Letters: V_j, X_j → ``scores_train``, ``Z_train`` (n of them), K → ``kernel``, s_i → ``scores``,
Q̂ → ``local_``, q → the threshold. Every training point keeps its own error and the same ones
serve calibration and new points, which published code gets wrong. The weights reach the level up
to 1e-12 of their sum, so that equal weights that sum to it exactly count as reaching it.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties. Δ below 0 would be an empty
interval, so it is raised to 0 unless some calibration score is negative; this only adds coverage.

Cost at each set of levels: KNN, a search for K neighbours of N + M rows; RBF, O((N + M) n d)
time for N + M rows and all levels at once, in blocks of a few megabytes.

Reference: Han, Tang, Ghosh, Liu (2023), "Split localized conformal prediction",
arXiv:2206.13092.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._blocks import CHUNK_ROWS, row_slices
from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_features,
    check_levels,
    check_new_features,
    check_vector,
    each_level,
    like_coverage,
    warn_if_too_few,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.kernels import KNN, RBF
from calliper.kernels._search import NeighborSearch
from calliper.quantile import (
    as_fraction,
    conformal_rank,
    order_statistic,
    row_order_statistics,
    weighted_quantiles_in_blocks,
)
from calliper.scale import fixed_kernel, resolve_kernel
from calliper.scale._dispatch import _at_most
from calliper.scale._weights import RadialExponents, to_weights


class SLCP(BaseEstimator):  # type: ignore[misc]
    """Split conformal localised by a kernel quantile of training errors; takes any real score.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(20)
        Whose training errors speak for x. A quantile asks for more neighbours than a mean: with
        K of them, a level above 1 − 1/K takes their largest error. A tuned kernel is tuned on
        the sizes of the training errors.
    random_state : int, RandomState or None
        Settles ties in distance.

    Attributes
    ----------
    local_ : the local quantile of training errors, a function of rows and levels
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = SLCP(KNN(50)).fit(Z[0], errors[0], Z_train=Z[1], scores_train=errors[1])
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.46])
    >>> method.guaranteed_coverage(0.9)
    0.9003322259136213
    """

    needs: tuple[str, ...] = ("Z_train", "scores_train")
    judges_nearness = True
    uses_left_out = False

    def __init__(self, kernel: Any = None, *, random_state: Any = None) -> None:
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, scores_train: Any = None) -> Self:
        """Keep both sets; the local quantile depends on the level and waits for it.

        Parameters
        ----------
        Z, scores : (N, d) and (N,), the calibration points
        Z_train, scores_train : (n, d) and (n,), inputs and scores of training points
        """
        Z, scores = check_calibration(self, Z, scores)
        if Z_train is None or scores_train is None:
            raise CalliperError(
                "SLCP takes local quantiles of training errors: pass Z_train and scores_train to "
                "fit (X_train and y_train to ConformalRegressor.calibrate). Without training "
                "data, use FullRescaled, which needs none."
            )
        Z_train = check_features(Z_train, "Z_train")
        if Z_train.shape[1] != Z.shape[1]:
            raise CalliperError(f"Z_train has {Z_train.shape[1]} columns, Z has {Z.shape[1]}.")
        scores_train = check_vector(scores_train, "scores_train", n=len(Z_train))
        rng = check_random_state(self.random_state)
        kernel = resolve_kernel(KNN(20) if self.kernel is None else self.kernel, Z_train, rng)
        self.kernel_ = fixed_kernel(kernel, Z_train, np.abs(scores_train), rng)
        self.local_ = _local_quantile(self.kernel_, Z_train, scores_train, rng)
        self.Z_, self.scores_, self.n_calibration_ = Z, scores, len(scores)
        self._thresholds: dict[float, float] = {}
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """Q̂(x) + q at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, levels = check_new_features(self, Z), check_levels(coverage)
        warn_if_too_few(self.n_calibration_, levels)
        radius = self.local_(Z, levels) + self._threshold(levels)
        if self.scores_.min() >= 0:
            np.maximum(radius, 0.0, out=radius)
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several; at least 1 − α."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("SLCP", coverage, self.n_calibration_, proved, has_law=True)

    def _threshold(self, levels: Sequence[float]) -> FloatArray:
        """The correction q at each level, computed once for each that is ever asked for."""
        new = [level for level in levels if level not in self._thresholds]
        if new:
            shifted = np.sort(self.scores_[:, None] - self.local_(self.Z_, new), axis=0)
            for level, column in zip(new, shifted.T, strict=True):
                rank = conformal_rank(level, self.n_calibration_)
                self._thresholds[level] = order_statistic(column, rank)
        return np.array([self._thresholds[level] for level in levels])


class _NearestQuantile:
    """The ⌈level·K⌉-th smallest score of the K nearest training points."""

    def __init__(self, search: NeighborSearch, scores: FloatArray, n_neighbors: int) -> None:
        self.search, self.scores, self.n_neighbors = search, scores, n_neighbors

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        ranks = [ceil(as_fraction(level) * self.n_neighbors) for level in levels]
        quantiles = [
            row_order_statistics(self.scores[self.search.nearest(Z[rows], self.n_neighbors)], ranks)
            for rows in row_slices(len(Z), CHUNK_ROWS)
        ]
        return np.concatenate(quantiles)


class _RadialQuantile:
    """The first of the ascending scores at which the radial weights reach the level."""

    def __init__(self, kernel: RBF, Z: FloatArray, scores: FloatArray) -> None:
        order = np.argsort(scores)
        self.ascending = scores[order]
        self.exponents = RadialExponents(Z[order], float(kernel.length_scale), kernel.metric)

    def __call__(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        def weigh(rows: slice, out: FloatArray) -> tuple[FloatArray, FloatArray]:
            exponent, _ = self.exponents.to(Z[rows], out=out)
            return to_weights(exponent, exponent.max(axis=1)), np.zeros(len(exponent))

        return weighted_quantiles_in_blocks(self.ascending, weigh, len(Z), levels)


def _local_quantile(
    kernel: KNN | RBF, Z: FloatArray, scores: FloatArray, rng: np.random.RandomState
) -> _NearestQuantile | _RadialQuantile:
    if not isinstance(kernel, (KNN, RBF)) or getattr(kernel, "smoothing", 0) > 0:
        raise TypeError(
            f"SLCP takes KNN, RBF without smoothing, TunedKNN or TunedRBF; got {kernel!r}."
        )
    if isinstance(kernel, RBF):
        return _RadialQuantile(kernel, Z, scores)
    search = NeighborSearch(Z, rng.uniform(size=len(Z)), kernel.metric)
    return _NearestQuantile(search, scores, _at_most(kernel, len(Z)))
