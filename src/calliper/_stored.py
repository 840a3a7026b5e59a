"""Calibration on stored predictions: no model is at hand, only what it said of each row.

Rows carry their predictions (:class:`StoredRows`), and the "model" is a function that returns them.
So a table of predictions goes through :class:`ConformalRegressor` like any other model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np

from calliper._kept import Inline, Keeps, Part, Plain
from calliper._row_checks import RowSketch
from calliper._types import Coverage, FloatArray
from calliper.calibration import Calibration, calibrate
from calliper.calibrators import as_calibrator
from calliper.exceptions import CalliperError, UnusedWarning, unheard
from calliper.intervals import Intervals
from calliper.regressor import ConformalRegressor
from calliper.rows import Rows, rows_of_groups
from calliper.scores import AbsoluteError, Score, as_score
from calliper.space import Embedding, deal, fit_embedding


class StoredRows(np.ndarray):
    """Features of rows, (n, d), with what a model predicted of them, (n,), as ``y_pred``."""

    y_pred: FloatArray

    def __new__(cls, X: FloatArray, y_pred: FloatArray) -> Self:
        """Both, which are not copied."""
        rows = np.asarray(X).view(cls)
        rows.y_pred = y_pred
        return rows

    def __getitem__(self, key: Any) -> Any:
        """Some rows with their predictions; single columns are plain arrays."""
        found = np.asarray(self)[key]
        first, *others = key if isinstance(key, tuple) else (key,)
        whole = found.ndim == 2 and all(other is Ellipsis for other in others)
        return StoredRows(found, self.y_pred[first]) if whole else found


def stored_predictions(rows: StoredRows) -> FloatArray:
    """The model: what is stored beside the rows."""
    return rows.y_pred


@dataclass(frozen=True, eq=False)
class CalibratedOnStored(Keeps):
    """A regressor around stored predictions."""

    regressor: Annotated[ConformalRegressor, Part("regressor")]
    #: What a file should say of the rows; what calibration rows are recognised by among new ones.
    about: Annotated[dict[str, Any] | None, Plain()] = None
    rows: Annotated[RowSketch | None, Inline(RowSketch, optional=True)] = None

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """The regressor, and what is known of the columns."""
        made = cls(**state)
        inner = made.regressor
        stored = inner.estimator is stored_predictions and inner.__sklearn_is_fitted__()
        if not stored or inner.embedding_.n_outputs != 1:
            raise CalliperError("stored predictions have one number for each row.")
        return made

    def intervals(
        self, X: FloatArray, y_pred: FloatArray, coverage: Coverage, **how: Any
    ) -> Intervals:
        """Intervals of new rows; ``how`` is what ``predict_interval`` takes."""
        return self.regressor.predict_interval(StoredRows(X, y_pred), coverage, **how)


def calibrate_stored(
    calibrator: Any,
    known: FloatArray,
    training: FloatArray | None = None,
    *,
    score: Score | None = None,
    learning_part: Any = None,
    random_state: Any = None,
    groups: Any = None,
    weights: Any = None,
) -> CalibratedOnStored:
    """Calibrate on stored rows, (n, 2 + d): target, prediction, features.

    Where some rows teach, the space is chosen as :class:`ConformalRegressor` does by default. Else
    nearness is judged in the features: standardised by training rows, if there are any; never by
    calibration rows.
    """
    y, X = known[:, 0], StoredRows(known[:, 2:], known[:, 1])
    more: dict[str, Any] = {}
    if training is not None:
        more = {"X_train": StoredRows(training[:, 2:], training[:, 1]), "y_train": training[:, 0]}
    teach = isinstance(as_score(score), AbsoluteError)
    if learning_part == "auto" and "left_out" not in as_calibrator(calibrator).uses:
        teach = False
    if teach:  # told by counts alone, as calibrate does
        if groups is not None:
            rows_of_groups(groups)  # refuses missing labels, which cannot be dealt
        taught, _ = deal(len(y), learning_part, labels=groups, random_state=random_state)
        teach = len(taught) > 0
    regressor = ConformalRegressor(
        stored_predictions,
        calibrator,
        score_function=score,
        embed="auto" if teach else "inputs",
        learning_part=learning_part,
        random_state=random_state,
    )
    with unheard(*((UnusedWarning,) if teach else ())):  # training rows may also fill gaps
        regressor.calibrate(X, y, groups=groups, weights=weights, **more)
    return CalibratedOnStored(regressor)


def calibrate_rows(
    calibrator: Any,
    tails: list[Rows],
    training: list[Rows] | None = None,
    score: Score | None = None,
) -> tuple[Calibration, Embedding]:
    """The same on all rows, which somebody else has checked, and the map of features."""
    method, space, known = as_calibrator(calibrator), Embedding(), None
    if training is not None:  # one scale learns from errors of both signs
        known = replace(training[0], scores=training[0].magnitudes)
    if method.judges_nearness and not method.takes_inputs:
        space = fit_embedding(None, None if known is None else known.Z, tails[0].Z)
    Z = space.transform(tails[0].Z)
    if known is not None:
        known = replace(known, Z=space.transform(known.Z))
    placed = [replace(rows, Z=Z) for rows in tails]
    return calibrate(method, as_score(score), placed, training=known), space
