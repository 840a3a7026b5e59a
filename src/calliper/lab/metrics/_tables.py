"""Tables: coverage in bins of the widths or of any value and in groups; calibration of quantiles.

All targets of a distribution share one calibration set, and the bands allow for that: given the
calibration set, J of the N+1 gaps between the points y_i* hold a share with law Beta(J, N+1−J), so
the number of m targets in them is beta-binomial. That is exact for ``Split`` and similar methods,
and nearly so for ``FullRescaled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from calliper._notebook import aligned, table
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_levels, check_vector
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, SparseBinsWarning, warn
from calliper.intervals import Intervals
from calliper.lab.metrics._adaptivity import sort_widths
from calliper.lab.metrics._inputs import FEWEST, IntervalsLike, numbered, one_level
from calliper.quantile import conformal_rank
from calliper.rows import same_rows

if TYPE_CHECKING:
    import pandas as pd

#: Probability of a normal law beyond one standard deviation on one side.
ONE_SIGMA_TAIL = float(stats.norm.sf(1.0))
#: Bins printed at each end of a long table.
_PRINTED = 5
#: The bin of rows without a value.
NO_VALUE = "missing"
#: Probability that a share lies in its band.
BAND = 0.95
#: Levels at which quantiles are compared.
QUANTILE_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True, eq=False, repr=False)
class CoverageTable:
    """Coverage in each bin or group of the test points, from ``coverage_by_…``.

    Attributes
    ----------
    labels : names of the B bins, in ascending order
    n : (B,) number of points, at least 1
    coverage : (B,) share of their targets inside their interval
    mean_width : (B,) mean of upper − lower, infinite if any is
    lower, upper : (B,) Clopper and Pearson's 68 % (1-σ) bounds on the coverage of each bin by
    itself
    edges : (B + 1,) smallest value of each bin, then the largest of all, and a NaN after it if the
        last bin holds the rows without a value; None for groups

    Examples
    --------
    >>> from calliper.lab.metrics import coverage_by_group
    >>> table = coverage_by_group([1.0, 9.0] * 30, ([0.0] * 60, [3.0] * 60), ["a", "b"] * 30)
    >>> table.labels, table.coverage
    (('a', 'b'), array([1., 0.]))
    """

    labels: tuple[str, ...]
    n: IntArray
    coverage: FloatArray
    mean_width: FloatArray
    lower: FloatArray
    upper: FloatArray
    edges: FloatArray | None = None

    def __repr__(self) -> str:
        title = f"CoverageTable of {len(self.n):,} bins, the worst {self.worst:.3g}"
        return "\n".join([title, *aligned(self._texts(), str.ljust)])

    def _repr_html_(self) -> str:
        return table(self._texts())

    def _texts(self) -> list[tuple[str, ...]]:
        """Header and bins as text, of many the first and the last."""
        columns = self._columns()
        rows: list[tuple[str, ...]] = [
            (label, f"{n:,}", *(f"{value:.3g}" for value in values))
            for label, n, *values in zip(self.labels, *columns.values(), strict=True)
        ]
        if len(rows) > 2 * _PRINTED + 1:
            rows[_PRINTED:-_PRINTED] = [("…",) * (1 + len(columns))]
        return [("bin", *columns), *rows]

    def _columns(self) -> dict[str, Any]:
        shown = "n", "coverage", "lower", "upper", "mean_width"
        return {name: vars(self)[name] for name in shown}

    @property
    def worst(self) -> float:
        """The smallest coverage of all bins; with many small bins it is low by chance alone."""
        return float(self.coverage.min())

    def gap(self, coverage: float, *, weighted: bool = False) -> float:
        """Mean absolute difference between the coverage of the bins and the level (CovGap).

        Good: small, though even perfect bins of n points scatter by about √(c(1−c)/n). With
        ``weighted`` bins are weighted by their points.
        """
        weights = self.n if weighted else None
        return float(np.average(np.abs(self.coverage - coverage), weights=weights))

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a row for each bin."""
        import pandas as pd

        return pd.DataFrame(self._columns(), index=pd.Index(self.labels, name="bin"))


def binomial_bounds(hits: IntArray, n: IntArray) -> tuple[FloatArray, FloatArray]:
    """Clopper and Pearson's 1-σ bounds on a probability from hits among n."""
    lower = stats.beta.ppf(ONE_SIGMA_TAIL, np.maximum(hits, 1), n - hits + 1)
    upper = stats.beta.ppf(1 - ONE_SIGMA_TAIL, hits + 1, np.maximum(n - hits, 1))
    return np.where(hits > 0, lower, 0.0), np.where(hits < n, upper, 1.0)


def coverage_by_width(y: Any, intervals: IntervalsLike, *, n_bins: int = 10) -> CoverageTable:
    """Coverage in bins of interval width.

    Good: the level asked for in every bin, up to the bounds; ``worst`` of the table is the
    size-stratified coverage (Angelopoulos, Bates 2023, doi:10.1561/2200000101, section 4).
    Misleads: constant widths have one bin, and widths of pure noise pass.

    Parameters
    ----------
    y, intervals : as in :func:`interval_score`; infinite widths have a separate bin, the last
    n_bins : int; counts are as equal as ties allow: equal widths (up to rounding) share a bin

    Returns
    -------
    CoverageTable; with a :class:`SparseBinsWarning` if there is one bin, or bins hold under 20
    points

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise, width = rng.standard_normal(600), np.repeat([1.0, 2.0, 4.0], 200)
    >>> coverage_by_width(noise, (-width / 2, width / 2), n_bins=3).coverage
    array([0.38 , 0.685, 0.975])
    """
    read = one_level(intervals)
    return _by_quantiles(y, read, *sort_widths(read), n_bins, "widths")


def coverage_by_value(
    y: Any, intervals: IntervalsLike, values: Any, *, n_bins: int = 10
) -> CoverageTable:
    """Coverage in bins of any value known for the rows: prediction, a feature, the difficulty.

    Good: the level asked for in every bin, up to the bounds. Misleads: coverage may still vary
    inside a bin, and among many features some bin misses its bounds by chance. Do not bin by y
    itself: an interval is a statement about y given x.

    Parameters
    ----------
    y, intervals, n_bins : as in :func:`coverage_by_width`
    values : (m,) numbers; rows without one (NaN) have a separate bin, the last

    Returns
    -------
    CoverageTable; with a :class:`SparseBinsWarning` if there is one bin, or bins hold under 20
    points

    Examples
    --------
    >>> x = np.linspace(0, 1, 1000)
    >>> y = x * np.random.default_rng(0).standard_normal(1000)
    >>> coverage_by_value(y, (np.full(1000, -1.0), np.ones(1000)), x, n_bins=4).coverage
    array([1.   , 0.984, 0.92 , 0.812])
    """
    read = one_level(intervals)
    y, values = same_rows(read, "intervals", y=y, values=values)
    numbers = _with_gaps(values, len(read.lower))
    order = np.argsort(numbers)
    return _by_quantiles(y, read, order, numbers[order], n_bins, "values")


def coverage_by_group(y: Any, intervals: IntervalsLike, groups: Any) -> CoverageTable:
    """Coverage in each group of rows: sites, instruments, classes, cohorts.

    Good: the level asked for in every group, up to the bounds; ``worst`` of the table is the
    feature-stratified coverage. Misleads: the worst of many small groups is low by chance alone;
    :func:`calliper.lab.bounds.cell_coverage` has bounds for all groups together.

    Parameters
    ----------
    y, intervals : as in :func:`coverage_by_width`
    groups : (m,) strings, integers or booleans; groups of one row are kept

    Returns
    -------
    CoverageTable; by label, with a :class:`SparseBinsWarning` if groups hold under 20 rows

    Examples
    --------
    >>> inside, outside = [0.5] * 30, [2.0] * 10
    >>> ends = ([0.0] * 60, [1.0] * 60)
    >>> coverage_by_group(inside + outside + [0.5] * 20, ends, ["a"] * 40 + ["b"] * 20).coverage
    array([0.75, 1.  ])
    """
    read = one_level(intervals)
    y, groups = same_rows(read, "intervals", y=y, groups=groups)
    labels, group = numbered(groups, "groups")
    if len(group) != len(read.lower):
        raise CalliperError(f"groups has {len(group)} labels for {len(read.lower)} rows.")
    start = np.append(0, np.cumsum(np.bincount(group))[:-1])
    names = [*map(str, labels)]
    small = group.astype(np.min_scalar_type(len(names)))  # short integers are sorted by radix
    found = _table(names, y, read, np.argsort(small, kind="stable"), start)
    _warn_of_few(found.n, "groups", [*map(repr, names)])
    return found


def _by_quantiles(
    y: Any, intervals: Intervals, order: IntArray, ordered: FloatArray, n_bins: int, what: str
) -> CoverageTable:
    """The table of rows in the order of a value; missing values (NaN) come last."""
    known = ordered[~np.isnan(ordered)]
    start = quantile_bins(known, at_least(n_bins, 1, "n_bins"))
    edges = np.append(known[start], known[-1])
    labels, n_known = _labels(edges), len(start)
    if len(known) < len(ordered):
        labels, start = [*labels, NO_VALUE], np.append(start, len(known))
        edges = np.append(edges, np.nan)
    found = _table(labels, y, intervals, order, start, edges)
    if n_known == 1 and known[0] == known[-1]:
        text = f"all {len(known)} {what} are equal ({known[0]:g}): there is only one bin."
        warn(text, SparseBinsWarning)
    else:
        numbers = [f"number {index + 1}" for index in range(n_known)]
        _warn_of_few(found.n[:n_known], f"bins of the {what}", numbers)
    return found


def _table(
    labels: list[str], y: Any, read: Intervals, order: IntArray, start: IntArray, edges: Any = None
) -> CoverageTable:
    """The table of rows in the order of their bins, each from its ``start`` to the next one."""
    covered, widths = read.contains(y)[order], read.width[order]
    n = np.diff(np.append(start, len(covered)))
    hits = np.add.reduceat(covered, start, dtype=np.intp)
    mean_width = np.add.reduceat(widths, start) / n
    return CoverageTable(tuple(labels), n, hits / n, mean_width, *binomial_bounds(hits, n), edges)


def _with_gaps(values: Any, n: int) -> FloatArray:
    """One number for each row, NaN where it is missing, but not in all rows."""
    given = np.asarray(values)
    flat, kind = given.ravel(), given.dtype.kind
    if kind not in "fO":
        return check_vector(values, "values", n=n)
    gaps = np.isnan(flat) if kind == "f" else np.array([x is None or x != x for x in flat], bool)
    if len(gaps) == n and gaps.all():
        raise CalliperError(f"some rows must have a value; all {n} are missing.")
    filled = np.where(gaps.reshape(given.shape), 0.0, given)
    numbers = check_vector(filled if gaps.any() else values, "values", n=n)
    numbers[gaps] = np.nan
    return numbers


def quantile_bins(ordered: FloatArray, n_bins: int) -> IntArray:
    """Start of each bin in ascending values: bins of equal counts that split no tie.

    A run of equal values goes to the bin that its middle rank falls into.
    """
    run = np.append(0, 1 + np.flatnonzero(ordered[1:] != ordered[:-1]))
    middle = run + np.append(run[1:], len(ordered))
    # An infinite interval always covers: no finite one shares its bin.
    n_finite = run[-1] if np.isinf(ordered[-1]) else len(ordered)
    part = np.minimum(n_bins * middle // max(1, 2 * n_finite), n_bins)
    start: IntArray = run[np.append(True, part[1:] != part[:-1])]
    return start


def _labels(edges: FloatArray) -> list[str]:
    """``"1.2 to 3.4"`` for each bin, with enough digits to tell the edges apart."""
    distinct = len(set(edges.tolist()))
    for digits in range(3, 18):
        names = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(names)) == distinct:
            break
    return [low if low == high else f"{low} to {high}" for low, high in pairwise(names)]


def _warn_of_few(n: IntArray, bins: str, names: Sequence[str]) -> None:
    """Warn if bins hold few points."""
    if n.min() < FEWEST:
        least, few = int(np.argmin(n)), np.count_nonzero(n < FEWEST)
        what = f"{few} of {len(n)} {bins} hold fewer than {FEWEST} points"
        what += f", the smallest ({names[least]}) {n[least]}"
        warn(f"{what}: their coverage is uncertain; see its bounds.", SparseBinsWarning)


@dataclass(frozen=True, eq=False)
class ShareTable:
    """Shares of n targets and their expected values, with bands that allow for chance.

    Attributes
    ----------
    place : (B,) start of a bin, or level of a quantile
    share, expected : (B,) of the targets in the bin, or at or below the quantile
    lower, upper : (B,) ends of the band that a share lies in with probability ``level``

    Examples
    --------
    >>> half = np.full(2, 0.5)
    >>> ShareTable(np.array([0.0, 0.5]), half, half, half - 0.1, half + 0.1, n=100).n_outside
    0
    """

    place: FloatArray
    share: FloatArray
    expected: FloatArray
    lower: FloatArray
    upper: FloatArray
    n: int
    level: float = BAND

    @property
    def n_outside(self) -> int:
        """Number of shares outside the band; about one in twenty is expected by chance."""
        return int(np.count_nonzero((self.share < self.lower) | (self.share > self.upper)))

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a row for each share."""
        import pandas as pd

        return pd.DataFrame({name: of for name, of in vars(self).items() if np.ndim(of)})


def crps(y: Any, distribution: Distribution) -> float:
    """Mean continuous ranked probability score, ∫ (F(x) − 1{y ≤ x})² dx, in the unit of y.

    Good: small, on the same rows; smallest, on average, for the true distribution (Gneiting,
    Raftery 2007, doi:10.1198/016214506000001437). Misleads: rows with large errors dominate.

    Parameters
    ----------
    y : (m,) targets
    distribution : Distribution; from ``predict_distribution``

    Returns
    -------
    float; infinite if the distribution has mass at infinity, which ``bounds`` prevent

    Examples
    --------
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((3, 1)), [1.0, 0.0, 1.0], signs=[-1, 0, 1])
    >>> round(crps([0.0, 2.0], split.predict_distribution(np.zeros((2, 1)), [0.0, 0.0])), 3)
    0.889
    """
    return float(_checked(distribution).crps(y).mean())


def pit_histogram(
    y: Any, distribution: Distribution, *, n_bins: int = 10, random_state: Any = 0
) -> ShareTable:
    """Where targets lie in their distributions: shares of Π(y, τ) in equal bins.

    Good: equal shares, up to the band. Few in the outer bins: distributions are too wide; many:
    too narrow; a slope: too high or too low. Misleads: errors that cancel over rows look right.

    Parameters
    ----------
    y, distribution : as in :func:`crps`
    n_bins : int, default 10
    random_state : int, RandomState or None, default 0; draws τ, which matters if N is small

    Returns
    -------
    ShareTable; a row for each bin

    Examples
    --------
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((99, 1)), np.arange(1.0, 100.0), signs=np.tile([-1, 1, 1], 33))
    >>> found = split.predict_distribution(np.zeros((4, 1)), np.zeros(4))
    >>> pit_histogram([-60.0, -10.0, 10.0, 80.0], found, n_bins=2).share
    array([0.75, 0.25])
    """
    edges = np.linspace(0, 1, at_least(n_bins, 1, "n_bins") + 1)
    pit = _checked(distribution).pit(y, random_state=random_state)
    share = np.histogram(pit, edges)[0] / len(pit)
    n = distribution.n_effective
    return _share_table(edges[:-1], share, np.full(n_bins, (n + 1) / n_bins), n, len(pit))


def quantile_calibration(
    y: Any, distribution: Distribution, *, p: Sequence[float] = QUANTILE_LEVELS
) -> ShareTable:
    """Shares of the targets at or below the quantiles, over all rows.

    Good: p or slightly more (``expected`` is ⌈p(N+1)⌉/(N+1)), up to the band.

    Parameters
    ----------
    y, distribution : as in :func:`crps`
    p : sequence of float; levels of the quantiles

    Returns
    -------
    ShareTable; a row for each level

    Examples
    --------
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((99, 1)), np.arange(1.0, 100.0), signs=np.tile([-1, 1, 1], 33))
    >>> found = split.predict_distribution(np.zeros((4, 1)), np.zeros(4))
    >>> quantile_calibration([-60.0, -10.0, 10.0, 80.0], found, p=[0.5, 0.9]).share
    array([0.75, 1.  ])
    """
    levels, distribution = check_levels(p, "p"), _checked(distribution)
    (y,) = same_rows(distribution, "distribution", y=y)
    target, n = check_vector(y, "y", n=len(distribution)), distribution.n_effective
    share = (target[:, None] <= distribution.quantile(levels)).mean(axis=0)
    ranks = np.array(levels) * (n + 1)
    if n == distribution.n_calibration:
        ranks = np.array([conformal_rank(each, int(n)) for each in levels])
    return _share_table(np.array(levels), share, ranks, n, len(target))


def _checked(distribution: Any) -> Distribution:
    """What ``predict_distribution`` returned; anything else is refused."""
    if isinstance(distribution, Distribution):
        return distribution
    kind = type(distribution).__name__
    raise TypeError(f"distribution must come from predict_distribution(X); got {kind}.")


def _share_table(
    place: FloatArray, share: FloatArray, gaps: FloatArray, n: float, m: int
) -> ShareTable:
    """Shares of m targets, with the band of those in ``gaps`` of the N+1 between points."""
    law = stats.betabinom(m, gaps, np.maximum(n + 1 - gaps, 1e-9))
    lower, upper = (law.ppf(each) / m for each in ((1 - BAND) / 2, (1 + BAND) / 2))
    return ShareTable(place, share, gaps / (n + 1), lower, upper, m)
