"""Local quantiles with radial weights: around a random centre (RLCP), or in a learnt metric (LVD).

Both take the weighted quantile of the calibration scores near a new point, whose own weight w_∞ is
at infinity:

    Δ(x) = first s_k in order with Σ_{i≤k} w_i ≥ (1−α) (Σ_i w_i + w_∞),  +∞ if none.

*RLCP.* Weights around the new point itself do not keep the level, since calibration rows are not
centred on themselves. Around a point x̃ drawn near x, all N+1 points look alike: given x̃, it could
have been drawn from any of them, with odds k, so that the weighted quantile is valid:

    x̃ ~ N(x, h²I),   w_i = k(X_i, x̃) = exp(−‖X_i − x̃‖² / 2h²),   w_∞ = k(x, x̃).

The draw for a row depends on the seed, the calibration rows and the row's own numbers: SHAKE-128
of their bytes gives 64 bits for each feature, the upper 52 of them a uniform number and that a
normal one. So a row has the same radius in every batch and order, equal rows have draws of their
own, and the same row has another draw with other calibration rows.

Guarantee: 1−α, marginal, for exchangeable data; over the draw of x̃ as well, and also given x̃,
which makes it approximately local. Not Q/(N+1): the weights are not equal. With fewer points than
split conformal needs the radius may still be finite, where x̃ is nearer to them than to x.

*LVD.* A metric A is learnt on training inputs and labels so that near points have near labels. The
level is not corrected:

    w_i = exp(−‖A(x − X_i)‖² / d),   w_∞ = 1.

The paper finds A too large in many dimensions, so that most intervals are infinite. ``tuned=True``
is its remedy: λA with the largest λ ≤ 1 for which at least 1−α of a training sample have an
effective number of neighbours exp H(w) ≥ 2/α, H the entropy of their weights w to the others. λ
depends on the level, so radii need not grow with it; H falls as λ grows, so bisection finds it.

Guarantee: none that is marginal and holds for finite N (``guaranteed_coverage`` is 0); coverage is
1−α for a new point drawn from the kernel around x (the "baseLCP" of Hore and Barber).

Letters: h → ``length_scale``, A → ``metric_``, d → ``n_directions``, λ → ``factors_``.

References: Hore, Barber (2025), "Conformal prediction with local weights: randomization enables
robust guarantees", JRSS B, doi:10.1093/jrsssb/qkae103. Lin, Trivedi, Sun (2021), "Locally valid and
discriminative prediction intervals for deep learning models", NeurIPS, arXiv:2106.00225. λ:
Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with Jackknife+
Rescaled Scores", TMLR, §5.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from hashlib import shake_128
from math import ceil
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from sklearn.utils import check_random_state

from calliper._blocks import map_row_blocks
from calliper._kept import Array, Field, Inline, Number
from calliper._types import BoolArray, FloatArray
from calliper._validation import warn_of_unused
from calliper.calibrators._calibrator import MOST_POINTS, ROWS, Calibrator, columns_by
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.information import as_bytes, seed_of
from calliper.kernels import LearntMetric, Radial, check_length_scale, learn_metric, median_distance
from calliper.quantile import Shares, as_fraction, conformal_rank
from calliper.rows import Rows

#: Effective number of neighbours that ``length_scale="auto"`` reaches.
EFFECTIVE_SIZE = 50
#: Length scales that are tried, as multiples of the median distance.
LENGTH_SCALES = 2.0 ** np.arange(-10, 7, 0.5)
#: Steps of the bisection that finds λ.
N_STEPS = 40
#: Exponents no larger than this make weights equal.
FLAT = 1e-9
NO_GUARANTEE = (
    "no probability of covering a new target is proved for a finite number of calibration rows. "
    "The local quantile is exact only for a new point drawn from the kernel around its own input. "
    "Coverage is usually above the level, bought with infinite intervals where few points are "
    "near. For a guarantee with local weights use LCP or RLCP."
)


class RLCP(Calibrator):
    """Randomly localised conformal prediction, guarantee 1 − α; takes any real score.

    Parameters
    ----------
    length_scale : float or "auto", default "auto"
        h, in the unit of the features. ``"auto"`` is the smallest of a grid for which training
        inputs, which must then be passed to ``fit``, have an effective number of neighbours
        n/‖H‖² − 1 of 50, H the matrix of weights with rows that sum to one; else the largest.
    random_state : int, RandomState or None; the seed of the centres

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
        cost="O(n² d) to tune, n ≤ N; O(N d) per new row",
    )
    takes_any_score = True
    averages = "all inputs, over the random centres of the weights"
    by_rank = False  # weights near x̃ may reach a level that the rank does not
    _rounded = True

    @property
    def uses(self) -> Uses:
        """Training inputs, needed if no length scale is given."""
        # Chosen on calibration rows it would treat them unlike a new one: no guarantee.
        needs = ("training",) if self.length_scale == "auto" else ()
        return Uses(needs=needs, learns="length_scale='auto'", instead="pass a number")

    learns: ClassVar[Mapping[str, Field]] = {
        "seed_": Number(int, 0, 2.0**63),
        "length_scale_": Number(least=0),
    }

    def __init__(self, length_scale: float | str = "auto", *, random_state: Any = None) -> None:
        self.length_scale, self.random_state = length_scale, random_state

    def _learn(self, rows: Rows) -> None:
        rng = check_random_state(self.random_state)
        self.seed_ = self._once(
            "seed_", lambda: int(rng.randint(2**31)) << 32 | seed_of(rows.Z, rows.scores)
        )
        length_scale = self._once("length_scale_", lambda: self._length(len(rows), rng))
        self.length_scale_ = check_length_scale(length_scale)
        self._local = Radial(rows.Z, self.length_scale_).local_quantile(rows.scores)

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
        if not isinstance(self.length_scale, str) or self.length_scale != "auto":
            check_length_scale(self.length_scale)


def row_normals(Z: FloatArray, seed: int) -> FloatArray:
    """Standard normal numbers that depend on the seed and on a row's own numbers, (m, d)."""
    bits = random_bits(seed.to_bytes(8, "little"), Z)
    uniform = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52
    return np.asarray(ndtri(uniform), dtype=np.float64)


def random_bits(key: bytes, rows: FloatArray) -> Any:
    """64 bits for each number of rows, (m, d), by key, row, and how often the row came before."""
    seen: dict[bytes, int] = {}
    bits = []
    for row in as_bytes(rows):
        seen[row] = copies = seen.get(row, 0) + 1
        bits.append(shake_128(key + copies.to_bytes(8, "little") + row).digest(len(row)))
    return np.frombuffer(b"".join(bits), dtype="<u8").reshape(rows.shape)


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


@dataclass(eq=False, repr=False)
class LVD(Calibrator):
    """Local quantile in a metric learnt on training data, with any real score; no guarantee.

    Parameters
    ----------
    tuned : bool, default False
        Whether to widen the kernel until most training points have 2/α effective neighbours; if
        nothing gives them that many, weights are equal.
    n_directions, smoothing, max_iter
        See :func:`calliper.kernels.learn_metric`.
    metric : LearntMetric, optional; from ``learn_metric`` on the same training rows
    random_state : int, RandomState or None; draws where learning starts, and ``tuned``'s sample

    Attributes
    ----------
    metric_ : LearntMetric
    factors_ : dict of λ for each level that was asked for

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(2, 500, 1))
    >>> y = np.sin(6 * Z[..., 0]) + rng.normal(size=(2, 500)) * 0.3 * Z[..., 0]
    >>> errors = abs(y[1] - np.sin(6 * Z[1, :, 0]))
    >>> method = LVD(random_state=0).fit(Z[1], errors, training=(Z[0], None, y[0]))
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.05, 0.39])
    """

    uses = Uses(needs=("training", "targets"), learns="its metric")
    about = About(
        cli="lvd",
        width="a local quantile in a learnt metric; often infinite",
        guarantee="none proved",
        when="for comparison with the literature",
        cost="O(n² + n d) per step of learning, n ≤ 2,000; O(N + d) per new row and level",
    )
    takes_any_score = True
    _rounded = True
    learns: ClassVar[Mapping[str, Field]] = {
        "metric_": Inline(LearntMetric),
        "sample_": Array("int32", ("s",), least=0, most="n", becomes="int64"),
    }
    keeps: ClassVar[Mapping[str, Field]] = {**ROWS, **learns, "tuned": Number(bool)}

    _: KW_ONLY
    tuned: bool = False
    n_directions: int = 10
    smoothing: float = 1.0
    max_iter: int = 500
    metric: LearntMetric | None = None
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        train, rng = self._training, check_random_state(self.random_state)
        how = ("n_directions", "smoothing", "max_iter")
        asked = {name: getattr(self, name) for name in how}
        if self.metric is not None and not isinstance(self.metric, LearntMetric):
            raise TypeError(f"metric must come from learn_metric; got {self.metric!r}.")
        if self.metric is not None:
            warn_of_unused(self, how, "metric= was learnt before")
        self.metric_ = self._once(
            "metric_",
            lambda: self.metric or learn_metric(train.Z, train.targets, random_state=rng, **asked),
        )
        self.sample_ = self._sampled(min(len(rows.Z), MOST_POINTS), rng)
        self._sample = self.metric_.transform(train.Z[self.sample_])
        order = np.argsort(rows.scores)
        self.scores_, self.points_ = rows.scores[order], self.metric_.transform(rows.Z[order])
        self.factors_: dict[float, float] = {}

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        queries = self.metric_.transform(Z)
        radius, own = np.empty((len(Z), len(levels))), np.zeros(len(Z))
        for factor, columns in columns_by(self._factor, levels).items():
            weights = Radial(self.points_, np.sqrt(0.5) / factor if factor else np.inf)
            asked = [levels[column] for column in columns]
            radius[:, columns] = weights.quantile(self.scores_, queries, asked, own)
        return radius

    def _proved(self, level: float) -> float:
        return float(conformal_rank(level, self.n_calibration_) > self.n_calibration_)

    def _note(self, level: float, proved: float) -> str | None:
        return None if proved else NO_GUARANTEE

    def _factor(self, level: float) -> float:
        if level not in self.factors_:
            self.factors_[level] = widening_factor(self._sample, level) if self.tuned else 1.0
        return self.factors_[level]


def widening_factor(points: FloatArray, coverage: float) -> float:
    """λ for points whose kernel is exp(−‖·‖²) at λ = 1; 0 if not even equal weights suffice."""
    n, level = len(points), as_fraction(coverage)
    needed, n_required = float(2 / (1 - level)), ceil(level * n)
    if n - 1 < needed:
        return 0.0
    squared = cdist(points, points, "sqeuclidean")
    squared = squared[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1)
    enough = _has_enough(squared, 1.0, needed)
    if enough.sum() >= n_required:
        return 1.0
    low, high = 0.5 * np.log(FLAT / squared[~enough].max()), 0.0  # has enough, has not
    for _ in range(N_STEPS):
        middle = (low + high) / 2
        if _has_enough(squared, np.exp(middle), needed).sum() >= n_required:
            low = middle
        else:
            high = middle
    return float(np.exp(low))


def _has_enough(squared: FloatArray, factor: float, needed: float) -> BoolArray:
    """Which rows of squared distances have ``needed`` effective neighbours at λ = ``factor``."""

    def one_block(rows: slice) -> BoolArray:
        exponent = squared[rows] * -(factor**2)
        exponent -= exponent.max(axis=1, keepdims=True)
        weight = np.exp(exponent)
        total = weight.sum(axis=1)
        entropy = np.log(total) - np.einsum("ij,ij->i", weight, exponent) / total
        return np.asarray(entropy >= np.log(needed))

    return np.concatenate(map_row_blocks(one_block, *squared.shape))
