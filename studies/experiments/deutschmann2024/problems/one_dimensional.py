"""The one-dimensional task: ten draws, each with its own random forest, N = 500, 2,000 and more.

The paper trains scikit-learn's default forest, and one without bootstrapping that overfits. Its
k_ε = 2 is read as cycles (which comes close to its table) and as radians (which is printed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from calliper import QuantileModel
from calliper.lab.datasets import OneDimensional, one_dimensional
from calliper.lab.evaluation import Problem
from studies.experiments.deutschmann2024 import methods
from studies.experiments.deutschmann2024.config import DIVISIONS, QUANTILES, TASKS
from studies.experiments.deutschmann2024.study import Study

TASK = TASKS["one_dimensional"]
N_TRAIN = 1000
#: Sizes of the paper's figure; which ones it shows is not in its source.
SWEEP = (50, 100, 200, 500, 1000, 2000)
#: (title, reading of the noise, bootstrapped forest?)
VARIANTS = (
    (TASK.title, "cycles", True),
    (f"{TASK.title}, overfitting forest", "cycles", False),
    (f"{TASK.title}, noise in radians", "radians", True),
    (f"{TASK.title}, noise in radians, overfitting forest", "radians", False),
)


def studies(quick: bool) -> Sequence[Study]:
    """Every method on the first variant, the paper's and ours on the others."""
    found = []
    for title, noise, bootstrap in VARIANTS[:2] if quick else VARIANTS:
        for draw in range(3 if quick else DIVISIONS):
            problem = draw_problem(noise, bootstrap, draw)
            chosen: dict[str, Any] = methods.quick_to_predict(problem)
            first = title == TASK.title
            if first:
                chosen |= methods.slow_to_predict() | methods.quantile_regression()
            sizes = TASK.n_calibration[:1] if quick else _sizes(title)
            common: dict[str, Any] = {
                "n_test": 2000 if quick else TASK.n_test,
                "divisions": 1,
                "first": draw,
            }
            found.append(Study(title, problem, chosen, n_calibration=sizes, **common))
            if first:
                data, model = trained(noise, bootstrap, draw)
                told = {
                    **methods.default(),
                    **methods.whole(model, data.X[:N_TRAIN], data.y[:N_TRAIN]),
                }
                sizes = TASK.n_calibration[:1] if quick else TASK.n_calibration
                found.append(Study(title, problem, told, n_calibration=sizes, **common))
            if first and not quick:
                found += [
                    Study(title, problem, methods.tuned(n, columns=1), n_calibration=[n], **common)
                    for n in TASK.n_calibration
                ]
    return found


def _sizes(title: str) -> tuple[int, ...]:
    """The sweep where the noise is read in cycles."""
    return TASK.n_calibration if "radians" in title else SWEEP


def draw_problem(noise: Any, bootstrap: bool, draw: int) -> Problem:
    """One draw: train, and predict what is left for calibration and test."""
    data, model = trained(noise, bootstrap, draw)
    train, held_out = slice(N_TRAIN), slice(N_TRAIN, None)
    boosting = HistGradientBoostingRegressor(loss="quantile", random_state=draw)
    pair = QuantileModel(boosting, QUANTILES).fit(data.X[train], data.y[train])
    y_pred = model.predict(data.X)
    return Problem(
        f"1-D {noise} {'bootstrapped' if bootstrap else 'overfitting'} {draw}",
        Z=data.X[held_out],
        y=data.y[held_out],
        y_pred=y_pred[held_out],
        Z_train=data.X[train],
        y_train=data.y[train],
        y_pred_train=y_pred[train],
        outputs={"quantiles": np.asarray(pair.predict(data.X[held_out]))},
    )


def trained(noise: Any, bootstrap: bool, draw: int) -> tuple[OneDimensional, Any]:
    """Data and the forest that learnt their first 1,000 rows."""
    n = N_TRAIN + max(TASK.n_calibration) + (TASK.n_test or 0)
    data = one_dimensional(n, noise=noise, random_state=draw)
    forest = RandomForestRegressor(bootstrap=bootstrap, random_state=draw)
    return data, forest.fit(data.X[:N_TRAIN], data.y[:N_TRAIN])
