"""What is promised by methods that refit: every row trains, so the words differ from a split's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calliper.guarantees import Guarantee
from calliper.quantile import conformal_rank

EXCHANGEABLE = (
    "training and new points are exchangeable (for example, independent draws from the same "
    "distribution)"
)
SYMMETRIC = (
    "the estimator treats its training points alike, whatever their order, and its settings were "
    "not tuned on them"
)


@dataclass(frozen=True)
class RefitGuarantee(Guarantee):
    """The promise of one fitted method at one level; ``n_calibration`` counts all its rows.

    Parameters
    ----------
    conditions : what must hold for the promise to hold
    remark : what is known beyond the bound, in a sentence
    """

    conditions: tuple[str, ...] = (EXCHANGEABLE, SYMMETRIC)
    remark: str = ""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for the promise to hold."""
        return self.conditions

    def describe(self) -> str:
        """The promise in plain words, with its warning."""
        n = self.n_calibration
        if conformal_rank(self.coverage, n) > n:
            return (
                f"{self.method}: {n} training points cannot support coverage {self.coverage:g}, so "
                f"the interval is infinite and covers always."
            )
        if self.proved <= 0:
            return f"{self.method}: no coverage is proved at level {self.coverage:g}. {self.remark}"
        return (
            f"{self.method}: a new target lies in its interval with probability at least "
            f"{np.floor(self.proved * 1e4) / 1e4:g} (asked for: {self.coverage:g}), provided that "
            + "; and ".join(self.assumptions)
            + f". This probability is marginal: it averages over draws of the {n} training points "
            f"and over all inputs; it promises nothing for one given input. {self.remark}"
        )
