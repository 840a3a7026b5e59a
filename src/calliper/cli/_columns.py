"""Which columns play which part."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from calliper.cli._tables import Table
from calliper.exceptions import CalliperError

#: Names that an error message lists before it only counts.
_LISTED = 20


@dataclass(frozen=True)
class Columns:
    """Names of the target, the prediction and the features in which nearness is judged."""

    target: str
    prediction: str
    features: tuple[str, ...]

    @property
    def known(self) -> list[str]:
        """What a table with known targets must have: target, prediction, features."""
        return [self.target, *self.new]

    @property
    def new(self) -> list[str]:
        """What a table of new rows must have: prediction, features."""
        return [self.prediction, *self.features]


@dataclass(frozen=True)
class Names:
    """Columns as the options name them: features by a list, by a prefix or not at all."""

    target: str
    prediction: str
    features: str | None = None
    prefix: str | None = None

    def check(self) -> None:
        """Refuse names that contradict one another."""
        if self.target == self.prediction:
            raise CalliperError(
                f"--target and --prediction are both {self.target!r}: name two columns."
            )
        if self.features is not None and self.prefix is not None:
            raise CalliperError("--features and --features-prefix exclude one another: give one.")

    @property
    def judges_by_prediction(self) -> bool:
        """Whether nothing was said about features."""
        return self.features is None and self.prefix is None

    def resolve(self, calibration: Table) -> Columns:
        """The columns; a prefix is filled in by the calibration table."""
        features = [self.prediction]
        if self.features is not None:
            features = split_names(self.features)
        elif self.prefix is not None:
            features = [name for name in calibration.columns if name.startswith(self.prefix)]
            if not features:
                raise CalliperError(
                    f"{calibration.name}: no column starts with {self.prefix!r}; "
                    f"{_listed(calibration)}."
                )
        if self.target in features:
            raise CalliperError(
                f"the features include the target {self.target!r}, which new rows do not have: "
                f"leave it out."
            )
        return Columns(self.target, self.prediction, tuple(features))

    def require_same_features(self, table: Table, columns: Columns) -> None:
        """No column has the prefix in this table but not in the calibration table."""
        if self.prefix is None:
            return
        for name in table.columns:
            if name.startswith(self.prefix) and name not in columns.features:
                raise CalliperError(
                    f"{table.name}: column {name!r} is a feature by its prefix, but the "
                    f"calibration file has none of this name; give both the same features."
                )


def split_names(text: str) -> list[str]:
    """Names separated by commas; one that contains a comma stands in quotation marks."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names or len(set(names)) < len(names):
        raise CalliperError(f"--features {text!r}: give different names, as in --features a,b,c.")
    return names


def require_columns(table: Table, needed: Sequence[str]) -> None:
    """Every needed column is in the table."""
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise CalliperError(f"{table.name}: no column {missing[0]!r}; {_listed(table)}.")


def refuse_columns(table: Table, added: Sequence[str]) -> None:
    """No column is in the table that is about to be added."""
    present = [name for name in added if name in table.columns]
    if present:
        raise CalliperError(
            f"{table.name}: has a column {present[0]!r} already, which would be added; rename it."
        )


def _listed(table: Table) -> str:
    names, more = table.columns[:_LISTED], len(table.columns) - _LISTED
    text = "there are " + ", ".join(map(repr, names)) + (f" and {more} more" if more > 0 else "")
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        return f"{text}: separate cells by commas in .csv and by tabs in .tsv"
    return text
