"""Held-out rows of a trained network as a problem, and the studies that every such task has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calliper.lab.evaluation import Problem
from studies.experiments.deutschmann2024 import methods
from studies.experiments.deutschmann2024.artefact import Artefact
from studies.experiments.deutschmann2024.config import DIVISIONS, Task
from studies.experiments.deutschmann2024.study import Study

#: Embeddings lie along their principal axes; the worst slab looks along the first of them.
SLAB_AXES = 8
#: Divisions of all but the paper's methods where N is above this.
LARGE_N, FEW_DIVISIONS = 5000, 3


def problem_of(name: str, artefact: Artefact) -> Problem:
    """Nearness is judged in the network's embedding."""
    held_out, train = artefact.held_out, artefact.train
    return Problem(
        name,
        Z=held_out.Z,
        y=held_out.y,
        y_pred=held_out.y_pred,
        Z_train=train.Z,
        y_train=train.y,
        y_pred_train=train.y_pred,
        X=held_out.Z[:, :SLAB_AXES],
    )


def usual_studies(
    task: Task, problem: Problem, quick: bool, *, most_test_rows: int | None = None
) -> Sequence[Study]:
    """All methods at both N; ``most_test_rows`` limits those that are slow to predict."""
    title, quickly = task.title, methods.quick_to_predict(problem)
    if quick:
        n = min(task.n_calibration[0], 1000)
        test = min(1000, len(problem) - n)
        some = {**quickly, **methods.slow_to_predict(), **methods.default()}
        return [Study(title, problem, some, n_calibration=[n], n_test=test, divisions=3)]
    studies = [Study(title, problem, quickly, n_calibration=task.n_calibration, n_test=task.n_test)]
    for n in task.n_calibration:
        left = len(problem) - n if task.n_test is None else task.n_test
        common: dict[str, Any] = {
            "n_calibration": [n],
            "n_test": min(most_test_rows or left, left),
            "divisions": FEW_DIVISIONS if n > LARGE_N else DIVISIONS,
        }
        for others in (
            methods.slow_to_predict(),
            methods.default(),
            methods.tuned(n, columns=problem.Z.shape[1]),
        ):
            studies.append(Study(title, problem, others, **common))
    return studies
