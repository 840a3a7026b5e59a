"""What every regressor with intervals has, however many targets: parameters, promise, words."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any, Self

from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from calliper._notebook import card
from calliper._types import Coverage, FloatArray
from calliper.calibration import CHECKED, UNCHECKED, Calibration
from calliper.calibrators import Calibrator, FullRescaled, picture_of
from calliper.guarantees import Guarantee
from calliper.models import fit_router, fresh
from calliper.shift import ShiftReport


class FrontDoor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters as scikit-learn knows them, and what follows from ``calibration_`` alone."""

    estimator: Any
    calibrator: Any
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
