"""Kernels that choose their own locality, one choice for each calibration row left out.

Kernels that differ in one number λ (a length scale, or K) are compared by a criterion, with ŝ_{i;m}
the local mean at calibration row i without i and m. The criteria of leaving m out are sums over
i ≠ m, so that point m has no influence on its own kernel:

    mse       ⟨(s_i − ŝ_{i;m})²⟩
    deviance  ⟨log ŝ_{i;m} + s_i / ŝ_{i;m}⟩          (gamma deviance, constants apart)
    mi        MI(s_i / ŝ_{i;m} ; X_i), summed over the features      (paper, Algorithm S.2)

λ_m is the best. The same λ_m serves the pair (m, new point) on both sides,

    s_m⁺ = s_m / ŝ_m(λ_m; all but m),    Δ_m = ŝ_{N+1}(λ_m; all but m) · s_m⁺,

so pairs are treated alike and the Jackknife+ bound holds. All N × G criteria come from closed-form
leave-two-out means in O(N² G); predicting costs one pass for each *different* λ. The printed
Algorithm S.2 evaluates mi after the loop over m and normalises with the wrong row: corrected here.

For large N, calibration rows are randomly divided into F folds. For point m of fold f, the choice
of λ_f and both means leave out all of fold f. That is CV+ (Barber, Candès, Ramdas, Tibshirani 2021,
doi:10.1214/20-AOS1965), whose guarantee applies.

The grid of length scales comes from training inputs alone (paper, Algorithm S.2, lines 2–4): it
spans the smallest to the largest distance of random pairs. Below the spacing of the points, the
rescaled score is the ratio of two neighbouring scores, so mutual information is as low there as at
a good scale. The guarded grid therefore starts where a kernel averages some ten points: a ball that
holds k of n points has the volume V_d r^d, a radial kernel weighs a volume (2π)^{d/2} l^d.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln
from sklearn.base import BaseEstimator, clone

from calliper._notebook import Progress, reporter
from calliper._types import BoolArray, FloatArray, IntArray
from calliper._validation import at_least, warn_of_unused
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.information import principal_components, random_ranks, rank_ksg, seed_of
from calliper.kernels._arithmetic import rescale
from calliper.kernels._kernel import (
    NOTHING,
    Kernel,
    Known,
    LeaveTwoOut,
    Rng,
    Stored,
    check_parameter,
)
from calliper.kernels._knn import KNN
from calliper.kernels._nearest import Nearest, same_length
from calliper.kernels._rbf import RBF, Radial, RadialMeans, check_length_scale
from calliper.kernels._search import EUCLIDEAN, Metric, NeighborSearch, check_metric
from calliper.rows import Rows

CRITERIA = ("mse", "deviance", "mi")
#: Local means without each of N calibration rows, or each of F folds of them: ``to`` new rows,
#: (m, N) or (m, F), and ``among`` the points without themselves, the diagonal without i only.
Means = Nearest | RadialMeans
#: The means of kernels that differ in one number, by that number.
Family = Callable[[float], Means]
#: Below this many points, leaving two out leaves nothing to tell kernels apart.
LEAST_POINTS = 4
#: Training rows that a kernel for the full method is tuned on; more add cost and no precision.
MOST_TRAINING_ROWS = 2000
#: Neighbours whose distance guards the lower end, and training inputs that are looked at for it.
GUARD_NEIGHBORS, GUARD_POINTS = 10, 2000


def pointwise_loss(kind: str, magnitudes: FloatArray, scale: FloatArray) -> FloatArray:
    """The summand of ``"mse"`` or ``"deviance"``; a zero scale has an infinite deviance."""
    if kind == "mse":
        return np.square(magnitudes - scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(scale) + magnitudes / scale
    return np.where(scale > 0, loss, np.inf)


class RescaledInformation:
    """Mutual information of rescaled scores with (N, C) features; ``rng`` breaks ties once."""

    def __init__(self, components: FloatArray, n_neighbors: int, rng: Rng) -> None:
        n = len(components)
        self.x_orders = np.argsort(random_ranks(components.T, rng), axis=-1)
        self.shuffled, self.n_neighbors = rng.permutation(n), n_neighbors

    def of_columns(self, rescaled: FloatArray, left_out: BoolArray) -> FloatArray:
        """One value for each column of ``rescaled`` (N, M), without as many points each (M, N)."""
        n_columns, n = left_out.shape
        values = np.where(left_out, np.nan, rescaled.T)  # sorts behind infinity
        # Equal scores come in random order.
        order = np.argsort(values[:, self.shuffled], axis=1, kind="stable")
        ranks = np.empty((n_columns, n), dtype=np.intp)
        np.put_along_axis(ranks, self.shuffled[order], np.arange(n)[None, :], axis=1)
        total = np.zeros(n_columns)
        for x_order in self.x_orders:
            in_order = ranks[:, x_order][~left_out[:, x_order]].reshape(n_columns, -1)
            total += rank_ksg(in_order, self.n_neighbors)
        return total


def choose(criteria: FloatArray) -> IntArray:
    """For each column of (G, M) the row that is smallest; of equal ones the last, the smoothest."""
    return np.asarray(len(criteria) - 1 - np.argmin(criteria[::-1], axis=0))


@dataclass(frozen=True)
class Tuning:
    """How to choose: the candidates in ascending smoothness, and what makes one the best."""

    candidates: FloatArray
    criterion: str
    information: RescaledInformation | None
    progress: Callable[[float], None]

    def criteria(
        self, magnitudes: FloatArray, left_out: BoolArray, scales: Callable[[float], FloatArray]
    ) -> FloatArray:
        """The criterion of each candidate, (G, M), by (N, M) scales without (M, N) points."""
        found = np.empty((len(self.candidates), len(left_out)))
        for done, candidate in enumerate(self.candidates):
            found[done] = self.values(magnitudes[:, None], scales(candidate), left_out)
            self.progress((done + 1) / len(self.candidates))
        return found

    def values(self, magnitudes: FloatArray, scale: FloatArray, left_out: BoolArray) -> FloatArray:
        """The criterion for each column of scales (N, M), and of magnitudes (N, 1): (M,)."""
        n_out = left_out.sum(axis=1)
        if self.information is None:
            loss = pointwise_loss(self.criterion, magnitudes, scale)
            loss[left_out.T] = 0.0
            return np.asarray(loss.sum(axis=0) / (len(loss) - n_out))
        ratio, found = rescale(magnitudes, scale), np.empty(len(left_out))
        for number in np.unique(n_out):
            columns = n_out == number
            found[columns] = self.information.of_columns(ratio[:, columns], left_out[columns])
        return found


class LeaveTwoOutTuned(LeaveTwoOut):
    """Local means with a candidate ``chosen`` for each point, (N,), or fold that is left out.

    If it is chosen here, by ``criteria`` of ``candidates``, one for each point or fold left out.
    """

    def __init__(
        self,
        family: Family,
        magnitudes: FloatArray,
        *,
        offset: float,
        fold: IntArray | None = None,
        tuning: Tuning | None = None,
        chosen: FloatArray | None = None,
        without_one: FloatArray | None = None,
    ) -> None:
        self.family, self.offset, self.fold = family, offset, fold
        points, self.n_folds = np.arange(len(magnitudes)), None if fold is None else fold.max() + 1
        self._out, own = points if fold is None else fold, {}

        def scales(candidate: float) -> FloatArray:
            without_two = family(candidate).among()
            without_two += offset
            own[candidate] = without_two[points, self._out]
            return without_two

        if chosen is None:
            assert tuning is not None
            left_out = np.equal.outer(np.arange(self.n_folds or len(points)), self._out)
            self.candidates = tuning.candidates
            self.criteria = tuning.criteria(magnitudes, left_out, scales)
            chosen = self.candidates[choose(self.criteria)[self._out]]
        elif without_one is None:
            for candidate in np.unique(chosen):
                scales(candidate)
        if without_one is None:
            without_one = np.array([own[each][point] for point, each in enumerate(chosen)])
        self.chosen, self.without_one = chosen, without_one

    def for_file(self) -> dict[str, Any]:
        """What was drawn and chosen, and the scales that it leads to."""
        found = {"chosen": self.chosen, "without_one": self.without_one}
        return found if self.fold is None else {"fold": self.fold, **found}

    @cached_property
    def of_each(self) -> FloatArray:
        """The candidate of every point, (N,), or every fold, (F,)."""
        candidates = np.ones(self.n_folds or len(self.chosen))
        candidates[self._out] = self.chosen
        return candidates

    @cached_property
    def _groups(self) -> list[tuple[IntArray, Means]]:
        """Points or folds of one candidate each, and the means that belong to it."""
        different = np.unique(self.of_each).tolist()
        return [(np.flatnonzero(self.of_each == each), self.family(each)) for each in different]

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows, each without one point or its fold, by the candidate of it."""
        means = np.empty((len(Z), len(self.of_each)))
        for members, of_candidate in self._groups:
            means[:, members] = of_candidate.to(Z)[:, members]
        means += self.offset
        return means if self.fold is None else means[:, self.fold]


@dataclass(eq=False, repr=False)
class _Tuned(Kernel, BaseEstimator, ABC):  # type: ignore[misc]
    """What tuned kernels share: how candidates are compared, not what they are."""

    learns_on_errors = True
    chosen: ClassVar[Any] = None
    n_folds: ClassVar[int | None] = None

    criterion: str = "mse"
    _: KW_ONLY
    n_components: int | None = None
    mi_neighbors: int = 3
    metric: Metric = EUCLIDEAN
    progress: Progress | bool | None = None

    def __sklearn_clone__(self) -> Self:
        # A copy of a progress bar would not be the one on the screen.
        parameters = self.get_params(deep=False)
        progress = parameters.pop("progress")
        copies = {name: clone(value, safe=False) for name, value in parameters.items()}
        return type(self)(**copies, progress=progress)

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Training inputs, if there are components to find in them."""
        components = self.criterion == "mi" and self.n_components is not None
        return ("training",) if components else ()

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Known = None, known: Stored = NOTHING
    ) -> LeaveTwoOut:
        """Scales of the Jackknife+ with a kernel for each point left out."""
        Z, magnitudes, n = rows.Z, rows.magnitudes, len(rows.Z)
        too_few = n < LEAST_POINTS + (self.mi_neighbors if self.criterion == "mi" else 0)
        n_folds = n if too_few or self.n_folds is None else min(n, self.n_folds)
        folds, fold, how = np.arange(n) % n_folds, None, {}
        if known:
            fold = known.get("fold")
            how = {name: same_length(known[name], Z) for name in ("chosen", "without_one")}
            candidates = self._candidates(n) if self.chosen is None else self.chosen
            if not np.isin(how["chosen"], candidates).all():
                raise CalliperError(f"the choice of {type(self).__name__} is not a candidate.")
            dealt = np.arange(n) if fold is None else fold
            if not np.array_equal(np.bincount(dealt), np.bincount(folds)):
                raise CalliperError(f"the folds of {type(self).__name__} have the wrong sizes.")
        elif self.chosen is not None:
            how["chosen"] = same_length(np.asarray(self.chosen), Z, "chosen length scales")
        elif too_few:
            smoothest = self._candidates(n)[-1]
            warn(
                f"{n} calibration rows are too few to tune {type(self).__name__} on; its "
                f"smoothest candidate, {smoothest:g}, is used for all of them.",
                SmallCalibrationWarning,
            )
            how["chosen"] = np.full(n, smoothest)
        else:
            how["tuning"] = self._tuning(Z, magnitudes, Z_train, rng)
            fold = None if n_folds == n else rng.permutation(folds)
        family = self._family(Z, magnitudes, fold)
        return LeaveTwoOutTuned(family, magnitudes, offset=offset, fold=fold, **how)

    def fixed(self, Z_train: Known, scores_train: Known, rng: Rng) -> Kernel:
        """The best candidate for training errors."""
        name = type(self).__name__
        if Z_train is None or scores_train is None:
            raise CalliperError(
                f"{name} cannot be tuned on calibration scores here: the kernel would depend on "
                f"the new score and the closed form would be lost. Pass training=(Z, scores) to "
                f"tune it on training errors (ConformalRegressor.fit does), use a fixed kernel "
                f"such as RBF(length_scale) or KNN(10), or tune on calibration scores with "
                f"JackknifeRescaled, which keeps 1 - 2 alpha."
            )
        if len(Z_train) > MOST_TRAINING_ROWS:
            rows = rng.choice(len(Z_train), MOST_TRAINING_ROWS, replace=False)
            Z_train, scores_train = Z_train[rows], scores_train[rows]
        if len(Z_train) < LEAST_POINTS + self.mi_neighbors:
            what = f"{len(Z_train)} training rows are too few to tune {name} on"
            raise CalliperError(f"{what}; pass a fixed kernel such as KNN(10).")
        tuning = self._tuning(Z_train, scores_train, Z_train, rng)
        family, none = self._family(Z_train, scores_train), np.zeros((1, len(Z_train)), dtype=bool)
        criteria = tuning.criteria(
            scores_train, none, lambda candidate: np.diagonal(family(candidate).among())[:, None]
        )
        return self._kernel(float(tuning.candidates[choose(criteria)[0]]))

    def _check(self) -> None:
        check_metric(self.metric)
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion must be one of {[*CRITERIA]}; got {self.criterion!r}.")
        at_least(self.mi_neighbors, 1, "mi_neighbors")
        if self.criterion != "mi":
            why = "only criterion='mi' uses it"
            warn_of_unused(self, ("n_components", "mi_neighbors"), why)

    @staticmethod
    def _sorted(given: Any, check: Callable[[Any], Any], name: str) -> list[Any]:
        """Different candidates in order, each checked."""
        if not np.size(given):
            raise ValueError(f"{name} must hold at least one value to choose from.")
        return sorted({check(each) for each in np.ravel(given).tolist()})

    @abstractmethod
    def _family(self, Z: FloatArray, magnitudes: FloatArray, fold: Any = None) -> Family:
        """The means of kernels to choose from, on fixed points."""

    @abstractmethod
    def _candidates(self, n: int) -> FloatArray:
        """The numbers in which they differ, ascending, for n points."""

    @abstractmethod
    def _kernel(self, candidate: float) -> Kernel:
        """One of them."""

    def _tuning(self, Z: FloatArray, magnitudes: FloatArray, Z_train: Known, rng: Rng) -> Tuning:
        candidates, information = self._candidates(len(Z)), None
        if self.criterion == "mi":
            if self.n_components is not None and Z_train is None:
                raise CalliperError(
                    "n_components needs training inputs: pass training=Z to fit "
                    "(X_train= to calibrate). Components of the calibration "
                    "points would let each point influence its own kernel."
                )
            components = principal_components(Z, self.n_components, Z_train)
            # Ties are broken by a draw that depends on the calibration rows.
            ties = np.random.RandomState([rng.randint(2**31), seed_of(Z, magnitudes)])
            information = RescaledInformation(components, self.mi_neighbors, ties)
        return Tuning(candidates, self.criterion, information, reporter(self.progress, "tuning"))


@dataclass(eq=False, repr=False)
class TunedRBF(_Tuned):
    """RBF whose length scale is chosen from a grid (paper, Algorithm S.2).

    In ``JackknifeRescaled``, that of calibration row m is chosen on all *other* points, so the
    Jackknife+ proof holds as it is; in ``FullRescaled`` on training errors, so its 1 − α holds.

    Parameters
    ----------
    criterion : {"mse", "deviance", "mi"}, default "mse"
        What the chosen scale makes smallest: the mean squared error of the local mean for the
        score, its gamma deviance, or the mutual information of rescaled score and features.
    n_scan : int, default 30
        Number of length scales on the grid, evenly spaced in their logarithm.
    n_sample : int, default 1000
        Number of pairs of training inputs whose smallest and largest distance span the grid.
    expand : float, default 1
        Factor, at least 1, by which the grid is widened at both ends (β in the paper).
    grid : {"auto", "paper", "guarded"}, default "auto"
        ``"paper"`` spans the distances of the pairs; ``"guarded"`` starts where a kernel averages
        some ten training inputs, which ``"mi"`` alone needs: ``"auto"`` guards for it.
    length_scales : sequence of float, optional; the grid itself, without training inputs
    chosen : sequence of float, optional
        The length scale of every calibration row, as chosen before on the same points without
        folds (the guarantee holds for no other choice). Nothing is tuned then.
    n_folds : int, optional; leave out folds instead of points, for large N: CV+'s guarantee
    n_components : int, optional; for ``"mi"``, of training inputs, in place of all features
    mi_neighbors : int, default 3
        For ``"mi"``: k of the estimator.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    progress : callable or True, optional
        Called with the fraction of the grid that is done; may raise to stop; ``True`` shows it.

    Examples
    --------
    >>> from calliper import JackknifeRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(60, 1))
    >>> errors = Z[:, 0] * rng.uniform(size=60)
    >>> kernel = TunedRBF(length_scales=[0.1, 0.3, 1.0])
    >>> method = JackknifeRescaled(kernel, random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], 0.9).round(1)
    array([0.1, 0.9])
    """

    cli = "tuned-rbf"

    _: KW_ONLY
    n_scan: int = 30
    n_sample: int = 1000
    expand: float = 1.0
    grid: str = "auto"
    length_scales: Any = None
    chosen: Any = None  # type: ignore[misc]
    n_folds: int | None = None  # type: ignore[misc]

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Training inputs, also for the grid unless it or the chosen length scale is given."""
        given = self.length_scales is not None or self.chosen is not None
        return super().needs if given else ("training",)

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """A copy with its parameters checked and its grid filled in."""
        self._check()
        if self.chosen is not None:
            chosen = [check_length_scale(scale) for scale in np.ravel(self.chosen).tolist()]
            if self.n_folds is not None:
                raise ValueError("scales are chosen for points, not for folds: leave n_folds out.")
            return replace(self, chosen=np.array(chosen))
        at_least(self.n_scan, 1, "n_scan")
        at_least(self.n_sample, 1, "n_sample")
        check_parameter(self.expand, "expand", least=1)
        if self.grid not in ("auto", "guarded", "paper"):
            raise ValueError(f"grid must be 'auto', 'guarded' or 'paper'; got {self.grid!r}.")
        if self.n_folds is not None:
            at_least(self.n_folds, 2, "n_folds")
        if self.length_scales is not None:
            given = self._sorted(self.length_scales, check_length_scale, "length_scales")
            return replace(self, length_scales=np.array(given))
        if Z_train is None:
            raise CalliperError(
                "TunedRBF derives its grid from distances between training inputs: pass "
                "training=Z to fit (X_train to calibrate), or the grid itself as length_scales=."
            )
        grid = length_scale_grid(self, Z_train, rng or np.random.RandomState(0))
        return replace(self, length_scales=grid)

    def _family(self, Z: FloatArray, magnitudes: FloatArray, fold: Any = None) -> Family:
        return lambda scale: RadialMeans(Radial(Z, scale, self.metric), magnitudes, fold)

    def _candidates(self, n: int) -> FloatArray:
        return np.asarray(self.length_scales, dtype=float)

    def _kernel(self, candidate: float) -> RBF:
        return RBF(candidate, metric=self.metric)


@dataclass(eq=False, repr=False)
class TunedKNN(_Tuned):
    """K nearest neighbours whose K is chosen from a grid, by the same rule as ``TunedRBF``.

    Parameters
    ----------
    criterion : {"mse", "deviance", "mi"}, default "mse"
        As for ``TunedRBF``.
    n_neighbors : sequence of int, default (3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
        The values of K to choose from; those that are too large for N are left out.
    n_components, mi_neighbors, metric, progress
        As for ``TunedRBF``.

    Examples
    --------
    >>> from calliper import JackknifeRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(60, 1))
    >>> errors = Z[:, 0] * rng.uniform(size=60)
    >>> method = JackknifeRescaled(TunedKNN(n_neighbors=[5, 20]), random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], 0.9).round(1)
    array([0.1, 0.8])
    """

    cli = "tuned-knn"

    _: KW_ONLY
    n_neighbors: Any = (3, 5, 7, 10, 15, 20, 30, 50, 70, 100)

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """A copy with its parameters checked and the values of K in order."""
        self._check()
        name = "n_neighbors"
        given = self._sorted(self.n_neighbors, lambda k: at_least(k, 1, name), name)
        return replace(self, n_neighbors=tuple(given))

    def _family(self, Z: FloatArray, magnitudes: FloatArray, fold: Any = None) -> Family:
        search = NeighborSearch(Z, self.metric)
        return lambda k: Nearest(search, magnitudes, int(k))

    def _candidates(self, n: int) -> FloatArray:
        """A K must leave one point to take the place of the one left out."""
        fitting = [k for k in self.n_neighbors if k <= n - 2]
        return np.array(fitting or [max(1, n - 2)], dtype=float)

    def _kernel(self, candidate: float) -> KNN:
        return KNN(int(candidate), metric=self.metric)


def length_scale_grid(kernel: TunedRBF, Z_train: FloatArray, rng: Rng) -> FloatArray:
    """Length scales, ascending, evenly spaced in their logarithm."""
    distances = _pair_distances(kernel, Z_train, rng)
    low, high = distances.min() / kernel.expand, distances.max() * kernel.expand
    if kernel.grid == "guarded" or (kernel.grid == "auto" and kernel.criterion == "mi"):
        low = min(max(low, _neighbor_distance(kernel, Z_train, rng)), high)
    if kernel.n_scan == 1:
        return np.array([np.sqrt(low * high)])
    return np.geomspace(low, high, kernel.n_scan)


def _pair_distances(kernel: TunedRBF, Z: FloatArray, rng: Rng) -> FloatArray:
    """Positive distances of random pairs; copies of one input say nothing about scale."""
    positive, search = np.empty(0), NeighborSearch(Z, kernel.metric)
    for _ in range(20):
        first, second = rng.randint(len(Z), size=(2, kernel.n_sample))
        distance = _distances(search, second, first)
        positive = np.concatenate([positive, distance[distance > 0]])
        if len(positive) >= kernel.n_sample:
            return positive[: kernel.n_sample]
    if not len(positive):
        what = f"all {len(Z)} training inputs are the same, so they give no length scale"
        raise CalliperError(f"{what}: pass length_scales=, or other features.")
    return positive


def _neighbor_distance(kernel: TunedRBF, Z: FloatArray, rng: Rng) -> float:
    """The length scale whose kernel weighs as much as the median ball of ten neighbours."""
    if len(Z) > GUARD_POINTS:
        # A sample has wider gaps than the whole; the guard errs on the smooth side.
        Z = Z[rng.choice(len(Z), GUARD_POINTS, replace=False)]
    search, d = NeighborSearch(Z, kernel.metric), Z.shape[1]
    last = search.nearest_others(min(GUARD_NEIGHBORS, len(Z) - 1))[0][:, -1]
    log_ball = d / 2 * np.log(np.pi) - gammaln(d / 2 + 1)
    return float(np.median(_distances(search, last)) * np.exp(log_ball / d) / np.sqrt(2 * np.pi))


def _distances(search: NeighborSearch, *pairs: IntArray) -> FloatArray:
    """Distances, as :meth:`NeighborSearch.distance_to`, in the unit of the features."""
    distance = search.distance_to(*pairs)
    return np.sqrt(distance) * search.unit if search.metric == EUCLIDEAN else distance
