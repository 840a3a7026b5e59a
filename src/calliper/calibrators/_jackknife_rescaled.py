"""Jackknife+ rescaled scores, the method of the paper, and a cautious minmax with 1−α.

Each calibration error is divided by the mean error of its neighbours in the calibration set, and
multiplied by that of a new point's neighbours; the mean for a pair leaves both out:

    ŝ_ij  = Σ_{k≠i,j} K(X_i, X_k) s_k / Σ_{l≠i,j} K(X_i, X_l)                          (Eq. 5)
    s_i⁺  = s_i / ŝ_{i,N+1}
    Δ     = Q-th smallest of ŝ_{N+1,i} · s_i⁺ over i = 1 … N,  Q = ⌈(1−α)(N+1)⌉        (Eq. 6)

Letters: s_i → ``scores``, K → ``kernel``, s_i⁺ → ``rescaled_scores_``, ŝ → ``scale_``. The printed
Eq. 5 has K(X_i, X_j) for K(X_i, X_k), and Algorithm S.1 normalises the new point's weights with row
i; both are corrected here. K nearest means nearest *inside* the restricted set.

Guarantee: 1−2α, marginal, for exchangeable data; more sharply 1 − (2(N+1−Q)−1)/(N+1). On ordinary
data coverage is close to 1−α; exchangeable sets that lose several points exist.

*Minmax.* A new point multiplies one threshold by the largest of the local means that leave one
calibration row out:

    Δ = (max_i ŝ_{N+1,i}) · s⁺_(Q).

Guarantee: 1−α, marginal, for exchangeable data. A miss means that s_{N+1}/max_i ŝ_{N+1,i} exceeds Q
of the s_j⁺, hence Q of the smaller s_j/max_i ŝ_ji; these N+1 ratios are exchangeable, so that
happens with probability at most 1 − Q/(N+1). It is never narrower than the Jackknife+, usually
wider by a tenth or two; ``FullRescaled`` has the same guarantee without that price.

References: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", Transactions on Machine Learning Research. Minmax: Barber, Candès,
Ramdas, Tibshirani (2021), "Predictive inference with the jackknife+", doi:10.1214/20-AOS1965,
Theorem 2.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from calliper import quantile
from calliper._kept import Array, Field, Part
from calliper._types import FloatArray
from calliper._validation import check_size, warn_if_zero_scales
from calliper.calibrators._calibrator import Calibrator, fixed_kernel, kernel_needs
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.guarantees import fold_coverage, jackknife_coverage
from calliper.kernels import KNN, Kernel, as_kernel, rescale
from calliper.quantile import Shares
from calliper.rows import Rows

#: Exponent of two of the largest size, which leaves room for ratios of sizes.
ROOM = 256
#: Exponent of sizes whose means would lose digits.
VANISHING = -960


class LeaveTwoOutMethod(Calibrator):
    """The Jackknife+ of scales that leave two points out; minmax changes what it differs in."""

    scale_: Any
    learns: ClassVar[Mapping[str, Field]] = {
        "kernel_": Part("kernels"),
        "without_one_": Array("float64", ("N",), least=0, optional=True),
    }

    @property
    def uses(self) -> Uses:
        """Training inputs where the kernel takes its length scale from them."""
        return Uses("magnitudes", "weights", needs=kernel_needs(self.kernel, fixed=False))

    def __init__(
        self, kernel: Any = None, *, offset: float = 0.0, random_state: Any = None
    ) -> None:
        self.kernel, self.offset, self.random_state = kernel, offset, random_state

    def _learn(self, rows: Rows) -> None:
        train, rng = self._training or Rows(None), check_random_state(self.random_state)
        offset = check_size(self.offset, "offset")
        self.kernel_ = self._once("kernel_", lambda: self._chosen(train, rng)).resolved()
        self.scale_ = self._of_kernel = None
        self._rounded = len(rows) == 1
        if self._rounded:  # no other to take a mean of: plain split
            self._rescale(rows)
            return
        # A power of two changes no digit, and keeps means of very small sizes exact.
        every = np.hstack([rows.scores, rows.magnitudes, offset])
        tiny = every[every > 0].min(initial=np.inf) <= 2.0**VANISHING
        self._lift = shift = max(0, ROOM - quantile.exponent(every)) if tiny else 0
        sizes = Rows(rows.Z, magnitudes=np.ldexp(rows.magnitudes, shift))
        how: Any = {"offset": float(np.ldexp(offset, shift)), "rng": rng, "Z_train": train.Z}
        self.scale_ = self.kernel_.leave_two_out(sizes, **how, known=self._found_before)
        self._of_kernel = self.scale_
        self.rescaled_scores_ = self._rescaled(np.ldexp(rows.scores, shift))
        warn_if_zero_scales(self.scale_.without_one)

    def _chosen(self, train: Rows, rng: Any) -> Kernel:
        return as_kernel(self.kernel, KNN(10)).resolved(train.Z, rng)

    def _rescaled(self, scores: FloatArray) -> FloatArray:
        """s_i⁺, (N,)."""
        if self.scale_.n_folds is not None and self.weights_ is not None:
            what = "no guarantee is known for weights combined with folds"
            raise CalliperError(f"{what}: leave out the weights, or n_folds of the kernel.")
        return np.asarray(self.scale_.prepare(scores))

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        if self.scale_ is None:
            return super()._radius(Z, levels, shares)
        with np.errstate(over="ignore"):
            return quantile.not_below(np.ldexp(self._lifted_radius(Z, levels, shares), -self._lift))

    def _lifted_radius(self, Z: Any, levels: list[float], shares: Shares | None) -> FloatArray:
        """The radius in the unit of lifted scores, (m, L)."""
        ranks = [quantile.conformal_rank(level, self.n_calibration_) for level in levels]
        asked = ranks if shares is None else levels
        return np.asarray(self.scale_.order_statistics(Z, asked, shares))


class JackknifeRescaled(LeaveTwoOutMethod):
    """The paper's adaptive method; guarantee 1 − 2α.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(10)
        Which points count as neighbours. A tuned kernel is chosen anew for each calibration row,
        on the others, which keeps the guarantee; ``TunedRBF(n_folds=...)`` has CV+'s instead.
    offset : float, default 0
        Constant added to every local scale, in the unit of y; choose it without calibration
        data. Helps where many errors are exactly zero.
    random_state : int, RandomState or None
        Seeds the draws of a tuned kernel: pairs of training inputs, folds.

    Attributes
    ----------
    rescaled_scores_ : (N,) s_i⁺, infinite where the local scale is zero

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = JackknifeRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.22, 2.26])
    """

    about = About(
        cli="jackknife",
        width="like full, with the paper's leave-two-out scales",
        guarantee="1−2α",
        when="to reproduce the paper, or for 'calliper tune'",
        cost="neighbours of N + M rows among N, O(K log K) per new row",
        neighbors="kernel",
    )
    through_kernel = True
    learns: ClassVar[Mapping[str, Field]] = {
        **LeaveTwoOutMethod.learns,
        "chosen_": Array("float64", ("N",), least=0, optional=True),
        "fold_": Array("int32", ("N",), least=0, most="N", optional=True, becomes="int64"),
    }

    def _proved(self, level: float) -> float:
        if self.weights_ is not None:
            return max(0.0, 2 * level - 1)
        if self.scale_ is None or self.scale_.n_folds is None:
            return jackknife_coverage(level, self.n_calibration_)
        return fold_coverage(level, self.n_calibration_, self.scale_.n_folds)


class JackknifeMinmaxRescaled(LeaveTwoOutMethod):
    """The paper's rescaled scores with the guarantee 1 − α, at the cost of wider intervals.

    Parameters
    ----------
    kernel, offset, random_state
        As of :class:`JackknifeRescaled`; a tuned kernel is tuned on training errors, which must
        then be passed to ``fit``.

    Attributes
    ----------
    rescaled_scores_ : (N,) s_i⁺ in ascending order, infinite where the local scale is zero

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = JackknifeMinmaxRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.23, 2.26])
    """

    about = About(
        cli="minmax",
        width="like jackknife, but 10 to 20 % wider",
        when="for comparison: full has the same guarantee and is narrower",
        cost="neighbours of N + M rows among N, O(K) per row",
        neighbors="kernel",
    )

    @property
    def uses(self) -> Uses:
        """Training rows, if the kernel takes its length scale from them or is tuned on them."""
        return Uses("magnitudes", needs=kernel_needs(self.kernel, fixed=True))

    def _chosen(self, train: Rows, rng: Any) -> Kernel:
        return fixed_kernel(self.kernel, KNN(10), train.Z, train.scores, rng)

    def _rescaled(self, scores: FloatArray) -> FloatArray:
        return np.sort(rescale(scores, self.scale_.without_one))

    def _lifted_radius(self, Z: Any, levels: list[float], shares: Shares | None) -> FloatArray:
        thresholds = quantile.conformal_thresholds(self.rescaled_scores_, levels)
        return quantile.rescaled_back(self.scale_.largest(Z)[:, None], thresholds)
