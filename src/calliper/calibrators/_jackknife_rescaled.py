"""Jackknife+ rescaled scores: the method of the paper.

Each calibration error is divided by the mean error of its neighbours in the calibration set, and
a new point multiplies back the mean error of its own neighbours. To keep both alike, the mean for
a pair leaves both of the pair out (paper, Eq. 5–6 and Algorithm S.1):

    ŝ_ij  = Σ_{k≠i,j} K(X_i, X_k) s_k / Σ_{l≠i,j} K(X_i, X_l)                          (Eq. 5)
    s_i⁺  = s_i / ŝ_{i,N+1}
    Δ     = Q-th smallest of ŝ_{N+1,i} · s_i⁺ over i = 1 … N,  Q = ⌈(1−α)(N+1)⌉        (Eq. 6)

Letters: s_i → ``scores``, K → ``kernel``, s_i⁺ → ``rescaled_scores_``, ŝ → ``scale_``. The
printed Eq. 5 has K(X_i, X_j) for K(X_i, X_k), and Algorithm S.1 normalises the new point's
weights with row i; both are corrected here. K nearest means nearest *inside* the restricted set.

Guarantee: 1−2α, marginal, for exchangeable data; more sharply 1 − (2(N+1−Q)−1)/(N+1). On
ordinary data coverage is close to 1−α; exchangeable sets that lose several points exist.

Reference: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", Transactions on Machine Learning Research.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from calliper._kept import Array, Field, Part
from calliper._types import FloatArray
from calliper._validation import check_offset, warn_if_zero_scales
from calliper.calibrators._calibrator import Calibrator, keep_scales, kernel_needs, scales_of
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.guarantees import fold_coverage, jackknife_coverage
from calliper.kernels import KNN, LeaveTwoOut, as_kernel
from calliper.quantile import Shares, conformal_rank, conformal_thresholds, lift, lifted, lowered
from calliper.rows import Rows

#: Folds that a file may name.
MOST_FOLDS = 1023


class JackknifeRescaled(Calibrator):
    """The paper's adaptive method; guarantee 1 − 2α.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(10)
        Who counts as a neighbour. A tuned kernel is chosen anew for each calibration point, on
        the others, which keeps the guarantee; ``TunedRBF(n_folds=...)`` has CV+'s instead.
    offset : float, default 0
        Constant added to every local scale, in the unit of y; choose it without calibration
        data. Helps where many errors are exactly zero.
    random_state : int, RandomState or None
        Draws what a tuned kernel needs drawn: pairs of training inputs, folds. Points at the same
        distance share a place, so nothing is drawn for ``KNN``.

    Attributes
    ----------
    rescaled_scores_ : (N,) s_i⁺, infinite where the local scale is zero
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = JackknifeRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.22, 2.26])
    >>> method.guaranteed_coverage(0.9)
    0.8023952095808383
    """

    about = About(
        cli="jackknife",
        width="as full, by the paper's leave-two-out scales",
        guarantee="1−2α",
        when="to reproduce the paper, or with --scales from 'calliper tune'",
        cost="neighbours of N + M rows among N, O(K log K) a new row",
        order=2,
        neighbors="kernel",
    )
    through_kernel = True
    _lift = 0  # of files that were saved before there was one

    learns: ClassVar[Mapping[str, Field]] = {
        "kernel_": Part("kernels"),
        "without_one_": Array("float64", ("N",), least=0, optional=True),
        "chosen_": Array("float64", ("N",), least=0, optional=True),
        "fold_": Array("int32", ("N",), least=0, most=MOST_FOLDS, optional=True, becomes="int64"),
    }

    @property
    def uses(self) -> Uses:
        """Training inputs where the kernel takes its length scale from them."""
        needs = kernel_needs(self.kernel, fixed=False)
        return Uses("magnitudes", "weights", "training", needs=needs)

    def __init__(
        self, kernel: Any = None, *, offset: float = 0.0, random_state: Any = None
    ) -> None:
        self.kernel = kernel
        self.offset = offset
        self.random_state = random_state

    def _learn(self, rows: Rows) -> None:
        train = None if self._training is None else self._training.Z
        offset, rng = check_offset(self.offset), check_random_state(self.random_state)
        self.kernel_ = self._once(
            "kernel_", lambda: as_kernel(self.kernel, KNN(10)).resolved(train, rng)
        ).resolved()
        self.rescaled_scores_ = rows.scores
        self.scale_: LeaveTwoOut | None = None
        self._lift = shift = lift(np.hstack([rows.scores, rows.magnitudes, offset]))
        if len(rows.scores) > 1:  # else no other point to take a mean of: plain split
            self.scale_ = scales_of(self)(
                Rows(rows.Z, magnitudes=lifted(rows.magnitudes, shift)),
                offset=float(np.ldexp(offset, shift)),
                rng=rng,
                Z_train=train,
            )
            if self.scale_.n_folds is not None and rows.weights is not None:
                raise CalliperError(
                    "nothing is proved for weights and folds together: leave n_folds out of the "
                    "kernel, or the weights."
                )
            self.rescaled_scores_ = self.scale_.prepare(np.ldexp(rows.scores, shift))
            warn_if_zero_scales(self.scale_.without_one)

    def for_file(self) -> dict[str, Any]:
        """As every method; and the scales without one point, which were drawn or are dear."""
        keep_scales(self)
        return super().for_file()

    @property
    def rounded(self) -> bool:
        """Of one point the radius is its score."""
        return self.scale_ is None

    def _radius(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        if shares is not None:
            if self.scale_ is None:
                return conformal_thresholds(self.rescaled_scores_, levels, shares)
            return lowered(self.scale_.weighted_order_statistics(Z, levels, shares), self._lift)
        if self.scale_ is None:
            return np.tile(self.rescaled_scores_, (len(Z), len(levels)))
        ranks = [conformal_rank(level, self.n_calibration_) for level in levels]
        return lowered(self.scale_.order_statistics(Z, ranks), self._lift)

    def _proved(self, level: float) -> float:
        if self.weights_ is not None:
            return max(0.0, 2 * level - 1)
        n_folds = None if self.scale_ is None else self.scale_.n_folds
        if n_folds is None:
            return jackknife_coverage(level, self.n_calibration_)
        return fold_coverage(level, self.n_calibration_, n_folds)
