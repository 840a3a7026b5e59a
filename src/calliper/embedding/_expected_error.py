"""One coordinate more where left-out errors are known: how large an error a small model expects.

Spread is what the model knows of its own doubt; the errors that it makes on rows left out show
the rest, such as noise that depends on an input which the mean ignores. A few boosted trees learn
the size e of those errors from the inputs (gaps filled with the median) and the prediction
(centred, since trees compute in single precision), and the coordinate is

    WEIGHT · log(max(ê(x), LEAST · mean e) / u + FLOOR),     u the standard deviation of y.

It is learnt from training rows alone, so that it may be as wrong as it likes: it moves rows, and
coverage is counted on rows that had no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils import _safe_indexing, indexable

from calliper._types import FloatArray
from calliper.embedding._embedding import Embedding
from calliper.embedding._features import Filled
from calliper.embedding._left_out import LeftOut
from calliper.embedding._opened import Opened, open_model, unwrapped
from calliper.embedding._spaces import InputsAndPrediction, Predict, Prediction
from calliper.embedding._spread import BARE, PredictionAndSpread

WEIGHT, LEAST, FLOOR = 2.0, 0.02, 0.01
#: With fewer errors than two leaves of a tree hold there is nothing to learn.
FEWEST_ERRORS = 40
#: Rows that each tree is grown on: half of them, and never more than this.
MOST_ROWS = 10_000
#: Parts of the left-out errors that are set apart in turn to place their own rows.
N_FOLDS = 5


@dataclass(frozen=True)
class WithExpectedError:
    """A space in the model's own unit, and the error that is expected."""

    base: PredictionAndSpread
    model: Any
    filled: Filled
    centre: float
    unit: float
    least: float

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""
        return f"{self.base.name.replace(' and ', ', ')} and expected error"

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Inputs are prepared once for both models."""
        rows = self.base.opened.prepare(X)
        y_pred, Z = self.base.place(rows, X, predict)
        clues = np.column_stack([self.filled(rows), (y_pred - self.centre) / self.unit])
        expected = self.model.predict(clues)
        return y_pred, np.column_stack([Z, self.coordinate(expected)])

    def coordinate(self, expected: FloatArray) -> FloatArray:
        """The expected error on the scale of the other coordinates."""
        logarithm = np.log(np.maximum(expected, self.least) / self.unit + FLOOR)
        return np.asarray(WEIGHT * logarithm)

    def length_scale(self, n: int) -> float | None:
        """The same as without: one coordinate more, in the same unit."""
        return self.base.length_scale(n)

    def on(self, opened: Opened) -> WithExpectedError:
        """Another model's numbers; the same error is expected."""
        return replace(self, base=self.base.on(opened))


def expect_errors(
    embedding: Embedding, unseen: LeftOut, X_train: Any, y_train: FloatArray, errors: FloatArray
) -> tuple[Embedding, LeftOut]:
    """The space with the expected error, and the left-out rows in it.

    Both are returned as they came where nothing can be learnt: few errors, all of them zero,
    inputs that are not numbers, or a space that is not in the model's unit.
    """
    base, unit, centre = _base(embedding, y_train), float(y_train.std()), float(y_train.mean())
    if base is None or len(errors) < FEWEST_ERRORS or not errors.any():
        return embedding, unseen
    X = _safe_indexing(indexable(X_train)[0], unseen.rows)
    try:
        rows = base.opened.prepare(X)
        filled = Filled.learn(rows)
        known = np.column_stack([filled(rows), (unseen.y_pred - centre) / unit])
    except (TypeError, ValueError):
        return embedding, unseen
    model = _error_model(len(errors))
    least = LEAST * float(errors.mean())
    space = WithExpectedError(base, clone(model).fit(known, errors), filled, centre, unit, least)
    folds = KFold(N_FOLDS, shuffle=True, random_state=0)
    column = space.coordinate(cross_val_predict(model, known, errors, cv=folds))
    places = unseen.Z
    if base is not embedding.space:  # the inputs have gone into the expected error
        places = base.coordinates(unseen.y_pred, np.empty((0, len(errors))))
    moved = replace(unseen, Z=np.column_stack([places, column]))
    return Embedding(space, embedding.model, embedding.n_outputs), moved


def _base(embedding: Embedding, y_train: FloatArray) -> PredictionAndSpread | None:
    space, unit = embedding.space, float(y_train.std())
    if not unit > 0 or embedding.n_outputs > 1:
        return None
    if isinstance(space, PredictionAndSpread):
        return None if space.unit is None else space
    if isinstance(space, InputsAndPrediction | Prediction):
        opened = open_model(embedding.model)
        if opened.targets:  # the core predicts in another unit: leave it wrapped
            opened = Opened(unwrapped(embedding.model))
        return PredictionAndSpread(opened, BARE, unit)
    return None


def _error_model(n: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=50,
        subsample=min(0.5, MOST_ROWS / n),
        min_samples_leaf=10,
        max_features=1 / 3,
        random_state=0,
    )
