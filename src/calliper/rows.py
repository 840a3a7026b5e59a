"""Rows: what is known of some points, one value each, whatever they are used for.

Calibration, training and left-out rows are all held so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from calliper._types import IntArray
from calliper._validation import n_rows
from calliper.exceptions import CalliperError

#: What may be known of a row besides its features.
KNOWN = ("scores", "magnitudes", "signs", "weights", "groups", "targets")


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of n rows; None where nothing is.

    Parameters
    ----------
    Z : (n, d) features
    scores : (n,) errors, as a score measures them
    magnitudes : (n,) sizes of the errors that local scales are made of
    signs : (n,) signs of the errors
    weights : (n,) weights of a covariate shift
    groups : (n,) labels
    targets : (n,) targets

    Examples
    --------
    >>> rows = Rows(np.zeros((3, 1)), scores=np.array([1.0, 2.0, 3.0]))
    >>> rows.latest(2).scores, len(rows.join(rows))
    (array([2., 3.]), 6)
    """

    Z: Any
    scores: Any = None
    magnitudes: Any = None
    signs: Any = None
    weights: Any = None
    groups: Any = None
    targets: Any = None

    @classmethod
    def of(cls, given: Any) -> Rows | None:
        """Rows as they are, made of (Z, scores) or (Z, scores, targets), or of features alone."""
        if given is None or isinstance(given, Rows):
            return given
        if not isinstance(given, tuple):
            return cls(given)
        if not 1 <= len(given) <= 3:
            raise CalliperError(
                f"rows are given as (Z, scores) or (Z, scores, targets); got {len(given)} values."
            )
        Z, scores, targets = (*given, None, None)[:3]
        return cls(Z, scores=scores, targets=targets)

    def __len__(self) -> int:
        return n_rows(self.Z) if self.scores is None else len(self.scores)

    @property
    def _values(self) -> tuple[Any, ...]:
        """What is known besides the features, in the order of ``KNOWN``."""
        return self.scores, self.magnitudes, self.signs, self.weights, self.groups, self.targets

    def take(self, rows: Any) -> Rows:
        """Some of the rows, by their numbers."""
        taken = (None if each is None else _safe_indexing(each, rows) for each in self._values)
        return Rows(_safe_indexing(self.Z, rows), *taken)

    def latest(self, n: int) -> Rows:
        """The last n rows."""
        return Rows(self.Z[-n:], *(None if each is None else each[-n:] for each in self._values))

    def join(self, other: Rows) -> Rows:
        """These rows and then others, of which just as much is known."""
        joined = []
        for name, before, added in zip(KNOWN, self._values, other._values, strict=True):
            if (before is None) != (added is None):
                known, now = ("without", "with") if before is None else ("with", "without")
                raise CalliperError(f"fitted {known} {name} and extended {now}: give them to both.")
            joined.append(None if before is None else np.concatenate([before, added]))
        return Rows(stacked(self.Z, other.Z), *joined)


def stacked(first: Any, second: Any) -> Any:
    """The rows of both, as a frame if they are frames."""
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second], ignore_index=True)
    if hasattr(first, "vstack"):  # a frame of polars, or rows on a device
        return first.vstack(second)
    try:
        first, second = np.asarray(first), np.asarray(second)
    except ValueError as error:
        raise CalliperError(f"rows must all be of one length: {error}.") from error
    if first.shape[1:] != second.shape[1:] or 0 in (first.ndim, second.ndim):
        raise CalliperError(f"{second.shape} cannot follow {first.shape}: give both one shape.")
    try:
        return np.concatenate([first, second])
    except TypeError as error:
        raise CalliperError(f"these rows cannot follow those at hand: {error}.") from error


def rows_of_groups(labels: Sequence[Any]) -> dict[Any, IntArray]:
    """The numbers of each group's rows, in order of appearance; missing labels are refused."""
    rows: dict[Any, list[int]] = {}
    for number, label in enumerate(np.asarray(labels).tolist()):
        if _is_missing(label):
            raise CalliperError(
                f"groups must be known for every row; the one at position {number} is missing "
                f"({label!r}). Fill it in, or give such rows a group of their own."
            )
        try:
            rows.setdefault(label, []).append(number)
        except TypeError as error:
            raise CalliperError(
                f"groups must be labels such as texts and numbers; the one at position {number} is "
                f"{label!r:.80}."
            ) from error
    return {label: np.array(numbers, dtype=np.intp) for label, numbers in rows.items()}


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # a missing value of pandas does not say whether it equals itself
        return True
