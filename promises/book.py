"""The book of promises: each with its assumption, the tests that try it and what became of them.

The page ``docs/promises.md`` is made of the registry ``book.toml`` and of the results beside it and
of nothing else; a test makes it again and compares. Another checks that the tests named there
exist, and one that no public method is without an entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calliper.guarantees import jackknife_coverage
from promises import adversaries, laws
from promises.campaign import read
from promises.worlds import WORLDS

PAGE = Path(__file__).parents[1] / "docs" / "promises.md"
REGISTRY = Path(__file__).with_name("book.toml")

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
*if you ask for 90 %, nine of ten new targets lie in their intervals*. Together they were tried on
millions of made-up data sets, many of them nasty on purpose. **{verdict}**

`make laws` tries for another hour and writes this page anew; a second run goes on where the first
one stopped. [What is guaranteed](guide/what-is-guaranteed.md) says what the promises mean for
your data.

Two kinds of attack, a row of the table for each promise of each method:

*Laws*: {pairs:,} *pairs* of a calibration set and a new row, drawn from {worlds} worlds in which
the promise must hold: new rows come from where the calibration rows come from (they are
*exchangeable*). The worlds have continuous errors, ties, duplicates, zeros, errors of one size,
heavy tails, clusters, one place for all rows, and errors dealt out once each; 1 to 200
calibration rows in 1 to 5 dimensions; levels 1/3, 0.5, 0.9, 0.95 and 0.999. *Worst* is the
smallest mean margin over what is proved, in its standard errors, of the levels and worlds of a
row: of so many, some are 2 or 3 below zero by chance. A promise counts as broken if a bet against
it multiplies its stake by {cells} × 100. Bets may be looked at any time, and the chance that any
true promise is accused, over all {cells} tests and all runs, is at most 1 %. *Seen* is the
violation, in points of coverage, that would have been found as often as not where errors do not
tie: at 0.9, and at the level where it is hardest.

*Bags*: {bags:,} bags of 3 to 12 rows, each member in turn the new one, so that nothing is left to
chance: all bags of a few places and scores, and a search by simulated annealing. *Margin* is the
smallest coverage less what is proved, over all bags and levels; it must not be negative. (`RLCP`
draws: its margins are means over 4,000 draws a row.)
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
    verdict = f"Refuted: {', '.join(refuted)}." if refuted else "No promise was broken."
    lines = [
        INTRODUCTION.format(
            pairs=sum(state["pairs"] for state in found.values()),
            bags=sum(state["bags"] for state in attacks.values()),
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
    return "\n".join(lines) + "\n"


HEAD = (
    "| method | pairs | independent bags | worst | seen | bags searched | margin | verdict |",
    "|---|---|---|---|---|---|---|---|",
)


def _families(found: Any, attacks: Any, cells: int) -> Iterator[str]:
    """A line for each kind of promise and each class that makes it, whatever its options."""
    yield from ("| promise | method | pairs | worst | bags searched | margin |", "|---" * 6 + "|")
    families: dict[tuple[str, str], list[str]] = {}
    for name in (*found, *(name for name in attacks if name not in found)):
        kind, _, method = name.partition(": ")
        families.setdefault((kind, method.partition("(")[0].partition(",")[0]), []).append(name)
    for (kind, method), names in families.items():
        of_laws = [laws.verdict(name, found[name], cells) for name in names if name in found]
        searched = [attacks[name] for name in names if name in attacks]
        shown = [
            f"{sum(law.pairs for law in of_laws):,}",
            f"{min((law.worst[0] for law in of_laws), default=0.0):+.1f}",
            f"{sum(state['bags'] for state in searched):,}" if searched else "",
            _margin(searched),
        ]
        yield " | ".join([f"| {kind} | `{method}`", *shown]) + " |"


def _margin(searched: list[Any]) -> str:
    """The smallest margin of attacks; what rounding leaves of zero is zero."""
    least = min((state["least"] for state in searched), default=None)
    return "" if least is None else f"{0.0 if abs(least) < 1e-9 else least:.3g}"


def _rows(tried: str, found: Any, attacks: Any, cells: int) -> Iterator[str]:
    """A line of the table for each method."""
    refuted = broken(found, attacks)
    for name in (name for name in laws.LAWS if name.startswith(tried)):
        names = [name, *(a for a in attacks if a.startswith(f"{name},"))]
        searched = [attacks[a] for a in names if a in attacks]
        law = laws.verdict(name, found[name], cells) if name in found else None
        drawn = ["", "", "", ""] if law is None else [
            f"{law.pairs:,}", f"{law.bags:,}", f"{law.worst[0]:+.1f} ({law.worst[1]})",
            " / ".join(f"{100 * size:.2g}" for size in law.seen),
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


def _quoted(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())


def _named(tests: tuple[str, ...]) -> str:
    return ", ".join(f"`{test}`" for test in tests)


def write() -> Path:
    """Make the page; where it is."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE
