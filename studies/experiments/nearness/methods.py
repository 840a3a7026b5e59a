"""What is compared: spaces and locality for our method, and the other methods of the library.

Each method is a function of a draw whose calibration part is cut to N rows, and gives radii, or
the two ends where they are not symmetric, at the levels asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sklearn.ensemble import HistGradientBoostingRegressor

from calliper import (
    KNN,
    AbsoluteError,
    ConformalRegressor,
    FullRescaled,
    Intervals,
    JackknifeRescaled,
    QuantileError,
    QuantileModel,
    Split,
)
from calliper.calibrators import RCP, SLCP, LoCart, MADSplit, NormalizedKNN
from calliper.space import (
    Embedding,
    ErrorModel,
    LeftOut,
    Training,
    fit_embedding,
    learn_errors,
)
from studies.experiments.nearness.problems import Draw

LEVELS = (0.8, 0.9, 0.95)
LEVEL = 0.9
REFERENCE = "split"
DEFAULT = "three lines"
ALL_ROWS = "all rows calibrate"
REFITS = "left-out errors"
Method = Callable[[Draw, int], Intervals]


def around(calibrator: Any = None, *, training: bool = False, **how: Any) -> Method:
    """Intervals around the draw's model, with or without its training rows."""

    def intervals(draw: Draw, seed: int) -> Intervals:
        wrapped = ConformalRegressor(draw.model, calibrator, random_state=seed, **how)
        known = {"X_train": draw.train.X, "y_train": draw.train.y} if training else {}
        wrapped.calibrate(draw.calibration.X, draw.calibration.y, **known)
        return wrapped.predict_interval(draw.test.X, LEVELS)

    return intervals


@dataclass(frozen=True, kw_only=True)
class TrainedOnce(Training):
    """Training rows whose left-out errors are computed once for all that ask."""

    known: dict[str, LeftOut | None] = field(default_factory=dict)

    def left_out(self, embedding: Embedding) -> LeftOut | None:
        """What models that were not trained on them say of training rows."""
        if "rows" not in self.known:
            self.known["rows"] = super().left_out(embedding)
        return self.known["rows"]


def with_left_out_errors(errors: ErrorModel) -> Method:
    """``ConformalRegressor`` with five refits, or errors out of bag, in its single steps.

    What does not depend on the calibration rows is done once for a draw and all N.
    """

    def intervals(draw: Draw, seed: int) -> Intervals:
        kept = draw.kept
        if "training" not in kept:
            X, y = draw.train.X, draw.train.y
            kept["training"] = TrainedOnce(X=X, y=y, n_refits=5, random_state=seed)
            kept["space"] = fit_embedding("auto", X, draw.test.X, model=draw.model, y_train=y)
        if repr(errors) not in kept:
            kept[repr(errors)] = learn_errors(
                kept["training"],
                kept["training"].left_out(kept["space"]),
                kept["space"],
                AbsoluteError(),
                errors,
                chosen=True,
            )
        embedding, score, left_out = kept[repr(errors)]
        y_pred, Z = embedding.predict_and_transform(draw.calibration.X)
        scores = score.measure(draw.calibration.y, y_pred)
        length = embedding.length_scale(len(scores))
        method = FullRescaled(random_state=seed)
        method.fit(Z, scores, length_scale=length, left_out=left_out)
        y_pred, Z = embedding.predict_and_transform(draw.test.X)
        radius = method.predict_radius(Z, LEVELS)
        lower, upper = score.invert(y_pred[:, None], radius)
        return Intervals(lower, upper, LEVELS)

    return intervals


def conformal_quantile_regression(draw: Draw, seed: int) -> Intervals:
    """CQR: two quantiles by histogram boosting, for one level."""
    boosting = HistGradientBoostingRegressor(loss="quantile", random_state=seed)
    pair = QuantileModel(boosting, [0.05, 0.95]).fit(draw.train.X, draw.train.y)
    wrapped = ConformalRegressor(
        pair, Split(), score_function=QuantileError(), embed="prediction", random_state=seed
    )
    wrapped.calibrate(draw.calibration.X, draw.calibration.y)
    return wrapped.predict_interval(draw.test.X, [LEVEL])


#: At every N.
OURS: dict[str, Method] = {
    REFERENCE: around(Split(), embed="prediction"),
    DEFAULT: around(),
    ALL_ROWS: around(learning_part=None),
    REFITS: with_left_out_errors(ErrorModel()),
}

#: At N = 500: a space, and the other methods with training errors, as their papers have it, on
#: standardised inputs.
OTHERS: dict[str, Method] = {
    "prediction": around(embed="prediction", learning_part=None),
    "inputs, 10 nearest": around(FullRescaled(KNN(10)), embed="inputs"),
    "JackknifeRescaled": around(JackknifeRescaled(KNN(10)), embed="inputs"),
    **{
        type(method).__name__: around(method, embed="inputs", training=True)
        for method in (MADSplit(), NormalizedKNN(), SLCP(), RCP(), LoCart())
    },
    "CQR": conformal_quantile_regression,
}


def methods(n: int, model: str) -> dict[str, Method]:
    """Ours; at N = 500, and around two unlike models, the others too."""
    return OURS | (OTHERS if n == 500 and model in ("forest", "ridge") else {})
