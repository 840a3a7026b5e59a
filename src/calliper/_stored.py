"""Calibration on stored predictions: no model is at hand, only its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from calliper._kept import Field, Inline, Keeps, Part, Plain, Text
from calliper._row_checks import refuse_seen, sketch_rows, warn_of_trend
from calliper._types import Coverage, FloatArray
from calliper.calibration import Calibration, calibrate, measured
from calliper.calibrators import as_calibrator
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.rows import Rows
from calliper.scores import AbsoluteError
from calliper.space import Embedding, fit_embedding


def rows_with_errors(X: FloatArray, y: FloatArray, y_pred: FloatArray) -> Rows:
    """Rows whose predictions were stored, with their absolute errors."""
    (rows,) = measured(AbsoluteError(), X, y, y_pred)
    return rows


@dataclass(frozen=True, eq=False)
class CalibratedOnStored(Keeps):
    """A calibrator that has learnt from stored rows, and the map to where it judges nearness.

    ``about`` is what whoever keeps it in a file wants to know of the rows, in plain values.
    """

    calibrated: Calibration
    embedding: Embedding
    about: dict[str, Any] | None = None

    keeps: ClassVar[Mapping[str, Field]] = {
        "calibrators": Part("calibrators", several=True),
        "space": Inline(Embedding),
        "no_guarantee": Text(optional=True),
        "about": Plain(),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; errors of stored predictions are absolute."""
        made = self.calibrated
        known = {"calibrators": made.calibrators, "no_guarantee": made.no_guarantee}
        return {**known, "space": self.embedding, "about": self.about}

    @classmethod
    def again(cls, state: dict[str, Any]) -> CalibratedOnStored:
        """The calibrator, and what is known of the columns."""
        if len(state["calibrators"]) != 1:
            raise CalliperError("stored predictions have one calibrator.")
        fitted = Calibration(AbsoluteError(), state["calibrators"], state["no_guarantee"])
        return cls(fitted, state["space"], state["about"])

    @property
    def calibrator(self) -> Any:
        """The fitted calibrator."""
        return self.calibrated.calibrators[0]

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions, or why there is none."""
        return self.calibrated.guarantee(coverage, confidence)

    def intervals(
        self, X: FloatArray, y_pred: FloatArray, coverage: Coverage, **how: Any
    ) -> Intervals:
        """Intervals of new rows; ``how`` is what :meth:`Calibration.intervals` takes."""
        return self.calibrated.intervals(y_pred, self.embedding.transform(X), coverage, **how)


def calibrate_stored(
    calibrator: Any, rows: Rows, training: Rows | None = None, *, check_rows: bool = True
) -> CalibratedOnStored:
    """Calibrate on absolute errors of stored predictions, as :func:`rows_with_errors` gives them.

    Features are standardised by training rows, if there are any; never by calibration rows. A
    calibrator that judges no nearness, or takes the inputs, gets them as they are. ``check_rows``
    is False for who has looked at the rows already: whether they are training rows, and whether
    their order matters.
    """
    method, space = as_calibrator(calibrator), Embedding()
    if method.judges_nearness and not method.takes_inputs:
        space = fit_embedding(None, None if training is None else training.Z, rows.Z)
    no_guarantee = _check_stored(rows, training) if check_rows else None
    placed = replace(rows, Z=space.transform(rows.Z))
    if training is not None:
        training = replace(training, Z=space.transform(training.Z))
    fitted = calibrate(method, AbsoluteError(), [placed], training=training)
    return CalibratedOnStored(replace(fitted, no_guarantee=no_guarantee), space)


def _check_stored(rows: Rows, training: Rows | None) -> str | None:
    """As ``refuse_seen``; errors that depend on the order of rows are pointed out, too."""
    warn_of_trend(rows.signs * rows.scores)
    if training is None:
        return None
    return refuse_seen(sketch_rows(training.Z, training.targets), rows.Z, rows.targets)
