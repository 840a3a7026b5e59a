"""Parts of the test set that are covered less than chance explains: of the predictions, of groups.

If every part is covered alike, a part of n points is covered beta-binomially, as the whole test
set is: Binomial(n, C) times, with the coverage C ~ Beta(Q, N+1−Q) of the calibration set. Of B
parts, one falls below its quantile at 1 % / B in at most one case of 100; of B groups looked at
for K methods, one falls below its quantile at 1 % / (B K) for some method.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.lab.comparison._contest import bins_by_chance
from calliper.lab.comparison._tables import CoveragePart


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """Coverage in parts of the test set: how many there are, and one that chance cannot explain."""

    n_parts: int
    where: str = ""  # the range of its predictions, or its group; empty if chance explains all
    coverage: float = 1.0
    by_chance: float = 0.0

    @property
    def uneven(self) -> bool:
        """Whether some part is covered less than chance explains."""
        return bool(self.where)

    @property
    def words(self) -> str:
        """``"tenth"`` if there are ten."""
        if self.n_parts == 10:
            return "worst tenth of the predictions"
        return f"worst of {self.n_parts} parts of the predictions"


def evenness(part: CoveragePart | None, n_calibration: int, *, looks: int = 1) -> Evenness:
    """The part that is covered least for its number of points, if any falls below chance."""
    if part is None:
        return Evenness(n_parts=0)
    short, bounds = _short(part, n_calibration, looks)
    n_parts, coverage = len(part.table.n), part.table.coverage
    if not len(short):
        return Evenness(n_parts=n_parts)
    worst = int(short[np.argmin(coverage[short])])
    return Evenness(
        n_parts=n_parts,
        where=_named(part, worst),
        coverage=float(coverage[worst]),
        by_chance=float(bounds[worst]),
    )


def _short(part: CoveragePart, n_calibration: int, looks: int) -> tuple[IntArray, FloatArray]:
    """Which bins fall below chance, and what chance allows in each; a single bin is the whole."""
    table = part.table
    bounds = bins_by_chance(part.level, n_calibration, table.n, looks=looks)
    return np.flatnonzero((table.coverage < bounds) & (len(table.n) > 1)), bounds


def _named(part: CoveragePart, place: int) -> str:
    label = part.table.labels[place]
    return f"{part.name} {label!r}" if part.by == "group" else label


@dataclass(frozen=True, kw_only=True)
class ShortGroup:
    """A group that some methods cover less than chance explains."""

    name: str
    n: int
    by_chance: float
    found: dict[str, float]  # coverage of these methods by their names
    every: dict[str, float]  # and of all methods


def short_groups(parts: Sequence[CoveragePart], n_calibration: int) -> list[ShortGroup]:
    """Groups that are covered less than chance explains, the worst first; of parts of one level."""
    tables = [part for part in parts if part.by == "group"]
    found: dict[int, ShortGroup] = {}
    for part in tables:
        short, bounds = _short(part, n_calibration, looks=len(tables))
        for place in map(int, short):
            group = ShortGroup(
                name=_named(part, place),
                n=int(part.table.n[place]),
                by_chance=float(bounds[place]),
                found={},
                every={other.method: float(other.table.coverage[place]) for other in tables},
            )
            own = found.setdefault(place, group)
            own.found[part.method] = float(part.table.coverage[place])
    return sorted(found.values(), key=lambda group: min(group.found.values()))
