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
from numpy.typing import NDArray

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.models._asking import ModelFamily, learnt, predictions, predicts_as
from calliper.models._forests import Grove, root_deviation

#: Part of the unit below which steps and residuals count as equal: they are smaller than spreads.
STEP_FLOOR = 0.003


class Stages(ModelFamily):
    """A model that adds trees stage by stage and gives the sums on the way."""

    floor = STEP_FLOOR

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.n = _n_stages(core)
        self.histograms = learnt(core, "_predictors")
        self.grove: Grove | None = None
        if self.histograms is not None and self.is_known(core) and core._preprocessor is None:
            self.grove = Grove([stage[0] for stage in self.histograms])  # no splits by categories

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        return hasattr(core, "staged_predict") and _n_stages(core) > 1

    @classmethod
    def is_known(cls, core: Any) -> bool:
        """Whether the last sum is known to be the prediction."""
        from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

        return predicts_as(core, HistGradientBoostingRegressor, GradientBoostingRegressor)

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
        if self.histograms is None or self.core.loss != "squared_error":
            return None
        nodes = [stage[0].nodes for stage in self.histograms]
        leaves = [each[each["is_leaf"].astype(bool)] for each in nodes]
        each = [(leaf["value"], leaf["count"]) for leaf in leaves]
        return explained_deviation(each, self.core.learning_rate)


def _n_stages(core: Any) -> int:
    """Number of fitted stages; 0 for a model that does not count them."""
    return int(learnt(core, "n_iter_", "n_estimators_", "tree_count_") or 0)


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


class Table:
    """Numbers of the leaves of the trees from ``first`` until before ``stop``.

    Parameters
    ----------
    numbers : of the leaves of each tree, by the library's leaf index
    """

    def __init__(self, numbers: list[FloatArray], first: int, stop: int) -> None:
        some = numbers[first:stop]
        self.trees, self.numbers = slice(first, stop), np.concatenate(some)
        self.starts = np.cumsum([0, *(len(each) for each in some[:-1])])

    def sums(self, leaves: NDArray[Any]) -> FloatArray:
        """(m,) sums over the trees, from leaf indices in all trees, (m, T)."""
        total, own = np.empty(len(leaves)), leaves[:, self.trees]
        for rows in row_slices(len(leaves), max(1, BLOCK_FLOATS // len(self.starts))):
            total[rows] = self.numbers.take(own[rows].astype(np.int64) + self.starts).sum(axis=1)
        return total


class TreeStages(ModelFamily):
    """A model whose stages are single trees of scikit-learn.

    The second spread is left out for losses whose trees are not grown on residuals of y.
    """

    weights = (2.0, 1 / 0.15)
    floor = STEP_FLOOR

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        trees = [tree.tree_ for tree in core.estimators_[:, 0]]
        self.n, start = len(trees), len(trees) // 2
        steps = [np.abs(core.learning_rate * tree.value.ravel()) for tree in trees]
        self.steps, self.residuals = Table(steps, start, self.n), None
        if core.loss == "squared_error":
            part = [tree.impurity / (self.n - start) for tree in trees]
            self.residuals = Table(part, start, self.n)

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        """Whether its members are a column of trees."""
        trees = learnt(core, "estimators_")
        if not isinstance(trees, np.ndarray) or trees.shape[1:] != (1,) or len(trees) < 2:
            return False
        parts = learnt(trees[0, 0], "tree_"), learnt(core, "init_")
        return all(part is not None for part in parts)

    is_known = Stages.is_known

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,); Σ |step| and rms deviation in leaves of the later trees, (2, m)."""
        leaves = self.core.apply(rows)
        spreads = [self.steps.sums(leaves)]
        if self.residuals is not None:  # an impurity of zero is rounded to either side
            spreads.append(np.sqrt(np.maximum(self.residuals.sums(leaves), 0.0)))
        return predictions(self.core, rows), np.stack(spreads)

    def describe(self) -> str:
        leaves = "" if self.residuals is None else " and residuals in their leaves"
        return f"steps of the last {self.n - self.n // 2} of {self.n} trees{leaves}"

    def unit(self) -> float | None:
        """Deviation of the first tree's targets: of y, unless another model comes before it."""
        from_constant = self.core.init is None or isinstance(self.core.init, str)
        if self.residuals is None or not from_constant:
            return None
        return root_deviation(self.core.estimators_[0, 0].tree_)
