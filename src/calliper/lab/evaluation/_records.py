"""Results of an evaluation: one row for each problem × method × N × split × level."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calliper._writing import number, to_text, whole_file
from calliper.exceptions import CalliperError

if TYPE_CHECKING:
    import pandas as pd


Row = dict[str, Any]

#: Fields of every row beside its measures.
ROW_FIELDS = (
    "problem", "method", "n_calibration", "n_test", "split", "level", "status",
    "error", "warnings", "seconds_fit", "seconds_predict", "guaranteed",
)  # fmt: skip

#: Fields that identify a row.
IDENTITY = ("problem", "method", "n_calibration", "n_test", "split", "level")


@dataclass(frozen=True)
class Records:
    """Tidy rows, and the settings that produced them.

    Parameters
    ----------
    rows : list of dicts
        Fields of each: ``problem``, ``method``, ``n_calibration``, ``n_test``, ``split``,
        ``level`` (the coverage asked for), ``status`` ("ok", "failed" or "skipped"), ``error``
        (its text), ``warnings``, ``seconds_fit``, ``seconds_predict``, ``guaranteed`` (the proved
        coverage) and one for each measure, NaN if undefined.
    measures : dict; of each measure, which values are good, and its label
    runs : list of dicts; settings, seed and versions of the runs

    Examples
    --------
    >>> records = Records([{"problem": "a", "method": "Split", "status": "ok", "coverage": 0.9}])
    >>> len(records), Records.from_json(records.to_json()) == records
    (1, True)
    """

    rows: list[Row]
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __add__(self, other: Records) -> Records:
        """The rows of both; a row that is in both is an error."""
        if not isinstance(other, Records):
            return NotImplemented
        seen = {tuple(row.get(name) for name in IDENTITY) for row in self.rows}
        for row in other.rows:
            own = {name: row.get(name) for name in IDENTITY}
            if tuple(own.values()) in seen:
                named = ", ".join(f"{name}={value!r}" for name, value in own.items())
                raise CalliperError(
                    f"both records hold the row ({named}); counting it twice would make errors "
                    f"look smaller. Remove it from one of them, or rename the methods."
                )
        for name in self.measures.keys() & other.measures.keys():
            if self.measures[name] != other.measures[name]:
                raise CalliperError(f"the measure {name!r} is not the same in both records.")
        measures = {**self.measures, **other.measures}
        return Records(self.rows + other.rows, measures, self.runs + other.runs)

    @property
    def failures(self) -> list[Row]:
        """Rows in which the method (status "failed") or a measure raised an error."""
        return [row for row in self.rows if row["error"] and row["status"] != "skipped"]

    def where(self, **values: Any) -> Records:
        """Only the rows with these values, for example ``where(problem="bike", level=0.9)``."""
        kept = [row for row in self.rows if all(row[k] == v for k, v in values.items())]
        return Records(kept, self.measures, self.runs)

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Strict JSON with one row on each line; also written to ``path`` if given."""
        head = to_text({"measures": self.measures, "runs": self.runs})[:-1]
        text = f'{head}, "rows": [\n' + ",\n".join(map(to_text, self.rows)) + "\n]}\n"
        if path is not None:
            with whole_file(path) as handle:
                handle.write(text.encode())
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Records:
        """Records from the text of :meth:`to_json`, or from the path of such a file."""
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
        try:
            read = json.loads(text)
            return cls([read_row(row) for row in read["rows"]], read["measures"], read["runs"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CalliperError(
                f"expected what Records.to_json writes; it cannot be read ({error!r})."
            ) from error


def read_row(row: Row) -> Row:
    """A row from JSON, with measures as numbers."""
    return {key: value if key in ROW_FIELDS else number(value) for key, value in row.items()}
