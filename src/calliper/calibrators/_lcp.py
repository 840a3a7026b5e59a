"""Localised conformal prediction (LCP; "LCR" in the paper): local quantiles, level corrected.

The quantile of calibration scores near a new point adapts to it but does not keep its level. So
every member of the bag, the new point with candidate score v among them, gets its own local
quantile, and the level α̃ is raised until enough of them lie below theirs:

    T_i = Σ_j H_ij 1{V_j < V_i} / Σ_j H_ij,    i = 1 … N+1,
    v is kept  iff  #{i : T_i ≥ T_{N+1}} > α(N+1),      radius = sup of the kept v.

V_i ≤ Q(α̃; F_i), the quantile of the scores around i, is the same as T_i < α̃: keeping v is the
search for α̃, exact and without a grid. T_{N+1} does not decrease in v and no other T_i increases,
so the kept v are all those up to a threshold, which is a calibration score or infinite. Just below
the score V_k, members with V_i < V_k do not have the new point below them and all others do: one
count over the bag decides about V_k, and bisection finds the threshold in log₂ N counts. Shares
that differ by less than 10⁻¹² count as equal, which can only keep more.

Weights, by the Euclidean distance D; each member's weight of itself is one:

    exponential   H_ij = exp(−D_ij / h)
    gaussian      H_ij = exp(−D_ij² / 2h²)
    neighbors     H_ij = 1 if j is one of the h nearest of i in the bag, else 0

A new point that is near enough to a calibration row takes the place of its last neighbour; points
just as far as the last neighbour share its place. The smallest calibration score is always kept;
the radius is infinite far away from all points.

If no bandwidth is given, each of up to 2,000 training points is left out and gets the radius that
the others would give it. Of the bandwidths that leave at most 5 % of these infinite, the one with
the smallest mean wins, infinite ones counting as the largest error; if none does, the largest.

Letters: V → ``scores``, H → ``localizer``, h → ``bandwidth``. Guarantee: 1−α, marginal, for
exchangeable data, since T treats all members alike; the bandwidth must not depend on their scores.

Reference: Guan (2023), "Localized conformal prediction: a generalized inference framework for
conformal prediction", Biometrika 110, doi:10.1093/biomet/asac040.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state

from calliper._blocks import map_row_blocks
from calliper._kept import Array, Field
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_option
from calliper.calibrators._calibrator import MOST_POINTS, Calibrator, columns_by
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.kernels import EUCLIDEAN, Shells, all_distances
from calliper.quantile import TOLERANCE, Shares, conformal_rank, count_true
from calliper.rows import Rows

LOCALIZERS = ("exponential", "gaussian", "neighbors")
#: Largest part of infinite radii that a bandwidth may leave.
MOST_INFINITE = 0.05
#: Bandwidths that are tried, as multiples of the median distance.
BANDWIDTHS = 2.0 ** np.arange(-7, 5.5, 0.75)
#: Of new rows, (m, N) each: weights, T_i while the new point is not below i, and while it is.
Compared = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(eq=False, repr=False)
class LCP(Calibrator):
    """Localised conformal prediction, guarantee 1 − α; takes any real score.

    Parameters
    ----------
    localizer : {"exponential", "gaussian", "neighbors"}, default "exponential"
        How weight falls with distance: exp(−D/h), exp(−D²/2h²), or one for the h nearest.
    bandwidth : float or "auto", default "auto"
        h, in the unit of the features, or a number of neighbours. ``"auto"`` is chosen on
        training errors, passed to ``fit``, for each level; radii then need not grow with it.
    random_state : int, RandomState or None; draws what ``bandwidth="auto"`` is chosen on

    Attributes
    ----------
    bandwidths_ : dict of the bandwidth of each level that was asked for

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = LCP(bandwidth=0.1).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.25, 1.28])
    """

    about = About(
        cli="lcp",
        width="a local quantile of calibration errors, at a corrected level",
        when="if the shape of errors changes and N is a few thousand at most",
        cost="O(n² (d + log n)) to tune, n ≤ 2,000; O(N² d) at the first prediction; "
        "O(N (d + log N)) per new row and level",
    )
    takes_any_score = True
    _rounded = True

    @property
    def uses(self) -> Uses:
        """Training errors, needed if no bandwidth is given."""
        needs = ("training", "errors") if self.bandwidth == "auto" else ()
        return Uses(needs=needs, learns="bandwidth='auto'", instead="pass a number")

    learns: ClassVar[Mapping[str, Field]] = {
        "sample_": Array("int32", ("s",), least=0, most="n", optional=True, becomes="int64")
    }

    localizer: str | None = None
    _: KW_ONLY
    bandwidth: float | str = "auto"
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        self.localizer_ = "exponential" if self.localizer is None else self.localizer
        self._fixed = check_bandwidth(self.bandwidth, self.localizer_, len(rows))
        order = np.argsort(rows.scores)
        self.points_, self.scores_ = rows.Z[order], rows.scores[order]
        self.bandwidths_: dict[float, float] = {}
        self._localizers: dict[float, Any] = {}
        self.sample_ = None
        if self._fixed is None:
            train, rng = self._training, check_random_state(self.random_state)
            if len(train) < 3:
                raise CalliperError(f"bandwidth='auto' needs 3 training rows; got {len(train)}.")
            n = min(max(3, len(rows) + 1), MOST_POINTS)  # as many as a bag has members or fewer
            self.sample_ = self._sampled(n, rng)
            self._sample = train.Z[self.sample_], train.scores[self.sample_]

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        radius, scores = np.empty((len(Z), len(levels))), self.scores_
        for bandwidth, columns in columns_by(self._bandwidth, levels).items():
            ranks = [conformal_rank(levels[column], len(scores)) for column in columns]
            localizer = self._localizer(bandwidth)

            def search(rows: slice, localizer: Any = localizer, ranks: Any = ranks) -> FloatArray:
                return largest_kept(scores, ranks, localizer.compare(Z[rows]))

            radius[:, columns] = np.concatenate(map_row_blocks(search, len(Z), 4 * len(scores)))
        return radius

    def _check_parameters(self) -> None:
        if self.localizer is not None:
            check_option(self.localizer, LOCALIZERS, "localizer")

    def _localizer(self, bandwidth: float) -> Any:
        # Built when first needed: loading a file must not compare all pairs of points.
        if bandwidth not in self._localizers:
            kind = NeighborLocalizer if self.localizer_ == "neighbors" else RadialLocalizer
            known = self.points_, numbers_below(self.scores_), self.localizer_, bandwidth
            self._localizers[bandwidth] = kind(*known)
        return self._localizers[bandwidth]

    def _bandwidth(self, level: float) -> float:
        if level not in self.bandwidths_:
            tuned = self._fixed or tuned_bandwidth(self.localizer_, *self._sample, level)
            self.bandwidths_[level] = tuned
        return self.bandwidths_[level]


def largest_kept(scores: FloatArray, ranks: list[int], compared: Compared) -> FloatArray:
    """The threshold of each row for each rank Q, (m, L), of ascending scores."""
    weight, share, with_new = compared
    m, n = weight.shape
    own = np.zeros((m, n + 1))
    np.cumsum(weight, axis=1, out=own[:, 1:])
    own /= own[:, -1:] + 1.0
    own -= TOLERANCE
    columns, rows = np.arange(n), np.arange(m)
    different = np.unique(numbers_below(scores))
    starts, candidates = np.append(different, n), np.append(scores[different], np.inf)
    threshold = np.empty((m, len(ranks)))
    for level, rank in enumerate(ranks):
        low, high = np.zeros(m, dtype=np.intp), np.full(m, len(different))
        for _ in range(len(different).bit_length()):
            middle = (low + high + 1) // 2
            first = starts[middle]
            reached = own[rows, first][:, None]
            counted = (share < reached) & (columns < first[:, None]) | (with_new < reached)
            kept = count_true(counted) < rank
            low, high = np.where(kept, middle, low), np.where(kept, high, middle - 1)
        threshold[:, level] = candidates[low]
    return threshold


def numbers_below(scores: FloatArray) -> IntArray:
    """For each of the ascending scores, how many are smaller, (N,)."""
    return np.searchsorted(scores, scores)


def weights_by(name: str, distances: FloatArray, bandwidth: float) -> FloatArray:
    """Weights by distances, (m, N); those too small for a number are zero."""
    if name == "neighbors":
        shells = Shells.of_points(distances, int(bandwidth))
        return np.asarray(shells.near + shells.tied * (shells.seats / shells.size)[:, None])
    with np.errstate(over="ignore"):
        distances = distances / bandwidth
        return np.exp(-0.5 * np.square(distances) if name == "gaussian" else -distances)


def below_and_all(H: FloatArray, n_below: IntArray) -> FloatArray:
    """For each row, the weight of the points that are smaller, and of all, (2, m)."""
    reached = np.cumsum(H, axis=1)
    below = reached[np.arange(len(reached)), n_below - 1]
    return np.stack([np.where(n_below > 0, below, 0.0), reached[:, -1]])


class RadialLocalizer:
    """Weights that fall with distance. O(N²d) once, O(Nd) for each new row."""

    def __init__(self, points: FloatArray, n_below: IntArray, name: str, h: float) -> None:
        self.points, self.name, self.bandwidth, n = points, name, h, len(points)

        def sums(rows: slice) -> FloatArray:
            return below_and_all(self._weights(points[rows]), n_below[rows])

        self.below, self.total = np.concatenate(map_row_blocks(sums, n, n), axis=1)

    def compare(self, x: FloatArray) -> Compared:
        weight = self._weights(x)
        total = weight + self.total
        return weight, self.below / total, (self.below + weight) / total

    def _weights(self, x: FloatArray) -> FloatArray:
        return weights_by(self.name, cdist(x, self.points), self.bandwidth)


class NeighborLocalizer:
    """The h nearest of each member of the bag; those just as far as the last share its place."""

    def __init__(self, points: FloatArray, n_below: IntArray, name: str, h: float) -> None:
        self.points, self.name, n = points, name, len(points)
        self.k = min(int(h), n)

        def sums(rows: slice) -> FloatArray:
            distances = all_distances(points[rows], points, EUCLIDEAN)
            distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
            shells = Shells.of_points(distances, self.k)
            is_below = np.arange(n) < n_below[rows, None]
            near, tied = (shells.near & is_below).sum(axis=1), (shells.tied & is_below).sum(axis=1)
            return np.stack([near, tied, shells.reach[:, 0], shells.seats, shells.size])

        found = np.concatenate(map_row_blocks(sums, n, n), axis=1)
        self.near, self.tied, self.edge, self.seats, self.size = found

    def compare(self, x: FloatArray) -> Compared:
        distances = all_distances(x, self.points, EUCLIDEAN)
        inside, at_edge = distances < self.edge, distances == self.edge
        entering = np.where(inside, 1.0, np.where(at_edge, self.seats / (self.size + 1), 0.0))
        of_tied = np.where(at_edge, entering, (self.seats - inside) / self.size)
        share = (self.near + of_tied * self.tied) / (self.k + 1)
        weight = weights_by(self.name, distances, self.k)
        return weight, share, share + entering / (self.k + 1)


def check_bandwidth(bandwidth: Any, localizer: str, n: int) -> float | None:
    """The bandwidth as a number, or None for one that is still to be chosen."""
    if isinstance(bandwidth, str) and bandwidth == "auto":
        return None
    if localizer == "neighbors":
        if at_least(bandwidth, 1, "bandwidth") > n:
            warn(
                f"{bandwidth} neighbours were requested, but there are only {n}: all are used.",
                SmallCalibrationWarning,
            )
    elif not isinstance(bandwidth, Real) or not 0 < float(bandwidth) < np.inf:
        raise ValueError(
            f"bandwidth must be 'auto' or a positive, finite number; got {bandwidth!r}."
        )
    return float(bandwidth)


def tuned_bandwidth(name: str, Z: FloatArray, scores: FloatArray, coverage: float) -> float:
    """The best bandwidth of a grid at this level, for n training points and their errors."""
    order = np.argsort(scores)
    scores, Z = scores[order], Z[order]
    distances = all_distances(Z, Z, EUCLIDEAN) if name == "neighbors" else cdist(Z, Z)
    np.fill_diagonal(distances, np.inf)
    rank, best, least = conformal_rank(coverage, len(Z) - 1), 0.0, np.inf
    for bandwidth in _grid(name, distances):
        radius = _left_out(scores, weights_by(name, distances, bandwidth), rank)
        best, infinite = best or bandwidth, np.isinf(radius)
        mean = np.where(infinite, scores[-1], radius).mean()
        if infinite.mean() <= MOST_INFINITE and mean < least:
            best, least = bandwidth, mean
    return best


def _grid(name: str, distances: FloatArray) -> list[float]:
    """From flat weights to narrow ones."""
    n = len(distances)
    if name == "neighbors":
        return sorted(set(np.geomspace(1, n - 1, 16).round().tolist()), reverse=True)
    median = float(np.median(distances[np.triu_indices(n, 1)]))
    if median == 0:
        what = "bandwidth='auto' uses the median distance between training inputs, which is 0"
        raise CalliperError(f"{what}; pass a number.")
    return [float(bandwidth) for bandwidth in median * BANDWIDTHS[::-1]]


def _left_out(scores: FloatArray, H: FloatArray, rank: int) -> FloatArray:
    """The radius of each point from all the others, (n,); ``H`` are weights of others, (n, n)."""
    n, n_below = len(scores), numbers_below(scores)
    below, total = below_and_all(H + np.eye(n), n_below)  # each weighs itself one

    def one_block(rows: slice) -> FloatArray:
        point, row = np.arange(n)[rows], np.arange(rows.stop - rows.start)
        back, was_below = H.T[rows], n_below[None, :] > point[:, None]
        share = (below - np.where(was_below, back, 0.0)) / total
        with_new = share + back / total
        # The point that is left out does not count.
        share[row, point] = with_new[row, point] = np.inf
        return largest_kept(scores, [rank], (H[rows], share, with_new))[:, 0]

    return np.concatenate(map_row_blocks(one_block, n, 4 * n))
