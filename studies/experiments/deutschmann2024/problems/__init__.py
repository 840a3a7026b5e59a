"""The tasks, a file each: what ``studies(quick)`` returns is run by ``run.py``."""

from collections.abc import Callable, Sequence

from studies.experiments.deutschmann2024.problems import (
    alphaseq,
    clearance,
    mnist,
    one_dimensional,
    solubility,
    tabular,
)
from studies.experiments.deutschmann2024.study import Study

#: By the name of the stage and of its results.
STUDIES: dict[str, Callable[[bool], Sequence[Study]]] = {
    "one_dimensional": one_dimensional.studies,
    "solubility": solubility.studies,
    "clearance": clearance.studies,
    "mnist": mnist.studies,
    "alphaseq": alphaseq.studies,
    "tabular": tabular.studies,
}
