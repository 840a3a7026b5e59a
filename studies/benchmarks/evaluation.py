"""What ``evaluate`` adds to the work it schedules: against a bare loop over the same cells.

In processor time, of one process: the few percent in question are less than what other work on the
machine adds to the time on the wall.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from calliper import KNN, AbsoluteError, FullRescaled, Intervals, JackknifeRescaled, Split
from calliper.lab.evaluation import Problem, evaluate
from calliper.lab.metrics import MEASURES, Context
from studies.benchmarks.timing import best_times, table, verdict

LEVELS = (0.8, 0.9)
N_SPLITS = 5


def problem(n: int) -> Problem:
    rng = np.random.default_rng(0)
    Z = rng.uniform(size=(n, 5))
    y = Z[:, 0] * rng.normal(size=n)
    return Problem("fan", Z=Z, y=y, y_pred=np.zeros(n))


def bare_loop(data: Problem, methods: dict[str, Any], n_calibration: int) -> list[float]:
    """Fit, predict and measure, with nothing kept but the numbers."""
    numbers = []
    score = AbsoluteError()
    scores = score.measure(data.y, data.y_pred)
    for name, method in methods.items():
        for split in range(N_SPLITS):
            rows = np.random.default_rng(split).permutation(len(data))
            calibration, test = rows[:n_calibration], rows[n_calibration:]
            if "random_state" in method.get_params():
                method.set_params(random_state=split)
            radius = method.fit(data.Z[calibration], scores[calibration]).predict_radius(
                data.Z[test], LEVELS
            )
            y, y_pred, Z = data.y[test], data.y_pred[test], data.Z[test]
            largest = float(scores[calibration].max())
            for column, level in enumerate(LEVELS):
                intervals = Intervals(*score.invert(y_pred, radius[:, column]), level)
                context = Context(
                    level=level,
                    y_pred=y_pred,
                    problem="fan",
                    method=name,
                    n_calibration=n_calibration,
                    Z=Z,
                    X=Z,
                    max_score=largest,
                )
                numbers += [m.function(y, intervals, context) for m in MEASURES.values()]
    return numbers


def overhead(rounds: int) -> str:
    methods = {
        "Split": Split(),
        "FullRescaled": FullRescaled(KNN(10)),
        "JackknifeRescaled": JackknifeRescaled(KNN(10)),
    }
    rows = []
    for n in (4_000, 20_000):
        data, settings = problem(n), {"coverage": LEVELS, "n_calibration": n // 4}

        def bare(data: Problem = data, n: int = n) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                bare_loop(data, methods, n // 4)

        def scheduled(data: Problem = data, settings: Any = settings) -> None:
            evaluate(data, methods, n_splits=N_SPLITS, **settings)

        def stored(data: Problem = data, settings: Any = settings) -> None:
            with tempfile.TemporaryDirectory() as folder:
                evaluate(data, methods, n_splits=N_SPLITS, store=Path(folder), **settings)

        work = {"bare": bare, "evaluate": scheduled, "stored": stored}
        time = best_times(work, rounds, process_time)
        cells = len(methods) * N_SPLITS
        rows.append(
            [
                f"{n:,} rows, {cells} cells of {1000 * time['bare'] / cells:.0f} ms",
                verdict(time["evaluate"] / time["bare"], 1.05),
                verdict(time["stored"] / time["bare"], 1.05),
            ]
        )
    return table(["work", "evaluate / bare loop", "with a store / bare loop"], rows)


if __name__ == "__main__":
    print(overhead(5))
