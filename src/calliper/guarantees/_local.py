"""Coverage on a region of inputs, from the mutual information of input and score.

If the score σ did not depend on the input X, one threshold would cover equally in every region.
Mutual information MI(X, σ) says how far it is from that, and so bounds the coverage p in any
region ω of probability ρ = P(X ∈ ω), given the coverage c over all inputs:

    paper     p ≥ c − √(1 − exp(−MI)) / ρ                                          (Theorem S.2)
    binary    p ≥ min{p ≤ c : ρ kl(p, c) + (1−ρ) kl((c − ρp)/(1−ρ), c) ≤ MI}

with kl the divergence of two coins. The binary form is data processing for the pair
(1{X ∈ ω}, 1{σ ≤ q}): the information of those two bits is its left side, and cannot exceed that
of (X, σ). As the set of (c, p) that it allows is convex, the bound is convex in c and starts at
0, so by Jensen's inequality it holds for coverage averaged over calibration draws, and for every
coverage of at least c. Two bits with that information attain it, so MI, c and ρ alone allow no
better one. With nothing known (MI = ∞) it is the trivial max{0, 1 − (1−c)/ρ}; the paper's form
is below even that unless MI < −log(1 − (1−c)²(1−ρ)²), 0.002 nats at c = 0.95 and ρ = 0.1.

Letters: MI → ``mutual_information`` (nats), c = 1−α → ``coverage``, ρ → ``rho``, c − p → a share
of the largest deficit that c and ρ allow.

Assumptions: a score that is fixed before calibration (split conformal, MADSplit; scores rescaled
by calibration data are not covered by the proof); coverage marginal over calibration draws; and
the *true* mutual information. Put an estimate in, and an estimate comes out: see
``plug_in_local_coverage``, and ``cell_coverage`` for what data can prove.

Reference: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", Transactions on Machine Learning Research:
Theorem S.2, in the text Proposition 2.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import xlog1py

from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.guarantees._inputs import (
    broadcast,
    check_information,
    check_level,
    check_rho,
    like_input,
)

Form = Literal["binary", "paper"]

#: Halvings that bring an interval inside [0, 1] below half the spacing of numbers around any c.
HALVINGS = 64


def local_coverage_bound(
    mutual_information: Any, coverage: float, rho: Any, *, form: Form = "binary"
) -> float | FloatArray:
    """Lower bound on the coverage in any region that holds a share ``rho`` of all inputs.

    Holds for a score fixed before calibration, marginally over calibration draws, and for the
    *true* mutual information of input and score; see the module for the theorem and its proof.
    An estimate of it gives an estimate of the bound.

    Parameters
    ----------
    mutual_information : float or array
        In nats, ≥ 0. Infinity stands for nothing known: the binary form then gives what
        coverage over all inputs implies on its own, max{0, 1 − (1−c)/ρ}, the paper's form 0.
    coverage : float
        Coverage over all inputs, strictly inside (0, 1).
    rho : float or array
        Probability of the region, in (0, 1]; broadcast against ``mutual_information``.
    form : {"binary", "paper"}, default "binary"
        The sharper bound, accurate to 1e-12, or the one printed in the paper.

    Returns
    -------
    float or array
        At most ``coverage``. The paper's form is clipped from below at 0, where it says nothing;
        the binary form lies above 0 on its own.

    Examples
    --------
    >>> local_coverage_bound(0.02, 0.95, [0.1, 0.25, 1.0]).round(3)
    array([0.785, 0.868, 0.95 ])
    >>> local_coverage_bound(0.02, 0.95, [0.1, 0.25, 1.0], form="paper").round(3)
    array([0.   , 0.387, 0.809])
    >>> round(local_coverage_bound(np.inf, 0.95, 0.25), 3)  # from coverage over all inputs alone
    0.8
    """
    check_form(form)
    level = check_level(coverage)
    information, share = broadcast(
        mutual_information=check_information(mutual_information), rho=check_rho(rho)
    )
    if form == "paper":
        deficit = np.sqrt(-np.expm1(-information)) / share
    else:
        deficit = _binary_deficit(information, level, share)
    return like_input(np.maximum(level - deficit, 0.0))


def check_form(form: str) -> None:
    """Refuse a form of the bound that does not exist."""
    if form not in ("binary", "paper"):
        raise CalliperError(f"form must be 'binary' or 'paper'; got {form!r}.")


def _binary_deficit(information: FloatArray, c: float, rho: FloatArray) -> FloatArray:
    """The largest c − p that the information allows, by bisection from the safe side.

    A share u of the largest possible deficit costs an information that is convex and increases
    in u; the upper end of the bracket is kept, so rounding never raises the bound.
    """
    with np.errstate(divide="ignore"):
        inside = np.minimum(c, (1 - c) * (1 - rho) / rho)  # largest c − p
        outside = np.minimum(c * rho / (1 - rho), 1 - c)  # what the rest of the inputs gains then

    def cost(u: FloatArray) -> FloatArray:
        return rho * _kl(-inside * u, c) + (1 - rho) * _kl(outside * u, c)

    low, high = np.zeros_like(rho), np.ones_like(rho)
    affordable = cost(high) <= information
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = cost(middle) <= information
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return inside * np.where(affordable, 1.0, high)


def _kl(shift: FloatArray, c: float) -> FloatArray:
    """kl(c + shift, c), without the cancellation of its logarithms for small shifts."""
    return c * _excess(shift / c) + (1 - c) * _excess(-shift / (1 - c))


def _excess(x: FloatArray) -> FloatArray:
    """(1+x) log(1+x) − x = x²/2 − x³/6 + x⁴/12 − …, to full precision for x ≥ −1."""
    near = np.where(np.abs(x) < 0.1, x, 0.0)
    series = np.zeros_like(near)
    for k in range(17, 1, -1):
        series = 1 / (k * (k - 1)) - near * series
    return np.where(np.abs(x) < 0.1, near**2 * series, xlog1py(1 + x, x) - x)
