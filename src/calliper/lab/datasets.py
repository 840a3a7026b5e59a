"""The paper's one-dimensional regression task: Gaussian noise whose spread depends on x::

    X ~ U(0, 1),   y = f(X) + ε,   ε ~ N(0, λ ν(X))
    f(x) = f₀ + x² sin(k_f x + φ_f),   ν(x) = ε₀ + |sin(k_ε x + φ_ε)|

with f₀ = 0.1, k_f = 10, φ_f = 0.5, ε₀ = 0.01, φ_ε = 0.3, λ = 0.1 and λν(x) the standard deviation
(as a variance it would give half-widths near 0.55, three times those of the paper's table).

Reference: N. Deutschmann, M. Rigotti, M. Rodríguez Martínez (2024), "Adaptive Conformal
Regression with Jackknife+ Rescaled Scores", TMLR, appendix "One-Dimensional Regression".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

from calliper._types import Coverage, FloatArray
from calliper._validation import at_least, check_features, check_levels, labels_of, like_coverage
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals

Noise = Literal["cycles", "radians"]

__all__ = ["OneDimensional", "one_dimensional"]

#: k_ε, in radians for each unit of x.
_FREQUENCY = {"cycles": 2 * 2 * pi, "radians": 2.0}


@dataclass(frozen=True, eq=False)
class OneDimensional:
    """Rows of the task, and the distribution they were drawn from.

    Attributes
    ----------
    X : array of shape (n, 1)
    y : array of shape (n,)
    noise : {"cycles", "radians"}; the reading of k_ε = 2; see :func:`one_dimensional`

    Examples
    --------
    >>> task = one_dimensional(500, random_state=0)
    >>> task.X.shape, task.mean([[0.0]])
    ((500, 1), array([0.1]))
    """

    X: FloatArray
    y: FloatArray
    noise: Noise = "cycles"

    def mean(self, X: Any) -> FloatArray:
        """f(x), the mean of y at x: shape (m,) for X of shape (m, 1)."""
        x = _column(X)
        return np.asarray(0.1 + x**2 * np.sin(10 * x + 0.5))

    def standard_deviation(self, X: Any) -> FloatArray:
        """λν(x), the standard deviation of y at x: shape (m,) for X of shape (m, 1)."""
        return np.asarray(0.1 * (0.01 + np.abs(np.sin(_FREQUENCY[self.noise] * _column(X) + 0.3))))

    def oracle(self, X: Any, coverage: Coverage = 0.9) -> Intervals:
        """The best interval of y at x given the law: f(x) ± z · λν(x).

        z is the standard normal quantile at (1 + coverage) / 2: no narrower interval covers as
        often at every x. Several levels give a column each.
        """
        levels = np.array(check_levels(coverage))
        radius = -ndtri((1 - levels) / 2) * self.standard_deviation(X)[:, None]
        centre = self.mean(X)[:, None]
        lower, upper = (like_coverage(end, coverage) for end in (centre - radius, centre + radius))
        asked = float(levels[0]) if np.ndim(coverage) == 0 else tuple(levels.tolist())
        return Intervals(lower, upper, asked, labels_of(X))


def one_dimensional(n: int, *, noise: Noise = "cycles", random_state: Any = None) -> OneDimensional:
    """Draw n rows of the paper's one-dimensional task.

    Parameters
    ----------
    n : int; number of rows
    noise : {"cycles", "radians"}
        What "k_ε = 2" means in the spread 0.1 · (0.01 + abs(sin(k_ε x + 0.3))). ``"cycles"``: two
        full periods over the unit interval, which is not what is printed, but comes close to the
        paper's table if its "IS" is the half-width; the authors have not confirmed it.
        ``"radians"``: as printed, a single hump, in which no intervals that cover 95 % on average
        have a mean half-width below 0.1596 (0.1224 in the other reading); the table has 0.17.
    random_state : int, RandomState, Generator or None
        The same seed gives the same X and the same standardised noise in both readings.

    Returns
    -------
    OneDimensional
        With ``X``, ``y``, ``mean(X)``, ``standard_deviation(X)`` and ``oracle(X, coverage)``.

    Examples
    --------
    >>> problem = one_dimensional(1000, random_state=0)
    >>> grid = (np.arange(10_000)[:, None] + 0.5) / 10_000
    >>> round(float(problem.oracle(grid, 0.95).width.mean()) / 2, 4)  # z · 0.1 · (0.01 + 2/π)
    0.1267
    """
    if noise not in _FREQUENCY:
        raise CalliperError(f"noise must be 'cycles' or 'radians'; got {noise!r}.")
    at_least(n, 1, "n")
    generator = isinstance(random_state, np.random.Generator)
    rng = random_state if generator else check_random_state(random_state)
    X = rng.uniform(size=(n, 1))
    law = OneDimensional(X, np.zeros(n), noise)
    return replace(law, y=law.mean(X) + law.standard_deviation(X) * rng.standard_normal(size=n))


def _column(X: Any) -> FloatArray:
    features = check_features(X, "X")
    if features.shape[1] != 1:
        raise CalliperError(f"X must have one column, shape (m, 1); got shape {features.shape}.")
    return features[:, 0]
