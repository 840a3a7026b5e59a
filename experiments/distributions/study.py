"""CRPS beside crepes' predictive systems: ``python -m experiments.distributions.study``.

Nine tables, a random forest trained once for each split, the same forest, calibration and test
rows for all methods; ten splits. A third of the rows trains, at most 3,000, a third calibrates, at
most 1,000, and of the rest at most 1,000 test. crepes gets every difficulty that it offers, with
residuals that the forest makes out of bag. N points of 1/N each are scored by one formula for all.
What is stored is kept, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from crepes import ConformalPredictiveSystem
from crepes.extras import DifficultyEstimator
from sklearn.ensemble import RandomForestRegressor

from calliper import ConformalRegressor, Split, metrics
from experiments import FloatArray
from experiments.data import load_tabular
from experiments.last_digit import last_digit

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "distributions-table.md"
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
OURS, PLAIN = "calliper, default", "calliper, Split"
MOST_TRAIN, MOST = 3000, 1000


def crps_of(points: FloatArray, y: FloatArray) -> float:
    """Mean score of rows of N equally likely points, (m, N)."""
    gap, n = np.sort(points, axis=1) - y[:, None], points.shape[1]
    weight = 2 * np.arange(1, n + 1) - n - 1
    return float((np.abs(gap).mean(axis=1) - gap @ weight / n**2).mean())


def of_crepes(forest: Any, X: Any, y: Any, y_pred: Any, parts: Any) -> dict[str, float]:
    """Mean CRPS with no normalisation and with each difficulty."""
    train, cal, test = parts
    left_out = y[train] - forest.oob_prediction_
    given: dict[str, dict[str, Any]] = {
        "distance": {},
        "targets": {"y": y[train]},
        "residuals": {"residuals": left_out},
    }
    sigmas = {
        name: DifficultyEstimator().fit(X=X[train], scaler=True, **known).apply
        for name, known in given.items()
    }
    sigmas["variance"] = DifficultyEstimator().fit(X=X[train], learner=forest, scaler=True).apply
    sigmas["none"] = lambda rows: np.ones(len(rows))
    found = {}
    for name, sigma in sigmas.items():
        system = ConformalPredictiveSystem().fit(y[cal] - y_pred[cal], sigmas=sigma(X[cal]))
        points = system.predict_cpds(y_pred[test], sigmas=sigma(X[test]))
        found[f"crepes, {name}"] = crps_of(points, y[test])
    return found


def one_split(table: str, split: int) -> dict[str, float]:
    """Mean CRPS of every method on one split."""
    warnings.simplefilter("ignore")
    data = load_tabular(TABLES[table])
    order = np.random.default_rng(split).permutation(len(data.y))
    third = len(order) // 3
    train, cal, test = (
        order[: min(third, MOST_TRAIN)],
        order[third : third + min(third, MOST)],
        order[2 * third :][:MOST],
    )
    forest = RandomForestRegressor(oob_score=True, random_state=split)
    forest.fit(data.X[train], data.y[train])
    y_pred = forest.predict(data.X)
    found = of_crepes(forest, data.X, data.y, y_pred, (train, cal, test))
    for name, method in ((OURS, None), (PLAIN, Split())):
        model = ConformalRegressor(forest, method, random_state=split)
        model.calibrate(data.X[cal], data.y[cal], X_train=data.X[train], y_train=data.y[train])
        predicted = model.predict_distribution(data.X[test])
        found[name] = float(metrics.crps(data.y[test], predicted))
    return found


def page(stored: dict[str, dict[str, float]], splits: int) -> str:
    """The table as Markdown: CRPS of each method over that of plain split."""
    # Without normalisation crepes' points are those of plain split.
    theirs = [name for name in next(iter(stored.values())) if name.startswith("crepes")]
    names = [OURS, *sorted(name for name in theirs if not name.endswith("none"))]
    lines = [
        "| table | " + " | ".join(names) + " | calliper / best of crepes |",
        "|---" * (len(names) + 2) + "|",
    ]
    against = []
    for table in TABLES:
        rows = [stored[f"{table}, split {split}"] for split in range(splits)]
        ratio = {name: np.array([row[name] / row[PLAIN] for row in rows]) for name in names}
        best = min(1.0, *(ratio[name].mean() for name in names[1:]))
        against.append(ratio[OURS].mean() / best)
        cells = [last_digit(ratio[name]) for name in names]
        lines.append(f"| {table} | {' | '.join(cells)} | {against[-1]:.3f} |")
    mean = float(np.exp(np.mean(np.log(against))))
    return "\n".join([*lines, f"| geometric mean | {'| ' * len(names)}| **{mean:.3f}** |", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    splits = parser.parse_args().splits
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for split in range(splits):
        for table in TABLES:
            key = f"{table}, split {split}"
            if key not in stored:
                stored[key] = one_split(table, split)
                RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
                print(f"{key} done", file=sys.stderr, flush=True)
    PAGE.write_text(page(stored, splits), encoding="utf-8")


if __name__ == "__main__":
    main()
