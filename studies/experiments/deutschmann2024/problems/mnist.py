"""MNIST read as a number, distorted images: N = 2,000 and 5,000 of the 10,000 test images."""

from __future__ import annotations

from collections.abc import Sequence

from studies.experiments.deutschmann2024.artefact import load
from studies.experiments.deutschmann2024.config import TASKS
from studies.experiments.deutschmann2024.problems.trained import problem_of, usual_studies
from studies.experiments.deutschmann2024.study import Study

TASK = TASKS["mnist"]


def studies(quick: bool) -> Sequence[Study]:
    """All methods on the network's held-out rows."""
    return usual_studies(TASK, problem_of("mnist", load(TASK.artefact)), quick)
