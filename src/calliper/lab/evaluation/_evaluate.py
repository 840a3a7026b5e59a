"""Evaluate methods × problems × splits: the same splits for all, resumable, in parallel.

A trial is one method on one split of one problem. The calibration and test rows depend only on
(random_state, name of the problem, N, number of the split), so adding a problem, a method or a
split changes no other. Errors are recorded and the other trials go on, even if a worker process
dies.
"""

import os
import platform
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from calliper._notebook import Progress, reporter
from calliper._types import Coverage, IntArray
from calliper._validation import at_least, check_levels
from calliper.calibration import Calibration, calibrate, measured, with_random_state
from calliper.calibrators import as_calibrator
from calliper.exceptions import FailedTrialsWarning, warn
from calliper.lab.evaluation import _problems as checked
from calliper.lab.evaluation._problems import Method, Problem, Sizes
from calliper.lab.evaluation._records import ROW_FIELDS, Records, Row, Store, versions
from calliper.lab.metrics import Context, Measure
from calliper.rows import Rows
from calliper.scores import as_score


def evaluate(
    problems: Problem | Iterable[Problem],
    calibrators: Mapping[str, Any] | Iterable[Any],
    *,
    coverage: Coverage = 0.9,
    n_splits: int = 10,
    n_calibration: Sizes = None,
    n_test: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    measures: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Records:
    """Evaluate every method on the same splits of every problem.

    Each split draws N held-out rows to calibrate and others to test. It depends only on
    ``random_state``, the name of the problem, N and the number of the split, so adding a problem, a
    method or more splits changes no other value. A method without a ``random_state`` of its own is
    seeded by the split.

    Parameters
    ----------
    problems : Problem, or several with different names
    calibrators : mapping from a name to a calibrator or a :class:`Method`
        Or a list, whose methods are named by their representation.
    coverage : float or increasing list of floats, default 0.9
    n_splits : int, default 10
    n_calibration : int, several, or a mapping from names of problems to either
        N; by default half of the held-out rows.
    n_test : int, optional; test rows of each split; by default all that do not calibrate
    random_state : int, default 0
    n_jobs : int, optional
        As in joblib, whose ``parallel_config`` chooses where trials run: processes, threads, or
        any registered backend that can return results one by one, such as Dask.
    store : folder or path of a ``.jsonl`` file, optional
        Finished trials (one method on one split of one problem) are appended there at once, and a
        later call computes only what is missing: trials with other data, parameters, levels,
        measures or versions, and those with errors. Functions are compared by their code, defaults
        and closures, but not by the functions they call or the code of your own classes.
    measures : mapping from a name to a function or a :class:`calliper.lab.metrics.Measure`
        Functions of ``(y, intervals, context)``; by default ``calliper.lab.metrics.MEASURES``.
    progress : callable or True, optional
        Called with the fraction of trials done; may raise to stop. ``True`` shows a bar.

    Returns
    -------
    Records
        A row for each problem × method × N × split × level. If a method raises or its worker
        process dies, its rows have the status "failed" and the text of the error; a measure that
        raises is NaN and named in ``error``. A :class:`FailedTrialsWarning` counts these rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(400, 1))
    >>> problem = Problem("fan", Z=Z, y=Z[:, 0] * rng.normal(size=400), y_pred=np.zeros(400))
    >>> from calliper import FullRescaled, Split
    >>> methods = {"Split": Split(), "FullRescaled": FullRescaled()}
    >>> for row in evaluate(problem, methods, n_splits=1, n_calibration=200):
    ...     print(row["method"], round(row["coverage"], 1), round(row["mean_width"], 1))
    Split 0.9 2.0
    FullRescaled 0.9 1.7
    """
    splits, seed = at_least(n_splits, 1, "n_splits"), at_least(random_state, 0, "random_state")
    levels, known = check_levels(coverage), checked.check_problems(problems)
    methods, named = checked.check_methods(calibrators), checked.check_measures(measures)
    trials = [
        Trial(problem, name, method, n, m, split, seed, levels, named)
        for problem in known
        for n, m in checked.sizes(n_calibration, n_test, problem, [each.name for each in known])
        for name, method in methods.items()
        for split in range(splits)
    ]
    rows = _compute(trials, n_jobs, Store(store), reporter(progress, "evaluating"))
    described = {name: measure.description() for name, measure in named.items()}
    settings = {
        "coverage": list(levels),
        "n_splits": splits,
        "random_state": seed,
        "methods": {name: method.describe() for name, method in methods.items()},
        "problems": {problem.name: list(problem.Z.shape) for problem in known},
        "versions": {**versions(), "python": platform.python_version()},
    }
    records = Records(rows, described, [settings])
    if failures := records.failures:
        names = ", ".join(dict.fromkeys(row["method"] for row in failures))
        what = f"{len(failures)} of {len(records)} rows have errors ({names}); the first"
        warn(f"{what}: {failures[0]['error']} See Records.failures.", FailedTrialsWarning)
    return records


@dataclass(frozen=True, eq=False)
class Trial:
    """One method on one split of one problem, at all levels; ``name`` is that of the method."""

    problem: Problem
    name: str
    method: Method
    n_calibration: int
    n_test: int
    split: int
    random_state: int
    levels: tuple[float, ...]
    measures: Mapping[str, Measure]

    def draw(self) -> tuple[IntArray, IntArray, int]:
        """Calibration rows, test rows, and a seed for any method that has none."""
        name = int.from_bytes(sha256(self.problem.name.encode()).digest()[:16], "big")
        given = [self.random_state, name, self.n_calibration, self.split]
        seeds, n = np.random.SeedSequence(given), self.n_calibration
        rows = np.random.default_rng(seeds).permutation(len(self.problem))
        seed = int(seeds.spawn(1)[0].generate_state(1)[0] >> 1)
        return rows[:n], rows[n : n + self.n_test], seed

    def rows(self, status: str, **more: Any) -> list[Row]:
        """A row for each level, with the fields that every row has."""
        known = {
            **dict.fromkeys(ROW_FIELDS),
            "problem": self.problem.name,
            "method": self.name,
            "n_calibration": self.n_calibration,
            "n_test": self.n_test,
            "split": self.split,
            "status": status,
            **dict.fromkeys(self.measures, float("nan")),
            **more,
        }
        return [{**known, "level": level, "warnings": []} for level in self.levels]


def _compute(trials: list[Trial], n_jobs: int | None, store: Store, report: Progress) -> list[Row]:
    """Rows of every trial in order, read from the store where possible."""
    results: dict[int, list[Row]] = {}
    for index, trial in enumerate(trials):
        reason = trial.method.why_skipped(trial.problem)
        rows = store.get(trial) if reason is None else trial.rows("skipped", error=reason)
        if rows is not None:
            results[index] = rows
    report(len(results) / len(trials))
    todo = {index: trial for index, trial in enumerate(trials) if index not in results}
    for index, rows in _run_all(todo, n_jobs):
        store.add(trials[index], rows)
        results[index] = rows
        report(len(results) / len(trials))
    return [row for index in range(len(trials)) for row in results[index]]


def _run_all(trials: dict[int, Trial], n_jobs: int | None) -> Iterator[tuple[int, list[Row]]]:
    """Index and rows of each trial as soon as they are computed, in any order.

    A worker process that is killed (out of memory, a crash in compiled code) takes down all trials
    at work, and does not say which one it had. Those handed out are then run again one at a time:
    a trial that kills its worker alone has failed, and the rest goes on in parallel.
    """
    left, handed_out = dict(trials), dict[int, Trial]()

    def tasks() -> Iterator[Any]:
        for index in list(left):
            handed_out[index] = left.pop(index)
            yield delayed(_run)(index, handed_out[index])

    while left or handed_out:
        left |= handed_out
        handed_out.clear()
        try:
            # Trials one by one, so that a killed run loses only those that were being computed.
            parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
            for index, rows in parallel(tasks()):
                del handed_out[index]
                yield index, rows
        except BrokenExecutor:
            while handed_out:
                index, trial = handed_out.popitem()
                try:
                    yield Parallel(n_jobs=n_jobs)([delayed(_run)(index, trial)])[0]
                except BrokenExecutor as error:
                    text = f"the worker process died: {' '.join(str(error).split())}"
                    yield index, trial.rows("failed", error=text)


def _run(index: int, trial: Trial) -> tuple[int, list[Row]]:
    """The index of a trial and its rows; an error is recorded in them."""
    with _caught_warnings() as caught:
        try:
            rows = _measured(trial)
        except Exception as error:
            rows = trial.rows("failed", error=f"{type(error).__name__}: {error}")
    for row in rows:
        row["warnings"] = list(caught)
    return index, rows


def _measured(trial: Trial) -> list[Row]:
    """The rows of a trial: calibrate on one part of the split, measure on the other."""
    problem, y = trial.problem, trial.problem.y
    calibration, test, seed = trial.draw()
    outputs = trial.method.predictions(problem)[0]
    start = perf_counter()
    fitted = _calibrated(trial, calibration, seed)
    middle = perf_counter()
    y_pred, Z = outputs[test], problem.Z[test]
    intervals = fitted.intervals(y_pred, Rows(Z), trial.levels)
    rows = trial.rows("ok", seconds_fit=middle - start, seconds_predict=perf_counter() - middle)
    known: dict[str, Any] = {
        "problem": problem.name,
        "method": trial.name,
        "n_calibration": trial.n_calibration,
        "y_pred": fitted.centre(y_pred),
        "Z": Z,
        "X": Z if problem.X is None else problem.X[test],
        "groups": None if problem.groups is None else problem.groups[test],
        "max_score": float(fitted.score.magnitude(y[calibration], outputs[calibration]).max()),
    }
    promises = all(calibrator.promises for calibrator in fitted.calibrators)
    for row in rows:
        level, errors = row["level"], []
        row["guaranteed"] = float(fitted.guaranteed_coverage(level)) if promises else None
        given = y[test], intervals.at(level), Context(level=level, **known)
        for name, measure in trial.measures.items():
            try:
                row[name] = float(measure.function(*given))
            except Exception as error:  # it stays NaN, and the row says why
                errors.append(f"measure {name} raised {type(error).__name__}: {error}")
        row["error"] = " ".join(errors) or None
    return rows


def _calibrated(trial: Trial, rows: IntArray, seed: int) -> Calibration:
    """The method calibrated on held-out rows, with a seed unless it has its own."""
    problem, method = trial.problem, trial.method
    score = as_score(method.score_function or problem.score_function)
    outputs, trained = method.predictions(problem)
    training, y = None, problem.y_train
    if problem.Z_train is not None:
        scores = None if y is None or trained is None else score.magnitude(y, trained)
        training = Rows(problem.Z_train, targets=y, scores=scores)
    calibrator = with_random_state(as_calibrator(method.calibrator), seed)
    held_out = measured(score, problem.Z[rows], problem.y[rows], outputs[rows])
    return calibrate(calibrator, score, held_out, training=training)


_lock = threading.Lock()
_hook = ExitStack()
_at_work: list[tuple[int, list[str]]] = []  # thread and warnings of each trial, the newest last


@contextmanager
def _caught_warnings() -> Iterator[list[str]]:
    """A list that fills with the warnings of this thread, each different text once.

    ``warnings.catch_warnings`` changes the whole process, so two threads inside it at once would
    lose warnings. So the first trial installs a hook, the last one removes it, and the hook sorts
    warnings by thread; those of threads that a trial has started go to every trial then at work,
    marked.
    """
    mine = threading.get_ident(), list[str]()
    with _lock:
        if not _at_work:
            _hook.enter_context(warnings.catch_warnings())
            warnings.simplefilter("always")
            warnings.showwarning = _sort
        _at_work.append(mine)
    try:
        yield mine[1]
    finally:
        with _lock:
            _at_work[:] = [each for each in _at_work if each is not mine]
            if not _at_work:
                _hook.close()


def _sort(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    text, thread = f"{category.__name__}: {message}", threading.get_ident()
    found = [texts for other, texts in _at_work if other == thread][-1:]
    if not found:
        text, found = f"{text} (in another thread)", [texts for _, texts in _at_work]
    for texts in found:
        if text not in texts:
            texts.append(text)
