"""A summary as Markdown and as LaTeX, in the layout of the paper's main table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calliper.evaluation._entries import Entry
    from calliper.evaluation._summary import Summary

_ARROWS = {"smaller": " ↓", "larger": " ↑"}
_LATEX_ARROWS = {"smaller": r" ${}^\downarrow$", "larger": r" ${}^\uparrow$"}
_HEADS = {"n_calibration": "N"}
_LATEX_HEADS = {"problem": "Dataset", "n_calibration": r"$N_{\mathrm{cal}}$", "level": "Level"}
_LATEX_CHARACTERS = {
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


def markdown(summary: Summary) -> str:
    """A table that also reads well as plain text: a group is named on its first line only."""
    heads = [_HEADS.get(name, name) for name in summary.by]
    heads += ["method", *(_head(summary, name) for name in summary.measures)]
    rows = ["| " + " | ".join(_in_cell(head) for head in heads) + " |", "|---" * len(heads) + "|"]
    previous: tuple[Any, ...] = ()
    for line in summary.lines:
        group = _first_of_group(line.group, previous)
        previous = line.group
        cells = ["" if value is None else _in_cell(_text(value)) for value in group]
        cells += [_in_cell(line.method), *(_bold(line.entries[n]) for n in summary.measures)]
        rows.append("| " + " | ".join(cells) + " |")
    notes = [f"- {_in_cell(note)}" for note in summary.notes]
    parts = ["\n".join(rows), " ".join(_legend(summary)), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def latex(summary: Summary) -> str:
    """The same with ``booktabs`` rules and ``multirow`` groups."""
    columns = "c" * len(summary.by) + "l" * (1 + len(summary.measures))
    heads = [_LATEX_HEADS.get(name, _escape(name)) for name in summary.by]
    heads += ["Method", *(_latex_head(summary, name) for name in summary.measures)]
    body = []
    previous: tuple[Any, ...] = ()
    for line in summary.lines:
        group = _first_of_group(line.group, previous)
        if previous and line.group != previous:
            first = next(place for place, value in enumerate(group) if value is not None)
            rule = f"\\cmidrule{{{first + 1}-{len(columns)}}}" if first else "\\midrule"
            body.append(f"    {rule}")
        previous = line.group
        cells = [
            "" if value is None else _multirow(summary, line.group[: place + 1])
            for place, value in enumerate(group)
        ]
        cells += [_escape(line.method), *(_latex_entry(line.entries[n]) for n in summary.measures)]
        body.append(f"    {' & '.join(cells)} \\\\")
    caption = _escape(" ".join(_legend(summary, bold="Bold")))
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
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            f"  \\caption{{{caption}}}",
            r"\end{table}",
        ]
    )


def _first_of_group(group: tuple[Any, ...], previous: tuple[Any, ...]) -> list[Any]:
    """The group with None for what the line above says already."""
    same = 0
    while same < len(previous) and group[same] == previous[same]:
        same += 1
    return [None] * same + list(group[same:])


def _head(summary: Summary, name: str) -> str:
    measure = summary.measures[name]
    best = str(measure.get("best"))
    target = f" (≥ {summary.levels[0]:g})" if best == "level" and len(summary.levels) == 1 else ""
    return (measure.get("label") or name) + target + _ARROWS.get(best, "")


def _latex_head(summary: Summary, name: str) -> str:
    measure = summary.measures[name]
    best = str(measure.get("best"))
    target = ""
    if best == "level" and len(summary.levels) == 1:
        target = f" {{\\tiny $(\\gtrsim {summary.levels[0]:g})$}}"
    head = measure.get("latex") or _escape(measure.get("label") or name)
    return head + target + _LATEX_ARROWS.get(best, "")


def _legend(summary: Summary, bold: str = "**Bold**") -> list[str]:
    entries = [entry for line in summary.lines for entry in line.entries.values()]
    kinds = {
        "splits": "68th percentile of the distances of single splits from their mean",
        "bootstrap": "68th percentile of the error of the mean, from resampled splits",
    }
    words = [f"In parentheses: the uncertainty of the last digit, {kinds[summary.uncertainty]}."]
    if any(entry.best for entry in entries):
        words.append(f"{bold}: best of its group, or within the uncertainties of it.")
    if any(entry.flagged for entry in entries):
        words.append(
            "†: coverage below the level by more than three standard errors; widths not compared."
        )
    if any("[" in entry.text for entry in entries):
        words.append("[k/n]: defined, or infinite (∞), on k of n splits only.")
    if any(entry.text == "–" for entry in entries):
        words.append("–: not defined (a constant width has no order).")
    return words


def _bold(entry: Entry) -> str:
    text = entry.text + (" †" if entry.flagged else "")
    return f"**{text}**" if entry.best else text


def _latex_entry(entry: Entry) -> str:
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
    text = _escape(_text(start[-1]))
    return text if height == 1 else f"\\multirow{{{height}}}{{*}}{{{text}}}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_cell(text: str) -> str:
    # An underscore inside a word is only an underscore; at its edge it would start italics.
    special = r"(^[#>+-]|[\\|*`<\[]|(?<![^\W_])_|_(?![^\W_]))"
    return re.sub(special, r"\\\1", " ".join(text.split()))


def _escape(text: str) -> str:
    return "".join(_LATEX_CHARACTERS.get(c, c) for c in " ".join(text.split()))
