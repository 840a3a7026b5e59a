"""A space and a model together: rows in, predictions and places out."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, indexable

from calliper._models import check_predictions, predictions
from calliper._types import FloatArray
from calliper._validation import check_features, n_rows
from calliper.embedding._opened import open_model
from calliper.embedding._spaces import Mapped, Predict, Space
from calliper.embedding._warning import EmbeddingWarning
from calliper.exceptions import CalliperError

#: Rows that are predicted and mapped twice to see whether the same comes out.
N_REPEATED = 8
#: By how much two calls may differ, since batches of other sizes round otherwise: part of the range
#: of a column, and of its largest value, which single precision rounds.
REPEAT_TOLERANCE, ROUNDING = 1e-3, 1e-6

RAW = Mapped(None, None, "inputs as they are")


class Embedding:
    """A fitted map from inputs to the space where nearness is judged.

    Parameters
    ----------
    space : Space, default the inputs as they are
    model : regressor or callable, optional
        Whose predictions the space may use.
    n_outputs : int
        Predictions that the model makes for each row.
    """

    def __init__(self, space: Space | None = None, model: Any = None, n_outputs: int = 1) -> None:
        self.space: Space = RAW if space is None else space
        self.model, self.n_outputs = model, n_outputs
        self.n_dimensions: int | None = None

    def transform(self, X: Any) -> FloatArray:
        """Features of each row, (m, d)."""
        return self._checked(self.space.locate(X, self._predict)[1])

    def predict_and_transform(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Predictions and features of each row, in one pass where the space predicts itself."""
        y_pred, Z = self.space.locate(X, self._predict)
        if y_pred is None:
            return self._predict(X), self._checked(Z)
        return check_predictions(y_pred, n_rows(X), self.n_outputs), self._checked(Z)

    def refitted(self, model: Any) -> Embedding:
        """The same space, in the same units, around another fit of the model."""
        return Embedding(self.space.on(open_model(model)), model, self.n_outputs)

    def _checked(self, Z: FloatArray) -> FloatArray:
        features = check_features(Z, "the embedding")
        self.n_dimensions = features.shape[1]
        return features

    @property
    def _predict(self) -> Predict:
        return partial(predictions, self.model, n_outputs=self.n_outputs)

    def __repr__(self) -> str:
        n = self.n_dimensions
        size = "" if n is None else f", {n} dimension{'s' if n != 1 else ''}"
        return f"Space({self.space.name!r}{size})"


def warn_if_poor(embedding: Embedding, Z: FloatArray) -> None:
    """Places in which nearness says little: all the same, or more dimensions than rows."""
    n, d = Z.shape
    if n > 1 and not np.ptp(Z, axis=0).any():
        problem = (
            f"gives all {n} calibration rows the same place: neighbours are drawn by lot and "
            f"widths do not adapt. Pass embed= with something that varies."
        )
    elif d > n:
        problem = (
            f"has {d} dimensions for {n} calibration rows, so that all are about equally far from "
            f"one another. Reduce it on training rows (for example embed=PCA(5)), or use "
            f"embed='prediction'."
        )
    else:
        return
    warnings.warn(f"The space ({embedding.space.name}) {problem}", EmbeddingWarning, stacklevel=4)


def refuse_changing(embedding: Embedding, X: Any, y_pred: FloatArray, Z: FloatArray) -> None:
    """Some rows are predicted and mapped again, in smaller company: the same must come out.

    Dropout left on fails since it is random, batch normalisation in training mode since rows
    change with their company; then calibration and new rows would not be treated alike.
    """
    few = np.arange(min(N_REPEATED, (n_rows(X) + 1) // 2))
    y_again, again = embedding.predict_and_transform(_safe_indexing(indexable(X)[0], few))
    _refuse_change(y_pred.reshape(len(y_pred), -1), y_again.reshape(len(few), -1), "the model")
    _refuse_change(Z, again, f"the space ({embedding.space.name})")


def _refuse_change(before: FloatArray, again: FloatArray, what: str) -> None:
    change = np.abs(before[: len(again)] - again).max(axis=0, initial=0.0)
    allowed = REPEAT_TOLERANCE * np.ptp(before, axis=0) + ROUNDING * np.abs(before).max(axis=0)
    moved = np.flatnonzero(change > allowed)
    if len(moved):
        worst = moved[np.argmax((change / np.maximum(allowed, 1e-300))[moved])]
        column = f" in column {worst}" if len(change) > 1 else ""
        raise CalliperError(
            f"{what} changes between calls: the same rows, asked for in smaller company, moved by "
            f"up to {change[worst]:.3g}{column} (of a range of "
            f"{np.ptp(before[:, worst]):.3g}). Is dropout or batch normalisation left on? Put the "
            f"network into evaluation mode (module.eval()), or fix the random state."
        )
