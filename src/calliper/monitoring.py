"""Alarms for intervals in production: evidence that something is wrong, valid at any time.

A monitor bets against the claim that all is well. Where the claim holds its wealth, ``evidence``,
is a supermartingale that starts at 1, so it *ever* reaches 1/δ with probability at most δ (Ville),
however often one looks.

**Coverage.** Let m_t be 1 for a miss and 0 for a hit. What misses are compared with, p_t, is

- with a law of coverage: given N calibration points the miss rate is Beta(k, N+1−k) and not α, with
  k = N+1−Q. Averaged over calibration sets a stream of misses is Pólya's urn, hence
  p_t = max{(k + m_1 + … + m_{t−1})/(N + t), k/(N+1)}. The maximum leaves alone who misses less;
- with ties: the law is only a bound then, and p_t its upper δ/2 quantile; evidence starts at 1/2;
- a rate that the user tolerates; or α where each label joins the calibration points at once by
  ``extend``, at one level and without a window: misses of full conformal prediction and of split
  are then dominated by independent ones of rate α.

A change to rate p at step s multiplies wealth by p/p_t after each miss and by (1−p)/(1−p_t) after
each hit. The mean of that factor is 1 if p_t is the chance of a miss, and at most 1 if that is
smaller and p ≥ p_t. Evidence is the mean over K rates p and over all steps s, of weights

    π_s = a·1{s = 0} + (1−a)·c/((s+c)(s+c+1)),    a = 0.6, c = 1000.

For each p the sum over starts is one number, since wealth of all starts moves by the same factor.
Too wide is the same with k/(N+1) as the largest p_t and smaller p; it is known of continuous scores
alone. Assumed: rows are independent and from the law of the calibration rows, and whether a label
arrives does not depend on a miss.

**Exchangeability.** Each score has a rank among all before it, ties broken by a draw U:

    p_t = (#{i<t: s_i > s_t} + U (1 + #{i<t: s_i = s_t}))/n_t,

independent and uniform if scores are exchangeable (Vovk). Bets Π(1 + ε(p_t − ½)) of ε ∈ {−1, 0, 1}
share their wealth, a hundredth of it a step.

Letters: δ → ``false_alarms``, N → ``n_calibration``, m_t → not ``inside``.

References: Vovk, Nouretdinov, Gammerman (2003), "Testing exchangeability on-line", ICML. Vovk and
others (2021), "Retrain or not retrain: conformal test martingales for change-point detection", COPA
(simple jumper). Shin, Ramdas, Rinaldo (2024), "E-detectors", NEJSDS (mixtures over starts).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import exp, inf, log
from typing import Any, ClassVar, Self

import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from calliper._kept import Array, Field, Number
from calliper._types import BoolArray, FloatArray
from calliper._validation import at_least, check_inside, check_level, check_option, check_vector
from calliper._writing import to_text
from calliper.exceptions import CalliperError
from calliper.quantile import as_fraction, conformal_rank

__all__ = ["CoverageMonitor", "ExchangeabilityMonitor"]

#: The weight of a change before the first label, a; and how slowly the others fall, c.
AT_ONCE, SLOW = 0.6, 1000
#: Rates of misses that are bet on: their odds over those promised, and their weights.
ODDS = np.geomspace(1.4, 60, 16)
SHARES = ODDS**-0.5 / (ODDS**-0.5).sum()
#: Labels that are looked at together.
BLOCK = 10_000
#: The share of wealth that changes sides in a step.
JUMP = 0.01

COMPARED = (
    "pass n_calibration= (for a method with a law of coverage, such as Split), tolerated= (the "
    "share of misses that you accept), or online=True (each label joins by extend at once, with "
    "no window)"
)


class _Monitor(BaseEstimator):  # type: ignore[misc]
    """Evidence over time and the alarm."""

    false_alarms: float
    keeps: ClassVar[Mapping[str, Field]] = {}
    #: What each monitor writes: how it checks its parameters and sets out, what it saw in words,
    #: and what a file holds of it, which is all that came.
    _begin: Any
    _words: Any
    for_file: Any
    restore: Any
    #: Parameters when the first label came.
    _given: Mapping[str, Any] | None = None

    @property
    def log_evidence(self) -> FloatArray:
        """The natural logarithm of the evidence after each label, (T,)."""
        self._ready()
        return np.array(self._trace, dtype=np.float64)

    @property
    def evidence(self) -> float:
        """Wealth of the bets by now, 1 to begin with; an alarm at ``limit``."""
        self._ready()
        last = self._trace[-1] if self._trace else 0.0
        return exp(last) if last < 709 else inf

    @property
    def limit(self) -> float:
        """1/``false_alarms``: how much evidence sets off the alarm."""
        return 1 / check_level(self.false_alarms, "false_alarms")

    @property
    def alarm(self) -> bool:
        """Whether the limit was ever reached; it stays so."""
        return self.alarm_at is not None

    @property
    def alarm_at(self) -> int | None:
        """Place of the label that set it off, counted from 0; None without an alarm."""
        self._ready()
        return self._alarm_at

    @property
    def since(self) -> int | None:
        """Place of the label from which on things were most out of line, as of the alarm."""
        self._ready()
        return self._since

    def describe(self) -> str:
        """Whether there is an alarm and since when, in two sentences."""
        n, sure = len(self.log_evidence), f"with probability at most {self.false_alarms:.4g}"
        if self._alarm_at is None:
            said = f"No alarm after {n:,} labels: {self._words()}."
            return (
                f"{said} Evidence is {self.evidence:.3g} and sets off the alarm at "
                f"{self.limit:.4g}, which it ever reaches {sure} if nothing is wrong."
            )
        began = f"probably since label {self._since:,} (counted from 0)"
        said = f"Alarm after {self._alarm_at + 1:,} of {n:,} labels, {began}: {self._words()}."
        return f"{said} If nothing is wrong, such an alarm ever goes off {sure}."

    def to_json(self) -> str:
        """Parameters and all labels as text; :meth:`from_json` goes on from there."""
        self._ready()
        parts = {"parameters": self.get_params(), "seen": self.for_file()}
        return to_text({"monitor": type(self).__name__, **parts})

    @classmethod
    def from_json(cls, source: str | bytes) -> Self:
        """The monitor that :meth:`to_json` wrote, to the last bit."""
        try:
            read = json.loads(source)
            if read["monitor"] != cls.__name__:
                raise ValueError(f"it is a {read['monitor']}")
            made, seen = cls(**read["parameters"]), read["seen"]
            made.restore({name: seen[name] for name in cls.keeps})
            return made
        except (ValueError, KeyError, TypeError) as error:
            raise CalliperError(
                f"expected what {cls.__name__}.to_json writes; it cannot be read ({error!r})."
            ) from error

    def _ready(self) -> None:
        """Begin if that was not done; later, refuse parameters that changed."""
        given = self.get_params()
        if self._given is None:
            self._trace: list[float] = []
            self._alarm_at: int | None = None
            self._since: int | None = None
            self._begin()
            self._given = given
        elif given != self._given:
            raise CalliperError(
                f"parameters were {self._given} when the monitor began and are {given} now: its "
                f"false alarms are bounded for those that stay. Set them back, or begin anew."
            )


@dataclass(eq=False, repr=False)
class CoverageMonitor(_Monitor):
    """Watches whether intervals miss more often than promised, or are too wide.

    Parameters
    ----------
    coverage : float, default 0.9
        The level that was asked for, the same for all labels.
    n_calibration : int, optional
        N, for intervals of a method with a law of coverage and one calibration set; :meth:`of`
        reads it from the model.
    tolerated : float, optional
        In its place, for any method: the share of misses that you accept.
    online : bool, default False
        In its place: each label joins the calibration points by ``extend`` before the next row is
        asked for, always, and no window drops any.
    side : {"more", "fewer", "both"}, default "more"
        What to look for: more misses than promised, or fewer, which is intervals that are too wide.
        Fewer can be told of continuous scores alone: with ties intervals are wider by nature.
    ties : bool, default False
        Whether scores may be equal, as of whole numbers. The law is a bound then, and alarms come
        later.
    tails : int, default 1
        2 for ``Split`` with a width for each side.
    false_alarms : float, default 0.05
        The probability with which a stream that is as promised ever sets off the alarm, at most.

    Examples
    --------
    >>> monitor = CoverageMonitor(0.9, n_calibration=500)
    >>> monitor.update([True] * 9 + [False]).alarm
    False
    >>> monitor.update([True, False] * 10).alarm, monitor.since
    (True, 9)
    """

    coverage: float = 0.9
    n_calibration: int | None = None
    _: KW_ONLY
    tolerated: float | None = None
    online: bool = False
    side: str = "more"
    ties: bool = False
    tails: int = 1
    false_alarms: float = 0.05

    keeps: ClassVar[Mapping[str, Field]] = {"inside": Array("bool", ("T",))}

    @classmethod
    def of(cls, model: Any, coverage: float = 0.9, **how: Any) -> Self:
        """A monitor of what a calibrated model promises at a level.

        Parameters
        ----------
        model : calibrated object or calibrator
        coverage : the level of its intervals
        how : other parameters, by name. A method without a law of coverage, as the default has
            none, needs ``tolerated`` or ``online``
        """
        if how.get("tolerated") is not None:
            return cls(coverage, **how)
        promise = model.guarantee(coverage)
        name, usual = promise.method, promise.note is None and promise.n_effective is None
        if how.get("online"):
            if not usual or promise.proved < promise.coverage:
                raise CalliperError(
                    f"{name} proves {promise.proved:.4g} at level {coverage:g}, so that misses may "
                    f"be more frequent with nothing wrong: pass tolerated=, the share of misses "
                    f"that you accept."
                )
            return cls(coverage, **how)
        known = usual and promise.has_law and not promise.groups
        if not known or (promise.tails > 1 and name != "Split"):
            raise CalliperError(
                f"no law is known of the coverage of {name} given these calibration points, as it "
                f"was calibrated, and the level alone would alarm on honest ones: pass tolerated=, "
                f"the share of misses that you accept; or online=True if each label joins by "
                f"extend at once, with no window; or calibrate a method with a law, such as Split."
            )
        return cls(coverage, promise.n_calibration, tails=promise.tails, **how)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _begin(self) -> None:
        miss, limit = 1 - as_fraction(check_level(self.coverage)), self.limit
        check_option(self.side, ("more", "fewer", "both"), "side")
        ways = [self.n_calibration is not None, self.tolerated is not None, bool(self.online)]
        if sum(ways) != 1:
            raise CalliperError(f"what are misses compared with? {COMPARED}: one of these.")
        if self.side != "more" and (self.online or self.ties):
            raise CalliperError(
                f"side={self.side!r} needs a miss rate that is reached and not only a bound on it: "
                f"continuous scores of a method with a law, or tolerated=."
            )
        #: An urn of ``_urn[0]`` misses in ``_urn[1]``; one so large that draws change nothing.
        self._urn: tuple[float, float] = (0.0, inf)
        self._promised, start = float(miss), 0.0
        if self.tolerated is not None:
            self._promised = check_level(self.tolerated, "tolerated")
        elif self.n_calibration is not None:
            n = at_least(self.n_calibration, 1, "n_calibration")
            tails = at_least(self.tails, 1, "tails")
            k = tails * (n + 1 - conformal_rank(float(1 - miss / tails), n))
            if not 0 < k <= n:
                raise CalliperError(
                    f"{n} calibration points cannot support coverage {self.coverage:g}: intervals "
                    f"are infinite or say nothing, so that there is nothing to watch."
                )
            self._urn, self._promised = (k, n + 1), k / (n + 1)
            if self.ties:
                self._urn, start = (0.0, inf), -log(2)
                self._promised = float(stats.beta(k, n + 1 - k).isf(1 / limit / 2))
        odds = self._promised / (1 - self._promised)
        more = odds * ODDS / (1 + odds * ODDS)
        sides = {"more": more, "fewer": odds / ODDS / (1 + odds / ODDS)}
        rates = [sides[each] for each in sides if self.side in (each, "both")]
        self._rates: FloatArray = np.concatenate(rates)
        #: ln of what each rate is given, that is of its share of the wealth; and the wealth of all
        #: starts so far over the walk of the rate, the walk, its least value, and where that was.
        self._share: FloatArray = np.log(np.tile(SHARES, len(rates)) / len(rates)) + start
        self._start = start
        self._sums: FloatArray = np.full(len(self._rates), -inf)
        self._walk: FloatArray = np.zeros(len(self._rates))
        self._least: FloatArray = np.zeros(len(self._rates))
        self._least_at = np.zeros(len(self._rates), dtype=np.int64)
        self._missed: list[bool] = []
        self._n_missed = 0

    def update(self, inside: Any) -> Self:
        """Say what came, in order of time; a batch is the same as its labels one by one.

        Parameters
        ----------
        inside : bool or (m,) of bool
            Whether each target lay in its interval, as ``intervals.contains(y)`` says it.
        """
        self._ready()
        held = check_inside(inside)
        for begin in range(0, len(held), BLOCK):
            self._look(~held[begin : begin + BLOCK])
        return self

    def _look(self, missed: BoolArray) -> None:
        """Bet on each of some labels."""
        seen, size = len(self._missed), len(missed)
        steps = seen + np.arange(size)
        promised = np.full((size, 1), self._promised)
        known, of = self._urn
        if of < inf:
            urn = ((known + self._n_missed + np.cumsum(missed) - missed) / (of + steps))[:, None]
            more = self._rates > self._promised
            promised = np.where(more, np.maximum(urn, promised), np.minimum(urn, promised))
        one, rates = missed[:, None], self._rates
        moves = np.where(one, np.log(rates / promised), np.log1p(-rates) - np.log1p(-promised))
        walk = np.add.accumulate(np.vstack([self._walk, moves]))
        later = (1 - AT_ONCE) * SLOW / (SLOW + seen + np.arange(size + 1))  # weight of later starts
        new = np.log(later[:-1] / (steps + SLOW + 1) + AT_ONCE * (steps == 0))
        sums = np.logaddexp.accumulate(np.vstack([self._sums, new[:, None] - walk[:-1]]))[1:]
        wealth = np.logaddexp.reduce(self._share + sums + walk[1:], axis=1)
        wealth = np.logaddexp(wealth, self._start + np.log(later[1:]))
        alarms = np.flatnonzero(wealth >= log(self.limit))
        if self._alarm_at is None:
            last = int(alarms[0]) + 1 if len(alarms) else size
            lowest = walk[: last + 1].min(axis=0)
            at = seen + walk[: last + 1].argmin(axis=0)
            self._least_at = np.where(lowest < self._least, at, self._least_at)
            self._least = np.minimum(lowest, self._least)
            if len(alarms):
                rise = walk[last] - self._least
                self._alarm_at, self._since = seen + last - 1, int(self._least_at[rise.argmax()])
        self._walk, self._sums = walk[-1], sums[-1]
        self._trace += wealth.tolist()
        self._missed += missed.tolist()
        self._n_missed += int(missed.sum())

    def for_file(self) -> dict[str, Any]:
        """What a file holds: whether each target was inside."""
        self._ready()
        return {"inside": ~np.array(self._missed, dtype=bool)}

    def restore(self, state: dict[str, Any]) -> None:
        """As it was after the last label."""
        self._ready()
        if len(state["inside"]):
            self.update(state["inside"])

    def _words(self) -> str:
        n, since = len(self._missed), self._since or 0
        misses = sum(self._missed[since:])
        share = f"{misses:,} of {n - since:,} were missed" + (" since then" if self.alarm else "")
        what = "is tolerated" if self.tolerated is not None else "is promised"
        return f"{share}, {misses / max(n - since, 1):.2%}, where {self._promised:.2%} {what}"


@dataclass(eq=False, repr=False)
class ExchangeabilityMonitor(_Monitor):
    """Watches whether errors still look like those of the calibration rows, larger or smaller.

    It notices what widths hide: errors that grow while intervals grow with them. Scores must come
    from one *fixed* function for calibration rows and stream, such as |y − ŷ|, or |y − ŷ|/σ(x) with
    a σ learnt elsewhere: scores over a scale that labels change alarm for nothing. Rows that the
    model or the scale learnt from may not be among the first ones.

    Parameters
    ----------
    false_alarms : float, default 0.05
        The probability with which an exchangeable stream ever sets off the alarm, at most.
    random_state : int, optional
        What the draws depend on that break ties and fill the steps between ranks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> monitor = ExchangeabilityMonitor(random_state=0).fit(rng.exponential(size=500))
    >>> monitor.update(rng.exponential(size=200)).alarm
    False
    >>> monitor.update(2 * rng.exponential(size=200)).alarm
    True
    """

    false_alarms: float = 0.05
    _: KW_ONLY
    random_state: int | None = None

    keeps: ClassVar[Mapping[str, Field]] = {
        "first": Array("float64", ("N",)),
        "scores": Array("float64", ("T",)),
        "seed": Number(int, 0),
    }
    #: Scores of calibration rows, none before ``fit``.
    _first = np.empty(0)

    def __sklearn_is_fitted__(self) -> bool:
        return bool(len(self._first))

    def fit(self, scores: Any, y: None = None) -> Self:
        """Begin with the scores of calibration rows, (N,)."""
        first = check_vector(scores, "scores")
        if not len(first):
            raise CalliperError("scores of calibration rows were expected, and there are none.")
        seed = self.random_state
        seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        self._seed = at_least(seed, 0, "random_state")
        self._first, self._given = first, None
        self._ready()
        return self

    def _begin(self) -> None:
        if not len(self._first):
            raise NotFittedError("call fit with the scores of calibration rows first.")
        self._log_limit = log(self.limit)
        self._draws = np.random.default_rng(self._seed)
        self._sorted: list[float] = np.sort(self._first).tolist()
        self._scores: list[float] = []
        self._wealth = np.full(3, 1 / 3)  # of ε = −1, 0, 1; its sum is kept at 1
        self._log_wealth = 0.0
        #: Of ε = −1 and 1: the walk, its least value, and where that was.
        self._walks: dict[int, tuple[float, float, int]] = {-1: (0.0, 0.0, 0), 1: (0.0, 0.0, 0)}

    def update(self, scores: Any) -> Self:
        """Scores of new rows, a number or (m,), in order of time."""
        self._ready()
        new = check_vector(np.atleast_1d(scores), "scores")
        if not len(new):
            raise CalliperError("update needs at least one score; got none.")
        for score, draw in zip(new.tolist(), self._draws.random(len(new)).tolist(), strict=True):
            low, high = bisect_left(self._sorted, score), bisect_right(self._sorted, score)
            n = len(self._sorted)
            self._bet((n - high + draw * (1 + high - low)) / (n + 1))
            self._sorted.insert(high, score)
            self._scores.append(score)
        return self

    def _bet(self, p: float) -> None:
        """Bet on one rank."""
        n, sides = len(self._trace), np.array([-1, 0, 1])
        self._wealth = ((1 - JUMP) * self._wealth + JUMP / 3) * (1 + sides * (p - 0.5))
        total = float(self._wealth.sum())
        self._wealth, self._log_wealth = self._wealth / total, self._log_wealth + log(total)
        self._trace.append(self._log_wealth)
        if self._alarm_at is not None:
            return
        for side, (walk, least, at) in self._walks.items():
            walk += log(1 + side * (p - 0.5))
            self._walks[side] = (walk, walk, n + 1) if walk < least else (walk, least, at)
        if self._log_wealth >= self._log_limit:
            self._alarm_at, self._since = n, self._walks[self._side()][2]

    def _side(self) -> int:
        """−1 if scores grew, 1 if they shrank."""
        return max(self._walks, key=lambda side: self._walks[side][0] - self._walks[side][1])

    def for_file(self) -> dict[str, Any]:
        """What a file holds: all scores, and what the draws depend on."""
        self._ready()
        return {"first": self._first, "scores": np.array(self._scores), "seed": self._seed}

    def restore(self, state: dict[str, Any]) -> None:
        """As it was after the last score."""
        self.fit(state["first"])
        self._seed, self._given = at_least(state["seed"], 0, "seed"), None
        if len(state["scores"]):
            self.update(state["scores"])

    def _words(self) -> str:
        if not self.alarm:
            return f"scores look like the {len(self._first):,} of calibration rows"
        return f"scores have become {'larger' if self._side() < 0 else 'smaller'}"
