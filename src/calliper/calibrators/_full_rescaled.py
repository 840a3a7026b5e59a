"""Full conformal with rescaled scores: the paper's adaptivity with the whole 1−α.

The new point is put into the calibration set with a candidate score t, and every member of this
bag is rescaled by its neighbours in the bag, itself left out:

    σ_i(t) = s_i / ŝ_i(t),  σ_{N+1}(t) = t / ŝ_{N+1},
    p(t) = (1 + #{i ≤ N : σ_i(t) ≥ σ_{N+1}(t)}) / (N+1),   interval = {t ≥ 0 : p(t) > α}.

ŝ_i(t) does not decrease in t, so σ_i(t) does not increase while σ_{N+1}(t) does: comparison i
holds exactly up to one crossing t_i, which has a closed form, and the interval is [0, t_(Q)] with
Q = ⌈(1−α)(N+1)⌉. No grid over t, no refitting.

Neighbours' scores are few and noisy. ``shrinkage`` m mixes them with the median of the whole bag,
g(t), the ⌈(N+1)/2⌉-th smallest of s_1 … s_N and t:

    ŝ_i(t) = (1−m)·local_i(t) + m·g(t),      the same g(t) for the new point.

g belongs to all members alike and does not decrease in t, and t/ŝ_{N+1}(t) still grows faster than
σ_i(t), so there is still one crossing each; m = 1 ranks the bare scores, which is ``Split``. With
the root mean square, squares are mixed, inside the root.

Letters: s_i → ``scores``, ŝ → ``bag_``, t_(Q) → the radius.

Guarantee: 1−α, marginal, for exchangeable data, since p is the rank p-value of a score that
treats all members of the bag alike. At most 1/(N+1) above 1−α without ties.

Full conformal prediction: Vovk, Gammerman, Shafer (2005), doi:10.1007/b106715. Rescaling over the
calibration set: Deutschmann, Rigotti, Rodríguez Martínez (2024), TMLR. Nearest relatives of the
closed form: Papadopoulos, Vovk, Gammerman (2011), doi:10.1613/jair.3198; Guan (2023),
doi:10.1093/biomet/asac040. To our knowledge it is not published in this form.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_features,
    check_levels,
    check_new_features,
    check_offset,
    check_scores,
    each_level,
    like_coverage,
    warn_if_too_few,
    warn_if_zero_scales,
)
from calliper.calibrators._base import kernel_needs
from calliper.calibrators._locality import ShrunkBag, choose_locality
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.kernels import STATISTICS, as_kernel, check_length_scale
from calliper.quantile import conformal_rank, order_statistic, outward, power_of_two


class FullRescaled(BaseEstimator):  # type: ignore[misc]
    """Adaptive intervals with the full guarantee 1 − α; the default of calliper.

    Parameters
    ----------
    kernel : KNN, RBF, ForestProximity, Mahalanobis, TunedKNN or TunedRBF, optional
        Who counts as a neighbour. It must not depend on calibration scores. By default it is
        given, together with ``shrinkage``, by a rule of N, from which left-out training errors,
        if ``fit`` is given any, may depart: towards more or less locality, or to plain split. A
        tuned or learnt kernel is so on left-out errors, or else on training errors.
    shrinkage : float between 0 and 1, optional
        m, how much of the scale is the median of all scores rather than the neighbours': 0 for
        neighbours alone, 1 for plain split conformal. Choose it without calibration data. By
        default it is chosen with the kernel, and 0 for a kernel of your own.
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
    kernel_, shrinkage_ : what is used
    locality_ : how they were chosen; ``.describe()`` puts it in words
    bag_ : closed form of the thresholds; None for plain split
    scores_ : (N,) the calibration scores
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = FullRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.34, 1.46])
    >>> method.locality_.describe()
    'KNN(n_neighbors=20), shrinkage 0.358, by a rule of the number of calibration points'
    >>> method.guaranteed_coverage(0.9)
    0.9001996007984032
    """

    judges_nearness = True

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what ``fit`` cannot do without."""
        return kernel_needs(self.kernel, fixed=True)

    def __init__(
        self,
        kernel: Any = None,
        *,
        shrinkage: float | None = None,
        statistic: str = "mean",
        offset: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.shrinkage = shrinkage
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
        Z_left_out: Any = None,
        scores_left_out: Any = None,
        length_scale: float | None = None,
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
        Z_left_out, scores_left_out : (n, d) and (n,), optional
            Training rows and the sizes of the errors that the model makes on them when it is
            trained without them (out of fold, out of bag): how local to be is chosen on these.
            They decide nothing else, so the guarantee does not depend on them.
        length_scale : float, optional
            Distance in ``Z`` at which N points still speak for one another, where the space has
            a unit of its own: the default kernel is then radial, of about this length.
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
        offset = check_offset(self.offset)
        self.locality_ = choose_locality(
            self.kernel,
            _check_shrinkage(self.shrinkage),
            n,
            trained=_check_errors(Z_train, scores_train, Z, "train"),
            left_out=_check_errors(Z_left_out, scores_left_out, Z, "left_out"),
            length_scale=None if length_scale is None else check_length_scale(length_scale),
            statistic=self.statistic,
            offset=offset,
            rng=check_random_state(self.random_state),
        )
        self.kernel_, self.shrinkage_ = self.locality_.kernel, self.locality_.shrinkage
        self.n_calibration_ = n
        self.bag_, self.scores_ = None, scores
        if n == 1 or self.shrinkage_ == 1:  # one scale for all, or no point to take one of: split
            return self
        # A root mean square crosses where the mean of squares does, at the squared radius.
        power = self.power_ = 2 if self.statistic == "rms" else 1
        # Products of scores must not overflow; a power of two changes no digit.
        unit = self.unit_ = power_of_two(sizes)
        scaled = (sizes / unit) ** power
        local = self.kernel_.bag(
            Z,
            scaled,
            (scores / unit) ** power,
            statistic=self.statistic,
            offset=(offset / unit) ** power / (1 - self.shrinkage_),
            priorities=check_random_state(self.random_state).uniform(size=n + 1),
        )
        self.bag_ = ShrunkBag(local, scaled, self.shrinkage_) if self.shrinkage_ else local
        warn_if_zero_scales(self.bag_.calibration_scale(0.5))
        return self

    @property
    def uses_left_out(self) -> bool:
        """Whether left-out errors would make a difference to ``fit``; they may be costly."""
        if self.shrinkage == 1:  # plain split: nothing is local
            return False
        return self.kernel is None or as_kernel(self.kernel).learns_on_errors

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """t_(Q) at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, n = check_new_features(self, Z), self.n_calibration_
        levels = check_levels(coverage)
        warn_if_too_few(n, levels)
        radius = np.full((len(Z), len(levels)), np.inf)
        finite = [column for column, c in enumerate(levels) if conformal_rank(c, n) <= n]
        if self.bag_ is None:
            ordered = np.sort(self.scores_)
            ranks = [conformal_rank(levels[column], n) for column in finite]
            radius[:, finite] = [order_statistic(ordered, rank) for rank in ranks]
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


def _check_errors(
    rows: Any, scores: Any, Z: FloatArray, name: str
) -> tuple[FloatArray | None, FloatArray | None]:
    if rows is None:
        if scores is not None:
            raise CalliperError(f"scores_{name} was given without Z_{name}: pass both.")
        return None, None
    features = check_features(rows, f"Z_{name}")
    if features.shape[1] != Z.shape[1]:
        raise CalliperError(f"Z_{name} has {features.shape[1]} columns, Z has {Z.shape[1]}.")
    if scores is None:
        return features, None
    return features, check_scores(scores, f"scores_{name}", n=len(features))


def _check_shrinkage(shrinkage: Any) -> float | None:
    if shrinkage is None:
        return None
    if not isinstance(shrinkage, Real) or not 0 <= float(shrinkage) <= 1:
        raise ValueError(f"shrinkage must be a number between 0 and 1; got {shrinkage!r}.")
    return float(shrinkage)
