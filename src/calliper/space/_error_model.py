"""A model of left-out errors, sign included: where the model is biased, and how far it errs.

Boosted trees and a forest learn from the errors r = y − ŷ on rows left out of training. They see
the inputs, the prediction and the model's own spread, and give

    the shift   b(x) = λ · E[r | x],
    each side   d(x) = v · (−q₁₀(x)) / g + w · (−f₅(x)) / h + o · (−p₅(x)) / k + 1 − v − w − o,
                u(x) = v · q₉₀(x) / g + w · f₉₅(x) / h + o · p₉₅(x) / k + 1 − v − w − o,

with q₁₀ and q₉₀ the boosted 10 and 90 % quantiles of r − b, f₅ and f₉₅ the forest's at 5 and 95 %,
p₅ and p₉₅ those of a model that predicts a distribution, seen from the centre (0 if on the other
side; o = 0 for models that predict one number), and g, h and k their average reach. This is a curve
of one knot, the *centre* ŷ + b, with slopes d below and u above: s = (ŷ + b − y) / d or
(y − ŷ − b) / u, and a radius t gives back the interval [ŷ + b − t·d, ŷ + b + t·u]. A unit of 1 is
the average one, so s is in the unit of y.

All decisions use predictions by trees that have not seen the row (5 folds, or out of bag). The
number of trees behind the shift and its share λ minimise the squared error; the shift is dropped
unless it lowers that error by more than half a standard error. Errors beyond ten times their 90 %
quantile are clipped, and the shift stays within what is left, so that one wild refit cannot steer
it. The forest has its full share from 500 errors on; o is an average of several, weighted by the
interval score that each gives left-out rows. The average unit has a share, so that units cannot
vanish where errors do; units are dropped unless they clearly lower the interval score. Constants
are those of the study in ``studies/experiments/nearness``.

Relatives: Friedberg, Tibshirani and others correct a bias that is local; Lei, G'Sell, Rinaldo,
Tibshirani, Wasserman (2018), doi:10.1080/01621459.2017.1307116, divide by a learnt size of errors;
CLEAR (arXiv:2507.08150) and RCP learn quantiles of residuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Array, Field, Inline, Number
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector, warn_of_unused
from calliper.exceptions import CalliperError
from calliper.quantile import conformal_rank
from calliper.space._boosting import Bins, BoostedTrees, Boosting, ErrorForest, binned
from calliper.space._encoding import N_PARTS

#: The fewest errors to learn from.
FEWEST_ERRORS = 40
#: The quantile of errors that boosted trees learn on each side, and the forest's.
REACH, FOREST_REACH = 0.9, 0.95
#: Shares v and w if the model predicts one number; w grows until there are enough errors.
BOOSTED_SHARE, FOREST_SHARE, ENOUGH = 0.35, 0.5, 500
#: Values of o that are tried; v and w are shares of the rest. A value counts 1/e of another if its
#: interval score is larger by this part.
OWN_SHARES, SOFTNESS = np.array([0.0, 0.25, 0.5, 0.75, 0.95]), 0.04
#: Standard errors by which a shift must lower the squared error, and units the interval score.
CLEARLY = 0.5
#: For the shift, errors are clipped at this multiple of their 90 % quantile.
WILD = 10.0
#: Levels at which intervals with and without units are compared.
COMPARED_LEVELS = (0.8, 0.9, 0.95)


class Expected(NamedTuple):
    """What a model of errors says of rows, each (m,).

    The shift from prediction to centre, units of errors below and above it, and the expected size.
    """

    shift: FloatArray
    down: FloatArray
    up: FloatArray
    size: FloatArray


@dataclass(eq=False, repr=False, kw_only=True)
class ErrorModel(BaseEstimator):  # type: ignore[misc]
    """The bias of a model and the size of its errors on each side, learnt from out-of-fold errors.

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
    side_trees : int, default 50; behind each unit and the expected size, and of the forest
    max_errors : int, default 8000; of more left-out errors, this many are drawn to learn from
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
        "recentre": Number(bool),
        "units": Number(bool),
        "n_errors_": Number(int, 0),
        "n_features_in_": Number(int, 1),
        "range_": Array("float64", (2,)),
        "shift_share_": Number(least=0, most=1),
        "mean_size_": Number(least=np.finfo(float).tiny),
        "reaches_": Array("float64", (3,), least=np.finfo(float).tiny),
        "shares_": Array("float64", (3,), least=0, most=1),
        "trees_": Inline(BoostedTrees),
        "forest_": Inline(ErrorForest, optional=True),
    }

    recentre: bool = True
    units: bool = True
    shift_trees: Sequence[int] = (60, 120, 200, 300)
    side_trees: int = 50
    max_errors: int = 8_000
    random_state: Any = 0

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a fitted model."""
        return {name: getattr(self, name) for name in self.keeps if name in vars(self)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what was learnt; predictions of left-out rows are not in the file."""
        self.__dict__.update(state)
        asked, n_models = self.trees_.features.max(initial=0), len(self.trees_.counts)
        if self.forest_ is not None:
            asked = max(asked, self.forest_.trees.n_features - 1)
        if asked >= self.n_features_in_ or n_models != 3 + bool(self.shift_share_):
            raise CalliperError("the trees of an ErrorModel do not match its columns or parts.")
        if not self.range_[0] <= self.range_[1] or self.shares_.sum() >= 1:
            raise CalliperError("the error range or the shares of an ErrorModel are invalid.")

    def __sklearn_is_fitted__(self) -> bool:
        return "trees_" in vars(self)

    @property
    def units_kept_(self) -> bool:
        """Whether each side has its own unit."""
        return self.forest_ is not None

    @property
    def adjusts(self) -> bool:
        """Whether it moves the centre or gives units, beyond the expected size of errors."""
        return self.recentre or self.units

    def fit(self, clues: Any, errors: Any, own: FloatArray | None = None) -> Self:
        """Learn from errors of models that were not trained on the row.

        Parameters
        ----------
        clues : (n, d) what is known of each row beforehand: inputs, prediction, spread
        errors : (n,) y − ŷ by models that were not trained on the row
        own : (2, n) how far errors reach below and above ŷ if the model itself is right; None if it
            predicts one number
        """
        if not self.recentre:
            warn_of_unused(self, ("shift_trees",), "recentre=False learns no shift")
        clues = check_features(clues, "clues")
        errors = check_vector(errors, "errors", n=len(clues))
        n = len(errors)
        if n < FEWEST_ERRORS or not errors.any():
            what = f"an ErrorModel needs at least {FEWEST_ERRORS} held-out errors"
            got = f"got {n}, {np.count_nonzero(errors)} of them not 0"
            raise CalliperError(f"{what}, not all of them 0; {got}.")
        self.n_errors_, self.n_features_in_ = min(n, self.max_errors), clues.shape[1]
        taken = np.zeros(n, dtype=bool)
        taken[np.random.default_rng(0).permutation(n)[: self.n_errors_]] = True
        of_taken, of_rest = (None, None) if own is None else (own[:, taken], own[:, ~taken])
        said = np.empty((4, n))
        said[:, taken] = self._fit(clues[taken], errors[taken], of_taken)
        if not taken.all():
            said[:, ~taken] = self.predict(clues[~taken], of_rest)
        self.left_out_ = Expected(*said)
        return self

    def _fit(self, clues: FloatArray, errors: FloatArray, own: FloatArray | None) -> Expected:
        """Learn from all rows; what trees that have not seen a row say of it."""
        most = WILD * np.quantile(np.abs(errors), REACH) or np.inf
        usual = np.clip(errors, -most, most)
        self.range_ = np.array([usual.min(), usual.max()])
        folds = np.random.default_rng(self._seed()).permutation(len(errors)) % N_PARTS
        rows = binned(clues)
        shift, of_shift = self._fit_shift(rows, usual, folds)
        beyond = errors - shift
        self.mean_size_ = float(np.abs(beyond).mean()) or float(np.abs(errors).mean())
        sides, of_sides = self._fit_sides(rows, beyond, folds)
        self.trees_ = BoostedTrees.joined([*of_shift, *of_sides])
        self.forest_, self.reaches_, self.shares_ = None, np.ones(3), np.zeros(3)
        units = np.ones((2, len(errors)))
        if self.units:
            forest, shares = ErrorForest.grown(clues, usual, self.side_trees, self._seed())
            reached = _reached(sides, forest, shares, own, shift)
            reach = np.maximum(np.quantile([-beyond, beyond], REACH, axis=1), 0.0).mean()
            reach = reach or self.mean_size_
            self.reaches_ = np.array([reach, *(part.mean() or reach for part in reached[1:])])
            parts = self._parts(beyond, reached, OWN_SHARES if own is not None else OWN_SHARES[:1])
            found = self._units(parts, reached)
            if clearly_positive(unit_scores(beyond, units) - unit_scores(beyond, found)):
                self.forest_, self.shares_, units = forest, parts, found
        return Expected(shift, units[0], units[1], np.maximum(sides[2], 0.0))

    def predict(self, clues: Any, own: FloatArray | None = None) -> Expected:
        """Expected errors of new rows; the arguments are those of :meth:`fit`."""
        check_is_fitted(self)
        rows = check_features(clues, "clues")
        if rows.shape[1] != self.n_features_in_:
            raise CalliperError(
                f"clues have {rows.shape[1]} columns, but had {self.n_features_in_} in fit."
            )
        said = self.trees_.predict(rows)
        shift = self._bounded(said[0]) if self.shift_share_ else np.zeros(len(rows))
        units = np.ones((2, len(rows)))
        if self.forest_ is not None:
            reached = _reached(said[-3:], self.forest_, self.forest_.predict(rows), own, shift)
            units = self._units(self.shares_, reached)
        return Expected(shift, units[0], units[1], np.maximum(said[-1], 0.0))

    def describe(self) -> str:
        """Its effect on an interval in words; empty if there is none."""
        parts = []
        if self.shift_share_:
            parts.append("centred on the prediction plus the estimated bias")
        if self.units_kept_:
            parts.append("scaled separately below and above the centre")
        learnt = f" (learnt from {self.n_errors_:,} held-out errors)"
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
        if not clearly_positive(errors**2 - squares[best]):
            return np.zeros(len(errors)), []
        self.shift_share_ = float(shares[best])
        return self._bounded(stages[best]), [boosting.whole(best + 1)]

    def _bounded(self, said: FloatArray) -> FloatArray:
        """The share of what trees say that is used, within the errors that were seen."""
        return np.asarray(np.clip(self.shift_share_ * said, *self.range_))

    def _fit_sides(
        self, rows: Bins, beyond: FloatArray, folds: IntArray
    ) -> tuple[FloatArray, list[BoostedTrees]]:
        """(3, n) reach on each side and size of errors by trees that have not seen them; trees."""
        both = [
            Boosting(rows, np.stack([-beyond, beyond]), folds, reach=REACH, seed=self._seed()),
            Boosting(rows, np.abs(beyond)[None], folds, seed=self._seed()),
        ]
        for boosting in both:
            for _ in range(self.side_trees):
                boosting.grow()
        left_out = np.concatenate([boosting.left_out for boosting in both])
        return left_out, [boosting.whole() for boosting in both]

    def _units(self, parts: FloatArray, reached: FloatArray) -> FloatArray:
        """(2, m) the unit of each side, of which each voice has a part; the average one is 1."""
        with np.errstate(over="ignore"):
            voices = reached / self.reaches_[:, None, None]
        (v, w, o), (boosted, forest, own) = parts, np.minimum(voices, np.finfo(float).max)
        return np.asarray(v * boosted + w * forest + o * own + 1 - v - w - o)

    def _parts(self, beyond: FloatArray, reached: FloatArray, owns: FloatArray) -> FloatArray:
        """(3,) the part of each voice: an average of those tried, by the scores that they give."""
        forest = FOREST_SHARE * min(1.0, self.n_errors_ / ENOUGH)
        tried = np.array([((1 - own) * BOOSTED_SHARE, (1 - own) * forest, own) for own in owns])
        units = (self._units(parts, reached) for parts in tried)
        scores = np.array([unit_scores(beyond, each).mean() for each in units])
        likely = np.exp((1 - scores / (scores.min() or 1.0)) / SOFTNESS)
        return np.asarray(likely @ tried / likely.sum())

    def _seed(self) -> int:
        """Where draws begin: at 0 for None, so that equal calls learn the same."""
        state = 0 if self.random_state is None else self.random_state
        return int(check_random_state(state).randint(2**31 - 1))


def _reached(
    sides: FloatArray,
    forest: ErrorForest,
    shares: FloatArray,
    own: FloatArray | None,
    shift: FloatArray,
) -> FloatArray:
    """(3, 2, m) the reach below and above the centre by boosted trees, forest, and model (or 0)."""
    low, high = (forest.quantile(shares, level) for level in (1 - FOREST_REACH, FOREST_REACH))
    of_model = np.zeros((2, len(shift))) if own is None else [own[0] + shift, own[1] - shift]
    return np.maximum([sides[:2], [shift - low, high - shift], of_model], 0.0)


def clearly_positive(gain: FloatArray) -> bool:
    """Whether a gain is more than chance would often give."""
    return bool(gain.mean() > CLEARLY * gain.std() / np.sqrt(len(gain)))


def unit_scores(beyond: FloatArray, units: FloatArray, room: Any = np.inf) -> FloatArray:
    """(n,) mean interval scores over levels, of one radius for all, in so much ``room``, (2, n)."""
    scores = np.where(beyond < 0, -beyond / units[0], beyond / units[1])
    ranks = [min(conformal_rank(level, len(scores)), len(scores)) for level in COMPARED_LEVELS]
    ordered, total = np.sort(scores), np.zeros(len(scores))
    for level, rank in zip(COMPARED_LEVELS, ranks, strict=True):
        ends = np.minimum(ordered[rank - 1] * units, room)
        outside = np.maximum(-beyond - ends[0], 0.0) + np.maximum(beyond - ends[1], 0.0)
        total += ends.sum(axis=0) + 2 / (1 - level) * outside
    return total / len(COMPARED_LEVELS)
