"""Leave-fold-out means with a length scale for every fold: tuning for large N.

Calibration points are dealt at random into F folds. For point m, both the choice of the length
scale and the two means that are compared leave out the whole fold of m:

    s_m⁺ = s_m / ŝ_m(l_f; all but fold f),    Δ_m = ŝ_{N+1}(l_f; all but fold f) · s_m⁺,   f ∋ m.

That is CV+ (Barber, Candès, Ramdas, Tibshirani 2021, doi:10.1214/20-AOS1965), whose guarantee
applies. There are only F choices, and F different means at a new point; sums over folds are
added up from those of the single folds, so nothing is subtracted.
"""

from __future__ import annotations

import numpy as np

from calliper._blocks import map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.kernels._distances import Metric
from calliper.quantile import row_order_statistics
from calliper.scale._criterion import choose, pointwise_loss
from calliper.scale._left_out import FAINT, mean_without
from calliper.scale._ratio import rescale
from calliper.scale._tuned import Tuning, times
from calliper.scale._weights import RadialExponents, to_weights


class LeaveFoldOutRBF:
    """Radial means without the fold of each calibration point.

    Attributes
    ----------
    fold : (N,) the fold of every calibration point, 0 … F−1
    candidates, criteria : the grid (G,), and the criterion at each scale and fold, (G, F)
    chosen : (N,) the length scale of every calibration point, that of its fold
    without_one : (N,) ŝ_m(l_f; all but fold f)
    """

    def __init__(
        self,
        Z: FloatArray,
        magnitudes: FloatArray,
        fold: IntArray,
        *,
        metric: Metric,
        offset: float,
        tuning: Tuning,
    ) -> None:
        self.Z, self.magnitudes, self.metric, self.offset = Z, magnitudes, metric, offset
        self.fold, self.n_folds = fold, int(fold.max()) + 1
        inside = np.equal.outer(fold, np.arange(self.n_folds)).astype(np.float64)
        self.sums = np.column_stack([magnitudes, np.ones(len(Z))])
        self.fold_sums = np.hstack([inside * magnitudes[:, None], inside])
        self.candidates = tuning.candidates
        criteria, means = [], []
        for done, scale in enumerate(tuning.candidates, start=1):
            without_fold = self._at_points(scale) + offset
            criteria.append(self._criterion(without_fold, tuning))
            means.append(without_fold[np.arange(len(Z)), fold])
            tuning.progress(done / len(tuning.candidates))
        self.criteria = np.stack(criteria)
        index = choose(self.criteria)
        self.scale_of_fold = self.candidates[index]
        self.chosen = self.scale_of_fold[fold]
        self.without_one: FloatArray = np.stack(means)[index[fold], np.arange(len(Z))]

    def prepare(self, scores: FloatArray) -> FloatArray:
        """Rescaled scores s_m⁺."""
        self.rescaled = rescale(scores, self.without_one)
        return self.rescaled

    def order_statistics(self, Z: FloatArray, ranks: list[int]) -> FloatArray:
        """For each row and rank, the rank-th smallest of Δ_m over m: (m, L)."""

        def select(rows: slice) -> FloatArray:
            means = np.empty((rows.stop - rows.start, self.n_folds))
            for scale in np.unique(self.scale_of_fold):
                folds = np.flatnonzero(self.scale_of_fold == scale)
                exponents = RadialExponents(self.Z, float(scale), self.metric)
                means[:, folds] = self._without_folds(exponents, Z[rows], None)[:, folds]
            means += self.offset
            return row_order_statistics(times(means[:, self.fold], self.rescaled), ranks)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.Z)))

    def _at_points(self, length_scale: float) -> FloatArray:
        """(N, F) means at every calibration point without itself and without each fold."""
        exponents = RadialExponents(self.Z, length_scale, self.metric)
        blocks = map_row_blocks(
            lambda rows: self._without_folds(
                exponents, self.Z[rows], np.arange(rows.start, rows.stop)
            ),
            len(self.Z),
            len(self.Z),
        )
        return np.concatenate(blocks)

    def _without_folds(
        self, exponents: RadialExponents, Z: FloatArray, own: IntArray | None
    ) -> FloatArray:
        """(m, F) means at rows without each fold; ``own`` (m,) is left out as well."""
        exponent, _ = exponents.to(Z)
        rows = np.arange(len(Z))
        if own is not None:
            exponent[rows, own] = -np.inf
        weight = to_weights(exponent, exponent.max(axis=1))
        all_but_one = 1.0 - np.eye(self.n_folds)
        by_fold = weight @ self.fold_sums
        total = by_fold[:, : self.n_folds] @ all_but_one
        total_weight = by_fold[:, self.n_folds :] @ all_but_one
        mean: FloatArray = total / np.where(total_weight > 0, total_weight, 1.0)
        for row, fold in zip(*np.nonzero(total_weight < FAINT), strict=True):
            out = np.flatnonzero(self.fold == fold).tolist()
            out += [] if own is None else [own[row]]
            mean[row, fold] = mean_without(exponents, Z[row], self.sums, out)
        return mean

    def _criterion(self, without_fold: FloatArray, tuning: Tuning) -> FloatArray:
        """The criterion on all points outside each fold, (F,)."""
        values = []
        for fold in range(self.n_folds):
            kept = np.flatnonzero(self.fold != fold)
            scale, magnitudes = without_fold[kept, fold], self.magnitudes[kept]
            if tuning.information is not None:
                values.append(tuning.information.of_part(rescale(magnitudes, scale), kept))
            else:
                values.append(float(pointwise_loss(tuning.criterion, magnitudes, scale).mean()))
        return np.array(values)
