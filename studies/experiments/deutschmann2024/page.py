"""Generated tables: files of their own in studies/records/paper, the short ones inside paper.md.

Between ``<!-- name -->`` and ``<!-- end name -->`` the page holds what is generated here; the words
around it are written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calliper.lab.evaluation import Records, Summary, summarise
from studies.experiments import latex
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024 import questions, tables, tabular_summary
from studies.experiments.deutschmann2024.claims import CLAIMS
from studies.experiments.deutschmann2024.config import TASKS
from studies.experiments.deutschmann2024.measures import FURTHER_COLUMNS, PAPER_COLUMNS
from studies.experiments.deutschmann2024.reasons import REASONS, Reason
from studies.experiments.deutschmann2024.results import chosen, load

RECORDS = Path(__file__).parents[2] / "records"
PAGE, FOLDER = RECORDS / "paper.md", RECORDS / "paper"
MAIN = (names.OURS, names.MAD_KNN, names.LVD_TUNED)
#: The order of the rows wherever all methods are shown.
ORDER = (
    *names.PAPER_METHODS,
    names.TUNED_MI,
    names.TUNED_MSE,
    names.FULL,
    names.RMS,
    names.QUANTILE,
    names.DEFAULT,
    names.WHOLE,
    "LCP",
    "SLCP",
    "RLCP",
    names.CQR,
    names.SPLIT,
)


def write(folder: Path, *, quick: bool = False) -> None:
    """All tables from the records in a folder; of a quick run, only into that folder."""
    results = load(folder)
    target = folder / "tables" if quick else FOLDER
    target.mkdir(parents=True, exist_ok=True)
    blocks = {"reasons": _listed(REASONS)}
    for name, methods in (("main", MAIN), ("extended", (*names.PAPER_METHODS, names.TUNED_MI))):
        rows = tables.compare(results, methods)
        blocks[name] = tables.markdown(rows)
        (target / f"{name}.md").write_text(
            _titled(HEADS[name], _explained(blocks[name]), quick=quick)
        )
        (target / f"{name}.tex").write_text(tables.latex(rows))
        blocks[f"{name}-tally"] = tables.tally(rows)
    blocks["claims"] = claims_table(results)
    blocks["guarantee"] = questions.guarantee_costs(results)
    blocks["scales"] = questions.local_scales(results)
    blocks["dominance"] = questions.dominance(results, ORDER)
    for name, summary in summaries(results).items():
        (target / f"{name}.md").write_text(_titled(HEADS[name], summary.to_markdown(), quick=quick))
        (target / f"{name}.tex").write_text(latex.table(summary) + "\n")
    if "tabular" in results:
        blocks["tabular"] = tabular_summary.markdown(results["tabular"], ORDER)
    if not quick and PAGE.exists():
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")


HEADS = {
    "main": "The paper's Table 1",
    "extended": "The paper's Table 2",
    "all-methods": "Every method on the paper's five tasks: the paper's measures",
    "beyond": "Every method on the paper's five tasks: further measures",
    "variants": "Other readings: overfitting forests, printed noise, raw targets",
    "tabular": "Nine tables, gradient boosting",
}


def summaries(results: dict[str, Records]) -> dict[str, Summary]:
    """The tables that have no counterpart in the paper."""
    titles = {task.title: task.n_calibration for task in TASKS.values()}
    five = _joined([records for stage, records in results.items() if stage in TASKS])
    inside = [r for r in five if r["n_calibration"] in titles.get(r["problem"], ())]
    others = [
        r
        for r in five
        if r["problem"] not in titles
        and r["n_calibration"] in {n for sizes in titles.values() for n in sizes}
    ]
    found = {}
    if inside:
        known = _ordered(Records(inside, five.measures, five.runs))
        found["all-methods"] = summarise(known, measures=PAPER_COLUMNS)
        found["beyond"] = summarise(known, measures=FURTHER_COLUMNS)
    if others:
        rest = _ordered(Records(others, five.measures, five.runs))
        found["variants"] = summarise(rest, measures=PAPER_COLUMNS)
    if "tabular" in results:
        columns = [*PAPER_COLUMNS, *FURTHER_COLUMNS]
        found["tabular"] = summarise(_ordered(results["tabular"]), measures=columns)
    return found


def claims_table(results: dict[str, Records]) -> str:
    """Each claim with its numbers, block by block."""
    lines, total = ["| the paper says | here | on |", "|---|---|---|"], [0, 0]
    for claim in CLAIMS:
        findings = claim.findings(results)
        held = sum(finding.holds for finding in findings)
        total = [total[0] + held, total[1] + len(findings)]
        shown = "; ".join(
            f"{f.block[1]} {f.block[2]:,}: {f.numbers}{'' if f.holds else ' **✗**'}"
            for f in findings
        )
        lines.append(f"| {claim.text} | holds in {held} of {len(findings)} | {shown} |")
    lines.append(f"| all of these | **{total[0]} of {total[1]}** | |")
    return "\n".join(lines)


def filled(page: str, blocks: dict[str, str]) -> str:
    """The page with every block that it has a place for."""
    for name, block in blocks.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        before, opened, rest = page.partition(start)
        _, closed, after = rest.partition(end)
        if opened and closed:
            page = f"{before}{start}{block}\n{end}{after}"
    return page


def _joined(parts: Sequence[Records]) -> Records:
    joined = Records([])
    for part in parts:
        joined = Records(joined.rows + part.rows, part.measures, joined.runs + part.runs)
    return joined


def _ordered(records: Records) -> Records:
    """Problems in their order, then N, then methods as in ORDER."""
    problems = list(dict.fromkeys(row["problem"] for row in records))
    rows = sorted(
        chosen(records, methods=ORDER),
        key=lambda r: (
            problems.index(r["problem"]),
            r["n_calibration"],
            ORDER.index(r["method"]),
            r["split"],
        ),
    )
    return Records(rows, records.measures, records.runs)


def _explained(table: str) -> str:
    """A table, and the reasons whose letters it shows."""
    return f"{table}\n\n{_listed([r for r in REASONS if f'<sup>{r.letter}</sup>' in table])}"


def _listed(reasons: Sequence[Reason]) -> str:
    return "\n".join(f"- **{reason.letter}** {reason.text}" for reason in reasons)


def _titled(title: str, table: str, *, quick: bool = False) -> str:
    records = "studies/experiments/deutschmann2024/results"
    made = (
        f"Generated by `make paper` from the records in `{records}`. See [the story](../paper.md)."
    )
    if quick:
        made = (
            "Generated by `make paper-quick`: cells that do not agree with the paper are expected."
        )
    return f"# {title}\n\n{made}\n\n{table}\n"
