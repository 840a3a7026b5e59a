"""Rows as strangers: what models that have not seen them say.

*Training rows.* A model has seen its training rows, so its errors there are too small and its
spread is another. Where the members of a bagged model each left rows out, those members speak for
them (out of bag) at no training; otherwise clones are trained on all folds but one.

Spread is what the model knows of its own doubt; the errors that it makes on rows left out show the
rest, and a model of those errors is learnt from them: see ``_learnt_error.py``.

*Calibration rows that teach.* A part of them shows how the model errs, the others calibrate.

The model has not seen the calibration rows, so its errors there are honest ones, and better than
those of refits, which are errors of weaker models. N rows are dealt into a *learning part* L and a
*kept part* C, by position and seed alone. What L teaches (the expected error as a coordinate, bias,
reach on either side, how local to be) is fixed before C is looked at; C calibrates.

Guarantee: given L and the model, the rows of C and a new one are exchangeable, so every promise
holds with N replaced by the number of rows in C. Dealing by position makes the method depend on the
order of rows: the promise is for rows in exchangeable order, else on average over the deal.

Which rows calibrate is decided by counts alone. To fall back on all rows after a look at L would
select on L, and costs coverage: with N = 3, two rows in L and α = ½, "fall back if the mean error
of L is below ½" covers 7/16. Where L teaches nothing that clearly helps, C calibrates all the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, train_test_split
from sklearn.utils import _safe_indexing, check_random_state, indexable

from calliper import models
from calliper._kept import Array, Field, Number, Text
from calliper._notebook import Progress, reporter
from calliper._types import FloatArray, IntArray
from calliper._validation import at_least, check_folds, n_rows
from calliper.declarations import Uses
from calliper.exceptions import CalliperError, EmbeddingWarning, warn
from calliper.rows import Rows
from calliper.space._embedding import Embedding, PredictionAndSpread
from calliper.space._error_model import FEWEST_ERRORS
from calliper.space._spaces import one_target

#: Refits behind left-out errors, where nothing else was said.
N_REFITS = 5
#: Rows that calibrate, at least: in number, and as a part of all. Rows that teach, at least and
#: at most.
FEWEST_KEPT, PART_KEPT = 200, 0.35
FEWEST_TAUGHT, MOST_TAUGHT = 100, 8_000
#: The part that teaches how a model of distributions errs where rows are too few for this.
PART_OF_FEW = 0.4


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LeftOut(Rows):
    """Training rows as models see them that were not trained on them.

    Parameters
    ----------
    numbers : (r,) which of the training rows
    y_pred : (r,) or (r, n_outputs) predictions
    n_training : number of training rows; the others were in (nearly) every bag
    source : "out of bag" or "5 folds"
    """

    numbers: IntArray
    y_pred: FloatArray
    n_training: int
    source: str

    keeps: ClassVar[Mapping[str, Field]] = {
        "Z": Array("float64", ("r", "d")),
        "scores": Array("float64", ("r",), optional=True),
        "numbers": Array("int64", ("r",), least=0),
        "y_pred": Array("float64", ("r", "k")),
        "n_training": Number(int, 0),
        "source": Text(),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; predictions always have columns there."""
        own = {name: getattr(self, name) for name in self.keeps}
        return {**own, "y_pred": self.y_pred.reshape(len(self.numbers), -1)}

    @classmethod
    def again(cls, state: dict[str, Any]) -> Self:
        """One column is none."""
        y_pred = state["y_pred"]
        return cls(**{**state, "y_pred": y_pred[:, 0] if y_pred.shape[1] == 1 else y_pred})

    def __repr__(self) -> str:
        n, missing = len(self.numbers), self.n_training - len(self.numbers)
        bags = f"; {missing} were in all bags, or all but one" if missing else ""
        return f"LeftOut({n} of {self.n_training} training rows, {self.source}{bags})"


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rows that a model was trained on, as far as they were handed over; how to do so again.

    Parameters
    ----------
    X, y : training rows and targets, or None
    n_refits : how often the model is trained again for left-out errors, unless it has bags
    random_state : deals rows to folds
    shuffle : whether rows are dealt at random; else folds are runs of neighbouring rows
    gap : rows beside such a run on which nothing is trained
    groups : (n,) rows of one group stay in one fold
    fit_params : what ``fit`` of the model takes beside rows and targets; what has a value for each
        row is dealt with the rows
    progress : is told the share that is done
    """

    X: Any = None
    y: FloatArray | None = None
    n_refits: int = 0
    random_state: Any = None
    shuffle: bool = True
    gap: int = 0
    groups: Any = None
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = None

    def folds(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Rows to train on, and rows left out, of each fold: at most one for each row or group."""
        n, seed = n_rows(self.X), self.random_state if self.shuffle else None
        most = n if self.groups is None else min(n, len(np.unique(self.groups)))
        kind = KFold if self.groups is None else GroupKFold
        folds = kind(min(self.n_refits, most), shuffle=self.shuffle, random_state=seed)
        for others, fold in folds.split(np.empty(n), groups=self.groups):
            beside = (others < fold[0] - self.gap) | (others > fold[-1] + self.gap)
            yield (others[beside] if self.gap else others), fold

    def train(self, model: Any, rows: IntArray, fit_params: Mapping[str, Any] | None = None) -> Any:
        """A copy of the model, trained on some of the rows."""
        X = indexable(self.X)[0]
        models.refuse_crashing(model, X)
        params = models.fit_params_of(X, {**(fit_params or {}), **self.fit_params}, rows)
        return models.fresh(model).fit(_safe_indexing(X, rows), self._targets[rows], **params)

    @property
    def _targets(self) -> Any:
        """What a copy of the model is trained on."""
        return self.y

    def report(self, done: float) -> None:
        """Tell who asked."""
        if self.progress is not None:
            self.progress(done)

    def seen(self, embedding: Embedding, score: Any, uses: Uses) -> Rows | None:
        """The rows as the model itself sees them, with what of them a calibrator uses."""
        if self.X is None or "training" not in uses:
            return None
        if self.y is None:
            return Rows(embedding.transform(self.X))
        y_pred, Z = embedding.predict_and_transform(self.X)
        return Rows(Z, score.magnitude(self.y, y_pred), targets=one_target(self.y))

    def left_out(self, embedding: Embedding) -> LeftOut | None:
        """Out of bag where the model has bags, else by refitting; None where neither can be.

        Frozen models are never refitted. A refit that fails is pointed out, and there are none.
        """
        if self.X is None or self.y is None:
            return None
        found, model = _out_of_bag(embedding, self), embedding.model
        unable = self.n_refits == 0 or len(self.y) < 2 or why_no_refit(model) is not None
        if found is not None or unable:
            return found
        try:
            return _out_of_fold(embedding, self)
        except Exception as error:  # whatever a model may raise that meets a part of its rows
            n = self.n_refits
            warn(
                f"Left-out errors are not known: training {type(model).__name__} again, on {n - 1} "
                f"of {n} parts of the training rows, failed ({type(error).__name__}: {error}). "
                "Nearness is judged without them; more folds leave more rows to train on, "
                "refits=0 turns refits off.",
                EmbeddingWarning,
            )
            return None


def why_no_refit(model: Any) -> str | None:
    """Why a model cannot be trained again, as the end of a sentence; None if it can."""
    if models.is_frozen(model):
        return "is frozen"
    return None if hasattr(models.unwrapped(model), "fit") else "has no fit"


def knows_left_out(space: Any) -> bool:
    """Whether members of the model may say which rows they left out, if told all of them."""
    if not isinstance(space, PredictionAndSpread) or not space.predicts:
        return False
    return type(space.doubt).left_out is not models.ModelFamily.left_out


def _out_of_bag(embedding: Embedding, training: Training) -> LeftOut | None:
    """What members say of rows that they have not seen; None in a model without such members."""
    space = embedding.space
    if not isinstance(space, PredictionAndSpread) or not space.predicts:
        return None  # or the model makes something else of its members
    found = space.doubt.left_out(training.X, space.opened.prepare)
    if found is None:
        return None
    numbers, mean, spreads = found
    return LeftOut(
        space.coordinates(mean, spreads),
        targets=training.y[numbers],  # type: ignore[index]
        numbers=numbers,
        y_pred=space.opened.finish(mean),
        n_training=n_rows(training.X),
        source="out of bag",
    )


def _out_of_fold(embedding: Embedding, training: Training) -> LeftOut:
    """Predictions and places by copies that were trained without the row's fold."""
    model, more = models.trainable(models.unwrapped(embedding.model), training.fit_params)
    X, parts = indexable(training.X)[0], []
    for others, fold in training.folds():
        refitted = embedding.refitted(training.train(model, others, more))
        parts.append((fold, *refitted.predict_and_transform(_safe_indexing(X, fold))))
        training.report((1 + len(parts)) / (1 + training.n_refits))
    numbers, y_pred, Z = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(numbers)
    return LeftOut(
        Z[order],
        targets=training.y[numbers[order]],  # type: ignore[index]
        numbers=numbers[order],
        y_pred=y_pred[order],
        n_training=n_rows(X),
        source=f"{len(parts)} folds",
    )


def train_apart(
    front: Any, X: Any, y: FloatArray, groups: Any, fit_params: dict[str, Any]
) -> tuple[Any, IntArray, Training]:
    """A model trained on a part of the rows, the rows held out, and what trained it.

    ``front`` is the regressor, by whose parameters rows are split and the estimator is trained.
    """
    if not hasattr(front.estimator, "fit"):
        raise TypeError(
            f"fit needs an estimator that can be trained; got a {type(front.estimator).__name__}. "
            f"If it already predicts, use calibrate(X, y) with data it has not seen."
        )
    check_folds(front.refits)
    if len(y) < 2:
        raise CalliperError(
            f"fit needs at least 2 rows, one to train and one to calibrate; got n_samples = "
            f"{len(y)}."
        )
    shuffle = front.shuffle is None or front.shuffle
    train, held_out = split_rows(
        len(y),
        groups,
        size=front.calibration_size,
        shuffle=shuffle,
        random_state=front.random_state,
    )
    gap = checked_gap(front)
    train = train[: max(len(train) - gap, 0)]
    if not len(train):
        raise CalliperError(f"gap={gap} leaves none of {len(y)} rows to train on.")
    models.check_sample_weight(fit_params, len(y))
    X, fit_params = indexable(X)[0], models.routed(front, fit_params)
    training = Training(
        X=_safe_indexing(X, train),
        y=y[train],
        n_refits=N_REFITS if front.refits is None else front.refits,
        random_state=front.random_state,
        shuffle=shuffle,
        gap=gap,
        groups=None if groups is None else _safe_indexing(groups, train),
        fit_params=models.fit_params_of(X, fit_params, train),
        progress=reporter(front.progress, "training"),
    )
    model = training.train(front.estimator, np.arange(len(train)))
    training.report(1 / (1 + training.n_refits))
    return model, held_out, training


def checked_gap(front: Any) -> int:
    """Rows between parts, of a regressor whose rows are in order of time."""
    gap = at_least(front.gap, 0, "gap")
    if gap and front.shuffle is not False:
        raise CalliperError(
            f"gap={gap} is for rows in order of time, which shuffle={front.shuffle!r} does not "
            "keep: pass shuffle=False."
        )
    return gap


def split_rows(
    n: int, groups: Any, *, size: float, shuffle: bool, random_state: Any
) -> tuple[IntArray, IntArray]:
    """Rows to train on, and rows to hold out: so many, or so large a part."""
    share = isinstance(size, Real) and not isinstance(size, Integral) and 0 < size < 1
    count = isinstance(size, Integral) and not isinstance(size, bool) and 1 <= size < n
    if not share and not count:
        raise CalliperError(
            f"calibration_size must be a share between 0 and 1, or a number from 1 to {n - 1} of "
            f"the {n} rows; got {size!r}."
        )
    if groups is None:
        seed = random_state if shuffle else None
        train, held_out = train_test_split(
            np.arange(n), test_size=size, shuffle=shuffle, random_state=seed
        )
        return train, held_out
    if not shuffle:
        raise CalliperError(
            "split_groups are held out at random, and shuffle=False holds out the last rows: "
            "leave out one of them, or split the rows yourself and use calibrate."
        )
    split = GroupShuffleSplit(1, test_size=size, random_state=random_state)
    train, held_out = next(split.split(np.empty(n), groups=groups))
    return train, held_out


@dataclass(frozen=True, kw_only=True)
class LearningPart(Training):
    """Rows that the model has not seen: its own errors there are left-out errors."""

    def left_out(self, embedding: Embedding) -> LeftOut:
        """The rows as the model itself sees them."""
        y_pred, Z = embedding.predict_and_transform(self.X)
        n = len(y_pred)
        return LeftOut(
            Z,
            targets=self.y,
            numbers=np.arange(n),
            y_pred=y_pred,
            n_training=n,
            source="calibration rows that were set aside",
        )


def n_teaching(n: int, asked: Any) -> int:
    """How many of n rows teach: a number, a share, by a rule of n for "auto", 0 for None."""
    if asked is None:
        return 0
    if isinstance(asked, str) and asked == "auto":
        most = n - max(FEWEST_KEPT, int(np.ceil(PART_KEPT * n)))
        return min(most, MOST_TAUGHT) if most >= FEWEST_TAUGHT else 0
    if isinstance(asked, Real) and not isinstance(asked, bool):
        number = float(asked)
        if isinstance(asked, Integral) and 0 <= number < n:
            return int(number)
        if not isinstance(asked, Integral) and 0 < number < 1:
            return min(int(number * n), n - 1)
    raise CalliperError(
        f"learning_part must be 'auto', None, a share between 0 and 1, or a number of rows that "
        f"leaves some of {n} to calibrate on, at most {n - 1}; got {asked!r}."
    )


def part_of_few(n: int) -> Any:
    """What "auto" means for n rows and a model of distributions, whose own spread may be far off.

    A part of them teaches from 100 rows on, not from 300.
    """
    if n_teaching(n, "auto"):
        return "auto"
    return PART_OF_FEW if int(PART_OF_FEW * n) >= FEWEST_ERRORS else None


def deal(
    n: int,
    asked: Any,
    *,
    labels: Any = None,
    shuffle: bool = True,
    gap: int = 0,
    random_state: Any = None,
) -> tuple[IntArray, IntArray]:
    """Numbers of the rows that teach, and of those that calibrate, each in ascending order.

    With labels each group is dealt by itself, a number as that share of each, so that by "auto" one
    of few rows keeps them all. Without shuffling the first rows teach, and the ``gap`` after them
    do neither. None as ``random_state`` deals by a fixed seed.
    """
    if labels is not None and n_teaching(n, asked) and not isinstance(asked, str):
        asked = n_teaching(n, asked) / n
    random = check_random_state(0 if random_state is None else random_state)
    teaches, kept = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    groups = (
        np.zeros(n) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    )
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        order = random.permutation(rows) if shuffle else rows
        taught = n_teaching(len(rows), asked)
        teaches[order[:taught]] = True
        kept[order[: taught + (gap if taught else 0)]] = False
    if not kept.any():
        raise CalliperError(f"gap={gap} leaves none of {n} rows to calibrate on.")
    return np.flatnonzero(teaches), np.flatnonzero(kept)
