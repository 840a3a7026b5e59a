"""Several targets at once: a box that holds all of them, or an interval for each by itself.

*Joint.* With r_j the error of target j and units u_j that no calibration row had a part in, a row
scores max_j |r_j|/u_j (``JointError``). Any calibrator makes a radius t of such scores, and the box
has the sides ŷ_j ± u_j·t: all targets lie inside exactly if the score is at most t, so that the
calibrator's promise is one for all targets together, whatever the units. These decide how much of
the width each target takes: u_j is the mean size of left-out, else of training errors.

*Each by itself.* A ``ConformalRegressor`` for each column of the one model's predictions. Each
interval covers with 1−α; all together may do so as rarely as 1 − kα.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline

from calliper import models
from calliper._calibrated import Calibrated
from calliper._dask import LazyRows, is_collection, lazy_predictions, refuse_collection
from calliper._kept import Array, Field, Part, Plain
from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import check_bounds
from calliper.calibrators import FullRescaled, as_calibrator
from calliper.exceptions import CalliperError, UnbalancedBoxWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Boxes, Intervals, check_targets, listed, target_names
from calliper.regressor import ConformalRegressor
from calliper.rows import PerRow
from calliper.scores import AbsoluteError, JointError
from calliper.space import Training, fit_embedding


class MultiTargetRegressor(ConformalRegressor):
    """Prediction boxes around a model of several targets, y of shape (n, k).

    All is as for :class:`ConformalRegressor`, but that y has a column for each target. A frame
    names them; where both have names, the order of columns does not matter.

    Parameters
    ----------
    estimator : regressor or callable
        A model that predicts (n, k): a forest, a network, a linear model, XGBoost, or
        ``MultiOutputRegressor`` around a model of one target.
    joint : bool, default True
        Whether the level holds for all targets together, or for each by itself. All together may
        then lie inside as rarely as 1 − k(1 − coverage).
    units : (k,) positive numbers, optional
        The size of a usual error of each target, chosen without calibration rows: the sides of a
        joint box are in proportion to them. By default (``units_``) learnt from left-out errors
        where the calibrator asks for these or ``left_out_folds`` is given, else from training
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

    units_: FloatArray | None
    _parts: tuple[ConformalRegressor, ...]

    def __init__(
        self,
        estimator: Any,
        calibrator: Any = None,
        *,
        joint: bool = True,
        units: Any = None,
        embed: Any = "auto",
        calibration_size: float = 0.25,
        shuffle: bool = True,
        left_out_folds: int | None = None,
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        super().__init__(
            estimator,
            calibrator,
            embed=embed,
            calibration_size=calibration_size,
            shuffle=shuffle,
            left_out_folds=left_out_folds,
            random_state=random_state,
            progress=progress,
        )
        self.joint = joint
        self.units = units

    keeps: ClassVar[Mapping[str, Field]] = {
        **ConformalRegressor.keeps,
        "targets": Plain(),
        "parts": Part("regressor", several=True),
        "units_": Array("float64", ("k",), least=np.finfo(float).tiny, optional=True),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; with parts, all else is theirs."""
        own = super().for_file() | {"targets": [*self.target_names_], "units_": self.units_}
        return own | {"parts": self._parts, **({"calibrators": ()} if self._parts else {})}

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        self._parts, self.units_ = state["parts"], state["units_"]
        self.target_names_: tuple[Any, ...] = tuple(state["targets"])
        if self._parts:
            state["calibrators"] = tuple(c for part in self._parts for c in part.calibrators_)
            if len(self._parts) != len(self.target_names_):
                raise CalliperError("there must be a part for each target.")
        super().restore(state)
        if self._parts:
            self.embedding_, self.score_ = self._parts[0].embedding_, self._parts[0].score_

    def _n_tails(self) -> int:
        """As many as all parts have."""
        if self._parts:
            return len(self.calibrators_)
        return super()._n_tails()

    def predict(self, X: Any) -> FloatArray:
        """The model's predictions, (m, k)."""
        self._check_calibrated()
        if is_collection(X):
            return lazy_predictions(self, X)  # type: ignore[no-any-return]
        models.check_new_rows(self, X)
        k = len(self.target_names_)
        return models.predictions(self.estimator_, X, k).reshape(-1, k)

    def predict_interval(  # type: ignore[override]
        self, X: Any, coverage: Coverage = 0.9, *, bounds: Any = None, **how: Any
    ) -> Boxes:
        """Boxes at one level, or at each of several.

        ``bounds`` are k pairs (y_min, y_max), None for a target without; ``how`` is what else
        ``predict_interval`` of :class:`ConformalRegressor` takes.
        """
        self._check_calibrated()
        if not self._parts or is_collection(X):
            return super().predict_interval(X, coverage, bounds=bounds, **how)  # type: ignore[return-value]
        parts = zip(self._answering(X), _ranges(bounds, len(self.target_names_)), strict=True)
        each = (part.predict_interval(X, coverage, bounds=of, **how) for part, of in parts)
        return Boxes(tuple(each), self.target_names_, joint=False)

    def predict_distribution(self, X: Any, *, bounds: Any = None, **how: Any) -> Any:
        """With ``joint=False``, the distribution of each target by itself, by its name.

        Arguments as in :meth:`predict_interval`.
        """
        self._check_calibrated()
        refuse_collection(X, "X")
        if not self._parts and len(self.target_names_) > 1:
            raise CalliperError(
                "a joint box has one radius for all targets, and no distribution of any: ask "
                "MultiTargetRegressor(..., joint=False) for that of each target by itself."
            )
        parts: Any = self._answering(X) if self._parts else (super(),)
        ranges = _ranges(bounds, len(self.target_names_))
        found = (
            part.predict_distribution(X, bounds=of, **how)
            for part, of in zip(parts, ranges, strict=True)
        )
        return dict(zip(self.target_names_, found, strict=True))

    def extend(self, X: Any, y: Any, **how: Any) -> Self:
        """As :meth:`ConformalRegressor.extend`; y has a column for each target."""
        self._check_calibrated()
        if not self._parts:
            return super().extend(X, y, **how)
        targets = self._check_targets(y)
        grown = tuple(copy(part) for part in self._parts)
        for part, column in zip(grown, targets.T, strict=True):
            part.extend(X, column, **how)
        self._parts = grown
        self.calibrators_ = tuple(each for part in grown for each in part.calibrators_)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags

    @property
    def _calibrated(self) -> Calibrated:
        """Of the target of which the least is proved, if each is by itself."""
        least = min(self._parts, key=ConformalRegressor.guaranteed_coverage, default=self)
        return CalibratedBoxes(
            least.score_,
            least.calibrators_,
            self.void_,
            "" if least.error_model_ is None else least.error_model_.describe(),
            names=self.target_names_,
            joint=not self._parts,
        )

    def _check_known(self, X: Any, y: Any, *, anew: bool = True) -> FloatArray:
        """Targets (n, k), or (n,) if there is one, in the order that the model was trained on."""
        if y is None:
            return super()._check_known(X, y)
        trained_here = not anew and getattr(self, "_trained", (None,))[0] is self.estimator
        names = self.target_names_ if trained_here else target_names(y)
        models.check_known_rows(self, X, check_targets(y, "y", names)[:, 0])
        self.target_names_ = names
        return self._check_targets(y)

    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        """Targets (n, k), or (n,) if there is one."""
        targets = check_targets(y, name, self.target_names_)
        return targets[:, 0] if targets.shape[1] == 1 else targets

    def _calibrate(
        self,
        estimator: Any,
        X: Any,
        y: FloatArray,
        training: Training,
        order: Any = None,
        per_row: PerRow = PerRow(),  # noqa: B008
        lazy: LazyRows | None = None,
    ) -> None:
        units, self.score_function = None, None
        if y.ndim == 2:
            whole = models.unwrapped(estimator)
            training = KeptTraining(**vars(training), whole=whole, targets=training.y)
            if not self.joint:
                if lazy is not None:
                    raise CalliperError(
                        "joint=False calibrates each target by itself, on rows in memory: pass "
                        "X.compute() and y.compute(), or calibrate a ConformalRegressor for each."
                    )
                self._calibrate_each(estimator, X, y, training, order, per_row)
                return
            units = self._units(estimator, X, y, training)
            self.score_function = JointError(units)
            training = replace(training, progress=None)
        super()._calibrate(estimator, X, y, training, order, per_row, lazy)
        self._parts, self.units_ = (), units

    def _calibrate_each(
        self,
        estimator: Any,
        X: Any,
        y: FloatArray,
        training: Training,
        order: Any,
        per_row: PerRow,
    ) -> None:
        """A regressor for each column of the one model."""
        parts: tuple[ConformalRegressor, ...] = ()
        report = training.progress
        for place, column in enumerate(y.T):
            model = column_of(estimator, place, y.shape[1])
            part = ConformalRegressor(model, self.calibrator, embed=self.embed)
            part.random_state = self.random_state
            models.check_known_rows(part, X, column)
            known: dict[str, Any] = {"place": place, "progress": None if place else report}
            seen = replace(training, **known)
            seen = seen if seen.y is None else replace(seen, y=seen.y[:, place])
            part._calibrate(model, X, column, seen, order, per_row)
            parts += (part,)
        for name in (
            "embedding_",
            "score_",
            "left_out_",
            "error_model_",
            "_row_trend",
            "_per_row",
            "_probe",
        ):
            setattr(self, name, getattr(parts[0], name))
        self.calibrators_ = tuple(each for part in parts for each in part.calibrators_)
        self._placed = (estimator, self.embed, training.X is not None)
        self._parts, self.units_, self.void_, self.estimator_ = parts, None, None, estimator

    def _units(self, estimator: Any, X: Any, y: FloatArray, training: Training) -> FloatArray:
        """The size of a usual error of each target, (k,); nothing is learnt from calibration."""
        k = y.shape[1]
        if self.units is not None:
            if JointError(self.units).n_outputs != k:
                raise CalliperError(f"there are {k} targets, but units are {self.units!r}.")
            return np.asarray(self.units, dtype=np.float64)
        if training.y is None:
            known: FloatArray | None = getattr(self, "units_", None)
            if known is not None and self.estimator_ is estimator and (known != 1).any():
                return known
            warn(
                f"The box is not balanced: without training rows the usual errors of {k} targets "
                f"are not known, so that all its sides have one length, whatever the unit of each "
                f"target. The promise holds. Pass X_train and y_train, or units=, the size of a "
                f"usual error of each.",
                UnbalancedBoxWarning,
            )
            return np.ones(k)
        space = fit_embedding("prediction", training.X, X, model=estimator, n_outputs=k)
        method = FullRescaled() if self.calibrator is None else self.calibrator
        asked = "left_out" in as_calibrator(method).uses or self.left_out_folds is not None
        unseen = (training if asked else replace(training, n_refits=0)).left_out(space)
        y_pred = space.transform(training.X) if unseen is None else unseen.y_pred
        errors = np.abs(training.y[slice(None) if unseen is None else unseen.numbers] - y_pred)
        zero = [str(self.target_names_[j]) for j in np.flatnonzero(~errors.any(axis=0))]
        if zero:
            raise CalliperError(
                f"errors of target {', '.join(zero)} are all zero on {len(errors)} "
                f"{'training' if unseen is None else 'left-out'} rows, so that a joint box has no "
                f"unit for it. Is it constant? Leave it out. Does the model fit its training rows "
                f"exactly? Ask for left_out_folds=5. Or pass units=, a usual error of each target."
            )
        return np.asarray(errors.mean(axis=0))

    def _answering(self, X: Any) -> tuple[ConformalRegressor, ...]:
        """The regressors of single targets, with the model asked once for all of them."""
        models.check_new_rows(self, X)
        if not isinstance(self._parts[0].estimator_, TargetColumn):
            return self._parts
        parts = tuple(copy(part) for part in self._parts)
        for part, column in zip(parts, self.predict(X).T, strict=True):
            part.embedding_ = part.embedding_.refitted(lambda rows, known=column: known)
        return parts

    def _state(self) -> list[str]:
        lines = super()._state()
        together = "each by itself, not joint; the first:" if lines and self._parts else "joint"
        return [f"targets {listed(self.target_names_)}, {together}", *lines] if lines else []


@dataclass(frozen=True, eq=False)
class CalibratedBoxes(Calibrated):
    """A fitted calibrator of the targets ``names``: together, or the least proved of them."""

    names: tuple[Any, ...] = ()
    joint: bool = True

    def intervals(  # type: ignore[override]
        self, y_pred: FloatArray, Z: FloatArray, coverage: Coverage = 0.9, **how: Any
    ) -> Boxes:
        """Boxes around predictions of k targets, or of one as usual; ``bounds`` are k pairs."""
        limits = _ranges(how.pop("bounds", None), len(self.names))
        if len(self.names) == 1:
            one = super().intervals(y_pred, Z, coverage, bounds=limits[0], **how)
            return Boxes((one,), self.names)
        # Around 0 the upper end is the radius, whatever else was asked of it.
        around = Calibrated(AbsoluteError(), self.calibrators, self.void)
        found = around.intervals(np.zeros(len(y_pred)), Z, coverage, **how)
        centres = y_pred if found.upper.ndim == 1 else y_pred[:, None]
        ends = np.moveaxis(np.stack(self.score.invert(centres, found.upper)), -1, 0)
        sides = (np.clip(side, *limit) for side, limit in zip(ends, limits, strict=True))
        boxes = (Intervals(low, high, found.coverage, found.index) for low, high in sides)
        return Boxes(tuple(boxes), self.names)

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise, and whether it is for all targets together."""
        promise, k = super().guarantee(coverage, confidence), len(self.names)
        event = f"all {k} targets of a new row lie in their intervals together"
        if not self.joint:
            event = f"each of {k} targets by itself, not all of them together, lies in its interval"
        return promise if k == 1 else replace(promise, event=event)


def _ranges(bounds: Any, k: int) -> list[tuple[float, float]]:
    """The range of each of k targets, infinite where none is given."""
    pairs: list[Any] = [None] * k if bounds is None else list(bounds)
    if len(pairs) != k:
        raise CalliperError(f"bounds must be {k} pairs, one for each target; got {bounds!r}.")
    no_ends: Any = (None, None)
    return [check_bounds(no_ends if pair is None else pair) for pair in pairs]


@dataclass(frozen=True, kw_only=True)
class KeptTraining(Training):
    """Refits of the ``whole`` model of all ``targets``, kept for every column that asks.

    ``place`` says whose column is wanted, None for all of them.
    """

    whole: Any
    targets: Any
    place: int | None = None
    kept: dict[Any, Any] = field(default_factory=dict)

    def folds(self) -> Iterator[tuple[IntArray, IntArray]]:
        """The same folds for all who ask."""
        if not self.kept:
            self.kept["folds"] = list(super().folds())
        return iter(self.kept["folds"])

    def train(self, model: Any, rows: IntArray, fit_params: Mapping[str, Any] | None = None) -> Any:
        """The whole model, or a column of it, trained on some of the rows."""
        key = rows.tobytes()
        if key not in self.kept:
            self.kept[key] = super().train(self.whole, rows, fit_params)
        k = self.targets.shape[1]
        return self.kept[key] if self.place is None else column_of(self.kept[key], self.place, k)

    @property
    def _targets(self) -> Any:
        return self.targets


def column_of(model: Any, place: int, k: int) -> Any:
    """A model of one of k targets: what ``MultiOutputRegressor`` trained for it, or a column."""
    opened = models.open_model(model)
    several = models.predicts_as(opened.core, MultiOutputRegressor)
    if opened.targets or not several or len(opened.core.estimators_) != k:
        return TargetColumn(model, place, k)
    part = make_pipeline(*opened.steps, opened.core.estimators_[place])
    return FrozenEstimator(part) if models.is_frozen(model) else part


class TargetColumn(BaseEstimator):  # type: ignore[misc]
    """One of k targets of a fitted model, which ``KeptTraining`` can train again."""

    def __init__(self, model: Any, place: int, k: int) -> None:
        self.model = model
        self.place = place
        self.k = k

    @property
    def fit(self) -> Any:
        """As the whole is trained, if it can be."""
        return models.unwrapped(self.model).fit

    def predict(self, X: Any) -> FloatArray:
        """The column, (m,)."""
        return models.predictions(self.model, X, self.k)[:, self.place]
