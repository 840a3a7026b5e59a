"""Coverage over calibration draws, against the law that theory gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from calliper._types import FloatArray
from calliper._validation import check_levels, check_vector
from calliper.exceptions import CalliperError
from calliper.guarantees import coverage_law
from calliper.metrics._bins import at_least
from calliper.quantile import conformal_rank
from calliper.report.displays._style import BLUE, TARGET, VERMILION, entitle, percent, start


@dataclass(eq=False)
class CoverageLawDisplay:
    """Coverage of many calibration sets of one size, beside its law; from :meth:`from_coverages`.

    The law, Beta(Q, N+1−Q) with Q = ⌈c(N+1)⌉, is exact for split conformal prediction and
    MADSplit if points are exchangeable and scores have no ties. Coverage measured on ``n_test``
    points scatters more: the law is then beta-binomial with the same parameters.

    What to see: bars that follow the line. Bars to the left of it mean that exchangeability
    fails, or that another method was used, which has no known law (a narrower or wider heap is
    then no fault).

    Attributes
    ----------
    coverages : (R,) measured coverage of each calibration draw, ascending
    coverage : the level asked for
    n_calibration, n_test : N, and the test points of each measurement (None: exact)
    mean, error : of the coverages, and the standard error of that mean
    law_mean : Q/(N+1)
    law_quantiles : 5th and 95th percentile of the law
    x, density : the law, at 400 points or at each possible coverage
    share_inside : share of the coverages between the two percentiles
    ax_, figure_ : where it was drawn last
    """

    coverages: FloatArray
    coverage: float
    n_calibration: int
    n_test: int | None
    mean: float
    error: float
    law_mean: float
    law_quantiles: tuple[float, float]
    x: FloatArray
    density: FloatArray
    share_inside: float
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_coverages(
        cls, coverages: Any, *, coverage: float, n_calibration: int, n_test: int | None = None
    ) -> CoverageLawDisplay:
        """Set measured coverages beside their law.

        Parameters
        ----------
        coverages : array of shape (R,)
            One for each independent calibration set of ``n_calibration`` points.
        coverage : float
            The level asked for.
        n_calibration : int
        n_test : int, optional
            Test points that each was measured on; leave out if coverage is known exactly.
        """
        values = np.sort(check_vector(coverages, "coverages"))
        if len(values) < 2 or values[0] < 0 or values[-1] > 1:
            raise CalliperError(
                f"coverages must be at least two shares between 0 and 1; got {len(values)}"
                + (f" from {values[0]:g} to {values[-1]:g}." if len(values) else ".")
            )
        level, n = check_levels(coverage)[0], at_least(n_calibration, 1, "n_calibration")
        rank = conformal_rank(level, n)
        if rank > n:
            raise CalliperError(
                f"{n} calibration points cannot support coverage {level:g}: every interval is "
                f"infinite and covers, so there is no law to compare with."
            )
        if n_test is None:
            law = coverage_law(level, n)
            low, high = law.ppf([0.05, 0.95]).tolist()
            first, last = law.ppf([1e-4, 1 - 1e-4])
            x = np.linspace(first, last, 400)
            density = law.pdf(x)
        else:
            size = at_least(n_test, 1, "n_test")
            counts = stats.betabinom(size, rank, n + 1 - rank)
            low, high = (counts.ppf([0.05, 0.95]) / size).tolist()
            x = np.arange(counts.ppf(1e-4), counts.ppf(1 - 1e-4) + 1) / size
            density = counts.pmf(np.rint(x * size)) * size
        inside = (values >= low - 1e-12) & (values <= high + 1e-12)
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        return cls(values, level, n, n_test, float(values.mean()), error, rank / (n + 1),
                   (low, high), x, density, float(inside.mean()))  # fmt: skip

    def plot(
        self, ax: Any = None, *, name: str | None = None, color: str = BLUE
    ) -> CoverageLawDisplay:
        """Draw bars for what was measured, a line for the law."""
        self.ax_, self.figure_ = ax, _ = start(ax)
        law = "Beta" if self.n_test is None else "beta-binomial"
        ax.hist(
            self.coverages,
            bins=self._bins(),
            density=True,
            color=color,
            alpha=0.4,
            label=f"measured, {len(self.coverages):,} calibration sets",
        )
        ax.plot(self.x, self.density, color=VERMILION, linewidth=1.8, label=f"{law} law")
        ax.axvline(self.coverage, label=f"asked for: {percent(self.coverage)}", **TARGET)
        from matplotlib.ticker import FuncFormatter

        ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: percent(v) if v <= 1 else ""))
        ax.set_xlabel("coverage given one calibration set")
        ax.set_ylabel("density")
        ax.set_ylim(0, 1.3 * max(self.density.max(), ax.get_ylim()[1] / 1.05))
        ax.legend(frameon=False, fontsize=8.5, loc="upper left")
        entitle(
            ax,
            name or "Coverage over calibration draws",
            f"N = {self.n_calibration:,}"
            + ("" if self.n_test is None else f", {self.n_test:,} test points each")
            + f" · mean {percent(self.mean)} (law: {percent(self.law_mean)})\n"
            f"{percent(self.share_inside)} lie between the law's 5th and 95th percentiles, "
            f"{self.law_quantiles[0]:.3f} and {self.law_quantiles[1]:.3f}",
        )
        return self

    def _bins(self) -> FloatArray:
        """About √R bars; between the possible values where coverage is a share of few points."""
        low, high = min(self.coverages[0], self.x[0]), max(self.coverages[-1], self.x[-1])
        n_bars = int(np.clip(np.sqrt(len(self.coverages)), 5, 40))
        if self.n_test is None:
            return np.linspace(low, high, n_bars + 1)
        step = max(1, round((high - low) * self.n_test / n_bars))
        first = round(low * self.n_test) - 0.5
        n_steps = int(np.ceil((high * self.n_test + 0.5 - first) / step))
        bins: FloatArray = (first + step * np.arange(n_steps + 1)) / self.n_test
        return bins
