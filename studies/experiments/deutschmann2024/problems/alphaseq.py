"""AlphaSeq: antibody binding, N = 2,000 and 10,000 of 17,314 held-out rows.

The licence forbids handing on the data or what can be traced to their rows, so the artefact of the
network is not in the repository. Without it, but with the data in the cache folder, a ridge
regression on counts of amino acids stands in: the same code runs, the numbers mean little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from calliper import CalliperError
from calliper.lab.evaluation import Problem
from studies.experiments import FloatArray
from studies.experiments.data import load_alphaseq
from studies.experiments.deutschmann2024 import methods
from studies.experiments.deutschmann2024.artefact import load
from studies.experiments.deutschmann2024.config import LOCAL, SEED, TASKS
from studies.experiments.deutschmann2024.problems.trained import (
    FEW_DIVISIONS,
    problem_of,
    usual_studies,
)
from studies.experiments.deutschmann2024.study import Study, leave_out

TASK = TASKS["alphaseq"]
STANDARDISED = LOCAL / "alphaseq_standardised.npz"
STANDARDISED_TITLE = "AlphaSeq, standardised inputs"
STAND_IN_TITLE = "AlphaSeq, ridge on amino-acid counts"
#: Test rows of methods that are slow to predict.
MOST_TEST_ROWS = 3000
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
STAND_IN_ROWS = 6000


def studies(quick: bool) -> Sequence[Study]:
    """All methods, or the stand-in, or nothing, with a word on what was left out."""
    if TASK.artefact.exists():
        problem = problem_of("alphaseq", load(TASK.artefact))
        found = list(usual_studies(TASK, problem, quick, most_test_rows=MOST_TEST_ROWS))
        if STANDARDISED.exists() and not quick:
            other = problem_of("alphaseq_standardised", load(STANDARDISED))
            some = methods.quick_to_predict(other)
            found.append(
                Study(
                    STANDARDISED_TITLE,
                    other,
                    some,
                    n_calibration=TASK.n_calibration[:1],
                    n_test=TASK.n_test,
                    divisions=FEW_DIVISIONS,
                )
            )
        return found
    training = "python -m studies.experiments.deutschmann2024.training.alphaseq"
    leave_out("AlphaSeq as trained", f"{TASK.artefact} is not there: {training} makes it")
    try:
        problem = stand_in()
    except CalliperError as error:
        leave_out("AlphaSeq's stand-in", error)
        return []
    some = {**methods.quick_to_predict(problem), **methods.slow_to_predict()}
    return [Study(STAND_IN_TITLE, problem, some, n_calibration=[1000], n_test=1000, divisions=3)]


def stand_in() -> Problem:
    """Ridge regression on how often each amino acid occurs in either chain."""
    data = load_alphaseq()
    rows = np.random.default_rng(SEED).permutation(len(data.y))[:STAND_IN_ROWS]
    counts = np.hstack([amino_acid_counts(chain[rows]) for chain in (data.heavy, data.light)])
    y, half = data.y[rows], STAND_IN_ROWS // 2
    Z = StandardScaler().fit(counts[:half]).transform(counts)
    y_pred = Ridge().fit(Z[:half], y[:half]).predict(Z)
    return Problem(
        "alphaseq_stand_in",
        Z=Z[half:],
        y=y[half:],
        y_pred=y_pred[half:],
        Z_train=Z[:half],
        y_train=y[:half],
        y_pred_train=y_pred[:half],
    )


def amino_acid_counts(chains: Iterable[str]) -> FloatArray:
    """(n, 20): how often each amino acid occurs in each chain."""
    counts = [[chain.count(letter) for letter in AMINO_ACIDS] for chain in chains]
    return np.array(counts, dtype=np.float64)
