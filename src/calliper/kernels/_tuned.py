"""Kernels that choose their own locality, one choice for each calibration point left out.

The grid of length scales comes from training inputs alone (paper, Algorithm S.2, lines 2–4): it
spans the smallest to the largest distance of random pairs. Below the spacing of the points, the
rescaled score is the ratio of two neighbouring scores, so mutual information is as low there as at
a good scale. The guarded grid therefore starts where a kernel averages some ten points: a ball that
holds k of n points has the volume V_d r^d, a radial kernel weighs a volume (2π)^{d/2} l^d.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import gammaln
from sklearn.base import BaseEstimator, clone

from calliper._draws import seed_of
from calliper._notebook import Progress, reporter
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.information import principal_components
from calliper.kernels._criterion import (
    CRITERIA,
    Family,
    LeaveTwoOutTuned,
    RescaledInformation,
    Tuning,
)
from calliper.kernels._kernel import NOTHING, Found, Kernel, Known, LeaveTwoOut, Rng, check_size
from calliper.kernels._knn import KNN, same_length
from calliper.kernels._nearest import Nearest
from calliper.kernels._neighbors import NeighborSearch
from calliper.kernels._rbf import RBF, RadialExponents, RadialMeans, check_length_scale
from calliper.kernels._search import EUCLIDEAN, Metric, check_metric
from calliper.rows import Rows

#: Below this many points, leaving two out leaves nothing to tell kernels apart.
LEAST_POINTS = 4

#: Training rows that a kernel for the full method is tuned on; more add cost and no precision.
MOST_TRAINING_ROWS = 2000

#: Neighbours whose distance guards the lower end, and training inputs that are looked at for it.
GUARD_NEIGHBORS, GUARD_POINTS = 10, 2000


class _Tuned(Kernel, BaseEstimator, ABC):  # type: ignore[misc]
    """What tuned kernels share: how candidates are compared, not what they are."""

    learns_on_errors = True
    criterion: str
    n_components: int | None
    mi_neighbors: int
    metric: Metric
    progress: Progress | bool | None
    chosen: Any = None
    n_folds: int | None = None
    #: Whether the candidates are known without training inputs.
    has_candidates: bool = True

    def __sklearn_clone__(self) -> Self:
        # A copy of a progress bar would not be the one on the screen.
        parameters = self.get_params(deep=False)
        progress = parameters.pop("progress")
        copies = {name: clone(value, safe=False) for name, value in parameters.items()}
        return type(self)(**copies, progress=progress)

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Training inputs, if there is a grid to span by them or components to find in them."""
        components = self.criterion == "mi" and self.n_components is not None
        return ("training",) if components or not self.has_candidates else ()

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Known = None, known: Found = NOTHING
    ) -> LeaveTwoOut:
        """Scales of the Jackknife+ with a kernel for each point left out."""
        Z, magnitudes, n = rows.Z, rows.magnitudes, len(rows.Z)
        fold, how = known.get("fold"), {}
        if known.get("without_one") is not None:
            how = {name: same_length(known[name], Z) for name in ("chosen", "without_one")}
        elif self.chosen is not None:
            how["chosen"] = same_length(np.asarray(self.chosen), Z, "chosen length scales")
        elif n < LEAST_POINTS + (self.mi_neighbors if self.criterion == "mi" else 0):
            smoothest = self._candidates(n)[-1]
            warn(
                f"{n} calibration points are too few to tune {type(self).__name__} on; its "
                f"smoothest candidate, {smoothest:g}, is used for all of them.",
                SmallCalibrationWarning,
            )
            how["chosen"] = np.full(n, smoothest)
        else:
            how["tuning"] = self._tuning(Z, magnitudes, Z_train, rng)
            if self.n_folds is not None and self.n_folds < n:
                fold = rng.permutation(np.arange(n) % self.n_folds)
        fold = None if fold is None else same_length(fold, Z)
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
            raise CalliperError(
                f"{len(Z_train)} training rows are too few to tune {name} on; pass a fixed kernel "
                f"such as KNN(10)."
            )
        tuning = self._tuning(Z_train, scores_train, Z_train, rng)
        return self._kernel(tuning.best_for_all(self._family(Z_train, scores_train), scores_train))

    def _check(self) -> None:
        """Refuse what both kinds of tuned kernels refuse."""
        check_metric(self.metric)
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion must be one of {[*CRITERIA]}; got {self.criterion!r}.")
        at_least(self.mi_neighbors, 1, "mi_neighbors")

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
                    "n_components needs training inputs to find the components of: pass training=Z "
                    "to fit (X_train to calibrate). Components of the calibration points would "
                    "give each point a say in its own kernel."
                )
            components = principal_components(Z, self.n_components, Z_train)
            # Ties are broken by a draw that depends on the calibration points.
            drawn = [rng.randint(2**31), seed_of(Z, magnitudes)]
            ties = np.random.RandomState(drawn)
            information = RescaledInformation(components, self.mi_neighbors, ties)
        return Tuning(candidates, self.criterion, information, reporter(self.progress, "tuning"))


@dataclass(eq=False, repr=False)
class TunedRBF(_Tuned):
    """RBF whose length scale is chosen from a grid (paper, Algorithm S.2).

    In ``JackknifeRescaled``, the length scale l_m that goes with calibration point m is chosen on
    all *other* calibration points, so that the Jackknife+ proof holds as it is. In
    ``FullRescaled`` one length scale is chosen on training errors, so that its 1 − α holds.

    Parameters
    ----------
    criterion : {"mse", "deviance", "mi"}, default "mse"
        What the chosen scale makes smallest: the mean squared error of the local mean as a
        prediction of the score; its gamma deviance, mean of log ŝ + s/ŝ; or the mutual
        information between rescaled score and features, as in the paper.
    n_scan : int, default 30
        Number of length scales on the grid, evenly spaced in their logarithm.
    n_sample : int, default 1000
        Number of pairs of training inputs whose smallest and largest distance span the grid.
    expand : float, default 1
        Factor, at least 1, by which the grid is widened at both ends (β in the paper).
    grid : {"auto", "paper", "guarded"}, default "auto"
        ``"paper"`` spans the distances of the pairs. ``"guarded"`` starts where a kernel averages
        some ten training inputs; without that, mutual information often chooses a scale below the
        spacing of the points. ``"auto"`` guards for ``"mi"`` alone: the other criteria need none.
    length_scales : sequence of float, optional
        The grid itself; no training inputs are needed then.
    chosen : sequence of float, optional
        The length scale of every calibration point, as chosen before on the same points without
        folds (the guarantee holds for no other choice). Nothing is tuned then.
    n_folds : int, optional
        Leave out folds instead of single points, for large N: at most this many choices, and
        CV+'s guarantee instead of the Jackknife+'s.
    n_components : int, optional
        For ``"mi"``: number of principal components of the features, fitted to training inputs.
        By default all features are used.
    mi_neighbors : int, default 3
        For ``"mi"``: k of the estimator.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    progress : callable or True, optional
        Called with the fraction of the grid that is done; may raise to stop; ``True`` shows it.

    Examples
    --------
    >>> import numpy as np
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

    criterion: str = "mse"
    _: KW_ONLY
    n_scan: int = 30
    n_sample: int = 1000
    expand: float = 1.0
    grid: str = "auto"
    length_scales: Any = None
    chosen: Any = None
    n_folds: int | None = None
    n_components: int | None = None
    mi_neighbors: int = 3
    metric: Metric = EUCLIDEAN
    progress: Any = None

    @property
    def has_candidates(self) -> bool:  # type: ignore[override]
        """Whether the grid is given, or what was chosen from it."""
        return self.length_scales is not None or self.chosen is not None

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """A copy with its parameters checked and its grid filled in."""
        self._check()
        if self.chosen is not None:
            chosen = [check_length_scale(scale) for scale in np.ravel(self.chosen).tolist()]
            if self.n_folds is not None:
                raise ValueError("chosen scales belong to points, not to folds: leave n_folds out.")
            return replace(self, chosen=np.array(chosen))
        at_least(self.n_scan, 1, "n_scan")
        at_least(self.n_sample, 1, "n_sample")
        check_size(self.expand, "expand", least=1)
        if self.grid not in ("auto", "guarded", "paper"):
            raise ValueError(f"grid must be 'auto', 'guarded' or 'paper'; got {self.grid!r}.")
        if self.n_folds is not None:
            at_least(self.n_folds, 2, "n_folds")
        if self.length_scales is not None:
            given = self._sorted(self.length_scales, check_length_scale, "length_scales")
            return replace(self, length_scales=np.array(given))
        if Z_train is None:
            raise CalliperError(
                "TunedRBF spans its grid by distances of training inputs: pass training=Z to fit "
                "(X_train to calibrate), or the grid itself as length_scales=."
            )
        grid = length_scale_grid(self, Z_train, rng or np.random.RandomState(0))
        return replace(self, length_scales=grid)

    def _family(self, Z: FloatArray, magnitudes: FloatArray, fold: Any = None) -> Family:
        return lambda scale: RadialMeans(RadialExponents(Z, scale, self.metric), magnitudes, fold)

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
    >>> import numpy as np
    >>> from calliper import JackknifeRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(60, 1))
    >>> errors = Z[:, 0] * rng.uniform(size=60)
    >>> method = JackknifeRescaled(TunedKNN(n_neighbors=[5, 20]), random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], 0.9).round(1)
    array([0.1, 0.8])
    """

    cli = "tuned-knn"

    criterion: str = "mse"
    _: KW_ONLY
    n_neighbors: Any = (3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
    n_components: int | None = None
    mi_neighbors: int = 3
    metric: Metric = EUCLIDEAN
    progress: Any = None

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
        raise CalliperError(
            f"all of {len(Z)} training inputs are the same, so no length scale can be read off "
            f"them: pass length_scales=, or other features."
        )
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
