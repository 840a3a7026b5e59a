"""Numbers as the paper prints them: 0.952(6) is 0.952 ± 0.006."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import isfinite, isinf, isnan
from typing import Any

import numpy as np

from calliper.exceptions import CalliperError

#: Part of a normal distribution within one standard deviation of its mean, in percent.
ONE_SIGMA = 68

#: Numbers from here on are written with a power of ten.
LARGE = 1e6

#: Digits that hold every float beside every other.
_EXACT = 1100


def one_sigma(values: Any) -> tuple[float, float]:
    """Mean and 1-σ percentile error: the 68th percentile of the distances from the mean.

    It is the standard deviation if the values are normal, and less moved by one outlier if not.
    With fewer than two values the error is not known: NaN. An infinite value makes the mean
    infinite.

    >>> one_sigma([1.0, 1.5, 2.0])
    (1.5, 0.5)
    """
    values = np.asarray(values, dtype=np.float64)
    mean = float(np.mean(values)) if len(values) else float("nan")
    if len(values) < 2 or not isfinite(mean):
        return mean, float("nan")
    # Of repeats of one number the rounded mean may differ in the last place.
    if values.min() == values.max():
        return float(values[0]), 0.0
    return mean, float(np.percentile(np.abs(values - mean), ONE_SIGMA))


def last_digit(value: float, error: float = float("nan")) -> str:
    """A value with the uncertainty of its last digit in parentheses.

    The error is rounded to one digit and the value to the same place. Without parentheses the
    error is zero (three decimals are shown then) or not known. NaN is a dash.

    >>> last_digit(0.9523, 0.0061), last_digit(0.9996, 0.0007), last_digit(187.3, 32.0)
    ('0.952(6)', '0.9996(7)', '190(30)')
    >>> last_digit(0.25, 0.0), last_digit(float("inf"), 1.0), last_digit(2.34e7, 1e6)
    ('0.250', '∞', '2.3(1)e7')
    """
    if error < 0:
        raise CalliperError(f"error must be at least 0, or NaN if it is not known; got {error!r}.")
    if isnan(value):
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinf(error):
        return f"{_plain(value)}(∞)"
    if isnan(error) or error == 0:
        return _plain(value)
    digit, place = (int(part) for part in f"{error:.0e}".split("e"))
    size = max(abs(value), error)
    if size >= LARGE or place < -9:
        # In decimals, whose powers of ten neither overflow nor vanish; rounded before the power
        # is read off, since 9.99(6)e6 may become 1.000e7.
        with localcontext() as context:
            context.prec = _EXACT
            rounded = round(Decimal(value), -place)
            power = max(rounded.adjusted(), place) if rounded else place
            shown = _fixed(rounded.scaleb(-power), power - place)
        return f"{shown}({digit})e{power}"
    if place <= 0:
        return f"{_fixed(value, -place)}({digit})"
    return f"{_fixed(round(value, -place), 0)}({digit * 10**place})"


def _plain(value: float) -> str:
    """Three decimals where they say something, else three digits and a power of ten."""
    if value == 0 or 1e-3 <= abs(value) < LARGE:
        return f"{value:.3f}"
    mantissa, power = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(power)}"


def _fixed(value: float | Decimal, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text
