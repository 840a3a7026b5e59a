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

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from calliper._kept import Array, Field, Part
from calliper._types import FloatArray
from calliper._validation import check_offset, warn_if_zero_scales
from calliper.calibrators._calibrator import Calibrator, kernel_needs
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.guarantees import fold_coverage, jackknife_coverage
from calliper.kernels import KNN, Kernel, LeaveTwoOut, as_kernel
from calliper.quantile import Shares, conformal_rank, conformal_thresholds, lift, lifted, lowered
from calliper.rows import Rows

#: Folds that a file may name.
MOST_FOLDS = 1023


class LeaveTwoOutMethod(Calibrator):
    """What methods with scales that leave two points out share: parameters, kernel and scales."""

    #: None for one point, which has no other to take a mean of: plain split.
    scale_: LeaveTwoOut | None

    def __init__(
        self, kernel: Any = None, *, offset: float = 0.0, random_state: Any = None
    ) -> None:
        self.kernel = kernel
        self.offset = offset
        self.random_state = random_state

    def _learn(self, rows: Rows) -> None:
        train, rng = self._training or Rows(None), check_random_state(self.random_state)
        offset, several = check_offset(self.offset), len(rows.scores) > 1
        self.kernel_ = self._once("kernel_", lambda: self._chosen(train, rng)).resolved()
        self.rescaled_scores_, self.scale_ = rows.scores, None
        self._lift = lift(np.hstack([rows.scores, rows.magnitudes, offset])) if several else 0
        if several:
            scales, before = self.kernel_.leave_two_out, self._known.get("without_one_")
            if before is not None:
                given = self._known.items()
                known = {name.rstrip("_"): kept for name, kept in given if kept is not None}
                scales = partial(self.kernel_.leave_two_out_again, known)
            sizes = Rows(rows.Z, magnitudes=lifted(rows.magnitudes, self._lift))
            offset = float(np.ldexp(offset, self._lift))
            self.scale_ = scales(sizes, offset=offset, rng=rng, Z_train=train.Z)
            self.rescaled_scores_ = self._rescaled(self.scale_, lifted(rows.scores, self._lift))
            warn_if_zero_scales(self.scale_.without_one)

    @abstractmethod
    def _chosen(self, train: Rows, rng: Any) -> Kernel:
        """The kernel that training rows lead to."""

    @abstractmethod
    def _rescaled(self, scale: LeaveTwoOut, scores: FloatArray) -> FloatArray:
        """s_i⁺, (N,)."""

    @abstractmethod
    def _lifted_radius(self, scale: LeaveTwoOut, Z: Any, levels: Any, shares: Any) -> FloatArray:
        """The radius in the unit of lifted scores, (m, L)."""

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        if self.scale_ is not None:
            return lowered(self._lifted_radius(self.scale_, Z, levels, shares), self._lift)
        threshold = conformal_thresholds(self.rescaled_scores_, levels, shares)
        return np.broadcast_to(threshold, (len(Z), len(levels)))

    @property
    def rounded(self) -> bool:
        """Of one point the radius is its score."""
        return self.scale_ is None

    def for_file(self) -> dict[str, Any]:
        """As every method; and the scales without one point, which were drawn or are dear."""
        found = {} if self.scale_ is None else self.scale_.for_file()
        for name in self.learns:
            if name != "kernel_":
                setattr(self, name, found.get(name.rstrip("_")))
        return super().for_file()


class JackknifeRescaled(LeaveTwoOutMethod):
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

    def _chosen(self, train: Rows, rng: Any) -> Kernel:
        return as_kernel(self.kernel, KNN(10)).resolved(train.Z, rng)

    def _rescaled(self, scale: LeaveTwoOut, scores: FloatArray) -> FloatArray:
        if scale.n_folds is not None and self.weights_ is not None:
            raise CalliperError(
                "nothing is proved for weights and folds together: leave n_folds out of the "
                "kernel, or the weights."
            )
        return scale.prepare(scores)

    def _lifted_radius(self, scale: LeaveTwoOut, Z: Any, levels: Any, shares: Any) -> FloatArray:
        if shares is not None:
            return scale.weighted_order_statistics(Z, levels, shares)
        ranks = [conformal_rank(level, self.n_calibration_) for level in levels]
        return scale.order_statistics(Z, ranks)

    def _proved(self, level: float) -> float:
        if self.weights_ is not None:
            return max(0.0, 2 * level - 1)
        n_folds = None if self.scale_ is None else self.scale_.n_folds
        if n_folds is None:
            return jackknife_coverage(level, self.n_calibration_)
        return fold_coverage(level, self.n_calibration_, n_folds)
