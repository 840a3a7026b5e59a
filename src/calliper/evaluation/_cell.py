"""One cell: one method on one split of one problem, at all levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from calliper._types import FloatArray
from calliper.evaluation._caught import caught_warnings
from calliper.evaluation._fitted import fit
from calliper.evaluation._measures import Context, Measure
from calliper.evaluation._problem import Method, Problem
from calliper.evaluation._splits import method_seed, split_rows
from calliper.intervals import Intervals

Row = dict[str, Any]

#: What every row has beside its measures.
FIELDS = (
    "problem", "method", "n_calibration", "n_test", "split", "level", "status",
    "error", "warnings", "seconds_fit", "seconds_predict", "guaranteed",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Cell:
    """What to compute; ``name`` is that of the method."""

    problem: Problem
    name: str
    method: Method
    n_calibration: int
    n_test: int
    split: int
    random_state: int
    levels: tuple[float, ...]
    measures: Mapping[str, Measure]

    def rows(self, status: str, **more: Any) -> list[Row]:
        """A row for each level, with the fields that every row has."""
        return [
            {
                "problem": self.problem.name,
                "method": self.name,
                "n_calibration": self.n_calibration,
                "n_test": self.n_test,
                "split": self.split,
                "level": level,
                "status": status,
                "error": None,
                "warnings": [],
                "seconds_fit": None,
                "seconds_predict": None,
                "guaranteed": None,
                **dict.fromkeys(self.measures, float("nan")),
                **more,
            }
            for level in self.levels
        ]


def run(cell: Cell) -> list[Row]:
    """The rows of a cell; what raises is put on record, and the rest goes on."""
    with caught_warnings() as caught:
        try:
            rows = _measured(cell)
        except Exception as error:
            rows = cell.rows("failed", error=f"{type(error).__name__}: {error}")
    for row in rows:
        row["warnings"] = list(caught)
    return rows


def _measured(cell: Cell) -> list[Row]:
    problem = cell.problem
    seeds: dict[str, Any] = {
        "random_state": cell.random_state,
        "problem": problem.name,
        "n_calibration": cell.n_calibration,
        "split": cell.split,
    }
    calibration, test = split_rows(len(problem), cell.n_test, **seeds)
    start = perf_counter()
    fitted = fit(problem, cell.method, calibration, method_seed(**seeds))
    middle = perf_counter()
    intervals = fitted.intervals(test, cell.levels)
    rows = cell.rows("ok", seconds_fit=middle - start, seconds_predict=perf_counter() - middle)
    y, Z = problem.y[test], problem.Z[test]
    known: dict[str, Any] = {
        "problem": problem.name,
        "method": cell.name,
        "n_calibration": cell.n_calibration,
        "y_pred": fitted.centre(test),
        "Z": Z,
        "X": Z if problem.X is None else problem.X[test],
        "groups": None if problem.groups is None else problem.groups[test],
        "max_score": fitted.largest_score(calibration),
    }
    for row in rows:
        row["guaranteed"] = fitted.guaranteed(row["level"])
        context = Context(level=row["level"], **known)
        _measure(row, cell.measures, y, intervals.at(row["level"]), context)
    return rows


def _measure(
    row: Row, measures: Mapping[str, Measure], y: FloatArray, intervals: Intervals, context: Context
) -> None:
    """Fill in every measure; one that raises stays NaN, and the row says why."""
    for name, measure in measures.items():
        try:
            row[name] = float(measure.function(y, intervals, context))
        except Exception as error:
            text = f"measure {name} raised {type(error).__name__}: {error}"
            row["error"] = text if row["error"] is None else f"{row['error']} {text}"
