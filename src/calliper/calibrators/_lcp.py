"""Localised conformal prediction (LCP; "LCR" in the paper): local quantiles, level corrected.

The quantile of calibration scores near a new point adapts to it but does not keep its level. So
every member of the bag, calibration points and new point with candidate score v, is asked for its
own local quantile, and the level α̃ is raised until enough of them lie below theirs:

    T_i = Σ_j H_ij 1{V_j < V_i} / Σ_j H_ij,    i = 1 … N+1,
    v is kept  iff  #{i : T_i ≥ T_{N+1}} > α(N+1),      radius = sup of the kept v.

V_i ≤ Q(α̃; F_i), the quantile of the scores around i, is the same as T_i < α̃: keeping v is the
search of α̃. It is exact and needs no grid.

Letters: V → ``scores``, H → ``localizer``, h → ``bandwidth``. The interval is closed, so that it
holds the supremum. It is never empty: the smallest calibration score is always kept. It is
infinite where too little weight lies on calibration points, as far away from all of them.

Guarantee: 1−α, marginal, for exchangeable data, since T treats all members of the bag alike and a
new point's T is among the Q smallest of N+1 with probability at least Q/(N+1). The bandwidth must
not depend on calibration scores.

Cost: O(N²d) to fit, O(Nd + N log N) for each new point and level; memory O(N) and a few blocks.

Reference: Guan (2023), "Localized conformal prediction: a generalized inference framework for
conformal prediction", Biometrika 110, doi:10.1093/biomet/asac040.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_calibration,
    check_levels,
    check_new_features,
    each_level,
    like_coverage,
    warn_if_too_few,
)
from calliper.calibrators._lcp_bandwidth import check_bandwidth, training_sample, tuned_bandwidth
from calliper.calibrators._lcp_localizers import LOCALIZERS, make_localizer
from calliper.calibrators._lcp_search import OrderedScores, largest_kept
from calliper.guarantees import Guarantee, conformal_coverage
from calliper.quantile import conformal_rank


class LCP(BaseEstimator):  # type: ignore[misc]
    """Localised conformal prediction, guarantee 1 − α; takes any real score.

    Parameters
    ----------
    localizer : {"exponential", "gaussian", "neighbors"}, default "exponential"
        How weight falls with distance: exp(−D/h), exp(−D²/2h²), or one for the h nearest.
    bandwidth : float or "auto", default "auto"
        h, in the unit of the features, or a number of neighbours. ``"auto"`` is chosen on
        training errors, which must then be passed to ``fit``, for each level that is asked for;
        the radius then need not grow with the level.
    random_state : int, RandomState or None
        Settles ties in distance between neighbours; draws the training points to tune on.

    Attributes
    ----------
    bandwidths_ : dict of the bandwidth of each level that was asked for
    n_calibration_ : N

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(500, 1))
    >>> errors = abs(rng.normal(size=500)) * Z[:, 0]
    >>> method = LCP(bandwidth=0.1).fit(Z, errors)
    >>> method.predict_radius([[0.1], [0.9]], coverage=0.9).round(2)
    array([0.25, 1.28])
    >>> method.guaranteed_coverage(0.9)
    0.9001996007984032
    """

    judges_nearness = True
    uses_left_out = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what ``fit`` cannot do without."""
        auto = isinstance(self.bandwidth, str)
        return ("Z_train", "scores_train") if auto else ()

    def __init__(
        self,
        localizer: str | None = None,
        *,
        bandwidth: float | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.localizer = localizer
        self.bandwidth = bandwidth
        self.random_state = random_state

    def fit(self, Z: Any, scores: Any, *, Z_train: Any = None, scores_train: Any = None) -> Self:
        """Weigh the calibration points against one another.

        Parameters
        ----------
        Z : (N, d) features in which nearness is judged
        scores : (N,)
        Z_train, scores_train : (n, d) and (n,), needed for ``bandwidth="auto"``
            Training inputs and errors, best of models that have not seen those points.
        """
        Z, scores = check_calibration(self, Z, scores)
        n, rng = len(scores), check_random_state(self.random_state)
        self.localizer_ = "exponential" if self.localizer is None else self.localizer
        if self.localizer_ not in LOCALIZERS:
            raise ValueError(f"localizer must be one of {[*LOCALIZERS]}; got {self.localizer!r}.")
        fixed = check_bandwidth(self.bandwidth, self.localizer_, n)
        order = np.argsort(scores, kind="stable")
        self.points_, self.ordered_ = Z[order], OrderedScores(scores[order])
        self.priorities_ = rng.uniform(size=n + 1)
        self.priorities_[:-1] = self.priorities_[order]
        self.n_calibration_ = n
        self.bandwidths_: dict[float, float] = {}
        self._at_bandwidth: dict[float, Any] = {}
        self._fixed, self._seed = fixed, rng.randint(2**31)
        if fixed is None:
            self._training = training_sample(Z, Z_train, scores_train, rng)
        else:
            self._localizer(fixed)
        return self

    def predict_radius(self, Z: Any, coverage: Coverage = 0.9) -> FloatArray:
        """The largest score kept at each row: (m,), or (m, L) for a list of L levels."""
        check_is_fitted(self)
        Z, n = check_new_features(self, Z), self.n_calibration_
        levels = check_levels(coverage)
        warn_if_too_few(n, levels)
        radius = np.full((len(Z), len(levels)), np.inf)
        columns_of: dict[float, list[int]] = {}
        for column, level in enumerate(levels):
            if conformal_rank(level, n) <= n:
                columns_of.setdefault(self._bandwidth(level), []).append(column)
        for bandwidth, columns in columns_of.items():
            ranks = [conformal_rank(levels[column], n) for column in columns]
            radius[:, columns] = self._thresholds(Z, bandwidth, ranks)
        return like_coverage(radius, coverage)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several; at least 1 − α."""
        check_is_fitted(self)
        return each_level(conformal_coverage, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        return Guarantee("LCP", coverage, self.n_calibration_, proved)

    def _thresholds(self, Z: FloatArray, bandwidth: float, ranks: list[int]) -> FloatArray:
        localizer, ordered, scratch = self._localizer(bandwidth), self.ordered_, Scratch()

        def one_block(rows: slice) -> FloatArray:
            weight, share, with_new = localizer.compare(Z[rows], scratch)
            return largest_kept(ordered, weight, share, with_new, ranks, scratch)

        return np.concatenate(map_row_blocks(one_block, len(Z), 4 * len(ordered)))

    def _localizer(self, bandwidth: float) -> Any:
        if bandwidth not in self._at_bandwidth:
            self._at_bandwidth[bandwidth] = make_localizer(
                self.localizer_, self.points_, self.ordered_, bandwidth, self.priorities_
            )
        return self._at_bandwidth[bandwidth]

    def _bandwidth(self, level: float) -> float:
        if self._fixed is not None:
            return self.bandwidths_.setdefault(level, self._fixed)
        if level not in self.bandwidths_:
            Z, scores = self._training
            rng = check_random_state(self._seed)
            tuned = tuned_bandwidth(self.localizer_, Z, scores, level, rng)
            self.bandwidths_[level] = tuned
        return self.bandwidths_[level]
