"""The paper's printed value beside ours, and whether they agree.

Both come with an uncertainty: how far a single division lies from the mean. They *agree* if their
distance is at most the two uncertainties in quadrature, which is some three standard errors of the
difference of two means of ten divisions. The paper prints ≪ 0 for an R²_SQI well below −2; ours
agrees with that if it is below −2 too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import hypot, isfinite, isnan
from pathlib import Path

from calliper.lab.evaluation import last_digit

PAPER = Path(__file__).with_name("paper.json")
FAR_BELOW, FAR_BELOW_TEXT = -2.0, "≪ 0"
_PRINTED = re.compile(r"(-?[\d.]+)\((\d+)\)(?:e(\d+))?")


@dataclass(frozen=True)
class Value:
    """A mean and its uncertainty; ``far_below`` for what the paper prints as ≪ 0.

    ``defined`` says, as "7/10", on how many divisions there is a value, if not on all.
    """

    mean: float
    error: float
    far_below: bool = False
    defined: str = ""

    def __str__(self) -> str:
        text = FAR_BELOW_TEXT if self.far_below else last_digit(self.mean, self.error)
        return f"{text} [{self.defined}]" if self.defined else text


@dataclass(frozen=True)
class Verdict:
    """How a value of ours compares with the paper's."""

    paper: Value
    ours: Value

    @property
    def comparable(self) -> bool:
        """Whether ours exists."""
        return not isnan(self.ours.mean)

    @property
    def agrees(self) -> bool:
        """Within the two uncertainties, or both far below zero."""
        if self.paper.far_below or self.ours.far_below:
            return self.paper.far_below and self.ours.mean < FAR_BELOW
        return abs(self.paper.mean - self.ours.mean) <= hypot(
            _known(self.paper.error), _known(self.ours.error)
        )

    @property
    def mark(self) -> str:
        """A sign for a table: agrees, ours is higher, ours is lower, or there is none."""
        if not self.comparable:
            return "–"
        if self.agrees:
            return "✓"
        return "▲" if self.paper.far_below or self.ours.mean > self.paper.mean else "▼"


def parse(printed: str) -> Value:
    """A value as printed: ``0.952(6)``, ``1.9(3)e2`` or ``≪ 0``.

    >>> parse("1.9(3)e2")
    Value(mean=190.0, error=30.0, far_below=False, defined='')
    """
    if printed == FAR_BELOW_TEXT:
        return Value(float("-inf"), 0.0, far_below=True)
    found = _PRINTED.fullmatch(printed)
    if found is None:
        raise ValueError(f"expected a value such as 0.952(6), 1.9(3)e2 or ≪ 0; got {printed!r}.")
    digits, uncertain, power = found.groups()
    factor = 10.0 ** int(power or 0)
    place = len(digits.partition(".")[2])
    return Value(float(digits) * factor, round(int(uncertain) * 10.0**-place * factor, 12))


def is_far_below(name: str, mean: float, error: float) -> bool:
    """Whether a value is shown as ≪ 0, by the rule of the paper's caption."""
    return name == "r2_sqi" and mean + _known(error) < FAR_BELOW


Key = tuple[str, int, str, str]


def paper_values() -> dict[Key, Value]:
    """By task, N, method and column; the supplement's where both tables have a row.

    The main table repeats MADSplit's one-dimensional row of N = 500 at 2,000; the supplement does
    not.
    """
    read = json.loads(PAPER.read_text(encoding="utf-8"))
    values: dict[Key, Value] = {}
    for table in ("main", "extended"):
        for row in read["tables"][table]:
            for name, printed in zip(read["columns"], row["values"], strict=True):
                values[row["task"], row["n"], row["method"], name] = parse(printed)
    for row in read["tables"]["tuning"]:
        if "tuned" in row["method"]:
            for name, printed in zip(read["columns"], row["values"], strict=True):
                values[row["task"], row["n"], row["method"], name] = parse(printed)
    return values


def _known(error: float) -> float:
    return error if isfinite(error) else 0.0
