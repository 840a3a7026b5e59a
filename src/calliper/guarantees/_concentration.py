"""Why rescaling helps: Markov's and Cantelli's inequalities at one input.

Divide the score by its mean at x, s̄(x), and put one threshold q (or τ) on the ratio. Two classic
inequalities then bound the coverage at that very x, whatever the law of the score there:

    Markov      P(s/s̄(x) ≤ q | x) ≥ 1 − 1/q
    Cantelli    P(s/s̄(x) ≥ τ | x) ≤ σ²(x) / (σ²(x) + (τ−1)² s̄²(x)),   τ > 1
    solved      P(s/s̄(x) ≥ 1 + σ(x)/s̄(x) √((1−α)/α) | x) ≤ α

So if σ(x)/s̄(x) is the same everywhere, or bounded, one threshold covers everywhere. The paper
prints s̄(x) instead of s̄²(x) in the second denominator, and λ = (1−τ)s̄ for (τ−1)s̄; with the
slip the fraction depends on the unit of y and is no bound. The third line is printed correctly.

Letters: q, τ → ``threshold``, σ(x)/s̄(x) → ``variation`` (the coefficient of variation),
1−α → ``coverage``.

Assumptions: non-negative scores, and the *exact* mean and standard deviation at x. The paper
calls these inequalities inspirational: with estimated moments they bound nothing, so they are
not used by any method here, and are no bounds for finite samples.

Reference: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", Transactions on Machine Learning Research,
last section of the supplement, "Rescaled Scores and Concentration Inequalities".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.guarantees._inputs import broadcast, check_level, check_ratio, like_input


def markov_local_coverage(threshold: Any) -> float | FloatArray:
    """1 − 1/q for q ≥ 1, else 0: coverage at any input if s ≤ q·s̄(x) is the rule.

    Assumes the exact mean s̄(x) of a non-negative score; not a bound for finite samples.

    Parameters
    ----------
    threshold : float or array
        q ≥ 0, on the score divided by its mean.

    Examples
    --------
    >>> markov_local_coverage([0.5, 2.0, 20.0])
    array([0.  , 0.5 , 0.95])
    """
    q = check_ratio(threshold, "threshold")
    return like_input(1 - 1 / np.maximum(q, 1.0))


def cantelli_local_coverage(threshold: Any, variation: Any) -> float | FloatArray:
    """(τ−1)²/(r² + (τ−1)²) for τ > 1, else 0: coverage at an input if s < τ·s̄(x) is the rule.

    Here r = σ(x)/s̄(x). Assumes the exact mean and standard deviation at x; not a bound for
    finite samples. Better than Markov's 1 − 1/τ where r² < τ − 1.

    Parameters
    ----------
    threshold : float or array
        τ ≥ 0, on the score divided by its mean.
    variation : float or array
        r ≥ 0; infinite for a score without variance, for which nothing follows.

    Examples
    --------
    >>> cantelli_local_coverage(3.0, [0.5, 1.0, np.inf]).round(3)
    array([0.941, 0.8  , 0.   ])
    """
    tau, r = broadcast(
        threshold=check_ratio(threshold, "threshold"), variation=check_ratio(variation, "variation")
    )
    excess = np.where(tau > 1, tau - 1, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        covered = 1 / (1 + (r / excess) ** 2)
    covered = np.where(np.isinf(tau), 1.0, covered)
    return like_input(np.where(tau > 1, covered, 0.0))


def cantelli_threshold(coverage: float, variation: Any) -> float | FloatArray:
    """1 + r √(c/(1−c)): the threshold on s/s̄(x) at which Cantelli's inequality gives c.

    Assumes the exact mean and standard deviation at x; not a bound for finite samples.

    Parameters
    ----------
    coverage : float
        c, strictly inside (0, 1).
    variation : float or array
        r = σ(x)/s̄(x) ≥ 0.

    Examples
    --------
    >>> cantelli_threshold(0.95, [0.5, 1.0]).round(3)
    array([3.179, 5.359])
    >>> round(cantelli_local_coverage(cantelli_threshold(0.95, 0.5), 0.5), 12)  # and back
    0.95
    """
    level, r = check_level(coverage), check_ratio(variation, "variation")
    return like_input(1 + r * np.sqrt(level / (1 - level)))
