"""The results of each method on the test points, and whether one is better or was lucky.

Coverage. Given the calibration set, the coverage C of split conformal is Beta(Q, N+1−Q); m test
points are then covered Binomial(m, C) times. So the number covered is beta-binomial: exactly for
methods with that law, and nearly for the others, which adapt but use the same rank of as many
scores. The same holds in each part of the test set if all are covered alike. Of B parts examined
for K methods, one falls below its quantile at 1 % / (B K) in at most one case of 100.

Scores. Differences of two methods on the same test points are paired, so their mean varies with the
test draw by their standard deviation over √m, and a ratio a/b by that of a_i − (a/b)·b_i. All test
points share the calibration draw: a radius that happens to be too large makes its method look bad
on every test point. That part is measured by drawing again. From all points together, two disjoint
sets A and B of n points are drawn R times; each calibrates every method, and scores are compared on
points in neither set. The variance of a mean is inversely proportional to the number of points, so
with D the difference of two methods' mean scores and N calibration rows

    var D_N ≈ (n / N) · (1/R) Σ_r (D_A,r − D_B,r)² / 2 .

n equals N where N is small and there are enough test points; otherwise it goes down to N/2, the
delete-half jackknife. The estimate has about R degrees of freedom, which :meth:`Scores.better`
allows for. Every reported number comes from the given calibration set.

Reference: J. Shao, C. Wu (1989), "A General Theory for Jackknife Variance Estimation", Annals of
Statistics, doi:10.1214/aos/1176347263.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, nan, sqrt
from time import perf_counter
from typing import Any

import numpy as np
from scipy import stats

from calliper import metrics
from calliper._notebook import Progress
from calliper._types import FloatArray
from calliper.calibration import Calibration, calibrate, measured
from calliper.calibrators import FullRescaled, Split, as_calibrator
from calliper.exceptions import unheard
from calliper.lab.comparison._comparison import Answer, Comparison, Cut, Points, Record
from calliper.quantile import conformal_rank
from calliper.rows import Rows
from calliper.scores import Score, as_score
from calliper.space import Embedding, fit_embedding

#: With fewer test points, in all or in a part, nothing can be said about coverage.
FEWEST_TEST_POINTS = 20
#: Registered measures that a record holds under the same names.
_MEASURED = ("coverage", "mean_width", "median_width", "tau_si", "r2_sqi", "fraction_infinite")
#: Share of correct methods that are suspected of covering too little or too much.
COVERAGE_DOUBT = 0.01
#: Relative difference of scores below which no winner is named, however certain it is.
WORTH_NAMING = 0.01
#: Share of comparisons of equal methods in which one is called better, on each side.
SCORE_DOUBT = 0.025
#: Number of pairs of calibration sets drawn.
N_DRAWS = 6
#: Points that they are compared on; with fewer, the noise of these points would dominate.
REDRAWN_ROWS = 3_000
#: With more calibration rows than this, half of them behave like all of them.
ENOUGH_POINTS = 1_000


def ask(name: str, calibrator: Any, found: Comparison) -> Answer:
    """Fit a copy of the calibrator and predict intervals; errors are recorded."""
    start, score, answer = perf_counter(), as_score(found.score_function), dict[str, Any]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tails: Any = [
                None if rows is None else measured(score, rows.Z, rows.y, rows.y_pred)
                for rows in (found.calibration, found.training)
            ]
            fitted, space = calibrate_rows(calibrator, tails[0], tails[1], score)
            located = space.transform(found.test.Z)
            answer["intervals"] = fitted.intervals(found.test.y_pred, Rows(located), found.levels)
            answer["guarantees"] = tuple(map(fitted.guarantee, found.levels))
        except Exception as error:  # whatever one method does, the others are still compared
            answer = {"failure": f"{type(error).__name__}: {error}"}
    warned = dict.fromkeys(" ".join(str(entry.message).split()) for entry in caught)
    return Answer(
        method=name,
        seconds=perf_counter() - start,
        constant=isinstance(calibrator, Split),
        default=type(calibrator) is FullRescaled,
        what=(type(calibrator).__doc__ or "").strip().split("\n")[0],
        needs_training=bool(as_calibrator(calibrator).uses.needs),
        warned=() if "failure" in answer else tuple(warned),
        **answer,
    )


def calibrate_rows(
    calibrator: Any,
    tails: list[Rows],
    training: list[Rows] | None = None,
    score: Score | None = None,
) -> tuple[Calibration, Embedding]:
    """A method fitted to checked rows, and the map of features; all rows calibrate."""
    method, space, known = as_calibrator(calibrator), Embedding(), None
    if training is not None:  # one scale learns from errors of both signs
        known = replace(training[0], scores=training[0].magnitudes)
    if method.judges_nearness and not method.takes_inputs:
        space = fit_embedding(None, None if known is None else known.Z, tails[0].Z)
    Z = space.transform(tails[0].Z)
    if known is not None:
        known = replace(known, Z=space.transform(known.Z))
    located = [replace(rows, Z=Z) for rows in tails]
    return calibrate(method, as_score(score), located, training=known), space


def by_chance(level: float, n_calibration: int, n: Any, share: Any) -> FloatArray:
    """Quantiles of the coverage of n test points by a valid method; 1 if intervals are infinite.

    >>> by_chance(0.9, 1000, 5000, [0.005, 0.995])
    array([0.8718, 0.9252])
    """
    rank = conformal_rank(level, n_calibration)
    if rank > n_calibration:
        return np.ones(np.broadcast_shapes(np.shape(n), np.shape(share)))
    return np.asarray(stats.betabinom(n, rank, n_calibration + 1 - rank).ppf(share) / n)


def short_bins(part: Cut, n_calibration: int, looks: int = 1) -> dict[int, float]:
    """Bins covered less often than chance explains, and what it allows; a single bin never is."""
    n, coverage = part.table.n, part.table.coverage
    bounds = by_chance(part.level, n_calibration, n, COVERAGE_DOUBT / (len(n) * looks))
    low = np.flatnonzero((coverage < bounds) & (len(n) > 1))
    return {int(number): float(bounds[number]) for number in low}


class Scores:
    """Interval scores of all methods at one level, and how their means vary with both draws.

    ``rows`` are those of each test point, (m, methods), ``redrawn`` the mean scores with other
    calibration sets, (R, 2, methods), and ``factor`` is n / 2N.
    """

    def __init__(self, names: Sequence[str], rows: Any, redrawn: Any, factor: float) -> None:
        self.names, self.rows, self.redrawn, self.factor = names, rows, redrawn, factor
        self.means: FloatArray = rows.mean(axis=0)

    def of(self, name: str, reference: str) -> dict[str, float]:
        """The mean score of a method, and its ratio to another's, with errors over test points."""
        a, b = self.names.index(name), self.names.index(reference)
        own, others = self.rows[:, a], self.rows[:, b]
        score, base, ratio = float(self.means[a]), float(self.means[b]), (nan, nan)
        if a == b:
            ratio = 1.0, 0.0
        elif np.isfinite(base) and base != 0:
            finite = np.isfinite(score)
            ratio = score / base, _error(own - score / base * others) / base if finite else nan
        names = "score", "score_error", "relative_score", "relative_score_error"
        return dict(zip(names, (score, _error(own), *ratio), strict=True))

    def variance(self, a: int, b: int) -> float:
        """Variance of the difference of two mean scores over calibration sets of N points."""
        pair = self.redrawn[:, :, [a, b]]
        if not np.isfinite(pair).all():
            return inf
        difference = pair[:, :, 1] - pair[:, :, 0]
        return self.factor * float(np.mean((difference[:, 0] - difference[:, 1]) ** 2))

    def better(self, one: str, other: str, looks: int) -> bool:
        """Whether ``one`` has the smaller mean score by more than both draws explain.

        By Student's t with Bonferroni's correction for ``looks``.
        """
        a, b = self.names.index(one), self.names.index(other)
        if a == b or not np.isfinite(self.means[a]):
            return False
        if not np.isfinite(self.means[b]):
            return True
        gain, of_calibration = float(self.means[b] - self.means[a]), self.variance(a, b)
        if gain <= WORTH_NAMING * float(self.means[b]) or not np.isfinite(of_calibration):
            return False
        total = _error(self.rows[:, b] - self.rows[:, a]) ** 2 + of_calibration
        # Welch-Satterthwaite: only the redrawn calibration sets are few.
        freedom = inf if of_calibration == 0 else len(self.redrawn) * (total / of_calibration) ** 2
        return gain > float(stats.t.isf(SCORE_DOUBT / looks, freedom)) * sqrt(total)


def _error(rows: FloatArray) -> float:
    """Standard error of a mean over test points."""
    return float(rows.std()) / sqrt(len(rows)) if np.isfinite(rows).all() else nan


def row_scores(found: Comparison, answers: Sequence[Answer], level: float) -> FloatArray:
    """The interval score of each test point, (m, methods)."""
    every = (answer.at(level) for answer in answers)
    y = found.test.y
    return np.column_stack([metrics.interval_scores(y, each, coverage=level) for each in every])


def redraw(
    methods: Mapping[str, Any], found: Comparison, progress: Progress = lambda fraction: None
) -> tuple[FloatArray, float]:
    """Mean scores with other calibration sets, (levels, R, 2, methods), and n / 2N.

    Infinite where a set is too small for the level or the method failed.
    """
    rng = np.random.default_rng(found.random_state)
    known, both = len(found.calibration), (found.calibration, found.test)
    Z, y, y_pred = map(np.concatenate, zip(*((p.Z, p.y, p.y_pred) for p in both), strict=True))
    pool = Points(Z, y, y_pred, feature_names=found.test.feature_names)
    size = min(known, max(known // 2, min(len(pool) // 4, ENOUGH_POINTS)))
    scores = np.full((len(found.levels), N_DRAWS, 2, len(methods)), np.inf)
    for draw in range(N_DRAWS if size else 0):
        order = rng.permutation(len(pool))
        rest = pool.take(order[2 * size :][:REDRAWN_ROWS])
        for side in (0, 1):
            drawn = pool.take(order[side * size : (side + 1) * size])
            again = replace(found, calibration=drawn, test=rest)
            for column, (name, calibrator) in enumerate(methods.items()):
                answer = ask(name, calibrator, again)
                for row, level in enumerate(found.levels if answer.failure is None else ()):
                    scores[row, draw, side, column] = row_scores(again, [answer], level).mean()
        progress((draw + 1) / N_DRAWS)
    return scores, size / (2 * known)


def measure(
    found: Comparison, answer: Answer, level: float, scores: Scores, parts: Sequence[Cut]
) -> Record:
    """All measures of one method at one level, with its coverage in ``parts`` of the test set."""
    test, m = found.test, len(found.test)
    context = metrics.Context(level=level, y_pred=test.y_pred)
    measured = metrics.measured(_MEASURED, test.y, answer.at(level), context)
    both = [COVERAGE_DOUBT / 2, 1 - COVERAGE_DOUBT / 2]
    low, high = by_chance(level, len(found.calibration), m, both).tolist()
    split = next(each.method for each in found.answered if each.constant)
    guarantee = answer.guarantees[found.levels.index(level)]
    return Record(
        method=answer.method,
        level=level,
        coverage_error=sqrt(measured["coverage"] * (1 - measured["coverage"]) / m),
        chance_low=low,
        chance_high=high,
        **scores.of(answer.method, split),
        worst_by_prediction=_worst(parts, answer.method, "prediction"),
        worst_by_width=_worst(parts, answer.method, "width"),
        proved=guarantee.proved,
        guarantee=replace(guarantee, method=answer.method, checks="").describe(),
        seconds=answer.seconds,
        **measured,
    )


def _worst(parts: Sequence[Cut], method: str, by: str) -> float:
    """Coverage of the worst bin; bins of a few points count only if there are no others."""
    for table in (part.table for part in parts if (part.method, part.by) == (method, by)):
        large = table.n >= FEWEST_TEST_POINTS
        return float(table.coverage[large].min()) if large.any() else table.worst
    return nan


def cut(found: Comparison, answer: Answer, level: float) -> Iterator[Cut]:
    """Coverage of one method at one level by width, prediction, feature and group."""
    test, intervals, groups = found.test, answer.at(level), found.groups
    values = {("prediction", ""): test.y_pred}
    values |= {("feature", test.feature_names[i]): test.Z[:, i] for i in found.shown_features}
    tables: dict[tuple[str, str], metrics.CoverageTable] = {}
    with unheard(Warning):  # the checks report ties and small bins once for all methods
        finite = intervals.width[np.isfinite(intervals.width)]
        if len(finite) and np.ptp(finite) > 1e-9 * finite.max():
            tables["width", ""] = metrics.coverage_by_width(test.y, intervals)
        for key, each in values.items():
            tables[key] = metrics.coverage_by_value(test.y, intervals, each)
        if groups is not None:
            names = sorted(set(groups), key=_natural)
            numbers = [names.index(group) for group in groups]
            table = metrics.coverage_by_group(test.y, intervals, numbers)
            tables["group", found.group_name] = replace(table, labels=tuple(names))
    return (Cut(answer.method, level, *key, table) for key, table in tables.items())


def _natural(name: str) -> tuple[bool, float, str]:
    """Sort numbers by value, then names alphabetically."""
    try:
        value = float(name)
    except ValueError:
        value = nan
    return value != value, value if value == value else 0.0, name


def deciles(found: Comparison, level: float) -> Iterator[dict[str, Any]]:
    """Median width and error quantile in each tenth of the finite widths, of each method.

    Intervals ŷ ± width/2 that fit their errors have width = 2 · error.
    """
    for answer in found.answered:
        width = answer.at(level).width
        finite = np.isfinite(width)
        with unheard(Warning):
            isq, csq = metrics.sqi_table(found.test.errors[finite], width[finite], level)
        yield {"method": answer.method, "level": level, "width": isq, "error": csq}
