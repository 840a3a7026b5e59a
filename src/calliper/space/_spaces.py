"""The spaces, of inputs, predictions, a model's spread or the user's map, and a model in one.

Each maps rows to coordinates, and most predict on the way. Everything here is learnt from the
fitted model and training rows. A scaler fitted to the calibration rows would put them, and not
the new row, at the centre of their own cloud: new and calibration rows would no longer be treated
alike, which the proof of coverage needs.

*Prediction and spread* say most about the error of most models (``calliper.models`` says
where each family keeps its spread). Coordinates, for prediction m, spread
v, unit u and weight w:

    m / u,   w · log(v / u + floor).

Errors grow in proportion to the spread, hence the logarithm; u is about the standard deviation of
the targets that the model was trained on, so that nothing depends on the unit of y. The logarithm
is *not* divided by its own deviation: where a spread hardly varies it has little to say
(studies/records/nearness-study.md). u comes from a model fitted to squared errors, else from the
training targets, else from its predictions of training rows. Without any, the spread alone is the
coordinate.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, indexable

from calliper import models
from calliper._handlers import in_memory
from calliper._kept import Array, Inline, Keeps, Number, OneOf, Opened, Part, Plain, Text
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_predictions, n_rows, shape_of
from calliper.exceptions import CalliperError
from calliper.models import Layer, ModelFamily, OpenedModel, learnt
from calliper.quantile import TINY
from calliper.space._encoding import ColumnEncoder

#: Distance within which rows are near where coordinates are in absolute units:
#: LENGTH · N^(−1/3), within the limits (studies/experiments/nearness).
LENGTH, SHORTEST, LONGEST = 4.0, 0.25, 1.5
#: Rows that are predicted and mapped again, together and alone: the result must be the same.
N_REPEATED = 10
#: How much two calls may differ, since batch sizes change rounding: as a part of the range of a
#: column, and of its largest value, which single precision rounds.
REPEAT_TOLERANCE, REPEAT_ROUNDING = 1e-3, 1e-6

#: From rows to what the whole model predicts of them.
Predict = Callable[[Any], FloatArray]


@dataclass(frozen=True, eq=False)
class Scaling(Keeps):
    """Features in units of their deviations among training rows, (d,) each."""

    centre: Annotated[FloatArray, Array("float64", ("d",))]
    scale: Annotated[FloatArray, Array("float64", ("d",), least=TINY)]

    @classmethod
    def learn(cls, features: FloatArray) -> Self:
        """Mean and deviation; 1 for what does not vary."""
        fitted = StandardScaler().fit(features)
        return cls(fitted.mean_, fitted.scale_)

    def __call__(self, features: FloatArray) -> FloatArray:
        if features.shape[1] != len(self.centre):
            raise CalliperError(f"expected {len(self.centre)} columns; got {features.shape[1]}.")
        return np.asarray((features - self.centre) / self.scale)


class Space(Keeps):
    """A map from rows to coordinates.

    The name says what the coordinates are; with a unit, a distance means the same for every model
    and data set. One that depends on the model has it ``opened``; ``mapping`` is what the user's
    ``embed`` became, and ``errors`` the model of errors, if there are such; ``without_errors`` is
    the space that the expected error was added to.
    """

    name: Any
    has_unit: Any = False
    mapping: Any = None
    errors: Any = None

    @property
    def without_errors(self) -> "Space":
        return self

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, Any]:
        """Predictions, None unless they come with the coordinates, and coordinates (m, d)."""
        raise NotImplementedError

    def with_model(self, opened: OpenedModel) -> Self:
        """The same coordinates, in the same units, of another model of the same kind."""
        this: Any = self
        made: Self = replace(this, opened=opened) if "opened" in vars(this) else this
        return made


@dataclass(frozen=True)
class Inputs(Space):
    """The inputs: as they are, or as numbers and standardised."""

    encode: Annotated[ColumnEncoder | None, Inline(ColumnEncoder, optional=True)] = None
    scaling: Annotated[Scaling | None, Inline(Scaling, optional=True)] = None

    @property
    def name(self) -> str:
        return "inputs as they are" if self.scaling is None else "standardised inputs"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        features = as_features(X if self.encode is None else self.encode(X), X)
        return None, features if self.scaling is None else self.scaling(features)


@dataclass(frozen=True)
class Untouched(Space):
    """Rows unchanged, including frames, for methods that convert them themselves."""

    name: str = "inputs as they are"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, Any]:
        return None, X


@dataclass(frozen=True)
class Mapped(Space):
    """The output of the user's function or fitted transformer."""

    name: Annotated[str, Text()]
    mapping: Annotated[Any, Plain("embed")]

    @property
    def _mapped(self) -> Any:
        return getattr(self.mapping, "transform", self.mapping)

    def __post_init__(self) -> None:
        if not callable(self._mapped):
            raise CalliperError(f"embed needs a function or transformer; got {self.mapping!r:.40}.")

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        mapped = self._mapped
        if models.is_module(mapped):  # in evaluation mode, as the model is
            mapped = Layer(mapped, "")
        return None, as_features(mapped(X), X, name="embed(X)")


@dataclass(frozen=True)
class Prediction(Space):
    """The prediction alone: one number, or each of several targets or quantiles, in its unit."""

    name: str = "prediction"
    units: Annotated[FloatArray | None, Array("float64", ("k",), least=TINY, optional=True)] = None

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        y_pred = predict(X)
        columns = y_pred.reshape(len(y_pred), -1)
        return y_pred, columns if self.units is None else columns / self.units


@dataclass(frozen=True, kw_only=True)
class InputsAndPrediction(Space):
    """Inputs of the core, standardised, and the prediction, each with the same weight.

    d standardised inputs are divided by √d: together they weigh as much as the prediction, which
    many inputs would drown otherwise. Both have a standard deviation of 1. Where there is one
    input, predictions are a function of it and add nothing: ``outputs`` is None.
    """

    opened: Annotated[OpenedModel, Opened()]
    n_outputs: Annotated[int, Number(int, 1)] = 1
    encode: Annotated[ColumnEncoder, Inline(ColumnEncoder)]
    inputs: Annotated[Scaling | None, Inline(Scaling, optional=True)] = None
    outputs: Annotated[Scaling | None, Inline(Scaling, optional=True)] = None

    @property
    def has_unit(self) -> bool:
        return self.outputs is not None

    @property
    def name(self) -> str:
        if self.outputs is None:
            return "the one input"
        return f"{self.encode.n_features} standardised inputs and prediction"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, except for one input, and coordinates; inputs are prepared once."""
        rows = self.opened.prepare(X)
        features = self.encode(rows)
        features = features if self.inputs is None else self.inputs(features)
        if self.outputs is None:
            return None, features
        y_pred = self.opened.predict_prepared(rows, self.n_outputs)
        columns = self.outputs(y_pred.reshape(len(y_pred), -1))
        return y_pred, np.hstack([features / np.sqrt(features.shape[1]), columns])


@dataclass(kw_only=True, eq=False)
class PredictionAndSpread(Space):
    """The space of a model whose spread is read by the ``reader`` of its ``family``.

    ``unit`` is about the standard deviation of its targets; None if it is not known.
    """

    opened: Annotated[OpenedModel, Opened()]
    family: Annotated[str, Text()]
    unit: Annotated[float | None, Number(least=TINY, optional=True)] = None

    def __post_init__(self) -> None:
        every: tuple[type[ModelFamily], ...] = (ModelFamily, *models.families())
        self.reader = {kind.__name__: kind for kind in every}[self.family](self.opened.core)
        if self.unit is None and type(self.reader) is ModelFamily:
            raise CalliperError("the space of a model without a spread needs a unit of y.")

    def check_kept(self) -> None:
        if not self.reader.is_mine(self.opened.core):  # as it may be of a refit
            raise CalliperError(f"the model is not of the family {self.family}.")

    def learn_unit(self, X_train: Any, y_train: FloatArray | None) -> None:
        """Learn the unit from the model, else from training rows, else without."""
        unit = self.reader.unit()
        if unit is None and y_train is not None:
            unit = float(self.opened.core_targets(y_train).std())
        if unit is None and X_train is not None:
            unit = float(self.reader.measure(self.opened.prepare(X_train))[0].std())
        self.unit = unit if unit is not None and np.isfinite(unit) and unit > 0 else None

    @property
    def name(self) -> str:
        parts = ["" if self.unit is None else "prediction", self.reader.describe()]
        return " and ".join(filter(None, parts))

    @property
    def has_unit(self) -> bool:
        return self.unit is not None

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        return self.locate_prepared(self.opened.prepare(X) if self.opened.steps else X)

    def locate_prepared(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Predictions and coordinates of rows that are prepared for the core."""
        mean, spreads = self.reader.measure(rows)
        y_pred = self.opened.finish(mean) if self.opened.targets else mean
        return y_pred, self.coordinates(mean, spreads)

    @property
    def is_by_row(self) -> bool:
        """Whether n rows are known to give the same bits together as one by one."""
        return self.reader.is_by_row and not self.opened.steps and not self.opened.targets

    def coordinates(self, mean: FloatArray, spreads: FloatArray) -> FloatArray:
        """All numbers on one scale, (m, 1 + k); without a unit the first spread alone, (m, 1)."""
        if self.unit is None:
            return np.asarray(spreads[0][:, None])
        weights = np.array(self.reader.weights[: len(spreads)])
        units = np.where(self.reader.in_unit[: len(spreads)], self.unit, 1.0)
        logarithms = weights[:, None] * np.log(spreads / units[:, None] + self.reader.floor)
        return np.asarray(np.column_stack([mean / self.unit, *logarithms]))


@dataclass(frozen=True)
class Contributions(Space):
    """What each input adds to a linear prediction, coefᵢ·xᵢ, and their sum: all in one unit."""

    opened: Annotated[OpenedModel, Opened()]
    name: str = "contributions of inputs, and prediction"

    def __post_init__(self) -> None:
        if coefficients(self.opened.core) is None:
            raise CalliperError("the model has no coefficients.")

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, and a coordinate for each input that the model uses and for their sum."""
        rows = self.opened.prepare(X)
        y_pred = self.opened.predict_prepared(rows)
        weights = np.asarray(coefficients(self.opened.core))
        used = np.flatnonzero(weights)
        added = ColumnEncoder.of_numbers(len(weights))(rows)[:, used] * weights[used]
        return y_pred, np.column_stack([added, y_pred])


@dataclass(frozen=True)
class Network(Space):
    """The space of a module that predicts: prediction and layer in one pass."""

    layer: Annotated[Layer, Part("models")]

    @property
    def name(self) -> str:
        return self.layer.name_in_words

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """The module's predictions, None if it answers with no tensor, and the layer's output."""
        return self.layer.predict_and_locate(X)


def coefficients(core: Any) -> FloatArray | None:
    """Coefficients of a fitted linear model, (d,) if it has one output; None of any other."""
    found = learnt(core, "coef_")
    return None if found is None else np.asarray(found, dtype=np.float64).reshape(-1)


def one_target(y: FloatArray) -> FloatArray:
    """(n,) targets as they are; of several, (n, k), the mean in units of their deviations."""
    if y.ndim == 1:
        return y
    deviation = y.std(axis=0)
    return np.asarray(((y - y.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)).mean(axis=1))


def as_features(values: Any, X: Any, *, name: str = "X") -> FloatArray:
    """Features (m, d) that a map has made of the rows of ``X``; ``name`` is blamed for gaps."""
    values = in_memory(values)
    if len(shape_of(values)) == 1:  # a column, or inputs by name
        values = np.asarray(values).reshape(len(values), -1)
    try:
        features = check_features(values, name)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise CalliperError(
            f"distances need numbers, but the inputs contain text ({error}): pass embed=, a "
            "transformer or function that turns inputs into numbers, or 'prediction'."
        ) from error
    if len(features) != n_rows(X):
        raise CalliperError(
            f"embed must preserve the number of rows; it turned {n_rows(X)} into {len(features)}."
        )
    return features


RAW = Inputs()
UNTOUCHED = Untouched()

#: Spaces that a file may hold, by their names there; another module adds one more.
SPACES: dict[str, Any] = {
    "inputs": Inputs,
    "mapped": Mapped,
    "inputs as they are": Untouched,
    "prediction": Prediction,
    "inputs and prediction": InputsAndPrediction,
    "contributions": Contributions,
    "layer": Network,
    "spread": PredictionAndSpread,
}


@dataclass(eq=False, repr=False)
class Embedding(Keeps):
    """A fitted map from inputs to the space where nearness is judged.

    The model, of which a file has none, makes ``n_outputs`` predictions for each row; ``space``
    returns ``n_columns`` if these differ. ``n_dimensions`` are known once rows were mapped.
    """

    space: Annotated[Space, OneOf(SPACES)] = RAW
    n_outputs: Annotated[int, Number(int, 1)] = 1
    n_columns: Annotated[int | None, Number(int, 1, optional=True)] = None
    n_dimensions: Annotated[int | None, Number(int, 0, optional=True)] = None
    model: Any = None

    def check_kept(self) -> None:
        units = vars(self.space.without_errors).get("units")
        if units is not None and len(units) != self.n_outputs:
            raise CalliperError(f"there are {len(units)} units for {self.n_outputs} predictions.")

    @property
    def transformer(self) -> Any:
        """What ``embed`` became, as ``load`` takes it again; None where the space needs none."""
        return self.space.without_errors.mapping

    def transform(self, X: Any) -> FloatArray:
        """Features of each row, (m, d)."""
        return self._checked(self.space.locate(X, self._predict)[1])

    def predict_and_transform(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Predictions and features of each row, in one pass where the space predicts itself."""
        y_pred, Z = self.space.locate(X, self._predict)
        if y_pred is None:
            return self._predict(X), self._checked(Z)
        return check_predictions(y_pred, X, self.n_columns or self.n_outputs), self._checked(Z)

    def middle(self, X: Any) -> FloatArray:
        """One prediction a row, (m,): the middle, if the model predicts quantiles."""
        y_pred = self._predict(X)
        return y_pred if y_pred.ndim == 1 else np.asarray(np.median(y_pred, axis=1))

    def refuse_changing(
        self, X: Any, y_pred: FloatArray, Z: FloatArray
    ) -> tuple[IntArray, list[FloatArray]]:
        """Predict and map some rows again, in a smaller batch and alone; refuse other results.

        Dropout left on is random, and by batch normalisation in training mode rows depend on one
        another: new rows would not be treated like calibration rows. Returns the numbers of these
        rows and their predictions; only in a batch if the model cannot predict one row.
        """
        rows, n = indexable(X)[0], len(y_pred)
        few = np.linspace(0, n - 1, min(N_REPEATED, (n + 1) // 2)).astype(np.intp)
        if isinstance(self.space, PredictionAndSpread) and self.space.is_by_row:
            return few, [y_pred[few]] * 2
        asked: list[Any] = [self.predict_and_transform(_safe_indexing(rows, few))]
        # A model made for batches may raise anything for one row.
        with suppress(Exception):
            alone = [self.predict_and_transform(_safe_indexing(rows, [row])) for row in few]
            asked.append((np.concatenate([y for y, _ in alone]), [row for _, row in alone]))
        for y_again, Z_again in asked:
            _refuse_change("the model", y_pred, y_again, few)
            if not isinstance(self.space, Untouched):
                _refuse_change(f"the space ({self.space.name})", Z, np.vstack(Z_again), few)
        return few, [y_again for y_again, _ in asked]

    def length_scale(self, n: int) -> float | None:
        """Distance within which n calibration rows are near; None if coordinates have no unit."""
        if not self.space.has_unit:
            return None
        return float(np.clip(LENGTH * n ** (-1 / 3), SHORTEST, LONGEST))

    def refitted(self, model: Any) -> "Embedding":
        """The same space, in the same units, around another fit of the model."""
        space = self.space.with_model(models.open_model(model))
        return Embedding(space, self.n_outputs, self.n_columns, model=model)

    def _predict(self, X: Any) -> FloatArray:
        return models.predictions(self.model, X, self.n_outputs)

    def _checked(self, Z: FloatArray) -> FloatArray:
        if isinstance(self.space, Untouched):  # perhaps a frame, for a method that converts it
            return Z
        features = check_features(Z, f"the space ({self.space.name})")
        self.n_dimensions = features.shape[1]
        return features

    def __repr__(self) -> str:
        n = self.n_dimensions
        size = "" if n is None else f" ({n} dimension{'s' * (n != 1)})"
        return f"{self.space.name}{size}"


def repeatable(before: FloatArray) -> FloatArray:
    """By how much numbers of each column may change in another batch, (d,)."""
    most = np.abs(before).max(axis=0, initial=0.0)
    return np.asarray(REPEAT_TOLERANCE * np.ptp(before, axis=0) + REPEAT_ROUNDING * most)


def _refuse_change(what: str, before: FloatArray, again: FloatArray, rows: IntArray) -> None:
    before, again = before.reshape(len(before), -1), again.reshape(len(rows), -1)
    change, ranges = np.abs(before[rows] - again).max(axis=0, initial=0.0), np.ptp(before, axis=0)
    allowed = repeatable(before)
    moved = np.flatnonzero(change > allowed)
    if len(moved):
        worst = moved[np.argmax((change / np.maximum(allowed, 1e-300))[moved])]
        column = f" in column {worst}" if len(change) > 1 else ""
        raise CalliperError(
            f"{what} differs between calls for the same rows, in a smaller batch or alone, "
            f"by up to {change[worst]:.3g}{column} (of a range of {ranges[worst]:.3g}). Is "
            f"dropout or batch normalisation still on? Put the network into evaluation mode "
            f"(module.eval()), or fix the random state."
        )
