"""The table of methods as text: numbers are written here once, for the page and its script."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isinf, isnan, log10
from typing import NamedTuple

from calliper.report.comparison import Comparison, Record


class Column(NamedTuple):
    """A heading, and what it means in a line."""

    title: str
    meaning: str


COLUMNS = (
    Column("proved", "the coverage that is proved, if the assumptions hold"),
    Column("coverage", "share of the test points inside, ± its standard error"),
    Column("mean width", "in the unit of the target"),
    Column("median width", "in the unit of the target"),
    Column("interval score", "width plus a fine for misses, ± bootstrap error; smaller is better"),
    Column("against split", "interval score relative to a constant width; below 100 % is better"),
    Column("worst tenth, prediction", "coverage in the worst tenth of the predictions"),
    Column("worst tenth, width", "coverage in the worst tenth of the widths"),
    Column("τ_SI", "rank correlation of width and error; larger is better"),
    Column("R²_SQI", "1 if each tenth of the widths is as wide as its errors ask for"),
    Column("infinite", "share of the intervals without a bound"),
    Column("seconds", "to fit and answer at all levels"),
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
    verdict = comparison.verdicts[comparison.levels.index(level)]
    found = [comparison.record(method, level) for method in comparison.methods]
    return [
        Row(record.method, _note(record, record.method == verdict.method), _cells(record))
        for record in found
    ]


def _note(record: Record, chosen: bool) -> str:
    if chosen:
        return "use this"
    if record.coverage < record.chance_low:
        return "covers too little"
    return "covers more than asked" if record.coverage > record.chance_high else ""


def _cells(record: Record) -> tuple[Cell, ...]:
    r = record
    texts = (
        (share_down(r.proved), r.proved),
        (f"{share(r.coverage)} ± {100 * r.coverage_error:.1f}", r.coverage),
        (number(r.mean_width), r.mean_width),
        (number(r.median_width), r.median_width),
        (with_error(r.score, r.score_error), r.score),
        (_relative(r), r.relative_score),
        (share(r.worst_by_prediction), r.worst_by_prediction),
        (share(r.worst_by_width), r.worst_by_width),
        (_plain(r.tau_si), r.tau_si),
        ("< −10" if r.r2_sqi < -10 else _plain(r.r2_sqi), r.r2_sqi),
        (share(r.fraction_infinite), r.fraction_infinite),
        (f"{r.seconds:.2g}", r.seconds),
    )
    return tuple(Cell(text, value) for text, value in texts)


def _relative(record: Record) -> str:
    ratio, error = record.relative_score, record.relative_score_error
    if ratio == 1 and error == 0:
        return "100\u00a0%"
    if isnan(ratio) or isinf(ratio) or isnan(error):
        return number(ratio)
    return f"{100 * ratio:.1f} ± {100 * error:.1f}\u00a0%"


def share(value: float) -> str:
    """A share in percent, to a tenth; a dash if there is none."""
    return "–" if isnan(value) else f"{100 * value:.1f}\u00a0%"


def share_down(value: float) -> str:
    """A promise, rounded down so as not to promise more."""
    return "–" if isnan(value) else f"{floor(value * 1000 + 1e-9) / 10:.1f}\u00a0%"


def number(value: float) -> str:
    """Four digits, and no power of ten where people would write none."""
    if isnan(value):
        return "–"
    if isinf(value):
        return "∞"
    if value == 0:
        return "0"
    digits = 3 - floor(log10(abs(value)))
    if not -3 <= digits <= 7:
        return f"{value:.3e}"
    return f"{value:,.{max(digits, 0)}f}"


def with_error(value: float, error: float) -> str:
    """A number to the second digit of its error."""
    if isnan(error) or isinf(value) or error <= 0:
        return number(value)
    digits = 1 - floor(log10(error))
    if not -3 <= digits <= 7:
        return f"{value:.3e} ± {error:.1e}"
    places = max(digits, 0)
    return f"{value:,.{places}f} ± {error:,.{places}f}"


def _plain(value: float) -> str:
    return "–" if isnan(value) else f"{value:.2f}".replace("-", "−")
