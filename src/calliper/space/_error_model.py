"""A model of left-out errors, sign included: where the model is biased, and how far it errs.

The errors r = y − ŷ that a model makes on rows left out of its training show more than their size.
Two unlike learners are told the inputs, the prediction and what the model says of its own doubt:
boosted trees and a forest. From them come

    the shift   b(x) = λ · E[r | x],
    each side   d(x) = v · (−q₁₀(x)) / g + w · (−f₅(x)) / h + o · (−p₅(x)) / k + 1 − v − w − o,
                u(x) = v · q₉₀(x) / g + w · f₉₅(x) / h + o · p₉₅(x) / k + 1 − v − w − o,

q₁₀ and q₉₀ the boosted tenths of r − b at either end, f₅ and f₉₅ the forest's twentieths, p₅ and
p₉₅ those of a model that predicts a distribution itself, seen from the centre (0 if on the other
side; o = 0 for models that predict one number), and g, h and k their average reach. Errors are then
measured around the *centre* ŷ + b in the unit of their side, s = (ŷ + b − y) / d below it and
(y − ŷ − b) / u above, and a radius t gives back the interval [ŷ + b − t·d, ŷ + b + t·u]. A unit of
1 is the average one, so s is in the unit of y.

Neither part is trusted further than left-out rows bear it out. All predictions that decide are made
by trees that have not seen the row (5 folds, or out of bag). The number of trees behind the shift
and its share λ are those of the least squared error; the shift is dropped unless it lowers that
error by more than half a standard error. Errors beyond ten times the one that a tenth of them
exceed are clipped, and the shift stays within what is left, so that one wild refit cannot steer it.
The forest has its full part in units from 500 errors on. The part o is an average of a few, each
weighted by the interval score that it gives left-out rows. All are mixed with the average unit, so
that units cannot vanish where errors do; units are dropped unless they lower the interval score as
clearly.

Everything here is learnt from training rows, or from calibration rows that are set apart: rows that
calibrate and new ones are treated alike, so every guarantee stays what it was, however wrong the
model of errors may be. The constants are those of the study in ``studies/experiments/nearness``.

Relatives: Friedberg, Tibshirani and others correct a bias that is local; Lei, G'Sell, Rinaldo,
Tibshirani, Wasserman (2018), doi:10.1080/01621459.2017.1307116, divide by a learnt size of errors;
CLEAR (arXiv:2507.08150) and RCP learn quantiles of residuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Array, Field, Inline, Number
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector
from calliper.exceptions import CalliperError
from calliper.quantile import conformal_rank
from calliper.space._boosting import Bins, BoostedTrees, Boosting, ErrorForest
from calliper.space._encoding import N_PARTS

#: With fewer errors than two leaves of a tree hold there is nothing to learn.
FEWEST_ERRORS = 40
#: The part of errors that a side's unit reaches, by boosted trees and by the forest.
REACH, FOREST_REACH = 0.9, 0.95
#: Parts v and w of a model that predicts one number; w grows with the number of errors until there
#: are enough.
BOOSTED_SHARE, FOREST_SHARE, ENOUGH = 0.35, 0.5, 500
#: Parts o that are tried; the others have theirs of the rest. One counts 1/e of another if its
#: interval score is so much more.
OWN_SHARES, SOFTNESS = np.array([0.0, 0.25, 0.5, 0.75, 0.95]), 0.04
#: Standard errors by which a shift must lower the squared error, and units the interval score.
CLEARLY = 0.5
#: Where a shift is learnt, errors are clipped at so many times the one that a tenth exceed, and the
#: shift goes no further: one wild error must not steer it.
WILD = 10.0
#: Levels at which intervals with and without units are compared.
COMPARED_LEVELS = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Expected:
    """What a model of errors says of rows, each (m,).

    Attributes
    ----------
    shift : from the prediction to the centre
    down, up : units of errors below and above the centre
    size : the expected size of an error, in the unit of y
    """

    shift: FloatArray
    down: FloatArray
    up: FloatArray
    size: FloatArray


class ErrorModel(BaseEstimator):  # type: ignore[misc]
    """Where a model is biased, and how far it errs on either side, learnt from left-out errors.

    ``ConformalRegressor`` fits one by itself where errors on training rows are known that the
    model was not trained on; pass one to switch parts of it off.

    Parameters
    ----------
    recentre : bool, default True
        Whether intervals lie around the prediction plus its expected error. The prediction then
        need not be in the middle, nor even inside, of its interval; with False it always is
        inside.
    units : bool, default True
        Whether errors below and above the centre have units of their own: the sizes expected of
        them there. With neither, only the expected size is learnt.
    shift_trees : increasing whole numbers, default (60, 120, 200, 300)
        Trees behind the shift: the first number, and the next where the last of them still help.
    side_trees : int, default 50
        Trees behind the unit of each side, behind the expected size, and of the forest.
    max_errors : int, default 8000
        If there are more left-out errors, ``ConformalRegressor`` draws this many to learn from.
    random_state : int, RandomState or None, default 0
        Draws the rows of each tree and deals rows to folds. Nothing here touches calibration rows.

    Attributes
    ----------
    n_errors_ : how many errors were learnt from
    shift_share_ : λ, the share of the learnt shift that is used; 0 if it was dropped
    units_kept_ : whether each side has its unit; False if that was dropped, and the forest with it
    left_out_ : what trees that have not seen a row say of it, :class:`Expected`

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> errors = np.where(X[:, 0] > 0.5, 1.0, 0.0) + rng.normal(size=2000) * (0.1 + X[:, 0])
    >>> expected = ErrorModel().fit(X, errors).predict([[0.2], [0.8]])
    >>> expected.shift.round(1), expected.size.round(1)
    (array([0. , 0.9]), array([0.2, 0.7]))
    """

    keeps: ClassVar[Mapping[str, Field]] = {
        "n_errors_": Number(int, 0),
        "n_features_in_": Number(int, 1),
        "least_": Number(),
        "most_": Number(),
        "shift_share_": Number(least=0, most=1),
        "mean_size_": Number(least=np.finfo(float).tiny),
        "reach_": Number(least=np.finfo(float).tiny),
        "forest_reach_": Number(least=np.finfo(float).tiny),
        "own_reach_": Number(least=np.finfo(float).tiny),
        "shares_": Array("float64", (3,), least=0, most=1),
        "trees_": Inline(BoostedTrees),
        "forest_": Inline(ErrorForest, optional=True),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a fitted model."""
        own = {name: getattr(self, name) for name in self.keeps if name in vars(self)}
        return own | {"least_": self.range_[0], "most_": self.range_[1]}

    def restore(self, state: dict[str, Any]) -> None:
        """What was learnt before; what was said of left-out rows is not kept."""
        self.range_ = state.pop("least_"), state.pop("most_")
        self.__dict__.update(state)
        asked, n_models = self.trees_.features.max(initial=0), len(self.trees_.counts)
        if self.forest_ is not None:
            asked = max(asked, self.forest_.features.max(initial=0))
        if asked >= self.n_features_in_ or n_models != 3 + bool(self.shift_share_):
            raise CalliperError("the trees of an ErrorModel do not match its columns or parts.")
        if not self.range_[0] <= self.range_[1] or self.shares_.sum() >= 1:
            raise CalliperError("the error range or the shares of an ErrorModel are invalid.")

    def __sklearn_is_fitted__(self) -> bool:
        return "trees_" in vars(self)

    def __init__(
        self,
        *,
        recentre: bool = True,
        units: bool = True,
        shift_trees: Sequence[int] = (60, 120, 200, 300),
        side_trees: int = 50,
        max_errors: int = 8_000,
        random_state: Any = 0,
    ) -> None:
        self.recentre = recentre
        self.units = units
        self.shift_trees = shift_trees
        self.side_trees = side_trees
        self.max_errors = max_errors
        self.random_state = random_state

    @property
    def units_kept_(self) -> bool:
        """Whether each side has its unit."""
        return self.forest_ is not None

    @property
    def adjusts(self) -> bool:
        """Whether anything but the expected size is asked for."""
        return self.recentre or self.units

    def fit(self, clues: Any, errors: Any, own: FloatArray | None = None) -> Self:
        """Learn from left-out errors.

        Parameters
        ----------
        clues : (n, d) what is known of each row beforehand: inputs, prediction, spread
        errors : (n,) y − ŷ by models that were not trained on the row
        own : (2, n) how far errors reach below and above ŷ if the model itself is right; None if it
            predicts one number
        """
        clues = check_features(clues, "clues")
        errors = check_vector(errors, "errors", n=len(clues))
        if len(errors) < FEWEST_ERRORS or not errors.any():
            raise CalliperError(
                f"an ErrorModel needs at least {FEWEST_ERRORS} left-out errors, not all of them "
                f"0; got {len(errors)}, {np.count_nonzero(errors)} of them not 0."
            )
        self.n_errors_, self.n_features_in_ = len(errors), clues.shape[1]
        most = WILD * np.quantile(np.abs(errors), REACH) or np.inf
        usual = np.clip(errors, -most, most)
        self.range_ = float(usual.min()), float(usual.max())
        rows, folds = Bins.of(clues), self._folds(len(errors))
        shift, of_shift = self._fit_shift(rows, usual, folds)
        beyond = errors - shift
        self.mean_size_ = float(np.abs(beyond).mean()) or float(np.abs(errors).mean())
        reach = np.quantile(-beyond, REACH), np.quantile(beyond, REACH)
        self.reach_ = float(np.mean(np.maximum(reach, 0.0))) or self.mean_size_
        sides, of_sides = self._fit_sides(rows, beyond, folds)
        self.trees_ = BoostedTrees.joined([*of_shift, *of_sides])
        units = np.ones((2, len(errors)))
        self.forest_, self.forest_reach_, self.own_reach_ = None, 1.0, 1.0
        self.shares_ = np.zeros(3)
        if self.units:
            forest, shares = ErrorForest.grown(clues, usual, self.side_trees, self._seed())
            reached, seen = _reached(forest, shares, shift), _seen(own, shift)
            self.forest_reach_ = float(reached.mean()) or self.reach_
            self.own_reach_ = float(seen.mean()) or self.reach_
            voices = self._voices(sides, reached, seen)
            parts = self._parts(beyond, voices, OWN_SHARES if own is not None else OWN_SHARES[:1])
            found = _mixed(parts, voices)
            if _clearly_positive(_scores(beyond, units) - _scores(beyond, found)):
                self.forest_, self.shares_, units = forest, parts, found
        self.left_out_ = _expected(shift, units, sides)
        return self

    def predict(self, clues: Any, own: FloatArray | None = None) -> Expected:
        """What is to be expected of new rows; arguments as those of :meth:`fit`."""
        check_is_fitted(self)
        rows = check_features(clues, "clues")
        if rows.shape[1] != self.n_features_in_:
            raise CalliperError(
                f"clues have {rows.shape[1]} columns; those of fit had {self.n_features_in_}."
            )
        said = self.trees_.predict(rows)
        shift = np.zeros(len(rows))
        if self.shift_share_:
            shift = self._bounded(said[0])
        units = np.ones((2, len(rows)))
        if self.forest_ is not None:
            reached = _reached(self.forest_, self.forest_.predict(rows), shift)
            units = _mixed(self.shares_, self._voices(said[-3:], reached, _seen(own, shift)))
        return _expected(shift, units, said[-3:])

    def describe(self) -> str:
        """What it does to an interval, in words; empty if nothing."""
        parts = []
        if self.shift_share_:
            parts.append("the centre is the prediction plus the expected error")
        if self.units_kept_:
            parts.append("each side has its own unit")
        learnt = f" (learnt from {self.n_errors_:,} left-out errors)"
        return f"{' and '.join(parts)}{learnt}" if parts else ""

    def _fit_shift(
        self, rows: Bins, errors: FloatArray, folds: IntArray
    ) -> tuple[FloatArray, list[BoostedTrees]]:
        """(n,) the shift of each row by trees that have not seen it; and its trees, if any."""
        self.shift_share_ = 0.0
        if not self.recentre:
            return np.zeros(len(errors)), []
        boosting = Boosting(
            rows, errors[None], folds, rate=0.05, part=0.7, fewest=5, seed=self._seed()
        )
        stages: list[FloatArray] = []
        for n_trees in self.shift_trees:
            while len(stages) < n_trees:
                boosting.grow()
                stages.append(boosting.left_out[0])
            said = np.array(stages)
            power = np.maximum((said**2).sum(axis=1), np.finfo(float).tiny)
            shares = np.clip((said @ errors) / power, 0.0, 1.0)
            squares = (errors - shares[:, None] * said) ** 2
            best = int(np.argmin(squares.mean(axis=1)))
            if best < 0.8 * n_trees:  # more trees would only overfit
                break
        if not _clearly_positive(errors**2 - squares[best]):
            return np.zeros(len(errors)), []
        self.shift_share_ = float(shares[best])
        return self._bounded(stages[best]), [boosting.whole(best + 1)]

    def _bounded(self, said: FloatArray) -> FloatArray:
        """The share of what trees say that is used, within the errors that were seen."""
        return np.clip(self.shift_share_ * said, *self.range_)

    def _fit_sides(
        self, rows: Bins, beyond: FloatArray, folds: IntArray
    ) -> tuple[FloatArray, list[BoostedTrees]]:
        """(3, n) the reach of errors on either side and their mean size, for rows unseen.

        And the trees of all three.
        """
        sides = np.stack([-beyond, beyond])
        both = [
            Boosting(rows, sides, folds, reach=np.full(2, REACH), seed=self._seed()),
            Boosting(rows, np.abs(beyond)[None], folds, seed=self._seed()),
        ]
        for boosting in both:
            for _ in range(self.side_trees):
                boosting.grow()
        left_out = np.concatenate([boosting.left_out for boosting in both])
        return left_out, [boosting.whole() for boosting in both]

    def _voices(self, sides: FloatArray, reached: FloatArray, seen: FloatArray) -> FloatArray:
        """(3, 2, m) what boosted trees, forest and model say of each side; 1 on average."""
        boosted = np.maximum(sides[:2], 0.0) / self.reach_
        with np.errstate(over="ignore"):
            own = np.minimum(seen / self.own_reach_, np.finfo(float).max)
        every = (boosted, reached / self.forest_reach_, own)
        return np.stack(np.broadcast_arrays(*every))

    def _parts(self, beyond: FloatArray, voices: FloatArray, owns: FloatArray) -> FloatArray:
        """(3,) the part of each voice: an average of those tried, by the scores that they give."""
        forest = FOREST_SHARE * min(1.0, self.n_errors_ / ENOUGH)
        tried = np.array([((1 - own) * BOOSTED_SHARE, (1 - own) * forest, own) for own in owns])
        scores = np.array([_scores(beyond, _mixed(parts, voices)).mean() for parts in tried])
        likely = np.exp((1 - scores / (scores.min() or 1.0)) / SOFTNESS)
        return np.asarray(likely @ tried / likely.sum())

    def _folds(self, n: int) -> IntArray:
        """(n,) the part of each row, dealt at random."""
        return np.random.default_rng(self._seed()).permutation(n) % N_PARTS

    def _seed(self) -> int:
        """Where draws begin: at 0 for None, so that equal calls learn the same."""
        state = 0 if self.random_state is None else self.random_state
        return int(check_random_state(state).randint(2**31 - 1))


def _expected(shift: FloatArray, units: FloatArray, sides: FloatArray) -> Expected:
    """``sides`` are (3, m): reach below, above, and mean size."""
    return Expected(shift, units[0], units[1], np.maximum(sides[2], 0.0))


def _reached(forest: ErrorForest, shares: FloatArray, shift: FloatArray) -> FloatArray:
    """(2, m) how far errors reach below and above the centre, as the forest says."""
    low, high = (forest.quantile(shares, level) for level in (1 - FOREST_REACH, FOREST_REACH))
    return np.maximum([shift - low, high - shift], 0.0)


def _seen(own: FloatArray | None, shift: FloatArray) -> FloatArray:
    """(2, m) how far errors reach from the centre, as the model itself says; 0 if it says none."""
    if own is None:
        return np.zeros((2, 1))
    return np.maximum([own[0] + shift, own[1] - shift], 0.0)


def _mixed(parts: FloatArray, voices: FloatArray) -> FloatArray:
    """(2, m) the unit of each side; the average one is 1."""
    (v, w, o), (boosted, forest, own) = parts, voices
    return np.asarray(v * boosted + w * forest + o * own + 1 - v - w - o)


def _clearly_positive(gain: FloatArray) -> bool:
    """Whether a gain is more than chance would often give."""
    return bool(gain.mean() > CLEARLY * gain.std() / np.sqrt(len(gain)))


def _scores(beyond: FloatArray, units: FloatArray) -> FloatArray:
    """(n,) interval scores of the errors themselves, one radius for all, mean over levels."""
    scores = np.where(beyond < 0, -beyond / units[0], beyond / units[1])
    ranks = [min(conformal_rank(level, len(scores)), len(scores)) for level in COMPARED_LEVELS]
    ordered, total = np.sort(scores), np.zeros(len(scores))
    for level, rank in zip(COMPARED_LEVELS, ranks, strict=True):
        ends = ordered[rank - 1] * units
        outside = np.maximum(-beyond - ends[0], 0.0) + np.maximum(beyond - ends[1], 0.0)
        total += ends.sum(axis=0) + 2 / (1 - level) * outside
    return total / len(COMPARED_LEVELS)
