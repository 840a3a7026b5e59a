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

How local the scale is, if the user does not say, is the business of ``_locality.py``.

Letters: s_i → ``scores``, ŝ → ``bag_``, t_(Q) → the radius.

Guarantee: 1−α, marginal, for exchangeable data, since p is the rank p-value of a score that
treats all members of the bag alike. At most 1/(N+1) above 1−α without ties.

Full conformal prediction: Vovk, Gammerman, Shafer (2005), doi:10.1007/b106715. Rescaling over the
calibration set: Deutschmann, Rigotti, Rodríguez Martínez (2024), TMLR. Nearest relatives of the
closed form: Papadopoulos, Vovk, Gammerman (2011), doi:10.1613/jair.3198; Guan (2023),
doi:10.1093/biomet/asac040. To our knowledge it is not published in this form.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from calliper import quantile
from calliper._kept import Field, Inline
from calliper._types import FloatArray
from calliper._validation import check_offset, check_option, warn_if_zero_scales
from calliper.calibrators._calibrator import Calibrator, kernel_needs
from calliper.calibrators._locality import (
    MOST_MEMBERS,
    Locality,
    ShrunkBag,
    locality_rule,
    search_locality,
)
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, STATISTICS, Bag, Neighborhood, as_kernel
from calliper.quantile import Shares
from calliper.rows import Rows

#: Thresholds are computed from scores, or their squares, of at most 2 to this. Products of those
#: not below 2 to SMALL keep all their digits; sums of scores below 2 to TOO_SMALL would not.
LARGEST, SMALL, TOO_SMALL = 440, -250, -1000

#: Cells that there may be however few points a file has.
FEW_CELLS = 64
#: What the method uses, and what it uses where left-out errors choose how local to be.
USES = Uses("magnitudes", "signs", "weights", "training", "errors", "length_scale")
WITH_LEFT_OUT = Uses(*USES, "left_out")


@dataclass(eq=False, repr=False)
class FullRescaled(Calibrator):
    """Adaptive intervals with the full guarantee 1 − α; the default method.

    Parameters
    ----------
    kernel : KNN, RBF, GradedKNN, ForestProximity, Mahalanobis, TunedKNN or TunedRBF, optional
        Which points count as neighbours. It must not depend on calibration scores. By default a
        rule based on N chooses it together with ``shrinkage``; left-out training errors, if
        ``fit`` is given any, may change that choice to more or less locality, or to plain split.
        A kernel is tuned or learnt on left-out errors, or else on training errors.
    shrinkage : float between 0 and 1, optional
        m, how much of the scale is the median of all scores rather than the neighbours': 0 for
        neighbours alone, 1 for plain split conformal. Choose it without calibration data. By
        default it is chosen with the kernel, and 0 if you pass a kernel.
    statistic : {"mean", "rms", "quantile"}, optional
        What the neighbours' scores say about the local scale: their mean (the paper), the root
        of their mean square, or their ⌈(1−α)K⌉-th smallest, which follows tails that are not a
        multiple of the mean (KNN only; the radius then need not grow with the level). By default
        the mean; the root mean square where graded neighbours are the rule.
    offset : float, default 0
        Constant added to every local scale, in the unit of y; choose it without calibration
        data. With ``"rms"`` it is added inside the root, as a square.
    random_state : int, RandomState or None
        Seeds the bags on which left-out errors choose the locality, and the draws of a tuned or
        learnt kernel; None is a fixed seed.

    Attributes
    ----------
    kernel_, shrinkage_, statistic_ : what is used
    locality_ : how they were chosen; ``.describe()`` puts it in words
    bag_ : closed form of the thresholds; None for plain split

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = FullRescaled(random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.34, 1.46])
    >>> method.locality_.describe()
    'KNN(n_neighbors=20), shrinkage 0.358, chosen by the number of calibration points'
    """

    about = About(
        cli="full",
        width="wide where nearby calibration errors are large",
        when="by default",
        cost="neighbours of N + M rows among N, and the reverse",
        order=1,
        neighbors="kernel",
        usual_neighbors="the 20 nearest (at most half of all points), their mean mixed with the "
        "median error by 8/√N, at least 0.2 and at most 0.5, of 64 features or more the K and 4K "
        "nearest, K = 2.25·N^(1/6), at most N/8",
    )
    through_kernel = True
    learns: ClassVar[Mapping[str, Field]] = {
        "locality_": Inline(Locality),
        "near_": Inline(Neighborhood, optional=True),
        "wide_": Inline(Neighborhood, optional=True),
    }

    @property
    def uses(self) -> Uses:
        """Left-out errors only where they make a difference, since they may be costly."""
        if self.kernel is None:  # at a shrinkage of 1, nothing is local
            return USES if self.shrinkage == 1 else WITH_LEFT_OUT
        chosen = as_kernel(self.kernel).learns_on_errors and self.shrinkage != 1
        needs = kernel_needs(self.kernel, fixed=True)
        return Uses(*(WITH_LEFT_OUT if chosen else USES), needs=needs)

    kernel: Any = None
    _: KW_ONLY
    shrinkage: float | None = None
    statistic: str | None = None
    offset: float = 0.0
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        positive, before = rows.scores > 0, self._before
        if not np.array_equal(rows.magnitudes[positive], rows.scores[positive]):
            raise CalliperError(
                "magnitudes must equal scores wherever a score is positive: the score of a new "
                "point enters the scales of its neighbours as its magnitude. JackknifeRescaled "
                "takes any magnitudes."
            )
        stays = before is not None and self._stays(rows, before)
        chosen = before.locality_ if stays else self._known.get("locality_")
        self.locality_ = chosen or self._choose(rows)
        self.kernel_, self.shrinkage_ = self.locality_.kernel, self.locality_.shrinkage
        self.statistic_ = self.locality_.statistic
        local = self._of_kernel if stays and self._grows else None
        self.bag_: Bag | ShrunkBag | None = None
        self._of_kernel = None
        self.rounded = len(rows) == 1 or self.shrinkage_ == 1
        if self.rounded:  # one scale for all: plain split
            self._rescale(rows)
        else:
            self.bag_ = self._fit_bag(rows, local)
            self._signed_weights = rows.weights  # the bag keeps the order of the points
            warn_if_zero_scales(self.bag_.calibration_scale(0.5))

    def _choose(self, rows: Rows) -> Locality:
        """What the user gave, else the rule, else what left-out errors prefer."""
        train, left_out = self._training or Rows(None), self._left_out
        unseen = None if left_out is None or left_out.scores is None else left_out
        rng = check_random_state(0 if self.random_state is None else self.random_state)
        if self.kernel is not None:
            known = train if unseen is None else unseen
            kernel = as_kernel(self.kernel).resolved(train.Z, rng)
            kernel = kernel.fixed(known.Z, known.scores, rng)
            statistic = self.statistic or "mean"
            return Locality(kernel, self.shrinkage or 0.0, "user", statistic=statistic)
        rule, free = self._rule(rows), self.shrinkage is None
        if unseen is None:
            return rule
        how: Any = {"free": free, "offset": float(self.offset), "rng": rng}
        return search_locality(rule, unseen.Z, unseen.scores, len(rows), **how)

    def _rule(self, rows: Rows) -> Locality:
        how: Any = {"statistic": self.statistic, "dimensions": rows.Z.shape[1]}
        return locality_rule(len(rows), self._length_scale, self.shrinkage, **how)

    def _stays(self, rows: Rows, before: Any) -> bool:
        """Whether the choice for these rows is what it was for those before."""
        same = len(rows) == len(before._rows) and self._length_scale == before._length_scale
        if same or self.kernel is not None:
            return True
        n_errors = 0 if self._left_out is None else len(self._left_out)
        now, then = (min(len(each) + 1, n_errors, MOST_MEMBERS) for each in (rows, before._rows))
        return now == then and repr(self._rule(rows)) == repr(before._rule(before._rows))

    def restore(self, state: dict[str, Any]) -> None:
        """As every method; more cells than points would take memory that no file accounts for."""
        kernel, n = state["locality_"].kernel, len(state["Z"])
        cells = kernel.cells if isinstance(kernel, KNN) else None
        if cells is not None and (cells.n_cells or 0) > max(n, FEW_CELLS):
            raise CalliperError(f"{cells.n_cells} cells are too many for {n} points.")
        super().restore(state)

    def _moved(self, Z: FloatArray) -> Any:
        """Rows in the space of the kernel."""
        return Z if self.kernel_.moved is None else self.kernel_.moved(Z)

    def _fit_bag(self, rows: Rows, before: Any = None) -> Bag | ShrunkBag:
        """Thresholds of the whole bag, in a unit in which products of scores do not overflow.

        ``before`` is the local part of the first rows, which is extended if that can be.
        """
        # A root mean square crosses where the mean of squares does, at the squared radius.
        power = self.power_ = 2 if self.statistic_ == "rms" else 1
        # A power of two changes no digit. The largest number is so large that products of small
        # ones do not vanish, and so small that those of large ones do not overflow.
        shift = LARGEST // power - quantile.exponent(np.append(rows.magnitudes, self.offset))
        grows = before is not None and shift == self.shift_
        self.shift_: int = shift
        scaled = np.ldexp(rows.magnitudes, shift) ** power
        self.least_ = self._least(rows.magnitudes, scaled)
        members = Rows(self._moved(rows.Z), np.ldexp(rows.scores, shift) ** power, scaled)
        local = before.extended(members) if grows else None
        if local is None:
            offset = float(np.ldexp(float(self.offset), shift)) ** power / (1 - self.shrinkage_)
            how: Any = {"statistic": self.statistic_, "offset": offset}
            local = self.kernel_.bag(members, **how, known=self._found_before)
        self._of_kernel = local
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
        if self.statistic is not None:
            check_option(self.statistic, [*STATISTICS], "statistic")
        check_offset(self.offset)
        share = self.shrinkage
        if share is not None and (not isinstance(share, Real) or not 0 <= float(share) <= 1):
            raise ValueError(f"shrinkage must be a number between 0 and 1; got {share!r}.")

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        if self.bag_ is None:
            return super()._radius(Z, levels, shares)
        return self._in_unit(self.bag_.order_statistics(self._moved(Z), levels, shares))

    def _in_unit(self, threshold: FloatArray) -> FloatArray:
        """Thresholds of the bag in the unit of the scores, and not as squares."""
        with np.errstate(over="ignore"):
            sizes = np.maximum(threshold, self.least_) ** (1 / self.power_)
            return quantile.not_below(np.ldexp(sizes, -self.shift_))

    @property
    def has_distribution(self) -> bool:  # type: ignore[override]
        """Whether the scale is the same at every level, as that of a quantile is not."""
        return self.statistic != "quantile"

    def _all_thresholds(self, Z: FloatArray) -> FloatArray:
        if self.bag_ is None:
            return super()._all_thresholds(Z)
        return self._in_unit(self.bag_.thresholds(self._moved(Z)))

    def signed_thresholds(self, Z: FloatArray, ranks: list[int] | None = None) -> FloatArray:
        """±t_i of the bag, of all points or of some ranks."""
        if self.bag_ is None:
            return super().signed_thresholds(Z, ranks)
        if ranks is None:
            return quantile.with_signs(self._all_thresholds(Z), self._rows.signs)
        found = self.bag_.signed_order_statistics(self._moved(Z), self._rows.signs, ranks)
        return quantile.with_signs(self._in_unit(np.abs(found)), np.sign(found))
