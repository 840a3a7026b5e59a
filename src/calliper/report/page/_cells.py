"""The table of methods as text: numbers are written here once, for the page and its script."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf, isnan
from typing import Literal, NamedTuple

from calliper.report.comparison import Comparison, Record
from calliper.report.comparison._format import number, percent, percent_down, seconds, with_error


class Column(NamedTuple):
    """A heading, what it means in a line, and which end is the better one."""

    title: str
    meaning: str
    best: Literal["high", "low"]


COLUMNS = (
    Column("proved", "the coverage that is proved, if the assumptions hold", "high"),
    Column("coverage", "share of the test points inside their interval", "high"),
    Column("mean width", "upper minus lower end, in the unit of the target", "low"),
    Column("median width", "half of the intervals are narrower; its half is the usual ±", "low"),
    Column("interval score", "width plus a fine for misses; the measure that decides", "low"),
    Column(
        "score against constant width",
        "interval score in percent of split's; below 100 % is better than one width for all",
        "low",
    ),
    Column(
        "worst tenth, prediction",
        "coverage in the worst tenth of the predictions; in larger parts where they are tied",
        "high",
    ),
    Column("worst tenth, width", "coverage in the worst tenth of the method's own widths", "high"),
    Column(
        "τ_SI",
        "rank correlation of width and error: 1 if wider always means a larger error, 0 if widths "
        "say nothing",
        "high",
    ),
    Column(
        "R²_SQI",
        "are widths in proportion to the errors they meet, tenth by tenth: 1 is best, negative "
        "means no better than a constant width",
        "high",
    ),
    Column("infinite", "share of the intervals without a bound", "low"),
    Column("seconds", "to fit and to answer at all levels", "low"),
)


@dataclass(frozen=True)
class Cell:
    """What is read, and what is sorted by."""

    text: str
    value: float


@dataclass(frozen=True)
class Row:
    """One method at one level; ``note`` is said beside its name."""

    method: str
    note: str
    cells: tuple[Cell, ...]


def rows(comparison: Comparison, level: float) -> list[Row]:
    """The table at one level, in the order in which the methods were given."""
    chosen = comparison.verdicts[comparison.levels.index(level)].method
    found = [comparison.record(method, level) for method in comparison.methods]
    return [
        Row(record.method, "" if comparison.is_void else _note(record, chosen), _cells(record))
        for record in found
    ]


def _note(record: Record, chosen: str | None) -> str:
    if record.method == chosen:
        return "use this"
    if record.fraction_infinite == 1:
        return "infinite"
    if record.coverage < record.chance_low:
        return "covers too little"
    return "covers more than asked" if record.coverage > record.chance_high else ""


def _cells(record: Record) -> tuple[Cell, ...]:
    r = record
    texts = (
        (percent_down(r.proved), r.proved),
        (f"{percent(r.coverage)} ± {100 * r.coverage_error:.1f}", r.coverage),
        (number(r.mean_width), r.mean_width),
        (number(r.median_width), r.median_width),
        (with_error(r.score, r.score_error), r.score),
        (_relative(r), r.relative_score),
        (percent(r.worst_by_prediction), r.worst_by_prediction),
        (percent(r.worst_by_width), r.worst_by_width),
        (_plain(r.tau_si), r.tau_si),
        ("< −10" if r.r2_sqi < -10 else _plain(r.r2_sqi), r.r2_sqi),
        (percent(r.fraction_infinite), r.fraction_infinite),
        (seconds(r.seconds), r.seconds),
    )
    return tuple(Cell(text, value) for text, value in texts)


def _relative(record: Record) -> str:
    ratio, error = record.relative_score, record.relative_score_error
    if ratio == 1 and error == 0:
        return "100\u00a0%"
    if isnan(ratio) or isinf(ratio) or isnan(error):
        return number(ratio)
    return f"{100 * ratio:.1f} ± {100 * error:.1f}\u00a0%"


def _plain(value: float) -> str:
    return "–" if isnan(value) else f"{value:.2f}".replace("-", "−")
