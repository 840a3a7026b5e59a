"""The paper's tables with its value and a verdict beside each of ours; Markdown and LaTeX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from calliper.lab.evaluation import Records
from studies.experiments.deutschmann2024.measures import MEASURES, PAPER_COLUMNS
from studies.experiments.deutschmann2024.reasons import reason_of
from studies.experiments.deutschmann2024.results import HALVED, paper_blocks, value
from studies.experiments.deutschmann2024.verdict import Verdict, paper_values
from studies.experiments.latex import HEADS

MARKS = "✓ agrees within the uncertainties; ▲ ours is higher, ▼ lower; – undefined"


@dataclass(frozen=True)
class Comparison:
    """A row of a table: a method on a block, with a verdict for each column."""

    stage: str
    title: str
    n: int
    method: str
    verdicts: dict[str, Verdict]


def compare(results: dict[str, Records], methods: Sequence[str]) -> list[Comparison]:
    """Every row of these methods that the paper prints and we have."""
    printed, rows = paper_values(), []
    for stage, title, n in paper_blocks(results):
        for method in methods:
            if (stage, n, method, "coverage") not in printed:
                continue
            verdicts = {}
            for name in PAPER_COLUMNS:
                half = name == "mean_width" and stage in HALVED
                ours = value(results[stage], title, n, method, name, half=half)
                verdicts[name] = Verdict(printed[stage, n, method, name], ours)
            rows.append(Comparison(stage, title, n, method, verdicts))
    return rows


def markdown(rows: Sequence[Comparison]) -> str:
    """Ours · paper's, a mark, and the letter of the reason where they differ."""
    heads = ["task", "N", "method", *(MEASURES[name].label or name for name in PAPER_COLUMNS)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    before: tuple[str, int] = ("", 0)
    for row in rows:
        where = (row.title, row.n)
        first = ["", ""] if where == before else [row.title, f"{row.n:,}"]
        before = where
        cells = [_cell(row, name) for name in PAPER_COLUMNS]
        lines.append("| " + " | ".join([*first, row.method, *cells]) + " |")
    return "\n".join([*lines, "", f"Ours · paper's. {MARKS}. Letters stand for the reasons below."])


def _cell(row: Comparison, name: str) -> str:
    verdict = row.verdicts[name]
    reason = reason_of(row.stage, row.n, row.method)
    letter = "" if verdict.mark in "✓" else f"<sup>{reason.letter}</sup>"
    return f"{verdict.ours} · {verdict.paper} {verdict.mark}{letter}"


def latex(rows: Sequence[Comparison]) -> str:
    """The same with booktabs; ours above the paper's in small print."""
    marks = {"✓": r"\checkmark", "▲": r"\blacktriangle", "▼": r"\blacktriangledown", "–": "-"}
    heads = [HEADS.get(name, name) for name in PAPER_COLUMNS]
    lines = [
        r"% needs \usepackage{booktabs, amssymb}",
        r"\begin{tabular}{lrl" + "l" * len(heads) + "}",
        r"\toprule",
        "Dataset & $N$ & Method & " + " & ".join(heads) + r" \\ \midrule",
    ]
    before: tuple[str, int] = ("", 0)
    for row in rows:
        where = (row.title, row.n)
        first = ["", ""] if where == before else [row.title, str(row.n)]
        before = where
        cells = [
            f"${_tex(str(v.ours))}$ {{\\tiny ${_tex(str(v.paper))}\\,{marks[v.mark]}$}}"
            for v in row.verdicts.values()
        ]
        lines.append(" & ".join([*first, row.method, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex(text: str) -> str:
    return text.replace("≪", r"\ll").replace("–", "-")


def tally(rows: Sequence[Comparison]) -> str:
    """How many cells agree, task by task and column by column."""
    columns = [MEASURES[name].label or name for name in PAPER_COLUMNS]
    lines = ["| task | " + " | ".join(columns) + " | all |", "|---" * (2 + len(columns)) + "|"]
    total: Counter[str] = Counter()
    for title in dict.fromkeys(row.title for row in rows):
        here = [row for row in rows if row.title == title]
        agree = [sum(r.verdicts[n].mark == "✓" for r in here) for n in PAPER_COLUMNS]
        whole = len(here) * len(PAPER_COLUMNS)
        total.update(agree=sum(agree), whole=whole)
        cells = [f"{k} of {len(here)}" for k in agree]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {sum(agree)} of {whole} |")
    lines.append(
        "| all" + " |" * (1 + len(columns)) + f" **{total['agree']} of {total['whole']}** |"
    )
    return "\n".join(lines)
