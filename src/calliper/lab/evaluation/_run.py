"""Run trials, in sequence or in parallel: calibrate a method and measure its intervals.

Errors are recorded and the other trials go on, even if a worker process dies. Warnings are recorded
by trial: ``warnings.catch_warnings`` changes the whole process, so two threads inside it at once
would lose warnings or leave the filters changed. So the first trial installs a hook, the last one
removes it, and the hook sorts warnings by thread. Warnings of threads that a trial has started go
to every trial then at work, marked.
"""

import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from joblib import Parallel, delayed

from calliper._types import IntArray
from calliper.calibration import Calibration, calibrate, measured, with_random_state
from calliper.calibrators import as_calibrator
from calliper.lab.evaluation._plan import Trial
from calliper.lab.evaluation._records import Row
from calliper.metrics import Context
from calliper.rows import Rows
from calliper.scores import as_score


def run(place: int, trial: Trial) -> tuple[int, list[Row]]:
    """The place of a trial and its rows; an error is recorded in them."""
    with caught_warnings() as caught:
        try:
            rows = _measured(trial)
        except Exception as error:
            rows = trial.rows("failed", error=f"{type(error).__name__}: {error}")
    for row in rows:
        row["warnings"] = list(caught)
    return place, rows


def _measured(trial: Trial) -> list[Row]:
    """The rows of a trial: calibrate on one part of the split, measure on the other."""
    problem, y = trial.problem, trial.problem.y
    calibration, test = trial.draw.rows(len(problem), trial.n_test)
    outputs = trial.method.predictions(problem)[0]
    start = perf_counter()
    fitted = _calibrated(trial, calibration)
    middle = perf_counter()
    y_pred, Z = outputs[test], problem.Z[test]
    intervals = fitted.intervals(y_pred, Z, trial.levels)
    rows = trial.rows("ok", seconds_fit=middle - start, seconds_predict=perf_counter() - middle)
    known: dict[str, Any] = {
        "problem": problem.name,
        "method": trial.name,
        "n_calibration": trial.draw.n_calibration,
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


def _calibrated(trial: Trial, rows: IntArray) -> Calibration:
    """The method calibrated on held-out rows, seeded by the split unless it has a seed."""
    problem, method = trial.problem, trial.method
    score = as_score(method.score_function or problem.score_function)
    outputs, trained = method.predictions(problem)
    training, y = None, problem.y_train
    if problem.Z_train is not None:
        scores = None if y is None or trained is None else score.magnitude(y, trained)
        training = Rows(problem.Z_train, targets=y, scores=scores)
    calibrator = with_random_state(as_calibrator(method.calibrator), trial.draw.method_seed)
    held_out = measured(score, problem.Z[rows], problem.y[rows], outputs[rows])
    return calibrate(calibrator, score, held_out, training=training)


def run_all(trials: Mapping[int, Trial], n_jobs: int | None) -> Iterator[tuple[int, list[Row]]]:
    """Place and rows of each trial as soon as they are computed, in any order.

    A worker process that is killed (out of memory, a crash in compiled code) takes down all trials
    at work, and does not say which one it had. Those handed out are then run again one at a time:
    a trial that kills its worker alone has failed, and the rest goes on in parallel.
    """
    left, handed_out = dict(trials), dict[int, Trial]()

    def tasks() -> Iterator[Any]:
        for place in list(left):
            handed_out[place] = left.pop(place)
            yield delayed(run)(place, handed_out[place])

    while left or handed_out:
        left |= handed_out
        handed_out.clear()
        try:
            # Trials one by one, so that a killed run loses only those that were being computed.
            parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
            for place, rows in parallel(tasks()):
                del handed_out[place]
                yield place, rows
        except BrokenExecutor:
            while handed_out:
                place, trial = handed_out.popitem()
                try:
                    yield Parallel(n_jobs=n_jobs)([delayed(run)(place, trial)])[0]
                except BrokenExecutor as error:
                    text = f"the worker process died: {' '.join(str(error).split())}"
                    yield place, trial.rows("failed", error=text)


_lock = threading.Lock()
_hook = ExitStack()
_texts: dict[int, list[str]] = {}  # of the trials at work, by thread


@contextmanager
def caught_warnings() -> Iterator[list[str]]:
    """A list that fills with the warnings of this thread, each different text once."""
    thread, texts = threading.get_ident(), list[str]()
    with _lock:
        outer = _texts.get(thread)
        if not _texts:
            _hook.enter_context(warnings.catch_warnings())
            warnings.simplefilter("always")
            warnings.showwarning = _sort
        _texts[thread] = texts
    try:
        yield texts
    finally:
        with _lock:
            del _texts[thread]
            if outer is not None:
                _texts[thread] = outer
            if not _texts:
                _hook.close()


def _sort(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    text, here = f"{category.__name__}: {message}", _texts.get(threading.get_ident())
    if here is None:
        text += " (in another thread)"
    for texts in list(_texts.values()) if here is None else [here]:
        if text not in texts:
            texts.append(text)
