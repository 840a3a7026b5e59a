"""Locally valid and discriminative intervals (LVD): a local quantile in a learnt metric.

A metric A is learnt on training inputs and labels so that near points have near labels. The radius
of a new point is the weighted quantile of calibration scores, its own mass K(x, x) = 1 at infinity.
The level is not corrected.

    K(x, x') = exp(−‖A(x − x')‖² / d),
    Δ(x) = first s_k in order with Σ_{i≤k} K(x, X_i) ≥ (1−α) (Σ_i K(x, X_i) + 1),  +∞ if none.

The paper finds A too large in many dimensions, so that most intervals are infinite. ``tuned=True``
is its remedy: λA with the largest λ ≤ 1 for which at least 1−α of a training sample have an
effective number of neighbours exp H(w) ≥ 2/α, H the entropy of their weights w to the others. λ
depends on the level, so radii need not grow with the level. H falls as λ grows, so λ is found by
bisection on log λ.

Letters: s → ``scores``, A → ``metric_``, d → ``n_directions``, λ → ``factors_``.

Guarantee: none that is marginal and holds for finite N; ``guaranteed_coverage`` is 0. Coverage is
1−α for a new point drawn from the kernel around x, not from the distribution of the data (the
"baseLCP" of Hore and Barber). In practice it covers too much, with many infinite intervals.

References: Lin, Trivedi, Sun (2021), "Locally valid and discriminative prediction intervals for
deep learning models", NeurIPS, arXiv:2106.00225. λ: Deutschmann, Rigotti, Rodríguez Martínez
(2024), "Adaptive Conformal Regression with Jackknife+ Rescaled Scores", TMLR, §5.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state

from calliper._blocks import map_row_blocks
from calliper._kept import Array, Field, Inline
from calliper._types import BoolArray, FloatArray
from calliper.calibrators._calibrator import MOST_POINTS, Calibrator, columns_by
from calliper.declarations import About, Uses
from calliper.kernels import EUCLIDEAN, LearntMetric, RadialExponents, RadialQuantile, learn_metric
from calliper.quantile import Shares, as_fraction, conformal_rank
from calliper.rows import Rows

#: Steps of the bisection that finds λ.
N_STEPS = 40
#: Exponents no larger than this make weights equal.
FLAT = 1e-9

NO_GUARANTEE = (
    "no probability of covering a new target is proved for a finite number of calibration points. "
    "The local quantile is exact only for a new point drawn from the kernel around its own input. "
    "Coverage is usually above the level, bought with infinite intervals where few points are "
    "near. For a guarantee with local weights use LCP or RLCP."
)


@dataclass(eq=False, repr=False)
class LVD(Calibrator):
    """Local quantile in a metric learnt on training data; no marginal guarantee.

    Takes any real score.

    Parameters
    ----------
    tuned : bool, default False
        Whether to widen the kernel until most training points have 2/α effective neighbours. If
        not even equal weights give them that many, weights are equal: split conformal.
    n_directions, smoothing, max_iter
        See :func:`calliper.kernels.learn_metric`.
    metric : LearntMetric, optional
        From :func:`calliper.kernels.learn_metric` on the same training rows; learnt in
        ``fit`` if it is None.
    random_state : int, RandomState or None
        Draws where learning starts, and the training sample that ``tuned`` uses.

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
        cost="O(n² + n d) a step of learning, n ≤ 2,000; O(N + d) a new row and level",
        order=13,
    )
    takes_any_score = True
    rounded = True
    learns: ClassVar[Mapping[str, Field]] = {
        "metric_": Inline(LearntMetric),
        "sample_": Array("int32", ("s",), least=0, most="n", becomes="int64"),
    }

    _: KW_ONLY
    tuned: bool = False
    n_directions: int = 10
    smoothing: float = 1.0
    max_iter: int = 500
    metric: LearntMetric | None = None
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        train, rng = self._training, check_random_state(self.random_state)
        n, how = min(len(rows.Z), MOST_POINTS), ("n_directions", "smoothing", "max_iter")
        asked = {name: getattr(self, name) for name in how}
        self.metric_ = self._once(
            "metric_",
            lambda: self.metric or learn_metric(train.Z, train.targets, random_state=rng, **asked),
        )
        self.sample_ = self._once("sample_", lambda: rng.permutation(len(train.Z))[:n])
        self._sample = self.metric_.transform(train.Z[self.sample_])
        order = np.argsort(rows.scores)
        self.scores_, self.points_ = rows.scores[order], self.metric_.transform(rows.Z[order])
        self.factors_: dict[float, float] = {}

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        queries = self.metric_.transform(Z)
        radius, own = np.empty((len(Z), len(levels))), np.zeros(len(Z))
        for factor, columns in columns_by(self._factor, levels).items():
            length_scale = np.sqrt(0.5) / factor if factor else np.inf
            exponents = RadialExponents(self.points_, length_scale, EUCLIDEAN)
            asked = [levels[column] for column in columns]
            radius[:, columns] = RadialQuantile(exponents, self.scores_)(queries, asked, own)
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
