"""Few rows through many trees, all trees at once.

To ask trees one after another costs some microseconds of Python each, however few the rows are. For
a single row that is nearly all of it. Here the nodes of all trees stand in one list, and all rows
go down all trees together, a level at a time. Each arrives at the leaf where the tree itself would
have put it, so that what is looked up there is the same to the last bit. Many rows are better off
with the library's own loop, which does not jump about in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calliper._types import FloatArray, IntArray

#: Rows times trees up to which going down together is faster; with more nodes it would take long
#: to gather them, and much memory.
MOST_AT_ONCE, MOST_NODES = 3_000, 5_000_000


class Grove:
    """Trees of scikit-learn, of either kind, with their nodes in one list that is made when needed.

    Parameters
    ----------
    trees : ``Tree`` of forests and gradient boosting, or ``TreePredictor`` of histogram boosting
        that splits by no categories
    columns : of each tree, the columns that it is given; None for all, in order
    """

    def __init__(self, trees: Sequence[Any], columns: Sequence[Any] | None = None) -> None:
        self.trees, self.columns = trees, columns

    def __getstate__(self) -> dict[str, Any]:
        """What was gathered can be gathered again."""
        return {"trees": self.trees, "columns": self.columns}

    def suits(self, n_rows: int) -> bool:
        """Whether so many dense rows are better off here."""
        return n_rows * len(self.trees) <= MOST_AT_ONCE and self._n_nodes <= MOST_NODES

    def leaves(self, rows: Any) -> IntArray:
        """(m, trees) where in the list of nodes each row ends in each tree."""
        feature, threshold, children, gap_left = self._nodes
        cells, starts = rows.ravel(), np.arange(len(rows))[:, None] * rows.shape[1]
        gaps = bool(np.isnan(cells).any())
        place = np.repeat(self._roots[None], len(rows), axis=0)
        for _ in range(self._depth):
            values = cells.take(starts + feature.take(place))
            left = values <= threshold.take(place)
            if gaps:
                left |= np.isnan(values) & gap_left.take(place)
            place = children.take(2 * place + left)
        return place

    def values(self, rows: Any) -> FloatArray:
        """(trees, m) what each tree predicts of each row."""
        return np.asarray(self.numbers("value").take(self.leaves(rows)).T)

    def numbers(self, name: str) -> FloatArray:
        """(nodes,) an attribute of each node, "value" or "impurity"."""
        if name not in self._numbers:
            parts = [np.ravel(_attribute(tree, name)) for tree in self.trees]
            self._numbers[name] = np.concatenate(parts)
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, FloatArray]:
        return {}

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(_attribute(tree, "feature")) for tree in self.trees]

    @cached_property
    def _n_nodes(self) -> int:
        return sum(self._sizes)

    @cached_property
    def _roots(self) -> IntArray:
        return np.cumsum([0, *self._sizes[:-1]])

    @cached_property
    def _depth(self) -> int:
        """Levels to go down at most."""
        return max(int(_attribute(tree, "max_depth")) for tree in self.trees)

    @cached_property
    def _nodes(self) -> tuple[IntArray, FloatArray, IntArray, Any]:
        """Feature, threshold, next nodes (right, left; a leaf is its own), whether gaps go left."""
        features, children = [], []
        for number, (tree, start) in enumerate(zip(self.trees, self._roots, strict=True)):
            left, right = _attribute(tree, "children_left"), _attribute(tree, "children_right")
            own, is_leaf = np.arange(len(left)), left <= 0
            below = np.stack([np.where(is_leaf, own, side) for side in (right, left)], axis=1)
            children.append(below.ravel() + start)
            feature = np.where(is_leaf, 0, _attribute(tree, "feature"))
            given = None if self.columns is None else self.columns[number]
            features.append(feature if given is None else np.asarray(given)[feature])
        gaps = [_attribute(tree, "missing_go_to_left") for tree in self.trees]
        return (
            np.concatenate(features).astype(np.int64),
            self.numbers("threshold"),
            np.concatenate(children),
            np.concatenate(gaps).astype(bool),
        )


class FewRows:
    """A fitted ``GradientBoostingRegressor`` that starts from a constant, quick for few rows."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.grove = Grove([tree.tree_ for tree in model.estimators_[:, 0]])

    def predict(self, rows: FloatArray) -> FloatArray:
        """What the model predicts of finite rows, (m,)."""
        if not self.grove.suits(len(rows)):
            return np.asarray(self.model.predict(rows))
        steps = self.model.learning_rate * self.grove.values(rows.astype(np.float32))
        steps[0] += self.model.init_.constant_.item()
        return np.asarray(np.cumsum(steps, axis=0)[-1])


#: Names in histogram boosting of what trees elsewhere call otherwise.
IN_HISTOGRAMS = {
    "feature": "feature_idx",
    "threshold": "num_threshold",
    "children_left": "left",
    "children_right": "right",
}


def _attribute(tree: Any, name: str) -> Any:
    """An attribute of a tree: its ``max_depth``, or (nodes,) of its nodes."""
    if not hasattr(tree, "nodes"):
        return getattr(tree, name)
    if name == "max_depth":
        return tree.nodes["depth"].max()
    return tree.nodes[IN_HISTOGRAMS.get(name, name)]
