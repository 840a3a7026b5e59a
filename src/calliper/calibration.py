"""The one place where a calibrator meets predictions: scores in, intervals and a promise out.

The regressor, the command line, an evaluation and a comparison all have predictions of rows with
known targets, however they came by them. Here a score turns these into errors, a calibrator is
fitted to each tail of them, and its radii become intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GroupShuffleSplit, train_test_split
from sklearn.utils import _safe_indexing, indexable

from calliper._handlers import handler_of_collection, refuse_collection
from calliper._kept import Field, Inline, Keeps, Part, Plain, Text
from calliper._notebook import floored, reporter
from calliper._row_checks import RowSketch, SharedRows, find_shared, sketch_rows, warn_of_trend
from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import (
    check_bounds,
    check_level,
    check_levels,
    check_vector,
    check_window,
    like_coverage,
)
from calliper.calibrators import (
    Calibrator,
    FullRescaled,
    Grouped,
    as_calibrator,
    refuse_distribution,
    takers_of_weights,
)
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, EmbeddingWarning, SharedRowsWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.models import check_sample_weight, first_rows, fit_params_of, is_frozen, routed
from calliper.quantile import as_fraction
from calliper.rows import PerRow, Rows, row_values
from calliper.scores import AbsoluteError, Score, as_score
from calliper.space import (
    N_REFITS,
    RAW,
    UNTOUCHED,
    Embedding,
    ErrorModel,
    LeftOut,
    Training,
    fit_embedding,
    learn_errors,
    refuse_changing,
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
    probe : a few calibration rows as they came, or None
    embed : what chose the space
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
    embed: Any = None
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
        length = self.space.length_scale(n if window is None else min(n, check_window(window)))
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
        return made.placed(y_pred, self.score, index)

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
    model, known = estimator, None
    if trained is not None and trained.estimator is estimator:
        model, known = trained.model, trained.rows
    given = None if training.X is None else sketch_rows(training.X, training.y)
    return model, refuse_seen(known, X, y) or refuse_seen(given, X, y)


def rows_at_hand(X: Any, y: Any, groups: Any, weights: Any) -> tuple[Any, Any, PerRow, Any]:
    """Calibration rows, targets and what tells groups and weights; the first rows of a collection.

    Last, what places all rows of a collection; None where all rows are at hand.
    """
    per_row, handler = PerRow(groups=groups, weights=weights), handler_of_collection(X)
    if handler is None:
        return X, y, per_row, None
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
        probe=first_rows(X),
        embed=embed,
        has_training=training.X is not None,
    )


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
    asks = "left_out" in method.uses
    errors = _checked_error_model(error_model, score, asks=asks)
    if method.judges_nearness or asks or errors.adjusts or "training" in method.uses:
        space = fit_embedding(
            embed,
            training.X,
            X,
            model=model,
            n_outputs=score.n_outputs,
            units=score.units,
            y_train=training.y,
            raw=_inputs_of(method),
            nearness=method.judges_nearness,
        )
    else:  # rows are only counted: the prediction is all that is asked
        space = fit_embedding(
            "prediction", None, X, model=model, n_outputs=score.n_outputs, units=score.units
        )
    if training.X is None or not (asks or errors.adjusts):
        return space, score, None, None
    chosen = isinstance(embed, str) and embed == "auto" and asks
    return learn_errors(training, space, score, errors, chosen=chosen)


def _inputs_of(method: Calibrator) -> Any:
    """The inputs as they are, if it asks for them, or its kernel, made of a model of its own."""
    if method.takes_inputs:
        return UNTOUCHED
    return RAW if method.kernel is not None and method.kernel.takes_inputs else None


def _checked_error_model(given: Any, score: Score, *, asks: bool) -> ErrorModel:
    """What to learn from left-out errors; ``asks`` says whether the calibrator does."""
    absolute = isinstance(score, AbsoluteError)
    if isinstance(given, str) and given == "auto":
        return ErrorModel(recentre=asks and absolute, units=asks and absolute)
    if given is None:
        return ErrorModel(recentre=False, units=False)
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
    same = before.model is now.model and before.embed is now.embed
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


def train_apart(
    front: Any, X: Any, y: FloatArray, groups: Any, fit_params: dict[str, Any]
) -> tuple[Any, IntArray, Training]:
    """A model trained on a part of the rows, the rows held out, and what trained it.

    ``front`` is the regressor, by whose parameters rows are split and the estimator is trained.
    """
    if not hasattr(front.estimator, "fit"):
        raise TypeError(
            f"fit needs an estimator that can be trained; got {front.estimator!r}. "
            f"If it already predicts, use calibrate(X, y) with data it has not seen."
        )
    check_folds(front.left_out_folds)
    if len(y) < 2:
        raise CalliperError(
            f"fit needs at least 2 rows, one to train and one to calibrate; got n_samples = "
            f"{len(y)}."
        )
    train, held_out = split_rows(
        len(y),
        groups,
        size=front.calibration_size,
        shuffle=front.shuffle,
        random_state=front.random_state,
    )
    check_sample_weight(fit_params, len(y))
    X, fit_params = indexable(X)[0], routed(front, fit_params)
    training = Training(
        X=_safe_indexing(X, train),
        y=y[train],
        n_refits=N_REFITS if front.left_out_folds is None else front.left_out_folds,
        random_state=front.random_state,
        shuffle=front.shuffle,
        groups=None if groups is None else _safe_indexing(groups, train),
        fit_params=fit_params_of(X, fit_params, train),
        progress=reporter(front.progress, "training"),
    )
    model = training.train(front.estimator, np.arange(len(train)))
    training.report(1 / (1 + training.n_refits))
    return model, held_out, training


def given_training(front: Any, X_train: Any, y_train: Any) -> Training:
    """Training rows that ``calibrate`` was given, and how the model may be trained again."""
    check_folds(front.left_out_folds)
    refuse_collection(X_train, "X_train")
    if X_train is None and y_train is not None:
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
        progress=reporter(front.progress, "training"),
    )


def check_folds(folds: Any) -> None:
    """``left_out_folds`` is None, 0, or a number of folds."""
    whole = isinstance(folds, Integral) and not isinstance(folds, bool)
    if folds is not None and not (whole and (folds == 0 or folds >= 2)):
        raise CalliperError(
            f"left_out_folds must be None, 0 (never refit) or a whole number of at least 2; got "
            f"{folds!r}."
        )


def split_rows(
    n: int, groups: Any, *, size: float, shuffle: bool, random_state: Any
) -> tuple[IntArray, IntArray]:
    """Rows to train on, and rows to hold out: so many, or so large a part."""
    if groups is None:
        seed = random_state if shuffle else None
        train, held_out = train_test_split(
            np.arange(n), test_size=size, shuffle=shuffle, random_state=seed
        )
        return train, held_out
    if not shuffle:
        raise CalliperError(
            "groups are held out at random, and shuffle=False asks for the last rows: leave "
            "out one of them, or split the rows yourself and use calibrate."
        )
    split = GroupShuffleSplit(1, test_size=size, random_state=random_state)
    train, held_out = next(split.split(np.empty(n), groups=groups))
    return train, held_out


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


def refuse_seen(training: RowSketch | None, X: Any, y: Any) -> str | None:
    """Why calibration rows that the model was trained on leave no promise; None if none are.

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
