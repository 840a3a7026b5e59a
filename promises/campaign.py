"""Laws and adversaries at work for so many minutes, on so many cores; resumable.

What has had the least processor time goes next; a law with a million pairs, and an attack with a
hundred thousand bags, counts as having had three times as much. Results are written as they come,
each file whole.
"""

from __future__ import annotations

import json
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from time import monotonic
from typing import Any

from promises import adversaries, laws

RESULTS = Path(__file__).parent / "results"

#: What a law and an attack shall reach before others.
ENOUGH = {"laws": 10**6, "bags": 10**5}

#: The two campaigns: names, one piece of work, how it is added, and what counts.
WORK: dict[str, Any] = {
    "laws": (laws.LAWS, laws.batch, laws.joined, "pairs"),
    "bags": (adversaries.TRIALS, adversaries.attack, adversaries.joined, "bags"),
}
FILES = {"laws": RESULTS / "laws.json", "bags": RESULTS / "worst_bags.json"}


def read(kind: str) -> dict[str, Any]:
    """What was found so far, by name; names that are no more are left out."""
    path, names = FILES[kind], WORK[kind][0]
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: found[name] for name in names if name in found}


def write(kind: str, found: dict[str, Any]) -> None:
    """Keep it: a line for each name, put in place whole."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    part = FILES[kind].with_suffix(".part")
    part.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    part.replace(FILES[kind])


def run(minutes: float, jobs: int = 2, kinds: tuple[str, ...] = ("laws", "bags")) -> None:
    """Try to break promises for so long."""
    RESULTS.mkdir(exist_ok=True)
    until, saved = monotonic() + 60 * minutes, monotonic()
    found = {kind: read(kind) for kind in kinds}
    under_way: dict[Future[Any], tuple[str, str]] = {}
    begun = {(k, n): state["batches"] for k in kinds for n, state in found[k].items()}
    with ProcessPoolExecutor(jobs) as pool:
        while monotonic() < until or under_way:
            while len(under_way) < jobs and monotonic() < until:
                kind, name = _next(found, set(under_way.values()))
                number = begun.get((kind, name), 0)
                begun[kind, name] = number + 1
                under_way[pool.submit(WORK[kind][1], name, number)] = kind, name
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                kind, name = under_way.pop(future)
                found[kind][name] = WORK[kind][2](found[kind].get(name), future.result())
            if monotonic() - saved > 20 or not under_way:
                saved = monotonic()
                for kind in kinds:
                    write(kind, found[kind])


def _next(found: dict[str, Any], busy: set[tuple[str, str]]) -> tuple[str, str]:
    """The kind and name whose turn it is, of those that nobody is at."""

    def had(at: tuple[str, str]) -> float:
        state = found[at[0]].get(at[1])
        if state is None:
            return 0.0
        enough = state[WORK[at[0]][3]] >= ENOUGH[at[0]]
        return float(state["seconds"]) * (3 if enough else 1)

    return min(((k, n) for k in found for n in WORK[k][0] if (k, n) not in busy), key=had)
