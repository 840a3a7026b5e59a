"""Split conformal: one radius for every input.

The Q-th smallest calibration score, Q = ⌈(1−α)(N+1)⌉, bounds the score of a new point with
probability at least 1−α, since its rank among N+1 exchangeable scores is uniform:

    Δ = s_(Q),    P(s_{N+1} ≤ Δ) ≥ Q/(N+1) ≥ 1−α.

Letters: s → ``scores``, Q → ``conformal_rank``, Δ → the radius.

Guarantee: 1−α, marginal, for exchangeable data. Given the calibration set, coverage follows
Beta(Q, N+1−Q) if scores have no ties.

References: Papadopoulos, Proedrou, Vovk, Gammerman (2002), "Inductive confidence machines for
regression", doi:10.1007/3-540-36755-1_29. Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018),
doi:10.1080/01621459.2017.1307116.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_levels,
    check_new_features,
    each_level,
    like_coverage,
    warn_if_too_few,
)
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.quantile import conformal_rank, order_statistic


class Split(BaseEstimator):  # type: ignore[misc]
    """Plain split conformal: the same radius everywhere; takes any real score.

    Examples
    --------
    >>> split = Split().fit(np.zeros((9, 1)), np.arange(1.0, 10.0))
    >>> split.predict_radius([[0.0], [5.0]], coverage=[0.5, 0.9])
    array([[5., 9.],
           [5., 9.]])
    >>> split.guaranteed_coverage(0.9)
    0.9
    """

    needs: tuple[str, ...] = ()
    judges_nearness = False
    uses_left_out = False

    def fit(self, Z: Any, scores: Any) -> Self:
        """Learn the radius from the scores of the calibration points; ``Z`` only fixes columns."""
        _, scores = check_calibration(self, Z, scores)
        self.scores_ = np.sort(scores)
        self.n_calibration_ = len(scores)
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """The radius at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        n_new, n = len(check_new_features(self, Z)), self.n_calibration_
        levels = check_levels(coverage)
        warn_if_too_few(n, levels)
        radius = [order_statistic(self.scores_, conformal_rank(level, n)) for level in levels]
        return like_coverage(np.tile(radius, (n_new, 1)), coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("Split", coverage, self.n_calibration_, proved, has_law=True)
