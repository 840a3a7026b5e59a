"""Locally valid and discriminative intervals (LVD): a local quantile in a learnt metric.

A metric A is learnt on training inputs and labels so that near points have near labels. The
radius of a new point is the weighted quantile of calibration scores, its own mass K(x, x) = 1 at
infinity. Nothing else happens: no level is corrected.

    K(x, x') = exp(−‖A(x − x')‖² / d),
    Δ(x) = first s_k in order with Σ_{i≤k} K(x, X_i) ≥ (1−α) (Σ_i K(x, X_i) + 1),  +∞ if none.

The paper finds A too large in many dimensions, so that most intervals are infinite. ``tuned=True``
is its remedy: λA with the largest λ ≤ 1 for which at least 1−α of a training sample have an
effective number of neighbours exp H(w) ≥ 2/α, H the entropy of their weights w to the others. λ
depends on the level and is computed once for each.

Letters: s → ``scores``, A → ``metric_``, d → ``n_directions``, λ → ``factors_``.

Guarantee: none that is marginal and holds for finite N; ``guaranteed_coverage`` is 0. Coverage is
1−α for a new point drawn from the kernel around x, not from the law of the data (the "baseLCP" of
Hore and Barber). In practice it covers too much, with many infinite intervals; count them.

Cost: O(n²d + npd) for each step of learning on n ≤ 2,000 rows of p features, then O(N(d + log N))
to fit and O(Nd + pd) for each new point and level.

References: Lin, Trivedi, Sun (2021), "Locally valid and discriminative prediction intervals for
deep learning models", NeurIPS, arXiv:2106.00225. λ: Deutschmann, Rigotti, Rodríguez Martínez
(2024), "Adaptive Conformal Regression with Jackknife+ Rescaled Scores", TMLR, §5.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_features,
    check_levels,
    check_new_features,
    each_level,
    like_coverage,
    warn_if_too_few,
)
from calliper.calibrators._lvd_tuning import widening_factor
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.kernels import EUCLIDEAN, RadialExponents, learn_metric
from calliper.quantile import conformal_rank, weighted_quantiles_in_blocks

#: Most training points that λ is computed from.
MOST_POINTS = 2000

NO_GUARANTEE = (
    "no probability of covering a new target is proved for a finite number of calibration points. "
    "The local quantile is exact only for a new point drawn from the kernel around its own input, "
    "not for one drawn like the calibration points. Coverage is usually above the level, bought "
    "with intervals that are infinite where too few calibration points are near; count them. For "
    "a guarantee with local weights use LCP or RLCP."
)


class LVD(BaseEstimator):  # type: ignore[misc]
    """Local quantile in a metric learnt on training data; no marginal guarantee.

    Takes any real score.

    Parameters
    ----------
    tuned : bool, default False
        Whether to widen the kernel until most training points have 2/α effective neighbours. If
        not even equal weights give them that many, weights are equal: split conformal.
    n_directions, smoothing, max_iter
        See :func:`calliper.kernels.learn_metric`.
    random_state : int, RandomState or None
        Draws where learning starts, and the training sample that ``tuned`` uses.

    Attributes
    ----------
    metric_ : LearntMetric
    factors_ : dict of λ for each level that was asked for
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(2, 500, 1))
    >>> y = np.sin(6 * Z[..., 0]) + rng.normal(size=(2, 500)) * 0.3 * Z[..., 0]
    >>> errors = abs(y[1] - np.sin(6 * Z[1, :, 0]))
    >>> method = LVD(random_state=0).fit(Z[1], errors, Z_train=Z[0], y_train=y[0])
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.05, 0.39])
    >>> method.guaranteed_coverage(0.9)
    0.0
    """

    needs: tuple[str, ...] = ("Z_train", "y_train")
    judges_nearness = True
    uses_left_out = False

    def __init__(
        self,
        *,
        tuned: bool = False,
        n_directions: int = 10,
        smoothing: float = 1.0,
        max_iter: int = 500,
        random_state: Any = None,
    ) -> None:
        self.tuned = tuned
        self.n_directions = n_directions
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, y_train: Any = None) -> Self:
        """Learn the metric on training inputs and labels, then sort the calibration points.

        Parameters
        ----------
        Z : (N, p) features in which nearness is judged
        scores : (N,)
        Z_train, y_train : (n, p) and (n,)
            Training inputs and their labels: labels, not errors.
        """
        Z, scores = check_calibration(self, Z, scores)
        if Z_train is None or y_train is None:
            raise CalliperError(
                "LVD learns its metric on training data: pass Z_train and y_train, the labels, to "
                "fit (X_train and y_train to ConformalRegressor.calibrate). Without training data, "
                "use LCP with a bandwidth, or FullRescaled."
            )
        train = check_features(Z_train, "Z_train")
        if train.shape[1] != Z.shape[1]:
            raise CalliperError(f"Z_train has {train.shape[1]} columns, Z has {Z.shape[1]}.")
        rng = check_random_state(self.random_state)
        self.metric_ = learn_metric(
            train,
            y_train,
            n_directions=self.n_directions,
            smoothing=self.smoothing,
            max_iter=self.max_iter,
            random_state=rng,
        )
        sample = rng.permutation(len(train))[: min(len(Z), MOST_POINTS)]
        self._sample = self.metric_.transform(train[sample])
        order = np.argsort(scores, kind="stable")
        self.scores_, self.points_ = scores[order], self.metric_.transform(Z[order])
        self.n_calibration_ = len(scores)
        self.factors_: dict[float, float] = {}
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """Δ at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        queries = self.metric_.transform(check_new_features(self, Z))
        levels = check_levels(coverage)
        warn_if_too_few(self.n_calibration_, levels)
        radius = np.empty((len(queries), len(levels)))
        columns_of: dict[float, list[int]] = {}
        for column, level in enumerate(levels):
            columns_of.setdefault(self._factor(level), []).append(column)
        for factor, columns in columns_of.items():
            asked = [levels[column] for column in columns]
            radius[:, columns] = self._quantiles(queries, factor, asked)
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """0: nothing is proved, unless N is so small that every interval is infinite."""
        check_is_fitted(self)
        return each_level(_proved, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """That there is none; ``.describe()`` says so in words."""
        proved = float(self.guaranteed_coverage(coverage))
        note = None if proved else NO_GUARANTEE
        return Guarantee("LVD", coverage, self.n_calibration_, proved, note=note)

    def _quantiles(self, queries: FloatArray, factor: float, levels: list[float]) -> FloatArray:
        length_scale = np.sqrt(0.5) / factor if factor else np.inf
        exponents = RadialExponents(self.points_, length_scale, EUCLIDEAN)

        def weigh(rows: slice, out: FloatArray) -> tuple[FloatArray, FloatArray]:
            exponent, constant = exponents.to(queries[rows], out=out)
            exponent -= constant[:, None]
            return np.exp(exponent, out=exponent), np.ones(len(exponent))

        return weighted_quantiles_in_blocks(self.scores_, weigh, len(queries), levels)

    def _factor(self, level: float) -> float:
        if level not in self.factors_:
            self.factors_[level] = widening_factor(self._sample, level) if self.tuned else 1.0
        return self.factors_[level]


def _proved(coverage: float, n: int) -> float:
    return float(conformal_rank(coverage, n) > n)
