"""Trees as plain arrays, walked by code of our own: what a file holds of them.

Nodes of several trees stand one after another. Nothing here trusts an index: whatever comes from a
file is checked before it is walked. Children must follow their parents and lie in the same tree,
features be columns. Every row arrives at the leaf where the trained tree would have put it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from calliper._blocks import row_slices
from calliper._kept import Array, Inline, Keeps, Number
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError

#: The child of a leaf.
LEAF = -1
#: Most steps of a walk, depth times all trees but one, in units of the nodes; deepest tree.
MOST_STEPS, DEEPEST = 64, 4096
#: Rows times trees that are walked together.
AT_ONCE = 1 << 20
#: Fields of the nodes of a ``Tree``, and their names in histogram boosting.
OF_HISTOGRAMS = {
    "feature": "feature_idx",
    "threshold": "num_threshold",
    "children_left": "left",
    "children_right": "right",
    "missing_go_to_left": "missing_go_to_left",
    "value": "value",
}


def tree_field(tree: Any, name: str) -> NDArray[Any]:
    """One field of the nodes of a ``Tree``, or of a ``TreePredictor``, (nodes,)."""
    if hasattr(tree, "nodes"):
        return np.asarray(tree.nodes[OF_HISTOGRAMS[name]])
    return np.asarray(getattr(tree, name)).ravel()


@dataclass(frozen=True, eq=False)
class PlainTrees(Keeps):
    """Nodes of several trees, one after another.

    ``sizes`` are numbers of nodes, the root first. Rows up to the threshold go left, and missing
    numbers if ``gap_left``; children are counted from the first node of all, and −1 at leaves,
    which have a value. Rows must have ``n_features`` columns.
    """

    sizes: Annotated[IntArray, Array("int32", ("t",), least=1, becomes="int64")]
    feature: Annotated[IntArray, Array("int32", ("n",), least=0, becomes="int64")]
    threshold: Annotated[FloatArray, Array("float64", ("n",), finite=False)]
    left: Annotated[IntArray, Array("int32", ("n",), least=LEAF, most="n", becomes="int64")]
    right: Annotated[IntArray, Array("int32", ("n",), least=LEAF, most="n", becomes="int64")]
    gap_left: Annotated[NDArray[Any], Array("bool", ("n",))]
    value: Annotated[FloatArray, Array("float64", ("n",))]
    n_features: Annotated[int, Number(int, 0, 2**31)]

    @classmethod
    def of(
        cls, trees: Sequence[Any], n_features: int, columns: Sequence[Any] | None = None
    ) -> Self:
        """From trees of one output that split by no categories; by default each has all columns."""
        parts = [[tree_field(tree, name) for name in OF_HISTOGRAMS] for tree in trees]
        sizes = np.array([len(part[0]) for part in parts], dtype=np.int64)
        roots, given = np.cumsum(sizes) - sizes, columns or [None] * len(trees)
        for part, root, own in zip(parts, roots, given, strict=True):
            inner = part[2].astype(np.int64) > 0
            part[0] = np.where(inner, part[0], 0)
            part[0] = part[0] if own is None else np.asarray(own)[part[0]]
            part[1] = np.where(inner, part[1], 0.0)
            part[2:4] = (np.where(inner, side.astype(np.int64) + root, LEAF) for side in part[2:4])
        feature, threshold, left, right, gap_left, value = (
            np.concatenate(each) for each in zip(*parts, strict=True)
        )
        return cls(sizes, feature, threshold, left, right, gap_left.astype(bool), value, n_features)

    def check_kept(self) -> None:
        own, inner = np.arange(len(self.left)), self.left != LEAF
        if not 0 < self.sizes.sum() == len(own):
            raise CalliperError("trees do not have the number of nodes that they declare.")
        if (inner != (self.right != LEAF)).any():
            raise CalliperError("a tree node is not a leaf and lacks a child.")
        tree = np.repeat(np.arange(len(self.sizes)), self.sizes)
        above, below = np.tile(own[inner], 2), np.append(self.left[inner], self.right[inner])
        if (below <= above).any() or (tree[below] != tree[above]).any():
            raise CalliperError("a tree node points outside its tree.")
        if len(np.unique(below)) < len(below):  # a walk would double its steps at each of them
            raise CalliperError("a tree node has two parents.")
        if (self.feature >= max(self.n_features, 1)).any():
            raise CalliperError(f"a tree splits on a feature beyond its {self.n_features} columns.")
        depth, others = self._walked[1], len(self.sizes) - 1
        if depth > DEEPEST or depth * others > MOST_STEPS * len(own):
            raise CalliperError("a tree is too deep, or much deeper than the others.")

    @cached_property
    def _walked(self) -> tuple[IntArray, int, IntArray]:
        """Roots; depth; and next nodes (right, left) of each, where a leaf follows itself."""
        own = np.arange(len(self.left))
        sides = [np.where(side == LEAF, own, side) for side in (self.right, self.left)]
        roots = np.cumsum(self.sizes) - self.sizes
        depth, inner = 0, roots[self.left[roots] != LEAF]
        while len(inner):
            depth, below = depth + 1, np.concatenate([side[inner] for side in sides])
            inner = below[self.left[below] != LEAF]
        return roots, depth, np.stack(sides, axis=1).ravel()

    def leaves(self, rows: NDArray[Any]) -> IntArray:
        """(trees, m) the node where each row ends."""
        if rows.shape[1] < self.n_features:
            raise CalliperError(
                f"trees need {self.n_features} columns; the rows have {rows.shape[1]}."
            )
        parts = row_slices(len(rows), max(1, AT_ONCE // len(self.sizes))) or [slice(0)]
        return np.concatenate([self._leaves(rows[part]) for part in parts], axis=1)

    def _leaves(self, rows: NDArray[Any]) -> IntArray:
        roots, depth, following = self._walked
        cells, starts = rows.ravel(), np.arange(len(rows)) * rows.shape[1]
        gaps = bool(np.isnan(cells).any())
        node = np.repeat(roots[:, None], len(rows), axis=1)
        for _ in range(depth):
            numbers = cells.take(starts + self.feature.take(node))
            goes_left = numbers <= self.threshold.take(node)
            if gaps:
                goes_left |= np.isnan(numbers) & self.gap_left.take(node)
            node = following.take(2 * node + goes_left)
        return node

    def values(self, rows: NDArray[Any]) -> FloatArray:
        """(trees, m) what each tree predicts of each row."""
        return np.asarray(self.value.take(self.leaves(rows)))


@dataclass(frozen=True, eq=False)
class BoostedSum(Keeps):
    """Histogram boosting of one output as bare trees, and a sigmoid that makes it a probability."""

    trees: Annotated[PlainTrees, Inline(PlainTrees)]
    baseline: Annotated[float, Number()]
    slope: Annotated[float, Number()] = 0.0
    intercept: Annotated[float, Number()] = 0.0

    def __post_init__(self) -> None:
        most = len(self.trees.sizes) * float(np.abs(self.trees.value).max()) + abs(self.baseline)
        if not np.isfinite(max(1.0, abs(self.slope)) * most + abs(self.intercept)):
            raise CalliperError("the values of trees are too large to be added.")

    @classmethod
    def of(cls, model: Any, slope: float = 0.0, intercept: float = 0.0) -> Self | None:
        """From a fitted histogram booster; None if it splits by categories or has several sums."""
        stages = model._predictors
        if model._preprocessor is not None or any(len(stage) != 1 for stage in stages):
            return None
        trees = PlainTrees.of([stage[0] for stage in stages], int(model.n_features_in_))
        baseline = float(np.ravel(model._baseline_prediction)[0])
        return cls(trees, baseline, slope, intercept)

    def predict(self, rows: Any) -> FloatArray:
        """(m,) the sums, added up as the model does."""
        steps = self.trees.values(np.ascontiguousarray(rows, dtype=np.float64))
        steps[0] += self.baseline
        return np.asarray(np.cumsum(steps, axis=0)[-1])

    def probability(self, rows: Any) -> FloatArray:
        """(m,) what the sigmoid makes of the sums."""
        return np.asarray(expit(-(self.slope * self.predict(rows) + self.intercept)))
