"""The pinball loss: the ends judged as quantiles."""

from __future__ import annotations

from typing import Any

from calliper.metrics._inputs import IntervalsLike, level_of, one_level
from calliper.metrics._interval_score import interval_score
from calliper.quantile import as_fraction


def pinball_loss(y: Any, intervals: IntervalsLike, *, coverage: float | None = None) -> float:
    r"""Mean pinball loss of the two ends, as quantiles at α/2 and 1 − α/2.

    .. math:: \tfrac12 \left[\rho_{\alpha/2}(y - l) + \rho_{1-\alpha/2}(y - u)\right], \qquad
       \rho_\tau(e) = \max(\tau e, (\tau - 1) e), \quad \alpha = 1 - \text{coverage}

    This is α/4 times :func:`interval_score`: at one level both rank methods alike. Only the
    pinball loss may be averaged over levels, where it approaches half the continuous ranked
    probability score.

    Good: small, in the unit of y; no ends score lower on average than the true quantiles given x.

    Misleads: as the interval score does; and it takes the ends for the quantiles at α/2 and
    1 − α/2, which intervals ŷ ± r around skewed noise need not be, however well they cover.

    Parameters
    ----------
    y : array of shape (m,)
        True targets.
    intervals : Intervals or (lower, upper), of one level
    coverage : float, optional
        The level to score at; by default the one the intervals carry.

    Returns
    -------
    float
        Infinite as soon as one interval is.

    References
    ----------
    R. Koenker, G. Bassett (1978), "Regression Quantiles", Econometrica, doi:10.2307/1913643;
    T. Gneiting, A. Raftery (2007), JASA, doi:10.1198/016214506000001437, section 6.

    Examples
    --------
    >>> pinball_loss([1.0, 2.5], ([0, 0], [2, 2]), coverage=0.8)
    0.225
    """
    read = one_level(intervals)
    level = level_of(read, coverage)
    return float((1 - as_fraction(level)) / 4) * interval_score(y, read, coverage=level)
