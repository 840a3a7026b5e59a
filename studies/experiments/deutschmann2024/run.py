"""The paper, reproduced: evaluate every method on every task, then write tables and figures.

    python -m studies.experiments.deutschmann2024.run            # all; resumes where it was stopped
    python -m studies.experiments.deutschmann2024.run --quick    # minutes: every task, reduced
    python -m studies.experiments.deutschmann2024.run --only mnist tables figures

Evaluated cells are kept in ``local/cells``, so that a second call computes only what is missing;
delete the file of a task there when the code of a method has changed since.
Records of each task go to ``results/``; tables and figures are made from those, and from the
artefacts of the training. ``--quick`` writes into ``local/quick`` alone and checks the direction of
the main claims.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import warnings
from pathlib import Path

from studies.experiments.deutschmann2024.config import LOCAL, RESULTS
from studies.experiments.deutschmann2024.page import FOLDER
from studies.experiments.deutschmann2024.problems import STUDIES
from studies.experiments.deutschmann2024.study import LEFT_OUT, run_all

QUICK = LOCAL / "quick"
REPORTS = ("tables", "figures")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages = (*STUDIES, *REPORTS)
    parser.add_argument("--quick", action="store_true", help="reduced sizes, into local/quick")
    parser.add_argument("--only", nargs="+", choices=stages, default=stages, metavar="STAGE")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*rows have errors")
    started = time.monotonic()
    if options.quick and set(options.only) == set(stages):
        shutil.rmtree(QUICK, ignore_errors=True)  # cells of older code must not pass for new ones
    for stage in stages:
        if stage in options.only:
            _say(f"{stage}, after {time.monotonic() - started:.0f} s")
            _run(stage, options.quick, options.jobs)
    if options.quick:
        from studies.experiments.deutschmann2024.claims import check_quick

        check_quick(QUICK)
        _say(f"quick run passed in {time.monotonic() - started:.0f} s")
    _say_end(QUICK if options.quick else RESULTS, quick=options.quick)


def _say_end(folder: Path, *, quick: bool) -> None:
    """The tables that were made, Table 1 in full, and what is not among them."""
    _say(f"records, tables and figures: {folder}")
    made = folder / "tables" if quick else FOLDER
    for table in sorted(made.glob("*.md")):
        title = table.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        _say(f"table: {table.name}, {title}")
    if quick and (main := made / "main.md").exists():
        _say(main.read_text(encoding="utf-8"))
        _say("NOT MADE by a quick run: Table 3 (make tuning-table)")
    for what, why in LEFT_OUT.items():
        _say(f"LEFT OUT for want of data: {what} ({why})")


def _run(stage: str, quick: bool, jobs: int) -> None:
    folder = QUICK if quick else RESULTS
    if stage in STUDIES:
        studies = STUDIES[stage](quick)
        if not studies:
            return
        folder.mkdir(parents=True, exist_ok=True)
        store = (QUICK if quick else LOCAL) / "cells" / f"{stage}.jsonl"
        records = run_all(studies, store, n_jobs=jobs)
        for row in records.failures:
            _say(f"FAILED: {row['problem']}, {row['method']}: {row['error']}")
        records.to_json(folder / f"{stage}.json")
    elif stage == "tables":
        from studies.experiments.deutschmann2024.page import write

        write(folder, quick=quick)
    else:
        from studies.experiments.deutschmann2024.figures import draw_all

        draw_all(folder, quick=quick)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
