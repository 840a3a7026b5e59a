"""Few rows through many trees, all trees at once.

To ask trees one after another costs some microseconds of Python each, however few the rows are; for
a single row that is nearly all of it. Here the nodes of all trees stand in one list, and all rows
go down all trees together, a level at a time. Each arrives at the leaf where the tree itself would
have put it, so that what it predicts is the same to the last bit. Many rows are better off with the
library's own loop, which does not jump about in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calliper._blocks import row_slices
from calliper._kept import Array, Inline, Keeps
from calliper._trees import OF_HISTOGRAMS, PlainTrees, tree_field
from calliper._types import FloatArray
from calliper.exceptions import CalliperError

#: Rows times trees up to which going down together is faster, and nodes up to which their list
#: takes little memory.
MOST_AT_ONCE, MOST_NODES = 3_000, 5_000_000

#: Rows that go down bare nodes together.
MOST_ROWS = 4096


class Grove:
    """Trees of scikit-learn, their nodes in one list that is made when few rows first come.

    Parameters
    ----------
    trees : ``Tree`` of forests and gradient boosting, or ``TreePredictor`` of histogram boosting
        that splits by no categories
    columns : of each tree, the columns that it is given; None for all, in order
    """

    def __init__(self, trees: Sequence[Any], columns: Sequence[Any] | None = None) -> None:
        self.trees, self.columns = trees, columns
        n_nodes = sum(len(tree_field(tree, "feature")) for tree in trees)
        self.most_rows = MOST_AT_ONCE // len(trees) if n_nodes <= MOST_NODES else 0

    def __getstate__(self) -> dict[str, Any]:
        """Nodes can be gathered again."""
        return {name: value for name, value in vars(self).items() if name != "_nodes"}

    def suits(self, rows: Any) -> bool:
        """Whether rows, as the trees take them, are dense and few."""
        return isinstance(rows, np.ndarray) and len(rows) <= self.most_rows

    def values(self, rows: Any) -> FloatArray:
        """(trees, m) what each tree predicts of each row."""
        roots, depth, feature, threshold, next_nodes, gap_left, value = self._nodes
        cells, starts = rows.ravel(), np.arange(len(rows)) * rows.shape[1]
        gaps = bool(np.isnan(cells).any())
        place = np.repeat(roots[:, None], len(rows), axis=1)
        for _ in range(depth):
            numbers = cells.take(starts + feature.take(place))
            left = numbers <= threshold.take(place)
            if gaps:
                left |= np.isnan(numbers) & gap_left.take(place)
            place = next_nodes.take(2 * place + left)
        return np.asarray(value.take(place))

    @cached_property
    def _nodes(self) -> tuple[Any, ...]:
        """Roots, depth, and of all nodes: feature, threshold, next ones (right, left), … , value.

        A leaf is its own next node, so that all rows can go down equally far.
        """
        parts = [[tree_field(tree, name) for name in OF_HISTOGRAMS] for tree in self.trees]
        roots = np.cumsum([0, *(len(part[0]) for part in parts[:-1])])
        for number, part in enumerate(parts):
            leaf, own = part[2] <= 0, np.arange(len(part[2]))
            part[2:4] = (np.where(leaf, own, side) + roots[number] for side in part[2:4])
            part[0] = np.where(leaf, 0, part[0])
            if self.columns is not None and self.columns[number] is not None:
                part[0] = np.asarray(self.columns[number])[part[0]]
        feature, threshold, left, right, gap_left, value = (
            np.concatenate(each) for each in zip(*parts, strict=True)
        )
        next_nodes = np.stack([right, left], axis=1).ravel()
        depth = max(_depth(tree) for tree in self.trees)
        return roots, depth, feature, threshold, next_nodes, gap_left.astype(bool), value


def _depth(tree: Any) -> int:
    return int(tree.nodes["depth"].max() if hasattr(tree, "nodes") else tree.max_depth)


class BoostedTrees(Keeps):
    """Fitted ``GradientBoostingRegressor``s that start from a constant, as bare trees.

    Few rows go down all trees at once; the sums are to the last bit those of the models, in either
    way. A file holds their nodes: see ``_trees.py``.

    Parameters
    ----------
    models : the fitted models
    """

    keeps = {
        "trees": Inline(PlainTrees),
        "ends": Array("int32", ("m",), least=1, becomes="int64"),
        "rates": Array("float64", ("m",)),
        "constants": Array("float64", ("m",)),
    }
    #: The nodes alone, where they came from a file.
    plain: PlainTrees | None = None

    def __init__(self, models: Sequence[Any]) -> None:
        trees = [[tree.tree_ for tree in model.estimators_[:, 0]] for model in models]
        self.ends = np.cumsum([len(each) for each in trees])
        self.rates = np.array([model.learning_rate for model in models], dtype=np.float64)
        self.constants = np.array([model.init_.constant_.item() for model in models])
        self._plant([tree for each in trees for tree in each])

    def _plant(self, trees: list[Any]) -> None:
        self.grove, self.n_features = Grove(trees), max(tree.n_features for tree in trees)

    def for_file(self) -> dict[str, Any]:
        """What a file holds: nodes, and how they are summed."""
        trees = self.plain or PlainTrees.of(self.grove.trees, self.n_features)
        return {name: getattr(self, name) for name in ("ends", "rates", "constants")} | {
            "trees": trees
        }

    @classmethod
    def again(cls, state: dict[str, Any]) -> BoostedTrees:
        """The same of nodes alone."""
        made = cls.__new__(cls)
        made.plain = trees = state.pop("trees")
        made.__dict__.update(state, n_features=trees.n_features)
        if made.ends[-1:].tolist() != [len(trees.sizes)] or (np.diff(made.ends) < 1).any():
            raise CalliperError("boosted models do not have the trees that they name.")
        return made

    def predict(self, rows: FloatArray) -> FloatArray:
        """(models, m) what each model predicts of finite rows."""
        if rows.shape[1] < self.n_features:  # compiled code would read beyond the row
            raise CalliperError(
                f"trees ask for {self.n_features} columns; the rows have {rows.shape[1]}."
            )
        single = rows.astype(np.float32)
        if self.plain is not None:
            parts = (self.plain.values(single[part]) for part in row_slices(len(rows), MOST_ROWS))
            sums = [[self._sum(k, part) for k in range(len(self.ends))] for part in parts]
            return np.concatenate([np.array(part) for part in sums], axis=1)
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
