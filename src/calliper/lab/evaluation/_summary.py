"""The paper's table from records: means over splits, with the uncertainty of the last digit.

0.952(6) is 0.952 ± 0.006. Bold is the best value of its group, and every value that differs from it
by no more than the two uncertainties in quadrature, of those that are defined in every split; of
widths, only where coverage was measured and is not flagged. A coverage is flagged with † if its
mean is below the level by more than three standard errors, which are at least as large as the
binomial law and the Beta law of one calibration set imply.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from math import hypot, isfinite, isinf, isnan, nan, sqrt
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from calliper._validation import check_option
from calliper.exceptions import CalliperError
from calliper.lab._words import number
from calliper.lab.evaluation._records import Records, Row
from calliper.lab.metrics import MEASURES

if TYPE_CHECKING:
    import pandas as pd

Uncertainty = Literal["splits", "bootstrap"]
Measures = dict[str, dict[str, Any]]

#: Default columns, those of the paper first.
TABLE = ("coverage", "mean_width", "r2_sqi", "tau_sqi", "tau_si", "interval_score")

#: Below this, R²_SQI says "not adaptive" and no more; the paper prints ≪ 0.
FAR_BELOW = -2.0

#: Standard errors below the level from which coverage is flagged.
FLAG = 3.0

#: Part of a normal distribution within one standard deviation of its mean, in percent.
ONE_SIGMA = 68

#: Numbers from here on are written with a power of ten.
POWERS_FROM = 1e6

#: Digits that hold any two floats together.
_EXACT = 1100

#: What the error in parentheses is.
_UNCERTAINTIES = {
    "splits": "68th percentile of the distances of single splits from their mean",
    "bootstrap": "68th percentile of the error of the mean, from resampled splits",
}


@dataclass
class TableEntry:
    """A value of the table: its mean over ``n`` of ``of`` splits, and how it is shown."""

    value: float
    error: float
    n: int
    of: int
    text: str
    best: bool = False
    flagged: bool = False


@dataclass(frozen=True)
class Line:
    """A method in its group, with an entry for each measure."""

    group: tuple[Any, ...]  # the values that define the group
    same: int  # how many of them, from the first, equal those of the line above
    method: str
    entries: dict[str, TableEntry]


@dataclass(frozen=True)
class Summary:
    """The table of :func:`summarise`.

    Parameters
    ----------
    by : fields by which records were grouped
    measures : description of each measure
    lines : a line for each method in each group
    notes : what failed, was skipped or not compared
    levels : the coverages asked for
    uncertainty : kind of the errors

    Examples
    --------
    >>> row = {"problem": "fan", "n_calibration": 50, "method": "Split", "level": 0.9, "n_test": 90}
    >>> row |= {"status": "ok", "error": None, "mean_width": 1.0}
    >>> summarise(Records([row], {"mean_width": {"best": "smaller"}})).levels
    (0.9,)
    """

    by: tuple[str, ...]
    measures: Measures
    lines: list[Line]
    notes: list[str]
    levels: tuple[float, ...]
    uncertainty: str

    def to_markdown(self) -> str:
        """The table in Markdown, with a legend and the notes below."""
        heads = [{"n_calibration": "N"}.get(name, name) for name in self.by]
        heads += ["method", *(self._head(name) for name in self.measures)]
        rows = [[_in_cell(head) for head in heads]]
        for line in self.lines:  # a group is named in its first line only
            new = line.group[line.same :]
            group = [_in_cell(f"{v:g}" if isinstance(v, float) else str(v)) for v in new]
            entries = (line.entries[name] for name in self.measures)
            texts = ((each.best, each.text + " †" * each.flagged) for each in entries)
            values = [f"**{text}**" if best else text for best, text in texts]
            rows.append([*[""] * line.same, *group, _in_cell(line.method), *values])
        table = ["| " + " | ".join(cells) + " |" for cells in rows]
        table.insert(1, "|---" * len(heads) + "|")
        notes = [f"- {_in_cell(note)}" for note in self.notes]
        parts = ["\n".join(table), " ".join(self.legend()), "\n".join(notes)]
        return "\n\n".join(part for part in parts if part)

    def legend(self, bold: str = "**Bold**") -> list[str]:
        """The meaning of the marks of the table, one sentence each."""
        entries = [entry for line in self.lines for entry in line.entries.values()]
        shown = " ".join(f"{'*' * e.best}{'†' * e.flagged}{e.text}" for e in entries)
        marks = {
            "*": f"{bold}: best of its group, or within the uncertainties of it.",
            "†": "†: coverage below the level by more than three standard errors; widths not "
            "compared.",
            "[": "[k/n]: defined, or infinite (∞), on k of n splits only.",
            "–": "–: not defined (a constant width has no order).",
        }
        what = f"the uncertainty of the last digit, {_UNCERTAINTIES[self.uncertainty]}"
        told = [words for mark, words in marks.items() if mark in shown]
        return [f"In parentheses: {what}.", *told]

    def _head(self, name: str) -> str:
        measure = self.measures[name]
        best, levels = measure.get("best"), self.levels
        target = f" (≥ {levels[0]:g})" if best == "level" and len(levels) == 1 else ""
        arrow = {"smaller": " ↓", "larger": " ↑"}.get(str(best), "")
        return (measure.get("label") or name) + target + arrow

    def to_frame(self) -> pd.DataFrame:
        """A row for each group and method, with columns for value and error of each measure."""
        import pandas as pd

        columns = {
            name + suffix: [getattr(line.entries[name], kind) for line in self.lines]
            for name in self.measures
            for suffix, kind in (("", "value"), ("_error", "error"))
        }
        groups = [(*line.group, line.method) for line in self.lines]
        index = pd.MultiIndex.from_tuples(groups, names=[*self.by, "method"])
        return pd.DataFrame(columns, index=index)


def summarise(
    records: Records,
    *,
    measures: Sequence[str] | None = None,
    by: Sequence[str] = ("problem", "n_calibration"),
    uncertainty: Uncertainty = "splits",
) -> Summary:
    """Means over splits in the layout of the paper's table.

    Parameters
    ----------
    records : Records
    measures : list of names, optional
        Columns. By default the paper's, the interval score, your own measures, and the fraction of
        infinite intervals if there are any.
    by : names of fields that define a group, in which methods are compared
        The level is added if there are several.
    uncertainty : {"splits", "bootstrap"}
        The 68th percentile of the distances of single splits from their mean, the paper's; or that
        of the means of resampled splits, the error of the mean.

    Returns
    -------
    Summary
        With ``to_markdown()`` and ``to_frame()``. Bold values are the best of their group, or
        equal to it within the uncertainties; † marks coverage that is too low, or widths if
        coverage is not among the columns; failed, skipped, infinite and undefined are shown.

    Examples
    --------
    >>> rows = [
    ...     {"problem": "fan", "n_calibration": 50, "n_test": 90, "level": 0.9, "split": split,
    ...      "method": "Split", "status": "ok", "error": None, "mean_width": width}
    ...     for split, width in enumerate([1.0, 1.1, 1.2])
    ... ]
    >>> print(summarise(Records(rows, {"mean_width": {"best": "smaller"}})).to_markdown())
    | problem | N | method | mean_width ↓ |
    |---|---|---|---|
    | fan | 50 | Split | 1.1(1) |
    <BLANKLINE>
    In parentheses: the uncertainty of the last digit, 68th percentile of the distances of single
    splits from their mean.
    """
    check_option(uncertainty, get_args(Uncertainty), "uncertainty")
    if not records.rows:
        raise CalliperError("records must not be empty: there is nothing to summarise.")
    levels = tuple(dict.fromkeys(row["level"] for row in records))
    keys = (*by, "level") if len(levels) > 1 and "level" not in by else tuple(by)
    _refuse_unknown(keys, records.rows[0], "by")
    shown = _columns(records, measures)
    known = shown | {name: m for name, m in records.measures.items() if m.get("best") == "level"}
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in records:
        methods = groups.setdefault(tuple(row[key] for key in keys), {})
        methods.setdefault(row["method"], []).append(row)
    lines: list[Line] = []
    for group, methods in groups.items():
        found = {
            method: {name: _entry(rows, name, known[name], uncertainty) for name in known}
            for method, rows in methods.items()
        }
        _mark_best(list(found.values()), shown, known)
        for method, entries in found.items():
            above = lines[-1].group if lines else ()
            same = [one == other for one, other in zip(group, above, strict=False)]
            own = {name: entries[name] for name in shown}
            lines.append(Line(group, [*same, False].index(False), method, own))
    return Summary(keys, shown, lines, _notes(records, shown), levels, uncertainty)


def _columns(records: Records, measures: Sequence[str] | None) -> Measures:
    if measures is None:
        known = records.measures
        own = [name for name in known if name not in MEASURES]
        infinite = any(row.get("fraction_infinite", 0) > 0 for row in records)
        extra = ["fraction_infinite"] if infinite else []
        measures = [*(name for name in TABLE if name in known), *extra, *own]
    _refuse_unknown(measures, records.measures, "measures")
    return {name: records.measures[name] for name in measures}


def _refuse_unknown(names: Sequence[str], known: dict[str, Any], what: str) -> None:
    if isinstance(names, str) or any(name not in known for name in names):
        raise CalliperError(f"{what} must be a list of {', '.join(known)}; got {names!r}.")


def _notes(records: Records, shown: Measures) -> list[str]:
    """Widths that are not compared; failed and skipped rows by method, problem and error."""
    widths = [name for name, measure in shown.items() if measure.get("if_covered")]
    measured = any(measure.get("best") == "level" for measure in records.measures.values())
    notes = []
    if widths and not measured and len({row["method"] for row in records}) > 1:
        notes = [f"{', '.join(widths)}: not compared, since no coverage was measured"]
    counts = Counter(
        (row["method"], row["problem"], row["status"], " ".join(row["error"].split()))
        for row in records
        if row["error"]
    )
    words = {"ok": "measured in part", "failed": "failed", "skipped": "skipped"}
    return notes + [
        f"{method} on {problem}: {words[status]} in {count} rows: {error}"
        for (method, problem, status, error), count in counts.items()
    ]


def _entry(rows: list[Row], name: str, measure: dict[str, Any], uncertainty: str) -> TableEntry:
    """Mean of a measure over the splits of one method, and its text."""
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        text = "failed" if any(row["status"] == "failed" for row in rows) else "skipped"
        return TableEntry(nan, nan, 0, len(rows), text)
    values = np.array([row.get(name, nan) for row in done], dtype=np.float64)
    values = values[~np.isnan(values)]
    mean, error = one_sigma(values)
    if uncertainty == "bootstrap" and isfinite(error):
        means = np.random.default_rng(0).choice(values, size=(2000, len(values))).mean(axis=1)
        error = float(np.percentile(np.abs(means - values.mean()), ONE_SIGMA))
    counted = int(np.isinf(values).sum()) if np.isinf(mean) else len(values)
    text = last_digit(mean, error)
    if name == "r2_sqi" and mean + (error if isfinite(error) else 0.0) < FAR_BELOW:
        text = "≪ 0"
    if 0 < counted < len(rows):
        text += f" [{counted}/{len(rows)}]"
    flagged = measure.get("best") == "level" and len(values) > 0 and _misses(values, done)
    return TableEntry(mean, error, len(values), len(rows), text, flagged=flagged)


def _misses(values: Any, rows: list[Row]) -> bool:
    """Whether a mean coverage is below its level by more than chance."""
    keys = ("level", "n_calibration", "n_test")
    level, n, m = (np.array([row[key] for row in rows], float) for key in keys)
    by_law = float(np.mean(level * (1 - level) * (1 / (n + 2) + 1 / m)))
    seen = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    return bool(values.mean() < level.mean() - FLAG * sqrt(max(seen, by_law) / len(values)))


def _mark_best(lines: list[dict[str, TableEntry]], shown: Measures, known: Measures) -> None:
    """Mark the best entries of one group, and flag widths whose coverage is not shown."""
    levels = [name for name, measure in known.items() if measure.get("best") == "level"]
    for name, measure in shown.items():
        rivals = []
        for line in lines:
            entry, only_covered = line[name], bool(measure.get("if_covered"))
            too_low = only_covered and any(line[each].flagged for each in levels)
            if too_low and not any(each in shown for each in levels):
                entry.flagged = True
            unknown = only_covered and not any(line[each].n for each in levels)
            complete = isfinite(entry.value) and entry.n == entry.of and entry.text != "≪ 0"
            if complete and not too_low and not unknown:
                rivals.append(entry)
        sign = {"smaller": 1, "larger": -1}.get(str(measure.get("best")))
        if sign is None or not rivals or len(lines) < 2:
            continue
        best = min(rivals, key=lambda entry: sign * entry.value)
        for entry in rivals:
            errors = np.nan_to_num([entry.error, best.error], posinf=0.0)
            entry.best = abs(entry.value - best.value) <= hypot(*errors)


def _in_cell(text: str) -> str:
    # An underscore inside a word is literal; at its edge it would start italics.
    special = r"(^[#>+-]|[\\|*`<\[]|(?<![^\W_])_|_(?![^\W_]))"
    return re.sub(special, r"\\\1", " ".join(text.split()))


def one_sigma(values: Any) -> tuple[float, float]:
    """Mean, and the 68th percentile of the distances from it: one σ for normal values.

    Parameters
    ----------
    values : (n,) numbers, of which an infinite one makes the mean infinite

    Returns
    -------
    tuple of float; the mean, and its error, NaN with fewer than two values

    Examples
    --------
    >>> one_sigma([1.0, 1.5, 2.0])
    (1.5, 0.5)
    """
    values = np.asarray(values, dtype=np.float64)
    mean = float(np.mean(values)) if len(values) else float("nan")
    if len(values) < 2 or not isfinite(mean):
        return mean, float("nan")
    # The rounded mean of equal numbers may differ in the last digit.
    if values.min() == values.max():
        return float(values[0]), 0.0
    return mean, float(np.percentile(np.abs(values - mean), ONE_SIGMA))


def last_digit(value: float, error: float = float("nan")) -> str:
    """Text: a value with the uncertainty of its last digit in parentheses.

    Without parentheses the error is zero (with three decimals) or unknown. NaN is a dash.

    Parameters
    ----------
    value : float
    error : float, optional; its uncertainty, which is rounded to one digit; NaN if unknown

    Returns
    -------
    str

    Examples
    --------
    >>> last_digit(0.9523, 0.0061), last_digit(0.9996, 0.0007), last_digit(187.3, 32.0)
    ('0.952(6)', '0.9996(7)', '190(30)')
    >>> last_digit(0.25, 0.0), last_digit(float("inf"), 1.0), last_digit(2.34e7, 1e6)
    ('0.250', '∞', '2.3(1)e7')
    """
    if error < 0:
        raise CalliperError(f"error must be at least 0, or NaN if unknown; got {error!r}.")
    if not isfinite(value):
        return number(value)
    if isinf(error):
        return f"{_plain(value)}(∞)"
    if isnan(error) or error == 0:
        return _plain(value)
    digit, exponent = (int(part) for part in f"{error:.0e}".split("e"))
    # In decimals, whose powers of ten neither overflow nor vanish; rounded before the power is
    # read off, since 9.99(6)e6 may become 1.000e7.
    with localcontext() as context:
        context.prec = _EXACT
        rounded = round(Decimal(value), -exponent)
        if max(abs(value), error) < POWERS_FROM and exponent >= -9:
            return f"{_fixed(rounded, max(-exponent, 0))}({digit * 10 ** max(exponent, 0)})"
        power = max(rounded.adjusted(), exponent) if rounded else exponent
        return f"{_fixed(rounded.scaleb(-power), power - exponent)}({digit})e{power}"


def _plain(value: float) -> str:
    """Three decimals where these suffice, otherwise three digits and a power of ten."""
    if value == 0 or 1e-3 <= abs(value) < POWERS_FROM:
        return f"{value:.3f}"
    mantissa, power = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(power)}"


def _fixed(value: Decimal, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text
