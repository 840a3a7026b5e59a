"""What became of the mutants: ``mutants.md``, made of the results and of what is said of them.

Survivors that change nothing, and why, are named in ``survivors.toml``: a table for each file, a
line for each change, ``"unit: before → after" = "reason"``. A reason that many share is
written once in the table ``[reasons]`` and named.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

from checks.mutants import campaign

PAGE = Path(__file__).parent / "mutants.md"
REASONS = Path(__file__).with_name("survivors.toml")

INTRODUCTION = """# Are the tests any good?

A test suite that passes says little; one that fails as soon as the code is wrong says much. So the
numerical core (`kernels`, `calibrators`, `guarantees`, `quantile.py`, `scores.py`) was broken in
{total:,} small ways, each by itself: a comparison or an operator turned, a number or a bound off by
one, a default changed, a condition negated, a statement left out, nothing returned, left for right,
the smallest for the largest. For each, the tests of the core and of its files that touch the broken
line were run, quickest first and for two to fifteen seconds, until one failed. Tests over many
draws, of processes and of clusters had no part in it.

{tried}
Tests were written for survivors, so this says how good the tests are now, not how good they were:
of the 5,334 mutants tried on 16 November 2026 before tests were written for them, 92.4 % were
noticed, those that change no result left aside. A reviewer then tried to refute reasons given for
survivors: of some 190 looked at, 20 were wrong, and have tests now; a few of the others may be
wrong, too. Reasons given since then have had no reviewer. That margins for rounding are wide enough
is argued, not proved.

| verdict | mutants |
|---|---|
| noticed: a test fails | {k:,} |
| noticed: never ends, or takes ten times as long | {t:,} |
| survived, and changes no result: reasons below | {explained:,} |
| survived, not explained | {open:,} |
| not tried yet | {untried:,} |

`make mutants` goes on where the last run stopped and writes this page anew; functions whose text
has not changed keep their verdicts, and what survived is tried again. `make coverage` fails where a
line or branch of the core is not run by its own tests.
"""


def survivors() -> list[tuple[str, str, str]]:
    """Those that survived: file, change, and the reason or nothing."""
    said = reasons()
    return [
        (file, f"{unit}: {change}", said.get((file, f"{unit}: {change}"), ""))
        for file, units in campaign.read().items()
        for unit, (_, _, changes) in units.items()
        for change in changes
    ]


def reasons() -> dict[tuple[str, str], str]:
    """Why a survivor changes nothing, by file and change."""
    said = tomllib.loads(REASONS.read_text(encoding="utf-8")) if REASONS.exists() else {}
    shared = said.pop("reasons", {})
    return {(f, n): shared.get(why, why) for f, those in said.items() for n, why in those.items()}


def counts() -> dict[str, Counter[str]]:
    """For each file, how many have each verdict; e are survivors that are explained."""
    found = {
        file: Counter("".join(letters for _, letters, _ in units.values()))
        for file, units in campaign.read().items()
    }
    for file, _, reason in survivors():
        if reason:
            found[file]["e"] += 1
            found[file]["s"] -= 1
    return found


def _rate(count: Counter[str]) -> str:
    """Percent noticed of those tried that change a result."""
    noticed, of = count["k"] + count["t"], count["k"] + count["t"] + count["s"]
    return f"{100 * noticed / of:.1f} %" if of else ""


def summary() -> str:
    """The whole in a sentence."""
    count = sum(counts().values(), Counter[str]())
    noticed, tried = count["k"] + count["t"], count.total() - count["?"]
    alone = f"{100 * noticed / tried:.1f} %" if tried else "none"
    text = (
        f"Of {count.total():,} mutants {tried:,} were tried and {noticed:,} noticed: {alone}, or "
        f"{_rate(count)} without the {count['e']} that change no result."
    )
    if count["?"] and tried:
        text += (
            f" The other {count['?']:,} are of functions that were written anew since then; "
            f"`make mutants` tries them."
        )
    return text


def page() -> str:
    """All of it, as Markdown."""
    by_file = counts()
    count = sum(by_file.values(), Counter[str]())
    lines = [
        INTRODUCTION.format(
            total=count.total(), tried=summary(), k=count["k"], t=count["t"],
            explained=count["e"], open=count["s"], untried=count["?"],
        ),
        "| file | mutants | noticed | by time | change nothing | survived | not tried | rate |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for file, of in by_file.items():
        numbers = [of.total(), of["k"], of["t"], of["e"], of["s"], of["?"]]
        lines.append(f"| `{file}` | {' | '.join(map(str, numbers))} | {_rate(of)} |")
    found = survivors()
    lines += ["", "## Survivors", ""]
    for file in by_file:
        of_file = [(change, reason) for at, change, reason in found if at == file]
        if of_file:
            lines += [f"### {file}", ""]
            lines += [f"- `{change}`: {reason or 'not explained.'}" for change, reason in of_file]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def write() -> Path:
    """Make the page; where it is."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE
