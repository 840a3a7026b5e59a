"""The book of promises: each with its assumption, the tests that try it and what became of them.

The page ``promises.md`` is made of the registry ``book.toml``, of the results beside it and of
those of fuzzing, and of nothing else; a test makes it again and compares. Another checks that the
tests named there exist, and one that no public method is without an entry.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calliper.guarantees import jackknife_coverage
from checks.promises import adversaries, laws
from checks.promises.campaign import family, read
from checks.promises.worlds import WORLDS

PAGE = Path(__file__).parent / "promises.md"
REGISTRY = Path(__file__).with_name("book.toml")
FUZZED = Path(__file__).parents[1] / "fuzzing" / "results.json"

EXCHANGEABLE = (
    "calibration and new rows are exchangeable, and all settings were chosen without them"
)


@dataclass(frozen=True)
class Promise:
    """One entry.

    Attributes
    ----------
    says : what is promised
    tests : that try it, as names of pytest below ``tests/``
    of : the public names that it is about
    assuming : under what assumption
    tried : how the names of its laws and attacks begin, if it has any
    """

    says: str
    tests: tuple[str, ...]
    of: str = ""
    assuming: str = ""
    tried: str = ""


def entries(kind: str) -> list[Promise]:
    """Guarantees, equalities or refusals, as the registry has them."""
    registry = tomllib.loads(REGISTRY.read_text(encoding="utf-8"))
    return [Promise(**{**entry, "tests": tuple(entry["tests"])}) for entry in registry[kind]]


INTRODUCTION = """# The book of promises

What calliper promises, and what became of attempts to break it. A promise is a sentence such as:
*if you ask for 90 %, nine of ten new targets lie in their intervals*. It holds whatever the model
and the data, if new rows come from where the calibration rows come from (they are *exchangeable*:
nothing but chance decides which are new) and nothing was chosen by looking at them. Most methods
promise the level that was asked for, 1−α; the Jackknife+ and its kin promise 1−2α. The same is
promised in each group, under a known shift of the inputs, for both ends of a distribution and, with
`confidence`, for the very calibration rows at hand. Together the promises were tried on millions of
made-up data sets, many of them nasty on purpose. **{verdict}** One did: copies of a row
in the space of `Mahalanobis` were rounded apart and lost coverage. That is mended, and the bag is
a test.

`make laws` tries for another hour and writes this page anew; a second run goes on where the first
one stopped. [What is guaranteed](../../docs/guarantees.md) says what the promises mean for
your data.

Promises are attacked in three ways, and the table has a row for each promise of each method.

*Draws*: {pairs:,} *pairs* of a calibration set and a new row, drawn from {worlds} worlds in which
the promise must hold. The worlds have continuous errors, ties, duplicates, zeros, errors of one
size, heavy tails, clusters, one place for all rows, and errors dealt out once each; 1 to 200
calibration rows in 1 to 5 dimensions; levels 1/3, 0.5, 0.9, 0.95 and 0.999. *Worst* is the smallest
mean margin over what is proved, in its standard errors, of the levels and worlds of a row: of so
many, some are 2 or 3 below zero by chance. A promise counts as broken if a bet against it
multiplies its stake by {cells} × 100. Bets may be looked at any time, and the chance that any true
promise is accused, over all {cells} tests and all runs, is at most 1 %.

*Whole bags*: among these draws are {whole:,} bags of 2 to 200 rows of which each row was new in
turn. They leave nothing to chance: one of them below what is proved would refute the promise.
*Seen* is the smallest violation, in points of coverage, that would have been found as often as not:
if coverage of such bags were on average v short, at least a share v of them would be below, at any
level (in groups: all groups together). A method that draws is judged by the bets alone, at 0.9
where errors do not tie. Nothing is said where no whole bag was tried yet.

*Searches*: {bags:,} bags of 3 to 12 rows, again with each row new in turn: all bags of a few places
and scores, and those on the way of a simulated annealing. *Margin* is the smallest coverage less
what is proved, over all bags and levels; it must not be negative, and zero says that the proof
cannot be improved. (`RLCP` draws: its margins are means over 4,000 draws a row. Folds and
bootstraps are gone through in all ways. For `confidence` a bag is a world of two or three kinds of
rows, and the margin is exact over all calibration sets.)
"""


def broken(found: dict[str, Any], attacks: dict[str, Any]) -> list[str]:
    """Names of promises that were refuted."""
    n = sum(len(state["cells"]) for state in found.values())
    by_law = [name for name, state in found.items() if laws.verdict(name, state, n).broken]
    limit = {name: 0.02 if name in adversaries.DRAWING else 1e-9 for name in attacks}
    return by_law + [name for name, state in attacks.items() if state["least"] < -limit[name]]


def page() -> str:
    """All of it, as Markdown."""
    found, attacks = read("laws"), read("bags")
    refuted = broken(found, attacks)
    cells = sum(len(state["cells"]) for state in found.values())
    verdict = f"Refuted: {', '.join(refuted)}." if refuted else "No promise stands broken."
    lines = [
        INTRODUCTION.format(
            pairs=sum(state["pairs"] for state in found.values()),
            bags=sum(state["bags"] for state in attacks.values()),
            whole=sum(state.get("whole", 0) for state in found.values()),
            worlds=len(WORLDS), cells=cells, verdict=verdict,
        ),
        *_families(found, attacks, cells),
        "",
        "## Guarantees",
    ]  # fmt: skip
    for promise in entries("guarantee"):
        lines += ["", f"**{promise.says}**", "", f"Of {_quoted(promise.of)}. Assuming: "
                  f"{promise.assuming}. Tests: {_named(promise.tests)}."]  # fmt: skip
        table = list(_rows(promise.tried, found, attacks, cells)) if promise.tried else []
        lines += ["", *HEAD, *table] if table else []
    lines += ["", *nearest(attacks)]
    for title, kind in (("Equalities", "equality"), ("Refusals", "refusal")):
        lines += ["", f"## {title}", "", "| what | tests |", "|---|---|"]
        lines += [f"| {entry.says} | {_named(entry.tests)} |" for entry in entries(kind)]
    lines += ["", *fuzzed()]
    return "\n".join(lines) + "\n"


HEAD = (
    "| method | pairs | independent bags | worst | whole bags | seen | bags searched | margin "
    "| verdict |",
    "|---" * 9 + "|",
)


def _families(found: Any, attacks: Any, cells: int) -> Iterator[str]:
    """A line for each kind of promise and each class that makes it, whatever its options."""
    yield "Each promise and each class that makes it, all its options together:"
    yield ""
    yield "| promise | method | pairs | worst | whole bags | seen | bags searched | margin |"
    yield "|---" * 8 + "|"
    families: dict[tuple[str, str], list[str]] = {}
    for name in (*found, *(name for name in attacks if name not in found)):
        families.setdefault(family(name), []).append(name)
    for (kind, method), names in families.items():
        of_laws = [laws.verdict(name, found[name], cells) for name in names if name in found]
        searched = [attacks[name] for name in names if name in attacks]
        whole = sum(law.whole for law in of_laws)
        seen = laws.seen_by_whole(kind, whole) if whole else min(law.seen for law in of_laws)
        shown = [
            f"{sum(law.pairs for law in of_laws):,}",
            f"{min((law.worst[0] for law in of_laws), default=0.0):+.1f}",
            f"{whole:,}" if whole else "",
            _points(seen),
            f"{sum(state['bags'] for state in searched):,}" if searched else "",
            _margin(searched),
        ]
        yield " | ".join([f"| {kind} | `{method}`", *shown]) + " |"


def _points(seen: float) -> str:
    """A violation in points of coverage; nothing where none would have been seen."""
    return "" if seen >= 1 else f"{100 * seen:.2g}"


def _margin(searched: list[Any]) -> str:
    """The smallest margin of attacks; what rounding leaves of zero is zero."""
    least = min((state["least"] for state in searched), default=None)
    return "" if least is None else f"{0.0 if abs(least) < 1e-9 else least:.3g}"


def _rows(tried: str, found: Any, attacks: Any, cells: int) -> Iterator[str]:
    """A line of the table for each method, and for those that are only attacked."""
    refuted, shown = broken(found, attacks), set()
    for name in (name for name in (*laws.LAWS, *attacks) if name.startswith(tried)):
        names = [name, *(a for a in attacks if a.startswith(f"{name},"))]
        if name in shown:
            continue
        shown.update(names)
        searched = [attacks[a] for a in names if a in attacks]
        law = laws.verdict(name, found[name], cells) if name in found else None
        drawn = [""] * 5 if law is None else [
            f"{law.pairs:,}", f"{law.bags:,}", f"{law.worst[0]:+.1f} ({law.worst[1]})",
            f"{law.whole:,}" if law.whole else "", _points(law.seen),
        ]  # fmt: skip
        bags = sum(state["bags"] for state in searched)
        sought = [f"{bags:,}" if bags else "", _margin(searched)]
        said = "**refuted**" if set(names) & set(refuted) else "holds"
        yield " | ".join([f"| `{name[len(tried) :]}`", *drawn, *sought, f"{said} |"])


def nearest(attacks: dict[str, Any]) -> Iterator[str]:
    """How near to what is proved coverage of the Jackknife+ was brought, as a table."""
    yield "### How near to the bound the Jackknife+ is brought"
    yield ""
    yield "Bags whose coverage is below the level: where it is what is proved, the bound is sharp."
    yield ""
    yield "| method | rows | level | coverage | proved |"
    yield "|---|---|---|---|---|"
    for name, state in attacks.items():
        for n, bag in state["worst"].items():
            proved = jackknife_coverage(bag["level"], int(n) - 1)
            share = bag["margin"] + proved
            if adversaries.is_plus(name) and name[0] != "g" and share < bag["level"] - 1e-9:
                shown = " | ".join(f"{value:.3f}" for value in (bag["level"], share, proved))
                yield f"| `{name.partition(': ')[2]}` | {n} | {shown} |"


FUZZING = """### What fuzzing tried

`make fuzz` gives odd inputs to all that reads, and goes on where it stopped. Found would be an
error that nobody raised on purpose, a NaN, an interval that is upside down or narrower at a higher
level, a row that is answered otherwise alone, a crash, a hang, a file half-written, and an object
that a refusal has changed. What campaigns have found is mended, and each of it is a case in
`checks/test_found.py` or `files/test_fuzz.py`. Some methods learn a scale of its own for each
level: `SLCP`, `RCP`, `LVD`, `LCP` without a given bandwidth, `ConditionalCalibration` and
`statistic="quantile"`. Each level keeps its promise, but with few rows an interval may be narrower
at a higher one; of these that is no find. A file whose contents were forged *and* whose hash was
renewed may be read and then refuse by name when it is asked: that is no find, and counted as `asked
...` in `checks/fuzzing/results.json`, which also names what campaigns found before it was mended.

| inputs | tried | found and mended | found, not mended |
|---|---|---|---|"""

INPUTS = {
    "files": "files of `save` that were tampered with, read by `load`",
    "readers": "tables and options of the command line, as CSV and Parquet",
    "machines": "calls of the Python API, in sequences of 25",
}


def fuzzed() -> Iterator[str]:
    """What the campaign of fuzzing tried and found, as a table."""
    yield FUZZING
    results = json.loads(FUZZED.read_text(encoding="utf-8"))
    for kind, what in INPUTS.items():
        mended, found = (len(results[kind].get(name, [])) for name in ("mended", "found"))
        yield f"| {what} | {results[kind]['inputs']:,} | {mended} | {found} |"
    yield f"| together | {sum(state['inputs'] for state in results.values()):,} | | |"


def _quoted(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())


def _named(tests: tuple[str, ...]) -> str:
    return ", ".join(f"`{test}`" for test in tests)


def write() -> Path:
    """Make the page; where it is."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE
