"""Gradient boosting: how much the last stages still move the prediction.

Trees of a boosted model correct one another, so their spread says nothing; the path of their sum
does. Where the later half of the stages still pushes the prediction to and fro, residuals were
large and contradictory: the spread is Σ |step| over that half. Trees of scikit-learn's
``GradientBoostingRegressor`` also keep how much the residuals varied in each leaf; the root mean
of that variance, over the same trees, is a second spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from calliper._types import FloatArray
from calliper.embedding._ensemble import leaf_values_deviation, root_deviation, tree_deviation
from calliper.embedding._known import predicts_as
from calliper.embedding._spread import Source

#: Part of the unit below which steps and residuals are all alike: they are smaller than spreads.
FLOOR = 0.003


def has_stages(core: Any) -> bool:
    """Whether it adds trees stage by stage and shows the sums on the way."""
    return hasattr(core, "staged_predict") and n_stages(core) > 1


def is_known(core: Any) -> bool:
    """Whether the last sum is known to be the prediction."""
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    return predicts_as(core, HistGradientBoostingRegressor, GradientBoostingRegressor)


def n_stages(core: Any) -> int:
    """Number of fitted stages; 0 for a model that does not count them."""
    names = ("n_iter_", "n_estimators_", "tree_count_")
    return next((int(getattr(core, name)) for name in names if hasattr(core, name)), 0)


def staged_steps(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """The prediction (m,) and Σ |step| over the later half of the stages, (1, m)."""
    start = n_stages(core) // 2
    y_pred, moved = np.zeros(0), np.zeros(0)
    for stage, sums in enumerate(core.staged_predict(X)):
        before, y_pred = y_pred, np.asarray(sums, dtype=np.float64).reshape(-1)
        if stage == start:
            moved = np.abs(y_pred - before)
        elif stage > start:
            moved += np.abs(y_pred - before)
    return y_pred, moved[None]


def histogram_deviation(core: Any) -> float | None:
    """Deviation of what the trees have learnt of the targets by squared errors.

    A stage of rate ν lowers the variance of the residuals by (2/ν − 1)·mean v², v its leaf values;
    the sum over stages is what is explained. Regularised leaves make it smaller.
    """
    if not hasattr(core, "_predictors") or core.loss != "squared_error":
        return None
    leaves = [_leaves(predictor[0]) for predictor in core._predictors]
    explained = sum(np.average(each["value"] ** 2, weights=each["count"]) for each in leaves)
    return float(np.sqrt((2 / float(core.learning_rate) - 1) * explained))


def guessed_histogram_deviation(core: Any) -> float | None:
    """Deviation of what the first tree has learnt, its shrinkage undone; None with a link."""
    if not hasattr(core, "_predictors") or core.loss in ("poisson", "gamma"):
        return None
    first = _leaves(core._predictors[0][0])
    return leaf_values_deviation(first["value"], first["count"]) / float(core.learning_rate)


def _leaves(predictor: Any) -> Any:
    return predictor.nodes[predictor.nodes["is_leaf"].astype(bool)]


def has_tree_stages(core: Any) -> bool:
    """Whether its stages are single trees of scikit-learn that can be asked one by one."""
    trees = getattr(core, "estimators_", None)
    if not isinstance(trees, np.ndarray) or trees.ndim != 2 or trees.shape[1] != 1:
        return False
    return len(trees) > 1 and hasattr(core, "init_") and hasattr(trees[0, 0], "tree_")


def tree_steps(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """The prediction (m,); Σ |step| and rms deviation in the leaves over the later trees, (2, m).

    The second is left out for losses whose trees are not grown on residuals in the unit of y.
    """
    rows = validate_data(core, X, reset=False, dtype=np.float32, order="C", accept_sparse="csr")
    trees = [tree.tree_ for tree in core.estimators_[:, 0]]
    start, keeps_residuals = len(trees) // 2, core.loss == "squared_error"
    total, moved, variance = np.zeros((3, rows.shape[0]))
    for place, tree in enumerate(trees):
        leaf = tree.apply(rows)
        step = tree.value.ravel().take(leaf)
        total += step
        if place >= start:
            moved += np.abs(step, out=step)
            if keeps_residuals:
                variance += tree.impurity.take(leaf)
    spreads = [core.learning_rate * moved]
    if keeps_residuals:  # an impurity of zero is rounded to either side
        spreads.append(np.sqrt(np.maximum(variance, 0.0) / (len(trees) - start)))
    origin = 0.0 if core.init_ == "zero" else core.init_.predict(rows).reshape(-1)
    return origin + core.learning_rate * total, np.stack(spreads)


def first_tree(core: Any) -> float | None:
    """Deviation of the targets of the first tree: of y, unless a model was there before it."""
    told = core.loss == "squared_error" and _starts_from_a_constant(core)
    return root_deviation(core.estimators_[0, 0].tree_) if told else None


def guessed_first_tree(core: Any) -> float | None:
    """For other losses the deviation of what the first tree has learnt."""
    return tree_deviation(core.estimators_[0, 0].tree_) if _starts_from_a_constant(core) else None


def _starts_from_a_constant(core: Any) -> bool:
    return core.init is None or isinstance(core.init, str)


def _describe_stages(core: Any) -> str:
    return f"steps of the last {n_stages(core) - n_stages(core) // 2} of {n_stages(core)} stages"


def _describe_trees(core: Any) -> str:
    n = len(core.estimators_)
    leaves = " and residuals in their leaves" if core.loss == "squared_error" else ""
    return f"steps of the last {n - n // 2} of {n} trees{leaves}"


STAGES = Source(
    has_stages,
    is_known,
    staged_steps,
    histogram_deviation,
    _describe_stages,
    guessed_histogram_deviation,
    floor=FLOOR,
)
TREE_STAGES = Source(
    has_tree_stages,
    is_known,
    tree_steps,
    first_tree,
    _describe_trees,
    guessed_first_tree,
    (2.0, 1 / 0.15),
    FLOOR,
)
