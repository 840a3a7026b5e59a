"""A slow, literal oracle for neighbours in cells (algorithms.md 3, 23 and 24), in rational numbers.

The cell of a row is that of its nearest centre, and it probes its P nearest centres; of centres as
far as one another, the first. Everything else is recomputed over the bag with the new score in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from oracles.shared_ties import (
    Number,
    Row,
    bag_median,
    exact,
    exact_row,
    exact_rows,
    exact_scores,
    shared_weights,
    squared_distance,
)


def probed(row: Row, centres: Sequence[Row], n_probes: int) -> list[int]:
    """The nearest centres, the nearest first."""
    order = sorted(range(len(centres)), key=lambda c: (squared_distance(row, centres[c]), c))
    return order[:n_probes]


def candidates(i: int, bag: Sequence[Row], centres: Sequence[Row], n_probes: int) -> list[int]:
    """The other members whose cell is probed by member i."""
    mine = probed(bag[i], centres, n_probes)
    return [j for j in range(len(bag)) if j != i and probed(bag[j], centres, 1)[0] in mine]


def scale(i: int, bag: Sequence[Row], sizes: Sequence[Number], how: dict[str, Any]) -> Number:
    """Local scale of member i: the mean over the K nearest candidates, or the bag's median."""
    found = candidates(i, bag, how["centres"], how["n_probes"])
    if not found:
        return bag_median(sizes)
    weights = shared_weights([squared_distance(bag[i], bag[j]) for j in found], how["k"])
    total = sum(w * sizes[j] for w, j in zip(weights, found, strict=True))
    return exact(total / Fraction(min(how["k"], len(found))))


def holds(Z: Any, scores: Any, z_new: Any, t: Any, **how: Any) -> list[bool]:
    """For every calibration row: is it at least as strange as the new one with score t?"""
    power = 2 if how.get("statistic") == "rms" else 1
    how["centres"] = exact_rows(how["centres"])
    bag = [*exact_rows(Z), exact_row(z_new)]
    sizes = [s**power for s in [*exact_scores(scores), exact(t)]]
    m, beta = exact(how.get("shrinkage", 0)), exact(how.get("offset", 0)) ** power
    g = bag_median(sizes)
    scales = [(1 - m) * scale(i, bag, sizes, how) + m * g + beta for i in range(len(bag))]
    return [sizes[i] * scales[-1] >= sizes[-1] * scales[i] for i in range(len(bag) - 1)]
