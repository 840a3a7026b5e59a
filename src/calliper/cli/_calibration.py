"""From tables with known targets to a method that has learnt from them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from calliper._types import FloatArray
from calliper.cli._methods import METHODS, Entry
from calliper.embedding import Embedding, fit_embedding
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.kernels import KNN, TunedRBF
from calliper.scores import AbsoluteError

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
        if self.entry.needs_training and not has_training:
            raise CalliperError(
                f"--method {self.name} learns from {self.entry.needs}: give --training FILE, or "
                f"use --method full, which needs none."
            )
        if self.statistic is not None and self.name != "full":
            raise CalliperError(f"--statistic is for --method full only, not {self.name}.")
        self._refuse_unheeded()

    @property
    def entry(self) -> Entry:
        """What there is to know of this method."""
        return METHODS[self.name]

    def _refuse_unheeded(self) -> None:
        unheeded = []
        if self.neighbors is not None and self.entry.neighbors is None:
            unheeded.append("--neighbors")
        if self.offset is not None and not self.entry.takes("offset"):
            unheeded.append("--offset")
        if unheeded:
            them = "them" if len(unheeded) > 1 else "it"
            raise CalliperError(
                f"--method {self.name} takes no {' and no '.join(unheeded)}: omit {them}."
            )

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
        given: dict[str, Any] = {"statistic": self.statistic, "offset": self.offset}
        if self.entry.takes("random_state"):
            given["random_state"] = self.seed
        place = self.entry.neighbors
        if place is not None and chosen is not None:
            given[place] = TunedRBF(chosen=chosen)
        elif place is not None and self.neighbors is not None:
            given[place] = self.neighbors if place == "n_neighbors" else KNN(self.neighbors)
        return self.entry.kind(**{name: v for name, v in given.items() if v is not None})


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
    calibrator, more = method.build(chosen), {}
    if training is not None:
        more["Z_train"] = embedding.transform(X_train)
        more["scores_train"] = _SCORE.measure(training[:, 0], training[:, 1])
        more["y_train"] = training[:, 0]
    wanted = {name: v for name, v in more.items() if has_fit_parameter(calibrator, name)}
    scores = _SCORE.measure(known[:, 0], known[:, 1])
    calibrator.fit(embedding.transform(X), scores, **wanted)
    return Calibrated(calibrator, embedding)
