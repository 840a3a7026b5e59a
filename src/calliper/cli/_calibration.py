"""From tables with known targets to a method that has learnt from them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.calibrators import FullRescaled, JackknifeRescaled, MADSplit, Split
from calliper.embedding import Embedding, fit_embedding
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.kernels import KNN, TunedRBF
from calliper.scores import AbsoluteError

METHODS = ("full", "jackknife", "split", "mad-split")
STATISTICS = ("mean", "rms", "quantile")
_SCORE = AbsoluteError()


@dataclass(frozen=True)
class Method:
    """A method as the options name it; ``None`` where an option was not given."""

    name: str
    neighbors: int | None = None
    statistic: str | None = None
    offset: float | None = None
    seed: int = 0

    def check(self, *, has_training: bool, has_scales: bool = False) -> None:
        """Refuse options that this method cannot or would not heed."""
        if has_scales:
            self._check_with_scales()
        if self.offset is not None and not 0 <= self.offset < inf:
            raise CalliperError("--offset must be a finite number, at least 0.")
        if self.name == "mad-split" and not has_training:
            raise CalliperError(
                "--method mad-split learns from training errors: give --training FILE, or use "
                "--method full, which needs none."
            )
        if self.statistic is not None and self.name != "full":
            raise CalliperError(f"--statistic is for --method full only, not {self.name}.")
        if self.name == "split" and (self.neighbors, self.offset) != (None, None):
            raise CalliperError("--method split takes no --neighbors and no --offset: omit them.")

    def _check_with_scales(self) -> None:
        if self.name == "full":
            raise CalliperError(
                "--scales were chosen on calibration errors, which would void the guarantee of "
                "--method full: use --method jackknife, whose proof allows for it."
            )
        if self.name != "jackknife":
            raise CalliperError(f"--scales are for --method jackknife only, not {self.name}.")
        if self.neighbors is not None:
            raise CalliperError("--scales and --neighbors exclude one another: give one.")

    def build(self, chosen: FloatArray | None = None) -> Any:
        """The calibrator, not yet fitted; ``chosen`` length scales replace the neighbours."""
        if self.name == "split":
            return Split()
        kernel: KNN | TunedRBF = KNN(10 if self.neighbors is None else self.neighbors)
        if chosen is not None:
            kernel = TunedRBF(chosen=chosen)
        common: dict[str, Any] = {"offset": self.offset or 0.0, "random_state": self.seed}
        if self.name == "jackknife":
            return JackknifeRescaled(kernel, **common)
        if self.name == "mad-split":
            return MADSplit(kernel, **common)
        return FullRescaled(kernel, statistic=self.statistic or "mean", **common)


@dataclass(frozen=True)
class Calibrated:
    """A fitted calibrator and the map to the features that it judges nearness in."""

    calibrator: Any
    embedding: Embedding

    def intervals(
        self,
        new: FloatArray,
        levels: tuple[float, ...],
        bounds: tuple[float, float] | None = None,
    ) -> Intervals:
        """Intervals for rows of (prediction, features); one level gives one pair of columns."""
        y_pred, Z = new[:, 0], self.embedding.transform(new[:, 1:])
        radius = self.calibrator.predict_radius(Z, list(levels))
        lower, upper = _SCORE.invert(y_pred[:, None], radius)
        if bounds is not None:
            lower, upper = np.clip(lower, *bounds), np.clip(upper, *bounds)
        if len(levels) == 1:
            return Intervals(lower[:, 0], upper[:, 0], levels[0])
        return Intervals(lower, upper, levels)


def calibrate(
    method: Method,
    known: FloatArray,
    training: FloatArray | None,
    chosen: FloatArray | None = None,
) -> Calibrated:
    """Fit the method to rows of (target, prediction, features).

    ``training`` holds such rows too, of data that the model was trained on; ``chosen`` is the
    length scale of each row, as tuned before.
    """
    X, X_train = known[:, 2:], None if training is None else training[:, 2:]
    # The same radius everywhere judges no nearness: nothing to scale, nothing to warn about.
    judges = method.name != "split"
    embedding = fit_embedding(None, X_train, X) if judges else Embedding(None, None)
    more: dict[str, FloatArray] = {}
    if method.name == "mad-split" and training is not None:
        more["Z_train"] = embedding.transform(X_train)
        more["scores_train"] = _SCORE.measure(training[:, 0], training[:, 1])
    scores = _SCORE.measure(known[:, 0], known[:, 1])
    calibrator = method.build(chosen).fit(embedding.transform(X), scores, **more)
    return Calibrated(calibrator, embedding)
