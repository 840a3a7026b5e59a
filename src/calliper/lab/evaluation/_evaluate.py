"""Evaluate methods × problems × splits: the same splits for all, resumable, in parallel."""

import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

from calliper._notebook import Progress, reporter
from calliper._types import Coverage
from calliper._validation import check_levels
from calliper.exceptions import FailedTrialsWarning, warn
from calliper.lab.evaluation import _plan as plan
from calliper.lab.evaluation._plan import Problem
from calliper.lab.evaluation._records import Records, Row
from calliper.lab.evaluation._run import run_all
from calliper.lab.evaluation._store import Store, versions
from calliper.metrics import at_least


def evaluate(
    problems: Problem | Iterable[Problem],
    calibrators: Mapping[str, Any] | Iterable[Any],
    *,
    coverage: Coverage = 0.9,
    n_splits: int = 10,
    n_calibration: plan.Sizes = None,
    n_test: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    measures: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Records:
    """Evaluate every method on the same splits of every problem.

    Each split draws N held-out rows to calibrate and others to test. It depends only on
    ``random_state``, the name of the problem, N and the number of the split, so adding a problem,
    a method or more splits changes no other value. A method without a ``random_state`` of its
    own is seeded by the split.

    Parameters
    ----------
    problems : Problem, or several with different names
    calibrators : mapping from a name to a calibrator or a :class:`Method`
        Or a list, whose methods are named by their representation.
    coverage : float or increasing list of floats, default 0.9
    n_splits : int, default 10
    n_calibration : int, several, or a mapping from names of problems to either
        N; by default half of the held-out rows.
    n_test : int, optional
        Test rows of each split; by default all that are not used for calibration.
    random_state : int, default 0
    n_jobs : int, optional
        As in joblib, whose ``parallel_config`` chooses where trials run: processes, threads, or
        any registered backend that can return results one by one, such as Dask.
    store : folder or path of a ``.jsonl`` file, optional
        Finished trials (one method on one split of one problem) are appended there at once. A
        later call with this store computes only what is missing: trials with the same data,
        parameters, levels, measures and versions are read. Trials with errors are computed again.
        Functions are compared by their code, defaults and closures, but not by the functions they
        call or the code of your own classes: start another store if these change.
    measures : mapping from a name to a function or a :class:`calliper.metrics.Measure`
        Functions of ``(y, intervals, context)``; by default ``calliper.metrics.MEASURES``.
    progress : callable or True, optional
        Called with the fraction of trials done; may raise to stop. ``True`` shows a bar in a
        notebook, elsewhere a line on standard error.

    Returns
    -------
    Records
        A row for each problem × method × N × split × level. If a method raises or its worker
        process dies, its rows have the status "failed" and the text of the error; a measure that
        raises is NaN and named in ``error``. A :class:`FailedTrialsWarning` counts these rows.

    Examples
    --------
    >>> import numpy as np
    >>> from calliper import FullRescaled, Split
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(400, 1))
    >>> y = Z[:, 0] * rng.normal(size=400)
    >>> problem = Problem("fan", Z=Z, y=y, y_pred=np.zeros(400))
    >>> methods = {"Split": Split(), "FullRescaled": FullRescaled()}
    >>> records = evaluate(problem, methods, n_splits=3, n_calibration=200)
    >>> for row in records.where(split=0):
    ...     print(row["method"], round(row["coverage"], 1), round(row["mean_width"], 1))
    Split 0.9 2.0
    FullRescaled 0.9 1.7
    """
    splits, seed = at_least(n_splits, 1, "n_splits"), at_least(random_state, 0, "random_state")
    levels, measured = check_levels(coverage), plan.check_measures(measures)
    methods, known = plan.check_methods(calibrators), plan.check_problems(problems)
    trials = [
        plan.Trial(
            problem=problem,
            name=name,
            method=method,
            draw=plan.Draw(random_state=seed, problem=problem.name, n_calibration=n, split=split),
            n_test=m,
            levels=levels,
            measures=measured,
        )
        for problem in known
        for n, m in plan.sizes(n_calibration, n_test, problem, [each.name for each in known])
        for name, method in methods.items()
        for split in range(splits)
    ]
    described = {name: measure.description() for name, measure in measured.items()}
    rows = _compute(trials, n_jobs, Store(store), reporter(progress, "evaluating"))
    records = Records(rows, described, [_settings(trials)])
    if failures := records.failures:
        names = ", ".join(dict.fromkeys(row["method"] for row in failures))
        warn(
            f"{len(failures)} of {len(records)} rows have errors ({names}); the first: "
            f"{failures[0]['error']} See Records.failures.",
            FailedTrialsWarning,
        )
    return records


def _compute(
    trials: list[plan.Trial], n_jobs: int | None, store: Store, report: Progress
) -> list[Row]:
    """Rows of every trial in order, read from the store where possible."""
    results: dict[int, list[Row]] = {}
    for place, trial in enumerate(trials):
        reason = trial.method.why_skipped(trial.problem)
        rows = store.get(trial) if reason is None else trial.rows("skipped", error=reason)
        if rows is not None:
            results[place] = rows
    report(len(results) / len(trials))
    todo = {place: trial for place, trial in enumerate(trials) if place not in results}
    for place, rows in run_all(todo, n_jobs):
        store.add(trials[place], rows)
        results[place] = rows
        report(len(results) / len(trials))
    return [row for place in range(len(trials)) for row in results[place]]


def _settings(trials: list[plan.Trial]) -> dict[str, Any]:
    """What is needed to repeat the run, apart from the data."""
    first, methods = trials[0], {trial.name: trial.method for trial in trials}
    return {
        "coverage": list(first.levels),
        "n_splits": 1 + max(trial.draw.split for trial in trials),
        "random_state": first.draw.random_state,
        "methods": {name: method.describe() for name, method in methods.items()},
        "problems": {trial.problem.name: list(trial.problem.Z.shape) for trial in trials},
        "versions": {**versions(), "python": platform.python_version()},
    }
