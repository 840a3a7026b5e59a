"""Every method on every problem and model: ``python -m studies.experiments.nearness.study``.

Writes one record for each problem, model, N, repetition and method to ``results.json``; records
that are already there are kept, so that a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import sklearn
from joblib import Parallel, delayed
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import calliper
from calliper import Intervals, metrics
from studies.experiments import FloatArray
from studies.experiments.nearness.methods import LEVEL, LEVELS, methods
from studies.experiments.nearness.problems import ASIDE, MODELS, TABLES, Draw, draw

SIZES = (100, 250, 500, 1000, 2000, 5000)
#: Rows drawn of a large table: 2,000 train, 1,000 test, 5,000 calibrate.
N_ROWS = 8000
#: Neighbours among the test rows whose mean error says how difficult a place is.
N_DIFFICULTY = 20
N_DECILES = 10
RESULTS = Path(__file__).with_name("results.json")
#: What a stored row holds, in this order: with names the file would be twice as large.
PLACE = ("problem", "model", "n", "repetition", "method")
MEASURED = ("seconds", "score", "coverage", "width", "worst")


def one_draw(
    problem: str, model: str, repetition: int, done: set[tuple[int, str]]
) -> list[dict[str, Any]]:
    """All methods at all sizes that are not done, each on the same rows."""
    warnings.simplefilter("ignore")
    todo = [(n, name) for n in SIZES for name in methods(n, model) if (n, name) not in done]
    if not todo:
        return []
    whole = draw(problem, model, repetition, N_ROWS)
    y_pred = whole.model.predict(whole.test.X)
    deciles = [_deciles(y_pred), _deciles(_difficulty(whole, y_pred))]
    records = []
    for n, name in todo:
        if n > 500 and len(whole.calibration.y) < n:
            continue  # a small set has all it has at N = 500
        cut = replace(whole, calibration=whole.calibration.first(n))
        start = perf_counter()
        intervals = methods(n, model)[name](cut, repetition)
        seconds = round(perf_counter() - start, 3)
        record = {"problem": problem, "model": model, "n": n, "repetition": repetition}
        record |= {"method": name, "seconds": seconds}
        records.append(record | _measure(whole.test.y, intervals, deciles))
    return records


def read_records() -> list[dict[str, Any]]:
    """The records that are stored, each with its names."""
    rows = json.loads(RESULTS.read_text())["records"]
    return [dict(zip((*PLACE, *MEASURED), map(_infinite, row), strict=True)) for row in rows]


def _text(row: list[Any]) -> str:
    """A row as strict JSON; an infinity is a text."""
    return json.dumps([_finite(value) for value in row], separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return str(value) if value in (float("inf"), -float("inf")) else value


def _infinite(value: Any) -> Any:
    """What was stored, with infinities as numbers again."""
    if isinstance(value, list):
        return [_infinite(each) for each in value]
    return float(value) if value in ("inf", "-inf") else value


def _difficulty(whole: Draw, y_pred: FloatArray) -> FloatArray:
    """Mean error of other test rows near by, in standardised inputs: no method sees it."""
    Z = StandardScaler().fit(whole.train.X).transform(whole.test.X)
    search = NearestNeighbors(n_neighbors=min(N_DIFFICULTY, len(Z) - 1)).fit(Z)
    errors: FloatArray = np.abs(whole.test.y - y_pred)
    return np.asarray(errors[search.kneighbors(return_distance=False)].mean(axis=1))


def _deciles(values: FloatArray) -> list[Any]:
    return np.array_split(np.argsort(values, kind="stable"), N_DECILES)


def _measure(y: FloatArray, intervals: Intervals, deciles: list[Any]) -> dict[str, Any]:
    """Score, coverage and width at each level; worst deciles at the main one."""
    levels: Any = intervals.coverage
    columns = {float(level): place for place, level in enumerate(levels)}
    measured: dict[str, Any] = {"score": [], "coverage": [], "width": []}
    for level in LEVELS:
        if level not in columns:  # a model of two quantiles has one level
            for key in ("score", "coverage", "width"):
                measured[key].append(None)
            continue
        lower, upper = (end[:, columns[level]] for end in (intervals.lower, intervals.upper))
        one = Intervals(lower, upper, level)
        measured["score"].append(_short(metrics.interval_score(y, one)))
        measured["coverage"].append(_short(metrics.empirical_coverage(y, one)))
        measured["width"].append(_short(metrics.mean_width(one)))
        if level == LEVEL:
            inside = (lower <= y) & (y <= upper)
            worst = [min(inside[rows].mean() for rows in groups) for groups in deciles]
            measured["worst"] = [_short(value) for value in worst]
    return measured


def _short(value: Any) -> float:
    return float(f"{float(value):.5g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--problems", nargs="*", default=[*TABLES, *ASIDE])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--jobs", type=int, default=-1)
    options = parser.parse_args()
    stored = read_records() if RESULTS.exists() else []
    done: dict[tuple[str, str, int], set[tuple[int, str]]] = defaultdict(set)
    for record in stored:
        key = (record["problem"], record["model"], record["repetition"])
        done[key].add((record["n"], record["method"]))
    todo = [
        (problem, model, repetition)
        for repetition in range(options.repetitions)
        for model in options.models
        for problem in options.problems
    ]
    parallel = Parallel(n_jobs=options.jobs, return_as="generator_unordered")
    draws = parallel(delayed(one_draw)(*item, done[item]) for item in todo)
    for count, records in enumerate(draws, start=1):
        stored.extend(records)
        if records:
            RESULTS.write_text(_document(stored))
        print(f"{count}/{len(todo)} draws done", file=sys.stderr, flush=True)


def _document(records: list[dict[str, Any]]) -> str:
    versions = {
        "calliper": calliper.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }
    ordered = sorted(records, key=lambda record: [str(record[key]).zfill(5) for key in PLACE])
    rows = ([record[key] for key in (*PLACE, *MEASURED)] for record in ordered)
    lines = ",\n  ".join(_text(row) for row in rows)
    head = f'"levels": {list(LEVELS)}, "versions": {json.dumps(versions)}'
    return f'{{{head}, "records": [\n  {lines}\n]}}\n'


if __name__ == "__main__":
    main()
