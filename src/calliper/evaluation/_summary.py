"""From records to the paper's table: means over splits, with the uncertainty of the last digit.

Uncertainty is, unless asked otherwise, the paper's 1-σ percentile error over splits: how far the
value of one split lies from the mean. It says what to expect of *one* calibration set; the error
of the printed mean itself (``uncertainty="bootstrap"``) is smaller.

Bold is the best value of its group, and every value that differs from it by no more than the two
printed uncertainties together (in quadrature). Values from fewer splits than there were take no
part, nor, for widths, do methods that cover too little.

A coverage is flagged with † if its mean lies below the level by more than three standard errors;
these are at least what the binomial law and the Beta law of the coverage of one calibration set
give, so that a few splits that agree by chance do not flag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, isfinite, sqrt
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from calliper.evaluation._cell import Row
from calliper.evaluation._last_digit import ONE_SIGMA, last_digit, one_sigma
from calliper.evaluation._measures import DEFAULT_MEASURES
from calliper.evaluation._records import Records
from calliper.evaluation._tables import latex, markdown
from calliper.exceptions import CalliperError

if TYPE_CHECKING:
    import pandas as pd

Uncertainty = Literal["splits", "bootstrap"]

#: Columns unless others are asked for, those of the paper first.
TABLE = ("coverage", "mean_width", "r2_sqi", "tau_sqi", "tau_si", "interval_score")

#: Below this, R²_SQI says "not adaptive" and no more; the paper prints ≪ 0.
FAR_BELOW = -2.0

#: Standard errors by which a flagged coverage misses its level.
FLAG = 3.0


@dataclass(frozen=True)
class Entry:
    """One value of the table: its mean over ``n`` of ``of`` splits, and how it is shown."""

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

    group: tuple[Any, ...]
    method: str
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Summary:
    """What :func:`summarise` returns; ``notes`` name what failed or was skipped, and why."""

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
        their group and those within the uncertainties of it; † marks coverage that is too low;
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
            method: {name: _entry(rows, name, shown[name], uncertainty) for name in shown}
            for method, rows in methods.items()
        }
        _mark_best(entries, shown)
        lines += [Line(group, method, of_method) for method, of_method in entries.items()]
    return Summary(keys, shown, lines, _notes(records), levels, uncertainty)


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


def _entry(rows: list[Row], name: str, measure: dict[str, Any], uncertainty: str) -> Entry:
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        text = "failed" if any(row["status"] == "failed" for row in rows) else "skipped"
        return Entry(float("nan"), float("nan"), 0, len(rows), text)
    values = np.array([row[name] for row in done], dtype=np.float64)
    values = values[~np.isnan(values)]
    mean, error = one_sigma(values)
    if uncertainty == "bootstrap" and isfinite(error):
        error = _bootstrap_error(values)
    counted = int(np.isinf(values).sum()) if np.isinf(mean) else len(values)
    text = last_digit(mean, error)
    if name == "r2_sqi" and mean + (error if isfinite(error) else 0.0) < FAR_BELOW:
        text = "≪ 0"
    if 0 < counted < len(rows):
        text += f" [{counted}/{len(rows)}]"
    flagged = measure.get("best") == "level" and _misses(mean, values, done)
    return Entry(mean, error, len(values), len(rows), text, flagged=flagged)


def _bootstrap_error(values: Any) -> float:
    rng = np.random.default_rng(0)
    means = rng.choice(values, size=(2000, len(values))).mean(axis=1)
    return float(np.percentile(np.abs(means - values.mean()), ONE_SIGMA))


def _misses(mean: float, values: Any, rows: list[Row]) -> bool:
    """Whether a mean coverage lies below its level by more than chance."""
    if not len(values):
        return False
    by_law = [
        row["level"] * (1 - row["level"]) * (1 / (row["n_calibration"] + 2) + 1 / row["n_test"])
        for row in rows
    ]
    seen = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    standard_error = sqrt(max(seen, float(np.mean(by_law))) / len(values))
    return bool(mean < np.mean([row["level"] for row in rows]) - FLAG * standard_error)


def _mark_best(entries: dict[str, dict[str, Entry]], measures: dict[str, dict[str, Any]]) -> None:
    """Put ``best`` on the entries of one group."""
    if len(entries) < 2:
        return
    too_low = {m for m, row in entries.items() if any(entry.flagged for entry in row.values())}
    for name, measure in measures.items():
        sign = {"smaller": 1, "larger": -1}.get(str(measure.get("best")))
        rivals = {
            method: row[name]
            for method, row in entries.items()
            if isfinite(row[name].value) and row[name].n == row[name].of and row[name].text != "≪ 0"
            if not (measure.get("if_covered") and method in too_low)
        }
        if sign is None or not rivals:
            continue
        best = min(rivals.values(), key=lambda entry: sign * entry.value)
        for method, entry in rivals.items():
            tolerance = hypot(_known(entry.error), _known(best.error))
            if abs(entry.value - best.value) <= tolerance:
                entries[method][name] = replace(entry, best=True)


def _known(error: float) -> float:
    return error if isfinite(error) else 0.0


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
