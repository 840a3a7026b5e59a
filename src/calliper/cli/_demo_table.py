"""The table of the demonstration."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import floor, isnan

from calliper.cli._comparison import N_CALIBRATION, K, Measures

#: Letters that the table takes with room between its columns; a pipe has no width of its own.
_WIDTH = 100


def promise(proved: float) -> str:
    """The proved coverage in percent, rounded down so as not to promise more."""
    return f"≥ {floor(proved * 1000) / 10:.1f} %"


def print_table(rows: Sequence[Measures], coverage: float) -> None:
    """A row for each method; the last, the oracle, set apart."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    table = Table(
        title=f"Intervals at coverage {coverage:g} from {N_CALIBRATION} calibration points, "
        f"{K} nearest neighbours",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1 if console.width >= _WIDTH else 0),
        show_edge=False,
    )
    table.add_column("method", no_wrap=True)
    for name in ("proved", "coverage", "width", "width/2", "score", "τ_SI", "τ_SQI", "R²_SQI"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), end_section=row is rows[-2])
    console.print(table)


def _cells(row: Measures) -> list[str]:
    proved = "" if row.proved is None else promise(row.proved)
    sizes = [f"{value:.3f}" for value in (row.width, row.half_width, row.interval_score)]
    ranks = [_rank(value) for value in (row.tau_si, row.tau_sqi, row.r2_sqi)]
    return [row.method, proved, f"{row.coverage:.1%}", *sizes, *ranks]


def _rank(value: float) -> str:
    if isnan(value):
        return "-"
    # Widths that hardly vary give R² of minus hundreds; how many says nothing.
    return "< -10" if value < -10 else f"{value:.2f}"
