"""What scikit-learn, files and notebooks ask of a regressor that holds a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils.metadata_routing import MetadataRouter

from calliper import _validation as valid
from calliper._answering import Calibration, check_calibrated
from calliper._kept import COLUMN_FIELDS, Field, columns_for_file, restore_columns
from calliper._notebook import card
from calliper._types import Coverage, FloatArray
from calliper.calibration import chosen_of
from calliper.calibrators import Calibrator, FullRescaled, picture_of
from calliper.guarantees import Guarantee
from calliper.models import asked_as, fit_router, fresh
from calliper.rows import same_rows
from calliper.scores import ScaledError
from calliper.shift import ShiftReport


class Made:
    """What calibration made, by its name there; before that, an error that says what to do."""

    def __init__(self, name: str, doc: str) -> None:
        self.name, self.__doc__ = name, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.own_name = name

    def __get__(self, front: Any, owner: type) -> Any:
        if front is None:
            return self
        check_calibrated(front, f"There is no {self.own_name} yet. ")
        return getattr(front.calibration_, self.name)


class CalibratedRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters as scikit-learn knows them, and what follows from ``calibration_`` alone."""

    estimator: Any
    calibrator: Any
    calibration_: Calibration
    estimator_ = Made("model", "The model that predicts.")
    calibrators_ = Made("calibrators", "One for each tail.")
    embedding_ = Made("space", "Where nearness is judged.")
    score_ = Made("score", "How an error is measured.")
    left_out_ = Made("left_out", "Left-out rows, or None.")
    error_model_ = Made("error_model", "Of errors, or None.")
    no_guarantee_ = Made("no_guarantee", "Why there is no guarantee, or None.")

    keeps: ClassVar[Mapping[str, Field]] = {**Calibration.keeps, **COLUMN_FIELDS}

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a calibrated one, with the parameters that it was calibrated by."""
        made, own = self.calibration_, vars(self)
        followed = {name: value for name, value in made.chosen.items() if name in own}
        return {**made.for_file(), **columns_for_file(self), **followed}

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        followed, score = chosen_of(self), state["score"]
        # What was learnt is in units of errors around what the model of the user's score predicts.
        given = followed.get("score_function") if isinstance(score, ScaledError) else score
        asked, _ = asked_as(self.estimator, given)
        self.calibration_ = Calibration.again(state, self.estimator, asked, followed)
        restore_columns(self, state)

    def __new__(cls, *given: Any, **known: Any) -> Self:
        valid.refuse_level_words(cls, known)
        made: Self = super().__new__(cls)
        return made

    @valid.says_coverage
    def shift_report(self, X: Any, coverage: float = 0.9, *, weights: Any = None) -> ShiftReport:
        """What weights leave for these rows: effective calibration rows, infinite intervals.

        With groups, ask ``calibrators_[0].calibrators_[group].shift_report(weights)``.
        """
        check_calibrated(self)
        (weights,) = same_rows(X, "X", weights=weights)
        new = replace(self.calibration_.per_row, groups=None).new(X, weights=weights)
        report: ShiftReport = self.calibrators_[0].shift_report(new["weights"], coverage)
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
        cloned.estimator = fresh(self.estimator)
        return cloned

    @property
    def calibrator_(self) -> Calibrator:
        """The fitted calibrator; of a score with two tails there are two, in ``calibrators_``."""
        check_calibrated(self, "There is no calibrator_ yet. ")
        if len(self.calibrators_) != 1:
            n = len(self.calibrators_)
            raise AttributeError(f"there is no calibrator_: {n} are fitted (see calibrators_).")
        fitted: Calibrator = self.calibrators_[0]
        return fitted

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
