"""The plain spaces: of inputs, of predictions, and of what a user's own map says.

Each maps rows to coordinates, and most predict on the way. Whatever is learnt here is learnt from
the fitted model and from training rows. A scaler fitted to the calibration rows would place them,
and not the new row, at the centre of their own cloud: new and calibration points would no longer
be treated alike, and the proof of coverage needs that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.preprocessing import StandardScaler

from calliper._kept import Array, Inline, Keeps, Number, Opened, Plain, Text
from calliper._models import OpenedModel, predictions
from calliper._types import FloatArray
from calliper._validation import check_features, n_rows, refuse_sparse
from calliper.exceptions import CalliperError
from calliper.space._encoding import ColumnEncoder

#: From rows to what the whole model predicts of them.
Predict = Callable[[Any], FloatArray]


@dataclass(frozen=True, eq=False)
class Standard(Keeps):
    """Columns in units of their standard deviation around their mean, as training rows have them.

    Attributes
    ----------
    mean, deviation : (d,), the deviation 1 where it would be 0
    """

    mean: FloatArray
    deviation: FloatArray

    keeps = {
        "mean": Array("float64", ("d",)),
        "deviation": Array("float64", ("d",), least=np.finfo(float).tiny),
    }

    @classmethod
    def of(cls, features: FloatArray) -> Standard:
        """Learnt from training rows."""
        learnt = StandardScaler().fit(features)
        return cls(learnt.mean_, learnt.scale_)

    def transform(self, features: FloatArray) -> FloatArray:
        """Rows in these units."""
        if features.shape[1] != len(self.mean):
            raise CalliperError(f"{len(self.mean)} columns are known; got {features.shape[1]}.")
        return np.asarray((features - self.mean) / self.deviation)


class Space(Protocol):
    """A way to place rows."""

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""

    @property
    def has_unit(self) -> bool:
        """Whether a distance means the same for every model and data set."""

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, if they come with the coordinates, and coordinates (m, d).

        ``predict`` is the model's own way, for spaces that need the prediction.
        """

    def with_model(self, opened: OpenedModel) -> Space:
        """The same coordinates, in the same units, of another model of the same kind."""


@dataclass(frozen=True, kw_only=True)
class Mapped(Keeps):
    """The output of a function of the inputs; the inputs themselves where there is none."""

    name: str
    mapping: Callable[[Any], Any] | None = None
    scaler: Standard | None = None

    has_unit = False
    keeps = {
        "name": Text(),
        "mapping": Plain("embed"),
        "encode": Inline(ColumnEncoder, optional=True),
        "scaler": Inline(Standard, optional=True),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds: an encoder, or what the user brings again."""
        own = isinstance(self.mapping, ColumnEncoder)
        known = {"name": self.name, "scaler": self.scaler}
        if own:
            return known | {"encode": self.mapping, "mapping": None}
        return known | {"encode": None, "mapping": self.transformer}

    @property
    def transformer(self) -> Any:
        """Whose ``transform`` is the mapping, or the function itself."""
        return getattr(self.mapping, "__self__", self.mapping)

    @classmethod
    def again(cls, state: dict[str, Any]) -> Mapped:
        """The map, by what the user brought."""
        encode, brought = state.pop("encode"), state.pop("mapping")
        if brought is not None and not callable(brought):
            brought = brought.transform
        return cls(mapping=brought if encode is None else encode, **state)

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """No predictions, and what the function says of each row."""
        if self.mapping is None:
            features = as_features(X, X)
        else:
            features = as_features(self.mapping(X), X, name="embed(X)")
        return None, _scaled(features, self.scaler)

    def with_model(self, opened: OpenedModel) -> Mapped:
        """The same space: it does not depend on the model."""
        return self


@dataclass(frozen=True)
class Untouched(Keeps):
    """Rows as they came, frames too, for methods that make something of their own of them."""

    name: str = "inputs as they are"

    has_unit = False

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, Any]:
        """No predictions, and the rows."""
        return None, X

    def with_model(self, opened: OpenedModel) -> Untouched:
        """The same space: it does not depend on the model."""
        return self


@dataclass(frozen=True, kw_only=True)
class OneInput(Keeps):
    """The only input of a model without a spread: predictions are a function of it."""

    opened: OpenedModel
    encode: ColumnEncoder
    scaler: Standard | None = None
    name: str = "the one input"

    has_unit = False
    keeps = {
        "opened": Opened(),
        "encode": Inline(ColumnEncoder),
        "scaler": Inline(Standard, optional=True),
    }

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """No predictions, and the input as the core is given it, gaps at the training median."""
        return None, _scaled(self.encode(self.opened.prepare(X)), self.scaler)

    def with_model(self, opened: OpenedModel) -> OneInput:
        """The input as the other model's core is given it."""
        return replace(self, opened=opened)


@dataclass(frozen=True)
class Prediction(Keeps):
    """The prediction alone, in ``units``: one number, or each of several targets or quantiles."""

    name: str = "prediction"
    units: Any = 1.0

    has_unit = False
    keeps = {"units": Array("float64", ("k",), least=np.finfo(float).tiny)}

    def for_file(self) -> dict[str, Any]:
        """What a file holds."""
        return {"units": np.atleast_1d(np.asarray(self.units, dtype=np.float64))}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Prediction:
        """One unit for all is a number."""
        units = state["units"]
        return cls(units=units if len(units) != 1 else float(units[0]))

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, and the same as columns (m, n_outputs)."""
        y_pred = predict(X)
        return y_pred, (y_pred if y_pred.ndim > 1 else y_pred[:, None]) / self.units

    def with_model(self, opened: OpenedModel) -> Prediction:
        """The same space: ``locate`` is given the model's way to predict."""
        return self


@dataclass(frozen=True, kw_only=True)
class InputsAndPrediction(Keeps):
    """Inputs of the core, standardised, and the prediction, each with the same weight.

    d standardised inputs are divided by √d: together they then weigh as much as the prediction,
    which would be drowned by many inputs otherwise. Both have a standard deviation of 1.
    """

    opened: OpenedModel
    n_outputs: int
    encode: ColumnEncoder
    inputs: Standard
    outputs: Standard

    has_unit = True
    keeps = {
        "opened": Opened(),
        "n_outputs": Number(int, 1),
        "encode": Inline(ColumnEncoder),
        "inputs": Inline(Standard),
        "outputs": Inline(Standard),
    }

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""
        return f"{self.encode.n_features} standardised inputs and prediction"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions and coordinates; inputs are prepared once for both."""
        rows, y_pred = prepared_and_predicted(self.opened, X, self.n_outputs)
        features = self.inputs.transform(self.encode(rows))
        columns = self.outputs.transform(y_pred.reshape(len(y_pred), -1))
        return y_pred, np.hstack([features / np.sqrt(features.shape[1]), columns])

    def with_model(self, opened: OpenedModel) -> InputsAndPrediction:
        """The other model's predictions, in the units of this one's."""
        return replace(self, opened=opened)


@dataclass(frozen=True, kw_only=True)
class Contributions(Keeps):
    """What each input adds to a linear prediction, coefᵢ·xᵢ, and their sum: all in one unit."""

    opened: OpenedModel
    name: str

    has_unit = False  # that of y, which means something else for every data set
    keeps = {"opened": Opened(), "name": Text()}

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, and a coordinate for each input that the model uses and for their sum."""
        rows, y_pred = prepared_and_predicted(self.opened, X, 1)
        weights = coefficients(self.opened.core)
        used = np.flatnonzero(weights)
        added = ColumnEncoder.of_numbers(len(weights))(rows)[:, used] * weights[used]
        return y_pred, np.column_stack([added, y_pred])

    def with_model(self, opened: OpenedModel) -> Contributions:
        """What inputs add to the other model's predictions."""
        return replace(self, opened=opened)


def prepared_and_predicted(opened: OpenedModel, X: Any, n_outputs: int) -> tuple[Any, FloatArray]:
    """What the core is given, and what the whole model predicts: one pass."""
    rows = opened.prepare(X)
    return rows, opened.finish(predictions(opened.core, rows, n_outputs))


def one_target(y: FloatArray) -> FloatArray:
    """(n,) targets as they are; of several, (n, k), the mean in units of their deviations."""
    if y.ndim == 1:
        return y
    deviation = y.std(axis=0)
    return np.asarray(((y - y.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)).mean(axis=1))


def coefficients(core: Any) -> FloatArray:
    """Coefficients of a linear model with one output, (d,)."""
    return np.asarray(core.coef_, dtype=np.float64).reshape(-1)


def _scaled(features: FloatArray, scaler: Standard | None) -> FloatArray:
    return features if scaler is None else scaler.transform(features)


def as_features(values: Any, X: Any, *, name: str = "X") -> FloatArray:
    """Features (m, d) that a map has made of the rows of ``X``; ``name`` is blamed for gaps."""
    table = _table(values, name)
    try:
        features = check_features(table, name)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise CalliperError(
            f"nearness needs numbers, but the inputs hold text ({error}): pass embed=, a "
            f"transformer or function that turns inputs into numbers, or 'prediction'."
        ) from error
    if len(features) != n_rows(X):
        raise CalliperError(
            f"embed turned {n_rows(X)} rows into {len(features)}; it must keep rows."
        )
    return features


def _table(values: Any, name: str) -> Any:
    refuse_sparse(values, name)
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values).reshape(-1, 1) if getattr(values, "ndim", 2) == 1 else values


#: Spaces that a file may hold, by what they are called there; others are added where they are.
SPACES: dict[str, Any] = {
    "mapped": Mapped,
    "inputs as they are": Untouched,
    "one input": OneInput,
    "prediction": Prediction,
    "inputs and prediction": InputsAndPrediction,
    "contributions": Contributions,
}
