"""Numbers and lists as text; the script of the page formats them in the same way."""

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import floor, isinf, isnan, log10


def percent(share: float) -> str:
    """A share in percent, to a tenth, or more digits if that would be 0 or 100."""
    if isnan(share):
        return "–"
    for digits in range(1, 8):  # rounded as browsers do: exactly, and half up
        value = Decimal(100 * share).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
        if share in (0, 1) or 0 < value < 100:
            break
    return f"{value:f}".rstrip("0").rstrip(".") + "\u00a0%"


def percent_down(share: float) -> str:
    """A guaranteed share in percent, rounded down."""
    return percent(floor(share * 1000 + 1e-9) / 1000) if not isnan(share) else "–"


def number(value: float, digits: int = 4) -> str:
    """A number to some digits, with a power of ten only if it is very large or small."""
    if isnan(value):
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    power = floor(log10(abs(value)))
    decimals = digits - 1 - power
    text = f"{value:,.{max(decimals, 0)}f}" if -4 <= power <= 6 else f"{value:.{digits - 1}e}"
    return text.replace("-", "−")


def rough(value: float) -> str:
    """A number to two digits, three from 100."""
    digits = 3 if abs(value) >= 100 else 2
    return number(float(f"{value:.{digits}g}"), digits)


def with_error(value: float, error: float) -> str:
    """A number and its error, to the second digit of the error."""
    if isnan(error) or isinf(value) or error <= 0:
        return number(value)
    decimals = 1 - floor(log10(error))
    text = f"{value:,.{max(decimals, 0)}f} ± {error:,.{max(decimals, 0)}f}"
    if not -3 <= decimals <= 7:
        text = f"{value:.3e} ± {error:.1e}"
    return text.replace("-", "−")


def seconds(value: float) -> str:
    """A time in seconds to two digits."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def listed(names: Sequence[str]) -> str:
    """Names separated by commas, with "and" before the last."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def first_of(names: Sequence[str], shown: Callable[[str], str] = repr) -> str:
    """The first five names, and the number of the others."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(shown, names[:5])) + more
