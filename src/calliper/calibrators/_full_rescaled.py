"""Full conformal with rescaled scores: the paper's adaptivity with the whole 1−α.

The new point is put into the calibration set with a candidate score t, and every member of this
bag is rescaled by its neighbours in the bag, itself left out:

    σ_i(t) = s_i / ŝ_i(t),  σ_{N+1}(t) = t / ŝ_{N+1},
    p(t) = (1 + #{i ≤ N : σ_i(t) ≥ σ_{N+1}(t)}) / (N+1),   interval = {t ≥ 0 : p(t) > α}.

ŝ_i(t) does not decrease in t, so σ_i(t) does not increase while σ_{N+1}(t) does: comparison i
holds exactly up to one crossing t_i, which has a closed form, and the interval is [0, t_(Q)] with
Q = ⌈(1−α)(N+1)⌉. No grid over t, no refitting.

Letters: s_i → ``scores``, ŝ → ``bag_``, t_(Q) → the radius.

Guarantee: 1−α, marginal, for exchangeable data, since p is the rank p-value of a score that
treats all members of the bag alike. At most 1/(N+1) above 1−α without ties.

Full conformal prediction: Vovk, Gammerman, Shafer (2005), doi:10.1007/b106715. Rescaling over the
calibration set: Deutschmann, Rigotti, Rodríguez Martínez (2024), TMLR. Nearest relatives of the
closed form: Papadopoulos, Vovk, Gammerman (2011), doi:10.1613/jair.3198; Guan (2023),
doi:10.1093/biomet/asac040. To our knowledge it is not published in this form.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_levels,
    check_new_features,
    check_offset,
    check_scores,
    check_training,
    each_level,
    like_coverage,
    warn_if_too_few,
    warn_if_zero_scales,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.quantile import conformal_rank, outward, power_of_two
from calliper.scale import bag_scale, fixed_kernel, resolve_kernel
from calliper.scale._statistic import STATISTICS


class FullRescaled(BaseEstimator):  # type: ignore[misc]
    """Adaptive intervals with the full guarantee 1 − α; the default of calliper.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(10)
        Who counts as a neighbour. It must not depend on calibration scores, so a tuned kernel is
        tuned on training errors, which must then be passed to ``fit``.
    statistic : {"mean", "rms", "quantile"}, default "mean"
        What the neighbours' scores say about the local scale: their mean (the paper), the root
        of their mean square, or their ⌈(1−α)K⌉-th smallest, which follows tails that are not a
        multiple of the mean (KNN only; the radius then need not grow with the level).
    offset : float, default 0
        Constant added to every local scale, in the unit of y; choose it without calibration
        data. With ``"rms"`` it is added inside the root, as a square.
    random_state : int, RandomState or None
        Draws the priorities that settle ties in distance.

    Attributes
    ----------
    bag_ : closed form of the thresholds
    scores_ : (N,) the calibration scores
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = FullRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.22, 2.24])
    >>> method.guaranteed_coverage(0.9)
    0.9001996007984032
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        statistic: str = "mean",
        offset: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.statistic = statistic
        self.offset = offset
        self.random_state = random_state

    def fit(
        self,
        Z: Any,
        scores: Any,
        *,
        magnitudes: Any = None,
        Z_train: Any = None,
        scores_train: Any = None,
    ) -> Self:
        """Rescale the calibration scores.

        Parameters
        ----------
        Z : (N, d) features in which nearness is judged
        scores : (N,) non-negative
        magnitudes : (N,), default ``scores``
            What local scales are made of. One-sided errors are rescaled by absolute errors.
        Z_train, scores_train : (n, d) and (n,), optional
            Training inputs and errors, for kernels that take their length scale from them.
        """
        Z, scores = check_calibration(self, Z, scores, non_negative=True)
        n = len(scores)
        sizes = scores if magnitudes is None else check_scores(magnitudes, "magnitudes", n=n)
        if self.statistic not in STATISTICS:
            raise ValueError(f"statistic must be one of {[*STATISTICS]}; got {self.statistic!r}.")
        if not np.array_equal(sizes[scores > 0], scores[scores > 0]):
            raise CalliperError(
                "magnitudes must equal scores wherever a score is positive: the score of a new "
                "point enters the scales of its neighbours as its magnitude. JackknifeRescaled "
                "takes any magnitudes."
            )
        train = check_training(Z_train, Z)
        rng = check_random_state(self.random_state)
        kernel, errors = resolve_kernel(self.kernel, train, rng), None
        if train is not None and scores_train is not None:
            errors = check_scores(scores_train, "scores_train", n=len(train))
        self.kernel_ = fixed_kernel(kernel, train, errors, rng)
        self.n_calibration_ = n
        self.bag_, self.scores_ = None, scores
        if n == 1:  # no other point to take a scale of: plain split
            return self
        # A root mean square crosses where the mean of squares does, at the squared radius.
        power = self.power_ = 2 if self.statistic == "rms" else 1
        # Products of scores must not overflow; a power of two changes no digit.
        unit = self.unit_ = power_of_two(sizes)
        self.bag_ = bag_scale(
            self.kernel_,
            Z,
            (sizes / unit) ** power,
            (scores / unit) ** power,
            statistic=self.statistic,
            offset=(check_offset(self.offset) / unit) ** power,
            priorities=check_random_state(self.random_state).uniform(size=n + 1),
        )
        warn_if_zero_scales(self.bag_.calibration_scale(0.5))
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """t_(Q) at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, n = check_new_features(self, Z), self.n_calibration_
        levels = check_levels(coverage)
        warn_if_too_few(n, levels)
        radius = np.full((len(Z), len(levels)), np.inf)
        finite = [column for column, c in enumerate(levels) if conformal_rank(c, n) <= n]
        if self.bag_ is None:
            radius[:, finite] = self.scores_[0]
        elif finite:
            threshold = self.bag_.order_statistics(Z, [levels[column] for column in finite])
            radius[:, finite] = outward(threshold ** (1 / self.power_) * self.unit_)
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several; at least 1 − α."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("FullRescaled", coverage, self.n_calibration_, proved)
