"""The spaces: of inputs, of predictions, of a model's spread, and of what a user's own map says.

Each maps rows to coordinates, and most predict on the way. Whatever is learnt here is learnt from
the fitted model and from training rows. A scaler fitted to the calibration rows would place them,
and not the new row, at the centre of their own cloud: new and calibration points would no longer
be treated alike, and the proof of coverage needs that they are.

*Prediction and spread* are the numbers in which the error of most models lives. A model that is
made of many, or that states a standard deviation, knows better than its inputs where it is unsure
(``calliper.models`` says where each family keeps that). Coordinates, for prediction m, spread v,
unit u and weight w:

    m / u,   w · log(v / u + floor).

Errors grow in proportion to the spread, hence the logarithm; u is about the standard deviation of
the targets that the model was trained on, so that nothing depends on the unit of y. The logarithm
is *not* divided by its own deviation: where a spread hardly varies it has little to say, and should
not decide who is near (docs/nearness.md has the figures). u is told by a model that was fitted to
squared errors, else it is that of the training targets, else what the model lets guess, else the
deviation of its predictions of training rows. Known to none, the spread alone is the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.preprocessing import StandardScaler

from calliper._kept import Array, Field, Inline, Keeps, Number, Opened, Part, Plain, Text
from calliper._types import FloatArray
from calliper._validation import check_features, n_rows, refuse_sparse
from calliper.exceptions import CalliperError
from calliper.models import (
    Layer,
    ModelFamily,
    OpenedModel,
    coefficients,
    families,
    is_tensor,
    predictions,
    shape_of,
)
from calliper.space._encoding import ColumnEncoder

#: From rows to what the whole model predicts of them.
Predict = Callable[[Any], FloatArray]


@dataclass(frozen=True, eq=False)
class Scaling(Keeps):
    """Features in units of their deviations among training rows, (d,) each."""

    centre: FloatArray
    scale: FloatArray

    keeps: ClassVar[Mapping[str, Field]] = {
        "centre": Array("float64", ("d",)),
        "scale": Array("float64", ("d",), least=np.finfo(float).tiny),
    }

    @classmethod
    def learn(cls, features: FloatArray) -> Scaling:
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

    def with_model(self, opened: OpenedModel) -> Space:
        """The same coordinates, in the same units, of another model of the same kind."""


@dataclass(frozen=True, kw_only=True)
class Mapped(Keeps):
    """What a function or a fitted transformer makes of the inputs; without one, the inputs."""

    name: str
    mapping: Any = None
    scaling: Scaling | None = None

    has_unit = False
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
    def again(cls, state: dict[str, Any]) -> Mapped:
        """The map, by what the user brought."""
        encode, brought = state.pop("encode"), state.pop("mapping")
        return cls(mapping=brought if encode is None else encode, **state)

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """No predictions, and what is made of each row."""
        if self.mapping is None:
            return None, as_features(X, X)
        features = as_features(transformation(self.mapping)(X), X, name="embed(X)")
        return None, features if self.scaling is None else self.scaling(features)

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
    scaling: Scaling | None = None
    name: str = "the one input"

    has_unit = False
    keeps: ClassVar[Mapping[str, Field]] = {
        "opened": Opened(),
        "encode": Inline(ColumnEncoder),
        "scaling": Inline(Scaling, optional=True),
    }

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """No predictions, and the input as the core is given it, gaps at the training median."""
        features = self.encode(self.opened.prepare(X))
        return None, features if self.scaling is None else self.scaling(features)

    def with_model(self, opened: OpenedModel) -> OneInput:
        """The input as the other model's core is given it."""
        return replace(self, opened=opened)


@dataclass(frozen=True)
class Prediction(Keeps):
    """The prediction alone, in ``units``: one number, or each of several targets or quantiles."""

    name: str = "prediction"
    units: Any = 1.0

    has_unit = False
    keeps: ClassVar[Mapping[str, Field]] = {
        "units": Array("float64", ("k",), least=np.finfo(float).tiny)
    }

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
    inputs: Scaling
    outputs: Scaling

    has_unit = True
    keeps: ClassVar[Mapping[str, Field]] = {
        "opened": Opened(),
        "n_outputs": Number(int, 1),
        "encode": Inline(ColumnEncoder),
        "inputs": Inline(Scaling),
        "outputs": Inline(Scaling),
    }

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

    def with_model(self, opened: OpenedModel) -> InputsAndPrediction:
        """The other model's predictions, in the units of this one's."""
        return replace(self, opened=opened)


@dataclass(frozen=True, kw_only=True)
class Contributions(Keeps):
    """What each input adds to a linear prediction, coefᵢ·xᵢ, and their sum: all in one unit."""

    opened: OpenedModel
    name: str

    has_unit = False  # that of y, which means something else for every data set
    keeps: ClassVar[Mapping[str, Field]] = {"opened": Opened(), "name": Text()}

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


@dataclass(frozen=True)
class Network(Keeps):
    """The space of a module that predicts: prediction and layer in one pass."""

    layer: Layer

    has_unit = False
    keeps: ClassVar[Mapping[str, Field]] = {"layer": Part("models")}

    @property
    def name(self) -> str:
        """Which layer, in words."""
        return self.layer.name_in_words

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """The module's predictions, None if it answers with no tensor, and the layer's output."""
        return self.layer.predict_and_place(X)

    def with_model(self, opened: OpenedModel) -> Network:
        """The same space: a module is not trained here."""
        return self


@dataclass(frozen=True, kw_only=True)
class PredictionAndSpread(Keeps):
    """The space of a model that has a spread.

    Attributes
    ----------
    opened : the model
    doubt : what its family has read from it; to be read again from the model, never kept
    unit : about the standard deviation of its targets; None if it is not known
    predicts : whether the family's prediction is the model's own; else the model is asked
    """

    opened: OpenedModel
    doubt: ModelFamily
    unit: float | None
    predicts: bool = True

    keeps: ClassVar[Mapping[str, Field]] = {
        "opened": Opened(),
        "family": Text(),
        "unit": Number(least=np.finfo(float).tiny, optional=True),
        "predicts": Number(bool),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; what the family reads is read again from the model."""
        return {
            "opened": self.opened,
            "family": type(self.doubt).__name__,
            "unit": self.unit,
            "predicts": self.predicts,
        }

    @classmethod
    def again(cls, state: dict[str, Any]) -> PredictionAndSpread:
        """What the family reads of the model that was given."""
        every: tuple[type[ModelFamily], ...] = (ModelFamily, *families())
        known = {family.__name__: family for family in every}
        doubt = known[state.pop("family")](state["opened"].core)
        return cls(doubt=doubt, **state)

    @classmethod
    def learn(
        cls,
        opened: OpenedModel,
        family: type[ModelFamily],
        X_train: Any,
        y_train: FloatArray | None,
    ) -> PredictionAndSpread:
        """The space, with its unit from the model, else from training rows, else without."""
        doubt = family(opened.core)
        unit = doubt.unit()
        if unit is None and y_train is not None:
            unit = float(opened.core_targets(y_train).std())
        if unit is None:
            unit = doubt.guess()
        if unit is None and X_train is not None:
            unit = float(doubt.measure(opened.prepare(X_train))[0].std())
        usable = unit is not None and np.isfinite(unit) and unit > 0
        return cls(
            opened=opened,
            doubt=doubt,
            unit=unit if usable else None,
            predicts=family.is_known(opened.core),
        )

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""
        spread = self.doubt.describe()
        known = [] if self.unit is None else ["prediction"]
        return " and ".join([*known, *([spread] if spread else [])])

    @property
    def has_unit(self) -> bool:
        """Whether coordinates are in absolute units, the same for every model."""
        return self.unit is not None

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions and coordinates, in one pass over a model whose code is known."""
        return self.place(self.opened.prepare(X), X, predict)

    def place(self, rows: Any, X: Any, predict: Predict) -> tuple[FloatArray, FloatArray]:
        """Predictions and coordinates of ``X``, of which ``rows`` are prepared for the core."""
        mean, spreads = self.doubt.measure(rows)
        y_pred = self.opened.finish(mean) if self.predicts else predict(X)
        return y_pred, self.coordinates(mean, spreads)

    def coordinates(self, mean: FloatArray, spreads: FloatArray) -> FloatArray:
        """All numbers on one scale, (m, 1 + k); without a unit the first spread alone, (m, 1)."""
        if self.unit is None:
            return np.asarray(spreads[0][:, None])
        weights = np.array(self.doubt.weights[: len(spreads)])
        units = np.where(self.doubt.in_unit[: len(spreads)], self.unit, 1.0)
        logarithms = weights[:, None] * np.log(spreads / units[:, None] + self.doubt.floor)
        return np.asarray(np.column_stack([mean / self.unit, *logarithms]))

    def with_model(self, opened: OpenedModel) -> PredictionAndSpread:
        """The other model's numbers, in the unit of this one."""
        return replace(self, opened=opened, doubt=type(self.doubt)(opened.core))


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


def transformation(mapping: Any) -> Callable[[Any], Any]:
    """From rows to features: what a transformer does, or the function itself."""
    return mapping.transform if is_transformer(mapping) else mapping  # type: ignore[no-any-return]


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
    return np.asarray(values).reshape(-1, 1) if len(shape_of(values)) == 1 else values


#: Spaces that a file may hold, by what they are called there; one more is added where it is.
SPACES: dict[str, Any] = {
    "mapped": Mapped,
    "inputs as they are": Untouched,
    "one input": OneInput,
    "prediction": Prediction,
    "inputs and prediction": InputsAndPrediction,
    "contributions": Contributions,
    "layer": Network,
    "spread": PredictionAndSpread,
}
