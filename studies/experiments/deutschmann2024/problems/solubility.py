"""TDC solubility: 9,982 molecules, log solubility; N = 400 and 800 of 2,994 held-out rows."""

from __future__ import annotations

from collections.abc import Sequence

from studies.experiments.deutschmann2024.artefact import load
from studies.experiments.deutschmann2024.config import TASKS
from studies.experiments.deutschmann2024.problems.trained import problem_of, usual_studies
from studies.experiments.deutschmann2024.study import Study

TASK = TASKS["solubility"]


def studies(quick: bool) -> Sequence[Study]:
    """All methods on the network's held-out rows."""
    return usual_studies(TASK, problem_of("solubility", load(TASK.artefact)), quick)
