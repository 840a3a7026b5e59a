"""Calibration on stored predictions: no model is at hand, only its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from calliper._kept import Field, Inline, Keeps, Part, Plain, Text
from calliper._row_checks import RowSketch, refuse_seen, sketch_rows, warn_of_trend
from calliper._types import Coverage, FloatArray
from calliper.calibration import Calibration, calibrate, measured
from calliper.calibrators import as_calibrator
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.rows import Rows
from calliper.scores import Score, as_score
from calliper.space import Embedding, fit_embedding


def rows_with_errors(
    X: FloatArray, y: FloatArray, y_pred: FloatArray, score: Score | None = None, **known: Any
) -> list[Rows]:
    """Rows whose predictions were stored, as each tail of the score sees their errors.

    ``known`` are their groups and weights.
    """
    return measured(as_score(score), X, y, y_pred, **known)


@dataclass(frozen=True, eq=False)
class CalibratedOnStored(Keeps):
    """A calibrator that has learnt from stored rows, and the map to where it judges nearness.

    ``about`` is what whoever keeps it in a file wants to know of the rows, in plain values, and
    ``rows`` is what calibration rows are recognised by among new ones.
    """

    calibrated: Calibration
    embedding: Embedding
    about: dict[str, Any] | None = None
    rows: RowSketch | None = None

    keeps: ClassVar[Mapping[str, Field]] = {
        "calibrators": Part("calibrators", several=True),
        "score": Plain("score_function"),
        "space": Inline(Embedding),
        "no_guarantee": Text(optional=True),
        "about": Plain(),
        "rows": Inline(RowSketch, optional=True),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds."""
        made = self.calibrated
        known = {"calibrators": made.calibrators, "score": made.score, "about": self.about}
        said = {"no_guarantee": made.no_guarantee, "space": self.embedding, "rows": self.rows}
        return {**known, **said}

    @classmethod
    def again(cls, state: dict[str, Any]) -> CalibratedOnStored:
        """The calibrator, and what is known of the columns."""
        score = as_score(state["score"])
        if len(state["calibrators"]) != score.n_tails or score.n_outputs != 1:
            raise CalliperError("stored predictions have a calibrator for each tail of the score.")
        fitted = Calibration(score, state["calibrators"], state["no_guarantee"])
        return cls(fitted, state["space"], state["about"], state["rows"])

    @property
    def score_(self) -> Score:
        """What is called an error."""
        return self.calibrated.score

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
    calibrator: Any,
    tails: list[Rows],
    training: list[Rows] | None = None,
    score: Score | None = None,
    *,
    check_rows: bool = True,
) -> CalibratedOnStored:
    """Calibrate on errors of stored predictions, as :func:`rows_with_errors` gives them.

    Features are standardised by training rows, if there are any; never by calibration rows. A
    calibrator that judges no nearness, or takes the inputs, gets them as they are. ``check_rows``
    is False for who has looked at the rows already: whether they are training rows, and whether
    their order matters.
    """
    method, space, known = as_calibrator(calibrator), Embedding(), None
    if training is not None:  # one scale learns from errors of both signs
        known = replace(training[0], scores=training[0].magnitudes)
    if method.judges_nearness and not method.takes_inputs:
        space = fit_embedding(None, None if known is None else known.Z, tails[0].Z)
    no_guarantee = _check_stored(tails[0], known) if check_rows else None
    Z = space.transform(tails[0].Z)
    if known is not None:
        known = replace(known, Z=space.transform(known.Z))
    placed = [replace(rows, Z=Z) for rows in tails]
    fitted = calibrate(method, as_score(score), placed, training=known)
    return CalibratedOnStored(replace(fitted, no_guarantee=no_guarantee), space)


def _check_stored(rows: Rows, training: Rows | None) -> str | None:
    """As ``refuse_seen``; errors that depend on the order of rows are pointed out, too."""
    warn_of_trend(rows.magnitudes if rows.signs is None else rows.signs * rows.scores)
    if training is None:
        return None
    return refuse_seen(sketch_rows(training.Z, training.targets), rows.Z, rows.targets)
