"""Trees of scikit-learn as plain arrays, and back: what a file may hold of them.

Nodes of several trees stand one after another, a column for each of their fields. A tree walks its
nodes in compiled code that trusts them, so whatever does not come from a tree itself is checked
before it becomes one: children must follow their parents and lie inside, features be columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calliper.exceptions import CalliperError

#: What is said of every tree: its shape, and how many nodes there are.
SHAPE = ("n_features", "n_outputs", "max_depth", "node_count")

#: The left child of a leaf; compiled code takes any other number for a node.
LEAF = -1

#: Columns by name.
Arrays = dict[str, NDArray[Any]]


def packed(trees: Sequence[Any]) -> Arrays:
    """``Tree``s of regression as columns: ``SHAPE`` of each, fields of all nodes, values."""
    states = [tree.__getstate__() for tree in trees]
    columns = {name: np.array([getattr(tree, name) for tree in trees]) for name in SHAPE}
    columns["n_values"] = np.array([tree.value.shape[2] for tree in trees])
    for name in states[0]["nodes"].dtype.names:
        columns[name] = np.concatenate([state["nodes"][name] for state in states])
    columns["value"] = np.concatenate([state["values"].ravel() for state in states])
    return columns


def unpacked(columns: Arrays) -> list[Any]:
    """The trees again; columns that make no tree are refused."""
    from sklearn.tree._tree import NODE_DTYPE

    expected = {*SHAPE, "n_values", "value", *NODE_DTYPE.names}
    if set(columns) != expected:
        wrong = sorted(set(columns) ^ expected)
        raise CalliperError(f"trees of this version of scikit-learn differ in {', '.join(wrong)}.")
    sizes = np.stack([columns[name].astype(np.int64) for name in (*SHAPE, "n_values")], axis=1)
    nodes = np.zeros(len(columns["feature"]), dtype=NODE_DTYPE)
    if (sizes < [0, 1, 0, 1, 1]).any() or (sizes > 2**31).any():
        raise CalliperError("a tree must have nodes, outputs and values.")
    for name in NODE_DTYPE.names:
        if columns[name].shape != nodes.shape:
            raise CalliperError(f"trees have {len(nodes)} nodes but {columns[name].shape} {name}.")
        nodes[name] = columns[name]
    n_values = sizes[:, 3] * sizes[:, 1] * sizes[:, 4]
    most = columns["value"].size
    whole = sizes[:, 3].sum() == len(nodes) and n_values.sum() == most
    if not whole or (sizes[:, [1, 4]] > most).any() or (sizes[:, 2] >= sizes[:, 3]).any():
        raise CalliperError("nodes and values of trees are not as many as they say.")
    own = np.split(nodes, np.cumsum(sizes[:-1, 3]))
    values = np.split(columns["value"].astype(np.float64), np.cumsum(n_values[:-1]))
    return [_tree(*each) for each in zip(sizes.tolist(), own, values, strict=True)]


def _tree(size: list[int], nodes: NDArray[Any], values: NDArray[Any]) -> Any:
    from sklearn.tree._tree import Tree

    n_features, n_outputs, max_depth, node_count, n_values = size
    if ((nodes["left_child"] <= 0) & (nodes["left_child"] != LEAF)).any():
        raise CalliperError("a node of a tree is neither a leaf nor has it children.")
    check_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], n_features)
    tree = Tree(n_features, np.full(n_outputs, n_values, dtype=np.intp), n_outputs)
    shape = node_count, n_outputs, n_values
    tree.__setstate__(
        {
            "max_depth": max_depth,
            "node_count": node_count,
            "nodes": nodes,
            "values": np.ascontiguousarray(values.reshape(shape)),
        }
    )
    return tree


def check_nodes(left: NDArray[Any], right: NDArray[Any], feature: Any, n_features: int) -> None:
    """Refuse children that do not follow their parent, or lie outside, and unknown features.

    A leaf is a node whose left child is not positive.
    """
    own, n = np.arange(len(left)), len(left)
    inner = left.astype(np.int64) > 0
    for side in (left.astype(np.int64)[inner], right.astype(np.int64)[inner]):
        if (side <= own[inner]).any() or (side >= n).any():
            raise CalliperError("a node of a tree has no place among the others.")
    asked = np.asarray(feature).astype(np.int64)[inner]
    if (asked < 0).any() or (asked >= n_features).any():
        raise CalliperError(f"a tree asks for a feature that is none of {n_features}.")
