"""Tell whether one method is better than another or was lucky.

Coverage. Given the calibration set, the coverage C of split conformal is Beta(Q, N+1−Q); m test
points are then covered Binomial(m, C) times. So the number covered is beta-binomial: exactly for
methods with that law, and nearly for the others, which adapt but use the same rank of as many
scores.

Scores. Resampling the test points shows how much of a difference is due to the test draw. All test
points share the calibration draw: a radius that happens to be too large makes its method look bad
on every test point. That part is measured by drawing again. From all points together, two disjoint
sets A and B of n points are drawn R times; each calibrates every method, and scores are compared on
points in neither set. The variance of a mean is inversely proportional to the number of points, so
with D the difference of two methods' mean scores and N calibration points

    var D_N ≈ (n / N) · (1/R) Σ_r (D_A,r − D_B,r)² / 2 .

n equals N where N is small and there are enough test points, which is where the calibration draw
matters most; otherwise it goes down to N/2, the delete-half jackknife. The estimate has about R
degrees of freedom, which :meth:`Scores.better` allows for. Only the choice of a method uses these
draws: every reported number comes from the given calibration set.

Reference: J. Shao, C. Wu (1989), "A General Theory for Jackknife Variance Estimation", Annals of
Statistics, doi:10.1214/aos/1176347263.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, nan, sqrt
from typing import Any

import numpy as np
from scipy import stats

from calliper._types import FloatArray
from calliper.lab.comparison._answers import Answer, Points, Sets, ask
from calliper.metrics import interval_scores
from calliper.quantile import conformal_rank

#: Share of correct methods that are suspected of covering too little or too much.
COVERAGE_DOUBT = 0.01
#: Relative difference of scores below which no winner is named, however certain it is.
WORTH_NAMING = 0.01
#: Share of comparisons of equal methods in which one is called better, on each side.
SCORE_DOUBT = 0.025
#: Resamples of the test points; the errors are known to about five percent.
N_RESAMPLES = 200
#: Units to resample; of more rows, random sets of rows make a unit, which bounds memory.
MOST_UNITS = 20_000
#: Number of pairs of calibration sets drawn.
N_DRAWS = 6
#: Points that they are compared on; with fewer, the noise of these points would dominate.
REDRAWN_ROWS = 3_000
#: With more calibration points than this, half of them behave like all of them.
ENOUGH_POINTS = 1_000


def by_chance(level: float, n_calibration: int, n: Any, share: Any) -> FloatArray:
    """Quantiles of the coverage of n test points by a valid method; 1 if intervals are infinite.

    >>> by_chance(0.9, 1000, 5000, [0.005, 0.995])
    array([0.8718, 0.9252])
    """
    rank = conformal_rank(level, n_calibration)
    if rank > n_calibration:
        return np.ones(np.broadcast_shapes(np.shape(n), np.shape(share)))
    return np.asarray(stats.betabinom(n, rank, n_calibration + 1 - rank).ppf(share) / n)


class Resamples:
    """Bootstrap resamples of ``n`` rows, or of units of rows drawn together at random."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n_units = min(n, MOST_UNITS)
        drawn = (rng.integers(self.n_units, size=self.n_units) for _ in range(N_RESAMPLES))
        self.counts = np.array([np.bincount(d, minlength=self.n_units) for d in drawn], float)
        self.unit = np.arange(n) if n == self.n_units else rng.permutation(n) % self.n_units
        self.sizes = self.counts @ np.bincount(self.unit, minlength=self.n_units)

    def means(self, rows: FloatArray) -> FloatArray:
        """The mean of each column of ``rows`` in each resample, (N_RESAMPLES, columns)."""
        sums = np.zeros((self.n_units, rows.shape[1]))
        for place, column in enumerate(rows.T):
            sums[:, place] = np.bincount(self.unit, column, self.n_units)
        return np.asarray(self.counts @ sums / self.sizes[:, None])


class Scores:
    """Interval scores of all methods at one level, and how their means vary with both draws.

    All methods share the resamples of the test points, so differences are paired. ``redrawn`` are
    the mean scores with other calibration sets, (R, 2, methods), and ``factor`` is n / 2N.
    """

    def __init__(
        self,
        y: FloatArray,
        answers: Sequence[Answer],
        level: float,
        resamples: Resamples,
        redrawn: FloatArray,
        factor: float,
    ) -> None:
        self.level, self.names = level, [answer.method for answer in answers]
        self.redrawn, self.factor = redrawn, factor
        rows = np.column_stack(
            [interval_scores(y, answer.at(level), coverage=level) for answer in answers]
        )
        self.means: FloatArray = rows.mean(axis=0)
        finite = np.isfinite(self.means)
        self.resampled = np.full((N_RESAMPLES, len(answers)), np.inf)
        self.resampled[:, finite] = resamples.means(rows[:, finite])

    def of(self, name: str) -> tuple[float, float]:
        """The mean score of a method, and its bootstrap error over test points."""
        place = self.names.index(name)
        return float(self.means[place]), _spread(self.resampled[:, place])

    def ratio(self, name: str, reference: str) -> tuple[float, float]:
        """The score over that of another method, and its error over test points."""
        a, b = self.names.index(name), self.names.index(reference)
        if name == reference:
            return 1.0, 0.0
        if not np.isfinite(self.means[b]) or self.means[b] == 0:
            return nan, nan
        resampled = self.resampled[:, a] / self.resampled[:, b]
        return float(self.means[a] / self.means[b]), _spread(resampled)

    def variance(self, a: int, b: int) -> float:
        """Variance of the difference of two mean scores over calibration sets of N points."""
        pair = self.redrawn[:, :, [a, b]]
        if not np.isfinite(pair).all():
            return inf
        difference = pair[:, :, 1] - pair[:, :, 0]
        return self.factor * float(np.mean((difference[:, 0] - difference[:, 1]) ** 2))

    def better(self, one: str, other: str, looks: int) -> bool:
        """Whether ``one`` has the smaller mean score by more than both draws explain.

        The gain is compared with its error from the test draw and the calibration draw, by
        Student's t with Bonferroni's correction for ``looks``.
        """
        a, b = self.names.index(one), self.names.index(other)
        if a == b or not np.isfinite(self.means[a]):
            return False
        if not np.isfinite(self.means[b]):
            return True
        gain, of_calibration = float(self.means[b] - self.means[a]), self.variance(a, b)
        if gain <= WORTH_NAMING * float(self.means[b]) or not np.isfinite(of_calibration):
            return False
        total = float((self.resampled[:, b] - self.resampled[:, a]).var()) + of_calibration
        # Welch-Satterthwaite: only the redrawn calibration sets are few.
        few = len(self.redrawn)
        freedom = inf if of_calibration == 0 else few * (total / of_calibration) ** 2
        return gain > float(stats.t.isf(SCORE_DOUBT / looks, freedom)) * sqrt(total)


def _spread(values: FloatArray) -> float:
    """Half the distance between the percentiles one standard deviation below and above."""
    if not np.isfinite(values).all():
        return nan
    low, high = np.percentile(values, [15.865525, 84.134475])
    return float(high - low) / 2


def redraw(
    methods: Mapping[str, Any],
    sets: Sets,
    levels: Sequence[float],
    *,
    random_state: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[FloatArray, float]:
    """Mean scores with other calibration sets, (levels, R, 2, methods), and n / 2N.

    Infinite where a set is too small for the level or the method failed.
    """
    rng = np.random.default_rng(random_state)
    known, both = len(sets.calibration), (sets.calibration, sets.test)
    Z, y, y_pred = map(np.concatenate, zip(*((p.Z, p.y, p.y_pred) for p in both), strict=True))
    pool = Points(Z, y, y_pred, feature_names=sets.test.feature_names)
    size = min(known, max(known // 2, min(len(pool) // 4, ENOUGH_POINTS)))
    scores = np.full((len(levels), N_DRAWS, 2, len(methods)), np.inf)
    for draw in range(N_DRAWS if size else 0):
        order = rng.permutation(len(pool))
        rest = pool.take(order[2 * size :][:REDRAWN_ROWS])
        for side in (0, 1):
            drawn = pool.take(order[side * size : (side + 1) * size])
            own_sets = replace(sets, calibration=drawn, test=rest)
            for place, (name, calibrator) in enumerate(methods.items()):
                answer = ask(name, calibrator, own_sets, levels)
                if answer.intervals is None:
                    continue
                for row, level in enumerate(levels):
                    own = interval_scores(rest.y, answer.at(level), coverage=level)
                    scores[row, draw, side, place] = own.mean()
        progress((draw + 1) / N_DRAWS)
    return scores, size / (2 * known)
