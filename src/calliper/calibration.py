"""The one place where a calibrator meets predictions: scores in, intervals and a promise out.

The regressor, the command line, an evaluation and a comparison all have predictions of rows with
known targets, however they came by them. Here a score turns these into errors, a calibrator is
fitted to each tail of them, and its radii become intervals.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, indexable

from calliper import _validation as valid
from calliper._notebook import floored
from calliper._row_checks import RowSketch, refuse_seen, state_of, warn_of_trend
from calliper._types import AgeingWeights, Coverage, FloatArray, IntArray
from calliper.calibrators import (
    Calibrator,
    FullRescaled,
    Grouped,
    Split,
    as_calibrator,
    refuse_distribution,
    takers_of_weights,
)
from calliper.distribution import Distribution
from calliper.exceptions import (
    CalliperError,
    QuantileCrossingWarning,
    SmallCalibrationWarning,
    UnusedWarning,
    ZeroScaleWarning,
    unheard,
    warn,
)
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.models import is_frozen, predictions
from calliper.quantile import as_fraction, conformal_rank, effective_size
from calliper.rows import Rows
from calliper.scores import AbsoluteError, DistributionError, Score, SignedError, as_score
from calliper.space import (
    RAW,
    UNTOUCHED,
    Embedding,
    ErrorModel,
    LearningPart,
    LeftOut,
    Training,
    checked_gap,
    deal,
    fit_embedding,
    learn_errors,
    n_teaching,
    part_of_few,
    refuse_changing,
    warn_if_poor,
)

#: What is known of the assumption that the model has not seen the calibration rows.
CHECKED = "Checked when calibrating: no sign that the model was trained on these rows."
UNCHECKED = (
    "Not checked: whether the model was trained on these rows, since no training rows were given "
    "(calibrate with X_train and y_train)."
)
#: What is known of the assumption that calibration and new rows are predicted alike.
NOT_ALONE = (
    "Not checked: whether the model predicts a row alone as it does in a batch, since it could "
    "not predict one row."
)
OTHERWISE = (
    "Rounding makes the model predict some rows slightly differently alone and in a batch. So "
    "{:.1g}, twice the largest difference seen, is added to each radius; the promise assumes "
    "that no difference is larger."
)

#: What is said where calibration rows were dealt into two parts.
TAUGHT = (
    "{:,} other rows were used to learn how the model errs. They were chosen by position alone, "
    "and the promise rests on the {:,} that calibrate."
)
#: What is said of a level that needs more rows than those.
FROM_ALL = (
    "This level needs more than the {:,} rows that calibrate, so that intervals are as wide as "
    "those of plain split on all {:,} rows."
)
#: What is known of the assumption that the order of rows tells nothing.
IN_ORDER = (
    "Checked when calibrating: errors depend on the row number. If rows are in order of time, they "
    "are not exchangeable with later ones, and nothing is promised for these."
)


@dataclass(frozen=True, eq=False)
class TrainedHere:
    """A model that ``fit`` trained: a copy of which estimator, and a sketch of its rows."""

    estimator: Any
    model: Any
    rows: RowSketch


@dataclass(frozen=True, eq=False)
class Calibration:
    """What calibration made: all that new rows are answered by.

    Attributes
    ----------
    score : what is called an error
    calibrators : one for most scores, two where each side of the prediction has its own
    no_guarantee : why nothing is proved with these calibration rows, in words; None if all is well
    model : whose predictions are the centre of the intervals
    space : the fitted map to where nearness is judged
    left_out : training rows as seen by models that were not trained on them, or None
    error_model : the fitted model of errors, or None
    per_row : what tells group and weight of a new row
    row_trend : how errors depend on the order of the rows, or None
    probe : a few calibration rows as plain values, or None
    chosen : parameters of the front door that the calibration followed, by name
    has_training : whether training rows were given
    trained : the model that ``fit`` trained, or None
    n_taught : calibration rows that taught how the model errs, and calibrate no more
    on_all : plain split on all rows, for levels that the others are too few for; None if not needed
    slack : added to every radius, since the model predicts rows otherwise alone than beside others;
        None if it cannot be asked for one row
    """

    score: Score
    calibrators: tuple[Calibrator, ...]
    no_guarantee: str | None = None
    model: Any = None
    space: Any = None
    left_out: LeftOut | None = None
    error_model: ErrorModel | None = None
    per_row: valid.PerRow = valid.PerRow()  # noqa: RUF009
    row_trend: Any = None
    probe: Any = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    has_training: bool = False
    trained: TrainedHere | None = None
    n_taught: int = 0
    on_all: "Calibration | None" = None
    slack: float | None = 0.0

    @property
    def around(self) -> str:
        """What intervals are centred on, in words, if not just the prediction."""
        return "" if self.error_model is None else self.error_model.describe()

    @property
    def unchecked(self) -> bool:
        """Whether neither ``fit`` nor training rows could tell what the model was trained on."""
        if self.trained is not None and self.trained.model is self.model:
            return is_frozen(self.model)  # it was trained elsewhere, on whatever rows
        return not self.has_training

    def checks(self, level: float) -> list[str]:
        """Which assumptions were checked, and with what result: a line each."""
        lines, n = [UNCHECKED if self.unchecked else CHECKED], self.calibrators[0].n_calibration_
        if self.row_trend is not None:
            lines.append(IN_ORDER)
        answering = self._answering(level)
        if answering is not self:
            lines.insert(0, FROM_ALL.format(n, answering.calibrators[0].n_calibration_))
        elif self.n_taught:
            lines.insert(0, TAUGHT.format(self.n_taught, n))
        if self.slack is None:
            lines.append(NOT_ALONE)
        elif self.slack:
            lines.append(OTHERWISE.format(self.slack))
        return lines

    def describe(self, promise: Guarantee) -> list[str]:
        """What was calibrated, where and how near, and what is promised at 0.9: a line each."""
        method = self.calibrators[0]
        locality = method.locality_ if isinstance(method, FullRescaled) else None
        lines = [
            f"calibrated on {method.n_calibration_:,} rows by {promise.method}"
            + (
                f"; {self.n_taught:,} others used to learn how the model errs"
                if self.n_taught
                else ""
            ),
            f"near in {self.space}" if method.judges_nearness else "",
            "" if locality is None else f"as local as {locality.describe()}",
            "" if self.left_out is None or self.n_taught else f"left-out errors: {self.left_out}",
            self.around,
            f"promised at 0.9: {floored(promise.proved)}"
            + (f" ({self.no_guarantee})" if self.no_guarantee is not None else "")
            + (", unless rows are in order of time" if self.row_trend is not None else ""),
            UNCHECKED if self.unchecked and self.no_guarantee is None else "",
        ]
        return [line for line in lines if line]

    def intervals(
        self,
        y_pred: FloatArray,
        Z: FloatArray,
        coverage: Coverage = 0.9,
        *,
        bounds: tuple[float | None, float | None] | None = None,
        index: Any = None,
        confidence: float | None = None,
        X: Any = None,
        **per_row: Any,
    ) -> Intervals:
        """Intervals around predictions of rows at ``Z``, at one level or several.

        Parameters
        ----------
        y_pred : (m,), or (m, p) for a score of p predictions a row
        Z : (m, d) features of the same rows
        bounds : (y_min, y_max), the range that y can have; ends are moved into it
        index : row labels of the frame that the rows came in
        confidence : share of draws of the calibration rows in which the level shall be reached
        X : the rows themselves, for levels that plain split on all rows must answer
        per_row : groups and weights of the rows, if calibration was given such
        """
        levels = valid.check_levels(coverage)
        served = levels if confidence is not None else tuple(map(self._served, levels))
        per_tail = [self._of_tail(level) for level in served]
        distinct = tuple(dict.fromkeys(per_tail))
        if confidence is not None:
            confidence = self._of_tail(valid.check_level(confidence, "confidence"))
        known = {"confidence": confidence, **per_row}
        asked = {name: value for name, value in known.items() if value is not None}
        tails = [each.predict_radius(Z, distinct, **asked) for each in self.calibrators]
        radius = np.stack(tails, axis=-1)[:, [distinct.index(level) for level in per_tail]]
        radius += self.slack or 0.0
        per_level = y_pred[:, None]  # predictions are the same at every level
        one_tail = len(self.calibrators) == 1
        lower, upper = self.score.invert(per_level, radius[..., 0] if one_tail else radius)
        if served != levels:
            lower, upper = self._from_all(X, y_pred, levels, served, lower, upper)
        if bounds is not None:
            low, high = valid.check_bounds(bounds)
            lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
        if np.ndim(coverage) == 0:
            return Intervals(lower[..., 0], upper[..., 0], levels[0], index, self.centre(y_pred))
        return Intervals(lower, upper, levels, index, self.centre(y_pred))

    def _served(self, level: float) -> float:
        """The level, or the highest the rows support if plain split on all rows can do better."""
        n = self.calibrators[0].n_calibration_
        if self.on_all is None or conformal_rank(level, n) <= n:
            return level
        n_all = self.on_all.calibrators[0].n_calibration_
        return (n - 0.5) / (n + 1) if conformal_rank(level, n_all) <= n_all else level

    def _answering(self, level: float) -> Self:
        """What is promised at the level is promised by this: plain split on all, if it answers."""
        here = self.on_all is None or self._served(level) == level
        return self if here else self.on_all  # type: ignore[return-value]

    def _from_all(
        self,
        X: Any,
        y_pred: FloatArray,
        levels: tuple[float, ...],
        served: tuple[float, ...],
        lower: FloatArray,
        upper: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Ends as wide as plain split on all rows where a higher level was asked than served.

        By counts and levels alone: which rows answer must not depend on errors. Ends of the highest
        level that the other rows serve stay inside, so that intervals are nested in the level. The
        slack is in the units of the score, and so much is added here, too.
        """
        assert self.on_all is not None
        higher = [number for number, level in enumerate(levels) if level != served[number]]
        asked = [levels[number] for number in higher]
        plain = self.on_all.intervals(_middle(self.space, X), np.zeros((len(lower), 1)), asked)
        low, high = plain.lower, plain.upper
        if self.slack:
            slack, centre = np.full((len(low), 1), self.slack), self.centre(y_pred)[:, None]
            ends = self.score.invert(y_pred[:, None], slack)
            low, high = low - (centre - ends[0]), high + (ends[1] - centre)
        lower, upper = lower.copy(), upper.copy()
        lower[:, higher] = np.minimum(lower[:, higher], low)
        upper[:, higher] = np.maximum(upper[:, higher], high)
        n, n_all = (each.calibrators[0].n_calibration_ for each in (self, self.on_all))
        warn(
            f"Coverage {', '.join(map(str, asked))} needs more than the {n:,} rows that "
            f"calibrate: intervals have the width of plain split on all {n_all:,} rows there, "
            f"without what was learnt from {self.n_taught:,} of them. learning_part=None "
            "calibrates on all rows.",
            SmallCalibrationWarning,
        )
        return lower, upper

    def extended(
        self,
        X: Any,
        y: FloatArray,
        y_pred: FloatArray,
        Z: FloatArray,
        *,
        window: int | None = None,
        **per_row: Any,
    ) -> Self:
        """The same with further rows, as calibrated anew on all; this one stays as it is."""
        # To tell copies from chance takes a few rows, and time.
        trained = self.trained if len(y) >= 5 else None
        known = trained is not None and trained.model is self.space.model
        seen = refuse_seen(trained.rows, X, y) if trained is not None and known else None
        n = self.calibrators[0].n_calibration_ + len(y)
        length = self.space.length_scale(
            n if window is None else min(n, valid.at_least(window, 1, "window"))
        )
        ageing, before = self.per_row.weights, self.calibrators
        if isinstance(ageing, AgeingWeights):
            per_row["weights"] = ageing.of_age(len(y))
            before = tuple(each.aged(per_row["weights"][0]) for each in before)
        tails = measured(self.score, Z, y, y_pred, **per_row)
        if len(y) >= 5:
            self.calibrators[0].warn_if_known(tails[0].scores)
        grown = tuple(
            copy(calibrator).extend_by(rows, window=window, length_scale=length)
            for calibrator, rows in zip(before, tails, strict=True)
        )
        on_all = self.on_all
        if on_all is not None:  # with a window old rows are dropped, and those that taught are old
            on_all = None if window is not None else _plain(self.space, X, y, on_all)
        why = self.no_guarantee or seen
        return replace(self, calibrators=grown, no_guarantee=why, on_all=on_all)

    def share_below(self, y: FloatArray, y_pred: FloatArray, Z: FloatArray) -> FloatArray | None:
        """Share of thresholds below the score of each row, (m,); None where they are not alike."""
        scores = self.score.measure(y, y_pred)
        if len(self.calibrators) > 1 or scores.ndim > 1:
            return None
        return self.calibrators[0].share_below(Z, scores - (self.slack or 0.0))

    def distribution(
        self,
        y_pred: FloatArray,
        Z: FloatArray,
        *,
        bounds: Any = None,
        index: Any = None,
        **per_row: Any,
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
            Z, np.zeros(len(y_pred)), bounds=bounds, **per_row
        )
        return made._placed(y_pred, self.score, index)

    def centre(self, y_pred: FloatArray) -> FloatArray:
        """One number a row, (m,): the prediction, or the middle of several."""
        return y_pred if y_pred.ndim == 1 else np.asarray(self.score.centre(y_pred))

    def errors(self, y: FloatArray, y_pred: FloatArray) -> FloatArray:
        """Errors with their sign, (n,); of several targets that of the worst."""
        several = y.ndim == 2
        return np.asarray(self.score.signed(y, y_pred)) if several else y - self.centre(y_pred)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage, with two tails by the union bound; 0 if nothing is."""
        return valid.each_level(self._proved, coverage)

    def _proved(self, level: float) -> float:
        if self.no_guarantee is not None:
            return 0.0
        calibrators = self._answering(level).calibrators
        per_tail = (c.guaranteed_coverage(self._of_tail(level)) for c in calibrators)
        return float(1 - sum(1 - proved for proved in per_tail))

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions; a tail's own words are dropped with two."""
        coverage = valid.check_level(coverage)
        of_one = confidence
        if confidence is not None:
            of_one = self._of_tail(valid.check_level(confidence, "confidence"))
        answering = self if confidence is not None else self._answering(coverage)
        if answering is not self and self.no_guarantee is None:  # no law: they may be wider
            return replace(answering.guarantee(coverage), has_law=False)
        of_tail: Guarantee = self.calibrators[0].guarantee(self._of_tail(coverage), of_one)
        tails = len(self.calibrators)
        if tails == 1 and self.no_guarantee is None:
            return replace(of_tail, around=self.around)
        return replace(
            of_tail,
            coverage=coverage,
            proved=self._proved(coverage),
            # Of two tails it is known if one order of the rows serves both: Beta(2k, N+1−2k).
            has_law=isinstance(self.score, SignedError) and of_tail.method == Split.__name__,
            tails=tails,
            around=self.around,
            note=None if self.no_guarantee is None else f"nothing is promised. {self.no_guarantee}",
            confidence=confidence,
        )

    def _of_tail(self, level: float) -> float:
        """The level of each tail at which all of them together miss no more than allowed."""
        return float(1 - (1 - as_fraction(level)) / len(self.calibrators))


def calibrate_model(
    front: Any,
    model: Any,
    X: Any,
    y: FloatArray,
    training: Training,
    order: Any = None,
    *,
    per_row: valid.PerRow = valid.PerRow(),  # noqa: B008
    lazy: Any = None,
) -> Calibration:
    """Calibrate a fitted model on rows that it has not seen, as the parameters of ``front`` say.

    Parameters
    ----------
    order : numbers of the rows in the order in which they came, where they were drawn from more
    lazy : what places rows that are not all in memory; X and y are the first of them
    """
    calibrator = front.calibrator
    asked, score = asked_as(model, front.score_function)
    if isinstance(score, DistributionError):
        from calliper.models import with_usual_slope

        score = with_usual_slope(score, asked, training.X)
    if calibrator is None:
        method: Calibrator = FullRescaled(random_state=front.random_state)
    else:
        method = with_random_state(as_calibrator(calibrator), front.random_state)
    if isinstance(method, Grouped):  # what it wraps meets the model; groups come apart
        per_row = replace(per_row, groups=method.asked(per_row.groups))
        method = as_calibrator(method.calibrator)
    given = per_row.known(X)
    space, score, errors, left_out, (taught, kept) = _learn(
        front, asked, method, score, X, y, training, given
    )
    on_all, at_hand = None, len(y)
    if len(taught):
        if not given and lazy is None:
            on_all = _plain(space, X, y)
        X, y = _safe_indexing(indexable(X)[0], kept), y[kept]
        given = {name: value[kept] for name, value in given.items()}
        order = kept if order is None else order[kept]
    y_pred, Z = space.predict_and_transform(X)
    slack = slack_of(score, y, y_pred, *refuse_changing(space, X, y_pred, Z))
    if lazy is not None:
        y, y_pred, Z, given = lazy.located(space)
        kept = np.append(kept, np.arange(at_hand, len(y)))  # those at hand are the first of them
        y, y_pred, Z = y[kept], y_pred[kept], Z[kept]
        given = {name: value[kept] for name, value in given.items()}
        several = np.ndim(y) == 2 and np.shape(y)[1] > 1
        y = (
            np.stack([valid.check_vector(t, "y") for t in y.T], 1)
            if several
            else valid.check_vector(y, "y")
        )
    if method.judges_nearness and _inputs_of(method) is None:
        warn_if_poor(space, Z)
    made = calibrate(
        method,
        score,
        measured(score, Z, y, y_pred, **given),
        training=None if training.X is None else training.seen(space, score, method.uses),
        left_out=left_out,
        length_scale=space.length_scale(len(y)),
    )
    return replace(
        made,
        model=model,
        space=space,
        left_out=left_out,
        error_model=errors,
        per_row=per_row.remembered(),
        row_trend=warn_of_trend(made.errors(y, y_pred), order),
        probe=state_of(valid.first_rows(X)),
        chosen=chosen_of(front),
        has_training=training.X is not None,
        n_taught=len(taught),
        on_all=on_all,
        slack=slack,
    )


def asked_as(model: Any, score: Any) -> tuple[Any, Score]:
    """What is asked for predictions, and their score: the model itself, unless of quantiles."""
    if score is None or isinstance(score, DistributionError):
        from calliper.models import model_of_quantiles

        found = model_of_quantiles(model, score)
        if found is not None:
            return found
    return model, as_score(score)


def chosen_of(front: Any) -> dict[str, Any]:
    """The parameters that a calibration follows; others may be set on the front door later."""
    own = vars(front)
    names = ("calibrator", "embed", "score_function", "error_model", "learning_part")
    return {name: own[name] for name in names if name in own}


def slack_of(
    score: Score, y: FloatArray, y_pred: FloatArray, few: IntArray, answers: list[FloatArray]
) -> float | None:
    """Twice the most that a score moves where the model is asked for ``few`` rows otherwise.

    A target that ties with the threshold is held by its interval whatever rows are asked for beside
    it. Each row's prediction is scored with the targets of all of them, so that a side on which a
    target does not lie counts, too. None if the model could not be asked for one row.
    """
    row, target = (each.ravel() for each in np.indices((len(few), len(few))))
    with unheard(QuantileCrossingWarning, ZeroScaleWarning):
        first, *later = (
            score.measure(y[few[target]], each[row]) for each in (y_pred[few], *answers)
        )
    moved = [np.abs(each - first).max() for each in later]
    return 2 * float(max(moved)) if len(answers) > 1 else None


def _learn(
    front: Any,
    model: Any,
    method: Calibrator,
    score: Score,
    X: Any,
    y: FloatArray,
    training: Training,
    given: Mapping[str, Any],
) -> tuple[Embedding, Score, ErrorModel | None, LeftOut | None, tuple[IntArray, IntArray]]:
    """The space, the score, and what left-out rows teach if the calibrator uses them.

    Last, the numbers of the calibration rows that taught it, and of those that may calibrate.
    """
    uses, known = method.uses, training.X is not None
    none = np.empty(0, dtype=np.intp), np.arange(len(y))
    asks, part_of = "left_out" in uses, front.learning_part
    chosen_part = part_of is not None and part_of != "auto"
    if not chosen_part and not (asks and _enough(given.get("weights"))):
        part_of = None  # "auto" is for calibrators that use left-out errors, and for rows to spare
    elif part_of == "auto" and not given and isinstance(score, DistributionError):
        part_of = part_of_few(len(y))
    deals = part_of is not None
    errors = _checked_error_model(front.error_model, score, asks=(asks and known) or deals)
    adjusts = errors is not None and errors.adjusts
    located = method.judges_nearness or asks or adjusts or "training" in uses

    auto = isinstance(front.embed, str) and front.embed == "auto"
    # Predictions are all that is asked where rows are counted; quantiles tell doubt, too.
    bare = not located or (auto and isinstance(score, DistributionError))

    def space_of(rows: Training) -> Embedding:
        return fit_embedding(
            "prediction" if bare else front.embed,
            rows.X,
            X,
            model=model,
            n_outputs=score.n_outputs,
            units=score.units,
            y_train=rows.y,
            raw=_inputs_of(method),
            nearness=method.judges_nearness,
        )

    chosen = auto and asks
    wanted = ErrorModel(recentre=False, units=False) if errors is None else errors
    space = None
    if known:
        space = space_of(training)
        unseen = training.left_out(space) if asks or adjusts else None
        if unseen is not None:
            if chosen_part:
                warn(
                    f"learning_part={part_of!r} is not used: training rows are used to learn "
                    "instead, and all rows calibrate.",
                    UnusedWarning,
                )
            return *learn_errors(training, unseen, space, score, wanted, chosen=chosen), none
    if chosen_part and errors is None:
        warn(
            f"learning_part={part_of!r} is not used: errors of {score!r} are not learnt, or "
            f"error_model is None. All rows calibrate.",
            UnusedWarning,
        )
    if deals and errors is not None:
        taught, kept = deal(
            len(y),
            part_of,
            labels=given.get("groups"),
            shuffle=front.shuffle is not False,
            gap=checked_gap(front),
            random_state=front.random_state,
        )
        if len(taught):
            part = LearningPart(X=_safe_indexing(indexable(X)[0], taught), y=y[taught])
            space = space_of(part) if space is None else space
            unseen = part.left_out(space)
            learnt = learn_errors(part, unseen, space, score, wanted, chosen=chosen)
            return *learnt, (taught, kept)
    return (space_of(training) if space is None else space), score, None, None, none


def _enough(weights: FloatArray | None) -> bool:
    """Whether rows that weigh so much, which is known beforehand, are enough for two parts."""
    return weights is None or n_teaching(int(effective_size(weights)), "auto") > 0


def _inputs_of(method: Calibrator) -> Any:
    """The inputs as they are, if it asks for them, or its kernel, made of a model of its own."""
    if method.takes_inputs:
        return UNTOUCHED
    return RAW if method.kernel is not None and method.kernel.takes_inputs else None


def _checked_error_model(given: Any, score: Score, *, asks: bool) -> ErrorModel | None:
    """What to learn from left-out errors, or None; ``asks`` says whether the calibrator does."""
    learns = isinstance(score, AbsoluteError | DistributionError)
    if isinstance(given, str) and given == "auto":
        return ErrorModel() if asks and learns else None
    if given is None:
        return None
    if not isinstance(given, ErrorModel):
        raise TypeError(f"error_model must be 'auto', None or an ErrorModel; got {given!r}.")
    if given.adjusts and not learns:
        raise CalliperError(
            f"an ErrorModel gives each side its own unit of the absolute error; the score "
            f"function is {score!r}. Leave out one of them."
        )
    return given


def calibrate(
    method: Calibrator,
    score: Score,
    tails: list[Rows],
    *,
    training: Rows | None = None,
    left_out: Rows | None = None,
    length_scale: float | None = None,
) -> Calibration:
    """Fit a copy of the calibrator to each tail of the errors; to those of each group, if given.

    What is known beyond the calibration rows it is told as far as it uses it.
    """
    if tails[0].weights is not None and "weights" not in method.uses:
        raise CalliperError(f"{type(method).__name__} takes no weights: {takers_of_weights()}.")
    if tails[0].groups is not None:
        method = Grouped(method)
    fitted = (
        clone(method).fit_to(rows, training=training, left_out=left_out, length_scale=length_scale)
        for rows in tails
    )
    return Calibration(score, tuple(fitted))


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


def _middle(space: Embedding, X: Any) -> FloatArray:
    """One prediction a row, (m,): the middle, if the model predicts quantiles."""
    y_pred = predictions(space.model, X, space.n_outputs)
    return y_pred if y_pred.ndim == 1 else np.asarray(np.median(y_pred, axis=1))


def _plain(
    space: Embedding, X: Any, y: FloatArray, before: Calibration | None = None
) -> Calibration:
    """Plain split on these rows, and on those that it was on before."""
    y_pred, nowhere = _middle(space, X), np.zeros((len(y), 1))
    rows = measured(AbsoluteError(), nowhere, y, y_pred)
    if before is None:
        return calibrate(Split(), AbsoluteError(), rows)
    grown = copy(before.calibrators[0]).extend_by(rows[0], window=None, length_scale=None)
    return replace(before, calibrators=(grown,))


def with_random_state(calibrator: Any, random_state: Any) -> Any:
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
