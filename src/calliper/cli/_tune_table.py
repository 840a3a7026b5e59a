"""The table of ``calliper tune``."""

from __future__ import annotations

import sys
from math import isfinite

import numpy as np

from calliper._types import IntArray
from calliper.tuning import TuningCurve

#: Letters that the table may take; a pipe has no width of its own.
_WIDTH = 100

#: Rows beyond which only some are shown: so many evenly spaced, so many that were chosen most.
_ALL, _SPACED, _CHOSEN = 30, 25, 5


def print_curve(curve: TuningCurve) -> None:
    """A row for each length scale; the last, the kernel to compare with, set apart."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    rows = _shown(curve)
    table = Table(
        title=f"Length scales for {len(curve.chosen)} calibration points",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        show_edge=False,
    )
    for name in ("length scale", f"{curve.criterion}, mean", "± deviation", "points"):
        table.add_column(name, justify="right", no_wrap=True)
    for place in rows:
        best = place == curve.favourite
        table.add_row(
            *_cells(curve, place),
            end_section=bool(place == rows[-1]),
            style="bold" if best else None,
        )
    if curve.reference_name is not None:
        value = curve.reference_value
        table.add_row(curve.reference_name, "too few points" if value is None else _number(value))
    console.print(table)
    if len(rows) < len(curve.candidates):
        console.print(f"({len(rows)} of {len(curve.candidates)} shown; the output has all)")


def _shown(curve: TuningCurve) -> IntArray:
    n = len(curve.candidates)
    if n <= _ALL:
        return np.arange(n)
    most = np.argsort(curve.counts, kind="stable")[-_CHOSEN:]
    spaced = np.linspace(0, n - 1, _SPACED).round().astype(np.intp)
    return np.union1d(spaced, most)


def _cells(curve: TuningCurve, place: int) -> list[str]:
    deviation, count = float(curve.deviation[place]), int(curve.counts[place])
    return [
        f"{curve.candidates[place]:#.4g}",
        _number(float(curve.mean[place])),
        f"{deviation:.2g}" if isfinite(deviation) else "-",
        str(count) if count else "",
    ]


def _number(value: float) -> str:
    return f"{value:#.5g}" if isfinite(value) else f"{value:g}"
