"""Problems in a training, a calibration and a test part; a random forest is fitted to the first."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.preprocessing import StandardScaler

from calliper.lab.datasets import one_dimensional
from studies.experiments import FloatArray

ONE_DIMENSIONAL = ("1d-cycles", "1d-radians")
TABULAR = {
    "boston": "boston_housing",
    "concrete": "concrete",
    "communities": "communities_crime",
    "star": "star_2161",
    "bike": "bike_kaggle_10886",
    "california": "california_housing_20640",
    "protein": "protein_casp_rmsd",
}
N_TRAIN, N_TEST = 1000, 2000


@dataclass(frozen=True)
class Part:
    """Features and absolute errors of some rows."""

    Z: FloatArray
    errors: FloatArray


@dataclass(frozen=True)
class Prepared:
    """One draw of a problem: the calibration part is as large as the largest N asked for."""

    train: Part
    calibration: Part
    test: Part


def prepare(name: str, repetition: int, n_calibration: int) -> Prepared | None:
    """Draw, train and predict; ``None`` if the data set is too small for so many points."""
    X, y = _data(name, repetition, n_calibration)
    order = np.random.default_rng(repetition).permutation(len(y))
    n_train = min(N_TRAIN, int(0.4 * len(y)))
    n_test = min(N_TEST, len(y) - n_train - n_calibration)
    if n_test < 100:
        return None
    train, test = order[:n_train], order[n_train : n_train + n_test]
    calibration = order[n_train + n_test :][:n_calibration]
    model = RandomForestRegressor(random_state=repetition).fit(X[train], y[train])
    scale = StandardScaler().fit(X[train]) if X.shape[1] > 1 else None
    parts = []
    for rows in (train, calibration, test):
        Z = X[rows] if scale is None else scale.transform(X[rows])
        parts.append(Part(Z, np.abs(y[rows] - model.predict(X[rows]))))
    return Prepared(*parts)


def _data(name: str, repetition: int, n_calibration: int) -> tuple[FloatArray, FloatArray]:
    if name in ONE_DIMENSIONAL:
        n = N_TRAIN + N_TEST + n_calibration
        reading: Literal["cycles", "radians"] = "cycles" if name == "1d-cycles" else "radians"
        problem = one_dimensional(n, noise=reading, random_state=repetition)
        return problem.X, problem.y
    folder = os.environ.get("CALLIPER_DATA")
    if folder is None:
        raise SystemExit("set CALLIPER_DATA to the folder that holds tabular/*.parquet")
    table = pd.read_parquet(Path(folder) / "tabular" / f"{TABULAR[name]}.parquet")
    numbers = table.to_numpy(dtype=float)
    if len(numbers) > 20_000:
        rows = np.random.default_rng(repetition + 1000).permutation(len(numbers))[:20_000]
        numbers = numbers[rows]
    return numbers[:, 1:], numbers[:, 0]
