"""Gradient boosting: how far the last stages still move the prediction.

Trees correct one another, so their spread says nothing; the path of their sum does. Where the later
half of the stages still moves the prediction to and fro, residuals were large and contradictory:
the spread is Σ |step| over that half. Trees of ``GradientBoostingRegressor`` also keep how much the
residuals varied in each leaf; the root mean of that variance, over the same trees, is a second
spread.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.models._asking import ModelFamily, learnt, predicts_as
from calliper.models._forests import Grove, root_deviation

#: Part of the unit below which steps and residuals count as equal: they are smaller than spreads.
STEP_FLOOR = 0.003


class Stages(ModelFamily):
    """Histogram boosting, which gives the sums of its trees on the way."""

    floor = STEP_FLOOR

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.n = int(core.n_iter_)
        self.grove: Grove | None = None
        if core._preprocessor is None:  # no splits by categories
            self.grove = Grove([stage[0] for stage in core._predictors])

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return (
            predicts_as(core, HistGradientBoostingRegressor) and (learnt(core, "n_iter_") or 0) > 1
        )

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,) and Σ |step| over the later half of the stages, (1, m)."""
        before, moved = np.zeros(0), np.zeros(n_rows(rows))
        for stage, sums in enumerate(self._sums(rows)):
            y_pred = np.asarray(sums, dtype=np.float64).reshape(-1)
            if stage >= self.n // 2:
                moved += np.abs(y_pred - before)
            before = y_pred
        return before, moved[None]

    def _sums(self, X: Any) -> Iterable[Any]:
        """The prediction by each number of stages, (m,)."""
        if self.grove is None or not self.grove.takes(n_rows(X)):
            return self.core.staged_predict(X)  # type: ignore[no-any-return]
        steps = self.grove.values(self.core._preprocess_X(X, reset=False))
        steps[0] += self.core._baseline_prediction[0]
        return self.core._loss.link.inverse(np.cumsum(steps, axis=0))  # type: ignore[no-any-return]

    def describe(self) -> str:
        return f"steps of the last {self.n - self.n // 2} of {self.n} stages"

    def unit(self) -> float | None:
        """Deviation of the targets as far as the trees explain it, for squared errors."""
        if self.core.loss != "squared_error":
            return None
        nodes = [stage[0].nodes for stage in self.core._predictors]
        leaves = [each[each["is_leaf"].astype(bool)] for each in nodes]
        each = [(leaf["value"], leaf["count"]) for leaf in leaves]
        return explained_deviation(each, self.core.learning_rate)


def explained_deviation(leaves: Iterable[tuple[Any, Any]], rate: float) -> float:
    """Deviation of what stages of trees, grown by squared errors at a rate, have learnt of y.

    A stage of rate ν lowers the variance of the residuals by (2/ν − 1) times that of its own
    values, given for each stage with the numbers of rows in the leaves; the sum over stages is
    what is explained. Regularised leaves make it smaller.
    """
    explained = 0.0
    for values, counts in leaves:
        mean = np.average(values, weights=counts)
        explained += np.average((values - mean) ** 2, weights=counts)
    return float(np.sqrt((2 / float(rate) - 1) * explained))


class TreeStages(ModelFamily):
    """A model whose stages are single trees of scikit-learn.

    The second spread is left out for losses whose trees are not grown on residuals of y.
    """

    weights = (2.0, 1 / 0.15)
    floor = STEP_FLOOR

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        from sklearn.ensemble import GradientBoostingRegressor

        trees = learnt(core, "estimators_")
        return predicts_as(core, GradientBoostingRegressor) and trees is not None and len(trees) > 1

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,); Σ |step| and rms deviation in leaves of the later trees, (2, m)."""
        core = self.core
        rows = validate_data(
            core, rows, reset=False, dtype=np.float32, order="C", accept_sparse="csr"
        )
        trees = [tree.tree_ for tree in core.estimators_[:, 0]]
        total, moved, variance = np.zeros((3, rows.shape[0]))
        for place, tree in enumerate(trees):
            leaf = tree.apply(rows)
            step = tree.value.ravel().take(leaf)
            total += step
            if place >= len(trees) // 2:
                moved += np.abs(step)
                variance += tree.impurity.take(leaf)
        spreads = [core.learning_rate * moved]
        if core.loss == "squared_error":  # an impurity of zero is rounded to either side
            spreads.append(np.sqrt(np.maximum(variance, 0.0) / (len(trees) - len(trees) // 2)))
        origin = 0.0 if core.init_ == "zero" else core.init_.predict(rows).reshape(-1)
        return origin + core.learning_rate * total, np.stack(spreads)

    def describe(self) -> str:
        n = len(self.core.estimators_)
        leaves = " and residuals in their leaves" if self.core.loss == "squared_error" else ""
        return f"steps of the last {n - n // 2} of {n} trees{leaves}"

    def unit(self) -> float | None:
        """Deviation of the first tree's targets: of y, unless another model comes before it."""
        from_constant = self.core.init is None or isinstance(self.core.init, str)
        grown_on_targets = self.core.loss == "squared_error" and from_constant
        return root_deviation(self.core.estimators_[0, 0].tree_) if grown_on_targets else None
