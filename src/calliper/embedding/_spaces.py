"""The spaces themselves: each maps rows to coordinates, and most predict on the way.

Whatever is learnt here is learnt from the fitted model and from training rows. A scaler fitted
to the calibration rows would place them, and not the new row, at the centre of their own cloud:
new and calibration points would no longer be treated alike, and the proof of coverage needs that
they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.preprocessing import StandardScaler

from calliper._models import predictions
from calliper._types import FloatArray
from calliper.embedding._features import Filled, as_features
from calliper.embedding._opened import Opened

Predict = Callable[[Any], FloatArray]

#: Distance within which one row speaks for another where coordinates are in absolute units:
#: LENGTH · N^(−1/3), within the limits (experiments/nearness).
LENGTH, SHORTEST, LONGEST = 4.0, 0.25, 1.5


def absolute_length_scale(n: int) -> float:
    """The rule for n calibration rows."""
    return float(np.clip(LENGTH * n ** (-1 / 3), SHORTEST, LONGEST))


class Space(Protocol):
    """A way to place rows."""

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, if they come with the coordinates, and coordinates (m, d).

        ``predict`` is the model's own way, for spaces that need the prediction.
        """

    def length_scale(self, n: int) -> float | None:
        """Distance at which rows still speak for one another, for n calibration rows.

        None where coordinates have no unit of their own.
        """

    def on(self, opened: Opened) -> Space:
        """The same coordinates, in the same units, of another model of the same kind."""


class WithoutUnit:
    """Coordinates whose distances mean something else for every problem."""

    def length_scale(self, n: int) -> float | None:
        """Nobody knows."""
        return None


@dataclass(frozen=True)
class Mapped(WithoutUnit):
    """Whatever a function of the inputs, a transformer or a layer says; None for the inputs."""

    mapping: Callable[[Any], Any] | None
    scaler: StandardScaler | None
    name: str

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """The map's output."""
        if self.mapping is None:
            features = as_features(X, X)
        else:
            features = as_features(self.mapping(X), X, name="embed(X)")
        return None, _scaled(features, self.scaler)

    def on(self, opened: Opened) -> Mapped:
        """A map of the inputs asks no model."""
        return self


@dataclass(frozen=True)
class OneInput(WithoutUnit):
    """The only input of a model without a spread: predictions are a function of it."""

    opened: Opened
    filled: Filled
    scaler: StandardScaler | None
    name: str = "the one input"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """The input as the core is given it; gaps lie at the training median."""
        return None, _scaled(self.filled(self.opened.prepare(X)), self.scaler)

    def on(self, opened: Opened) -> OneInput:
        """As the other model is given it."""
        return replace(self, opened=opened)


@dataclass(frozen=True)
class Prediction(WithoutUnit):
    """The prediction alone, as it is: one number, or each of several quantiles."""

    name: str = "prediction"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """The prediction, twice."""
        y_pred = predict(X)
        return y_pred, y_pred.reshape(len(y_pred), -1)

    def on(self, opened: Opened) -> Prediction:
        """``predict`` is all that is asked."""
        return self


@dataclass(frozen=True)
class InputsAndPrediction:
    """Inputs of the core, standardised, and the prediction, each with the same weight.

    d standardised inputs are divided by √d: together they then weigh as much as the prediction,
    which would be drowned by many inputs otherwise.
    """

    opened: Opened
    n_outputs: int
    filled: Filled
    inputs: StandardScaler
    outputs: StandardScaler
    name: str

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Inputs are prepared once, for the core and for the coordinates."""
        rows, y_pred = prepared_and_predicted(self.opened, X, self.n_outputs)
        features = self.inputs.transform(self.filled(rows))
        columns = self.outputs.transform(y_pred.reshape(len(y_pred), -1))
        return y_pred, np.hstack([features / np.sqrt(features.shape[1]), columns])

    def length_scale(self, n: int) -> float | None:
        """Inputs together and prediction have a standard deviation of 1 each."""
        return absolute_length_scale(n)

    def on(self, opened: Opened) -> InputsAndPrediction:
        """The other model's predictions, in the units of this one's."""
        return replace(self, opened=opened)


@dataclass(frozen=True)
class Contributions(WithoutUnit):
    """What each input adds to a linear prediction, coefᵢ·xᵢ, and their sum: all in one unit."""

    opened: Opened
    name: str

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Only inputs that the model uses have a place."""
        rows, y_pred = prepared_and_predicted(self.opened, X, 1)
        weights = coefficients(self.opened.core)
        used = np.flatnonzero(weights)
        added = Filled(np.zeros(len(weights)))(rows)[:, used] * weights[used]
        return y_pred, np.column_stack([added, y_pred])

    def on(self, opened: Opened) -> Contributions:
        """The same units: those of y."""
        return Contributions(opened, self.name)


def prepared_and_predicted(opened: Opened, X: Any, n_outputs: int) -> tuple[Any, FloatArray]:
    """What the core is given, and what the whole model predicts: one pass."""
    rows = opened.prepare(X)
    return rows, opened.finish(predictions(opened.core, rows, n_outputs))


def _scaled(features: FloatArray, scaler: StandardScaler | None) -> FloatArray:
    return features if scaler is None else np.asarray(scaler.transform(features))


def coefficients(core: Any) -> FloatArray:
    """Coefficients of a linear model with one output, (d,)."""
    return np.asarray(core.coef_, dtype=np.float64).reshape(-1)
