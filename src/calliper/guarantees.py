"""Marginal guarantees: the proven coverage, its assumptions and its limits.

All bounds are for N calibration rows and a new one that are exchangeable (for example independent
draws from one distribution), with a model that has seen neither. They are *marginal*: probabilities
over the draw of all these points. Given the calibration rows, coverage is a random number around
that value. With Q = ⌈(1−α)(N+1)⌉:

    split, MADSplit, full     Q/(N+1) ≥ 1−α
    Jackknife+                1 − (2(N+1−Q) − 1)/(N+1) ≥ 1−2α
    CV+, F folds              1 − 2α − min{2(1−1/F)/(N/F+1), (1−F/N)/(F+1)} ≥ 1−2α−√(2/N)

Letters: 1−α → ``coverage``, N → ``n``, Q → ``conformal_rank``, F → ``n_folds``.

References: Vovk (2012), "Conditional validity of inductive conformal predictors", arXiv:1209.2673.
Barber, Candès, Ramdas, Tibshirani (2021), "Predictive inference with the jackknife+",
doi:10.1214/20-AOS1965, Theorems 1 and 4.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log1p
from typing import Any

from scipy import stats

from calliper._notebook import card, floored, folded
from calliper._validation import check_level
from calliper.exceptions import CalliperError
from calliper.quantile import ROUNDING, as_fraction, conformal_rank

__all__ = ["ASSUMPTIONS", "Guarantee", "conformal_coverage", "coverage_law", "jackknife_coverage"]

#: What every guarantee assumes.
ASSUMPTIONS = (
    "calibration and new rows are exchangeable (for example, independent draws from the same "
    "distribution)",
    "the model, the embedding and all settings were chosen without using the calibration rows",
)
#: The first assumption where coverage given the calibration set is promised.
INDEPENDENT = "calibration and new rows are independent draws from the same distribution"
#: The first assumption where weights are given.
SHIFTED = (
    "calibration and new rows are independent draws; up to a constant, the density of "
    "new inputs is that of calibration inputs times w(x), the weights given; and given the inputs, "
    "targets have the same distribution"
)


def conformal_coverage(coverage: float, n: int) -> float:
    """The proven coverage Q/(N+1) of split, MADSplit and full conformal.

    Without ties, coverage is at most 1/(N+1) above the level, unless the radius is infinite.

    Parameters
    ----------
    coverage : the level asked for
    n : N, the number of calibration rows

    Returns
    -------
    float

    Examples
    --------
    >>> conformal_coverage(0.9, 99), conformal_coverage(0.9, 100)
    (0.9, 0.900990099009901)
    """
    return conformal_rank(check_level(coverage), n) / (n + 1)


def jackknife_coverage(coverage: float, n: int) -> float:
    """The proven coverage 1 − (2(N+1−Q) − 1)/(N+1) of Jackknife+ rescaling; 1 if Q = N+1.

    At most 2(N+1−Q) − 1 of N+1 exchangeable points can each beat Q others, since no two beat one
    another. For Q = N this is the full 1 − α. A negative bound is raised to 0.

    Parameters
    ----------
    coverage, n : as in :func:`conformal_coverage`

    Returns
    -------
    float

    Examples
    --------
    >>> jackknife_coverage(0.9, 99), jackknife_coverage(0.95, 20)
    (0.81, 0.9523809523809523)
    """
    misses = n + 1 - conformal_rank(check_level(coverage), n)
    return 1.0 if misses == 0 else max(0.0, 1 - (2 * misses - 1) / (n + 1))


def fold_coverage(coverage: float, n: int, n_folds: int) -> float:
    """1 − 2α − min{2(1−1/F)/(N/F+1), (1−F/N)/(F+1)}, at least 0: proved for CV+ rescaling.

    Methods leave out the whole fold of a calibration row, for its own scale and for the new
    point's. The first term holds for F folds of *any* sizes: the share of a fold's scores that are
    at least the new one is a p-value, and twice a weighted mean of p-values is one. The second
    rests on the exchange of whole folds, so F must divide N. It vanishes for F = N, the Jackknife+.

    >>> fold_coverage(0.9, 2000, 10), fold_coverage(0.9, 500, 50), fold_coverage(0.9, 500, 500)
    (0.7910447761194029, 0.7823529411764706, 0.8)
    """
    if not 2 <= n_folds <= n:
        raise CalliperError(f"n_folds must lie between 2 and n = {n}; got {n_folds}.")
    level = check_level(coverage)
    if conformal_rank(level, n) > n:
        return 1.0
    losses = [Fraction(2 * (n_folds - 1), n + n_folds)]
    if n % n_folds == 0:
        losses.append(Fraction(n - n_folds, n * (n_folds + 1)))
    return max(0.0, float(1 - 2 * (1 - as_fraction(level)) - min(losses)))


def coverage_law(coverage: float, n: int) -> Any:
    """Distribution of coverage given the calibration set: Beta(Q, N+1−Q), as a SciPy object.

    Exact for split conformal and MADSplit without ties, stochastically larger with ties (Vovk
    2012); not known for methods that compare a new point with the calibration rows one by one.

    Parameters
    ----------
    coverage, n : as in :func:`conformal_coverage`

    Returns
    -------
    frozen distribution of scipy.stats
        With ``ppf``, ``cdf``, ``mean`` and the like.

    Examples
    --------
    >>> law = coverage_law(0.9, 500)
    >>> law.ppf([0.05, 0.95]).round(3)
    array([0.877, 0.921])
    """
    rank = conformal_rank(check_level(coverage), n)
    if rank > n:
        raise ValueError(f"{n} rows are too few for level {coverage}: the radius is infinite.")
    return stats.beta(rank, n + 1 - rank)


def confident_rank(coverage: float, n: int, confidence: float) -> int:
    """The smallest Q with P(Beta(Q, N+1−Q) ≥ coverage) ≥ confidence; N+1 if there is none.

    That probability is P(Binomial(N, coverage) ≤ Q−1). Where :func:`coverage_law` holds, the Q-th
    smallest score reaches the coverage in at least that share of draws of N points.

    >>> confident_rank(0.9, 500, 0.95), confident_rank(0.9, 28, 0.95)
    (462, 29)
    """
    level, sure = check_level(coverage), check_level(confidence, "confidence")
    rest = float(1 - as_fraction(sure))
    allowed = rest + ROUNDING * min(rest, sure)  # what is equal but for rounding suffices
    # By points that are missed, and by the tail: both keep their digits next to 1.
    missed = stats.binom(n, float(1 - as_fraction(level)))
    rank = max(1, n - 1 - int(missed.ppf(rest)))  # one lower: a quantile may err by rounding
    while rank <= n and missed.cdf(n - rank) > allowed:  # P(Binomial(N, coverage) ≥ rank)
        rank += 1
    return rank


def required_for_confidence(coverage: float, confidence: float) -> int:
    """The smallest N whose largest score reaches the coverage with that confidence.

    >>> required_for_confidence(0.9, 0.95)
    29
    """
    level, sure = check_level(coverage), check_level(confidence, "confidence")
    n = max(1, ceil(log1p(-sure) / log1p(-float(1 - as_fraction(level)))) - 1)
    while confident_rank(level, n, sure) > n:
        n += 1
    return n


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of one fitted method at one level.

    Parameters
    ----------
    method : name of the method
    coverage : the level asked for
    n_calibration : N
    proved : the proved marginal coverage
    has_law : whether the Beta law of coverage given the calibration set is known
    tails : number of tails calibrated separately
    note : what replaces the usual guarantee, as the end of a sentence
    confidence : share of draws of the calibration set in which the level must be reached
    n_effective : under covariate shift, the equivalent number of points of equal weight
    event : what is guaranteed to happen
    around : what intervals are centred on, if it is not simply the prediction
    averages : what it averages over besides draws of the calibration rows
    groups : the number of groups in each of which it holds; 0 if there are none
    checks : which assumptions were checked and which were not, in whole sentences
    points : what its N points are called
    also : a sentence about what it holds for besides

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import Split
    >>> promise = Split().fit(np.zeros((99, 1)), np.arange(99.0)).guarantee(0.9)
    >>> promise.method, promise.proved, promise.n_calibration
    ('Split', 0.9, 99)
    """

    method: str
    coverage: float
    n_calibration: int
    proved: float
    has_law: bool = False
    tails: int = 1
    note: str | None = None
    confidence: float | None = None
    n_effective: float | None = None
    event: str = "a new target lies in its interval"
    around: str = ""
    averages: str = "all inputs"
    groups: int = 0
    checks: str = "calliper cannot check whether new rows meet these assumptions."
    points: str = "calibration"
    also: str = ""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for the guarantee to hold."""
        first = ASSUMPTIONS[0] if self.confidence is None else INDEPENDENT
        first = first if self.n_effective is None else SHIFTED
        return (f"within each group {first}" if self.groups else first, *ASSUMPTIONS[1:])

    def _repr_html_(self) -> str:
        facts = [
            f"requested: {self.coverage:g}",
            "" if self.confidence is None else f"with confidence {self.confidence:g}",
            f"proved: {floored(self.proved)}",
            f"{self.points} rows: {self.n_calibration:,}"
            + ("" if self.n_effective is None else f" (by weight {self.n_effective:.1f})"),
        ]
        title, words = f"Guarantee of {self.method}", self.describe()
        if self.proved <= 0 or self.note is not None:
            return card(title, [*facts, *words.splitlines()])
        if (spread := self._spread()) is not None:
            facts.append("coverage in nine of ten such cases: {:.3f} to {:.3f}".format(*spread))
        return card(title, facts, folded("In words", words))

    def _spread(self) -> tuple[float, float] | None:
        """Where coverage lies in nine of ten draws of the calibration rows, if that is known."""
        usual = self.note is None and self.n_effective is None and self.confidence is None
        if not usual or not self.has_law or self.tails != 1 or self._infinite():
            return None
        low, high = coverage_law(self.coverage, self.n_calibration).ppf([0.05, 0.95])
        return float(low), float(high)

    def describe(self) -> str:
        """The guarantee, its conditions, what it averages over, what was checked: a line each."""
        if self._infinite():
            sure = "" if self.confidence is None else f" with confidence {self.confidence:g}"
            return (
                f"{self.method}: {self.n_calibration:,} {self.points} rows cannot support "
                f"coverage {self.coverage:g}{sure}, so the interval is infinite and always covers."
            )
        lines = [f"{self.method}: {self.note or self._promise()}"]
        if self.note is None or self.proved > 0:
            lines += [self.provided(), self.averaged(), *self._besides(), self.checks]
        return "\n".join(line for line in lines if line)

    def _infinite(self) -> bool:
        """Whether there are too few points for the level."""
        if self.note is not None or self.n_effective is not None:
            return False
        n, level = self.n_calibration, 1 - (1 - self.coverage) / self.tails
        if self.confidence is None:
            return conformal_rank(level, n) > n
        return confident_rank(level, n, 1 - (1 - self.confidence) / self.tails) > n

    def _promise(self) -> str:
        if self.confidence is None:
            return (
                f"{self.event} with probability at least {floored(self.proved)} (requested: "
                f"{self.coverage:g})."
            )
        return (
            f"for this particular set of {self.n_calibration:,} calibration rows, {self.event} "
            f"with probability at least {self.coverage:g}. That holds in at least "
            f"{100 * self.confidence:.4g} % of draws of the calibration rows."
        )

    def provided(self) -> str:
        """The assumptions, a line each."""
        return "This holds if " + ",\nand if ".join(self.assumptions) + "."

    def averaged(self) -> str:
        """The line that says what the guarantee averages over."""
        over, begin = self.averages, "This probability is marginal"
        of = f"the {self.n_calibration:,} {self.points} rows"
        if self.groups:
            over, begin = over.replace("all inputs", "its inputs"), f"{begin} within each group"
            of = f"its {self.points} rows ({self.n_calibration:,} in the group with this guarantee)"
        if self.confidence is None:
            over += f" and over draws of {of}"
        if self.n_effective is not None:
            over += f", which by weight count for {self.n_effective:.1f}"
        none = "It says nothing about any single input."
        return f"{begin}: an average over {over}. {none}{self.also}"

    def _besides(self) -> list[str]:
        """Lines about weights, centres, and this particular calibration set."""
        lines = [f"These intervals are {self.around}."] if self.around else []
        if self.n_effective is not None:
            lines.append(
                "Weights ŵ that are estimated lower it by at most half the mean of |ŵ/mean ŵ − w|. "
                "A new row whose own weight is too large a share has an infinite interval."
            )
        spread = self._spread()
        if spread is not None:
            lines.append(
                f"For this particular calibration set, coverage lies between {spread[0]:.3f} and "
                f"{spread[1]:.3f} in nine cases out of ten."
            )
        elif self.confidence is None:
            lines.append(
                "For this particular calibration set, coverage may be lower or higher; for this "
                "method, no bound on the difference is known."
            )
        return lines
