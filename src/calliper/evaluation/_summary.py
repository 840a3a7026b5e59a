"""From records to the paper's table: means over splits, with the uncertainty of the last digit.

Uncertainty is, unless asked otherwise, the paper's 1-σ percentile error over splits: how far the
value of one split lies from the mean. It says what to expect of *one* calibration set; the error
of the printed mean itself (``uncertainty="bootstrap"``) is smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from calliper.evaluation._cell import Row
from calliper.evaluation._entries import Entry, coverage_of, entry_of, mark_best
from calliper.evaluation._measures import DEFAULT_MEASURES
from calliper.evaluation._records import Records
from calliper.evaluation._tables import latex, markdown
from calliper.exceptions import CalliperError

if TYPE_CHECKING:
    import pandas as pd

Uncertainty = Literal["splits", "bootstrap"]

#: Columns unless others are asked for, those of the paper first.
TABLE = ("coverage", "mean_width", "r2_sqi", "tau_sqi", "tau_si", "interval_score")


@dataclass(frozen=True)
class Line:
    """A method in its group, with an entry for each measure."""

    group: tuple[Any, ...]
    method: str
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Summary:
    """What :func:`summarise` returns; ``notes`` say what failed, was skipped or not compared."""

    by: tuple[str, ...]
    measures: dict[str, dict[str, Any]]
    lines: list[Line]
    notes: list[str]
    levels: tuple[float, ...]
    uncertainty: str

    def to_markdown(self) -> str:
        """The table in Markdown, with a legend and the notes below."""
        return markdown(self)

    def to_latex(self) -> str:
        r"""The table in LaTeX; needs ``\\usepackage{booktabs, multirow}``."""
        return latex(self)

    def to_frame(self) -> pd.DataFrame:
        """Numbers: a row for each group and method, two columns (value, error) a measure."""
        import pandas as pd

        index = [(*line.group, line.method) for line in self.lines]
        columns = {}
        for name in self.measures:
            entries = [line.entries[name] for line in self.lines]
            columns[name] = [entry.value for entry in entries]
            columns[f"{name}_error"] = [entry.error for entry in entries]
        names = [*self.by, "method"]
        return pd.DataFrame(columns, index=pd.MultiIndex.from_tuples(index, names=names))


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
        Columns. By default the paper's, the interval score, those that you brought yourself, and
        the fraction of infinite intervals where there are any.
    by : names of fields
        What makes a group, inside which methods are compared. The level is added if there are
        several.
    uncertainty : {"splits", "bootstrap"}
        ``"splits"``: the 68th percentile of the distances of single splits from their mean, the
        paper's. ``"bootstrap"``: that of the means of resampled splits, the error of the mean.

    Returns
    -------
    Summary
        With ``to_markdown()``, ``to_latex()`` and ``to_frame()``. Bold values are the best of
        their group and those within the uncertainties of it; † marks coverage that is too low,
        or the width where coverage is not among the columns;
        methods that failed, were skipped, or are infinite or undefined are shown as such.

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
    if uncertainty not in get_args(Uncertainty):
        raise CalliperError(f"uncertainty must be 'splits' or 'bootstrap'; got {uncertainty!r}.")
    if not records.rows:
        raise CalliperError("records must not be empty: there is nothing to summarise.")
    levels = tuple(dict.fromkeys(row["level"] for row in records))
    keys = (*by, "level") if len(levels) > 1 and "level" not in by else tuple(by)
    _refuse_unknown(keys, records.rows[0], "by")
    shown = _columns(records, measures)
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in records:
        methods = groups.setdefault(tuple(row[key] for key in keys), {})
        methods.setdefault(row["method"], []).append(row)
    lines = []
    for group, methods in groups.items():
        entries = {
            method: {name: entry_of(rows, name, shown[name], uncertainty) for name in shown}
            for method, rows in methods.items()
        }
        covers = {method: coverage_of(rows, records.measures) for method, rows in methods.items()}
        mark_best(entries, shown, covers)
        lines += [Line(group, method, of_method) for method, of_method in entries.items()]
    notes = [*_not_compared(records, shown), *_notes(records)]
    return Summary(keys, shown, lines, notes, levels, uncertainty)


def _columns(records: Records, measures: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    if measures is None:
        known = records.measures
        own = [name for name in known if name not in DEFAULT_MEASURES]
        infinite = any(row.get("fraction_infinite", 0) > 0 for row in records)
        extra = ["fraction_infinite"] if infinite else []
        measures = [*(name for name in TABLE if name in known), *extra, *own]
    _refuse_unknown(measures, records.measures, "measures")
    return {name: records.measures[name] for name in measures}


def _refuse_unknown(names: Sequence[str], known: dict[str, Any], what: str) -> None:
    unknown = [name for name in names if name not in known]
    if isinstance(names, str) or unknown:
        raise CalliperError(f"{what} must be a list of {', '.join(known)}; got {names!r}.")


def _not_compared(records: Records, shown: dict[str, dict[str, Any]]) -> list[str]:
    """Why no width is bold, if no coverage was measured: to miss is the easy way to be narrow."""
    names = [name for name, measure in shown.items() if measure.get("if_covered")]
    measured = any(measure.get("best") == "level" for measure in records.measures.values())
    if measured or not names or len({row["method"] for row in records}) < 2:
        return []
    return [f"{', '.join(names)}: not compared, since no coverage was measured"]


def _notes(records: Records) -> list[str]:
    """What failed or was skipped, counted by method, problem and the text of the error."""
    counts = Counter(
        (row["method"], row["problem"], row["status"], " ".join(row["error"].split()))
        for row in records
        if row["error"]
    )
    words = {"ok": "measured in part", "failed": "failed", "skipped": "skipped"}
    return [
        f"{method} on {problem}: {words[status]} in {count} rows: {error}"
        for (method, problem, status, error), count in counts.items()
    ]
