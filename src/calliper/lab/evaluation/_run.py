"""One trial after another, or side by side: a method calibrated, its intervals measured.

What raises is put on record, and the rest goes on, also where a worker process dies. Warnings are
kept by trial: ``warnings.catch_warnings`` changes the whole process, so that two threads inside it
at once lose warnings or leave the filters changed. Here the first thread to come in puts a hook in
place, the last to leave takes it away, and the hook sorts warnings by thread. A thread that a trial
has started itself is not known by it: its warnings go to every trial of that moment, marked.
"""

import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

from joblib import Parallel, delayed

from calliper._types import FloatArray, IntArray
from calliper.calibration import Calibration, calibrate, measured, with_random_state
from calliper.calibrators import as_calibrator
from calliper.intervals import Intervals
from calliper.lab.evaluation._plan import Trial
from calliper.lab.evaluation._records import Row
from calliper.metrics import Context, Measure
from calliper.rows import Rows
from calliper.scores import as_score


def run(trial: Trial) -> list[Row]:
    """The rows of a trial; what raises is put on record, and the rest goes on."""
    with caught_warnings() as caught:
        try:
            rows = _measured(trial)
        except Exception as error:
            rows = trial.rows("failed", error=f"{type(error).__name__}: {error}")
    for row in rows:
        row["warnings"] = list(caught)
    return rows


def _measured(trial: Trial) -> list[Row]:
    problem = trial.problem
    calibration, test = trial.draw.rows(len(problem), trial.n_test)
    outputs, _ = trial.method.predictions(problem)
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
        "max_score": float(
            fitted.score.magnitude(problem.y[calibration], outputs[calibration]).max()
        ),
    }
    promises = all(calibrator.promises for calibrator in fitted.calibrators)
    for row in rows:
        level = row["level"]
        row["guaranteed"] = float(fitted.guaranteed_coverage(level)) if promises else None
        context = Context(level=level, **known)
        _measure(row, trial.measures, problem.y[test], intervals.at(level), context)
    return rows


def _calibrated(trial: Trial, rows: IntArray) -> Calibration:
    """The method calibrated on held-out rows; seeds that it lacks are those of the split."""
    problem, method = trial.problem, trial.method
    score = as_score(method.score_function or problem.score_function)
    outputs, trained = method.predictions(problem)
    training = None
    if problem.Z_train is not None:
        training, y = Rows(problem.Z_train, targets=problem.y_train), problem.y_train
        if y is not None and trained is not None:
            training = replace(training, scores=score.magnitude(y, trained))
    calibrator = with_random_state(as_calibrator(method.calibrator), trial.draw.method_seed)
    held_out = measured(score, problem.Z[rows], problem.y[rows], outputs[rows])
    return calibrate(calibrator, score, held_out, training=training)


def _measure(
    row: Row, measures: Mapping[str, Measure], y: FloatArray, intervals: Intervals, context: Context
) -> None:
    """Fill in every measure; one that raises stays NaN, and the row says why."""
    for name, measure in measures.items():
        try:
            row[name] = float(measure.function(y, intervals, context))
        except Exception as error:
            text = f"measure {name} raised {type(error).__name__}: {error}"
            row["error"] = text if row["error"] is None else f"{row['error']} {text}"


def run_all(trials: Mapping[int, Trial], n_jobs: int | None) -> Iterator[tuple[int, list[Row]]]:
    """Place and rows of each trial as soon as they are there, in any order.

    A worker process that is killed (out of memory, a crash in compiled code) takes along all that
    were at work, and does not say which trial it had. Those handed out are then run once more, one
    at a time: what kills its worker alone is failed, the others have their rows, and the rest goes
    on side by side.
    """
    left = dict(trials)
    while left:
        handed_out: list[int] = []
        try:
            for place, rows in _side_by_side(left, handed_out, n_jobs):
                del left[place]
                yield place, rows
        except BrokenExecutor:
            for place in [place for place in handed_out if place in left]:
                yield place, _alone(place, left.pop(place), n_jobs)


def _side_by_side(
    trials: Mapping[int, Trial], handed_out: list[int], n_jobs: int | None
) -> Iterator[tuple[int, list[Row]]]:
    def tasks() -> Iterator[Any]:
        for place, trial in list(trials.items()):
            handed_out.append(place)
            yield delayed(_placed)(place, trial)

    # Trials one by one, so that a killed run loses only those that were being computed.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(tasks())


def _alone(place: int, trial: Trial, n_jobs: int | None) -> list[Row]:
    try:
        ((_, rows),) = _side_by_side({place: trial}, [], n_jobs)
    except BrokenExecutor as error:
        text = " ".join(str(error).split())
        return trial.rows("failed", error=f"the worker process died: {text}")
    return rows


def _placed(place: int, trial: Trial) -> tuple[int, list[Row]]:
    return place, run(trial)


_lock = threading.Lock()
_texts: dict[int, list[str]] = {}  # by thread
_inside = 0
_outside: Any = None


@contextmanager
def caught_warnings() -> Iterator[list[str]]:
    """A list that fills with the warnings of this thread, each different text once."""
    thread = threading.get_ident()
    texts: list[str] = []
    outer = _texts.get(thread)
    _enter()
    _texts[thread] = texts
    try:
        yield texts
    finally:
        if outer is None:
            del _texts[thread]
        else:
            _texts[thread] = outer
        _leave()


def _enter() -> None:
    global _inside, _outside
    with _lock:
        if _inside == 0:
            _outside = warnings.catch_warnings()
            _outside.__enter__()
            warnings.simplefilter("always")
            warnings.showwarning = _sort
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _outside.__exit__(None, None, None)


def _sort(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    text, here = f"{category.__name__}: {message}", _texts.get(threading.get_ident())
    if here is None:
        text += " (in another thread)"
    for texts in list(_texts.values()) if here is None else [here]:
        if text not in texts:
            texts.append(text)
