"""Measures of predictive distributions: a score, and two tables of calibration.

All targets share one calibration set, and the bands allow for that: given the calibration set, J of
the N+1 gaps between the points y_i* hold a share with law Beta(J, N+1−J), so the number of m
targets in them is beta-binomial. That is exact for ``Split`` and similar methods, and nearly so for
``FullRescaled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from calliper._types import FloatArray
from calliper._validation import at_least, check_levels, check_vector
from calliper.distribution import Distribution
from calliper.quantile import conformal_rank
from calliper.rows import same_rows

if TYPE_CHECKING:
    import pandas as pd

#: Probability that a share lies in its band.
BAND = 0.95
#: Levels at which quantiles are compared.
QUANTILE_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


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
    return float(distribution.crps(y).mean())


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
    pit = distribution.pit(y, random_state=random_state)
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
    levels = check_levels(p, "p")
    (y,) = same_rows(distribution, "distribution", y=y)
    target, n = check_vector(y, "y", n=len(distribution)), distribution.n_effective
    share = (target[:, None] <= distribution.quantile(levels)).mean(axis=0)
    ranks = np.array(levels) * (n + 1)
    if n == distribution.n_calibration:
        ranks = np.array([conformal_rank(each, int(n)) for each in levels])
    return _share_table(np.array(levels), share, ranks, n, len(target))


def _share_table(
    place: FloatArray, share: FloatArray, gaps: FloatArray, n: float, m: int
) -> ShareTable:
    """Shares of m targets, with the band of those in ``gaps`` of the N+1 between points."""
    law = stats.betabinom(m, gaps, np.maximum(n + 1 - gaps, 1e-9))
    lower, upper = (law.ppf(each) / m for each in ((1 - BAND) / 2, (1 + BAND) / 2))
    return ShareTable(place, share, gaps / (n + 1), lower, upper, m)
