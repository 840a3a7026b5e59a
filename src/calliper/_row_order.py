"""Do errors depend on the row number? Then rows to come may err otherwise than those before.

Rank correlations of the row number with the size of the error and with the error itself. If rows
are exchangeable, every order of them is as likely, and whatever the errors are the correlation r of
n ranks (ties share theirs) has mean 0 and variance 1/(n − 1); r √(n − 1) is about normal. Each of
the two is tested at half of the level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata

from calliper._kept import Keeps, Number
from calliper._types import FloatArray
from calliper.exceptions import RowOrderWarning, warn

#: Of sets in random order, the share that is suspected.
LEVEL = 1e-4


@dataclass(frozen=True, kw_only=True)
class RowTrend(Keeps):
    """Errors that depend on the row number.

    Attributes
    ----------
    of_size : whether it is their size that does; else it is the errors with their sign
    correlation, p_value : rank correlation with the row number, and its chance in random order
    first, last : mean size, or mean error, in the first and in the last quarter of the rows
    """

    of_size: bool
    correlation: float
    p_value: float
    first: float
    last: float

    keeps = {
        "of_size": Number(bool),
        **dict.fromkeys(("correlation", "p_value", "first", "last"), Number()),
    }

    def describe(self, rows: str = "calibration") -> str:
        """What was found and what follows from it; for a message."""
        what = "size of the error" if self.of_size else "error"
        return (
            f"The {what} depends on the row number among the {rows} rows: its mean is "
            f"{self.first:.3g} in the first quarter and {self.last:.3g} in the last (rank "
            f"correlation {self.correlation:.2f}, p = {self.p_value:.1g}). If rows are in order of "
            f"time, rows to come will err otherwise still, and coverage may be lower than promised:"
            f" train on the older rows and calibrate on the latest ones (shuffle=False where "
            f"calliper splits). If they are sorted by something else, nothing is wrong."
        )


def find_trend(errors: Any, order: Any = None) -> RowTrend | None:
    """How errors y − ŷ depend on the row number; None if they do not, beyond chance.

    ``order`` holds the row numbers where rows were drawn from a longer table.
    """
    errors = np.asarray(errors, dtype=np.float64)
    if order is not None:
        errors = errors[np.argsort(order, kind="stable")]
    found = [_trend(np.abs(errors), of_size=True), _trend(errors, of_size=False)]
    clearest = min(found, key=lambda trend: trend.p_value)
    return clearest if clearest.p_value < LEVEL else None


def warn_of_trend(errors: Any, order: Any = None) -> RowTrend | None:
    """Errors of calibration rows that depend on the row number, pointed out; None if not."""
    trend = find_trend(errors, order)
    if trend is not None:
        warn(trend.describe(), RowOrderWarning)
    return trend


def _trend(values: FloatArray, *, of_size: bool) -> RowTrend:
    n = len(values)
    place, ranks = np.arange(n) - (n - 1) / 2, rankdata(values) - (n + 1) / 2
    spread = np.sqrt((place @ place) * (ranks @ ranks))
    correlation = float(place @ ranks / spread) if spread > 0 else 0.0
    quarter = max(n // 4, 1)
    return RowTrend(
        of_size=of_size,
        correlation=correlation,
        p_value=min(1.0, float(4 * ndtr(-abs(correlation) * np.sqrt(max(n - 1, 0))))),
        first=float(values[:quarter].mean()),
        last=float(values[-quarter:].mean()),
    )
