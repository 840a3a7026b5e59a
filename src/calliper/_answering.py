"""What calibration made, and how it answers: intervals, distributions and a guarantee."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Annotated, Any

import numpy as np
from sklearn.exceptions import NotFittedError

from calliper import _validation as valid
from calliper._handlers import handler_of_collection
from calliper._kept import Array, Inline, Keeps, Number, Part, Plain, Text
from calliper._notebook import floored
from calliper._row_checks import RowSketch
from calliper._types import BothEnds, Coverage, FloatArray, Levels
from calliper.calibrators import Calibrator, FullRescaled, Split
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.models import asked_as, is_frozen, predictions
from calliper.quantile import as_fraction, conformal_rank
from calliper.rows import Rows, RowSources, RowTrend, gathered, same_rows
from calliper.scores import AbsoluteError, ScaledError, Score, SignedError
from calliper.space import Embedding, ErrorModel, LeftOut

#: What is known of the assumptions: that the model has not seen the calibration rows, that it
#: predicts calibration and new rows alike, that their order does not matter; and who calibrates.
CHECKED = "Checked when calibrating: no sign that the model was trained on these rows."
UNCHECKED = (
    "No training rows were given, so calliper could not check whether the model was trained on the "
    "calibration rows. To check this, pass X_train and y_train."
)
NOT_ALONE = (
    "Not checked: whether the model predicts a row alone as it does in a batch, since it could "
    "not predict one row."
)
OTHERWISE = (
    "Rounding makes the model predict some rows slightly differently alone and in a batch. So "
    "{:.1g}, twice the largest difference seen, is added to each radius; the guarantee assumes "
    "that no difference is larger."
)
IN_ORDER = (
    "Checked when calibrating: errors depend on the row number. If rows are in order of time, "
    "they are not exchangeable with later rows, and the guarantee does not cover those."
)
TAUGHT = (
    "{:,} other rows were used to learn where errors are large. They were chosen without looking "
    "at their values, so the guarantee for the {:,} calibration rows is not affected."
)
FROM_ALL = (
    "This level needs more than the {:,} calibration rows, so intervals are as wide as those of "
    "plain split on all {:,} rows."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration(Keeps):
    """What calibration made: everything that answers for new rows.

    A file keeps what is annotated so; the model stays outside.
    """

    score: Annotated[Score, Plain("score_function")]
    #: One for most scores, two where each side of the prediction has its own.
    calibrators: Annotated[tuple[Calibrator, ...], Part("calibrators", several=True)]
    #: Why nothing is proved with these calibration rows, in words.
    no_guarantee: Annotated[str | None, Text(optional=True)] = None
    #: The fitted map to where nearness is judged.
    space: Annotated[Any, Inline(Embedding)] = None
    left_out: Annotated[LeftOut | None, Inline(LeftOut, optional=True)] = None
    #: What gives the group and the weight of a new row.
    per_row: Annotated[RowSources, Inline(RowSources)] = RowSources()  # noqa: RUF009
    row_trend: Annotated[RowTrend | None, Inline(RowTrend, optional=True)] = None
    #: Whether training rows were given; a sketch of those that the model was trained on.
    has_training: Annotated[bool, Number(bool)] = False
    sketch: Annotated[RowSketch | None, Inline(RowSketch, optional=True)] = None
    #: Calibration rows that were used to learn how the model errs, and do not calibrate.
    n_taught: Annotated[int, Number(int, 0)] = 0
    #: The lowest and the highest of each target of all calibration rows, to check bounds by.
    target_range: Annotated[Any, Array("float64", (2, "t"))] = ()
    #: Plain split on all rows, for levels that need more of them.
    on_all: Annotated[Any, Part("calibrators", optional=True)] = None
    #: Added to every radius, since rounding changes predictions between batches; None if unknown.
    slack: Annotated[float | None, Number(least=0, optional=True)] = 0.0
    #: Whose predictions are the centre of the intervals; the estimator that ``fit`` trained.
    model: Any = None
    trained_from: Any = None
    #: A few calibration rows as plain values, by which a file knows the model again.
    probe: Any = None
    #: What was predicted of them, and how much that may differ in another batch.
    predicted: tuple[FloatArray, FloatArray] | None = None
    #: Parameters of the regressor that the calibration followed, by name.
    chosen: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_calibration(self) -> int:
        """Rows that calibrate."""
        return self.calibrators[0].n_calibration_

    @property
    def error_model(self) -> ErrorModel | None:
        """The fitted model of errors, or None."""
        return None if self.space is None else self.space.space.errors

    @property
    def around(self) -> str:
        """What intervals are, in words, if anything was learnt; the end of a sentence."""
        learnt = "" if self.error_model is None else self.error_model.describe()
        ends = self.score.describe_ends() if isinstance(self.score, ScaledError) else ""
        return ", and ".join(part for part in (learnt, ends) if part)

    @property
    def unchecked(self) -> bool:
        """Whether the rows that the model was trained on are unknown."""
        if self.trained_from is not None:
            return is_frozen(self.model)  # it was trained elsewhere, on whatever rows
        return not self.has_training

    def checks(self, level: float) -> list[str]:
        """Which assumptions were checked, and with what result: a line each."""
        lines = [TAUGHT.format(self.n_taught, self.n_calibration)] if self.n_taught else []
        if self._served(level) != level:
            lines = [FROM_ALL.format(self.n_calibration, self.on_all.n_calibration_)]
        lines.append(UNCHECKED if self.unchecked else CHECKED)
        if self.row_trend is not None:
            lines.append(IN_ORDER)
        if self.slack is None:
            lines.append(NOT_ALONE)
        elif self.slack:
            lines.append(OTHERWISE.format(self.slack))
        return lines

    def describe(self, promise: Guarantee) -> list[str]:
        """What was calibrated, in which space, and what is guaranteed at 0.9: a line each."""
        method, taught = self.calibrators[0], self.n_taught
        locality = method.locality_ if isinstance(method, FullRescaled) else None
        others = f"; {taught:,} others used to learn where errors are large" if taught else ""
        why = "" if self.no_guarantee is None else f" ({self.no_guarantee})"
        unless = "" if self.row_trend is None else ", unless rows are in order of time"
        lines = [
            f"calibrated on {self.n_calibration:,} rows by {promise.method}{others}",
            f"feature space: {self.space}" if method.judges_nearness else "",
            "" if locality is None else f"locality: {locality.describe()}",
            "" if self.left_out is None or taught else f"held-out errors: {self.left_out}",
            f"intervals are {self.around}" if self.around else "",
            f"guaranteed coverage at level 0.9: {floored(promise.proved)}{why}{unless}",
            UNCHECKED if self.unchecked and self.no_guarantee is None else "",
        ]
        return [line for line in lines if line]

    def intervals(
        self,
        y_pred: FloatArray,
        new: Rows,
        coverage: Coverage = 0.9,
        *,
        X: Any = None,
        bounds: tuple[float | None, float | None] | None = None,
        confidence: float | None = None,
    ) -> Intervals:
        """Intervals around predictions (m,), or (m, p), of new rows, at one level or several.

        ``X`` are the rows as they came: for their labels, and for levels that plain split on all
        rows must answer.
        """
        levels = served = valid.check_levels(coverage)
        ends = None if bounds is None else valid.check_bounds(bounds, self.target_range)
        valid.refuse_lone_confidence(coverage, confidence)
        if confidence is None:
            served = tuple(map(self._served, levels))
        # Predictions are the same at every level.
        lower, upper = self.score.invert(y_pred[:, None], self._radii(new, served, confidence))
        if served != levels:
            # Ends of the highest level that these rows serve stay inside: intervals are nested.
            higher = [number for number, level in enumerate(levels) if level != served[number]]
            low, high = self._from_all(X, y_pred, [levels[number] for number in higher])
            lower, upper = lower.copy(), upper.copy()
            lower[:, higher] = np.minimum(lower[:, higher], low)
            upper[:, higher] = np.maximum(upper[:, higher], high)
        if ends is not None:
            lower, upper = np.clip(lower, *ends), np.clip(upper, *ends)
        index, centre = valid.labels_of(X), self.centre(y_pred)
        if np.ndim(coverage) == 0:
            return Intervals(lower[..., 0], upper[..., 0], levels[0], index, centre)
        return Intervals(lower, upper, levels, index, centre)

    def _radii(self, new: Rows, levels: Levels, confidence: float | None) -> FloatArray:
        """Radii of new rows, (m, L), or (m, L, 2) with two tails."""
        if confidence is not None:
            confidence = self._of_tail(valid.check_level(confidence, "confidence"))
        per_tail = [self._of_tail(level) for level in levels]
        distinct = tuple(sorted({*per_tail}))
        how: Any = {"confidence": confidence, "weights": new.weights, "groups": new.groups}
        tails = [each.predict_radius(new.Z, distinct, **how) for each in self.calibrators]
        radius = np.stack(tails, axis=-1)[:, [distinct.index(level) for level in per_tail]]
        radius += self.slack or 0.0
        return radius[..., 0] if len(tails) == 1 else radius

    def _served(self, level: float) -> float:
        """The level, or the highest the rows support if plain split on all rows can do better."""
        n, n_all = self.n_calibration, 0 if self.on_all is None else self.on_all.n_calibration_
        if conformal_rank(level, n) <= n or conformal_rank(level, n_all) > n_all:
            return level
        return n / (n + 1)

    def _from_all(self, X: Any, y_pred: FloatArray, levels: list[float]) -> BothEnds:
        """Ends of plain split on all rows, at levels above those that were served, (m, L) each.

        By counts and levels alone: which rows answer must not depend on errors. The slack is in the
        units of the score, and is added here, too.
        """
        radius = self.on_all.predict_radius(np.zeros((len(y_pred), 1)), levels)
        low, high = AbsoluteError().invert(self.space.middle(X)[:, None], radius)
        if self.slack:
            slack, centre = np.full((len(low), 1), self.slack), self.centre(y_pred)[:, None]
            ends = self.score.invert(y_pred[:, None], slack)
            low, high = low - (centre - ends[0]), high + (ends[1] - centre)
        warn(
            f"Coverage {', '.join(map(str, levels))} needs more than the {self.n_calibration:,} "
            "calibration rows, so at this level intervals have the constant width of Split on all "
            f"{self.on_all.n_calibration_:,} rows. What was learnt from {self.n_taught:,} of them "
            "is not used. To calibrate on all rows, set learning_part=None.",
            SmallCalibrationWarning,
        )
        return low, high

    def distribution(
        self, y_pred: FloatArray, new: Rows, *, X: Any, bounds: Any = None
    ) -> Distribution:
        """Predictive distributions of new rows; arguments as those of :meth:`intervals`."""
        if not self.score.has_distribution:
            raise CalliperError(
                f"{self.score!r} does not support predictive distributions; use AbsoluteError() "
                "instead. For one-sided bounds, use the quantiles of the distribution."
            )
        if bounds is not None:
            bounds = valid.check_bounds(bounds, self.target_range)
        (calibrator,) = self.calibrators
        made: Distribution = calibrator.predict_distribution(
            new.Z, np.zeros(len(y_pred)), bounds=bounds, weights=new.weights, groups=new.groups
        )
        return made._moved(y_pred, self.score, valid.labels_of(X))

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """One number a row, (m,): the prediction, or the middle of several."""
        return y_pred if y_pred.ndim == 1 else np.asarray(self.score.centre(y_pred))

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage, with two tails by the union bound; 0 if there is none."""
        return valid.each_level(self._proved, coverage)

    def _proved(self, level: float) -> float:
        if self.no_guarantee is not None:
            return 0.0
        tails = self.calibrators if self._served(level) == level else (self.on_all,)
        per_tail = (each.guaranteed_coverage(self._of_tail(level)) for each in tails)
        return float(1 - sum(1 - proved for proved in per_tail))

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions; with two tails, without the words of either."""
        coverage, of_tail = valid.check_level(coverage), None
        if confidence is not None:
            of_tail = self._of_tail(valid.check_level(confidence, "confidence"))
        elif self.no_guarantee is None and self._served(coverage) != coverage:
            promised: Guarantee = self.on_all.guarantee(coverage)
            return replace(promised, has_law=False)  # they may be wider
        promise: Guarantee = self.calibrators[0].guarantee(self._of_tail(coverage), of_tail)
        tails = len(self.calibrators)
        if tails == 1 and self.no_guarantee is None:
            return replace(promise, around=self.around)
        return replace(
            promise,
            coverage=coverage,
            proved=self._proved(coverage),
            # Of two tails it is known if one order of the rows serves both: Beta(2k, N+1−2k).
            has_law=isinstance(self.score, SignedError) and promise.method == Split.__name__,
            tails=tails,
            around=self.around,
            note=None if self.no_guarantee is None else f"no guarantee. {self.no_guarantee}",
            confidence=confidence,
        )

    def _of_tail(self, level: float) -> float:
        """The level of each tail at which all of them together miss no more than allowed."""
        return float(1 - (1 - as_fraction(level)) / len(self.calibrators))


def check_calibrated(front: Any) -> None:
    """Refuse to answer before there is a calibration."""
    if "calibration_" not in vars(front):
        raise NotFittedError(
            f"This {type(front).__name__} is not calibrated yet: call calibrate(X, y) with rows "
            f"that the fitted model has not seen, or fit(X, y) to train a new model on some rows "
            f"and calibrate on the rest."
        )


def handled(method: valid.Method) -> valid.Method:
    """Decorate a method of a regressor: collections go to their handler, other inputs are rows."""

    @wraps(method)
    def ask(self: Any, X: Any, *given: Any, **known: Any) -> Any:
        valid.refuse_level_words(method, known)
        if isinstance(X, np.ndarray):
            return method(self, X, *given, **known)
        handler = handler_of_collection(X)
        if handler is None:
            return method(self, gathered(X, model=self.estimator)[0], *given, **known)
        check_calibrated(self)
        return handler.answer(method.__name__, self, X, *given, **known)

    return ask  # type: ignore[return-value]


def predicted(front: Any, X: Any, groups: Any, weights: Any) -> tuple[FloatArray, Rows]:
    """Predictions of new rows; and their features, groups and weights."""
    check_calibrated(front)
    valid.check_new_rows(front, X)
    made, new = front.calibration_, Rows(None)
    if groups is not None or weights is not None or made.per_row != RowSources():
        groups, weights = same_rows(X, "X", groups=groups, weights=weights)
        new = made.per_row.of_new(X, groups, weights)
    y_pred, Z = made.space.predict_and_transform(X)
    return y_pred, replace(new, Z=Z)


class Answers:
    """How a calibrated regressor of one target answers for new rows."""

    calibration_: Calibration

    @handled
    def predict(self, X: Any) -> FloatArray:
        """The model's prediction, (m,); the middle one if it predicts several quantiles."""
        check_calibrated(self)
        valid.check_new_rows(self, X)
        made = self.calibration_
        y_pred = predictions(made.space.model, X, made.space.n_outputs)
        if y_pred.ndim == 1:
            return y_pred
        _, score = asked_as(made.model, made.chosen["score_function"])
        return np.asarray(score.centre(y_pred))

    #: So that ``models.unwrapped`` finds the model inside, unless a subclass predicts otherwise.
    predicts_as_its_model = predict

    @handled
    def predict_interval(
        self,
        X: Any,
        coverage: Coverage = valid.USUAL_COVERAGE,
        *,
        bounds: tuple[float | None, float | None] | None = None,
        confidence: float | None = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Intervals:
        """Intervals at one level, or at each of several.

        Parameters
        ----------
        X : rows to predict
        coverage : float or increasing list of floats, default 0.9
            With a list of L levels the ends have shape (m, L).
        bounds : (y_min, y_max), optional
            The range that y can have, known beforehand; ends are moved into it, which loses no
            coverage. ``None`` leaves a side open. Refused if calibration targets lie outside.
        confidence : float, optional
            The share of calibration sets for which the coverage holds; for calibrators with a law
            of coverage, such as ``Split``. Give ``coverage`` as well.
        groups, weights : (m,), column name or function of the rows, optional
            Of each row, if :meth:`calibrate` was given them.
        """
        y_pred, new = predicted(self, X, groups, weights)
        return self.calibration_.intervals(
            y_pred, new, coverage, X=X, bounds=bounds, confidence=confidence
        )

    def ranking(
        self, X: Any, y: FloatArray, *, groups: Any = None, weights: Any = None
    ) -> tuple[FloatArray | None, Callable[[FloatArray], Any]]:
        """Ranks of the scores, and whether the interval at each level contains the target, (m, L).

        The model predicts once. Ranks are shares of the thresholds, (m,); None if these differ
        between rows.
        """
        y_pred, new = predicted(self, X, groups, weights)
        made, ranks = self.calibration_, None
        if groups is None and weights is None and len(made.calibrators) == 1:
            scores = made.score.measure(y, y_pred) - (made.slack or 0.0)
            ranks = made.calibrators[0].share_below(new.Z, scores)
        return ranks, lambda levels: made.intervals(y_pred, new, levels, X=X).contains(y)

    @handled
    def predict_distribution(
        self, X: Any, *, bounds: Any = None, groups: Any = None, weights: Any = None
    ) -> Distribution:
        """The full predictive distribution of each row, from the same calibration.

        See :class:`calliper.distribution.Distribution` for what it answers. For ``AbsoluteError``
        and calibrators with ``has_distribution``; arguments as in :meth:`predict_interval`.
        """
        y_pred, new = predicted(self, X, groups, weights)
        return self.calibration_.distribution(y_pred, new, X=X, bounds=bounds)
