"""Forests, extra trees, bagging, votes: the prediction is a mean, the members' spread beside it.

One pass over the members gives both: sums of d_b and d_b², d_b what member b predicts beyond the
first member. The spread divides by B − 1, so that a spread over the members that have not seen a
row (``_left_out.py``) can be compared with one over all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import validate_data

from calliper._models import predictions
from calliper._types import FloatArray
from calliper.embedding._known import predicts_as
from calliper.embedding._spread import Source

#: A member: from the rows of the ensemble to its predictions, (m,).
Member = Callable[[Any], FloatArray]


def averages_members(core: Any) -> bool:
    """Whether it holds fitted members whose plain mean could be its prediction."""
    members = getattr(core, "estimators_", None)
    if not isinstance(members, list) or len(members) < 2:
        return False  # one member has no spread
    weighted = hasattr(core, "estimator_weights_") or hasattr(core, "final_estimator_")
    return not weighted and all(hasattr(member, "predict") for member in members)


def is_plain_mean(core: Any) -> bool:
    """Whether its class is known to predict the plain mean of its members."""
    from sklearn.ensemble import (
        BaggingRegressor,
        ExtraTreesRegressor,
        RandomForestRegressor,
        VotingRegressor,
    )

    known = RandomForestRegressor, ExtraTreesRegressor, BaggingRegressor, VotingRegressor
    return predicts_as(core, *known) and getattr(core, "weights", None) is None


def mean_and_spread(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """Mean (m,) and standard deviation (1, m) of the members; O(m) memory a thread."""
    rows, members = members_on(core, X)
    first = members[0](rows)
    others = members[1:]
    n_groups = max(1, min(effective_n_jobs(getattr(core, "n_jobs", None)), len(others)))
    groups = [others[start::n_groups] for start in range(n_groups)]
    workers = Parallel(n_jobs=n_groups, require="sharedmem")
    sums = workers(delayed(_sums)(group, rows, first) for group in groups)
    total, squares = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    mean, spread = moments(first, total, squares, len(members))
    return mean, spread[None]


def moments(
    first: FloatArray, total: FloatArray, squares: FloatArray, count: Any
) -> tuple[FloatArray, FloatArray]:
    """Mean and spread from sums of differences to ``first``; ``count`` members, or (m,) counts."""
    mean = total / count
    variance = (squares - total * mean) / np.maximum(count - 1, 1)
    return first + mean, np.sqrt(np.maximum(variance, 0.0))


def members_on(core: Any, X: Any) -> tuple[Any, list[Member]]:
    """Rows as the members take them, converted once, and the members."""
    columns = getattr(core, "estimators_features_", None)
    if isinstance(core, BaseEstimator) and all(_is_tree(member) for member in core.estimators_):
        finite = "allow-nan" if get_tags(core).input_tags.allow_nan else True
        rows = validate_data(
            core, X, reset=False, dtype=np.float32, accept_sparse="csr", ensure_all_finite=finite
        )
        return rows, [_TreeMember(m.tree_, c) for m, c in _with_columns(core.estimators_, columns)]
    if columns is not None:
        X = validate_data(
            core, X, reset=False, dtype=None, accept_sparse="csr", ensure_all_finite=False
        )
    return X, [_AnyMember(m, c) for m, c in _with_columns(core.estimators_, columns)]


def target_deviation(core: Any) -> float | None:
    """Standard deviation of the targets that the trees were grown on; mean over the trees."""
    if not all(_is_tree(member) and _by_variance(member) for member in core.estimators_):
        return None
    return float(np.mean([root_deviation(member.tree_) for member in core.estimators_]))


def guessed_deviation(core: Any) -> float | None:
    """Standard deviation of what the trees have learnt of their targets; mean over the trees."""
    if not all(_is_tree(member) for member in core.estimators_):
        return None
    return float(np.mean([_deviation(member) for member in core.estimators_]))


def _by_variance(member: Any) -> bool:
    return getattr(member, "criterion", None) in ("squared_error", "friedman_mse")


def _deviation(member: Any) -> float:
    tree = member.tree_
    return root_deviation(tree) if _by_variance(member) else tree_deviation(tree)


def root_deviation(tree: Any) -> float:
    """Standard deviation of the targets, where impurity is their variance."""
    return float(np.sqrt(tree.impurity[0]))


def tree_deviation(tree: Any) -> float:
    """Standard deviation of one tree's predictions of the rows that it was grown on."""
    leaves = tree.children_left < 0
    return leaf_values_deviation(tree.value.ravel()[leaves], tree.weighted_n_node_samples[leaves])


def leaf_values_deviation(values: Any, weights: Any) -> float:
    """Standard deviation of values at leaves, each with the weight of its rows."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


def _sums(members: Sequence[Member], rows: Any, first: FloatArray) -> tuple[FloatArray, FloatArray]:
    total, squares = np.zeros_like(first), np.zeros_like(first)
    for member in members:
        beyond = member(rows)
        beyond -= first
        total += beyond
        beyond *= beyond
        squares += beyond
    return total, squares


class _TreeMember:
    """A tree without the checks of its wrapper: rows were checked once for all."""

    def __init__(self, tree: Any, columns: Any) -> None:
        self.tree, self.columns = tree, columns

    def __call__(self, rows: Any) -> FloatArray:
        rows = rows if self.columns is None else rows[:, self.columns]
        values: FloatArray = self.tree.predict(rows)
        return values.reshape(len(values), -1)[:, 0]


class _AnyMember:
    """A member that is asked as anyone would ask it."""

    def __init__(self, model: Any, columns: Any) -> None:
        self.model, self.columns = model, columns

    def __call__(self, rows: Any) -> FloatArray:
        return predictions(self.model, rows if self.columns is None else rows[:, self.columns])


def _is_tree(member: Any) -> bool:
    from sklearn.tree import DecisionTreeRegressor

    if not predicts_as(member, DecisionTreeRegressor):
        return False  # what is in the leaves need not be what it predicts
    return bool(member.tree_.n_outputs == 1 and member.tree_.value.shape[-1] == 1)


def _with_columns(members: Sequence[Any], columns: Any) -> list[tuple[Any, Any]]:
    """Each member with the columns that it was given; None for all of them, in order."""
    if columns is None:
        return [(member, None) for member in members]
    return [
        (m, None if np.array_equal(c, np.arange(getattr(m, "n_features_in_", -1))) else c)
        for m, c in zip(members, columns, strict=True)
    ]


def _describe(core: Any) -> str:
    kind = "trees" if all(_is_tree(member) for member in core.estimators_) else "members"
    return f"spread of {len(core.estimators_)} {kind}"


MEMBERS = Source(
    averages_members, is_plain_mean, mean_and_spread, target_deviation, _describe, guessed_deviation
)
