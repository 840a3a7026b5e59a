"""Randomly localised conformal prediction (RLCP): local weights around a random centre.

Weights around the new point itself do not keep the level, since calibration points are not centred
on themselves. Around a point x̃ drawn near x, all N+1 points look alike: given x̃, it could have
been drawn from any of them, with odds k. The weighted quantile is then valid:

    x̃ ~ N(x, h²I),   w_i = k(X_i, x̃) = exp(−‖X_i − x̃‖² / 2h²),
    Δ = first s_k in order with Σ_{i≤k} w_i ≥ (1−α) (Σ_i w_i + k(x, x̃)),  +∞ if none.

Letters: s → ``scores``, h → ``length_scale``, x̃ → the centre, k(x, x̃) → the mass at infinity.

The draw for a row depends on the seed, the calibration points and the row's own numbers: SHAKE-128
of their bytes gives 64 bits for each feature, the upper 52 of them a uniform number and that a
normal one. So a row has the same radius in every batch and order, equal rows have draws of their
own, and the same row has another draw with other calibration points.

Guarantee: 1−α, marginal, for exchangeable data; over the draw of x̃ as well, and also given x̃,
which makes it approximately local. Not Q/(N+1): the weights are not equal. With fewer points than
split conformal needs the radius may still be finite, where x̃ is nearer to them than to x.

Reference: Hore, Barber (2025), "Conformal prediction with local weights: randomization enables
robust guarantees", JRSS B, doi:10.1093/jrsssb/qkae103.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from sklearn.utils import check_random_state

from calliper._draws import random_bits, seed_of
from calliper._kept import Field, Number
from calliper._types import FloatArray
from calliper.calibrators._calibrator import MOST_POINTS, Calibrator
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.kernels import (
    EUCLIDEAN,
    RadialExponents,
    RadialQuantile,
    check_length_scale,
    median_distance,
)
from calliper.quantile import Shares
from calliper.rows import Rows

#: Effective number of neighbours that ``length_scale="auto"`` reaches.
EFFECTIVE_SIZE = 50
#: Length scales that are tried, as multiples of the median distance.
LENGTH_SCALES = 2.0 ** np.arange(-10, 7, 0.5)


class RLCP(Calibrator):
    """Randomly localised conformal prediction, guarantee 1 − α; takes any real score.

    Parameters
    ----------
    length_scale : float or "auto", default "auto"
        h, in the unit of the features. ``"auto"`` is the smallest of a grid for which training
        inputs, which must then be passed to ``fit``, have an effective number of neighbours
        n/‖H‖² − 1 of 50, H the matrix of weights with rows that sum to one; the largest of the
        grid, nearly flat weights, if none reaches it.
    random_state : int, RandomState or None
        The seed of the centres. Calibration points and each row's own numbers make its draw
        different from others'.

    Attributes
    ----------
    length_scale_ : h

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = RLCP(0.05, random_state=0).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.22, 1.47])
    """

    about = About(
        cli="rlcp",
        width="a local quantile of calibration errors around a random centre",
        when="if coverage should hold almost locally; widths are partly random",
        cost="O(n² d) to tune, n ≤ N; O(N d) a new row",
        order=12,
    )
    takes_any_score = True
    averages = "all inputs, over the random centres of the weights"
    by_rank = False  # weights near x̃ may reach a level that the rank does not
    rounded = True

    @property
    def uses(self) -> Uses:
        """Training inputs, needed if no length scale is given."""
        # Chosen on calibration points it would treat them unlike a new one: no guarantee.
        needs = ("training",) if self.length_scale == "auto" else ()
        words = {"learns": "length_scale='auto'", "instead": "pass a number"}
        return Uses("training", needs=needs, **words)

    learns: ClassVar[Mapping[str, Field]] = {
        "seed_": Number(int, 0, 2.0**63),
        "length_scale_": Number(least=0),
    }

    def __init__(self, length_scale: float | str = "auto", *, random_state: Any = None) -> None:
        self.length_scale = length_scale
        self.random_state = random_state

    def _learn(self, rows: Rows) -> None:
        rng = check_random_state(self.random_state)
        self.seed_ = self._once(
            "seed_", lambda: int(rng.randint(2**31)) << 32 | seed_of(rows.Z, rows.scores)
        )
        length_scale = self._once("length_scale_", lambda: self._length(len(rows), rng))
        self.length_scale_ = check_length_scale(length_scale)
        order = np.argsort(rows.scores)
        exponents = RadialExponents(rows.Z[order], self.length_scale_, EUCLIDEAN)
        self._local = RadialQuantile(exponents, rows.scores[order])

    def _length(self, n: int, rng: Any) -> float:
        """As given, or as training inputs say for n points."""
        if not isinstance(self.length_scale, str):
            return float(self.length_scale)
        train = self._training.Z
        chosen = rng.permutation(len(train))[: max(2, min(n, MOST_POINTS))]
        return effective_length_scale(train[chosen])

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        noise = row_normals(Z, self.seed_)
        own = -0.5 * np.square(noise).sum(axis=1)
        return self._local(Z + self.length_scale_ * noise, levels, own)

    def _proved(self, level: float) -> float:
        return level

    def _note(self, level: float, proved: float) -> str:
        return f"a new target lies in its interval with probability at least {level:g}."

    def _check_parameters(self) -> None:
        length_scale = self.length_scale
        if isinstance(length_scale, str) and length_scale != "auto":
            raise ValueError(f"length_scale is a number or 'auto'; got {length_scale!r}.")
        if not isinstance(length_scale, str):
            check_length_scale(length_scale)


def row_normals(Z: FloatArray, seed: int) -> FloatArray:
    """Standard normal numbers that depend on the seed and on a row's own numbers, (m, d)."""
    bits = random_bits(seed.to_bytes(8, "little"), Z)
    uniform = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52
    return np.asarray(ndtri(uniform), dtype=np.float64)


def effective_length_scale(Z: FloatArray) -> float:
    """The smallest length scale of the grid with effective size 50."""
    median = median_distance(Z)
    if median == 0:
        raise CalliperError("the median distance between training inputs is 0; pass a number.")
    squared = cdist(Z, Z, "sqeuclidean")
    for length_scale in median * LENGTH_SCALES:
        weight = np.exp(squared / (-2 * length_scale**2))
        concentration = (np.square(weight).sum(axis=1) / np.square(weight.sum(axis=1))).sum()
        if len(Z) / concentration - 1 >= EFFECTIVE_SIZE:
            return float(length_scale)
    return float(median * LENGTH_SCALES[-1])
