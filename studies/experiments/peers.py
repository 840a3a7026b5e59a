"""Peers beside calliper on the same rows: ``python -m studies.experiments.peers``.

The tables and the draws of the study on nearness, and blog feedback: one fitted model, 500
calibration rows and 1,000 test rows, the same for every library, at 90 %. MAPIE and crepes are
asked as their documentation says, first by default, then in the ways that they have to divide the
errors of a fitted model by how difficult a row is. Models of quantiles, or of a centre and a
spread, are trained on the same training rows and calibrated on the same calibration rows.

What is stored is kept, so that an interrupted run goes on; ``--again`` measures named rows anew.
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
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import cross_val_predict

from calliper import ConformalRegressor, Intervals, metrics
from calliper.quantile import conformal_thresholds
from studies.experiments import FloatArray
from studies.experiments.nearness.problems import TABLES, Draw, draw

RESULTS = Path(__file__).with_name("peers.json")
PAGE = Path(__file__).parents[1] / "records" / "peers.md"
MODELS = {
    "forest": "random forest",
    "histogram boosting": "histogram gradient boosting",
    "XGBoost": "XGBoost",
    "LightGBM": "LightGBM",
    "CatBoost": "CatBoost",
}
N, LEVEL, N_DEALS = 500, 0.9, 20
PLAIN, THREE_LINES = "MAPIE, default", "calliper, calibrate(X, y)"
LIBRARIES = (
    *("mapie", "crepes", "scikit-learn", "quantile-forest", "ngboost"),
    *("xgboost-cpu", "lightgbm", "catboost"),
)

Method = Callable[[Draw, int], Intervals]
#: Both ends, or a centre and its spread, of any rows: (m, 2).
Ends = Callable[[FloatArray], FloatArray]


def of_mapie(score: Any) -> Method:
    """A fitted model with one of MAPIE's scores."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        how = {"confidence_level": LEVEL, "conformity_score": score(rows, seed), "prefit": True}
        wrapped = SplitConformalRegressor(rows.model, **how)
        wrapped.conformalize(rows.calibration.X, rows.calibration.y)
        ends = wrapped.predict_interval(rows.test.X)[1]
        return Intervals(ends[:, 0, 0], ends[:, 1, 0], LEVEL)

    return intervals


def of_crepes(**known: Callable[[Draw, int], Any]) -> Method:
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


def of_calliper(folds: int | None) -> Method:
    """Calibration rows alone, or training rows with errors of models that left them out."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        train = {} if folds is None else {"X_train": rows.train.X, "y_train": rows.train.y}
        model = ConformalRegressor(rows.model, refits=folds, random_state=seed)
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


def of_quantiles(train: Callable[[FloatArray, FloatArray, int], Ends]) -> Method:
    """CQR: max(q̂_low − y, y − q̂_high) is the score, and both ends move by its quantile."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        ends = train(rows.train.X, rows.train.y, seed)
        low, high = ends(rows.calibration.X).T
        y = rows.calibration.y
        (further,) = conformal_thresholds(np.sort(np.maximum(low - y, y - high)), [LEVEL])
        low, high = ends(rows.test.X).T
        low, high = low - further, high + further
        middle = (low + high) / 2  # where the ends have crossed, nothing is inside
        return Intervals(np.minimum(low, middle), np.maximum(high, middle), LEVEL)

    return intervals


def of_spread(train: Callable[[FloatArray, FloatArray, int], Ends]) -> Method:
    """|y − ŷ| / σ̂ is the score, of a model that says both."""

    def intervals(rows: Draw, seed: int) -> Intervals:
        model = train(rows.train.X, rows.train.y, seed)
        centre, spread = model(rows.calibration.X).T
        (times,) = conformal_thresholds(
            np.sort(np.abs(rows.calibration.y - centre) / spread), [LEVEL]
        )
        centre, spread = model(rows.test.X).T
        return Intervals(centre - times * spread, centre + times * spread, LEVEL)

    return intervals


TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def pair(fresh: Callable[[float, int], Any]) -> Callable[[FloatArray, FloatArray, int], Ends]:
    """A model for each end."""

    def train(X: FloatArray, y: FloatArray, seed: int) -> Ends:
        models = [fresh(tail, seed).fit(X, y) for tail in TAILS]
        return lambda Z: np.column_stack([model.predict(Z) for model in models])

    return train


def histogram_boosting(tail: float, seed: int) -> Any:
    return HistGradientBoostingRegressor(loss="quantile", quantile=tail, random_state=seed)


def lightgbm(tail: float, seed: int) -> Any:
    from lightgbm import LGBMRegressor

    quiet: Any = {"n_jobs": 1, "verbose": -1}
    return LGBMRegressor(objective="quantile", alpha=tail, random_state=seed, **quiet)


def xgboost(X: FloatArray, y: FloatArray, seed: int) -> Ends:
    from xgboost import XGBRegressor

    quantiles: Any = {"objective": "reg:quantileerror", "quantile_alpha": np.array(TAILS)}
    model: Any = XGBRegressor(**quantiles, random_state=seed, n_jobs=1).fit(X, y)
    return lambda Z: np.asarray(model.predict(Z))


def catboost(loss: str) -> Callable[[FloatArray, FloatArray, int], Any]:
    """A model of CatBoost with another loss."""

    def train(X: FloatArray, y: FloatArray, seed: int) -> Any:
        from catboost import CatBoostRegressor  # type: ignore[import-untyped]

        quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
        return CatBoostRegressor(loss_function=loss, random_seed=seed, **quiet).fit(X, y).predict

    return train


def catboost_quantiles(X: FloatArray, y: FloatArray, seed: int) -> Ends:
    alpha = ",".join(f"{tail:.2f}" for tail in TAILS)
    predict = catboost(f"MultiQuantile:alpha={alpha}")(X, y, seed)
    return lambda Z: np.asarray(predict(Z))


def catboost_spread(X: FloatArray, y: FloatArray, seed: int) -> Ends:
    predict = catboost("RMSEWithUncertainty")(X, y, seed)

    def centre_and_spread(Z: FloatArray) -> FloatArray:
        mean, variance = predict(Z).T
        return np.column_stack([mean, np.sqrt(variance)])

    return centre_and_spread


def quantile_forest(X: FloatArray, y: FloatArray, seed: int) -> Ends:
    from quantile_forest import RandomForestQuantileRegressor

    forest = RandomForestQuantileRegressor(random_state=seed).fit(X, y)
    return lambda Z: np.asarray(forest.predict(Z, quantiles=TAILS))


def ngboost(X: FloatArray, y: FloatArray, seed: int) -> Ends:
    """Centre and spread of a normal distribution."""
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(X, y)

    def centre_and_spread(Z: FloatArray) -> FloatArray:
        found = model.pred_dist(Z)
        return np.column_stack([found.loc, found.scale])

    return centre_and_spread


#: What is asked of every model; of which models else.
METHODS: dict[str, Method] = {
    THREE_LINES: of_calliper(None),
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
    "quantile-forest, CQR": of_quantiles(quantile_forest),
    "scikit-learn's quantile pair, CQR": of_quantiles(pair(histogram_boosting)),
    "NGBoost, its spread": of_spread(ngboost),
    "XGBoost's quantiles, CQR": of_quantiles(xgboost),
    "LightGBM's quantile pair, CQR": of_quantiles(pair(lightgbm)),
    "CatBoost's MultiQuantile, CQR": of_quantiles(catboost_quantiles),
    "CatBoost's RMSEWithUncertainty, its spread": of_spread(catboost_spread),
}
OF_ONE_MODEL = {
    "crepes, spread of the trees": "forest",
    "quantile-forest, CQR": "forest",
    "scikit-learn's quantile pair, CQR": "histogram boosting",
    "NGBoost, its spread": "histogram boosting",
    "XGBoost's quantiles, CQR": "XGBoost",
    "LightGBM's quantile pair, CQR": "LightGBM",
    "CatBoost's MultiQuantile, CQR": "CatBoost",
    "CatBoost's RMSEWithUncertainty, its spread": "CatBoost",
}


def asked(model: str) -> list[str]:
    """Methods beside one model; those that wrap any model beside two."""
    wrapping = [name for name in METHODS if name not in OF_ONE_MODEL]
    own = [name for name in METHODS if OF_ONE_MODEL.get(name) == model]
    few = model in ("forest", "histogram boosting")
    return (wrapping if few else [*wrapping[:3], "crepes, default"]) + own


def one_draw(
    table: str, model: str, repetition: int, names: list[str]
) -> dict[str, list[float] | None]:
    """Interval score, coverage, and coverage of the worst tenth by prediction; None: no answer."""
    warnings.simplefilter("ignore")
    whole = draw(table, model, repetition)
    rows = replace(whole, calibration=whole.calibration.first(N))
    tenths = np.array_split(np.argsort(rows.model.predict(rows.test.X), kind="stable"), 10)
    found: dict[str, list[float] | None] = dict.fromkeys(names)
    for name in names:
        if name.endswith("gamma") and min(rows.calibration.y.min(), rows.test.y.min()) <= 0:
            continue  # it refuses targets that are not positive
        try:
            intervals = METHODS[name](rows, repetition)
        except ValueError as error:
            print(f"{table}, {model}, {name}: {error}", file=sys.stderr)
            continue
        inside = intervals.contains(rows.test.y)
        worst = min(inside[tenth].mean() for tenth in tenths)
        measured = metrics.interval_score(rows.test.y, intervals), inside.mean(), worst
        found[name] = [float(f"{value:.5g}") for value in measured]
    return found


def of_deals(table: str) -> list[float]:
    """Interval scores of LightGBM in three lines, of the same rows dealt otherwise each time."""
    warnings.simplefilter("ignore")
    whole = draw(table, "LightGBM", 0)
    rows = replace(whole, calibration=whole.calibration.first(N))
    every = (METHODS[THREE_LINES](rows, seed) for seed in range(N_DEALS))
    return [float(f"{metrics.interval_score(rows.test.y, each):.5g}") for each in every]


def page(stored: dict[str, Any]) -> str:
    """The tables as Markdown, the best first."""
    versions = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    lines = [
        "# Beside MAPIE, crepes and models of quantiles",
        "",
        f"Generated by `make peers-table` with {versions}. {len(TABLES)} public tables, "
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
        "- **CQR** moves both ends of a model of quantiles, and **its spread** divides errors by "
        "what a model of a centre and a spread says of itself. These are other models than the one "
        "of the title, trained by default settings on the same training rows; the score is still "
        "over plain split for that one. NGBoost stands beside histogram boosting.",
        "- **Dealt otherwise**: `calibrate(X, y)` deals its rows by a seed into those that teach "
        f"and those that calibrate. Over {N_DEALS} seeds the score of LightGBM varies by "
        f"{spread(stored)} (standard deviation over the mean, mean over the tables and largest).",
        "- Not here: MAPIE's `ConditionalSplitConformalRegressor`, which solves a problem for each "
        "new row.",
    ]
    for model, name in MODELS.items():
        lines += ["", f"## {name[0].upper()}{name[1:]}", ""]
        lines += ["| library | interval score | worst table | coverage | worst tenth |"]
        lines += ["|---" * 5 + "|"]
        for method, (*means, tables) in summary(stored, model):
            few = "" if tables == len(TABLES) else f" ({tables} tables)"
            cells = (f"{mean:.3f}" if mean < 100 else f"{mean:.0e}" for mean in means)
            lines.append(f"| {method}{few} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def spread(stored: dict[str, Any]) -> str:
    """By how much a score varies from one deal of the rows to another."""
    known = np.array([stored["deals"][table] for table in TABLES])
    each = known.std(axis=1, ddof=1) / known.mean(axis=1)
    return f"{each.mean():.3f} and {each.max():.3f}"


def n_repetitions(stored: dict[str, Any]) -> int:
    """Draws that are complete: every table and every model."""
    return len(stored["draws"]) // (len(TABLES) * len(MODELS))


def summary(stored: dict[str, Any], model: str) -> list[tuple[str, Any]]:
    """Mean and worst score over plain split, coverage, worst tenth and tables, of each method."""
    rows = {}
    for method in asked(model):
        tables = []
        for table in TABLES:
            keys = (f"{table}, {model}, {draw}" for draw in range(n_repetitions(stored)))
            draws = [stored["draws"][key] for key in keys]
            if all(found.get(method) for found in draws):
                known = np.array([found[method] for found in draws], dtype=float)
                plain = np.array([found[PLAIN][0] for found in draws])
                tables.append([(known[:, 0] / plain).mean(), *known[:, 1:].mean(axis=0)])
        if tables:
            score, inside, tenth = np.array(tables).T
            rows[method] = (score.mean(), score.max(), inside.mean(), tenth.mean(), len(tables))
    return sorted(rows.items(), key=lambda row: row[1][0])


def document(stored: dict[str, Any]) -> str:
    """What is stored as JSON, a line for each draw."""
    lines = (f"{json.dumps(key)}: {json.dumps(found)}" for key, found in stored["draws"].items())
    others = json.dumps({name: stored[name] for name in ("versions", "deals")})
    return f'{others[:-1]}, "draws": {{\n' + ",\n".join(lines) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--again", nargs="*", default=[], choices=METHODS, help="measure anew")
    options = parser.parse_args()
    stored: dict[str, Any] = {"versions": {}, "deals": {}, "draws": {}}
    if RESULTS.exists():
        stored |= json.loads(RESULTS.read_text())
    stored["versions"] |= {name: version(name) for name in LIBRARIES}
    for repetition, model, table in product(range(options.repetitions), MODELS, TABLES):
        key = f"{table}, {model}, {repetition}"
        found = stored["draws"].setdefault(key, {})
        names = [name for name in asked(model) if name not in found or name in options.again]
        if names:
            found |= one_draw(table, model, repetition, names)
            RESULTS.write_text(document(stored))
            print(f"{key} done", file=sys.stderr, flush=True)
    for table in TABLES:
        if table not in stored["deals"] or THREE_LINES in options.again:
            stored["deals"][table] = of_deals(table)
            RESULTS.write_text(document(stored))
    PAGE.write_text(page(stored), encoding="utf-8")


if __name__ == "__main__":
    main()
