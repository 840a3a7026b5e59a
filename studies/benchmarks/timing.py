"""Times that can be compared: taken in turns, the best of several rounds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any


def best_times(
    work: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """The shortest time of each piece of work; rounds are interleaved, so all share the weather."""
    best = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, run in work.items():
            gc.collect()
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table that also reads well as plain text."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
             for row in [header, ["-" * w for w in widths], *rows]]  # fmt: skip
    return "\n".join(lines)


def verdict(ratio: float, limit: float) -> str:
    """The ratio beside its limit, and whether it holds."""
    return f"{ratio:.2f} (limit {limit:g}{'' if ratio <= limit else ', MISSED'})"
