"""Full conformal with rescaled scores: the paper's adaptivity with the whole 1−α.

The new point is put into the calibration set with a candidate score t, and every member of this
bag is rescaled by its neighbours in the bag, itself left out:

    σ_i(t) = s_i / ŝ_i(t),  σ_{N+1}(t) = t / ŝ_{N+1},
    p(t) = (1 + #{i ≤ N : σ_i(t) ≥ σ_{N+1}(t)}) / (N+1),   interval = {t ≥ 0 : p(t) > α}.

ŝ_i(t) does not decrease in t, so σ_i(t) does not increase while σ_{N+1}(t) does: comparison i
holds exactly up to one crossing t_i, which has a closed form, and the interval is [0, t_(Q)] with
Q = ⌈(1−α)(N+1)⌉. No grid over t, no refitting.

*The mixture.* Neighbours' scores are few and noisy. ``shrinkage`` m mixes their mean with the
median of the whole bag, which treats all members alike:

    ŝ_i(t) = (1−m)·local_i(t) + m·g(t),    g(t) the ⌈(N+1)/2⌉-th smallest of s_1 … s_N and t.

m = 1 ranks the bare scores, which is ``Split``; with the root mean square, squares are mixed. With
a ≤ b the middle order statistics of the calibration scores, g(t) = min(max(t, a), b). Scales matter
up to a common factor, so κg(t), κ = m/(1−m), is added to every local scale:

    below a   the constant κa is added: the closed form with an offset, radius R_a
    above b   the constant κb is added: the same, radius R_b
    between   κt is added; comparison i holds as long as t·(L_i(t) + κt) ≤ s_i·(L_{N+1} + κt),
              a quadratic equation for t_i

Each comparison still holds up to one t_i: s_i L_{N+1} + t·(κs_i − L_i(t) − κt) is a non-negative
constant plus t times something that decreases, so once negative it stays negative. The answer is
R_b if R_b ≥ b, else R_a if R_a ≤ a, else it lies between.

*The rule.* Few neighbours follow the error closely but noisily; many miss where it changes.

- If the space has a unit of its own (a model's prediction and spread, say), the distance at which
  points still inform one another is known: a radial kernel of that length.
- If it has no unit and many dimensions (a network's embedding), the root mean square over the K
  nearest and the 4K nearest, half of each; it is closer than the mean to the high quantiles that
  intervals need. Half of the scale is global up to a few hundred points; beyond, this share fades.
  The constants were chosen on ten networks; without one of them, NEIGHBORS is 2 or 2.5.
- In fewer dimensions (inputs), and for a quantile, the 20 nearest, mixed with the global scale.

*The search.* Left-out errors stand in for the calibration errors. Bags of N+1 of them are drawn, or
the bag is all of them if they are fewer. Each member in turn is the new point: its radius is the
conformal quantile of the others' rescaled errors times its own scale, which is the full method
except that one score has no influence on its neighbours' scales. Interval scores are divided by
plain split's mean on the same bag and averaged over levels. A candidate, of which plain split is
one, replaces the rule only if it is better by more than a standard error of the difference, point
by point: always taking the best follows noise.

Rule and search use training data and the number of calibration rows, nothing else about them, so
1−α holds whatever is chosen.

Letters: s_i → ``scores``, ŝ → ``bag_``, κ → ``slope``, a, b → ``low``, ``high``.

Guarantee: 1−α, marginal, for exchangeable data, since p is the rank p-value of a score that
treats all members of the bag alike. At most 1/(N+1) above 1−α without ties.

References: Vovk, Gammerman, Shafer (2005), doi:10.1007/b106715 (full conformal). Deutschmann,
Rigotti, Rodríguez Martínez (2024), TMLR (rescaling). Nearest relatives of the closed form, which to
our knowledge is not published: doi:10.1613/jair.3198, doi:10.1093/biomet/asac040.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from calliper import quantile
from calliper._kept import Array, Field, Inline, Keeps, Number, Part, Text
from calliper._types import FloatArray, IntArray
from calliper._validation import check_option, check_size, warn_if_zero_scales, warn_of_unused
from calliper.calibrators._calibrator import Calibrator, kernel_needs
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.kernels import (
    KNN,
    RBF,
    STATISTICS,
    Bag,
    GradedKNN,
    Kernel,
    Neighborhood,
    as_kernel,
    rescale,
)
from calliper.quantile import Shares, conformal_rank, power_of_two
from calliper.rows import Rows

#: Thresholds are computed from scores, or their squares, of at most 2 to this. Products of those
#: not below 2 to SMALL keep all their digits; sums of scores below 2 to TOO_SMALL would not.
LARGEST, SMALL, TOO_SMALL = 440, -250, -1000

#: What the method uses, and what it uses where left-out errors choose how local to be.
USES = Uses("magnitudes", "signs", "weights", "length_scale")
WITH_LEFT_OUT = Uses(*USES, "left_out")
#: How many points the mean of all counts for in a radial mean.
SMOOTHING = 1.0
#: Side of the cells that points of a radial kernel are moved to, in length scales: up to this many
#: calibration rows, and beyond.
FEW_POINTS, STEP, COARSE_STEP = 2_000, 0.5, 1.5
#: K over the sixth root of N where graded neighbours are the rule, the share that is then global of
#: few points, and from how many on it fades.
NEIGHBORS, GRADED_SHARE, FADING = 2.25, 0.5, 300
#: Dimensions from which a space without a unit has graded neighbours.
WIDE = 64
#: Least and most of the scale that is global where the K nearest are the rule.
LEAST_SHRINKAGE, MOST_SHRINKAGE = 0.2, 0.5
#: Levels whose interval scores are averaged.
SCORED_LEVELS = (0.8, 0.9, 0.95)
#: What is tried besides plain split: multiples of the rule's K or length scale, and, where K
#: nearest are the rule, shares of the global scale besides the rule's.
MULTIPLES = tuple(np.sqrt(2.0) ** step for step in range(-3, 4))
SHRINKAGES = (0.0, 0.1, 0.2, 0.5, 0.75)
#: Fewer errors say too little; members of a bag, and of all bags, are limited by time.
LEAST_ERRORS, MOST_MEMBERS, MOST_IN_ALL = 60, 1500, 8000


@dataclass(frozen=True)
class Locality(Keeps):
    """Which points count as neighbours, how much of the scale is global, and how that was chosen.

    Attributes
    ----------
    kernel : the kernel used
    shrinkage : share of the global scale; 1 is plain split conformal
    chosen_by : "user", "rule", or "left-out errors"
    n_errors : number of left-out errors that were looked at; 0 if none
    against_split : estimated interval score over that of plain split, mean over levels; NaN if
        nothing was estimated
    statistic : what of the neighbours' scores is the scale
    """

    kernel: Annotated[Kernel, Part("kernels")]
    shrinkage: Annotated[float, Number(least=0, most=1)]
    chosen_by: Annotated[str, Text(("user", "rule", "left-out errors"))]
    n_errors: Annotated[int, Number(int, 0)] = 0
    against_split: Annotated[float, Number(finite=False)] = float("nan")
    statistic: Annotated[str, Text(tuple(STATISTICS))] = "mean"

    @classmethod
    def again(cls, state: dict[str, Any]) -> "Locality":
        """With the parameters of its kernel checked."""
        return cls(**{**state, "kernel": as_kernel(state["kernel"]).resolved()})

    def describe(self) -> str:
        """In words, for a report."""
        of = "" if self.statistic == "mean" else f" ({self.statistic})"
        what = f"{self.kernel!r}{of}, shrinkage {self.shrinkage:g}"
        if self.shrinkage == 1:
            what = "none, widths do not depend on neighbours"
        if self.chosen_by == "user":
            return f"{what}, as given"
        why = "chosen by the number of calibration rows"
        if self.chosen_by == "left-out errors":
            why = f"chosen on {self.n_errors} held-out errors"
        elif self.n_errors:
            why += f"; nothing else was clearly better on {self.n_errors} held-out errors"
        if np.isnan(self.against_split):
            return f"{what}, {why}"
        gain = f"estimated interval score {self.against_split:.3f} times that of plain split"
        return f"{what}, {why} ({gain})"


def locality_rule(
    n: int,
    length_scale: float | None,
    shrinkage: float | None,
    *,
    statistic: str | None,
    dimensions: int = 2,
) -> Locality:
    """The rule for N = n points; a share or a statistic that is given stays."""
    few, kernel, usual, said = length_scale is not None, Kernel(), 0.0, statistic or "mean"
    if few and statistic != "quantile":
        step = STEP if n <= FEW_POINTS else COARSE_STEP
        kernel = RBF(_rounded(length_scale), smoothing=SMOOTHING, step=step)
    elif not few and statistic != "quantile" and dimensions >= WIDE and n >= 8:
        kernel = GradedKNN(min(round(NEIGHBORS * n ** (1 / 6)), n // 8))
        usual, said = GRADED_SHARE * min(1.0, (FADING / n) ** 1.5), statistic or "rms"
    else:  # half of a small set at most: with all of it, nothing is local
        k = round(2 * np.sqrt(n)) if few else 20
        kernel = KNN(max(1, min(k, n // 2)))
        usual = 0.0 if few else np.clip(8 / np.sqrt(n), LEAST_SHRINKAGE, MOST_SHRINKAGE)
    m = _rounded(usual) if shrinkage is None else shrinkage
    return Locality(kernel, m, "rule", statistic=said)


def _rounded(value: Any) -> float:
    """Three digits: more would mean nothing."""
    return float(f"{value:.3g}")


def search_locality(
    rule: Locality, unseen: Rows, n: int, *, free: bool, offset: float, rng: np.random.RandomState
) -> Locality:
    """The rule, or what left-out errors say is clearly better for n points.

    ``free`` lets the global share differ.
    """
    unit = power_of_two(np.append(unseen.scores, offset))  # squares must not overflow
    errors, offset = unseen.scores / unit, offset / unit
    statistic, power = rule.statistic, 2 if rule.statistic == "rms" else 1
    size = min(n + 1, len(errors), MOST_MEMBERS)
    levels = [level for level in SCORED_LEVELS if conformal_rank(level, size - 1) < size]
    if len(errors) < LEAST_ERRORS or not levels or not errors.any():
        return rule
    kernels, shares = _candidates(rule, size, free)
    total, count = np.zeros((len(kernels) * len(shares) + 1, len(errors))), np.zeros(len(errors))
    n_bags = 1 if size == len(errors) else min(-(-4 * len(errors) // size), -(-MOST_IN_ALL // size))
    for _ in range(n_bags):
        members = rng.choice(len(errors), size, replace=False)
        count[members] += 1
        sizes = errors[members] ** power
        local = kernels[0].scales_of_others(kernels, unseen.Z[members], sizes, statistic=statistic)
        middle = np.sort(sizes)[(size - 1) // 2]
        for level in levels:
            near = local(level)
            scale = np.concatenate([(1 - m) * near + m * middle for m in shares])
            scale = (scale + offset**power) ** (1 / power)
            score = _interval_scores(errors[members], np.vstack([scale, np.ones(size)]), level)
            total[:, members] += score / (score[-1].mean() * len(levels))
    seen = count > 0
    best, against = _clearly_best(total[:, seen] / count[seen], free)
    if best == 0:
        return replace(rule, n_errors=len(errors), against_split=against)
    share, kernel = divmod(best, len(kernels))
    known = (*shares, 1.0)[share], "left-out errors", len(errors), against, statistic
    return Locality(kernels[kernel], *known)


def _candidates(rule: Locality, size: int, free: bool) -> tuple[list[Kernel], list[float]]:
    """Kernels and shares to combine, those of the rule first."""
    kernels = [rule.kernel.widened(multiple, size // 2) for multiple in (1.0, *MULTIPLES)]
    different = list({repr(kernel): kernel for kernel in kernels}.values())
    shares = [rule.shrinkage]
    if free and not rule.kernel.smoothing:  # a smoothed kernel has its global part already
        shares += [m for m in SHRINKAGES if m != rule.shrinkage]
    return different, shares


def _clearly_best(score: FloatArray, free: bool) -> tuple[int, float]:
    """Which of (candidates, points) is taken, the rule first, and its mean in units of the last."""
    score = score / score[-1].mean()
    mean = score.mean(axis=1)
    with np.errstate(invalid="ignore"):
        difference = score - score[0]
        error = difference.std(axis=1) / np.sqrt(score.shape[1])
        # A rule with infinite intervals loses to whatever has finite ones.
        better = mean < mean[0] - np.where(np.isfinite(mean[0]), error, 0.0)
    if not free:  # plain split is no mixture with the share that was given
        better[-1] = False
    candidates = np.flatnonzero(better & np.isfinite(mean))
    best = int(candidates[np.argmin(mean[candidates])]) if len(candidates) else 0
    return best, float(mean[best])


def _interval_scores(errors: FloatArray, scale: FloatArray, level: float) -> FloatArray:
    """(candidates, n) half the interval score of each member with the others as calibration set."""
    ratio = rescale(errors, scale)
    ordered = np.sort(ratio, axis=1)
    rank = conformal_rank(level, ratio.shape[1] - 1)
    quantile, following = ordered[:, [rank - 1]], ordered[:, [rank]]
    # Without a member that is at or below the quantile, the next in order takes its place.
    threshold = np.where(ratio <= quantile, following, quantile)
    with np.errstate(invalid="ignore"):
        radius = np.where(np.isinf(threshold), np.inf, threshold * scale)
        return np.asarray(radius + np.maximum(errors - radius, 0.0) / (1 - level))


class ShrunkBag:
    """Thresholds t_i of the full method with scales shrunk by m < 1, of N ≥ 2 points."""

    def __init__(self, bag: Bag, magnitudes: FloatArray, shrinkage: float) -> None:
        self.bag, self.slope = bag, shrinkage / (1 - shrinkage)
        middle = (len(magnitudes) + 2) // 2
        below, above = np.partition(magnitudes, [middle - 2, middle - 1])[middle - 2 : middle]
        self.low, self.high = float(below), float(above)
        self.at_low = bag.with_offset(bag.offset + self.slope * self.low)
        self.at_high = bag.with_offset(bag.offset + self.slope * self.high)

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration rows without the new one, times 1/(1−m), (N,)."""
        return self.at_high.calibration_scale(level)

    def order_statistics(
        self, Z: FloatArray, asked: list[Any], shares: Shares | None = None, signs: Any = None
    ) -> FloatArray:
        """As of a bag: R_b, R_a, or what lies between them, (m, L), each by its size."""

        def ask(bag: Bag, rows: IntArray, some: list[Any], slope: float = 0.0) -> FloatArray:
            own = shares and shares.of_rows(rows)
            return bag.order_statistics(Z[rows], some, own, slope, signs)

        radius = ask(self.at_high, np.arange(len(Z)), asked)
        small = np.abs(radius) < self.high
        rows = np.flatnonzero(small.any(axis=1))
        if not len(rows):
            return radius
        below = ask(self.at_low, rows, asked)
        radius[rows] = np.where(small[rows], below, radius[rows])
        # Where a = 0 nothing is added at t = 0 and something beyond: R_a = 0 settles nothing.
        unsettled = small[rows] & ((np.abs(below) > self.low) | (self.low == 0))
        for column in np.flatnonzero(unsettled.any(axis=0)):
            inside = rows[unsettled[:, column]]
            found = ask(self.bag, inside, [asked[column]], self.slope)[:, 0]
            radius[inside, column] = np.sign(found) * np.clip(np.abs(found), self.low, self.high)
        return radius

    def thresholds(self, Z: FloatArray) -> FloatArray:
        """All thresholds t_i of a few rows, (m, N), in the order of the calibration rows."""
        high, low = self.at_high.thresholds(Z), self.at_low.thresholds(Z)
        between = np.clip(self.bag.thresholds(Z, slope=self.slope), self.low, self.high)
        below = np.where((low > self.low) | (self.low == 0), between, low)
        return np.where(high < self.high, below, high)


@dataclass(eq=False, repr=False)
class FullRescaled(Calibrator):
    """Adaptive intervals with the full guarantee 1 − α; the default method.

    Parameters
    ----------
    kernel : KNN, RBF, GradedKNN, ForestProximity, Mahalanobis, TunedKNN or TunedRBF, optional
        Which points count as neighbours. It must not depend on calibration scores. By default a
        rule chooses it together with ``shrinkage``, which left-out errors, if ``fit`` is given
        any, may change. It is tuned or learnt on left-out errors, or else on training errors.
    shrinkage : float between 0 and 1, optional
        m, how much of the scale is the median of all scores rather than the neighbours': 1 is
        plain split conformal. Choose it without calibration data; 0 if you pass a kernel.
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
    'KNN(n_neighbors=20), shrinkage 0.358, chosen by the number of calibration rows'
    """

    about = About(
        cli="full",
        width="wide where nearby calibration errors are large",
        when="by default",
        cost="neighbours of N + M rows among N, and the reverse",
        neighbors="kernel",
        usual_neighbors="the 20 nearest (at most half of all points), their mean mixed with the "
        "median error by 8/√N, at least 0.2 and at most 0.5; with 64 features or more, the K and "
        "4K nearest, where K = 2.25·N^(1/6), at most N/8",
    )
    through_kernel = True
    learns: ClassVar[Mapping[str, Field]] = {
        "locality_": Inline(Locality),
        "near_": Inline(Neighborhood, optional=True),
        "wide_": Inline(Neighborhood, optional=True),
        "sums_": Array("float64", (3, "N"), optional=True),
    }

    @property
    def uses(self) -> Uses:
        """Left-out errors are used only where they make a difference, since they may be costly."""
        chosen = self.kernel is None or as_kernel(self.kernel).learns_on_errors
        own = WITH_LEFT_OUT if chosen and self.shrinkage != 1 else USES  # at 1 nothing is local
        if self.kernel is None:
            return own
        in_cells = isinstance(self.kernel, KNN) and self.kernel.cells is not None
        taken = own - {"length_scale"} | ({"training"} if in_cells else set())
        return Uses(*taken, needs=kernel_needs(self.kernel, fixed=True))

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
        self._rounded = len(rows.scores) == 1 or self.shrinkage_ == 1
        if self._rounded:  # one scale for all: plain split
            self._rescale(rows)
        else:
            self.bag_ = self._fit_bag(rows, local)
            self._signed_weights = rows.weights  # the bag keeps the order of the points
            if not self._known:
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
        return search_locality(rule, unseen, len(rows), **how)

    def _rule(self, rows: Rows) -> Locality:
        how: Any = {"statistic": self.statistic, "dimensions": rows.Z.shape[1]}
        return locality_rule(len(rows.scores), self._length_scale, self.shrinkage, **how)

    def _stays(self, rows: Rows, before: Any) -> bool:
        """Whether the choice for these rows is what it was for those before."""
        same = len(rows) == len(before._rows) and self._length_scale == before._length_scale
        if same or self.kernel is not None:
            return True
        n_errors = 0 if self._left_out is None else len(self._left_out)
        now, then = (min(len(each) + 1, n_errors, MOST_MEMBERS) for each in (rows, before._rows))
        return now == then and repr(self._rule(rows)) == repr(before._rule(before._rows))

    def _moved(self, Z: FloatArray) -> Any:
        return Z if self.kernel_.moved is None else self.kernel_.moved(Z)

    def _fit_bag(self, rows: Rows, before: Any = None) -> Bag | ShrunkBag:
        """Thresholds of the whole bag; ``before``, that of the first rows, is extended."""
        # With rms, thresholds are found on squared scores; the radius is their root.
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
                f"with an offset of {self.offset:g}, differ too much to compare in double "
                f"precision ({self.statistic_} of neighbours). Set the smallest to 0, or use Split."
            )
        return 0.0 if smallest >= 2.0**SMALL else 2.0 ** (2 * SMALL)

    def _check_parameters(self) -> None:
        if self.statistic is not None:
            check_option(self.statistic, [*STATISTICS], "statistic")
        check_size(self.offset, "offset")
        if self.shrinkage is not None:
            check_size(self.shrinkage, "shrinkage", most=1)
        if self.shrinkage == 1:
            why = "with shrinkage=1 widths do not depend on neighbours"
            warn_of_unused(self, ("kernel", "statistic", "offset"), why)

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
        """Whether it has distributions: not if the scale depends on the level (a quantile)."""
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
        found = self.bag_.order_statistics(self._moved(Z), ranks, signs=self._rows.signs)
        return quantile.with_signs(self._in_unit(np.abs(found)), np.sign(found))
