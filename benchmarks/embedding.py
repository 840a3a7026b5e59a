"""Cost of the space that ``embed="auto"`` chooses, against the model's own predict."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.timing import best_times, table, verdict
from calliper import ConformalRegressor, FullRescaled, Split

N_TRAINING, N, M, D = 2_000, 500, 10_000, 10
LIMIT = 1.5


def models() -> dict[str, Any]:
    forest = RandomForestRegressor(random_state=0)
    return {
        "random forest": forest,
        "random forest, 2 threads": RandomForestRegressor(n_jobs=2, random_state=0),
        "scaler and forest": make_pipeline(StandardScaler(), forest),
        "extra trees": ExtraTreesRegressor(random_state=0),
        "bagging": BaggingRegressor(n_estimators=100, random_state=0),
        "bagging, half of the inputs": BaggingRegressor(
            n_estimators=100, max_features=0.5, random_state=0
        ),
        "gradient boosting": GradientBoostingRegressor(random_state=0),
        "histogram gradient boosting": HistGradientBoostingRegressor(random_state=0),
    }


def auto(rounds: int) -> str:
    """Prediction and place of new rows in one pass, for each kind of model.

    Without training rows, and with the error that left-out training rows let expect.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_TRAINING + N + M, D))
    y = X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=len(X))
    train, calibration, new = np.split(np.arange(len(X)), [N_TRAINING, N_TRAINING + N])
    rows = []
    for name, model in models().items():
        model.fit(X[train], y[train])
        alone = ConformalRegressor(model, Split()).calibrate(X[calibration], y[calibration])
        taught = ConformalRegressor(model, FullRescaled(), left_out_folds=2).calibrate(
            X[calibration], y[calibration], X_train=X[train], y_train=y[train]
        )
        work = {
            "predict": partial(model.predict, X[new]),
            "alone": partial(alone.embedding_.predict_and_transform, X[new]),
            "taught": partial(taught.embedding_.predict_and_transform, X[new]),
        }
        time = best_times(work, rounds)
        ratios = [verdict(time[key] / time["predict"], LIMIT) for key in ("alone", "taught")]
        rows.append([name, alone.embedding_.space.name, *ratios])
    header = [f"{M:,} × {D}", "space", "/ predict", "with expected error / predict"]
    return table(header, rows)
