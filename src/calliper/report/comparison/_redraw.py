"""What another calibration set would have said: every method again, on other draws of it.

Resampling the test points tells how much of a difference is the luck of the test set. The luck of
the calibration set is shared by all of them: a radius that happens to be too large makes its
method look bad on every test point alike. Here it is measured. All points are put together, and
two sets A and B of n points are drawn, R times over, without a point in common; each calibrates
every method, and scores are compared on points that are in neither. A mean varies as one over the
number of its points, so with D the difference of two methods' mean scores and N calibration points

    var D_N ≈ (n / N) · (1/R) Σ_r (D_A,r − D_B,r)² / 2 .

n is N where N is small and there are enough test points, which is where the luck of the
calibration set decides; else it goes down to N/2, the delete-half jackknife. The estimate has about
R degrees of freedom, which :mod:`._contest` allows for. Only the choice of a method uses these
draws: every number that is reported comes from the calibration set as it is.

Reference: J. Shao, C. Wu (1989), "A General Theory for Jackknife Variance Estimation", Annals of
Statistics, doi:10.1214/aos/1176347263.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.report.comparison._fit import ask
from calliper.report.comparison._points import Points
from calliper.report.comparison._scores import row_scores

#: Pairs of calibration sets that are drawn.
N_DRAWS = 6
#: Points that they are compared on; of fewer, their own noise would be the larger part.
MOST_ROWS = 3_000
#: Of more calibration points than these, a half behaves as the whole does.
LARGE = 1_000


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Mean interval scores of each method from each set, (R, 2, methods), at one level.

    Infinite where a set is too small for the level, or where the method failed on it. ``factor``
    is n / 2N.
    """

    scores: FloatArray
    factor: float

    def variance(self, a: int, b: int) -> float:
        """Of the difference of two methods' mean scores over calibration sets of N points."""
        pair = self.scores[:, :, [a, b]]
        if not np.isfinite(pair).all():
            return inf
        difference = pair[:, :, 1] - pair[:, :, 0]
        return self.factor * float(np.mean((difference[:, 0] - difference[:, 1]) ** 2))


def redraw(
    methods: Mapping[str, Any],
    calibration: Points,
    test: Points,
    levels: Sequence[float],
    training: Points | None,
    *,
    random_state: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[Redrawn]:
    """What other calibration sets say, one for each level."""
    rng = np.random.default_rng(random_state)
    known, pool = len(calibration), _together(calibration, test)
    size = min(known, max(known // 2, min(len(pool) // 4, LARGE)))
    scores = np.full((N_DRAWS, 2, len(levels), len(methods)), np.inf)
    for draw in range(N_DRAWS if size else 0):
        order = rng.permutation(len(pool))
        rest = pool.take(order[2 * size :][:MOST_ROWS])
        for side in (0, 1):
            drawn = pool.take(order[side * size : (side + 1) * size])
            for place, (name, calibrator) in enumerate(methods.items()):
                answer = ask(name, calibrator, drawn, rest, levels, training)
                if answer.intervals is None:
                    continue
                for row, level in enumerate(levels):
                    own = row_scores(rest.y, answer.at(level), level)
                    scores[draw, side, row, place] = own.mean()
        progress((draw + 1) / N_DRAWS)
    factor = size / (2 * known)
    return [Redrawn(scores[:, :, row], factor) for row in range(len(levels))]


def _together(calibration: Points, test: Points) -> Points:
    arrays = zip(
        (calibration.Z, calibration.y, calibration.y_pred),
        (test.Z, test.y, test.y_pred),
        strict=True,
    )
    Z, y, y_pred = (np.concatenate(pair) for pair in arrays)
    return Points(Z, y, y_pred, None, calibration.feature_names)
