"""TDC clearance: 1,102 molecules, N = 60 and 240 of 330 held-out rows.

The network learnt standardised targets; raw ones, which the paper may have used, did not train
(the paper's learning rate cannot carry predictions to clearances of 150 in its number of steps).
What the methods make of that failed network is a block of its own, if its artefact is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from studies.experiments.deutschmann2024 import methods
from studies.experiments.deutschmann2024.artefact import load
from studies.experiments.deutschmann2024.config import LOCAL, TASKS
from studies.experiments.deutschmann2024.problems.trained import problem_of, usual_studies
from studies.experiments.deutschmann2024.study import Study

TASK = TASKS["clearance"]
RAW = LOCAL / "clearance_raw.npz"
RAW_TITLE = "TDC clearance, raw targets"


def studies(quick: bool) -> Sequence[Study]:
    """All methods on the network's held-out rows."""
    found = list(usual_studies(TASK, problem_of("clearance", load(TASK.artefact)), quick))
    if RAW.exists() and not quick:
        problem = problem_of("clearance_raw", load(RAW))
        some = methods.quick_to_predict(problem)
        found.append(Study(RAW_TITLE, problem, some, n_calibration=TASK.n_calibration))
    return found
