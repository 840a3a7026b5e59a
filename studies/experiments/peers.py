"""MAPIE and crepes themselves beside calliper: ``python -m studies.experiments.peers``.

The nine tables and the draws of the study on nearness: one fitted model, 500 calibration rows and
1,000 test rows, the same for every library, at 90 %. Each library is asked as its documentation
says, first by default, then in the ways that it has to divide the errors of a fitted model by how
difficult a row is. What is stored is kept, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator
from mapie.conformity_scores import GammaConformityScore, ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import cross_val_predict

from calliper import ConformalRegressor, Intervals, metrics
from studies.experiments import FloatArray
from studies.experiments.nearness.problems import TABULAR, Draw, draw

RESULTS = Path(__file__).with_name("peers.json")
PAGE = Path(__file__).parents[1] / "records" / "peers.md"
MODELS = {"forest": "random forest", "histogram boosting": "histogram gradient boosting"}
N, LEVEL = 500, 0.9
PLAIN = "MAPIE, default"


def of_mapie(score: Any) -> Callable[[Draw, int], Intervals]:
    """A fitted model with one of MAPIE's scores."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        how = {"confidence_level": LEVEL, "conformity_score": score(rows, seed), "prefit": True}
        wrapped = SplitConformalRegressor(rows.model, **how)
        wrapped.conformalize(rows.calibration.X, rows.calibration.y)
        ends = wrapped.predict_interval(rows.test.X)[1]
        return Intervals(ends[:, 0, 0], ends[:, 1, 0], LEVEL)

    return intervals


def of_crepes(**known: Callable[[Draw, int], Any]) -> Callable[[Draw, int], Intervals]:
    """A fitted model with a difficulty, by what of the training rows is known to it; or without."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        difficulty = None
        if known:
            given = {name: value(rows, seed) for name, value in known.items()}
            difficulty = DifficultyEstimator().fit(X=rows.train.X, scaler=True, **given)
        wrapped = WrapRegressor(rows.model)
        wrapped.calibrate(rows.calibration.X, rows.calibration.y, de=difficulty, seed=seed)
        ends = wrapped.predict_int(rows.test.X, confidence=LEVEL, seed=seed)
        return Intervals(ends[:, 0], ends[:, 1], LEVEL)

    return intervals


def of_calliper(folds: int | None) -> Callable[[Draw, int], Intervals]:
    """Calibration rows alone, or training rows with errors of models that left them out."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        train = {} if folds is None else {"X_train": rows.train.X, "y_train": rows.train.y}
        model = ConformalRegressor(rows.model, left_out_folds=folds, random_state=seed)
        model.calibrate(rows.calibration.X, rows.calibration.y, **train)
        return model.predict_interval(rows.test.X, LEVEL)

    return intervals


def left_out(rows: Draw, seed: int) -> FloatArray:
    """Errors on training rows by five models that had not seen them."""
    if "errors" not in rows.kept:
        X, y = rows.train.X, rows.train.y
        rows.kept["errors"] = y - cross_val_predict(rows.model, X, y, cv=5)
    return np.asarray(rows.kept["errors"])


def of_left_out_errors(rows: Draw, seed: int) -> Any:
    """MAPIE's score of a forest that predicts how large they are."""
    forest = RandomForestRegressor(min_samples_leaf=5, random_state=seed)
    forest.fit(rows.train.X, np.abs(left_out(rows, seed)))
    return ResidualNormalisedScore(residual_estimator=forest, prefit=True)


METHODS: dict[str, Callable[[Draw, int], Intervals]] = {
    "calliper, calibrate(X, y)": of_calliper(None),
    "calliper, with training rows": of_calliper(5),
    PLAIN: of_mapie(lambda rows, seed: "absolute"),
    "MAPIE, residuals by calibration rows": of_mapie(
        lambda rows, seed: ResidualNormalisedScore(random_state=seed)
    ),
    "MAPIE, residuals by left-out errors": of_mapie(of_left_out_errors),
    "MAPIE, gamma": of_mapie(lambda rows, seed: GammaConformityScore()),
    "crepes, default": of_crepes(),
    "crepes, distance to neighbours": of_crepes(k=lambda rows, seed: 25),
    "crepes, targets of neighbours": of_crepes(y=lambda rows, seed: rows.train.y),
    "crepes, errors of neighbours": of_crepes(residuals=left_out),
    "crepes, spread of the trees": of_crepes(learner=lambda rows, seed: rows.model),
}


def one_draw(table: str, model: str, repetition: int) -> dict[str, list[float]]:
    """Interval score, coverage, and coverage of the worst tenth by prediction, of every method."""
    warnings.simplefilter("ignore")
    whole = draw(table, model, repetition)
    rows = replace(whole, calibration=whole.calibration.first(N))
    tenths = np.array_split(np.argsort(rows.model.predict(rows.test.X), kind="stable"), 10)
    found = {}
    for name, method in METHODS.items():
        if model != "forest" and name.endswith("trees"):  # has no trees that crepes could ask
            continue
        if name.endswith("gamma") and min(rows.calibration.y.min(), rows.test.y.min()) <= 0:
            continue  # it refuses targets that are not positive
        try:
            intervals = method(rows, repetition)
        except ValueError as error:  # kept as what it is: no answer
            print(f"{table}, {model}, {name}: {error}", file=sys.stderr)
            continue
        inside = intervals.contains(rows.test.y)
        worst = min(inside[tenth].mean() for tenth in tenths)
        measured = metrics.interval_score(rows.test.y, intervals), inside.mean(), worst
        found[name] = [float(f"{value:.5g}") for value in measured]
    return found


def page(stored: dict[str, Any]) -> str:
    """The tables as Markdown, the best first."""
    versions = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    lines = [
        "# Beside MAPIE and crepes",
        "",
        f"Generated by `make peers-table` with {versions}. {len(TABULAR)} public tables, "
        f"{n_repetitions(stored)} draws of each; one fitted model, {N} calibration rows and the "
        f"same test rows for all, {LEVEL:.0%} asked for.",
        "",
        "- **Interval score**: the width plus a penalty for each miss, over that of one width for "
        "all (the default of MAPIE and crepes). Smaller is better, and 1 gains nothing.",
        "- **Worst tenth**: sort the rows by prediction and cut them into ten tenths; coverage of "
        "the one that is covered least. Mean over the tables.",
        "- **Left-out errors** are errors on training rows by models that had not seen them, from "
        "five trainings; calliper takes those of a forest out of bag.",
        "- MAPIE learns **residuals from calibration rows**, a quarter of them, if it is not given "
        "a model of residuals: a linear one of their logarithm, whose widths explode with the "
        "hundred inputs of *communities*.",
        "- Not here: MAPIE's `ConditionalSplitConformalRegressor`, which solves a problem for each "
        "new row; and models of quantiles, which are other models.",
    ]
    for model, name in MODELS.items():
        lines += ["", f"## {name[0].upper()}{name[1:]}", ""]
        lines += ["| library | interval score | worst table | coverage | worst tenth |"]
        lines += ["|---" * 5 + "|"]
        for method, (*means, tables) in summary(stored, model):
            few = "" if tables == len(TABULAR) else f" ({tables} tables)"
            cells = (f"{mean:.3f}" if mean < 100 else f"{mean:.0e}" for mean in means)
            lines.append(f"| {method}{few} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def n_repetitions(stored: dict[str, Any]) -> int:
    """Draws that are complete: every table and every model."""
    return len(stored["draws"]) // (len(TABULAR) * len(MODELS))


def summary(stored: dict[str, Any], model: str) -> list[tuple[str, Any]]:
    """Mean and worst score over plain split, coverage, worst tenth and tables, of each method."""
    rows = {}
    for method in METHODS:
        tables = []
        for table in TABULAR:
            keys = (f"{table}, {model}, {draw}" for draw in range(n_repetitions(stored)))
            draws = [stored["draws"][key] for key in keys]
            if all(method in found for found in draws):
                known = np.array([found[method] for found in draws])
                plain = np.array([found[PLAIN][0] for found in draws])
                tables.append([(known[:, 0] / plain).mean(), *known[:, 1:].mean(axis=0)])
        if tables:
            score, inside, tenth = np.array(tables).T
            rows[method] = (score.mean(), score.max(), inside.mean(), tenth.mean(), len(tables))
    return sorted(rows.items(), key=lambda row: row[1][0])


def document(stored: dict[str, Any]) -> str:
    """What is stored as JSON, a line for each draw."""
    lines = (f"{json.dumps(key)}: {json.dumps(found)}" for key, found in stored["draws"].items())
    versions = json.dumps(stored["versions"])
    return f'{{"versions": {versions}, "draws": {{\n' + ",\n".join(lines) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2)
    repetitions = parser.parse_args().repetitions
    versions = {name: version(name) for name in ("mapie", "crepes", "scikit-learn")}
    stored: dict[str, Any] = {"versions": versions, "draws": {}}
    if RESULTS.exists():
        stored = json.loads(RESULTS.read_text())
    for repetition, model, table in product(range(repetitions), MODELS, TABULAR):
        key = f"{table}, {model}, {repetition}"
        if key not in stored["draws"]:
            stored["draws"][key] = one_draw(table, model, repetition)
            RESULTS.write_text(document(stored))
            print(f"{key} done", file=sys.stderr, flush=True)
    PAGE.write_text(page(stored), encoding="utf-8")


if __name__ == "__main__":
    main()
