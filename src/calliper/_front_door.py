"""What every regressor with intervals has, however many targets: parameters, promise, words."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Field, Inline, Number, Part, Plain, Text
from calliper._notebook import card
from calliper._row_checks import RowSketch, RowTrend
from calliper._types import Coverage, FloatArray
from calliper.calibration import CHECKED, UNCHECKED, Calibration, TrainedHere
from calliper.calibrators import Calibrator, FullRescaled, picture_of
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.models import fit_router, fresh
from calliper.rows import PerRow
from calliper.shift import ShiftReport
from calliper.space import Embedding, LeftOut


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
        }

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        model, space, sketch = self.estimator, state["space"], state["sketch"]
        space.model = model
        if state["calibrators"] and len(state["calibrators"]) != state["score"].n_tails:
            raise CalliperError("a score must have a calibrator for each of its tails.")
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
            embed=self.embed,
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
