"""Alarms for intervals in production: evidence that something is wrong, valid at any time.

A monitor bets against the claim that nothing is wrong. If nothing is, its wealth, ``evidence``, is
a supermartingale that starts at 1 and *ever* reaches 1/δ with probability at most δ (Ville).

**Coverage.** Misses, m_t = 1, and hits, m_t = 0, are compared with the rate p_t:

- If the method has a law of coverage, the miss rate given N calibration rows is not α but
  Beta(k, N+1−k), k = N+1−Q. Over draws of these points, misses follow Pólya's urn:
  p_t = max{(k + m_1 + … + m_{t−1})/(N+t), k/(N+1)}; the maximum allows for fewer misses. With ties
  the law is a bound, p_t is its upper δ/2 quantile, and evidence starts at 1/2.
- Otherwise p_t is a rate that the user tolerates; or α if each label joins the calibration rows
  at once, at one level and with no window: misses are then dominated by independent ones of rate α.

A bet on rate p from step s on multiplies wealth by p/p_t after each miss and by (1−p)/(1−p_t) after
each hit: by 1 on average if misses have probability p_t, by less if it is smaller and p > p_t.
Evidence is the mean over a grid of p and over all s, weighted a·1{s=0} + (1−a)·c/((s+c)(s+c+1)):
all starts move by the same factor, so one number for each p holds their sum. Fewer misses are found
likewise, by smaller p and the minimum, if scores are continuous. Assumed: rows are independent and
distributed like calibration rows, and labels arrive in any order, but not because they are misses.

**Exchangeability.** p_t = (#{i<t: s_i > s_t} + U(1 + #{i<t: s_i = s_t}))/n_t are independent and
uniform for exchangeable scores. Bets Π(1 + ε(p_t − ½)), ε ∈ {−1, 0, 1}, exchange a hundredth of
their wealth at each step.

Letters: δ → ``false_alarms``, N → ``n_calibration``, a, c → ``FIRST_START``, ``SLOW``.

References: Vovk, Nouretdinov, Gammerman (2003), "Testing exchangeability on-line", ICML. Vovk and
others (2021), "Retrain or not retrain", COPA (simple jumper). Shin, Ramdas, Rinaldo (2024),
"E-detectors", NEJSDS (mixtures over starts).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import exp, inf, log
from typing import Any, ClassVar, Self

import numpy as np
from scipy import stats
from sklearn.exceptions import NotFittedError

from calliper import _validation as valid
from calliper._kept import Array, Field, Number
from calliper._types import BoolArray, FloatArray
from calliper.exceptions import CalliperError
from calliper.online import Stream, refuse_second_labels
from calliper.quantile import as_fraction, conformal_rank

__all__ = ["CoverageMonitor", "ExchangeabilityMonitor"]

#: The weight of a change before the first label, a; and how slowly the others fall, c.
FIRST_START, SLOW = 0.6, 1000
#: Rates of misses that are bet on: their odds over those promised, and their weights.
ODDS = np.geomspace(1.4, 60, 16)
SHARES = ODDS**-0.5 / (ODDS**-0.5).sum()
#: Labels that are looked at together.
LABELS_TOGETHER = 10_000
#: What a file keeps of the steps that labels were named by, none or all.
STEPS = {"steps": Array("int64", ("n",))}
#: The share of wealth that changes sides, ε, in a step.
JUMP, SIDES = 0.01, np.array([-1, 0, 1])
HOW = (
    "pass exactly one of tolerated=, the share of misses that you accept; online=True, if extend "
    "adds each label immediately and without a window; or n_calibration=, for a method whose "
    "coverage has a known distribution, such as Split"
)


class _Monitor(Stream):
    """Evidence and the alarm; a subclass checks labels, bets on them, and says what it saw."""

    _kind: type = float
    _start = 0.0

    @property
    def log_evidence(self) -> FloatArray:
        """The natural logarithm of the evidence after each label, (T,)."""
        self._ready()
        return np.array(self._trace)

    @property
    def evidence(self) -> float:
        """Wealth of the bets by now."""
        self._ready()
        last = self._trace[-1] if self._trace else self._start
        return exp(last) if last < 709 else inf

    @property
    def limit(self) -> float:
        """1/``false_alarms``: how much evidence raises the alarm."""
        return 1 / valid.check_level(self.false_alarms, "false_alarms")

    @property
    def alarm(self) -> bool:
        """Whether the limit was ever reached; it stays so."""
        return self.alarm_at is not None

    @property
    def alarm_at(self) -> int | None:
        """The label that set it off: its step, or its number counted from 0; None without."""
        self._ready()
        return self._step_of(self._alarm_at)

    @property
    def since(self) -> int | None:
        """The label from which on things were most out of line, as of the alarm; likewise."""
        self._ready()
        return self._step_of(self._since)

    def _step_of(self, number: int | None) -> int | None:
        return number if number is None or not self._named else [*self._named][number]

    def _begin(self) -> None:
        valid.check_level(self.false_alarms, "false_alarms")
        self._trace: list[float] = []
        self._seen: list[Any] = []
        self._named: dict[int, None] = {}  # the step of each label, in order of arrival
        self._alarm_at: int | None = None
        self._since: int | None = None

    def _update(self, labels: Any, step: Any) -> Self:
        """Add labels, each with its step if steps are named."""
        self._ready()
        new = self._checked(labels)
        if (step is None) == bool(self._named) and self._seen:
            how_many = f"{len(self._named)} of {len(self._seen)} labels so far came with a step"
            raise CalliperError(f"{how_many}: pass a step for every label, or for none.")
        names = [] if step is None else valid.check_steps(step)
        if names and len(names) != len(new):
            raise CalliperError(f"got {len(names)} steps for {len(new)} labels: pass one for each.")
        refuse_second_labels(names, self._named.__contains__)
        self._named |= dict.fromkeys(names)
        for begin in range(0, len(new), LABELS_TOGETHER):
            some = new[begin : begin + LABELS_TOGETHER]
            self._look(some)
            self._seen += some.tolist()
        return self

    def describe(self) -> str:
        """Whether there is an alarm and since when, in two sentences."""
        n, sure = len(self.log_evidence), f"with probability at most {self.false_alarms:.4g}"
        if self._alarm_at is None:
            said = f"No alarm after {n:,} label{'s' * (n != 1)}: {self._words()}. Evidence is "
            said += f"{self.evidence:.3g}; the alarm is raised at {self.limit:.4g}, which ever"
            return f"{said} happens {sure} if nothing is wrong."
        began = f"step {self.since}" if self._named else f"label {self._since:,} (counted from 0)"
        said = f"Alarm after {self._alarm_at + 1:,} of {n:,} labels, probably since {began}"
        return f"{said}: {self._words()}. If nothing is wrong, an alarm is ever raised {sure}."

    def for_file(self) -> dict[str, Any]:
        """What a file holds: all that came."""
        self._ready()
        came: dict[str, Any] = {"seen": np.array(self._seen, self._kind)}
        came["steps"] = np.array([*self._named], np.int64)
        return {name: came[name] if name in came else vars(self)[f"_{name}"] for name in self.keeps}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state after the last label."""
        self._ready()
        if len(state["seen"]):
            self._update(state["seen"], step=state["steps"] if len(state["steps"]) else None)


@dataclass(eq=False, repr=False)
class CoverageMonitor(_Monitor):
    """Watch whether intervals miss more often than promised, or are too wide.

    Parameters
    ----------
    coverage : the level of the intervals, the same for all labels
    n_calibration : N, for a method with a law of coverage and one calibration set, see :meth:`of`
    tolerated : instead, for any method: the share of misses that you accept
    online : instead of both: ``extend`` gets each label before the next row, without a window
    side : {"more", "fewer", "both"}, misses than promised; fewer means intervals that are too wide
    ties : whether scores may be equal: the law is then a bound, and alarms come later
    tails : 2 for ``Split`` with ``SignedError``, a width for each side
    false_alarms : upper bound on the probability that a stream as promised ever raises the alarm

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

    keeps: ClassVar[Mapping[str, Field]] = {"seen": Array("bool", ("T",)), **STEPS}
    _kind, _checked = bool, staticmethod(valid.check_inside)

    @classmethod
    def of(cls, model: Any, coverage: float = 0.9, **how: Any) -> Self:
        """A monitor of what a calibrated model or calibrator promises at a level.

        ``how`` are other parameters, by name; a method without a law of coverage, such as the
        default, needs ``tolerated`` or ``online``.
        """
        try:
            promise = model.guarantee(coverage)
        except AttributeError as error:
            raise TypeError(
                "expected a calibrated regressor, or a fitted calibrator, whose level is constant; "
                f"got a {type(model).__name__}."
            ) from error
        if how.get("tolerated") is not None:
            return cls(coverage, **how)._tried()
        known = promise.note is None and promise.n_effective is None
        if how.get("online"):
            lawful, n = promise.proved > coverage - 1e-9, None
        else:
            lawful, n = promise.has_law and not promise.groups, promise.n_calibration
            how = {"tails": promise.tails, **how}
        if not known or not lawful:
            raise CalliperError(
                f"the distribution of coverage is not known for {promise.method} calibrated "
                f"this way (proved at level {coverage:g}: {promise.proved:.4g}): {HOW}."
            )
        return cls(coverage, n, **how)._tried()

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _begin(self) -> None:
        super()._begin()
        miss = 1 - as_fraction(valid.check_level(self.coverage))
        valid.check_option(self.side, ("more", "fewer", "both"), "side")
        ways = [self.n_calibration is not None, self.tolerated is not None, bool(self.online)]
        if sum(ways) != 1:
            raise CalliperError(f"the miss rate to compare with must be set once: {HOW}.")
        if self.side != "more" and (self.online or self.ties):
            raise CalliperError(
                f"side={self.side!r} needs an exact miss rate, not a bound: pass tolerated=, or "
                "n_calibration= without ties."
            )
        self._urn: tuple[int, int] | None = None  # misses, and all
        self._promised = float(miss)
        if self.tolerated is not None:
            self._promised = valid.check_level(self.tolerated, "tolerated")
            if self._promised > (1 + miss) / 2:
                raise CalliperError(
                    f"tolerated is a share of misses, at most {float(1 + miss) / 2:g} at level "
                    f"{self.coverage:g}; got {self.tolerated!r}."
                )
            if self.side == "more" and self._promised < miss * 0.999:
                raise CalliperError(
                    f"tolerated must be at least {float(miss):g}, since intervals at level "
                    f"{self.coverage:g} may miss that share of targets; got {self.tolerated!r}."
                )
        elif self.n_calibration is not None:
            n = valid.at_least(self.n_calibration, 1, "n_calibration")
            tails = valid.at_least(self.tails, 1, "tails")
            k = tails * (n + 1 - conformal_rank(float(1 - miss / tails), n))
            if not 0 < k <= n:
                few = f"{n} calibration rows cannot support coverage {self.coverage:g}"
                raise CalliperError(f"{few}: every interval is infinite.")
            self._urn, self._promised = (k, n + 1), k / (n + 1)
            if self.ties:
                self._urn, self._start = None, -log(2)
                self._promised = float(stats.beta(k, n + 1 - k).isf(self.false_alarms / 2))
        sides = {"more": ODDS, "fewer": 1 / ODDS}
        chosen = [sides[each] for each in sides if self.side in (each, "both")]
        odds = np.concatenate(chosen) * self._promised / (1 - self._promised)
        self._rates: FloatArray = odds / (1 + odds)
        self._shares = np.log(np.tile(SHARES, len(chosen)) / len(chosen)) + self._start
        # For each rate: log wealth, its minimum and when; log of the sum over starts of
        # weight/wealth, with the wealth at the start.
        self._walk, self._least, self._sums = np.zeros(len(odds)), np.zeros(len(odds)), odds - inf
        self._least_at = np.zeros(len(odds), dtype=np.int64)
        self._n_missed = 0

    def update(self, inside: Any, *, step: Any = None) -> Self:
        """Add labels as they arrive, bool or (m,), the same one by one: ``intervals.contains(y)``.

        ``step`` is the step that each label belongs to, in any order: for labels that come late.
        """
        return self._update(inside, step)

    def _look(self, inside: BoolArray) -> None:
        missed, seen, size = ~inside, len(self._seen), len(inside)
        steps, rates = seen + np.arange(size), self._rates
        promised = np.full((size, 1), self._promised)
        if self._urn is not None:
            misses = self._urn[0] + self._n_missed + np.cumsum(missed) - missed
            urn = (misses / (self._urn[1] + steps))[:, None]
            ends = np.maximum(urn, promised), np.minimum(urn, promised)
            promised = np.where(rates > self._promised, *ends)
        hit = np.log1p(-rates) - np.log1p(-promised)
        moves = np.where(missed[:, None], np.log(rates / promised), hit)
        walk = np.add.accumulate(np.vstack([self._walk, moves]))
        later = (1 - FIRST_START) * SLOW / (SLOW + seen + np.arange(size + 1))  # of later starts
        new = np.log(later[:-1] / (steps + SLOW + 1) + FIRST_START * (steps == 0))
        sums = np.logaddexp.accumulate(np.vstack([self._sums, new[:, None] - walk[:-1]]))[1:]
        wealth = np.logaddexp.reduce(self._shares + sums + walk[1:], axis=1)
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
        self._n_missed += int(missed.sum())

    def _words(self) -> str:
        n, since = len(self._seen), self._since or 0
        misses = n - since - sum(self._seen[since:])
        share = f"{misses:,} of {n - since:,} lay outside" + (" since then" if self.alarm else "")
        what = "is tolerated" if self.tolerated is not None else "is promised"
        return f"{share}, {misses / max(n - since, 1):.2%}, where {self._promised:.2%} {what}"


@dataclass(eq=False, repr=False)
class ExchangeabilityMonitor(_Monitor):
    """Watch whether errors still look like those of the calibration rows, or are larger or smaller.

    It notices errors that grow while intervals grow with them. Scores of calibration rows and
    stream must come from one *fixed* function, such as ``|y − ŷ|``, or that divided by a σ(x)
    learnt elsewhere; rows that the model or the scale was trained on must not be passed to ``fit``.

    Parameters
    ----------
    false_alarms : upper bound on the probability that an exchangeable stream raises the alarm
    random_state : seeds the draws that break ties and fill the steps between ranks

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
        "seed": Number(int, 0),
        "seen": Array("float64", ("T",)),
        **STEPS,
    }
    #: Scores of calibration rows, none before ``fit``.
    _first = np.empty(0)

    def fit(self, scores: Any, y: None = None) -> Self:
        """Begin with the scores of calibration rows, (N,)."""
        first, seed = self._checked(scores), self.random_state
        seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        self._seed = valid.at_least(seed, 0, "random_state")
        self._first, self._given = first, None
        self._ready()
        return self

    @staticmethod
    def _checked(scores: Any) -> FloatArray:
        checked = valid.check_vector(np.atleast_1d(scores), "scores")
        if not len(checked):
            raise CalliperError("expected at least one score; got none.")
        return checked

    def _begin(self) -> None:
        super()._begin()
        if not len(self._first):
            raise NotFittedError("call fit with the scores of calibration rows first.")
        self._draws = np.random.default_rng(self._seed)
        #: All scores so far in order: most of them, and the latest, which are still to be merged.
        self._sorted, self._fresh = np.sort(self._first), list[float]()
        self._wealth, self._log_wealth = np.full(3, 1 / 3), 0.0  # its sum is kept at 1
        #: Of ε = −1 and 1: the walk, its least value, and where that was.
        self._walks: dict[int, tuple[float, float, int]] = {-1: (0.0, 0.0, 0), 1: (0.0, 0.0, 0)}

    def update(self, scores: Any, *, step: Any = None) -> Self:
        """Add scores of new rows, a number or (m,), as they arrive; ``step`` names their steps."""
        return self._update(scores, step)

    def _look(self, scores: FloatArray) -> None:
        draws, fresh = self._draws.random(len(scores)).tolist(), self._fresh
        below = np.searchsorted(self._sorted, scores).tolist()
        up_to = np.searchsorted(self._sorted, scores, "right").tolist()
        for score, draw, low, high in zip(scores.tolist(), draws, below, up_to, strict=True):
            n, index = len(self._sorted) + len(fresh), bisect_right(fresh, score)
            low, high = low + bisect_left(fresh, score), high + index
            p = (n - high + draw * (1 + high - low)) / (n + 1)
            fresh.insert(index, score)
            self._wealth = ((1 - JUMP) * self._wealth + JUMP / 3) * (1 + SIDES * (p - 0.5))
            total = float(self._wealth.sum())
            self._wealth, self._log_wealth = self._wealth / total, self._log_wealth + log(total)
            self._trace.append(self._log_wealth)
            if self._alarm_at is None:
                self._walk(p)
        if len(fresh) >= LABELS_TOGETHER:
            self._sorted, self._fresh = np.sort(np.append(self._sorted, fresh), kind="stable"), []

    def _walk(self, p: float) -> None:
        """Where things were most out of line, and whether there is an alarm."""
        n = len(self._trace)
        for side, (walk, least, at) in self._walks.items():
            walk += log(1 + side * (p - 0.5))
            self._walks[side] = (walk, walk, n) if walk < least else (walk, least, at)
        if self._log_wealth >= log(self.limit):
            self._alarm_at, self._since = n - 1, self._walks[self._side()][2]

    def _side(self) -> int:
        """−1 if scores grew, 1 if they shrank."""
        return max(self._walks, key=lambda side: self._walks[side][0] - self._walks[side][1])

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state after the last score."""
        self.fit(state["first"])
        self._seed, self._given = valid.at_least(state["seed"], 0, "seed"), None
        super().restore(state)

    def _words(self) -> str:
        if not self.alarm:
            return f"scores look like the {len(self._first):,} of calibration rows"
        return f"scores have become {'larger' if self._side() < 0 else 'smaller'}"
