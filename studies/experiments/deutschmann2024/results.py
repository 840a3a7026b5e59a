"""Stored records, and single values of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calliper.lab.evaluation import Records, one_sigma
from studies.experiments import FloatArray
from studies.experiments.deutschmann2024.config import TASKS
from studies.experiments.deutschmann2024.problems import STUDIES
from studies.experiments.deutschmann2024.verdict import Value, is_far_below

#: The paper's one-dimensional widths are half-widths, by all signs; those of its other tasks not.
HALVED = ("one_dimensional",)


def load(folder: Path) -> dict[str, Records]:
    """Records of every stage that has been run."""
    paths = {stage: folder / f"{stage}.json" for stage in STUDIES}
    return {stage: Records.from_json(path) for stage, path in paths.items() if path.exists()}


def chosen(
    records: Records,
    *,
    title: str | None = None,
    n: int | None = None,
    methods: Sequence[str] | None = None,
) -> Records:
    """Rows of a title, an N and some methods, in the order of the methods."""
    rows = [
        row
        for row in records
        if title in (None, row["problem"])
        and n in (None, row["n_calibration"])
        and (methods is None or row["method"] in methods)
    ]
    if methods is not None:
        rows.sort(key=lambda row: list(methods).index(row["method"]))
    return Records(rows, records.measures, records.runs)


def draws(records: Records, title: str, n: int, method: str, measure: str) -> FloatArray:
    """The values of all divisions; NaN where there is none."""
    rows = chosen(records, title=title, n=n, methods=[method])
    return np.array([row[measure] for row in rows if row["status"] == "ok"], dtype=np.float64)


def value(
    records: Records, title: str, n: int, method: str, measure: str, *, half: bool = False
) -> Value:
    """Mean over divisions with its uncertainty; NaN if there is none."""
    every = draws(records, title, n, method, measure)
    values = every[~np.isnan(every)]
    mean, error = one_sigma(values / 2 if half else values)
    defined = "" if len(values) in (0, len(every)) else f"{len(values)}/{len(every)}"
    return Value(mean, error, is_far_below(measure, mean, error), defined)


def paper_blocks(results: dict[str, Records]) -> list[tuple[str, str, int]]:
    """Stage, title and N of every block of the paper's table whose records are there."""
    return [
        (stage, task.title, n)
        for stage, task in TASKS.items()
        if stage in results
        for n in task.n_calibration
        if len(chosen(results[stage], title=task.title, n=n))
    ]
