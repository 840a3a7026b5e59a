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

from calliper._types import FloatArray

#: Rows times trees up to which going down together is faster, and nodes up to which their list
#: takes little memory.
MOST_AT_ONCE, MOST_NODES = 3_000, 5_000_000


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
        n_nodes = sum(len(_fields(tree)[0]) for tree in trees)
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
        parts = [_fields(tree) for tree in self.trees]
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


def _is_histogram(tree: Any) -> bool:
    return type(tree).__name__ != "Tree"


def _fields(tree: Any) -> list[Any]:
    """(nodes,) each: feature, threshold, left and right child, whether gaps go left, value."""
    if _is_histogram(tree):
        names = "feature_idx", "num_threshold", "left", "right", "missing_go_to_left", "value"
        return [tree.nodes[name] for name in names]
    children = tree.children_left, tree.children_right
    return [tree.feature, tree.threshold, *children, tree.missing_go_to_left, tree.value.ravel()]


def _depth(tree: Any) -> int:
    return int(tree.nodes["depth"].max() if _is_histogram(tree) else tree.max_depth)
