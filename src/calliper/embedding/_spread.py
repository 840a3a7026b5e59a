"""Prediction and spread: the numbers in which the error of most models lives.

A model that is made of many, or that states a standard deviation, knows better than its inputs
where it is unsure. Coordinates, for prediction m, spread v, unit u and weight w:

    m / u,   w · log(v / u + floor).

Errors grow in proportion to the spread, hence the logarithm; u is about the standard deviation of
the targets that the model was trained on, so that nothing depends on the unit of y. The logarithm
is *not* divided by its own deviation: where a spread hardly varies it has little to say, and should
not decide who is near (docs/nearness.md has the figures). u is told by a model that was fitted to
squared errors, else it is that of the training targets, else what the model lets guess, else the
deviation of its predictions of training rows. Known to none, the spread alone is the place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calliper._models import predictions
from calliper._types import FloatArray
from calliper.embedding._opened import Opened
from calliper.embedding._spaces import Predict, absolute_length_scale


def untold(core: Any) -> float | None:
    """What a model says that keeps no unit."""
    return None


@dataclass(frozen=True)
class Source:
    """Where a kind of model keeps its spread: plain functions of the fitted core."""

    #: Whether the core is of this kind, by the look of it.
    suits: Callable[[Any], bool]
    #: Whether the core's class is known to predict what ``measure`` says that it does.
    known: Callable[[Any], bool]
    #: Prediction (m,) and spreads (k, m) of prepared rows, all in the unit of y, in one pass.
    measure: Callable[[Any, Any], tuple[FloatArray, FloatArray]]
    #: Standard deviation of what the core was trained on, None if it does not tell.
    unit: Callable[[Any], float | None]
    #: What the spread is, in words.
    describe: Callable[[Any], str]
    #: About that deviation, for losses other than the square; mostly less.
    guess: Callable[[Any], float | None] = untold
    #: Weight of the logarithm of each spread, the prediction having 1.
    weights: tuple[float, ...] = (2.0,)
    #: Spreads below this part of the unit are all alike: near 0, logarithms would tell rounding.
    floor: float = 0.01


@dataclass(frozen=True)
class PredictionAndSpread:
    """The space of a model that has a spread."""

    opened: Opened
    source: Source
    unit: float | None
    #: Whether what the source gives as prediction is the model's own; else the model is asked.
    predicts: bool = True

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""
        spread = self.source.describe(self.opened.core)
        known = [] if self.unit is None else ["prediction"]
        return " and ".join([*known, *([spread] if spread else [])])

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Prediction and coordinates, in one pass over a model whose code is known."""
        return self.place(self.opened.prepare(X), X, predict)

    def place(self, rows: Any, X: Any, predict: Predict) -> tuple[FloatArray, FloatArray]:
        """Prediction and coordinates of ``X``, of which ``rows`` are prepared for the core."""
        mean, spreads = self.source.measure(self.opened.core, rows)
        y_pred = self.opened.finish(mean) if self.predicts else predict(X)
        return y_pred, self.coordinates(mean, spreads)

    def coordinates(self, mean: FloatArray, spreads: FloatArray) -> FloatArray:
        """All numbers on one scale, (m, 1 + k); without a unit the first spread alone, (m, 1)."""
        if self.unit is None:
            return np.asarray(spreads[0][:, None])
        weights = np.array(self.source.weights[: len(spreads)])
        logarithms = weights[:, None] * np.log(spreads / self.unit + self.source.floor)
        return np.asarray(np.column_stack([mean / self.unit, *logarithms]))

    def length_scale(self, n: int) -> float | None:
        """Coordinates are in absolute units, so that a distance means the same for every model."""
        return None if self.unit is None else absolute_length_scale(n)

    def on(self, opened: Opened) -> PredictionAndSpread:
        """Another model's numbers in the units of this one."""
        return replace(self, opened=opened)


def _bare(core: Any, rows: Any) -> tuple[FloatArray, FloatArray]:
    y_pred = predictions(core, rows)
    return y_pred, np.empty((0, len(y_pred)))


def _any(core: Any) -> bool:
    return True


def _nothing(core: Any) -> str:
    return ""


#: A model that has no spread; plain functions, since a space must pickle.
BARE = Source(_any, _any, _bare, untold, _nothing)


def spread_space(
    opened: Opened, source: Source, X_train: Any, y_train: FloatArray | None
) -> PredictionAndSpread:
    """The space, with its unit from the model, else from training rows, else without."""
    unit = _unit(opened, source, X_train, y_train)
    known = unit is not None and np.isfinite(unit) and unit > 0
    return PredictionAndSpread(opened, source, unit if known else None, source.known(opened.core))


def _unit(opened: Opened, source: Source, X_train: Any, y_train: FloatArray | None) -> float | None:
    unit = source.unit(opened.core)
    if unit is None and y_train is not None:
        unit = float(opened.aim(y_train).std())
    if unit is None:
        unit = source.guess(opened.core)
    if unit is None and X_train is not None:
        unit = float(source.measure(opened.core, opened.prepare(X_train))[0].std())
    return unit
