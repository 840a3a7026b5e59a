"""Rows: what is known of some points, one value each, whatever they are used for.

Calibration, training and left-out rows are all :class:`Rows`. Where values of the same rows come
with labels, as series and frames of pandas do, the labels must agree.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
from sklearn.utils import _safe_indexing

from calliper._types import FloatArray, Frame, IntArray, Labels
from calliper._validation import labels_of as labels_of
from calliper._validation import n_rows
from calliper.exceptions import CalliperError, RowLabelsWarning, warn

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
    def of(cls, given: Any) -> "Rows | None":
        """Rows unchanged, or made of (Z, scores), (Z, scores, targets) or features alone."""
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

    @classmethod
    def given(cls, Z: Any, **known: Any) -> Self:
        """Rows of what a user passes; row labels must agree, and are dropped."""
        return cls(Z, **dict(zip(known, same_rows(Z, "Z", **known), strict=True)))

    def __len__(self) -> int:
        return n_rows(self.Z) if self.scores is None else len(self.scores)

    @cached_property
    def ascending(self) -> FloatArray:
        """Scores in ascending order, sorted when first asked for."""
        return np.sort(self.scores)

    @property
    def _values(self) -> tuple[Any, ...]:
        """What is known besides the features, in the order of ``KNOWN``."""
        return self.scores, self.magnitudes, self.signs, self.weights, self.groups, self.targets

    def take(self, rows: Any) -> "Rows":
        """Some of the rows, by their numbers."""
        values = (self.Z, *self._values)
        return Rows(*(None if each is None else _safe_indexing(each, rows) for each in values))

    def latest(self, n: int) -> "Rows":
        """The last n rows."""
        return Rows(*(None if each is None else each[-n:] for each in (self.Z, *self._values)))

    def join(self, other: "Rows") -> "Rows":
        """These rows followed by others, of which the same is known."""
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
        raise CalliperError(
            f"rows of shape {second.shape} cannot be added to rows of shape {first.shape}: their "
            f"columns differ."
        )
    try:
        return np.concatenate([first, second])
    except TypeError as error:
        raise CalliperError(f"rows of different kinds cannot be joined: {error}.") from error


def rows_of_groups(labels: Sequence[Any]) -> dict[Any, IntArray]:
    """The numbers of each group's rows, in order of appearance; missing labels are refused."""
    rows: dict[Any, list[int]] = {}
    for number, label in enumerate(_known_labels(labels, "groups")):
        try:
            rows.setdefault(label, []).append(number)
        except TypeError as error:
            raise CalliperError(
                f"groups must be labels such as texts and numbers; the one at position {number} is "
                f"{label!r:.80}."
            ) from error
    return {label: np.array(numbers, dtype=np.intp) for label, numbers in rows.items()}


def numbered(labels: Any, name: str) -> tuple[list[Any], IntArray]:
    """The different labels in order, and the number of each row's, (n,); gaps are refused."""
    array = np.asarray(labels)
    if array.ndim != 1 or not len(array):
        raise CalliperError(
            f"{name} must be one label for each row, of at least one row; got shape {array.shape}."
        )
    rows = _known_labels(labels, name)
    try:
        different = sorted(set(rows))
    except TypeError as error:
        raise CalliperError(f"{name} must be labels of one kind: {error}.") from None
    number = {label: place for place, label in enumerate(different)}
    return different, np.array([number[label] for label in rows], dtype=np.intp)


def _known_labels(labels: Any, name: str) -> list[Any]:
    """A label for each row; refused if some are missing."""
    rows: list[Any] = np.asarray(labels).tolist()
    missing = [row for row, label in enumerate(rows) if _is_missing(label)]
    if missing:
        raise CalliperError(
            f"{name} must have a label in every row: {len(missing)} of {len(rows)} "
            f"{'is' if len(missing) == 1 else 'are'} missing, the first ({rows[missing[0]]!r}) at "
            f"position {missing[0]}. Fill them, for example with 'unknown'."
        )
    return rows


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # a missing value of pandas does not say whether it equals itself
        return True


def same_rows(rows: Any, name: str, /, **values: Any) -> tuple[Any, ...]:
    """Values of the same rows, series as arrays; refused if labels say that the rows differ.

    Where two of them have labels, these must be the same in the same order. A plain ``RangeIndex``
    only counts rows, since scaled frames lose their labels: rows are then matched by position, with
    one warning if the other's labels are the same numbers in another order.
    """
    given = {each: of for each, of in {name: rows, **values}.items() if of is not None}
    labels = {each: found for each, of in given.items() if (found := labels_of(of)) is not None}
    moved = [pair for pair in combinations(labels, 2) if _is_moved(*pair, labels)]
    if moved:
        counted, other = moved[0]
        warn(
            f"{other} is matched with {counted} by position: one of them has only row numbers as "
            f"labels, and the other has these numbers in another order. If rows are in order, pass "
            f"{other}.to_numpy(); if the labels are right, pass {other}.loc[{counted}.index].",
            RowLabelsWarning,
        )
    return tuple(
        np.asarray(of) if each in labels and not isinstance(of, Frame) else of
        for each, of in values.items()
    )


def _is_moved(first: str, second: str, known: dict[str, Any]) -> bool:
    """Whether one counts the rows and the other has the same numbers in another order.

    Labels that differ otherwise are refused.
    """
    labels, others = known[first], known[second]
    if len(labels) != len(others) or not len(labels) or labels is others:
        return False  # another number of rows is refused elsewhere
    held = isinstance(labels, Labels) and isinstance(others, Labels)
    if held and labels.equals(others):
        return False
    if _only_counts(labels) or _only_counts(others):
        one, two = np.asarray(labels), np.asarray(others)
        whole = one.dtype.kind in "iu" and two.dtype.kind in "iu" and not np.array_equal(one, two)
        return whole and np.array_equal(np.sort(one), np.sort(two))
    # Moments in two time zones are equal one by one; JSON has dates as text.
    listed = ([*each] if held else [*map(str, each)] for each in (labels, others))
    _refuse_unequal(first, second, *listed)
    return False


def _only_counts(labels: Any) -> bool:
    """Whether labels are a plain ``RangeIndex``, or the list that it becomes in JSON."""
    if not isinstance(labels, Labels):
        return [*labels] == [*range(len(labels))]
    n = len(labels)
    return type(labels).__name__ == "RangeIndex" and labels[0] == 0 and labels[n - 1] == n - 1


def _refuse_unequal(name: str, other: str, labels: list[Any], others: list[Any]) -> None:
    """If labels differ, say how, and what to do about it."""
    if labels == others:
        return
    by_position = f"{other}.to_numpy() if rows are in order"
    if Counter(labels) != Counter(others):
        strange = next((each for each in others if each not in labels), others[0])
        raise CalliperError(
            f"{other} has other row labels than {name}, for example {strange!r:.40}: they are not "
            f"the same rows. Pass values of the rows of {name}, or {by_position}."
        )
    at = next(place for place, label in enumerate(labels) if label != others[place])
    unique = len(set(labels)) == len(labels)
    by_label = f"{other}.loc[{name}.index], or " if unique else "(labels are not unique) "
    raise CalliperError(
        f"{other} has the row labels of {name} in another order: the row at position {at} is "
        f"{labels[at]!r:.40} in {name} and {others[at]!r:.40} in {other}. Pass {by_label}"
        f"{by_position}."
    )
