"""What left-out errors teach, put to use: a centre and units beside the prediction, a coordinate.

An :class:`ErrorModel` is learnt from the signed errors on rows that the model had not seen. Its
clues are the inputs (as numbers: see ``_encoding.py``; for pictures and texts what the network
makes of them), the prediction (centred, since trees compute in single precision) and the model's
spread. It does two things for a row: it moves the centre of the interval and gives each side its
unit, and where the space was chosen here it adds

    SIZE_WEIGHT · log(max(ê(x), LEAST_SIZE · mean e) / u + SIZE_FLOOR),     u the deviation of y,

as one coordinate more, ê the expected size of the error: such as noise that depends on an input
which the mean ignores, of which the model's spread knows nothing.

If many targets are equal to the smallest or to the largest one, such as counts of 0 or values cut
off at 50, that is where targets end, and intervals stop there. A target beyond an end scores more
than any of those that taught, so a calibration row beyond it is counted, and nothing is assumed.
Since many targets lie at an end, units grow with the distance to it, if that lowers the interval
score of left-out rows.

All this depends on training data alone and may be as wrong as it likes: coverage is counted on rows
that had no part in it, so that the guarantees are untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, indexable

from calliper._kept import Array, Inline, Number, OneOf, Opened, Part
from calliper._types import FloatArray
from calliper._validation import check_predictions
from calliper.exceptions import EmbeddingWarning, warn
from calliper.models import OpenedModel, open_model, unwrapped, without_asking
from calliper.scores import DistributionError, ScaledError, warn_if_crossed
from calliper.space import _error_model as learning
from calliper.space import _spaces as spaces
from calliper.space._encoding import ColumnEncoder
from calliper.space._left_out import LeftOut, Training
from calliper.space._spaces import Embedding, PredictionAndSpread, Space

#: Targets that must be equal to the smallest or the largest one for it to be an end, and the part.
FEWEST_AT_END, PART_AT_END = 5, 0.01
#: The part of the way to an end that an interval reaches at least at 90 %, if that pays.
PULL = 0.5
SIZE_WEIGHT, LEAST_SIZE, SIZE_FLOOR = 2.0, 0.02, 0.01
#: Part of the unit below which predicted spreads are all alike.
SPREAD_FLOOR = 0.02

#: Spaces that may be the base of the one below.
BASES = dict(spaces.SPACES)


@dataclass(frozen=True, kw_only=True)
class WithErrorModel(Space):
    """A space, its predictions adjusted and the expected error added, each if it is wanted.

    The inputs of the model are the first clues. ``encode`` makes numbers of them, levels in the
    order of their left-out errors; it is None where they have no columns, and coordinates take
    their place. ``centre`` and ``unit`` are mean and standard deviation of the training targets,
    ``probabilities`` those of predicted quantiles, None of one number. It ``adds`` the expected
    error as one coordinate more, or not.
    """

    base: Annotated[Space, OneOf(BASES)]
    opened: Annotated[OpenedModel, Opened()]
    errors: Annotated[learning.ErrorModel, Part("space")]
    encode: Annotated[ColumnEncoder | None, Inline(ColumnEncoder, optional=True)]
    centre: Annotated[float, Number()]
    unit: Annotated[float, Number(least=np.finfo(float).tiny)]
    probabilities: Annotated[FloatArray | None, Array("float64", ("p",), optional=True)]
    adds: Annotated[bool, Number(bool)]

    def __post_init__(self) -> None:
        if self.probabilities is not None:
            DistributionError(self.probabilities).mean_slope(np.zeros(2))  # which checks them

    @property
    def without_errors(self) -> Space:
        return self.base

    @property
    def name(self) -> str:
        base = self.base.name if self.probabilities is None else "prediction and its spread"
        return f"{base.replace(' and ', ', ')} and expected error" if self.adds else base

    @property
    def has_unit(self) -> bool:
        return self.base.has_unit or (self.adds and self.probabilities is not None)

    def locate(self, X: Any, predict: spaces.Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions, or centres with units, and coordinates; inputs are prepared once."""
        rows = self.opened.prepare(X)
        if isinstance(self.base, PredictionAndSpread):
            y_pred, Z = self.base.locate_prepared(rows)
        else:
            predicted, Z = self.base.locate(X, predict)
            n_outputs = 1 if self.probabilities is None else len(self.probabilities)
            y_pred = predict(X) if predicted is None else check_predictions(predicted, X, n_outputs)
        features = Z if self.encode is None else self.encode(rows)
        y_pred, own, Z = self.read(y_pred, Z)
        expected = self.errors.predict(self.clues(features, y_pred, Z, own), own)
        return self.adjusted(y_pred, Z, expected)

    def adjusted(
        self, y_pred: FloatArray, Z: FloatArray, expected: learning.Expected
    ) -> tuple[FloatArray, FloatArray]:
        """Centre and units of each row, (m, 3), as ``ScaledError`` takes them, and coordinates."""
        if self.adds:
            Z = np.column_stack([Z, self.coordinate(expected.size)])
        if self.errors.adjusts:
            y_pred = np.column_stack([y_pred + expected.shift, expected.down, expected.up])
        return y_pred, Z

    def read(
        self, y_pred: FloatArray, Z: FloatArray
    ) -> tuple[FloatArray, FloatArray | None, FloatArray]:
        """One prediction a row, how far errors reach by the model itself, and coordinates.

        Of predicted quantiles these are the mean, (2, m) the distances of 5 and 95 % from it, and,
        where coordinates are chosen here, the mean and the logarithm of half their distance.
        """
        if self.probabilities is None:
            return y_pred, None, Z
        mean, low, high = DistributionError(self.probabilities).mean_and_ends(y_pred)
        with np.errstate(over="ignore"):
            own = np.minimum([mean - low, high - mean], np.finfo(float).max)
        if self.adds:
            Z = np.column_stack([mean / self.unit, self._log(own.mean(axis=0))])
        return mean, own, Z

    def clues(
        self, features: FloatArray, y_pred: FloatArray, Z: FloatArray, own: FloatArray | None
    ) -> FloatArray:
        """What errors are learnt from: inputs, prediction, and spread where the model has one."""
        spread = Z[:, 1:] if isinstance(self.base, PredictionAndSpread) else Z[:, :0]
        spread = spread if own is None else self._log(own).T
        return np.column_stack([features, (y_pred - self.centre) / self.unit, spread])

    def _log(self, spread: FloatArray) -> FloatArray:
        return np.asarray(np.log(np.maximum(spread / self.unit, 0.0) + SPREAD_FLOOR))

    def coordinate(self, size: FloatArray) -> FloatArray:
        """The expected error on the scale of the other coordinates."""
        least = LEAST_SIZE * self.errors.mean_size_
        return np.asarray(SIZE_WEIGHT * np.log(np.maximum(size, least) / self.unit + SIZE_FLOOR))

    def with_model(self, opened: OpenedModel) -> WithErrorModel:
        """The other model's numbers; the same errors are expected."""
        return replace(self, base=self.base.with_model(opened), opened=opened)


def learn_errors(
    training: Training,
    unseen: LeftOut,
    embedding: Embedding,
    score: Any,
    model: learning.ErrorModel,
    *,
    chosen: bool,
) -> tuple[Embedding, Any, LeftOut]:
    """Space, score, and the left-out rows as they see them.

    ``chosen`` says whether the space was chosen here, and may be added to. Its predictions have
    three columns where the model adjusts them. Where nothing can be learnt (few errors, all of them
    zero, predictions of several targets, inputs without columns), space and score are as they came.
    """
    of_quantiles = isinstance(score, DistributionError)
    model = clone(model).set_params(recentre=model.recentre and not unseen.weaker)
    plain = score.magnitude(unseen.targets, unseen.y_pred)
    as_it_came = embedding, score, replace(unseen, scores=plain)
    unit, centre = float(training.y.std()), float(training.y.mean())
    base = _with_unit(embedding, unit) if chosen else None
    one_target = of_quantiles or embedding.n_outputs == 1
    if not (model.adjusts or base) or not one_target or not unit > 0:
        return as_it_came
    space = WithErrorModel(
        base=embedding.space if base is None else base,
        opened=base.opened if base else _opened(embedding.model),
        errors=model,
        encode=None,
        centre=centre,
        unit=unit,
        probabilities=np.asarray(score.probabilities, dtype=float) if of_quantiles else None,
        adds=base is not None or (chosen and of_quantiles),
    )
    if of_quantiles:
        warn_if_crossed(unseen.y_pred[:, np.argsort(score.probabilities)])
    y_pred, own, Z = space.read(unseen.y_pred, unseen.Z)
    errors, features = unseen.targets - y_pred, unseen.Z
    if len(errors) < learning.FEWEST_ERRORS or not errors.any():
        return as_it_came
    try:
        rows = space.opened.prepare(_safe_indexing(indexable(training.X)[0], unseen.numbers))
        encode, features = ColumnEncoder.learn_and_encode(rows, np.abs(errors))
        space = replace(space, encode=encode)
    except (TypeError, ValueError) as error:
        # What a network, or the user, makes of rows without columns takes their place.
        if not isinstance(embedding.space, spaces.Network | spaces.Mapped | spaces.Inputs):
            if not isinstance(embedding.space, spaces.Prediction):  # of which this was said before
                what = "The inputs were not used to learn where errors are large"
                warn(f"{what}, since they cannot be turned into numbers: {error}", EmbeddingWarning)
            return as_it_came
    if base is not None and base is not embedding.space:  # inputs go into the expected error
        Z = base.coordinates(y_pred, np.empty((0, len(errors))))
    space.errors.fit(space.clues(features, y_pred, Z, own), errors, own)
    y_pred, Z = space.adjusted(y_pred, Z, space.errors.left_out_)
    score, n_columns = (ScaledError(), 3) if model.adjusts else (score, 1)
    if model.recentre:  # else a prediction beyond an end stays inside its interval
        score = _with_ends(training.y, unseen.targets, y_pred)
    scores = score.magnitude(unseen.targets, y_pred)
    found = Embedding(space, embedding.n_outputs, n_columns, model=embedding.model)
    return found, score, replace(unseen, Z=Z, scores=scores)


def _with_ends(y: FloatArray, targets: FloatArray, y_pred: FloatArray) -> ScaledError:
    """The score of targets that end where many of ``y`` lie; it reaches for ends if that pays."""
    enough = max(FEWEST_AT_END, PART_AT_END * len(y))
    lowest, highest = (
        float(end) if np.count_nonzero(y == end) >= enough else none
        for end, none in ((y.min(), -np.inf), (y.max(), np.inf))
    )
    if np.isinf([lowest, highest]).all():
        return ScaledError()
    scores = ScaledError().magnitude(targets, y_pred)
    known = {"lowest": lowest, "highest": highest, "beyond": float(scores.max())}
    plain, usual = ScaledError(**known), float(np.quantile(scores, learning.REACH))
    if not usual > 0:
        return plain

    def losses(score: ScaledError) -> FloatArray:
        down, up = score.sides(y_pred)
        centre, units = score.centre(y_pred), np.stack([down.slopes[:, 0], up.slopes[:, 0]])
        room = np.stack([centre - lowest, highest - centre])
        return learning.unit_scores(targets - centre, units, room)

    pulled = ScaledError(**known, pull=PULL / usual)
    return pulled if learning.clearly_positive(losses(plain) - losses(pulled)) else plain


def _with_unit(embedding: Embedding, unit: float) -> PredictionAndSpread | None:
    """The space that the expected error is added to; None where it cannot be."""
    space = embedding.space
    if not unit > 0 or embedding.n_outputs > 1:
        return None
    if isinstance(space, PredictionAndSpread):
        return None if space.unit is None else space
    one_input = isinstance(space, spaces.InputsAndPrediction) and space.outputs is None
    if isinstance(space, spaces.InputsAndPrediction | spaces.Prediction) and not one_input:
        opened = _opened(embedding.model)
        return PredictionAndSpread(opened=opened, family="ModelFamily", unit=unit)
    return None


def _opened(model: Any) -> OpenedModel:
    model = without_asking(model)
    opened = open_model(model)
    # A core that predicts in another unit stays wrapped.
    return OpenedModel(core=unwrapped(model)) if opened.targets else opened


spaces.SPACES.update(errors=WithErrorModel)
