"""The one place where a calibrator meets predictions: scores in, intervals and a promise out.

The regressor, the command line, an evaluation and a comparison all have predictions of rows with
known targets, however they came by them. Here a score turns these into errors, a calibrator is
fitted to each tail of them, and its radii become intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from calliper._kept import Field, Inline, Keeps, Part, Plain, Text
from calliper._row_checks import RowSketch, SharedRows, find_shared, sketch_rows, warn_of_trend
from calliper._types import Coverage, FloatArray
from calliper._validation import check_bounds, check_level, check_levels, like_coverage
from calliper.calibrators import (
    Grouped,
    as_calibrator,
    refuse_distribution,
    takers_of_weights,
)
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, SharedRowsWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.quantile import as_fraction
from calliper.rows import Rows
from calliper.scores import AbsoluteError, Score
from calliper.space import Embedding, fit_embedding


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Fitted calibrators, one for each tail of the score.

    Attributes
    ----------
    score : what is called an error
    calibrators : one for most scores, two where each side of the prediction has its own
    void : why nothing is proved with these calibration rows, in words; None if all is well
    around : what intervals lie around, in words, if it is not simply the prediction
    """

    score: Any
    calibrators: tuple[Any, ...]
    void: str | None = None
    around: str = ""

    def intervals(
        self,
        y_pred: FloatArray,
        Z: FloatArray,
        coverage: Coverage = 0.9,
        *,
        bounds: tuple[float | None, float | None] | None = None,
        index: Any = None,
        confidence: float | None = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Intervals:
        """Intervals around predictions of rows at ``Z``, at one level or several.

        Parameters
        ----------
        y_pred : (m,), or (m, p) for a score of p predictions a row
        Z : (m, d) features of the same rows
        bounds : (y_min, y_max), the range that y can have; ends are moved into it
        index : row labels of the frame that the rows came in
        confidence : share of draws of the calibration rows in which the level shall be reached
        groups, weights : of the rows, if calibration was given such
        """
        levels = check_levels(coverage)
        per_tail = [self._of_tail(level) for level in levels]
        if confidence is not None:
            confidence = self._of_tail(check_level(confidence, "confidence"))
        asked = {"confidence": confidence, "weights": weights, "groups": groups}
        tails = [each.predict_radius(Z, per_tail, **asked) for each in self.calibrators]
        radius = np.stack(tails, axis=-1)
        per_level = y_pred[:, None]  # predictions are the same at every level
        one_tail = len(self.calibrators) == 1
        lower, upper = self.score.invert(per_level, radius[..., 0] if one_tail else radius)
        if bounds is not None:
            low, high = check_bounds(bounds)
            lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
        return Intervals(
            like_coverage(lower, coverage),
            like_coverage(upper, coverage),
            levels[0] if np.ndim(coverage) == 0 else levels,
            index,
            self.centre(y_pred),
        )

    def extended(
        self, tails: list[Rows], *, window: int | None = None, length_scale: float | None = None
    ) -> Calibrated:
        """The same with further rows, as calibrated anew on all; this one stays as it is."""
        grown = tuple(
            copy(calibrator).extend_by(rows, window=window, length_scale=length_scale)
            for calibrator, rows in zip(self.calibrators, tails, strict=True)
        )
        return replace(self, calibrators=grown)

    def distribution(
        self,
        y_pred: FloatArray,
        Z: FloatArray,
        *,
        bounds: Any = None,
        index: Any = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Distribution:
        """Predictive distributions of rows at ``Z``; arguments as those of :meth:`intervals`."""
        if not self.score.has_distribution:
            raise CalliperError(
                f"{self.score!r} has no predictive distribution: use AbsoluteError(). Quantiles of "
                f"its distribution are one-sided bounds, and its intervals have two radii."
            )
        (calibrator,) = self.calibrators
        refuse_distribution(calibrator)
        made: Distribution = calibrator.predict_distribution(
            Z, np.zeros(len(y_pred)), bounds=bounds, weights=weights, groups=groups
        )
        return made.placed(y_pred, self.score, index)

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """One number a row, (m,): the prediction, or the middle of several."""
        return y_pred if y_pred.ndim == 1 else np.asarray(self.score.centre(y_pred))

    def errors(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """Errors with their sign, (n,); of several targets that of the worst."""
        several = y.ndim == 2
        return np.asarray(self.score.signed(y, y_pred)) if several else y - self.centre(y_pred)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage, with two tails by the union bound; 0 if void."""
        proved = [self._proved(level) for level in check_levels(coverage)]
        return proved[0] if np.ndim(coverage) == 0 else np.array(proved)

    def _proved(self, level: float) -> float:
        if self.void is not None:
            return 0.0
        per_tail = (c.guaranteed_coverage(self._of_tail(level)) for c in self.calibrators)
        return float(1 - sum(1 - proved for proved in per_tail))

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions; a tail's own words are dropped with two."""
        coverage = check_level(coverage)
        of_one = confidence
        if confidence is not None:
            of_one = self._of_tail(check_level(confidence, "confidence"))
        of_tail: Guarantee = self.calibrators[0].guarantee(self._of_tail(coverage), of_one)
        tails = len(self.calibrators)
        if tails == 1 and self.void is None:
            return replace(of_tail, around=self.around)
        return replace(
            of_tail,
            coverage=coverage,
            proved=self._proved(coverage),
            tails=tails,
            around=self.around,
            note=None if self.void is None else f"nothing is promised. {self.void}",
            confidence=confidence,
        )

    def _of_tail(self, level: float) -> float:
        """The level of each tail at which all of them together miss no more than allowed."""
        return float(1 - (1 - as_fraction(level)) / len(self.calibrators))


def calibrate(
    calibrator: Any,
    score: Score,
    tails: list[Rows],
    *,
    training: Rows | None = None,
    left_out: Rows | None = None,
    length_scale: float | None = None,
) -> Calibrated:
    """Fit a copy of the calibrator to each tail of the errors; to those of each group, if given.

    What is known beyond the calibration rows it is told as far as it uses it.
    """
    method = as_calibrator(calibrator)
    if tails[0].weights is not None and "weights" not in method.uses:
        raise CalliperError(f"{type(calibrator).__name__} takes no weights: {takers_of_weights()}.")
    if tails[0].groups is not None:
        method = Grouped(method)
    fitted = (
        clone(method).fit_to(rows, training=training, left_out=left_out, length_scale=length_scale)
        for rows in tails
    )
    return Calibrated(score, tuple(fitted))


def measured(
    score: Score,
    Z: Any,
    y: FloatArray,
    y_pred: FloatArray,
    *,
    groups: Any = None,
    weights: Any = None,
) -> list[Rows]:
    """Calibration rows as each tail of the score sees them."""
    magnitudes = score.magnitude(y, y_pred)
    signs = np.sign(score.signed(y, y_pred)) if score.has_sides else None
    tails = score.measure(y, y_pred).reshape(len(y), -1).T
    return [Rows(Z, tail, magnitudes, signs, weights, groups, y) for tail in tails]


def refuse_seen(training: RowSketch | None, X: Any, y: Any) -> str | None:
    """Why calibration rows that the model was trained on void the promise; None if none are.

    Some are pointed out by a warning. If all are, nothing is left to calibrate on: an error.
    """
    if training is None:
        return None
    found = find_shared(training, X, y)
    if found.all_shared:
        raise CalliperError(_meaning(found))
    if not found.certain:
        return None
    warn(f"Nothing is promised any more. {_meaning(found)}", SharedRowsWarning)
    return _meaning(found)


def _meaning(seen: SharedRows) -> str:
    return (
        f"{seen.describe()} The model has seen them, so that its errors there are smaller than on "
        f"new rows. Calibrate on rows that took no part in training."
    )


def seeded(calibrator: Any, random_state: Any) -> Any:
    """A copy whose every ``random_state`` that is None, nested ones too, is the given one.

    Nothing that the copy shares with the calibrator, such as a trained forest, is touched.
    """
    copied = clone(calibrator)
    given, own = calibrator.get_params(), copied.get_params()
    missing = []
    for name, value in own.items():
        owner, _, last = name.rpartition("__")
        shared = owner in own and own[owner] is given[owner]
        if last == "random_state" and value is None and not shared:
            missing.append(name)
    return copied.set_params(**dict.fromkeys(missing, random_state))


def rows_with_errors(X: FloatArray, y: FloatArray, y_pred: FloatArray) -> Rows:
    """Rows whose predictions were stored, with their absolute errors."""
    (rows,) = measured(AbsoluteError(), X, y, y_pred)
    return rows


@dataclass(frozen=True, eq=False)
class CalibratedOnStored(Keeps):
    """A calibrator that has learnt from stored rows, and the map to where it judges nearness.

    ``about`` is what whoever keeps it in a file wants to know of the rows, in plain values.
    """

    calibrated: Calibrated
    embedding: Embedding
    about: dict[str, Any] | None = None

    keeps: ClassVar[Mapping[str, Field]] = {
        "calibrators": Part("calibrators", several=True),
        "space": Inline(Embedding),
        "void": Text(optional=True),
        "about": Plain(),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; errors of stored predictions are absolute."""
        known = {"calibrators": self.calibrated.calibrators, "void": self.calibrated.void}
        return {**known, "space": self.embedding, "about": self.about}

    @classmethod
    def again(cls, state: dict[str, Any]) -> CalibratedOnStored:
        """The calibrator, and what is known of the columns."""
        if len(state["calibrators"]) != 1:
            raise CalliperError("stored predictions have one calibrator.")
        fitted = Calibrated(AbsoluteError(), state["calibrators"], state["void"])
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
        """Intervals of new rows; ``how`` is what :meth:`Calibrated.intervals` takes."""
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
    return CalibratedOnStored(replace(fitted, void=no_guarantee), space)


def _check_stored(rows: Rows, training: Rows | None) -> str | None:
    """As ``refuse_seen``; errors that depend on the order of rows are pointed out, too."""
    warn_of_trend(rows.signs * rows.scores)
    if training is None:
        return None
    return refuse_seen(sketch_rows(training.Z, training.targets), rows.Z, rows.targets)
