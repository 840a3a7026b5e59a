"""The scale of a point from its K neighbours, and where a new score among them crosses it.

With C = s_i ŝ_{N+1} and the K−1 other neighbours of i, a new point of score t that enters with
weight w (1, or less where it shares the last place; see ``_nearest.py``) crosses at

- mean, A = Σ of the others by weight:  w t² + A t − K C = 0
- quantile, the r-th smallest of K:  ŝ_i(t) = clamp(t, a, b) with a, b the (r−1)-th and r-th
  smallest of the others, so t = C/a if C ≤ a², √C if C ≤ b², C/b beyond.

An offset added to every scale, constant or rising with t, κt, keeps each equation quadratic.
"""

from dataclasses import InitVar, dataclass
from math import ceil

import numpy as np

from calliper._types import BoolArray, FloatArray, IntArray
from calliper.kernels._arithmetic import positive_root, signed_root
from calliper.kernels._nearest import Nearest, SharedSums, sum_of_each
from calliper.quantile import as_fraction, row_order_statistics

#: Which pairs are at the edge of a neighbourhood; where there are two, a number tells which.
Edge = BoolArray | IntArray


@dataclass(frozen=True)
class Entering:
    """Pairs of a new row and a point whose neighbourhood it enters: s_i and C, (P,) each."""

    point: IntArray
    at_edge: Edge
    score: FloatArray
    product: FloatArray


@dataclass(eq=False, repr=False)
class _Statistic:
    """Of what is kept of the nearer ones, and of the K-th, (N,); ``crowded`` points have a tie."""

    kept: InitVar[FloatArray]
    last: InitVar[FloatArray]
    offset: float
    nearest: Nearest
    crowded: IntArray


@dataclass(eq=False, repr=False)
class MeanStatistic(_Statistic):
    """Mean of K neighbours' magnitudes."""

    @staticmethod
    def kept_of(nearer: FloatArray) -> FloatArray:
        """What is kept of the magnitudes (N, K−1) of the nearer ones: their sums, (N, 1)."""
        return sum_of_each(nearer)[:, None]

    def __post_init__(self, kept: FloatArray, last: FloatArray) -> None:
        #: Whose sums are over all points, and wait. Copies share this list as they share sums; it
        #: is copied before them, so that no copy takes sums that wait for sums that are found.
        self._waiting = [self.crowded] if len(self.crowded) else []
        self.k, self.inner_sum = self.nearest.k, kept[:, 0].copy()
        self.full_sum = self.inner_sum + last
        #: Weight of a new point just as far as the last, and the sum of the others there.
        self.edge_weight, self.edge_sum = np.full(len(last), 0.5), self.inner_sum + 0.5 * last

    def _settle(self) -> None:
        """Sums that wait; if several threads find them, they find the same."""
        for crowded in [*self._waiting]:
            self.share(self.nearest.sums_of_others(crowded), crowded)
            self._waiting.clear()

    def share(self, tied: SharedSums, crowded: IntArray) -> None:
        """Correct the sums of points whose last place is shared."""
        self.edge_weight[crowded] = weight = tied.seats / (tied.size + 1)
        self.edge_sum[crowded] = tied.near + weight * tied.tied
        self.inner_sum[crowded] = tied.near + (tied.seats - 1) / tied.size * tied.tied
        self.full_sum[crowded] = tied.total

    def key(self, level: float) -> int:
        """Levels with equal keys have equal scales."""
        return 0

    def of_calibration(self, level: float) -> FloatArray:
        """Scales of the calibration rows that the new point does not enter."""
        self._settle()
        return np.asarray(self.full_sum / self.k + self.offset)

    def of_new(self, member: FloatArray, level: float) -> FloatArray:
        """Scale of new points with neighbours' scores ``member`` (m, K)."""
        return np.asarray(sum_of_each(member) / self.k + self.offset)

    def of_tied(self, Z: FloatArray, level: float) -> FloatArray:
        """Scale of new points whose last place is shared."""
        return self.nearest.means_of_tied(self.nearest.search.scaled(Z)) + self.offset

    def crossing(self, entering: Entering, level: float, slope: float) -> FloatArray:
        """t_i for points that new rows enter; slope·t is added to both scales."""
        weight, others = self._entered(entering.point, entering.at_edge)
        if not slope:
            constant = self.k * entering.product
            return positive_root(weight, others + self.k * self.offset, constant)
        linear = others / self.k + self.offset - slope * entering.score
        return signed_root(slope + weight / self.k, linear, entering.product)

    def _entered(self, point: IntArray, at_edge: Edge) -> tuple[FloatArray, FloatArray]:
        """The weight of the new point, and the sum of the others."""
        self._settle()
        weight = np.where(at_edge, self.edge_weight[point], 1.0)
        return weight, np.where(at_edge, self.edge_sum[point], self.inner_sum[point])


@dataclass(eq=False, repr=False)
class QuantileStatistic(_Statistic):
    """The r-th smallest of the K neighbours, r = ⌈coverage·K⌉: a scale for each level."""

    @staticmethod
    def kept_of(nearer: FloatArray) -> FloatArray:
        """All of the magnitudes (N, K−1)."""
        return nearer

    def __post_init__(self, kept: FloatArray, last: FloatArray) -> None:
        self.k, self.inner = self.nearest.k, np.sort(kept, axis=1)
        self.full = np.sort(np.column_stack([kept, last]), axis=1)
        self._clamps: dict[int, FloatArray] = {}

    def of_calibration(self, level: float) -> FloatArray:
        return np.asarray(self._clamp(level)[4] + self.offset)

    def of_new(self, member: FloatArray, level: float) -> FloatArray:
        return row_order_statistics(member, [self.key(level)])[:, 0] + self.offset

    def of_tied(self, Z: FloatArray, level: float) -> FloatArray:
        rows = self.nearest.search.scaled(Z)
        return self.nearest.quantiles_of_tied(rows, [self.key(level)])[:, 0] + self.offset

    def crossing(self, entering: Entering, level: float, slope: float) -> FloatArray:
        clamp, case = self._clamp(level), 2 * entering.at_edge
        low, high = clamp[case, entering.point], clamp[case + 1, entering.point]
        return clamped_crossing(low, high, self.offset, entering.product, entering.score, slope)

    def _clamp(self, level: float) -> FloatArray:
        """As :meth:`Nearest.clamps`, of all points: (5, N)."""
        r = self.key(level)
        if r not in self._clamps:
            none, unbounded = np.zeros(len(self.full)), np.full(len(self.full), np.inf)
            a = self.inner[:, r - 2] if r > 1 else none
            b = self.inner[:, r - 1] if r < self.k else unbounded
            # Half a place each, for the last and a new point just as far.
            clamp = np.stack([a, b, self.full[:, r - 1], b, self.full[:, r - 1]])
            if len(self.crowded):
                clamp[:, self.crowded] = self.nearest.clamps(self.crowded, r).T
            self._clamps[r] = clamp
        return self._clamps[r]

    def key(self, level: float) -> int:
        """r, the order statistic: levels with equal r have equal scales."""
        return ceil(as_fraction(level) * self.k)


def clamped_crossing(
    a: float | FloatArray,
    b: float | FloatArray,
    offset: float,
    product: FloatArray,
    score: float | FloatArray = 0.0,
    slope: float = 0.0,
) -> FloatArray:
    """The t where min(max(t, a), b) + offset crosses, if slope·t is added to both scales."""
    if slope:
        linear: FloatArray = np.asarray(offset - slope * score)
        finite = np.where(np.isinf(b), 0.0, b)
        between = signed_root(slope + 1, linear, product)
        t = np.where(between <= b, between, signed_root(slope, finite + linear, product))
        return np.where(between <= a, signed_root(slope, a + linear, product), t)
    below = _divide(product, a + offset)
    between = positive_root(1.0, np.full(len(product), offset), product)
    above = _divide(product, b + offset)
    t = np.where(between <= b, between, above)
    t = np.where(between <= a, below, t)
    # If the scale is 0 for every t, the ratio is infinite and so is the crossing.
    return np.where(np.asarray(b) + offset == 0, np.inf, t)


def _divide(numerator: FloatArray, denominator: float | FloatArray) -> FloatArray:
    positive = np.asarray(denominator) > 0
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=positive)


STATISTICS: dict[str, type[MeanStatistic] | type[QuantileStatistic]] = {
    "mean": MeanStatistic,
    "rms": MeanStatistic,
    "quantile": QuantileStatistic,
}
