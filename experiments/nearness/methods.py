"""What is compared: spaces and locality for our method, and the other methods of the library.

Each method is a function of a draw whose calibration part is cut to N rows, and gives radii, or
the two ends where they are not symmetric, at the levels asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.ensemble import HistGradientBoostingRegressor

from calliper import (
    KNN,
    ConformalRegressor,
    FullRescaled,
    Intervals,
    JackknifeRescaled,
    QuantileError,
    QuantilePair,
    Split,
)
from calliper.calibrators import LCP, RCP, SLCP, LoCart, MADSplit, NormalizedKNN
from calliper.kernels import ForestProximity
from experiments.nearness.problems import Draw

LEVELS = (0.8, 0.9, 0.95)
LEVEL = 0.9
REFERENCE = "split"
DEFAULT = "defaults"
TRAINING = "defaults, training rows"
REFITS = "defaults, training rows, five refits"
Method = Callable[[Draw, int], Intervals]


def around(
    calibrator: Any = None, *, embed: Any = "auto", training: bool = True, refits: int | None = None
) -> Method:
    """Intervals around the draw's model, with or without its training rows."""

    def intervals(draw: Draw, seed: int) -> Intervals:
        wrapped = ConformalRegressor(
            draw.model, calibrator, embed=embed, left_out_folds=refits, random_state=seed
        )
        known = {"X_train": draw.train.X, "y_train": draw.train.y} if training else {}
        wrapped.calibrate(draw.calibration.X, draw.calibration.y, **known)
        return wrapped.predict_interval(draw.test.X, LEVELS)

    return intervals


def conformal_quantile_regression(draw: Draw, seed: int) -> Intervals:
    """CQR: two quantiles by histogram boosting, for one level."""
    boosting = HistGradientBoostingRegressor(loss="quantile", random_state=seed)
    pair = QuantilePair(boosting, coverage=LEVEL).fit(draw.train.X, draw.train.y)
    wrapped = ConformalRegressor(
        pair, Split(), score_function=QuantileError(), embed="prediction", random_state=seed
    )
    wrapped.calibrate(draw.calibration.X, draw.calibration.y)
    return wrapped.predict_interval(draw.test.X, [LEVEL])


def forest_proximity(draw: Draw, seed: int) -> Intervals:
    """Shared leaves of the forest itself as nearness."""
    method = FullRescaled(ForestProximity(draw.model))
    return around(method, embed="inputs", training=False)(draw, seed)  # inputs as the trees split


#: Spaces and locality, at every N.
OURS: dict[str, Method] = {
    REFERENCE: around(Split(), embed="prediction", training=False),
    DEFAULT: around(training=False),
    TRAINING: around(),
    "auto, 30 nearest": around(FullRescaled(KNN(30))),
    "auto, 30 nearest, shrinkage 0.35": around(FullRescaled(KNN(30), shrinkage=0.35)),
    "prediction": around(embed="prediction", training=False),
    "inputs": around(embed="inputs"),
    "inputs, 10 nearest": around(FullRescaled(KNN(10)), embed="inputs"),
}

#: The other methods, with training errors: as their papers have it on standardised inputs, and in
#: the space that the library chooses.
OTHERS: dict[str, Method] = {
    "JackknifeRescaled": around(JackknifeRescaled(KNN(10)), embed="inputs"),
    "MADSplit, 10 nearest": around(MADSplit(), embed="inputs"),
    "MADSplit, boosted": around(MADSplit(HistGradientBoostingRegressor()), embed="inputs"),
    "NormalizedKNN": around(NormalizedKNN(), embed="inputs"),
    "SLCP": around(SLCP(), embed="inputs"),
    "RCP": around(RCP(), embed="inputs"),
    "LoCart": around(LoCart(), embed="inputs"),
    "LCP": around(LCP(), embed="inputs"),
    "JackknifeRescaled, auto": around(JackknifeRescaled(KNN(10))),
    "MADSplit, auto": around(MADSplit()),
    "NormalizedKNN, auto": around(NormalizedKNN()),
    "SLCP, auto": around(SLCP()),
    "RCP, auto": around(RCP()),
    "LoCart, auto": around(LoCart()),
    "CQR": conformal_quantile_regression,
}


def methods(n: int, model: str) -> dict[str, Method]:
    """All of them at N = 500, spaces and locality at the other sizes."""
    chosen = dict(OURS)
    if model != "forest":  # a forest's errors out of bag cost no refit
        chosen[REFITS] = around(refits=5)
    if n == 500:
        if model == "forest":
            chosen["forest proximity"] = forest_proximity
        chosen |= OTHERS
    return chosen
