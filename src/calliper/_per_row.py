"""What may be given for each row besides inputs and target: its group and its weight.

Both come as values, one a row; as the name of a column of the frame that the rows are in; or as a
function of the rows. A name or a function is remembered from calibration and asked again of new
rows, values must be given again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._types import IntArray
from calliper._validation import n_rows
from calliper.exceptions import CalliperError


def row_values(given: Any, X: Any, name: str) -> Any:
    """One value for each row of ``X``, (n,); ``name`` is how the user knows the argument."""
    if isinstance(given, str):
        columns = list(getattr(X, "columns", ()))
        if given not in columns:
            there = f"there are {columns[:20]}" if columns else f"X is a {type(X).__name__}"
            raise CalliperError(f"{name}={given!r} names a column of X, and {there}.")
        values = np.asarray(X[given])
    else:
        found = given(X) if callable(given) else given
        try:
            values = np.asarray(found)
        except ValueError as error:
            raise CalliperError(f"{name} must be one for each row: {error}.") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n_rows(X),):
        raise CalliperError(
            f"{name} must be one for each of the {n_rows(X)} rows; got shape {values.shape}."
        )
    return values


def places_of_groups(labels: Sequence[Any]) -> dict[Any, IntArray]:
    """The places of each group's rows, groups in order of appearance; missing labels refused."""
    places: dict[Any, list[int]] = {}
    for place, label in enumerate(np.asarray(labels).tolist()):
        if _is_missing(label):
            raise CalliperError(
                f"groups must be known for every row; the one at position {place} is missing "
                f"({label!r}). Fill it in, or give such rows a group of their own."
            )
        try:
            places.setdefault(label, []).append(place)
        except TypeError as error:
            raise CalliperError(
                f"groups must be labels such as texts and numbers; the one at position {place} is "
                f"{label!r:.80}."
            ) from error
    return {label: np.array(rows, dtype=np.intp) for label, rows in places.items()}


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # a missing value of pandas does not say whether it equals itself
        return True


#: Stands for values that were given at calibration, which belong to its rows alone.
GIVEN = Ellipsis


@dataclass(frozen=True)
class PerRow:
    """What calibration was given for each row; None where nothing was."""

    groups: Any = None
    weights: Any = None

    def known(self, X: Any) -> dict[str, Any]:
        """What was given, as values of the calibration rows by name."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {name: row_values(value, X, name) for name, value in given.items()}

    def remembered(self) -> PerRow:
        """The same without values of calibration rows."""
        kept = {
            name: given if given is None or isinstance(given, str) or callable(given) else GIVEN
            for name, given in vars(self).items()
        }
        return PerRow(**kept)

    def new(self, X: Any, **asked: Any) -> dict[str, Any]:
        """Values of new rows by name: as given now, or by what calibration was given."""
        found = {}
        for name, before in vars(self).items():
            now = asked.get(name)
            if before is None and now is not None:
                raise CalliperError(
                    f"{name} were given for new rows but not at calibration: pass {name}= to "
                    f"calibrate, too."
                )
            if before is GIVEN and now is None:
                raise CalliperError(
                    f"calibration was given {name}, one value a row: pass {name}= for the new "
                    f"rows, too (a column name or a function would have been remembered)."
                )
            if before is not None:
                found[name] = row_values(before if now is None else now, X, name)
        return found
