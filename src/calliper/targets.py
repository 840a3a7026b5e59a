"""Several targets: one box that contains all of them, or a separate interval for each.

*Joint.* With r_j the error of target j and units u_j that do not depend on calibration rows, the
score of a row is max_j |r_j|/u_j (``JointError``). Any calibrator makes a radius t of such scores,
and the box has the sides ŷ_j ± u_j·t: all targets lie inside exactly if the score is at most t, so
that the calibrator's guarantee holds for all targets together, whatever the units. The units decide
how the width is shared between targets: u_j is the mean size of left-out, else of training errors.

*Each by itself.* A ``ConformalRegressor`` for each column of the one model's predictions. Each
interval covers with 1−α; all together may do so as rarely as 1 − kα.
"""

from collections.abc import Iterator, Mapping, Sized
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline

from calliper import _validation as valid
from calliper import models
from calliper._answering import Calibration, check_calibrated, handled, predicted
from calliper._estimator import CalibratedRegressor
from calliper._kept import Array, Field, NameList, Part
from calliper._row_checks import refuse_seen
from calliper._types import Coverage, FloatArray, IntArray
from calliper.calibration import ENOUGH_TO_COMPARE, calibrate_model
from calliper.calibrators import FullRescaled, as_calibrator
from calliper.exceptions import CalliperError, UnbalancedBoxWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Boxes, Intervals, check_targets, listed, target_names
from calliper.quantile import TINY
from calliper.regressor import ConformalRegressor
from calliper.rows import RowSources, check_known_rows
from calliper.scores import AbsoluteError, JointError
from calliper.space import Training, fit_embedding


@dataclass(eq=False, repr=False)
class MultiTargetRegressor(CalibratedRegressor):
    """Prediction boxes for a model with several targets, y of shape (n, k).

    As :class:`ConformalRegressor`, but y has a column for each target. The columns of a frame name
    the targets; where both have names, the order of columns does not matter.

    Parameters
    ----------
    estimator : regressor or callable
        A model that predicts (n, k): a forest, a network, a linear model, XGBoost, or
        ``MultiOutputRegressor`` around a model of one target.
    joint : bool, default True
        Whether the level holds for all targets together, or for each by itself. In the latter case
        all targets may lie inside together with a probability of only 1 − k(1 − coverage).
    units : (k,) positive numbers, optional
        The typical size of the error of each target, chosen without calibration rows: the sides of
        a joint box are proportional to them. By default (``units_``) the mean size of left-out
        errors, where the calibrator uses these or ``refits`` is given, else of training
        errors; all 1, with a warning, if there are no training rows.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 1))
    >>> y = (X + X * rng.normal(size=(1000, 2))) * [1, 100]
    >>> model = MultiTargetRegressor(LinearRegression(), random_state=0).fit(X, y)
    >>> model.predict_interval([[0.1], [0.9]], coverage=0.9).width.round(1)
    array([[  0.5,  48.4],
           [  3.4, 346.8]])
    """

    _: KW_ONLY
    joint: bool = True
    units: Any = None

    keeps: ClassVar[Mapping[str, Field]] = {
        **CalibratedRegressor.keeps,
        "targets": NameList(),
        "parts": Part("regressor", several=True),
        "units_": Array("float64", ("k",), least=TINY, optional=True),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; each regressor of a target holds its own calibrator."""
        own, parts = super().for_file(), self.regressors_
        known = {"targets": [*self.target_names_], "parts": parts, "units_": self.units_}
        return own | known | ({"calibrators": ()} if parts else {})

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what a file held, around the given model."""
        super().restore(state)
        self.regressors_: tuple[ConformalRegressor, ...] = state["parts"]
        self.units_: FloatArray | None = state["units_"]
        self.target_names_: tuple[Any, ...] = tuple(state["targets"])
        n_targets = len(self.regressors_) or self.score_.n_outputs
        if n_targets != len(self.target_names_):
            raise CalliperError("there must be a regressor or a unit for each target.")
        if not self.regressors_ and n_targets > 1 and not isinstance(self.score_, JointError):
            raise CalliperError(f"a box needs JointError; got {self.score_!r}.")
        if self.regressors_:
            together = self._together(self.calibration_.model)
            same = {name: vars(together)[name] for name in ("score", "space", "calibrators")}
            self.calibration_ = replace(self.calibration_, **same)

    @handled
    def predict(self, X: Any) -> FloatArray:
        """The model's predictions, (m, k)."""
        check_calibrated(self)
        valid.check_new_rows(self, X)
        k = len(self.target_names_)
        return models.predictions(self.estimator_, X, k).reshape(-1, k)

    @handled
    def predict_interval(
        self,
        X: Any,
        coverage: Coverage = valid.USUAL_COVERAGE,
        *,
        bounds: Any = None,
        confidence: float | None = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Boxes:
        """Boxes at one level, or at each of several.

        ``bounds`` are k pairs (y_min, y_max), None for a target without; all else is as in
        ``predict_interval`` of :class:`ConformalRegressor`.
        """
        check_calibrated(self)
        names, limits = self.target_names_, _ranges(bounds, len(self.target_names_))
        if self.regressors_:
            how = {"confidence": confidence, "groups": groups, "weights": weights}
            each = zip(self._answering(X), limits, strict=True)
            alone = [one.predict_interval(X, coverage, bounds=at, **how) for one, at in each]
            return Boxes(tuple(alone), names, joint=False)
        y_pred, new = predicted(self, X, groups, weights)
        made, asked = self.calibration_, {"X": X, "confidence": confidence}
        if len(names) == 1:
            only = made.intervals(y_pred, new, coverage, bounds=limits[0], **asked)
            return Boxes((only,), names)
        for limit, known in zip(limits, made.target_range.T, strict=False):
            valid.check_bounds(limit, known)
        # Around 0 the upper end is the radius, rounded outward.
        around_0 = replace(made, score=AbsoluteError())
        found = around_0.intervals(np.zeros(len(y_pred)), new, coverage, **asked)
        centres = y_pred if found.upper.ndim == 1 else y_pred[:, None]
        ends = np.moveaxis(np.stack(made.score.invert(centres, found.upper)), -1, 0)
        sides = (np.clip(side, *limit) for side, limit in zip(ends, limits, strict=True))
        boxes = (Intervals(low, high, found.coverage, found.index) for low, high in sides)
        return Boxes(tuple(boxes), names)

    def predict_distribution(
        self, X: Any, *, bounds: Any = None, groups: Any = None, weights: Any = None
    ) -> Any:
        """The distribution of each target, by name; only with ``joint=False``.

        Arguments as in :meth:`predict_interval`.
        """
        check_calibrated(self)
        valid.refuse_collection(X, "X")
        limits = _ranges(bounds, len(self.target_names_))
        if self.regressors_:
            how = {"groups": groups, "weights": weights}
            each = zip(self._answering(X), limits, strict=True)
            found = [one.predict_distribution(X, bounds=at, **how) for one, at in each]
        elif len(limits) > 1:
            what = "a joint box has one radius for all targets, and no distributions"
            remedy = "use MultiTargetRegressor(..., joint=False) for a distribution of each target"
            raise CalliperError(f"{what}: {remedy}.")
        else:
            y_pred, new = predicted(self, X, groups, weights)
            found = [self.calibration_.distribution(y_pred, new, X=X, bounds=limits[0])]
        return dict(zip(self.target_names_, found, strict=True))

    def guarantee(
        self, coverage: float = valid.USUAL_COVERAGE, confidence: float | None = None
    ) -> Guarantee:
        """The guarantee, and whether it holds for all targets together."""
        promise, k = super().guarantee(coverage, confidence), len(self.target_names_)
        event = f"all {k} targets of a new row lie in their intervals together"
        if self.regressors_:
            event = f"each of {k} targets by itself, not all of them together, lies in its interval"
        return promise if k == 1 else replace(promise, event=event)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags

    @property
    def _promising(self) -> Calibration:
        """The calibration of the target with the lowest proved coverage."""
        if not self.regressors_:
            return self.calibration_
        least = min(self.regressors_, key=ConformalRegressor.guaranteed_coverage)
        return replace(least.calibration_, no_guarantee=self.no_guarantee_)

    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        """Targets (n, k), or (n,) if there is one, in the order that the model was trained on."""
        if y is None:
            return check_known_rows(self, X, y)
        names = self.target_names_ if again else target_names(y)
        check_known_rows(self, X, check_targets(y, "y", names)[:, 0])
        self.target_names_ = names
        return self._check_targets(y)

    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        found, known = target_names(y), self.target_names_
        if name == "y_train" and found != known and {*found} == {*known}:
            what = f"y has the targets {listed(known)}, and y_train {listed(found)}"
            raise CalliperError(f"{what}: pass both in the order in which the model predicts them.")
        targets = check_targets(y, name, known)
        return targets[:, 0] if targets.shape[1] == 1 else targets

    def _extended(self, X: Any, y: FloatArray, window: Any, **per_row: Any) -> Calibration:
        if not self.regressors_:
            return super()._extended(X, y, window, **per_row)
        now, grown = self.calibration_, tuple(copy(each) for each in self.regressors_)
        for each, column in zip(grown, y.T, strict=True):
            each.calibration_ = each._extended(X, column, window, **per_row)
        self.regressors_ = grown
        seen = refuse_seen(now.sketch if len(y) >= ENOUGH_TO_COMPARE else None, X, y)
        known = {"trained_from": now.trained_from, "sketch": now.sketch}
        return replace(self._together(now.model), no_guarantee=now.no_guarantee or seen, **known)

    def _together(self, model: Any) -> Calibration:
        """What the regressors were made of, with the calibrators of all of them."""
        first = self.regressors_[0].calibration_
        calibrators = tuple(own for each in self.regressors_ for own in each.calibrators_)
        return replace(first, calibrators=calibrators, model=model)

    def _calibrated(
        self, model: Any, X: Any, y: FloatArray, training: Training, per_row: RowSources, **how: Any
    ) -> Calibration:
        """For all targets together, or by a regressor for each column."""
        if not isinstance(self.joint, bool | np.bool_):
            raise CalliperError(f"joint must be True or False; got {self.joint!r}.")
        units, score, self.regressors_ = None, None, ()
        if y.ndim == 2:
            whole = models.unwrapped(model)
            training = KeptTraining(**vars(training), whole=whole, targets=training.y)
            if not self.joint:
                if how.get("lazy") is not None:
                    raise CalliperError(
                        "joint=False calibrates each target by itself, on rows in memory: pass "
                        "X.compute() and y.compute(), or calibrate a ConformalRegressor for each."
                    )
                self.units_ = None
                self.regressors_ = tuple(self._of_each(model, X, y, training, per_row, **how))
                return self._together(model)
            units = self._units(model, X, y, training)
            training, score = replace(training, progress=Training().progress), JointError(units)
        self.units_ = units
        front = SimpleNamespace(**vars(self), score_function=score, error_model="auto")
        return calibrate_model(front, model, X, y, training, per_row, **how)

    def _of_each(
        self, model: Any, X: Any, y: FloatArray, training: Training, per_row: RowSources, **how: Any
    ) -> Iterator[ConformalRegressor]:
        names = ("embed", "random_state", "shuffle", "gap", "learning_part")
        own = {name: vars(self)[name] for name in names}
        for number, column in enumerate(y.T):
            report = Training().progress if number else training.progress
            seen = replace(training, column=number, progress=report)  # type: ignore[call-arg]
            seen = seen if seen.y is None else replace(seen, y=seen.y[:, number])
            of_target = column_of(model, number, y.shape[1])
            made = ConformalRegressor(of_target, self.calibrator, **own)
            check_known_rows(made, X, column)
            made.calibration_ = calibrate_model(made, of_target, X, column, seen, per_row, **how)
            yield made

    def _units(self, estimator: Any, X: Any, y: FloatArray, training: Training) -> FloatArray:
        """The typical size of the error of each target, (k,), without calibration rows."""
        k = y.shape[1]
        if self.units is not None:
            if JointError(self.units).n_outputs != k:
                raise CalliperError(f"there are {k} targets, but units are {self.units!r}.")
            return np.asarray(self.units, dtype=np.float64)
        if training.y is None:
            known = self.units_ if self.__sklearn_is_fitted__() else None
            if known is not None and self.estimator_ is estimator and (known != 1).any():
                return known
            warn(
                f"The box is not balanced: without training rows the typical errors of {k} targets "
                "are not known, so all its sides have the same length. The guarantee holds. Pass "
                "X_train and y_train, or units=, the typical error of each target.",
                UnbalancedBoxWarning,
            )
            return np.ones(k)
        space = fit_embedding("prediction", training.X, X, model=estimator, n_outputs=k)
        method = FullRescaled() if self.calibrator is None else self.calibrator
        asked = "left_out" in as_calibrator(method).uses or self.refits is not None
        unseen = (training if asked else replace(training, n_refits=0)).left_out(space)
        y_pred = space.transform(training.X) if unseen is None else unseen.y_pred
        errors = np.abs(training.y[slice(None) if unseen is None else unseen.numbers] - y_pred)
        zero = [str(self.target_names_[j]) for j in np.flatnonzero(~errors.any(axis=0))]
        if zero:
            raise CalliperError(
                f"errors of target {', '.join(zero)} are all zero on {len(errors)} "
                f"{'training' if unseen is None else 'held-out'} rows, so a joint box has no unit "
                "for it. Is it constant? Leave it out. Does the model fit its training rows "
                "exactly? Pass refits=5, or units=, the typical error of each target."
            )
        return np.asarray(errors.mean(axis=0))

    def _answering(self, X: Any) -> tuple[ConformalRegressor, ...]:
        """The regressors of single targets, with all predictions made once."""
        valid.check_new_rows(self, X)
        if not isinstance(self.regressors_[0].estimator_, TargetColumn):
            return self.regressors_
        answering = tuple(copy(each) for each in self.regressors_)
        for each, column in zip(answering, self.predict(X).T, strict=True):
            space = each.embedding_.refitted(lambda rows, known=column: known)
            each.calibration_ = replace(each.calibration_, space=space)
        return answering

    def _state(self) -> list[str]:
        lines = super()._state()
        if lines:
            how = "each by itself, not joint; the first:" if self.regressors_ else "joint"
            lines = [f"targets {listed(self.target_names_)}, {how}", *lines]
        return lines


def _is_pair(given: Any) -> bool:
    return isinstance(given, Sized) and not isinstance(given, str) and len(given) == 2


def _ranges(bounds: Any, k: int) -> list[tuple[float, float]]:
    """The range of each of k targets, infinite where none is given."""
    pairs: list[Any] = [None] * k if bounds is None else list(bounds)
    if len(pairs) != k or not all(each is None or _is_pair(each) for each in pairs):
        what = f"bounds must be a list of {k} pairs (y_min, y_max), one for each target"
        raise CalliperError(f"{what}; got {bounds!r:.80}.")
    return [valid.check_bounds((None, None) if pair is None else pair) for pair in pairs]


@dataclass(frozen=True, kw_only=True)
class KeptTraining(Training):
    """Refits of a ``whole`` model of all ``targets``, shared by regressors of a ``column`` each."""

    whole: Any
    targets: Any
    column: int | None = None
    kept: dict[Any, Any] = field(default_factory=dict)

    def folds(self) -> Iterator[tuple[IntArray, IntArray]]:
        """The same folds for all columns."""
        if not self.kept:
            self.kept["folds"] = list(super().folds())
        return iter(self.kept["folds"])

    def train(self, model: Any, rows: IntArray, fit_params: Mapping[str, Any] | None = None) -> Any:
        """The whole model, or a column of it, trained on some of the rows."""
        key = rows.tobytes()
        if key not in self.kept:
            all_of_them = Training(X=self.X, y=self.targets, fit_params=self.fit_params)
            self.kept[key] = all_of_them.train(self.whole, rows, fit_params)
        k = self.targets.shape[1]
        return self.kept[key] if self.column is None else column_of(self.kept[key], self.column, k)


def column_of(model: Any, column: int, k: int) -> Any:
    """A model of one of k targets: what ``MultiOutputRegressor`` trained for it, or a column."""
    opened = models.open_model(model)
    several = models.predicts_as(opened.core, MultiOutputRegressor)
    if opened.targets or not several or len(opened.core.estimators_) != k:
        return TargetColumn(model, column, k)
    part = make_pipeline(*opened.steps, opened.core.estimators_[column])
    return FrozenEstimator(part) if models.is_frozen(model) else part


@dataclass(eq=False, repr=False)
class TargetColumn(BaseEstimator):  # type: ignore[misc]
    """One of k targets of a fitted model; ``KeptTraining`` can train it again."""

    model: Any
    column: int
    k: int

    @property
    def fit(self) -> Any:
        """How the whole model is trained, if it can be."""
        return models.unwrapped(self.model).fit

    def predict(self, X: Any) -> FloatArray:
        """The column, (m,)."""
        return models.predictions(self.model, X, self.k)[:, self.column]
