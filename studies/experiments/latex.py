r"""A summary of records as LaTeX, in the layout of the paper's main table.

Needs ``\usepackage{booktabs, multirow}``.
"""

from __future__ import annotations

import re
from typing import Any

from calliper.lab.evaluation import Summary

#: Heads of columns as the paper writes them.
HEADS = {
    "coverage": "Cov.",
    "mean_width": "IS",
    "r2_sqi": "$R^2_{SQI}$",
    "tau_sqi": r"$\tau_{SQI}$",
    "tau_si": r"$\tau_{SI}$",
}
_ARROWS = {"smaller": r" ${}^\downarrow$", "larger": r" ${}^\uparrow$"}
_GROUP_HEADS = {"problem": "Dataset", "n_calibration": r"$N_{\mathrm{cal}}$", "level": "Level"}
_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "†": r"$\dagger$",
    "–": "--",
    "≪": r"$\ll$",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "±": r"$\pm$",
    "²": r"\textsuperscript{2}",
    "τ": r"$\tau$",
    "α": r"$\alpha$",
}


def table(summary: Summary) -> str:
    """The table with ``booktabs`` rules and ``multirow`` groups."""
    columns = "c" * len(summary.by) + "l" * (1 + len(summary.measures))
    heads = [_GROUP_HEADS.get(name, escape(name)) for name in summary.by]
    heads += ["Method", *(_head(summary, name) for name in summary.measures)]
    caption = escape(" ".join(summary.legend(bold="Bold")))
    return "\n".join(
        [
            r"% needs \usepackage{booktabs, multirow}",
            *(f"% {' '.join(note.split())}" for note in summary.notes),
            r"\begin{table}",
            r"  \centering",
            f"  \\begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {' & '.join(heads)} \\\\",
            r"    \midrule",
            *_body(summary, len(columns)),
            r"    \bottomrule",
            r"  \end{tabular}",
            f"  \\caption{{{caption}}}",
            r"\end{table}",
        ]
    )


def _body(summary: Summary, n_columns: int) -> list[str]:
    """A line for each method, and a rule where a group begins."""
    body: list[str] = []
    for line in summary.lines:
        if body and line.same < len(line.group):
            rule = f"\\cmidrule{{{line.same + 1}-{n_columns}}}" if line.same else "\\midrule"
            body.append(f"    {rule}")
        group = [
            "" if place < line.same else _multirow(summary, line.group[: place + 1])
            for place in range(len(line.group))
        ]
        values = [_entry(line.entries[name]) for name in summary.measures]
        body.append(f"    {' & '.join([*group, escape(line.method), *values])} \\\\")
    return body


def _head(summary: Summary, name: str) -> str:
    measure = summary.measures[name]
    best = str(measure.get("best"))
    target = ""
    if best == "level" and len(summary.levels) == 1:
        target = f" {{\\tiny $(\\gtrsim {summary.levels[0]:g})$}}"
    head = HEADS.get(name) or escape(measure.get("label") or name)
    return head + target + _ARROWS.get(best, "")


def _entry(entry: Any) -> str:
    number, _, splits = entry.text.partition(" [")
    if number in ("failed", "skipped"):
        return f"\\textit{{{number}}}"
    if number == "–":
        return "--"
    number = "\\ll 0" if entry.text.startswith("≪") else number
    number = number.replace("−∞", "-\\infty").replace("∞", "\\infty")
    number = re.sub(r"e(-?\d+)$", r" \\cdot 10^{\1}", number)
    number = f"\\mathbf{{{number}}}" if entry.best else number
    shown = f"${number}^{{\\dagger}}$" if entry.flagged else f"${number}$"
    return f"{shown} [{splits}" if splits else shown


def _multirow(summary: Summary, start: tuple[Any, ...]) -> str:
    height = sum(line.group[: len(start)] == start for line in summary.lines)
    value = start[-1]
    text = escape(f"{value:g}" if isinstance(value, float) else str(value))
    return text if height == 1 else f"\\multirow{{{height}}}{{*}}{{{text}}}"


def escape(text: str) -> str:
    """The text on one line, with LaTeX's own characters written out."""
    return "".join(_CHARACTERS.get(c, c) for c in " ".join(text.split()))
