"""Drift: a level that adapts after misses, so that coverage holds in the long run.

Where data drift, rows are not exchangeable. The level can make up for it: higher after a miss, a
little lower after a hit. With α_t = 1 − level, err_t = 1 for a miss and 0 for a hit, and 1−α the
coverage requested,

    α_{t+1} = α_t + γ_t (α − err_t).

At α_t ≤ 0 the interval is infinite and cannot miss; at α_t ≥ 1 it is the prediction alone. Labels
may come late, in any order, some never: each moves the level once, when it comes. D + 1 is the
largest number of predictions that waited at once for labels that came. When α_t falls below 0, at
most D + 1 misses are still to come, so α_t stays in [−γ_1(1−α)(D+1), 1 + γ_1α(D+1)]. Summing
err_t − α = (α_t − α_{t+1})/γ_t by parts bounds the mean over the n labels that came, for every
sequence of targets, adversarial ones included:

    |mean err − α| ≤ max{α_1 + γ(1−α)(D+1), 1 − α_1 + γα(D+1)} / (γn)        for one rate γ,
    and for decaying rates ≤ the same with γ_1 plus (1 + γ_1(D+1))(1/γ_n − 1/γ_1)/n.

Steps that never get a label do not count.

Several rates at once: k experts have a rate each, and their levels are averaged with weights given
by the pinball losses ℓ of their α_i at β_t, the largest α_t that would have hit:

    w_i ← (1−σ) w_i e^{−ηℓ(β_t, α_i)} + (σ/k) Σ_j w_j e^{−ηℓ(β_t, α_j)},    σ = 1/(2I),
    η = √(3/I · (log(kI) + 2) / ((1−α)²α³ + α²(1−α)³)),

which is nearly as good as the best rates over any I steps. With constant η this does not bound the
long-run mean, so a guard is added here: if misses exceed their share by about as much as the
slowest rate alone allows, the next interval is infinite; if they fall short by as much, it is
empty. Hence the bound: that of the slowest rate with D = 0, plus D·max(α, 1−α)/n for predictions
that were waiting when the guard stepped in, which it hardly ever does.

Letters: 1 − α_t → ``level``, γ_1 → ``rate``, 1 − β_t → ``needed``, I → ``horizon``.

References: Gibbs, Candès (2021), "Adaptive conformal inference under distribution shift",
arXiv:2106.00170, Proposition 4.1. Gibbs, Candès (2024), "Conformal inference for online prediction
with arbitrary distribution shifts", JMLR 25 (DtACI; several rates). Angelopoulos, Barber, Bates
(2024), "Online conformal prediction with decaying step sizes", arXiv:2402.01139, Theorem 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing

from calliper import _validation as valid
from calliper._kept import Array, Field, Number
from calliper._types import FloatArray, IntArray
from calliper.exceptions import (
    CalliperError,
    RowLabelsWarning,
    SmallCalibrationWarning,
    UnusedWarning,
    unheard,
    warn,
)
from calliper.intervals import Boxes, Intervals
from calliper.quantile import TINY, TOLERANCE
from calliper.rows import row_values, same_rows

__all__ = ["RATES", "Controller", "History", "coverage_needed"]

#: Rates to follow at once: those of the paper.
RATES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
#: By how much levels may contradict one another where intervals of a method are not nested.
UNNESTED = 0.05
#: Rows whose level is searched together, and into how many parts a search step divides the rest.
ROWS_SEARCHED, SECTIONS = 8, 16
#: The precision of the search, still far above the rounding of levels; and the largest N + 1, times
#: the number of tails, for which the level is then exact.
CLOSE, HORIZONS = 1e-10, (10**3, 10**4, 10**5, 10**6)


class Stream(BaseEstimator):  # type: ignore[misc]
    """What learns from labels as they come; ``_begin`` checks parameters, which are then fixed."""

    _given: dict[str, Any] | None = None

    def __sklearn_is_fitted__(self) -> bool:
        return self._given is not None

    def _tried(self) -> Self:
        """Itself, if its parameters are accepted; they may still be changed."""
        copy(self)._ready()
        return self

    def _ready(self) -> None:
        """Begin if that was not done; later, refuse parameters that changed."""
        own: Any = self
        given = {each.name: np.asarray(vars(self)[each.name]).tolist() for each in fields(own)}
        if self._given is None:
            self._begin()
            self._given = given
        for name, value in self._given.items():
            if given[name] != value:
                what = f"{name} was {value!r} at the beginning and is {given[name]!r} now"
                why = "but the bound holds only if parameters do not change"
                raise CalliperError(f"{what}, {why}: start a new one.")


def refuse_second_labels(names: Sequence[int], has_label: Callable[[int], bool]) -> None:
    """Refuse a label of a step that has one, or two of one step."""
    for name, count in Counter(names).items():
        if count > 1 or has_label(name):
            raise CalliperError(
                f"step {name} already has a label, and each step counts once: leave out the second."
            )


@dataclass(frozen=True, eq=False)
class History:
    """The levels so far and their outcomes.

    Attributes
    ----------
    level, step : (T,) the level at each step, from 0 to 1, and its number
    outside : (T,) share of each step's targets that were outside, NaN where no label came

    Examples
    --------
    >>> History(np.array([0.9, 0.9]), np.array([0.0, np.nan]), np.array([7, 8])).unlabelled
    array([8])
    """

    level: FloatArray
    outside: FloatArray
    step: IntArray

    @property
    def coverage(self) -> float:
        """Share of targets inside, with equal weight for each labelled step; NaN without labels."""
        known = self.outside[~np.isnan(self.outside)]
        return float(1 - known.mean()) if len(known) else float("nan")

    @property
    def unlabelled(self) -> IntArray:
        """Steps whose label has not arrived."""
        return self.step[np.isnan(self.outside)]


@dataclass(eq=False, repr=False)
class Controller(valid.MadeByCoverage, Stream):
    """Gives the level for the next prediction, and adapts it to the last outcome.

    Parameters
    ----------
    coverage : the share of targets that should be inside in the long run
    rate : float or sequence of floats, default 0.01
        How far the level moves after a step: a large rate follows drift closely, a small one is
        steady. Of several, such as ``RATES``, the recently best ones count most; ``update`` then
        needs ``needed``, too.
    decay : float, default 0
        Step t is t^−``decay`` times as large as the first. Between 0.5 and 1, such as 0.6 with a
        larger rate, the level settles if nothing drifts.
    start : the first level; ``coverage`` by default
    horizon : I, the number of steps over which several rates are compared

    Examples
    --------
    >>> control = Controller(0.9, rate=0.1)
    >>> for inside in [False, True, True]:
    ...     level = control.level
    ...     control = control.update(inside)
    >>> control.history.level.round(3)
    array([0.9 , 0.99, 0.98])
    """

    coverage: float = 0.9
    _: KW_ONLY
    rate: float | Sequence[float] = 0.01
    decay: float = 0.0
    start: float | None = None
    horizon: int = 500

    keeps: ClassVar[Mapping[str, Field]] = {
        "steps": Array("float64", ("T", 2), least=-1, most=1),
        "names": Array("int64", ("T", 2), least=1 - 2**62, most=2**62 - 1),
        "levels": Array("float64", ("k",)),
        "weights": Array("float64", ("k",), least=0, most=1.5),
        "excess": Number(),
        "asked": Number(bool),
    }

    def _begin(self) -> None:
        rates = valid.check_vector(np.atleast_1d(self.rate), "rate")
        if not rates.min(initial=np.inf if len(rates) else 0) >= TINY:
            raise CalliperError(
                f"rate must be a positive number such as 0.01, or several; got {self.rate!r}."
            )
        if valid.check_level(self.coverage) < 0.05 and 0.5 <= rates.max() < 1:
            raise CalliperError(
                f"coverage={self.coverage:g} and rate={rates.max():g} look swapped: coverage is "
                f"the share of targets inside, rate a small step, as in Controller(0.9, rate=0.01)."
            )
        if not isinstance(self.decay, Real) or not 0 <= float(self.decay) < 1:
            raise CalliperError(f"decay must be at least 0 and below 1; got {self.decay!r}.")
        valid.at_least(self.horizon, 1, "horizon")
        self._rates: FloatArray = rates
        self._miss: float = 1 - valid.check_level(self.coverage)
        self._first: float = (
            1 - self._miss if self.start is None else valid.check_level(self.start, "start")
        )
        #: The level that each rate has come to, and its weight, (k,).
        self._levels: FloatArray = np.full(len(rates), self._first)
        self._weights: FloatArray = np.full(len(rates), 1 / len(rates))
        self._excess: float = 0.0
        #: Whether a level was read, or a prediction made, that waits for an update without number.
        self._asked: bool = False
        self._predicted: int = 0
        #: Of each step, by its name: its level, the share outside (−1 without a label), and how
        #: many steps there were when its label came (0 without).
        self._steps: dict[int, tuple[float, float, int]] = {}
        self._n_labels: int = 0

    def for_file(self) -> dict[str, Any]:
        """What a file holds: all steps so far, and the current levels."""
        self._ready()
        names, level, outside, until = self._columns()
        steps, named = np.column_stack([level, outside]), np.column_stack([names, until])
        led = {name: vars(self)[f"_{name}"] for name in ("levels", "weights", "excess", "asked")}
        return {"steps": steps, "names": named, **led}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state after the last step."""
        self._ready()
        if len(state["levels"]) != len(self._rates) or not 0.5 < state["weights"].sum() < 1.5:
            raise CalliperError("a Controller needs one level and one share for each rate.")
        (level, outside), (names, until) = state["steps"].T, state["names"].T
        known, last = until != 0, len(until)
        in_time = (until > np.arange(last)) & (until <= last) | ~known
        if not in_time.all() or (level < 0).any() or ((outside >= 0) != known).any():
            raise CalliperError("a label precedes its step, follows the last step or is missing.")
        if (np.diff(names) <= 0).any():
            raise CalliperError("steps do not increase.")
        self._levels, self._weights = state["levels"], state["weights"]
        self._excess, self._asked = state["excess"], state["asked"]
        steps = zip(level.tolist(), outside.tolist(), until.tolist(), strict=True)
        self._steps = dict(zip(names.tolist(), steps, strict=True))
        self._n_labels = int(known.sum())

    def _columns(self) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
        """Name, level, share outside and arrival of all steps, (T,) each."""
        level, outside, until = np.array([*self._steps.values()]).reshape(-1, 3).T
        return np.array([*self._steps], dtype=np.int64), level, outside, until.astype(np.int64)

    @property
    def level(self) -> float:
        """The coverage to request next; 1 means an infinite interval, 0 the prediction alone."""
        self._ready()
        self._asked = True
        return self._level()

    @property
    def history(self) -> History:
        """All steps so far."""
        self._ready()
        names, level, outside, _ = self._columns()
        return History(level, np.where(outside < 0, np.nan, outside), names)

    @property
    def bound(self) -> float:
        """Largest distance of the share of misses so far from 1 − coverage, for any targets.

        Over the labels that came; it grows with the predictions that waited at once.
        """
        self._ready()
        trivial, n = max(self._miss, 1 - self._miss), self._n_labels
        return float(min(self._most(self._waited()) / n, trivial)) if n else trivial

    def ask(self, step: Any) -> float:
        """The level of a new step whose label comes later, or of several steps, (m,).

        A step is the number to pass to :meth:`update` with the label: a row number, or a time such
        as ``Timestamp.value``; each must be larger than all before.
        """
        self._ready()
        names = valid.check_steps(step)
        last = [next(reversed(self._steps))] if self._steps else []
        for before, name in pairwise(last + names):
            if name <= before:
                raise CalliperError(
                    f"steps must increase with time, but {name} came after {before}. Predict each "
                    "step once, in chronological order; labels may arrive in any order."
                )
        level = self._level()
        self._steps |= dict.fromkeys(names, (level, -1.0, 0))
        return level

    def predict_interval(self, model: Any, X: Any, *, step: Any = None, **how: Any) -> Any:
        """Intervals of ``model`` at the current level; ``how`` goes to its ``predict_interval``.

        At level 1 they are infinite, at level 0 the predictions themselves. If labels come late,
        ``step`` is one number for all rows together, or one for each row, as in :meth:`ask`.
        """
        level, found = self._answer("predict_interval", model, X, step, how)
        if found is not None:
            return found
        middle = np.asarray(model.predict(X), dtype=np.float64)
        half, labels = np.inf if level else 0.0, valid.labels_of(X)
        columns = np.atleast_2d(middle.T)
        sides = tuple(Intervals(each - half, each + half, level, labels) for each in columns)
        return sides[0] if middle.ndim == 1 else Boxes(sides, model.target_names_)

    def predict_radius(
        self, calibrator: Any, Z: Any, *, step: Any = None, **how: Any
    ) -> FloatArray:
        """The radius of ``calibrator`` at the current level, (m,); infinite at 1, 0 at 0."""
        level, found = self._answer("predict_radius", calibrator, Z, step, how)
        none = np.full(valid.n_rows(Z), np.inf if level else 0.0)
        return none if found is None else np.asarray(found)

    def _answer(
        self, ask: str, model: Any, X: Any, step: Any, how: dict[str, Any]
    ) -> tuple[float, Any]:
        """The level, and the answer of the model, which is not asked at level 0 or 1."""
        _check_asked(model, X, ask)
        if "coverage" in how:
            raise CalliperError(
                f"the controller chooses the level: leave coverage={how['coverage']!r} out here."
            )
        if np.ndim(step) and len(step) != valid.n_rows(X):
            what = f"step has {len(step)} values, but there are {valid.n_rows(X)} rows"
            raise CalliperError(f"{what}: pass one value, or one for each row.")
        level = self.level if step is None else self.ask(step)
        if step is None and self._predicted:
            what = "The previous prediction was not followed by update, so it does not count"
            remedy = "Call update after each prediction, or pass step= if labels arrive late"
            warn(f"{what}. {remedy}.", UnusedWarning)
        self._predicted = valid.n_rows(X) if step is None else self._predicted
        if not 0 < level < 1:
            return level, None
        with unheard(SmallCalibrationWarning):
            return level, getattr(model, ask)(X, coverage=level, **how)

    def update(self, inside: Any, *, step: Any = None, needed: Any = None) -> Self:
        """Adapt the level to the label of the last prediction, or of a numbered step.

        Parameters
        ----------
        inside : bool or (m,) of bool
            Whether the target was inside its interval. Rows that were predicted together count as
            one step. At level 0 nothing counts as inside.
        step : the step that the label belongs to, or (m,) in order of arrival, if numbered
        needed : float or (m,) from :func:`coverage_needed`, to compare several rates
        """
        self._ready()
        if step is None and not self._asked:
            waiting = len(self._steps) - self._n_labels
            earlier = f" For the {waiting} steps without labels, call update(…, step=…)."
            what = "update was called before a level was requested: call predict_interval(model, X)"
            raise CalliperError(f"{what} or read .level first.{earlier if waiting else ''}")
        if needed is None and len(self._rates) > 1:
            what = f"with {len(self._rates)} rates, inside alone is not enough"
            remedy = "call update(inside, needed=coverage_needed(model, X, y))"
            raise CalliperError(f"{what}: {remedy}.")
        held = valid.check_inside(inside)
        if needed is not None:
            needed = valid.check_vector(np.atleast_1d(needed), "needed", n=len(held))
            if needed.min() < 0 or needed.max() > 1:
                raise CalliperError(
                    f"needed must be from 0 to 1, as coverage_needed returns it; got {needed!r}."
                )
        if step is None and self._predicted not in (0, len(held)):
            what = f"{self._predicted} rows were predicted together, but inside has {len(held)}"
            late = "If labels arrive one by one, pass step= to predict_interval and to update"
            raise CalliperError(f"{what} values: pass one for each row. {late}.")
        if step is None:
            names, levels = [next(reversed(self._steps), -1) + 1], [self._level()]
        else:
            names = valid.check_steps(step)
            if unknown := [name for name in names if name not in self._steps]:
                what = f"got a label for step {unknown[0]}, which was never predicted"
                how = "call predict_interval(model, X, step=...) first"
                raise CalliperError(f"{what} ({len(self._steps)} steps were): {how}.")
            refuse_second_labels(names, lambda name: self._steps[name][1] >= 0)
            levels = [self._steps[name][0] for name in names]
        if np.ndim(step) and len(held) != len(names):
            raise CalliperError(f"step has {len(names)} values, but inside has {len(held)}.")
        parts = np.arange(len(held)).reshape(len(names), -1)  # the rows of each step
        if any(level == 1 and not held[at].all() for level, at in zip(levels, parts, strict=True)):
            raise CalliperError(
                "a target is marked as outside an interval of level 1, which is infinite. Does "
                "inside say True for a hit, and does each label belong to its step? Intervals must "
                "come from predict_interval(model, X) of the controller, without bounds."
            )
        if needed is not None:
            at = np.repeat(levels, parts.shape[1])
            if (~held & (at < 1) & (needed < at - UNNESTED)).any():
                what = "a target is marked as outside, but by needed a lower level has it inside"
                warn(f"{what}: compute both from the same row and model.", RowLabelsWarning)
        if step is None:
            self.ask(names)
            self._asked, self._predicted = False, 0
        for name, rows in zip(names, parts, strict=True):
            self._learn(name, held[rows], None if needed is None else needed[rows])
        return self

    def _learn(self, name: int, held: Any, needed: FloatArray | None) -> None:
        """Move the level by one label."""
        level = self._steps[name][0]
        outside = float((~held).mean()) if level else 1.0
        missed = np.array([outside])
        if needed is not None and len(self._rates) > 1:
            missed = self._judge(needed)
        self._steps[name] = (level, outside, len(self._steps))
        self._n_labels += 1
        self._excess += outside - self._miss
        self._levels = self._levels + self._step() * (missed - self._miss)

    def describe(self) -> str:
        """Coverage so far and its proven bound, in words."""
        bound, n = self.bound, self._n_labels
        came = f"{n:,}, of which {self.history.coverage:.2%} were inside" if n else "none so far"
        missing = len(self._steps) - n
        late = f" Steps without a label, which do not count: {missing:,}." if missing else ""
        said = f"Asked for: {self.coverage:.2%} of the targets. Steps with a label: {came}. "
        if bound >= max(self._miss, 1 - self._miss):
            return f"{said}So few labels at this rate prove nothing yet of this share.{late}"
        return (
            f"{said}It is proved that this share is within {bound:.2%} of the coverage asked for, "
            f"whatever the targets are (at level 0, all of them count as outside).{late}"
        )

    def _level(self) -> float:
        """The level, from 0 to 1; with several rates, the guard may choose it."""
        if len(self._rates) > 1 and abs(self._excess) >= self._most(0):
            return float(self._excess > 0)
        return float(np.clip(self._weights @ self._levels, 0, 1))

    def _step(self) -> FloatArray:
        """How far each level moves after the last step, (k,)."""
        return np.asarray(self._rates * max(self._n_labels, 1) ** -float(self.decay))

    def _judge(self, needed: FloatArray) -> FloatArray:
        """Whether each expert would have missed, (k,); those that were wrong lose weight."""
        k, horizon, miss = len(self._rates), float(self.horizon), self._miss
        spread = (1 - miss) ** 2 * miss**3 + miss**2 * (1 - miss) ** 3
        eta, sigma = np.sqrt(3 / horizon * (np.log(k * horizon) + 2) / spread), 1 / (2 * horizon)
        gap = self._levels - needed[:, None]
        loss = (miss * gap - np.minimum(gap, 0.0)).mean(axis=0)
        weights = self._weights * np.exp(-eta * (loss - loss.min()))
        self._weights = (1 - sigma) * weights / weights.sum() + sigma / k
        return np.asarray((gap <= 0).mean(axis=0))

    def _waited(self) -> int:
        """D + 1: the largest number of steps that waited at once for labels that came."""
        until = self._columns()[3]
        begun = np.flatnonzero(until)
        change = np.bincount(begun, minlength=len(until) + 1)
        change -= np.bincount(until[begun], minlength=len(until) + 1)
        return int(np.cumsum(change).max())

    def _most(self, waited: int) -> float:
        """How far the number of misses can be from n·(1 − coverage) by now."""
        first, last, miss = self._rates.min(), self._step().min(), self._miss
        several = len(self._rates) > 1
        late = 1 if several else waited
        far = max(1 - self._first + first * (1 - miss) * late, self._first + first * miss * late)
        most = far / first + (1 + first * late) * (1 / last - 1 / first)
        return float(most + (waited - 1) * max(miss, 1 - miss) if several else most)


def _check_asked(model: Any, X: Any, *answers: str) -> None:
    """Refuse what gives no intervals or radii, such as rows in place of a model."""
    if not any(hasattr(model, name) for name in answers):
        raise TypeError(
            f"pass a calibrated regressor (for predict_radius, a calibrator) first and the rows "
            f"second; got a {type(model).__name__} and a {type(X).__name__}."
        )


def coverage_needed(
    model: Any, X: Any, y: Any, *, groups: Any = None, weights: Any = None
) -> FloatArray:
    """For each row, the coverage above which its interval contains the target, (m,).

    It is 1 minus the conformal p-value of y, by the row's own group and weight.

    Where intervals need not grow with the level (``SLCP``, ``RCP``, ``LVD``, ``LCP``,
    ``ConditionalCalibration``, ``statistic="quantile"``), it is one of several such levels.

    Parameters
    ----------
    model : a calibrated object, or a calibrator
    X, y : (m, d) and (m,) rows and targets; for a calibrator, features and scores
    groups, weights : as ``predict_interval`` or ``predict_radius`` of the model takes them

    Returns
    -------
    (m,), from 0 to 1; 1 where no interval contains the target

    Examples
    --------
    >>> from calliper import Split
    >>> split = Split().fit(np.zeros((9, 1)), np.arange(1.0, 10.0))
    >>> coverage_needed(split, [[0.0], [0.0], [0.0]], [0.5, 5.5, 20.0])
    array([0. , 0.5, 0.9])
    """
    _check_asked(model, X, "predict_interval", "predict_radius")
    y, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
    y = valid.check_vector(y, "y", n=valid.n_rows(X))
    given = {"groups": groups, "weights": weights}
    how = {name: row_values(each, X, name) for name, each in given.items() if each is not None}
    needed = np.empty(len(y))
    with unheard(Warning):  # predict_interval has raised the same warnings
        for start in range(0, len(y), ROWS_SEARCHED):
            rows = np.arange(start, min(start + ROWS_SEARCHED, len(y)))
            of_rows = {name: _safe_indexing(values, rows) for name, values in how.items()}
            needed[rows] = _searched(model, _safe_indexing(X, rows), y[rows], of_rows)
    return needed


def _searched(model: Any, X: Any, y: FloatArray, how: dict[str, Any]) -> list[float]:
    """The level of each of a few rows."""
    low, high = np.zeros(len(y)), np.ones(len(y))

    def asked(levels: FloatArray) -> Any:
        if hasattr(model, "predict_radius"):
            return y[:, None] <= model.predict_radius(X, levels, **how)
        return model.predict_interval(X, levels, **how).contains(y)

    ranked, holds = model.ranking(X, y, **how) if hasattr(model, "ranking") else (None, asked)
    if ranked is not None:  # checked: just below it the target is outside, just above it inside
        around = np.concatenate([ranked - CLOSE, ranked + CLOSE])
        levels = np.unique(np.clip(around, CLOSE, 1 - CLOSE))
        if (holds(levels) == (levels > ranked[:, None])).all():
            return [*map(float, ranked)]
    while (wide := high - low > CLOSE).any():
        levels = np.unique(np.linspace(low[wide], high[wide], SECTIONS + 1)[1:-1])
        held = holds(levels)
        between = (levels > low[:, None]) & (levels < high[:, None])
        high = np.where(between & held, levels, high[:, None]).min(axis=1)
        low = np.where(between & (levels < high[:, None]), levels, low[:, None]).max(axis=1)
    return [_as_rank(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]


def _as_rank(low: float, high: float) -> float:
    """The level between these, as a rank over N + 1 if there is one."""
    for n in HORIZONS:
        rank = Fraction(high).limit_denominator(n)
        if low - 2 * TOLERANCE <= rank <= high:
            return float(rank)
    return high
