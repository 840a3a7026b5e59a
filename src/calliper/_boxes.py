"""The result for several targets: intervals of each, and what they say together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calliper._notebook import card
from calliper._types import BoolArray, FloatArray
from calliper._validation import check_vector
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals, as_frame

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: Targets that a notebook draws.
SHOWN = 6


@dataclass(frozen=True, eq=False)
class Boxes:
    """For each row a closed interval of each target; unpacks as ``lower, upper``.

    Parameters
    ----------
    intervals : one ``Intervals`` for each of k targets, of the same rows and levels
    names : of the targets; ``boxes[name]`` are the intervals of one
    joint : whether the level holds for all targets together, or for each by itself

    Examples
    --------
    >>> sides = Intervals([0.0, 1.0], [2.0, 3.0]), Intervals([0.0, 0.0], [10.0, 5.0])
    >>> boxes = Boxes(sides, ("height", "weight"))
    >>> boxes
    Boxes(2 rows, 2 targets: height, weight; joint)
    >>> boxes.contains([[1.0, 5.0], [2.0, 9.0]]), boxes.volume, boxes["height"].width
    (array([ True, False]), array([20., 10.]), array([2., 2.]))
    """

    intervals: tuple[Intervals, ...]
    names: tuple[Any, ...]
    joint: bool = True

    def __iter__(self) -> Iterator[FloatArray]:
        yield self.lower
        yield self.upper

    def __getitem__(self, name: Any) -> Intervals:
        if name not in self.names:
            raise KeyError(f"no target {name!r}; there are {listed(self.names)}.")
        return self.intervals[self.names.index(name)]

    @property
    def lower(self) -> FloatArray:
        """Lower ends, (m, k), or (m, k, L) for L levels."""
        return np.stack([each.lower for each in self.intervals], axis=1)

    @property
    def upper(self) -> FloatArray:
        """Upper ends, (m, k), or (m, k, L) for L levels."""
        return np.stack([each.upper for each in self.intervals], axis=1)

    @property
    def width(self) -> FloatArray:
        """Upper minus lower ends, (m, k), or (m, k, L); infinite where an end is."""
        return self.upper - self.lower

    @property
    def volume(self) -> FloatArray:
        """Product of the widths, (m,), or (m, L); infinite where one of them is."""
        width = self.width
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(np.isinf(width).any(axis=1), np.inf, width.prod(axis=1))

    def contains(self, y: Any) -> BoolArray:
        """Whether all targets of a row, (m, k), lie in their intervals: (m,), or (m, L)."""
        columns = check_targets(y, "y", self.names).T
        inside = [each.contains(y) for each, y in zip(self.intervals, columns, strict=True)]
        return np.asarray(np.all(inside, axis=0))

    def to_frame(self, library: str | None = None) -> pd.DataFrame | pl.DataFrame:
        """A frame with columns ``a_lower``, ``a_upper``, …; as :meth:`Intervals.to_frame`."""
        ends = np.concatenate([each.ends() for each in self.intervals], axis=1)
        columns = self.intervals[0].column_names()
        names = [f"{name}_{column}" for name in self.names for column in columns]
        return as_frame(ends, names, self.intervals[0].index, library)

    def __repr__(self) -> str:
        m, level = len(self.intervals[0].lower), self.intervals[0].coverage
        names = f"{len(self.names)} targets: {listed(self.names)}"
        together = "joint" if self.joint else "each by itself, not joint"
        return f"Boxes({m:,} rows, {names}; {f'coverage {level}, ' if level else ''}{together})"

    def _repr_html_(self) -> str:
        shown = [*zip(self.names, self.intervals, strict=True)][:SHOWN]
        parts = (card(f"target {name}", each._widths(), each._picture()) for name, each in shown)
        rest = len(self.names) - len(shown)
        return card(repr(self), [f"and {rest} targets more"] if rest else [], *parts)


def check_targets(y: Any, name: str, names: tuple[Any, ...]) -> FloatArray:
    """Finite targets, (n, k), in the order of ``names``: by name where a frame has them."""
    found = target_names(y)
    if set(found) == set(names):
        y = y[list(names)] if hasattr(y, "columns") else y
    elif len(found) != len(names) or (hasattr(y, "columns") and names != (*range(len(names)),)):
        raise CalliperError(
            f"{name} must have {len(names)} targets: {listed(names)}; got {len(found)}: "
            f"{listed(found)}."
        )
    columns = enumerate(np.asarray(y).T)
    return np.stack([check_vector(each, f"{name} ({names[j]})") for j, each in columns], axis=1)


def target_names(y: Any) -> tuple[Any, ...]:
    """Names of the columns of a frame; 0, 1, … of anything else that has columns."""
    if hasattr(y, "columns"):
        return tuple(y.columns)
    shape = np.asarray(y).shape
    if len(shape) != 2 or not shape[1]:
        raise CalliperError(
            f"y must have a column for each target, shape (n, k); got shape {shape}. Use "
            f"ConformalRegressor for one target, or y.reshape(-1, 1)."
        )
    return tuple(range(shape[1]))


def listed(names: tuple[Any, ...]) -> str:
    """Names, with commas."""
    return ", ".join(map(str, names))
