"""How regressors of one target and of several come to a calibration, and what follows from it.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. A class of several targets says how it checks
them, and what calibration makes of them. The rest is what scikit-learn, files and notebooks need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, indexable

from calliper import _validation as valid
from calliper import models, rows, space
from calliper._answering import Calibration, check_calibrated, predicted
from calliper._handlers import handler_of_collection
from calliper._kept import COLUMN_FIELDS, Field, columns_for_file, restore_columns
from calliper._notebook import card, reporter
from calliper._row_checks import (
    NEARLY_ALL,
    SEEN_IN_TRAINING,
    refuse_seen,
    sketch_rows,
    warn_of_copies,
)
from calliper._types import AgeingWeights, Coverage, FloatArray
from calliper.calibration import calibrate_model, chosen_of, extended, warn_of_groups
from calliper.calibrators import Calibrator, FullRescaled
from calliper.exceptions import CalliperError, EmbeddingWarning, UnusedWarning, warn
from calliper.guarantees import Guarantee
from calliper.scores import DistributionError, JointError, ScaledError
from calliper.shift import ShiftReport
from calliper.space import Training, learnt_from_training, train_apart, why_no_refit

#: What to do with rows in order of time: where some are held out, and where some are learnt from.
IN_TIME = "pass shuffle=False to hold out the last rows"
DEALT_IN_TIME = "pass shuffle=False to learn from the older rows and calibrate on the later ones"


def made(name: str, doc: str) -> Any:
    """What calibration made, by its name there; before that, an error that says what to do."""

    def read(front: Any) -> Any:
        check_calibrated(front)
        return getattr(front.calibration_, name)

    return property(read, doc=doc)


@dataclass(eq=False, repr=False)
class Parameters:
    """What regressors of one target and of several take."""

    estimator: Any
    calibrator: Any = None
    _: KW_ONLY
    embed: Any = "auto"
    calibration_size: float = 0.25
    shuffle: bool | None = None
    gap: int = 0
    learning_part: float | str | None = "auto"
    refits: int | None = None
    random_state: Any = None
    progress: Any = None


class CalibratedRegressor(Parameters, valid.MadeByCoverage, RegressorMixin, models.AroundModel):  # type: ignore[misc]
    """Parameters as scikit-learn knows them, and what follows from ``calibration_`` alone."""

    calibration_: Calibration
    estimator_ = made("model", "The model that predicts.")
    calibrators_ = made("calibrators", "One for each tail.")
    embedding_ = made("space", "Where nearness is judged.")
    score_ = made("score", "How an error is measured.")
    left_out_ = made("left_out", "Left-out rows, or None.")
    error_model_ = made("error_model", "Of errors, or None.")
    no_guarantee_ = made("no_guarantee", "Why there is no guarantee, or None.")

    keeps: ClassVar[Mapping[str, Field]] = {**Calibration.keeps, **COLUMN_FIELDS}

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a calibrated one, with the parameters that it was calibrated by."""
        made, own = self.calibration_, vars(self)
        followed = {name: value for name, value in made.chosen.items() if name in own}
        return {**made.for_file(), **columns_for_file(self), **followed}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what a file held, around the given model."""
        followed, score, model = chosen_of(self), state["score"], self.estimator
        n, tails = len(state["calibrators"]), score.n_tails
        if n != tails and not state.get("parts"):
            raise CalliperError(f"the score takes {tails} calibrators, one for each tail; got {n}.")
        if score.n_outputs != (state["space"].n_columns or state["space"].n_outputs):
            raise CalliperError(f"the score takes {score.n_outputs} predictions for each row.")
        # What was learnt is in units of errors around what the model of the user's score predicts.
        given = followed.get("score_function") if isinstance(score, ScaledError) else score
        state["space"].model, _ = models.asked_as(model, given)
        self.calibration_ = Calibration(
            **{name: state[name] for name in Calibration.keeps},
            model=model,
            trained_from=None if state["sketch"] is None else model,
            chosen=followed,
        )
        restore_columns(self, state)

    @valid.unchanged_if_refused
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, split_groups: Any = None, **fit_params: Any
    ) -> Self:
        """Train a copy of the estimator on part of the rows and calibrate on the others.

        A model in scikit-learn's ``FrozenEstimator`` is not trained, but calibrated on all rows.

        Parameters
        ----------
        X, y : rows and targets
        groups : (n,), column name or function of the rows, optional
            The guarantee then holds in each group, as in :meth:`calibrate`.
        split_groups : (n,), column name or function of the rows, optional
            Rows of one group are held out together, in refits too. Nothing is proved for new
            groups, as ``SplitGroupsWarning`` says: rows of one are not exchangeable with others.
        **fit_params
            For ``fit`` of the estimator whenever it is trained (``sample_weight``, ``eval_set``,
            …); by requests, where metadata routing is enabled. Values for each row are split with
            the rows. None of it reaches the calibrator: calibration rows all weigh the same.
        """
        if wrong := fit_params.keys() & {"X_train", "y_train"}:
            what = f"fit has no argument {min(wrong)!r}, since it splits X itself"
            raise TypeError(f"{what}. calibrate(X, y, {min(wrong)}=…) takes a fitted model.")
        if type(self.estimator) is FrozenEstimator:
            if split_groups is not None or fit_params:
                raise CalliperError("a frozen model is not trained: pass only X, y and groups.")
            return self.calibrate(X, y, groups=groups)
        apart = {"split_groups": split_groups, "sample_weight": fit_params.get("sample_weight")}
        _, groups, split_groups, _ = rows.same_rows(X, "X", y=y, groups=groups, **apart)
        known = self._known(X, y)
        estimator = self.estimator  # one that predicts without fit always counts as fitted
        if models.is_fitted(estimator) and not models.is_fitted(models.fresh(estimator)):
            what = "The model is already fitted, but fit trains a new copy on part of these rows"
            warn(f"{what}. To use the model as it is, call calibrate.", UnusedWarning)
        self._warn_of_times(X, y, "fit holds out", IN_TIME)
        together = rows.row_values(split_groups, X, "split_groups")
        of_rows = rows.remembered(groups) is not groups  # values, one for each row
        if of_rows:
            groups = rows.row_values(groups, X, "groups")
        model, held_out, training = train_apart(self, X, known, together, fit_params)
        per_row = rows.RowSources(groups[held_out] if of_rows else groups)
        X, y = _safe_indexing(indexable(X)[0], held_out), known[held_out]
        made = self._calibrated(model, X, y, training, per_row, order=held_out)
        training.progress(1.0)
        why = None if together is None else warn_of_groups(together[held_out])
        sketch = sketch_rows(training.X, training.y)
        made = replace(made, no_guarantee=why, trained_from=self.estimator, sketch=sketch)
        return self._concluded(made, training, given=False)

    @valid.unchanged_if_refused
    def calibrate(
        self,
        X: Any,
        y: Any = None,
        *,
        X_train: Any = None,
        y_train: Any = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Self:
        """Calibrate a model that is already fitted, on rows that it has not seen.

        After :meth:`fit` that is the model trained there: newer rows replace those held out.

        Parameters
        ----------
        X : rows
            An array, a frame, a sparse matrix, a tensor, or a list of what the model takes; for a
            network also a dict of arrays or tensors, or a ``DataLoader`` that does not shuffle,
            whose batches are (inputs, targets), without ``y``.
        y : (n,) targets
        X_train, y_train : rows that the model *was* trained on, or others not in X, optional
            They standardise the inputs, and are for calibrators that learn from training errors or
            targets, such as ``MADSplit``; ``UnusedWarning`` says if left-out errors would be learnt
            from, but they have none. Always checked: if all calibration rows are among them, that
            is refused; if some are, ``SharedRowsWarning`` says that there is no guarantee.
        groups : (n,), column name or function of the rows, optional
            The guarantee then holds in each group, by a calibrator for each. A column name or a
            function is remembered; labels must be given to :meth:`predict_interval`, too.
        weights : (n,), column name or function of the rows, optional
            How much more often a row's inputs occur among new rows, up to a constant, such as
            :class:`calliper.shift.LikelihoodRatio`; or ``calliper.shift.Recency(half_life)``.
        """
        _, groups, weights = rows.same_rows(X, "X", y=y, groups=groups, weights=weights)
        per_row, lazy = rows.RowSources(groups, weights), None
        if not isinstance(X, np.ndarray):
            handler = handler_of_collection(X)
            if handler is None:
                X, y = rows.gathered(X, y, self.estimator)
            else:  # what predicts all rows; at hand are the first of them
                lazy = handler.LazyRows(X, y, per_row)
                X, y, per_row = lazy.X, lazy.y, lazy.per_row
        before: Calibration | None = vars(self).get("calibration_")
        times, model, origin, sketch = (X, y), self.estimator, None, None
        if before is not None and before.trained_from is model:  # what fit trained of it
            model, origin, sketch = before.model, before.trained_from, before.sketch
        y = self._known(X, y, again=origin is not None)
        training = self._given_training(X_train, y_train)
        why = None if sketch is None else refuse_seen(sketch, X, y)
        if training.X is not None:
            given = sketch_rows(training.X, training.y)
            sketch, seen = given if sketch is None else sketch, refuse_seen(given, X, y)
            why = why or seen
        _refuse_unfitted(model, X)
        _refuse_none_or_seen(model, y)
        if isinstance(weights, AgeingWeights):
            why = why or weights.explain()
        made = self._calibrated(model, X, y, training, per_row, lazy=lazy)
        self._warn_of_times(*times, "calibrate splits" if made.n_taught else "", DEALT_IN_TIME)
        if isinstance(weights, AgeingWeights) and self.shuffle is not False:
            rows.warn_of_times(*times, "Recency")
        _warn_if_other(before, made)
        made = replace(made, no_guarantee=why, trained_from=origin, sketch=sketch)
        return self._concluded(made, training, given=True)

    def _concluded(self, made: Calibration, training: Training, *, given: bool) -> Self:
        """Keep the calibration, and point out what changes nothing."""
        for unused in _unused(self, made, training, given=given):
            warn(unused, UnusedWarning)
        self.calibration_ = made
        return self

    @valid.unchanged_if_refused
    def extend(
        self, X: Any, y: Any, *, window: int | None = None, groups: Any = None, weights: Any = None
    ) -> Self:
        """Add labelled rows to the calibration rows; the model and the space stay as they are.

        The result is as if calibrated on all rows at once, but nothing is learnt again: rows from
        which the model's errors were learnt do not calibrate. With nearest neighbours, adding a row
        is cheap however many rows there are.

        Parameters
        ----------
        X, y : rows that the model has not seen, and their targets
        window : int, optional
            Keep this many rows, those added last, and drop the others: for data that drifts.
        groups, weights : of these rows, if calibration was given them
        """
        check_calibrated(self)
        _, groups, weights = rows.same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y = rows.gathered(X, y, self.estimator)
        y = self._check_targets(y)
        _refuse_none_or_seen(self.estimator_, y)
        self.calibration_ = self._extended(X, y, window, groups=groups, weights=weights)
        return self

    def _warn_of_times(self, X: Any, y: Any, what: str, remedy: str) -> None:
        """Warn of times in order if ``what`` splits rows at random, or of others if it must not."""
        if self.shuffle is None and what:
            rows.warn_of_times(X, y, what, remedy)
        elif self.shuffle is False:
            rows.warn_of_times(X, y, "shuffle=False")

    def _given_training(self, X_train: Any, y_train: Any) -> Training:
        """Training rows that ``calibrate`` was given, and how the model may be trained again."""
        if X_train is not None:
            X_train, y_train = rows.gathered(X_train, y_train, self.estimator)
            valid.refuse_collection(X_train, "X_train")
            valid.refuse_no_rows(X_train, "X_train")
        elif y_train is not None:
            raise CalliperError("y_train was given without X_train: pass both.")
        if y_train is not None:
            rows.same_rows(X_train, "X_train", y_train=y_train)
            rows.refuse_lengths(X_train, "X_train", y_train, "y_train")
            y_train = self._check_targets(y_train, "y_train")
        folds, gap = valid.check_parts(self)
        return Training(
            X=X_train,
            y=y_train,
            n_refits=folds or 0,
            random_state=self.random_state,
            shuffle=self.shuffle is not False,
            gap=gap,
            progress=reporter(self.progress, "training") if folds else Training().progress,
        )

    @valid.says_coverage
    def shift_report(self, X: Any, coverage: float = 0.9, *, weights: Any = None) -> ShiftReport:
        """What weights leave for these rows: effective calibration rows, infinite intervals.

        With groups, ask ``calibrators_[0].calibrators_[group].shift_report(weights)``.
        """
        check_calibrated(self)
        (weights,) = rows.same_rows(X, "X", weights=weights)
        new = replace(self.calibration_.per_row, groups=None).of_new(X, weights=weights)
        report: ShiftReport = self.calibrators_[0].shift_report(new.weights, coverage)
        return report

    @valid.says_coverage
    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage; with two tails, by the union bound."""
        check_calibrated(self)
        return self._promising.guaranteed_coverage(coverage)

    @valid.says_coverage
    def guarantee(
        self, coverage: float = valid.USUAL_COVERAGE, confidence: float | None = None
    ) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        check_calibrated(self)
        valid.refuse_lone_confidence(coverage, confidence)
        promise = self._promising.guarantee(coverage, confidence)
        checks = [*self.calibration_.checks(promise.coverage), promise.checks]
        return replace(promise, checks="\n".join(checks))

    @property
    def _promising(self) -> Calibration:
        """Which calibration gives the guarantee."""
        return self.calibration_

    def _extended(self, X: Any, y: FloatArray, window: Any, **per_row: Any) -> Calibration:
        y_pred, new = predicted(self, X, **per_row)
        if len(y) != len(y_pred):
            raise CalliperError(f"X has {len(y_pred)} rows and y {len(y)}.")
        return extended(self.calibration_, X, y, y_pred, new, window)

    def _known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        """Checked targets, as those of ``_check_known``; a warning if rows are copies of others."""
        known = self._check_known(X, y, again=again)
        if len(np.unique(known)) < NEARLY_ALL * known.size:
            warn_of_copies(X, known)
        return known

    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        """Checked targets; ``again`` if the model is that of ``fit``. Remembers columns of X."""
        return rows.check_known_rows(self, X, y)

    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        return valid.check_vector(y, name)

    def _calibrated(self, *given: Any, **known: Any) -> Calibration:
        """What calibration makes; arguments as those of ``calibrate_model``."""
        return calibrate_model(self, *given, **known)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``calibrator__…`` are those of the default calibrator, too."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and self.calibrator is None:
            nested = FullRescaled().get_params().items()
            params.update({f"calibrator__{name}": value for name, value in nested})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; setting one of the default calibrator makes it explicit."""
        nested = any(name.startswith("calibrator__") for name in params)
        if nested and params.get("calibrator", self.calibrator) is None:
            params["calibrator"] = FullRescaled()
        super().set_params(**params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "calibration_" in vars(self)

    def __sklearn_clone__(self) -> Self:
        """As usual, except that estimators that cannot be cloned are copied."""
        around = copy(self)
        around.estimator = None
        cloned: Self = BaseEstimator.__sklearn_clone__(around)
        cloned.estimator = models.fresh(self.estimator)
        return cloned

    @property
    def calibrator_(self) -> Calibrator:
        """The fitted calibrator; of a score with two tails there are two, in ``calibrators_``."""
        fitted: tuple[Calibrator, ...] = self.calibrators_
        if (n := len(fitted)) != 1:
            raise AttributeError(f"there are {n} calibrators: use calibrators_, not calibrator_.")
        return fitted[0]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        words: str = super().__repr__(N_CHAR_MAX)
        return "\n  ".join([words, *self._state()])

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if not self.__sklearn_is_fitted__():
            return diagram + card("", ["not calibrated yet: calibrate(X, y) or fit(X, y)"])
        state = card("", self._state())
        return f"{diagram}{state}{self.guarantee(0.9)._repr_html_()}"

    def _state(self) -> list[str]:
        """What was calibrated, and what is promised; nothing before."""
        fitted = self.__sklearn_is_fitted__()
        return self.calibration_.describe(self.guarantee(0.9)) if fitted else []


def _refuse_none_or_seen(model: Any, y: FloatArray) -> None:
    """Refuse no rows at all, and a model whose trees hold the means of these targets."""
    if not len(y):
        raise CalliperError("X has no rows: pass at least one.")
    opened = models.open_model(model)
    if not opened.targets and models.was_trained_on(opened.core, y):
        raise CalliperError(
            "The model was trained on these calibration rows: the values in its leaves are means "
            f"of exactly these targets. {SEEN_IN_TRAINING}"
        )


def _refuse_unfitted(model: Any, X: Any) -> None:
    """Say that a model is not fitted, before anything is said of its space."""
    if models.is_fitted(model):
        return
    try:
        models.predictions(model, rows.first_rows(X))
    except NotFittedError as error:
        raise NotFittedError(
            f"{str(error).rstrip('.')}. ConformalRegressor.calibrate needs a model that is already "
            "fitted. ConformalRegressor.fit trains a copy on some rows and calibrates on the rest."
        ) from error
    except Exception:  # reported better where the space is made
        return


def _warn_if_other(before: Calibration | None, now: Calibration) -> None:
    """Say that without training rows nearness is judged in another space than before."""
    if before is None or not before.has_training or now.has_training:
        return
    same = before.model is now.model and before.chosen["embed"] is now.chosen["embed"]
    if same and before.space.space.name != now.space.space.name:
        warn(
            f"Without X_train, distances are now measured by {now.space}, not by "
            f"{before.space}. To keep that space, pass X_train and y_train, the rows "
            "that the model was trained on.",
            EmbeddingWarning,
        )


def _unused(front: Any, made: Calibration, training: Training, *, given: bool) -> Iterator[str]:
    """What changes nothing: parameters, and training rows that were ``given``."""
    folds, left_out, model = front.refits, made.left_out, made.chosen.get("error_model")
    method, embed = made.calibrators[0], made.chosen["embed"]
    mapped = not isinstance(embed, str) or embed == "inputs"  # it may be fitted to training rows
    bagged = left_out is not None and left_out.source.startswith("out of bag")
    if left_out is None and model is not None and not isinstance(model, str):
        yield (
            "error_model is not used: there are no held-out errors to learn from. Pass "
            "learning_part=0.5, or X_train, y_train and refits=5, or leave error_model out."
        )
    if mapped and left_out is None and not method.judges_nearness and not method.takes_inputs:
        yield "embed has no effect, since the method uses no distances: leave it out."
    if given and made.trained_from is None and front.calibration_size != 0.25:
        yield "calibration_size has no effect on calibrate: it is the part that fit holds out."
    if vars(front).get("units") is not None and not isinstance(made.score, JointError):
        yield "units have no effect without several targets and joint=True: leave them out."
    if folds and bagged:
        yield f"refits={folds} has no effect: out-of-bag errors are used instead. Leave it out."
    if given and front.gap and not made.n_taught and (bagged or left_out is None):
        yield (
            f"gap={front.gap} has no effect: all rows are used to calibrate and nothing is "
            "refitted, so there are no parts to leave a gap between."
        )
    if training.y is None and folds:
        yield (
            f"refits={folds} has no effect without training rows: pass X_train and y_train, or "
            "leave refits out."
        )
    known = left_out is not None and left_out.n_training > made.n_taught
    if training.X is None or (training.y is not None and known):
        return
    uses, why = method.uses, why_no_refit(made.space.model)
    learns = "left_out" in uses and not {"training", "errors"} & {*uses.needs}
    sloped = isinstance(made.score, DistributionError) and made.score.slope is not None
    if folds and training.y is not None:
        if why is not None:
            yield (
                f"refits={folds} cannot train the model again, since it {why}. Pass an estimator "
                f"with fit, or leave refits out."
            )
        elif "left_out" not in uses and made.score.units is None:
            yield (
                f"refits={folds} has no effect: {type(method).__name__} does not use "
                "out-of-fold errors. Leave it out, or use FullRescaled()."
            )
    elif given and learns and not (mapped or sloped or learnt_from_training(made.space.space)):
        more = why and f"the model {why}"
        more = more or "set refits=5 to compute them, which trains the model five more times"
        if training.y is None:
            more = "to compute them, pass y_train as well"
        elif models.open_model(made.model).has_bags and space.knows_left_out(
            made.space.space.without_errors
        ):
            more = (
                "the model is bootstrapped, but X_train and y_train are not its training rows, or "
                "not in their original order"
            )
        only = "Without y_train, X_train is" if training.y is None else "X_train and y_train are"
        yield (
            f"{only} used only to check that no calibration row is also a training row. There are "
            f"no out-of-bag or out-of-fold errors to learn widths from: {more}."
        )
