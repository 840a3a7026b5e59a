"""Cells of text: which are numbers, what is wrong with the others, how to quote them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import numpy as np

from calliper._types import FloatArray


def finite_numbers(cells: Sequence[str]) -> tuple[FloatArray, int | None]:
    """All cells as numbers, and the place of the first that is not a finite one, if any."""
    try:
        values = np.array(list(map(float, cells)))
        wrong = not np.isfinite(values).all()
    except ValueError:
        values, wrong = np.empty(0), True
    # Python reads 1_000 as a number; no program that writes CSV means that by it.
    if wrong or "_" in "".join(cells):
        return values, next(i for i, text in enumerate(cells) if what_is_wrong(text))
    return values, None


def what_is_wrong(text: str) -> str | None:
    """Why a cell is not a finite number, in words; ``None`` if it is one."""
    if not text.strip():
        return "the cell is empty"
    try:
        number = float(text)
    except ValueError:
        return f"{text!r} is not a number"
    if "_" in text:
        return f"{text!r} is not a number"
    return None if np.isfinite(number) else f"{text!r} is not a finite number"


def csv_texts(rows: Iterable[Sequence[str]], delimiter: str) -> list[str]:
    """Each row as one line of CSV without its end, quoted where it must be."""
    lines: list[str] = []
    csv.writer(
        SimpleNamespace(write=lines.append), delimiter=delimiter, lineterminator=""
    ).writerows(rows)
    return lines
