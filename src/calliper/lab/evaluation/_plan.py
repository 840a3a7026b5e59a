"""The trials that ``evaluate`` computes, and the checks of its arguments.

A trial is one method on one split of one problem. The calibration and test rows depend only on
(random_state, name of the problem, N, number of the split), so adding a problem, a method or a
split changes no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from calliper._types import IntArray
from calliper.exceptions import CalliperError
from calliper.lab.evaluation._problem import Method, Problem
from calliper.lab.evaluation._records import ROW_FIELDS, Row
from calliper.metrics import MEASURES, Measure, at_least

#: N of every problem: one, several, or a mapping from names of problems; None is half the rows.
Sizes = int | Sequence[int] | Mapping[str, int | Sequence[int]] | None


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Everything that the rows and the seed of a split depend on."""

    random_state: int
    problem: str
    n_calibration: int
    split: int

    def rows(self, n: int, n_test: int) -> tuple[IntArray, IntArray]:
        """Calibration rows, (N,), and test rows, (n_test,), none in both."""
        rows = np.random.default_rng(self._seeds()).permutation(n)
        return rows[: self.n_calibration], rows[self.n_calibration : self.n_calibration + n_test]

    @property
    def method_seed(self) -> int:
        """Seed for methods without one: the same for all methods, different for each split."""
        return int(self._seeds().spawn(1)[0].generate_state(1)[0] >> 1)

    def _seeds(self) -> np.random.SeedSequence:
        name = int.from_bytes(sha256(self.problem.encode()).digest()[:16], "big")
        return np.random.SeedSequence([self.random_state, name, self.n_calibration, self.split])


@dataclass(frozen=True, eq=False, kw_only=True)
class Trial:
    """One method on one split of one problem, at all levels; ``name`` is that of the method."""

    problem: Problem
    name: str
    method: Method
    draw: Draw
    n_test: int
    levels: tuple[float, ...]
    measures: Mapping[str, Measure]

    def rows(self, status: str, **more: Any) -> list[Row]:
        """A row for each level, with the fields that every row has."""
        known = {
            **dict.fromkeys(ROW_FIELDS),
            "problem": self.problem.name,
            "method": self.name,
            "n_calibration": self.draw.n_calibration,
            "n_test": self.n_test,
            "split": self.draw.split,
            "status": status,
        }
        measured = dict.fromkeys(self.measures, float("nan"))
        return [
            {**known, "level": level, "warnings": [], **measured, **more} for level in self.levels
        ]


def check_problems(problems: Any) -> list[Problem]:
    """The problems as a list, with different names."""
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


def check_methods(calibrators: Any) -> dict[str, Method]:
    """The methods by name."""
    found = calibrators if isinstance(calibrators, Iterable) else [calibrators]
    given = found.values() if isinstance(found, Mapping) else found
    methods = [each if isinstance(each, Method) else Method(each) for each in given]
    if not methods:
        raise CalliperError("calibrators must not be empty: nothing to evaluate.")
    by_name = isinstance(found, Mapping)
    names = [*map(str, found)] if by_name else [method.describe() for method in methods]
    _refuse_repeats(names, "calibrators")
    return dict(zip(names, methods, strict=True))


def check_measures(measures: Mapping[str, Any] | None) -> dict[str, Measure]:
    """The measures by name; by default those of calliper."""
    if measures is None:
        return dict(MEASURES)
    if not isinstance(measures, Mapping) or not measures:
        raise CalliperError(
            f"measures must map names to functions of (y, intervals, context); got {measures!r}."
        )
    for name in measures:
        if name in ROW_FIELDS:
            raise CalliperError(f"{name} is a field of every row: rename the measure.")
    return {n: m if isinstance(m, Measure) else Measure(m) for n, m in measures.items()}


def sizes(n_calibration: Sizes, problem: Problem, names: list[str]) -> list[int]:
    """The numbers of calibration rows for one problem; ``names`` are those of all problems."""
    if n_calibration is None:
        return [max(1, len(problem) // 2)]
    if isinstance(n_calibration, Mapping):
        if n_calibration.keys() != set(names):
            raise CalliperError(
                f"n_calibration must name every problem and no other; it names "
                f"{sorted(n_calibration)}, the problems are {sorted(names)}."
            )
        n_calibration = n_calibration[problem.name]
    several = isinstance(n_calibration, Iterable)
    sizes: list[Any] = [*n_calibration] if several else [n_calibration]  # type: ignore[misc]
    _refuse_repeats(sizes, "n_calibration")
    return [at_least(n, 1, "n_calibration") for n in sizes]


def size_of_test(problem: Problem, n: int, n_test: int | None) -> int:
    """Number of test rows beside n calibration rows."""
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
        raise CalliperError(f"{what} must differ; {', '.join(repeated)} occurs more than once.")
