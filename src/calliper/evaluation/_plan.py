"""From the arguments of ``evaluate`` to the cells that it computes, checked before any work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calliper._types import Coverage
from calliper._validation import check_levels
from calliper.evaluation._cell import FIELDS, Cell
from calliper.evaluation._measures import DEFAULT_MEASURES, Measure
from calliper.evaluation._problem import Method, Problem
from calliper.exceptions import CalliperError
from calliper.metrics._bins import at_least

#: N of every problem: one, several, or either by name of the problem; None is half of the rows.
Sizes = int | Sequence[int] | Mapping[str, int | Sequence[int]] | None


def plan(
    problems: Problem | Iterable[Problem],
    calibrators: Mapping[str, Any] | Iterable[Any],
    *,
    coverage: Coverage,
    n_splits: int,
    n_calibration: Sizes,
    n_test: int | None,
    random_state: int,
    measures: Mapping[str, Any] | None,
) -> list[Cell]:
    """All cells in the order of their rows: problem, N, method, split."""
    levels = check_levels(coverage)
    splits = at_least(n_splits, 1, "n_splits")
    seed = at_least(random_state, 0, "random_state")
    methods, measured = _check_methods(calibrators), _check_measures(measures)
    cells = []
    for problem in (problem_list := _check_problems(problems)):
        for n in _sizes(n_calibration, problem, [p.name for p in problem_list]):
            m = _test_size(problem, n, n_test)
            cells += [
                Cell(problem, name, method, n, m, split, seed, levels, measured)
                for name, method in methods.items()
                for split in range(splits)
            ]
    return cells


def _check_problems(problems: Any) -> list[Problem]:
    found = [problems] if isinstance(problems, Problem) else list(problems)
    for problem in found:
        if not isinstance(problem, Problem):
            raise CalliperError(
                f"problems must be Problem objects; got {type(problem).__name__}. "
                f'Write Problem("name", Z=..., y=..., y_pred=...).'
            )
    if not found:
        raise CalliperError("problems must not be empty: nothing to evaluate on.")
    _refuse_repeats([problem.name for problem in found], "problems")
    return found


def _check_methods(calibrators: Any) -> dict[str, Method]:
    if isinstance(calibrators, Mapping):
        named = [(str(name), _as_method(c)) for name, c in calibrators.items()]
    else:
        found = calibrators if isinstance(calibrators, Iterable) else [calibrators]
        named = [(method.describe(), method) for method in map(_as_method, found)]
    if not named:
        raise CalliperError("calibrators must not be empty: nothing to evaluate.")
    _refuse_repeats([name for name, _ in named], "calibrators")
    return dict(named)


def _as_method(calibrator: Any) -> Method:
    return calibrator if isinstance(calibrator, Method) else Method(calibrator)


def _check_measures(measures: Mapping[str, Any] | None) -> dict[str, Measure]:
    if measures is None:
        return dict(DEFAULT_MEASURES)
    if not isinstance(measures, Mapping) or not measures:
        raise CalliperError(
            f"measures must map names to functions of (y, intervals, context); got {measures!r}."
        )
    for name in measures:
        if name in FIELDS:
            raise CalliperError(f"{name} is a field of every row: call the measure otherwise.")
    return {n: m if isinstance(m, Measure) else Measure(m) for n, m in measures.items()}


def _sizes(n_calibration: Sizes, problem: Problem, names: list[str]) -> list[int]:
    if n_calibration is None:
        return [max(1, len(problem) // 2)]
    if isinstance(n_calibration, Mapping):
        if n_calibration.keys() != set(names):
            raise CalliperError(
                f"n_calibration must name every problem and no other; it names "
                f"{sorted(n_calibration)}, the problems are {sorted(names)}."
            )
        n_calibration = n_calibration[problem.name]
    sizes: list[Any] = (
        list(n_calibration) if isinstance(n_calibration, Iterable) else [n_calibration]
    )
    _refuse_repeats(sizes, "n_calibration")
    return [at_least(n, 1, "n_calibration") for n in sizes]


def _test_size(problem: Problem, n: int, n_test: int | None) -> int:
    wanted = 1 if n_test is None else at_least(n_test, 1, "n_test")
    if n + wanted > len(problem):
        raise CalliperError(
            f"{problem.name!r} has {len(problem)} held-out rows, too few for {n} to calibrate and "
            f"{'any' if n_test is None else n_test} to test: lower n_calibration to at most "
            f"{max(0, len(problem) - wanted)}, or hold out more rows."
        )
    return len(problem) - n if n_test is None else int(n_test)


def _refuse_repeats(names: list[Any], what: str) -> None:
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise CalliperError(
            f"{what} must differ in name; {', '.join(repeated)} comes more than once."
        )
