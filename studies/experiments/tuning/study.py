"""Every criterion on every problem: ``python -m studies.experiments.tuning.study``.

Writes one record for each problem, N, repetition and method to ``results.json``; records that are
already there are kept, so that a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import sklearn
from joblib import Parallel, delayed

import calliper
from calliper import KNN, Intervals, JackknifeRescaled, Split, metrics
from calliper.kernels import TunedKNN, TunedRBF
from studies.experiments.tuning.problems import ONE_DIMENSIONAL, TABULAR, prepare

SIZES = (60, 200, 500, 2000)
LEVEL = 0.9
RESULTS = Path(__file__).with_name("results.json")


def methods(dimension: int, n: int) -> dict[str, Any]:
    """Kernels to compare; mutual information at N = 2000 leaves out folds, to stay in minutes."""
    components = None if dimension == 1 else 2
    mi: dict[str, Any] = {"n_components": components, "n_folds": 20 if n >= 2000 else None}
    return {
        "split": Split(),
        "KNN(10)": JackknifeRescaled(KNN(10)),
        "TunedKNN, mse": JackknifeRescaled(TunedKNN("mse")),
        "TunedRBF, mse": JackknifeRescaled(TunedRBF("mse")),
        "TunedRBF, deviance": JackknifeRescaled(TunedRBF("deviance")),
        "TunedRBF, mi": JackknifeRescaled(TunedRBF("mi", **mi)),
        "TunedRBF, mi, paper grid": JackknifeRescaled(TunedRBF("mi", grid="paper", **mi)),
    }


def one_draw(problem: str, repetition: int, done: set[tuple[int, str]]) -> list[dict[str, Any]]:
    """All methods at all sizes that are not done, each on the same rows."""
    warnings.simplefilter("ignore")
    records = []
    for n in SIZES:
        data = prepare(problem, repetition, n)
        if data is None:
            continue
        Z, errors = data.calibration.Z, data.calibration.errors
        for name, method in methods(Z.shape[1], n).items():
            if (n, name) in done:
                continue
            extra = {} if isinstance(method, Split) else {"training": data.train.Z}
            if extra:
                method.set_params(random_state=repetition)
            start = perf_counter()
            radius = method.fit(Z, errors, **extra).predict_radius(data.test.Z, LEVEL)
            records.append(
                {
                    "problem": problem,
                    "n": n,
                    "repetition": repetition,
                    "method": name,
                    "seconds": round(perf_counter() - start, 3),
                    **_measure(data.test.errors, radius),
                }
            )
    return records


def _measure(errors: Any, radius: Any) -> dict[str, float]:
    intervals = Intervals(-radius, radius, LEVEL)
    zero = np.zeros(len(errors))
    return {
        "coverage": float(metrics.empirical_coverage(errors, intervals)),
        "half_width": float(metrics.mean_width(intervals, half=True)),
        "interval_score": float(metrics.interval_score(errors, intervals)),
        "infinite": float(metrics.fraction_infinite(intervals)),
        "tau_si": float(metrics.tau_si(errors, intervals, y_pred=zero)),
        "r2_sqi": float(metrics.r2_sqi(errors, intervals, y_pred=zero)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--problems", nargs="*", default=[*ONE_DIMENSIONAL, *TABULAR])
    options = parser.parse_args()
    stored = json.loads(RESULTS.read_text())["records"] if RESULTS.exists() else []
    done: dict[tuple[str, int], set[tuple[int, str]]] = defaultdict(set)
    for record in stored:
        done[record["problem"], record["repetition"]].add((record["n"], record["method"]))
    todo = [(p, r) for r in range(options.repetitions) for p in options.problems]
    order = {name: place for place, name in enumerate(methods(1, 1))}
    parallel = Parallel(n_jobs=-1, return_as="generator_unordered")
    draws = parallel(delayed(one_draw)(*item, done[item]) for item in todo)
    for count, records in enumerate(draws, start=1):
        stored.extend(records)
        stored.sort(key=lambda r: (r["problem"], r["n"], r["repetition"], order[r["method"]]))
        RESULTS.write_text(_document(stored))
        print(f"{count}/{len(todo)} draws done", file=sys.stderr, flush=True)


def _document(records: list[dict[str, Any]]) -> str:
    versions = {
        "calliper": calliper.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }
    lines = ",\n  ".join(json.dumps(record) for record in records)
    return f'{{"level": {LEVEL}, "versions": {json.dumps(versions)}, "records": [\n  {lines}\n]}}\n'


if __name__ == "__main__":
    main()
