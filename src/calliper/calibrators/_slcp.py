"""SLCP: split conformal around a local quantile of training errors.

The training errors near x suggest how large an error to expect there: their kernel-weighted
quantile at the level asked for. Calibration scores are measured from it, and their conformal
threshold corrects it by the same amount everywhere:

    Q̂(x) = inf{v : Σ_j w_j(x) 1{V_j ≤ v} ≥ 1−α},  w_j(x) = K(x, X_j) / Σ_l K(x, X_l),
    Δ(x) = Q̂(x) + q,   q = Q-th smallest of s_i − Q̂(X_i),   Q = ⌈(1−α)(N+1)⌉.

Letters: V_j, X_j → errors and inputs of ``training`` (n of them), K → ``kernel``, s_i → ``scores``,
Q̂ → ``local_``, q → the threshold. Every training point keeps its own error, and the same errors
serve calibration and new points, which published code gets wrong. Of K nearest, Q̂ is the
⌈(1−α)K⌉-th smallest; points just as far as the K-th share its place. The weights reach the level up
to 1e-12 of their sum.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties. Δ below 0 would be an empty interval,
so it is raised to 0 unless some calibration score is negative; this only adds coverage.

Reference: Han, Tang, Ghosh, Liu (2023), "Split localized conformal prediction", arXiv:2206.13092.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from calliper._kept import Field, Part
from calliper._types import FloatArray
from calliper.calibrators._calibrator import Calibrator, fixed_kernel
from calliper.declarations import About, Uses
from calliper.kernels import KNN
from calliper.quantile import Shares, above
from calliper.rows import Rows


class SLCP(Calibrator):
    """Split conformal localised by a kernel quantile of training errors; takes any real score.

    Each level has its own local quantile: with few points, radii need not grow with the level.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(20)
        Which training errors count at x. A quantile needs more neighbours than a mean: with K of
        them, a level above 1 − 1/K takes their largest error. A tuned kernel is tuned on the
        sizes of the training errors.
    random_state : int, RandomState or None
        Draws training rows that a tuned kernel is tuned on.

    Attributes
    ----------
    local_ : the local quantile of training errors, a function of rows and levels

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = SLCP(KNN(50)).fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.46])
    """

    uses = Uses("weights", needs=("training", "errors"), learns="local quantiles")
    about = About(
        cli="slcp",
        width="a local quantile of training errors, plus a constant",
        when="if the shape of errors changes, not only their size",
        cost="neighbours of N + M rows among n",
        order=7,
        neighbors="kernel",
        usual_neighbors="20",
    )
    takes_any_score = True
    has_law = True
    rounded = True
    learns: ClassVar[Mapping[str, Field]] = {"kernel_": Part("kernels")}

    def __init__(self, kernel: Any = None, *, random_state: Any = None) -> None:
        self.kernel = kernel
        self.random_state = random_state

    def _learn(self, rows: Rows) -> None:
        train, rng = self._training, check_random_state(self.random_state)
        sizes = np.abs(train.scores)
        self.kernel_ = self._once(
            "kernel_", lambda: fixed_kernel(self.kernel, KNN(20), train.Z, sizes, rng)
        ).resolved()
        self.local_ = self.kernel_.local_quantile(train.Z, train.scores)
        self._thresholds = {}

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        radius = above(self.local_(Z, levels), self._level_thresholds(levels, shares))
        return np.maximum(radius, 0.0) if self._rows.scores.min() >= 0 else radius

    def _at_levels(self, levels: list[float]) -> FloatArray:
        return np.asarray(self._rows.scores[:, None] - self.local_(self._rows.Z, levels))
