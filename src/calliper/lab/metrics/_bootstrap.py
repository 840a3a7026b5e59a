"""The uncertainty of a measure: the bootstrap over test rows."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature, unwrap
from math import nan
from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import _safe_indexing, check_random_state

from calliper._types import FloatArray
from calliper._validation import at_least, shape_of
from calliper.exceptions import CalliperError, SparseBinsWarning, warn
from calliper.intervals import Intervals
from calliper.lab.metrics._conditional import excess_risk_of_target_coverage, worst_slab_coverage
from calliper.lab.metrics._inputs import IntervalsLike, one_level
from calliper.lab.metrics._tables import ONE_SIGMA_TAIL
from calliper.rows import same_rows

_SPLIT_THE_ROWS = (unwrap(worst_slab_coverage), unwrap(excess_risk_of_target_coverage))


@dataclass(frozen=True)
class Estimate:
    """A value with its uncertainty.

    Attributes
    ----------
    value : the measure on all rows
    error : half the distance between ``lower`` and ``upper``, a 1-σ error
    lower, upper : 15.87th and 84.13th percentile of the measure over the resamples
    n_resamples : number of resamples
    n_undefined : number of resamples without a value (NaN), which are left out

    Examples
    --------
    >>> Estimate(value=0.9, error=0.01, lower=0.89, upper=0.91, n_resamples=200)
    Estimate(value=0.9, error=0.01, lower=0.89, upper=0.91, n_resamples=200, n_undefined=0)
    """

    value: float
    error: float
    lower: float
    upper: float
    n_resamples: int = 0
    n_undefined: int = 0


def bootstrap(
    metric: Callable[..., float],
    y: Any,
    intervals: IntervalsLike,
    *rows: Any,
    n_resamples: int = 200,
    replace: bool | None = None,
    random_state: Any = None,
    **parameters: Any,
) -> Estimate:
    """A measure with its 1-σ error, from resampled rows.

    ``metric(y, intervals, *rows, **parameters)`` is computed on all rows and on ``n_resamples``
    draws of them. The error is half the distance between the 15.87th and the 84.13th percentile:
    the standard deviation if the values are normal, and robust. Misleads: it covers the draw of the
    test rows only. Another calibration set often changes more; repeat over splits for that.

    Parameters
    ----------
    metric : callable
        Any of this module's measures, or a function of ``(y, intervals, ...)``, that returns a
        number. One whose first parameter is called ``intervals`` gets no y.
    y : array of shape (m,)
    intervals : Intervals or (lower, upper), of one level
    *rows : arrays of m rows; arguments of the metric after the intervals: inputs, values, groups
    n_resamples : int; draws, of which 200 know the error to about 6 %
    replace : bool, optional
        True: m rows with replacement. False: half of the rows without, which gives the same error
        to first order. By default True, but False for ``worst_slab_coverage`` and
        ``excess_risk_of_target_coverage``, which split the rows; pass False for a function that
        does.
    random_state : optional; seed of the draws, and of the metric if it takes one
    **parameters : passed to the metric; what has m rows, such as ``y_pred``, is resampled with them

    Returns
    -------
    Estimate
        With an ``UndefinedMetricWarning`` if resamples have no value; the error is NaN if these
        are more than half, or if the value is not finite.

    Examples
    --------
    >>> from calliper.lab.metrics import empirical_coverage
    >>> y = np.repeat([0.0, 9.0], [900, 100])
    >>> estimate = bootstrap(empirical_coverage, y, (y * 0 - 1, y * 0 + 1), random_state=0)
    >>> estimate.value, round(estimate.error, 3)
    (0.9, 0.01)
    """
    read = one_level(intervals)
    n = len(read.lower)
    draws = at_least(n_resamples, 2, "n_resamples")
    parts = {"y": y, **{f"rows[{at}]": part for at, part in enumerate(rows)}}
    for name, part in parts.items():
        if (found := _n_entries(part)) != n:
            what = f"{name} must have a row for each of the {n} intervals"
            raise CalliperError(f"{what}; got {found}.")
    if replace is None:
        replace = not _splits_the_rows(metric)
    takes = signature(metric).parameters
    without_y, seeded = next(iter(takes)) == "intervals", "random_state" in takes
    along = {name: value for name, value in parameters.items() if _n_entries(value) == n}
    y, *rest = same_rows(read, "intervals", **parts, **along)
    rows, along = tuple(rest[: len(rows)]), dict(zip(along, rest[len(rows) :], strict=True))
    rng = check_random_state(random_state)

    def measure(drawn: Any) -> float:
        ends = Intervals(read.lower[drawn], read.upper[drawn], read.coverage)
        given = [_safe_indexing(part, drawn) for part in (y, *rows)]
        named = parameters | {name: _safe_indexing(value, drawn) for name, value in along.items()}
        if seeded:
            named["random_state"] = rng.randint(2**31)
        first = (ends,) if without_y else (given[0], ends)
        return float(metric(*first, *given[1:], **named))

    value = measure(np.arange(n))
    with warnings.catch_warnings():
        for category in (UndefinedMetricWarning, SparseBinsWarning):
            warnings.simplefilter("ignore", category)
        half = max(1, n // 2)
        values = [
            measure(rng.randint(n, size=n) if replace else rng.permutation(n)[:half])
            for _ in range(draws)
        ]
    return _estimate(value, np.array(values))


def _estimate(value: float, values: FloatArray) -> Estimate:
    defined = values[~np.isnan(values)]
    n_undefined = len(values) - len(defined)
    few = n_undefined <= len(values) / 2
    if n_undefined:
        rest = "the error is that of the others." if few else "the error is unknown."
        text = f"{n_undefined} of {len(values)} resamples have no value: {rest}"
        warn(text, UndefinedMetricWarning)
    lower = upper = nan
    if np.isfinite(value) and few:
        # Order statistics, not interpolated: a few infinite resamples then do no harm.
        tails = [ONE_SIGMA_TAIL, 1 - ONE_SIGMA_TAIL]
        lower, upper = np.quantile(defined, tails, method="inverted_cdf").tolist()
    return Estimate(value, (upper - lower) / 2, lower, upper, len(values), n_undefined)


def _splits_the_rows(metric: Any) -> bool:
    """Whether a metric, once partials and decorators are unwrapped, splits rows."""
    while isinstance(metric := unwrap(metric), partial):
        metric = metric.func
    return metric in _SPLIT_THE_ROWS


def _n_entries(value: Any) -> int | None:
    """Number of rows of an array, a frame, a series or a list; None for anything else."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return len(value)
    return next(iter(shape_of(value)), None)
