r"""Why a small mean interval says little: the ratio of sizes, flat to perfectly adaptive.

Errors are normal with standard deviation σ₀ for a part β of the inputs, λσ₀ for the others (the
paper's section "The mean interval size is not a sufficient measure of adaptivity"). The perfect
intervals have half-width zσ₀ and zλσ₀, z = Φ⁻¹(1 − α/2), and mean z σ₀ (β + (1−β)λ). The flat one,
of split conformal with all the data in the world, has half-width qσ₀ with

    β (2Φ(q) − 1) + (1 − β)(2Φ(q/λ) − 1) = 1 − α,

so that the ratio is q / (z (β + (1−β)λ)). The paper gives its limit for rare and much larger
errors, q → z; the root is exact for all β and λ.
"""

from __future__ import annotations

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from calliper import CalliperError


def flat_radius(beta: float, factor: float, coverage: float = 0.95) -> float:
    """Half-width q of the flat interval, in units of σ₀, for λ = ``factor``."""
    if not 0 <= beta <= 1 or not factor > 0:
        raise CalliperError(
            f"beta must lie in [0, 1] and factor above 0; got {beta!r} and {factor!r}."
        )
    z = _normal(coverage)

    def excess(q: float) -> float:
        inside = beta * (2 * ndtr(q) - 1) + (1 - beta) * (2 * ndtr(q / factor) - 1)
        return float(inside - coverage)

    low, high = sorted((z, z * factor))
    if low == high or beta in (0, 1):
        return z * (factor if beta == 0 else 1.0)
    return float(brentq(excess, low, high, xtol=1e-13))


def adaptive_radius(beta: float, factor: float, coverage: float = 0.95) -> float:
    """Mean half-width of the perfectly adaptive intervals, in units of σ₀."""
    return _normal(coverage) * (beta + (1 - beta) * factor)


def size_ratio(beta: float, factor: float, coverage: float = 0.95) -> float:
    """Mean size of flat intervals over that of perfect ones: below 1 the flat ones are smaller.

    >>> round(size_ratio(0.97, 10), 3)
    0.894
    """
    return flat_radius(beta, factor, coverage) / adaptive_radius(beta, factor, coverage)


def _normal(coverage: float) -> float:
    return float(ndtri((1 + coverage) / 2))
