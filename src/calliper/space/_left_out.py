"""Left-out rows: predictions by models that have not seen them.

*Training rows.* A model's errors on its own training rows are too small. If the members of a bagged
model each left rows out, they predict those rows (out of bag); otherwise clones are trained on all
folds but one. ``_learnt_error.py`` learns from the errors.

*The learning part of the calibration rows.* The model has not seen them, so its errors there are
honest, and refits would be weaker models. N rows are dealt into a *learning part* L and a *kept
part* C, by position and seed alone. What L teaches is fixed before C is looked at; C calibrates. If
the user asks for a learning part and passes training rows as well, both teach.

Guarantee: given L and the model, the rows of C and a new one are exchangeable, so every promise
holds with N replaced by the number of rows in C, for rows in exchangeable order, else on average
over the deal. Which rows calibrate is decided by counts alone. To fall back on all rows after a
look at L would select on L: with N = 3, two rows in L and α = ½, "fall back if the mean error of L
is below ½" covers 7/16. Where L teaches nothing that clearly helps, C calibrates all the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, train_test_split
from sklearn.utils import _safe_indexing, check_random_state, indexable

from calliper import models
from calliper._kept import Array, Field, Keeps, Number, Plain, Text
from calliper._notebook import Progress, reporter
from calliper._types import FloatArray, IntArray
from calliper._validation import check_parts, n_rows
from calliper.declarations import Uses
from calliper.exceptions import CalliperError, EmbeddingWarning, warn
from calliper.rows import Rows, stacked
from calliper.space._error_model import FEWEST_ERRORS
from calliper.space._spaces import Embedding, Prediction, PredictionAndSpread, one_target

#: Refits of ``fit`` by default.
N_REFITS = 5
#: The fewest rows that calibrate, and the smallest part of all rows.
FEWEST_KEPT, PART_KEPT = 200, 0.35
#: The fewest and the most rows of the learning part.
FEWEST_TAUGHT, MOST_TAUGHT = 100, 8_000
#: Refits are weaker models if the model's mean error on rows that both have seen is this part of
#: theirs; and rows are not the model's own if it errs so much more than refits that left them out.
WEAKER, NOT_ITS_OWN = 0.6, 1.1
#: For a model of distributions: the fewest rows that calibrate, but no more than 60 % of all, and
#: their smallest part.
FEWEST_OF_DISTRIBUTIONS, MOST_OF_FEW, PART_OF_DISTRIBUTIONS = 120, 0.6, 0.4


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LeftOut(Rows, Keeps):
    """Training rows, by number, predicted and located by models that were not trained on them.

    Others of ``n_training`` were in (nearly) every bag; ``source`` is "out of bag" or "5 folds".
    ``weaker`` says that these models fit worse, so that their bias is not the model's own.
    """

    numbers: IntArray
    y_pred: FloatArray
    n_training: int
    source: str
    weaker: bool = False

    keeps: ClassVar[Mapping[str, Field]] = {
        "Z": Array("float64", ("r", "d")),
        "scores": Array("float64", ("r",), optional=True),
        "numbers": Array("int64", ("r",), least=0),
        "y_pred": Plain(),
        "n_training": Number(int, 0),
        "source": Text(),
    }

    def check_kept(self) -> None:
        if np.shape(self.y_pred)[:1] != self.numbers.shape:
            raise CalliperError("each held-out row must have one prediction.")

    def __repr__(self) -> str:
        n, missing = len(self.numbers), self.n_training - len(self.numbers)
        bags = f"; {missing} were in all bags, or all but one" if missing else ""
        return f"LeftOut({n} of {self.n_training} training rows, {self.source}{bags})"


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rows that a model was trained on, as far as they were passed; how to train it again.

    Unless it has bags, it is trained ``n_refits`` times for left-out errors. Rows of a group stay
    in one fold; without shuffling folds are runs of neighbours, and on ``gap`` rows beside a run
    nothing is trained. Of ``fit_params``, what has a value for each row is dealt with the rows.
    """

    X: Any = None
    y: Any = None
    n_refits: int = 0
    random_state: Any = None
    shuffle: bool = True
    gap: int = 0
    groups: Any = None
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress = lambda done: None

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
        return models.fresh(model).fit(_safe_indexing(X, rows), self.y[rows], **params)

    def seen(self, embedding: Embedding, score: Any, uses: Uses) -> Rows | None:
        """The rows as the model itself sees them, with what of them a calibrator uses."""
        if self.X is None or "training" not in uses:
            return None
        if self.y is None:
            return Rows(embedding.transform(self.X))
        y_pred, Z = embedding.predict_and_transform(self.X)
        return Rows(Z, score.magnitude(self.y, y_pred), targets=one_target(self.y))

    def left_out(self, embedding: Embedding) -> LeftOut | None:
        """Out of bag where the model has bags, else by refitting; None where neither can be."""
        if self.X is None or self.y is None:
            return None
        found, model = self._out_of_bag(embedding), embedding.model
        unable = self.n_refits == 0 or len(self.y) < 2 or why_no_refit(model) is not None
        if found is not None or unable:
            return found
        try:
            return self._out_of_fold(embedding)
        except Exception as error:  # whatever a model may raise that meets a part of its rows
            n = self.n_refits
            warn(
                f"Out-of-fold errors are not known: training {type(model).__name__} again, on "
                f"{n - 1} of {n} parts of the training rows, failed ({type(error).__name__}: "
                f"{error}). They are not used to adapt widths. More folds leave more rows to train "
                "on; refits=0 turns refits off.",
                EmbeddingWarning,
            )
            return None

    def beside(self, unseen: LeftOut, other: Any, of_other: LeftOut) -> tuple[Self, LeftOut]:
        """These rows and others as one table, and the left-out rows of both."""
        both = replace(self, X=stacked(self.X, other.X), y=np.concatenate([self.y, other.y]))
        numbers = np.append(unseen.numbers, n_rows(self.X) + of_other.numbers)
        y_pred = np.concatenate([unseen.y_pred, of_other.y_pred])
        Z = np.concatenate([unseen.Z, of_other.Z])
        made = both._rows(numbers, y_pred, Z, f"{unseen.source}, and {of_other.source}")
        return both, replace(made, weaker=unseen.weaker)

    def _out_of_bag(self, embedding: Embedding) -> LeftOut | None:
        """Rows by members that have not seen them; None in a model without such members."""
        space: Any = embedding.space
        if isinstance(space, Prediction):
            of_quantiles = models.quantiles_out_of_bag(embedding.model, self.X, self.y)
            if of_quantiles is not None:
                numbers, q = of_quantiles
                Z = space.locate(None, lambda rows: q)[1]
                return self._rows(numbers, q, Z, "out of bag")
        if not knows_left_out(space):
            return None
        y = self.y if self.y.ndim > 1 else space.opened.core_targets(self.y)
        found = space.reader.left_out(space.opened.prepare(self.X), y)
        if found is None:
            return None
        numbers, mean, spreads = found
        y_pred, Z = space.opened.finish(mean), space.coordinates(mean, spreads)
        return self._rows(numbers, y_pred, Z, "out of bag")

    def _out_of_fold(self, embedding: Embedding) -> LeftOut:
        """Rows by copies that were trained without their fold."""
        model, more = models.trainable(models.unwrapped(embedding.model), self.fit_params)
        X, parts, errors = indexable(self.X)[0], [], np.zeros((2, 2))

        def error(by: Embedding, rows: IntArray) -> float:
            return float(np.abs(self.y[rows] - by.middle(_safe_indexing(X, rows))).mean())

        for others, fold in self.folds():
            refitted = embedding.refitted(self.train(model, others, more))
            parts.append((fold, *refitted.predict_and_transform(_safe_indexing(X, fold))))
            if self.y.ndim == 1:
                both = embedding, refitted
                errors += [[error(by, rows) for by in both] for rows in (fold, others[: len(fold)])]
            self.progress((1 + len(parts)) / (1 + self.n_refits))
        numbers, y_pred, Z = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(numbers)
        made = self._rows(numbers[order], y_pred[order], Z[order], f"{len(parts)} folds")
        return replace(made, weaker=_are_weaker(errors / len(parts)))

    def _rows(self, numbers: IntArray, y_pred: FloatArray, Z: FloatArray, source: str) -> LeftOut:
        known: dict[str, Any] = {"numbers": numbers, "y_pred": y_pred, "source": source}
        return LeftOut(Z, targets=self.y[numbers], n_training=n_rows(self.X), **known)


def _are_weaker(errors: FloatArray) -> bool:
    """Whether refits fit worse; mean errors of model and refits on rows these left out, and saw."""
    (unseen, of_refits), (seen, seen_by_refits) = errors
    if unseen > NOT_ITS_OWN * of_refits:
        warn(
            f"On X_train and y_train the model errs by {unseen:.3g} on average, but copies that "
            f"left these rows out by {of_refits:.3g} only. Was it trained on these rows, and are "
            "y_train their targets? If not, widths are poor, though the guarantee holds.",
            EmbeddingWarning,
        )
    weaker = bool(seen < WEAKER * seen_by_refits)
    if weaker:
        warn(
            f"The model fits its training rows much better (mean error {seen:.3g}) than copies "
            f"trained on part of them fit theirs ({seen_by_refits:.3g}), so intervals are not "
            "moved by the bias of these copies. With more refits, each has more rows to train on.",
            EmbeddingWarning,
        )
    return weaker


def why_no_refit(model: Any) -> str | None:
    """Why a model cannot be trained again, as the end of a sentence; None if it can."""
    if models.is_frozen(model):
        return "is frozen"
    return None if hasattr(models.unwrapped(model), "fit") else "has no fit"


def knows_left_out(space: Any) -> bool:
    """Whether members of the model may know which of its training rows they left out."""
    of_members = isinstance(space, PredictionAndSpread)
    return of_members and type(space.reader).left_out is not models.ModelFamily.left_out


def train_apart(
    front: Any, X: Any, y: FloatArray, groups: Any, fit_params: dict[str, Any]
) -> tuple[Any, IntArray, Training]:
    """A model trained on part of the rows as ``front`` says, rows held out, and what trained it."""
    if not hasattr(front.estimator, "fit"):
        what = f"fit needs an estimator with a fit method; got a {type(front.estimator).__name__}"
        how = "If it already predicts, use calibrate(X, y) with data it has not seen"
        raise TypeError(f"{what}. {how}.")
    folds, gap = check_parts(front)
    if len(y) < 2:
        what = "fit needs at least 2 rows, one to train and one to calibrate"
        raise CalliperError(f"{what}; got n_samples = {len(y)}.")
    shuffle, seed = front.shuffle is None or front.shuffle, front.random_state
    size = front.calibration_size
    train, held_out = split_rows(len(y), groups, size=size, shuffle=shuffle, random_state=seed)
    train = train[: max(len(train) - gap, 0)]
    if not len(train):
        raise CalliperError(f"gap={gap} leaves none of {len(y)} rows to train on.")
    models.check_sample_weight(fit_params, len(y))
    X, fit_params = indexable(X)[0], models.routed(front, fit_params)
    training = Training(
        X=_safe_indexing(X, train),
        y=y[train],
        n_refits=N_REFITS if folds is None else folds,
        random_state=seed,
        shuffle=shuffle,
        gap=gap,
        groups=None if groups is None else _safe_indexing(groups, train),
        fit_params=models.fit_params_of(X, fit_params, train),
        progress=reporter(front.progress, "training"),
    )
    model = training.train(front.estimator, np.arange(len(train)))
    training.progress(1 / (1 + training.n_refits))
    return model, held_out, training


def split_rows(
    n: int, groups: Any, *, size: float, shuffle: bool, random_state: Any
) -> tuple[IntArray, IntArray]:
    """Rows to train on, and rows to hold out: so many, or so large a part."""
    _refuse_part("calibration_size must be", size, n, least=1)
    if groups is not None and len(np.unique(groups)) < 2:
        raise CalliperError("split_groups must name two groups or more: one of them is held out.")
    if groups is None:
        seed, how = random_state if shuffle else None, {"test_size": size, "shuffle": shuffle}
        train, held_out = train_test_split(np.arange(n), random_state=seed, **how)
    elif not shuffle:
        what = "split_groups are held out at random, but shuffle=False holds out the last rows"
        remedy = "leave out one of them, or split the rows yourself and use calibrate"
        raise CalliperError(f"{what}: {remedy}.")
    else:
        split = GroupShuffleSplit(1, test_size=size, random_state=random_state)
        train, held_out = next(split.split(np.empty(n), groups=groups))
    return train, held_out


@dataclass(frozen=True, kw_only=True)
class LearningPart(Training):
    """Rows that the model has not seen: its own errors there are left-out errors."""

    def left_out(self, embedding: Embedding) -> LeftOut:
        """The rows as the model itself sees them."""
        y_pred, Z = embedding.predict_and_transform(self.X)
        return self._rows(np.arange(len(Z)), y_pred, Z, "calibration rows that were set aside")


def n_teaching(n: int, asked: Any) -> int:
    """The size of the learning part of n rows: a number, a share, a rule for "auto", or None."""
    if asked is None:
        return 0
    if isinstance(asked, str) and asked == "auto":
        most = n - max(FEWEST_KEPT, int(np.ceil(PART_KEPT * n)))
        return min(most, MOST_TAUGHT) if most >= FEWEST_TAUGHT else 0
    _refuse_part("learning_part must be 'auto', None,", asked, n, least=0)
    return int(asked) if isinstance(asked, Integral) else min(int(asked * n), n - 1)


def _refuse_part(what: str, size: Any, n: int, least: int) -> None:
    """Refuse what is neither a share nor a number of n rows that leaves some."""
    whole = isinstance(size, Integral)
    number = isinstance(size, Real) and not isinstance(size, bool)
    if not number or not (least <= size < n if whole else 0 < size < 1):
        must = f"{what} a fraction between 0 and 1, or a number of rows from {least} to {n - 1}"
        raise CalliperError(f"{must}; got {size!r}.")


def teaching_distributions(n: int) -> int | None:
    """What "auto" means for a model of distributions: rows of the learning part, from n = 100 on.

    Its own spread may be far off, so it pays to learn from fewer rows, and from more of them.
    """
    fewest = min(FEWEST_OF_DISTRIBUTIONS, int(np.ceil(MOST_OF_FEW * n)))
    taught = min(n - max(fewest, int(np.ceil(PART_OF_DISTRIBUTIONS * n))), MOST_TAUGHT)
    return max(taught, n_teaching(n, "auto")) if taught >= FEWEST_ERRORS else None


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

    With labels each group is dealt by itself, a number as that share of each; by "auto" one of few
    rows keeps them all. Without shuffling the first rows teach, and the ``gap`` after them do
    neither. None as ``random_state`` deals by a fixed seed.
    """
    if labels is not None and n_teaching(n, asked) and not isinstance(asked, str):
        asked = n_teaching(n, asked) / n
    random = check_random_state(0 if random_state is None else random_state)
    teaches, kept = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    _, group = np.unique(np.zeros(n) if labels is None else np.asarray(labels), return_inverse=True)
    for number in range(group.max(initial=-1) + 1):
        rows = np.flatnonzero(group == number)
        order = random.permutation(rows) if shuffle else rows
        taught = n_teaching(len(rows), asked)
        teaches[order[:taught]] = True
        kept[order[: taught + (gap if taught else 0)]] = False
    if not kept.any():
        raise CalliperError(f"gap={gap} leaves none of {n} rows to calibrate on.")
    return np.flatnonzero(teaches), np.flatnonzero(kept)
