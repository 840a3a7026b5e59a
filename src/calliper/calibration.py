"""The one place where a calibrator meets predictions: scores in, intervals and a promise out.

The regressor, the command line, an evaluation and a comparison all have predictions of rows with
known targets, however they came by them. Here a score turns these into errors, a calibrator is
fitted to each tail of them, and its radii become intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Field, Inline, Number, Part, Plain, Text
from calliper._notebook import card, floored, reporter
from calliper._row_checks import (
    RowSketch,
    RowTrend,
    refuse_seen,
    sketch_rows,
    state_of,
    warn_of_trend,
)
from calliper._types import Coverage, FloatArray
from calliper._validation import (
    PerRow,
    at_least,
    check_bounds,
    check_folds,
    check_level,
    check_levels,
    check_vector,
    first_rows,
    gathered,
    handler_of_collection,
    refuse_collection,
    row_values,
)
from calliper.calibrators import (
    Calibrator,
    FullRescaled,
    Grouped,
    as_calibrator,
    picture_of,
    refuse_distribution,
    takers_of_weights,
)
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, EmbeddingWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.models import fit_router, fresh, is_frozen, takes_sparse
from calliper.quantile import as_fraction
from calliper.rows import Rows, same_rows
from calliper.scores import AbsoluteError, Score, as_score
from calliper.shift import ShiftReport
from calliper.space import (
    RAW,
    UNTOUCHED,
    Embedding,
    ErrorModel,
    LeftOut,
    Training,
    fit_embedding,
    learn_errors,
    refuse_changing,
    train_apart,
    warn_if_poor,
)

#: What is known of the assumption that the model has not seen the calibration rows.
CHECKED = "Checked when calibrating: no sign that the model was trained on these rows."
UNCHECKED = (
    "Not checked: whether the model was trained on these rows, since no training rows were given "
    "(calibrate with X_train and y_train)."
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
    """

    score: Score
    calibrators: tuple[Calibrator, ...]
    no_guarantee: str | None = None
    model: Any = None
    space: Any = None
    left_out: LeftOut | None = None
    error_model: ErrorModel | None = None
    per_row: PerRow = PerRow()  # noqa: RUF009
    row_trend: Any = None
    probe: Any = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    has_training: bool = False
    trained: TrainedHere | None = None

    @property
    def around(self) -> str:
        """What intervals lie around, in words, if it is not simply the prediction."""
        return "" if self.error_model is None else self.error_model.describe()

    @property
    def unchecked(self) -> bool:
        """Whether neither ``fit`` nor training rows could tell what the model was trained on."""
        if self.trained is not None and self.trained.model is self.model:
            return is_frozen(self.model)  # it was trained elsewhere, on whatever rows
        return not self.has_training

    def describe(self, promise: Guarantee) -> list[str]:
        """What was calibrated, where and how near, and what is promised at 0.9: a line each."""
        method = self.calibrators[0]
        locality = method.locality_ if isinstance(method, FullRescaled) else None
        lines = [
            f"calibrated on {method.n_calibration_:,} rows by {promise.method}",
            f"near in {self.space}" if method.judges_nearness else "",
            "" if locality is None else f"as local as {locality.describe()}",
            "" if self.left_out is None else f"left-out errors: {self.left_out}",
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
        per_tail = tuple(self._of_tail(level) for level in levels)
        if confidence is not None:
            confidence = self._of_tail(check_level(confidence, "confidence"))
        known = {"confidence": confidence, "weights": weights, "groups": groups}
        asked = {name: value for name, value in known.items() if value is not None}
        tails = [each.predict_radius(Z, per_tail, **asked) for each in self.calibrators]
        radius = np.stack(tails, axis=-1)
        per_level = y_pred[:, None]  # predictions are the same at every level
        one_tail = len(self.calibrators) == 1
        lower, upper = self.score.invert(per_level, radius[..., 0] if one_tail else radius)
        if bounds is not None:
            low, high = check_bounds(bounds)
            lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
        if np.ndim(coverage) == 0:
            return Intervals(lower[..., 0], upper[..., 0], levels[0], index, self.centre(y_pred))
        return Intervals(lower, upper, levels, index, self.centre(y_pred))

    def extended(
        self,
        X: Any,
        y: FloatArray,
        y_pred: FloatArray,
        Z: FloatArray,
        *,
        window: int | None = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Calibration:
        """The same with further rows, as calibrated anew on all; this one stays as it is."""
        # To tell copies from chance takes a few rows, and time.
        trained = self.trained if len(y) >= 5 else None
        known = trained is not None and trained.model is self.space.model
        seen = refuse_seen(trained.rows, X, y) if trained is not None and known else None
        n = self.calibrators[0].n_calibration_ + len(y)
        length = self.space.length_scale(
            n if window is None else min(n, at_least(window, 1, "window"))
        )
        tails = measured(self.score, Z, y, y_pred, groups=groups, weights=weights)
        grown = tuple(
            copy(calibrator).extend_by(rows, window=window, length_scale=length)
            for calibrator, rows in zip(self.calibrators, tails, strict=True)
        )
        return replace(self, calibrators=grown, no_guarantee=self.no_guarantee or seen)

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
        proved = [self._proved(level) for level in check_levels(coverage)]
        return proved[0] if np.ndim(coverage) == 0 else np.array(proved)

    def _proved(self, level: float) -> float:
        if self.no_guarantee is not None:
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
        if tails == 1 and self.no_guarantee is None:
            return replace(of_tail, around=self.around)
        return replace(
            of_tail,
            coverage=coverage,
            proved=self._proved(coverage),
            tails=tails,
            around=self.around,
            note=None if self.no_guarantee is None else f"nothing is promised. {self.no_guarantee}",
            confidence=confidence,
        )

    def _of_tail(self, level: float) -> float:
        """The level of each tail at which all of them together miss no more than allowed."""
        return float(1 - (1 - as_fraction(level)) / len(self.calibrators))


class FrontDoor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters as scikit-learn knows them, and what follows from ``calibration_`` alone."""

    #: What a file keeps of a calibrated one; the model stays outside.
    keeps: ClassVar[Mapping[str, Field]] = {
        "calibrators": Part("calibrators", several=True),
        "space": Inline(Embedding),
        "score": Plain("score_function"),
        "no_guarantee": Text(optional=True),
        "groups": Plain("groups"),
        "weights": Plain("weights"),
        "has_training": Number(bool),
        "sketch": Inline(RowSketch, optional=True),
        "left_out": Inline(LeftOut, optional=True),
        "trend": Inline(RowTrend, optional=True),
        "n_columns": Number(int, 0, optional=True),
        "names": Plain(),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a calibrated one."""
        made = self.calibration_
        here = made.trained is not None and made.trained.model is made.model
        return {
            "calibrators": made.calibrators,
            "space": made.space,
            "score": made.score,
            "no_guarantee": made.no_guarantee,
            "groups": made.per_row.groups,
            "weights": made.per_row.weights,
            "has_training": made.has_training,
            "sketch": made.trained.rows if here and made.trained is not None else None,
            "left_out": made.left_out,
            "trend": made.row_trend,
            "n_columns": vars(self).get("n_features_in_"),
            "names": [*vars(self).get("feature_names_in_", ())],
            **{name: value for name, value in made.chosen.items() if name in vars(self)},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        model, space, sketch = self.estimator, state["space"], state["sketch"]
        space.model = model
        self.calibration_ = Calibration(
            score=state["score"],
            calibrators=state["calibrators"],
            no_guarantee=state["no_guarantee"],
            model=model,
            space=space,
            left_out=state["left_out"],
            error_model=space.error_model,
            per_row=PerRow(groups=state["groups"], weights=state["weights"]),
            row_trend=state["trend"],
            chosen=_chosen(self),
            has_training=state["has_training"],
            trained=None if sketch is None else TrainedHere(model, model, sketch),
        )
        if state["n_columns"] is not None:
            self.n_features_in_ = state["n_columns"]
        if state["names"]:
            self.feature_names_in_ = np.array(state["names"], dtype=object)

    estimator: Any
    calibrator: Any
    embed: Any
    calibration_: Calibration
    estimator_ = property(attrgetter("calibration_.model"), doc="The model that predicts.")
    calibrators_ = property(attrgetter("calibration_.calibrators"), doc="One for each tail.")
    embedding_ = property(attrgetter("calibration_.space"), doc="Where nearness is judged.")
    score_ = property(attrgetter("calibration_.score"), doc="What is called an error.")
    left_out_ = property(attrgetter("calibration_.left_out"), doc="Left-out rows, or None.")
    error_model_ = property(attrgetter("calibration_.error_model"), doc="Of errors, or None.")
    no_guarantee_ = property(
        attrgetter("calibration_.no_guarantee"), doc="Why nothing is promised, or None."
    )

    def shift_report(self, X: Any, coverage: float = 0.9, *, weights: Any = None) -> ShiftReport:
        """What weights leave for these rows: effective calibration rows, infinite intervals.

        By group, ``calibrators_[0].calibrators_[group].shift_report(weights)`` tells.
        """
        self._check_calibrated()
        (weights,) = same_rows(X, "X", weights=weights)
        new = replace(self.calibration_.per_row, groups=None).new(X, weights=weights)
        report: ShiftReport = self.calibrators_[0].shift_report(new["weights"], coverage)
        return report

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage; with two tails, by the union bound."""
        self._check_calibrated()
        return self._promising.guaranteed_coverage(coverage)

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        self._check_calibrated()
        promise = self._promising.guarantee(coverage, confidence)
        seen = UNCHECKED if self.calibration_.unchecked else CHECKED
        return replace(promise, checks=f"{seen}\n{promise.checks}")

    @property
    def _promising(self) -> Calibration:
        """What the promise is read from."""
        return self.calibration_

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``calibrator__`` and its like name those of the default, too."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and self.calibrator is None:
            nested = FullRescaled().get_params().items()
            params.update({f"calibrator__{name}": value for name, value in nested})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; to set one of the default calibrator's makes it explicit."""
        nested = any(name.startswith("calibrator__") for name in params)
        if nested and params.get("calibrator", self.calibrator) is None:
            params["calibrator"] = FullRescaled()
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.estimator)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "calibration_" in vars(self)

    def __sklearn_clone__(self) -> Self:
        """As usual, but for estimators that cannot be cloned; these are copied."""
        around = copy(self)
        around.estimator = None
        cloned: Self = BaseEstimator.__sklearn_clone__(around)
        cloned.estimator = fresh(self.estimator)
        return cloned

    def _check_calibrated(self) -> None:
        check_is_fitted(
            self,
            msg="This %(name)s is not calibrated yet: call calibrate(X, y) with rows that the "
            "fitted model has not seen, or fit(X, y) to train a new model on a part of the rows.",
        )

    @property
    def calibrator_(self) -> Calibrator:
        """The fitted calibrator; of a score with two tails there are two, in ``calibrators_``."""
        fitted: tuple[Calibrator, ...] = self.calibrators_ if self.__sklearn_is_fitted__() else ()
        if len(fitted) != 1:
            raise AttributeError(
                f"there is no calibrator_: {len(fitted)} are fitted"
                f"{' (see calibrators_)' if fitted else ' (call calibrate or fit)'}."
            )
        return fitted[0]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        words: str = super().__repr__(N_CHAR_MAX)
        return "\n  ".join([words, *self._state()])

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if not self.__sklearn_is_fitted__():
            return diagram + card("", ["not calibrated yet: calibrate(X, y) or fit(X, y)"])
        state = card("", self._state(), picture_of(self.calibrators_[0]))
        return f"{diagram}{state}{self.guarantee(0.9)._repr_html_()}"

    def _state(self) -> list[str]:
        """What was calibrated, and what is promised; nothing before."""
        fitted = self.__sklearn_is_fitted__()
        return self.calibration_.describe(self.guarantee(0.9)) if fitted else []

    def get_metadata_routing(self) -> MetadataRouter:
        """How fit parameters travel, for scikit-learn's metadata routing."""
        return fit_router(self)


def fit_apart(
    front: Any, X: Any, y: FloatArray, groups: Any, fit_params: dict[str, Any]
) -> Calibration:
    """Train a copy of the estimator on a part of the rows, and calibrate it on the others.

    ``front`` is the regressor, whose parameters say how.
    """
    labels = None if groups is None else row_values(groups, X, "groups")
    model, held_out, training = train_apart(front, X, y, labels, fit_params)
    made = calibrate_model(
        front, model, _safe_indexing(indexable(X)[0], held_out), y[held_out], training, held_out
    )
    training.report(1.0)
    if labels is not None:
        made = replace(made, no_guarantee=few_groups(_safe_indexing(labels, held_out)))
    rows = sketch_rows(training.X, training.y)
    return replace(made, trained=TrainedHere(front.estimator, model, rows))


def calibrate_given(
    front: Any,
    before: Calibration | None,
    X: Any,
    y: FloatArray,
    training: Training,
    per_row: PerRow,
    lazy: Any,
) -> Calibration:
    """Calibrate the estimator of ``front``, or what ``fit`` trained of it before."""
    trained = None if before is None else before.trained
    model, no_guarantee = known_model(front.estimator, trained, X, y, training)
    made = calibrate_model(front, model, X, y, training, per_row=per_row, lazy=lazy)
    warn_if_other(before, made)
    return replace(made, no_guarantee=no_guarantee, trained=trained)


def known_model(
    estimator: Any, trained: TrainedHere | None, X: Any, y: FloatArray, training: Training
) -> tuple[Any, str | None]:
    """The estimator, or what ``fit`` trained of it; and why nothing is promised on these rows."""
    model, why = estimator, None
    if trained is not None and trained.estimator is estimator:
        model, why = trained.model, refuse_seen(trained.rows, X, y)
    if training.X is not None:
        why = why or refuse_seen(sketch_rows(training.X, training.y), X, y)
    return model, why


def rows_at_hand(X: Any, y: Any, groups: Any, weights: Any) -> tuple[Any, Any, PerRow, Any]:
    """Calibration rows, targets and what tells groups and weights; the first rows of a collection.

    Last, what places all rows of a collection; None where all rows are at hand.
    """
    per_row, handler = PerRow(groups=groups, weights=weights), handler_of_collection(X)
    if handler is None:
        return *gathered(X, y), per_row, None
    lazy = handler.LazyRows(X, y, per_row)
    return lazy.X, lazy.y, lazy.per_row, lazy


def calibrate_model(
    front: Any,
    model: Any,
    X: Any,
    y: FloatArray,
    training: Training,
    order: Any = None,
    *,
    per_row: PerRow = PerRow(),  # noqa: B008
    lazy: Any = None,
) -> Calibration:
    """Calibrate a fitted model on rows that it has not seen, as the parameters of ``front`` say.

    Parameters
    ----------
    order : numbers of the rows in the order in which they came, where they were drawn from more
    lazy : what places rows that are not all in memory; X and y are the first of them
    """
    calibrator, score, embed = front.calibrator, as_score(front.score_function), front.embed
    if calibrator is None:
        method: Calibrator = FullRescaled(random_state=front.random_state)
    else:
        method = with_random_state(as_calibrator(calibrator), front.random_state)
    if isinstance(method, Grouped):  # what it wraps meets the model; groups come apart
        per_row = replace(per_row, groups=method.asked(per_row.groups))
        method = as_calibrator(method.calibrator)
    given = per_row.known(X)
    space, score, errors, left_out = _learn(
        model, method, X, training, score, embed, front.error_model
    )
    y_pred, Z = space.predict_and_transform(X)
    refuse_changing(space, X, y_pred, Z)
    if lazy is not None:
        y, y_pred, Z, given = lazy.located(space)
        several = np.ndim(y) == 2 and np.shape(y)[1] > 1
        y = np.stack([check_vector(t, "y") for t in y.T], 1) if several else check_vector(y, "y")
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
        probe=state_of(first_rows(X)),
        chosen=_chosen(front),
        has_training=training.X is not None,
    )


def _chosen(front: Any) -> dict[str, Any]:
    """The parameters that a calibration follows; others may be set on the front door later."""
    own = vars(front)
    names = ("calibrator", "embed", "score_function", "error_model")
    return {name: own[name] for name in names if name in own}


def _learn(
    model: Any,
    method: Calibrator,
    X: Any,
    training: Training,
    score: Score,
    embed: Any,
    error_model: Any,
) -> tuple[Embedding, Score, ErrorModel | None, LeftOut | None]:
    """The space, the score, and what left-out rows teach if the calibrator uses them."""
    uses, known = method.uses, training.X is not None
    asks = "left_out" in uses
    errors = _checked_error_model(error_model, score, asks=asks and known)
    adjusts = errors is not None and errors.adjusts
    located = method.judges_nearness or asks or adjusts or "training" in uses
    space = fit_embedding(
        embed if located else "prediction",  # all that is asked where rows are only counted
        training.X,
        X,
        model=model,
        n_outputs=score.n_outputs,
        units=score.units,
        y_train=training.y,
        raw=_inputs_of(method),
        nearness=method.judges_nearness,
    )
    if not known or not (asks or adjusts):
        return space, score, None, None
    chosen = isinstance(embed, str) and embed == "auto" and asks
    errors = ErrorModel(recentre=False, units=False) if errors is None else errors
    return learn_errors(training, space, score, errors, chosen=chosen)


def _inputs_of(method: Calibrator) -> Any:
    """The inputs as they are, if it asks for them, or its kernel, made of a model of its own."""
    if method.takes_inputs:
        return UNTOUCHED
    return RAW if method.kernel is not None and method.kernel.takes_inputs else None


def _checked_error_model(given: Any, score: Score, *, asks: bool) -> ErrorModel | None:
    """What to learn from left-out errors, or None; ``asks`` says whether the calibrator does."""
    absolute = isinstance(score, AbsoluteError)
    if isinstance(given, str) and given == "auto":
        return ErrorModel() if asks and absolute else None
    if given is None:
        return None
    if not isinstance(given, ErrorModel):
        raise TypeError(f"error_model must be 'auto', None or an ErrorModel; got {given!r}.")
    if given.adjusts and not absolute:
        raise CalliperError(
            f"an ErrorModel gives each side its own unit of the absolute error; the score "
            f"function is {score!r}. Leave out one of them."
        )
    return given


def warn_if_other(before: Calibration | None, now: Calibration) -> None:
    """Say that without training rows nearness is judged in another space than before."""
    if before is None or not before.has_training or now.has_training:
        return
    same = before.model is now.model and before.chosen["embed"] is now.chosen["embed"]
    if same and before.space.space.name != now.space.space.name:
        warn(
            f"Without X_train nearness is now judged in another space: {now.space}, where it was "
            f"{before.space}. Pass X_train and y_train, the rows that the model was trained on, to "
            f"keep it.",
            EmbeddingWarning,
        )


def few_groups(held_out: Any) -> str:
    """Why rows of groups promise nothing for rows of new ones."""
    n, n_groups = len(held_out), len({str(group) for group in held_out})
    return (
        f"The {n:,} calibration rows come in {n_groups:,} groups, and rows of one group are alike: "
        f"they are not exchangeable with rows of new groups, for which coverage may be lower."
    )


def given_training(front: Any, X_train: Any, y_train: Any) -> Training:
    """Training rows that ``calibrate`` was given, and how the model may be trained again."""
    check_folds(front.left_out_folds)
    if X_train is not None:
        refuse_collection(X_train, "X_train")
    elif y_train is not None:
        raise CalliperError("y_train was given without X_train: pass both.")
    if y_train is None and front.left_out_folds:
        warn(
            f"left_out_folds={front.left_out_folds} asks for errors on training rows, and "
            f"calibrate was not given these: nothing is trained again. Pass X_train and "
            f"y_train, or leave left_out_folds out.",
            EmbeddingWarning,
        )
    return Training(
        X=X_train,
        y=y_train,
        n_refits=front.left_out_folds or 0,
        random_state=front.random_state,
        shuffle=front.shuffle,
        progress=reporter(front.progress, "training") if front.left_out_folds else None,
    )


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
