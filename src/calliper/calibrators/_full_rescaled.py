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
from sklearn.utils import check_random_state

from calliper._types import FloatArray
from calliper._validation import check_offset, warn_if_zero_scales
from calliper.calibrators._base import Calibrator, FitRows, kernel_needs
from calliper.calibrators._locality import ShrunkBag, choose_locality
from calliper.exceptions import CalliperError
from calliper.guarantees import conformal_coverage
from calliper.kernels import STATISTICS, Bag, as_kernel, check_length_scale
from calliper.quantile import conformal_thresholds, exponent

#: Thresholds are computed from scores, or their squares, of at most 2 to this. Products of those
#: not below 2 to SMALL keep all their digits; sums of scores below 2 to TOO_SMALL would not.
LARGEST, SMALL, TOO_SMALL = 440, -250, -1000


class FullRescaled(Calibrator):
    """Adaptive intervals with the full guarantee 1 − α; the default of calliper.

    Parameters
    ----------
    kernel : KNN, RBF, GradedKNN, ForestProximity, Mahalanobis, TunedKNN or TunedRBF, optional
        Who counts as a neighbour. It must not depend on calibration scores. By default it is
        given, together with ``shrinkage``, by a rule of N, from which left-out training errors,
        if ``fit`` is given any, may depart: towards more or less locality, or to plain split. A
        tuned or learnt kernel is so on left-out errors, or else on training errors.
    shrinkage : float between 0 and 1, optional
        m, how much of the scale is the median of all scores rather than the neighbours': 0 for
        neighbours alone, 1 for plain split conformal. Choose it without calibration data. By
        default it is chosen with the kernel, and 0 for a kernel of your own.
    statistic : {"mean", "rms", "quantile"}, optional
        What the neighbours' scores say about the local scale: their mean (the paper), the root
        of their mean square, or their ⌈(1−α)K⌉-th smallest, which follows tails that are not a
        multiple of the mean (KNN only; the radius then need not grow with the level). By default
        the mean; or the root mean square, if the kernel is by default too, ``Z`` has more than
        one column and ``fit`` is given no ``length_scale``.
    offset : float, default 0
        Constant added to every local scale, in the unit of y; choose it without calibration
        data. With ``"rms"`` it is added inside the root, as a square.
    random_state : int, RandomState or None
        Draws the bags on which left-out errors choose the locality, and what a tuned or learnt
        kernel needs drawn; all of it from training rows alone. Points at the same distance share
        a place, so nothing is drawn for a given ``KNN``.

    Attributes
    ----------
    kernel_, shrinkage_, statistic_ : what is used
    locality_ : how they were chosen; ``.describe()`` puts it in words
    bag_ : closed form of the thresholds; None for plain split
    scores_ : (N,) the calibration scores in ascending order
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

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what ``fit`` cannot do without."""
        return kernel_needs(self.kernel, fixed=True)

    def __init__(
        self,
        kernel: Any = None,
        *,
        shrinkage: float | None = None,
        statistic: str | None = None,
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
        rows = self._check_fit(
            Z,
            scores,
            magnitudes=magnitudes,
            Z_train=Z_train,
            scores_train=scores_train,
            Z_left_out=Z_left_out,
            scores_left_out=scores_left_out,
        )
        positive = rows.scores > 0
        if not np.array_equal(rows.magnitudes[positive], rows.scores[positive]):
            raise CalliperError(
                "magnitudes must equal scores wherever a score is positive: the score of a new "
                "point enters the scales of its neighbours as its magnitude. JackknifeRescaled "
                "takes any magnitudes."
            )
        self.locality_ = choose_locality(
            self.kernel,
            self.shrinkage,
            len(rows.scores),
            trained=(rows.Z_train, rows.scores_train),
            left_out=(rows.Z_left_out, rows.scores_left_out),
            length_scale=None if length_scale is None else check_length_scale(length_scale),
            statistic=self.statistic,
            offset=float(self.offset),
            rng=check_random_state(self.random_state),
            dimensions=rows.Z.shape[1],
        )
        self.kernel_, self.shrinkage_ = self.locality_.kernel, self.locality_.shrinkage
        self.statistic_ = self.locality_.statistic
        self.scores_ = np.sort(rows.scores)
        self.bag_: Bag | ShrunkBag | None = None
        if len(rows.scores) > 1 and self.shrinkage_ < 1:  # else one scale for all: plain split
            self.bag_ = self._fit_bag(rows)
            warn_if_zero_scales(self.bag_.calibration_scale(0.5))
        self.n_calibration_ = len(rows.scores)
        return self

    def _fit_bag(self, rows: FitRows) -> Bag | ShrunkBag:
        """Thresholds of the whole bag, in a unit in which products of scores do not overflow."""
        # A root mean square crosses where the mean of squares does, at the squared radius.
        power = self.power_ = 2 if self.statistic_ == "rms" else 1
        offset = float(self.offset)
        # A power of two changes no digit. The largest number is so large that products of small
        # ones do not vanish, and so small that those of large ones do not overflow.
        self.shift_ = LARGEST // power - exponent(np.append(rows.magnitudes, offset))
        scaled = np.ldexp(rows.magnitudes, self.shift_) ** power
        self.least_ = self._least(rows.magnitudes, scaled)
        local = self.kernel_.bag(
            rows.Z,
            scaled,
            np.ldexp(rows.scores, self.shift_) ** power,
            statistic=self.statistic_,
            offset=float(np.ldexp(offset, self.shift_)) ** power / (1 - self.shrinkage_),
        )
        return ShrunkBag(local, scaled, self.shrinkage_) if self.shrinkage_ else local

    def _least(self, magnitudes: FloatArray, scaled: FloatArray) -> float:
        """What no threshold is below: 0, or what products of very small scores may vanish at."""
        smallest = scaled[magnitudes > 0].min(initial=np.inf)
        if smallest < 2.0 ** (SMALL if self.power_ == 2 else TOO_SMALL):
            raise CalliperError(
                f"scores from {magnitudes[magnitudes > 0].min():.3g} to {magnitudes.max():.3g}, "
                f"with an offset of {self.offset:g}, span more than double precision can compare"
                f" ({self.statistic_} of neighbours). Set the smallest to 0, or take Split."
            )
        return 0.0 if smallest >= 2.0**SMALL else 2.0 ** (2 * SMALL)

    def _check_parameters(self) -> None:
        if self.statistic is not None and self.statistic not in STATISTICS:
            raise ValueError(f"statistic must be one of {[*STATISTICS]}; got {self.statistic!r}.")
        check_offset(self.offset)
        share = self.shrinkage
        if share is not None and (not isinstance(share, Real) or not 0 <= float(share) <= 1):
            raise ValueError(f"shrinkage must be a number between 0 and 1; got {share!r}.")

    @property
    def uses_left_out(self) -> bool:
        """Whether left-out errors would make a difference to ``fit``; they may be costly."""
        if self.shrinkage == 1:  # plain split: nothing is local
            return False
        return self.kernel is None or as_kernel(self.kernel).learns_on_errors

    @property
    def rounded(self) -> bool:
        """Plain split gives back one of the scores."""
        return self.bag_ is None

    def _radius(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        if self.bag_ is None:
            return np.tile(conformal_thresholds(self.scores_, levels), (len(Z), 1))
        threshold = np.maximum(self.bag_.order_statistics(Z, levels), self.least_)
        with np.errstate(over="ignore"):
            return np.asarray(np.ldexp(threshold ** (1 / self.power_), -self.shift_))

    def _proved(self, level: float) -> float:
        return conformal_coverage(level, self.n_calibration_)
