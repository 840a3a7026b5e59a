"""Every method by the name that the command line gives it, with what there is to know of it.

Letters in the costs: N calibration points, M new ones, n training points, d features, K neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    FullRescaled,
    JackknifeMinmaxRescaled,
    JackknifeRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
    Split,
)

DEFAULT = "full"


@dataclass(frozen=True)
class Description:
    """What a user chooses by."""

    name: str
    what: str
    guarantee: str
    needs: str
    cost: str
    when: str
    python: str


@dataclass(frozen=True)
class Entry(Description):
    """A method that works on a file of predictions.

    ``needs`` is what it needs beyond calibration; ``neighbors`` is the parameter of ``kind`` that
    takes nearest neighbours, as a number or as a kernel, and ``None`` where there is none.
    """

    kind: type[Any]
    neighbors: str | None = None

    @property
    def needs_training(self) -> bool:
        """Whether it cannot do without training rows."""
        return self.needs != "none"

    def takes(self, parameter: str) -> bool:
        """Whether the class has this parameter."""
        return parameter in self.kind().get_params(deep=False)


def _entry(
    name: str,
    kind: type[Any],
    what: str,
    guarantee: str,
    *,
    needs: str = "none",
    cost: str,
    when: str,
    neighbors: str | None = None,
) -> Entry:
    return Entry(name, what, guarantee, needs, cost, when, kind.__name__, kind, neighbors)


_ALL = (
    _entry(
        "full",
        FullRescaled,
        "wide where calibration errors near by are large",
        "1−α",
        cost="neighbours of N + M rows among N, and the reverse",
        when="unless there is a reason for another",
        neighbors="kernel",
    ),
    _entry(
        "jackknife",
        JackknifeRescaled,
        "as full, by the paper's leave-two-out scales",
        "1−2α",
        cost="neighbours of N + M rows among N, O(K log K) a new row",
        when="to reproduce the paper, or with --scales from 'calliper tune'",
        neighbors="kernel",
    ),
    _entry(
        "minmax",
        JackknifeMinmaxRescaled,
        "as jackknife, a tenth or two wider",
        "1−α",
        cost="neighbours of N + M rows among N, O(K) a row",
        when="to compare: full promises the same and is narrower",
        neighbors="kernel",
    ),
    _entry(
        "split",
        Split,
        "the same width everywhere",
        "1−α",
        cost="O(N log N + M)",
        when="if one width is wanted, or as the yardstick",
    ),
    _entry(
        "conditional",
        ConditionalCalibration,
        "a linear function of the features; infinite far outside",
        "1−α",
        cost="O(N d²) to fit, then about d times O(N (d + log N)) a new row and level",
        when="if coverage must hold along each feature too; by groups in Python",
    ),
    _entry(
        "mad-split",
        MADSplit,
        "wide where training errors near by were large",
        "1−α",
        needs="training errors",
        cost="neighbours of N + M rows among n",
        when="if training errors resemble new ones, or calibration points are few",
        neighbors="scale",
    ),
    _entry(
        "slcp",
        SLCP,
        "a local quantile of training errors, plus a constant",
        "1−α",
        needs="training errors",
        cost="neighbours of N + M rows among n",
        when="if the shape of errors changes, not only their size",
        neighbors="kernel",
    ),
    _entry(
        "rcp",
        RCP,
        "a learnt quantile of training errors, times a constant",
        "1−α",
        needs="training errors",
        cost="a fit to n rows and N + M predictions, for each level",
        when="with many features and many training rows",
        neighbors="kernel",
    ),
    _entry(
        "locart",
        LoCart,
        "one width in each leaf of a tree of training errors",
        "1−α in each leaf",
        needs="training errors",
        cost="O(n log²n · d) and O(N log N), then O(log n) a new row",
        when="if coverage must hold in regions, and the regions be readable",
    ),
    _entry(
        "normalized-knn",
        NormalizedKNN,
        "wide far away from training rows",
        "1−α",
        needs="training rows",
        cost="neighbours of n + N + M rows among n, O(K d) a row",
        when="if errors grow where training rows are sparse",
        neighbors="n_neighbors",
    ),
    _entry(
        "lcp",
        LCP,
        "a local quantile of calibration errors, its level corrected",
        "1−α",
        needs="training errors",
        cost="O(n² (d + log n)) to tune, n ≤ 2,000; O(N² d) to fit; "
        "O(N (d + log N)) a new row and level",
        when="if the shape of errors changes and N is a few thousand at most",
    ),
    _entry(
        "rlcp",
        RLCP,
        "a local quantile of calibration errors around a random centre",
        "1−α",
        needs="training rows",
        cost="O(n² d) to tune, n ≤ N; O(N d) a new row",
        when="if coverage should hold nearly locally; widths are partly chance",
    ),
    _entry(
        "lvd",
        LVD,
        "a local quantile in a learnt metric; often infinite",
        "none proved",
        needs="training targets",
        cost="O(n² + n d) a step of learning, n ≤ 2,000; O(N + d) a new row and level",
        when="to compare with the literature",
    ),
)

METHODS = {entry.name: entry for entry in _ALL}
