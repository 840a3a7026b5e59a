"""Laws and adversaries at work for so many minutes, on so many cores; resumable.

Of families (a promise, and the class that makes it) that have not reached what they shall, the one
that needs the least time goes next, and of its laws the one that has had the least. Where all have
reached it, the one that has had the least time goes on.
Results are written as they come, each file whole.
"""

from __future__ import annotations

import json
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from checks.promises import adversaries, laws

RESULTS = Path(__file__).parent / "results"

#: What each family shall reach: pairs and whole bags, and each attack bags. A draw of a
#: calibration set for a law over draws is a fit, so a few thousand will do, beside exact attacks.
PAIRS, WHOLE, BAGS = 10**6, 700, 10**5
HEAVY = 2.4  # as many times as many whole bags where rows count by weight

#: Turns of an attack, of which the first two go through all bags of a grid and the others search,
#: and seconds that these stand back.
TURNS, LATER = 4, 1000
FEWER = {"confidence": 3000}

#: The two campaigns: names, one piece of work, and how it is added.
WORK: dict[str, Any] = {
    "laws": (laws.LAWS, laws.batch, laws.joined),
    "bags": (adversaries.TRIALS, adversaries.attack, adversaries.joined),
}
FILES = {"laws": RESULTS / "laws.json", "bags": RESULTS / "worst_bags.json"}


def read(kind: str) -> dict[str, Any]:
    """What was found so far, by name; names that are no more are left out."""
    path, names = FILES[kind], WORK[kind][0]
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: found[name] for name in names if name in found}


def write(kind: str, found: dict[str, Any]) -> None:
    """Keep it: a line for each name, put in place whole."""
    short = {name: json.dumps(found[name], separators=(",", ":")) for name in sorted(found)}
    lines = ",\n".join(f"{json.dumps(name)}: {state}" for name, state in short.items())
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
                kind, name, whole = _next(found, set(under_way.values()))
                number = begun.get((kind, name), 0)
                begun[kind, name] = number + 1
                how = {"whole": whole} if kind == "laws" else {}
                under_way[pool.submit(WORK[kind][1], name, number, **how)] = kind, name
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                kind, name = under_way.pop(future)
                found[kind][name] = WORK[kind][2](found[kind].get(name), future.result())
            if monotonic() - saved > 20 or not under_way:
                saved = monotonic()
                for kind in kinds:
                    write(kind, found[kind])


def family(name: str) -> tuple[str, str]:
    """Of a law or an attack: what is promised, and the class that promises it."""
    kind, _, method = name.partition(": ")
    return kind, method.partition("(")[0].partition(",")[0]


def _next(found: dict[str, Any], busy: set[tuple[str, str]]) -> tuple[str, str, bool]:
    """The kind and name whose turn it is, of those that nobody is at, and if with whole bags."""
    needed: dict[tuple[str, str], tuple[float, bool]] = {}
    for at, names in _families(found):
        for group in [names] if at == "laws" else [[name] for name in names]:
            states = [found[at][name] for name in group if name in found[at]]
            needed |= dict.fromkeys([(at, name) for name in group], _needed(at, group, states))

    def turn(at: tuple[str, str]) -> tuple[float, float]:
        state = found[at[0]].get(at[1])
        return needed[at][0] or np.inf, 0.0 if state is None else float(state["seconds"])

    kind, name = min((at for at in needed if at not in busy), key=turn)
    return kind, name, needed[kind, name][1]


def _needed(at: str, names: list[str], states: list[Any]) -> tuple[float, bool]:
    """Seconds that names need to reach what they shall, about, and if whole bags go next.

    Seconds are 0 where all is reached; then halves and whole bags take turns.
    """
    done = sum(state["batches"] for state in states)
    each = sum(state["seconds"] for state in states) / (done or 1) or 1.0

    def missing(key: str, goal: int) -> float:
        have = sum(state.get(key, 0) for state in states)
        return float(max(goal - have, 0) * (done or 1) / (have or goal))

    if at == "bags":
        left = missing("bags", BAGS)
        if not left and adversaries.is_searched(names[0]) and done < TURNS:
            return LATER + (TURNS - done) * each, False
        return left * each, False
    pairs = missing("pairs", FEWER.get(family(names[0])[0], PAIRS))
    if not laws.LAWS[names[0]].whole:
        return pairs * each, False
    goal = WHOLE * (laws.HEAVIEST / laws.LIGHTEST if names[0].startswith("weights") else 1)
    worlds = len(laws.LAWS[names[0]].worlds)
    whole = max(goal - sum(s.get("whole", 0) for s in states), 0) / (laws.WHOLES * worlds)
    return (pairs + whole) * each, whole > pairs or (pairs + whole == 0 and done % 2 == 1)


def _families(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Kinds of work, each with the names of a family."""
    families: dict[Any, list[str]] = {}
    for kind in found:
        for name in WORK[kind][0]:
            families.setdefault((kind, family(name)), []).append(name)
    return [(kind, names) for (kind, _), names in families.items()]
