"""Models that state a standard deviation with the mean: Gaussian processes, Bayesian regression."""

from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.models._asking import ModelFamily, learnt, parameters, predictions


class StatedDeviation(ModelFamily):
    """A model whose ``predict`` can also return the standard deviation."""

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        return "return_std" in parameters(learnt(core, "predict"))

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,) and the stated deviation (1, m)."""
        _, deviation = self.core.predict(rows, return_std=True)
        return predictions(self.core, rows), np.asarray(deviation, np.float64).reshape(1, -1)

    def describe(self) -> str:
        return f"standard deviation by {type(self.core).__name__}"

    def unit(self) -> float | None:
        """Standard deviation of the training targets, where the model has kept them."""
        targets, scale = learnt(self.core, "y_train_"), learnt(self.core, "_y_train_std")
        if targets is None:
            return None
        return float(np.std(targets) * np.mean(1.0 if scale is None else scale))
