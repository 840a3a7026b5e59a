"""The trees of a model of errors, as arrays of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calliper._trees import packed, unpacked
from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.models import Grove


class BoostedTrees:
    """Fitted ``GradientBoostingRegressor``s that start from a constant, as bare trees.

    Few rows go down all trees at once; the sums are to the last bit those of the models, in either
    way. What is kept are arrays: see ``_trees.py``.

    Parameters
    ----------
    models : the fitted models
    """

    def __init__(self, models: Sequence[Any]) -> None:
        trees = [[tree.tree_ for tree in model.estimators_[:, 0]] for model in models]
        self.ends = np.cumsum([len(each) for each in trees])
        self.rates = np.array([model.learning_rate for model in models], dtype=np.float64)
        self.constants = np.array([model.init_.constant_.item() for model in models])
        self._plant([tree for each in trees for tree in each])

    def _plant(self, trees: list[Any]) -> None:
        self.grove, self.n_features = Grove(trees), max(tree.n_features for tree in trees)

    def __getstate__(self) -> dict[str, Any]:
        """Trees as arrays."""
        state = {name: value for name, value in vars(self).items() if name != "n_features"}
        return {**state, "grove": packed(self.grove.trees)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plant(unpacked(state["grove"]))

    def predict(self, rows: FloatArray) -> FloatArray:
        """(models, m) what each model predicts of finite rows."""
        if rows.shape[1] < self.n_features:  # compiled code would read beyond the row
            raise CalliperError(
                f"trees ask for {self.n_features} columns; the rows have {rows.shape[1]}."
            )
        single = rows.astype(np.float32)
        if self.grove.suits(single):
            values = self.grove.values(single)
            return np.array([self._sum(number, values) for number in range(len(self.ends))])
        return np.array([self._one_by_one(number, single) for number in range(len(self.ends))])

    def _of(self, number: int) -> slice:
        """The trees of a model among those of all."""
        return slice(self.ends[number - 1] if number else 0, self.ends[number])

    def _sum(self, number: int, values: FloatArray) -> FloatArray:
        steps = self.rates[number] * values[self._of(number)]
        steps[0] += self.constants[number]
        return np.asarray(np.cumsum(steps, axis=0)[-1])

    def _one_by_one(self, number: int, rows: Any) -> FloatArray:
        """The same for many rows, tree after tree."""
        total = np.full(len(rows), self.constants[number])
        for tree in self.grove.trees[self._of(number)]:
            total += self.rates[number] * tree.predict(rows)[:, 0]
        return total
