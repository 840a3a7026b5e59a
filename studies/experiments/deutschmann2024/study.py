"""One call of ``evaluate``: a problem, its methods, how it is divided; and what rows are called.

Several studies may share a title: they then form one block of a table. The one-dimensional task is
drawn and trained anew for each repetition, as in the paper, so that each draw is a study of its
own, and the number of its split is the number of the draw.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from calliper.lab.evaluation import Problem, Records, evaluate
from studies.experiments.deutschmann2024.config import COVERAGE, DIVISIONS, SEED
from studies.experiments.deutschmann2024.measures import MEASURES

#: What was left out of this run, or stood in for, and why.
LEFT_OUT: dict[str, str] = {}


def leave_out(what: str, why: object) -> None:
    """Say loudly that something is not studied, and remember it for the end of the run."""
    LEFT_OUT[what] = str(why)
    print(f"\n*** {what} IS LEFT OUT: {why}\n", file=sys.stderr, flush=True)


@dataclass(frozen=True, eq=False)
class Study:
    """Methods on the divisions of one problem.

    ``divisions`` are numbered from ``first`` on in the records.
    """

    title: str
    problem: Problem
    methods: Mapping[str, Any]
    _: KW_ONLY
    n_calibration: Sequence[int]
    n_test: int | None = None
    divisions: int = DIVISIONS
    first: int = 0

    def run(self, store: Path, n_jobs: int | None = None) -> Records:
        """Records under the title; cells that the store holds are not computed again.

        Of warnings the kind is kept: their texts would be most of the file.
        """
        records = evaluate(
            self.problem,
            self.methods,
            coverage=COVERAGE,
            n_splits=self.divisions,
            n_calibration=list(self.n_calibration),
            n_test=self.n_test,
            random_state=SEED,
            n_jobs=n_jobs,
            store=store,
            measures=MEASURES,
        )
        rows = [
            {
                **row,
                "problem": self.title,
                "split": row["split"] + self.first,
                "warnings": sorted({text.partition(":")[0] for text in row["warnings"]}),
            }
            for row in records
        ]
        return Records(rows, records.measures, records.runs)


Build = Callable[[], Sequence[Study]]


def run_all(studies: Sequence[Study], store: Path, *, n_jobs: int | None = None) -> Records:
    """Records of all studies, with a line of progress for each."""
    started, joined = time.monotonic(), Records([])
    for number, study in enumerate(studies, start=1):
        records = study.run(store, n_jobs)
        joined = Records(
            joined.rows + records.rows, records.measures, joined.runs + _new(joined, records)
        )
        elapsed = time.monotonic() - started
        sizes = ", ".join(f"{n:,}" for n in study.n_calibration)
        print(
            f"  {number} of {len(studies)}: {study.title}, N = {sizes}, "
            f"{len(study.methods)} methods, {elapsed:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return joined


def _new(joined: Records, records: Records) -> list[dict[str, Any]]:
    """Settings of runs, without those that only repeat the draw before."""
    known = [_essence(run) for run in joined.runs]
    return [run for run in records.runs if _essence(run) not in known]


def _essence(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "problems": list(run["problems"].values())}
