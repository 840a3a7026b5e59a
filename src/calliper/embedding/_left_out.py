"""Training rows as strangers: predictions and places by models that have not seen them.

A model has seen its training rows, so its errors there are too small and its spread is another.
Where the members of a bagged model each left rows out, those members speak for them (out of
bag) at no training; otherwise clones are trained on all folds but one. The result depends on
training data alone, so that whatever is chosen by it leaves the guarantees untouched.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing, indexable

from calliper._types import FloatArray, IntArray
from calliper._validation import n_rows
from calliper.embedding._embedding import Embedding
from calliper.embedding._ensemble import MEMBERS, members_on, moments
from calliper.embedding._opened import is_frozen, unwrapped
from calliper.embedding._spread import PredictionAndSpread
from calliper.embedding._warning import EmbeddingWarning

#: A spread takes two members at least.
LEAST_MEMBERS = 2
#: Trees whose leaves are counted to see whether rows are those that they were grown on.
N_VERIFIED = 3


@dataclass(frozen=True)
class LeftOut:
    """What models say of training rows that they have not seen.

    Parameters
    ----------
    rows : (r,) which of the training rows
    y_pred : (r,) or (r, n_outputs) predictions
    Z : (r, d) places
    n_training : number of training rows; those not in ``rows`` were in (nearly) every bag
    source : "out of bag" or "5 folds"
    """

    rows: IntArray
    y_pred: FloatArray
    Z: FloatArray
    n_training: int
    source: str

    def __repr__(self) -> str:
        missing = self.n_training - len(self.rows)
        bags = f"; {missing} were in all bags, or all but one" if missing else ""
        return f"LeftOut({len(self.rows)} of {self.n_training} training rows, {self.source}{bags})"


def left_out(
    embedding: Embedding,
    X_train: Any,
    y_train: FloatArray,
    *,
    n_folds: int = 5,
    random_state: Any = None,
) -> LeftOut | None:
    """Out of bag where the model has bags, else by refitting; None where neither can be.

    Parameters
    ----------
    embedding : the fitted space around the fitted model
    X_train, y_train : the rows that the model was trained on, in that order
    n_folds : int, default 5
        Number of refits for models without bags, at most one for each row; 0 never refits, and
        frozen models are never refitted. A refit that fails is pointed out, and there are none.
    random_state : int, RandomState or None
        Deals rows to folds.
    """
    found = out_of_bag(embedding, X_train)
    can_refit = hasattr(unwrapped(embedding.model), "fit") and not is_frozen(embedding.model)
    if found is not None or n_folds == 0 or not can_refit or len(y_train) < 2:
        return found
    try:
        return out_of_fold(embedding, X_train, y_train, n_folds=n_folds, random_state=random_state)
    except Exception as error:  # whatever a model may raise that meets a part of its rows
        warnings.warn(
            f"Left-out errors are not known: training {type(embedding.model).__name__} again, on "
            f"{n_folds - 1} of {n_folds} parts of the training rows, failed "
            f"({type(error).__name__}: {error}). Nearness is judged without them; more folds leave "
            f"more rows to train on, left_out_folds=0 asks for none.",
            EmbeddingWarning,
            stacklevel=5,
        )
        return None


def out_of_bag(embedding: Embedding, X_train: Any) -> LeftOut | None:
    """Means and spreads of the members that have not seen a row; None without such members."""
    space = embedding.space
    if not isinstance(space, PredictionAndSpread) or space.source is not MEMBERS:
        return None
    if not space.predicts:  # the model makes something else of its members
        return None
    core, X = space.opened.core, space.opened.prepare(X_train)
    samples = _samples(core, n_rows(X_train))
    if samples is None:
        return None
    rows, members = members_on(core, X)
    if not _grown_on(core, rows, samples):
        return None
    n = n_rows(X_train)
    first, total, squares, count = (np.zeros(n) for _ in range(4))
    for member, seen in zip(members, samples, strict=True):
        out = np.ones(n, dtype=bool)
        out[seen] = False
        y_pred = member(rows[out])
        beyond = np.where(count[out] == 0, 0.0, y_pred - first[out])
        first[out] = np.where(count[out] == 0, y_pred, first[out])
        total[out] += beyond
        squares[out] += beyond**2
        count[out] += 1
    kept = np.flatnonzero(count >= LEAST_MEMBERS)
    if not len(kept):
        return None
    mean, spread = moments(first[kept], total[kept], squares[kept], count[kept])
    return LeftOut(
        kept, space.opened.finish(mean), space.coordinates(mean, spread[None]), n, "out of bag"
    )


def out_of_fold(
    embedding: Embedding, X_train: Any, y_train: FloatArray, *, n_folds: int, random_state: Any
) -> LeftOut:
    """Predictions and places by clones that were trained without the row's fold."""
    n = n_rows(X_train)
    n_folds = min(n_folds, n)
    model, X = unwrapped(embedding.model), indexable(X_train)[0]
    parts = []
    for others, fold in KFold(n_folds, shuffle=True, random_state=random_state).split(np.empty(n)):
        refitted = clone(model).fit(_safe_indexing(X, others), y_train[others])
        parts.append(
            (fold, *embedding.refitted(refitted).predict_and_transform(_safe_indexing(X, fold)))
        )
    rows, y_pred, Z = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(rows)
    return LeftOut(rows[order], y_pred[order], Z[order], n, f"{n_folds} folds")


def _samples(core: Any, n: int) -> list[IntArray] | None:
    """Rows that each member was trained on; None if all of them saw all, or nobody kept count."""
    if not getattr(core, "bootstrap", False) and getattr(core, "max_samples", None) in (None, 1.0):
        return None
    try:
        samples = [np.asarray(rows) for rows in core.estimators_samples_]
    except (AttributeError, ValueError):
        return None
    if len(samples) != len(core.estimators_) or any(rows.max(initial=-1) >= n for rows in samples):
        return None
    return samples


def _grown_on(core: Any, rows: Any, samples: list[IntArray]) -> bool:
    """Whether each leaf holds as many of the rows in the bag as it did when it was grown."""
    columns = getattr(core, "estimators_features_", None)
    for place, member in enumerate(core.estimators_[:N_VERIFIED]):
        tree = getattr(member, "tree_", None)
        if tree is None:
            return False
        leaves = tree.children_left < 0
        # Rows drawn twice count once where they were weighted, twice where they were repeated.
        if not any(
            np.array_equal(
                _counts(tree, rows, bag, columns, place)[leaves], tree.n_node_samples[leaves]
            )
            for bag in (np.unique(samples[place]), samples[place])
        ):
            return False
    return True


def _counts(tree: Any, rows: Any, bag: IntArray, columns: Any, place: int) -> IntArray:
    inside = rows[bag] if columns is None else rows[bag][:, columns[place]]
    return np.bincount(tree.apply(inside), minlength=tree.node_count)
