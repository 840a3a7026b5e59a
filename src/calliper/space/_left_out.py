"""Training rows as strangers: what models that have not seen them say, and what that teaches.

A model has seen its training rows, so its errors there are too small and its spread is another.
Where the members of a bagged model each left rows out, those members speak for them (out of
bag) at no training; otherwise clones are trained on all folds but one.

Spread is what the model knows of its own doubt; the errors that it makes on rows left out show the
rest, and a model of those errors is learnt from them: see ``_learnt_error.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils import _safe_indexing, indexable

from calliper._kept import Array, Keeps, Number, Text
from calliper._models import fit_params_of, fresh, is_frozen, unwrapped
from calliper._types import FloatArray, IntArray
from calliper._validation import n_rows
from calliper.exceptions import EmbeddingWarning, warn
from calliper.space._embedding import Embedding
from calliper.space._retrained import trainable
from calliper.space._spaces import one_target
from calliper.space._spread import MEMBERS, Member, PredictionAndSpread, moments

#: Refits behind left-out errors, where nothing else was said.
N_REFITS = 5
#: A spread takes two members at least.
LEAST_MEMBERS = 2
#: Trees whose leaves are counted to see whether rows are those that they were grown on.
N_VERIFIED = 3
#: What a calibrator's ``fit`` may name: training rows as seen by models not trained on them.
LEFT_OUT = ("Z_left_out", "scores_left_out")
#: What a calibrator's ``fit`` may name: training rows as seen by the model itself.
SEEN = ("Z_train", "scores_train")


@dataclass(frozen=True, kw_only=True)
class Refits:
    """How a model is trained again on a part of its rows.

    Parameters
    ----------
    random_state : deals rows to folds
    shuffle : whether rows are dealt at random; else folds are runs of neighbouring rows
    groups : (n,) rows of one group stay in one fold
    fit_params : what ``fit`` of the model takes beside rows and targets; what has a value for each
        row is dealt with the rows
    progress : is told the share that is done
    """

    random_state: Any = None
    shuffle: bool = True
    groups: Any = None
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[float], Any] | None = None

    def folds(self, n: int, n_folds: int) -> Iterator[tuple[IntArray, IntArray]]:
        """Rows to train on, and rows left out, of each fold."""
        seed = self.random_state if self.shuffle else None
        kind = KFold if self.groups is None else GroupKFold
        if self.groups is not None:
            n_folds = min(n_folds, len(np.unique(self.groups)))
        folds = kind(min(n_folds, n), shuffle=self.shuffle, random_state=seed)
        return iter(folds.split(np.empty(n), groups=self.groups))

    def train(self, model: Any, X: Any, y: FloatArray, rows: IntArray) -> Any:
        """A copy of the model, trained on some of the rows."""
        params = fit_params_of(X, self.fit_params, rows)
        return fresh(model).fit(_safe_indexing(X, rows), y[rows], **params)

    def report(self, done: float) -> None:
        """Tell who asked."""
        if self.progress is not None:
            self.progress(done)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rows that a model was trained on, as far as they were handed over.

    Parameters
    ----------
    X, y : training rows and targets, or None
    may_refit : whether the model was trained here, so that training it again is no surprise
    folds : number of refits that the user asks for, None to decide
    refits : how to train it again
    """

    X: Any = None
    y: FloatArray | None = None
    may_refit: bool = False
    folds: int | None = None
    refits: Refits = field(default_factory=lambda: Refits())

    @property
    def n_refits(self) -> int:
        """How often the model is trained again, unless it has bags."""
        return (N_REFITS if self.may_refit else 0) if self.folds is None else self.folds

    def left_out(self, embedding: Embedding) -> LeftOut | None:
        """What models that were not trained on them say of training rows, if that can be had."""
        if self.X is None or self.y is None:
            return None
        return left_out(embedding, self.X, self.y, n_folds=self.n_refits, refits=self.refits)

    def seen(self, embedding: Embedding, score: Any, *, wanted: bool) -> dict[str, Any]:
        """What ``fit`` may be told of the rows as the model itself sees them.

        ``y_train`` if it is known; ``Z_train`` and ``scores_train`` if they are ``wanted``.
        """
        if self.X is None:
            return {}
        if self.y is None:
            return {"Z_train": embedding.transform(self.X)} if wanted else {}
        known: dict[str, Any] = {"y_train": one_target(self.y)}
        if wanted:
            y_pred, known["Z_train"] = embedding.predict_and_transform(self.X)
            known["scores_train"] = score.magnitude(self.y, y_pred)
        return known


@dataclass(frozen=True, kw_only=True)
class LeftOut(Keeps):
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

    keeps = {
        "rows": Array("int64", ("r",), least=0),
        "y_pred": Array("float64", ("r", "k")),
        "Z": Array("float64", ("r", "d")),
        "n_training": Number(int, 0),
        "source": Text(),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; predictions always have columns there."""
        return {**vars(self), "y_pred": self.y_pred.reshape(len(self.rows), -1)}

    @classmethod
    def again(cls, state: dict[str, Any]) -> LeftOut:
        """One column is none."""
        y_pred = state["y_pred"]
        return cls(**{**state, "y_pred": y_pred[:, 0] if y_pred.shape[1] == 1 else y_pred})

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
    refits: Refits | None = None,
) -> LeftOut | None:
    """Out of bag where the model has bags, else by refitting; None where neither can be.

    Parameters
    ----------
    embedding : the fitted space around the fitted model
    X_train, y_train : the rows that the model was trained on, in that order
    n_folds : int, default 5
        Number of refits for models without bags, at most one for each row; 0 never refits, and
        frozen models are never refitted. A refit that fails is pointed out, and there are none.
    refits : how to train the model again
    """
    found = out_of_bag(embedding, X_train)
    can_refit = hasattr(unwrapped(embedding.model), "fit") and not is_frozen(embedding.model)
    if found is not None or n_folds == 0 or not can_refit or len(y_train) < 2:
        return found
    try:
        return out_of_fold(embedding, X_train, y_train, n_folds, refits or Refits())
    except Exception as error:  # whatever a model may raise that meets a part of its rows
        warn(
            f"Left-out errors are not known: training {type(embedding.model).__name__} again, on "
            f"{n_folds - 1} of {n_folds} parts of the training rows, failed "
            f"({type(error).__name__}: {error}). Nearness is judged without them; more folds leave "
            f"more rows to train on, left_out_folds=0 asks for none.",
            EmbeddingWarning,
        )
        return None


def out_of_bag(embedding: Embedding, X_train: Any) -> LeftOut | None:
    """Means and spreads of the members that have not seen a row; None without such members."""
    space = embedding.space
    if not isinstance(space, PredictionAndSpread) or space.source is not MEMBERS:
        return None
    if not space.predicts:  # the model makes something else of its members
        return None
    n, core, X = n_rows(X_train), space.opened.core, space.opened.prepare(X_train)
    samples = _samples(core, n)
    if samples is None:
        return None
    rows = space.read.rows(X)
    if not _grown_on(core, rows, samples):
        return None
    kept, mean, spread = _out_of_bag_moments(rows, space.read.members, samples)
    if not len(kept):
        return None
    return LeftOut(
        rows=kept,
        y_pred=space.opened.finish(mean),
        Z=space.coordinates(mean, spread[None]),
        n_training=n,
        source="out of bag",
    )


def _out_of_bag_moments(
    rows: Any, members: list[Member], samples: list[IntArray]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows that enough members have not seen, (r,); mean and spread of those members, (r,)."""
    first, total, squares, count = np.zeros((4, rows.shape[0]))
    for member, seen in zip(members, samples, strict=True):
        out = np.ones(len(count), dtype=bool)
        out[seen] = False
        y_pred = member(rows[out])
        beyond = np.where(count[out] == 0, 0.0, y_pred - first[out])
        first[out] = np.where(count[out] == 0, y_pred, first[out])
        total[out] += beyond
        squares[out] += beyond**2
        count[out] += 1
    kept = np.flatnonzero(count >= LEAST_MEMBERS)
    return kept, *moments(first[kept], total[kept], squares[kept], count[kept])


def out_of_fold(
    embedding: Embedding, X_train: Any, y_train: FloatArray, n_folds: int, refits: Refits
) -> LeftOut:
    """Predictions and places by copies that were trained without the row's fold."""
    n = n_rows(X_train)
    model, more = trainable(unwrapped(embedding.model), refits.fit_params)
    refits = replace(refits, fit_params={**more, **refits.fit_params})
    X, parts = indexable(X_train)[0], []
    for others, fold in refits.folds(n, n_folds):
        refitted = embedding.refitted(refits.train(model, X, y_train, others))
        parts.append((fold, *refitted.predict_and_transform(_safe_indexing(X, fold))))
        refits.report((1 + len(parts)) / (1 + n_folds))
    rows, y_pred, Z = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(rows)
    return LeftOut(
        rows=rows[order],
        y_pred=y_pred[order],
        Z=Z[order],
        n_training=n,
        source=f"{len(parts)} folds",
    )


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
