"""Beyond the paper: nine tables, gradient boosting, N = 60, 200 and 1,000.

A third of the rows, at most 5,000, trains the model and standardises the features; divisions are
drawn among at most 6,000 others, of which at most 3,000 test. N that leave fewer than 100 test
rows are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import StandardScaler

from calliper import CalliperError, QuantileModel
from calliper.lab.evaluation import Problem
from studies.experiments.data import load_tabular
from studies.experiments.deutschmann2024 import methods
from studies.experiments.deutschmann2024.config import QUANTILES, SEED
from studies.experiments.deutschmann2024.study import Study, leave_out

TABLES = {
    "bike": "bike_kaggle_10886",
    "boston": "boston_housing",
    "california": "california_housing_20640",
    "communities": "communities_crime",
    "concrete": "concrete",
    "energy": "energy_heating",
    "protein": "protein_casp_rmsd",
    "star": "star_2161",
    "yacht": "yacht",
}
SIZES = (60, 200, 1000)
MOST_TRAIN, MOST_HELD_OUT, MOST_TEST, FEWEST_TEST = 5000, 6000, 3000, 100


def studies(quick: bool) -> Sequence[Study]:
    """All methods but the tuned ones on every table and N."""
    found = []
    for title in ("concrete", "yacht") if quick else TABLES:
        try:
            table = Table(title)
        except CalliperError as error:
            leave_out(title, error)
            continue
        problem = table.problem()
        chosen = {
            **methods.quick_to_predict(problem),
            **methods.slow_to_predict(),
            **methods.quantile_regression(),
        }
        for n in SIZES[:1] if quick else SIZES:
            left = min(len(problem) - n, MOST_TEST)
            if left < FEWEST_TEST:
                continue
            common: dict[str, Any] = {"n_calibration": [n], "n_test": left}
            if quick:
                common["divisions"] = 3
            found += [
                Study(title, problem, chosen, **common),
                Study(title, problem, methods.default(), **common),
                Study(title, table.raw_problem(), table.whole(), **common),
            ]
    return found


class Table:
    """A table with boosted trees trained on a part of it."""

    def __init__(self, title: str) -> None:
        self.title = title
        data = load_tabular(TABLES[title])
        order = np.random.default_rng(SEED).permutation(len(data.y))
        n_train = min(len(order) // 3, MOST_TRAIN)
        train, held_out = order[:n_train], order[n_train : n_train + MOST_HELD_OUT]
        self.X_train, self.y_train = data.X[train], data.y[train]
        self.X, self.y = data.X[held_out], data.y[held_out]
        self.model = HistGradientBoostingRegressor(random_state=SEED)
        self.model.fit(self.X_train, self.y_train)

    def problem(self) -> Problem:
        """Nearness is judged in standardised features."""
        boosting = HistGradientBoostingRegressor(loss="quantile", random_state=SEED)
        pair = QuantileModel(boosting, QUANTILES).fit(self.X_train, self.y_train)
        scaler = StandardScaler().fit(self.X_train)
        return Problem(
            self.title,
            Z=scaler.transform(self.X),
            y=self.y,
            y_pred=self.model.predict(self.X),
            Z_train=scaler.transform(self.X_train),
            y_train=self.y_train,
            y_pred_train=self.model.predict(self.X_train),
            outputs={"quantiles": np.asarray(pair.predict(self.X))},
        )

    def raw_problem(self) -> Problem:
        """The same rows, and by its name the same divisions, with raw inputs."""
        return Problem(self.title, Z=self.X, y=self.y, y_pred=self.model.predict(self.X))

    def whole(self) -> dict[str, Any]:
        """The defaults of ConformalRegressor around this table's model."""
        return methods.whole(self.model, self.X_train, self.y_train)
