"""The spaces: of inputs, of predictions, of a model's spread, and of what a user's own map says.

Each maps rows to coordinates, and most predict on the way. Whatever is learnt here is learnt from
the fitted model and from training rows. A scaler fitted to the calibration rows would place them,
and not the new row, at the centre of their own cloud: new and calibration points would no longer
be treated alike, and the proof of coverage needs that they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np
from sklearn.preprocessing import StandardScaler

from calliper._kept import Array, Field, Inline, Keeps, Number, Opened, Part, Plain, Text
from calliper._types import FloatArray
from calliper._validation import check_features, n_rows, refuse_sparse, shape_of
from calliper.exceptions import CalliperError
from calliper.models import Layer, OpenedModel, coefficients, is_module, is_tensor, predictions
from calliper.space._encoding import ColumnEncoder

#: From rows to what the whole model predicts of them.
Predict = Callable[[Any], FloatArray]


@dataclass(frozen=True, eq=False)
class Scaling(Keeps):
    """Features in units of their deviations among training rows, (d,) each."""

    centre: Annotated[FloatArray, Array("float64", ("d",))]
    scale: Annotated[FloatArray, Array("float64", ("d",), least=np.finfo(float).tiny)]

    @classmethod
    def learn(cls, features: FloatArray) -> Self:
        """Mean and deviation; 1 for what does not vary."""
        fitted = StandardScaler().fit(features)
        return cls(fitted.mean_, fitted.scale_)

    def __call__(self, features: FloatArray) -> FloatArray:
        if features.shape[1] != len(self.centre):
            raise CalliperError(f"{len(self.centre)} columns are known; got {features.shape[1]}.")
        return np.asarray((features - self.centre) / self.scale)


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

    def with_model(self, opened: OpenedModel) -> Self:
        """The same coordinates, in the same units, of another model of the same kind."""


class OfAnyModel(Keeps):
    """A space that stays as it is for another model, and whose distances have no unit."""

    has_unit = False

    def with_model(self, opened: OpenedModel) -> Self:
        """The same space."""
        return self


@dataclass(frozen=True, kw_only=True)
class Mapped(OfAnyModel):
    """What a function or a fitted transformer makes of the inputs; without one, the inputs."""

    name: str
    mapping: Any = None
    scaling: Scaling | None = None

    keeps: ClassVar[Mapping[str, Field]] = {
        "name": Text(),
        "mapping": Plain("embed"),
        "encode": Inline(ColumnEncoder, optional=True),
        "scaling": Inline(Scaling, optional=True),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds: an encoder, or the name of what the user brings again."""
        own = isinstance(self.mapping, ColumnEncoder)
        encode, mapping = (self.mapping, None) if own else (None, self.mapping)
        known = {"name": self.name, "scaling": self.scaling}
        return known | {"encode": encode, "mapping": mapping}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """The map, by what the user brought."""
        encode, brought = state.pop("encode"), state.pop("mapping")
        return cls(mapping=brought if encode is None else encode, **state)

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """No predictions, and what is made of each row."""
        if self.mapping is None:
            return None, as_features(X, X)
        mapped = self.mapping.transform if is_transformer(self.mapping) else self.mapping
        if is_module(mapped):  # in evaluation mode, as the model is
            mapped = Layer(mapped, "")
        features = as_features(mapped(X), X, name="embed(X)")
        return None, features if self.scaling is None else self.scaling(features)


@dataclass(frozen=True)
class Untouched(OfAnyModel):
    """Rows unchanged, including frames, for methods that convert them themselves."""

    name: str = "inputs as they are"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, Any]:
        """No predictions, and the rows."""
        return None, X


@dataclass(frozen=True, kw_only=True)
class OneInput(Keeps):
    """The only input of a model without a spread: predictions are a function of it."""

    opened: Annotated[OpenedModel, Opened()]
    encode: Annotated[ColumnEncoder, Inline(ColumnEncoder)]
    scaling: Annotated[Scaling | None, Inline(Scaling, optional=True)] = None
    name: str = "the one input"

    has_unit = False

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """No predictions, and the input as the core is given it, gaps at the training median."""
        features = self.encode(self.opened.prepare(X))
        return None, features if self.scaling is None else self.scaling(features)

    def with_model(self, opened: OpenedModel) -> Self:
        """The input as the other model's core is given it."""
        return replace(self, opened=opened)


@dataclass(frozen=True)
class Prediction(OfAnyModel):
    """The prediction alone, in ``units``: one number, or each of several targets or quantiles."""

    name: str = "prediction"
    units: Annotated[Any, Array("float64", ("k",), least=np.finfo(float).tiny)] = 1.0

    def for_file(self) -> dict[str, Any]:
        return {"units": np.atleast_1d(np.asarray(self.units, dtype=np.float64))}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """One unit for all is a number."""
        units = state["units"]
        return cls(units=units if len(units) != 1 else float(units[0]))

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, and the same as columns (m, n_outputs)."""
        y_pred = predict(X)
        return y_pred, (y_pred if y_pred.ndim > 1 else y_pred[:, None]) / self.units


@dataclass(frozen=True, kw_only=True)
class InputsAndPrediction(Keeps):
    """Inputs of the core, standardised, and the prediction, each with the same weight.

    d standardised inputs are divided by √d: together they then weigh as much as the prediction,
    which would be drowned by many inputs otherwise. Both have a standard deviation of 1.
    """

    opened: Annotated[OpenedModel, Opened()]
    n_outputs: Annotated[int, Number(int, 1)]
    encode: Annotated[ColumnEncoder, Inline(ColumnEncoder)]
    inputs: Annotated[Scaling, Inline(Scaling)]
    outputs: Annotated[Scaling, Inline(Scaling)]

    has_unit = True

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""
        return f"{self.encode.n_features} standardised inputs and prediction"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions and coordinates; inputs are prepared once for both."""
        rows, y_pred = prepared_and_predicted(self.opened, X, self.n_outputs)
        features = self.inputs(self.encode(rows))
        columns = self.outputs(y_pred.reshape(len(y_pred), -1))
        return y_pred, np.hstack([features / np.sqrt(features.shape[1]), columns])

    def with_model(self, opened: OpenedModel) -> Self:
        """The other model's predictions, in the units of this one's."""
        return replace(self, opened=opened)


@dataclass(frozen=True, kw_only=True)
class Contributions(Keeps):
    """What each input adds to a linear prediction, coefᵢ·xᵢ, and their sum: all in one unit."""

    opened: Annotated[OpenedModel, Opened()]
    name: Annotated[str, Text()]

    has_unit = False  # that of y, which means something else for every data set

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, and a coordinate for each input that the model uses and for their sum."""
        rows, y_pred = prepared_and_predicted(self.opened, X, 1)
        weights = coefficients(self.opened.core)
        used = np.flatnonzero(weights)
        added = ColumnEncoder.of_numbers(len(weights))(rows)[:, used] * weights[used]
        return y_pred, np.column_stack([added, y_pred])

    def with_model(self, opened: OpenedModel) -> Self:
        """What inputs add to the other model's predictions."""
        return replace(self, opened=opened)


@dataclass(frozen=True)
class Network(OfAnyModel):
    """The space of a module that predicts: prediction and layer in one pass."""

    layer: Annotated[Layer, Part("models")]

    @property
    def name(self) -> str:
        """Which layer, in words."""
        return self.layer.name_in_words

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """The module's predictions, None if it answers with no tensor, and the layer's output."""
        return self.layer.predict_and_place(X)


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


def is_transformer(mapping: Any) -> bool:
    """Whether it has a ``transform``."""
    return hasattr(mapping, "transform")


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
    if is_tensor(values):
        values = values.detach().cpu().numpy()
    one = len(shape_of(values)) == 1  # a column, or inputs by name
    return np.asarray(values).reshape(len(values), -1) if one else values
